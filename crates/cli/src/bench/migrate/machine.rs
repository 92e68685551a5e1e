//! The live machine of the experiments: two cards in the program, an array on one of them, and what moves it
//! to the other. Every run checks what its kernel has read, and every array what became of it.

use std::ops::Range;
use std::time::Instant;

use farside::{
    Buffer, CardId, Error, KernelContext, KernelError, MemoryId, Read, ReadSpan, Space, TimeSpent,
    Write, WriteSpan,
};
use farside_sim::cards::{Layout, Transport};
use farside_softcard::kernels::PIECE_BYTES;
use farside_types::PAGE_SIZE;

use super::super::counts::Counts;
use super::super::{BenchError, pin};
use super::samples::{Migration, Steps};

/// Values of a page.
pub(super) const PAGE: usize = PAGE_SIZE / size_of::<u64>();
/// Pages that the accelerator of the paper faults on together: its IOMMU has 16 reads in flight (section V-A).
const BATCH_PAGES: usize = 16;
/// Bytes of each card: the largest array and room for it to move.
const CARD_BYTES: u64 = 64 << 20;

/// Two cards in the program, whose pages go from one to the other by one transport.
pub(super) struct Machine {
    pub(super) transport: Transport,
    space: Space,
    source: CardId,
    target: CardId,
}

/// An array of the synthetic accelerator, and what it has to hold.
pub(super) struct Array {
    buffer: Buffer<u64>,
    /// The values that kernels update; the others of the buffer stay as they were.
    updated: Range<usize>,
    /// How often they were.
    launches: u64,
}

