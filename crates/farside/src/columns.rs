//! Columns of Arrow that kernels have built in a card's own memory.

use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;
use farside_softcard::{CardBuffer, ColumnParts, Made, MadeColumn, WindowError};
use farside_types::{CardId, VirtAddr};

use crate::arrow::{self, ArrowArray, ArrowSchema, Owner, Part};
use crate::{ColumnType, Error, Space};

/// A column in a card's own memory that a kernel has built ([`crate::ColumnBuilder`], [`crate::TextBuilder`]). Freed when
/// dropped.
///
/// ```
/// use farside::{CardColumn, ColumnBuilder, Read, Space, TextBuilder};
///
/// # fn main() -> Result<(), farside::Error> {
/// let space = Space::builder().cards(1).card_window(16 << 20).build()?;
/// let mut input = space.alloc::<u32>(10_000)?;
/// (0..).zip(input.iter_mut()).for_each(|(n, value)| *value = n * 7 % 1000);
/// let (large, names) = space.kernel("columns").run(Read(&input), |kernel, input| {
///     let (mut large, mut names) = (ColumnBuilder::<u32>::new(), TextBuilder::new());
///     let values: Vec<u32> = kernel.with(input, |input| input.iter().copied().collect())?;
///     for value in values.into_iter().filter(|&value| value > 990) {
///         large.extend_nullable(kernel, &[(value < 999).then_some(value)])?;
///         names.extend(kernel, &[&format!("number {value}")])?;
///     }
///     Ok((large.finish(kernel)?, names.finish(kernel)?))
/// })?;
/// let (large, names): (CardColumn<u32>, CardColumn<str>) = (CardColumn::of(large)?, CardColumn::of(names)?);
/// let columns = vec![large.into_arrow("large")?, names.into_arrow("name")?];
/// let (batch, _schema) = farside::arrow::ArrowArray::batch(columns);
/// assert_eq!(batch.len(), 90);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CardColumn<T: ColumnType + ?Sized> {
    parts: ColumnParts,
    of: PhantomData<fn() -> Box<T>>,
}

impl<T: ColumnType + ?Sized> CardColumn<T> {
    /// What a kernel in the program has returned.
    ///
    /// # Errors
    /// [`WindowError::NotMade`] if it was built of other rows.
    pub fn of(parts: ColumnParts) -> Result<CardColumn<T>, WindowError> {
        let made = |bytes: &CardBuffer<u8>, element: usize| {
            let whole = bytes.len() % element == 0;
            let len = if whole { (bytes.len() / element) as u64 } else { u64::MAX };
            Made { addr: bytes.addr().0, len }
        };
        let card = parts.values.card();
        let column = MadeColumn {
            values: made(&parts.values, T::ELEMENT.max(1)),
            offsets: made(&parts.offsets, size_of::<i32>()),
            validity: made(&parts.validity, 1),
            len: parts.len as u64,
        };
        CardColumn::<T>::check(card, &column)?;
        Ok(CardColumn { parts, of: PhantomData })
    }

    /// Whether a column has the parts that its rows need.
    fn check(card: CardId, made: &MadeColumn) -> Result<(), WindowError> {
        let MadeColumn { values, offsets, validity, len } = *made;
        let (values_are, offsets_are) = match T::ELEMENT {
            0 => (values.len, len.saturating_add(1)),
            _ => (len, 0),
        };
        let bits = if validity.len == 0 { 0 } else { len.div_ceil(8) };
        if T::ELEMENT == 0 && values.len > i32::MAX as u64 {
            let why = format!("{} bytes of texts are more than Arrow's type `u` has", values.len);
            return Err(WindowError::NotMade { card, addr: VirtAddr(values.addr), why });
        }
        if (values.len, offsets.len, validity.len) == (values_are, offsets_are, bits) {
            return Ok(());
        }
        let why = format!(
            "{} values, {} offsets and {} bytes of validity are no column of {len} rows of Arrow's type `{}`",
            values.len,
            offsets.len,
            validity.len,
            T::FORMAT
        );
        Err(WindowError::NotMade { card, addr: VirtAddr(values.addr), why })
    }

