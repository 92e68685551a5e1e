//! A client's memory as its function reaches it: windows of bus addresses onto shared files.
//!
//! All of a function's bus is one stretch of address space of this process, so a pointer is the bus
//! address plus a constant, and runs of pages follow one another however the client has shared them.
//! Where there is no window there is nothing. What a client takes away, or leaves behind when it goes,
//! becomes nothing too: whoever still holds a pointer then reaches what [`super::stray`] gives, and
//! never the client. This is the fence that keeps a kernel that hangs from touching the memory of a
//! program that has gone on.
//!
//! What a client may share is bounded: windows, because a process may have only so many mappings, and
//! files, because each stays open: their sizes tell how much memory the card has made in them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use farside_card::BusError;
use farside_card::tables::STRETCH_PAGES;
use farside_types::PAGE_SIZE;
use farside_vfio_user::{DmaMap, DmaUnmap, Errno};
use rustix::fs::SealFlags;

use super::worker::WINDOWS_MAX;
use farside_linux::mapping::{Mapping, MemoryError, Part};

const WHAT: &str = "farside-bus";

const PAGE: u64 = PAGE_SIZE as u64;

/// Bytes of a function's bus that it reaches. Windows beyond are refused.
pub(super) const BUS_BYTES: u64 = 1 << 40;

/// Files that a client may share at a time.
const FILES_MAX: usize = 256;

/// What the system says of memory of huge pages (`HUGETLBFS_MAGIC`).
const HUGETLB: i64 = 0x9584_58f6;

/// All windows of a client.
#[derive(Debug)]
pub(super) struct Windows {
    bus: Mapping,
    table: RwLock<Table>,
    /// The writable window that was used last, nearly always the one with the rings: its first page
    /// in the upper half, the page behind its last in the lower. Changes only while the table is
    /// locked. Who looks at it without a lock while its window goes reads or writes nowhere, as with
    /// a window that goes right afterwards.
    last: AtomicU64,
    /// There are windows that are reached by messages, or were.
    by_messages: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    /// By first bus address.
    windows: BTreeMap<u64, Window>,
    files: BTreeMap<FileId, SharedFile>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    bytes: u64,
    writable: bool,
    /// Its file; without one it is reached by messages.
    file: Option<FileId>,
}

/// Device and inode.
type FileId = (u64, u64);

/// A file that a client shares.
#[derive(Debug)]
struct SharedFile {
    file: OwnedFd,
    windows: u32,
}

impl Table {
    fn insert(&mut self, address: u64, window: Window, file: OwnedFd) {
        let new = || SharedFile { file, windows: 0 };
        if let Some(id) = window.file {
            self.files.entry(id).or_insert_with(new).windows += 1;
        }
        self.windows.insert(address, window);
    }

    fn remove(&mut self, address: u64) {
        let Some(window) = self.windows.remove(&address) else { return };
        let Some(id) = window.file else { return };
        if let Some(file) = self.files.get_mut(&id) {
            file.windows -= 1;
            if file.windows == 0 {
                self.files.remove(&id);
            }
        }
    }

    /// Whether one more window, of this file, is not too many.
    fn has_room(&self, file: FileId) -> bool {
        self.windows.len() < WINDOWS_MAX as usize
            && (self.files.len() < FILES_MAX || self.files.contains_key(&file))
    }
}

impl Windows {
    pub(super) fn new() -> Result<Windows, MemoryError> {
        let bus = Mapping::reserve(WHAT, BUS_BYTES as usize)?;
        let (table, by_messages) = (RwLock::default(), AtomicBool::new(false));
        Ok(Windows { bus, table, last: AtomicU64::new(0), by_messages })
    }

    /// The address space of the bus.
    pub(super) fn bus(&self) -> Range<usize> {
        let start = self.bus.base().addr();
        start..start + BUS_BYTES as usize
    }

