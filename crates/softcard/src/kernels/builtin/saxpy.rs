//! y = a x + y: two ranges and a value.

use crate::error::KernelError;
use crate::kernel::KernelContext;
use crate::kernels::{KernelArgs, pieces};
use crate::view::{ReadView, WriteView};

/// Adds `a` times each value of `x` to that of `y`, in single precision.
pub(super) fn saxpy(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    args.takes(3)?;
    let a = args.value::<f32>(0)?;
    let x = args.read::<f32>(1)?;
    let mut y = args.write::<f32>(2)?;
    if x.len() != y.len() {
        let why = format!("x has {} values and y has {}; wanted are as many", x.len(), y.len());
        return Err(args.bad(why));
    }
    for piece in pieces(x.len(), 2 * size_of::<f32>()) {
        let request = (x.slice(piece.clone()), y.slice(piece));
        k.with(request, |(x, mut y): (ReadView<f32>, WriteView<f32>)| {
            y.iter_mut().zip(x.iter()).for_each(|(y, x)| *y += a * x);
        })?;
    }
    Ok(x.len() as u64)
}
