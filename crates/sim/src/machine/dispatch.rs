//! Which GPU and compute unit the next work-group goes to (`gpu.dispatch`).
//!
//! MGPUSim's unified device gives GPU `i` of `n` the groups from `i * ceil(groups / n)` on; its
//! partitioning dispatcher does the same among the compute units of a GPU, in turn, and lets a
//! unit whose part is used up take from the first that has some left.

use std::collections::VecDeque;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{Dispatch, SimError, Spec};
use farside_workloads::{Launch, Workload};

/// The work-groups of a launch that have not started.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Dispatcher {
    source: Source,
    /// Per GPU, the compute unit to look at first.
    next_unit: Vec<usize>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Source {
    /// Parts of compute units, by GPU.
    Partition(Vec<Vec<Range<u32>>>),
    /// Parts of GPUs.
    RoundRobin(Vec<Range<u32>>),
    /// Chunks of GPUs.
    Chunks(Vec<VecDeque<Range<u32>>>),
    /// One for all.
    Fill(Range<u32>),
    /// The workload says where each group runs: queues of compute units, by GPU.
    Placed(Vec<Vec<VecDeque<u32>>>),
}

impl Default for Source {
    fn default() -> Source {
        Source::Fill(0..0)
    }
}

impl Dispatcher {
    /// For launch number `launch` of a workload.
    ///
    /// # Errors
    /// [`SimError::TooSmall`] if a group has its place where the machine has nothing.
    pub(super) fn new(
        spec: &Spec,
        workload: &dyn Workload,
        launch: u32,
        shape: Launch,
    ) -> Result<Dispatcher, SimError> {
        let (gpus, units) = (spec.gpus(), spec.gpu.compute_units as usize);
        let groups = 0..shape.groups;
        let source = if shape.groups > 0 && workload.place(launch, 0).is_some() {
            Source::Placed(placed(spec, workload, launch, groups)?)
        } else {
            match spec.gpu.dispatch {
                Dispatch::Fill => Source::Fill(groups),
                Dispatch::Chunks => Source::Chunks(chunks(groups, gpus, capacity(spec, shape))),
                Dispatch::RoundRobin => Source::RoundRobin(parts(groups, gpus)),
                Dispatch::Partition => {
                    let of_gpus = parts(groups, gpus).into_iter();
                    Source::Partition(of_gpus.map(|part| parts(part, units)).collect())
                }
            }
        };
        Ok(Dispatcher { source, next_unit: vec![0; gpus] })
    }

    /// The next work-group for a GPU and the compute unit it goes to, among those that have room.
    pub(super) fn next(
        &mut self,
        gpu: usize,
        units: usize,
        room: impl Fn(usize) -> bool,
    ) -> Option<(u32, usize)> {
        if self.is_exhausted(gpu) {
            return None;
        }
        let first = self.next_unit[gpu];
        for offset in 0..units {
            let unit = (first + offset) % units;
            if room(unit) {
                if let Some(group) = self.take(gpu, unit) {
                    self.next_unit[gpu] = (unit + 1) % units;
                    return Some((group, unit));
                }
            }
        }
        None
    }

    /// Whether nothing is left for a GPU.
    pub(super) fn is_exhausted(&self, gpu: usize) -> bool {
        match &self.source {
            Source::Partition(parts) => parts[gpu].iter().all(Range::is_empty),
            Source::RoundRobin(parts) => parts[gpu].is_empty(),
            Source::Chunks(queues) => queues[gpu].is_empty(),
            Source::Fill(groups) => groups.is_empty(),
            Source::Placed(queues) => queues[gpu].iter().all(VecDeque::is_empty),
        }
    }

    fn take(&mut self, gpu: usize, unit: usize) -> Option<u32> {
        match &mut self.source {
            Source::Partition(parts) => {
                let parts = &mut parts[gpu];
                parts[unit].next().or_else(|| parts.iter_mut().find_map(Iterator::next))
            }
            Source::RoundRobin(parts) => parts[gpu].next(),
            Source::Chunks(queues) => {
                let queue = &mut queues[gpu];
                let group = queue.front_mut()?.next();
                if queue.front().is_some_and(Range::is_empty) {
                    queue.pop_front();
                }
                group
            }
            Source::Fill(groups) => groups.next(),
            Source::Placed(queues) => queues[gpu][unit].pop_front(),
        }
    }
}

/// `count` parts of equal size, the last ones shorter or empty.
fn parts(groups: Range<u32>, count: usize) -> Vec<Range<u32>> {
    let size = (groups.len() as u32).div_ceil(count as u32);
    let at = |index: u32| groups.start.saturating_add(index * size).min(groups.end);
    (0..count as u32).map(|index| at(index)..at(index + 1)).collect()
}

