//! The card's own window through the function: the driver's commands, kernels' requests, invalidations.

mod rig;

use farside_card::interface::{AllocRequest, CompletionEntry, Operation, Status, register};
use farside_card::window::{AllocError, WindowFault};
use farside_card::{Action, Function, JobEnd, WindowAction, WindowWait};
use farside_types::{Access, Asid, JobId, PeId, Rights};
use rig::{Rig, config};

const NO_ASID: Asid = Asid(0);
const BASE: u64 = 1 << 40;
const PAGE: u64 = 4096;

fn alloc(pages: u64, lazy: bool) -> Operation {
    Operation::Allocate(AllocRequest::Malloc {
        bytes: pages * PAGE,
        memory: 1,
        rights: Rights::ReadWrite,
        lazy,
    })
}

/// Invalidations that somebody waits for.
fn waits(rig: &mut Rig) -> Vec<(u64, u64, WindowWait)> {
    let wait = |action| match action {
        WindowAction::Invalidate { pages, wait: Some(wait) } => {
            Some((pages.first, pages.count, wait))
        }
        WindowAction::Invalidate { wait: None, .. } => None,
        other @ WindowAction::Allocated { .. } => panic!("{other:?}"),
    };
    rig.window_actions().into_iter().filter_map(wait).collect()
}

fn invalidated(rig: &mut Rig, wait: WindowWait) {
    rig.function.window_invalidated(&mut rig.card, &mut rig.bus, wait);
}

fn run(rig: &mut Rig, operation: Operation) -> Option<CompletionEntry> {
    rig.submit(NO_ASID, operation);
    rig.doorbell();
    rig.completions().pop()
}

/// The job that a processing element runs.
const fn job(pe: u16) -> JobId {
    JobId(100 + pe as u64)
}

fn ask(rig: &mut Rig, job: JobId, request: AllocRequest) -> bool {
    rig.function.allocate(&mut rig.card, &mut rig.bus, job, request)
}

const MALLOC: AllocRequest =
    AllocRequest::Malloc { bytes: 1, memory: 0, rights: Rights::Read, lazy: false };

/// Gives pages; the address.
fn given(rig: &mut Rig, pages: u64, lazy: bool) -> u64 {
    let done = run(rig, alloc(pages, lazy)).expect("a malloc waits for nothing");
    assert_eq!(done.status, Status::Ok);
    assert_eq!(waits(rig), []);
    done.value
}

#[test]
fn a_free_completes_when_its_invalidation_is_done_and_then_the_sweep_follows() {
    let mut rig = Rig::new();
    let free = |rig: &Rig| rig.read64(register::WINDOW_FRAMES_FREE);
    let before = free(&rig);
    let address = given(&mut rig, 5, false);
    let first = (address - BASE) / PAGE;
    assert!(rig.function.window_translate(first, Access::Write).unwrap().is_ok());
    assert_eq!(run(&mut rig, Operation::Allocate(AllocRequest::Free { address })), None);
    assert_eq!(rig.read32(register::STATUS) & register::STATUS_QUIET, 0);
    let gone = Some(Err(WindowFault::NotMapped));
    assert_eq!(rig.function.window_translate(first + 4, Access::Read), gone);
    assert_eq!(waits(&mut rig), [(first, 5, WindowWait::Command)]);
    // Another command waits for it, in its turn.
    assert_eq!(run(&mut rig, alloc(1, false)), None);
    invalidated(&mut rig, WindowWait::Command);
    let done = rig.completions();
    let ends: Vec<Status> = done.iter().map(|completion| completion.status).collect();
    assert_eq!(ends, [Status::Ok, Status::Ok]);
    assert_ne!(done[1].value, address, "its words are not swept");
    assert_eq!(waits(&mut rig), [(first, 5, WindowWait::Sweep)]);
    invalidated(&mut rig, WindowWait::Sweep);
    let address = done[1].value;
    assert_eq!(run(&mut rig, Operation::Allocate(AllocRequest::Free { address })), None);
    for wait in [WindowWait::Command, WindowWait::Sweep] {
        assert_eq!(waits(&mut rig).len(), 1);
        invalidated(&mut rig, wait);
    }
    assert_eq!(rig.read32(register::STATUS) & register::STATUS_QUIET, register::STATUS_QUIET);
    rig.sleeps();
    // One table is kept ready; its frame holds the one of the allocations too.
    assert!(before - free(&rig) <= 1, "{} of {before}", free(&rig));
}

