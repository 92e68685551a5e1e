//! Vectors that are used again: a pass over faults needs some, and is not to allocate them.
//!
//! What a pass takes from here it gives back, empty or not; a vector that got lost on the way (a fault that
//! is refused in the middle of a plan, say) would be a new one next time, and nothing worse.

use farside_types::{Access, BLOCK_PAGES, FrameNo, PageNo};

use crate::Limits;
use crate::faults::open::FaultKey;
use crate::migration::plan::Plan;
use crate::placement::Decision;

/// Pages of a batch, with who wants them.
pub(crate) type Singles = Vec<(PageNo, Access, FaultKey)>;

/// Whatever has room that is worth keeping.
pub(crate) trait Reused: Default {
    /// Empties it, and keeps its room.
    fn empty(&mut self);

    /// A new one with room for so many elements.
    fn with_room(elements: usize) -> Self;
}

impl<T> Reused for Vec<T> {
    fn empty(&mut self) {
        self.clear();
    }

    fn with_room(elements: usize) -> Vec<T> {
        Vec::with_capacity(elements)
    }
}

/// How many there are of each kind from the start: a plan that starts a chain may start another.
const AT_ONCE: usize = 4;
/// Parts that a plan has room for.
const PARTS: usize = 64;

/// Those of one kind that nobody uses now.
pub(crate) struct Pool<T>(Vec<T>);

impl<T: Reused> Pool<T> {
    /// An empty one.
    pub(crate) fn take(&mut self) -> T {
        self.0.pop().unwrap_or_default()
    }

    /// It is used no more.
    pub(crate) fn keep(&mut self, mut used: T) {
        used.empty();
        self.0.push(used);
    }

    /// Has room for so many elements in each.
    fn new(elements: usize) -> Pool<T> {
        let mut pool = Vec::with_capacity(4 * AT_ONCE);
        pool.resize_with(AT_ONCE, || T::with_room(elements));
        Pool(pool)
    }
}

/// What the driver's passes use.
pub(crate) struct Scratch {
    pub(crate) plans: Pool<Plan>,
    pub(crate) singles: Pool<Singles>,
    pub(crate) pages: Pool<Vec<PageNo>>,
    pub(crate) wanted: Pool<Vec<(PageNo, Access)>>,
    pub(crate) held: Pool<Vec<(u32, FrameNo)>>,
    pub(crate) seen: Pool<Vec<(FrameNo, bool)>>,
    pub(crate) decisions: Pool<Vec<Decision>>,
}

impl Scratch {
    /// With room for what passes within these limits mostly need.
    pub(crate) fn new(limits: &Limits) -> Scratch {
        let block = BLOCK_PAGES as usize;
        Scratch {
            plans: Pool::new(PARTS),
            singles: Pool::new(limits.fault_batch),
            pages: Pool::new(limits.evict_pages as usize + 4 * block),
            wanted: Pool::new(limits.group_pages as usize),
            held: Pool::new(block),
            seen: Pool::new(block),
            decisions: Pool::new(PARTS),
        }
    }
}
