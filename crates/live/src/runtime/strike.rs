//! Commands that fail on purpose (feature `mutations`): a test says which, and with which error
//! number of the kernel. Without the feature nothing is struck, at no cost.

use farside_svm::{Command, StepError};

use super::Runtime;

/// How a command fails.
#[cfg(feature = "mutations")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Struck {
    /// The error number that the kernel is said to have given.
    pub errno: i32,
    /// The command is carried out all the same, and only said to have failed.
    pub acts: bool,
}

/// Which commands fail, and how. Asked with every command before it is carried out.
#[cfg(feature = "mutations")]
pub type Strike = Box<dyn FnMut(&Command) -> Option<Struck> + Send>;

/// What is to fail.
#[cfg(feature = "mutations")]
#[derive(Default)]
pub(super) struct Strikes {
    strike: std::sync::Mutex<Option<Strike>>,
}

#[cfg(feature = "mutations")]
impl std::fmt::Debug for Strikes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Strikes")
    }
}

impl Runtime {
    /// Lets commands fail from now on, or no more: for tests that must see what becomes of it.
    #[cfg(feature = "mutations")]
    pub fn strike(&self, strike: Option<Strike>) {
        *farside_linux::lock::lock(&self.strikes.strike) = strike;
    }

    /// Carries a command out by `act`, unless it is to fail.
    #[cfg(feature = "mutations")]
    pub(crate) fn unless_struck(
        &self,
        command: impl Fn() -> Command,
        act: impl FnOnce() -> Result<(), StepError>,
    ) -> Result<(), StepError> {
        self.show(&command);
        let struck = {
            let mut strike = farside_linux::lock::lock(&self.strikes.strike);
            strike.as_mut().and_then(|strike| strike(&command()))
        };
        let Some(Struck { errno, acts }) = struck else { return act() };
        if acts {
            act()?;
        }
        Err(StepError { pages_done: 0, kind: farside_svm::StepErrorKind::Os(errno) })
    }

    /// Carries a command out by `act`.
    #[cfg(not(feature = "mutations"))]
    #[inline(always)]
    pub(crate) fn unless_struck(
        &self,
        command: impl Fn() -> Command,
        act: impl FnOnce() -> Result<(), StepError>,
    ) -> Result<(), StepError> {
        self.show(command);
        act()
    }

    /// Shows a command to the probe of a test, if there is one.
    pub(super) fn show(&self, command: impl Fn() -> Command) {
        if let Some(probe) = self.probe {
            probe(&command());
        }
    }
}
