//! The system refuses what a space needs: each refusal is an error that names the call, what it was
//! for and the system's answer, and leaves nothing behind.
//!
//! Refusals are the system's own: limits of descriptors, address space and threads, and a filter of
//! system calls (seccomp) that fails one of them. Each is tried in a child, because it cannot be
//! taken back.

use std::path::PathBuf;
use std::time::Duration;

use farside::{CardPlace, Space, SpaceBuilder};
use harness::live::served::{Census, TempDir, config, serve};
use harness::live::{Child, role, within};

const LIMIT: Duration = Duration::from_secs(100);
/// Descriptors that a space with a card elsewhere needs, at most.
const FILES_MAX: u64 = 60;

fn own() -> u32 {
    std::process::id()
}

/// A card in the program, and one in `folder` if there is one.
fn builder(folder: Option<&str>) -> SpaceBuilder {
    let far = folder.map(|folder| CardPlace::Socket(PathBuf::from(folder)));
    let near = CardPlace::InProgram { frames: 1024 };
    Space::builder().cards_at(std::iter::once(near).chain(far)).address_space(64 << 20)
}

/// Opens a space, which must not end the process. What is left behind by one that does not open, or
/// by one that was opened and dropped, is nothing.
#[track_caller]
fn open(folder: Option<&str>) -> Result<(), String> {
    let before = Census::at_rest(own());
    let outcome = builder(folder).build().map(drop).map_err(|error| error.to_string());
    let mut after = Census::of(own());
    for _ in 0..100 {
        if after == before {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        after = Census::of(own());
    }
    assert_eq!(after, before, "left behind after {outcome:?}");
    outcome
}

fn limit(resource: libc::__rlimit_resource_t, most: u64) {
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is there to be filled.
    assert_eq!(unsafe { libc::getrlimit(resource, &mut old) }, 0);
    let new = libc::rlimit { rlim_cur: most.min(old.rlim_max), ..old };
    // SAFETY: the structure is initialised.
    assert_eq!(unsafe { libc::setrlimit(resource, &new) }, 0);
}

/// One descriptor more each time, until a space opens.
fn few_descriptors(folder: Option<&str>) {
    let open_now = Census::of(own()).files as u64;
    let mut refused = 0;
    for room in 0..FILES_MAX {
        limit(libc::RLIMIT_NOFILE, open_now + room);
        let outcome = builder(folder).build().map(drop).map_err(|error| error.to_string());
        limit(libc::RLIMIT_NOFILE, open_now + 200);
        match outcome {
            Ok(()) => {
                assert!(refused >= 5, "only {refused} refusals");
                return assert_eq!(Census::at_rest(own()).files as u64, open_now, "left behind");
            }
            Err(error) => {
                refused += 1;
                assert!(error.contains("os error 24") || error.contains("open files"), "{error}");
                assert!(error.contains("ulimit -n") || error.contains("open files"), "{error}");
            }
        }
    }
    panic!("no space opens with {FILES_MAX} descriptors");
}

#[test]
fn too_few_descriptors_are_an_error_at_every_step() {
    const TEST: &str = "too_few_descriptors_are_an_error_at_every_step";
    if let Some(role) = role() {
        return few_descriptors(role.strip_prefix("far "));
    }
    within(LIMIT, TEST, || {
        Child::new(TEST, "near").run().expect_success();
        let folder = TempDir::new();
        let server = serve(config(&folder, 0));
        let far = format!("far {}", server.config().folder.display());
        Child::new(TEST, &far).run().expect_success();
    });
}

/// Address space for the arena, then for its alias as well.
fn little_address_space() {
    for (gib, arena_gib) in [(1, 1), (1, 2), (2, 1), (3, 2)] {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = text.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap();
        limit(libc::RLIMIT_AS, pages * 4096 + (gib << 30) - (64 << 20));
        let before = Census::of(own());
        let outcome = Space::builder().cards(1).address_space(arena_gib << 30).build();
        let error = outcome.map(drop).unwrap_err().to_string();
        limit(libc::RLIMIT_AS, u64::MAX);
        for part in ["mmap", "farside-arena", "os error 12", "ulimit -v"] {
            assert!(error.contains(part), "`{part}` is not in: {error}");
        }
        let after = Census::of(own());
        assert_eq!(
            (after.files, after.mappings, after.threads),
            (before.files, before.mappings, before.threads)
        );
    }
}

#[test]
fn too_little_address_space_is_an_error() {
    const TEST: &str = "too_little_address_space_is_an_error";
    if role().is_some() {
        return little_address_space();
    }
    within(LIMIT, TEST, || Child::new(TEST, "little").run().expect_success());
}

/// One thread more each time, until a space opens.
fn few_threads() {
    // Somebody whose threads are counted. Nobody else in this test is that.
    const NOBODY: u32 = 61_234;
    // SAFETY: it changes who this process is, and nothing else.
    assert_eq!(unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) }, 0);
    let threads = Census::of(own()).threads as u64;
    for room in 0..20 {
        limit(libc::RLIMIT_NPROC, threads + room);
        match open(None) {
            Ok(()) => return assert!(room >= 3, "{room} threads are enough"),
            Err(error) => {
                for part in ["cannot start a thread", "os error 11", "limit of processes"] {
                    assert!(error.contains(part), "`{part}` is not in: {error}");
                }
            }
        }
    }
    panic!("no space opens");
}

