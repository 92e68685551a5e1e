//! A client's memory as its function reaches it: windows of bus addresses onto shared files.
//!
//! What a client takes away, or leaves behind when it goes, is replaced by fresh memory that nobody
//! else has. Whoever still holds a pointer then writes to nowhere: this is the fence that keeps a
//! kernel that hangs from touching the memory of a program that has gone on.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use farside_card::BusError;
use farside_types::PAGE_SIZE;
use farside_vfio_user::{DmaMap, DmaUnmap, Errno};
use rustix::fs::SealFlags;

use crate::mapping::{Mapping, MemoryError};

const WHAT: &str = "farside-window";

/// Bytes of the memory that pointers lead to which no window covers any more.
const NOWHERE_BYTES: usize = 1 << 30;

/// Windows that were taken away while the card was at work, at most.
const RETIRED_MAX: usize = 4096;

/// One window.
#[derive(Debug)]
pub(super) struct Window {
    mapping: Mapping,
    writable: bool,
}

/// All windows of a client.
#[derive(Debug)]
pub(super) struct Windows {
    live: RwLock<Live>,
    nowhere: Mapping,
}

#[derive(Debug, Default)]
struct Live {
    /// By first bus address.
    windows: BTreeMap<u64, Arc<Window>>,
    /// Taken away, but pointers into them may still be in use.
    retired: Vec<Arc<Window>>,
}

impl Windows {
    pub(super) fn new() -> Result<Windows, MemoryError> {
        Ok(Windows { live: RwLock::default(), nowhere: Mapping::anonymous(WHAT, NOWHERE_BYTES)? })
    }

    /// Adds a window. One without a descriptor is not reachable: this card sends no DMA messages.
    pub(super) fn map(&self, map: DmaMap) -> Result<(), Errno> {
        let Some(file) = map.fd else { return Ok(()) };
        check_file(&file, map.offset, map.size)?;
        let page = PAGE_SIZE as u64;
        if map.address % page != 0 || map.size % page != 0 || map.offset % page != 0 {
            return Err(Errno::INVAL);
        }
        let bytes = usize::try_from(map.size).map_err(|_| Errno::NOMEM)?;
        let mapping = if map.writable {
            Mapping::of_part(WHAT, file.as_fd(), map.offset, bytes, PAGE_SIZE)
        } else {
            Mapping::private(WHAT, file.as_fd(), map.offset, bytes)
        };
        let mapping = mapping.map_err(|error| {
            tracing::error!(%error, "a client's memory cannot be mapped");
            Errno::NOMEM
        })?;
        let window = Arc::new(Window { mapping, writable: map.writable });
        self.write().windows.insert(map.address, window);
        Ok(())
    }

    /// Takes windows away. When this returns nothing reaches the client's memory through them any
    /// more. `idle`: nothing is at work, so that no pointer into them is in use either.
    pub(super) fn unmap(&self, unmap: DmaUnmap, idle: bool) -> Result<(), Errno> {
        let mut live = self.write();
        if idle {
            live.retired.clear();
        }
        if live.retired.len() >= RETIRED_MAX {
            return Err(Errno::BUSY);
        }
        let gone: Vec<Arc<Window>> = match unmap {
            DmaUnmap::Range { address, .. } => live.windows.remove(&address).into_iter().collect(),
            DmaUnmap::All => std::mem::take(&mut live.windows).into_values().collect(),
        };
        for window in gone {
            window.fence();
            if !idle {
                live.retired.push(window);
            }
        }
        Ok(())
    }

