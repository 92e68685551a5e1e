//! What a file in the compact format says about itself, or else what its rows show.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use farside_types::{MAX_CARDS, PAGE_SIZE};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::super::sidecar::{around, check_description, check_pages};
use super::at::{At, Place, contained, damaged};
use super::column::{COLUMNS, COUNT, Found, GPU, LINE};
use super::read::{count, each};
use super::{KEY_DESCRIPTION, KEY_VERSION, TraceAllocation, TraceDescription, VERSION};
use crate::{LINE_BYTES, TraceError};

/// What a file says about itself, checked. A file without a word about it, as a query writes that
/// copies a trace, is taken for a trace whose allocations are the pages that it touches.
pub(in super::super) fn description(
    file: &File,
    path: &Path,
) -> Result<TraceDescription, TraceError> {
    let at = At::new();
    contained(&at, || {
        let whole = |what: String| TraceError::Footer { what };
        let file = file.try_clone().map_err(|error| whole(error.to_string()))?;
        let reader = SerializedFileReader::new(file);
        let reader = reader.map_err(|error: ParquetError| whole(error.to_string()))?;
        let metadata = reader.metadata().file_metadata();
        Found::new(metadata.schema_descr(), COLUMNS)?;
        let value = |key: &str| {
            let pairs = metadata.key_value_metadata()?;
            pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
        };
        let description = match (value(KEY_VERSION), value(KEY_DESCRIPTION)) {
            (None, None) => shown(&reader, path, &at)?,
            (Some(VERSION), description) => serde_json::from_str(description.unwrap_or_default())?,
            (version, _) => {
                return Err(whole(format!(
                    "its version ({KEY_VERSION}) is {version:?} and this program reads {VERSION:?}"
                )));
            }
        };
        check_description(description.page_bytes, description.gpus)?;
        Ok(description)
    })
}

/// What the rows show.
fn shown(
    reader: &SerializedFileReader<File>,
    path: &Path,
    at: &At,
) -> Result<TraceDescription, TraceError> {
    let (mut pages, mut last_gpu) = (BTreeSet::new(), 0);
    each(reader, COLUMNS, &[GPU, LINE, COUNT], at, |columns, row| {
        let number = |which| columns.number(which, row);
        if number(GPU) >= MAX_CARDS as u64 {
            let what = format!("{} cannot be: it is 0 to 15", number(GPU));
            return Err(damaged(Place { column: "gpu", ..at.get() }, what));
        }
        last_gpu = last_gpu.max(number(GPU));
        let lines = count(number(COUNT)).unwrap_or(1);
        let end = number(LINE).checked_add(u64::from(lines)).and_then(|end| {
            // Beyond the address space, with the page that it ends in.
            end.checked_mul(LINE_BYTES)?.checked_add(PAGE_SIZE as u64)?;
            Some(end)
        });
        let Some(end) = end else {
            let what = format!("line {:#x} is beyond the address space", number(LINE));
            return Err(damaged(Place { column: "line", ..at.get() }, what));
        };
        let page = |line: u64| line * LINE_BYTES / PAGE_SIZE as u64;
        pages.extend(page(number(LINE))..=page(end - 1));
        check_pages(pages.len() as u64)
    })?;
    let allocations = around(&pages)?;
    Ok(TraceDescription {
        name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        page_bytes: PAGE_SIZE as u64,
        gpus: u32::try_from(last_gpu).unwrap_or(u32::MAX).saturating_add(1),
        cycles: false,
        allocations: allocations.iter().map(TraceAllocation::from).collect(),
    })
}
