//! Requests that wait for their replies, at either end.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::frame::{Frame, Kind, Tag};

/// What a request still waits for.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    kind: Kind,
    /// Most bytes; `None` where `Done` answers.
    bytes: Option<u32>,
    /// Bytes that have come.
    come: u32,
}

/// Requests of one end, by tag.
#[derive(Debug, Default)]
pub(super) struct Requests(HashMap<Tag, Wanted>);

/// A reply that fits its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fits {
    /// More comes.
    Part,
    /// The request is over.
    Whole,
}

impl Requests {
    /// A request begins; `false` if its tag is in use.
    pub(super) fn begin<D>(&mut self, tag: Tag, frame: &Frame<D>) -> bool {
        let Entry::Vacant(free) = self.0.entry(tag) else { return false };
        free.insert(Wanted { kind: frame.kind(), bytes: frame.wanted_bytes(), come: 0 });
        true
    }

    pub(super) fn has(&self, tag: Tag) -> bool {
        self.0.contains_key(&tag)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether a reply is one that the request with its tag may have next.
    pub(super) fn fits<D: AsRef<[u8]>>(&self, tag: Tag, reply: &Frame<D>) -> Option<Fits> {
        let wanted = self.0.get(&tag)?;
        match (reply, wanted.bytes) {
            (Frame::Failed { .. }, _) | (Frame::Done, None) => Some(Fits::Whole),
            (Frame::Data { offset, last, data }, Some(most)) => {
                let come = u64::from(wanted.come) + data.as_ref().len() as u64;
                let is_all = come == u64::from(most) || wanted.kind == Kind::Describe;
                if *offset != wanted.come || come > u64::from(most) || (*last && !is_all) {
                    return None;
                }
                Some(if *last { Fits::Whole } else { Fits::Part })
            }
            _ => None,
        }
    }

    /// A reply that [`fits`](Self::fits) has come, with so many bytes.
    pub(super) fn count(&mut self, tag: Tag, fits: Fits, bytes: usize) {
        if fits == Fits::Whole {
            self.0.remove(&tag);
        } else if let Some(wanted) = self.0.get_mut(&tag) {
            wanted.come += bytes as u32;
        }
    }
}
