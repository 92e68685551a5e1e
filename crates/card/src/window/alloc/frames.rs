//! The frame store: which frames of the card's memories are in use.

use std::collections::VecDeque;

use super::bits::Bits;
use super::mutation::{AllocMutated, AllocMutation};

/// Frames that are remembered when they are given back while few are free.
const LIST_FRAMES: usize = 64;
/// Few are free: less than one in so many.
const PRESSURE: u64 = 16;
/// Lengths of runs, as powers of two: of one frame to half a memory.
const SIZES: usize = 32;

/// An aligned run of frames that nobody has any more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FreedFrames {
    /// Their memory.
    pub memory: u8,
    /// The first.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// One bit for each frame of each memory. Frames are numbered within their memory.
#[derive(Clone, Debug)]
pub(super) struct FrameStore {
    memories: Vec<Memory>,
    /// What was given back, for whoever asks.
    pub(super) freed: Option<Vec<FreedFrames>>,
    pub(super) mutated: AllocMutated,
}

#[derive(Clone, Debug)]
struct Memory {
    frames: u64,
    bits: Bits,
    free: u64,
    /// Of the free ones, those that are promised.
    reserved: u64,
    /// For each length of a run, the frame behind the last that was found.
    roving: [u64; SIZES],
    list: VecDeque<u32>,
}

impl Memory {
    fn new(frames: u64) -> Memory {
        Memory {
            frames,
            bits: Bits::new(frames),
            free: frames,
            reserved: 0,
            roving: [0; SIZES],
            list: VecDeque::new(),
        }
    }

    fn available(&self) -> u64 {
        self.free - self.reserved
    }

    fn is_under_pressure(&self) -> bool {
        self.free < self.frames / PRESSURE
    }

    /// An aligned run of 2^`size` free frames: the one hinted at, one given back lately, the next one.
    fn look(&mut self, size: u32, hint: Option<u32>, mutated: AllocMutated) -> Option<u64> {
        let count = 1 << size;
        let hinted = hint.map(u64::from).filter(|hint| hint % count == 0);
        if let Some(hint) = hinted.filter(|&hint| self.bits.is_clear(hint, count)) {
            return Some(hint);
        }
        if size == 0 && self.is_under_pressure() {
            while let Some(frame) = self.list.pop_front() {
                if !self.bits.is_set(frame.into()) {
                    return Some(frame.into());
                }
            }
        }
        let from = self.roving[size as usize];
        let next = self.bits.find(count, size, from);
        if next.is_none() && size == 0 && mutated.on(AllocMutation::WrapHandsOutTwice) {
            return Some(0);
        }
        let found = next.or_else(|| self.bits.find(count, size, 0))?;
        self.roving[size as usize] = (found + count) % self.frames;
        Some(found)
    }
}

impl FrameStore {
    /// Of memories of so many frames each.
    pub(super) fn new(memories: &[u32]) -> FrameStore {
        let memories = memories.iter().map(|&frames| Memory::new(frames.into())).collect();
        FrameStore { memories, freed: None, mutated: AllocMutated::default() }
    }

    /// Whether there is such a memory.
    pub(super) fn knows(&self, memory: u8) -> bool {
        usize::from(memory) < self.memories.len()
    }

    /// Whether a memory has such a frame.
    pub(super) fn has(&self, memory: u8, frame: u32) -> bool {
        let frames = self.memories.get(usize::from(memory)).map_or(0, |memory| memory.frames);
        u64::from(frame) < frames
    }

    /// Frames that can be had: none of a memory that there is not.
    pub(super) fn available(&self, memory: u8) -> u64 {
        if self.mutated.on(AllocMutation::OutOfMemoryIsSuccess) {
            return u64::MAX;
        }
        self.memories.get(usize::from(memory)).map_or(0, Memory::available)
    }

    /// Frames that nobody has.
    pub(super) fn free(&self, memory: u8) -> u64 {
        self.memories.get(usize::from(memory)).map_or(0, |memory| memory.free)
    }

    /// The first `count` frames are for something that is always there.
    pub(super) fn take_fixed(&mut self, memory: u8, count: u64) {
        let memory = &mut self.memories[usize::from(memory)];
        memory.bits.set(0, count);
        memory.free -= count;
    }

    /// Promises `count` of the frames that can be had to somebody.
    pub(super) fn reserve(&mut self, memory: u8, count: u64) {
        self.memories[usize::from(memory)].reserved += count;
    }

    /// Takes a promise back.
    pub(super) fn unreserve(&mut self, memory: u8, count: u64) {
        self.memories[usize::from(memory)].reserved -= count;
    }

