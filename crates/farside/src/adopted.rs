//! Memory that the program had before the space.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;
use farside_live::Lent;
use farside_types::VirtAddr;

use crate::{AdoptError, Error, LiveError, Space};

/// Memory of the program's own that is shared with the cards while this lives: see [`Space::adopt`].
///
/// It is used like the slice that it was made of. When it is dropped, all of it is at home, and ordinary memory
/// again.
pub struct Adopted<'a, T> {
    space: Space,
    memory: &'a mut [T],
    lent: Lent,
}

impl<'a, T> Adopted<'a, T> {
    /// Gives the memory back: all of it is at home, with what kernels have written. Kernels that still run and
    /// use it fail. It is what dropping does, and says whether it was done.
    ///
    /// # Errors
    /// [`AdoptError::Lost`]: bytes of it were lost with a card, and are zeros; [`AdoptError::NotAdopted`]: it was given
    /// back before, because the program has moved or unmapped some of it. All others: it is adopted still, works as before,
    /// and is in the error, to be tried again ([`NotReleased::into_guard`]).
    pub fn release(self) -> Result<&'a mut [T], NotReleased<'a, T>> {
        match self.space.runtime().disown(&self.lent) {
            Ok(()) => Ok(self.into_memory()),
            Err(error) => {
                let guard = if is_over(&error) {
                    let _ = self.into_memory();
                    None
                } else {
                    Some(Box::new(self))
                };
                Err(NotReleased { error: error.into(), guard })
            }
        }
    }

    /// The memory, which is nobody else's any more.
    fn into_memory(self) -> &'a mut [T] {
        let mut this = ManuallyDrop::new(self);
        let memory: *mut [T] = &mut *this.memory;
        // SAFETY: `this` is not used again, so what it owns is dropped here once.
        unsafe {
            std::ptr::drop_in_place(&mut this.space);
            std::ptr::drop_in_place(&mut this.lent);
        }
        // SAFETY: it was lent for `'a`, and the guard that had it is gone.
        unsafe { &mut *memory }
    }

    /// Address of the first value.
    pub fn addr(&self) -> VirtAddr {
        VirtAddr(self.memory.as_ptr() as u64)
    }

    /// The space that it is shared in.
    pub fn space(&self) -> &Space {
        &self.space
    }
}

/// Whether there is nothing left to give back.
pub(crate) fn is_over(error: &LiveError) -> bool {
    matches!(error, LiveError::Adopt(AdoptError::Lost { .. } | AdoptError::NotAdopted { .. }))
}

/// Memory was not given back, or not whole: see [`Adopted::release`].
pub struct NotReleased<'a, T> {
    error: Error,
    guard: Option<Box<Adopted<'a, T>>>,
}

impl<'a, T> NotReleased<'a, T> {
    /// Why.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The memory, if it is adopted still: it can be used, and given back again.
    pub fn into_guard(self) -> Option<Adopted<'a, T>> {
        self.guard.map(|guard| *guard)
    }
}

impl<T> fmt::Debug for Adopted<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (addr, bytes) = (self.addr(), size_of_val::<[T]>(self.memory));
        f.debug_struct("Adopted").field("addr", &addr).field("bytes", &bytes).finish()
    }
}

impl<T> fmt::Debug for NotReleased<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NotReleased").field(&self.error).finish()
    }
}

impl<T> fmt::Display for NotReleased<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> std::error::Error for NotReleased<'_, T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl<T> From<NotReleased<'_, T>> for Error {
    /// If it is adopted still, it is tried once more.
    fn from(not_released: NotReleased<'_, T>) -> Error {
        not_released.error
    }
}

impl<T> Deref for Adopted<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.memory
    }
}

impl<T> DerefMut for Adopted<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.memory
    }
}

impl<T> Drop for Adopted<'_, T> {
    fn drop(&mut self) {
        if self.space.runtime().check_process().is_err() {
            // A child made by fork has a copy of its own.
            return;
        }
        if let Err(error) = self.space.runtime().disown(&self.lent) {
            tracing::error!(%error, "adopted memory was not given back whole");
        }
    }
}

impl Space {
    /// Shares memory that the program has already: a `Vec`, an array of another library, anything that is private and
    /// anonymous. Its pages move to cards and back as those of a [`Buffer`](crate::Buffer) do, at the addresses that they
    /// have, until what this gives is dropped.
    ///
    /// ```
    /// # use farside::{Space, Write};
    /// # fn main() -> Result<(), farside::Error> {
    /// let space = Space::builder().build()?;
    /// let mut values = vec![1u64; 100_000];
    /// let mut shared = space.adopt(&mut values, "values")?;
    /// space.kernel("farside.increment").call(Write(&mut shared))?;
    /// assert_eq!(shared[99_999], 2);
    /// shared.release()?;
    /// assert!(values.iter().all(|&value| value == 2));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Pages at the edges that hold other data as well do not move: kernels reach them on the host, and nothing but
    /// the bytes that were lent. `docs/programming.md` says what holds for fork, mremap, madvise and devices.
    ///
    /// # Errors
    /// [`AdoptError`](crate::AdoptError) says what the memory, a card or the kernel lacks;
    /// [`RequestError::InTheSpace`](crate::RequestError::InTheSpace) if it is shared already.
    pub fn adopt<'a, T: Pod>(
        &self,
        memory: &'a mut [T],
        name: &str,
    ) -> Result<Adopted<'a, T>, Error> {
        let addr = VirtAddr(memory.as_ptr() as u64);
        let bytes = size_of_val::<[T]>(memory) as u64;
        // SAFETY: the memory is borrowed as long as it is shared. Whoever forgets the guard and frees it has memory
        // that works as memory does: its pages come when they are touched, whoever has them.
        let lent = unsafe { self.runtime().adopt(addr, bytes, name) }?;
        Ok(Adopted { space: self.clone(), memory, lent })
    }
}
