//! The card's own memory for kernels in C: what they allocate, and vectors that grow.
//!
//! A card that has too little is no failure of the kernel's: the service says so by its status, and the kernel may do
//! without. What makes no sense is one, as everywhere.

use std::ffi::c_void;

use bytemuck::Pod;
use farside_card::window::AllocError;
use farside_types::CancelReason;

use super::KernelArgs;
use super::c_abi::{Context, ERROR, OK, of};
use crate::error::KernelError;
use crate::kernel::{AT_ONCE, Growable, GrowableParts, KernelContext, Made};
use crate::own_memory::{AllocOptions, OwnMemoryId};
use crate::span::WriteSpan;
use crate::window::{Backing, WindowError};

/// The card has too few pages that are free.
const NO_MEMORY: i32 = 2;
/// No place among its addresses is long enough.
const NO_ADDRESSES: i32 = 3;
/// The card gives no memory of its own.
const NO_OWN_MEMORY: i32 = 4;
/// The card has no memory of its own with this number.
const NO_SUCH_MEMORY: i32 = 5;

const LAZY: u32 = 0;
const EAGER: u32 = 1;
/// Beside one of these.
const READ_ONLY: u32 = 2;
/// Beside the number of a growing vector's memory (`FARSIDE_EAGER_IN`): what it reserves has memory at once.
const GROWS_EAGERLY: u8 = 0x80;

/// `farside_growable`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct CGrowable {
    /// Of the first element; 0: there is none yet.
    address: u64,
    /// Elements.
    length: u64,
    /// Bytes of an element.
    element: u32,
    /// The number of the memory that it is in, and [`GROWS_EAGERLY`].
    memory: u8,
    /// Bytes that are held at once, the lowest first; 0 at first.
    at_once: [u8; 3],
    /// Bytes from `address` on.
    reserved: u64,
}

impl CGrowable {
    /// One of the same elements in the same memory, that has none.
    fn emptied(self) -> CGrowable {
        CGrowable { address: 0, length: 0, at_once: [0; 3], reserved: 0, ..self }
    }

    /// The vector of bytes that it is.
    pub(super) fn bytes(&self, args: &KernelArgs) -> Result<Growable<u8>, KernelError> {
        let CGrowable { address, length, element, memory, at_once, reserved } = *self;
        let bytes = length.checked_mul(element.into()).filter(|&bytes| bytes <= reserved);
        let end =
            address.checked_add(reserved).filter(|_| element > 0 && (address > 0 || reserved == 0));
        let (Some(bytes), Some(_)) = (bytes, end) else {
            return Err(args.bad(format!(
                "{length} elements of {element} bytes at {address:#x} are no growable vector; begin with \
                 FARSIDE_GROWABLE and leave its members alone"
            )));
        };
        let [low, middle, high] = at_once;
        let at_once = match u32::from_le_bytes([low, middle, high, 0]) {
            0 => AT_ONCE,
            at_once => at_once as usize,
        };
        let backing = match memory & GROWS_EAGERLY {
            0 => Backing::Lazy,
            _ => Backing::Eager,
        };
        let options = backing.in_memory(OwnMemoryId(memory & !GROWS_EAGERLY));
        let len = bytes as usize;
        Ok(Growable::of_parts(GrowableParts { addr: address, reserved, len, at_once, options }))
    }

    pub(super) fn element_bytes(&self) -> usize {
        self.element as usize
    }

    /// The vector of values that it is.
    pub(super) fn values<T: Pod>(&self, args: &KernelArgs) -> Result<Growable<T>, KernelError> {
        if self.element as usize != size_of::<T>() {
            return Err(args.bad(format!(
                "a vector has elements of {} bytes where they have {}; leave its members alone",
                self.element,
                size_of::<T>()
            )));
        }
        let bytes = self.bytes(args)?.parts();
        Ok(Growable::of_parts(GrowableParts { len: self.length as usize, ..bytes }))
    }

