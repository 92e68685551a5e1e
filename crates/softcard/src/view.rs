//! What `with` gives: slices of the ranges that were asked for.
//!
//! A range is one slice where its frames are contiguous (the driver sees to that where it can), and
//! a few slices where they are not. Values never lie across two slices: their size divides a page.

use std::ptr::NonNull;

use bytemuck::Pod;
use farside_card::{Grant, MappedRun};
use farside_types::{Access, PAGE_SIZE, VirtAddr};

use crate::card::Embedder;
use crate::span::{ReadSpan, WriteSpan};

/// Bytes that a `with` needs.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) access: Access,
}

/// The first range that is written and overlaps another.
pub(crate) fn overlap(wants: &[Want]) -> Option<Want> {
    let meet = |a: &Want, b: &Want| a.start < b.start + b.bytes && b.start < a.start + a.bytes;
    wants.iter().enumerate().find_map(|(i, a)| {
        let clash = |(j, b): (usize, &Want)| i != j && a.access.is_write() && meet(a, b);
        wants.iter().enumerate().any(clash).then_some(*a)
    })
}

/// The translated runs of a grant, taken range by range.
#[derive(Debug)]
pub struct Runs<'a> {
    embedder: Option<&'a dyn Embedder>,
    runs: std::slice::Iter<'a, MappedRun>,
}

impl<'a> Runs<'a> {
    pub(crate) fn new(embedder: &'a dyn Embedder, grant: &'a Grant) -> Runs<'a> {
        Runs { embedder: Some(embedder), runs: grant.runs.iter() }
    }

    pub(crate) fn empty() -> Runs<'a> {
        Runs { embedder: None, runs: [].iter() }
    }

    /// Pieces of the next range: `bytes` bytes from `start` on.
    fn take(&mut self, start: u64, bytes: u64) -> Vec<(NonNull<u8>, usize)> {
        let mut pieces = Vec::with_capacity(1);
        let mut left = bytes as usize;
        let mut offset = VirtAddr(start).page_offset();
        while left > 0 {
            let (Some(run), Some(embedder)) = (self.runs.next(), self.embedder) else {
                break;
            };
            let base = embedder.pointer(run.location, run.count);
            let here = (run.count as usize * PAGE_SIZE - offset).min(left);
            // SAFETY: `offset` is less than a page and the run has at least one page.
            pieces.push((unsafe { base.add(offset) }, here));
            left -= here;
            offset = 0;
        }
        pieces
    }
}

/// What can be asked of `with`: a span, or a tuple of up to six.
pub trait Request {
    /// What the body gets.
    type Views<'a>;

    /// The list of ranges.
    type Wants: AsRef<[Want]>;

    /// The ranges, in order.
    fn wants(&self) -> Self::Wants;

    /// The views, from the runs in the same order.
    fn views<'a>(self, runs: &mut Runs<'a>) -> Self::Views<'a>;
}

/// One range that can be asked for.
pub trait RangeRequest {
    /// What the body gets for it.
    type View<'a>;

    /// The range.
    fn want(&self) -> Want;

    /// The view, from the next runs.
    fn view<'a>(self, runs: &mut Runs<'a>) -> Self::View<'a>;
}

/// A range to be read.
#[derive(Debug)]
pub struct ReadView<'a, T> {
    pieces: Vec<&'a [T]>,
    len: usize,
}

/// A range to be written.
#[derive(Debug)]
pub struct WriteView<'a, T> {
    pieces: Vec<&'a mut [T]>,
    len: usize,
}

/// Values are found whole in one piece only if their size divides a page.
const fn assert_fits<T>() {
    assert!(
        size_of::<T>() > 0 && PAGE_SIZE % size_of::<T>() == 0,
        "a value in shared memory has a size that divides 4096"
    );
}

impl<T: Pod> RangeRequest for ReadSpan<T> {
    type View<'a> = ReadView<'a, T>;

    fn want(&self) -> Want {
        const { assert_fits::<T>() };
        Want { start: self.start(), bytes: self.bytes(), access: Access::Read }
    }

    fn view<'a>(self, runs: &mut Runs<'a>) -> ReadView<'a, T> {
        let pieces = runs.take(self.start(), self.bytes());
        let slice = |(at, bytes): (NonNull<u8>, usize)| {
            // SAFETY: the bytes are in flight for this job until the body of `with` ends, which
            // 'a does not outlive; nobody writes them meanwhile: `with` has found them in a grant
            // that lends them for reading, or to this job alone (see `crate::job::Granted`), and
            // refuses ranges that overlap a written one. Page-aligned
            // pieces of values whose size divides a page hold whole, aligned values.
            unsafe { std::slice::from_raw_parts(at.as_ptr().cast::<T>(), bytes / size_of::<T>()) }
        };
        ReadView { pieces: pieces.into_iter().map(slice).collect(), len: self.len() }
    }
}

