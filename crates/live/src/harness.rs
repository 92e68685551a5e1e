//! The driver of the card interface by itself, for a harness that plays card, bus and time: the very
//! code that drives cards elsewhere, without a runtime, threads or sockets.
//!
//! [`RingDriver`] is one connection; [`Far`] is what the harness puts at the other end. Nothing here
//! waits: what a thread would wait for is told by [`RingDriver::may_sleep`], and who wakes it is up to
//! the harness.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use farside_card::interface::RING_COUNT;
use farside_svm::{CardFault, RingOp, Step, StepError, TransferOp};
use farside_types::{Asid, CardId, CommandId, Epoch, FaultId, JobId, PAGE_SIZE, PageRange};
use rustix::event::EventfdFlags;

use crate::error::LiveError;
use crate::ring_card::{
    BusMap, DmaPiece, Heard, Link, Received, Sizes, Transport, TransportError, Watch, identify,
};
use farside_linux::lock::lock;
use farside_linux::shared::SharedMemory;
use farside_softcard::Job;
use farside_softcard::KernelError;

/// The address space of all commands.
pub const ASID: Asid = crate::runtime::ASID;

/// The other end of a bus: a function that the harness carries out.
pub trait Far: Send {
    /// Reads BAR0.
    fn read(&mut self, offset: u64, into: &mut [u8]);
    /// Writes BAR0. A reset that is written is over when this returns.
    fn write(&mut self, offset: u64, from: &[u8]);
    /// The doorbell is rung.
    fn doorbell(&mut self);
    /// Memory of the driver can be reached from a bus address on.
    fn map(&mut self, bus: u64, memory: SharedMemory);
}

/// How large rings and the memory for lists are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSizes {
    /// Entries of each ring, powers of two.
    pub entries: [u32; RING_COUNT],
    /// Blocks of one page for lists and arguments.
    pub blocks: u16,
}

impl RingSizes {
    fn sizes(self) -> Sizes {
        Sizes { entries: self.entries, blocks: self.blocks }
    }
}

/// Where memories are on the bus of every card.
#[derive(Clone, Debug)]
pub struct Layout(Arc<BusMap>);

impl Layout {
    /// Windows for rings of these sizes, the host's pages, bounce buffers and cards, in pages.
    pub fn new(sizes: RingSizes, host: u64, bounces: &[u64], cards: &[u64]) -> Layout {
        let bytes = |pages: &[u64]| pages.iter().map(|&n| n * PAGE_SIZE as u64).collect::<Vec<_>>();
        let host = host * PAGE_SIZE as u64;
        let map = BusMap::new(sizes.sizes().bytes(), host, &bytes(bounces), &bytes(cards));
        Layout(Arc::new(map.expect("a harness has little memory")))
    }

    /// Bus address of the host's pages.
    pub fn host(&self) -> u64 {
        self.0.host()
    }

    /// Bus address of a bounce buffer.
    pub fn bounce(&self, slot: usize) -> u64 {
        self.0.bounce(slot)
    }

    /// Bus address of a card's memory, as its peers see it.
    pub fn card(&self, card: CardId) -> u64 {
        self.0.card(card)
    }
}

/// The name in the whole machine of a fault that a card has numbered.
pub fn fault_of(card: CardId, id: FaultId) -> FaultId {
    crate::ring_card::fault_of(card, id)
}

/// The number that its card has given a fault.
pub fn fault_on_card(id: FaultId) -> FaultId {
    crate::ring_card::fault_on_card(id)
}

/// Something that a card has said.
#[derive(Debug)]
pub enum Said {
    /// A command of the driver has completed.
    Done(CommandId, Epoch, Result<(), StepError>),
    /// A job has ended; `bool`: it may still touch memory, because it hangs.
    JobEnded(JobId, Result<(), KernelError>, bool),
    /// Of pages of a command, from this one on and so many, which were used, or written.
    Told(CommandId, u64, u64, Vec<u64>),
    /// Faults.
    Faults(Vec<CardFault>),
    /// A group of pages whose remote accesses reached the threshold.
    Notice(PageRange, u32),
}

/// One connection to a card.
#[derive(Debug)]
pub struct RingDriver {
    card: CardId,
    link: Link,
    _event: OwnedFd,
}

