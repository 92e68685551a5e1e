//! Clients at random against a card as processes: connections, messages, descriptors of many kinds,
//! rings and kernels, with an honest program beside them that must find all exact.
//!
//! Twenty seconds, or twenty times `FARSIDE_SECONDS`. Its seed is printed; `FARSIDE_SEED` repeats it
//! (`harness::seeds`).

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{Space, Write};
use farside_card::interface::{BitsBuffer, DmaAddr, Extent, ExtentArg, ExtentList, Operation};
use farside_softcard::serve::{CardConfig, read_status, socket_name};
use farside_types::{JobId, Rights};
use farside_vfio_user::unix::UnixClient;
use farside_vfio_user::{DmaUnmap, IrqAction};
use harness::live::served::{
    BUS, Census, RawClient, TempDir, await_status, config, family_of, place, serve, test_kernels,
};
use harness::live::{seconds, within};
use harness::{Prng, seeds};
use rustix::event::{EventfdFlags, epoll};
use rustix::fs::{MemfdFlags, OFlags, SealFlags};

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;
/// Kinds of descriptors.
const KINDS: u64 = 17;
/// The first function is the honest program's.
const FUNCTIONS: u16 = 3;

/// A descriptor of a kind, if the system has such.
fn descriptor(kind: u64, socket: &Path) -> Option<OwnedFd> {
    let memory = |bytes: u64, flags: MemfdFlags, seals: SealFlags| {
        let file = rustix::fs::memfd_create("fuzz", flags | MemfdFlags::ALLOW_SEALING).ok()?;
        rustix::fs::ftruncate(&file, bytes).ok()?;
        rustix::fs::fcntl_add_seals(&file, seals).ok()?;
        Some(file)
    };
    let (none, shrink) = (MemfdFlags::empty(), SealFlags::SHRINK);
    let file = |path: &str| std::fs::File::open(path).ok().map(OwnedFd::from);
    match kind {
        0 => memory(1 << 20, none, shrink),
        1 => memory(1 << 20, none, SealFlags::empty()),
        2 => memory(1 << 40, none, shrink),
        3 => memory(0, none, shrink),
        4 => memory(1 << 20, none, shrink | SealFlags::GROW | SealFlags::WRITE),
        5 => memory(4 << 20, MemfdFlags::HUGETLB, shrink),
        6 => rustix::event::eventfd(0, EventfdFlags::NONBLOCK).ok(),
        7 => {
            let full = rustix::event::eventfd(0, EventfdFlags::empty()).ok()?;
            rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).ok()?;
            Some(full)
        }
        8 => rustix::pipe::pipe().ok().map(|(reader, _)| reader),
        // Nobody reads it.
        9 => rustix::pipe::pipe().ok().map(|(_, writer)| writer),
        10 => UnixStream::pair().ok().map(|(one, _)| one.into()),
        11 => UnixStream::connect(socket).ok().map(OwnedFd::from),
        12 => epoll::create(epoll::CreateFlags::CLOEXEC).ok(),
        13 => file("/dev/zero"),
        14 => file("/proc/self/maps"),
        15 => rustix::fs::open(std::env::temp_dir(), OFlags::DIRECTORY, rustix::fs::Mode::empty())
            .ok(),
        _ => file("/proc/self/exe"),
    }
}

/// What has been tried.
#[derive(Debug, Default)]
struct Tried {
    clients: u64,
    messages: u64,
    descriptors: u64,
    commands: u64,
}

fn address(random: &mut Prng) -> u64 {
    match random.below(5) {
        0 => BUS,
        1 => (1 << 34) + random.below(64) * 4096,
        2 => random.below(1 << 41),
        3 => (1 << 40) - 4096 * random.below(4),
        _ => random.below(u64::MAX),
    }
}

fn place_of(random: &mut Prng) -> DmaAddr {
    match random.below(3) {
        0 => DmaAddr::Own(random.below(5000) as u32),
        1 => DmaAddr::Bus((BUS >> 12) as u32 + random.below(3000) as u32),
        _ => DmaAddr::Bus(random.below(1 << 32) as u32),
    }
}

