//! Processing elements: which job each one runs, and whether it stands in a fault.

use farside_types::{FaultId, JobId, PeId};
use thiserror::Error;

/// What a processing element does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeState {
    /// Nothing.
    Idle,
    /// It runs a job.
    Running(JobId),
    /// Its job waits for a fault.
    Stalled(JobId, FaultId),
}

impl PeState {
    /// The job, if there is one.
    pub const fn job(self) -> Option<JobId> {
        match self {
            PeState::Idle => None,
            PeState::Running(job) | PeState::Stalled(job, _) => Some(job),
        }
    }
}

/// Why a processing element did not do what it was told.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PeError {
    /// There is none of this number.
    #[error("this card has {pes} processing elements and no {pe}; use a lower number")]
    NoSuchPe {
        /// The number given.
        pe: PeId,
        /// How many there are.
        pes: usize,
    },
    /// It runs a job already.
    #[error("{pe} still runs {job}; wait for it or abort it, or launch on an idle one")]
    Busy {
        /// The processing element.
        pe: PeId,
        /// The job it runs.
        job: JobId,
    },
    /// The job runs nowhere on this card.
    #[error("{job} does not run on this card; it has ended, or was never launched here")]
    NoSuchJob {
        /// The job.
        job: JobId,
    },
}

/// The processing elements of a card.
#[derive(Clone, Debug)]
pub struct Pes(Vec<PeState>);

impl Pes {
    /// `count` idle processing elements.
    pub fn new(count: u16) -> Pes {
        Pes(vec![PeState::Idle; usize::from(count)])
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// What one does.
    ///
    /// # Errors
    /// [`PeError::NoSuchPe`].
    pub fn status(&self, pe: PeId) -> Result<PeState, PeError> {
        self.0.get(usize::from(pe.0)).copied().ok_or(PeError::NoSuchPe { pe, pes: self.count() })
    }

    /// The first that does nothing.
    pub fn idle(&self) -> Option<PeId> {
        let index = self.0.iter().position(|&state| state == PeState::Idle)?;
        Some(PeId(index as u16))
    }

    /// Those that run a job.
    pub fn of(&self, job: JobId) -> impl Iterator<Item = PeId> {
        let states = self.0.iter().enumerate();
        states
            .filter(move |(_, state)| state.job() == Some(job))
            .map(|(index, _)| PeId(index as u16))
    }

    /// Starts a job on an idle one.
    ///
    /// # Errors
    /// [`PeError::NoSuchPe`], [`PeError::Busy`].
    pub fn launch(&mut self, pe: PeId, job: JobId) -> Result<(), PeError> {
        if let Some(job) = self.status(pe)?.job() {
            return Err(PeError::Busy { pe, job });
        }
        self.set(pe, PeState::Running(job));
        Ok(())
    }

    /// Changes the state of one that exists.
    pub(crate) fn set(&mut self, pe: PeId, state: PeState) {
        if let Some(slot) = self.0.get_mut(usize::from(pe.0)) {
            *slot = state;
        }
    }
}
