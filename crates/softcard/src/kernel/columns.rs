//! Columns of Arrow that a kernel builds in its card's own memory, of whose length nobody knows beforehand.
//!
//! A column is two or three growing vectors: values, or offsets and bytes of texts, and which rows are valid, a bit each
//! from the lowest on. There are no such bits before the first null.

use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};

use super::KernelContext;
use super::own::{CardBuffer, Growable, Made};
use crate::error::KernelError;
use crate::own_memory::{AllocOptions, OwnMemoryId};

/// A column that a kernel has made and handed over ([`ColumnBuilder::hand_over`]); `Space::take_over_column` makes a
/// `CardColumn` of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct MadeColumn {
    /// The values, or the bytes of texts.
    pub values: Made,
    /// Of texts: where each begins, `i32`, and where the last one ends.
    pub offsets: Made,
    /// Which rows are valid, a bit each; none if all are.
    pub validity: Made,
    /// Number of rows.
    pub len: u64,
}

/// The same as buffers of bytes, from a kernel in the program.
#[derive(Debug)]
pub struct ColumnParts {
    /// As [`MadeColumn::values`].
    pub values: CardBuffer<u8>,
    /// As [`MadeColumn::offsets`].
    pub offsets: CardBuffer<u8>,
    /// As [`MadeColumn::validity`].
    pub validity: CardBuffer<u8>,
    /// Number of rows.
    pub len: usize,
}

/// Builds a column of values, of which some may be null.
///
/// Rows are added all or none: where memory does not suffice for some of them, the column has those of before.
#[derive(Debug)]
pub struct ColumnBuilder<T> {
    rows: Rows,
    of: PhantomData<fn() -> T>,
}

/// Builds a column of texts, of which some may be null; at most 2^31 - 1 bytes in all.
#[derive(Debug)]
pub struct TextBuilder {
    rows: Rows,
}

/// The rows of a column, whatever they are.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) values: Growable<u8>,
    pub(crate) offsets: Growable<i32>,
    pub(crate) validity: Growable<u8>,
    pub(crate) len: u64,
    pub(crate) nulls: u64,
    /// The last byte of the validity, as far as there are rows.
    pub(crate) bits: u8,
}

/// Bits to be added.
struct Bits {
    whole: Vec<u8>,
    last: u8,
    nulls: u64,
}

impl<T: Pod> ColumnBuilder<T> {
    /// One without rows.
    pub const fn new() -> ColumnBuilder<T> {
        ColumnBuilder::in_memory(OwnMemoryId(0))
    }

    /// The same in one of the card's own memories, all of its parts.
    pub const fn in_memory(memory: OwnMemoryId) -> ColumnBuilder<T> {
        let options = AllocOptions::LAZY.in_memory(memory);
        ColumnBuilder { rows: Rows::of_options(options), of: PhantomData }
    }

    /// The same as [`AllocOptions`] say, all of its parts: see [`Growable::with_options`].
    pub fn with_options(options: impl Into<AllocOptions>) -> ColumnBuilder<T> {
        ColumnBuilder { rows: Rows::of_options(options.into()), of: PhantomData }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.len == 0
    }

    /// Adds rows that are all valid.
    ///
    /// # Errors
    /// As [`Growable::extend`].
    pub fn extend(&mut self, kernel: &mut KernelContext, values: &[T]) -> Result<(), KernelError> {
        let bytes = bytemuck::cast_slice(values);
        self.rows.add_values(kernel, bytes, size_of::<T>(), values.len(), |_| true)
    }

    /// Adds rows of which some may be null.
    ///
    /// # Errors
    /// As [`Growable::extend`].
    pub fn extend_nullable(
        &mut self,
        kernel: &mut KernelContext,
        values: &[Option<T>],
    ) -> Result<(), KernelError> {
        let plain: Vec<T> = values.iter().map(|value| value.unwrap_or(T::zeroed())).collect();
        let bytes = bytemuck::cast_slice(&plain);
        let is_valid = |row: usize| values[row].is_some();
        self.rows.add_values(kernel, bytes, size_of::<T>(), values.len(), is_valid)
    }

    /// What was added, to be returned by the kernel: `farside::CardColumn::of` makes a column of it.
    ///
    /// # Errors
    /// As [`Growable::finish`].
    pub fn finish(self, kernel: &mut KernelContext) -> Result<ColumnParts, KernelError> {
        self.rows.finish(kernel, size_of::<T>())
    }