#[test]
fn a_lazy_page_gets_its_frame_and_a_moved_one_keeps_it() {
    let mut rig = Rig::new();
    let address = given(&mut rig, 3, true);
    let first = (address - BASE) / PAGE;
    let touched = rig.function.window_translate(first + 1, Access::Write).unwrap().unwrap();
    assert_eq!(rig.function.window_translate(first + 1, Access::Read).unwrap(), Ok(touched));
    given(&mut rig, 1, false);
    let realloc =
        Operation::Allocate(AllocRequest::Realloc { address, bytes: 4 * PAGE, lazy: true });
    assert_eq!(run(&mut rig, realloc), None);
    assert_eq!(waits(&mut rig), [(first, 3, WindowWait::Command)]);
    invalidated(&mut rig, WindowWait::Command);
    let moved = rig.completions()[0].value;
    assert_ne!(moved, address);
    let page = (moved - BASE) / PAGE + 1;
    assert_eq!(rig.function.window_translate(page, Access::Read).unwrap(), Ok(touched));
    let beyond = Some(Err(WindowFault::NotMapped));
    assert_eq!(rig.function.window_translate(1 << 40, Access::Read), beyond);
}

#[test]
fn kernels_and_the_driver_are_served_in_turn_through_one_arbiter() {
    let mut rig = Rig::new();
    let (request, two) = (MALLOC, job(2));
    rig.launch_on(PeId(1), job(1));
    rig.launch_on(PeId(2), two);
    assert!(ask(&mut rig, two, request));
    let answers = answers(&mut rig);
    let [(answered, Ok(address))] = answers[..] else { panic!("{answers:?}") };
    assert_eq!(answered, two);
    let page = (address - BASE) / PAGE;
    let read_only = Some(Err(WindowFault::ReadOnly));
    assert_eq!(rig.function.window_translate(page, Access::Write), read_only);
    // What a kernel has, the driver has not, before it is handed over; then it is the kernel's no more.
    let not_its = run(&mut rig, Operation::Allocate(AllocRequest::Free { address })).unwrap();
    assert_eq!(not_its.status, Status::NotAllocated);
    assert!(!rig.function.hand_over_allocation(job(1), address));
    assert!(rig.function.hand_over_allocation(two, address));
    assert!(!rig.function.hand_over_allocation(two, address));
    assert!(ask(&mut rig, two, AllocRequest::Free { address }));
    let refused = WindowAction::Allocated { job: two, result: Err(AllocError::NotAllocated) };
    assert!(rig.window_actions().contains(&refused));
    // The driver's free is under way: the kernel waits, and asks once.
    assert_eq!(run(&mut rig, Operation::Allocate(AllocRequest::Free { address })), None);
    assert!(ask(&mut rig, two, request));
    assert!(!ask(&mut rig, two, request) && !ask(&mut rig, job(9), request));
    assert_eq!(waits(&mut rig).len(), 1);
    invalidated(&mut rig, WindowWait::Command);
    let given = |action: &WindowAction| matches!(action, WindowAction::Allocated { job, result: Ok(_) } if *job == two);
    assert_eq!(rig.window_actions().iter().filter(|action| given(action)).count(), 1);
    assert_eq!(rig.function.window_counts().unwrap().answers[0], 3);
    assert_eq!(rig.completions()[0].status, Status::Ok);
}

