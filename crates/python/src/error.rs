//! Exceptions.

use farside::LiveError;
use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};

create_exception!(
    farside,
    FarsideError,
    PyRuntimeError,
    "Something that Farside could not do; says what to do next."
);
create_exception!(
    farside,
    KernelError,
    FarsideError,
    "A kernel failed, was cancelled, or was called with wrong arguments."
);
create_exception!(
    farside,
    LentError,
    FarsideError,
    "Memory is lent to a kernel that has not ended."
);

/// The exception for an error of the library.
pub(crate) fn raised(error: farside::Error) -> PyErr {
    let message = error.to_string();
    match error {
        farside::Error::Kernel(_) | farside::Error::Kernels(_) => KernelError::new_err(message),
        farside::Error::Setting { .. }
        | farside::Error::OwnMemory(_)
        | farside::Error::Scheme(_)
        | farside::Error::SchemeLibrary(_)
        | farside::Error::Cards { .. } => PyValueError::new_err(message),
        farside::Error::Live(LiveError::File(file)) if file.is_of_the_argument() => {
            PyValueError::new_err(message)
        }
        farside::Error::Lent { .. } => LentError::new_err(message),
        _ => FarsideError::new_err(message),
    }
}
