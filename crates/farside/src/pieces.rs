//! What a parallel launch lends to its pieces: all of a slice, or the part that belongs to the indices of
//! the piece.

use std::ops::Range;

use bytemuck::Pod;
use farside_softcard::kernels::KernelArg;
use farside_softcard::{AtomicSpan, KernelArgs, KernelError, ReadSpan, Word, WriteSpan};

use crate::{CallArgs, Read, Shared, Value, Write};

/// Lends each piece of a parallel launch its part of a slice, for reading. The slice has as many values for each
/// index: piece 10..20 of 0..100 gets values 20..40 of 200.
#[derive(Debug)]
pub struct Split<'a, T>(pub &'a [T]);

/// Gives each piece of a parallel launch its indices, as two values of eight bytes: the first, and the one behind
/// the last. For kernels that are called by name; a closure gets them anyway.
#[derive(Clone, Copy, Debug)]
pub struct Indices;

/// An argument of a parallel launch: one record of each piece.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// The same for all.
    Whole(KernelArg),
    /// Of this memory, as many bytes for each index.
    Split {
        /// All of it.
        all: KernelArg,
        /// Bytes that belong to an index.
        each: u64,
    },
    /// The first index.
    Start,
    /// The index behind the last.
    End,
}

/// Memory that cannot be split over the indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uneven {
    /// Values it has.
    pub values: u64,
}

mod sealed {
    pub trait Sealed {}
}

/// What a parallel launch takes: one of [`Read`] and [`Shared`], which every piece gets whole; [`Split`] and
/// [`Write`], of which a piece gets the part of its indices; [`Value`]; [`Indices`]; a tuple of up to eight; or `()`.
///
/// Sealed: pieces make slices of what was lent, so what is said to be lent must be borrowed, and no two of them
/// may have the same of what they write.
pub trait PieceArgs: sealed::Sealed {
    /// What the kernel of a piece gets for it.
    type Spans: Send + 'static;

    /// Appends the records, for so many indices.
    ///
    /// # Errors
    /// Memory that has not as many values for each index.
    fn parts(&self, indices: u64, parts: &mut Vec<Part>) -> Result<(), Uneven>;

    /// What a kernel gets for the arguments of a piece, from number `at` on, which is counted on.
    ///
    /// # Errors
    /// [`KernelError::BadRequest`] for memory that no kernel can be given.
    fn spans(args: &KernelArgs, at: &mut usize) -> Result<Self::Spans, KernelError>;
}

impl Part {
    /// The record of the piece of these indices, of a launch whose first index is `first`.
    pub(crate) fn of(&self, piece: &Range<u64>, first: u64) -> KernelArg {
        match *self {
            Part::Whole(arg) => arg,
            Part::Split { all, each } => KernelArg {
                word: all.word + (piece.start - first) * each,
                bytes: (piece.end - piece.start) * each,
                ..all
            },
            Part::Start => value(piece.start),
            Part::End => value(piece.end),
        }
    }
}

fn value(word: u64) -> KernelArg {
    record(&Value(word))
}

/// The one record of an argument that is one.
fn record(arg: &impl CallArgs) -> KernelArg {
    let mut records = Vec::with_capacity(1);
    arg.encode(&mut records);
    records[0]
}

fn whole(arg: &impl CallArgs, parts: &mut Vec<Part>) -> Result<(), Uneven> {
    parts.push(Part::Whole(record(arg)));
    Ok(())
}

fn split<T>(
    all: KernelArg,
    values: usize,
    indices: u64,
    parts: &mut Vec<Part>,
) -> Result<(), Uneven> {
    let values = values as u64;
    if values.checked_rem(indices) != Some(0) {
        return Err(Uneven { values });
    }
    parts.push(Part::Split { all, each: values / indices * size_of::<T>() as u64 });
    Ok(())
}

/// The number of the next argument.
fn next(at: &mut usize) -> usize {
    *at += 1;
    *at - 1
}

impl<T> sealed::Sealed for Read<'_, T> {}
impl<T> sealed::Sealed for Split<'_, T> {}
impl<T> sealed::Sealed for Write<'_, T> {}
impl<W> sealed::Sealed for Shared<'_, W> {}
impl<T> sealed::Sealed for Value<T> {}
impl sealed::Sealed for Indices {}
impl sealed::Sealed for () {}

impl<T: Pod> PieceArgs for Read<'_, T> {
    type Spans = ReadSpan<T>;

    fn parts(&self, _indices: u64, parts: &mut Vec<Part>) -> Result<(), Uneven> {
        whole(self, parts)
    }

    fn spans(args: &KernelArgs, at: &mut usize) -> Result<ReadSpan<T>, KernelError> {
        args.read(next(at))
    }
}

