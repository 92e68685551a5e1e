//! Arrow's C data interface, as far as columns of kernels need it.
//!
//! The two structures are those of [its specification](https://arrow.apache.org/docs/format/CDataInterface.html), so
//! whatever reads them takes an array without a copy: `arrow::ffi`, pyarrow, polars. Each holds what it is made of, and is
//! released by whoever has it last, once.

use std::any::Any;
use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use farside_softcard::{CardBuffer, WindowError};

use crate::ColumnType;

/// Rows may be null.
const NULLABLE: i64 = 2;
/// The format of a batch: a column for each child.
const STRUCT: &str = "+s";

/// What holds bytes of an array.
pub type Owner = Arc<dyn Any + Send + Sync>;
/// A part of a column in a card's own memory, and what holds it.
pub type Part<'a> = (&'a CardBuffer<u8>, Owner);

/// `struct ArrowSchema`: the type and the name of an array.
#[derive(Debug)]
#[repr(C)]
pub struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

/// `struct ArrowArray`: rows.
#[derive(Debug)]
#[repr(C)]
pub struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

// SAFETY: they own what they point to, which is `Send`: see `SchemaParts` and `ArrayParts`.
unsafe impl Send for ArrowSchema {}
// SAFETY: as above.
unsafe impl Send for ArrowArray {}

/// What a schema is made of.
struct SchemaParts {
    format: CString,
    name: CString,
    children: Vec<*mut ArrowSchema>,
}

/// What an array is made of.
struct ArrayParts {
    buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
    _owners: Vec<Owner>,
}

/// Bytes of an array, and what holds them.
#[derive(Debug)]
struct ArrowBuffer {
    /// Null: there are none.
    at: *const u8,
    len: usize,
    owner: Owner,
}

