//! Kernels that were launched.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farside::foreign::{ForeignJob, LaunchId};
use pyo3::prelude::*;

use crate::error::raised;
use crate::unlocked::Unlocked;

/// How long a wait goes on without a look whether Ctrl-C was pressed.
const PATIENCE: Duration = Duration::from_millis(50);

/// A kernel that was launched.
#[pyclass(frozen, module = "farside")]
pub(crate) struct Job {
    pub(crate) id: LaunchId,
    pub(crate) job: Unlocked<Arc<ForeignJob>>,
}

#[pymethods]
impl Job {
    /// Waits for the end, at most `timeout` seconds, and gives the kernel's value; None if it still runs.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<u64>> {
        wait(py, &self.job, timeout)
    }

    /// Whether it has ended, in whatever way.
    fn done(&self) -> bool {
        self.job.wait(Some(Duration::ZERO)).is_some()
    }

    /// Tells it to stop.
    fn cancel(&self, py: Python<'_>) {
        py.detach(|| self.job.cancel());
    }
}

/// Waits without the interpreter's lock, and looks for Ctrl-C now and then.
pub(crate) fn wait(
    py: Python<'_>,
    job: &ForeignJob,
    timeout: Option<f64>,
) -> PyResult<Option<u64>> {
    // A time that is no duration is as good as none.
    let limit = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok());
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let patience = left.map_or(PATIENCE, |left| left.min(PATIENCE));
        if let Some(ended) = py.detach(|| job.wait(Some(patience))) {
            return ended.map(Some).map_err(raised);
        }
        py.check_signals()?;
        if left.is_some_and(|left| left <= patience) {
            return Ok(None);
        }
    }
}