#[test]
fn a_reset_ends_when_invalidations_have_and_leaves_an_empty_window() {
    let mut rig = Rig::new();
    let before = rig.read64(register::WINDOW_FRAMES_FREE);
    let address = given(&mut rig, 5, false);
    assert_eq!(run(&mut rig, Operation::Allocate(AllocRequest::Free { address })), None);
    assert_eq!(waits(&mut rig).len(), 1);
    rig.submit(NO_ASID, alloc(1, false));
    rig.doorbell();
    rig.write32(register::CONTROL, register::CONTROL_RESET);
    assert_eq!(rig.actions(), []);
    invalidated(&mut rig, WindowWait::Command);
    assert_eq!(rig.actions(), [Action::Reset]);
    rig.function.reset_done(&mut rig.card);
    assert!(rig.completions().is_empty());
    assert!(rig.read64(register::WINDOW_FRAMES_FREE) >= before);
    // One that the embedder was not told of is not waited for.
    rig.set_up_rings();
    rig.write32(register::CONTROL, register::CONTROL_ENABLE);
    let address = given(&mut rig, 5, false);
    assert_eq!(run(&mut rig, Operation::Allocate(AllocRequest::Free { address })), None);
    rig.write32(register::CONTROL, register::CONTROL_RESET);
    assert_eq!(rig.actions(), [Action::Reset]);
    rig.function.reset_done(&mut rig.card);
    invalidated(&mut rig, WindowWait::Command);
    assert_eq!(rig.read32(register::STATUS), register::STATUS_QUIET);
}

/// What kernels were answered.
fn answers(rig: &mut Rig) -> Vec<(JobId, Result<u64, AllocError>)> {
    let answer = |action| match action {
        WindowAction::Allocated { job, result } => Some((job, result)),
        WindowAction::Invalidate { .. } => None,
    };
    rig.window_actions().into_iter().filter_map(answer).collect()
}

/// The kernels of a reset end, and it with them.
fn end_reset(rig: &mut Rig, jobs: impl IntoIterator<Item = JobId>) {
    for job in jobs {
        rig.end(job, &JobEnd::failed(Status::Aborted, String::new()));
    }
    assert_eq!(rig.actions(), [Action::Reset]);
    rig.function.reset_done(&mut rig.card);
}

fn start_again(rig: &mut Rig) {
    rig.set_up_rings();
    rig.write32(register::CONTROL, register::CONTROL_ENABLE);
}

#[test]
fn a_kernel_that_asks_or_waits_where_nobody_serves_is_told_so() {
    let mut rig = Rig::new();
    let jobs = [1, 2, 3].map(job);
    let [one, two, three] = jobs;
    (1..=3).for_each(|pe| rig.launch_on(PeId(pe), job(pe)));
    let stopped = |job| (job, Err(AllocError::Stopped));
    // One command is under way, one waits for it: the function fails.
    assert!(ask(&mut rig, one, MALLOC));
    let [(_, Ok(address))] = answers(&mut rig)[..] else { panic!("a malloc waits for nothing") };
    assert!(ask(&mut rig, one, AllocRequest::Free { address }) && ask(&mut rig, two, MALLOC));
    assert_eq!(answers(&mut rig), []);
    rig.function.report(register::ERROR_CARD, 0, &mut rig.bus);
    assert_eq!(answers(&mut rig), [stopped(one), stopped(two)]);
    // It has failed.
    assert!(ask(&mut rig, two, MALLOC) && !ask(&mut rig, job(9), MALLOC));
    assert_eq!(answers(&mut rig), [stopped(two)]);
    invalidated(&mut rig, WindowWait::Command);
    assert_eq!(answers(&mut rig), []);
    assert!(rig.sleeps());
    // It is being reset; the answer is there when the reset has ended.
    rig.write32(register::CONTROL, register::CONTROL_RESET);
    assert_eq!(rig.actions(), jobs.map(|job| Action::Stop { job }));
    assert!(ask(&mut rig, three, MALLOC));
    end_reset(&mut rig, jobs);
    assert_eq!(answers(&mut rig), [stopped(three)]);
    // It serves again; a kernel that was not told of its page before a reset has none.
    start_again(&mut rig);
    rig.launch_on(PeId(3), three);
    assert!(ask(&mut rig, three, MALLOC));
    rig.write32(register::CONTROL, register::CONTROL_RESET);
    assert_eq!(answers(&mut rig), [stopped(three)]);
    assert_eq!(rig.actions(), [Action::Stop { job: three }]);
    end_reset(&mut rig, [three]);
    start_again(&mut rig);
    rig.launch_on(PeId(3), three);
    assert!(ask(&mut rig, three, MALLOC));
    assert!(matches!(answers(&mut rig)[..], [(job, Ok(_))] if job == three));
}

