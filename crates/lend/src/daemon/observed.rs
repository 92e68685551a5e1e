//! What happens, for those who look on: the audit log and the metrics.

use std::path::PathBuf;
use std::sync::Mutex;

use farside_linux::lock::lock;

use super::audit::{Audit, Record};
use super::metrics::Counts;
use crate::LendError;
use crate::config::Config;
use crate::home::Home;

/// See the module.
pub(super) struct Observed {
    audit: Audit,
    counts: Mutex<Counts>,
}

impl Observed {
    pub(super) fn start(home: &Home, config: &Config) -> Result<Observed, LendError> {
        let audit = Audit::start(folder(home, config), &config.audit)?;
        Ok(Observed { audit, counts: Mutex::default() })
    }

    /// After the configuration was read anew.
    pub(super) fn set(&self, home: &Home, config: &Config) {
        self.audit.set(folder(home, config), &config.audit);
    }

    pub(super) fn note(&self, record: Record) {
        self.audit.note(record);
    }

    /// Counts, or looks at what was counted.
    pub(super) fn count<T>(&self, count: impl FnOnce(&mut Counts) -> T) -> T {
        count(&mut lock(&self.counts))
    }

    /// Before the daemon ends.
    pub(super) fn finish(&self) {
        self.audit.finish();
    }

    pub(super) fn audit_lost(&self) -> u64 {
        self.audit.lost()
    }
}

fn folder(home: &Home, config: &Config) -> PathBuf {
    config.audit.folder.clone().unwrap_or_else(|| home.state().to_owned())
}
