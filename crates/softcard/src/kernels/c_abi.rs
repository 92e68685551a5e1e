//! Kernels in C: the types of `include/farside-kernel.h`, and the services behind them.
//!
//! A kernel gets a context that begins with a pointer to the table of services. Each service runs
//! with the [`KernelContext`] taken out of that context, so a service that is called from the body
//! of another finds none and is refused. Errors stay: after the first, every service fails. No
//! panic gets as far as C.

use std::any::Any;
use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use farside_card::interface::{KernelArg, MESSAGE_BYTES_MAX};

use super::c_columns::{self, CColumn};
use super::c_own::{self, CGrowable, CMemory};
use super::ranges::{CRange, Ranges};
use super::{KernelArgs, KernelFunction, c_runs};
use crate::error::KernelError;
use crate::kernel::{KernelContext, Made, MadeColumn};
use crate::span::{AtomicSpan, Ptr, Word};

/// The version of the interface that this runtime speaks.
pub(super) const ABI_VERSION: u32 = 1;

pub(super) const OK: i32 = 0;
pub(super) const ERROR: i32 = 1;

/// `farside_argument`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CArgument {
    kind: u32,
    element: u32,
    word: u64,
    bytes: u64,
}

/// `farside_function`.
pub(super) type CFunction = unsafe extern "C" fn(
    context: *const Context<'_>,
    arguments: *const CArgument,
    count: u32,
    result: *mut u64,
) -> i32;

/// `farside_body` of `include/farside-kernel.h`: works on a piece of each range. `pieces` are as many pointers as
/// there are ranges, each to `count` elements; `first` is the number of the first of them.
pub type CBody = unsafe extern "C" fn(
    user: *mut c_void,
    pieces: *const *mut c_void,
    first: u64,
    count: u64,
) -> i32;

