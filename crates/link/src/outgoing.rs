//! Frames that wait for credit, with PCIe's rules among them: posted frames in order, requests and
//! replies never before what was posted before them, and no class behind another that has no credit.

use std::collections::VecDeque;

use crate::{Class, Endpoint, Frame, NotSent, Tag};

#[derive(Debug)]
struct Waiting {
    tag: Tag,
    frame: Frame<Vec<u8>>,
    /// Posted frames that have to go first.
    behind: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Outgoing {
    queues: [VecDeque<Waiting>; Class::ALL.len()],
    posted: u64,
    sent: u64,
}

impl Outgoing {
    /// Puts a frame behind those that it may not overtake.
    pub fn push(&mut self, tag: Tag, frame: Frame<Vec<u8>>) {
        let class = frame.class();
        let behind = self.posted;
        self.posted += u64::from(class == Class::Posted);
        self.queues[class.index()].push_back(Waiting { tag, frame, behind });
    }

    /// Puts a posted frame.
    pub fn post(&mut self, frame: Frame<Vec<u8>>) {
        self.push(Tag::NONE, frame);
    }

    /// How many of a class wait.
    #[must_use]
    pub fn waiting(&self, class: Class) -> usize {
        self.queues[class.index()].len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
    }

    /// Sends what may go; whether anything did.
    pub fn flush(&mut self, link: &mut Endpoint) -> bool {
        let mut did = false;
        for class in Class::ALL {
            did |= self.flush_class(class, link);
        }
        did
    }

    fn flush_class(&mut self, class: Class, link: &mut Endpoint) -> bool {
        let mut did = false;
        while let Some(Waiting { tag, frame, behind }) = self.queues[class.index()].pop_front() {
            let frame = if behind > self.sent {
                frame
            } else {
                match link.send(tag, frame) {
                    Err(NotSent::Later(frame, _)) => frame,
                    // Over: nothing goes any more. Wrong: the request has gone with its link.
                    Ok(()) | Err(NotSent::Over(_) | NotSent::Wrong(_)) => {
                        self.sent += u64::from(class == Class::Posted);
                        did = true;
                        continue;
                    }
                }
            };
            self.queues[class.index()].push_front(Waiting { tag, frame, behind });
            break;
        }
        did
    }
}