impl RingDriver {
    /// Resets the function at the other end and sets its rings up.
    ///
    /// # Errors
    /// [`LiveError::Card`] if it is no card, or does not start.
    pub fn open(
        card: CardId,
        far: Arc<Mutex<dyn Far>>,
        layout: &Layout,
        sizes: RingSizes,
    ) -> Result<RingDriver, LiveError> {
        let transport: Arc<dyn Transport> = Arc::new(Bus(far));
        let identity = identify(transport.as_ref());
        let identity = identity.map_err(|error| LiveError::Card { card, error })?;
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(LiveError::Bell)?;
        let map = Arc::clone(&layout.0);
        let link = Link::open(card, transport, identity, map, sizes.sizes(), event.as_fd(), None)?;
        Ok(RingDriver { card, link, _event: event })
    }

    /// Puts a command into the ring, or into the line before it; jobs that are launched run the
    /// kernel of this name. `false`: nobody waits for its completion.
    pub fn submit(&mut self, step: &Step<RingOp>, kernel: &str) -> bool {
        let space = (self.card, ASID);
        let body = Box::new(|_: &mut farside_softcard::KernelContext| Ok(()));
        let job = |id| Job::new(id, space, Arc::from(kernel), Vec::new(), None, body);
        self.link.submit(step, |id| Some(job(id)))
    }

    /// The same with a copy or fill for the card's page DMA.
    pub fn transfer(&mut self, step: &Step<TransferOp>) -> bool {
        self.link.transfer(step)
    }

    /// Aborts a job. `true`: it was not sent to the card yet, and never will be.
    pub fn abort(&mut self, job: JobId) -> bool {
        self.link.abort(job)
    }

    /// Publishes what was put into the ring.
    pub fn flush(&mut self) {
        self.link.flush(false);
    }

    /// Takes what the card has written.
    pub fn receive(&mut self) -> Vec<Said> {
        let answer = |received| {
            Some(match received {
                Received::Done(command, epoch, result) => Said::Done(command, epoch, result),
                Received::JobEnded(job, result, hangs) => Said::JobEnded(job.id, result, hangs),
                Received::Told(command, first, pages, bits) => {
                    Said::Told(command, first, pages, bits.to_vec())
                }
                // It is about the command that comes next, and for the account alone.
                Received::CameAlong | Received::Own(..) => return None,
            })
        };
        let mut heard = Heard::default();
        self.link.receive(&mut heard);
        let Heard { answers, faults, notices } = heard;
        let mut said: Vec<Said> = answers.into_iter().filter_map(answer).collect();
        said.extend((!faults.is_empty()).then_some(Said::Faults(faults)));
        said.extend(notices.into_iter().map(|(pages, count)| Said::Notice(pages, count)));
        said
    }

    /// Says that an interrupt is wanted for the next entry. `false`: there is one already.
    pub fn may_sleep(&self) -> bool {
        self.link.may_sleep()
    }

    /// Whether completions will come that raise no interrupt: they are to be looked for.
    pub fn expects_quiet_news(&self) -> bool {
        self.link.expects_quiet_news()
    }

    /// Whether the card has written nonsense.
    pub fn is_broken(&self) -> bool {
        self.link.is_broken()
    }
}

/// The bus of a harness.
struct Bus(Arc<Mutex<dyn Far>>);

impl std::fmt::Debug for Bus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a harness")
    }
}

impl Transport for Bus {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), TransportError> {
        lock(&self.0).read(offset, into);
        Ok(())
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), TransportError> {
        lock(&self.0).write(offset, from);
        Ok(())
    }

    fn ring_doorbell(&self) -> bool {
        lock(&self.0).doorbell();
        true
    }

    fn map(&self, piece: &DmaPiece<'_>) -> Result<(), TransportError> {
        let unfit = |what: String| TransportError::Unfit { what };
        let file = piece.file.try_clone_to_owned().map_err(|error| unfit(error.to_string()))?;
        let memory = SharedMemory::of_file(file, piece.offset, piece.bytes)
            .map_err(|error| unfit(error.to_string()))?;
        lock(&self.0).map(piece.bus, memory);
        Ok(())
    }

    fn unmap(&self, _bus: u64, _bytes: u64) -> Result<(), TransportError> {
        Ok(())
    }

    fn memory(&self, _bytes: u64) -> Result<(OwnedFd, u64), TransportError> {
        Err(TransportError::Unfit { what: "a harness keeps a card's memory to itself".to_owned() })
    }

    fn interrupt_by(&self, _events: &[BorrowedFd<'_>]) -> Result<(), TransportError> {
        // The harness wakes the driver itself.
        Ok(())
    }

    fn watch(&self) -> Option<Watch<'_>> {
        None
    }

    fn is_gone(&self) -> bool {
        false
    }

    // The harness decides when its cards stop.
    fn stop(&self) {}
}
