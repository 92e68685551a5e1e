//! SIGTERM that the program does not handle ends it within a second, whatever it waits for.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use farside::{CardId, CardPlace, MemoryId, Space, SpaceBuilder, Value, Write};
use harness::live::served::{CardProcess, TempDir, config, serve_if_asked, test_kernels};
use harness::live::{role, within};

const LIMIT: Duration = Duration::from_secs(100);
/// Words of a page.
const PAGE: usize = 512;
/// A state and the folder of a card that stands still follow.
const STATE: &str = "state ";

fn builder() -> SpaceBuilder {
    Space::builder().cards(2).address_space(16 << 20).kernels(test_kernels())
}

/// Says that the state is reached; the caller stays in it.
fn reached() {
    eprintln!("reached");
}

/// Pages go to and fro.
fn moves() {
    let space = builder().build().unwrap();
    let mut data = space.alloc::<u64>(1000 * PAGE).unwrap();
    data.fill(1);
    reached();
    loop {
        space.migrate(&data, CardId(0)).unwrap();
        space.migrate(&data, MemoryId::HOST).unwrap();
    }
}

/// The program's own thread waits for a page that a kernel holds, which does not stop.
fn waits_for_a_page() {
    let space = builder().tune(|config| config.limits.drain.0 *= 100).build().unwrap();
    let mut data = space.alloc::<u64>(PAGE).unwrap();
    let at = data.as_mut_ptr() as usize;
    space.scope(|s| {
        let hoard = s.kernel("test.hoard").launch_call((Write(&mut data), Value(60_000u64)));
        let _hoard = hoard.unwrap();
        std::thread::sleep(Duration::from_millis(200));
        reached();
        // SAFETY: the word lies in the buffer; what it holds does not matter.
        unsafe { std::hint::black_box((at as *const u64).read_volatile()) };
    });
}

/// Every unmap of the host's fails, and is tried again.
fn retries() {
    let space = builder().build().unwrap();
    let mut data = space.alloc::<u64>(100 * PAGE).unwrap();
    data.fill(1);
    refuse(libc::SYS_madvise);
    reached();
    loop {
        let _ = space.migrate(&data, CardId(0));
        let _ = space.kernel("farside.increment").call(Write(&mut data));
    }
}

/// Memory that is freed is not taken back, and that is tried again.
fn releases() {
    // Addresses that were not given back are not given out again: there are enough for a while.
    let space = builder().address_space(16 << 30).build().unwrap();
    refuse(libc::SYS_fallocate);
    reached();
    loop {
        let mut data = space.alloc::<u64>(PAGE).unwrap();
        data.fill(1);
    }
}

/// Fails every such call of this process from now on.
fn refuse(call: libc::c_long) {
    let ret = (libc::BPF_RET | libc::BPF_K) as u16;
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let jump = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let mut filter = [
        libc::sock_filter { code: load, jt: 0, jf: 0, k: 0 },
        libc::sock_filter { code: jump, jt: 0, jf: 1, k: call as u32 },
        libc::sock_filter { code: ret, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | 11 },
        libc::sock_filter { code: ret, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is well formed and lives as long as the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let all_threads = libc::SECCOMP_FILTER_FLAG_TSYNC;
        assert_eq!(libc::syscall(libc::SYS_seccomp, 1, all_threads, &raw const program), 0);
    }
}

/// A job on a card that stands still.
fn waits_for_a_card(folder: &str) {
    let space = builder().cards_at([CardPlace::Socket(folder.into())]).build().unwrap();
    let mut data = space.alloc::<u64>(100 * PAGE).unwrap();
    data.fill(1);
    // The parent freezes the card before it reads on.
    eprintln!("freeze");
    std::thread::sleep(Duration::from_millis(300));
    reached();
    let _ = space.kernel("farside.increment").call(Write(&mut data));
    loop {
        std::thread::park();
    }
}

/// Blocks SIGTERM in the calling thread, or lets it come. Threads and programs that it starts begin as
/// it is.
fn take_sigterm(how: libc::c_int) {
    // SAFETY: the set is initialised before it is used, and changes this thread's mask only.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        libc::sigaddset(&raw mut signals, libc::SIGTERM);
        assert_eq!(libc::pthread_sigmask(how, &raw const signals, std::ptr::null_mut()), 0);
    }
}

fn be_in(state: &str) {
    // No other thread takes it: it ends the program when this one can, as in a program with one thread.
    take_sigterm(libc::SIG_UNBLOCK);
    let (name, folder) = state.split_once(' ').unwrap();
    match name {
        "moves" => moves(),
        "page" => waits_for_a_page(),
        "retries" => retries(),
        "releases" => releases(),
        _ => waits_for_a_card(folder),
    }
}

#[test]
fn sigterm_ends_a_program_within_a_second_in_every_state() {
    const TEST: &str = "sigterm_ends_a_program_within_a_second_in_every_state";
    serve_if_asked(|config| config);
    if let Some(state) = role() {
        return be_in(state.strip_prefix(STATE).unwrap());
    }
    within(LIMIT, TEST, || {
        let folder = TempDir::new();
        let card = CardProcess::start(TEST, &config(&folder, 0));
        take_sigterm(libc::SIG_BLOCK);
        for state in ["moves", "page", "retries", "releases", "card"] {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args([TEST, "--exact", "--nocapture", "--test-threads=1"])
                .env(
                    "FARSIDE_LIVE_ROLE",
                    format!("{STATE}{state} {}", folder.join("card0").display()),
                )
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
            let mut said = String::new();
            while let Some(Ok(line)) = lines.next() {
                if line == "freeze" {
                    card.freeze();
                }
                if line == "reached" {
                    break;
                }
                said += &line;
            }
            std::thread::sleep(Duration::from_millis(300));
            let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
            let began = Instant::now();
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            let status = child.wait().unwrap();
            let took = began.elapsed();
            assert_eq!(status.signal(), Some(libc::SIGTERM), "{state}: {status}: {said}");
            assert!(took < Duration::from_secs(1), "{state}: SIGTERM took {took:?}");
        }
        card.thaw();
    });
}
