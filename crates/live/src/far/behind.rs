//! Reads of the card's memory that are to be done as soon as a launch has completed: so what a kernel has
//! made is on its way before anybody asks for it.

use std::collections::HashMap;

use farside_link::Tag;

/// A read of the card's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Read {
    /// By which it is answered.
    pub(super) tag: Tag,
    /// First byte.
    pub(super) offset: u64,
    /// How many.
    pub(super) bytes: u32,
}

/// Those that wait, by their launches. The link's credit bounds them.
#[derive(Debug, Default)]
pub(super) struct Behind(HashMap<u64, Vec<Read>>);

impl Behind {
    /// One more, behind a launch that is under way.
    pub(super) fn push(&mut self, launch: u64, read: Read) {
        self.0.entry(launch).or_default().push(read);
    }

    /// A launch has completed: what is to be read now, in order.
    pub(super) fn completed(&mut self, launch: u64) -> Vec<Read> {
        self.0.remove(&launch).unwrap_or_default()
    }

    /// There are no launches any more: those that will not be done.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = Tag> {
        std::mem::take(&mut self.0).into_values().flatten().map(|read| read.tag)
    }
}
