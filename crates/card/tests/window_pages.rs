//! Pages of the card's own window that BAR2 shows: who serves what kernels touch, and what the driver is told.

mod rig;

use farside_card::interface::{
    AllocRequest, CompletionEntry, FaultRecord, FaultWants, LOCATE_NOWHERE, MemoryKind, Operation,
    Status, register,
};
use farside_card::window::AllocatorConfig;
use farside_card::{
    Action, Function, Geometry, Location, Need, Raised, WindowAction, WindowConfig,
};
use farside_types::{Access, Asid, CancelReason, JobId, PageNo, PageRange, PeId, Rights};
use rig::{ASID, Rig, config};

const NO_ASID: Asid = Asid(0);
/// Frames that the driver may name; the window's follow.
const DRIVERS: u32 = 1000;
const MEMORY: u32 = 64;
const PAGE: u64 = 4096;
const PE: PeId = PeId(0);
const JOB: JobId = JobId(7);

fn shown() -> Rig {
    shown_with(Rig::new())
}

fn shown_with(rig: Rig) -> Rig {
    with_memories(rig, &[(MemoryKind::Plain, MEMORY)])
}

fn with_memories(mut rig: Rig, memories: &[(MemoryKind, u32)]) -> Rig {
    let frames = memories.iter().map(|&(_, frames)| frames);
    let allocator = AllocatorConfig {
        memories: frames.chain([1024]).collect(),
        tables: memories.len() as u8,
        ..rig::window().allocator().clone()
    };
    let kinds = memories.iter().map(|&(kind, _)| kind).collect();
    let window = WindowConfig::new(allocator, 4).unwrap().within(DRIVERS).of_kinds(kinds);
    rig.function = Function::new(config()).with_window(&window);
    rig.set_up_rings();
    rig.write32(register::CONTROL, register::CONTROL_ENABLE);
    rig.launch_on(PE, JOB);
    rig
}

fn run(rig: &mut Rig, operation: Operation) -> CompletionEntry {
    rig.submit(NO_ASID, operation);
    rig.doorbell();
    rig.completions().pop().expect("it waits for nothing")
}

fn malloc(pages: u64, rights: Rights, lazy: bool) -> AllocRequest {
    AllocRequest::Malloc { bytes: pages * PAGE, memory: 0, rights, lazy }
}

fn given(rig: &mut Rig, request: AllocRequest) -> u64 {
    let done = run(rig, Operation::Allocate(request));
    assert_eq!(done.status, Status::Ok);
    done.value
}

/// Where pages are: the first in BAR2, how many, and their rights; or why not.
fn located(
    rig: &mut Rig,
    address: u64,
    pages: u32,
    touch: bool,
) -> Result<(u64, u64, u64), Status> {
    let done = run(rig, Operation::Locate { address, pages, touch });
    let told = (done.value, done.pages, done.detail);
    if done.status == Status::Ok { Ok(told) } else { Err(done.status) }
}

fn touch(rig: &mut Rig, need: Need) {
    assert!(matches!(rig.card.raise(PE, JOB, ASID, need), Ok(Raised::Queued(_))));
    rig.publish();
}

fn page(address: u64) -> PageNo {
    PageNo(address / PAGE)
}

#[test]
fn the_driver_names_no_frame_of_the_window() {
    let mut rig = shown();
    assert_eq!(rig.read32(register::FRAMES), DRIVERS);
    assert_eq!(rig.read32(register::WINDOW_FIRST), DRIVERS);
    assert_eq!(rig.read32(register::WINDOW_MEMORIES), 1, "the tables' is none");
    assert_eq!(rig.read64(register::WINDOW_FRAMES), u64::from(MEMORY));
    let (bytes, rights, lazy) = (1, Rights::Read, true);
    let of_tables = AllocRequest::Malloc { bytes, memory: 1, rights, lazy };
    assert_eq!(run(&mut rig, Operation::Allocate(of_tables)).status, Status::BadOperand);
    // A map of what is behind its frames is foreign.
    let extent = farside_card::interface::Extent {
        page: 5,
        count: 1,
        dst: farside_card::interface::DmaAddr::Own(DRIVERS),
        ..Default::default()
    };
    let pages = farside_card::interface::ExtentArg::Inline(extent);
    rig.submit(ASID, Operation::Map(pages, Rights::Read));
    rig.doorbell();
    assert_eq!(rig.completions()[0].status, Status::ForeignFrame);
}

