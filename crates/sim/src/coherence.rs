//! The coherence checker: does every read see the latest write?
//!
//! It stands beside the timing model and never changes it. For each frame of each memory it knows
//! which page's bytes are there and of which version. A write, when it is over, makes a new
//! version at the place where it was carried out; a copy carries what it read when it started; a
//! read, when it is over, must find the latest version. A write into the source of a copy under
//! way, an access that was not drained before its frame moved, a stale replica: each shows.

use farside_svm::Place;
use farside_types::{FrameNo, MemoryId};
use serde::{Deserialize, Serialize};

use crate::state::{Reader, Refused, State, Writer, state};

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum Content {
    /// Nothing that anybody may rely on.
    #[default]
    Undefined,
    /// This version of this page (by its index in the arena).
    Page {
        /// The page.
        page: u32,
        /// The version: 0 is zeros.
        version: u32,
    },
}

/// The checker. Errors are texts that name page and place.
#[derive(Debug)]
pub(crate) struct Coherence {
    latest: Vec<u32>,
    memories: Vec<Vec<Content>>,
    bounce: Vec<Vec<Content>>,
}

state!(Coherence {
    fixed: latest;
    parts: memories, bounce;
});

/// The frames of a memory.
impl State for Vec<Content> {
    fn save(&self, to: &mut Writer) -> Result<(), Refused> {
        to.value(self)
    }

    fn load(&mut self, from: &mut Reader<'_>) -> Result<(), Refused> {
        from.fixed(self)
    }
}

impl Coherence {
    /// For an arena of `pages` pages; the host has as many frames, the cards `card_frames`.
    pub(crate) fn new(pages: usize, card_frames: &[u32], bounce: (u8, u32)) -> Coherence {
        let frames = std::iter::once(pages).chain(card_frames.iter().map(|&n| n as usize));
        Coherence {
            latest: vec![0; pages],
            memories: frames.map(|frames| vec![Content::Undefined; frames]).collect(),
            bounce: vec![vec![Content::Undefined; bounce.1 as usize]; usize::from(bounce.0)],
        }
    }

    /// A read of `page` at this place is over.
    pub(crate) fn read(&self, page: u32, memory: MemoryId, frame: FrameNo) -> Result<(), String> {
        self.must_be_latest("read", page, memory, frame)
    }

    /// A write of `page` at this place is over.
    pub(crate) fn write(
        &mut self,
        page: u32,
        memory: MemoryId,
        frame: FrameNo,
    ) -> Result<(), String> {
        self.must_be_latest("write", page, memory, frame)?;
        let latest = &mut self.latest[page as usize];
        *latest += 1;
        let version = *latest;
        *self.frame(memory, frame)? = Content::Page { page, version };
        Ok(())
    }

    /// The frame now holds zeros, as `page`.
    pub(crate) fn zero(
        &mut self,
        page: u32,
        memory: MemoryId,
        frame: FrameNo,
    ) -> Result<(), String> {
        *self.frame(memory, frame)? = Content::Page { page, version: 0 };
        Ok(())
    }

    /// The frame was given back.
    pub(crate) fn release(&mut self, memory: MemoryId, frame: FrameNo) -> Result<(), String> {
        *self.frame(memory, frame)? = Content::Undefined;
        Ok(())
    }

    /// What a copy reads: at `index` of a bounce buffer, or in `frame` of a memory.
    pub(crate) fn load(
        &mut self,
        place: Place,
        frame: FrameNo,
        index: u32,
    ) -> Result<Content, String> {
        self.slot(place, frame, index).copied()
    }

    /// A copy under way has put `content` into place. `source` must still hold it.
    pub(crate) fn store(
        &mut self,
        content: Content,
        source: (Place, FrameNo),
        target: (Place, FrameNo),
        index: u32,
    ) -> Result<(), String> {
        let now = *self.slot(source.0, source.1, index)?;
        if now != content {
            let (from, frame) = source;
            return Err(format!(
                "{from:?} {frame:?} was {content:?} and became {now:?} under a copy"
            ));
        }
        *self.slot(target.0, target.1, index)? = content;
        Ok(())
    }

