//! Opening and closing a space, and what is in it.

use std::collections::HashMap;
use std::ffi::c_char;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farside::foreign::{Allocation, ForeignSpace};

use crate::handles::{Handles, farside_space};
use crate::options::{self, FarsideOptions};
use crate::record;
use crate::status::{Failure, Status, done};
use crate::text;

/// Version of the interface: programs that were compiled for it go on working with every library that has it.
const ABI: u32 = 1;

/// A space, and what the program has allocated in it.
pub(crate) struct Held {
    pub(crate) foreign: ForeignSpace,
    memory: Mutex<HashMap<u64, Arc<Allocation>>>,
}

impl Held {
    /// What the program has allocated and not freed, by its first address.
    pub(crate) fn memory(&self) -> MutexGuard<'_, HashMap<u64, Arc<Allocation>>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) static SPACES: Handles<Held> = Handles::new("space", 0);

/// Version of this interface, FARSIDE_ABI when the library was made.
#[unsafe(no_mangle)]
pub extern "C" fn farside_abi() -> u32 {
    ABI
}

/// Version of Farside, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn farside_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Opens a space. Options may be null: two cards in the program. The variable FARSIDE_CARDS has the last word on
/// where the cards are.
///
/// # Safety
/// Options are null, or as FARSIDE_OPTIONS_INIT begins them, with texts that end with a zero; the code of kernel libraries
/// runs in this process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farside_open(
    options: *const FarsideOptions,
    space: *mut *mut farside_space,
) -> Status {
    done(|| {
        if space.is_null() {
            return Err(Failure::null("space"));
        }
        // SAFETY: the caller's record.
        let options = unsafe { record::read(options) }?;
        // SAFETY: zeros are a value of a `Record`.
        let options = options.unwrap_or_else(|| unsafe { std::mem::zeroed() });
        // SAFETY: the caller's texts and libraries.
        let opened = unsafe { options::builder(&options) }?.build()?;
        let held = Held { foreign: ForeignSpace::new(opened), memory: Mutex::default() };
        // SAFETY: not null, and the caller's.
        unsafe { space.write(SPACES.add(held)) };
        Ok(())
    })
}

/// Waits for all kernels of a space, frees its memory and closes it. Its jobs can be asked for their results
/// afterwards. Nothing happens for a null pointer.
#[unsafe(no_mangle)]
pub extern "C" fn farside_close(space: *mut farside_space) -> Status {
    done(|| {
        if space.is_null() {
            return Ok(());
        }
        let held = SPACES.remove(space)?;
        for job in held.foreign.jobs()? {
            // Whether it failed is its own matter.
            let _ = job.wait(None);
        }
        let memory = std::mem::take(&mut *held.memory());
        drop(memory);
        Ok(held.foreign.close()?)
    })
}

/// Number of cards; they are 0 to one less.
///
/// # Safety
/// `cards` is null or points to where the number is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farside_cards(space: *const farside_space, cards: *mut u32) -> Status {
    done(|| {
        let count = SPACES.get(space)?.foreign.open()?.cards().len();
        // SAFETY: the caller's.
        unsafe { put(cards, "cards", count as u32) }
    })
}

/// Number of kernels that can be called by name.
///
/// # Safety
/// `count` is null or points to where the number is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farside_kernel_count(
    space: *const farside_space,
    count: *mut usize,
) -> Status {
    done(|| {
        let names = SPACES.get(space)?.foreign.open()?.kernels().names().count();
        // SAFETY: the caller's.
        unsafe { put(count, "count", names) }
    })
}

/// Name of a kernel, from 0 to one less than there are: as much of it as `size` bytes hold, with a zero at the end. `length` may be
/// null; it gets the length of the whole name.
///
/// # Safety
/// `name` has `size` bytes; `length` is null or points to where it is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farside_kernel_name(
    space: *const farside_space,
    index: usize,
    name: *mut c_char,
    size: usize,
    length: *mut usize,
) -> Status {
    done(|| {
        let space = SPACES.get(space)?.foreign.open()?;
        let found = space.kernels().names().nth(index).ok_or_else(|| {
            let count = space.kernels().names().count();
            Failure::argument(format!("there is no kernel {index}: there are {count}"))
        })?;
        // SAFETY: the caller's.
        unsafe { text::give(found, name, size, length) };
        Ok(())
    })
}

/// What happened in a space so far, as text for people, or as JSON where `json` is not 0: as much of it as `size` bytes hold, with
/// a zero at the end. `length` may be null; it gets the length of the whole text.
///
/// # Safety
/// `report` is null or has `size` bytes; `length` is null or points to where it is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farside_report(
    space: *const farside_space,
    json: i32,
    report: *mut c_char,
    size: usize,
    length: *mut usize,
) -> Status {
    done(|| {
        let what = SPACES.get(space)?.foreign.open()?.report();
        let written = if json == 0 {
            what.to_string()
        } else {
            let why = |error| Failure::new(Status::Internal, format!("no JSON: {error}"));
            serde_json::to_string(&what).map_err(why)?
        };
        // SAFETY: the caller's.
        unsafe { text::give(&written, report, size, length) };
        Ok(())
    })
}

/// Writes a result where the caller wants it.
///
/// # Errors
/// It is a null pointer.
///
/// # Safety
/// `to` is null or points to a `T`.
pub(crate) unsafe fn put<T>(to: *mut T, what: &str, value: T) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: the caller's.
    unsafe { to.write(value) };
    Ok(())
}
