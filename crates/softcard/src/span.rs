//! Typed stretches of shared memory, as kernels name them: addresses, not references.
//!
//! A span is made from a slice that the program lends to a launch, so Rust has checked that
//! nobody else touches it meanwhile. It may be copied into a kernel; it gives access only through
//! the card.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use bytemuck::Pod;

/// A pointer into shared memory: the address of a `T`, the same on the host and on every card.
/// It is plain data and may be stored in shared memory itself.
#[repr(transparent)]
pub struct Ptr<T> {
    addr: u64,
    of: PhantomData<fn() -> T>,
}

/// Memory that a kernel may read.
pub struct ReadSpan<T> {
    start: u64,
    len: usize,
    of: PhantomData<fn() -> T>,
}

/// Memory that a kernel may read and write. Not `Copy`: what is written is named once.
pub struct WriteSpan<T> {
    start: u64,
    len: usize,
    of: PhantomData<fn() -> T>,
}

/// Words that kernels and the program touch at the same time, by atomic operations.
pub struct AtomicSpan<W> {
    start: u64,
    len: usize,
    of: PhantomData<fn() -> W>,
}

macro_rules! plain_copy {
    ($($name:ident),*) => {$(
        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $name<T> {}
    )*};
}

plain_copy!(Ptr, ReadSpan, AtomicSpan);

impl<T> PartialEq for Ptr<T> {
    fn eq(&self, other: &Ptr<T>) -> bool {
        self.addr == other.addr
    }
}

impl<T> Eq for Ptr<T> {}

// SAFETY: a pointer is one u64, and every u64 (0 included) is a valid pointer value: it is checked
// when it is used.
unsafe impl<T: 'static> bytemuck::Zeroable for Ptr<T> {}
// SAFETY: as above; `repr(transparent)` over u64 has no padding.
unsafe impl<T: 'static> Pod for Ptr<T> {}

impl<T> std::fmt::Debug for Ptr<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.addr)
    }
}

impl<T> Ptr<T> {
    /// The pointer to nothing.
    pub const NULL: Ptr<T> = Ptr { addr: 0, of: PhantomData };

    /// The pointer to a value in shared memory.
    pub fn to(value: &T) -> Ptr<T> {
        Ptr { addr: std::ptr::from_ref(value) as u64, of: PhantomData }
    }

    /// The pointer to an address.
    pub const fn at(addr: u64) -> Ptr<T> {
        Ptr { addr, of: PhantomData }
    }

    /// The address.
    pub const fn addr(self) -> u64 {
        self.addr
    }

    /// Whether it points to nothing.
    pub const fn is_null(self) -> bool {
        self.addr == 0
    }

    /// The pointer to the `index`th value behind this one. Wraps; a wild result is caught when it
    /// is used.
    #[must_use]
    pub const fn offset(self, index: usize) -> Ptr<T> {
        Ptr::at(self.addr.wrapping_add((index as u64).wrapping_mul(size_of::<T>() as u64)))
    }

    /// The pointer to a field `bytes` bytes into the value.
    #[must_use]
    pub const fn field<U>(self, bytes: usize) -> Ptr<U> {
        Ptr::at(self.addr.wrapping_add(bytes as u64))
    }
}

/// Start and end of a part of `len` values; `None` if it does not lie within.
fn part(range: impl RangeBounds<usize>, len: usize) -> Option<(usize, usize)> {
    let start = match range.start_bound() {
        Bound::Included(&n) => n,
        Bound::Excluded(&n) => n.checked_add(1)?,
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&n) => n.checked_add(1)?,
        Bound::Excluded(&n) => n,
        Bound::Unbounded => len,
    };
    (start <= end && end <= len).then_some((start, end))
}

macro_rules! span_methods {
    ($name:ident) => {
        impl<T> $name<T> {
            /// The span of an argument's record, which was checked: aligned, and within the
            /// addresses there are.
            pub(crate) const fn raw(start: u64, len: usize) -> $name<T> {
                $name { start, len, of: PhantomData }
            }

            /// Number of values.
            pub const fn len(&self) -> usize {
                self.len
            }

            /// Whether it has no value.
            pub const fn is_empty(&self) -> bool {
                self.len == 0
            }

            /// Address of the first byte.
            pub const fn start(&self) -> u64 {
                self.start
            }

            /// Length in bytes.
            pub const fn bytes(&self) -> u64 {
                (self.len * size_of::<T>()) as u64
            }

            /// The pointer to value `index`; a wild one is caught when it is used.
            pub const fn ptr(&self, index: usize) -> Ptr<T> {
                Ptr::<T>::at(self.start).offset(index)
            }
        }

        impl<T> std::fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{} values at {:#x}", self.len, self.start)
            }
        }
    };
}

