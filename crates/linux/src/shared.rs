//! Memory that this process shares with the other end of a bus, touched by atomic operations only.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use farside_types::PAGE_SIZE;

use crate::mapping::{Mapping, MemoryError, memory_file};

const WHAT: &str = "farside-shared";

/// From so many bytes on it does not matter which of them go together: nothing so long is a word that
/// anybody waits for.
const BULK_BYTES_MIN: usize = 1024;

/// A mapped file. Reading and writing are bounded by it: `None` beyond its end.
#[derive(Debug)]
pub struct SharedMemory {
    mapping: Mapping,
    bytes: u64,
    file: OwnedFd,
}

impl SharedMemory {
    /// Fresh memory, all zero.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn new(bytes: u64) -> Result<SharedMemory, MemoryError> {
        SharedMemory::of_file(memory_file(WHAT, bytes)?, 0, bytes)
    }

    /// `bytes` bytes of a file, from `offset` on.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn of_file(file: OwnedFd, offset: u64, bytes: u64) -> Result<SharedMemory, MemoryError> {
        let mapping = Mapping::of_part(WHAT, &file, offset, bytes as usize, PAGE_SIZE)?;
        Ok(SharedMemory { mapping, bytes, file })
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Where this process has it.
    pub fn base(&self) -> *mut u8 {
        self.mapping.base()
    }

    /// Where `bytes` bytes at `offset` are, if they are within and aligned.
    fn at(&self, offset: u64, bytes: u64, align: u64) -> Option<*mut u8> {
        let end = offset.checked_add(bytes)?;
        let fits = end <= self.bytes() && offset % align == 0;
        fits.then(|| self.mapping.base().wrapping_add(offset as usize))
    }

    /// Reads bytes; of few, whole words where they are aligned.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        let at = self.at(offset, into.len() as u64, 1)?;
        if into.len() >= BULK_BYTES_MIN {
            // SAFETY: the bytes are within the mapping, and whoever else touches them does so by atomics or
            // is another process; those of `into` are this caller's alone.
            unsafe { copy_bulk(into.as_mut_ptr(), at, into.len()) };
            return Some(());
        }
        if offset % 8 == 0 && into.len() % 8 == 0 {
            for (index, chunk) in into.chunks_exact_mut(8).enumerate() {
                // SAFETY: the word is within the mapping, aligned, and touched by atomics only.
                let word = unsafe { &*at.cast::<AtomicU64>().add(index) };
                chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
            return Some(());
        }
        for (index, byte) in into.iter_mut().enumerate() {
            // SAFETY: as above; a byte is always aligned.
            *byte = unsafe { &*at.add(index).cast::<AtomicU8>() }.load(Ordering::Relaxed);
        }
        Some(())
    }

    /// Writes bytes; of few, whole words where they are aligned.
    pub fn write(&self, offset: u64, from: &[u8]) -> Option<()> {
        let at = self.at(offset, from.len() as u64, 1)?;
        if from.len() >= BULK_BYTES_MIN {
            // SAFETY: as in `read`; nobody changes `from` meanwhile.
            unsafe { copy_bulk(at, from.as_ptr(), from.len()) };
            return Some(());
        }
        if offset % 8 == 0 && from.len() % 8 == 0 {
            for (index, chunk) in from.chunks_exact(8).enumerate() {
                let mut value = [0; 8];
                value.copy_from_slice(chunk);
                // SAFETY: as in `read`.
                let word = unsafe { &*at.cast::<AtomicU64>().add(index) };
                word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
            }
            return Some(());
        }
        for (index, &byte) in from.iter().enumerate() {
            // SAFETY: as in `read`.
            unsafe { &*at.add(index).cast::<AtomicU8>() }.store(byte, Ordering::Relaxed);
        }
        Some(())
    }

    /// Adds to a number of 64 bits, aligned, in this machine's order of bytes; it wraps.
    pub fn add(&self, offset: u64, more: u64) -> Option<()> {
        let at = self.at(offset, 8, 8)?;
        // SAFETY: as in `read`.
        unsafe { &*at.cast::<AtomicU64>() }.fetch_add(more, Ordering::Relaxed);
        Some(())
    }

    /// Reads a word of 32 bits, aligned; acquires.
    pub fn load(&self, offset: u64) -> Option<u32> {
        let at = self.at(offset, 4, 4)?;
        // SAFETY: as in `read`.
        Some(u32::from_le(unsafe { &*at.cast::<AtomicU32>() }.load(Ordering::Acquire)))
    }

    /// Writes a word of 32 bits, aligned; releases.
    pub fn store(&self, offset: u64, value: u32) -> Option<()> {
        let at = self.at(offset, 4, 4)?;
        // SAFETY: as in `read`.
        unsafe { &*at.cast::<AtomicU32>() }.store(value.to_le(), Ordering::Release);
        Some(())
    }
}

