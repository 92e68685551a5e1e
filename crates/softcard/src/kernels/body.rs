//! Kernels that are a body of `farside_for_each` and nothing else: what a compiler at run time makes of a function
//! over arrays.

use std::ffi::c_void;
use std::sync::Arc;

use farside_card::interface::{ArgKind, KernelArg};

use super::c_abi::{CBody, OK};
use super::ranges::Ranges;
use super::{KernelArgs, KernelFunction};
use crate::error::KernelError;
use crate::kernel::KernelContext;

/// The kernel that runs `body` over all memory of its arguments, in lock step: a piece for each argument that is
/// memory, in their order. `user` points to the plain values among its arguments as words of eight bytes, in their
/// order, the lowest byte first. It gives the number of elements.
///
/// It fails with [`KernelError::BadRequest`] if it is lent no memory, more than eight ranges, ranges of different
/// lengths, or shared words; with [`KernelError::Failed`] if the body gives something other than 0.
///
/// # Safety
/// `body` keeps the rules of `farside_body` in `include/farside-kernel.h` for as long as the function is kept, and
/// uses no more values and pieces than it is called with.
pub unsafe fn body_kernel(body: CBody) -> KernelFunction {
    Arc::new(move |kernel: &mut KernelContext, args: &KernelArgs| {
        let is_value = |arg: &&KernelArg| arg.kind == ArgKind::Value;
        let mut values: Vec<u64> =
            args.records().iter().filter(is_value).map(|arg| arg.word).collect();
        let ranges = Ranges::lent(args)?;
        let code = ranges.for_each(kernel, |pieces, first, count| {
            // SAFETY: a pointer for each range, each to `count` elements that are held until the body returns,
            // and a word for each value; the caller of `body_kernel` answers for the rest.
            unsafe { body(values.as_mut_ptr().cast::<c_void>(), pieces.as_ptr(), first, count) }
        })?;
        if code == OK {
            return Ok(ranges.elements());
        }
        let message = format!("its body ended with {code}");
        Err(KernelError::Failed { kernel: Arc::clone(args.kernel()), message })
    })
}
