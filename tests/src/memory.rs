//! The memories of the machine: frames with bytes, and which page each was given to last.

use farside_types::{FrameNo, MemoryId, PageNo, Rights};

use crate::reference::{Content, WORDS};

/// What stands in a frame whose bytes are worth nothing.
pub(crate) const GARBAGE: u64 = 0xdead_beef_0000_0000;

/// One frame.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) content: Content,
    /// The page whose bytes were put here last; `None` after a poison or a reset.
    pub(crate) page: Option<PageNo>,
}

/// One memory.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) frames: Vec<Frame>,
    /// Counts the lives of the memory: a loss or a reset starts a new one.
    pub(crate) generation: u32,
    pub(crate) lost: bool,
}

impl Memory {
    /// Host memory: a frame per page of the arena, all zeros.
    pub(crate) fn host(start: PageNo, count: u64) -> Memory {
        let frame = |i| Frame { content: [0; WORDS], page: Some(PageNo(start.0 + i)) };
        Memory { frames: (0..count).map(frame).collect(), generation: 0, lost: false }
    }

    /// A card's memory: what is in it nobody knows.
    pub(crate) fn card(frames: u32) -> Memory {
        let frame = Frame { content: [GARBAGE; WORDS], page: None };
        Memory { frames: vec![frame; frames as usize], generation: 0, lost: false }
    }

    pub(crate) fn frame(&self, frame: FrameNo) -> Option<&Frame> {
        self.frames.get(frame.0 as usize)
    }

    /// The memory loses everything; from now on its life is another one.
    pub(crate) fn wipe(&mut self, lost: bool) {
        self.generation += 1;
        self.lost = lost;
        for frame in &mut self.frames {
            *frame = Frame { content: [GARBAGE; WORDS], page: None };
        }
    }
}

/// What an agent has in its tables for one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Translation {
    pub(crate) memory: MemoryId,
    pub(crate) frame: FrameNo,
    pub(crate) rights: Rights,
    /// The life of the memory that it points into.
    pub(crate) generation: u32,
}

impl Translation {
    /// Whether both lead to the same bytes.
    pub(crate) fn same_place(&self, other: &Translation) -> bool {
        self.memory == other.memory && self.frame == other.frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wiped_memory_holds_garbage_of_nobody() {
        let mut memory = Memory::card(2);
        memory.frames[1] = Frame { content: [5; WORDS], page: Some(PageNo(3)) };
        memory.wipe(true);
        assert!(memory.lost);
        assert_eq!(memory.generation, 1);
        assert_eq!(memory.frame(FrameNo(1)).unwrap().page, None);
        assert_eq!(memory.frame(FrameNo(1)).unwrap().content, [GARBAGE; WORDS]);
        assert!(memory.frame(FrameNo(2)).is_none());
    }
}