/// `farside_services`.
#[repr(C)]
struct Services {
    size: u32,
    reserved: u32,
    load: unsafe extern "C" fn(*const Context<'_>, u64, u32, *mut c_void) -> i32,
    store: unsafe extern "C" fn(*const Context<'_>, u64, u32, *const c_void) -> i32,
    fetch_add: unsafe extern "C" fn(*const Context<'_>, u64, u32, u64, *mut u64) -> i32,
    compare_exchange: unsafe extern "C" fn(*const Context<'_>, u64, u32, u64, u64, *mut u64) -> i32,
    for_each: unsafe extern "C" fn(
        *const Context<'_>,
        *const CRange,
        u32,
        Option<CBody>,
        *mut c_void,
    ) -> i32,
    checkpoint: unsafe extern "C" fn(*const Context<'_>) -> i32,
    fail: unsafe extern "C" fn(*const Context<'_>, *const c_char) -> i32,
    card: unsafe extern "C" fn(*const Context<'_>) -> u32,
    gather: unsafe extern "C" fn(*const Context<'_>, *const u64, u32, u64, *mut c_void) -> i32,
    scatter: unsafe extern "C" fn(*const Context<'_>, *const u64, u32, u64, *const c_void) -> i32,
    fetch_add_all:
        unsafe extern "C" fn(*const Context<'_>, *const u64, u32, u64, *const u64, *mut u64) -> i32,
    compare_exchange_all: unsafe extern "C" fn(
        *const Context<'_>,
        *const u64,
        u32,
        u64,
        *const u64,
        *const u64,
        *mut u64,
    ) -> i32,
    alloc: unsafe extern "C" fn(*const Context<'_>, u64, u32, *mut u64) -> i32,
    realloc: unsafe extern "C" fn(*const Context<'_>, *mut u64, u64) -> i32,
    free: unsafe extern "C" fn(*const Context<'_>, u64) -> i32,
    extend: unsafe extern "C" fn(*const Context<'_>, *mut CGrowable, *const c_void, u64) -> i32,
    finish: unsafe extern "C" fn(*const Context<'_>, *mut CGrowable, *mut Made) -> i32,
    add_values: unsafe extern "C" fn(
        *const Context<'_>,
        *mut CColumn,
        *const c_void,
        *const u8,
        u64,
    ) -> i32,
    add_texts: unsafe extern "C" fn(
        *const Context<'_>,
        *mut CColumn,
        *const c_char,
        *const u32,
        *const u8,
        u64,
    ) -> i32,
    finish_column: unsafe extern "C" fn(*const Context<'_>, *mut CColumn, *mut MadeColumn) -> i32,
    alloc_in: unsafe extern "C" fn(*const Context<'_>, u32, u64, u32, *mut u64) -> i32,
    own_memory: unsafe extern "C" fn(*const Context<'_>, u32, *mut CMemory) -> i32,
}

static SERVICES: Services = Services {
    size: size_of::<Services>() as u32,
    reserved: 0,
    load,
    store,
    fetch_add,
    compare_exchange,
    for_each,
    checkpoint,
    fail,
    card,
    gather: c_runs::gather,
    scatter: c_runs::scatter,
    fetch_add_all: c_runs::fetch_add_all,
    compare_exchange_all: c_runs::compare_exchange_all,
    alloc: c_own::alloc,
    realloc: c_own::realloc,
    free: c_own::free,
    extend: c_own::extend,
    finish: c_own::finish,
    add_values: c_columns::add_values,
    add_texts: c_columns::add_texts,
    finish_column: c_columns::finish_column,
    alloc_in: c_own::alloc_in,
    own_memory: c_own::own_memory,
};

/// `farside_context`: C sees the first field only.
#[repr(C)]
pub(super) struct Context<'a> {
    services: &'static Services,
    /// Taken out while a service runs.
    kernel: Cell<Option<&'a mut KernelContext>>,
    pub(super) args: &'a KernelArgs,
    /// The first error.
    error: Cell<Option<KernelError>>,
    /// What a service has told last without failing: its status, and why.
    refused: Cell<Option<(i32, KernelError)>>,
    card: u32,
}

/// The kernel that a C function is.
///
/// # Safety
/// `function` keeps the rules of the header.
pub(super) unsafe fn kernel(function: CFunction) -> KernelFunction {
    Arc::new(move |kernel: &mut KernelContext, args: &KernelArgs| {
        let arguments: Vec<CArgument> = args.records().iter().map(c_argument).collect();
        let context = Context::new(kernel, args);
        let mut result = 0;
        // SAFETY: the context, the arguments and the result live until the function returns; the
        // caller of `kernel` answers for the rest.
        let code =
            unsafe { function(&context, arguments.as_ptr(), arguments.len() as u32, &mut result) };
        context.end(code).map(|()| result)
    })
}

fn c_argument(arg: &KernelArg) -> CArgument {
    let [head, word, bytes, _] = arg.to_words();
    CArgument { kind: head as u32, element: arg.element, word, bytes }
}

impl<'a> Context<'a> {
    fn new(kernel: &'a mut KernelContext, args: &'a KernelArgs) -> Context<'a> {
        let card = u32::from(kernel.card().0);
        let (kernel, error, refused) = (Cell::new(Some(kernel)), Cell::new(None), Cell::new(None));
        Context { services: &SERVICES, kernel, args, error, refused, card }
    }

    /// What came of the kernel, which returned `code`.
    fn end(&self, code: i32) -> Result<(), KernelError> {
        let refused = self.refused.take().filter(|&(status, _)| status == code);
        match (self.error.take(), refused, code) {
            (Some(error), ..) => Err(error),
            (None, _, OK) => Ok(()),
            (None, Some((_, why)), _) => Err(why),
            (None, None, code) => {
                let message = format!("it returned {code} and gave no reason by farside_fail");
                Err(KernelError::Failed { kernel: Arc::clone(self.args.kernel()), message })
            }
        }
    }

    fn has_failed(&self) -> bool {
        let error = self.error.take();
        let failed = error.is_some();
        self.error.set(error);
        failed
    }

    /// Keeps an error, unless there is an earlier one.
    fn note(&self, error: KernelError) -> i32 {
        let first = self.error.take().unwrap_or(error);
        self.error.set(Some(first));
        ERROR
    }

    /// Keeps why a service is refused, for a kernel that ends with its status; one that does not goes on.
    pub(super) fn refuse(&self, status: i32, why: KernelError) -> i32 {
        self.refused.set(Some((status, why)));
        status
    }

    /// Runs a service.
    pub(super) fn serve(
        &self,
        service: impl FnOnce(&mut KernelContext) -> Result<i32, KernelError>,
    ) -> i32 {
        if self.has_failed() {
            return ERROR;
        }
        let Some(kernel) = self.kernel.take() else {
            let why = "it called a service from the body of farside_for_each; a body gets its \
                       pieces and asks for nothing more";
            return self.note(self.args.bad(why));
        };
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| service(&mut *kernel)));
        self.kernel.set(Some(kernel));
        match outcome {
            Ok(Ok(code)) => code,
            Ok(Err(error)) => self.note(error),
            Err(panic) => {
                let kernel = Arc::clone(self.args.kernel());
                self.note(KernelError::Panicked { kernel, message: said(&*panic) })
            }
        }
    }
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

/// The context of a service's call.
///
/// # Safety
/// `context` is null or what the kernel was given, and the kernel has not returned.
pub(super) unsafe fn of<'c, 'a>(context: *const Context<'a>) -> Option<&'c Context<'a>> {
    // SAFETY: passed on to the caller.
    unsafe { context.as_ref() }
}

unsafe extern "C" fn load(
    context: *const Context<'_>,
    address: u64,
    bytes: u32,
    value: *mut c_void,
) -> i32 {
    // SAFETY: C calls services with its context.
    let Some(context) = (unsafe { of(context) }) else { return ERROR };
    context.serve(|k| {
        if value.is_null() {
            return Err(context.args.bad("it passed NULL for the value of farside_load"));
        }
        // SAFETY: C gives room for a value of `bytes` bytes, whatever its alignment.
        unsafe {
            match bytes {
                1 => value.cast::<u8>().write(k.load(Ptr::at(address))?),
                2 => value.cast::<u16>().write_unaligned(k.load(Ptr::at(address))?),
                4 => value.cast::<u32>().write_unaligned(k.load(Ptr::at(address))?),
                8 => value.cast::<u64>().write_unaligned(k.load(Ptr::at(address))?),
                _ => return Err(wrong_size(context.args, "load", bytes, "1, 2, 4 or 8")),
            }
        }
        Ok(OK)
    })
}

unsafe extern "C" fn store(
    context: *const Context<'_>,
    address: u64,
    bytes: u32,
    value: *const c_void,
) -> i32 {
    // SAFETY: C calls services with its context.
    let Some(context) = (unsafe { of(context) }) else { return ERROR };
    context.serve(|k| {
        if value.is_null() {
            return Err(context.args.bad("it passed NULL for the value of farside_store"));
        }
        // SAFETY: C gives a value of `bytes` bytes, whatever its alignment.
        unsafe {
            match bytes {
                1 => k.store(Ptr::at(address), value.cast::<u8>().read())?,
                2 => k.store(Ptr::at(address), value.cast::<u16>().read_unaligned())?,
                4 => k.store(Ptr::at(address), value.cast::<u32>().read_unaligned())?,
                8 => k.store(Ptr::at(address), value.cast::<u64>().read_unaligned())?,
                _ => return Err(wrong_size(context.args, "store", bytes, "1, 2, 4 or 8")),
            }
        }
        Ok(OK)
    })
}

unsafe extern "C" fn fetch_add(
    context: *const Context<'_>,
    address: u64,
    bytes: u32,
    amount: u64,
    was: *mut u64,
) -> i32 {
    // SAFETY: C calls services with its context.
    let Some(context) = (unsafe { of(context) }) else { return ERROR };
    context.serve(|k| {
        let before = match bytes {
            4 => {
                let word = word::<AtomicU32>(context.args, address)?;
                u64::from(k.fetch_add(word, 0, amount as u32)?)
            }
            8 => k.fetch_add(word::<AtomicU64>(context.args, address)?, 0, amount)?,
            _ => return Err(wrong_size(context.args, "fetch_add", bytes, "4 or 8")),
        };
        // SAFETY: C passes NULL or room for a word.
        unsafe { give(was, before) };
        Ok(OK)
    })
}

unsafe extern "C" fn compare_exchange(
    context: *const Context<'_>,
    address: u64,
    bytes: u32,
    expected: u64,
    desired: u64,
    was: *mut u64,
) -> i32 {
    // SAFETY: C calls services with its context.
    let Some(context) = (unsafe { of(context) }) else { return ERROR };
    context.serve(|k| {
        let before = match bytes {
            4 => {
                let word = word::<AtomicU32>(context.args, address)?;
                let (Ok(was) | Err(was)) =
                    k.compare_exchange(word, 0, expected as u32, desired as u32)?;
                u64::from(was)
            }
            8 => {
                let word = word::<AtomicU64>(context.args, address)?;
                let (Ok(was) | Err(was)) = k.compare_exchange(word, 0, expected, desired)?;
                was
            }
            _ => return Err(wrong_size(context.args, "compare_exchange", bytes, "4 or 8")),
        };
        // SAFETY: C passes NULL or room for a word.
        unsafe { give(was, before) };
        Ok(OK)
    })
}

unsafe extern "C" fn for_each(
    context: *const Context<'_>,
    ranges: *const CRange,
    count: u32,
    body: Option<CBody>,
    user: *mut c_void,
) -> i32 {
    // SAFETY: C calls services with its context.
    let Some(context) = (unsafe { of(context) }) else { return ERROR };
    context.serve(|k| {
        // SAFETY: C passes `count` ranges.
        let ranges = unsafe { Ranges::of(context.args, ranges, count) }?;
        let Some(body) = body else {
            return Err(context.args.bad("it passed NULL for the body of farside_for_each"));
        };
        ranges.for_each(k, |pieces, first, count| {
            // SAFETY: `pieces` has a pointer per range, each to `count` elements that are held
            // until the body returns; C answers for the body and `user`.
            let code = unsafe { body(user, pieces.as_ptr(), first, count) };
            // A body that asked for something, or called farside_fail, is not called again.
            if code == OK && context.has_failed() { ERROR } else { code }
        })
    })
}

unsafe extern "C" fn checkpoint(context: *const Context<'_>) -> i32 {
    // SAFETY: C calls services with its context.
    let Some(context) = (unsafe { of(context) }) else { return ERROR };
    context.serve(|k| k.checkpoint().map(|()| OK))
}

unsafe extern "C" fn fail(context: *const Context<'_>, message: *const c_char) -> i32 {
    // SAFETY: C calls services with its context.
    let Some(context) = (unsafe { of(context) }) else { return ERROR };
    let message = if message.is_null() {
        "it gave NULL for a message".to_owned()
    } else {
        // SAFETY: C passes a string that ends with a zero, or has as many bytes as are read.
        let text = unsafe {
            let bytes = libc::strnlen(message, MESSAGE_BYTES_MAX as usize);
            std::slice::from_raw_parts(message.cast::<u8>(), bytes)
        };
        String::from_utf8_lossy(text).into_owned()
    };
    context.note(KernelError::Failed { kernel: Arc::clone(context.args.kernel()), message })
}

unsafe extern "C" fn card(context: *const Context<'_>) -> u32 {
    // SAFETY: C calls services with its context.
    unsafe { of(context) }.map_or(0, |context| context.card)
}

/// The word at an address, for atomic operations.
pub(super) fn word<W: Word>(args: &KernelArgs, address: u64) -> Result<AtomicSpan<W>, KernelError> {
    if address % size_of::<W>() as u64 != 0 {
        let bytes = size_of::<W>();
        return Err(args.bad(format!(
            "the word of {bytes} bytes at {address:#x} is not aligned to its size, as an atomic \
             operation needs it"
        )));
    }
    Ok(AtomicSpan::raw(address, 1))
}

#[cold]
pub(super) fn wrong_size(args: &KernelArgs, service: &str, bytes: u32, sizes: &str) -> KernelError {
    args.bad(format!("farside_{service} of {bytes} bytes; words have {sizes} bytes"))
}

/// Gives C what a word was, if it wants to know.
///
/// # Safety
/// `was` is null or has room for a word.
unsafe fn give(was: *mut u64, before: u64) {
    if !was.is_null() {
        // SAFETY: passed on to the caller.
        unsafe { was.write_unaligned(before) }
    }
}
