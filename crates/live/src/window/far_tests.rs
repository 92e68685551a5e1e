//! What a window believes of its card: answers that are right, and all that a hostile card may say instead.

use std::cell::{Cell, RefCell};

use farside_card::MappedRun;
use farside_card::interface::{
    AllocRequest, CompletionEntry, LOCATE_NOWHERE, Operation, Status, rights_code,
};
use farside_linux::card_memory::CardMemory;
use farside_softcard::{OwnMemory, WindowError, WindowMemory};
use farside_types::{Access, CancelReason, CardId, PAGE_SIZE, PageRange, Rights, VirtAddr};

use super::far::{FarCard, FarWindow};
use super::mappings;
use super::sizes::WindowSizes;

const CARD: CardId = CardId(3);
const FIRST: u32 = 16;
const FRAMES: u32 = 64;
const BYTES: u64 = 1 << 32;
const PAGE: u64 = PAGE_SIZE as u64;

/// A card that says what a test wants.
struct Liar<'a> {
    says: &'a dyn Fn(&Operation) -> CompletionEntry,
    given_up: RefCell<Option<String>>,
    asked: Cell<u32>,
    lets_go: bool,
}

impl FarCard for Liar<'_> {
    fn ask(&self, at: VirtAddr, operation: Operation) -> Result<CompletionEntry, WindowError> {
        self.asked.set(self.asked.get() + 1);
        let done = (self.says)(&operation);
        if done.status == Status::Hung {
            return Err(WindowError::Silent { card: CARD, addr: at });
        }
        Ok(done)
    }

    fn memories(&self) -> Result<Vec<OwnMemory>, WindowError> {
        Ok(Vec::new())
    }

    fn take_away(&self, _pages: PageRange) -> bool {
        self.lets_go
    }

    fn give_up(&self, why: &str) {
        *self.given_up.borrow_mut() = Some(why.to_owned());
    }
}

fn liar(says: &dyn Fn(&Operation) -> CompletionEntry) -> Liar<'_> {
    Liar { says, given_up: RefCell::default(), asked: Cell::default(), lets_go: true }
}

fn window_of(frames: &[u32]) -> FarWindow {
    let memories: Vec<_> = frames.iter().map(|&frames| WindowMemory::plain(frames)).collect();
    FarWindow::new(CARD, WindowSizes::new(BYTES, FIRST, &memories).unwrap()).unwrap()
}

fn window() -> FarWindow {
    window_of(&[FRAMES])
}

fn malloc(pages: u64) -> AllocRequest {
    let (bytes, rights) = (pages * PAGE, Rights::ReadWrite);
    AllocRequest::Malloc { bytes, memory: 0, rights, lazy: true }
}

fn ok(value: u64, pages: u64, detail: u64) -> CompletionEntry {
    CompletionEntry { value, pages, detail, ..CompletionEntry::plain(0, Status::Ok) }
}

const WRITE: u64 = rights_code(Rights::ReadWrite);

/// A card that gives the window's begin, and has the frames in their order. Its kernel has handed over two pages there.
fn honest(window: &FarWindow) -> impl Fn(&Operation) -> CompletionEntry {
    let base = window.base();
    let is_made = Cell::new(true);
    move |operation| match *operation {
        Operation::TakeOver { address, bytes } => {
            if address == base && bytes <= 2 * PAGE && is_made.replace(false) {
                return ok(address, 0, 0);
            }
            CompletionEntry::plain(0, Status::NotAllocated)
        }
        Operation::Locate { address, pages, .. } => {
            ok(u64::from(FIRST) + (address - base) / PAGE, pages.into(), WRITE)
        }
        Operation::Allocate(AllocRequest::Malloc { .. }) => ok(base, 0, 0),
        _ => ok(0, 0, 0),
    }
}

/// That the card was given up for what it says of an address.
#[track_caller]
fn assert_broken<T: std::fmt::Debug>(
    window: &FarWindow,
    liar: &Liar<'_>,
    outcome: Result<T, WindowError>,
) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, WindowError::Broken { card: CARD, .. }), "{error}");
    assert!(error.to_string().contains("card 3"), "{error}");
    assert!(liar.given_up.borrow().is_some() && window.is_gone());
    // Nothing is asked any more.
    let asked = liar.asked.get();
    let gone = window.allocate(malloc(1), liar).unwrap_err();
    assert!(matches!(gone, WindowError::Gone { .. }), "{gone}");
    assert_eq!(liar.asked.get(), asked);
}