/// A kernel is given up while it waits; its processing element has the next one. Each has its own answer, and its own pages.
#[test]
fn a_kernel_that_was_given_up_has_nothing_of_the_one_in_its_place() {
    let mut rig = Rig::new();
    let (late, next, pe) = (JobId(1), JobId(2), PeId(1));
    rig.launch_on(pe, late);
    assert!(ask(&mut rig, late, MALLOC));
    let [(_, Ok(address))] = answers(&mut rig)[..] else { panic!("a malloc waits for nothing") };
    assert!(ask(&mut rig, late, AllocRequest::Free { address }));
    assert_eq!(answers(&mut rig), []);
    rig.end(late, &JobEnd::failed(Status::Hung, String::new()));
    assert_eq!(answers(&mut rig), [(late, Err(AllocError::Stopped))]);
    rig.launch_on(pe, next);
    assert!(ask(&mut rig, next, MALLOC), "it waits in its own place");
    assert!(!ask(&mut rig, late, MALLOC), "it does not run");
    assert_eq!(answers(&mut rig), []);
    invalidated(&mut rig, WindowWait::Command);
    let [(answered, Ok(of_next))] = answers(&mut rig)[..] else { panic!("it is its turn") };
    assert_eq!(answered, next);
    // The one that was given up goes on, and frees and hands over what it takes for its own.
    assert!(!ask(&mut rig, late, AllocRequest::Free { address: of_next }));
    assert!(!rig.function.hand_over_allocation(late, of_next));
    assert!(rig.function.hand_over_allocation(next, of_next));
}

/// Answers all invalidations, and drops what kernels are told. Gives the free frames.
fn settle(rig: &mut Rig) -> u64 {
    for _ in 0..20 {
        for action in rig.window_actions() {
            if let WindowAction::Invalidate { wait: Some(wait), .. } = action {
                invalidated(rig, wait);
            }
        }
        rig.sleeps();
    }
    rig.read64(register::WINDOW_FRAMES_FREE)
}

/// Everything that a kernel has not freed or handed over is free when it has ended, in whatever way and wherever it was.
#[test]
fn what_a_kernel_has_left_the_function_frees() {
    let mut rig = Rig::new();
    let pages = |pages| AllocRequest::Malloc {
        bytes: pages * PAGE,
        memory: 1,
        rights: Rights::ReadWrite,
        lazy: false,
    };
    let answered = |rig: &mut Rig| match answers(rig)[..] {
        [(_, Ok(address))] => address,
        ref other => panic!("{other:?}"),
    };
    // What is kept ready has its frames when something has come and gone.
    let address = given(&mut rig, 1, false);
    assert_eq!(run(&mut rig, Operation::Allocate(AllocRequest::Free { address })), None);
    let before = settle(&mut rig);
    let (pe, job) = (PeId(1), JobId(7));
    for step in 0..5 {
        rig.launch_on(pe, job);
        assert!(ask(&mut rig, job, pages(3)));
        let first = answered(&mut rig);
        assert!(ask(&mut rig, job, pages(2)));
        let second = answered(&mut rig);
        let next = match step {
            0 => None,
            1 => Some(AllocRequest::Free { address: first }),
            2 => Some(AllocRequest::Realloc { address: first, bytes: 9 * PAGE, lazy: false }),
            3 => Some(AllocRequest::Realloc { address: first, bytes: 5000 * PAGE, lazy: true }),
            _ => Some(pages(4)),
        };
        if step == 4 {
            // It waits for one that is under way.
            let address = given(&mut rig, 1, false);
            let free = Operation::Allocate(AllocRequest::Free { address });
            assert_eq!(run(&mut rig, free), None);
        }
        if let Some(request) = next {
            assert!(ask(&mut rig, job, request));
        }
        rig.end(job, &JobEnd::failed(Status::Hung, String::new()));
        let own = AllocRequest::Free { address: second };
        rig.submit(NO_ASID, Operation::Allocate(own));
        rig.doorbell();
        assert_eq!(settle(&mut rig), before, "step {step}");
        let refused =
            rig.completions().iter().filter(|it| it.status == Status::NotAllocated).count();
        assert_eq!(refused, 1, "it is not the driver's");
    }
}