    pub(super) fn set<T: Pod>(&mut self, values: &Growable<T>) {
        let GrowableParts { addr: address, reserved, len, at_once, .. } = values.parts();
        let length = (len * size_of::<T>()) as u64 / u64::from(self.element);
        let [low, middle, high, _] = (at_once as u32).to_le_bytes();
        *self = CGrowable { address, length, reserved, at_once: [low, middle, high], ..*self };
    }
}

/// What a service that failed tells its kernel.
fn told(context: &Context<'_>, error: KernelError) -> Result<i32, KernelError> {
    use AllocError::{NoFrames, NoSpace, TooLarge, UnknownMemory};
    let status = match &error {
        KernelError::Window { error: WindowError::NoWindow { .. }, .. } => NO_OWN_MEMORY,
        KernelError::Window { error: WindowError::Refused { error: NoFrames, .. }, .. }
        | KernelError::Fault { reason: CancelReason::WindowFull, .. } => NO_MEMORY,
        KernelError::Window {
            error: WindowError::Refused { error: UnknownMemory, .. }, ..
        } => NO_SUCH_MEMORY,
        KernelError::Window {
            error: WindowError::Refused { error: NoSpace | TooLarge, .. },
            ..
        } => NO_ADDRESSES,
        _ => return Err(error),
    };
    Ok(context.refuse(status, error))
}

/// Runs a service that may be refused.
pub(super) fn serve(
    context: &Context<'_>,
    service: impl FnOnce(&mut KernelContext) -> Result<(), KernelError>,
) -> i32 {
    context.serve(|k| match service(k) {
        Ok(()) => Ok(OK),
        Err(error) => told(context, error),
    })
}

#[cold]
pub(super) fn null(args: &KernelArgs, service: &str) -> KernelError {
    args.bad(format!("it passed NULL to farside_{service}"))
}

pub(super) unsafe extern "C" fn alloc(
    context: *const Context<'_>,
    bytes: u64,
    backing: u32,
    address: *mut u64,
) -> i32 {
    // SAFETY: C calls services with its context.
    let Some(context) = (unsafe { of(context) }) else { return ERROR };
    serve(context, |k| {
        let backing = match backing {
            LAZY => Backing::Lazy,
            EAGER => Backing::Eager,
            other => {
                let why = format!("farside_alloc takes FARSIDE_LAZY or FARSIDE_EAGER, not {other}");
                return Err(context.args.bad(why));
            }
        };
        // SAFETY: C passes NULL or room for an address.
        let Some(address) = (unsafe { address.as_mut() }) else {
            return Err(null(context.args, "alloc"));
        };
        *address = k.alloc::<u8>(bytes as usize, backing)?.start();
        Ok(())
    })
}

/// When an allocation gets its memory, and what may be done with it.
fn options(args: &KernelArgs, memory: u32, options: u32) -> Result<AllocOptions, KernelError> {
    let bad = || {
        args.bad(format!(
            "farside_alloc_in takes FARSIDE_LAZY or FARSIDE_EAGER, and FARSIDE_READ_ONLY with either, not {options}"
        ))
    };
    let backing = match options & !READ_ONLY {
        LAZY => Backing::Lazy,
        EAGER => Backing::Eager,
        _ => return Err(bad()),
    };
    // A number that is too large is none, like any other that the card has not.
    let chosen = backing.in_memory(OwnMemoryId(u8::try_from(memory).unwrap_or(u8::MAX)));
    Ok(if options & READ_ONLY == 0 { chosen } else { chosen.read_only() })
}

pub(super) unsafe extern "C" fn alloc_in(
    context: *const Context<'_>,
    memory: u32,
    bytes: u64,
    chosen: u32,
    address: *mut u64,
) -> i32 {
    // SAFETY: C calls services with its context.
    let Some(context) = (unsafe { of(context) }) else { return ERROR };
    serve(context, |k| {
        let chosen = options(context.args, memory, chosen)?;
        // SAFETY: C passes NULL or room for an address.
        let Some(address) = (unsafe { address.as_mut() }) else {
            return Err(null(context.args, "alloc_in"));
        };
        *address = k.alloc::<u8>(bytes as usize, chosen)?.start();
        Ok(())
    })
}

