//! Counting bytes: reads at streaming speed, adds to words that other cards add to as well.

use std::sync::atomic::AtomicU64;

use crate::error::KernelError;
use crate::kernel::KernelContext;
use crate::kernels::{KernelArgs, pieces};
use crate::view::ReadView;

/// A bin per value of a byte.
const BINS: usize = 256;

/// Counts the bytes by their value and adds the counts to the bins.
pub(super) fn histogram(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    args.takes(2)?;
    let bytes = args.read::<u8>(0)?;
    let bins = args.shared::<AtomicU64>(1)?;
    if bins.len() != BINS {
        return Err(args.bad(format!("there are {} bins; wanted are {BINS}", bins.len())));
    }
    let mut counts = [0u64; BINS];
    for piece in pieces(bytes.len(), size_of::<u8>()) {
        k.with(bytes.slice(piece), |bytes: ReadView<u8>| {
            bytes.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
        })?;
    }
    // Once per bin, at the end: other cards fight for that page too.
    let counted = counts.into_iter().enumerate().filter(|(_, count)| *count > 0);
    k.fetch_add_all(bins, &counted.collect::<Vec<_>>(), None)?;
    Ok(bytes.len() as u64)
}