fn pages(random: &mut Prng) -> ExtentArg {
    let count = match random.below(3) {
        0 => 1,
        1 => 1 + random.below(4096) as u32,
        _ => 1 + random.below(1 << 32).min(u64::from(u32::MAX) - 1) as u32,
    };
    let page = if random.below(2) == 0 { 0 } else { random.below(1 << 20) };
    let extent = Extent { page, count, src: place_of(random), dst: place_of(random) };
    let list = ExtentList { address: address(random) & !7, count: 1 + random.below(70_000) as u32 };
    if random.below(4) == 0 { ExtentArg::List(list) } else { ExtentArg::Inline(extent) }
}

fn operation(random: &mut Prng) -> Operation {
    let none = ExtentList { address: 0, count: 0 };
    let args = ExtentList { address: address(random) & !7, count: random.below(70) as u32 };
    match random.below(9) {
        0 => Operation::Map(pages(random), Rights::ReadWrite),
        1 => Operation::Unmap(pages(random)),
        2 => Operation::UnmapAll,
        3 => Operation::Copy(pages(random)),
        4 => Operation::Fill(pages(random), random.below(u64::MAX)),
        5 => Operation::CountersClear(pages(random)),
        6 => Operation::Barrier,
        7 => Operation::Abort(JobId(random.below(9))),
        _ => Operation::Launch {
            job: JobId(random.below(9)),
            kernel: random.below(24) as u32,
            pe: None,
            args: if random.below(2) == 0 { none } else { args },
            message: none,
        },
    }
}

/// Now and then, in the place of what was drawn, something about translation tables: by numbers of its own,
/// so that the clients of old seeds are what they were but for this.
fn about_tables(random: &mut Prng) -> Option<Operation> {
    let buffer = |random: &mut Prng| BitsBuffer {
        address: address(random) & !7,
        bytes: 8 << random.below(22),
    };
    Some(match random.below(12) {
        0 => Operation::MapWritten(pages(random), Rights::ReadWrite),
        1 => Operation::Protect(pages(random), Rights::Read),
        2 => Operation::UnmapTelling(pages(random), buffer(random)),
        3 => Operation::Accessed(pages(random), None),
        4 => Operation::Accessed(pages(random), Some(buffer(random))),
        _ => return None,
    })
}

/// One thing that a client does; `false` when its connection is over.
fn act(
    raw: &mut RawClient,
    [random, tables]: [&mut Prng; 2],
    socket: &Path,
    tried: &mut Tried,
) -> bool {
    tried.messages += 1;
    let kind = random.below(KINDS);
    match random.below(8) {
        0 => {
            tried.descriptors += 1;
            let Some(fd) = descriptor(kind, socket) else { return true };
            let bytes = 4096 << random.below(12);
            still_open(raw.map(address(random) & !4095, bytes, &fd))
        }
        1 => {
            let range = DmaUnmap::Range { address: address(random) & !4095, size: 1 << 20 };
            let all = random.below(8) == 0;
            still_open(raw.client.dma_unmap(if all { DmaUnmap::All } else { range }))
        }
        2 => {
            tried.descriptors += 1;
            let Some(fd) = descriptor(kind, socket) else { return true };
            let vector = random.below(5) as u32;
            still_open(raw.client.irqs_assign(2, vector, &[Arc::new(fd)], IrqAction::Trigger))
        }
        3 => still_open(raw.client.irqs_now(2, 0, 1, IrqAction::Trigger)),
        4 => still_open(raw.write32(random.below(0x1200) & !3, random.below(1 << 32) as u32)),
        5 => still_open(raw.read64(random.below(0x1200) & !7).map(drop)),
        6 if random.below(20) == 0 => still_open(raw.client.reset()),
        _ => {
            for _ in 0..random.below(40) {
                tried.commands += 1;
                let (asid, drawn) = (random.below(20) as u16, operation(random));
                raw.push(asid, about_tables(tables).unwrap_or(drawn));
            }
            while raw.poll().is_some() {}
            still_open(raw.ring())
        }
    }
}

fn still_open(outcome: Result<(), farside_vfio_user::unix::CallError>) -> bool {
    use farside_vfio_user::unix::CallError;
    !matches!(outcome, Err(CallError::Closed | CallError::Io(_) | CallError::Protocol(_)))
}

