//! Texts from and to C.

use std::ffi::{CStr, c_char};

use crate::status::Failure;

/// A text of the caller's; None for a null pointer.
///
/// # Errors
/// It is not UTF-8.
///
/// # Safety
/// `text` is null or points to bytes that end with a zero, which live as long as is said.
pub(crate) unsafe fn optional<'a>(
    text: *const c_char,
    what: &str,
) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: passed on to the caller.
    let text = unsafe { CStr::from_ptr(text) };
    let read = text.to_str().map(Some);
    read.map_err(|_| Failure::argument(format!("{what} is not UTF-8: {}", text.to_string_lossy())))
}

/// Writes a text for the caller: as much of it as there is room for, with a zero at the end, and its whole length.
///
/// # Safety
/// `to` is null or has `size` bytes, `length` is null or has a `usize`.
pub(crate) unsafe fn give(text: &str, to: *mut c_char, size: usize, length: *mut usize) {
    if !length.is_null() {
        // SAFETY: the caller's.
        unsafe { length.write(text.len()) };
    }
    if to.is_null() || size == 0 {
        return;
    }
    let mut fits = text.len().min(size - 1);
    while !text.is_char_boundary(fits) {
        fits -= 1;
    }
    // SAFETY: at most `size - 1` bytes and the zero.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), fits);
        to.add(fits).write(0);
    }
}
