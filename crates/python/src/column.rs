//! Columns of Arrow in a card's own memory.

use std::ffi::CStr;
use std::sync::Arc;

use farside::arrow::{self, ArrowArray, ArrowSchema, Owner, Part};
use farside::foreign::Allocation;
use farside::{
    CardBuffer, CardColumn, CardId, ColumnType, Date32, Elapsed, MadeColumn, Microseconds,
    Milliseconds, Nanoseconds, Seconds, Timestamp,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::error::raised;
use crate::unlocked::Unlocked;

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

type Export = fn(&Column, &str) -> Result<(ArrowArray, ArrowSchema), farside::WindowError>;

/// A column in a card's own memory, which a kernel has built. Arrow's libraries take it by the PyCapsule interface, without
/// a copy; it is freed when neither it nor an array of it is there any more, nor a kernel that has it.
#[pyclass(frozen, module = "farside")]
pub(crate) struct Column {
    len: usize,
    /// Values, offsets and validity.
    parts: [Unlocked<Arc<Allocation>>; 3],
    export: Export,
    schema: fn(&str) -> ArrowSchema,
}

#[pymethods]
impl Column {
    /// Number of rows.
    fn __len__(&self) -> usize {
        self.len
    }

    /// Arrow's type, as a capsule.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        PyCapsule::new_with_value(py, (self.schema)(""), SCHEMA)
    }

    /// Arrow's type and the rows, as capsules. Another type than its own it does not become.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        // A consumer casts what it gets.
        drop(requested_schema);
        let (array, schema) = self.exported(py)?;
        let schema = PyCapsule::new_with_value(py, schema, SCHEMA)?;
        Ok((schema, PyCapsule::new_with_value(py, array, ARRAY)?))
    }
}

impl Column {
    fn exported(&self, py: Python<'_>) -> PyResult<(ArrowArray, ArrowSchema)> {
        py.detach(|| (self.export)(self, "")).map_err(|error| raised(error.into()))
    }

    fn export<T: ColumnType + ?Sized>(
        &self,
        name: &str,
    ) -> Result<(ArrowArray, ArrowSchema), farside::WindowError> {
        let [values, offsets, validity] = self.parts.each_ref().map(|part| of_column(part));
        // SAFETY: each allocation holds its very part, and a column was taken over of them, which has checked their lengths.
        unsafe { arrow::column::<T>(name, self.len, (values, offsets, validity)) }
    }

    /// Takes a column over; `hold` makes an allocation of each part.
    pub(crate) fn take_over(
        space: &farside::Space,
        card: CardId,
        made: MadeColumn,
        format: &str,
        hold: impl Fn(CardBuffer<u8>) -> Arc<Allocation>,
    ) -> PyResult<Column> {
        macro_rules! of_format {
            ($($of:ty),*) => {
                match format {
                    $(<$of as ColumnType>::FORMAT => {
                        let column: CardColumn<$of> =
                            space.take_over_column(card, made).map_err(raised)?;
                        let parts = column.into_parts();
                        let len = parts.len;
                        let parts = [parts.values, parts.offsets, parts.validity].map(hold).map(Unlocked::new);
                        let (export, schema) = (Column::export::<$of>, ArrowSchema::of::<$of>);
                        Ok(Column { len, parts, export, schema })
                    })*
                    other => Err(PyTypeError::new_err(format!("there are no columns of `{other}`"))),
                }
            };
        }
        of_format!(
            bool,
            i8,
            u8,
            i16,
            u16,
            i32,
            u32,
            i64,
            u64,
            f32,
            f64,
            str,
            Date32,
            Timestamp<Seconds>,
            Timestamp<Milliseconds>,
            Timestamp<Microseconds>,
            Timestamp<Nanoseconds>,
            Elapsed<Seconds>,
            Elapsed<Milliseconds>,
            Elapsed<Microseconds>,
            Elapsed<Nanoseconds>
        )
    }
}

/// A part, and what holds it: as long as it does, kernels may be lent the part.
fn of_column(allocation: &Arc<Allocation>) -> Part<'_> {
    let holder: Owner = Arc::new(Unlocked::new(Arc::clone(allocation)));
    (allocation.own().expect("parts of columns are a card's own"), holder)
}
