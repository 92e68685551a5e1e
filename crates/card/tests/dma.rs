//! The page DMA, on memories that are vectors.

use farside_card::{
    Descriptor, DmaError, DmaState, Extent, Geometry, Location, Memories, PageDma, Scatter,
    Transfer, TransferFailed,
};
use farside_types::{CommandId, FrameNo, MemoryId};
use proptest::prelude::*;

const HOST: MemoryId = MemoryId::HOST;
const OWN: MemoryId = MemoryId(1);
const PEER: MemoryId = MemoryId(2);

/// One word stands for a page.
struct Vectors {
    memories: [Vec<u64>; 3],
    /// The frame of the destination at which transfers fail.
    broken: Option<FrameNo>,
}

impl Vectors {
    fn new() -> Vectors {
        let fill = |memory: u64| (0..8192).map(|frame| memory << 32 | frame).collect();
        Vectors { memories: [fill(1), fill(2), fill(3)], broken: None }
    }

    fn at(&mut self, location: Location, offset: u32) -> &mut u64 {
        let frame = (location.frame.0 + offset) as usize;
        &mut self.memories[usize::from(location.memory.0)][frame]
    }

    fn usable(&self, to: Location, count: u32) -> (u32, Result<(), TransferFailed>) {
        match self.broken {
            Some(frame) if (to.frame.0..to.frame.0 + count).contains(&frame.0) => {
                let pages_done = frame.0 - to.frame.0;
                (pages_done, Err(TransferFailed { pages_done }))
            }
            _ => (count, Ok(())),
        }
    }
}

impl Memories for Vectors {
    fn copy_pages(
        &mut self,
        from: Location,
        to: Location,
        count: u32,
    ) -> Result<(), TransferFailed> {
        let (count, result) = self.usable(to, count);
        for offset in 0..count {
            let word = *self.at(from, offset);
            *self.at(to, offset) = word;
        }
        result
    }

    fn fill_pages(&mut self, to: Location, count: u32, pattern: u64) -> Result<(), TransferFailed> {
        let (count, result) = self.usable(to, count);
        for offset in 0..count {
            *self.at(to, offset) = pattern;
        }
        result
    }
}

fn dma() -> PageDma {
    PageDma::new(OWN, 8192, &Geometry::default())
}

fn list(memory: MemoryId, extents: &[(u32, u32)]) -> Scatter {
    let extents = extents.iter().map(|&(frame, count)| Extent { frame: FrameNo(frame), count });
    Scatter { memory, extents: extents.collect() }
}

fn copy(id: u64, from: Scatter, to: Scatter) -> Descriptor {
    Descriptor { id: CommandId(id), transfer: Transfer::Copy { from, to } }
}

fn fill(id: u64, to: Scatter, pattern: u64) -> Descriptor {
    Descriptor { id: CommandId(id), transfer: Transfer::Fill { to, pattern } }
}

#[test]
fn invariant_8_scattered_and_contiguous_sources_give_the_same_bytes() {
    let mut memories = Vectors::new();
    let mut dma = dma();
    let scattered = list(HOST, &[(7, 1), (100, 3), (9, 2)]);
    dma.submit(copy(1, scattered, list(OWN, &[(0, 4), (50, 2)]))).unwrap();
    let done = dma.run(&mut memories);
    assert_eq!((done[0].pages_done, done[0].result), (6, Ok(())));
    let own = &memories.memories[1];
    let host = 1 << 32;
    assert_eq!(own[0..4], [host + 7, host + 100, host + 101, host + 102]);
    assert_eq!(own[50..52], [host + 9, host + 10]);
    assert_eq!(own[4], 2 << 32 | 4, "nothing else was written");
}

#[test]
fn pages_are_filled_with_zeros_or_a_pattern() {
    let mut memories = Vectors::new();
    let mut dma = dma();
    dma.submit(fill(1, list(OWN, &[(3, 2)]), 0)).unwrap();
    dma.submit(fill(2, list(OWN, &[(9, 1)]), 0xa5)).unwrap();
    assert_eq!(dma.run(&mut memories).len(), 2);
    assert_eq!(memories.memories[1][3..5], [0, 0]);
    assert_eq!(memories.memories[1][9], 0xa5);
}

