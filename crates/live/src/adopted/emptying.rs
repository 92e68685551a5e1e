//! Whether the kernel may still be about to take pages that the program has emptied.
//!
//! `MADV_DONTNEED` and `MADV_FREE` send the same event, and then do what they do: the first takes the pages, the second
//! leaves them until memory is short, and lets the program write them again without a fault. So what a page holds
//! that is there after the event is known when whoever sent it is through: until then it may be about to go. The kernel counts those
//! who have not gone on from their event, and refuses every operation meanwhile; who has is looked for among the
//! threads ([`Elsewhere`]).

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use farside_linux::elsewhere::Elsewhere;
use farside_linux::lock::lock;

/// The calls that send the event.
const CALLS: &[libc::c_long] = &[libc::SYS_madvise, libc::SYS_process_madvise];

/// Processor time after which a thread is through with the call, and what is added for each page of it (which takes 0.1 to 0.2 µs).
const ENOUGH: Duration = Duration::from_millis(10);
const ENOUGH_PER_PAGE: Duration = Duration::from_nanos(500);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Emptying {
    /// Events that were heard: each page knows the number of its last one.
    heard: AtomicU32,
    /// Most pages of one.
    most_pages: AtomicU64,
    /// All up to this one are over.
    over: AtomicU32,
    look: Mutex<Option<Look>>,
}

/// A look at the threads, for all events up to one.
#[derive(Debug)]
struct Look {
    up_to: u32,
    threads: Elsewhere,
}

impl Emptying {
    /// One was heard; gives its number. Allocates nothing.
    pub(super) fn hear(&self, pages: u64) -> u32 {
        self.most_pages.fetch_max(pages, Ordering::Relaxed);
        self.heard.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// Whether event number `number` is over. `are_all_on` tells whether the kernel has nobody waiting with one.
    pub(super) fn is_over(&self, number: u32, are_all_on: impl FnOnce() -> bool) -> bool {
        let is_over = || self.over.load(Ordering::Acquire).wrapping_sub(number) as i32 >= 0;
        if is_over() {
            return true;
        }
        let mut look = lock(&self.look);
        if look.is_none() {
            let up_to = self.heard.load(Ordering::Acquire);
            if !are_all_on() {
                return false;
            }
            let pages = u32::try_from(self.most_pages.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
            let threads = Elsewhere::begin(CALLS, ENOUGH + ENOUGH_PER_PAGE * pages);
            *look = Some(Look { up_to, threads });
        }
        if let Some(ended) = look.take_if(|look| look.threads.is_over()) {
            self.over.store(ended.up_to, Ordering::Release);
        }
        is_over()
    }
}
