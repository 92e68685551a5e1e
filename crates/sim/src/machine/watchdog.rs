//! What is said when nothing moves any more: who waits for what.

use farside_types::{FaultId, Time};

use super::{Fault, Machine};
use crate::SimError;
use crate::gpu::{Gpu, WaveState};

/// Events without the end of an access after which the run is given up.
pub(super) const IDLE_EVENTS_MAX: u64 = 10_000_000;
/// Lines of the report.
const LINES_MAX: usize = 16;

impl Machine {
    /// The error that says what was noticed and who waits for what.
    pub(super) fn stuck(&self, what: &'static str) -> SimError {
        let mut lines: Vec<String> = Vec::new();
        let mut faults: Vec<_> = self.faults.iter().collect();
        faults.sort_unstable_by_key(|(id, _)| **id);
        lines.extend(faults.iter().take(LINES_MAX).map(|(id, fault)| self.describe(**id, fault)));
        let more = self.faults.len().saturating_sub(LINES_MAX);
        if more > 0 {
            lines.push(format!("  and {more} more faults"));
        }
        for (id, gpu) in self.gpus.iter().enumerate() {
            lines.push(format!(
                "  GPU {id}: {} busy CUs, {} work-groups of launch {}{}",
                gpu.busy_units(),
                gpu.resident,
                self.running.index,
                states(gpu),
            ));
        }
        lines.push(format!(
            "  {} copies under way, driver quiet: {}",
            self.transfers.len(),
            self.driver.is_quiet()
        ));
        SimError::Stuck { at: Time(self.elapsed().0), what, waiting: lines.join("\n") }
    }

    fn describe(&self, id: FaultId, fault: &Fault) -> String {
        let page = self.arena.offset(u64::from(fault.page));
        let mut units: Vec<_> = self.pool.iter(fault.waiting).map(|access| access.unit).collect();
        units.dedup();
        let view = self.driver.page(page);
        format!(
            "  GPU {} CU {units:?} since {:?} in {id} for {} {page}: {:?}, owner {:?}, mappers {:?}",
            fault.gpu,
            Time(fault.since.since(self.start).0),
            if fault.write { "writing" } else { "reading" },
            view.state,
            view.owner,
            view.mappers,
        )
    }
}

/// How many wavefronts of a GPU wait for what.
fn states(gpu: &Gpu) -> String {
    let all = [
        (WaveState::Running, "running"),
        (WaveState::Loads, "waiting for loads"),
        (WaveState::Fault, "in faults"),
        (WaveState::Barrier, "at barriers"),
        (WaveState::Ending, "ending"),
    ];
    let waves = || gpu.units.iter().flat_map(|unit| &unit.waves);
    let count = |state| waves().filter(|wave| wave.state == state).count();
    let said = all.map(|(state, name)| (count(state), name));
    let said = said.iter().filter(|(count, _)| *count > 0);
    said.map(|(count, name)| format!(", {count} wavefronts {name}")).collect()
}
