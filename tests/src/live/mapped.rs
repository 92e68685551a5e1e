//! Memory by mmap, for tests of what a program may do to it.

use std::ptr::NonNull;

/// Bytes of a page.
const PAGE: usize = 4096;

/// Private anonymous memory of whole pages.
#[derive(Debug)]
pub struct Mapped {
    start: NonNull<u64>,
    pages: usize,
}

impl Mapped {
    /// So many pages, of which none was touched, at a multiple of `align` bytes.
    ///
    /// # Panics
    /// If there is no memory.
    pub fn new(pages: usize, align: usize) -> Mapped {
        let room = pages * PAGE + align;
        let (read_write, private) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping where the kernel likes touches nothing.
        let all = unsafe { libc::mmap(std::ptr::null_mut(), room, read_write, private, -1, 0) };
        assert_ne!(all, libc::MAP_FAILED);
        let skip = all.cast::<u8>().align_offset(align);
        let start = all.cast::<u8>().wrapping_add(skip);
        // SAFETY: both are parts of the mapping just made, which nobody knows.
        unsafe {
            if skip > 0 {
                libc::munmap(all, skip);
            }
            libc::munmap(start.wrapping_add(pages * PAGE).cast(), align - skip);
        }
        Mapped { start: NonNull::new(start.cast()).expect("not null"), pages }
    }

    /// Where it begins.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr().cast()
    }

    /// Where a page begins.
    pub fn page(&self, page: usize) -> *mut u8 {
        self.start().wrapping_add(page * PAGE)
    }

    /// Its words; the caller says for how long nobody else writes them.
    ///
    /// # Safety
    /// As of a slice that is made of a pointer.
    pub unsafe fn words<'a>(&self) -> &'a mut [u64] {
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.pages * PAGE / 8) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's; parts of it may be gone, and are nobody's then.
        unsafe { libc::munmap(self.start().cast(), self.pages * PAGE) };
    }
}
