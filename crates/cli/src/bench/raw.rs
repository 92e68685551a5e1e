//! The limit for faults: a bare userfaultfd handler on the same kind of memory, with no table, no
//! driver and no state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use farside::LiveError;
use farside_linux::card_memory::{CardMemory, copy_pages};
use farside_linux::uffd::Fault;
use farside_live::arena::Arena;
use farside_types::{FrameNo, PAGE_SIZE, PageRange, Rights};
use rustix::event::{PollFd, PollFlags, Timespec};

/// What the handler does about a fault.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resolve {
    /// Copy the bytes in from a card's memory, then map the page.
    Copy,
    /// Copy a page of zeros into the hole, in one call.
    Fill,
}

/// An arena whose faults a bare handler resolves, `around` pages at a time.
pub(crate) struct Raw {
    pub(crate) arena: Arc<Arena>,
    card: Arc<CardMemory>,
    stop: Arc<AtomicBool>,
    handler: Option<JoinHandle<()>>,
}

impl Raw {
    /// Starts the handler on `cpu`.
    pub(crate) fn start(
        pages: u32,
        around: u64,
        resolve: Resolve,
        cpu: usize,
    ) -> Result<Raw, LiveError> {
        let bytes = u64::from(pages.next_multiple_of(512)) * PAGE_SIZE as u64;
        let arena = Arc::new(Arena::new(bytes)?);
        let card = Arc::new(CardMemory::new(pages)?);
        card.warm(FrameNo(0), pages)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (Arc::clone(&arena), Arc::clone(&stop));
        let memory = Arc::clone(&card);
        let handler = std::thread::spawn(move || {
            let _pinned = super::pin(cpu);
            while !stopped.load(Ordering::Relaxed) {
                handle(&shared, &memory, around, resolve);
            }
        });
        Ok(Raw { arena, card, stop, handler: Some(handler) })
    }

    /// The way out, bare: unmap, copy to the card. The caller's processor writes the card's memory,
    /// as a migration's does, so that both sides read it back equally cold.
    pub(crate) fn send_out(&self) -> Result<(), LiveError> {
        let pages = PageRange::new(self.arena.base_page(), self.card.frames().into());
        self.arena.unmap(pages)?;
        let from = self.arena.alias_ptr(pages)?;
        // SAFETY: both cover all pages, and the program can no longer reach them.
        unsafe { copy_pages(from.as_ptr(), self.card.base(), pages.count as usize) };
        Ok(())
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(handler) = self.handler.take() {
            let _ = handler.join();
        }
    }
}

fn handle(arena: &Arena, card: &CardMemory, around: u64, resolve: Resolve) {
    let mut polled = [PollFd::new(arena.uffd(), PollFlags::IN)];
    let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let _ = rustix::event::poll(&mut polled, Some(&timeout));
    let mut faults = [Fault::EMPTY; 16];
    let count = arena.uffd().read_events(&mut faults).unwrap_or(0);
    for fault in &faults[..count] {
        let start = fault.addr.page().align_down(around);
        let range = PageRange::new(start, around);
        if resolve == Resolve::Fill {
            let zeros = vec![0; PAGE_SIZE * around as usize];
            let _ = arena.uffd().copy(range, &zeros, false);
            continue;
        }
        let first = arena.frame(start).unwrap_or_default();
        let (Ok(from), Ok(to)) = (card.run_ptr(first, around as u32), arena.alias_ptr(range))
        else {
            continue;
        };
        // SAFETY: both cover `around` pages; the pages are not mapped, so nobody writes them.
        unsafe { copy_pages(from.as_ptr(), to.as_ptr(), around as usize) };
        let _ = arena.map(range, Rights::ReadWrite);
    }
}
