//! Event logs of runs: begun, what of them is missing, and where there is none.

use std::convert::Infallible;
use std::path::Path;

use clap::Args;
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

/// `--events` of a command whose runs have no log: it is refused, and told of what has one.
#[derive(Args, Debug)]
pub(super) struct NoEvents {
    #[arg(long = "events", value_name = "FILE", hide = true, value_parser = refuse)]
    _refused: Option<Infallible>,
}

fn refuse(_: &str) -> Result<Infallible, String> {
    Err("there is no log of many runs at once, of a replay, which has no time, or of what is measured; one run has one: \
         `farside sim --workload NAME --scheme NAME --events FILE`, `farside demo --events FILE`, or any program with \
         FARSIDE_EVENTS=FILE"
        .to_owned())
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
