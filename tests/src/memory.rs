//! The memories of the machine: frames with bytes, and which page each was given to last.

use farside_types::{FrameNo, MemoryId, PageNo, PageRange, Rights};

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

/// Number of the host's first frame of adopted memory: the driver numbers the block of pages that can be adopted apart from
/// the arena.
const ADOPTED: u32 = 1 << 24;

/// One memory.
#[derive(Debug)]
pub(crate) struct Memory {
    /// By number; of the host's those of the arena, and behind them those of what can be adopted.
    pub(crate) frames: Vec<Frame>,
    /// Frames of the arena; all of a card's.
    of_arena: u32,
    /// Counts the lives of the memory: a loss or a reset starts a new one.
    pub(crate) generation: u32,
    pub(crate) lost: bool,
}

impl Memory {
    /// Host memory: a frame for each of `pages`, which are the arena's and those that can be adopted; all zeros.
    pub(crate) fn host(pages: PageRange, arena: PageRange) -> Memory {
        let frame = |page| Frame { content: [0; WORDS], page: Some(page) };
        let frames = pages.pages().map(frame).collect();
        Memory { frames, of_arena: arena.count as u32, generation: 0, lost: false }
    }

    /// A card's memory: what is in it nobody knows.
    pub(crate) fn card(frames: u32) -> Memory {
        let frame = Frame { content: [GARBAGE; WORDS], page: None };
        let all = vec![frame; frames as usize];
        Memory { frames: all, of_arena: frames, generation: 0, lost: false }
    }

    /// Where a frame is among all; beyond them if there is none.
    fn place(&self, frame: FrameNo) -> usize {
        let behind = frame.0.checked_sub(ADOPTED).map(|apart| self.of_arena.saturating_add(apart));
        behind.unwrap_or(frame.0) as usize
    }

    /// The number of the host's frame of the page that is so many behind the arena's first.
    pub(crate) fn number(&self, place: u64) -> FrameNo {
        let apart =
            place.checked_sub(u64::from(self.of_arena)).map(|apart| apart + u64::from(ADOPTED));
        FrameNo(apart.unwrap_or(place) as u32)
    }

    pub(crate) fn frame(&self, frame: FrameNo) -> Option<&Frame> {
        self.frames.get(self.place(frame))
    }

    pub(crate) fn frame_mut(&mut self, frame: FrameNo) -> Option<&mut Frame> {
        let place = self.place(frame);
        self.frames.get_mut(place)
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
