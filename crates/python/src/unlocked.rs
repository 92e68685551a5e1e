//! What is dropped without the interpreter's lock.

use std::mem::ManuallyDrop;
use std::ops::Deref;

use pyo3::prelude::*;

/// Something whose end may wait for a card: for one that is slow, or for a kernel that wants the interpreter's lock itself.
/// Python drops it under that lock, which is let go meanwhile.
pub(crate) struct Unlocked<T: Send>(ManuallyDrop<T>);

impl<T: Send> Unlocked<T> {
    pub(crate) fn new(value: T) -> Unlocked<T> {
        Unlocked(ManuallyDrop::new(value))
    }
}

impl<T: Send> Deref for Unlocked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send> Drop for Unlocked<T> {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more, and this is done once.
        let mut value = Some(unsafe { ManuallyDrop::take(&mut self.0) });
        // At the interpreter's end there is no lock to be had, and none is held.
        let _ = Python::try_attach(|py| {
            let value = value.take();
            py.detach(move || drop(value));
        });
    }
}