    /// Bytes of memory that there are in the client's files, whoever has made them.
    pub(super) fn shared_bytes(&self) -> u64 {
        let table = self.read();
        let bytes = |shared: &SharedFile| {
            rustix::fs::fstat(&shared.file).map_or(0, |stat| stat.st_blocks as u64 * 512)
        };
        table.files.values().map(bytes).sum()
    }

    /// Adds a window. One without a descriptor is reached by messages: see [`super::staging`].
    pub(super) fn map(&self, map: DmaMap) -> Result<(), Errno> {
        let Some(file) = map.fd else { return self.map_by_messages(&map) };
        let id = check_file(&file, map.offset, map.size)?;
        if map.address % PAGE != 0 || map.size % PAGE != 0 || map.offset % PAGE != 0 {
            return Err(Errno::INVAL);
        }
        if map.address.checked_add(map.size).is_none_or(|end| end > BUS_BYTES) {
            // The engine knows where the bus ends, and has refused it.
            return Err(Errno::RANGE);
        }
        let part = Part { file: file.as_fd(), offset: map.offset, shared: map.writable };
        let mut table = self.write();
        if !table.has_room(id) {
            tracing::error!("a client shares too much: {WINDOWS_MAX} windows, {FILES_MAX} files");
            return Err(Errno::NOSPC);
        }
        if let Err(error) = self.put(map.address, map.size, Some(part)) {
            tracing::error!(%error, "a client's memory cannot be mapped");
            // What was reserved there may be gone, for something else to be mapped in its place.
            self.fence_part(map.address, map.size);
            return Err(Errno::NOMEM);
        }
        let window = Window { bytes: map.size, writable: map.writable, file: Some(id) };
        table.insert(map.address, window, file);
        Ok(())
    }

