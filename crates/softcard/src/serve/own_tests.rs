//! Memory of kernels that were given up.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farside_card::interface::{ExtentList, Operation, register};
use farside_types::{JobId, PAGE_SIZE};

use super::CardConfig;
use super::tests::Fixture;
use crate::error::KernelError;
use crate::kernel::{Growable, KernelContext};
use crate::kernels::{KernelArgs, Kernels};
use crate::window::Backing;
use crate::window_plan::WindowMemory;

const LIMIT: Duration = Duration::from_secs(20);
const WORDS: usize = PAGE_SIZE / 8;
/// The number of every job here: a client may use it again when its job has ended.
const JOB: JobId = JobId(1);
/// Kernels by their places in the table.
const LATE: u32 = 0;
const NEXT: u32 = 1;

type Outcome = Result<u64, KernelError>;

/// What a kernel says, and where it is told to go on.
struct Line<T> {
    says: Sender<T>,
    hears: Mutex<Receiver<()>>,
}

/// The test's end of it.
struct Other<T> {
    hears: Receiver<T>,
    says: Sender<()>,
}

fn line<T>() -> (Line<T>, Other<T>) {
    let ((says, heard), (tells, hears)) = (channel(), channel());
    (Line { says, hears: Mutex::new(hears) }, Other { hears: heard, says: tells })
}

impl<T> Line<T> {
    fn say_and_wait(&self, what: T) {
        self.says.send(what).unwrap();
        self.hears.lock().unwrap().recv().unwrap();
    }
}

/// A kernel that hears nothing while it waits, and then goes on as if it were wanted.
fn late(line: &Line<Vec<Option<KernelError>>>, k: &mut KernelContext) -> Outcome {
    let mut vector = Growable::<u64>::new();
    vector.push(k, 7)?;
    let page = k.alloc::<u64>(WORDS, Backing::Eager)?;
    line.say_and_wait(Vec::new());
    let asked = k.alloc::<u64>(WORDS, Backing::Eager).err();
    let freed = k.free(page).err();
    let handed_over = vector.hand_over(k).err();
    line.says.send(vec![asked, freed, handed_over]).unwrap();
    Ok(0)
}

/// One that has the same number, and memory in the same places.
fn next(line: &Line<()>, k: &mut KernelContext) -> Outcome {
    let (first, second) =
        (k.alloc::<u64>(WORDS, Backing::Eager)?, k.alloc::<u64>(WORDS, Backing::Eager)?);
    k.store(first.ptr(0), 1)?;
    k.store(second.ptr(0), 2)?;
    line.say_and_wait(());
    let sum = k.load(first.ptr(0))? + k.load(second.ptr(0))?;
    if sum == 3 { Ok(sum) } else { Err(k.fail("its memory was another's")) }
}

fn launch(fixture: &mut Fixture, kernel: u32) {
    let none = ExtentList { address: 0, count: 0 };
    fixture.push(Operation::Launch { job: JOB, kernel, pe: None, args: none, message: none });
    fixture.leased.serve_doorbell();
}

fn frames_free(fixture: &Fixture) -> u64 {
    let mut bytes = [0; 8];
    fixture.leased.with(|function, card, _| {
        function.read_register(card, register::WINDOW_FRAMES_FREE, &mut bytes);
    });
    u64::from_le_bytes(bytes)
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A kernel does not stop and is given up: what it has allocated is free again. When it goes on, while another job has its
/// number, its processing element and its pages, it gets nothing, frees nothing and hands nothing over.
#[test]
fn a_kernel_that_was_given_up_gets_nothing_and_frees_nothing_of_the_next() {
    let ((late_line, late_other), (next_line, next_other)) = (line(), line());
    let kernels = Kernels::none()
        .with("late", move |k: &mut KernelContext, _: &KernelArgs| late(&late_line, k))
        .and_then(|all| {
            all.with("next", move |k: &mut KernelContext, _: &KernelArgs| next(&next_line, k))
        });
    let mut fixture = Fixture::of(CardConfig {
        window: WindowMemory::only(64),
        kernels: Arc::new(kernels.unwrap()),
        grace: Duration::from_millis(5),
        ..CardConfig::new("/nonexistent")
    });
    fixture.enable();
    let all = frames_free(&fixture);
    assert_eq!(all, 64);
    launch(&mut fixture, LATE);
    late_other.hears.recv_timeout(LIMIT).expect("it begins");
    assert_eq!(frames_free(&fixture), all - 2);

    fixture.push(Operation::Abort(JOB));
    fixture.leased.serve_doorbell();
    wait_for("it is not given up", || {
        fixture.leased.give_up_late_jobs();
        fixture.completed() == 2
    });
    wait_for("its memory is not free", || frames_free(&fixture) == all);

    launch(&mut fixture, NEXT);
    next_other.hears.recv_timeout(LIMIT).expect("another runs in its place");
    assert_eq!(frames_free(&fixture), all - 2);
    late_other.says.send(()).unwrap();
    let outcomes = late_other.hears.recv_timeout(LIMIT).expect("it goes on");
    assert!(outcomes.len() == 3 && outcomes.iter().all(Option::is_some), "{outcomes:?}");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(frames_free(&fixture), all - 2, "the next one has what it had");
    next_other.says.send(()).unwrap();
    wait_for("the next one does not end", || fixture.completed() == 3);
    wait_for("its memory is not free", || frames_free(&fixture) == all);
    fixture.leased.end();
}

/// A kernel that hangs while it holds its own memory keeps it, and what it has allocated is free when it lets go.
#[test]
fn what_a_kernel_held_when_it_was_given_up_is_free_when_it_lets_go() {
    let (line, other) = line();
    let kernels =
        Kernels::none().with("holds", move |k: &mut KernelContext, _: &KernelArgs| -> Outcome {
            let page = k.alloc::<u64>(WORDS, Backing::Eager)?;
            k.with(page.read(), |_| line.say_and_wait(()))?;
            Ok(0)
        });
    let mut fixture = Fixture::of(CardConfig {
        window: WindowMemory::only(64),
        kernels: Arc::new(kernels.unwrap()),
        grace: Duration::from_millis(5),
        ..CardConfig::new("/nonexistent")
    });
    fixture.enable();
    let all = frames_free(&fixture);
    launch(&mut fixture, LATE);
    other.hears.recv_timeout(LIMIT).expect("it begins");
    fixture.push(Operation::Abort(JOB));
    fixture.leased.serve_doorbell();
    wait_for("it is not given up", || {
        fixture.leased.give_up_late_jobs();
        fixture.completed() == 2
    });
    assert_eq!(frames_free(&fixture), all - 1, "it may still write there");
    other.says.send(()).unwrap();
    wait_for("its memory is not free", || frames_free(&fixture) == all);
    assert_eq!(fixture.completed(), 2);
    fixture.leased.end();
}
