//! Reproductions of published experiments: what the papers print beside what Farside gives.
//!
//! A reproduction is a list of [`Row`]s, each with the paper's number and its source, and
//! [`Figure`]s. [`Report::write`] puts them into a folder as Markdown, CSV and JSON; the Python package draws the figures
//! from that.

mod figure;
pub mod grit;
mod summary;
mod table;
pub mod tapasco;

pub use figure::{Axis, Bar, Cells, Drawing, Figure, Line, Series};
pub use summary::{Place, Summary};
pub use table::{DRAW, Report, ReportError, Row};