    fn map_by_messages(&self, map: &DmaMap) -> Result<(), Errno> {
        if map.address.checked_add(map.size).is_none_or(|end| end > BUS_BYTES) {
            return Err(Errno::RANGE);
        }
        let mut table = self.write();
        if table.windows.len() >= WINDOWS_MAX as usize {
            tracing::error!("a client shares too much: {WINDOWS_MAX} windows");
            return Err(Errno::NOSPC);
        }
        let window = Window { bytes: map.size, writable: map.writable, file: None };
        table.windows.insert(map.address, window);
        self.by_messages.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Whether the client shares memory without a descriptor, or has done so.
    pub(super) fn has_by_messages(&self) -> bool {
        self.by_messages.load(Ordering::Relaxed)
    }

    /// Whether a window that is reached by messages only covers some of these bytes.
    pub(super) fn is_by_messages(&self, address: u64, bytes: u64) -> bool {
        if !self.has_by_messages() {
            return false;
        }
        let table = self.read();
        let end = address.saturating_add(bytes);
        let below = table.windows.range(..end).rev();
        below
            .take_while(|&(&start, window)| start + window.bytes > address)
            .any(|(_, window)| window.file.is_none())
    }

    /// Makes a page of the bus an empty one that can be written, for bytes to be staged in.
    pub(super) fn open(&self, address: u64) -> Result<(), BusError> {
        let opened = self.bus.allow(WHAT, address as usize, PAGE_SIZE);
        opened.map_err(|error| {
            tracing::error!(%error, "a page of a client cannot be staged");
            BusError { address }
        })
    }

    /// Gives up a page that was opened, and its memory, unless a window is there now.
    pub(super) fn close(&self, address: u64) {
        let table = self.write();
        let found = table.windows.range(..=address).next_back();
        let is_file = |(&start, window): (&u64, &Window)| {
            window.file.is_some() && start + window.bytes > address
        };
        if !found.is_some_and(is_file) {
            self.fence_part(address, PAGE);
        }
    }

    /// A word of a page that was opened.
    pub(super) fn stage(&self, page: u64, word: usize) -> &AtomicU64 {
        self.word64((page * PAGE) as usize + word * 8)
    }

    fn put(&self, address: u64, bytes: u64, part: Option<Part<'_>>) -> Result<(), MemoryError> {
        self.bus.put(WHAT, address as usize, bytes as usize, part)
    }

    /// Takes windows away: all that lie in the range. When this returns nothing reaches the client's
    /// memory through them any more, words of kernels included, which look at no window: the system
    /// changes what a mapping leads to only when no processor has an access under way there.
    pub(super) fn unmap(&self, unmap: DmaUnmap) {
        let (first, end) = match unmap {
            DmaUnmap::Range { address, size } => (address, address.saturating_add(size)),
            DmaUnmap::All => (0, u64::MAX),
        };
        let mut table = self.write();
        self.forget();
        let gone: Vec<(u64, u64)> =
            table.windows.range(first..end).map(|(&at, window)| (at, window.bytes)).collect();
        for (address, bytes) in gone {
            table.remove(address);
            self.fence_part(address, bytes);
        }
    }

    /// Fences everything: the client is gone.
    pub(super) fn fence(&self) {
        let mut table = self.write();
        self.forget();
        *table = Table::default();
        self.fence_part(0, BUS_BYTES);
    }

    fn fence_part(&self, address: u64, bytes: u64) {
        if let Err(error) = self.put(address, bytes, None) {
            // The old memory stays reachable for what hangs: better no lease than one that may write
            // to a program that has gone on.
            tracing::error!(%error, "a window cannot be fenced; the lease ends");
            std::process::abort();
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all of these bytes can be reached, for writing if `write`.
    pub(super) fn reaches(&self, address: u64, bytes: u64, write: bool) -> bool {
        covers(&self.read().windows, address, bytes, write)
    }

    /// Works on bytes while their windows stay: no window changes before `body` ends, so it is short.
    pub(super) fn while_mapped<T>(
        &self,
        parts: &[BusPart],
        body: impl FnOnce() -> T,
    ) -> Result<T, BusError> {
        let table = self.read();
        for part in parts {
            if !covers(&table.windows, part.address, part.bytes, part.write) {
                return Err(BusError { address: part.address });
            }
        }
        Ok(body())
    }

    /// Where bus addresses are in this process. What no window covers is address space where nothing
    /// is. Stays valid as long as `self`.
    pub(super) fn pointer(&self, address: u64) -> NonNull<u8> {
        // Pages of commands lie below 2^44, and those that a card maps or copies were covered by
        // windows once; beyond the bus there never is one.
        let offset = address.min(BUS_BYTES - PAGE) as usize;
        NonNull::new(self.bus.base().wrapping_add(offset)).expect("a mapping is not at address 0")
    }

    /// Where a stretch of the bus is, if kernels may access words there by pointers alone: not while there
    /// is memory that has to be staged first. Takes no lock.
    ///
    /// The pointers outlive windows, as those of [`Windows::pointer`] do: when [`Windows::unmap`] returns,
    /// they lead nowhere, because the system has taken the memory from under them.
    pub(super) fn stretch(&self, number: u8) -> Option<NonNull<u8>> {
        let start = u64::from(number) * u64::from(STRETCH_PAGES) * PAGE;
        (start < BUS_BYTES && !self.has_by_messages()).then(|| self.pointer(start))
    }

    /// Works on bytes while their window stays.
    fn reach<T>(
        &self,
        address: u64,
        bytes: u64,
        write: bool,
        body: impl FnOnce(usize) -> T,
    ) -> Result<T, BusError> {
        if self.is_in_last(address, bytes) {
            return Ok(body(address as usize));
        }
        let table = self.read();
        if !covers(&table.windows, address, bytes, write) {
            return Err(BusError { address });
        }
        self.remember(&table.windows, address);
        Ok(body(address as usize))
    }

    fn is_in_last(&self, address: u64, bytes: u64) -> bool {
        let last = self.last.load(Ordering::Acquire);
        let (start, end) = ((last >> 32) * PAGE, (last & 0xffff_ffff) * PAGE);
        address >= start && address.checked_add(bytes).is_some_and(|ends| ends <= end)
    }

    fn remember(&self, table: &BTreeMap<u64, Window>, address: u64) {
        let found = table.range(..=address).next_back();
        if let Some((&start, window)) = found.filter(|(_, window)| window.writable) {
            // The bus has 2^28 pages.
            let (first, end) = (start / PAGE, (start + window.bytes) / PAGE);
            self.last.store(first << 32 | end, Ordering::Release);
        }
    }

    fn forget(&self) {
        self.last.store(0, Ordering::SeqCst);
    }

    /// Reads bytes that the client may change at the same time.
    pub(super) fn read_bytes(&self, address: u64, into: &mut [u8]) -> Result<(), BusError> {
        self.reach(address, into.len() as u64, false, |at| self.load_bytes(at, into))
    }

    /// Writes bytes that the client may read or change at the same time.
    pub(super) fn write_bytes(&self, address: u64, from: &[u8]) -> Result<(), BusError> {
        self.reach(address, from.len() as u64, true, |at| self.store_bytes(at, from))
    }

    /// Reads a word, acquiring.
    pub(super) fn load(&self, address: u64) -> Result<u32, BusError> {
        if address % 4 != 0 {
            return Err(BusError { address });
        }
        self.reach(address, 4, false, |at| self.word32(at).load(Ordering::Acquire))
    }

    /// Writes a word, releasing.
    pub(super) fn store(&self, address: u64, value: u32) -> Result<(), BusError> {
        if address % 4 != 0 {
            return Err(BusError { address });
        }
        self.reach(address, 4, true, |at| self.word32(at).store(value, Ordering::Release))
    }

    fn word32(&self, at: usize) -> &AtomicU32 {
        // SAFETY: the callers have checked that the word lies on the bus, which is mapped as long as
        // `self` lives, and that it is aligned. Other processes use it by whatever means, this one
        // by atomics and raw copies only.
        unsafe { &*self.bus.base().add(at).cast::<AtomicU32>() }
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        // SAFETY: as in `word32`.
        unsafe { &*self.bus.base().add(at).cast::<AtomicU8>() }
    }

    fn word64(&self, at: usize) -> &AtomicU64 {
        // SAFETY: as in `word32`.
        unsafe { &*self.bus.base().add(at).cast::<AtomicU64>() }
    }

    fn load_bytes(&self, start: usize, into: &mut [u8]) {
        if start % 8 == 0 && into.len() % 8 == 0 {
            for (chunk, at) in into.chunks_exact_mut(8).zip((start..).step_by(8)) {
                chunk.copy_from_slice(&self.word64(at).load(Ordering::Relaxed).to_ne_bytes());
            }
            return;
        }
        for (byte, at) in into.iter_mut().zip(start..) {
            *byte = self.byte(at).load(Ordering::Relaxed);
        }
    }

    fn store_bytes(&self, start: usize, from: &[u8]) {
        if start % 8 == 0 && from.len() % 8 == 0 {
            for (chunk, at) in from.chunks_exact(8).zip((start..).step_by(8)) {
                let mut word = [0; 8];
                word.copy_from_slice(chunk);
                self.word64(at).store(u64::from_ne_bytes(word), Ordering::Relaxed);
            }
            return;
        }
        for (byte, at) in from.iter().zip(start..) {
            self.byte(at).store(*byte, Ordering::Relaxed);
        }
    }
}

/// Bytes on the bus, and what is done with them.
#[derive(Clone, Copy, Debug)]
pub(super) struct BusPart {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) write: bool,
}

/// Whether windows that follow one another cover all of these bytes.
fn covers(table: &BTreeMap<u64, Window>, address: u64, bytes: u64, write: bool) -> bool {
    let Some(end) = address.checked_add(bytes) else { return false };
    let mut at = address;
    loop {
        let Some((&start, window)) = table.range(..=at).next_back() else { return false };
        let ends = start + window.bytes;
        if ends <= at || (write && !window.writable) {
            return false;
        }
        if ends >= end {
            return true;
        }
        at = ends;
    }
}

/// A file whose pages may turn out not to be there would end this process with SIGBUS. So it must be a
/// memory file whose size is sealed, long enough, and not of huge pages, of which there may be none
/// left when one is touched.
fn check_file(file: impl AsFd, offset: u64, bytes: u64) -> Result<FileId, Errno> {
    let seals = rustix::fs::fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
    if !seals.contains(SealFlags::SHRINK) {
        tracing::error!(
            "a client shares a file that can be cut off; seal it against shrinking (F_SEAL_SHRINK)"
        );
        return Err(Errno::PERM);
    }
    let is_huge = rustix::fs::fstatfs(&file).is_ok_and(|system| system.f_type == HUGETLB);
    if is_huge {
        tracing::error!("a client shares memory of huge pages; give it memory of normal pages");
        return Err(Errno::INVAL);
    }
    let stat = rustix::fs::fstat(&file).map_err(|_| Errno::INVAL)?;
    let fits = offset.checked_add(bytes).is_some_and(|end| end <= stat.st_size as u64);
    if fits { Ok((stat.st_dev, stat.st_ino)) } else { Err(Errno::INVAL) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::stray;

    impl Windows {
        /// What a control does in place of [`Windows::unmap`]: the memory stays where it is.
        pub(in crate::serve) fn forget_only(&self, address: u64) {
            self.write().remove(address);
        }
    }
    use farside_linux::mapping::memory_file;

    const BUS: u64 = 0x1_0000_0000;

    fn shared(bytes: u64) -> (DmaMap, Mapping) {
        let file = memory_file("test", bytes).unwrap();
        let mapping = Mapping::new("test", &file, bytes as usize, PAGE_SIZE).unwrap();
        let map = DmaMap {
            address: BUS,
            size: bytes,
            readable: true,
            writable: true,
            fd: Some(file),
            offset: 0,
        };
        (map, mapping)
    }

    #[test]
    fn what_the_card_writes_the_client_sees_until_it_takes_the_window_away() {
        let windows = Windows::new().unwrap();
        let (map, client) = shared(8192);
        windows.map(map).unwrap();
        windows.write_bytes(BUS + 4090, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        // SAFETY: the mapping is live and only this test uses it.
        assert_eq!(unsafe { client.base().add(4097).read() }, 8);
        stray::watch(windows.bus()).unwrap();
        let held = windows.pointer(BUS);
        windows.unmap(DmaUnmap::Range { address: BUS, size: 8192 });
        // SAFETY: the pointer stays valid as long as the windows.
        unsafe { held.as_ptr().write(99) };
        // SAFETY: as above.
        assert_eq!(unsafe { client.base().read() }, 0, "a stale write went through");
        assert!(!windows.reaches(BUS, 1, false));
        assert_eq!(windows.load(BUS), Err(BusError { address: BUS }));
    }

    #[test]
    fn a_client_that_goes_is_fenced_at_once() {
        let windows = Windows::new().unwrap();
        let (map, client) = shared(4096);
        windows.map(map).unwrap();
        stray::watch(windows.bus()).unwrap();
        let held = windows.pointer(BUS);
        windows.fence();
        // SAFETY: the pointer stays valid as long as the windows; the mapping is live.
        unsafe {
            held.as_ptr().write(99);
            assert_eq!(client.base().read(), 0, "a stale write went through");
        }
        assert!(!windows.reaches(BUS, 1, false));
    }

    #[test]
    fn windows_side_by_side_are_one_stretch() {
        let windows = Windows::new().unwrap();
        let (first, a) = shared(4096);
        let (mut second, b) = shared(4096);
        second.address = BUS + 4096;
        second.writable = false;
        windows.map(first).unwrap();
        windows.map(second).unwrap();
        assert!(windows.reaches(BUS, 8192, false));
        assert!(!windows.reaches(BUS, 8192, true));
        // SAFETY: the mappings are live and only this test uses them.
        unsafe {
            a.base().add(4095).write(1);
            b.base().write(2);
        }
        let mut bytes = [0; 2];
        windows.read_bytes(BUS + 4095, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2]);
        windows.unmap(DmaUnmap::Range { address: BUS, size: 8192 });
        assert!(!windows.reaches(BUS, 1, false) && !windows.reaches(BUS + 4096, 1, false));
    }

    #[test]
    fn bounds_rights_and_alignment_hold() {
        let windows = Windows::new().unwrap();
        let (mut map, client) = shared(4096);
        map.writable = false;
        windows.map(map).unwrap();
        assert!(windows.reaches(BUS, 4096, false));
        assert!(!windows.reaches(BUS, 4097, false));
        assert!(!windows.reaches(BUS - 1, 2, false));
        assert!(!windows.reaches(BUS, u64::MAX, false));
        assert!(!windows.reaches(BUS, 1, true));
        assert!(windows.write_bytes(BUS, &[1]).is_err());
        assert!(windows.store(BUS, 1).is_err());
        assert!(windows.load(BUS + 2).is_err());
        assert_eq!(windows.load(BUS), Ok(0));
        stray::watch(windows.bus()).unwrap();
        // SAFETY: the pointer is valid; what is written to a window that is read only stays here.
        unsafe {
            windows.pointer(BUS).as_ptr().write(7);
            assert_eq!(client.base().read(), 0);
        }
    }

    #[test]
    fn files_that_can_be_cut_off_or_are_too_short_are_refused() {
        let windows = Windows::new().unwrap();
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let open = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&open, 4096).unwrap();
        let (mut map, _client) = shared(4096);
        map.fd = Some(open);
        assert_eq!(windows.map(map), Err(Errno::PERM));
        let (mut map, _client) = shared(4096);
        map.size = 8192;
        assert_eq!(windows.map(map), Err(Errno::INVAL));
    }

    #[test]
    fn huge_pages_are_refused_and_windows_and_files_are_bounded() {
        let windows = Windows::new().unwrap();
        let (mut map, _client) = shared(4096);
        let flags = rustix::fs::MemfdFlags::ALLOW_SEALING | rustix::fs::MemfdFlags::HUGETLB;
        let huge = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&huge, 4 << 20).unwrap();
        rustix::fs::fcntl_add_seals(&huge, SealFlags::SHRINK).unwrap();
        map.fd = Some(huge);
        assert_eq!(windows.map(map), Err(Errno::INVAL));
        let (map, _client) = shared(4096);
        let file = map.fd.unwrap();
        let at = |page: u64, file: &OwnedFd| DmaMap {
            address: page * 8192,
            fd: Some(file.try_clone().unwrap()),
            ..map
        };
        for page in 0..u64::from(WINDOWS_MAX) {
            windows.map(at(page, &file)).unwrap();
        }
        assert_eq!(windows.map(at(1 << 20, &file)), Err(Errno::NOSPC));
        // All of them can be taken away, in whatever order.
        for page in (0..u64::from(WINDOWS_MAX)).step_by(2) {
            windows.unmap(DmaUnmap::Range { address: page * 8192, size: 4096 });
        }
        windows.unmap(DmaUnmap::All);
        for page in 0..FILES_MAX as u64 {
            windows.map(at(page, &memory_file("test", 4096).unwrap())).unwrap();
        }
        let one_more = memory_file("test", 4096).unwrap();
        assert_eq!(windows.map(at(1 << 20, &one_more)), Err(Errno::NOSPC));
        windows.unmap(DmaUnmap::Range { address: 0, size: 4096 });
        windows.map(at(1 << 20, &one_more)).unwrap();
    }

    #[test]
    fn what_lies_beyond_the_bus_is_refused() {
        let windows = Windows::new().unwrap();
        let (mut map, _client) = shared(4096);
        map.address = BUS_BYTES;
        assert_eq!(windows.map(map), Err(Errno::RANGE));
        assert!(!windows.reaches(BUS_BYTES, 1, false));
        stray::watch(windows.bus()).unwrap();
        let nowhere = windows.pointer(u64::MAX);
        // SAFETY: the last page of the bus.
        unsafe { nowhere.as_ptr().add(PAGE_SIZE - 1).write(1) };
    }
}