#[test]
fn what_a_kernel_touches_in_the_window_the_card_serves() {
    let mut rig = shown();
    let address = given(&mut rig, malloc(2, Rights::ReadWrite, true));
    touch(&mut rig, Need::Page(page(address), Access::Write));
    let answers: Vec<Action> = rig.actions();
    assert!(matches!(answers[..], [Action::Answer(_)]), "{answers:?}");
    assert!(rig.faults().is_empty(), "the driver is not asked");
    let found = rig.card.access(PE, ASID, page(address), Access::Write);
    assert_eq!(found.map(|at: Location| at.frame.0 >= DRIVERS), Some(true));
    // What is not allocated ends the access, and nobody is asked either.
    rig.card.launch(PeId(1), JobId(8)).unwrap();
    let need = Need::Page(page(address + 64 * PAGE), Access::Read);
    assert!(matches!(rig.card.raise(PeId(1), JobId(8), ASID, need), Ok(Raised::Queued(_))));
    rig.publish();
    let answers = rig.actions();
    let [Action::Answer(answer)] = &answers[..] else { panic!("{answers:?}") };
    assert!(format!("{answer:?}").contains(&format!("{:?}", CancelReason::Unallocated)));
    assert!(rig.faults().is_empty());
}

/// 16 processing elements, and a fault ring of 8 records.
fn many_elements() -> Rig {
    let geometry = Geometry { pes: 16, ..Geometry::default() };
    Rig::with_rings(geometry, [64, 64, 8, 64], 0)
}

/// Raises a fault of another job's, which nobody is told of yet.
fn raise(rig: &mut Rig, pe: u16, need: Need) {
    let job = JobId(100 + u64::from(pe));
    rig.card.launch(PeId(pe), job).unwrap();
    assert!(matches!(rig.card.raise(PeId(pe), job, ASID, need), Ok(Raised::Queued(_))));
}

/// The pages that the driver is told of.
fn told(rig: &mut Rig) -> Vec<PageNo> {
    let page = |record| match record {
        FaultRecord::Head(head) => match head.wants {
            FaultWants::Page(page, _) => page,
            wants => panic!("{wants:?}"),
        },
        record => panic!("{record:?}"),
    };
    rig.faults().into_iter().map(page).collect()
}

/// The window's faults are served wherever they stand: behind the driver's, and between them.
#[test]
fn behind_a_fault_that_is_the_drivers_the_card_serves_the_windows_too() {
    let mut rig = shown_with(many_elements());
    let address = given(&mut rig, malloc(4, Rights::ReadWrite, true));
    let needs = [(3, false), (0, true), (4, false), (1, true), (2, true)];
    for (pe, (number, is_own)) in (1..).zip(needs) {
        let page = if is_own { page(address).offset(number) } else { PageNo(number) };
        raise(&mut rig, pe, Need::Page(page, Access::Write));
    }
    rig.publish();
    assert_eq!(told(&mut rig), [PageNo(3), PageNo(4)]);
    let answers = rig.actions();
    assert_eq!(answers.iter().filter(|it| matches!(it, Action::Answer(_))).count(), 3);
}