#[test]
fn status_tells_the_pages_done_while_a_command_is_under_way() {
    let mut memories = Vectors::new();
    let mut dma = dma();
    dma.submit(copy(1, list(OWN, &[(0, 10)]), list(PEER, &[(0, 10)]))).unwrap();
    dma.submit(copy(2, list(OWN, &[(0, 1)]), list(PEER, &[(20, 1)]))).unwrap();
    assert_eq!(dma.step(&mut memories, 4), None);
    let status = dma.status(CommandId(1)).unwrap();
    assert_eq!((status.state, status.pages_done, status.pages), (DmaState::Running, 4, 10));
    assert_eq!(dma.status(CommandId(2)).unwrap().state, DmaState::Queued);
    assert_eq!(dma.cancel(CommandId(1)).unwrap().pages_done, 4);
    let done = dma.run(&mut memories);
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].id, CommandId(2));
    assert_eq!(memories.memories[2][4], 3 << 32 | 4, "nothing written after the cancel");
    assert_eq!(dma.status(CommandId(2)), None);
}

#[test]
fn invariant_28_a_copy_that_fails_at_page_k_is_reported_once_with_k() {
    let mut memories = Vectors::new();
    memories.broken = Some(FrameNo(105));
    let mut dma = dma();
    let command = copy(1, list(HOST, &[(0, 16)]), list(OWN, &[(50, 3), (100, 13)]));
    dma.submit(command.clone()).unwrap();
    let done = dma.run(&mut memories);
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].pages_done, 8);
    assert!(done[0].result.is_err());
    memories.broken = None;
    dma.submit(command).unwrap();
    assert_eq!(dma.run(&mut memories)[0].result, Ok(()), "the retry works");
}

#[test]
fn a_direction_takes_64_commands_and_says_so_when_it_is_full() {
    let mut dma = dma();
    for id in 0..64 {
        dma.submit(copy(id, list(HOST, &[(0, 1)]), list(OWN, &[(0, 1)]))).unwrap();
    }
    let full = dma.submit(fill(64, list(OWN, &[(0, 1)]), 0)).unwrap_err();
    assert!(matches!(full, DmaError::QueueFull { most: 64, .. }));
    dma.submit(copy(65, list(OWN, &[(0, 1)]), list(HOST, &[(0, 1)])))
        .expect("the other direction has room");
}

#[test]
fn commands_that_cannot_be_are_refused() {
    let mut dma = dma();
    let mut refuse = |descriptor| dma.submit(descriptor).unwrap_err();
    let one = |memory| list(memory, &[(0, 1)]);
    let many = refuse(fill(1, list(OWN, &[(0, 4096), (5000, 1)]), 0));
    assert_eq!(many, DmaError::TooManyPages { pages: 4097, most: 4096 });
    let uneven = refuse(copy(1, list(HOST, &[(0, 2)]), one(OWN)));
    assert_eq!(uneven, DmaError::UnequalLists { from: 2, to: 1 });
    let beyond = refuse(fill(1, list(OWN, &[(8191, 2)]), 0));
    assert!(matches!(beyond, DmaError::NoSuchFrames { .. }));
    assert!(matches!(refuse(fill(1, list(OWN, &[]), 0)), DmaError::Empty { .. }));
    let pull = refuse(copy(1, one(PEER), one(OWN)));
    assert!(matches!(pull, DmaError::Unreachable { .. }));
    assert!(matches!(refuse(fill(1, one(HOST), 0)), DmaError::Unreachable { .. }));
    dma.submit(fill(1, one(OWN), 0)).unwrap();
    let twice = dma.submit(fill(1, one(OWN), 0)).unwrap_err();
    assert!(matches!(twice, DmaError::DuplicateId { .. }));
}

proptest! {
    #[test]
    fn any_scatter_lists_copy_page_by_page_in_order(
        from in prop::collection::vec((0..4000u32, 1..20u32), 1..20),
        cut in 1..20u32,
        piece in 1..9u32,
    ) {
        let pages: u32 = from.iter().map(|extent| extent.1).sum();
        let to: Vec<(u32, u32)> = (0..pages.div_ceil(cut))
            .map(|i| (i * 20, cut.min(pages - i * cut)))
            .collect();
        let mut memories = Vectors::new();
        let mut dma = dma();
        dma.submit(copy(1, list(HOST, &from), list(OWN, &to))).unwrap();
        let done = loop {
            if let Some(done) = dma.step(&mut memories, piece) {
                break done;
            }
        };
        prop_assert_eq!(done.pages_done, u64::from(pages));
        let frames = |list: &[(u32, u32)]| -> Vec<usize> {
            list.iter().flat_map(|&(f, c)| f as usize..(f + c) as usize).collect()
        };
        for (source, target) in frames(&from).into_iter().zip(frames(&to)) {
            prop_assert_eq!(memories.memories[1][target], 1 << 32 | source as u64);
        }
    }
}
