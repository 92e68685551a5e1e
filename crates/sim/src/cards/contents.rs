//! What every frame holds: the checker that each page's content follows its copies.
//!
//! It stands beside the timing model and never changes it. A write makes a new version of a page in
//! the frame where it was carried out; a copy carries what its source holds; every access must find
//! the newest version of its own page. A stale copy, a frame that was used again too early, a write
//! under a copy: each shows.

use farside_svm::Place;
use farside_types::{FrameNo, MemoryId};

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Content {
    /// Nothing that anybody may rely on.
    #[default]
    Undefined,
    /// This version of this page; 0 is zeros.
    Page {
        /// The page, by its index in the arena.
        page: u32,
        /// The version.
        version: u32,
    },
}

/// All frames of all memories, and the bounce buffers. Errors are texts that name page and place.
#[derive(Debug)]
pub(super) struct Contents {
    newest: Vec<u32>,
    memories: Vec<Vec<Content>>,
    bounce: Vec<Vec<Content>>,
}

impl Contents {
    /// For an arena of `pages` pages, of which the host has a frame each, and cards of
    /// `card_frames` frames.
    pub(super) fn new(pages: usize, cards: usize, card_frames: usize, bounce: (u8, u32)) -> Self {
        let frames = std::iter::once(pages).chain(std::iter::repeat_n(card_frames, cards));
        Contents {
            newest: vec![0; pages],
            memories: frames.map(|frames| vec![Content::Undefined; frames]).collect(),
            bounce: vec![vec![Content::Undefined; bounce.1 as usize]; usize::from(bounce.0)],
        }
    }

    /// An access of `page` in this frame is over.
    pub(super) fn access(
        &mut self,
        page: u32,
        memory: MemoryId,
        frame: FrameNo,
        write: bool,
    ) -> Result<(), String> {
        let version = self.newest[page as usize];
        let slot = self.slot(Place::Memory(memory), frame, 0)?;
        if *slot != (Content::Page { page, version }) {
            return Err(format!(
                "an access of page {page} of the arena at {memory} {frame:?} found {slot:?} instead \
                 of version {version}"
            ));
        }
        if write {
            *slot = Content::Page { page, version: version + 1 };
            self.newest[page as usize] = version + 1;
        }
        Ok(())
    }

    /// The frame now holds zeros, as `page`.
    pub(super) fn zero(
        &mut self,
        page: u32,
        memory: MemoryId,
        frame: FrameNo,
    ) -> Result<(), String> {
        *self.slot(Place::Memory(memory), frame, 0)? = Content::Page { page, version: 0 };
        Ok(())
    }

    /// What a copy reads: at `index` of a bounce buffer, or in `frame` of a memory.
    pub(super) fn load(
        &mut self,
        place: Place,
        frame: FrameNo,
        index: u32,
    ) -> Result<Content, String> {
        self.slot(place, frame, index).copied()
    }

    /// A copy is over that read `content`, which its source must still hold.
    pub(super) fn store(
        &mut self,
        content: Content,
        source: (Place, FrameNo),
        target: (Place, FrameNo),
        index: u32,
    ) -> Result<(), String> {
        let now = *self.slot(source.0, source.1, index)?;
        if now != content {
            return Err(format!("{source:?} was {content:?} and became {now:?} under a copy"));
        }
        *self.slot(target.0, target.1, index)? = content;
        Ok(())
    }

    fn slot(&mut self, place: Place, frame: FrameNo, index: u32) -> Result<&mut Content, String> {
        let slot = match place {
            Place::Memory(memory) => {
                let frames = self.memories.get_mut(usize::from(memory.0));
                frames.and_then(|frames| frames.get_mut(frame.0 as usize))
            }
            Place::Bounce(slot) => {
                let buffer = self.bounce.get_mut(usize::from(slot));
                buffer.and_then(|buffer| buffer.get_mut(index as usize))
            }
        };
        slot.ok_or_else(|| format!("{place:?} has no frame {} and no page {index}", frame.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: (Place, FrameNo) = (Place::Memory(MemoryId::HOST), FrameNo(1));
    const CARD: (Place, FrameNo) = (Place::Memory(MemoryId(1)), FrameNo(7));
    const BUFFER: (Place, FrameNo) = (Place::Bounce(0), FrameNo(0));

    /// Page 1 written once in its host frame.
    fn contents() -> Contents {
        let mut contents = Contents::new(2, 1, 8, (1, 4));
        contents.zero(1, MemoryId::HOST, FrameNo(1)).unwrap();
        contents.access(1, MemoryId::HOST, FrameNo(1), true).unwrap();
        contents
    }

    #[test]
    fn a_version_travels_through_a_bounce_buffer() {
        let mut contents = contents();
        for (from, to) in [(HOST, BUFFER), (BUFFER, CARD)] {
            let content = contents.load(from.0, from.1, 2).unwrap();
            contents.store(content, from, to, 2).unwrap();
        }
        contents.access(1, MemoryId(1), FrameNo(7), true).unwrap();
        let stale = contents.access(1, MemoryId::HOST, FrameNo(1), false).unwrap_err();
        assert!(stale.contains("page 1") && stale.contains("version 2"), "{stale}");
    }

    #[test]
    fn a_write_under_a_copy_and_a_place_that_is_not_there_are_found() {
        let mut contents = contents();
        let content = contents.load(HOST.0, HOST.1, 0).unwrap();
        contents.access(1, MemoryId::HOST, FrameNo(1), true).unwrap();
        assert!(contents.store(content, HOST, CARD, 0).unwrap_err().contains("under a copy"));
        assert!(contents.access(0, MemoryId::HOST, FrameNo(1), false).is_err());
        assert!(contents.access(0, MemoryId(9), FrameNo(1), false).is_err());
        assert!(contents.load(Place::Bounce(0), FrameNo(0), 4).is_err());
    }
}