    /// What it is made of, as bytes.
    pub fn into_parts(self) -> ColumnParts {
        self.parts
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.parts.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.parts.len == 0
    }

    /// Which rows are valid, a bit each from the lowest on; `None`: all of them.
    ///
    /// # Errors
    /// As [`CardBuffer::host`].
    pub fn validity(&self) -> Result<Option<&[u8]>, WindowError> {
        let validity = &self.parts.validity;
        if validity.is_empty() { Ok(None) } else { validity.host().map(Some) }
    }

    /// The column as an array of Arrow, and its schema, with this name: the card's memory itself, without a copy, which
    /// lives as long as the array. Only what lies too scattered to be mapped is copied, truth values, which become bits, and of a
    /// card in another process texts, and which rows are valid: they could change after they were checked, or counted.
    ///
    /// # Errors
    /// [`WindowError::Gone`]; [`WindowError::NotMade`] if texts are none: a kernel in C has built them of other bytes.
    pub fn into_arrow(self, name: &str) -> Result<(ArrowArray, ArrowSchema), WindowError> {
        let ColumnParts { values, offsets, validity, len } = self.parts;
        let [values, offsets, validity] = [values, offsets, validity].map(Arc::new);
        let parts = (part(&values), part(&offsets), part(&validity));
        // SAFETY: each owner holds the very part, and `of` and `take_over_column` have checked their lengths.
        unsafe { arrow::column::<T>(name, len, parts) }
    }
}

fn part(bytes: &Arc<CardBuffer<u8>>) -> Part<'_> {
    (&**bytes, Arc::clone(bytes) as Owner)
}

impl<T: ColumnType + Pod> CardColumn<T> {
    /// The values, those of null rows among them.
    ///
    /// # Errors
    /// As [`CardBuffer::host`].
    pub fn values(&self) -> Result<&[T], WindowError> {
        match self.parts.len {
            0 => Ok(&[]),
            // Allocations begin with a page, and a value is aligned to less than one.
            _ => Ok(bytemuck::cast_slice(self.parts.values.host()?)),
        }
    }
}

impl Space {
    /// A column that a kernel known by its name has built in its card's own memory and handed over, wherever that card is.
    ///
    /// # Errors
    /// As [`Space::take_over`]; [`WindowError::NotMade`] if it has other rows than these.
    pub fn take_over_column<T: ColumnType + ?Sized>(
        &self,
        card: CardId,
        made: MadeColumn,
    ) -> Result<CardColumn<T>, Error> {
        CardColumn::<T>::check(card, &made)?;
        let parts = ColumnParts {
            values: self.take_over_bytes(card, made.values, T::ELEMENT.max(1))?,
            offsets: self.take_over_bytes(card, made.offsets, size_of::<i32>())?,
            validity: self.take_over_bytes(card, made.validity, 1)?,
            len: usize::try_from(made.len).unwrap_or(usize::MAX),
        };
        Ok(CardColumn { parts, of: PhantomData })
    }

    fn take_over_bytes(
        &self,
        card: CardId,
        made: Made,
        element: usize,
    ) -> Result<CardBuffer<u8>, Error> {
        let len = made.len.checked_mul(element as u64).ok_or_else(|| {
            let (addr, why) = (VirtAddr(made.addr), format!("{} elements are too many", made.len));
            WindowError::NotMade { card, addr, why }
        })?;
        self.take_over(card, Made { addr: made.addr, len })
    }
}

#[cfg(test)]
mod tests {
    use farside_softcard::{ColumnBuilder, KernelContext, KernelError, TextBuilder};

    use super::*;
    use crate::{Date32, Elapsed, Milliseconds, Seconds, Timestamp};

    const OWN: u64 = 4 << 20;