/// What the background had to do is not to be done any more.
#[test]
fn a_function_that_has_failed_sleeps() {
    let mut rig = Rig::new();
    rig.function = Function::new(config()).with_window(&rig::window());
    rig.function.report(register::ERROR_CARD, 0, &mut rig.bus);
    assert!(rig.sleeps());
}

#[test]
fn the_window_begins_where_the_driver_says_while_nothing_is_allocated() {
    let mut rig = Rig::new();
    let bytes = rig.read64(register::WINDOW_BYTES);
    assert_eq!((bytes, rig.read64(register::WINDOW_BASE)), (64 << 20, BASE));
    rig.write64(register::WINDOW_BASE, 3 * bytes);
    assert_eq!(rig.read64(register::ERRORS), register::ERROR_REGISTER, "the rings are used");
    rig.write32(register::CONTROL, 0);
    rig.write64(register::ERRORS, register::ERROR_REGISTER);
    rig.write64(register::WINDOW_BASE, 3 * bytes);
    assert_eq!((rig.read64(register::ERRORS), rig.read64(register::WINDOW_BASE)), (0, 3 * bytes));
    rig.write64(register::WINDOW_BASE, 3 * bytes + 4096);
    assert_eq!(rig.read64(register::ERRORS), register::ERROR_REGISTER);
    rig.write32(register::CONTROL, register::CONTROL_ENABLE);
    let done = run(&mut rig, alloc(1, false)).unwrap();
    assert!((3 * bytes..4 * bytes).contains(&done.value));
    rig.write32(register::CONTROL, 0);
    rig.write64(register::ERRORS, register::ERROR_REGISTER);
    rig.write64(register::WINDOW_BASE, 0);
    assert_eq!(rig.read64(register::ERRORS), register::ERROR_REGISTER, "something is allocated");
}

/// A new driver with a card that has no window: each command is refused, and no register is there.
#[test]
fn a_card_without_a_window_refuses_its_commands() {
    let mut rig = Rig::new();
    rig.function = Function::new(config());
    rig.set_up_rings();
    rig.write32(register::CONTROL, register::CONTROL_ENABLE);
    assert_eq!(rig.read64(register::CAPABILITIES) & register::CAP_ALLOC, 0);
    for operation in [
        alloc(1, false),
        Operation::Allocate(AllocRequest::Realloc { address: BASE, bytes: 1, lazy: false }),
        Operation::Allocate(AllocRequest::Free { address: BASE }),
    ] {
        let done = run(&mut rig, operation).unwrap();
        assert_eq!(done.status, Status::Unsupported);
    }
    assert_eq!(rig.read64(register::WINDOW_BASE), u64::MAX);
    assert_eq!(rig.function.window_translate(0, Access::Read), None);
    assert_eq!(rig.function.window_counts(), None);
    rig.launch_on(PeId(0), job(0));
    assert!(!ask(&mut rig, job(0), AllocRequest::Free { address: BASE }));
}