impl ArrowBuffer {
    /// A card's own memory, without a copy where it is mapped, unless `is_copied`. `owner` holds it.
    ///
    /// # Errors
    /// [`WindowError::Gone`].
    fn of_card((bytes, owner): Part<'_>, is_copied: bool) -> Result<ArrowBuffer, WindowError> {
        let len = bytes.len();
        if len == 0 {
            return Ok(ArrowBuffer { at: null(), len, owner: Arc::new(()) });
        }
        if !is_copied {
            match bytes.host() {
                Ok(shown) => return Ok(ArrowBuffer { at: shown.as_ptr(), len, owner }),
                Err(WindowError::NotShown { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        // Arrow wants buffers aligned as their values.
        let mut words = vec![0u64; len.div_ceil(8)];
        bytes.copy_to(&mut bytemuck::cast_slice_mut(&mut words)[..len])?;
        let at = words.as_ptr().cast();
        Ok(ArrowBuffer { at, len, owner: Arc::new(words) })
    }

    /// A bit for each byte, set where that is not 0: of truth values kernels write bytes, Arrow has bits.
    fn packed(&self) -> ArrowBuffer {
        let mut words = vec![0u64; self.len.div_ceil(64)];
        let bits: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        for (row, &byte) in self.bytes().iter().enumerate() {
            bits[row / 8] |= u8::from(byte != 0) << (row % 8);
        }
        let at = words.as_ptr().cast();
        ArrowBuffer { at, len: self.len.div_ceil(8), owner: Arc::new(words) }
    }

    fn bytes(&self) -> &[u8] {
        if self.at.is_null() {
            return &[];
        }
        // SAFETY: `owner` holds so many bytes there, which nobody writes; of a card that breaks its word they are any
        // mixture of bytes.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

/// A column as an array of Arrow, and its schema: of values or bytes of texts, offsets of texts, and validity. What lies too
/// scattered to be mapped is copied; so are truth values, which become bits; and so is what is checked or counted here, texts and
/// validity, where the card could change it afterwards ([`CardBuffer::is_elsewhere`]).
///
/// # Safety
/// Each part is there as long as its owner, and nobody writes to it. Their lengths are those of a column of `len` rows of
/// `T`, as [`crate::CardColumn::of`] checks them.
///
/// # Errors
/// [`WindowError::Gone`]; [`WindowError::NotMade`] if texts are none.
pub unsafe fn column<T: ColumnType + ?Sized>(
    name: &str,
    len: usize,
    (values, offsets, validity): (Part<'_>, Part<'_>, Part<'_>),
) -> Result<(ArrowArray, ArrowSchema), WindowError> {
    let is_text = T::ELEMENT == 0;
    let (card, addr) = (values.0.card(), values.0.addr());
    let could_change = |part: &Part<'_>| part.0.is_elsewhere();
    let (copies_values, copies_offsets, copies_validity) =
        (is_text && could_change(&values), could_change(&offsets), could_change(&validity));
    let validity = ArrowBuffer::of_card(validity, copies_validity)?;
    let mut buffers = vec![ArrowBuffer::of_card(values, copies_values)?];
    if is_text {
        buffers.insert(0, ArrowBuffer::of_card(offsets, copies_offsets)?);
        let checked = check_texts(&buffers[0], &buffers[1]);
        checked.map_err(|why| WindowError::NotMade { card, addr, why })?;
    }
    if T::FORMAT == bool::FORMAT {
        buffers[0] = buffers[0].packed();
    }
    Ok((ArrowArray::of_rows(len, validity, buffers), ArrowSchema::of::<T>(name)))
}

/// Whether these are offsets of texts, and the bytes texts.
///
/// # Errors
/// What is wrong with them.
fn check_texts(offsets: &ArrowBuffer, bytes: &ArrowBuffer) -> Result<(), String> {
    let offsets: &[i32] = bytemuck::try_cast_slice(offsets.bytes())
        .map_err(|why| format!("its offsets are none: {why}"))?;
    let texts = bytes.bytes();
    let ends_right = offsets.last().is_some_and(|&end| usize::try_from(end) == Ok(texts.len()));
    let wrong = match offsets.first() {
        Some(0) => offsets.windows(2).position(|two| two[0] > two[1]),
        _ => Some(0),
    };
    if let Some(row) = wrong.or((!ends_right).then_some(offsets.len().saturating_sub(2))) {
        return Err(format!("the offsets of its texts are not in order at row {row}"));
    }
    let row_of = |at: usize| offsets.partition_point(|&end| end as usize <= at).saturating_sub(1);
    let whole = std::str::from_utf8(texts)
        .map_err(|why| format!("the text of row {} is no UTF-8", row_of(why.valid_up_to())))?;
    match offsets.iter().position(|&at| !whole.is_char_boundary(at as usize)) {
        None => Ok(()),
        Some(row) => Err(format!("the text of row {row} begins within a character")),
    }
}

impl ArrowArray {
    /// Rows, of which those are null whose bits in `validity` are not set, if it has bytes.
    fn of_rows(len: usize, validity: ArrowBuffer, mut buffers: Vec<ArrowBuffer>) -> ArrowArray {
        let bit = |row: usize| validity.bytes()[row / 8] >> (row % 8) & 1;
        let nulls = match validity.len {
            0 => 0,
            _ => (0..len).filter(|&row| bit(row) == 0).count(),
        };
        buffers.insert(0, validity);
        ArrowArray::new(len, nulls, buffers, Vec::new())
    }

    /// A record batch of columns, which are equally long.
    ///
    /// # Panics
    /// If they are not.
    pub fn batch(columns: Vec<(ArrowArray, ArrowSchema)>) -> (ArrowArray, ArrowSchema) {
        let len = columns.first().map_or(0, |(array, _)| array.length);
        assert!(
            columns.iter().all(|(array, _)| array.length == len),
            "the columns of a batch have as many rows each"
        );
        let (arrays, schemas) = columns.into_iter().unzip();
        let all_valid = ArrowBuffer { at: null(), len: 0, owner: Arc::new(()) };
        let array = ArrowArray::new(len as usize, 0, vec![all_valid], arrays);
        let mut schema = ArrowSchema::new(STRUCT, "", schemas);
        schema.flags = 0;
        (array, schema)
    }

    fn new(
        len: usize,
        nulls: usize,
        buffers: Vec<ArrowBuffer>,
        children: Vec<ArrowArray>,
    ) -> ArrowArray {
        let (pointers, owners) =
            buffers.into_iter().map(|buffer| (buffer.at.cast(), buffer.owner)).unzip();
        let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
        let parts =
            Box::leak(Box::new(ArrayParts { buffers: pointers, children, _owners: owners }));
        ArrowArray {
            length: len as i64,
            null_count: nulls as i64,
            offset: 0,
            n_buffers: parts.buffers.len() as i64,
            n_children: parts.children.len() as i64,
            buffers: parts.buffers.as_mut_ptr(),
            children: parts.children.as_mut_ptr(),
            dictionary: null_mut(),
            release: Some(release_array),
            private_data: std::ptr::from_mut(parts).cast(),
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Where its buffers are.
    #[cfg(test)]
    pub(crate) fn buffers(&self) -> &[*const c_void] {
        // SAFETY: so many of them are there as long as the array is, which was not released.
        unsafe { std::slice::from_raw_parts(self.buffers, self.n_buffers as usize) }
    }

    /// How many rows are null.
    pub fn null_count(&self) -> usize {
        self.null_count as usize
    }
}

impl ArrowSchema {
    /// The type of a column.
    pub fn of<T: ColumnType + ?Sized>(name: &str) -> ArrowSchema {
        ArrowSchema::new(T::FORMAT, name, Vec::new())
    }

    #[cfg(test)]
    pub(crate) fn format(&self) -> &str {
        // SAFETY: a text of C's that is there as long as the schema is, which was not released.
        unsafe { std::ffi::CStr::from_ptr(self.format) }.to_str().unwrap()
    }

    /// A type by its format, with a name and those of its children.
    pub fn new(format: &str, name: &str, children: Vec<ArrowSchema>) -> ArrowSchema {
        let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
        // C's strings end with the first zero.
        let text = |text: &str| CString::new(text.replace('\0', "")).unwrap_or_default();
        let (format, name) = (text(format), text(name));
        let parts = Box::leak(Box::new(SchemaParts { format, name, children }));
        ArrowSchema {
            format: parts.format.as_ptr(),
            name: parts.name.as_ptr(),
            metadata: null(),
            flags: NULLABLE,
            n_children: parts.children.len() as i64,
            children: parts.children.as_mut_ptr(),
            dictionary: null_mut(),
            release: Some(release_schema),
            private_data: std::ptr::from_mut(parts).cast(),
        }
    }
}

impl Drop for ArrowArray {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: it was not released yet, and is not used any more.
            unsafe { release(self) }
        }
    }
}

impl Drop for ArrowSchema {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: it was not released yet, and is not used any more.
            unsafe { release(self) }
        }
    }
}

/// # Safety
/// `array` is one that `ArrowArray::new` has made, wherever it was moved, and it was not released.
unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: passed on to the caller. Children are those that `new` has boxed; one that was moved out by the reader is
    // marked as released, as the specification asks for, so that its drop does nothing.
    unsafe {
        let parts = Box::from_raw((*array).private_data.cast::<ArrayParts>());
        parts.children.iter().for_each(|&child| drop(Box::from_raw(child)));
        (*array).release = None;
    }
}

/// # Safety
/// `schema` is one that `ArrowSchema::new` has made, wherever it was moved, and it was not released.
unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: as in `release_array`.
    unsafe {
        let parts = Box::from_raw((*schema).private_data.cast::<SchemaParts>());
        parts.children.iter().for_each(|&child| drop(Box::from_raw(child)));
        (*schema).release = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes, and a token that says whether somebody holds them.
    fn buffer(bytes: &[u8]) -> (ArrowBuffer, std::sync::Weak<Vec<u8>>) {
        let held = Arc::new(bytes.to_vec());
        let (at, len, weak) = (held.as_ptr(), held.len(), Arc::downgrade(&held));
        (ArrowBuffer { at, len, owner: held }, weak)
    }

    fn no_bits() -> ArrowBuffer {
        ArrowBuffer { at: null(), len: 0, owner: Arc::new(()) }
    }

    fn column_of(bytes: &[u8]) -> ((ArrowArray, ArrowSchema), std::sync::Weak<Vec<u8>>) {
        let (values, held) = buffer(bytes);
        let array = ArrowArray::of_rows(bytes.len(), no_bits(), vec![values]);
        ((array, ArrowSchema::new(u8::FORMAT, "bytes", Vec::new())), held)
    }

    #[test]
    fn nulls_are_counted_from_the_bits_of_rows_alone() {
        let (values, _held) = buffer(&[0; 10]);
        let (bits, _bits) = buffer(&[0b1010_1010, 0b1111_1101]);
        assert_eq!(ArrowArray::of_rows(10, bits, vec![values]).null_count(), 5);
    }

    #[test]
    fn an_array_holds_its_bytes_until_it_is_released() {
        let ((array, schema), held) = column_of(b"abc");
        // SAFETY: the array is alive, with two buffers of which the second has three bytes.
        let seen = unsafe { std::slice::from_raw_parts((*array.buffers.add(1)).cast::<u8>(), 3) };
        assert_eq!(seen, b"abc");
        drop(schema);
        assert!(held.upgrade().is_some());
        drop(array);
        assert!(held.upgrade().is_none());
    }

    #[test]
    fn a_batch_releases_its_columns_but_for_those_that_were_moved_out() {
        let (first, first_held) = column_of(b"abc");
        let (second, second_held) = column_of(b"xyz");
        let (batch, schema) = ArrowArray::batch(vec![first, second]);
        assert_eq!((batch.len(), batch.n_children, schema.n_children), (3, 2, 2));
        // As a reader does that keeps a column: it copies the structure and marks it as released.
        // SAFETY: the child is alive, and is not used there again.
        let moved = unsafe {
            let child = *batch.children.add(1);
            let moved = std::ptr::read(child);
            (*child).release = None;
            moved
        };
        drop((batch, schema));
        assert!(first_held.upgrade().is_none() && second_held.upgrade().is_some());
        drop(moved);
        assert!(second_held.upgrade().is_none());
    }

    #[test]
    fn offsets_that_are_not_in_order_are_named_by_their_row() {
        let check = |offsets: &[i32]| {
            let (offsets, _held) = buffer(bytemuck::cast_slice(offsets));
            check_texts(&offsets, &buffer(b"abcd").0)
        };
        check(&[0, 1, 1, 4]).unwrap();
        for (offsets, row) in [([1, 2, 2, 4], 0), ([0, 3, 2, 4], 1), ([0, 1, 2, 3], 2)] {
            let why = check(&offsets).unwrap_err();
            assert!(why.ends_with(&format!("not in order at row {row}")), "{why}");
        }
    }

    #[test]
    #[should_panic(expected = "as many rows each")]
    fn a_batch_of_unequal_columns_is_none() {
        let _ = ArrowArray::batch(vec![column_of(b"abc").0, column_of(b"ab").0]);
    }
}
