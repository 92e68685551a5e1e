//! Training of a network whose layers are spread over GPUs (model parallelism), as a pipeline of
//! microbatches: activations pass from GPU to GPU and gradients back, weights stay where they are.

use super::network::Network;
use super::pieces::{Batches, Pieces};
use super::schedule::{Batch, launches};
use super::steps::{Steps, WAVES};
use super::{GROUPS_PER_UNIT, next_of, resnet18, vgg16};
use crate::lanes::{Kernel, Memory};
use crate::{Buffer, Cursor, Instruction, LINE_BYTES, Launch, Line, Lines, Place, Workload};

/// Bytes of the code of a kernel; the recorded `mm` kernel has 1688.
const CODE_BYTES: u64 = 1_024;
/// The numbers of filters are those published, divided by one of these.
const DIVISORS: [u32; 5] = [1, 2, 4, 8, 16];

/// How a network is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// GPUs that the layers are spread over, 1 to 16. Default 4.
    pub gpus: u8,
    /// Compute units of each, 1 to 256; they get work-groups in turn. Default 64 (GRIT, Table I).
    pub units: u16,
    /// Microbatches between two updates of the weights, at least 1. Default 4.
    pub microbatches: u32,
    /// Updates of the weights, at least 1. Default 2.
    pub iterations: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { gpus: 4, units: 64, microbatches: 4, iterations: 2 }
    }
}

/// Training of VGG16 or ResNet18 on images of 32 by 32 pixels.
#[derive(Debug)]
pub struct Training {
    name: &'static str,
    memory: Memory,
    kernel: Kernel,
    batches: Vec<Batch>,
    gpus: u8,
    units: u16,
}

/// Rows and columns of the images, those of CIFAR.
const SIDE: u32 = 32;

impl Training {
    /// The smallest data footprint.
    pub const BYTES_MIN: u64 = 3 << 20;
    /// The largest, with the default options: beyond it, more images would be needed than a
    /// microbatch may have.
    pub const BYTES_MAX: u64 = 32 << 30;

    /// VGG16 with about `bytes` of weights, activations, gradients and scratch memory: the widest
    /// network whose weights leave room for the images, and as many images as fit best.
    pub fn vgg16(bytes: u64, options: Options) -> Training {
        Training::new("vgg16", vgg16::network, bytes, options)
    }

    /// ResNet18, otherwise like [`Training::vgg16`].
    pub fn resnet18(bytes: u64, options: Options) -> Training {
        Training::new("resnet18", resnet18::network, bytes, options)
    }

    fn new(
        name: &'static str,
        build: fn(u32, u32) -> Network,
        bytes: u64,
        options: Options,
    ) -> Training {
        let gpus = options.gpus.clamp(1, 16);
        let microbatches = options.microbatches.max(1);
        let pieces = |network: &Network, images: u32| {
            let stages = network.stages(u32::from(gpus));
            Pieces::new(network, &stages, u32::from(gpus), Batches { images, microbatches })
        };
        // With one image of each microbatch, at most two thirds may be in use.
        let narrowest = DIVISORS[DIVISORS.len() - 1];
        let fits = |divisor: &u32| pieces(&build(SIDE, *divisor), 1).bytes() <= bytes / 3 * 2;
        let divisor = DIVISORS.into_iter().find(fits).unwrap_or(narrowest);
        let network = build(SIDE, divisor);
        // Every image more takes as much as the second one.
        let (one, two) = (pieces(&network, 1).bytes(), pieces(&network, 2).bytes());
        let image = (two - one).max(1);
        let images = 1 + (bytes.saturating_sub(one) + image / 2) / image;
        let batches = Batches { images: images.min(IMAGES_MAX) as u32, microbatches };
        Training::of_network(name, &network, batches, options)
    }

    fn of_network(
        name: &'static str,
        network: &Network,
        batches: Batches,
        options: Options,
    ) -> Training {
        let gpus = options.gpus.clamp(1, 16);
        let stages = network.stages(u32::from(gpus));
        let pieces = Pieces::new(network, &stages, u32::from(gpus), batches);
        let named = pieces.buffers();
        let mut buffers: Vec<(&str, u64)> =
            named.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
        buffers.extend(Kernel::buffers(CODE_BYTES, u64::from(gpus) * LINE_BYTES));
        let memory = Memory::new(&buffers);
        let places = pieces.placed(&memory);
        let steps = Steps { network, stages: &stages, places, batches };
        let launches = launches(&steps, u32::from(gpus), options.iterations.max(1));
        let kernel = Kernel::at(&memory, named.len());
        let units = options.units.clamp(1, 256);
        Training { name, kernel, batches: launches, memory, gpus, units }
    }
}

/// Most images of a microbatch: positions in a tensor are numbers of 32 bits.
const IMAGES_MAX: u64 = 4_096;