/// The driver's wait for room in their ring; when there is some the window's behind them are served.
#[test]
fn behind_a_full_fault_ring_no_record_names_a_page_of_the_window() {
    let mut rig = shown_with(many_elements());
    let address = given(&mut rig, malloc(4, Rights::ReadWrite, true));
    for pe in 1..=9 {
        raise(&mut rig, pe, Need::Page(PageNo(pe.into()), Access::Write));
    }
    let group = [(PageRange::new(page(address), 2), Access::Write)];
    raise(&mut rig, 10, Need::Page(page(address), Access::Write));
    raise(&mut rig, 11, Need::Group(group.into()));
    rig.publish();
    assert!(told(&mut rig).into_iter().eq((1..=8).map(PageNo)));
    assert_eq!(rig.actions(), []);
    rig.publish();
    assert_eq!(told(&mut rig), [PageNo(9)]);
    assert_eq!(rig.actions().len(), 2);
    assert!(rig.sleeps());
}

#[test]
fn of_a_group_the_driver_hears_what_is_not_the_windows() {
    let mut rig = shown();
    let address = given(&mut rig, malloc(2, Rights::ReadWrite, true));
    let theirs = (PageRange::new(PageNo(3), 4), Access::Read);
    let own = (PageRange::new(page(address), 2), Access::Write);
    touch(&mut rig, Need::Group([own, theirs].into()));
    assert_eq!(rig.actions(), []);
    let faults = rig.faults();
    let FaultRecord::Head(head) = faults[0] else { panic!("{faults:?}") };
    assert_eq!(head.wants, FaultWants::Group { ranges: 1 });
    let FaultRecord::Ranges(_, ranges) = faults[1] else { panic!("{faults:?}") };
    assert_eq!(ranges, [Some(theirs), None, None]);
    assert!(rig.card.access(PE, ASID, page(address + PAGE), Access::Write).is_some());
}

#[test]
fn pages_are_located_as_they_lie_and_touched_if_asked_for() {
    let mut rig = shown();
    let address = given(&mut rig, malloc(5, Rights::ReadWrite, true));
    assert_eq!(located(&mut rig, address, 5, false), Ok((LOCATE_NOWHERE, 5, 0)));
    touch(&mut rig, Need::Page(page(address + 2 * PAGE), Access::Write));
    assert_eq!(located(&mut rig, address, 5, false), Ok((LOCATE_NOWHERE, 2, 0)));
    let (first, count, rights) = located(&mut rig, address + 2 * PAGE, 3, false).unwrap();
    assert_eq!((count, rights), (1, 3));
    assert!((u64::from(DRIVERS)..u64::from(DRIVERS + MEMORY)).contains(&first));
    let mut at = address;
    while at < address + 5 * PAGE {
        let pages = ((address + 5 * PAGE - at) / PAGE) as u32;
        let (first, count, _) = located(&mut rig, at, pages, true).unwrap();
        assert_ne!(first, LOCATE_NOWHERE);
        at += count * PAGE;
    }
    let read_only = given(&mut rig, malloc(1, Rights::Read, false));
    assert_eq!(located(&mut rig, read_only, 1, true).unwrap().2, 1);
    let wrong = [
        (address + 1, 1, Status::NotAllocated),
        (address + 63 * PAGE, 1, Status::NotAllocated),
        (0, 1, Status::NotAllocated),
        (u64::MAX - 4095, 4096, Status::NotAllocated),
    ];
    for (address, pages, status) in wrong {
        assert_eq!(located(&mut rig, address, pages, true), Err(status), "{address:#x}");
    }
    // More than there is memory for.
    let large = given(&mut rig, malloc(u64::from(MEMORY) + 1, Rights::Read, true));
    let mut at = large;
    let status = loop {
        match located(&mut rig, at, 1, true) {
            Ok(_) => at += PAGE,
            Err(status) => break status,
        }
    };
    assert_eq!(status, Status::NoFrames);
}