impl<T: Pod> RangeRequest for WriteSpan<T> {
    type View<'a> = WriteView<'a, T>;

    fn want(&self) -> Want {
        const { assert_fits::<T>() };
        Want { start: self.start(), bytes: self.bytes(), access: Access::Write }
    }

    fn view<'a>(self, runs: &mut Runs<'a>) -> WriteView<'a, T> {
        let pieces = runs.take(self.start(), self.bytes());
        let slice = |(at, bytes): (NonNull<u8>, usize)| {
            let len = bytes / size_of::<T>();
            // SAFETY: as for reading; the grant lends the bytes to this job alone, the job runs on
            // one processing element, `with` does not nest, and it refuses overlapping ranges, so
            // this is the only slice of them.
            unsafe { std::slice::from_raw_parts_mut(at.as_ptr().cast::<T>(), len) }
        };
        WriteView { pieces: pieces.into_iter().map(slice).collect(), len: self.len() }
    }
}

impl<T> ReadView<'_, T> {
    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The contiguous pieces, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &[T]> {
        self.pieces.iter().copied()
    }

    /// All of it as one slice, where its frames are contiguous.
    pub fn as_slice(&self) -> Option<&[T]> {
        match self.pieces.as_slice() {
            [] => Some(&[]),
            [all] => Some(all),
            _ => None,
        }
    }

    /// All values, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flat_map(|piece| piece.iter())
    }
}

/// In which piece value `index` is, and where in it.
///
/// # Panics
/// If it is behind the end, as indexing a slice does.
#[inline]
fn place(lens: impl Iterator<Item = usize>, index: usize) -> (usize, usize) {
    let mut at = index;
    for (piece, len) in lens.enumerate() {
        if at < len {
            return (piece, at);
        }
        at -= len;
    }
    panic!("index {index} is behind the end of the range")
}

impl<T> std::ops::Index<usize> for ReadView<'_, T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        let (piece, at) = place(self.pieces.iter().map(|piece| piece.len()), index);
        &self.pieces[piece][at]
    }
}

impl<T> WriteView<'_, T> {
    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The contiguous pieces, in order.
    pub fn pieces(&mut self) -> impl Iterator<Item = &mut [T]> {
        self.pieces.iter_mut().map(|piece| &mut **piece)
    }

    /// All of it as one slice, where its frames are contiguous.
    pub fn as_mut_slice(&mut self) -> Option<&mut [T]> {
        match self.pieces.as_mut_slice() {
            [] => Some(&mut []),
            [all] => Some(all),
            _ => None,
        }
    }

    /// All values, in order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pieces.iter_mut().flat_map(|piece| piece.iter_mut())
    }
}

impl<T> std::ops::Index<usize> for WriteView<'_, T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        let (piece, at) = place(self.pieces.iter().map(|piece| piece.len()), index);
        &self.pieces[piece][at]
    }
}

impl<T> std::ops::IndexMut<usize> for WriteView<'_, T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        let (piece, at) = place(self.pieces.iter().map(|piece| piece.len()), index);
        &mut self.pieces[piece][at]
    }
}

impl<R: RangeRequest> Request for R {
    type Views<'a> = R::View<'a>;
    type Wants = [Want; 1];

    fn wants(&self) -> [Want; 1] {
        [self.want()]
    }

    fn views<'a>(self, runs: &mut Runs<'a>) -> R::View<'a> {
        self.view(runs)
    }
}

macro_rules! tuples {
    ($(($($name:ident),+)),+) => {$(
        impl<$($name: RangeRequest),+> Request for ($($name,)+) {
            type Views<'a> = ($($name::View<'a>,)+);
            type Wants = [Want; [$(stringify!($name)),+].len()];

            #[allow(non_snake_case)]
            fn wants(&self) -> Self::Wants {
                let ($($name,)+) = self;
                [$($name.want()),+]
            }

            #[allow(non_snake_case)]
            fn views<'a>(self, runs: &mut Runs<'a>) -> Self::Views<'a> {
                let ($($name,)+) = self;
                ($($name.view(runs),)+)
            }
        }
    )+};
}

tuples!((A, B), (A, B, C), (A, B, C, D), (A, B, C, D, E), (A, B, C, D, E, F));
