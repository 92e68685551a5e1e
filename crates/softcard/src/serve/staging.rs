//! A client's memory that it shares without descriptors, reached by messages: slow, and right.
//!
//! What the function reads and writes itself (rings, lists, page DMA) becomes DMA_READ and DMA_WRITE.
//! Kernels work through pointers: for them a page is *staged*, brought to where its bus address is in
//! this process each time that an access begins, and what an access has changed is given back, byte by
//! byte: when the page is accessed again, and before the function tells or takes anything. So a client
//! that hears of a job's end, or of an unmapped page, finds what was written before. Two things are
//! less than with shared memory: what a kernel stores is seen a little later while it goes on, and an
//! atomic operation is one among this function's processing elements only.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use farside_card::BusError;
use farside_card::interface::{DmaAddr, Extent};
use farside_linux::lock::lock;
use farside_types::PAGE_SIZE;
use farside_vfio_user::unix::{Connection, SharedSession};

use super::leased_function::{LeasedFunction, frames};
use super::windows::Windows;

const PAGE: u64 = PAGE_SIZE as u64;
const WORDS: usize = PAGE_SIZE / 8;

/// The way to a client's memory by messages.
pub(super) trait Wire: Send + Sync {
    /// Reads it.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), BusError>;

    /// Writes it; the client has done so when this returns.
    fn write(&self, address: u64, from: &[u8]) -> Result<(), BusError>;
}

impl Wire for SharedSession<Connection> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), BusError> {
        self.dma_read(address, into).map_err(|error| {
            tracing::warn!(%error, address, "a client's memory cannot be read by messages");
            BusError { address }
        })
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), BusError> {
        self.dma_write(address, from).map_err(|error| {
            tracing::warn!(%error, address, "a client's memory cannot be written by messages");
            BusError { address }
        })
    }
}

/// What a staged page was like when it was brought, or given back.
type Snapshot = Box<[u64; WORDS]>;

/// Pages that may be staged at a time, whatever memory the lease has: each takes up to two of the
/// mappings that Linux allows a process.
const STAGED_MAX: u64 = 16_384;

/// Pages that are staged at most where a worker may have so many bytes of its own: with what they were
/// like before, they take a quarter of these.
pub(super) fn staged_max(own_bytes: u64) -> usize {
    (own_bytes / 4 / (2 * PAGE)).clamp(1, STAGED_MAX) as usize
}

/// Why a page cannot be staged. Each ends the lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotStaged {
    /// The client does not answer for it, or the system has no room.
    Unreached,
    /// Too many are.
    TooMany,
}

impl NotStaged {
    /// For people.
    pub(super) fn why(self) -> &'static str {
        match self {
            NotStaged::Unreached => "its client does not answer for the memory it shares",
            NotStaged::TooMany => {
                "its kernels map more of its client's memory at a time than can be staged"
            }
        }
    }
}

impl From<BusError> for NotStaged {
    fn from(_: BusError) -> NotStaged {
        NotStaged::Unreached
    }
}

/// See the module.
pub(super) struct Staging {
    /// Pages that are staged at most.
    most: usize,
    wire: OnceLock<Arc<dyn Wire>>,
    /// By page number on the bus.
    pages: Mutex<BTreeMap<u64, Snapshot>>,
    /// There are some.
    staged: AtomicBool,
    /// The client has no event descriptors, and is told of interrupts by messages.
    interrupts: AtomicBool,
}

impl std::fmt::Debug for Staging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Staging")
    }
}

impl Staging {
    /// Nothing is staged, and of so many pages at most.
    pub(super) fn new(most: usize) -> Staging {
        Staging {
            most,
            wire: OnceLock::new(),
            pages: Mutex::default(),
            staged: AtomicBool::new(false),
            interrupts: AtomicBool::new(false),
        }
    }

    /// From now on this is the way.
    pub(super) fn connect(&self, wire: Arc<dyn Wire>) {
        let _ = self.wire.set(wire);
    }

    /// Whether there is a way.
    pub(super) fn is_connected(&self) -> bool {
        self.wire.get().is_some()
    }