span_methods!(ReadSpan);
span_methods!(WriteSpan);

impl<T: Pod> ReadSpan<T> {
    /// The span of a slice in shared memory.
    pub fn of(slice: &[T]) -> ReadSpan<T> {
        ReadSpan { start: slice.as_ptr() as u64, len: slice.len(), of: PhantomData }
    }

    /// A part of it.
    ///
    /// # Panics
    /// If the part does not lie within, as indexing a slice does; in a kernel that fails the job.
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> ReadSpan<T> {
        let (from, to) = part(range, self.len).expect("the part lies within the span");
        ReadSpan { start: self.ptr(from).addr(), len: to - from, of: PhantomData }
    }
}

impl<T: Pod> WriteSpan<T> {
    /// The span of a slice in shared memory.
    pub fn of(slice: &mut [T]) -> WriteSpan<T> {
        WriteSpan { start: slice.as_mut_ptr() as u64, len: slice.len(), of: PhantomData }
    }

    /// A part of it, to be written.
    ///
    /// # Panics
    /// If the part does not lie within, as indexing a slice does; in a kernel that fails the job.
    #[track_caller]
    pub fn slice(&mut self, range: impl RangeBounds<usize>) -> WriteSpan<T> {
        let (from, to) = part(range, self.len).expect("the part lies within the span");
        WriteSpan { start: self.ptr(from).addr(), len: to - from, of: PhantomData }
    }

    /// The same memory, to be read only.
    pub fn read(&self) -> ReadSpan<T> {
        ReadSpan { start: self.start, len: self.len, of: PhantomData }
    }
}

impl<W: Word> AtomicSpan<W> {
    /// The span of an argument's record, which was checked: aligned, and within the addresses
    /// there are.
    pub(crate) const fn raw(start: u64, len: usize) -> AtomicSpan<W> {
        AtomicSpan { start, len, of: PhantomData }
    }

    /// The span of a slice of atomics in shared memory.
    pub fn of(slice: &[W]) -> AtomicSpan<W> {
        AtomicSpan { start: slice.as_ptr() as u64, len: slice.len(), of: PhantomData }
    }

    /// Number of words.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no word.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first byte.
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// Length in bytes.
    pub const fn bytes(&self) -> u64 {
        (self.len * size_of::<W>()) as u64
    }

    /// The pointer to the value of word `index`, for plain loads and stores; a wild one is caught
    /// when it is used.
    pub const fn ptr(&self, index: usize) -> Ptr<W::Value> {
        Ptr::<W::Value>::at(self.start).offset(index)
    }

    /// Address of a word; `None` behind the end.
    pub(crate) fn addr(&self, index: usize) -> Option<u64> {
        (index < self.len).then(|| self.start + (index * size_of::<W>()) as u64)
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A word with atomic operations that all agents share.
pub trait Word: sealed::Sealed + Sync + 'static {
    /// What it holds.
    type Value: Pod;

    /// Adds, wrapping, and gives what it was.
    fn fetch_add(&self, value: Self::Value) -> Self::Value;

    /// Replaces it if it has the expected value, as Rust's: `Ok` with what it was, or `Err` with what
    /// it is.
    ///
    /// # Errors
    /// The value that it has, if that is not the expected one.
    fn compare_exchange(
        &self,
        expected: Self::Value,
        value: Self::Value,
    ) -> Result<Self::Value, Self::Value>;
}

macro_rules! words {
    ($($atomic:ty: $value:ty),*) => {$(
        impl sealed::Sealed for $atomic {}

        impl Word for $atomic {
            type Value = $value;

            fn fetch_add(&self, value: $value) -> $value {
                <$atomic>::fetch_add(self, value, Ordering::AcqRel)
            }

            fn compare_exchange(&self, expected: $value, value: $value) -> Result<$value, $value> {
                <$atomic>::compare_exchange(
                    self, expected, value, Ordering::AcqRel, Ordering::Acquire,
                )
            }
        }
    )*};
}

words!(AtomicU32: u32, AtomicU64: u64, AtomicI64: i64, AtomicUsize: usize);