#[test]
fn an_honest_card_is_believed_and_its_pages_are_mapped_and_translated() {
    let window = window();
    let says = honest(&window);
    let card = liar(&says);
    let memory = CardMemory::new(FIRST + FRAMES).unwrap();
    let addr = VirtAddr(window.allocate(malloc(4), &card).unwrap());
    let range = PageRange::new(addr.page(), 4);
    let unseen = window.translate(range, Access::Read, |_, _| panic!("nobody was shown it"));
    assert_eq!(unseen, Err(CancelReason::Unallocated));
    window.show(addr, 4 * PAGE, Access::Read, &memory, &card).unwrap();
    // SAFETY: just mapped, and nobody else writes to it.
    unsafe { (addr.0 as *mut u8).add(PAGE_SIZE).write(7) };
    let frame = memory.run_ptr(farside_types::FrameNo(FIRST + 1), 1).unwrap();
    // SAFETY: a frame of the memory.
    assert_eq!(unsafe { frame.as_ptr().read() }, 7);
    let part = PageRange::new(addr.page().offset(1), 2);
    let mut told = Vec::new();
    window.translate(part, Access::Write, |runs, _| told.extend_from_slice(runs)).unwrap();
    assert_eq!((told[0].page, told[0].count, told[0].location.frame.0), (part.start, 2, FIRST + 1));
    let beyond = PageRange::new(addr.page().offset(3), 2);
    let none = window.translate(beyond, Access::Read, |_, _| panic!("one page is nobody's"));
    assert_eq!(none, Err(CancelReason::Unallocated));
    assert_eq!(window.allocate(AllocRequest::Free { address: addr.0 }, &card), Ok(0));
    let freed = window.translate(range, Access::Read, |_, _| panic!("it is freed"));
    assert_eq!(freed, Err(CancelReason::Unallocated));
    assert!(card.given_up.borrow().is_none());
}

#[test]
fn an_address_that_is_not_in_the_window_is_not_believed() {
    for wrong in [
        |base: u64| base - PAGE,
        |base: u64| base + BYTES,
        |base: u64| base + BYTES - PAGE,
        |base: u64| base + 8,
        |_: u64| 0,
        |_: u64| u64::MAX - 4095,
    ] {
        let window = window();
        let says = |_: &Operation| ok(wrong(window.base()), 0, 0);
        let card = liar(&says);
        assert_broken(&window, &card, window.allocate(malloc(2), &card));
    }
}

#[test]
fn two_allocations_never_meet() {
    for offset in [0, PAGE, 2 * PAGE] {
        let window = window();
        let turn = Cell::new(0);
        let base = window.base();
        let says = |_: &Operation| {
            turn.set(turn.get() + 1);
            ok(base + 4 * PAGE - if turn.get() == 1 { 2 * PAGE } else { offset }, 0, 0)
        };
        let card = liar(&says);
        window.allocate(malloc(3), &card).unwrap();
        assert_broken(&window, &card, window.allocate(malloc(1), &card));
    }
}

#[test]
fn frames_that_are_not_the_windows_are_not_believed() {
    let last = u64::from(FIRST + FRAMES);
    let lies = [
        ok(0, 4, WRITE),
        ok(u64::from(FIRST) - 1, 4, WRITE),
        ok(last - 3, 4, WRITE),
        ok(last, 1, WRITE),
        ok(u64::MAX - 1, 4, WRITE),
        ok(1 << 32 | u64::from(FIRST), 1, WRITE),
        // Sizes that do not fit, and rights that are none.
        ok(FIRST.into(), 0, WRITE),
        ok(FIRST.into(), 5, WRITE),
        ok(FIRST.into(), u64::MAX, WRITE),
        ok(FIRST.into(), 4, 0),
        ok(FIRST.into(), 4, 2),
        ok(LOCATE_NOWHERE, 4, WRITE),
        CompletionEntry::plain(0, Status::Unsupported),
        CompletionEntry::plain(0, Status::BadOperand),
    ];
    for lie in lies {
        let window = window();
        let right = honest(&window);
        let says = |operation: &Operation| match operation {
            Operation::Locate { .. } => lie,
            other => right(other),
        };
        let card = liar(&says);
        let memory = CardMemory::new(FIRST + FRAMES).unwrap();
        let addr = VirtAddr(window.allocate(malloc(4), &card).unwrap());
        assert_broken(&window, &card, window.show(addr, 4 * PAGE, Access::Read, &memory, &card));
    }
}

