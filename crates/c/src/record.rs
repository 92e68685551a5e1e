//! Records that grow with versions of the interface: their first member says how many bytes the program knows.

use crate::status::Failure;

/// A record that begins with its size in bytes, as a `u32`.
///
/// # Safety
/// It is of plain data without padding that matters, and any bytes are a value of it, zeros among them.
pub(crate) unsafe trait Record: Copy {
    /// Its name in C.
    const NAME: &'static str;
}

/// Reads a record; the members that the program does not know are 0.
///
/// # Errors
/// It has no size that can be, or members that this version does not know and that are not 0.
///
/// # Safety
/// `from` is null, or points to as many bytes as its first four say, at least to these.
pub(crate) unsafe fn read<R: Record>(from: *const R) -> Result<Option<R>, Failure> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller gives at least these four bytes.
    let size = unsafe { from.cast::<u32>().read_unaligned() } as usize;
    let (name, known) = (R::NAME, size_of::<R>());
    // A record of no known size is not looked at: a program that forgot to set it has anything there.
    if size < size_of::<u32>() || size > 16 * known {
        return Err(Failure::argument(format!(
            "size of {name} is {size}; begin it with sizeof({name}), as {}_INIT does",
            name.to_uppercase()
        )));
    }
    // SAFETY: the caller gives `size` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size) };
    if bytes[known.min(size)..].iter().any(|&byte| byte != 0) {
        return Err(Failure::argument(format!(
            "{name} has {size} bytes, and this library knows {known} of them: the program was compiled for a later \
             version; install that, or leave what is new at 0"
        )));
    }
    // SAFETY: zeros are a value of a `Record`.
    let mut record = unsafe { std::mem::zeroed::<R>() };
    let to = (&raw mut record).cast::<u8>();
    // SAFETY: no more than either has, and any bytes are a value of a `Record`.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), known.min(size)) };
    Ok(Some(record))
}
