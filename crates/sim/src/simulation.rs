//! A simulation: a machine, a program and a placement scheme; and several schemes side by side.

use std::sync::Arc;

use farside_svm::placement::{self, Placement};
use farside_types::Span;

use crate::machine::Machine;
use crate::observe::Observer;
use crate::workload::Workload;
use crate::{Comparison, Outcome, SimError, Spec, scheme};

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Work-groups that have ended.
    pub groups: u64,
    /// Work-groups of all launches.
    pub total: u64,
    /// Lines accessed.
    pub accesses: u64,
    /// Simulated time so far.
    pub time: Span,
}

impl Progress {
    /// The share of the work-groups that have ended, in percent.
    #[must_use]
    pub fn percent(&self) -> f64 {
        100.0 * self.groups as f64 / self.total.max(1) as f64
    }
}

/// The placement schemes by name, as [`Simulation::new`] and [`compare`] know them.
pub const SCHEMES: &[&str] = &placement::NAMES;

/// A program on a machine under a placement scheme, ready to run once.
pub struct Simulation {
    machine: Machine,
    placement: String,
}

impl Simulation {
    /// With the scheme of this name ([`SCHEMES`]) and its defaults.
    ///
    /// The coherence checker is on in builds with debug assertions, as tests are; choose with
    /// [`Simulation::with_placement`].
    ///
    /// # Errors
    /// [`SimError`]: an unknown scheme, a machine that cannot be or is too small for the program.
    pub fn new(
        spec: &Spec,
        workload: &Arc<dyn Workload>,
        placement: &str,
    ) -> Result<Simulation, SimError> {
        let (scheme, spec) = scheme::resolve(placement, spec)?;
        let mut simulation =
            Simulation::with_placement(&spec, workload, scheme, cfg!(debug_assertions))?;
        placement.clone_into(&mut simulation.placement);
        Ok(simulation)
    }

    /// With any scheme, and with or without the coherence checker, which never changes a result.
    ///
    /// # Errors
    /// [`SimError`]: a machine that cannot be or is too small for the program.
    pub fn with_placement(
        spec: &Spec,
        workload: &Arc<dyn Workload>,
        scheme: Box<dyn Placement>,
        check: bool,
    ) -> Result<Simulation, SimError> {
        let placement = scheme.name().to_owned();
        let machine = Machine::new(spec.clone(), Arc::clone(workload), scheme, check)?;
        Ok(Simulation { machine, placement })
    }

    /// Has `observer` watch the run. Watching never changes a result.
    #[must_use]
    pub fn observe(mut self, observer: Box<dyn Observer>) -> Simulation {
        self.machine.add_observer(observer);
        self
    }

    /// Runs the program to its end. `progress` is called every 16384 accesses and at the end.
    ///
    /// # Errors
    /// [`SimError`]: an access that cannot go on, a run that is stuck, a driver that breaks a rule.
    pub fn run(mut self, mut progress: impl FnMut(Progress)) -> Result<Outcome, SimError> {
        let mut outcome = self.machine.run(&mut progress)?;
        outcome.placement = self.placement;
        Ok(outcome)
    }
}

/// Runs several schemes on the same machine and program, one after the other.
/// `progress` gets the scheme's name with each report.
///
/// # Errors
/// The first error of a run.
pub fn compare(
    spec: &Spec,
    workload: &Arc<dyn Workload>,
    schemes: &[&str],
    mut progress: impl FnMut(&str, Progress),
) -> Result<Comparison, SimError> {
    let mut outcomes = Vec::with_capacity(schemes.len());
    for scheme in schemes {
        let simulation = Simulation::new(spec, workload, scheme)?;
        outcomes.push(simulation.run(|report| progress(scheme, report))?);
    }
    Ok(Comparison { outcomes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Group, Line, Place, Script, Step};

    fn refused(spec: &Spec, placement: &str) -> String {
        let place = Some(Place { gpu: 1, unit: 7 });
        let waves = vec![vec![Step::Load(vec![Line(0)])]; 3];
        let script = Script::new("t", &[4096]).with_launch(vec![Group { place, waves }]);
        let script: Arc<dyn Workload> = Arc::new(script);
        let run = Simulation::new(spec, &script, placement).and_then(|it| it.run(|_| ()));
        match run {
            Ok(_) => panic!("must be refused"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn an_unknown_scheme_is_answered_with_those_there_are() {
        let error = refused(&Spec::default(), "in-touch");
        assert!(error.contains("in-touch") && error.contains("on-touch"), "{error}");
    }

    #[test]
    fn a_machine_that_is_too_small_is_named_by_its_key() {
        let mut spec = Spec::default();
        spec.gpu.count = 1;
        assert!(refused(&spec, "on-touch").contains("gpu.count is 1"));
        let mut spec = Spec::default();
        spec.gpu.compute_units = 7;
        assert!(refused(&spec, "on-touch").contains("gpu.compute_units is 7"));
        let mut spec = Spec::default();
        spec.gpu.wavefronts = 2;
        assert!(refused(&spec, "on-touch").contains("gpu.wavefronts is 2"));
        spec.gpu.compute_units = 0;
        assert!(refused(&spec, "on-touch").contains("it must be 1 to 256"));
    }
}