/// Frames of another memory than was asked for, and other rights, are a lie; a memory that the card has not, is asked of nobody.
#[test]
fn frames_and_rights_are_those_that_were_asked_for() {
    let read = rights_code(Rights::Read);
    let asked_for =
        |memory, rights| AllocRequest::Malloc { bytes: PAGE, memory, rights, lazy: true };
    let (first, second) = (u64::from(FIRST), u64::from(FIRST) + 48);
    for (memory, rights, told, code, is_right) in [
        (0, Rights::ReadWrite, first, WRITE, true),
        (0, Rights::ReadWrite, second, WRITE, false),
        (1, Rights::ReadWrite, second, WRITE, true),
        (1, Rights::ReadWrite, second - 1, WRITE, false),
        (1, Rights::Read, second, read, true),
        (1, Rights::Read, second, WRITE, false),
        (1, Rights::ReadWrite, second, read, false),
    ] {
        let window = window_of(&[48, 16]);
        let right = honest(&window);
        let says = |operation: &Operation| match operation {
            Operation::Locate { pages, .. } => ok(told, (*pages).into(), code),
            other => right(other),
        };
        let card = liar(&says);
        let memory_of_card = CardMemory::new(FIRST + FRAMES).unwrap();
        let addr = VirtAddr(window.allocate(asked_for(memory, rights), &card).unwrap());
        let asked = card.asked.get();
        let none = window.allocate(asked_for(2, rights), &card).unwrap_err();
        assert!(none.to_string().contains("no memory with this number"), "{none}");
        assert_eq!(card.asked.get(), asked);
        let shown = window.show(addr, PAGE, Access::Read, &memory_of_card, &card);
        if !is_right {
            assert_broken(&window, &card, shown);
            continue;
        }
        shown.unwrap();
        let writable = window.show(addr, PAGE, Access::Write, &memory_of_card, &card);
        let page = PageRange::page(addr.page());
        let written = window.translate(page, Access::Write, |_, _| {});
        let refused = WindowError::ReadOnly { card: CARD, addr };
        match rights {
            Rights::ReadWrite => assert_eq!((writable, written), (Ok(()), Ok(()))),
            Rights::Read => {
                assert_eq!((writable, written), (Err(refused), Err(CancelReason::ReadOnly)));
            }
        }
    }
}

#[test]
fn two_pages_never_have_one_frame() {
    // Within one allocation, and of two.
    for within in [true, false] {
        let window = window();
        let base = window.base();
        let turn = Cell::new(0);
        let says = |operation: &Operation| match operation {
            Operation::Locate { .. } => ok(u64::from(FIRST) + 2, 1, WRITE),
            Operation::Allocate(_) => {
                turn.set(turn.get() + 1);
                ok(base + turn.get() * 16 * PAGE, 0, 0)
            }
            _ => ok(0, 0, 0),
        };
        let card = liar(&says);
        let memory = CardMemory::new(FIRST + FRAMES).unwrap();
        let pages = if within { 2 } else { 1 };
        let first = VirtAddr(window.allocate(malloc(pages), &card).unwrap());
        let shown = window.show(first, pages * PAGE, Access::Read, &memory, &card);
        if within {
            assert_broken(&window, &card, shown);
            continue;
        }
        shown.unwrap();
        let second = VirtAddr(window.allocate(malloc(1), &card).unwrap());
        assert_broken(&window, &card, window.show(second, PAGE, Access::Read, &memory, &card));
    }
}