#[test]
fn too_few_threads_are_an_error_at_every_step() {
    const TEST: &str = "too_few_threads_are_an_error_at_every_step";
    if role().is_some() {
        return few_threads();
    }
    within(LIMIT, TEST, || Child::new(TEST, "few").run().expect_success());
}

/// A system call that fails from now on in all of this process.
struct Refused {
    name: &'static str,
    number: i64,
    /// Only if this argument has any of these bits: `mmap` is everybody's.
    only: Option<(u32, u32)>,
    /// What the error calls it.
    says: &'static str,
    /// It takes a card elsewhere.
    far: bool,
}

const fn refused(name: &'static str, number: i64, says: &'static str) -> Refused {
    Refused { name, number, only: None, says, far: false }
}

const fn refused_far(name: &'static str, number: i64, says: &'static str) -> Refused {
    Refused { name, number, only: None, says, far: true }
}

/// Every call of `build` and of connecting a card that can be failed without failing what Rust itself
/// needs to go on.
const REFUSED: [Refused; 14] = [
    refused("memfd_create", libc::SYS_memfd_create, "memfd_create"),
    refused("ftruncate", libc::SYS_ftruncate, "ftruncate"),
    refused("fcntl", libc::SYS_fcntl, "F_ADD_SEALS"),
    Refused { only: Some((3, libc::MAP_FIXED as u32)), ..refused("mmap", libc::SYS_mmap, "mmap") },
    refused("madvise", libc::SYS_madvise, "madvise"),
    refused("eventfd2", libc::SYS_eventfd2, "event descriptor"),
    refused("epoll_create1", libc::SYS_epoll_create1, "epoll_create1"),
    refused("epoll_ctl", libc::SYS_epoll_ctl, "epoll_ctl"),
    refused("timerfd_create", libc::SYS_timerfd_create, "timerfd_create"),
    refused("clone3", libc::SYS_clone3, "thread"),
    refused_far("socket", libc::SYS_socket, "connecting"),
    refused_far("connect", libc::SYS_connect, "connecting"),
    refused_far("setsockopt", libc::SYS_setsockopt, "connecting"),
    refused_far("recvmsg", libc::SYS_recvmsg, "doorbell"),
];

/// What the system answers: nothing that any of these calls answers by itself.
const ANSWER: i32 = libc::EDQUOT;

/// Installs a filter for all threads that fails one call with [`ANSWER`].
fn refuse(call: &Refused) {
    let code = |code: u32| code as u16;
    let load = |offset| libc::sock_filter {
        code: code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS),
        jt: 0,
        jf: 0,
        k: offset,
    };
    let jump = |test: u32, k, jt, jf| libc::sock_filter {
        code: code(libc::BPF_JMP | test | libc::BPF_K),
        jt,
        jf,
        k,
    };
    let give = |k| libc::sock_filter { code: code(libc::BPF_RET | libc::BPF_K), jt: 0, jf: 0, k };
    let (argument, bits) = call.only.unwrap_or((0, 0));
    let any = u8::from(call.only.is_none());
    let mut filter = [
        load(0),
        jump(libc::BPF_JEQ, call.number as u32, 0, 3),
        load(16 + 8 * argument),
        jump(libc::BPF_JSET, bits, 0, 1 - any),
        give(libc::SECCOMP_RET_ERRNO | ANSWER as u32),
        give(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is well formed and lives as long as the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let all_threads = libc::SECCOMP_FILTER_FLAG_TSYNC;
        let outcome = libc::syscall(libc::SYS_seccomp, 1, all_threads, &raw const program);
        assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
    }
}

#[test]
fn every_call_that_is_refused_is_an_error_with_its_name() {
    const TEST: &str = "every_call_that_is_refused_is_an_error_with_its_name";
    if let Some(role) = role() {
        let (name, folder) = role.split_once(' ').unwrap();
        let call = REFUSED.iter().find(|call| call.name == name).unwrap();
        // Once without, so that what is made once for a process is there.
        open(Some(folder)).unwrap();
        refuse(call);
        let error = open(call.far.then_some(folder)).expect_err("a call that fails is no space");
        for part in [call.says, "os error 122"] {
            assert!(error.contains(part), "`{part}` is not in: {error}");
        }
        return;
    }
    within(LIMIT, TEST, || {
        let folder = TempDir::new();
        let server = serve(config(&folder, 0));
        for call in &REFUSED {
            let role = format!("{} {}", call.name, server.config().folder.display());
            let ended = Child::new(TEST, &role).run();
            assert_eq!(
                (ended.code, ended.signal),
                (Some(0), None),
                "{}: {}",
                call.name,
                ended.text
            );
        }
    });
}