    fn run<T: Send + 'static>(
        space: &Space,
        kernel: impl FnOnce(&mut KernelContext) -> Result<T, KernelError> + Send + 'static,
    ) -> Result<T, Error> {
        space.kernel("build").run((), move |context, ()| kernel(context))
    }

    fn space() -> Space {
        Space::builder().cards(1).card_window(OWN).address_space(16 << 20).build().unwrap()
    }

    #[test]
    fn days_and_times_are_built_of_the_integers_that_they_are() {
        let space = space();
        let (days, times) = run(&space, |k| {
            let (mut days, mut times) = (ColumnBuilder::<i32>::new(), ColumnBuilder::new());
            days.extend_nullable(k, &[Some(20_000), None])?;
            times.extend(k, &[Timestamp::<Milliseconds>::new(1_728_000_000_000)])?;
            Ok((days.finish(k)?, times.finish(k)?))
        })
        .unwrap();
        let days: CardColumn<Date32> = CardColumn::of(days).unwrap();
        assert_eq!(days.values().unwrap()[0], Date32(20_000));
        let (days, schema) = days.into_arrow("day").unwrap();
        assert_eq!((days.len(), schema.format()), (2, "tdD"));
        let times: CardColumn<Elapsed<Seconds>> = CardColumn::of(times).unwrap();
        let (_, schema) = times.into_arrow("time").unwrap();
        assert_eq!(schema.format(), "tDs", "units are the program's to know");
    }

    #[test]
    fn truth_values_are_built_of_bytes_and_become_bits() {
        let space = space();
        let flags = run(&space, |k| {
            let mut flags = ColumnBuilder::<u8>::new();
            for row in 0..1000u32 {
                // Any byte but 0 is true.
                flags.extend_nullable(k, &[(row % 7 != 0).then_some((row % 3) as u8 * 127)])?;
            }
            flags.finish(k)
        });
        let flags: CardColumn<bool> = CardColumn::of(flags.unwrap()).unwrap();
        let (array, schema) = flags.into_arrow("flag").unwrap();
        assert_eq!((array.len(), array.null_count(), schema.format()), (1000, 143, "b"));
        // SAFETY: the array is alive, and its second buffer has a bit for each of the thousand rows.
        let bits = unsafe { std::slice::from_raw_parts(array.buffers()[1].cast::<u8>(), 125) };
        let is_set = |row: usize| bits[row / 8] >> (row % 8) & 1 == 1;
        assert!((0..1000).all(|row| is_set(row) == (row % 7 != 0 && row % 3 != 0)));
        drop(array);
        assert_eq!(space.own_memory_free(CardId(0)).unwrap(), OWN);
        let none = run(&space, |k| ColumnBuilder::<u8>::new().finish(k)).unwrap();
        let none: CardColumn<bool> = CardColumn::of(none).unwrap();
        assert!(none.into_arrow("flag").unwrap().0.is_empty());
    }

    #[test]
    fn a_kernel_in_the_program_returns_columns() {
        let space = space();
        let (numbers, texts) = run(&space, |k| {
            let (mut numbers, mut texts) = (ColumnBuilder::<i64>::new(), TextBuilder::new());
            for n in 0..1000i64 {
                numbers.extend(k, &[n, -n])?;
                numbers.extend_nullable(k, &[Some(n), None, Some(n * n)])?;
                texts.extend(k, &["", "zwölf"])?;
                texts.extend_nullable(k, &[None, Some("x"), None])?;
            }
            assert_eq!((numbers.len(), texts.len()), (5000, 5000));
            Ok((numbers.finish(k)?, texts.finish(k)?))
        })
        .unwrap();
        assert!(CardColumn::<i64>::of(texts).is_err(), "texts are no numbers");
        let numbers: CardColumn<i64> = CardColumn::of(numbers).unwrap();
        assert_eq!(numbers.values().unwrap()[4990..4995], [998, -998, 998, 0, 998 * 998]);
        let bits = numbers.validity().unwrap().unwrap();
        assert!((0..5000).all(|row| (bits[row / 8] >> (row % 8) & 1 == 0) == (row % 5 == 3)));
        let parts = numbers.into_parts();
        assert!(CardColumn::<Date32>::of(parts).is_err(), "twice as wide");
        let texts = run(&space, |k| {
            let mut texts = TextBuilder::new();
            texts.extend_nullable(k, &[Some("a"), None, Some("zwölf")])?;
            texts.finish(k)
        });
        let texts: CardColumn<str> = CardColumn::of(texts.unwrap()).unwrap();
        let (array, _) = texts.into_arrow("texts").unwrap();
        assert_eq!((array.len(), array.null_count()), (3, 1));
        drop(array);
        assert_eq!(space.own_memory_free(CardId(0)).unwrap(), OWN);
    }

    #[test]
    fn rows_that_find_no_memory_are_added_in_none_of_the_parts() {
        let space = space();
        let (rows, column) = run(&space, |k| {
            let mut texts = TextBuilder::new();
            let text = "0123456789".repeat(300);
            while texts.extend_nullable(k, &[Some(&text), None]).is_ok() {}
            // What was begun of the last ones is forgotten.
            texts.extend(k, &[])?;
            Ok((texts.len(), texts.finish(k)?))
        })
        .unwrap();
        let column: CardColumn<str> = CardColumn::of(column).unwrap();
        assert!(column.len() == rows && rows > 2000, "{rows}");
        let (array, _) = column.into_arrow("texts").unwrap();
        assert_eq!(array.null_count(), rows / 2);
    }

    fn buffers(array: &ArrowArray) -> Vec<u64> {
        array.buffers().iter().map(|&at| at as u64).collect()
    }

    /// What is checked or counted of a column could be changed afterwards by a card in another process.
    #[test]
    fn of_a_card_elsewhere_texts_and_validity_are_copied_whoever_has_made_a_column_of_them() {
        let space = space();
        for is_elsewhere in [false, true] {
            let (numbers, texts) = run(&space, |k| {
                let (mut numbers, mut texts) = (ColumnBuilder::<i64>::new(), TextBuilder::new());
                numbers.extend_nullable(k, &[Some(1), None])?;
                texts.extend_nullable(k, &[Some("a"), None])?;
                Ok((numbers.finish(k)?, texts.finish(k)?))
            })
            .unwrap();
            let at = |parts: &ColumnParts| {
                [&parts.validity, &parts.offsets, &parts.values].map(|part| part.addr().0)
            };
            let elsewhere = |part: CardBuffer<u8>| {
                if is_elsewhere { part.elsewhere().into_bytes() } else { part }
            };
            let marked = |parts: ColumnParts| {
                let ColumnParts { values, offsets, validity, len } = parts;
                let [values, offsets, validity] = [values, offsets, validity].map(elsewhere);
                ColumnParts { values, offsets, validity, len }
            };
            let (in_numbers, in_texts) = (at(&numbers), at(&texts));
            let numbers: CardColumn<i64> = CardColumn::of(marked(numbers)).unwrap();
            let texts: CardColumn<str> = CardColumn::of(marked(texts)).unwrap();
            let (numbers, _) = numbers.into_arrow("").unwrap();
            let (texts, _) = texts.into_arrow("").unwrap();
            let numbers_are_there = buffers(&numbers)
                .into_iter()
                .zip([in_numbers[0], in_numbers[2]])
                .map(|(at, there)| at == there);
            assert!(numbers_are_there.eq([!is_elsewhere, true]));
            let texts_are_there =
                buffers(&texts).into_iter().zip(in_texts).map(|(at, there)| at == there);
            assert!(texts_are_there.eq([!is_elsewhere; 3]));
        }
    }

    #[test]
    fn texts_are_no_more_than_their_offsets_count() {
        let made = |len| {
            let part = |len| Made { addr: 4096, len };
            MadeColumn { values: part(len), offsets: part(2), validity: Made::default(), len: 1 }
        };
        let most = i32::MAX as u64;
        CardColumn::<str>::check(CardId(0), &made(most)).unwrap();
        let refused = CardColumn::<str>::check(CardId(0), &made(most + 1)).unwrap_err();
        assert!(refused.to_string().contains("more than Arrow"), "{refused}");
    }
}