#[test]
fn a_free_that_is_not_let_go_or_not_answered_is_an_error_and_its_pages_are_nobodys() {
    for (lets_go, answers) in [(false, true), (true, false)] {
        let window = window();
        let right = honest(&window);
        let says = |operation: &Operation| match operation {
            Operation::Allocate(AllocRequest::Free { .. }) if !answers => {
                CompletionEntry::plain(0, Status::Hung)
            }
            other => right(other),
        };
        let card = Liar { lets_go, ..liar(&says) };
        let memory = CardMemory::new(FIRST + FRAMES).unwrap();
        let addr = VirtAddr(window.allocate(malloc(1), &card).unwrap());
        window.show(addr, PAGE, Access::Read, &memory, &card).unwrap();
        let free = AllocRequest::Free { address: addr.0 };
        let held = window.allocate(free, &card).unwrap_err();
        assert!(matches!(held, WindowError::OutOfUse { .. }), "{held}");
        assert!(!window.is_gone());
        let page = PageRange::page(addr.page());
        let none = window.translate(page, Access::Read, |_, _| panic!("it is being freed"));
        assert_eq!(none, Err(CancelReason::Unallocated));
        // It is not freed twice; when the card says so at last, its place is free again.
        let twice = window.allocate(free, &card).unwrap_err();
        assert!(matches!(twice, WindowError::Refused { .. }), "{twice}");
        if lets_go {
            // The card has the free, and does nothing else before it can.
            let asked = card.asked.get();
            let refused = window.allocate(malloc(1), &card).unwrap_err();
            assert_eq!(refused, WindowError::Freeing { card: CARD, addr });
            assert_eq!((card.asked.get(), window.is_gone()), (asked, false));
        }
        window.free_answered(addr, true);
        assert_eq!(window.allocate(malloc(1), &card), Ok(addr.0));
    }
}

/// A card whose pages lie apart, each in a frame of its own, or in one of few.
fn scattered(window: &FarWindow, frames: u64) -> impl Fn(&Operation) -> CompletionEntry {
    let (base, next) = (window.base(), Cell::new(0));
    move |operation| match *operation {
        Operation::Locate { address, .. } => {
            ok(u64::from(FIRST) + (address - base) / PAGE * 2 % frames, 1, WRITE)
        }
        Operation::Allocate(AllocRequest::Malloc { bytes, .. }) => {
            ok(base + next.replace(next.get() + bytes), 0, 0)
        }
        _ => ok(0, 0, 0),
    }
}

/// What cannot be mapped is no card's to reach, and no more is asked than can be mapped.
#[test]
fn what_lies_in_too_many_pieces_is_not_shown() {
    let most = mappings::most() as u64;
    let frames = (8 * most as u32).next_power_of_two();
    let window = window_of(&[frames]);
    let says = scattered(&window, frames.into());
    let card = liar(&says);
    let memory = CardMemory::new(FIRST + frames).unwrap();
    let (half, all) = (most / 2 + 500, 2 * most);
    let [first, second, third] =
        [half, half, all].map(|pages| VirtAddr(window.allocate(malloc(pages), &card).unwrap()));
    window.show(first, half * PAGE, Access::Read, &memory, &card).unwrap();
    for (addr, pages) in [(second, half), (third, all)] {
        let before = card.asked.get();
        let refused = window.show(addr, pages * PAGE, Access::Read, &memory, &card).unwrap_err();
        assert!(matches!(refused, WindowError::NotShown { .. }), "{refused}");
        let asked = u64::from(card.asked.get() - before);
        assert!(asked <= most + 1, "{asked} questions");
        let range = PageRange::new(addr.page(), pages);
        let unseen = window.translate(range, Access::Read, |_, _| panic!("nobody was shown it"));
        assert_eq!(unseen, Err(CancelReason::Unallocated));
    }
    // With the first gone there is room for the second, where it was found before.
    window.allocate(AllocRequest::Free { address: first.0 }, &card).unwrap();
    window.free_answered(first, true);
    window.show(second, half * PAGE, Access::Read, &memory, &card).unwrap();
    assert!(!window.is_gone());
}

#[test]
fn more_pages_with_memory_than_there_are_frames_are_a_lie() {
    let window = window();
    let says = scattered(&window, FRAMES.into());
    let card = liar(&says);
    let memory = CardMemory::new(FIRST + FRAMES).unwrap();
    let addr = VirtAddr(window.allocate(malloc(1 << 20), &card).unwrap());
    assert_broken(&window, &card, window.show(addr, PAGE << 20, Access::Read, &memory, &card));
    assert!(card.asked.get() < 100, "{} questions", card.asked.get());
}

