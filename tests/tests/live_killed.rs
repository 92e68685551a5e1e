//! A program is killed in each step of a move: nothing of it is left, and the next one works.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{
    Advice, CardId, KernelContext, KernelError, MemoryId, Read, ReadView, Shared, Space, Write,
    WriteSpan, WriteView,
};
use farside_svm::Command;
use harness::live::{Child, role, within};

const LIMIT: Duration = Duration::from_secs(120);
/// Words of a page.
const PAGE: usize = 512;

/// Every step there is, by the name of its operation.
const STEPS: [&str; 13] = [
    "host-unmap",
    "host-protect",
    "host-map",
    "host-release",
    "host-poison",
    "card-unmap",
    "card-protect",
    "card-map",
    "card-resume",
    "card-cancel",
    "card-launch",
    "copy",
    "fill",
];

static STEP: Mutex<String> = Mutex::new(String::new());
/// How many times the step goes well before it is struck.
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// Whether the step has come.
fn has_come(command: &Command) -> bool {
    command.name() == *STEP.lock().unwrap()
        && LEFT.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_err()
}

fn kill_at_step(command: &Command) {
    if has_come(command) {
        // SAFETY: ends this very process.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}

fn panic_at_step(command: &Command) {
    assert!(!has_come(command), "a bug of the runtime");
}

fn add_one(k: &mut KernelContext, data: WriteSpan<u64>) -> Result<(), KernelError> {
    k.with(data, |mut data: WriteView<u64>| data.iter_mut().for_each(|word| *word += 1))
}

fn sum(k: &mut KernelContext, data: farside::ReadSpan<u64>) -> Result<u64, KernelError> {
    k.with(data, |data: ReadView<u64>| data.iter().sum())
}

/// A program in which every kind of step comes, some while threads and kernels race.
fn program(space: &Space) {
    let (a, b) = (CardId(0), CardId(1));
    let mut data = space.alloc::<u64>(64 * PAGE).unwrap();
    data.fill(1);
    space.kernel("write").on(a).run(Write(&mut data), add_one).unwrap();
    space.kernel("write").on(b).run(Write(&mut data), add_one).unwrap();
    assert_eq!(data[PAGE], 3);
    let mut fresh = space.alloc::<u64>(64 * PAGE).unwrap();
    space.kernel("fill").on(a).run(Write(&mut fresh), add_one).unwrap();

    // Copies everywhere, and a write from each side that takes them away.
    space.advise(&fresh, Advice::ReadMostly(true)).unwrap();
    let all = fresh.len() as u64;
    for card in [a, b] {
        assert_eq!(space.kernel("read").on(card).run(Read(&fresh), sum).unwrap(), all);
    }
    assert_eq!(fresh.iter().sum::<u64>(), all);
    fresh[7] = 8;
    space.kernel("write").on(a).run(Write(&mut fresh), add_one).unwrap();
    assert_eq!(fresh.iter().sum::<u64>(), 2 * all + 7);
    space.advise(&fresh, Advice::ReadMostly(false)).unwrap();

    space.set_read_only(&fresh, true).unwrap();
    space.kernel("refused").on(a).run(Write(&mut fresh), add_one).unwrap_err();
    space.migrate(&data, a).unwrap();
    space.trim().unwrap();

    let words = space.alloc_atomic::<AtomicU64>(16 * PAGE, "raced for").unwrap();
    std::thread::scope(|s| {
        for card in [a, b] {
            let words = &words;
            s.spawn(move || {
                for _ in 0..5 {
                    let launch = space.kernel("race").on(card);
                    launch
                        .run(Shared(words), |k, words| {
                            (0..16).try_for_each(|p| k.fetch_add(words, p * PAGE, 1u64).map(drop))
                        })
                        .unwrap();
                }
            });
        }
        for page in 0..80 {
            words[page % 16 * PAGE].fetch_add(1, SeqCst);
        }
    });
    assert!((0..16).all(|page| words[page * PAGE].load(SeqCst) == 15));
    drop(fresh);
    space.fail_card(a).unwrap();
    assert!(space.migrate(&data, MemoryId::HOST).is_err());
}

fn open(probe: Option<farside_live::Probe>) -> Space {
    let builder =
        Space::builder().cards(2).card_memory(16 << 20).address_space(64 << 20).warm(true);
    match probe {
        Some(probe) => builder.probe(probe).build().unwrap(),
        None => builder.build().unwrap(),
    }
}

/// The child's part: `step` or `step:n` is struck by `probe`.
fn be_struck(role: &str, probe: farside_live::Probe) {
    let (step, left) = role.split_once(':').unwrap_or((role, "0"));
    let space = open(Some(probe));
    LEFT.store(left.parse().unwrap(), SeqCst);
    *STEP.lock().unwrap() = step.to_owned();
    program(&space);
    println!("the step {role} never came");
}

/// Bytes of shared memory on this machine.
fn shared_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with("Shmem:")).unwrap();
    1024 * line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn invariant_22_a_program_killed_in_any_step_leaves_nothing_and_the_next_one_works() {
    const NAME: &str =
        "invariant_22_a_program_killed_in_any_step_leaves_nothing_and_the_next_one_works";
    if let Some(role) = role() {
        return be_struck(&role, kill_at_step);
    }
    within(LIMIT, NAME, || {
        program(&open(None));
        let (memory, files) = (shared_memory(), open_files());
        // Each child has 32 MiB of card memory and some more: together far above the tolerance.
        for step in STEPS {
            for left in ["0", "3"] {
                let again = !matches!(
                    step,
                    "host-poison" | "card-cancel" | "host-release" | "host-protect"
                );
                if left != "0" && !again {
                    continue;
                }
                let ended = Child::new(NAME, &format!("{step}:{left}")).run();
                ended.expect_signal(libc::SIGKILL);
                let gone = !std::path::Path::new(&format!("/proc/{}", ended.pid)).exists();
                assert!(gone, "{step}: the process is still there");
            }
        }
        // The kernel frees memory in its own time, and others use this machine as well.
        let end = Instant::now() + Duration::from_secs(20);
        while shared_memory() > memory + (256 << 20) {
            assert!(Instant::now() < end, "shared memory of killed programs is still there");
            std::thread::sleep(Duration::from_millis(50));
        }
        program(&open(None));
        assert_eq!(open_files(), files);
    });
}

#[test]
fn invariant_24_a_bug_of_the_runtime_ends_the_program_and_does_not_hang_it() {
    const NAME: &str = "invariant_24_a_bug_of_the_runtime_ends_the_program_and_does_not_hang_it";
    if let Some(role) = role() {
        return be_struck(&role, panic_at_step);
    }
    within(LIMIT, NAME, || {
        for step in ["host-unmap", "host-map", "copy", "card-map", "card-resume", "card-launch"] {
            let ended = Child::new(NAME, step).run();
            ended.expect_signal(libc::SIGABRT);
            assert!(ended.text.contains("the runtime panicked"), "{step}: {}", ended.text);
        }
    });
}

#[test]
fn spaces_leave_no_threads_files_or_memory_behind() {
    within(LIMIT, "leaks", || {
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        program(&open(None));
        let (before, files) = (threads(), open_files());
        for _ in 0..10 {
            program(&open(None));
        }
        assert_eq!((threads(), open_files()), (before, files));
    });
}
