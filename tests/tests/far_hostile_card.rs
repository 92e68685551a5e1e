//! A card that lies: whatever it answers, gives or writes, the program gets an error. It never ends by
//! a signal, never panics and never waits without limit, and its other card works as before.
//!
//! Each lie is told to a program of its own, a child, because what it might do is end it.

use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{CardId, CardPlace, Error, Located, MemoryId, Read, Space, Value, Write};
use farside_card::interface::{
    CompletionEntry, Entry, FaultHead, FaultRecord, FaultWants, NoticeRecord, RingHeader, RingKind,
    Status, pci, register,
};
use farside_softcard::serve::socket_name;
use farside_types::{
    Access, Asid, BLOCK_SIZE, FaultId, JobId, PAGE_SIZE, PageNo, PageRange, PeId, Span,
};
use farside_vfio_user::wire::Command;
use harness::Prng;
use harness::live::hostile::{Answer, Fate, HostileCard, Lies, Rings, Scribble};
use harness::live::served::{TempDir, config, place, serve, test_kernels};
use harness::live::{Child, role, within};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, OFlags, SealFlags};

const LIMIT: Duration = Duration::from_secs(120);
/// Words of a page.
const PAGE: usize = 512;
/// The card that lies, and the other one.
const LIAR: CardId = CardId(0);
const HONEST: CardId = CardId(1);
/// Frames of a card of [`config`].
const FRAMES: u64 = 4096;
/// What may be asked of the liar before it answers or is given up.
const STEP_LIMIT: Duration = Duration::from_secs(15);

/// A lie.
struct Case {
    name: &'static str,
    lies: fn() -> Lies,
    opens: Opens,
}

/// What the program hears that opens the space.
#[derive(Clone, Copy)]
enum Opens {
    /// The space.
    Yes,
    /// An error that says this.
    Never(&'static str),
    /// The one or the other: the lie and the card's start race.
    Perhaps,
}

impl Opens {
    /// What the error says.
    fn says(self) -> &'static str {
        if let Opens::Never(text) = self { text } else { "" }
    }
}

/// Tells every lie, each to a program of its own, a few at a time.
fn run_cases(test: &'static str, cases: &[Case]) {
    if let Some(name) = role() {
        let case = cases.iter().find(|case| case.name == name).expect("a lie of this test");
        return suffer(case);
    }
    within(LIMIT, test, || {
        let next = AtomicUsize::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    while let Some(case) = cases.get(next.fetch_add(1, SeqCst)) {
                        let ended = Child::new(test, case.name).run();
                        assert_eq!(
                            (ended.code, ended.signal),
                            (Some(0), None),
                            "`{}`: {}",
                            case.name,
                            ended.text
                        );
                    }
                });
            }
        });
    });
}

/// The program that is lied to.
fn suffer(case: &Case) {
    let folder = TempDir::new();
    let (real, other) = (serve(config(&folder, 0)), serve(config(&folder, 1)));
    let socket = real.config().folder.join(socket_name(0));
    let liar = HostileCard::start(folder.join("liar.sock"), socket, case.lies);
    let began = Instant::now();
    let space = open([liar.place(), place(&other)]);
    let took = began.elapsed();
    assert!(took < STEP_LIMIT, "`build` took {took:?}");
    match (space, case.opens) {
        (Err(error), Opens::Never(_) | Opens::Perhaps) => {
            let (error, text) = (error.to_string(), case.opens.says());
            assert!(error.contains(text), "another error: {error}");
            assert!(error.contains("card"), "it does not say that a card is at fault: {error}");
        }
        (Ok(space), Opens::Yes | Opens::Perhaps) => {
            OPEN.store(true, SeqCst);
            work(&space);
        }
        (Err(error), Opens::Yes) => panic!("the space does not open: {error}"),
        (Ok(_), Opens::Never(text)) => panic!("the space opens, but `{text}`"),
    }
    // The other card is free again, and nothing has happened to it.
    let alone = open([place(&other)]).expect("the other card is free");
    increment(&alone, CardId(0));
}

fn open(places: impl IntoIterator<Item = CardPlace>) -> Result<Space, Error> {
    let builder = Space::builder().cards_at(places).address_space(32 << 20);
    let tuned = builder.grace(Duration::from_millis(50)).kernels(test_kernels()).tune(|config| {
        config.limits.drain = Span::from_millis(200);
        config.limits.copy = Span::from_millis(300);
    });
    tuned.build()
}

