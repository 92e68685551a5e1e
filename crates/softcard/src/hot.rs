//! The hot path of a word: memory by the card's tables, without the card's lock.
//!
//! A processing element remembers where the entries of the pages are that it has used, 512 pages at a
//! time, and never what they say: each word reads its page's entry, while the card knows that the word
//! is under way ([`farside_card::Words`]). So there is nothing that an unmap has to find and take away,
//! and what the element remembers covers far more memory than a TLB of the same size.
//!
//! Accesses to other memories are counted: every so often one goes by the card's lock, and counts for
//! those before it, a different number each time, so that no pattern of accesses hides behind it. What
//! the tables have no room for goes by the lock, and all that is recorded.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_card::tables::{Near, Place, SLOTS, STRETCH_PAGES, TableEntry, Tables, Walk};
use farside_card::{InWord, Location, WordUser};
use farside_types::{Access, Asid, FrameNo, PAGE_SHIFT, PAGE_SIZE, VirtAddr};

use crate::card::{Embedder, SoftCard};
use crate::job::Job;
use farside_linux::lock::lock;

/// Words that are found under one mark at most: about as many as a processor waits for at the same time.
pub(crate) const BATCH: usize = 32;

/// Stretches of 512 pages that an element remembers: 512 MiB.
const REMEMBERED: usize = 256;
const STRETCH_SHIFT: u32 = PAGE_SHIFT + SLOTS.trailing_zeros();

/// One processing element's way to words.
#[derive(Debug)]
pub(crate) struct Hot {
    user: WordUser,
    /// What the user forgets when it is disturbed.
    entries: Entries,
    card: Arc<SoftCard>,
}

/// A byte that stays where it is until this is dropped. Whoever has it does little,
/// and calls nothing of the program: whoever takes pages away waits for it.
pub(crate) struct Found<'a> {
    pub(crate) byte: NonNull<u8>,
    _word: InWord<'a>,
}

/// [`Found`] of the first few words of a run.
pub(crate) struct FoundRun<'a> {
    /// The first byte of each.
    pub(crate) bytes: &'a [NonNull<u8>],
    _words: InWord<'a>,
}

/// Where entries are, and the memory that they name.
#[derive(Debug)]
struct Entries {
    tables: Arc<Tables>,
    asid: Asid,
    /// The first byte of the card's own memory.
    memory: NonNull<u8>,
    /// Where stretches of the bus are, as far as they were used.
    bus: [Option<NonNull<u8>>; BUS_STRETCHES],
    remote: Remote,
    remembered: [Stretch; REMEMBERED],
    /// Words that found their entry by a walk: it was not remembered, or its bits were to be set.
    walks: u64,
}

/// Accesses to other memories since one was counted, and until one is.
#[derive(Debug)]
struct Remote {
    uncounted: u32,
    left: u32,
    random: u32,
}

impl Remote {
    /// Every 16th on average.
    fn new() -> Remote {
        Remote { uncounted: 0, left: 0, random: 0x9e37_79b9 }
    }

    /// Gives how many the next one counts for beside itself, and begins again.
    fn count(&mut self) -> u32 {
        // Marsaglia's xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.left = self.random % 31;
        std::mem::take(&mut self.uncounted)
    }
}

/// Where the entries of 512 aligned pages are.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// The address of its first byte / its length; [`NOWHERE`]: nothing is remembered.
    number: u64,
    /// Its entries, or the one for all of them.
    words: *const AtomicU64,
    /// What to take of the number of a page in the stretch to find its entry: all of it, or nothing.
    mask: u32,
    /// What to add of it to the number that the entry names: the rest.
    rest: u32,
}

impl Stretch {
    const fn new(number: u64, words: *const AtomicU64, mask: u32) -> Stretch {
        Stretch { number, words, mask, rest: !mask }
    }
}

const NOWHERE: u64 = u64::MAX;
/// Stretches of the bus.
const BUS_STRETCHES: usize = 256;

// SAFETY: the pointers are to words of `tables`, which are shared by their atomic operations and live
// as long as it, and to the card's memory, which lives as long as its embedder, and is accessed only by
// methods that take `&mut Hot`.
unsafe impl Send for Entries {}
// SAFETY: as above; through `&Entries` nothing is accessed.
unsafe impl Sync for Entries {}

impl Hot {
    /// The way to words of a job's address space; `None` if the card has no tables.
    pub(crate) fn new(card: &Arc<SoftCard>, embedder: &dyn Embedder, job: &Job) -> Option<Hot> {
        let mut model = lock(&card.model);
        let (tables, words) = model.share_tables()?;
        let own = Location::new(model.memory(), FrameNo(0));
        let memory = embedder.pointer(own, model.frames());
        drop(model);
        // Whoever serves a fault may wait for the card, and so nothing is allocated under its lock.
        let user = words.user();
        let nothing = Stretch::new(NOWHERE, std::ptr::null(), 0);
        let remembered = [nothing; REMEMBERED];
        let (bus, remote) = ([None; BUS_STRETCHES], Remote::new());
        let asid = job.asid;
        let entries = Entries { tables, asid, memory, bus, remote, remembered, walks: 0 };
        Some(Hot { user, entries, card: Arc::clone(card) })
    }

