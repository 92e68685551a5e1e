//! Adding one: the simplest kernel that reads and writes all it is given.

use std::sync::atomic::AtomicU64;

use farside_card::interface::ArgKind;

use crate::error::KernelError;
use crate::kernel::KernelContext;
use crate::kernels::{KernelArgs, pieces};
use crate::view::WriteView;

/// Shared words that are named at a time.
const RUN: usize = 1024;

/// Adds 1 to each word, wrapping: by slices if it has them alone, else by atomic operations.
pub(super) fn increment(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    args.takes(1)?;
    match args.kind(0)? {
        ArgKind::Shared => increment_shared(k, args),
        _ => increment_own(k, args),
    }
}

fn increment_own(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    let mut words = args.write::<u64>(0)?;
    for piece in pieces(words.len(), size_of::<u64>()) {
        k.with(words.slice(piece), |mut words: WriteView<u64>| {
            words.iter_mut().for_each(|word| *word = word.wrapping_add(1));
        })?;
    }
    Ok(words.len() as u64)
}

fn increment_shared(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    let words = args.shared::<AtomicU64>(0)?;
    for start in (0..words.len()).step_by(RUN) {
        let run = start..words.len().min(start + RUN);
        k.fetch_add_all(words, &run.map(|index| (index, 1)).collect::<Vec<_>>(), None)?;
    }
    Ok(words.len() as u64)
}
