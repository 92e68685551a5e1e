//! A program is killed while it uses a card elsewhere: its function becomes free and quiet, nobody
//! finds its memory, the next program works, and who shares the card notices nothing.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{CardId, CardPlace, Read, Space, SpaceBuilder, Write};
use farside_softcard::serve::{CardServer, socket_name};
use farside_svm::Command;
use farside_vfio_user::unix::UnixClient;
use harness::Prng;
use harness::live::served::{
    Exercise, Program, STEPS, TempDir, await_status, config, place, serve, test_kernels,
    with_table_pages,
};
use harness::live::{Child, role, seconds, within};

const LIMIT: Duration = Duration::from_secs(120);
/// Words of a page.
const PAGE: usize = 512;
const CARDS: [CardId; 2] = [CardId(0), CardId(1)];
/// BAR2, the memory of a function.
const MEMORY: u32 = 2;

static STEP: Mutex<String> = Mutex::new(String::new());
/// How many times the step goes well before it is struck.
static LEFT: AtomicUsize = AtomicUsize::new(0);

fn kill_at_step(command: &Command) {
    let has_come = command.name() == *STEP.lock().unwrap()
        && LEFT.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_err();
    if has_come {
        // SAFETY: ends this very process.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}

fn builder(places: impl IntoIterator<Item = CardPlace>) -> SpaceBuilder {
    Space::builder().cards_at(places).address_space(16 << 20).kernels(test_kernels())
}

/// In a child, whose role names the cards' folders and what is to come: does so and never returns.
fn be_a_program_if_asked() {
    let Some(role) = role() else { return };
    let mut words = role.split(' ');
    let mut next = || words.next().expect("the role has its words");
    let (what, folders) = (next(), [next(), next()]);
    let builder = builder(folders.map(|folder| CardPlace::Socket(folder.into())));
    let space = builder.probe(kill_at_step).build().unwrap();
    let mut exercise = Exercise::new(&space, 80);
    exercise.run(CARDS[0], CARDS[1]).unwrap();
    if what == "struck" {
        LEFT.store(next().parse().unwrap(), SeqCst);
        *STEP.lock().unwrap() = next().to_owned();
    }
    println!("it works");
    // To a step, or for ever: see who started this.
    for _ in 0..if what == "struck" { 3 } else { u64::MAX } {
        exercise.run(CARDS[0], CARDS[1]).unwrap();
    }
    println!("the step never came");
    std::process::exit(0);
}

fn role_of(what: &str, servers: &[CardServer], rest: &str) -> String {
    let folder = |server: &CardServer| server.config().folder.display().to_string();
    format!("{what} {} {} {rest}", folder(&servers[0]), folder(&servers[1]))
}

/// Works on the cards until told to stop, and finds all right. Gives how often.
fn neighbour(space: &Space, stop: &AtomicBool) -> u64 {
    let mut exercise = Exercise::new(space, 80);
    let mut count = 0;
    while !stop.load(SeqCst) {
        exercise.run(CARDS[0], CARDS[1]).unwrap();
        assert_eq!(exercise.check(), 0);
        count += 1;
    }
    space.check().unwrap();
    count
}

/// Waits until only `users` functions of each card are in use, and nothing hangs.
fn await_users(servers: &[CardServer], users: usize) {
    for server in servers {
        await_status(&server.config().folder, |status| {
            let used = status.functions.iter().filter(|function| function.user.is_some()).count();
            used == users && status.functions.iter().all(|function| function.hung_threads == 0)
        });
    }
}

/// Two cards, of which one has translation tables and the other is of before there were any; a neighbour
/// that has a function of each, and `body`, which has the other.
fn beside_a_neighbour(body: impl FnOnce(&[CardServer])) {
    let folder = TempDir::new();
    let servers = [serve(config(&folder, 0)), serve(with_table_pages(config(&folder, 1), 0))];
    let (space, stop) =
        (builder(servers.iter().map(place)).build().unwrap(), AtomicBool::new(false));
    std::thread::scope(|s| {
        let at_work = s.spawn(|| neighbour(&space, &stop));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&servers)));
        stop.store(true, SeqCst);
        assert!(at_work.join().unwrap() > 0);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[test]
fn invariants_22_25_a_program_killed_in_any_step_frees_its_functions_and_disturbs_nobody() {
    const NAME: &str =
        "invariants_22_25_a_program_killed_in_any_step_frees_its_functions_and_disturbs_nobody";
    be_a_program_if_asked();
    within(LIMIT, NAME, || {
        beside_a_neighbour(|servers| {
            for (step, left) in STEPS.into_iter().flat_map(|step| [(step, 0), (step, 2)]) {
                let role = role_of("struck", servers, &format!("{left} {step}"));
                let ended = Child::new(NAME, &role).run();
                ended.expect_signal(libc::SIGKILL);
                await_users(servers, 1);
                // The next program, on the functions that the killed one had.
                let next = builder(servers.iter().map(place)).build().unwrap();
                let fresh = next.alloc::<u64>(200 * PAGE).unwrap();
                let sum = next.kernel("farside.sum").call(Read(&fresh)).unwrap();
                assert_eq!(sum, 0, "memory of the program killed in {step} is seen");
                let mut exercise = Exercise::new(&next, 80);
                exercise.run(CARDS[1], CARDS[0]).unwrap();
                assert_eq!(exercise.check(), 0);
                drop(exercise);
                next.check().unwrap();
            }
        });
    });
}

#[test]
fn a_program_killed_at_any_time_frees_its_functions_and_disturbs_nobody() {
    const NAME: &str = "a_program_killed_at_any_time_frees_its_functions_and_disturbs_nobody";
    be_a_program_if_asked();
    within(LIMIT, NAME, || {
        beside_a_neighbour(|servers| {
            let mut random = Prng::new(11);
            let end = Instant::now() + 2 * seconds();
            while Instant::now() < end {
                let mut program = Program::start(NAME, &role_of("endless", servers, ""));
                program.await_line("it works");
                std::thread::sleep(Duration::from_micros(random.below(20_000)));
                program.kill();
                await_users(servers, 1);
            }
            let next = builder(servers.iter().map(place)).build().unwrap();
            Exercise::new(&next, 80).run(CARDS[1], CARDS[0]).unwrap();
        });
    });
}

/// Connects to a function, as soon as it is free, and gives the file of its memory.
fn memory_of(socket: &Path) -> (UnixClient, OwnedFd) {
    let end = Instant::now() + Duration::from_secs(10);
    let mut client = loop {
        match UnixClient::connect(socket, Duration::from_secs(2)) {
            Ok(client) => break client,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let memory = client.region_info(MEMORY).unwrap();
    assert_eq!(memory.offset, 0);
    (client, memory.fd.expect("the memory can be mapped"))
}

fn read_all(memory: &OwnedFd, bytes: usize) -> Vec<u8> {
    let mut all = vec![0xff; bytes];
    let mut done = 0;
    while done < bytes {
        let count = rustix::io::pread(memory, &mut all[done..], done as u64).unwrap();
        assert!(count > 0, "the memory is too short");
        done += count;
    }
    all
}

#[test]
fn invariant_5_the_next_user_of_a_function_has_other_memory_and_it_is_zero() {
    within(LIMIT, "fresh memory", || {
        let folder = TempDir::new();
        let server = serve(config(&folder, 0));
        let socket = server.config().folder.join(socket_name(0));
        let bytes = server.config().frames as usize * 4096;
        let inode = |memory: &OwnedFd| rustix::fs::fstat(memory).unwrap().st_ino;
        let (mut lives, mut orphans) = (Vec::new(), Vec::new());
        for life in 1..=5u8 {
            let (client, memory) = memory_of(&socket);
            assert!(read_all(&memory, bytes).iter().all(|&byte| byte == 0), "in life {life}");
            for page in 0..bytes / 4096 {
                rustix::io::pwrite(&memory, &[life; 64], page as u64 * 4096).unwrap();
            }
            // What former users still hold is theirs alone, and empty: their lease has given it back.
            for orphan in &orphans {
                assert_eq!(read_all(orphan, 64), [0; 64]);
                rustix::io::pwrite(orphan, &[0xee; 64], 4096).unwrap();
            }
            assert_eq!(read_all(&memory, 4096 + 64)[4096..], [life; 64]);
            let generation =
                server.status().unwrap().functions[0].user.as_ref().unwrap().generation;
            assert!(!lives.contains(&(inode(&memory), generation)), "{lives:?}");
            lives.push((inode(&memory), generation));
            orphans.push(memory);
            drop(client);
        }
        let mut generations: Vec<u64> = lives.iter().map(|(_, generation)| *generation).collect();
        let mut inodes: Vec<u64> = lives.iter().map(|(inode, _)| *inode).collect();
        for counted in [&mut generations, &mut inodes] {
            counted.sort_unstable();
            counted.dedup();
            assert_eq!(counted.len(), 5, "a life has something of another: {lives:?}");
        }
    });
}

#[test]
fn a_program_killed_while_kernels_run_for_it_leaves_a_function_that_is_quiet() {
    const NAME: &str = "a_program_killed_while_kernels_run_for_it_leaves_a_function_that_is_quiet";
    if let Some(role) = role() {
        let place = CardPlace::Socket(role.split_once(' ').unwrap().1.into());
        let space = builder([place]).build().unwrap();
        let mut data = space.alloc::<u64>(64 * PAGE).unwrap();
        data.fill(1);
        space.scope(|s| {
            s.kernel("farside.spin").launch_call(()).unwrap();
            s.kernel("farside.spin").launch_call(()).unwrap();
            // This one waits for its turn, for ever.
            s.kernel("farside.increment").launch_call(Write(&mut data)).unwrap();
            println!("it works");
        });
        return;
    }
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let server = serve(config(&folder, 0));
        let path = &server.config().folder;
        for _ in 0..3 {
            let mut program = Program::start(NAME, &format!("spin {}", path.display()));
            program.await_line("it works");
            await_status(path, |status| {
                status.functions[0].user.as_ref().is_some_and(|user| user.jobs == 2)
            });
            program.kill();
            await_users(std::slice::from_ref(&server), 0);
        }
        let next = builder([place(&server)]).build().unwrap();
        let mut data = next.alloc::<u64>(64 * PAGE).unwrap();
        data.fill(1);
        next.kernel("farside.increment").call(Write(&mut data)).unwrap();
        assert!(data.iter().all(|&word| word == 2));
    });
}