/// A card is lost while its memory is copied: what was copied may be another life's.
#[test]
fn a_copy_during_which_the_card_is_lost_is_none() {
    let window = window();
    let says = honest(&window);
    let card = liar(&says);
    let addr = VirtAddr(window.allocate(malloc(2), &card).unwrap());
    let mut copied = 0;
    window
        .with_runs(addr, 2 * PAGE, Access::Read, &card, |run: MappedRun| copied += run.count)
        .unwrap();
    assert_eq!(copied, 2);
    let gone =
        window.with_runs(addr, 2 * PAGE, Access::Read, &card, |_| window.lose()).unwrap_err();
    assert!(matches!(gone, WindowError::Gone { .. }), "{gone}");
}

#[test]
fn what_a_kernel_has_not_handed_over_is_not_taken_over() {
    let window = window();
    let right = honest(&window);
    let says = |operation: &Operation| match operation {
        Operation::TakeOver { .. } => CompletionEntry::plain(0, Status::NotAllocated),
        other => right(other),
    };
    let card = liar(&says);
    let addr = VirtAddr(window.base());
    for (addr, bytes) in
        [(addr, PAGE), (VirtAddr(addr.0 + 1), 1), (addr, BYTES + 1), (VirtAddr(8), 8)]
    {
        let refused = window.take_over(addr, bytes, &card).unwrap_err();
        assert!(matches!(refused, WindowError::NotMade { .. }), "{refused}");
    }
    let card = liar(&right);
    let inside = window.take_over(VirtAddr(addr.0 + PAGE), PAGE, &card).unwrap_err();
    assert!(matches!(inside, WindowError::NotMade { .. }), "{inside}");
    window.take_over(addr, PAGE, &card).unwrap();
    let twice = window.take_over(addr, PAGE, &card).unwrap_err();
    assert!(matches!(twice, WindowError::NotMade { .. }), "{twice}");
    // It was the program's word, not the card's.
    assert!(!window.is_gone());
    assert_eq!(window.allocate(AllocRequest::Free { address: addr.0 }, &card), Ok(0));
}

/// The program guesses where an allocation is going to be, before it has the answer: the card is not to blame.
#[test]
fn what_the_program_guesses_of_its_own_allocations_is_refused_and_breaks_nothing() {
    let window = window();
    let right = honest(&window);
    let guesses = Cell::new(None);
    let says = |operation: &Operation| {
        if let Operation::Allocate(AllocRequest::Malloc { .. }) = operation {
            // Its answer is under way.
            let none = |_: &Operation| CompletionEntry::plain(0, Status::NotAllocated);
            let guessed = window.take_over(VirtAddr(window.base()), PAGE, &liar(&none));
            guesses.set(Some(guessed.unwrap_err()));
        }
        right(operation)
    };
    let card = liar(&says);
    window.allocate(malloc(1), &card).unwrap();
    let refused = guesses.take().unwrap();
    assert!(matches!(refused, WindowError::NotMade { .. }), "{refused}");
    assert!(!window.is_gone());
}

/// Room for a copy is made before it is seen that there is nothing.
#[test]
fn more_than_the_windows_memory_is_not_taken_over_whatever_the_card_says() {
    let window = window();
    let says = |_: &Operation| ok(0, 0, 0);
    let card = liar(&says);
    let (addr, all) = (VirtAddr(window.base()), u64::from(FRAMES) * PAGE);
    let refused = window.take_over(addr, all + 1, &card).unwrap_err().to_string();
    assert!(refused.contains(&(all + 1).to_string()), "{refused}");
    assert!(refused.contains(&all.to_string()) && card.asked.get() == 0, "{refused}");
    window.take_over(addr, all, &card).unwrap();
}

#[test]
fn a_card_that_says_twice_that_a_kernel_has_handed_over_is_not_believed() {
    for again in [0, PAGE] {
        let window = window();
        let says = |_: &Operation| ok(0, 0, 0);
        let card = liar(&says);
        let addr = VirtAddr(window.base());
        window.take_over(addr, 2 * PAGE, &card).unwrap();
        assert_broken(&window, &card, window.take_over(VirtAddr(addr.0 + again), PAGE, &card));
    }
}
