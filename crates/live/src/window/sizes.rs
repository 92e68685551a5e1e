//! What a card in another process says of its window, as far as it can be.

use std::ops::Range;

use farside_card::interface::register::MEMORIES_MAX;
use farside_softcard::{WindowMemory, window_frames};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowSizes {
    /// Its addresses, in bytes: a power of two.
    pub bytes: u64,
    /// The first of its frames in the card's memory.
    pub first: u32,
    /// In the order of their numbers; those that there are not have no frame.
    memories: [WindowMemory; MEMORIES_MAX as usize],
}

impl WindowSizes {
    /// A window of these sizes.
    ///
    /// # Errors
    /// Why its memories make no sense.
    pub(crate) fn new(
        bytes: u64,
        first: u32,
        memories: &[WindowMemory],
    ) -> Result<WindowSizes, String> {
        let count = memories.len();
        if !(1..=MEMORIES_MAX as usize).contains(&count) {
            return Err(format!("its own window has {count} memories, and there can be 1 to 16"));
        }
        if let Some(empty) = memories.iter().position(|memory| memory.frames == 0) {
            return Err(format!("memory {empty} of its own window has no frame"));
        }
        let frames = window_frames(memories);
        if u64::from(first) + frames > u32::MAX.into() {
            return Err(format!(
                "{frames} frames of its own window behind {first:#x} are too many"
            ));
        }
        let none = WindowMemory::plain(0);
        let mut all = [none; MEMORIES_MAX as usize];
        all[..count].copy_from_slice(memories);
        Ok(WindowSizes { bytes, first, memories: all })
    }

    /// Its memories, in the order of their numbers.
    pub(crate) fn memories(&self) -> impl Iterator<Item = WindowMemory> {
        self.memories.into_iter().take_while(|memory| memory.frames > 0)
    }

    /// Its frames.
    pub(crate) fn frames(&self) -> u32 {
        window_frames(&self.memories) as u32
    }

    /// Where the frames of a memory are in the card's memory, none where there is no such memory; or those of all.
    pub(crate) fn place(&self, memory: Option<u8>) -> Range<u64> {
        let (before, own) = match memory {
            None => (&[][..], &self.memories[..]),
            Some(memory) => {
                let (before, rest) =
                    self.memories.split_at(usize::from(memory).min(self.memories.len()));
                (before, &rest[..rest.len().min(1)])
            }
        };
        let begin = u64::from(self.first) + window_frames(before);
        begin..begin + window_frames(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_lie_one_behind_the_other_and_what_makes_no_sense_is_none() {
        let of = |first, frames: &[u32]| {
            let memories: Vec<_> = frames.iter().map(|&it| WindowMemory::plain(it)).collect();
            WindowSizes::new(1 << 32, first, &memories)
        };
        let sizes = of(10, &[5, 7]).unwrap();
        assert_eq!((sizes.frames(), sizes.memories().count()), (12, 2));
        assert_eq!([None, Some(0), Some(1)].map(|it| sizes.place(it)), [10..22, 10..15, 15..22]);
        assert!(sizes.place(Some(2)).is_empty() && sizes.place(Some(255)).is_empty());
        let full = of(1, &[3; 16]).unwrap();
        assert_eq!((full.place(Some(15)), full.memories().count()), (46..49, 16));
        for (first, frames, why) in [
            (1, &[][..], "0 memories"),
            (1, &[1; 17], "17 memories"),
            (1, &[1, 0, 1], "memory 1 of its own window has no frame"),
            (1, &[u32::MAX, 1], "too many"),
            (u32::MAX, &[1], "too many"),
        ] {
            let told = of(first, frames).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }
}