/// One client, from its coming to its going.
fn client(socket: &Path, [random, tables]: [&mut Prng; 2], tried: &mut Tried) {
    tried.clients += 1;
    if random.below(4) == 0 {
        let Ok(mut stream) = UnixStream::connect(socket) else { return };
        let bytes: Vec<u8> = (0..random.below(200)).map(|_| random.below(256) as u8).collect();
        let _ = stream.write_all(&bytes);
        return;
    }
    let Ok(mut client) = UnixClient::connect(socket, Duration::from_millis(500)) else { return };
    let _ = client.set_time_limit(Duration::from_millis(500));
    let Ok(mut raw) = RawClient::over(client) else { return };
    for _ in 0..random.below(200) {
        if !act(&mut raw, [random, tables], socket, tried) {
            return;
        }
    }
}

/// An honest program: works until told to stop, and finds all exact. Gives how often. `tampers`
/// changes a word behind its back.
fn neighbour(space: &Space, stop: &AtomicBool, tampers: bool) -> u64 {
    let mut data = space.alloc::<u64>(80 * PAGE).unwrap();
    let mut count = 0;
    while !stop.load(SeqCst) {
        space.kernel("farside.increment").call(Write(&mut data)).unwrap();
        count += 1;
        if tampers {
            data[17] ^= 1;
        }
        assert!(data.iter().all(|&word| word == count), "an honest program found something wrong");
    }
    space.check().unwrap();
    count
}

fn space_on(card: farside::CardPlace) -> Space {
    let builder = Space::builder().cards_at([card]).address_space(16 << 20);
    builder.kernels(test_kernels()).build().unwrap()
}

#[test]
fn hostile_clients_at_random_end_their_own_leases_and_nothing_else() {
    let time = 20 * seconds();
    let seed = seeds(43..44).start;
    println!("FARSIDE_SEED={seed}");
    within(LIMIT + 2 * time, "hostile clients at random", || {
        let folder = TempDir::new();
        let grace = Duration::from_millis(50);
        let server = serve(CardConfig { functions: FUNCTIONS, grace, ..config(&folder, 0) });
        let card = server.config().folder.clone();
        let space = space_on(place(&server));
        // The threads of the honest program's worker begin with its first work.
        let begun = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| neighbour(&space, &begun, false));
            std::thread::sleep(Duration::from_millis(300));
            begun.store(true, SeqCst);
        });
        // The process that has been made for the card, with those that it makes.
        let supervisor = family_of(std::process::id())[1];
        let before = Census::at_rest(supervisor);
        let stop = AtomicBool::new(false);
        let mut tried = Tried::default();
        let (worked, asked) = std::thread::scope(|s| {
            let works = s.spawn(|| neighbour(&space, &stop, false));
            let asks = s.spawn(|| {
                let mut count = 0;
                while !stop.load(SeqCst) {
                    let since = Instant::now();
                    read_status(&card).expect("the status is told");
                    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
                    count += 1;
                    std::thread::sleep(Duration::from_millis(20));
                }
                count
            });
            let end = Instant::now() + time;
            let (mut random, mut tables) = (Prng::new(seed), Prng::new(!seed));
            while Instant::now() < end && !works.is_finished() && !asks.is_finished() {
                let function = 1 + random.below(u64::from(FUNCTIONS) - 1) as u32;
                let chances = [&mut random, &mut tables];
                client(&card.join(socket_name(function)), chances, &mut tried);
            }
            stop.store(true, SeqCst);
            (works.join().unwrap(), asks.join().unwrap())
        });
        println!("{tried:?}, {worked} rounds beside them, {asked} times asked");
        assert!(worked > 0 && asked > 0 && tried.clients > 10 && tried.commands > 0);
        // Nothing of them is left.
        await_status(&card, |status| status.functions[1..].iter().all(|f| f.user.is_none()));
        before.await_at_most(supervisor, "after hostile clients");
        drop(space);
        let ends = Instant::now();
        drop(server);
        assert!(ends.elapsed() < Duration::from_secs(1));
    });
}

/// Negative control: an honest program that something is changed for says so.
#[test]
fn control_a_word_that_is_changed_is_noticed() {
    within(LIMIT, "control", || {
        let folder = TempDir::new();
        let server = serve(config(&folder, 0));
        let space = space_on(place(&server));
        let stop = AtomicBool::new(false);
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            neighbour(&space, &stop, true);
        }));
        assert!(found.is_err(), "a wrong word was not noticed");
    });
}
