//! What waits, and for what. Work that nothing can be done about now is parked until what it waits for
//! has happened, and then planned again from the start: it holds nothing meanwhile.

use std::collections::VecDeque;

use farside_types::{AgentId, CancelReason, CardId, PageRange, Reason, RequestId, Time};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Driver;
use crate::api::event::Need;
use crate::driver::{CardState, Due};
use crate::faults::host::HostFault;
use crate::faults::open::{FaultKey, OpenFault};
use crate::migration::chains::ChainId;
use crate::mutation::Mutation;
use crate::placement::Action;
use crate::tables::sorted::SortedMap;

/// Something to be planned, now or when what it waits for has happened.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    /// An open fault of a card.
    Fault(FaultKey),
    /// A thread of the program is blocked at a page.
    HostFault(HostFault),
    /// The next pages of a request.
    Request(RequestId),
    /// Pages that the driver itself wants moved or mapped.
    Move { range: PageRange, agent: AgentId, action: Action, reason: Reason },
    /// The next step of a chain.
    Chain(ChainId),
}

/// What work waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) enum Until {
    /// This chain has let its pages go.
    PagesFree(ChainId),
    /// The group that has reserved the page begins, or is gone.
    GroupBegins(FaultKey),
    /// Pages are poisoned, or allocated, in full.
    Poisoned,
    /// There is room on this card.
    Frames(CardId),
    /// A chain has ended.
    IdleChain,
    /// A bounce buffer is free.
    BounceBuffer,
    /// It is this time.
    Time(Time),
}

/// Why nothing can be planned for a page.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Obstacle {
    /// Not now.
    Wait(Until),
    /// Never.
    Refuse(CancelReason),
}

/// Room for those who wait in one queue, from the start.
const QUEUE_ROOM: usize = 16;

/// All that waits, but for what waits for time: that is among the timers.
#[derive(Default)]
pub(crate) struct Waiting {
    queues: SortedMap<Until, VecDeque<Work>>,
    /// Queues in which nobody waits any more, for the next ones.
    idle: Vec<VecDeque<Work>>,
}

impl Waiting {
    /// With room for `queues` queues, of a few each.
    pub(crate) fn with_room(queues: usize) -> Waiting {
        let mut idle = Vec::with_capacity(2 * queues);
        idle.resize_with(queues, || VecDeque::with_capacity(QUEUE_ROOM));
        Waiting { queues: SortedMap::with_room(queues), idle }
    }

    /// Whether nobody waits for it.
    pub(crate) fn is_empty(&self, until: Until) -> bool {
        !self.queues.contains_key(&until)
    }

    /// Those who wait for it, first come first.
    pub(crate) fn queue(&self, until: Until) -> impl DoubleEndedIterator<Item = Work> {
        self.queues.get(&until).into_iter().flatten().copied()
    }

    /// The first who waits for it.
    pub(crate) fn first(&self, until: Until) -> Option<Work> {
        self.queue(until).next()
    }

    fn push(&mut self, work: Work, until: Until) {
        let idle = &mut self.idle;
        let queue = self.queues.get_or_insert_with(until, || idle.pop().unwrap_or_default());
        // An open fault waits in one place: it need not be looked for among thousands.
        let known = !matches!(work, Work::Fault(_)) && queue.contains(&work);
        debug_assert!(known || queue.back() != Some(&work), "{work:?} waits twice, {until:?}");
        if !known {
            queue.push_back(work);
        }
    }

    /// Takes the first out.
    pub(crate) fn pop(&mut self, until: Until) -> Option<Work> {
        let queue = self.queues.get_mut(&until)?;
        let first = queue.pop_front();
        if queue.is_empty() {
            self.end(until);
        }
        first
    }

    /// Moves all who wait for it to the end of `work`.
    fn take(&mut self, until: Until, work: &mut VecDeque<Work>) {
        if let Some(queue) = self.queues.get_mut(&until) {
            work.extend(queue.drain(..));
            self.end(until);
        }
    }

    /// Nobody waits for it any more.
    fn end(&mut self, until: Until) {
        self.idle.extend(self.queues.remove(&until));
    }

    /// Takes `work` out, which no longer waits for it.
    pub(crate) fn forget(&mut self, work: Work, until: Until) {
        let Some(queue) = self.queues.get_mut(&until) else { return };
        queue.retain(|&other| other != work);
        if queue.is_empty() {
            self.end(until);
        }
    }

    /// Puts number `at` of those who wait for it in front of all others, which keep their order.
    pub(crate) fn prefer(&mut self, at: usize, until: Until) {
        if let Some(queue) = self.queues.get_mut(&until) {
            (0..at).rev().for_each(|before| queue.swap(before, before + 1));
        }
    }

