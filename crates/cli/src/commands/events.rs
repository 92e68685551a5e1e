//! Event logs of runs: begun, and what of them is missing.

use std::path::Path;

use farside::Written;
use farside_events::{About, EventLog};
use farside_sim::Spec;

use super::Failure;

/// The log of a simulated run.
pub(super) fn of_simulation(
    path: &Path,
    spec: &Spec,
    program: &str,
    scheme: &str,
) -> Result<EventLog, Failure> {
    let about = About {
        program: program.to_owned(),
        machine: "simulated GPUs".to_owned(),
        scheme: scheme.to_owned(),
        page_bytes: u64::from(spec.page.bytes),
        memories: About::memories("gpu", (0..spec.gpu.count).map(|_| None)),
    };
    // Nothing that is simulated is touched by a handler of signals.
    Ok(EventLog::create(path, &about, || ())?)
}

/// Says what a log has not.
pub(super) fn tell_dropped(path: Option<&Path>, written: Written) {
    if let Some(path) = path.filter(|_| written.dropped > 0) {
        let (path, events) = (path.display(), written.events);
        super::log::say(&format!(
            "farside: {path} has {events} events; {} found no room and are left out",
            written.dropped
        ));
    }
}
