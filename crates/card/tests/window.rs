//! The card's own window through the function: the driver's commands, kernels' requests, invalidations.

mod rig;

use farside_card::interface::{AllocRequest, CompletionEntry, Operation, Status, register};
use farside_card::window::{AllocError, WindowFault};
use farside_card::{Action, Function, WindowAction, WindowWait};
use farside_types::{Access, Asid, PeId, Rights};
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
    let request = AllocRequest::Malloc { bytes: 1, memory: 0, rights: Rights::Read, lazy: false };
    let ask = |rig: &mut Rig, pe, request| {
        rig.function.allocate(&mut rig.card, &mut rig.bus, PeId(pe), request)
    };
    assert!(ask(&mut rig, 2, request));
    let answers: Vec<_> = rig
        .window_actions()
        .into_iter()
        .filter_map(|action| match action {
            WindowAction::Allocated { pe, result } => Some((pe, result)),
            WindowAction::Invalidate { .. } => None,
        })
        .collect();
    let [(PeId(2), Ok(address))] = answers[..] else { panic!("{answers:?}") };
    let page = (address - BASE) / PAGE;
    let read_only = Some(Err(WindowFault::ReadOnly));
    assert_eq!(rig.function.window_translate(page, Access::Write), read_only);
    // What a kernel has, the driver has not, before it is handed over; then it is the kernel's no more.
    let not_its = run(&mut rig, Operation::Allocate(AllocRequest::Free { address })).unwrap();
    assert_eq!(not_its.status, Status::NotAllocated);
    assert!(!rig.function.hand_over_allocation(PeId(1), address));
    assert!(rig.function.hand_over_allocation(PeId(2), address));
    assert!(!rig.function.hand_over_allocation(PeId(2), address));
    assert!(ask(&mut rig, 2, AllocRequest::Free { address }));
    let refused = WindowAction::Allocated { pe: PeId(2), result: Err(AllocError::NotAllocated) };
    assert!(rig.window_actions().contains(&refused));
    // The driver's free is under way: the kernel waits, and asks once.
    assert_eq!(run(&mut rig, Operation::Allocate(AllocRequest::Free { address })), None);
    assert!(ask(&mut rig, 2, request));
    assert!(!ask(&mut rig, 2, request) && !ask(&mut rig, 9, request));
    assert_eq!(waits(&mut rig).len(), 1);
    invalidated(&mut rig, WindowWait::Command);
    let given = |action: &WindowAction| {
        matches!(action, WindowAction::Allocated { pe: PeId(2), result: Ok(_) })
    };
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
fn answers(rig: &mut Rig) -> Vec<(u16, Result<u64, AllocError>)> {
    let answer = |action| match action {
        WindowAction::Allocated { pe, result } => Some((pe.0, result)),
        WindowAction::Invalidate { .. } => None,
    };
    rig.window_actions().into_iter().filter_map(answer).collect()
}

#[test]
fn a_kernel_that_asks_or_waits_where_nobody_serves_is_told_so() {
    let mut rig = Rig::new();
    let request = AllocRequest::Malloc { bytes: 1, memory: 0, rights: Rights::Read, lazy: false };
    let ask = |rig: &mut Rig, pe, request| {
        rig.function.allocate(&mut rig.card, &mut rig.bus, PeId(pe), request)
    };
    let stopped = |pe| (pe, Err(AllocError::Stopped));
    // One command is under way, one waits for it: the function fails.
    assert!(ask(&mut rig, 1, request));
    let [(1, Ok(address))] = answers(&mut rig)[..] else { panic!("a malloc waits for nothing") };
    assert!(ask(&mut rig, 1, AllocRequest::Free { address }) && ask(&mut rig, 2, request));
    assert_eq!(answers(&mut rig), []);
    rig.function.report(register::ERROR_CARD, 0, &mut rig.bus);
    assert_eq!(answers(&mut rig), [stopped(1), stopped(2)]);
    // It has failed.
    assert!(ask(&mut rig, 2, request) && !ask(&mut rig, 9, request));
    assert_eq!(answers(&mut rig), [stopped(2)]);
    invalidated(&mut rig, WindowWait::Command);
    assert_eq!(answers(&mut rig), []);
    assert!(rig.sleeps());
    // It is being reset; the answer is there when the reset has ended.
    rig.write32(register::CONTROL, register::CONTROL_RESET);
    assert_eq!(rig.actions(), [Action::Reset]);
    assert!(ask(&mut rig, 3, request));
    rig.function.reset_done(&mut rig.card);
    assert_eq!(answers(&mut rig), [stopped(3)]);
    // It serves again; a kernel that was not told of its page before a reset has none.
    assert!(ask(&mut rig, 3, request));
    rig.write32(register::CONTROL, register::CONTROL_RESET);
    assert_eq!(answers(&mut rig), [stopped(3)]);
    rig.function.reset_done(&mut rig.card);
    assert!(ask(&mut rig, 3, request));
    assert!(matches!(answers(&mut rig)[..], [(3, Ok(_))]));
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
    let request = AllocRequest::Free { address: BASE };
    assert!(!rig.function.allocate(&mut rig.card, &mut rig.bus, PeId(0), request));
}
