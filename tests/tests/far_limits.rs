//! What one lease may have of the machine, used up on purpose: each limit ends that lease alone, and
//! what it had is given back.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use farside_card::Geometry;
use farside_card::interface::{
    ArgKind, DmaAddr, Extent, ExtentArg, KernelArg, Operation, Status, pci, register,
};
use farside_linux::shared::SharedMemory;
use farside_softcard::serve::{
    CardConfig, CardServer, FunctionStatus, LeaseLimits, read_status, socket_name,
};
use farside_types::{JobId, Rights};
use farside_vfio_user::unix::CallError;
use harness::live::served::{
    CardProcess, RawClient, TempDir, await_status, config, family_of, serve, serve_if_asked,
};
use harness::live::within;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{Pid, Signal, kill_process};

const LIMIT: Duration = Duration::from_secs(90);
/// Within this everything that is the supervisor's must have been done.
const SOON: Duration = Duration::from_secs(1);
/// The function that is made to go too far, and its neighbour.
const GREEDY: u32 = 1;
const MODEST: u32 = 0;

/// A card with a modest client beside the one that goes too far.
struct Fixture {
    server: Server,
    folder: TempDir,
    modest: RawClient,
}

/// Ends the card when dropped.
enum Server {
    Here { _server: CardServer },
    Elsewhere { _process: CardProcess },
}

fn with_grace(config: CardConfig) -> CardConfig {
    CardConfig { grace: Duration::from_millis(20), ..config }
}

impl Fixture {
    fn start(limits: LeaseLimits) -> Fixture {
        Fixture::with(|config| CardConfig { limits, ..config })
    }

    fn with(change: impl FnOnce(CardConfig) -> CardConfig) -> Fixture {
        let folder = TempDir::new();
        let _server = serve(change(with_grace(config(&folder, 0))));
        Fixture::of(Server::Here { _server }, folder)
    }

    /// A card in a child of `test`, which serves it as it likes.
    fn elsewhere(test: &str) -> Fixture {
        let folder = TempDir::new();
        let _process = CardProcess::start(test, &config(&folder, 0));
        Fixture::of(Server::Elsewhere { _process }, folder)
    }

    fn of(server: Server, folder: TempDir) -> Fixture {
        let modest = RawClient::connect(&config(&folder, 0).folder.join(socket_name(MODEST)));
        Fixture { server, folder, modest }
    }

    fn card(&self) -> PathBuf {
        config(&self.folder, 0).folder
    }

    fn greedy(&self) -> RawClient {
        RawClient::connect(&self.socket())
    }

    fn socket(&self) -> PathBuf {
        self.card().join(socket_name(GREEDY))
    }

    fn status(&self) -> FunctionStatus {
        read_status(&self.card())
            .expect("the status is told")
            .functions
            .swap_remove(GREEDY as usize)
    }

    #[track_caller]
    fn await_free(&self) {
        await_status(&self.card(), |status| status.functions[GREEDY as usize].user.is_none());
    }

    /// The function works for the next one, and the neighbour was not harmed.
    #[track_caller]
    fn goes_on(mut self) {
        assert!(is_alive(&mut self.greedy()), "the function works for nobody any more");
        assert!(is_alive(&mut self.modest), "another lease was harmed");
        let ends = Instant::now();
        drop(self.server);
        assert!(ends.elapsed() < SOON, "the card took {:?} to end", ends.elapsed());
    }
}

fn is_alive(raw: &mut RawClient) -> bool {
    raw.run(0, Operation::Nop).is_ok_and(|done| done.status == Status::Ok)
}

fn value(word: u64) -> KernelArg {
    KernelArg { kind: ArgKind::Value, element: 8, word, bytes: 0 }
}

/// Maps pages of the client's and gives the argument by which a kernel writes to them.
fn writable(raw: &mut RawClient, page: u64, bus: u64, count: u32) -> KernelArg {
    let dst = DmaAddr::Bus((bus >> 12) as u32);
    let extent = Extent { page, count, src: DmaAddr::Bus(0), dst };
    let mapped = raw.run(0, Operation::Map(ExtentArg::Inline(extent), Rights::ReadWrite)).unwrap();
    assert_eq!(mapped.status, Status::Ok);
    let bytes = u64::from(count) << 12;
    KernelArg { kind: ArgKind::Write, element: 8, word: page << 12, bytes }
}

/// A file in which there is nothing yet.
fn sparse(bytes: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create("sparse", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&file, bytes).unwrap();
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    file
}