    fn must_be_latest(
        &self,
        what: &str,
        page: u32,
        memory: MemoryId,
        frame: FrameNo,
    ) -> Result<(), String> {
        let frames = self.memories.get(usize::from(memory.0));
        let found = frames.and_then(|frames| frames.get(frame.0 as usize)).copied();
        let version = self.latest[page as usize];
        if found == Some(Content::Page { page, version }) {
            return Ok(());
        }
        let found = found.unwrap_or_default();
        Err(format!(
            "a {what} of page {page} of the arena at {memory} {frame:?} found {found:?} instead \
             of version {version}"
        ))
    }

    fn slot(&mut self, place: Place, frame: FrameNo, index: u32) -> Result<&mut Content, String> {
        match place {
            Place::Memory(memory) => self.frame(memory, frame),
            Place::Bounce(slot) => {
                let buffer = self.bounce.get_mut(usize::from(slot));
                let content = buffer.and_then(|buffer| buffer.get_mut(index as usize));
                content.ok_or_else(|| format!("bounce buffer {slot} has no page {index}"))
            }
        }
    }

    fn frame(&mut self, memory: MemoryId, frame: FrameNo) -> Result<&mut Content, String> {
        let frames = self.memories.get_mut(usize::from(memory.0));
        let content = frames.and_then(|frames| frames.get_mut(frame.0 as usize));
        content.ok_or_else(|| format!("{memory} has no {frame:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: (Place, FrameNo) = (Place::Memory(MemoryId::HOST), FrameNo(1));
    const CARD: (Place, FrameNo) = (Place::Memory(MemoryId(1)), FrameNo(7));

    /// Page 1 written once by the host, in its frame there.
    fn checker() -> Coherence {
        let mut checker = Coherence::new(2, &[8], (1, 4));
        checker.zero(1, MemoryId::HOST, FrameNo(1)).unwrap();
        checker.write(1, MemoryId::HOST, FrameNo(1)).unwrap();
        checker
    }

    #[test]
    fn a_copy_carries_the_version() {
        let mut checker = checker();
        let content = checker.load(HOST.0, HOST.1, 0).unwrap();
        checker.store(content, HOST, CARD, 0).unwrap();
        checker.read(1, MemoryId(1), FrameNo(7)).unwrap();
        checker.read(1, MemoryId::HOST, FrameNo(1)).unwrap();
    }

    #[test]
    fn a_stale_replica_is_found_by_its_next_read() {
        let mut checker = checker();
        let content = checker.load(HOST.0, HOST.1, 0).unwrap();
        checker.store(content, HOST, CARD, 0).unwrap();
        checker.write(1, MemoryId(1), FrameNo(7)).unwrap();
        let error = checker.read(1, MemoryId::HOST, FrameNo(1)).unwrap_err();
        assert!(error.contains("page 1") && error.contains("version 2"), "{error}");
    }

    #[test]
    fn a_write_under_a_copy_is_found() {
        let mut checker = checker();
        let content = checker.load(HOST.0, HOST.1, 0).unwrap();
        checker.write(1, MemoryId::HOST, FrameNo(1)).unwrap();
        assert!(checker.store(content, HOST, CARD, 0).unwrap_err().contains("under a copy"));
    }

    #[test]
    fn a_frame_of_another_page_and_a_released_frame_are_found() {
        let mut checker = checker();
        assert!(checker.read(0, MemoryId::HOST, FrameNo(1)).is_err());
        checker.release(MemoryId::HOST, FrameNo(1)).unwrap();
        assert!(checker.read(1, MemoryId::HOST, FrameNo(1)).is_err());
        assert!(checker.read(1, MemoryId(9), FrameNo(1)).is_err());
    }

    #[test]
    fn bounce_buffers_hold_versions_too() {
        let mut checker = checker();
        let bounce = (Place::Bounce(0), FrameNo(0));
        let content = checker.load(HOST.0, HOST.1, 2).unwrap();
        checker.store(content, HOST, bounce, 2).unwrap();
        let content = checker.load(bounce.0, bounce.1, 2).unwrap();
        checker.store(content, bounce, CARD, 2).unwrap();
        checker.read(1, MemoryId(1), FrameNo(7)).unwrap();
        assert!(checker.load(Place::Bounce(0), FrameNo(0), 4).is_err());
        assert!(checker.load(Place::Bounce(3), FrameNo(0), 0).is_err());
    }
}
