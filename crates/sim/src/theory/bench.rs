//! Running small programs: what one more step costs, how fast many steps are.

use std::sync::Arc;

use farside_types::Span;

use crate::{Outcome, SimError, Simulation, Spec};
use farside_workloads::{Group, LINE_BYTES, Line, Place, Script, Step, Workload};

/// A machine with a program whose last launch is varied.
#[derive(Clone, Debug)]
pub(super) struct Bench {
    pub(super) spec: Spec,
    /// The placement scheme.
    pub(super) scheme: &'static str,
    /// Pages of the only buffer.
    pub(super) pages: u64,
    /// The launches that come before.
    pub(super) before: Vec<Vec<Group>>,
}

impl Bench {
    /// Two GPUs of two compute units, on which nothing is evicted and no counter speaks up.
    pub(super) fn small(spec: &Spec, scheme: &'static str, pages: u64) -> Bench {
        let mut spec = spec.clone();
        spec.gpu.count = 2;
        spec.gpu.compute_units = 2;
        spec.gpu.capacity_percent = None;
        spec.counter.threshold = 1 << 30;
        Bench { spec, scheme, pages, before: Vec::new() }
    }

    /// With a launch of one wavefront before the last one.
    pub(super) fn after(mut self, gpu: u8, steps: Vec<Step>) -> Bench {
        self.before.push(vec![group(gpu, 0, vec![steps])]);
        self
    }

    /// A line of a page.
    pub(super) fn line(&self, page: u32, line: u32) -> Line {
        Line(page * (self.spec.page.bytes / LINE_BYTES as u32) + line)
    }

    /// Loads a line and waits for it.
    pub(super) fn load(&self, page: u32, line: u32) -> Vec<Step> {
        vec![Step::Load(vec![self.line(page, line)]), Step::Wait]
    }

    /// Runs it with this last launch.
    pub(super) fn run(&self, last: Vec<Group>) -> Result<Outcome, SimError> {
        let bytes = self.pages * u64::from(self.spec.page.bytes);
        let mut script = Script::new("probe", &[bytes]);
        for launch in self.before.iter().chain([&last]) {
            script = script.with_launch(launch.clone());
        }
        let script: Arc<dyn Workload> = Arc::new(script);
        Simulation::new(&self.spec, &script, self.scheme)?.run(|_| ())
    }

    /// What `more` adds to `steps`, the only wavefront of the last launch on GPU 0: the two outcomes
    /// without and with it.
    pub(super) fn both(
        &self,
        steps: &[Step],
        more: &[Step],
    ) -> Result<(Outcome, Outcome), SimError> {
        let run = |steps: Vec<Step>| self.run(vec![group(0, 0, vec![steps])]);
        Ok((run(steps.to_vec())?, run([steps, more].concat())?))
    }

    /// The time that `more` adds.
    pub(super) fn cost(&self, steps: &[Step], more: &[Step]) -> Result<Span, SimError> {
        let (without, with) = self.both(steps, more)?;
        Ok(with.time - without.time)
    }
}

/// A work-group at its place.
pub(super) fn group(gpu: u8, unit: u8, waves: Vec<Vec<Step>>) -> Group {
    Group { place: Some(Place { gpu, unit }), waves }
}