/// What value `index` is at first.
fn initial(index: usize) -> u64 {
    (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// How much of its array the accelerator takes at a time, and faults on together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Batch {
    /// What kernels take that let the library cut their ranges (`pieces`): 2 MiB.
    Piece,
    /// What the paper's accelerator can.
    Sixteen,
}

impl Batch {
    const fn values(self) -> usize {
        match self {
            Batch::Piece => PIECE_BYTES / size_of::<u64>(),
            Batch::Sixteen => BATCH_PAGES * PAGE,
        }
    }
}

/// Reads and updates all values consecutively, as the paper's synthetic workload does (section V-A). Gives
/// the sum of what it has read.
fn update(
    k: &mut KernelContext,
    mut values: WriteSpan<u64>,
    batch: Batch,
) -> Result<u64, KernelError> {
    let (len, step) = (values.len(), batch.values());
    let mut sum = 0u64;
    for start in (0..len).step_by(step) {
        let part = values.slice(start..len.min(start + step));
        k.with(part, |mut part| {
            for value in part.iter_mut() {
                sum = sum.wrapping_add(*value);
                *value = value.wrapping_add(1);
            }
        })?;
    }
    Ok(sum)
}

/// In how many contiguous pieces the pages of `values` lie on the card.
fn pieces(k: &mut KernelContext, values: ReadSpan<u64>) -> Result<usize, KernelError> {
    let (len, step) = (values.len(), BATCH_PAGES * PAGE);
    let mut pieces = 0;
    for start in (0..len).step_by(step) {
        let part = values.slice(start..len.min(start + step));
        pieces += k.with(part, |part| part.pieces().count())?;
    }
    Ok(pieces)
}

impl Array {
    /// `pages` whole pages, written by the host.
    pub(super) fn aligned(machine: &Machine, pages: usize) -> Result<Array, Error> {
        Array::new(machine, pages, 0..pages * PAGE)
    }

    /// 4 kB that lie across the border of two pages (section V-B).
    pub(super) fn across_a_border(machine: &Machine) -> Result<Array, Error> {
        Array::new(machine, 2, PAGE / 2..PAGE / 2 + PAGE)
    }

    fn new(machine: &Machine, pages: usize, updated: Range<usize>) -> Result<Array, Error> {
        let mut buffer = machine.space.alloc_named::<u64>(pages * PAGE, "array")?;
        buffer.iter_mut().enumerate().for_each(|(index, value)| *value = initial(index));
        Ok(Array { buffer, updated, launches: 0 })
    }

    /// Whole pages of it.
    pub(super) fn pages(&self) -> usize {
        self.buffer.len() / PAGE
    }

    fn values(&self) -> &[u64] {
        &self.buffer[self.updated.clone()]
    }

    /// What a kernel reads that is launched now.
    fn sum(&self) -> u64 {
        let added = self.launches.wrapping_mul(self.updated.len() as u64);
        self.updated.clone().map(initial).fold(added, u64::wrapping_add)
    }

    /// Whether every value is what it has to be; it comes to the host for that.
    ///
    /// # Errors
    /// [`BenchError::Failed`] names the first that is not.
    pub(super) fn check(&self, machine: &Machine) -> Result<(), BenchError> {
        machine.space.migrate(&self.buffer, MemoryId::HOST)?;
        let is_right = |(index, value): &(usize, &u64)| {
            let updates = if self.updated.contains(index) { self.launches } else { 0 };
            **value == initial(*index).wrapping_add(updates)
        };
        match self.buffer.iter().enumerate().find(|value| !is_right(value)) {
            None => Ok(()),
            Some((index, value)) => Err(BenchError::Failed(format!(
                "value {index} of {} is {value:#x} after {} updates: this is a bug in Farside",
                self.buffer.len(),
                self.launches
            ))),
        }
    }
}

impl Machine {
    /// Cards and fault reader are on `cpu`.
    pub(super) fn new(transport: Transport, cpu: usize) -> Result<Machine, Error> {
        let _pinned = pin(cpu);
        let peer = transport == Transport::Peer;
        let space = Space::builder().cards(2).card_memory(CARD_BYTES).peer_to_peer(peer);
        let space = space.warm(true).build()?;
        let (source, target) = (space.card(0)?, space.card(1)?);
        Ok(Machine { transport, space, source, target })
    }

    /// What its driver has counted.
    pub(super) fn counts(&self) -> Counts {
        Counts::of(&self.space)
    }

    /// Puts all of an array on the source card.
    pub(super) fn place(&self, array: &Array, layout: Layout) -> Result<(), BenchError> {
        let pages: Vec<&[u64]> = array.buffer.chunks(PAGE).collect();
        match layout {
            Layout::Contiguous => {
                // From elsewhere, so that the frames are found anew.
                self.space.migrate(&array.buffer, self.target)?;
                self.space.migrate(&array.buffer, self.source)?;
            }
            Layout::Scattered => {
                self.space.migrate(&array.buffer, self.target)?;
                // First the odd pages, then the even ones: none lies behind its neighbour.
                let scattered = pages.iter().skip(1).step_by(2).chain(pages.iter().step_by(2));
                scattered
                    .copied()
                    .try_for_each(|page| self.space.migrate(page, self.source).map(drop))?;
            }
        }
        Ok(())
    }

    /// Whether the pages of an array lie on the source card as they should.
    ///
    /// # Errors
    /// [`BenchError::Failed`] if they do not: what is measured would be something else.
    pub(super) fn check_layout(&self, array: &Array, layout: Layout) -> Result<(), BenchError> {
        let launch = self.space.kernel("pieces").on(self.source);
        let found = launch.run(Read(&array.buffer), pieces)?;
        let batches = array.pages().div_ceil(BATCH_PAGES);
        let wanted = if layout == Layout::Scattered { array.pages() } else { batches };
        if found == wanted {
            return Ok(());
        }
        Err(BenchError::Failed(format!(
            "{} pages lie in {found} pieces on the source card and not in {wanted} ({layout:?})",
            array.pages()
        )))
    }

    /// Runs the accelerator on the target card over an array of which the first `managed` pages are
    /// migrated before, by the program. Gives the time of both in µs.
    ///
    /// # Errors
    /// [`BenchError::Failed`] if the kernel has read something else than what is there.
    pub(super) fn accelerate(
        &self,
        array: &mut Array,
        managed: usize,
        batch: Batch,
    ) -> Result<f64, BenchError> {
        let (expected, updated) = (array.sum(), array.updated.clone());
        let start = Instant::now();
        if managed > 0 {
            self.space.migrate(&array.buffer[..managed * PAGE], self.target)?;
        }
        let launch = self.space.kernel("update").on(self.target);
        let found = launch
            .run(Write(&mut array.buffer[updated]), move |k, values| update(k, values, batch))?;
        let micros = start.elapsed().as_secs_f64() * 1e6;
        array.launches += 1;
        if found != expected {
            let why = format!("the kernel has read {found:#x} in all and not {expected:#x}");
            return Err(BenchError::Failed(why + ": this is a bug in Farside"));
        }
        Ok(micros)
    }

    /// Migrates the pages of an array's values from the source card to the target.
    pub(super) fn source_to_target(&self, array: &Array) -> Result<Migration, BenchError> {
        self.migrate(array, self.target.into())
    }

    /// Migrates them from the host to the source card.
    pub(super) fn host_to_source(&self, array: &Array) -> Result<Migration, BenchError> {
        self.migrate(array, self.source.into())
    }

    /// Migrates them to the host.
    pub(super) fn target_to_host(&self, array: &Array) -> Result<Migration, BenchError> {
        self.migrate(array, MemoryId::HOST)
    }

    fn migrate(&self, array: &Array, to: MemoryId) -> Result<Migration, BenchError> {
        let before = self.space.report().times;
        let start = Instant::now();
        let moved = self.space.migrate(array.values(), to)?;
        let time = start.elapsed().as_secs_f64() * 1e6;
        let steps = steps(before, self.space.report().times);
        if moved != array.pages() as u64 {
            let why = format!("{moved} pages of {} were moved to {to}", array.pages());
            return Err(BenchError::Failed(why));
        }
        Ok(Migration { time, steps })
    }
}

fn steps(before: TimeSpent, after: TimeSpent) -> Steps {
    Steps {
        plan: (after.plan - before.plan).as_micros_f64(),
        commands: (after.command - before.command).as_micros_f64(),
        setup: (after.setup - before.setup).as_micros_f64(),
        copy: (after.copy - before.copy).as_micros_f64(),
        finalize: (after.finalize - before.finalize).as_micros_f64(),
    }
}
