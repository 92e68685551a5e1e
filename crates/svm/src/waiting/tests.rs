//! Who waits for frames of a full card, and who gets them.

use std::collections::VecDeque;

use farside_types::{Access, CardId, FaultId, PageNo, PageRange, RequestId, Time};

use crate::api::event::{CardFault, Need, Request};
use crate::placement::fixture::Fixture;
use crate::waiting::{Until, Waiting, Work};
use crate::{Command, Event, RingOp, Step};

const FRAMES: u64 = 8;
const LATER: Time = Time(1 << 60);

/// A driver of a full card of few frames, whose commands are answered when the test says so.
struct FullCard {
    fixture: Fixture,
    commands: VecDeque<Command>,
    /// Faults that were resumed, in that order; of those that were resumed together the highest first.
    resumed: Vec<u64>,
}

impl FullCard {
    fn new() -> FullCard {
        let mut fixture = Fixture::new("on-touch", 1, FRAMES as u32, 64);
        (0..FRAMES).for_each(|index| fixture.write(0, fixture.page(index)));
        assert_eq!(fixture.driver.free_frames(CardId(0)), 0);
        FullCard { fixture, commands: VecDeque::new(), resumed: Vec::new() }
    }

    fn page(&self, index: u64) -> PageNo {
        self.fixture.page(index)
    }

    fn fault(&mut self, id: u64, need: Need) {
        let faults = &[CardFault { id: FaultId(id), need }];
        self.tell(Event::CardFaults { card: CardId(0), faults });
    }

    fn tell(&mut self, event: Event<'_>) {
        self.fixture.driver.handle(LATER, event);
        self.commands.extend(std::iter::from_fn(|| self.fixture.driver.poll_command()));
    }

    /// Answers the oldest command; false if there is none.
    fn answer_one(&mut self) -> bool {
        let Some(command) = self.commands.pop_front() else { return false };
        if let Command::Ring(_, Step { op: RingOp::Resume { faults }, .. }) = &command {
            let mut together: Vec<u64> = faults.iter().map(|id| id.0).collect();
            together.sort_unstable_by_key(|&id| std::cmp::Reverse(id));
            self.resumed.extend(together);
        }
        self.tell(command.header().done(Ok(())));
        self.fixture.driver.check().expect("the driver's tables agree");
        true
    }

    fn answer_all(&mut self) {
        while self.answer_one() {}
    }
}

#[test]
fn those_before_whom_somebody_is_put_keep_their_order() {
    let (mut waiting, until) = (Waiting::default(), Until::Frames(CardId(0)));
    let works = [1, 2, 3, 4].map(|id| Work::Request(RequestId(id)));
    works.iter().for_each(|&work| waiting.push(work, until));
    waiting.prefer(2, until);
    let order: Vec<Work> = waiting.queue(until).collect();
    assert_eq!(order, [works[2], works[0], works[1], works[3]]);
    waiting.prefer(0, until);
    assert_eq!(waiting.queue(until).collect::<Vec<_>>(), order);
}

/// Pages are wanted from the last to the first, so that no order but the one in which they were wanted has
/// the first fault first.
#[test]
fn who_waits_for_room_gets_it_in_the_order_they_came() {
    let mut card = FullCard::new();
    let wanted: Vec<u64> = (8..40).rev().collect();
    for &index in &wanted {
        card.fault(index, Need::Page(card.page(index), Access::Write));
    }
    card.answer_all();
    assert_eq!(card.resumed, wanted);
}

/// Some come while others wait already.
#[test]
fn whoever_comes_later_gets_room_later() {
    let mut card = FullCard::new();
    let wanted: Vec<u64> = (8..40).rev().collect();
    for &index in &wanted {
        card.fault(index, Need::Page(card.page(index), Access::Write));
        card.answer_one();
        card.answer_one();
    }
    card.answer_all();
    assert_eq!(card.resumed, wanted);
}

/// A group of as many pages as the card has frames waits for all of them, and those behind it do too.
#[test]
fn a_group_keeps_its_place() {
    let mut card = FullCard::new();
    card.fault(40, Need::Page(card.page(40), Access::Write));
    let all = PageRange::new(card.page(20), FRAMES);
    card.fault(20, Need::Group([(all, Access::Write)].into()));
    for index in (8..16).rev() {
        card.fault(index, Need::Page(card.page(index), Access::Write));
    }
    card.answer_all();
    assert_eq!(card.resumed, [40, 20, 15, 14, 13, 12, 11, 10, 9, 8]);
}

/// Those who are first need no room any more when there is some: their pages are gone.
#[test]
fn what_the_first_leave_is_the_next_ones() {
    let mut card = FullCard::new();
    let gone = card.fixture.allocate(FRAMES);
    for (id, page) in (100..).zip(gone.pages()) {
        card.fault(id, Need::Page(page, Access::Write));
    }
    let wanted: Vec<u64> = (8..16).rev().collect();
    for &index in &wanted {
        card.fault(index, Need::Page(card.page(index), Access::Write));
    }
    let request = Request::Free { addr: gone.start.addr() };
    card.tell(Event::Request { id: RequestId(1 << 40), request, after: &[] });
    card.answer_all();
    assert_eq!(card.resumed, wanted);
    assert_eq!(card.fixture.driver.stats().cancelled_faults, FRAMES);
}
