//! The launches of a pipeline: in each, several GPUs run a kernel of their own.
//!
//! A pipeline step gives every GPU one microbatch; its launches are the first kernels of all GPUs,
//! their second ones, and so on. Forward passes flow from the first GPU to the last, backward
//! passes from the last to the first, and then all update their weights.

use super::Part;
use super::steps::{Kernels, Steps};

/// A kernel of a launch.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Where it runs.
    pub(crate) gpu: u8,
    /// What it does.
    pub(crate) kernel: Box<dyn Part>,
}

/// A stretch of a launch in which the work-groups of some slots take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turns {
    /// Its first work-group.
    first: u32,
    /// Work-groups of each of the slots before it.
    before: u32,
    /// How many slots.
    count: u32,
    /// Their numbers.
    slots: [u8; SLOTS_MAX],
}

/// Most slots of a launch: one for each GPU.
const SLOTS_MAX: usize = 16;

/// A launch. The work-groups of its slots take turns, so that no GPU waits for the dispatcher to
/// come to its kernel.
#[derive(Debug)]
pub(crate) struct Batch {
    slots: Vec<Slot>,
    turns: Vec<Turns>,
    groups: u32,
}

impl Batch {
    fn new(slots: Vec<Slot>) -> Batch {
        let groups: Vec<u32> = slots.iter().map(|slot| slot.kernel.groups()).collect();
        let mut ends = groups.clone();
        ends.sort_unstable();
        ends.dedup();
        let (mut turns, mut first, mut before) = (Vec::new(), 0, 0);
        for end in ends {
            let (mut count, mut slots) = (0, [0; SLOTS_MAX]);
            for slot in (0..groups.len()).filter(|slot| groups[*slot] >= end) {
                slots[count] = slot as u8;
                count += 1;
            }
            let count = count as u32;
            turns.push(Turns { first, before, count, slots });
            (first, before) = (first + count * (end - before), end);
        }
        Batch { slots, turns, groups: first }
    }

    /// Work-groups of all slots.
    pub(crate) fn groups(&self) -> u32 {
        self.groups
    }

    /// The slot of a work-group, and its number within the slot's kernel.
    #[inline]
    pub(crate) fn slot(&self, group: u32) -> (&Slot, u32) {
        let mut turns = &self.turns[0];
        for later in &self.turns[1..] {
            if later.first > group {
                break;
            }
            turns = later;
        }
        let inside = group - turns.first;
        // Divisions by constants are fast, and this is done for every instruction.
        let (round, turn) = match turns.count {
            1 => (inside, 0),
            2 => (inside / 2, inside % 2),
            3 => (inside / 3, inside % 3),
            4 => (inside / 4, inside % 4),
            count => (inside / count, inside % count),
        };
        (&self.slots[usize::from(turns.slots[turn as usize])], turns.before + round)
    }
}

/// Launches in which each GPU does its kernels in order, beside the others.
fn side_by_side(work: Vec<Kernels>) -> impl Iterator<Item = Batch> {
    let count = work.iter().map(Vec::len).max().unwrap_or(0);
    let mut work: Vec<_> = work.into_iter().map(Vec::into_iter).collect();
    (0..count).map(move |_| {
        let slot = |(gpu, kernels): (usize, &mut std::vec::IntoIter<Box<dyn Part>>)| {
            kernels.next().map(|kernel| Slot { gpu: gpu as u8, kernel })
        };
        Batch::new(work.iter_mut().enumerate().filter_map(slot).collect())
    })
}

/// The launches of a training: `iterations` times all microbatches forward and back, and an
/// update of the weights.
pub(crate) fn launches(steps: &Steps<'_>, gpus: u32, iterations: u32) -> Vec<Batch> {
    let layers = |gpu: u32| {
        let all = 0..steps.network.layers.len();
        all.filter(move |layer| steps.stages[*layer] == gpu)
    };
    let microbatches = steps.batches.microbatches;
    let mut batches = Vec::new();
    for _ in 0..iterations {
        for step in 0..microbatches + gpus - 1 {
            // The stage `depth` works on a microbatch `depth` steps after the first one did.
            let at = |depth: u32| step.checked_sub(depth).filter(|batch| *batch < microbatches);
            let forward = |gpu: u32| -> Kernels {
                let kernels =
                    |batch| layers(gpu).flat_map(move |layer| steps.forward(layer, batch));
                at(gpu).into_iter().flat_map(kernels).collect()
            };
            batches.extend(side_by_side((0..gpus).map(forward).collect()));
        }
        for step in 0..microbatches + gpus - 1 {
            let at = |depth: u32| step.checked_sub(depth).filter(|batch| *batch < microbatches);
            let backward = |gpu: u32| -> Kernels {
                let back: Vec<usize> = layers(gpu).rev().collect();
                let kernels =
                    |batch| back.iter().flat_map(move |layer| steps.backward(*layer, batch));
                at(gpus - 1 - gpu).into_iter().flat_map(kernels).collect()
            };
            batches.extend(side_by_side((0..gpus).map(backward).collect()));
        }
        let update = |gpu| layers(gpu).flat_map(|layer| steps.update(layer)).collect();
        batches.extend(side_by_side((0..gpus).map(update).collect()));
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::super::tensor::{Elementwise, Source};
    use super::*;
    use crate::Line;

    fn slot(gpu: u8, groups: u64) -> Slot {
        let (sources, targets) = (vec![Source::Same(Line(0))], Vec::new());
        let (elements, instructions, waves) = (groups * 256, 1, 4);
        let kernel = Elementwise { sources, targets, elements, instructions, waves };
        Slot { gpu, kernel: Box::new(kernel) }
    }

    #[test]
    fn the_work_groups_of_a_launch_take_turns_and_none_is_left_out() {
        let batch = Batch::new(vec![slot(0, 3), slot(1, 1), slot(2, 3), slot(3, 5)]);
        let order: Vec<(u8, u32)> = (0..batch.groups())
            .map(|group| batch.slot(group))
            .map(|(slot, group)| (slot.gpu, group))
            .collect();
        let expected = [
            (0, 0),
            (1, 0),
            (2, 0),
            (3, 0),
            (0, 1),
            (2, 1),
            (3, 1),
            (0, 2),
            (2, 2),
            (3, 2),
            (3, 3),
            (3, 4),
        ];
        assert_eq!(order, expected);
    }
}