/// Uses both cards: what the liar does may fail, in time; what the other one does may not.
fn work(space: &Space) {
    let mut data = space.alloc::<u64>(300 * PAGE).unwrap();
    for round in 0..6 {
        data.fill(round);
        in_time("a kernel", || {
            let kernel = space.kernel("farside.increment").on(LIAR);
            kernel.time_limit(Duration::from_millis(500)).call(Write(&mut data))
        });
        in_time("a sum", || {
            let kernel = space.kernel("farside.sum").on(LIAR);
            kernel.time_limit(Duration::from_millis(500)).call(Read(&data[..PAGE]))
        });
        in_time("there", || space.migrate(&data, LIAR));
        in_time("and back", || space.migrate(&data, MemoryId::HOST));
        increment(space, HONEST);
        let at_home = |part: &Located| part.owner == Some(MemoryId::HOST);
        if !space.locate(&data).unwrap().iter().all(at_home) {
            // Only the liar has it, or had it: whoever touches that ends with SIGBUS, as documented.
            data = space.alloc::<u64>(300 * PAGE).unwrap();
        }
    }
    space.check().unwrap();
    drop(data);
    in_time("the report", || Ok::<_, Error>(space.report()));
}

/// Does something with the liar: an error is as good as none, if it comes in time.
fn in_time<T: std::fmt::Debug>(what: &str, body: impl FnOnce() -> Result<T, Error>) {
    let began = Instant::now();
    let outcome = body();
    let took = began.elapsed();
    assert!(took < STEP_LIMIT, "{what} took {took:?}: {outcome:?}");
}

/// The honest card works, and its results are exact.
fn increment(space: &Space, card: CardId) {
    let mut data = space.alloc::<u64>(100 * PAGE).unwrap();
    space.kernel("farside.fill").on(card).call((Write(&mut data), Value(41u64))).unwrap();
    space.kernel("farside.increment").on(card).call(Write(&mut data)).unwrap();
    assert!(data.iter().all(|&word| word == 42));
}

/// Lies in answers only.
fn answers(lie: impl FnMut(&mut Answer<'_>) -> Fate + Send + 'static) -> Lies {
    Lies { answers: Box::new(lie), rings: None }
}

/// Lies in rings only.
/// Writes into the rings from the card's start on.
fn rings(scribble: fn(&Rings)) -> Lies {
    Lies { answers: Box::new(|_| Fate::Pass), rings: Some(Box::new(scribble)) }
}

/// Writes into the rings once the space is open.
fn rings_later(scribble: fn(&Rings)) -> Lies {
    let scribble: Scribble = Box::new(move |rings| {
        while !OPEN.load(SeqCst) && !rings.is_over() {
            std::thread::sleep(Duration::from_millis(1));
        }
        scribble(rings);
    });
    Lies { answers: Box::new(|_| Fate::Pass), rings: Some(scribble) }
}

// ---- descriptors -------------------------------------------------------------------------------

/// Another file instead of the card's memory.
fn memory(make: impl Fn() -> OwnedFd + Send + 'static) -> Lies {
    answers(move |answer| {
        if answer.is_region(Command::DEVICE_GET_REGION_INFO, pci::BAR_MEMORY) {
            answer.message.fds = vec![make()];
        }
        Fate::Pass
    })
}

/// A memory file of the card's size, sealed or not.
fn file(bytes: u64, flags: MemfdFlags, seals: SealFlags) -> OwnedFd {
    let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("liar", flags).expect("a memory file");
    rustix::fs::ftruncate(&file, bytes).expect("its size");
    rustix::fs::fcntl_add_seals(&file, seals).expect("its seals");
    file
}

/// A file that is cut off while the program uses it.
fn cut_off() -> Lies {
    memory(|| {
        let file = file(FRAMES * PAGE_SIZE as u64, MemfdFlags::empty(), SealFlags::empty());
        let other = file.try_clone().expect("a descriptor");
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            rustix::fs::ftruncate(&other, 0)
        });
        file
    })
}

fn short() -> Lies {
    memory(|| file(FRAMES * 2048, MemfdFlags::empty(), SealFlags::SHRINK | SealFlags::GROW))
}

