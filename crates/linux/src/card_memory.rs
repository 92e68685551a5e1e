//! A card's memory: frames in a memory file, which stands for the card's BAR2.
//!
//! Owns the file, its mapping and the copies between runs of pages. Which frame holds which page
//! is the driver's knowledge.

use core::ptr::{self, NonNull};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use farside_types::{BLOCK_SIZE, FrameNo, PAGE_SIZE};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::Advice;

use crate::lock::lock;
use crate::mapping::{Mapping, MemoryError, memory_file};

/// Frames in a row that are made zero by writing, at most: 2 MiB.
const WRITTEN_ZEROS: u32 = 512;
/// Frames that [`CardMemory::warm`] makes ready per system call: 4 MiB, about a millisecond.
pub const WARM_CHUNK_FRAMES: u32 = 1024;

const WHAT: &str = "farside-card-memory";

/// An operation on a card's memory failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CardMemoryError {
    /// The frames are not all in this memory.
    #[error("{count} frames from {first:?} on are beyond a card memory of {frames} frames")]
    Bounds {
        /// First frame asked for.
        first: FrameNo,
        /// How many.
        count: u32,
        /// How many there are.
        frames: u32,
    },
    /// The memory could not be had.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// See the module.
#[derive(Debug)]
pub struct CardMemory {
    mapping: Mapping,
    /// What is mapped, and where in it the memory begins. Changes when a card comes back.
    file: Mutex<(Arc<OwnedFd>, u64)>,
    frames: u32,
}

impl CardMemory {
    /// A memory of `frames` frames, at least one, all zero. Host memory is taken frame by frame
    /// as they are used; see [`CardMemory::warm`].
    ///
    /// # Errors
    /// [`CardMemoryError::Memory`].
    pub fn new(frames: u32) -> Result<CardMemory, CardMemoryError> {
        CardMemory::over(CardMemory::file_of(frames)?, 0, frames)
    }

    /// The file of a memory as [`CardMemory::new`] makes it, without its mapping.
    ///
    /// # Errors
    /// [`CardMemoryError::Memory`].
    pub fn file_of(frames: u32) -> Result<OwnedFd, CardMemoryError> {
        let bytes = u64::from(frames) * PAGE_SIZE as u64;
        if frames == 0 {
            return Err(MemoryError::Size { what: WHAT, bytes, multiple: PAGE_SIZE as u64 }.into());
        }
        Ok(memory_file(WHAT, bytes)?)
    }

    /// The memory of a card elsewhere: `frames` frames of a file, from `offset` on.
    ///
    /// # Errors
    /// [`CardMemoryError::Memory`].
    pub fn over(file: OwnedFd, offset: u64, frames: u32) -> Result<CardMemory, CardMemoryError> {
        let bytes = frames as usize * PAGE_SIZE;
        let mapping = Mapping::of_part(WHAT, &file, offset, bytes, BLOCK_SIZE)?;
        Ok(CardMemory { mapping, file: Mutex::new((Arc::new(file), offset)), frames })
    }

    /// Puts another file's memory in the place of this one's: the card has come back with fresh
    /// memory. Pointers stay valid.
    ///
    /// # Errors
    /// [`CardMemoryError::Memory`].
    pub fn replace(&self, file: OwnedFd, offset: u64) -> Result<(), CardMemoryError> {
        self.mapping.replace(WHAT, file.as_fd(), offset)?;
        *lock(&self.file) = (Arc::new(file), offset);
        Ok(())
    }

    /// Lets go of the file, and puts empty memory in its place that nobody else has. Pointers stay
    /// valid.
    ///
    /// # Errors
    /// [`CardMemoryError::Memory`].
    pub fn put_away(&self) -> Result<(), CardMemoryError> {
        self.replace(memory_file(WHAT, u64::from(self.frames) * PAGE_SIZE as u64)?, 0)
    }

    /// Has core dumps hold this memory, all of it, until it is replaced.
    ///
    /// # Errors
    /// [`CardMemoryError::Memory`].
    pub fn dump(&self) -> Result<(), CardMemoryError> {
        Ok(self.mapping.dump(WHAT, true)?)
    }

    /// Number of frames.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// The file, and where in it the first frame is.
    pub fn file(&self) -> (Arc<OwnedFd>, u64) {
        lock(&self.file).clone()
    }

    /// Where the first frame is. Lives as long as this memory; frames follow one another.
    pub fn base(&self) -> *mut u8 {
        self.mapping.base()
    }

