//! What comes after what, without the program in between.

use std::sync::Arc;

use farside_live::Predecessor;

use crate::foreign::ForeignJob;
use crate::{Job, Moving, Pieces};

mod sealed {
    use super::Predecessor;

    pub trait Sealed {
        fn predecessor(&self) -> Predecessor;
    }
}

/// What a launch or a move can come after: a [`Job`], a [`ForeignJob`], the [`Pieces`] of a parallel launch, a [`Moving`].
///
/// Whoever comes after it begins when it has ended, on whatever card and without a look by the program. If it
/// fails or is cancelled, whoever comes after it fails with an error that names it, and does not run. It was
/// launched before, so nothing waits in a circle.
pub trait Precedes: sealed::Sealed {}

impl<T> Precedes for Job<'_, T> {}

impl<T> sealed::Sealed for Job<'_, T> {
    fn predecessor(&self) -> Predecessor {
        Predecessor::Job(Arc::clone(&self.job))
    }
}

impl Precedes for ForeignJob {}

impl sealed::Sealed for ForeignJob {
    fn predecessor(&self) -> Predecessor {
        Predecessor::Job(Arc::clone(&self.job))
    }
}

impl Precedes for Pieces<'_> {}

impl sealed::Sealed for Pieces<'_> {
    fn predecessor(&self) -> Predecessor {
        Predecessor::Parallel(Arc::clone(&self.parallel))
    }
}

impl Precedes for Moving {}

impl sealed::Sealed for Moving {
    fn predecessor(&self) -> Predecessor {
        Predecessor::Move(Arc::clone(&self.moved))
    }
}