    /// What was added, for the program, which has to be told of it: as [`Growable::hand_over`].
    ///
    /// # Errors
    /// As [`Growable::hand_over`].
    pub fn hand_over(mut self, kernel: &mut KernelContext) -> Result<MadeColumn, KernelError> {
        self.rows.hand_over(kernel, size_of::<T>())
    }
}

impl<T: Pod> Default for ColumnBuilder<T> {
    fn default() -> ColumnBuilder<T> {
        ColumnBuilder::new()
    }
}

impl TextBuilder {
    /// One without rows.
    pub const fn new() -> TextBuilder {
        TextBuilder::in_memory(OwnMemoryId(0))
    }

    /// The same in one of the card's own memories, all of its parts.
    pub const fn in_memory(memory: OwnMemoryId) -> TextBuilder {
        TextBuilder { rows: Rows::of_options(AllocOptions::LAZY.in_memory(memory)) }
    }

    /// The same as [`AllocOptions`] say, all of its parts: see [`Growable::with_options`].
    pub fn with_options(options: impl Into<AllocOptions>) -> TextBuilder {
        TextBuilder { rows: Rows::of_options(options.into()) }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.len == 0
    }

    /// Adds texts that are all valid.
    ///
    /// # Errors
    /// As [`Growable::extend`]; [`KernelError::Failed`] if the texts have more than 2^31 - 1 bytes.
    pub fn extend(
        &mut self,
        kernel: &mut KernelContext,
        texts: &[&str],
    ) -> Result<(), KernelError> {
        let lengths = texts.iter().map(|text| text.len() as u64);
        self.rows.add_texts(kernel, texts.concat().as_bytes(), lengths, |_| true)
    }

    /// Adds texts of which some may be null.
    ///
    /// # Errors
    /// As [`TextBuilder::extend`].
    pub fn extend_nullable(
        &mut self,
        kernel: &mut KernelContext,
        texts: &[Option<&str>],
    ) -> Result<(), KernelError> {
        let bytes: String = texts.iter().flatten().copied().collect();
        let lengths = texts.iter().map(|text| text.map_or(0, |text| text.len() as u64));
        self.rows.add_texts(kernel, bytes.as_bytes(), lengths, |row| texts[row].is_some())
    }

    /// What was added, to be returned by the kernel: `farside::CardColumn::of` makes a column of it.
    ///
    /// # Errors
    /// As [`Growable::finish`].
    pub fn finish(self, kernel: &mut KernelContext) -> Result<ColumnParts, KernelError> {
        self.rows.finish(kernel, 0)
    }

    /// What was added, for the program, which has to be told of it: as [`Growable::hand_over`].
    ///
    /// # Errors
    /// As [`Growable::hand_over`].
    pub fn hand_over(mut self, kernel: &mut KernelContext) -> Result<MadeColumn, KernelError> {
        self.rows.hand_over(kernel, 0)
    }
}

impl Default for TextBuilder {
    fn default() -> TextBuilder {
        TextBuilder::new()
    }
}

impl Rows {
    pub(crate) const fn of_options(options: AllocOptions) -> Rows {
        Rows {
            values: Growable::of_options(options),
            offsets: Growable::of_options(options),
            validity: Growable::of_options(options),
            len: 0,
            nulls: 0,
            bits: 0,
        }
    }

    /// Adds `count` rows of `element` bytes each: all of them or none.
    pub(crate) fn add_values(
        &mut self,
        kernel: &mut KernelContext,
        bytes: &[u8],
        element: usize,
        count: usize,
        is_valid: impl Fn(usize) -> bool,
    ) -> Result<(), KernelError> {
        self.values.truncate((self.len as usize).saturating_mul(element));
        self.values.extend(kernel, bytes)?;
        self.add_rows(kernel, count, is_valid)
    }

