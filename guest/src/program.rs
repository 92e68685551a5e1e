//! A whole program on the card: a [`Space`] over VFIO, as it would be over vfio-user.

use std::fs;
use std::time::Duration;

use farside::{CardId, CardPlace, Error, KernelError, MemoryId, Read, Space, Value, Write};
use farside_card::interface::pci;
use farside_linux::vfio::PciAddress;
use farside_types::PAGE_SIZE;

use crate::report::{Check, Report};
use crate::wait::{expect, wait_until};
use crate::{Failure, sysfs};

/// Small, because an emulated IOMMU learns of its pages one by one.
const ADDRESS_SPACE: u64 = 8 << 20;
/// Words of a page.
const PAGE: usize = PAGE_SIZE / 8;
/// The only card.
const CARD: CardId = CardId(0);
/// Pages of a piece that the host's processor copies through BAR 2, and of one that the card's page
/// DMA copies.
const SMALL: usize = 3;
const LARGE: usize = 300;
/// More pages than the card of the test has frames.
const TOO_LARGE: usize = 1500;

/// Before the device has been given to `vfio-pci`.
const UNBOUND: [Check<PciAddress>; 3] = [
    ("unbound-device-says-how-to-bind-it", unbound),
    ("absent-device-is-named", absent),
    ("nonsense-address-is-named", nonsense),
];

const CHECKS: [Check<Program>; 13] = [
    ("card-in-use-says-so", in_use),
    ("kernels-on-memory-of-the-host", kernels),
    ("interrupts-arrive", interrupts),
    ("never-written-memory-is-zero", zero),
    ("single-pages-go-to-and-fro", single_pages),
    ("small-pieces-there-and-back", small_pieces),
    ("large-pieces-there-and-back", large_pieces),
    ("more-than-the-card-has-room-for", too_large),
    ("job-is-cancelled", cancelled),
    ("job-runs-into-its-time-limit", timed_out),
    ("wild-address-is-an-error", wild_address),
    ("opened-again", opened_again),
    ("device-is-taken-away-and-comes-back", taken_away),
];

struct Program {
    address: PciAddress,
    /// None while it is being opened again.
    space: Option<Space>,
}

impl Program {
    fn open(address: PciAddress) -> Result<Program, Failure> {
        let space = Some(open(place(address))?);
        Ok(Program { address, space })
    }

    fn space(&self) -> Result<&Space, Failure> {
        Ok(self.space.as_ref().ok_or("the space could not be opened again")?)
    }
}

pub(crate) fn run(report: &mut Report) {
    let Some(mut address) = report.note("find", sysfs::find(pci::VENDOR, pci::DEVICE)) else {
        return;
    };
    report.run(&UNBOUND, &mut address);
    let bound = sysfs::bind_to_vfio(address);
    let opened = bound.and_then(|()| Program::open(address));
    if let Some(mut program) = report.note("open", opened) {
        report.run(&CHECKS, &mut program);
    }
}

fn place(address: PciAddress) -> CardPlace {
    CardPlace::Vfio(address.to_string())
}

fn open(place: CardPlace) -> Result<Space, Error> {
    Space::builder().cards_at([place]).address_space(ADDRESS_SPACE).build()
}

/// Opening must fail, and the error must say all of this.
fn refused(place: CardPlace, says: &[&str]) -> Result<(), Failure> {
    let Err(error) = open(place) else {
        return Err("it could be opened".into());
    };
    let text = error.to_string();
    match says.iter().find(|words| !text.contains(**words)) {
        None => Ok(()),
        Some(words) => Err(format!("the error does not say '{words}': {text}").into()),
    }
}

fn unbound(address: &mut PciAddress) -> Result<(), Failure> {
    refused(place(*address), &["has no driver", "driver_override", &address.to_string()])
}

fn absent(_: &mut PciAddress) -> Result<(), Failure> {
    refused(
        CardPlace::Vfio("0000:7f:1e.5".to_owned()),
        &["there is no PCI device 0000:7f:1e.5", "lspci"],
    )
}

fn nonsense(_: &mut PciAddress) -> Result<(), Failure> {
    refused(CardPlace::Vfio("the third".to_owned()), &["'the third' is no PCI address"])
}

fn in_use(program: &mut Program) -> Result<(), Failure> {
    refused(place(program.address), &["/dev/vfio/", "another process uses a device of this group"])
}

