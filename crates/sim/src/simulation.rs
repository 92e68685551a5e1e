//! A simulation: a machine, a program and a placement scheme; and several schemes side by side.

use std::sync::Arc;

use farside_svm::Journal;
use farside_svm::placement::{self, PlacementScheme};
use farside_types::{Span, Time};

use crate::machine::Machine;
use crate::observe::Observer;
use crate::state::{self, Header, Reader, Writer};
use crate::{Comparison, Outcome, SimError, Spec, StateError, scheme};
use farside_workloads::Workload;

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

/// How far to run ([`Simulation::run_until`]). Every event is whole: a little more than asked for
/// may have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Until so many lines have been accessed since the beginning.
    Accesses(u64),
    /// Until the first event at this simulated time since the beginning, or after it.
    Time(Span),
    /// Until the end of the last launch.
    End,
}

/// The placement schemes by name, as [`Simulation::new`] and [`compare`] know them.
pub const SCHEMES: &[&str] = &placement::NAMES;

/// A program on a machine under a placement scheme, ready to run once.
pub struct Simulation {
    machine: Machine,
    placement: String,
    /// The scheme can be had by its name.
    named: bool,
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
        simulation.named = true;
        Ok(simulation)
    }

    /// With any scheme, and with or without the coherence checker, which never changes a result.
    ///
    /// # Errors
    /// [`SimError`]: a machine that cannot be or is too small for the program.
    pub fn with_placement(
        spec: &Spec,
        workload: &Arc<dyn Workload>,
        scheme: Box<dyn PlacementScheme>,
        check: bool,
    ) -> Result<Simulation, SimError> {
        let placement = scheme.name().to_owned();
        let machine = Machine::new(spec.clone(), Arc::clone(workload), scheme, check)?;
        Ok(Simulation { machine, placement, named: false })
    }

    /// Has `observer` watch the run. Watching never changes a result.
    #[must_use]
    pub fn observe(mut self, observer: Box<dyn Observer>) -> Simulation {
        self.machine.add_observer(observer);
        self
    }

    /// Has a journal kept of what the driver does from here on. Times in it count from [`Simulation::start`]. It never
    /// changes a result.
    #[must_use]
    pub fn keep_journal(mut self, journal: Box<dyn Journal>) -> Simulation {
        self.machine.keep_journal(journal);
        self
    }

    /// When, by the driver's clock, the first launch is made.
    #[must_use]
    pub fn start(&self) -> Time {
        self.machine.first_launch()
    }

    /// Runs the program until `stop`; whether it has ended. [`Simulation::run`] goes on from there,
    /// as if it had never stopped. `progress` is called every 16384 accesses.
    ///
    /// # Errors
    /// As [`Simulation::run`].
    pub fn run_until(
        &mut self,
        stop: Stop,
        mut progress: impl FnMut(Progress),
    ) -> Result<bool, SimError> {
        self.machine.run_until(stop, &mut progress)
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.machine.progress()
    }

    /// The whole state as bytes: machine, driver, scheme and specification, but not the program,
    /// of which only name, buffers and launches are kept, and not the observers.
    ///
    /// They are for the release that wrote them, and equal states need not be equal bytes.
    ///
    /// # Errors
    /// [`SimError::State`] if a placement scheme has a state that cannot be written.
    pub fn save(&self) -> Result<Vec<u8>, SimError> {
        let (machine, placement) = (&self.machine, self.placement.clone());
        let (check, workload) = (machine.is_checked(), machine.workload());
        let spec = machine.spec().to_toml();
        let header = Header::new(spec, placement, self.named, check, workload);
        let mut to = Writer::default();
        let written = to.value(&header).and_then(|()| machine.write_state(&mut to));
        written.map_err(StateError::from)?;
        Ok(state::seal(&to.into_bytes())?)
    }

    /// A simulation that goes on where the saved one stood, with the same program. Both come to the
    /// same outcome, to the byte.
    ///
    /// # Errors
    /// [`SimError::State`]: bytes that are no state, of another version, damaged, or of another
    /// program; a simulation that was not made by the name of its scheme.
    pub fn restore(bytes: &[u8], workload: &Arc<dyn Workload>) -> Result<Simulation, SimError> {
        let by_name = |header: &Header| {
            let placement = header.placement.clone();
            if !header.named {
                return Err(StateError::OwnScheme { placement }.into());
            }
            let machine = Spec::from_toml(&header.spec)?;
            Ok(scheme::resolve(&placement, &machine)?.0)
        };
        Simulation::restore_by(bytes, workload, by_name)
    }

    /// The same with a scheme of your own: one as the saved simulation was made with, whose memory
    /// ([`PlacementScheme::restore_state`]) is restored.
    ///
    /// # Errors
    /// As [`Simulation::restore`]; and a scheme that cannot take the state of the saved one.
    pub fn restore_with_placement(
        bytes: &[u8],
        workload: &Arc<dyn Workload>,
        scheme: Box<dyn PlacementScheme>,
    ) -> Result<Simulation, SimError> {
        Simulation::restore_by(bytes, workload, |_| Ok(scheme))
    }

    fn restore_by(
        bytes: &[u8],
        workload: &Arc<dyn Workload>,
        scheme: impl FnOnce(&Header) -> Result<Box<dyn PlacementScheme>, SimError>,
    ) -> Result<Simulation, SimError> {
        let bytes = state::open(bytes)?;
        let mut from = Reader::new(&bytes);
        let header: Header = from.value().map_err(|it| StateError::from(it.within("header")))?;
        header.must_fit(workload)?;
        let (scheme, spec) = (scheme(&header)?, Spec::from_toml(&header.spec)?);
        let workload = Arc::clone(workload);
        let machine = Machine::restore(spec, workload, scheme, header.check, &mut from)?;
        from.end().map_err(StateError::from)?;
        let Header { placement, named, .. } = header;
        Ok(Simulation { machine, placement, named })
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
    use farside_workloads::{Group, Line, Place, Script, Step};

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
