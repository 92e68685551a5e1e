//! Fill and copy, as a program knows them.

use crate::error::KernelError;
use crate::kernel::KernelContext;
use crate::kernels::{KernelArgs, pieces};
use crate::view::{ReadView, WriteView};

/// Sets each word to a value.
pub(super) fn fill(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    args.takes(2)?;
    let mut words = args.write::<u64>(0)?;
    let value = u64::from_le_bytes(args.value::<[u8; 8]>(1)?);
    for piece in pieces(words.len(), size_of::<u64>()) {
        k.with(words.slice(piece), |mut words: WriteView<u64>| {
            words.pieces().for_each(|words| words.fill(value));
        })?;
    }
    Ok(words.len() as u64)
}

/// Copies words from the first range to the second.
pub(super) fn copy(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    args.takes(2)?;
    let from = args.read::<u64>(0)?;
    let mut to = args.write::<u64>(1)?;
    if from.len() != to.len() {
        let why = format!("{} words cannot be copied to {} words", from.len(), to.len());
        return Err(args.bad(why));
    }
    for piece in pieces(from.len(), 2 * size_of::<u64>()) {
        let request = (from.slice(piece.clone()), to.slice(piece));
        k.with(request, |(from, mut to): (ReadView<u64>, WriteView<u64>)| {
            to.iter_mut().zip(from.iter()).for_each(|(to, from)| *to = *from);
        })?;
    }
    Ok(from.len() as u64)
}