    /// An aligned run of 2^`size` frames, if possible the one that begins with `hint`.
    pub(super) fn take(&mut self, memory: u8, size: u32, hint: Option<u32>) -> Option<u32> {
        let mutated = self.mutated;
        let memory = self.memories.get_mut(usize::from(memory))?;
        let count = 1 << size;
        if memory.available() < count || size as usize >= SIZES {
            return None;
        }
        let first = memory.look(size, hint, mutated)?;
        memory.bits.set(first, count);
        memory.free -= count;
        Some(first as u32)
    }

    /// 2^`size` frames that nobody uses any more. Whether all of them were in use, as they should be; else
    /// nothing is done.
    pub(super) fn give_back(&mut self, memory: u8, first: u32, size: u32) -> bool {
        let wrong = first == 0 && self.mutated.on(AllocMutation::FirstFrameFreesFrameZero);
        let number = if wrong { 0 } else { memory };
        let Some(memory) = self.memories.get_mut(usize::from(number)) else { return false };
        let (begin, count) = (u64::from(first), 1 << size);
        let in_use = begin + count <= memory.frames
            && (begin..begin + count).all(|frame| memory.bits.is_set(frame));
        if !in_use {
            return false;
        }
        memory.bits.clear(begin, count);
        memory.free += count;
        if let Some(freed) = &mut self.freed {
            freed.push(FreedFrames { memory: number, first, count: count as u32 });
        }
        if size == 0 && memory.is_under_pressure() && memory.list.len() < LIST_FRAMES {
            memory.list.push_back(first);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_frame_is_given_twice_and_each_memory_has_its_own() {
        let mut store = FrameStore::new(&[100, 5, 7]);
        assert_eq!([0, 1, 2, 3].map(|memory| store.knows(memory)), [true, true, true, false]);
        for (memory, frames) in [(0, 100), (2, 7)] {
            let mut given = BTreeSet::new();
            while let Some(frame) = store.take(memory, 0, None) {
                assert!(given.insert(frame), "{frame} twice");
                if given.len() % 3 == 0 {
                    let first = *given.first().unwrap();
                    if frame % 2 == 0 && first < 20 && given.len() > 30 {
                        assert!(store.give_back(memory, first, 0));
                        given.remove(&first);
                        assert_eq!(store.take(memory, 0, Some(first)), Some(first), "hinted at");
                        given.insert(first);
                    }
                }
            }
            assert_eq!((given.len(), store.available(memory)), (frames, 0));
        }
        assert!(store.give_back(2, 0, 0));
        assert_eq!((store.free(0), store.free(2)), (0, 1), "of its own memory");
        assert!(
            !store.give_back(2, 0, 0) && !store.give_back(0, 99, 1) && !store.give_back(1, 0, 0)
        );
        assert!(!store.give_back(9, 0, 0) && !store.give_back(0, u32::MAX, 0));
    }

    #[test]
    fn a_search_goes_on_where_it_was_and_wraps() {
        let mut store = FrameStore::new(&[64]);
        let frames: Vec<u32> = (0..64).map(|_| store.take(0, 0, None).unwrap()).collect();
        assert_eq!(frames, (0..64).collect::<Vec<_>>());
        for frame in [5, 40, 41] {
            store.give_back(0, frame, 0);
        }
        // Few are free: those that came back go first.
        assert_eq!([(); 3].map(|()| store.take(0, 0, None).unwrap()), [5, 40, 41]);
        assert_eq!(store.take(0, 0, None), None);
        (0..32).for_each(|frame| assert!(store.give_back(0, frame, 0)));
        assert_eq!((store.take(0, 3, None), store.take(0, 3, None)), (Some(0), Some(8)));
        assert_eq!(store.take(0, 3, Some(24)), Some(24));
        assert_eq!((store.take(0, 3, None), store.take(0, 3, None)), (Some(16), None));
        assert_eq!(store.take(0, 40, None), None);
    }

    #[test]
    fn a_frame_of_the_list_that_was_taken_meanwhile_is_passed_over() {
        let mut store = FrameStore::new(&[64]);
        (0..64).for_each(|_| assert!(store.take(0, 0, None).is_some()));
        (10..12).for_each(|frame| assert!(store.give_back(0, frame, 0)));
        assert_eq!(store.take(0, 1, None), Some(10), "as a run");
        assert_eq!(store.take(0, 0, None), None);
        store.give_back(0, 11, 0);
        assert_eq!(store.take(0, 0, None), Some(11));
    }

    #[test]
    fn what_is_promised_cannot_be_had() {
        let mut store = FrameStore::new(&[8]);
        store.reserve(0, 7);
        assert_eq!((store.available(0), store.free(0)), (1, 8));
        assert_eq!(store.take(0, 1, None), None);
        assert!(store.take(0, 0, None).is_some() && store.take(0, 0, None).is_none());
        store.unreserve(0, 7);
        assert!(store.take(0, 1, None).is_some());
    }
}
