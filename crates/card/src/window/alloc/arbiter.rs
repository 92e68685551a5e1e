//! Who commands next: one arbiter for the host and the processing elements.

use super::allocator::{AllocStep, Allocator};
use super::bus::TableBus;
use super::status::AllocError;
use crate::interface::AllocRequest;

/// One place for a command of each requester; they are served in turn, so that nobody waits for ever.
#[derive(Clone, Debug)]
pub struct AllocArbiter {
    waiting: Vec<Option<AllocRequest>>,
    /// Whose command is under way.
    served: Option<usize>,
    /// Who is looked at first.
    next: usize,
}

impl AllocArbiter {
    /// For `requesters`, numbered from 0.
    pub fn new(requesters: usize) -> AllocArbiter {
        AllocArbiter { waiting: vec![None; requesters], served: None, next: 0 }
    }

    /// A command of a requester, who waits for its answer before the next. Whether it was taken.
    pub fn ask(&mut self, requester: usize, request: AllocRequest) -> bool {
        let can_ask = self.can_ask(requester);
        if can_ask {
            self.waiting[requester] = Some(request);
        }
        can_ask
    }

    /// Whether there is such a requester, who waits for nothing.
    pub fn can_ask(&self, requester: usize) -> bool {
        let is_served = self.served == Some(requester);
        self.waiting.get(requester).is_some_and(|place| place.is_none() && !is_served)
    }

    /// A requester is gone. What it waits for is not begun; `true`: it is under way, and `heir`'s from now on.
    pub fn leave(&mut self, requester: usize, heir: usize) -> bool {
        self.waiting.get_mut(requester).and_then(Option::take);
        let is_served = self.served == Some(requester);
        if is_served {
            self.served = Some(heir);
        }
        is_served
    }

    /// Nobody is served any more. Returns who waits, for a command to begin or to end; none of them will be answered here.
    pub fn stop(&mut self) -> Vec<usize> {
        let served = self.served.take();
        let waiting = self.waiting.iter_mut().enumerate();
        let waiting = waiting.filter_map(|(who, place)| place.take().map(|_| who));
        served.into_iter().chain(waiting).collect()
    }

    /// Begins the next command, if there is one and the allocator can. Returns whose it is.
    pub fn begin(
        &mut self,
        allocator: &mut Allocator,
        bus: &mut impl TableBus,
    ) -> Option<(usize, AllocStep)> {
        if self.served.is_some() || !allocator.is_ready() {
            return None;
        }
        let count = self.waiting.len();
        let requester = (0..count)
            .map(|from| (self.next + from) % count)
            .find(|&who| self.waiting[who].is_some())?;
        let request = self.waiting[requester].take()?;
        let step = allocator.handle(bus, request);
        if step == AllocStep::Answer(Err(AllocError::Busy)) {
            // The sweep has to go on first.
            self.waiting[requester] = Some(request);
            return None;
        }
        self.next = (requester + 1) % count;
        if matches!(step, AllocStep::Invalidate(_)) {
            self.served = Some(requester);
        }
        Some((requester, step))
    }

    /// The invalidation of the command under way is done. Returns whose it was, and its answer.
    pub fn invalidated(
        &mut self,
        allocator: &mut Allocator,
        bus: &mut impl TableBus,
    ) -> Option<(usize, Result<u64, AllocError>)> {
        let requester = self.served.take()?;
        match allocator.invalidated(bus) {
            AllocStep::Answer(answer) => Some((requester, answer)),
            AllocStep::Invalidate(_) => None,
        }
    }
}
