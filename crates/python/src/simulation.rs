//! Simulations: a program on a simulated machine under a placement scheme.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farside_plugin::Complaints;
use farside_plugin::simulated::{self, Made, SchemeFailure};
use farside_sim::scheme::{self, KnownKind};
use farside_sim::{Outcome, SimError, Spec, Stop};
use farside_workloads::{Trace, TraceError, Workload, catalog};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::error::FarsideError;

/// A program for simulated machines: a generated workload or a recorded trace. Many simulations may run it.
#[pyclass(frozen, module = "farside")]
pub(crate) struct Program {
    workload: Arc<dyn Workload>,
}

#[pymethods]
impl Program {
    /// The generated workload of this name, with so many bytes of data.
    #[staticmethod]
    #[pyo3(signature = (name, nbytes))]
    fn workload(name: &str, nbytes: Option<u64>) -> PyResult<Program> {
        let workload = catalog::by_name(name, nbytes);
        Ok(Program {
            workload: workload.map_err(|error| PyValueError::new_err(error.to_string()))?,
        })
    }

    /// The trace in this file.
    #[staticmethod]
    fn trace(py: Python<'_>, path: PathBuf) -> PyResult<Program> {
        let trace =
            py.detach(|| Trace::open(&path)).map_err(|error| refused(SimError::from(error)))?;
        Ok(Program { workload: Arc::new(trace) })
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        self.workload.name()
    }

    /// Bytes of the data that its kernels share.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.workload.buffers().iter().map(|buffer| buffer.bytes).sum()
    }
}

/// Whether this name of a scheme is a library's.
#[pyfunction]
pub(crate) fn is_library(scheme: &str) -> bool {
    farside_plugin::split(scheme).is_some()
}

/// Refuses a library that cannot be a scheme on this machine, as far as that can be told without running its code.
#[pyfunction]
pub(crate) fn check_library(
    scheme: &str,
    preset: &str,
    set: Vec<(String, String)>,
) -> PyResult<()> {
    let spec = machine(preset, &set)?;
    simulated::check_outside(scheme, &spec).map_err(PyValueError::new_err)
}

/// One run of a program: in parts, so that who waits for it can be interrupted.
#[pyclass(frozen, module = "farside")]
pub(crate) struct Simulation {
    /// None once it has ended.
    running: Mutex<Option<farside_sim::Simulation>>,
    /// Of a scheme from a library: what it answers that makes no sense.
    complaints: Option<Complaints>,
}

#[pymethods]
impl Simulation {
    /// The machine is a preset with some of its values replaced.
    #[new]
    fn new(
        py: Python<'_>,
        program: &Program,
        scheme: &str,
        preset: &str,
        set: Vec<(String, String)>,
    ) -> PyResult<Simulation> {
        let spec = machine(preset, &set)?;
        let workload = &program.workload;
        let made = py.detach(|| farside_sim::Simulation::new(&spec, workload, scheme));
        Ok(Simulation { running: Mutex::new(Some(made.map_err(refused)?)), complaints: None })
    }

    /// The same under a scheme from a library, whose code runs in this process: one that was started for this run.
    #[staticmethod]
    fn of_library(
        py: Python<'_>,
        program: &Program,
        scheme: &str,
        preset: &str,
        set: Vec<(String, String)>,
    ) -> PyResult<Simulation> {
        let spec = machine(preset, &set)?;
        let workload = &program.workload;
        py.detach(|| {
            let (Made { placement, complaints }, spec) = simulated::resolve(scheme, &spec)?;
            let check = cfg!(debug_assertions);
            let made = farside_sim::Simulation::with_placement(&spec, workload, placement, check)?;
            Ok(Simulation { running: Mutex::new(Some(made)), complaints })
        })
        .map_err(refused_scheme)
    }

    /// Goes on until so many more lines have been accessed; gives the statistics, by name, once it has ended.
    fn run(&self, py: Python<'_>, lines: u64) -> PyResult<Option<Vec<(String, u64)>>> {
        let ended = py.detach(|| self.run_on(lines)).map_err(refused)?;
        if ended.is_some() {
            Made::check(self.complaints.as_ref()).map_err(refused_scheme)?;
        }
        Ok(ended.map(|outcome| {
            outcome.statistics().into_iter().map(|it| (it.name, it.value)).collect()
        }))
    }

    /// The share of the program that is done, from 0 to 1.
    fn progress(&self) -> f64 {
        self.lock().as_ref().map_or(1.0, |simulation| simulation.progress().percent() / 100.0)
    }
}

impl Simulation {
    fn lock(&self) -> MutexGuard<'_, Option<farside_sim::Simulation>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_on(&self, lines: u64) -> Result<Option<Outcome>, SimError> {
        let mut running = self.lock();
        let Some(simulation) = running.as_mut() else {
            return Ok(None);
        };
        let until = simulation.progress().accesses.saturating_add(lines);
        if !simulation.run_until(Stop::Accesses(until), |_| ())? {
            return Ok(None);
        }
        running.take().map(|simulation| simulation.run(|_| ())).transpose()
    }
}

/// The machine as TOML, each key with its value and where that is from.
#[pyfunction]
pub(crate) fn machine_text(preset: &str, set: Vec<(String, String)>) -> PyResult<String> {
    machine(preset, &set)?.to_toml_with_sources(preset).map_err(|error| refused(error.into()))
}

/// The machines to start from.
#[pyfunction]
pub(crate) fn presets() -> Vec<&'static str> {
    Spec::PRESETS.to_vec()
}

/// The generated workloads.
#[pyfunction]
pub(crate) fn workloads() -> Vec<&'static str> {
    catalog::NAMES.to_vec()
}

/// The placement schemes: name, and what it does.
#[pyfunction]
pub(crate) fn schemes() -> Vec<(String, &'static str)> {
    let known = scheme::all().into_iter().filter(|known| known.kind != KnownKind::Modifier);
    known.map(|known| (known.name, known.about)).collect()
}

fn machine(preset: &str, set: &[(String, String)]) -> PyResult<Spec> {
    let pairs: Vec<_> = set.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let spec = Spec::preset(preset).and_then(|spec| spec.with_overrides(&pairs));
    spec.map_err(|error| refused(error.into()))
}

/// The exception for an error of a scheme.
fn refused_scheme(error: SchemeFailure) -> PyErr {
    match error {
        SchemeFailure::BuiltIn(error) => refused(error),
        SchemeFailure::Library(error) => PyValueError::new_err(error.to_string()),
        nonsense @ SchemeFailure::Nonsense { .. } => FarsideError::new_err(nonsense.to_string()),
    }
}

/// The exception for an error of the simulator.
fn refused(error: SimError) -> PyErr {
    let message = error.to_string();
    match error {
        SimError::Trace(TraceError::Read { .. }) => PyOSError::new_err(message),
        SimError::Spec(_)
        | SimError::Trace(_)
        | SimError::NoSuchModifier { .. }
        | SimError::Placement(_)
        | SimError::TooSmall { .. } => PyValueError::new_err(message),
        _ => FarsideError::new_err(message),
    }
}
