//! Columns of Arrow for kernels in C.

use std::ffi::{c_char, c_void};

use super::KernelArgs;
use super::c_abi::{Context, ERROR, of};
use super::c_own::{CGrowable, null, serve};
use crate::error::KernelError;
use crate::kernel::{MadeColumn, Rows};

/// `farside_column`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct CColumn {
    values: CGrowable,
    offsets: CGrowable,
    validity: CGrowable,
    length: u64,
    nulls: u64,
    /// Of the rows behind the last whole byte.
    bits: u32,
    is_text: u32,
}

impl CColumn {
    /// The rows that it has. Whatever C has written there, nothing but its own memory is reached by them.
    fn rows(&self, args: &KernelArgs) -> Result<Rows, KernelError> {
        let bits = u8::try_from(self.bits).ok().filter(|_| self.nulls <= self.length);
        let bits = bits.ok_or_else(|| {
            let (nulls, length) = (self.nulls, self.length);
            args.bad(format!(
                "{nulls} nulls among {length} rows are no column; begin with FARSIDE_COLUMN or FARSIDE_TEXTS and leave \
                 its members alone"
            ))
        })?;
        Ok(Rows {
            values: self.values.bytes(args)?,
            offsets: self.offsets.values(args)?,
            validity: self.validity.values(args)?,
            len: self.length,
            nulls: self.nulls,
            bits,
        })
    }

    fn set(&mut self, rows: &Rows) {
        self.values.set(&rows.values);
        self.offsets.set(&rows.offsets);
        self.validity.set(&rows.validity);
        (self.length, self.nulls, self.bits) = (rows.len, rows.nulls, rows.bits.into());
    }

    fn check_kind(&self, args: &KernelArgs, is_text: bool) -> Result<(), KernelError> {
        if (self.is_text != 0) == is_text {
            return Ok(());
        }
        let (service, begin) = match is_text {
            true => ("farside_add_texts", "FARSIDE_TEXTS"),
            false => ("farside_add_values", "FARSIDE_COLUMN"),
        };
        Err(args.bad(format!("{service} is for a column that begins as {begin}")))
    }
}

/// Items that C has passed; without a pointer there are none.
///
/// # Safety
/// `items` is null or has so many, which stay as they are until the service returns.
unsafe fn items<'a, T>(items: *const T, count: usize) -> &'a [T] {
    if items.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: passed on to the caller.
    unsafe { std::slice::from_raw_parts(items, count) }
}

/// So many rows; of so many bytes there is no slice.
fn rows_of(args: &KernelArgs, count: u64, element: u64) -> Result<usize, KernelError> {
    let bytes = count.checked_mul(element.max(8)).filter(|&bytes| bytes <= isize::MAX as u64);
    bytes
        .map(|_| count as usize)
        .ok_or_else(|| args.bad(format!("{count} rows are more than there can be")))
}

/// Whether a row is valid: all are, where C has not said which.
fn is_valid(valid: &[u8], row: usize) -> bool {
    valid.get(row).is_none_or(|&valid| valid != 0)
}

pub(super) unsafe extern "C" fn add_values(
    context: *const Context<'_>,
    column: *mut CColumn,
    values: *const c_void,
    valid: *const u8,
    count: u64,
) -> i32 {
    // SAFETY: C calls services with its context.
    let Some(context) = (unsafe { of(context) }) else { return ERROR };
    serve(context, |k| {
        // SAFETY: C passes NULL or a column that is its own meanwhile.
        let column = unsafe { column.as_mut() };
        let Some(column) = column.filter(|_| count == 0 || !values.is_null()) else {
            return Err(null(context.args, "add_values"));
        };
        column.check_kind(context.args, false)?;
        let mut rows = column.rows(context.args)?;
        let element = column.values.element_bytes();
        let count = rows_of(context.args, count, element as u64)?;
        // SAFETY: C passes so many values, and NULL or so many bytes.
        let (bytes, valid) =
            unsafe { (items(values.cast::<u8>(), count * element), items(valid, count)) };
        let added = rows.add_values(k, bytes, element, count, |row| is_valid(valid, row));
        // Also if they were not: its vectors may have moved.
        column.set(&rows);
        added
    })
}

pub(super) unsafe extern "C" fn add_texts(
    context: *const Context<'_>,
    column: *mut CColumn,
    bytes: *const c_char,
    lengths: *const u32,
    valid: *const u8,
    count: u64,
) -> i32 {
    // SAFETY: C calls services with its context.
    let Some(context) = (unsafe { of(context) }) else { return ERROR };
    serve(context, |k| {
        // SAFETY: C passes NULL or a column that is its own meanwhile.
        let column = unsafe { column.as_mut() };
        let Some(column) = column.filter(|_| count == 0 || !lengths.is_null()) else {
            return Err(null(context.args, "add_texts"));
        };
        column.check_kind(context.args, true)?;
        let mut rows = column.rows(context.args)?;
        let count = rows_of(context.args, count, size_of::<u32>() as u64)?;
        // SAFETY: C passes so many lengths, and NULL or so many bytes.
        let (lengths, valid) = unsafe { (items(lengths, count), items(valid, count)) };
        let all: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
        if all > 0 && bytes.is_null() {
            return Err(null(context.args, "add_texts"));
        }
        let all = rows_of(context.args, all, 1)?;
        // SAFETY: C passes the texts, one behind the other.
        let bytes = unsafe { items(bytes.cast::<u8>(), all) };
        let lengths = lengths.iter().map(|&length| length.into());
        let added = rows.add_texts(k, bytes, lengths, |row| is_valid(valid, row));
        column.set(&rows);
        added
    })
}

pub(super) unsafe extern "C" fn finish_column(
    context: *const Context<'_>,
    column: *mut CColumn,
    made: *mut MadeColumn,
) -> i32 {
    // SAFETY: C calls services with its context.
    let Some(context) = (unsafe { of(context) }) else { return ERROR };
    serve(context, |k| {
        // SAFETY: C passes NULL or a column, and room for what it becomes; both are its own meanwhile.
        let (Some(column), Some(made)) = (unsafe { (column.as_mut(), made.as_mut()) }) else {
            return Err(null(context.args, "finish_column"));
        };
        let mut rows = column.rows(context.args)?;
        let element = if column.is_text == 0 { column.values.element_bytes() } else { 0 };
        let finished = rows.hand_over(k, element);
        // Also if it was not: what was handed over is its no more.
        column.set(&rows);
        *made = finished?;
        Ok(())
    })
}