#[test]
fn what_is_a_kernels_is_not_located_before_it_is_handed_over() {
    let mut rig = shown();
    let request = malloc(1, Rights::ReadWrite, true);
    assert!(rig.function.allocate(&mut rig.card, &mut rig.bus, JOB, request));
    let answers = rig.window_actions();
    let [.., WindowAction::Allocated { result: Ok(address), .. }] = answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!(located(&mut rig, address, 1, false), Err(Status::NotAllocated));
    assert!(rig.function.hand_over_allocation(JOB, address));
    assert_eq!(located(&mut rig, address, 1, false), Ok((LOCATE_NOWHERE, 1, 0)));
}

fn took_over(rig: &mut Rig, address: u64, bytes: u64) -> Status {
    run(rig, Operation::TakeOver { address, bytes }).status
}

/// Where it begins, with what it has, and once.
#[test]
fn what_a_kernel_has_handed_over_is_taken_over_as_it_is_and_once() {
    let mut rig = shown();
    let allocate = |rig: &mut Rig, request| {
        assert!(rig.function.allocate(&mut rig.card, &mut rig.bus, JOB, request));
        let answers = rig.window_actions();
        let [.., WindowAction::Allocated { result: Ok(address), .. }] = answers[..] else {
            panic!("{answers:?}")
        };
        address
    };
    let drivers = given(&mut rig, malloc(3, Rights::ReadWrite, true));
    let address = allocate(&mut rig, malloc(3, Rights::ReadWrite, true));
    let none = Status::NotAllocated;
    assert_eq!(took_over(&mut rig, address, 1), none, "it is the kernel's");
    assert!(rig.function.hand_over_allocation(JOB, address));
    for (address, bytes) in [
        (address + PAGE, PAGE),
        (address, 3 * PAGE + 1),
        (address - PAGE, PAGE),
        (drivers, 1),
        (0, 1),
        (u64::MAX, u64::MAX),
    ] {
        assert_eq!(took_over(&mut rig, address, bytes), none, "{bytes} at {address:#x}");
    }
    assert_eq!(took_over(&mut rig, address, 2 * PAGE), Status::Ok);
    assert_eq!(took_over(&mut rig, address, 2 * PAGE), none, "it was taken over");
    // What the driver has freed before it took it over is not another's that comes in its place.
    let address = allocate(&mut rig, malloc(1, Rights::ReadWrite, true));
    assert!(rig.function.hand_over_allocation(JOB, address));
    assert_eq!(
        run(&mut rig, Operation::Allocate(AllocRequest::Free { address })).status,
        Status::Ok
    );
    assert_eq!(took_over(&mut rig, address, 1), none);
    let bytes = 0;
    assert_eq!(took_over(&mut rig, address, bytes), Status::BadOperand);
}

#[test]
fn without_pages_in_bar2_nothing_is_located() {
    let mut rig = Rig::new();
    assert_eq!(rig.read32(register::WINDOW_FIRST), 0);
    assert_eq!(located(&mut rig, 1 << 40, 1, false), Err(Status::Unsupported));
}

/// A kernel has a page in its hands while the driver frees it: the free completes when it has let go.
#[test]
fn a_free_waits_for_the_kernel_that_has_a_page() {
    let mut rig = shown();
    let address = given(&mut rig, malloc(2, Rights::ReadWrite, true));
    touch(&mut rig, Need::Page(page(address), Access::Write));
    // What it has faulted for is in flight since the fault was answered.
    let answers = rig.actions();
    assert!(matches!(answers[..], [Action::Answer(_)]), "{answers:?}");
    assert!(rig.card.in_flight().holds(PE), "the kernel has the page");
    rig.submit(NO_ASID, Operation::Allocate(AllocRequest::Free { address }));
    rig.doorbell();
    assert!(rig.completions().is_empty(), "the kernel still has the page");
    assert_eq!(located(&mut rig, address, 1, false), Err(Status::NotAllocated));
    let aborted = rig.card.abort(JOB).unwrap();
    rig.function.drained(&mut rig.card, &mut rig.bus, &aborted.drains);
    assert_eq!(rig.completions().pop().map(|done| done.status), Some(Status::Ok));
    assert_eq!(rig.card.access(PE, ASID, page(address), Access::Read), None);
}

