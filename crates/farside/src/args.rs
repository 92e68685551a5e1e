//! What a launch lends to its kernel: slices of shared memory, as reads, writes or shared words.

use bytemuck::Pod;
use farside_softcard::{AtomicSpan, Granted, Lent, ReadSpan, Word, WriteSpan};

/// Lends a slice for reading.
#[derive(Debug)]
pub struct Read<'a, T>(pub &'a [T]);

/// Lends a slice for reading and writing. Nobody else may touch it meanwhile: Rust sees to that, for
/// other kernels
///
/// ```compile_fail,E0499
/// # use farside::{Space, Write};
/// # let space = Space::builder().build().unwrap();
/// let mut data = space.alloc::<u32>(4096).unwrap();
/// space.scope(|s| {
///     let _a = s.kernel("a").launch(Write(&mut data), |_, _| Ok(()));
///     let _b = s.kernel("b").launch(Write(&mut data), |_, _| Ok(()));
/// });
/// ```
///
/// and for the program.
///
/// ```compile_fail,E0502
/// # use farside::{Space, Write};
/// # let space = Space::builder().build().unwrap();
/// let mut data = space.alloc::<u32>(4096).unwrap();
/// space.scope(|s| {
///     let _a = s.kernel("a").launch(Write(&mut data), |_, _| Ok(()));
///     assert_eq!(data[0], 0);
/// });
/// ```
#[derive(Debug)]
pub struct Write<'a, T>(pub &'a mut [T]);

/// Lends words that everybody may touch at the same time, by atomic operations.
#[derive(Debug)]
pub struct Shared<'a, W>(pub &'a [W]);

mod sealed {
    pub trait Sealed {}
}

/// What a launch takes: one of [`Read`], [`Write`], [`Shared`], a vector of one of them, a
/// tuple of up to eight, or `()`.
///
/// Sealed: kernels make slices of what was lent, so what is said to be lent must be borrowed.
pub trait Args: sealed::Sealed {
    /// What the kernel gets for it: spans, which name memory without touching it.
    type Spans: Send + 'static;

    /// The bytes lent.
    fn grants(&self, grants: &mut Vec<Granted>);

    /// The spans.
    fn spans(self) -> Self::Spans;
}

fn grant<T>(slice: &[T], lent: Lent, grants: &mut Vec<Granted>) {
    // SAFETY: the slice is borrowed as `lent` says until the job has ended: `run`, `call` and the
    // scope wait for that before what they were given to borrow is free again. Pages that a job
    // holds which was given up are taken out of use.
    grants.push(unsafe { Granted::new(slice.as_ptr() as u64, size_of_val(slice) as u64, lent) });
}

impl<T> sealed::Sealed for Read<'_, T> {}
impl<T> sealed::Sealed for Write<'_, T> {}
impl<W> sealed::Sealed for Shared<'_, W> {}
impl sealed::Sealed for () {}
impl<A: Args> sealed::Sealed for Vec<A> {}

impl<T: Pod> Args for Read<'_, T> {
    type Spans = ReadSpan<T>;

    fn grants(&self, grants: &mut Vec<Granted>) {
        grant(self.0, Lent::Read, grants);
    }

    fn spans(self) -> ReadSpan<T> {
        ReadSpan::of(self.0)
    }
}

impl<T: Pod> Args for Write<'_, T> {
    type Spans = WriteSpan<T>;

    fn grants(&self, grants: &mut Vec<Granted>) {
        grant(self.0, Lent::Write, grants);
    }

    fn spans(self) -> WriteSpan<T> {
        WriteSpan::of(self.0)
    }
}

impl<W: Word> Args for Shared<'_, W> {
    type Spans = AtomicSpan<W>;

    fn grants(&self, grants: &mut Vec<Granted>) {
        grant(self.0, Lent::Shared { word: size_of::<W>() as u8 }, grants);
    }

    fn spans(self) -> AtomicSpan<W> {
        AtomicSpan::of(self.0)
    }
}

impl Args for () {
    type Spans = ();

    fn grants(&self, _grants: &mut Vec<Granted>) {}

    fn spans(self) {}
}

/// Any number of slices: the kernel gets as many spans.
impl<A: Args> Args for Vec<A> {
    type Spans = Vec<A::Spans>;

    fn grants(&self, grants: &mut Vec<Granted>) {
        self.iter().for_each(|args| args.grants(grants));
    }

    fn spans(self) -> Vec<A::Spans> {
        self.into_iter().map(A::spans).collect()
    }
}

macro_rules! tuples {
    ($(($($name:ident),+)),+) => {$(
        impl<$($name: Args),+> sealed::Sealed for ($($name,)+) {}

        impl<$($name: Args),+> Args for ($($name,)+) {
            type Spans = ($($name::Spans,)+);

            #[allow(non_snake_case)]
            fn grants(&self, grants: &mut Vec<Granted>) {
                let ($($name,)+) = self;
                $($name.grants(grants);)+
            }

            #[allow(non_snake_case)]
            fn spans(self) -> Self::Spans {
                let ($($name,)+) = self;
                ($($name.spans(),)+)
            }
        }
    )+};
}

for_tuples!(tuples);
