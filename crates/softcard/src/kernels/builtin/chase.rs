//! Following pointers: one word after the other, each at an address that the last one gave.

use farside_card::interface::ArgKind;

use crate::error::KernelError;
use crate::kernel::KernelContext;
use crate::kernels::KernelArgs;
use crate::span::Ptr;

/// Follows pointers for so many steps, or to one that is null, and gives where it ended.
pub(super) fn chase(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    args.takes(3)?;
    if args.kind(0)? != ArgKind::Read {
        return Err(args.bad("argument 0 (from 0 on) is not memory to read"));
    }
    let mut at = Ptr::<Ptr<u64>>::at(args.value::<u64>(1)?);
    for _ in 0..args.value::<u64>(2)? {
        let next = k.load(at)?;
        if next.is_null() {
            break;
        }
        at = Ptr::at(next.addr());
    }
    Ok(at.addr())
}