    /// Finds the byte at `addr`, if the entry of its page allows the access and is where it is
    /// remembered.
    #[inline(always)]
    pub(crate) fn find(&mut self, addr: u64, access: Access) -> Option<Found<'_>> {
        let word = self.user.begin();
        // This is read behind the mark, and so are the entries: see `farside_card::Words`.
        if !word.is_undisturbed() {
            return None;
        }
        let byte = self.entries.find(addr, access)?;
        Some(Found { byte, _word: word })
    }

    /// [`Hot::find`] for the bytes at `addrs`, up to the first that it does not find, and for no more than
    /// [`BATCH`], for which `bytes` has room. All of them stay: whoever takes one of their pages away waits
    /// for the mark that covers them.
    #[inline(always)]
    pub(crate) fn find_run<'a>(
        &'a mut self,
        addrs: &[u64],
        access: Access,
        bytes: &'a mut [NonNull<u8>; BATCH],
    ) -> FoundRun<'a> {
        let mut found = 0;
        let words = self.user.begin();
        if words.is_undisturbed() {
            for (slot, &addr) in bytes.iter_mut().zip(addrs) {
                let Some(byte) = self.entries.find(addr, access) else { break };
                prefetch(byte);
                *slot = byte;
                found += 1;
            }
        }
        FoundRun { bytes: &bytes[..found], _words: words }
    }

    /// [`Hot::find`] with a walk of the tables, which sets the bits of the entry.
    #[inline(never)]
    pub(crate) fn walk(
        &mut self,
        embedder: &dyn Embedder,
        job: &Job,
        addr: u64,
        access: Access,
    ) -> Option<Found<'_>> {
        let mut word = self.user.begin();
        if word.take_disturbance() {
            self.entries.forget();
        }
        if job.has_to_stop() {
            // Also a kernel that does not mind errors gets nothing any more.
            word.stay_disturbed();
            return None;
        }
        let byte = self.entries.walk(embedder, addr, access)?;
        Some(Found { byte, _word: word })
    }

    /// How many accesses to other memories one that is counted now counts for, itself not included.
    pub(crate) fn count_remote(&mut self) -> u32 {
        self.entries.remote.count()
    }
}

impl Entries {
    /// The byte at `addr`, if no walk is needed to get there.
    #[inline(always)]
    fn find(&mut self, addr: u64, access: Access) -> Option<NonNull<u8>> {
        match self.place(addr, access)? {
            Place::Own(frame) => Some(self.byte(self.memory, frame, addr)),
            Place::Bus(page) => self.remote(page, addr),
        }
    }

    /// Where the entry of an address says that its page is, if no walk is needed to know.
    #[inline(always)]
    fn place(&self, addr: u64, access: Access) -> Option<Place> {
        let number = addr >> STRETCH_SHIFT;
        let stretch = &self.remembered[number as usize % REMEMBERED];
        if stretch.number != number {
            return None;
        }
        let page = (addr >> PAGE_SHIFT) as u32 % SLOTS as u32;
        // SAFETY: the words of a stretch are 512 and the mask takes all of a number below that, or it
        // is one and the mask takes nothing; they live as long as `tables`.
        let word = unsafe { &*stretch.words.add((page & stretch.mask) as usize) };
        let entry = TableEntry(word.load(Ordering::Acquire));
        entry.place_for(access, page & stretch.rest)
    }

    /// The byte of an address whose page has a number behind `start`.
    #[inline(always)]
    fn byte(&self, start: NonNull<u8>, number: u32, addr: u64) -> NonNull<u8> {
        let offset = number as usize * PAGE_SIZE + VirtAddr(addr).page_offset();
        // SAFETY: a card maps only frames of its own memory that it has, and `memory` is all of it; of
        // a stretch of the bus it maps what its driver has named, which lies behind the stretch's
        // start, as the embedder says.
        unsafe { start.add(offset) }
    }

    /// The byte of an address whose page is on the bus. `None`: it is to be counted, or nobody knows
    /// where that is.
    #[inline(never)]
    fn remote(&mut self, page: u32, addr: u64) -> Option<NonNull<u8>> {
        let start = self.bus[(page / STRETCH_PAGES) as usize]?;
        self.remote.left = self.remote.left.checked_sub(1)?;
        self.remote.uncounted += 1;
        Some(self.byte(start, page % STRETCH_PAGES, addr))
    }

    /// The byte at `addr`, if the tables say where it is. Its entry's bits are set.
    fn walk(&mut self, embedder: &dyn Embedder, addr: u64, access: Access) -> Option<NonNull<u8>> {
        let number = addr >> STRETCH_SHIFT;
        let page = VirtAddr(addr).page();
        let (words, mask) = match self.tables.near(self.asid, page)? {
            Near::Leaf(words) => (words.as_ptr(), SLOTS as u32 - 1),
            Near::Run(word) => (std::ptr::from_ref(word), 0),
        };
        self.remembered[number as usize % REMEMBERED] = Stretch::new(number, words, mask);
        let Walk::Found(found) = self.tables.walk(self.asid, page, access) else {
            return None;
        };
        self.walks += 1;
        match found.place {
            Place::Own(frame) => Some(self.byte(self.memory, frame, addr)),
            Place::Bus(page) => {
                let stretch = page / STRETCH_PAGES;
                let start = &mut self.bus[stretch as usize];
                *start = start.or_else(|| embedder.bus_stretch(stretch as u8));
                self.remote(page, addr)
            }
        }
    }

    fn forget(&mut self) {
        self.remembered.iter_mut().for_each(|stretch| stretch.number = NOWHERE);
        self.bus = [None; BUS_STRETCHES];
    }
}

/// Has the processor fetch a byte that is needed soon, also where atomic operations, which wait for one
/// another, are what needs it.
#[inline(always)]
fn prefetch(byte: NonNull<u8>) {
    // Other processors do without: their atomic operations need not wait for one another.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing that anybody sees, and does not fault, wherever it goes.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(byte.as_ptr().cast());
    }
    let _ = byte;
}

impl Drop for Hot {
    fn drop(&mut self) {
        if self.entries.walks > 0 {
            lock(&self.card.model).count_walks(self.entries.walks);
        }
    }
}