    /// Fences everything: the client is gone.
    pub(super) fn fence(&self) {
        // Not idle, for all that is known: what hangs may hold pointers until the end.
        let live = self.read();
        live.windows.values().for_each(|window| window.fence());
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Live> {
        self.live.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Live> {
        self.live.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on the window that covers `bytes` bytes from `address` on.
    fn find<T>(
        &self,
        address: u64,
        bytes: u64,
        body: impl FnOnce(&Arc<Window>, usize) -> T,
    ) -> Option<T> {
        let live = self.read();
        let (&start, window) = live.windows.range(..=address).next_back()?;
        let offset = address - start;
        let end = offset.checked_add(bytes)?;
        (end <= window.mapping.bytes() as u64).then(|| body(window, offset as usize))
    }

    /// Whether all of these bytes can be reached, for writing if `write`.
    pub(super) fn reaches(&self, address: u64, bytes: u64, write: bool) -> bool {
        self.find(address, bytes, |window, _| window.writable || !write).unwrap_or(false)
    }

    /// Where bus addresses are in this process. What no window covers is nowhere: memory that
    /// nobody else sees. Stays valid as long as `self`.
    pub(super) fn pointer(&self, address: u64, bytes: u64) -> NonNull<u8> {
        let found =
            self.find(address, bytes, |window, offset| window.mapping.base().wrapping_add(offset));
        let base = found.unwrap_or_else(|| self.nowhere.base());
        NonNull::new(base).expect("a mapping is not at address 0")
    }

    /// The window, and the byte in it, so that it stays while the caller uses it.
    pub(super) fn hold(
        &self,
        address: u64,
        bytes: u64,
        write: bool,
    ) -> Option<(Arc<Window>, usize)> {
        let held = self.find(address, bytes, |window, offset| (Arc::clone(window), offset))?;
        (held.0.writable || !write).then_some(held)
    }

    /// Reads bytes that the client may change at the same time.
    pub(super) fn read_bytes(&self, address: u64, into: &mut [u8]) -> Result<(), BusError> {
        let bytes = into.len() as u64;
        self.find(address, bytes, |window, offset| window.load_bytes(offset, into))
            .ok_or(BusError { address })
    }

    /// Writes bytes that the client may read or change at the same time.
    pub(super) fn write_bytes(&self, address: u64, from: &[u8]) -> Result<(), BusError> {
        let bytes = from.len() as u64;
        self.find(address, bytes, |window, offset| {
            window.writable.then(|| window.store_bytes(offset, from))
        })
        .flatten()
        .ok_or(BusError { address })
    }

    /// Reads a word, acquiring.
    pub(super) fn load(&self, address: u64) -> Result<u32, BusError> {
        if address % 4 != 0 {
            return Err(BusError { address });
        }
        self.find(address, 4, |window, offset| window.word32(offset).load(Ordering::Acquire))
            .ok_or(BusError { address })
    }

    /// Writes a word, releasing.
    pub(super) fn store(&self, address: u64, value: u32) -> Result<(), BusError> {
        if address % 4 != 0 {
            return Err(BusError { address });
        }
        self.find(address, 4, |window, offset| {
            let word = window.writable.then(|| window.word32(offset))?;
            word.store(value, Ordering::Release);
            Some(())
        })
        .flatten()
        .ok_or(BusError { address })
    }
}

impl Window {
    /// Where it begins in this process.
    pub(super) fn base(&self) -> *mut u8 {
        self.mapping.base()
    }

    fn fence(&self) {
        if let Err(error) = self.mapping.replace(WHAT, None) {
            // The old memory stays reachable for what hangs: better no card than a card that may
            // write to a program that has gone on.
            tracing::error!(%error, "a window cannot be fenced; aborting");
            std::process::abort();
        }
    }

    fn word32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the callers have checked that the word lies in the mapping, which lives as long
        // as `self`; window and offset are aligned. Other processes use it by whatever means, this
        // one by atomics and raw copies only.
        unsafe { &*self.base().add(offset).cast::<AtomicU32>() }
    }

    fn byte(&self, offset: usize) -> &AtomicU8 {
        // SAFETY: as in `word32`.
        unsafe { &*self.base().add(offset).cast::<AtomicU8>() }
    }

    fn word64(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as in `word32`.
        unsafe { &*self.base().add(offset).cast::<AtomicU64>() }
    }

    fn load_bytes(&self, offset: usize, into: &mut [u8]) {
        if offset % 8 == 0 && into.len() % 8 == 0 {
            for (chunk, at) in into.chunks_exact_mut(8).zip((offset..).step_by(8)) {
                chunk.copy_from_slice(&self.word64(at).load(Ordering::Relaxed).to_ne_bytes());
            }
            return;
        }
        for (byte, at) in into.iter_mut().zip(offset..) {
            *byte = self.byte(at).load(Ordering::Relaxed);
        }
    }

    fn store_bytes(&self, offset: usize, from: &[u8]) {
        if offset % 8 == 0 && from.len() % 8 == 0 {
            for (chunk, at) in from.chunks_exact(8).zip((offset..).step_by(8)) {
                let mut word = [0; 8];
                word.copy_from_slice(chunk);
                self.word64(at).store(u64::from_ne_bytes(word), Ordering::Relaxed);
            }
            return;
        }
        for (byte, at) in from.iter().zip(offset..) {
            self.byte(at).store(*byte, Ordering::Relaxed);
        }
    }
}

/// A file that its owner can cut off would end this process, and with it all other clients, with
/// SIGBUS. So it must be a memory file whose size is sealed, and long enough.
fn check_file(file: impl AsFd, offset: u64, bytes: u64) -> Result<(), Errno> {
    let seals = rustix::fs::fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
    if !seals.contains(SealFlags::SHRINK) {
        tracing::error!(
            "a client shares a file that can be cut off; seal it against shrinking (F_SEAL_SHRINK)"
        );
        return Err(Errno::PERM);
    }
    let size = rustix::fs::fstat(&file).map(|stat| stat.st_size as u64).unwrap_or(0);
    let fits = offset.checked_add(bytes).is_some_and(|end| end <= size);
    if fits { Ok(()) } else { Err(Errno::INVAL) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::memory_file;

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
        let held = windows.pointer(BUS, 4096);
        windows.unmap(DmaUnmap::Range { address: BUS, size: 8192 }, false).unwrap();
        // SAFETY: the pointer stays valid as long as the windows.
        unsafe { held.as_ptr().write(99) };
        // SAFETY: as above.
        assert_eq!(unsafe { client.base().read() }, 0, "a stale write went through");
        assert!(!windows.reaches(BUS, 1, false));
        assert_eq!(windows.load(BUS), Err(BusError { address: BUS }));
    }

    #[test]
    fn bounds_rights_and_alignment_hold() {
        let windows = Windows::new().unwrap();
        let (mut map, _client) = shared(4096);
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
}
