//! Typed shared memory.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use farside_softcard::Word;
use farside_svm::Request;
use farside_types::VirtAddr;

use crate::Space;

/// Memory that host and cards share: a slice at the same address everywhere. Zero at first. Given
/// back when dropped.
///
/// On the host it is used like any slice; pages that are on a card come back when they are touched.
#[derive(Debug)]
pub struct Buffer<T> {
    space: Space,
    start: NonNull<T>,
    len: usize,
}

// SAFETY: the buffer owns its memory as a `Vec` does; sharing and sending it is sharing and sending
// its values.
unsafe impl<T: Send> Send for Buffer<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Buffer<T> {}

impl<T> Buffer<T> {
    /// A buffer over memory of the space.
    ///
    /// # Safety
    /// `start` is the first byte of an allocation of `space` with room for `len` values, which
    /// nothing else uses; zeros are a valid `T`.
    pub(crate) unsafe fn over(space: Space, start: VirtAddr, len: usize) -> Buffer<T> {
        let start = NonNull::new(start.0 as *mut T).unwrap_or(NonNull::dangling());
        Buffer { space, start, len }
    }

    /// Address of the first value.
    pub fn addr(&self) -> VirtAddr {
        VirtAddr(self.start.as_ptr() as u64)
    }
}

impl<W: Word> Buffer<W> {
    /// The values of atomic words as plain memory, while nobody else has them: to be read, written,
    /// or lent to a kernel by [`Read`](crate::Read) or [`Write`](crate::Write), which makes slices of
    /// them.
    ///
    /// ```
    /// # use std::sync::atomic::AtomicU64;
    /// # use farside::{Read, Shared, Space};
    /// # fn main() -> Result<(), farside::Error> {
    /// # let space = Space::builder().build()?;
    /// let mut bins = space.alloc_atomic::<AtomicU64>(256, "bins")?;
    /// let text = space.alloc::<u8>(1000)?;
    /// space.kernel("farside.histogram").call((Read(&text), Shared(&bins)))?;
    /// assert_eq!(space.kernel("farside.sum").call(Read(bins.values()))?, 1000);
    /// # Ok(())
    /// # }
    /// ```
    pub fn values(&mut self) -> &mut [W::Value] {
        // SAFETY: a word is an atomic integer, which has the size, the alignment and the bytes of its
        // value; `self` is borrowed exclusively, so nobody else changes them meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.len) }
    }
}

impl<T> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the allocation holds `len` values, zero or written since, and lives as long as
        // `self`. Kernels that write to it hold an exclusive borrow.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        // In a child made by fork there is nothing to free; otherwise a failure means that a card
        // does not let the pages go, which the report names.
        let _ = self.space.runtime().request(Request::Free { addr: self.addr() });
    }
}

impl<'a, T> IntoIterator for &'a Buffer<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
