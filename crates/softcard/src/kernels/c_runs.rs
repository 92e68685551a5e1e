//! Runs of words for kernels in C: the services that take arrays of addresses.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64};

use bytemuck::Pod;

use super::KernelArgs;
use super::c_abi::{Context, ERROR, OK, of, word, wrong_size};
use crate::error::KernelError;
use crate::kernel::KernelContext;
use crate::span::Word;

/// The words that C names.
#[derive(Clone, Copy)]
struct Words<'a> {
    args: &'a KernelArgs,
    addresses: *const u64,
    count: usize,
}

impl<'a> Words<'a> {
    /// `count` words, whose addresses are at `addresses`. `others` are the other arrays that there have
    /// to be.
    ///
    /// # Safety
    /// C passes null or so many addresses, which stay as they are until the service returns.
    unsafe fn of<const N: usize>(
        args: &'a KernelArgs,
        service: &str,
        addresses: *const u64,
        count: u64,
        others: [*const c_void; N],
    ) -> Result<Words<'a>, KernelError> {
        let missing = addresses.is_null() || others.iter().any(|array| array.is_null());
        if missing && count > 0 {
            return Err(args.bad(format!("it passed NULL for an array of farside_{service}")));
        }
        Ok(Words { args, addresses, count: count as usize })
    }

    fn address(self, index: usize) -> u64 {
        // SAFETY: runs ask for words below `count`.
        unsafe { item(self.addresses, index) }
    }

    /// The address of a word of an atomic operation.
    fn aligned<W: Word>(self, index: usize) -> Result<u64, KernelError> {
        word::<W>(self.args, self.address(index)).map(|word| word.start())
    }

    /// # Safety
    /// There is room for a value for each word at `values`.
    unsafe fn gather<T: Pod>(
        self,
        k: &mut KernelContext,
        values: *mut T,
    ) -> Result<(), KernelError> {
        let give = |index, value| {
            // SAFETY: as in `address`; the caller gives the room.
            unsafe { values.add(index).write_unaligned(value) }
        };
        k.gather_by(self.count, |index| self.address(index), give)
    }

    /// # Safety
    /// There is a value for each word at `values`.
    unsafe fn scatter<T: Pod>(
        self,
        k: &mut KernelContext,
        values: *const T,
    ) -> Result<(), KernelError> {
        // SAFETY: as in `address`; the caller gives the values.
        k.scatter_by(self.count, |index| (self.address(index), unsafe { item(values, index) }))
    }
}

/// One of C's items, whatever the alignment.
///
/// # Safety
/// There are more than `index` at `items`.
unsafe fn item<T: Pod>(items: *const T, index: usize) -> T {
    // SAFETY: passed on to the caller.
    unsafe { items.add(index).read_unaligned() }
}

/// Gives C what a word was, if it wants to know.
///
/// # Safety
/// `was` is null or has room for more than `index` words.
unsafe fn give(was: *mut u64, index: usize, before: u64) {
    if !was.is_null() {
        // SAFETY: passed on to the caller.
        unsafe { was.add(index).write_unaligned(before) }
    }
}

pub(super) unsafe extern "C" fn gather(
    context: *const Context<'_>,
    addresses: *const u64,
    bytes: u32,
    count: u64,
    values: *mut c_void,
) -> i32 {
    // SAFETY: C calls services with its context.
    let Some(context) = (unsafe { of(context) }) else { return ERROR };
    context.serve(|k| {
        // SAFETY: C passes `count` addresses and room for as many values of `bytes` bytes.
        unsafe {
            let words = Words::of(context.args, "gather", addresses, count, [values.cast_const()])?;
            match bytes {
                1 => words.gather::<u8>(k, values.cast()),
                2 => words.gather::<u16>(k, values.cast()),
                4 => words.gather::<u32>(k, values.cast()),
                8 => words.gather::<u64>(k, values.cast()),
                _ => Err(wrong_size(context.args, "gather", bytes, "1, 2, 4 or 8")),
            }
        }
        .map(|()| OK)
    })
}

pub(super) unsafe extern "C" fn scatter(
    context: *const Context<'_>,
    addresses: *const u64,
    bytes: u32,
    count: u64,
    values: *const c_void,
) -> i32 {
    // SAFETY: C calls services with its context.
    let Some(context) = (unsafe { of(context) }) else { return ERROR };
    context.serve(|k| {
        // SAFETY: C passes `count` addresses and as many values of `bytes` bytes.
        unsafe {
            let words = Words::of(context.args, "scatter", addresses, count, [values])?;
            match bytes {
                1 => words.scatter::<u8>(k, values.cast()),
                2 => words.scatter::<u16>(k, values.cast()),
                4 => words.scatter::<u32>(k, values.cast()),
                8 => words.scatter::<u64>(k, values.cast()),
                _ => Err(wrong_size(context.args, "scatter", bytes, "1, 2, 4 or 8")),
            }
        }
        .map(|()| OK)
    })
}

pub(super) unsafe extern "C" fn fetch_add_all(
    context: *const Context<'_>,
    addresses: *const u64,
    bytes: u32,
    count: u64,
    amounts: *const u64,
    was: *mut u64,
) -> i32 {
    // SAFETY: C calls services with its context.
    let Some(context) = (unsafe { of(context) }) else { return ERROR };
    context.serve(|k| {
        let name = "fetch_add_all";
        // SAFETY: C passes `count` addresses and amounts, and NULL or room for as many words; runs ask
        // for those below `count`.
        unsafe {
            let words = Words::of(context.args, name, addresses, count, [amounts.cast()])?;
            let amount = |index| item(amounts, index);
            match bytes {
                4 => k.fetch_add_by::<AtomicU32>(
                    words.count,
                    |_, index| Ok((words.aligned::<AtomicU32>(index)?, amount(index) as u32)),
                    |index, before| give(was, index, before.into()),
                ),
                8 => k.fetch_add_by::<AtomicU64>(
                    words.count,
                    |_, index| Ok((words.aligned::<AtomicU64>(index)?, amount(index))),
                    |index, before| give(was, index, before),
                ),
                _ => Err(wrong_size(context.args, name, bytes, "4 or 8")),
            }
        }
        .map(|()| OK)
    })
}

pub(super) unsafe extern "C" fn compare_exchange_all(
    context: *const Context<'_>,
    addresses: *const u64,
    bytes: u32,
    count: u64,
    expected: *const u64,
    desired: *const u64,
    was: *mut u64,
) -> i32 {
    // SAFETY: C calls services with its context.
    let Some(context) = (unsafe { of(context) }) else { return ERROR };
    context.serve(|k| {
        let name = "compare_exchange_all";
        // SAFETY: as in `fetch_add_all`.
        unsafe {
            let arrays = [expected.cast(), desired.cast()];
            let words = Words::of(context.args, name, addresses, count, arrays)?;
            let values = |index| (item(expected, index), item(desired, index));
            match bytes {
                4 => k.compare_exchange_by::<AtomicU32>(
                    words.count,
                    |_, index| {
                        let (expected, desired) = values(index);
                        let values = (expected as u32, desired as u32);
                        Ok((words.aligned::<AtomicU32>(index)?, values))
                    },
                    |index, (Ok(before) | Err(before))| give(was, index, before.into()),
                ),
                8 => k.compare_exchange_by::<AtomicU64>(
                    words.count,
                    |_, index| Ok((words.aligned::<AtomicU64>(index)?, values(index))),
                    |index, (Ok(before) | Err(before))| give(was, index, before),
                ),
                _ => Err(wrong_size(context.args, name, bytes, "4 or 8")),
            }
        }
        .map(|()| OK)
    })
}