/// Huge pages, of which there may be none when they are touched.
fn huge() -> Lies {
    memory(|| {
        let bytes = (FRAMES * PAGE_SIZE as u64).next_multiple_of(BLOCK_SIZE as u64);
        file(bytes, MemfdFlags::HUGETLB, SealFlags::SHRINK)
    })
}

fn not_writable() -> Lies {
    memory(|| {
        let seals = SealFlags::SHRINK | SealFlags::FUTURE_WRITE;
        file(FRAMES * PAGE_SIZE as u64, MemfdFlags::empty(), seals)
    })
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let mut fds = [0; 2];
    // SAFETY: the array has room for the two descriptors that pipe gives.
    assert_eq!(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: both are open, and nobody else has them.
    fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).into()
}

fn no_file() -> Lies {
    memory(|| pipe().0)
}

fn device() -> Lies {
    memory(|| std::fs::File::open("/dev/zero").expect("/dev/zero").into())
}

fn nothing() -> Lies {
    answers(|answer| {
        if answer.is_region(Command::DEVICE_GET_REGION_INFO, pci::BAR_MEMORY) {
            answer.message.fds.clear();
        }
        Fate::Pass
    })
}

/// Other places within the file of the card's memory.
fn at(offset: u64) -> Lies {
    answers(move |answer| {
        if answer.is_region(Command::DEVICE_GET_REGION_INFO, pci::BAR_MEMORY) {
            answer.patch(24, &offset.to_ne_bytes());
        }
        Fate::Pass
    })
}

/// Another descriptor instead of the doorbell.
fn doorbell(make: impl Fn() -> OwnedFd + Send + 'static) -> Lies {
    answers(move |answer| {
        if answer.is_region(Command::DEVICE_GET_REGION_IO_FDS, pci::BAR_REGISTERS) {
            answer.message.fds = vec![make()];
        }
        Fate::Pass
    })
}

fn full_pipe() -> Lies {
    doorbell(|| {
        let (read, write) = pipe();
        rustix::io::ioctl_fionbio(&write, true).expect("a flag");
        while rustix::io::write(&write, &[0; 4096]).is_ok() {}
        rustix::io::ioctl_fionbio(&write, false).expect("a flag");
        std::mem::forget(read);
        write
    })
}

fn socket() -> Lies {
    doorbell(|| {
        let (one, other) = UnixStream::pair().expect("sockets");
        std::mem::forget(other);
        one.into()
    })
}

/// An event descriptor that is full, again and again, and whose writers wait.
fn full_event() -> Lies {
    doorbell(|| {
        let event = eventfd(0, EventfdFlags::CLOEXEC).expect("an event");
        let other = event.try_clone().expect("a descriptor");
        std::thread::spawn(move || {
            loop {
                let _ = rustix::io::ioctl_fionbio(&other, true);
                let _ = rustix::io::write(&other, &(u64::MAX - 1).to_ne_bytes());
                let _ = rustix::io::write(&other, &1u64.to_ne_bytes());
                rustix::fs::fcntl_setfl(&other, OFlags::empty()).expect("a flag");
            }
        });
        event
    })
}

#[test]
fn descriptors_are_what_they_have_to_be() {
    let case = |name, lies, refused: Option<_>| Case {
        name,
        lies,
        opens: refused.map_or(Opens::Yes, Opens::Never),
    };
    run_cases(
        "descriptors_are_what_they_have_to_be",
        &[
            case("memory that is cut off", cut_off, Some("cut off")),
            case("memory that is too short", short, Some("bytes")),
            case("memory of huge pages", huge, Some("huge")),
            case("memory that cannot be written", not_writable, Some("card's memory")),
            case("a pipe for memory", no_file, Some("card's memory")),
            case("a device for memory", device, Some("card's memory")),
            case("no memory", nothing, Some("no file")),
            case("memory at an odd place", || at(100), Some("card's memory")),
            case("memory behind the end", || at(1 << 40), Some("bytes")),
            case("memory at the end of numbers", || at(u64::MAX - 4095), Some("card")),
            case("a full pipe for a doorbell", full_pipe, Some("doorbell")),
            case("a socket for a doorbell", socket, Some("doorbell")),
            case("a doorbell that is full", full_event, None),
        ],
    );
}

// ---- answers -----------------------------------------------------------------------------------