    /// Where the `count` frames from `first` on are, contiguous. Lives as long as this memory.
    /// Whoever dereferences it must hold the frames as the driver's rules say.
    ///
    /// # Errors
    /// [`CardMemoryError::Bounds`].
    pub fn run_ptr(&self, first: FrameNo, count: u32) -> Result<NonNull<u8>, CardMemoryError> {
        let bounds = CardMemoryError::Bounds { first, count, frames: self.frames };
        let inside = first.0.checked_add(count).is_some_and(|end| end <= self.frames);
        if !inside {
            return Err(bounds);
        }
        NonNull::new(self.mapping.base().wrapping_add(first.byte_offset())).ok_or(bounds)
    }

    /// Gets host memory for the frames now, in chunks, so that later copies do not pay for it
    /// (a first write to cold memory is ten times slower). Keeps the contents.
    ///
    /// # Errors
    /// [`CardMemoryError::Bounds`], [`CardMemoryError::Memory`] where memory has run out; the
    /// frames before are warm.
    pub fn warm(&self, first: FrameNo, count: u32) -> Result<(), CardMemoryError> {
        self.run_ptr(first, count)?;
        let mut done = 0;
        while done < count {
            let chunk = (count - done).min(WARM_CHUNK_FRAMES);
            self.warm_chunk(first.offset(done), chunk)?;
            done += chunk;
        }
        Ok(())
    }

    /// Makes frames zero. What is large gives its memory back to the system, if it can: by the mapping, as whoever calls may use
    /// no files. What is not is likely to be wanted again soon, and has its memory then.
    ///
    /// # Errors
    /// [`CardMemoryError::Bounds`].
    ///
    /// # Safety
    /// Nobody has a reference to what is in the frames until this returns.
    pub unsafe fn zero(&self, first: FrameNo, count: u32) -> Result<(), CardMemoryError> {
        let start = self.run_ptr(first, count)?.as_ptr();
        if count > WRITTEN_ZEROS {
            let bytes = count as usize * PAGE_SIZE;
            // SAFETY: the range is within the mapping (checked), which is shared memory; the caller gives up what is there.
            let removed = unsafe { rustix::mm::madvise(start.cast(), bytes, Advice::LinuxRemove) };
            if removed.is_ok() {
                return Ok(());
            }
        }
        // SAFETY: the frames are valid (checked), and the caller says that they are nobody's.
        unsafe { zero_pages(start, count as usize) };
        Ok(())
    }

    fn warm_chunk(&self, first: FrameNo, count: u32) -> Result<(), CardMemoryError> {
        let start = self.run_ptr(first, count)?;
        let bytes = count as usize * PAGE_SIZE;
        loop {
            // SAFETY: the range is within the mapping (checked); populating keeps its contents.
            let outcome = unsafe {
                rustix::mm::madvise(start.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite)
            };
            match outcome {
                Ok(()) => return Ok(()),
                Err(Errno::INTR | Errno::AGAIN) => {}
                // Before Linux 5.14: memory in the file is most of the cost, mapping it the rest.
                Err(Errno::INVAL) => {
                    return self.allocate(first, count);
                }
                Err(errno) => return Err(failure("madvise(POPULATE_WRITE)", count, errno)),
            }
        }
    }

    fn allocate(&self, first: FrameNo, count: u32) -> Result<(), CardMemoryError> {
        let bytes = u64::from(count) * PAGE_SIZE as u64;
        let (file, offset) = self.file();
        let start = offset + first.byte_offset() as u64;
        loop {
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), start, bytes) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failure("fallocate", count, errno)),
            }
        }
    }
}

fn failure(call: &'static str, count: u32, errno: Errno) -> CardMemoryError {
    let bytes = u64::from(count) * PAGE_SIZE as u64;
    MemoryError::Call { call, what: WHAT, bytes, errno }.into()
}

/// Copies `pages` pages between mappings of arenas and card memories.
///
/// # Safety
/// Both ends are valid for that many pages and do not overlap. Nobody writes to either end, or
/// reads the destination, until it returns: the driver's "stop writers → copy".
pub unsafe fn copy_pages(from: *const u8, to: *mut u8, pages: usize) {
    // SAFETY: passed on to the caller.
    unsafe { ptr::copy_nonoverlapping(from, to, pages * PAGE_SIZE) }
}