impl Workload for Training {
    fn name(&self) -> &str {
        self.name
    }

    fn buffers(&self) -> &[Buffer] {
        self.memory.buffers()
    }

    fn launches(&self) -> u32 {
        self.batches.len() as u32
    }

    fn launch(&self, launch: u32) -> Launch {
        let groups = self.batches[launch as usize].groups();
        Launch { groups, waves: WAVES, groups_per_unit: GROUPS_PER_UNIT, code: self.kernel.code() }
    }

    fn next(&self, at: &mut Cursor, lines: &mut Lines) -> Instruction {
        let (slot, group) = self.batches[at.launch as usize].slot(at.group);
        let arguments = Line(self.kernel.arguments.0 + u32::from(slot.gpu));
        next_of(&*slot.kernel, (self.kernel.packet, arguments), group, at, lines)
    }

    fn place(&self, launch: u32, group: u32) -> Option<Place> {
        let (slot, group) = self.batches[launch as usize].slot(group);
        Some(Place { gpu: slot.gpu, unit: (group % u32::from(self.units)) as u8 })
    }

    fn gpus(&self) -> u32 {
        u32::from(self.gpus)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::profile::Profile;

    fn small(build: fn(u64, Options) -> Training) -> Training {
        build(Training::BYTES_MIN, Options { iterations: 1, ..Options::default() })
    }

    /// Which GPUs load from and store to each buffer, as bits.
    fn users(training: &Training) -> BTreeMap<String, (u16, u16)> {
        let starts = crate::first_lines(training.buffers());
        let mut users: BTreeMap<String, (u16, u16)> = BTreeMap::new();
        for launch in 0..training.launches() {
            let Launch { groups, waves, .. } = training.launch(launch);
            for (group, wave) in (0..groups).flat_map(|group| (0..waves).map(move |w| (group, w))) {
                let gpu = 1 << training.place(launch, group).unwrap().gpu;
                let mut at = Cursor { launch, group, wave, ..Cursor::default() };
                loop {
                    let mut lines = Lines::new();
                    let instruction = training.next(&mut at, &mut lines);
                    for line in lines.iter() {
                        let buffer = starts.partition_point(|start| start <= line) - 1;
                        let buffer = &training.buffers()[buffer];
                        let user = users.entry(buffer.name.clone()).or_default();
                        match instruction {
                            Instruction::Load => user.0 |= gpu,
                            Instruction::Store => user.1 |= gpu,
                            _ => {}
                        }
                    }
                    if instruction == Instruction::End {
                        break;
                    }
                }
            }
        }
        users
    }

    #[test]
    fn weights_are_private_and_activations_and_gradients_pass_between_neighbours() {
        let users = users(&small(Training::vgg16));
        for gpu in 0..4_u16 {
            let own = 1 << gpu;
            let of = |kind: &str| users[&format!("{kind} of GPU {gpu}")];
            assert_eq!(of("weights"), (own, own));
            assert_eq!(of("scratch"), (own, own));
            let next = if gpu < 3 { own << 1 } else { 0 };
            assert_eq!(of("activations"), (own | next, own));
            // The next GPU writes the gradient of what it has read.
            assert_eq!(of("gradients"), (own, own | next));
        }
    }

    #[test]
    fn all_gpus_work_at_the_same_time_in_the_middle_of_the_pipeline() {
        let training = small(Training::resnet18);
        let together = |launch: u32| {
            let groups = 0..training.launch(launch).groups;
            groups.fold(0_u16, |gpus, group| gpus | 1 << training.place(launch, group).unwrap().gpu)
        };
        assert!((0..training.launches()).any(|launch| together(launch) == 0b1111));
        assert_eq!(together(0), 0b0001);
    }

    #[test]
    fn no_tensor_is_larger_than_its_buffer() {
        // The profile has an entry for each page of each buffer, and none beyond.
        for training in [small(Training::vgg16), small(Training::resnet18)] {
            let place = |launch, group| training.place(launch, group);
            let profile = Profile::of_workload(&training, 4, place);
            let pages = profile.pages_by_sharers();
            assert_eq!(pages[3] + pages[4], 0, "{pages:?}");
            assert!(pages[0] * 10 < pages[1], "{pages:?}");
        }
    }

    #[test]
    fn the_footprint_is_near_to_the_one_asked_for() {
        for build in [Training::vgg16, Training::resnet18] {
            for megabytes in [3, 10, 48, 200] {
                let training = build(megabytes << 20, Options::default());
                let bytes: u64 = training.buffers().iter().map(|buffer| buffer.bytes).sum();
                let asked = megabytes << 20;
                assert!(bytes.abs_diff(asked) * 4 < asked, "{bytes} of {asked}");
            }
        }
    }
}
