//! Copies of pages: how many went each way, and for how long at least one was under way.
//!
//! Copies that overlap share their time: two at once that take a second take a second, not two. What a
//! card's page DMA copies is under way from when it is asked for until it is known to be done.

use std::sync::Mutex;

use farside_linux::lock::lock;
use farside_svm::{Place, TransferOp};
use farside_types::{PAGE_SIZE, Span, Time};
use serde::{Deserialize, Serialize};

/// What was copied, by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// From the host to cards.
    pub host_to_card: Flow,
    /// From cards to the host.
    pub card_to_host: Flow,
    /// From card to card, through a buffer of the host as well.
    pub card_to_card: Flow,
}

/// What was copied one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Pages that have arrived.
    pub pages: u64,
    /// For how long at least one copy was under way.
    pub time: Span,
}

impl Flow {
    /// Bytes a second while something was copied; nothing if nothing was.
    pub fn bandwidth(&self) -> Option<f64> {
        let bytes = (self.pages * PAGE_SIZE as u64) as f64;
        (self.time.0 > 0).then(|| bytes * 1e6 / self.time.as_micros_f64())
    }
}

/// A copy: which way, and how many pages arrive by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copying {
    way: Way,
    pages: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    HostToCard,
    CardToHost,
    CardToCard,
}

impl Copying {
    /// What a transfer copies; a fill copies nothing.
    pub(crate) fn of(op: &TransferOp) -> Option<Copying> {
        let TransferOp::Copy { from, to, .. } = op else { return None };
        let is_host = |place: &Place| matches!(place, Place::Memory(memory) if memory.is_host());
        let way = match (is_host(from), is_host(to)) {
            (true, _) => Way::HostToCard,
            (false, true) => Way::CardToHost,
            (false, false) => Way::CardToCard,
        };
        // In a buffer on the way they have not arrived.
        let arrives = matches!(to, Place::Memory(_));
        Some(Copying { way, pages: if arrives { op.pages() } else { 0 } })
    }
}

/// The account, from all threads.
#[derive(Debug, Default)]
pub(crate) struct TrafficAccount {
    ways: Mutex<[Lane; 3]>,
}

/// One direction.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    flow: Flow,
    under_way: u32,
    /// When the first of those under way has begun.
    since: Time,
}

impl TrafficAccount {
    pub(crate) fn begin(&self, copying: Copying, now: Time) {
        let lane = &mut lock(&self.ways)[copying.way as usize];
        if lane.under_way == 0 {
            lane.since = now;
        }
        lane.under_way += 1;
    }

    /// A copy that has begun is over; what has not arrived is not counted.
    pub(crate) fn end(&self, copying: Copying, arrived: bool, now: Time) {
        let lane = &mut lock(&self.ways)[copying.way as usize];
        lane.under_way -= 1;
        if lane.under_way == 0 {
            lane.flow.time += now.since(lane.since);
        }
        if arrived {
            lane.flow.pages += copying.pages;
        }
    }

    /// What was copied so far; a copy under way counts when it is over.
    pub(crate) fn sum(&self) -> Traffic {
        let [host_to_card, card_to_host, card_to_card] = lock(&self.ways).map(|lane| lane.flow);
        Traffic { host_to_card, card_to_host, card_to_card }
    }
}

#[cfg(test)]
mod tests {
    use farside_svm::Run;
    use farside_types::{CardId, FrameNo, MemoryId, PageNo};

    use super::*;

    const CARD: Place = Place::Memory(CardId(0).memory());
    const HOST: Place = Place::Memory(MemoryId::HOST);

    fn copying(from: Place, to: Place, count: u32) -> Copying {
        let run = Run { page: PageNo(0), count, src: FrameNo(0), dst: FrameNo(0) };
        Copying::of(&TransferOp::Copy { from, to, runs: [run].into() }).unwrap()
    }

    fn at(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    #[test]
    fn copies_that_overlap_share_their_time() {
        let account = TrafficAccount::default();
        let (long, short) = (copying(HOST, CARD, 8), copying(HOST, CARD, 1));
        account.begin(long, at(0));
        account.begin(short, at(5));
        account.end(short, true, at(6));
        account.end(long, true, at(10));
        // A pause costs nothing.
        account.begin(short, at(100));
        account.end(short, true, at(101));
        let flow = account.sum().host_to_card;
        assert_eq!(flow, Flow { pages: 10, time: Span::from_micros(11) });
        assert_eq!(flow.bandwidth(), Some(10.0 * 4096.0 / 11e-6));
    }

    #[test]
    fn directions_are_apart_and_a_buffer_on_the_way_is_no_arrival() {
        let account = TrafficAccount::default();
        let other = Place::Memory(CardId(1).memory());
        for part in [copying(CARD, Place::Bounce(0), 4), copying(Place::Bounce(0), other, 4)] {
            account.begin(part, at(0));
            account.end(part, true, at(2));
        }
        account.begin(copying(CARD, HOST, 3), at(0));
        account.end(copying(CARD, HOST, 3), false, at(1));
        let sum = account.sum();
        assert_eq!(sum.card_to_card, Flow { pages: 4, time: Span::from_micros(4) });
        assert_eq!(sum.card_to_host, Flow { pages: 0, time: Span::from_micros(1) });
        assert_eq!(sum.host_to_card.bandwidth(), None);
    }
}