fn made(file: impl AsFd) -> u64 {
    rustix::fs::fstat(file).unwrap().st_blocks as u64 * 512
}

/// Nobody stops a kernel's store, so there is a look every 100 ms. What kernels write between two
/// looks goes past the limit: here two of them, which do nothing but write.
#[test]
fn kernels_that_write_as_fast_as_they_can_are_stopped_soon_after_their_limit() {
    const MAY: u64 = 64 << 20;
    // Far more than two threads write in 100 ms, and far less than they would in all.
    const OVERSHOOT: u64 = 640 << 20;
    const EACH: u64 = 640 << 20;
    within(LIMIT, "memory that kernels make", || {
        let fixture = Fixture::start(LeaseLimits { shared_bytes: MAY, ..LeaseLimits::default() });
        let mut raw = fixture.greedy();
        let file = sparse(2 * EACH);
        let bus = 1u64 << 34;
        raw.map(bus, 2 * EACH, &file).unwrap();
        for index in 0..2u64 {
            let pages = (EACH >> 12) as u32;
            let range = writable(&mut raw, (1 + index) << 20, bus + index * EACH, pages);
            raw.launch(1 + index, "test.scribble", &[range, value(60_000), value(7)]).unwrap();
        }
        raw.ring().unwrap();
        fixture.await_free();
        let made = made(&file);
        println!("{} MiB were made where {} MiB may be", made >> 20, MAY >> 20);
        assert!(made > MAY / 2, "the lease ended before its limit, after {made} bytes");
        assert!(made <= MAY + OVERSHOOT, "{made} bytes were made");
        fixture.goes_on();
    });
}

#[test]
fn a_lease_that_has_used_up_its_processor_time_ends() {
    within(LIMIT, "processor time", || {
        let processor_time = Some(Duration::from_secs(1));
        let fixture = Fixture::start(LeaseLimits { processor_time, ..LeaseLimits::default() });
        let mut raw = fixture.greedy();
        let memory = SharedMemory::new(16 << 12).unwrap();
        let fd = memory.file().try_clone_to_owned().unwrap();
        raw.map(1 << 34, memory.bytes(), &fd).unwrap();
        let range = writable(&mut raw, 1 << 20, 1 << 34, 16);
        let job = raw.launch(1, "test.scribble", &[range, value(60_000), value(7)]).unwrap();
        raw.ring().unwrap();
        let began = Instant::now();
        fixture.await_free();
        assert!(began.elapsed() > Duration::from_millis(500), "{:?}", began.elapsed());
        raw.await_completion(job).unwrap_err();
        fixture.goes_on();
    });
}

#[test]
fn a_lease_in_which_too_many_kernels_hang_ends_and_their_threads_with_it() {
    // As many threads as take the place of those that hang.
    const MOST: u64 = 64;
    within(LIMIT, "hanging kernels", || {
        let fixture = Fixture::start(LeaseLimits::default());
        let mut raw = fixture.greedy();
        let mut jobs = 0;
        let mut hang = || loop {
            jobs += 1;
            let launched = raw.launch(jobs, "test.deaf", &[value(300_000)])?;
            raw.ring()?;
            // Time to begin. What has not begun when it is told to stop never does.
            std::thread::sleep(Duration::from_millis(2));
            raw.push(0, Operation::Abort(JobId(jobs)));
            raw.ring()?;
            match raw.await_completion(launched)?.status {
                Status::Aborted => {}
                status => break Ok::<_, CallError>(status),
            }
        };
        for _ in 0..MOST {
            assert_eq!(hang().expect("the lease has threads left"), Status::Hung);
        }
        assert_eq!(fixture.status().hung_threads as u64, MOST);
        // The answer may come before the end.
        let _ = hang();
        fixture.await_free();
        assert_eq!(fixture.status().hung_threads, 0, "threads that hang outlive their lease");
        fixture.goes_on();
    });
}

