//! Kernels that do nothing, for a while: what a launch, a held page and a running card cost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::KernelError;
use crate::kernel::KernelContext;
use crate::kernels::KernelArgs;
use crate::span::AtomicSpan;

/// How long [`hold`] waits to be told to let go.
const HOLD_MAX: Duration = Duration::from_secs(2);
/// How long it sleeps between two looks: it shall not take the processor from who tells it.
const HOLD_LOOK: Duration = Duration::from_micros(50);
/// How long [`wait`] sleeps between two looks.
const WAIT_LOOK: Duration = Duration::from_millis(2);

/// Ends at once.
pub(super) fn nop(_: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    args.takes(0)?;
    Ok(0)
}

/// Runs until it is told to stop.
pub(super) fn spin(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    args.takes(0)?;
    loop {
        k.checkpoint()?;
        std::thread::yield_now();
    }
}

/// Sleeps until it is told to stop: a card that runs something, and leaves the processor to others.
pub(super) fn wait(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    args.takes(0)?;
    loop {
        k.checkpoint()?;
        std::thread::sleep(WAIT_LOOK);
    }
}

/// Keeps a page in flight: a drain of it waits. The first word says 1 from then on, and somebody
/// who reaches the card's memory by another way sets it to 2 to end it.
pub(super) fn hold(k: &mut KernelContext, args: &KernelArgs) -> Result<u64, KernelError> {
    args.takes(1)?;
    let range = args.write::<u64>(0)?;
    if range.is_empty() {
        return Err(args.bad("argument 0 (from 0 on) has no word to be held"));
    }
    let word: AtomicSpan<AtomicU64> = AtomicSpan::raw(range.start(), 1);
    let was_told = k.atomic(word, 0, |word| {
        word.store(1, Ordering::SeqCst);
        let end = Instant::now() + HOLD_MAX;
        while word.load(Ordering::SeqCst) != 2 {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(HOLD_LOOK);
        }
        true
    })?;
    if was_told {
        return Ok(0);
    }
    Err(k.fail(format!("nobody set the word it holds to 2 within {HOLD_MAX:?}")))
}
