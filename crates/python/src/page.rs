//! The page of `farside report`, of event logs.

use std::path::PathBuf;

use farside_events::{ReadError, Reader};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

/// One page of HTML of these logs, side by side.
#[pyfunction]
pub(crate) fn page(py: Python<'_>, logs: Vec<PathBuf>) -> PyResult<String> {
    let facts = |path: &PathBuf| farside_report::facts(&Reader::open(path)?);
    let runs = py.detach(|| logs.iter().map(facts).collect::<Result<Vec<_>, _>>());
    let runs = runs.map_err(refused)?;
    Ok(py.detach(|| farside_report::page(&runs)))
}

fn refused(error: ReadError) -> PyErr {
    let message = error.to_string();
    match error {
        ReadError::File { .. } => PyOSError::new_err(message),
        _ => PyValueError::new_err(message),
    }
}
