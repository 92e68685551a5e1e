//! Moves of memory that the program does not wait for.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use farside_live::{LiveError, Move, MoveError, Predecessor};
use farside_svm::Request;
use farside_types::PageRange;

use crate::{Error, Precedes, Space};

/// A move that is about to be started: see [`Space::migrate_async`].
#[derive(Debug)]
#[must_use = "nothing moves before `start`"]
pub struct MoveLaunch<'a> {
    pub(crate) space: &'a Space,
    pub(crate) range: Result<PageRange, Error>,
    pub(crate) request: fn(PageRange, farside_types::MemoryId) -> Request,
    pub(crate) to: farside_types::MemoryId,
    pub(crate) after: Vec<Predecessor>,
}

impl MoveLaunch<'_> {
    /// Moves nothing before `other` has ended; see [`Precedes`]. Several are all waited for.
    pub fn after(mut self, other: &impl Precedes) -> Self {
        self.after.push(other.predecessor());
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// [`LiveError::NotShared`]; [`LiveError::Thread`] if the system has no thread for moves. What else
    /// there is against it comes out of the wait.
    pub fn start(self) -> Result<Moving, Error> {
        let range = self.range?;
        let request = (self.request)(range, self.to);
        let moved = self.space.runtime().begin_move(range, request, &self.after)?;
        Ok(Moving { moved, space: self.space.clone() })
    }
}

/// A move under way. It can be waited for, looked at, and awaited as a future. Dropped, it goes on.
#[derive(Debug)]
pub struct Moving {
    pub(crate) moved: Arc<Move>,
    space: Space,
}

impl Moving {
    /// Waits for the end and gives the pages that moved.
    ///
    /// # Errors
    /// [`Error::Live`] or [`Error::Move`] with the reason.
    pub fn wait(&self) -> Result<u64, Error> {
        self.space.runtime().check_process()?;
        self.moved.wait(None).unwrap_or_else(|| unreachable!("no deadline")).map_err(Error::from)
    }

    /// Waits for the end for a while; `None`: it is not over.
    pub fn wait_for(&self, limit: Duration) -> Option<Result<u64, Error>> {
        // A limit beyond the clock is none.
        let result = self.moved.wait(Instant::now().checked_add(limit))?;
        Some(result.map_err(Error::from))
    }

    /// Whether it is over.
    pub fn is_done(&self) -> bool {
        self.moved.end().has_come()
    }
}

impl Future for Moving {
    type Output = Result<u64, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.space.await_end(self.moved.end(), context) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => Poll::Ready(self.wait()),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.moved.end().forget();
    }
}

impl From<MoveError> for Error {
    fn from(error: MoveError) -> Error {
        match error {
            MoveError::Request(error) => error.into(),
            error @ MoveError::NotBegun { .. } => Error::Move(error),
        }
    }
}

impl Space {
    /// Whether something has ended; if not, the task of `context` is woken when it has.
    pub(crate) fn await_end(
        &self,
        end: &farside_live::Ending,
        context: &mut Context<'_>,
    ) -> Result<Poll<()>, LiveError> {
        let runtime = self.runtime();
        runtime.check_process()?;
        if end.has_come() || end.note(runtime.wakes_elsewhere(context.waker())?) {
            return Ok(Poll::Ready(()));
        }
        Ok(Poll::Pending)
    }
}
