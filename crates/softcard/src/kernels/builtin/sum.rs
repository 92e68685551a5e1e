//! Adding up: the simplest kernel that only reads.

use crate::error::KernelError;
use crate::kernel::KernelContext;
use crate::kernels::{KernelArgs, pieces};
use crate::view::ReadView;

/// The sum of all words, wrapping.
pub(super) fn sum(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    args.takes(1)?;
    let words = args.read::<u64>(0)?;
    let mut sum = 0u64;
    for piece in pieces(words.len(), size_of::<u64>()) {
        sum = k.with(words.slice(piece), |words: ReadView<u64>| {
            words.iter().fold(sum, |sum, word| sum.wrapping_add(*word))
        })?;
    }
    Ok(sum)
}
