//! The borrower's end asks what the device is, before it can offer it to its client.

use std::os::fd::BorrowedFd;

use farside_link::description::Description;
use farside_link::endpoint::Load;
use farside_link::{Endpoint, Event, Frame, Tag};
use farside_live::far::Side;
use rustix::event::PollFlags;

use super::Gone;

/// No request of the end that comes after this has that number.
const TAG: Tag = Tag(u64::MAX);

/// See the module.
#[derive(Default)]
pub(super) struct Describing {
    is_asked: bool,
    data: Vec<u8>,
    answer: Option<Option<Description>>,
}

impl Describing {
    /// What it is; nothing if the lender's end does not say.
    pub(super) fn description(self) -> Option<Description> {
        self.answer.flatten()
    }
}

impl Side for Describing {
    type Gone = Gone;

    fn frame(&mut self, event: Event<'_>) -> Option<Load> {
        match event {
            Event::Reply { tag: TAG, frame, is_last } => {
                if let Frame::Data { data, .. } = frame {
                    self.data.extend_from_slice(data);
                }
                if is_last {
                    self.answer = Some(Description::decode(&self.data));
                }
                None
            }
            // There is no client yet whom it could be about.
            Event::Posted { load, .. } => Some(load),
            _ => None,
        }
    }

    fn turn(&mut self, link: &mut Endpoint, _: bool) -> Result<(), Gone> {
        if !self.is_asked && link.is_up() {
            self.is_asked = link.send(TAG, Frame::Describe).is_ok();
        }
        Ok(())
    }

    fn has_waiting(&self) -> bool {
        false
    }

    fn polled(&mut self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        Vec::new()
    }

    fn is_done(&self) -> bool {
        self.answer.is_some()
    }
}
