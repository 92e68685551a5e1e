//! What a launch lends to its kernel: slices of shared memory, as reads, writes or shared words.

use bytemuck::Pod;
use farside_softcard::{AtomicSpan, Granted, ReadSpan, Word, WriteSpan};
use farside_types::Rights;

/// Lends a slice for reading.
#[derive(Debug)]
pub struct Read<'a, T>(pub &'a [T]);

/// Lends a slice for reading and writing. Nobody else may touch it meanwhile: Rust sees to that.
#[derive(Debug)]
pub struct Write<'a, T>(pub &'a mut [T]);

/// Lends words that everybody may touch at the same time, by atomic operations.
#[derive(Debug)]
pub struct Shared<'a, W>(pub &'a [W]);

/// What a launch takes: one of [`Read`], [`Write`], [`Shared`], a vector of one of them, a
/// tuple of up to eight, or `()`.
pub trait Args {
    /// What the kernel gets for it: spans, which name memory without touching it.
    type Spans: Send + 'static;

    /// The bytes lent.
    fn grants(&self, grants: &mut Vec<Granted>);

    /// The spans.
    fn spans(self) -> Self::Spans;
}

fn grant(start: u64, bytes: u64, rights: Rights, grants: &mut Vec<Granted>) {
    grants.push(Granted { start, end: start + bytes, rights });
}

impl<T: Pod> Args for Read<'_, T> {
    type Spans = ReadSpan<T>;

    fn grants(&self, grants: &mut Vec<Granted>) {
        let span = ReadSpan::of(self.0);
        grant(span.start(), span.bytes(), Rights::Read, grants);
    }

    fn spans(self) -> ReadSpan<T> {
        ReadSpan::of(self.0)
    }
}

impl<T: Pod> Args for Write<'_, T> {
    type Spans = WriteSpan<T>;

    fn grants(&self, grants: &mut Vec<Granted>) {
        let span = ReadSpan::of(&*self.0);
        grant(span.start(), span.bytes(), Rights::ReadWrite, grants);
    }

    fn spans(self) -> WriteSpan<T> {
        WriteSpan::of(self.0)
    }
}

impl<W: Word> Args for Shared<'_, W> {
    type Spans = AtomicSpan<W>;

    fn grants(&self, grants: &mut Vec<Granted>) {
        let span = AtomicSpan::of(self.0);
        grant(span.start(), span.bytes(), Rights::ReadWrite, grants);
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

tuples!(
    (A),
    (A, B),
    (A, B, C),
    (A, B, C, D),
    (A, B, C, D, E),
    (A, B, C, D, E, F),
    (A, B, C, D, E, F, G),
    (A, B, C, D, E, F, G, H)
);
