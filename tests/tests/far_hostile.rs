//! Clients that mean harm: whatever one of them sends, maps, withholds or leaves behind ends its own
//! lease at most. Beside each an honest program works on another function of the same card and must
//! find all exact, the card's status is answered within a second, and the card ends within a second
//! while the attack goes on.

use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{Space, Write};
use farside_card::Geometry;
use farside_card::interface::{
    ArgKind, CompletionEntry, DmaAddr, Extent, ExtentArg, KernelArg, Operation, Status, register,
};
use farside_linux::shared::SharedMemory;
use farside_softcard::serve::{CardConfig, LeaseLimits, read_status, socket_name};
use farside_types::Rights;
use farside_vfio_user::unix::{CallError, UnixClient};
use farside_vfio_user::{DmaUnmap, Errno, IrqAction};
use harness::live::served::{
    RawClient, TempDir, await_status, config, family_of, place, serve, test_kernels,
};
use harness::live::within;
use rustix::event::EventfdFlags;
use rustix::fs::{MemfdFlags, SealFlags};

const LIMIT: Duration = Duration::from_secs(90);
/// Within this everything that is the supervisor's must have been done.
const SOON: Duration = Duration::from_secs(1);
/// Words of a page.
const PAGE: usize = 512;
/// The interrupts of a card.
const MSIX: u32 = 2;
/// Memory that there may be in the files of a client.
const SHARED_BYTES: u64 = 64 << 20;
/// Private memory that all of a card's processes may have together.
const PRIVATE_BYTES: u64 = 256 << 20;

fn limited(config: CardConfig) -> CardConfig {
    let limits = LeaseLimits { shared_bytes: SHARED_BYTES, ..LeaseLimits::default() };
    // Page DMA may be as much as a card can be made to take: hours of it fit into the rings.
    let geometry = Geometry { dma_commands_max: 256, dma_pages_max: 1 << 20, ..config.geometry };
    CardConfig { limits, geometry, grace: Duration::from_millis(50), ..config }
}

/// An honest program: works until told to stop, and finds all exact. Gives how often, which is once at least.
fn neighbour(space: &Space, stop: &AtomicBool) -> u64 {
    let mut data = space.alloc::<u64>(80 * PAGE).unwrap();
    let mut count = 0;
    // Once at least, also beside an attack that is over before this thread runs.
    loop {
        space.kernel("farside.increment").call(Write(&mut data)).unwrap();
        count += 1;
        assert!(data.iter().all(|&word| word == count), "an honest program found something wrong");
        if stop.load(SeqCst) {
            break;
        }
    }
    space.check().unwrap();
    count
}