/// Frames of three memories that follow one another in BAR2.
const THREE: [(MemoryKind, u32); 3] =
    [(MemoryKind::Ddr, 16), (MemoryKind::Hbm, 8), (MemoryKind::BlockRam, 4)];

fn malloc_in(memory: u8, pages: u64, lazy: bool) -> AllocRequest {
    AllocRequest::Malloc { bytes: pages * PAGE, memory, rights: Rights::ReadWrite, lazy }
}

/// Free frames of each of the three, as the registers say.
fn free_frames(rig: &Rig) -> [u32; 3] {
    let free = [0, 1, 2].map(|it| rig.read32(register::memory(it) + register::MEMORY_FRAMES_FREE));
    let all: u32 = free.iter().sum();
    assert_eq!(rig.read64(register::WINDOW_FRAMES_FREE), u64::from(all));
    free
}

/// Each allocation has frames of the memory that was asked for, at once or when it is touched, also what it grows by, and
/// gives them back there; and one that is full refuses, whatever the others have.
#[test]
fn each_memory_gives_its_own_frames_and_gets_them_back() {
    let mut rig = with_memories(Rig::new(), &THREE);
    assert_eq!(rig.read32(register::WINDOW_MEMORIES), 3);
    for (memory, (kind, frames)) in (0..).zip(THREE) {
        let at = register::memory(memory);
        assert_eq!(rig.read32(at + register::MEMORY_FRAMES), frames);
        assert_eq!(rig.read32(at + register::MEMORY_KIND), kind.code());
    }
    let none = register::memory(3) + register::MEMORY_FRAMES;
    assert_eq!(rig.read32(none), u32::MAX, "the tables' has no registers");
    assert_eq!(free_frames(&rig), [16, 8, 4]);
    let of_tables = run(&mut rig, Operation::Allocate(malloc_in(3, 1, false)));
    assert_eq!((of_tables.status, of_tables.detail), (Status::BadOperand, 3));
    let mut first = u64::from(DRIVERS);
    let mut all = Vec::new();
    for (memory, (_, frames)) in (0..).zip(THREE) {
        let before = free_frames(&rig);
        let mut left = before;
        let address = given(&mut rig, malloc_in(memory, 2, true));
        assert_eq!(free_frames(&rig), before, "nothing is touched yet");
        let realloc = AllocRequest::Realloc { address, bytes: 3 * PAGE, lazy: false };
        let address = given(&mut rig, realloc);
        left[usize::from(memory)] -= 1;
        assert_eq!(free_frames(&rig), left, "what it grows by is of memory {memory}");
        let own = first..first + u64::from(frames);
        for page in 0..3 {
            let (place, ..) = located(&mut rig, address + page * PAGE, 1, true).unwrap();
            assert!(own.contains(&place), "page {page} of memory {memory} is {place:#x}");
        }
        left[usize::from(memory)] -= 2;
        assert_eq!(free_frames(&rig), left, "so is what is touched");
        let rest = u64::from(left[usize::from(memory)]);
        let full = given(&mut rig, malloc_in(memory, rest, false));
        let refused = run(&mut rig, Operation::Allocate(malloc_in(memory, 1, false)));
        assert_eq!(
            refused.status,
            Status::NoFrames,
            "memory {memory} is full, and others have room"
        );
        let lazy = given(&mut rig, malloc_in(memory, 1, true));
        assert_eq!(located(&mut rig, lazy, 1, true), Err(Status::NoFrames));
        all.extend([address, full, lazy]);
        first += u64::from(frames);
    }
    assert_eq!(free_frames(&rig), [0; 3]);
    for address in all {
        run(&mut rig, Operation::Allocate(AllocRequest::Free { address }));
    }
    assert_eq!(free_frames(&rig), [16, 8, 4]);
}