/// From the `n`th answer on, one fate.
fn from(n: usize, fate: Fate) -> Lies {
    let mut count = 0;
    answers(move |_| {
        count += 1;
        if count > n { fate } else { Fate::Pass }
    })
}

/// The space is open.
static OPEN: AtomicBool = AtomicBool::new(false);

/// Once the space is open, one fate for every message.
fn later(fate: Fate) -> Lies {
    answers(move |_| if OPEN.load(SeqCst) { fate } else { Fate::Pass })
}

fn says(offset: u64, value: u64) -> Lies {
    answers(move |answer| {
        if answer.is_register(offset) {
            let bytes = answer.message.payload.len() - 16;
            answer.patch(16, &value.to_ne_bytes()[..bytes]);
        }
        Fate::Pass
    })
}

/// Changes the `n`th message.
fn change(n: usize, change: fn(&mut Answer<'_>)) -> Lies {
    let mut count = 0;
    answers(move |answer| {
        count += 1;
        if count == n {
            change(answer);
        }
        Fate::Pass
    })
}

fn region(size: u64, offset: u64) -> Lies {
    answers(move |answer| {
        if answer.is_region(Command::DEVICE_GET_REGION_INFO, pci::BAR_MEMORY) {
            answer.patch(16, &size.to_ne_bytes());
            answer.patch(24, &offset.to_ne_bytes());
        }
        Fate::Pass
    })
}

/// Sparse areas that lie beyond the region.
fn areas() -> Lies {
    answers(|answer| {
        if answer.is_region(Command::DEVICE_GET_REGION_INFO, pci::BAR_MEMORY) {
            let payload = &mut answer.message.payload;
            payload.truncate(32);
            // Argument size, flags with "there are capabilities", where the first is.
            payload[0..4].copy_from_slice(&64u32.to_ne_bytes());
            payload[4] |= 1 << 3;
            payload[12..16].copy_from_slice(&32u32.to_ne_bytes());
            payload.extend(1u16.to_ne_bytes());
            payload.extend(1u16.to_ne_bytes());
            payload.extend(0u32.to_ne_bytes());
            payload.extend(1u64.to_ne_bytes());
            payload.extend((1u64 << 50).to_ne_bytes());
            payload.extend((1u64 << 50).to_ne_bytes());
        }
        Fate::Pass
    })
}

/// A doorbell whose descriptor is not there.
fn no_such_fd() -> Lies {
    answers(|answer| {
        let asked = answer.is_region(Command::DEVICE_GET_REGION_IO_FDS, pci::BAR_REGISTERS);
        if asked && answer.message.payload.len() > 32 {
            answer.patch(16 + 16, &77u32.to_ne_bytes());
        }
        Fate::Pass
    })
}

const ENDLESS: u64 = register::STATUS_RESETTING as u64;

#[test]
fn answers_that_cannot_be_are_errors_in_time() {
    let case = |name, lies, refused| Case { name, lies, opens: Opens::Never(refused) };
    let after = |name, lies| Case { name, lies, opens: Opens::Yes };
    run_cases(
        "answers_that_cannot_be_are_errors_in_time",
        &[
            case("silence at once", || from(0, Fate::Silence), "no answer in time"),
            case("silence after the greeting", || from(1, Fate::Silence), "no answer in time"),
            case("silence during the set-up", || from(20, Fate::Silence), "no answer in time"),
            case("half a header", || from(3, Fate::Half(9)), "no answer in time"),
            case("half a message", || from(3, Fate::Half(20)), "no answer in time"),
            case(
                "byte by byte",
                || from(0, Fate::Drip(Duration::from_millis(700))),
                "no answer in time",
            ),
            case("late", || from(0, Fate::Late(Duration::from_millis(1500))), "no answer in time"),
            case("requests without end", || from(2, Fate::Flood), "no answer in time"),
            case("an end", || from(5, Fate::End), "card"),
            case("a message without a header", || from(4, Fate::Sized(3)), "card"),
            case("a message of 4 GiB", || from(4, Fate::Sized(u32::MAX)), "card"),
            case("a longer message", || from(4, Fate::Sized(64)), "card"),
            case("an answer to nothing", || change(4, |a| a.message.header.id ^= 0x55), "card"),
            case(
                "an answer to something else",
                || change(4, |a| a.message.header.command = Command::DMA_MAP),
                "card",
            ),
            case("a reply of another type", || change(4, |a| a.message.header.flags = 9), "card"),
            case(
                "a refusal",
                || {
                    change(4, |a| {
                        (a.message.header.flags, a.message.header.error) = (1 << 5 | 1, 5);
                    })
                },
                "(os error 5)",
            ),
            case("fewer bytes", || change(4, |a| a.message.payload.truncate(18)), "card"),
            case("a region that overflows", || region(u64::MAX, 4096), "card"),
            case("a region that is too small", || region(4096, 0), "card"),
            case("areas out of range", areas, "card"),
            case("a doorbell that is not there", no_such_fd, "card"),
            case("no card of ours", || says(register::MAGIC, 7), "card"),
            case("a memory of 16 TiB", || says(register::FRAMES, u64::MAX), "TiB"),
            case("no frames", || says(register::FRAMES, 0), "card"),
            case("no DMA", || says(register::DMA_PAGES, 0), "card"),
            case("a reset that never ends", || says(register::STATUS, ENDLESS), "resetting"),
            case("a card that does not start", || says(register::STATUS, 0), "does not start"),
            after("silence later", || later(Fate::Silence)),
            after("half a message later", || later(Fate::Half(7))),
            after("requests without end later", || later(Fate::Flood)),
            after("an end later", || later(Fate::End)),
        ],
    );
}

// ---- rings -------------------------------------------------------------------------------------

const INCOMING: [RingKind; 3] = [RingKind::Completion, RingKind::Fault, RingKind::Notice];

/// Says it as often as there is room, or only so often.
fn repeat(rings: &Rings, kind: RingKind, most: u64, entry: impl Fn(u64) -> Entry) {
    for n in 0..most {
        while !rings.has_room(kind) {
            if rings.is_over() {
                return;
            }
            std::thread::yield_now();
        }
        if rings.is_over() {
            return;
        }
        rings.say(kind, &entry(n));
    }
}

/// More than there is room for.
fn indices(rings: &Rings) {
    for kind in INCOMING {
        rings.set_header(kind, RingHeader::PRODUCER, 0x8000_0000);
        rings.signal();
    }
}

/// The card has taken commands that were never given.
fn taken(rings: &Rings) {
    for value in [u32::MAX, 0x7fff_ffff, 5000].into_iter().cycle() {
        if rings.is_over() {
            return;
        }
        rings.set_header(RingKind::Command, RingHeader::CONSUMER, value);
        rings.set_header(RingKind::Command, RingHeader::CONSUMER_SLEEPS, value & 1);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// All that the rings hold, at random, all the time.
fn noise(rings: &Rings) {
    let mut random = Prng::new(7);
    while !rings.is_over() {
        let kind = INCOMING[random.below(3) as usize];
        let mut entry: Entry = Default::default();
        entry.fill_with(|| random.bits() >> random.below(64));
        rings.say(kind, &entry);
    }
}

fn completions(rings: &Rings) {
    repeat(rings, RingKind::Completion, u64::MAX, |n| {
        CompletionEntry::plain(n + 1_000_000, Status::Ok).to_entry()
    });
}

/// Completions of commands that are under way, before they are done, with numbers that cannot be.
fn early(rings: &Rings) {
    let mut tag = 0;
    while !rings.is_over() {
        std::thread::sleep(Duration::from_micros(200));
        tag += 1;
        let status = if tag % 3 == 0 { Status::CopyFailed } else { Status::Ok };
        let completion = CompletionEntry {
            message_bytes: u32::MAX,
            value: u64::MAX,
            pages: u64::MAX,
            detail: u64::MAX,
            ..CompletionEntry::plain(tag, status)
        };
        rings.say(RingKind::Completion, &completion.to_entry());
    }
}

fn head(id: u64, asid: u16, wants: FaultWants) -> Entry {
    let head = FaultHead { id: FaultId(id), asid: Asid(asid), pe: PeId(0), job: JobId(1), wants };
    FaultRecord::Head(head).to_entry()
}

fn foreign_asid(rings: &Rings) {
    repeat(rings, RingKind::Fault, u64::MAX, |n| {
        head(n, 3, FaultWants::Page(PageNo(n), Access::Write))
    });
}

/// Faults on pages that nobody has, and of those that anybody may have.
fn outside(rings: &Rings) {
    let mut random = Prng::new(8);
    let pages: Vec<u64> = (0..4096).map(|_| random.bits() >> (12 + random.below(40))).collect();
    repeat(rings, RingKind::Fault, u64::MAX, |n| {
        head(n, 0, FaultWants::Page(PageNo(pages[n as usize % pages.len()]), Access::Write))
    });
}

/// One fault, again and again.
fn same(rings: &Rings) {
    repeat(rings, RingKind::Fault, u64::MAX, |n| {
        head(5, 0, FaultWants::Page(PageNo(n % 7), Access::Read))
    });
}

/// Groups of more pages than there are, and of the same pages.
fn groups(rings: &Rings) {
    repeat(rings, RingKind::Fault, u64::MAX, |n| {
        if n % 2 == 0 {
            return head(n, 0, FaultWants::Group { ranges: 3 });
        }
        let range = PageRange::new(PageNo((1 << 51) - n), 0xffff_ffff);
        FaultRecord::Ranges(FaultId(n - 1), [Some((range, Access::Write)); 3]).to_entry()
    });
}

/// A group that has no end.
fn endless_group(rings: &Rings) {
    rings.say(RingKind::Fault, &head(9, 0, FaultWants::Group { ranges: u32::MAX }));
    let part = [Some((PageRange::page(PageNo(3)), Access::Write)); 3];
    repeat(rings, RingKind::Fault, u64::MAX, |_| FaultRecord::Ranges(FaultId(9), part).to_entry());
}

/// A group of which only the beginning is there.
fn half_group(rings: &Rings) {
    rings.say(RingKind::Fault, &head(9, 0, FaultWants::Group { ranges: 5 }));
}

/// Notices of pages that nobody has, as fast as they are taken.
fn notices(rings: &Rings) {
    repeat(rings, RingKind::Notice, u64::MAX, |n| {
        let pages = PageRange::new(PageNo(n << 20), 1 << (n % 40));
        NoticeRecord { asid: Asid((n % 3) as u16), pages, count: u32::MAX }.to_entry()
    });
}

/// Interrupts without anything to be said.
fn interrupts(rings: &Rings) {
    while !rings.is_over() {
        rings.signal();
    }
}

/// Holes in the memory of the rings, while they are used.
fn zeros(rings: &Rings) {
    while !rings.is_over() {
        for kind in RingKind::ALL {
            for word in [RingHeader::PRODUCER, RingHeader::CONSUMER] {
                rings.set_header(kind, word, 0);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn rings_that_lie_end_the_connection() {
    let case = |name, lies: fn() -> Lies| Case { name, lies, opens: Opens::Yes };
    run_cases(
        "rings_that_lie_end_the_connection",
        &[
            case("indices", || rings_later(indices)),
            case("taken", || rings_later(taken)),
            case("noise", || rings_later(noise)),
            case("completions", || rings_later(completions)),
            case("early", || rings_later(early)),
            case("foreign asid", || rings_later(foreign_asid)),
            case("outside", || rings_later(outside)),
            case("same", || rings_later(same)),
            case("groups", || rings_later(groups)),
            case("endless group", || rings_later(endless_group)),
            case("half group", || rings_later(half_group)),
            case("notices", || rings_later(notices)),
            case("interrupts", || rings_later(interrupts)),
            case("zeros", || rings_later(zeros)),
        ],
    );
}

#[test]
fn rings_may_lie_while_the_card_starts() {
    let case = |name, lies: fn() -> Lies| Case { name, lies, opens: Opens::Perhaps };
    run_cases(
        "rings_may_lie_while_the_card_starts",
        &[
            case("indices", || rings(indices)),
            case("noise", || rings(noise)),
            case("completions", || rings(completions)),
            case("interrupts", || rings(interrupts)),
            case("zeros", || rings(zeros)),
        ],
    );
}

/// What the tests of descriptors stand on: without a lie the relay changes nothing.
#[test]
fn a_relay_without_a_lie_is_a_card() {
    within(LIMIT, "no lie", || {
        let folder = TempDir::new();
        let real = serve(config(&folder, 0));
        let socket = real.config().folder.join(socket_name(0));
        let honest = || answers(|_| Fate::Pass);
        let relay = HostileCard::start(folder.join("relay.sock"), socket, honest);
        let space = open([relay.place()]).unwrap();
        increment(&space, CardId(0));
        space.check().unwrap();
    });
}