/// Copies `pages` pages past the caches: for so many that they would not stay there anyway. Writing a
/// line in this way does not read it first.
///
/// # Safety
/// As [`copy_pages`]; both ends begin at a page.
pub unsafe fn stream_pages(from: *const u8, to: *mut u8, pages: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: passed on to the caller; every x86-64 processor has these instructions.
    unsafe {
        use core::arch::x86_64::{__m128i, _mm_load_si128, _mm_sfence, _mm_stream_si128};
        let words = pages * PAGE_SIZE / size_of::<__m128i>();
        let (from, to) = (from.cast::<__m128i>(), to.cast::<__m128i>());
        for line in (0..words).step_by(4) {
            let source = [0, 1, 2, 3].map(|word| _mm_load_si128(from.add(line + word)));
            for (word, value) in source.into_iter().enumerate() {
                _mm_stream_si128(to.add(line + word), value);
            }
        }
        // What is told of the copy afterwards is told after its bytes.
        _mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: passed on to the caller.
    unsafe {
        copy_pages(from, to, pages);
    }
}

/// Fills `pages` pages with zeros.
///
/// # Safety
/// The destination is valid for that many pages, and nobody else accesses it until it returns.
pub unsafe fn zero_pages(to: *mut u8, pages: usize) {
    // SAFETY: passed on to the caller.
    unsafe { ptr::write_bytes(to, 0, pages * PAGE_SIZE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_follow_one_another_and_bounds_hold() {
        let memory = CardMemory::new(8).unwrap();
        let first = memory.run_ptr(FrameNo(0), 8).unwrap();
        let third = memory.run_ptr(FrameNo(2), 6).unwrap();
        assert_eq!(third.as_ptr() as usize - first.as_ptr() as usize, 2 * PAGE_SIZE);
        for (frame, count) in [(0, 9), (8, 1), (u32::MAX, 1), (1, u32::MAX)] {
            let error = memory.run_ptr(FrameNo(frame), count).unwrap_err();
            assert!(matches!(error, CardMemoryError::Bounds { .. }), "{frame}+{count}");
        }
        assert!(memory.warm(FrameNo(4), 5).is_err());
        assert!(matches!(CardMemory::new(0), Err(CardMemoryError::Memory(_))));
    }

    #[test]
    fn warming_keeps_contents_and_zeros_are_written_or_fresh() {
        let memory = CardMemory::new(2 * WARM_CHUNK_FRAMES + 3).unwrap();
        let last = FrameNo(memory.frames() - 1);
        let pointer = memory.run_ptr(last, 1).unwrap().as_ptr();
        // SAFETY: the memory is live and only this test uses it.
        unsafe {
            pointer.write(9);
            memory.warm(FrameNo(0), memory.frames()).unwrap();
            assert_eq!(pointer.read(), 9);
            memory.zero(last, 1).unwrap();
            assert_eq!(pointer.read(), 0);
            pointer.write(9);
            memory.zero(last, 0).unwrap();
            assert_eq!(pointer.read(), 9);
            memory.zero(FrameNo(0), memory.frames()).unwrap();
            assert_eq!(pointer.read(), 0);
            assert!(memory.zero(last, 2).is_err() && memory.zero(FrameNo(1), u32::MAX).is_err());
        }
    }

    #[test]
    fn memory_that_is_put_away_lets_go_of_its_file_and_is_empty() {
        let memory = CardMemory::new(3).unwrap();
        let file = Arc::downgrade(&memory.file().0);
        let pointer = memory.run_ptr(FrameNo(2), 1).unwrap().as_ptr();
        // SAFETY: the memory is live and only this test uses it.
        unsafe {
            pointer.write(9);
            memory.put_away().unwrap();
            assert_eq!(pointer.read(), 0);
            pointer.write(1);
        }
        assert!(file.upgrade().is_none());
        let (_, offset) = memory.file();
        assert_eq!(offset, 0);
    }

    #[test]
    fn copies_and_fills_move_whole_pages() {
        let memory = CardMemory::new(4).unwrap();
        let at = |frame| memory.run_ptr(FrameNo(frame), 1).unwrap().as_ptr();
        // SAFETY: frames 0 and 2 are distinct, live and used by this test alone.
        unsafe {
            at(0).write_bytes(0x5a, PAGE_SIZE);
            copy_pages(at(0), at(2), 1);
            assert_eq!(at(2).add(PAGE_SIZE - 1).read(), 0x5a);
            assert_eq!(at(3).read(), 0);
            at(0).add(17).write(1);
            stream_pages(at(0), at(2), 1);
            let copy = std::slice::from_raw_parts(at(2), PAGE_SIZE);
            assert_eq!(copy, std::slice::from_raw_parts(at(0), PAGE_SIZE));
            assert_eq!(at(3).read(), 0);
            zero_pages(at(2), 1);
            assert_eq!(at(2).add(PAGE_SIZE - 1).read(), 0);
        }
    }
}
