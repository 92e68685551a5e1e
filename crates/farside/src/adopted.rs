//! Memory that the program had before the space.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;
use farside_live::Lent;
use farside_types::VirtAddr;

use crate::{Error, Space};

/// Memory of the program's own that is shared with the cards while this lives: see [`Space::adopt`].
///
/// It is used like the slice that it was made of. When it is dropped, all of it is at home, and ordinary memory
/// again.
#[derive(Debug)]
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
    /// [`AdoptError::Lost`](crate::AdoptError::Lost): bytes of it were lost with a card, and are zeros;
    /// [`AdoptError::NotAdopted`](crate::AdoptError::NotAdopted): it was given back before, because the program has
    /// moved or unmapped some of it. All others: it is adopted still, for good, and works as before.
    pub fn release(self) -> Result<&'a mut [T], Error> {
        let mut this = ManuallyDrop::new(self);
        let given_back = this.give_back();
        // SAFETY: `this` is not used again: what it owns is taken out of it once.
        let (space, memory, lent) = unsafe {
            (std::ptr::read(&this.space), std::ptr::read(&this.memory), std::ptr::read(&this.lent))
        };
        drop((space, lent));
        given_back.map(|()| memory)
    }

    /// Address of the first value.
    pub fn addr(&self) -> VirtAddr {
        VirtAddr(self.memory.as_ptr() as u64)
    }

    /// The space that it is shared in.
    pub fn space(&self) -> &Space {
        &self.space
    }

    fn give_back(&mut self) -> Result<(), Error> {
        Ok(self.space.runtime().disown(&self.lent)?)
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
        if let Err(error) = self.give_back() {
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