impl<T: Pod> PieceArgs for Split<'_, T> {
    type Spans = ReadSpan<T>;

    fn parts(&self, indices: u64, parts: &mut Vec<Part>) -> Result<(), Uneven> {
        split::<T>(record(&Read(self.0)), self.0.len(), indices, parts)
    }

    fn spans(args: &KernelArgs, at: &mut usize) -> Result<ReadSpan<T>, KernelError> {
        args.read(next(at))
    }
}

impl<T: Pod> PieceArgs for Write<'_, T> {
    type Spans = WriteSpan<T>;

    fn parts(&self, indices: u64, parts: &mut Vec<Part>) -> Result<(), Uneven> {
        split::<T>(record(self), self.0.len(), indices, parts)
    }

    fn spans(args: &KernelArgs, at: &mut usize) -> Result<WriteSpan<T>, KernelError> {
        args.write(next(at))
    }
}

impl<W: Word> PieceArgs for Shared<'_, W> {
    type Spans = AtomicSpan<W>;

    fn parts(&self, _indices: u64, parts: &mut Vec<Part>) -> Result<(), Uneven> {
        whole(self, parts)
    }

    fn spans(args: &KernelArgs, at: &mut usize) -> Result<AtomicSpan<W>, KernelError> {
        args.shared(next(at))
    }
}

impl<T: Pod + Send> PieceArgs for Value<T> {
    type Spans = T;

    fn parts(&self, _indices: u64, parts: &mut Vec<Part>) -> Result<(), Uneven> {
        whole(self, parts)
    }

    fn spans(args: &KernelArgs, at: &mut usize) -> Result<T, KernelError> {
        args.value(next(at))
    }
}

impl PieceArgs for Indices {
    type Spans = Range<u64>;

    fn parts(&self, _indices: u64, parts: &mut Vec<Part>) -> Result<(), Uneven> {
        parts.extend([Part::Start, Part::End]);
        Ok(())
    }

    fn spans(args: &KernelArgs, at: &mut usize) -> Result<Range<u64>, KernelError> {
        Ok(args.value(next(at))?..args.value(next(at))?)
    }
}

impl PieceArgs for () {
    type Spans = ();

    fn parts(&self, _indices: u64, _parts: &mut Vec<Part>) -> Result<(), Uneven> {
        Ok(())
    }

    fn spans(_args: &KernelArgs, _at: &mut usize) -> Result<(), KernelError> {
        Ok(())
    }
}

macro_rules! tuples {
    ($(($($name:ident),+)),+) => {$(
        impl<$($name: PieceArgs),+> sealed::Sealed for ($($name,)+) {}

        impl<$($name: PieceArgs),+> PieceArgs for ($($name,)+) {
            type Spans = ($($name::Spans,)+);

            #[allow(non_snake_case)]
            fn parts(&self, indices: u64, parts: &mut Vec<Part>) -> Result<(), Uneven> {
                let ($($name,)+) = self;
                $($name.parts(indices, parts)?;)+
                Ok(())
            }

            fn spans(args: &KernelArgs, at: &mut usize) -> Result<Self::Spans, KernelError> {
                Ok(($($name::spans(args, at)?,)+))
            }
        }
    )+};
}

for_tuples!(tuples);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_gets_its_part_of_what_is_split_and_all_of_the_rest() {
        let (table, x, mut y) = ([0u64; 3], [0u16; 20], [0u8; 10]);
        let args = (Read(&table), Split(&x), Write(&mut y), Indices, Value(7u32));
        let starts = [table.as_ptr() as u64, x.as_ptr() as u64, args.2.0.as_ptr() as u64];
        let mut parts = Vec::new();
        args.parts(10, &mut parts).unwrap();
        let of: Vec<_> = parts.iter().map(|part| part.of(&(103..107), 100)).collect();
        let memory: Vec<_> = of[..3].iter().map(|arg| (arg.word, arg.bytes)).collect();
        assert_eq!(memory, [(starts[0], 24), (starts[1] + 12, 16), (starts[2] + 3, 4)]);
        assert_eq!(of[3..].iter().map(|arg| arg.word).collect::<Vec<_>>(), [103, 107, 7]);
    }

    #[test]
    fn what_cannot_be_split_evenly_is_refused() {
        let x = [0u16; 20];
        let parts = |indices| Split(&x).parts(indices, &mut Vec::new());
        assert_eq!((parts(20), parts(5), parts(40)), (Ok(()), Ok(()), Err(Uneven { values: 20 })));
        assert_eq!(parts(3), Err(Uneven { values: 20 }));
        assert_eq!(Split(&x[..0]).parts(7, &mut Vec::new()), Ok(()));
    }
}