/// Copies many bytes of which one side may change at the same time.
///
/// # Safety
/// `bytes` bytes can be read at `from` and written at `to`, and the two do not overlap. Where others touch
/// them meanwhile, they do so by atomics, or are other processes.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_bulk(to: *mut u8, from: *const u8, bytes: usize) {
    // The compiler knows nothing of these accesses but that they happen, so they may race as relaxed ones
    // of single bytes may; the processor makes whole cache lines of them. Those before and behind stay there.
    // SAFETY: the caller's. The direction flag is clear whenever Rust calls.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags)
        );
    }
}

/// The same on other processors, a byte at a time.
///
/// # Safety
/// As there.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_bulk(to: *mut u8, from: *const u8, bytes: usize) {
    for at in 0..bytes {
        // SAFETY: the caller's; a byte is always aligned.
        let (from, to) =
            unsafe { (&*from.add(at).cast::<AtomicU8>(), &*to.add(at).cast::<AtomicU8>()) };
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_bytes_come_out_as_they_went_in_and_their_neighbours_stay() {
        let memory = SharedMemory::new(4 * PAGE_SIZE as u64).unwrap();
        let all = 4 * PAGE_SIZE;
        for (offset, bytes) in [
            (0, all),
            (1, BULK_BYTES_MIN),
            (8, BULK_BYTES_MIN - 8),
            (7, BULK_BYTES_MIN - 1),
            (PAGE_SIZE - 3, PAGE_SIZE + 5),
            (all - 2 * PAGE_SIZE - 1, 2 * PAGE_SIZE + 1),
        ] {
            memory.write(0, &vec![0xff; all]).unwrap();
            let sent: Vec<u8> = (0..bytes).map(|at| (at * 7 % 251) as u8).collect();
            memory.write(offset as u64, &sent).unwrap();
            let mut came = vec![0; all];
            memory.read(0, &mut came).unwrap();
            assert!(came[offset..offset + bytes] == sent, "{bytes} bytes at {offset}");
            let beside = came[..offset].iter().chain(&came[offset + bytes..]);
            assert!(beside.copied().all(|byte| byte == 0xff), "{bytes} bytes at {offset}");
            let mut part = vec![0; bytes];
            memory.read(offset as u64, &mut part).unwrap();
            assert!(part == sent);
        }
        assert_eq!(memory.write(1, &vec![0; all]), None);
        assert_eq!(memory.read(all as u64 - 1, &mut vec![0; BULK_BYTES_MIN]), None);
    }

    #[test]
    fn what_lies_beyond_the_end_or_is_not_aligned_is_refused() {
        let memory = SharedMemory::new(8192).unwrap();
        assert_eq!(memory.write(8190, &[1, 2]), Some(()));
        assert_eq!(memory.write(8190, &[1, 2, 3]), None);
        assert_eq!(memory.read(u64::MAX, &mut [0; 4]), None);
        assert_eq!(memory.load(8190), None);
        assert_eq!(memory.load(8188), Some(0x0201_0000));
        assert_eq!(memory.store(8192, 1), None);
        assert_eq!(memory.store(8, 7), Some(()));
        let mut words = [0; 16];
        assert_eq!(memory.read(0, &mut words), Some(()));
        assert_eq!(words[8..12], [7, 0, 0, 0]);
    }
}
