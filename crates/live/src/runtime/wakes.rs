//! Tasks that are woken. What a waker does is the program's business: it may take locks, free buffers, touch
//! shared memory. So none is called by a thread that works for the driver; a thread of its own does it, which
//! is there from the first task that waits.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use farside_linux::lock::lock;
use farside_linux::signals::{BlockedSignals, block_for_whole_thread};

use super::Runtime;
use crate::error::LiveError;

/// Sends a waker to the thread that calls it.
#[derive(Debug)]
struct Elsewhere {
    waker: Mutex<Option<Waker>>,
    caller: Sender<Waker>,
}

impl Wake for Elsewhere {
    fn wake(self: Arc<Self>) {
        let waker = lock(&self.waker).take();
        if let Some(waker) = waker {
            // It is gone with the runtime, of which nobody waits for anything then.
            let _ = self.caller.send(waker);
        }
    }
}

impl Runtime {
    /// A waker that has `waker` called by a thread that is there for that.
    ///
    /// # Errors
    /// [`LiveError::Thread`].
    pub fn wakes_elsewhere(&self, waker: &Waker) -> Result<Waker, LiveError> {
        let waker = Mutex::new(Some(waker.clone()));
        Ok(Arc::new(Elsewhere { waker, caller: self.caller()? }).into())
    }

    fn caller(&self) -> Result<Sender<Waker>, LiveError> {
        let _signals = BlockedSignals::block();
        let mut caller = lock(&self.caller);
        if let Some(caller) = &*caller {
            return Ok(caller.clone());
        }
        let (sender, wakers) = channel::<Waker>();
        let body = move || {
            block_for_whole_thread();
            wakers.into_iter().for_each(Waker::wake);
        };
        let builder = std::thread::Builder::new().name("farside-wakes".to_owned());
        builder.spawn(body).map_err(LiveError::Thread)?;
        Ok(caller.insert(sender).clone())
    }
}