/// Pages move to the card by its faults, and back by the host's.
fn kernels(program: &mut Program) -> Result<(), Failure> {
    let space = program.space()?;
    let mut data = space.alloc::<u64>(100 * PAGE + 7)?;
    data.fill(1);
    for round in 2..5 {
        let count = space.kernel("farside.increment").on(CARD).call(Write(&mut data))?;
        expect("the words that were changed", count, data.len() as u64)?;
        all_are(&data, |_| round)?;
        let sum = space.kernel("farside.sum").on(CARD).call(Read(&data))?;
        expect("the sum", sum, round * data.len() as u64)?;
    }
    whole(space)
}

fn interrupts(program: &mut Program) -> Result<(), Failure> {
    let before = interrupt_count(program.address)?;
    let space = program.space()?;
    for _ in 0..10 {
        space.kernel("farside.nop").on(CARD).call(())?;
    }
    if interrupt_count(program.address)? > before {
        return Ok(());
    }
    Err(format!("{before} before ten jobs, and no more after them").into())
}

/// How often the device's MSI-X vectors have interrupted a processor.
fn interrupt_count(address: PciAddress) -> Result<u64, Failure> {
    let (text, device) = (fs::read_to_string("/proc/interrupts")?, format!("({address})"));
    let lines = text.lines().filter(|line| line.contains("vfio-msix") && line.contains(&device));
    let counts = |line: &str| -> u64 {
        line.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok()).sum()
    };
    Ok(lines.map(counts).sum())
}

fn zero(program: &mut Program) -> Result<(), Failure> {
    let space = program.space()?;
    for _ in 0..2 {
        let mut data = space.alloc::<u64>(LARGE * PAGE)?;
        expect("the sum", space.kernel("farside.sum").on(CARD).call(Read(&data))?, 0)?;
        // The frames that this leaves behind are the next round's.
        space.kernel("farside.fill").on(CARD).call((Write(&mut data), Value(u64::MAX)))?;
    }
    whole(space)
}

/// One fault of the card's per page, and one of the host's.
fn single_pages(program: &mut Program) -> Result<(), Failure> {
    let space = program.space()?;
    let mut data = space.alloc::<u64>(20 * PAGE)?;
    for round in 1..=5 {
        let touched = space.kernel("farside.touch").on(CARD).call(Write(&mut data))?;
        expect("the pages that were touched", touched, 20)?;
        for page in (0..20).rev() {
            expect("a page's first word", data[page * PAGE], 2 * round - 1)?;
            data[page * PAGE] += 1;
        }
    }
    whole(space)
}

fn small_pieces(program: &mut Program) -> Result<(), Failure> {
    there_and_back(program.space()?, SMALL)
}

fn large_pieces(program: &mut Program) -> Result<(), Failure> {
    there_and_back(program.space()?, LARGE)
}

/// Moves pages by request, and looks at every word each time.
fn there_and_back(space: &Space, pages: usize) -> Result<(), Failure> {
    let mut data = space.alloc::<u64>(pages * PAGE)?;
    for seed in 0..3 {
        data.iter_mut().zip(0..).for_each(|(word, index)| *word = pattern(index, seed));
        let wanted = data.iter().fold(0, |sum: u64, word| sum.wrapping_add(*word));
        space.migrate(&data, CARD.memory())?;
        is_at(space, &data, CARD.memory())?;
        expect("the sum", space.kernel("farside.sum").on(CARD).call(Read(&data))?, wanted)?;
        space.kernel("farside.increment").on(CARD).call(Write(&mut data))?;
        space.migrate(&data, MemoryId::HOST)?;
        is_at(space, &data, MemoryId::HOST)?;
        all_are(&data, |index| pattern(index, seed).wrapping_add(1))?;
    }
    whole(space)
}

fn too_large(program: &mut Program) -> Result<(), Failure> {
    let space = program.space()?;
    let frames = space.card_memory(CARD)? as usize / PAGE_SIZE;
    if frames >= TOO_LARGE {
        return Err(format!("the card has {frames} frames: serve it with less memory").into());
    }
    let mut data = space.alloc::<u64>(TOO_LARGE * PAGE)?;
    data.iter_mut().zip(0..).for_each(|(word, index)| *word = pattern(index, 9));
    space.kernel("farside.increment").on(CARD).call(Write(&mut data))?;
    all_are(&data, |index| pattern(index, 9).wrapping_add(1))?;
    whole(space)
}