    /// Adds texts, whose bytes follow one another: all of them or none.
    pub(crate) fn add_texts(
        &mut self,
        kernel: &mut KernelContext,
        bytes: &[u8],
        lengths: impl ExactSizeIterator<Item = u64>,
        is_valid: impl Fn(usize) -> bool,
    ) -> Result<(), KernelError> {
        let count = lengths.len();
        let begin = self.begin_texts(kernel)?;
        let mut end = u64::from(begin);
        let ends: Vec<i32> = lengths
            .map_while(|length| {
                end = end.saturating_add(length);
                i32::try_from(end).ok()
            })
            .collect();
        if ends.len() < count {
            let why = "a column of texts has at most 2147483647 bytes; begin another one";
            return Err(kernel.fail(why));
        }
        self.values.truncate(begin as usize);
        self.values.extend(kernel, bytes)?;
        self.offsets.extend(kernel, &ends)?;
        self.add_rows(kernel, count, is_valid)
    }

    /// Where the next text begins; the first offset is there from then on.
    fn begin_texts(&mut self, kernel: &mut KernelContext) -> Result<u32, KernelError> {
        self.offsets.truncate((self.len as usize).saturating_add(1));
        match self.offsets.last_addr() {
            None => self.offsets.push(kernel, 0).map(|()| 0),
            Some(addr) => kernel.load(crate::span::Ptr::<u32>::at(addr)),
        }
    }

    fn add_rows(
        &mut self,
        kernel: &mut KernelContext,
        count: usize,
        is_valid: impl Fn(usize) -> bool,
    ) -> Result<(), KernelError> {
        if let Some(bits) = self.bits_of(count, is_valid) {
            self.validity.truncate(if self.nulls > 0 { self.len as usize / 8 } else { 0 });
            self.validity.extend(kernel, &bits.whole)?;
            (self.bits, self.nulls) = (bits.last, self.nulls + bits.nulls);
        }
        self.len += count as u64;
        Ok(())
    }

    /// The bits of so many rows that follow; none where there is no null yet.
    fn bits_of(&self, count: usize, is_valid: impl Fn(usize) -> bool) -> Option<Bits> {
        let len = self.len as usize;
        let nulls = (0..count).filter(|&row| !is_valid(row)).count() as u64;
        let mut bits = match (self.nulls, nulls) {
            (0, 0) => return None,
            // The rows before were all valid.
            (0, _) => Bits { whole: vec![u8::MAX; len / 8], last: (1 << (len % 8)) - 1, nulls },
            _ => Bits { whole: Vec::new(), last: self.bits, nulls },
        };
        for row in 0..count {
            let place = (len + row) % 8;
            bits.last |= u8::from(is_valid(row)) << place;
            if place == 7 {
                bits.whole.push(std::mem::take(&mut bits.last));
            }
        }
        Some(bits)
    }

    /// Leaves nothing but the rows: `element` is 0 of texts.
    fn complete(&mut self, kernel: &mut KernelContext, element: usize) -> Result<(), KernelError> {
        let bytes = match element {
            0 => self.begin_texts(kernel)? as usize,
            element => (self.len as usize).saturating_mul(element),
        };
        self.values.truncate(bytes);
        self.validity.truncate(if self.nulls > 0 { self.len as usize / 8 } else { 0 });
        if self.nulls > 0 && self.len % 8 > 0 {
            self.validity.push(kernel, self.bits)?;
        }
        Ok(())
    }

    fn finish(
        mut self,
        kernel: &mut KernelContext,
        element: usize,
    ) -> Result<ColumnParts, KernelError> {
        self.complete(kernel, element)?;
        Ok(ColumnParts {
            values: self.values.finish(kernel)?,
            offsets: self.offsets.finish(kernel)?.into_bytes(),
            validity: self.validity.finish(kernel)?,
            len: self.len as usize,
        })
    }

    /// Hands the rows over, and has none any more. Where memory does not suffice to complete one of their parts, none is handed
    /// over, and the rows stay.
    pub(crate) fn hand_over(
        &mut self,
        kernel: &mut KernelContext,
        element: usize,
    ) -> Result<MadeColumn, KernelError> {
        self.complete(kernel, element)?;
        // What can fail comes first: a part that is handed over is nobody's who could take it back.
        self.values.settle(kernel)?;
        self.offsets.settle(kernel)?;
        self.validity.settle(kernel)?;
        let options = self.values.parts().options;
        let rows = std::mem::replace(self, Rows::of_options(options));
        let Made { addr, len } = rows.values.hand_over(kernel)?;
        Ok(MadeColumn {
            values: Made { addr, len: len / element.max(1) as u64 },
            offsets: rows.offsets.hand_over(kernel)?,
            validity: rows.validity.hand_over(kernel)?,
            len: rows.len,
        })
    }
}