/// The card is served by a process that does nothing else: what a worker has from its parent is no part of its limit,
/// and what of it is free can be used.
#[test]
fn a_kernel_has_no_more_memory_of_its_own_than_its_lease_may() {
    const NAME: &str = "a_kernel_has_no_more_memory_of_its_own_than_its_lease_may";
    const MAY_MIB: u64 = 16;
    // Room for stacks, which a kernel can have as well: see `LeaseLimits::own_bytes`.
    const STACKS_MIB: u64 = (2 + 64 + 2) * 3;
    serve_if_asked(|config| {
        let limits = LeaseLimits { own_bytes: MAY_MIB << 20, ..LeaseLimits::default() };
        CardConfig { limits, ..with_grace(config) }
    });
    within(LIMIT, "memory of kernels", || {
        let fixture = Fixture::elsewhere(NAME);
        let mut raw = fixture.greedy();
        let mut eat = |mib| {
            let eats = raw.launch(1, "test.eat", &[value(mib)]).unwrap();
            raw.ring().unwrap();
            let done = raw.await_completion(eats).unwrap();
            assert_eq!(done.status, Status::Ok);
            done.value
        };
        assert_eq!(eat(MAY_MIB / 2), MAY_MIB / 2);
        let got = eat(4 * (MAY_MIB + STACKS_MIB));
        assert!((MAY_MIB / 2..=MAY_MIB + STACKS_MIB).contains(&got), "{got} MiB");
        // It was refused, and nothing else happened.
        assert!(is_alive(&mut raw));
        drop(raw);
        fixture.await_free();
        fixture.goes_on();
    });
}

/// Tables are of the function's quota, not of what its worker may have beside it.
#[test]
fn a_client_that_fills_its_tables_keeps_its_lease() {
    // 293 MiB, and what the worker may have without them: its own, and stacks.
    const TABLE_PAGES: u32 = 75_000;
    const OWN_MIB: u64 = 1;
    const FAR: u64 = 1 << 27;
    within(LIMIT, "tables", || {
        let fixture = Fixture::with(|config| {
            let geometry = Geometry { table_pages: TABLE_PAGES, ..config.geometry };
            let limits = LeaseLimits { own_bytes: OWN_MIB << 20, ..LeaseLimits::default() };
            CardConfig { geometry, limits, ..config }
        });
        let status = read_status(&fixture.card()).unwrap();
        assert_eq!(status.table_bytes, u64::from(TABLE_PAGES) << 12);
        let mut raw = fixture.greedy();
        // Each page needs three tables of its own.
        let nowhere = DmaAddr::Bus(0);
        let extent = |page| Extent { page, count: 1, src: nowhere, dst: DmaAddr::Own(1) };
        let extents: Vec<Extent> = (1..=26_000).map(|index| extent(index * FAR)).collect();
        let list = raw.list(&extents);
        let mapped = raw.run(0, Operation::Map(list, Rights::ReadWrite)).unwrap();
        assert_eq!(mapped.status, Status::Ok);
        let full = register::COUNTER_NAMES.iter().position(|&name| name == "table_full").unwrap();
        assert!(raw.read64(register::counter(full)).unwrap() > 0, "its tables are not full");
        assert!(is_alive(&mut raw), "its lease has ended");
        drop(raw);
        fixture.await_free();
        fixture.goes_on();
    });
}

#[test]
fn a_worker_that_stands_still_keeps_neither_the_status_nor_its_function() {
    within(LIMIT, "a worker that stands still", || {
        let fixture = Fixture::start(LeaseLimits::default());
        let mut raw = fixture.greedy();
        assert!(is_alive(&mut raw));
        let lease = fixture.status().user.expect("somebody uses it").worker;
        let worker = family_of(lease)[1];
        let signal = |signal| {
            let pid = Pid::from_raw(worker as i32).expect("a process id");
            kill_process(pid, signal).expect("it runs");
        };
        signal(Signal::STOP);
        let asked = Instant::now();
        let user = fixture.status().user.expect("it still does");
        assert!(asked.elapsed() < SOON, "the status took {:?}", asked.elapsed());
        assert!(!user.answers, "who could have answered?");
        let gone = Instant::now();
        drop(raw);
        fixture.await_free();
        assert!(gone.elapsed() < SOON, "the function was free after {:?}", gone.elapsed());
        fixture.goes_on();
    });
}

#[test]
fn a_former_client_keeps_nothing_of_the_cards_memory() {
    within(LIMIT, "BAR2", || {
        let fixture = Fixture::start(LeaseLimits::default());
        let mut raw = fixture.greedy();
        let file =
            raw.client.region_info(pci::BAR_MEMORY as u32).unwrap().fd.expect("it is mapped");
        rustix::io::pwrite(&file, &vec![7; 4 << 20], 0).unwrap();
        assert!(made(&file) >= 4 << 20);
        drop(raw);
        fixture.await_free();
        assert_eq!(made(&file), 0, "memory of a lease that is over is still there");
        fixture.goes_on();
    });
}