fn cancelled(program: &mut Program) -> Result<(), Failure> {
    let space = program.space()?;
    let outcome = space.scope(|s| -> Result<_, Failure> {
        let job = s.kernel("farside.wait").on(CARD).launch_call(())?;
        std::thread::sleep(Duration::from_millis(20));
        if job.is_done() {
            return Err("it ended by itself".into());
        }
        job.cancel();
        Ok(job.wait())
    })?;
    match outcome {
        Err(Error::Kernel(KernelError::Cancelled { .. })) => works(space),
        other => Err(format!("it ended with {other:?}").into()),
    }
}

fn timed_out(program: &mut Program) -> Result<(), Failure> {
    let space = program.space()?;
    let limit = Duration::from_millis(30);
    match space.kernel("farside.wait").on(CARD).time_limit(limit).call(()) {
        Err(Error::Kernel(KernelError::TimedOut { .. })) => works(space),
        other => Err(format!("it ended with {other:?}").into()),
    }
}

fn wild_address(program: &mut Program) -> Result<(), Failure> {
    let space = program.space()?;
    let data = space.alloc_named::<u64>(PAGE, "the list")?;
    let start = data.as_ptr() as u64 + (1 << 20);
    let args = (Read(&data), Value(start), Value(2u64));
    match space.kernel("farside.chase").on(CARD).call(args) {
        Err(Error::Kernel(KernelError::WildAddress { addr, hint, .. })) => {
            expect("the address", addr.0, start)?;
            if !hint.contains("the list") {
                return Err(format!("the hint is '{hint}'").into());
            }
            works(space)
        }
        other => Err(format!("it ended with {other:?}").into()),
    }
}

/// The next user of the device finds it as the first one did.
fn opened_again(program: &mut Program) -> Result<(), Failure> {
    program.space = None;
    program.space = Some(open(place(program.address))?);
    works(program.space()?)
}

/// As if it had been pulled out: the kernel asks for the device, and this program lets it go. What
/// was only there is lost, what was on the host is not; and the device is used again when it is
/// back.
fn taken_away(program: &mut Program) -> Result<(), Failure> {
    let (space, address) = (program.space()?, program.address);
    let mut there = space.alloc::<u64>(SMALL * PAGE)?;
    let mut here = space.alloc::<u64>(SMALL * PAGE)?;
    here.fill(8);
    space.kernel("farside.increment").on(CARD).call(Write(&mut there))?;
    let ended = space.scope(|s| -> Result<_, Failure> {
        let job = s.kernel("farside.wait").on(CARD).launch_call(())?;
        sysfs::remove(address)?;
        Ok(job.wait())
    })?;
    let Err(Error::Kernel(KernelError::Dropped { .. })) = ended else {
        return Err(format!("its job ended with {ended:?}").into());
    };
    if works(space).is_ok() {
        return Err("it is away and works".into());
    }
    let lost = space.kernel("farside.sum").on(CARD).call(Read(&there));
    if lost.is_ok() {
        return Err(format!("what is lost was read: {lost:?}").into());
    }
    all_are(&here, |_| 8)?;

    sysfs::rescan()?;
    sysfs::bind_to_vfio(address)?;
    wait_until("the card's return", || works(space).is_ok())?;
    space.kernel("farside.increment").on(CARD).call(Write(&mut here))?;
    all_are(&here, |_| 9)?;
    there_and_back(space, LARGE)
}

/// A job on fresh memory goes well.
fn works(space: &Space) -> Result<(), Failure> {
    let mut data = space.alloc::<u64>(2 * PAGE)?;
    data.fill(41);
    space.kernel("farside.increment").on(CARD).call(Write(&mut data))?;
    all_are(&data, |_| 42)
}

fn is_at(space: &Space, data: &[u64], memory: MemoryId) -> Result<(), Failure> {
    let parts = space.locate(data)?;
    if parts.iter().all(|part| part.owner == Some(memory)) {
        return Ok(());
    }
    Err(format!("not all of it is in {memory}: {parts:?}").into())
}

fn all_are(data: &[u64], wanted: impl Fn(u64) -> u64) -> Result<(), Failure> {
    data.iter().zip(0..).try_for_each(|(&word, index)| expect("a word", word, wanted(index)))
}

/// The driver's own check of its tables.
fn whole(space: &Space) -> Result<(), Failure> {
    Ok(space.check()?)
}

/// Different in every word, and for every seed.
fn pattern(index: u64, seed: u64) -> u64 {
    (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed)
}