    /// Puts the last of those who wait for it in front of the `places` before it.
    fn lift(&mut self, places: usize, until: Until) {
        if let Some(queue) = self.queues.get_mut(&until) {
            let last = queue.len() - 1;
            (last - places..last).rev().for_each(|at| queue.swap(at, at + 1));
        }
    }

    /// Everything, by what it waits for.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Until, &VecDeque<Work>)> {
        self.queues.iter()
    }
}

/// As a list: not every format has maps with such keys.
impl Serialize for Waiting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.queues.iter())
    }
}

impl<'de> Deserialize<'de> for Waiting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Waiting, D::Error> {
        let queues = Vec::<(Until, VecDeque<Work>)>::deserialize(deserializer)?;
        Ok(Waiting { queues: queues.into_iter().collect(), ..Waiting::default() })
    }
}

impl Driver {
    /// Plans `work` again when what it waits for has happened.
    pub(crate) fn park(&mut self, work: Work, until: Until) {
        match until {
            Until::Time(at) => self.set_timer(at, Due::Work(work)),
            Until::PagesFree(_) if self.mutated.on(Mutation::DropWaiters) => {}
            Until::Frames(_) => self.line_up(work, until),
            _ => self.waiting.push(work, until),
        }
    }

    /// Who waits for frames and came earlier than those in front, as one that waited for its page first, takes
    /// the place that is its by that.
    fn line_up(&mut self, work: Work, until: Until) {
        let came = |work| match work {
            Work::Fault(key) => self.faults.get(key).map(|fault| fault.serial),
            _ => None,
        };
        let serial = came(work);
        let is_younger = |other: &Work| serial.is_some() && came(*other) > serial;
        let younger = self.waiting.queue(until).rev().take_while(is_younger).count();
        self.waiting.push(work, until);
        self.waiting.lift(younger, until);
    }

    /// It has happened: all who waited for it are planned, in their order.
    pub(crate) fn wake(&mut self, until: Until) {
        self.waiting.take(until, &mut self.work);
    }

    /// A chain has ended: those who wait for a chain are planned again, and of those who wait for frames as
    /// many as there are now. Where none is free and none is on its way all of them are: what they wanted may
    /// be elsewhere by now, and the others have somebody evicted.
    pub(crate) fn wake_for_room(&mut self) {
        // Every chain's end comes here, and mostly nobody waits for anything.
        if self.waiting.queues.is_empty() {
            return;
        }
        for card in 0..self.cards.len() {
            self.call_for_frames(CardId(card as u8));
        }
        self.wake(Until::IdleChain);
    }

    /// Plans those who wait for frames of `card` and can have them, first come first.
    fn call_for_frames(&mut self, card: CardId) {
        let until = Until::Frames(card);
        while let Some(first) = self.waiting.first(until) {
            let CardState { frames, called, evicting, .. } = &self.cards[card.0 as usize];
            let left = frames.free().saturating_sub(*called);
            let (least, most) = self.frames_wanted(first);
            if left == 0 || least > left {
                // One for whom the room is too small, as a group, has more evicted.
                if *evicting == 0 && *called == 0 {
                    self.wake(until);
                }
                return;
            }
            self.cards[card.0 as usize].called += most.min(left);
            let first = self.waiting.pop(until);
            self.work.extend(first);
        }
    }

    /// Frames that `work`, which waits for some, can do nothing without, and how many it can use.
    fn frames_wanted(&self, work: Work) -> (u32, u32) {
        if let Work::Request(_) = work {
            return (1, u32::MAX);
        }
        let Some(OpenFault { need: Need::Group(ranges), .. }) = self.waiting_fault(work) else {
            return (1, 1);
        };
        let pages = ranges.iter().map(|(range, _)| range.count as u32).sum();
        (pages, pages)
    }

    /// Who was called has been planned: what room they have left is the next ones'. That ends, as whoever was
    /// called has taken frames, or waits for them no more.
    fn call_the_next(&mut self) {
        for card in (0..self.cards.len()).map(|card| CardId(card as u8)) {
            if std::mem::take(&mut self.cards[card.0 as usize].called) > 0 {
                self.call_for_frames(card);
            }
        }
    }

    /// Plans until nothing is left that can be planned now.
    pub(crate) fn pump(&mut self, now: Time) {
        loop {
            while let Some(work) = self.work.pop_front() {
                self.plan(now, work);
            }
            self.call_the_next();
            if self.work.is_empty() && !self.tell_of_end() {
                return;
            }
        }
    }

    /// Plans `work`, or lets it wait.
    pub(crate) fn plan(&mut self, now: Time, work: Work) {
        match work {
            Work::Fault(key) => self.serve_again(now, key),
            Work::HostFault(fault) => self.serve_host(now, fault),
            Work::Request(id) => self.serve_request(now, id),
            Work::Move { range, agent, action, reason } => {
                self.serve_move(now, range, agent, action, reason);
            }
            Work::Chain(id) => self.advance(now, id),
        }
    }
}

#[cfg(test)]
mod tests;
