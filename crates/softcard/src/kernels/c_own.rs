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
use crate::kernel::{AT_ONCE, Growable, KernelContext, Made};
use crate::span::WriteSpan;
use crate::window::{Backing, WindowError};

/// The card has too few pages that are free.
const NO_MEMORY: i32 = 2;
/// No place among its addresses is long enough.
const NO_ADDRESSES: i32 = 3;
/// The card gives no memory of its own.
const NO_OWN_MEMORY: i32 = 4;

const LAZY: u32 = 0;
const EAGER: u32 = 1;

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
    /// Bytes that are held at once, 0 at first.
    at_once: u32,
    /// Bytes from `address` on.
    reserved: u64,
}

impl CGrowable {
    pub(super) const EMPTY: CGrowable =
        CGrowable { address: 0, length: 0, element: 1, at_once: 0, reserved: 0 };

    /// The vector of bytes that it is.
    pub(super) fn bytes(&self, args: &KernelArgs) -> Result<Growable<u8>, KernelError> {
        let CGrowable { address, length, element, at_once, reserved } = *self;
        let bytes = length.checked_mul(element.into()).filter(|&bytes| bytes <= reserved);
        let end =
            address.checked_add(reserved).filter(|_| element > 0 && (address > 0 || reserved == 0));
        let (Some(bytes), Some(_)) = (bytes, end) else {
            return Err(args.bad(format!(
                "{length} elements of {element} bytes at {address:#x} are no growable vector; begin with \
                 FARSIDE_GROWABLE and leave its members alone"
            )));
        };
        let at_once = if at_once == 0 { AT_ONCE } else { at_once as usize };
        Ok(Growable::of_parts(address, reserved, bytes as usize, at_once))
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
        let (address, reserved, _, at_once) = self.bytes(args)?.parts();
        Ok(Growable::of_parts(address, reserved, self.length as usize, at_once))
    }

    pub(super) fn set<T: Pod>(&mut self, values: &Growable<T>) {
        let (address, reserved, len, at_once) = values.parts();
        let length = (len * size_of::<T>()) as u64 / u64::from(self.element);
        *self = CGrowable { address, length, reserved, at_once: at_once as u32, ..*self };
    }
}

/// What a service that failed tells its kernel.
fn told(context: &Context<'_>, error: KernelError) -> Result<i32, KernelError> {
    use AllocError::{NoFrames, NoSpace, TooLarge};
    let status = match &error {
        KernelError::Window { error: WindowError::NoWindow { .. }, .. } => NO_OWN_MEMORY,
        KernelError::Window { error: WindowError::Refused { error: NoFrames, .. }, .. }
        | KernelError::Fault { reason: CancelReason::OutOfMemory, .. } => NO_MEMORY,
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
        *growable = CGrowable { element: growable.element, ..CGrowable::EMPTY };
        Ok(())
    })
}