/// Groups that a GPU holds at a time.
fn capacity(spec: &Spec, shape: Launch) -> u32 {
    let waves = u32::from(shape.waves.max(1));
    let of_unit = (spec.gpu.wavefronts / waves).min(u32::from(shape.groups_per_unit)).max(1);
    of_unit * spec.gpu.compute_units
}

/// The groups in chunks of `size`, dealt out to `gpus` GPUs in turn.
fn chunks(groups: Range<u32>, gpus: usize, size: u32) -> Vec<VecDeque<Range<u32>>> {
    let mut queues = vec![VecDeque::new(); gpus];
    let starts = groups.clone().step_by(size as usize);
    for (index, start) in starts.enumerate() {
        queues[index % gpus].push_back(start..(start + size).min(groups.end));
    }
    queues
}

fn placed(
    spec: &Spec,
    workload: &dyn Workload,
    launch: u32,
    groups: Range<u32>,
) -> Result<Vec<Vec<VecDeque<u32>>>, SimError> {
    let (gpus, units) = (spec.gpus(), spec.gpu.compute_units as usize);
    let mut queues = vec![vec![VecDeque::new(); units]; gpus];
    for group in groups {
        let Some(place) = workload.place(launch, group) else {
            continue;
        };
        let too_small = |what, key, used: u8, given| SimError::TooSmall {
            what,
            key,
            used: u64::from(used) + 1,
            given,
        };
        let Some(queues) = queues.get_mut(usize::from(place.gpu)) else {
            return Err(too_small("GPUs", "gpu.count", place.gpu, gpus as u64));
        };
        let Some(queue) = queues.get_mut(usize::from(place.unit)) else {
            let key = "gpu.compute_units";
            return Err(too_small("compute units", key, place.unit, units as u64));
        };
        queue.push_back(group);
    }
    Ok(queues)
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_workloads::Script;

    /// Where ten groups go, two to a compute unit, on two GPUs of three compute units: per group
    /// (GPU, compute unit), in the order in which they start.
    fn order(dispatch: Dispatch) -> Vec<(u32, usize, usize)> {
        let mut spec = Spec::default();
        (spec.gpu.count, spec.gpu.compute_units, spec.gpu.dispatch) = (2, 3, dispatch);
        let shape = Launch { groups: 10, waves: 1, groups_per_unit: 2, code: None };
        let none = Script::new("none", &[64]);
        let mut dispatcher = Dispatcher::new(&spec, &none, 0, shape).unwrap();
        let mut started: Vec<(u32, usize, usize)> = Vec::new();
        for gpu in 0..2 {
            loop {
                let on = |unit| started.iter().filter(|&&(_, g, u)| (g, u) == (gpu, unit)).count();
                let Some((group, unit)) = dispatcher.next(gpu, 3, |unit| on(unit) < 2) else {
                    break;
                };
                started.push((group, gpu, unit));
            }
        }
        started
    }

    #[test]
    fn partition_gives_each_unit_a_part() {
        let expected = [
            [(0, 0, 0), (2, 0, 1), (4, 0, 2), (1, 0, 0), (3, 0, 1)],
            [(5, 1, 0), (7, 1, 1), (9, 1, 2), (6, 1, 0), (8, 1, 1)],
        ];
        assert_eq!(order(Dispatch::Partition), expected.concat());
    }

    #[test]
    fn round_robin_goes_round_the_units() {
        let expected = [
            [(0, 0, 0), (1, 0, 1), (2, 0, 2), (3, 0, 0), (4, 0, 1)],
            [(5, 1, 0), (6, 1, 1), (7, 1, 2), (8, 1, 0), (9, 1, 1)],
        ];
        assert_eq!(order(Dispatch::RoundRobin), expected.concat());
    }

    #[test]
    fn chunks_of_what_a_gpu_holds_go_to_the_gpus_in_turn() {
        // Two groups to each of three compute units: six to the first GPU, the other four to the second.
        let of = |gpu| -> Vec<u32> {
            let all = order(Dispatch::Chunks).into_iter();
            all.filter(|&(_, on, _)| on == gpu).map(|(group, ..)| group).collect()
        };
        assert_eq!((of(0), of(1)), (vec![0, 1, 2, 3, 4, 5], vec![6, 7, 8, 9]));
        let dealt = chunks(0..10, 2, 3);
        assert_eq!(dealt[0], [0..3, 6..9]);
        assert_eq!(dealt[1], [3..6, 9..10]);
    }

    #[test]
    fn fill_gives_the_next_gpu_what_the_first_cannot_hold() {
        let on_first = order(Dispatch::Fill).iter().filter(|&&(_, gpu, _)| gpu == 0).count();
        assert_eq!((on_first, order(Dispatch::Fill).len()), (6, 10));
    }
}
