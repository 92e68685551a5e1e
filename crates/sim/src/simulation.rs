//! A simulation: a machine, a trace and a placement scheme; and several schemes side by side.

use std::sync::Arc;

use farside_svm::placement::{self, Placement};
use farside_types::Span;

use crate::machine::Machine;
use crate::{Comparison, Outcome, SimError, Spec, Trace};

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Accesses that are over.
    pub retired: u64,
    /// Accesses of the trace.
    pub total: u64,
    /// Simulated time so far.
    pub time: Span,
}

impl Progress {
    /// The share of the accesses that is over, in percent.
    #[must_use]
    pub fn percent(&self) -> f64 {
        100.0 * self.retired as f64 / self.total.max(1) as f64
    }
}

/// The placement schemes by name, as [`Simulation::new`] and [`compare`] know them.
pub const SCHEMES: &[&str] = &placement::NAMES;

/// A trace on a machine under a placement scheme, ready to run once.
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
    /// [`SimError`]: an unknown scheme, a machine that cannot be or is too small for the trace.
    pub fn new(spec: &Spec, trace: &Arc<Trace>, placement: &str) -> Result<Simulation, SimError> {
        let scheme = placement::by_name(placement)?;
        Simulation::with_placement(spec, trace, scheme, cfg!(debug_assertions))
    }

    /// With any scheme, and with or without the coherence checker, which never changes a result.
    ///
    /// # Errors
    /// [`SimError`]: a machine that cannot be or is too small for the trace.
    pub fn with_placement(
        spec: &Spec,
        trace: &Arc<Trace>,
        scheme: Box<dyn Placement>,
        check: bool,
    ) -> Result<Simulation, SimError> {
        let placement = scheme.name().to_owned();
        let machine = Machine::new(spec.clone(), Arc::clone(trace), scheme, check)?;
        Ok(Simulation { machine, placement })
    }

    /// Replays the trace to its end. `progress` is called every 16384 accesses and at the end.
    ///
    /// # Errors
    /// [`SimError`]: an access that cannot go on, a run that is stuck, a driver that breaks a rule.
    pub fn run(mut self, mut progress: impl FnMut(Progress)) -> Result<Outcome, SimError> {
        let mut outcome = self.machine.run(&mut progress)?;
        outcome.placement = self.placement;
        Ok(outcome)
    }
}

/// Runs several schemes on the same machine and trace, one after the other.
/// `progress` gets the scheme's name with each report.
///
/// # Errors
/// The first error of a run.
pub fn compare(
    spec: &Spec,
    trace: &Arc<Trace>,
    schemes: &[&str],
    mut progress: impl FnMut(&str, Progress),
) -> Result<Comparison, SimError> {
    let mut outcomes = Vec::with_capacity(schemes.len());
    for scheme in schemes {
        let simulation = Simulation::new(spec, trace, scheme)?;
        outcomes.push(simulation.run(|report| progress(scheme, report))?);
    }
    Ok(Comparison { outcomes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;

    fn refused(spec: &Spec, placement: &str) -> String {
        let access = Access { page: 0, bytes: 64, write: false };
        let accesses = vec![(1, 7, access)];
        let trace = Arc::new(Trace::from_accesses("t", &[4096], &[accesses]).unwrap());
        match Simulation::new(spec, &trace, placement) {
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
        spec.gpu.compute_units = 0;
        assert!(refused(&spec, "on-touch").contains("it must be 1 to 256"));
    }
}
