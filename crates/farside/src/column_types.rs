//! What the rows of a column are, and what Arrow calls them.

use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};

mod sealed {
    pub trait Sealed {}
}

/// What the rows of a column are: integers, floats, truth values (`bool`), days, times ([`Date32`], [`Timestamp`],
/// [`Elapsed`]), or texts (`str`).
///
/// A kernel builds days and times of the integers that they are, and truth values of bytes, of which 0 is false.
pub trait ColumnType: sealed::Sealed {
    /// Its name in Arrow's C data interface.
    const FORMAT: &'static str;
    /// Bytes of a value; 0: texts, with offsets.
    const ELEMENT: usize;
}

/// A unit of time: [`Seconds`] and what is shorter.
pub trait TimeUnit: sealed::Sealed + Copy + 'static {
    /// Of a [`Timestamp`] in Arrow's C data interface, without a time zone.
    const TIMESTAMP: &'static str;
    /// Of an [`Elapsed`] time there.
    const ELAPSED: &'static str;
}

/// A day: days since 1 January 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct Date32(pub i32);

/// A time: units since 1 January 1970, without a time zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Timestamp<U: TimeUnit>(pub i64, PhantomData<U>);

/// So many units of time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Elapsed<U: TimeUnit>(pub i64, PhantomData<U>);

macro_rules! times {
    ($($of:ident: $format:ident;)*) => {$(
        impl<U: TimeUnit> $of<U> {
            /// So many units.
            pub const fn new(units: i64) -> $of<U> {
                $of(units, PhantomData)
            }
        }
        // SAFETY: transparent, of an integer, which may be of any bits; units have no bytes.
        unsafe impl<U: TimeUnit> Zeroable for $of<U> {}
        // SAFETY: as above, and `U` is `'static` and `Copy`.
        unsafe impl<U: TimeUnit> Pod for $of<U> {}
        impl<U: TimeUnit> sealed::Sealed for $of<U> {}
        impl<U: TimeUnit> ColumnType for $of<U> {
            const FORMAT: &'static str = U::$format;
            const ELEMENT: usize = size_of::<i64>();
        }
    )*};
}

times! {
    Timestamp: TIMESTAMP;
    Elapsed: ELAPSED;
}

macro_rules! units {
    ($($unit:ident: $timestamp:literal, $elapsed:literal;)*) => {$(
        #[doc = concat!("The unit of [`Timestamp`] and [`Elapsed`] that Arrow calls `", $timestamp, "` and `", $elapsed, "`.")]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $unit;
        impl sealed::Sealed for $unit {}
        impl TimeUnit for $unit {
            const TIMESTAMP: &'static str = $timestamp;
            const ELAPSED: &'static str = $elapsed;
        }
    )*};
}

units! {
    Seconds: "tss:", "tDs";
    Milliseconds: "tsm:", "tDm";
    Microseconds: "tsu:", "tDu";
    Nanoseconds: "tsn:", "tDn";
}

macro_rules! column_types {
    ($($of:ty: $format:literal, $element:expr;)*) => {$(
        impl sealed::Sealed for $of {}
        impl ColumnType for $of {
            const FORMAT: &'static str = $format;
            const ELEMENT: usize = $element;
        }
    )*};
}

column_types! {
    bool: "b", 1;
    i8: "c", 1; u8: "C", 1;
    i16: "s", 2; u16: "S", 2;
    i32: "i", 4; u32: "I", 4;
    i64: "l", 8; u64: "L", 8;
    f32: "f", 4; f64: "g", 8;
    Date32: "tdD", 4;
    str: "u", 0;
}
