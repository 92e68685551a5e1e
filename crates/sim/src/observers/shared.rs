//! An observer that the machine and its owner hold together.

use std::sync::{Arc, Mutex, PoisonError};

use farside_types::{Span, Time};

use crate::observe::{BufferPages, Observation, Observer, Sample};

/// A handle on an observer: one clone goes to the machine, another reads the result afterwards.
#[derive(Debug, Default)]
pub struct Shared<O>(Arc<Mutex<O>>);

impl<O> Shared<O> {
    /// Puts an observer behind handles.
    pub fn new(observer: O) -> Shared<O> {
        Shared(Arc::new(Mutex::new(observer)))
    }

    /// Does something with the observer.
    pub fn with<T>(&self, work: impl FnOnce(&mut O) -> T) -> T {
        // An observer that panicked ended the run; what it has seen before is still of use.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The observer itself, if this is the last handle; the handle otherwise.
    ///
    /// # Errors
    /// The handle: the machine, or somebody else, still has one.
    pub fn into_inner(self) -> Result<O, Shared<O>> {
        let observer = Arc::try_unwrap(self.0).map_err(Shared)?;
        Ok(observer.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<O> Clone for Shared<O> {
    fn clone(&self) -> Shared<O> {
        Shared(Arc::clone(&self.0))
    }
}

impl<O: Observer> Observer for Shared<O> {
    fn observe(&mut self, now: Time, what: &Observation) {
        self.with(|observer| observer.observe(now, what));
    }

    fn start(&mut self, buffers: &[BufferPages]) {
        self.with(|observer| observer.start(buffers));
    }

    fn sample_every(&self) -> Option<Span> {
        self.with(|observer| observer.sample_every())
    }

    fn sample(&mut self, now: Time, counted: &Sample<'_>) {
        self.with(|observer| observer.sample(now, counted));
    }
}