/// `farside_memory`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct CMemory {
    kind: u32,
    reserved: u32,
    bytes: u64,
    free: u64,
}

pub(super) unsafe extern "C" fn own_memory(
    context: *const Context<'_>,
    number: u32,
    memory: *mut CMemory,
) -> i32 {
    // SAFETY: C calls services with its context.
    let Some(context) = (unsafe { of(context) }) else { return ERROR };
    let mut is_there = true;
    let status = serve(context, |k| {
        // SAFETY: C passes NULL or room for what a memory is.
        let Some(memory) = (unsafe { memory.as_mut() }) else {
            return Err(null(context.args, "own_memory"));
        };
        let all = k.own_memories()?;
        match all.get(number as usize) {
            Some(found) => {
                let (kind, bytes, free) = (found.kind.code(), found.bytes, found.bytes_free);
                *memory = CMemory { kind, reserved: 0, bytes, free };
            }
            None => is_there = false,
        }
        Ok(())
    });
    if status == OK && !is_there { NO_SUCH_MEMORY } else { status }
}

pub(super) unsafe extern "C" fn realloc(
    context: *const Context<'_>,
    address: *mut u64,
    bytes: u64,
) -> i32 {
    // SAFETY: C calls services with its context.
    let Some(context) = (unsafe { of(context) }) else { return ERROR };
    serve(context, |k| {
        // SAFETY: C passes NULL or an address.
        let Some(address) = (unsafe { address.as_mut() }) else {
            return Err(null(context.args, "realloc"));
        };
        let mut span = WriteSpan::<u8>::raw(*address, 0);
        k.realloc(&mut span, bytes as usize)?;
        *address = span.start();
        Ok(())
    })
}

pub(super) unsafe extern "C" fn free(context: *const Context<'_>, address: u64) -> i32 {
    // SAFETY: C calls services with its context.
    let Some(context) = (unsafe { of(context) }) else { return ERROR };
    serve(context, |k| k.free(WriteSpan::<u8>::raw(address, 0)))
}

pub(super) unsafe extern "C" fn extend(
    context: *const Context<'_>,
    growable: *mut CGrowable,
    values: *const c_void,
    count: u64,
) -> i32 {
    // SAFETY: C calls services with its context.
    let Some(context) = (unsafe { of(context) }) else { return ERROR };
    serve(context, |k| {
        // SAFETY: C passes NULL or a growable vector that is its own meanwhile.
        let growable = unsafe { growable.as_mut() };
        let Some(growable) = growable.filter(|_| count == 0 || !values.is_null()) else {
            return Err(null(context.args, "extend"));
        };
        let mut bytes = growable.bytes(context.args)?;
        let added =
            count.checked_mul(growable.element.into()).filter(|&it| it <= isize::MAX as u64);
        let added = added.ok_or_else(|| {
            context
                .args
                .bad(format!("farside_extend by {count} elements is more than there can be"))
        })?;
        let values: &[u8] = match added {
            0 => &[],
            // SAFETY: C passes so many elements, which stay as they are until the service returns.
            added => unsafe { std::slice::from_raw_parts(values.cast(), added as usize) },
        };
        let extended = bytes.extend(k, values);
        // Also if not all could be added: it may have moved, and what was added is there.
        growable.set(&bytes);
        extended
    })
}

pub(super) unsafe extern "C" fn finish(
    context: *const Context<'_>,
    growable: *mut CGrowable,
    made: *mut Made,
) -> i32 {
    // SAFETY: C calls services with its context.
    let Some(context) = (unsafe { of(context) }) else { return ERROR };
    serve(context, |k| {
        // SAFETY: C passes NULL or a growable vector, and room for what it becomes; both are its own meanwhile.
        let (Some(growable), Some(made)) = (unsafe { (growable.as_mut(), made.as_mut()) }) else {
            return Err(null(context.args, "finish"));
        };
        let bytes = growable.bytes(context.args)?;
        let length = growable.length;
        let addr = bytes.hand_over(k)?.addr;
        *made = Made { addr, len: length };
        *growable = growable.emptied();
        Ok(())
    })
}
