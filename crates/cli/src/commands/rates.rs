//! What served cards did between two looks at them.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use farside_softcard::serve::FunctionStatus;

/// A function of a card, as long as one program uses it: folder, server's process, number, generation.
type Use = (PathBuf, u32, u32, u64);

/// The counters of functions, as they were at a look, and at the one before.
#[derive(Debug, Default)]
pub(super) struct Rates {
    now: HashMap<Use, BTreeMap<String, u64>>,
    before: HashMap<Use, BTreeMap<String, u64>>,
    between: Duration,
}

/// A second of a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    pub(super) jobs: f64,
    pub(super) faults: f64,
    pub(super) pages: f64,
}

impl Rates {
    /// A new look, so long after the one before.
    pub(super) fn next(&mut self, after: Duration) {
        (self.before, self.between) = (std::mem::take(&mut self.now), after);
    }

    /// A function was looked at.
    pub(super) fn see(&mut self, folder: &Path, server: u32, function: &FunctionStatus) {
        if let Some(user) = &function.user {
            let key = (folder.to_owned(), server, function.function, user.generation);
            self.now.insert(key, user.counters.clone());
        }
    }

    /// What a function has done in a second since the look before; nothing if another program used it then, or none.
    pub(super) fn of(&self, folder: &Path, server: u32, function: &FunctionStatus) -> Option<Rate> {
        let user = function.user.as_ref()?;
        let key = (folder.to_owned(), server, function.function, user.generation);
        let (before, now) = (self.before.get(&key)?, self.now.get(&key)?);
        let seconds = self.between.as_secs_f64();
        let counter = |of: &BTreeMap<String, u64>, name| of.get(name).copied().unwrap_or(0);
        let each = |name| counter(now, name).saturating_sub(counter(before, name)) as f64 / seconds;
        let rate = || Rate {
            jobs: each("jobs_started"),
            faults: each("faults_raised"),
            pages: each("dma_pages"),
        };
        (seconds > 0.0).then(rate)
    }
}
