//! A trace under a technique, and what comes of it.

use std::collections::HashMap;

use crate::trace::{Step, Trace};
use crate::{Buffer, MEMORY, Technique};

/// What came of a trace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Replayed {
    /// Requests for memory.
    pub(crate) requests: u64,
    /// Those that were refused although so much was free, and all that were refused.
    pub(crate) refused_for_shape: u64,
    pub(crate) refused: u64,
    /// Bytes that programs wrote, and that were copied to grow.
    pub(crate) written: u64,
    pub(crate) copied: u64,
    /// Sums over the steps: bytes that are taken, bytes that programs use.
    taken: u128,
    used: u128,
    steps: u64,
}

impl Replayed {
    /// Bytes written to memory for each byte of a program.
    pub(crate) fn amplification(&self) -> f64 {
        (self.written + self.copied) as f64 / self.written as f64
    }

    /// Memory that is taken beyond what programs use of it, of that.
    pub(crate) fn overhead(&self) -> f64 {
        self.taken as f64 / self.used as f64 - 1.0
    }

    /// Steps of a random access, in the mean.
    pub(crate) fn steps(&self) -> f64 {
        self.steps as f64 / (self.requests - self.refused) as f64
    }
}

/// A buffer whose memory is refused is given up.
pub(crate) fn replay(trace: &Trace, technique: &mut dyn Technique) -> Replayed {
    let mut replayed = Replayed::default();
    let mut buffers: HashMap<Buffer, u64> = HashMap::new();
    let mut given_up = std::collections::HashSet::new();
    let mut used = 0;
    for &step in &trace.steps {
        match step {
            Step::Write(buffer, _) if given_up.contains(&buffer) => {}
            Step::Write(buffer, bytes) => {
                replayed.requests += 1;
                let had = buffers.get(&buffer).copied().unwrap_or(0);
                match technique.grow(buffer, bytes) {
                    Ok(copied) => {
                        replayed.written += bytes - had;
                        replayed.copied += copied;
                        replayed.steps += technique.steps(buffer);
                        used += bytes - had;
                        buffers.insert(buffer, bytes);
                    }
                    Err(_) => {
                        let room = MEMORY - technique.taken();
                        replayed.refused += 1;
                        replayed.refused_for_shape += u64::from(room >= bytes - had);
                        technique.free(buffer);
                        used -= buffers.remove(&buffer).unwrap_or(0);
                        given_up.insert(buffer);
                    }
                }
            }
            Step::Free(buffer) => {
                technique.free(buffer);
                used -= buffers.remove(&buffer).unwrap_or(0);
            }
        }
        replayed.taken += u128::from(technique.taken());
        replayed.used += u128::from(used);
    }
    replayed
}
