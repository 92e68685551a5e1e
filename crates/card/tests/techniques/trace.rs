//! Allocation traces: buffers of 32 MiB to 1 GiB, as the thesis assumes them (section 3.5).

use crate::random::Random;
use crate::{Buffer, GIB, MIB};

/// What a growing buffer gets at first, and how much is written before it is asked for more.
const PORTION: u64 = 4 * MIB;
/// Growing buffers at a time: a query's columns.
const AT_ONCE: usize = 8;
/// Of the memory, what the buffers of a trace use at the most.
const FULL: f64 = 0.85;

/// One step of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// The buffer is written up to so many bytes.
    Write(Buffer, u64),
    /// It is used no more.
    Free(Buffer),
}

#[derive(Clone, Debug)]
pub(crate) struct Trace {
    pub(crate) steps: Vec<Step>,
}

impl Trace {
    /// `buffers` of unknown size, some at a time, each filled from its begin; the whole ones stay until room
    /// is needed.
    pub(crate) fn growing(memory: u64, buffers: u32, seed: u64) -> Trace {
        let mut random = Random::new(seed);
        let mut steps = Vec::new();
        let mut live = Live::new(memory);
        let mut filling: Vec<(Buffer, u64, u64)> = Vec::new();
        let mut begun = 0;
        while begun < buffers || !filling.is_empty() {
            if begun < buffers && filling.len() < AT_ONCE {
                let size = random.size(32 * MIB, GIB);
                live.make_room(size, &mut random, &mut steps);
                filling.push((begun, 0, size));
                begun += 1;
                continue;
            }
            let chosen = random.below(filling.len() as u64) as usize;
            let (buffer, written, size) = &mut filling[chosen];
            *written = (*written + PORTION).min(*size);
            steps.push(Step::Write(*buffer, *written));
            if written == size {
                let (buffer, _, size) = filling.swap_remove(chosen);
                live.whole.push((buffer, size));
            }
        }
        Trace { steps }
    }

    /// `buffers` whose size is known when they are allocated; any of those that are there goes when room is needed.
    pub(crate) fn known(memory: u64, buffers: u32, seed: u64) -> Trace {
        let mut random = Random::new(seed);
        let mut steps = Vec::new();
        let mut live = Live::new(memory);
        for buffer in 0..buffers {
            let size = random.size(32 * MIB, GIB);
            live.make_room(size, &mut random, &mut steps);
            steps.push(Step::Write(buffer, size));
            live.whole.push((buffer, size));
        }
        Trace { steps }
    }
}

impl Random {
    /// Between two sizes, alike over their logarithm.
    fn size(&mut self, least: u64, most: u64) -> u64 {
        let share = self.next() as f64 / u64::MAX as f64;
        (least as f64 * (most as f64 / least as f64).powf(share)) as u64
    }
}

/// What is allocated.
struct Live {
    room: u64,
    /// Of all buffers, those that are being filled as well.
    bytes: u64,
    /// Buffers that may go.
    whole: Vec<(Buffer, u64)>,
}

impl Live {
    fn new(memory: u64) -> Live {
        Live { room: (memory as f64 * FULL) as u64, bytes: 0, whole: Vec::new() }
    }

    /// Frees buffers until there is room for one more of this size, and counts it.
    fn make_room(&mut self, size: u64, random: &mut Random, steps: &mut Vec<Step>) {
        while self.bytes + size > self.room && !self.whole.is_empty() {
            let chosen = random.below(self.whole.len() as u64) as usize;
            let (buffer, freed) = self.whole.swap_remove(chosen);
            steps.push(Step::Free(buffer));
            self.bytes -= freed;
        }
        self.bytes += size;
    }
}