    /// The client is to be told of interrupts by messages.
    pub(super) fn wants_interrupts(&self) {
        self.interrupts.store(true, Ordering::SeqCst);
    }

    /// Whether it is.
    pub(super) fn tells_interrupts(&self) -> bool {
        self.interrupts.load(Ordering::SeqCst)
    }

    fn wire(&self, address: u64) -> Result<&dyn Wire, BusError> {
        self.wire.get().map(AsRef::as_ref).ok_or(BusError { address })
    }

    /// Reads the client's memory.
    pub(super) fn read(&self, address: u64, into: &mut [u8]) -> Result<(), BusError> {
        self.wire(address)?.read(address, into)
    }

    /// Writes the client's memory.
    pub(super) fn write(&self, address: u64, from: &[u8]) -> Result<(), BusError> {
        self.wire(address)?.write(address, from)
    }

    /// Brings pages to where their bus addresses are in this process. Those that are there already are
    /// given back before; what is changed at the same time stays.
    pub(super) fn bring(&self, windows: &Windows, first: u64, count: u32) -> Result<(), NotStaged> {
        let wire = self.wire(first * PAGE)?;
        let mut pages = lock(&self.pages);
        self.staged.store(true, Ordering::SeqCst);
        for page in first..first + u64::from(count) {
            if pages.len() >= self.most && !pages.contains_key(&page) {
                return Err(NotStaged::TooMany);
            }
            if let Some(snapshot) = pages.get_mut(&page) {
                give_back(wire, windows, page, snapshot)?;
            }
            let mut bytes = [0; PAGE_SIZE];
            wire.read(page * PAGE, &mut bytes)?;
            let fetched = words(&bytes);
            match pages.get_mut(&page) {
                Some(snapshot) => merge(windows, page, snapshot, &fetched),
                None => {
                    windows.open(page * PAGE)?;
                    let snapshot = pages.entry(page).or_insert(Box::new([0; WORDS]));
                    for (index, &word) in fetched.iter().enumerate() {
                        windows.stage(page, index).store(word, Ordering::Relaxed);
                        snapshot[index] = word;
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives back whatever kernels have changed. Pages that the client has taken away are left.
    pub(super) fn settle(&self, windows: &Windows) -> Result<(), BusError> {
        if !self.staged.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut pages = lock(&self.pages);
        pages.retain(|&page, _| windows.is_by_messages(page * PAGE, PAGE));
        for (&page, snapshot) in pages.iter_mut() {
            give_back(self.wire(page * PAGE)?, windows, page, snapshot)?;
        }
        Ok(())
    }

    /// Nothing is staged any more: no kernel works.
    pub(super) fn clear(&self, windows: &Windows) {
        if self.staged.swap(false, Ordering::SeqCst) {
            for (page, _) in std::mem::take(&mut *lock(&self.pages)) {
                windows.close(page * PAGE);
            }
        }
    }
}

fn words(bytes: &[u8; PAGE_SIZE]) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut chunk = [0; 8];
        chunk.copy_from_slice(bytes);
        *word = u64::from_ne_bytes(chunk);
    }
    words
}

/// Writes the bytes of a page that differ from what it was, in runs.
fn give_back(
    wire: &dyn Wire,
    windows: &Windows,
    page: u64,
    snapshot: &mut Snapshot,
) -> Result<(), BusError> {
    let mut run: Vec<u8> = Vec::new();
    let mut start = 0;
    for index in 0..WORDS {
        let now = windows.stage(page, index).load(Ordering::Acquire);
        let (now_bytes, before) = (now.to_ne_bytes(), snapshot[index].to_ne_bytes());
        for (at, (&byte, &old)) in now_bytes.iter().zip(&before).enumerate() {
            if byte != old {
                if run.is_empty() {
                    start = index * 8 + at;
                }
                run.push(byte);
            } else if !run.is_empty() {
                wire.write(page * PAGE + start as u64, &run)?;
                run.clear();
            }
        }
        snapshot[index] = now;
    }
    if run.is_empty() { Ok(()) } else { wire.write(page * PAGE + start as u64, &run) }
}

/// Takes over what the client has changed; bytes that a kernel has changed since stay, and count as
/// changed.
fn merge(windows: &Windows, page: u64, snapshot: &mut Snapshot, fetched: &[u64; WORDS]) {
    for index in 0..WORDS {
        let word = windows.stage(page, index);
        let before = snapshot[index];
        let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
            let (_, merged) = merged(now, before, fetched[index]);
            Some(merged)
        });
        let now = word.load(Ordering::Acquire);
        snapshot[index] = merged(now, before, fetched[index]).0;
    }
}

/// The word that counts as unchanged, and the word that is kept: bytes of `now` that differ from
/// `before` are a kernel's.
fn merged(now: u64, before: u64, fetched: u64) -> (u64, u64) {
    let (mut known, mut kept) = (before.to_ne_bytes(), now.to_ne_bytes());
    for (at, byte) in fetched.to_ne_bytes().into_iter().enumerate() {
        if kept[at] == known[at] {
            kept[at] = byte;
            known[at] = byte;
        } else if kept[at] == byte {
            known[at] = byte;
        }
    }
    (u64::from_ne_bytes(known), u64::from_ne_bytes(kept))
}

/// Whether a piece of a copy has an end that is reached by messages only.
pub(super) fn concerns(leased: &LeasedFunction, piece: &Extent, copies: bool) -> bool {
    let bytes = u64::from(piece.count) * PAGE;
    let is = |at: DmaAddr| match at {
        DmaAddr::Own(_) => false,
        DmaAddr::Bus(page) => leased.windows.is_by_messages(u64::from(page) * PAGE, bytes),
    };
    is(piece.dst) || copies && is(piece.src)
}

/// Copies a piece by messages, or fills it with a pattern.
pub(super) fn carry_out(
    leased: &LeasedFunction,
    piece: &Extent,
    pattern: Option<u64>,
) -> Option<()> {
    let mut bytes = vec![0; piece.count as usize * PAGE_SIZE];
    match (pattern, piece.src) {
        (Some(pattern), _) => {
            bytes.chunks_exact_mut(8).for_each(|w| w.copy_from_slice(&pattern.to_le_bytes()));
        }
        (None, DmaAddr::Bus(page)) => leased.read_bus(u64::from(page) * PAGE, &mut bytes).ok()?,
        (None, DmaAddr::Own(frame)) => {
            let from = frames(leased, frame, piece.count)?;
            // SAFETY: the frames cover as many bytes; others that write them at the same time make
            // any mixture, as with a card of silicon.
            unsafe { from.as_ptr().copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        }
    }
    match piece.dst {
        DmaAddr::Bus(page) => leased.write_bus(u64::from(page) * PAGE, &bytes).ok(),
        DmaAddr::Own(frame) => {
            let to = frames(leased, frame, piece.count)?;
            // SAFETY: as above.
            unsafe { to.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            Some(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_vfio_user::DmaMap;

    /// The client's memory, from bus address 0 on.
    struct Memory(Mutex<Vec<u8>>);

    impl Wire for Memory {
        fn read(&self, address: u64, into: &mut [u8]) -> Result<(), BusError> {
            let start = address as usize;
            into.copy_from_slice(&lock(&self.0)[start..start + into.len()]);
            Ok(())
        }

        fn write(&self, address: u64, from: &[u8]) -> Result<(), BusError> {
            let start = address as usize;
            lock(&self.0)[start..start + from.len()].copy_from_slice(from);
            Ok(())
        }
    }

    fn staged() -> (Staging, Windows, Arc<Memory>) {
        let bytes = (0..4 * PAGE_SIZE).map(|at| (at / 3) as u8).collect();
        let memory = Arc::new(Memory(Mutex::new(bytes)));
        let (staging, windows) = (Staging::new(4), Windows::new().unwrap());
        let (readable, writable) = (true, true);
        let map = DmaMap { address: 0, size: 4 * PAGE, readable, writable, fd: None, offset: 0 };
        windows.map(map).unwrap();
        assert!(windows.reaches(0, 4 * PAGE, true) && windows.is_by_messages(PAGE - 1, 2));
        staging.connect(memory.clone());
        (staging, windows, memory)
    }

    fn byte(windows: &Windows, at: u64) -> *mut u8 {
        windows.pointer(at).as_ptr()
    }

    #[test]
    fn what_a_kernel_changes_is_given_back_and_nothing_else() {
        let (staging, windows, memory) = staged();
        staging.bring(&windows, 1, 2).unwrap();
        // SAFETY: the pages are staged, and only this test uses them.
        unsafe {
            assert_eq!(byte(&windows, PAGE + 300).read(), lock(&memory.0)[PAGE_SIZE + 300]);
            byte(&windows, PAGE + 5).write(0xaa);
            byte(&windows, 2 * PAGE - 1).write(0xbb);
            byte(&windows, 2 * PAGE).write(0xcc);
        }
        // The client changes what lies beside it.
        lock(&memory.0)[PAGE_SIZE + 6] = 0x66;
        let mut expected = lock(&memory.0).clone();
        staging.settle(&windows).unwrap();
        for (at, value) in [(PAGE_SIZE + 5, 0xaa), (2 * PAGE_SIZE - 1, 0xbb), (2 * PAGE_SIZE, 0xcc)]
        {
            expected[at] = value;
        }
        assert_eq!(*lock(&memory.0), expected);
    }

    #[test]
    fn a_page_that_is_brought_again_has_what_both_sides_wrote() {
        let (staging, windows, memory) = staged();
        staging.bring(&windows, 0, 1).unwrap();
        // SAFETY: the page is staged, and only this test uses it.
        unsafe { byte(&windows, 8).write(0x11) };
        lock(&memory.0)[9] = 0x22;
        staging.bring(&windows, 0, 1).unwrap();
        // SAFETY: as above.
        let both = unsafe { [byte(&windows, 8).read(), byte(&windows, 9).read()] };
        assert_eq!(both, [0x11, 0x22]);
        assert_eq!(lock(&memory.0)[8..10], [0x11, 0x22]);
        // A word that a kernel changes while the page is on its way stays changed.
        let before = u64::from_ne_bytes([1, 2, 3, 4, 5, 6, 7, 8]);
        let now = u64::from_ne_bytes([1, 9, 3, 4, 5, 6, 7, 8]);
        let fetched = u64::from_ne_bytes([7, 2, 3, 4, 5, 6, 7, 8]);
        let (known, kept) = merged(now, before, fetched);
        assert_eq!(kept.to_ne_bytes(), [7, 9, 3, 4, 5, 6, 7, 8]);
        assert_eq!(known.to_ne_bytes(), [7, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn no_more_is_staged_than_may_be_until_it_is_given_up() {
        let (staging, windows, _memory) = staged();
        let staging = Staging { most: 2, ..staging };
        staging.bring(&windows, 0, 2).unwrap();
        assert_eq!(staging.bring(&windows, 2, 1), Err(NotStaged::TooMany));
        // What is staged may be brought again.
        staging.bring(&windows, 1, 1).unwrap();
        staging.clear(&windows);
        staging.bring(&windows, 2, 2).unwrap();
        assert_eq!(staged_max(256 << 20), 8192);
        assert_eq!((staged_max(0), staged_max(u64::MAX)), (1, 16_384));
    }

    #[test]
    fn pages_that_were_taken_away_are_given_back_to_nobody() {
        let (staging, windows, memory) = staged();
        staging.bring(&windows, 0, 4).unwrap();
        // SAFETY: the page is staged, and only this test uses it.
        unsafe { byte(&windows, 0).write(!byte(&windows, 0).read()) };
        let before = lock(&memory.0).clone();
        windows.unmap(farside_vfio_user::DmaUnmap::All);
        staging.settle(&windows).unwrap();
        assert_eq!(*lock(&memory.0), before);
        staging.clear(&windows);
    }
}