/// Asks for the status until told to stop: each answer comes soon. Gives how many came.
fn prober(folder: &Path, stop: &AtomicBool) -> u64 {
    let mut count = 0;
    loop {
        let asked = Instant::now();
        read_status(folder).expect("the status is told");
        assert!(asked.elapsed() < SOON, "the status took {:?}", asked.elapsed());
        count += 1;
        if stop.load(SeqCst) {
            return count;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Private memory of a process.
fn private_bytes_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Private memory of all processes that this one has made, without what each began with: a copy of
/// the `inherited` bytes that this one had then, which are many once a test has told where it failed.
fn private_bytes(inherited: u64) -> u64 {
    let own = std::process::id();
    let made = family_of(own).into_iter().filter(|&pid| pid != own);
    made.map(|pid| private_bytes_of(pid).saturating_sub(inherited)).sum()
}

/// Waits until nobody uses the attacked function, which must be soon (beside what a worker may take).
#[track_caller]
fn await_free(folder: &Path) {
    let since = Instant::now();
    await_status(folder, |status| status.functions[1].user.is_none());
    assert!(since.elapsed() < SOON, "the function was free after {:?}", since.elapsed());
}

/// Runs an attack on the second function of a card. What it gives is held while the card ends.
fn attacked<T>(name: &'static str, attack: impl FnOnce(&Path, &Path) -> T) {
    within(LIMIT, name, || {
        let folder = TempDir::new();
        let inherited = private_bytes_of(std::process::id());
        let server = serve(limited(config(&folder, 0)));
        let card = server.config().folder.clone();
        let space = Space::builder()
            .cards_at([place(&server)])
            .address_space(16 << 20)
            .kernels(test_kernels())
            .build()
            .unwrap();
        let stop = AtomicBool::new(false);
        let held = std::thread::scope(|s| {
            let works = s.spawn(|| neighbour(&space, &stop));
            let asks = s.spawn(|| prober(&card, &stop));
            let attack = std::panic::AssertUnwindSafe(|| attack(&card.join(socket_name(1)), &card));
            let outcome = std::panic::catch_unwind(attack);
            let private = private_bytes(inherited);
            stop.store(true, SeqCst);
            assert!(works.join().unwrap() > 0 && asks.join().unwrap() > 0);
            assert!(private < PRIVATE_BYTES, "the card has {private} bytes of its own");
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        drop(space);
        let ends = Instant::now();
        drop(server);
        assert!(ends.elapsed() < SOON, "the card took {:?} to end", ends.elapsed());
        drop(held);
    });
}

/// A memory file as a program gives it to a card.
fn file(bytes: u64, flags: MemfdFlags) -> OwnedFd {
    let file = rustix::fs::memfd_create("hostile", flags | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&file, bytes).unwrap();
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    file
}

fn refused(outcome: Result<(), CallError>, errno: Errno) {
    match outcome {
        Err(CallError::Refused(found)) if found == errno => {}
        other => panic!("{other:?} instead of {errno:?}"),
    }
}

fn own(page: u32, count: u32) -> Extent {
    Extent { page: 0, count, src: DmaAddr::Bus(0), dst: DmaAddr::Own(page) }
}

fn is_alive(raw: &mut RawClient) -> bool {
    raw.run(0, Operation::Nop).is_ok_and(|done| done.status == Status::Ok)
}

#[test]
fn memory_of_huge_pages_that_are_not_there_is_refused() {
    attacked("huge pages", |socket, _| {
        let mut raw = RawClient::connect(socket);
        refused(raw.map(1 << 33, 4 << 20, &file(4 << 20, MemfdFlags::HUGETLB)), Errno::INVAL);
        assert!(is_alive(&mut raw));
        raw
    });
}

#[test]
fn more_windows_than_a_process_can_map_are_refused_and_all_can_be_taken_away() {
    attacked("windows", |socket, _| {
        let mut raw = RawClient::connect(socket);
        let file = file(4096, MemfdFlags::empty());
        let mut mapped = 0u64;
        let end = loop {
            // No two side by side, which Linux would take for one.
            match raw.map((1 << 34) + mapped * 8192, 4096, &file) {
                Ok(()) => mapped += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(end, CallError::Refused(_) | CallError::Request(_)), "{end}");
        assert!((1000..32_000).contains(&mapped), "{mapped} windows");
        for window in (0..mapped).step_by(2) {
            let range = DmaUnmap::Range { address: (1 << 34) + window * 8192, size: 4096 };
            raw.client.dma_unmap(range).unwrap();
        }
        assert!(is_alive(&mut raw));
        raw
    });
}

#[test]
fn a_trigger_that_is_no_eventfd_is_refused_and_keeps_no_lease() {
    attacked("triggers", |socket, card| {
        let mut raw = RawClient::connect(socket);
        let own = raw.client.connection().as_fd().try_clone_to_owned().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC);
        for fd in [own, reader, writer, epoll.unwrap(), file(4096, MemfdFlags::empty())] {
            let outcome = raw.client.irqs_assign(MSIX, 0, &[Arc::new(fd)], IrqAction::Trigger);
            refused(outcome, Errno::INVAL);
        }
        assert!(is_alive(&mut raw));
        drop(raw);
        await_free(card);
    });
}

#[test]
fn an_eventfd_that_is_made_to_block_later_blocks_nothing() {
    attacked("a full eventfd", |socket, _| {
        let mut raw = RawClient::connect(socket);
        let event = rustix::event::eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let event = Arc::new(event);
        raw.client.irqs_assign(MSIX, 0, &[Arc::clone(&event)], IrqAction::Trigger).unwrap();
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        rustix::fs::fcntl_setfl(&event, rustix::fs::OFlags::empty()).unwrap();
        let since = Instant::now();
        raw.client.irqs_now(MSIX, 0, 1, IrqAction::Trigger).unwrap();
        assert!(is_alive(&mut raw));
        assert!(since.elapsed() < SOON);
        raw
    });
}

#[test]
fn commands_that_are_hours_of_work_are_refused_and_those_that_are_much_end_with_their_client() {
    attacked("work", |socket, card| {
        let mut raw = RawClient::connect(socket);
        let nowhere = DmaAddr::Bus(0);
        let large = Extent { page: 1 << 27, count: 1 << 27, src: nowhere, dst: nowhere };
        let list = raw.list(&vec![large; 1000]);
        let since = Instant::now();
        let done = raw.run(0, Operation::Unmap(list)).unwrap();
        assert_eq!(done.status, Status::BadOperand);
        let long = raw.run(0, Operation::Map(ExtentArg::Inline(large), Rights::Read)).unwrap();
        assert_ne!(long.status, Status::Ok);
        assert!(since.elapsed() < SOON);
        // As much as a list may be, as often as the ring holds.
        let small = Extent { page: 1, count: 1000, ..large };
        let list = raw.list(&vec![small; 1 << 16]);
        for _ in 0..250 {
            raw.push(0, Operation::Unmap(list));
        }
        let _ = raw.ring();
        drop(raw);
        await_free(card);
    });
}

#[test]
fn a_card_makes_no_more_memory_in_a_clients_files_than_it_may() {
    attacked("a sparse file", |socket, _| {
        let mut raw = RawClient::connect(socket);
        let bytes = 1u64 << 30;
        let sparse = file(bytes, MemfdFlags::empty());
        raw.map(1 << 34, bytes, &sparse).unwrap();
        let first = 1u32 << 22;
        let mut failed: Option<CompletionEntry> = None;
        for piece in 0..(bytes >> 24) as u32 {
            let dst = DmaAddr::Bus(first + piece * 4096);
            let extent = Extent { page: 0, count: 4096, src: DmaAddr::Bus(0), dst };
            let done = raw.run(0, Operation::Fill(ExtentArg::Inline(extent), u64::MAX)).unwrap();
            if done.status != Status::Ok {
                failed = Some(done);
                break;
            }
        }
        assert_eq!(failed.expect("it is refused at some point").status, Status::CopyFailed);
        let made = rustix::fs::fstat(&sparse).unwrap().st_blocks as u64 * 512;
        assert!(made > SHARED_BYTES / 2 && made <= SHARED_BYTES + (8 << 20), "{made} bytes");
        assert!(is_alive(&mut raw));
        raw
    });
}

/// Launches a kernel that writes to `pages` pages of the client's for some time.
fn scribble(raw: &mut RawClient, pages: u32, millis: u64) {
    let (start, bus) = (1u64 << 20, (1u32 << 22));
    let extent = Extent { page: start, count: pages, src: DmaAddr::Bus(0), dst: DmaAddr::Bus(bus) };
    let mapped = raw.run(0, Operation::Map(ExtentArg::Inline(extent), Rights::ReadWrite)).unwrap();
    assert_eq!(mapped.status, Status::Ok);
    let bytes = u64::from(pages) * 4096;
    let value = |word| KernelArg { kind: ArgKind::Value, element: 8, word, bytes: 0 };
    let range = KernelArg { kind: ArgKind::Write, element: 8, word: start << 12, bytes };
    raw.launch(1, "test.scribble", &[range, value(millis), value(7)]).unwrap();
    raw.ring().unwrap();
}

#[test]
fn a_kernel_that_writes_to_memory_that_was_taken_away_reaches_nobody_and_little() {
    attacked("stray writes", |socket, card| {
        let mut raw = RawClient::connect(socket);
        let pages = 4096u32;
        let memory = SharedMemory::new(u64::from(pages) * 4096).unwrap();
        let fd = memory.file().try_clone_to_owned().unwrap();
        raw.map(1 << 34, memory.bytes(), &fd).unwrap();
        scribble(&mut raw, pages, 20_000);
        let end = Instant::now() + Duration::from_secs(10);
        while memory.load(0) != Some(7) {
            assert!(Instant::now() < end, "the kernel never wrote");
        }
        let range = DmaUnmap::Range { address: 1 << 34, size: memory.bytes() };
        // 16 MiB are more than a lease may touch in vain: it may end before the answer comes.
        let taken_away = raw.client.dma_unmap(range);
        assert!(matches!(taken_away, Ok(_) | Err(CallError::Closed)), "{taken_away:?}");
        memory.store(0, 1).unwrap();
        await_status(card, |status| status.functions[1].user.is_none());
        assert_eq!(memory.load(0), Some(1), "a stale write came through");
    });
}

#[test]
fn a_kernel_that_crashes_ends_its_lease_alone() {
    attacked("a crash", |socket, card| {
        for _ in 0..3 {
            let mut raw = RawClient::connect(socket);
            let crash = raw.launch(1, "test.crash", &[]).unwrap();
            // A card that looks by itself crashes before it has answered the doorbell.
            let rung = raw.ring();
            assert!(matches!(rung, Ok(()) | Err(CallError::Closed)), "{rung:?}");
            raw.await_completion(crash).unwrap_err();
            await_free(card);
        }
    });
}

#[test]
fn a_kernel_reaches_nothing_but_its_card() {
    attacked("a sandbox", |socket, _| {
        let mut raw = RawClient::connect(socket);
        let escape = raw.launch(1, "test.escape", &[]).unwrap();
        raw.ring().unwrap();
        let done = raw.await_completion(escape).unwrap();
        assert_eq!((done.status, done.value), (Status::Ok, 0), "bits of what went well");
        raw
    });
}

#[test]
fn a_client_that_reads_no_answers_is_given_up_and_costs_no_time() {
    attacked("no reading", |socket, card| {
        let raw = RawClient::connect(socket);
        // Reads of a megabyte each, as the protocol has them: id, command, size, flags, error; offset,
        // region, count.
        let mut message = Vec::new();
        message.extend([7u16, 9].into_iter().flat_map(u16::to_le_bytes));
        message.extend([32u32, 0, 0].into_iter().flat_map(u32::to_le_bytes));
        message.extend(0u64.to_le_bytes());
        message.extend([2u32, 1 << 20].into_iter().flat_map(u32::to_le_bytes));
        let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
        let since = Instant::now();
        while rustix::net::send(raw.client.connection(), &message, flags).is_ok() {
            assert!(since.elapsed() < Duration::from_secs(10), "it is listened to for ever");
        }
        await_status(card, |status| status.functions[1].user.is_none());
        assert!(since.elapsed() < Duration::from_secs(5));
        raw
    });
}

#[test]
fn a_client_that_says_nothing_at_first_loses_its_function() {
    attacked("silence", |socket, card| {
        let silent = UnixStream::connect(socket).unwrap();
        await_status(card, |status| status.functions[1].user.is_some());
        let since = Instant::now();
        await_status(card, |status| status.functions[1].user.is_none());
        assert!(since.elapsed() < Duration::from_secs(4));
        // One that has said its version may be silent: an idle program keeps its card.
        let idle = UnixClient::connect(socket, SOON).unwrap();
        std::thread::sleep(Duration::from_millis(2500));
        assert!(read_status(card).unwrap().functions[1].user.is_some());
        (silent, idle)
    });
}

#[test]
fn a_reset_does_not_wait_for_long_copies() {
    attacked("a reset", |socket, _| {
        let mut raw = RawClient::connect(socket);
        raw.client.set_time_limit(Duration::from_secs(5)).unwrap();
        // The same 16 MiB again and again: a terabyte in all.
        let list = raw.list(&vec![own(0, 4096); 256]);
        for _ in 0..250 {
            raw.push(0, Operation::Fill(list, 1));
        }
        raw.ring().unwrap();
        let since = Instant::now();
        raw.client.reset().unwrap();
        assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
        assert!(raw.read64(register::GENERATION).is_ok());
        raw
    });
}

/// Clients that never get to the end of their first message, though they always say something.
fn mumble(crowd: &mut [UnixStream], stop: &AtomicBool) {
    // VERSION, as the protocol has it: id, command, size, flags, error; then as many bytes of text.
    let mut message = Vec::new();
    message.extend([1u16, 1].into_iter().flat_map(u16::to_le_bytes));
    message.extend([4096u32, 0, 0].into_iter().flat_map(u32::to_le_bytes));
    message.resize(4096, b' ');
    for byte in message {
        if stop.load(SeqCst) {
            return;
        }
        for stream in crowd.iter_mut() {
            // It may have been hung up on.
            let _ = stream.write_all(&[byte]);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn clients_that_come_while_the_function_is_in_use_are_told_so_however_many() {
    attacked("a crowd", |socket, _| {
        let raw = RawClient::connect(socket);
        let mut crowd: Vec<_> = (0..40).map(|_| UnixStream::connect(socket).unwrap()).collect();
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| mumble(&mut crowd[..20], &stop));
            // The others say nothing; one that speaks is told in the end.
            let end = Instant::now() + Duration::from_secs(15);
            let last = loop {
                let last = UnixClient::connect(socket, Duration::from_secs(10)).err();
                let told = matches!(last, Some(CallError::Refused(Errno::BUSY)));
                if told || Instant::now() > end {
                    break last;
                }
            };
            stop.store(true, SeqCst);
            assert!(matches!(last, Some(CallError::Refused(Errno::BUSY))), "{last:?}");
        });
        (raw, crowd)
    });
}
