//! Cards that read a page while another one gets its copy: what each command's answer leads to.

use std::collections::VecDeque;

use farside_types::{Access, BLOCK_PAGES, CardId, FaultId, RequestId, Span};

use crate::api::command::TransferOp;
use crate::api::event::{Advice, CardFault, Need, Request};
use crate::placement::fixture::Fixture;
use crate::{Capabilities, Command, Event, Place, RingOp, Step, StepError, StepErrorKind};

/// Four cards, pages of the host, and commands that are answered one by one.
struct Race {
    fixture: Fixture,
    commands: VecDeque<Command>,
    faults: u64,
}

impl Race {
    fn new(scheme: &str) -> Race {
        Race::with(Fixture::new(scheme, 4, 64, 64))
    }

    fn with(mut fixture: Fixture) -> Race {
        fixture.driver.config.capabilities = Capabilities::with_dma(4, true);
        Race { fixture, commands: VecDeque::new(), faults: 0 }
    }

    fn tell(&mut self, event: Event<'_>) {
        let now = self.fixture.now();
        self.fixture.driver.handle(now, event);
        self.listen();
    }

    fn listen(&mut self) {
        while let Some(command) = self.fixture.driver.poll_command() {
            self.commands.push_back(command);
        }
    }

    /// A card's faults, in one batch.
    fn faults<const N: usize>(&mut self, card: u8, pages: [u64; N], access: Access) -> FaultId {
        let faults = pages.map(|page| {
            self.faults += 1;
            let id = FaultId((1 << 32) + self.faults);
            CardFault { id, need: Need::Page(self.fixture.page(page), access) }
        });
        self.tell(Event::CardFaults { card: CardId(card), faults: &faults });
        faults[0].id
    }

    fn read(&mut self, card: u8, page: u64) -> FaultId {
        self.faults(card, [page], Access::Read)
    }

    /// Cards read a page one after the other, and whoever has to let go of it does.
    fn reads<const N: usize>(&mut self, cards: [u8; N], page: u64) -> [FaultId; N] {
        cards.map(|card| {
            let fault = self.read(card, page);
            self.let_go();
            fault
        })
    }

    /// The host does what it is told.
    fn let_go(&mut self) -> usize {
        self.answer(Ok(()), |command| matches!(command, Command::Host(_)))
    }

    /// Answers the commands that are wanted.
    fn answer(
        &mut self,
        result: Result<(), StepError>,
        wanted: impl Fn(&Command) -> bool,
    ) -> usize {
        let (now, rest): (Vec<_>, Vec<_>) = self.commands.drain(..).partition(|it| wanted(it));
        self.commands.extend(rest);
        now.iter().for_each(|command| self.tell(command.header().done(result)));
        now.len()
    }

    /// The copies to a card end so.
    fn copies(&mut self, card: u8, result: Result<(), StepError>) {
        let to = Place::Memory(CardId(card).memory());
        let of_card = |command: &Command| matches!(command, Command::Transfer(_, Step { op: TransferOp::Copy { to: at, .. }, .. }) if *at == to);
        assert!(self.answer(result, of_card) > 0, "no copy to card {card} is under way");
    }

    /// Everything ends well.
    fn finish(&mut self) {
        while !self.commands.is_empty() {
            self.answer(Ok(()), |_| true);
        }
        self.fixture.driver.check().expect("the driver's tables agree");
        assert!(self.fixture.driver.is_quiet(), "something is open");
    }

    /// Cards whose copies are under way.
    fn copying(&self) -> Vec<u8> {
        let to = |command: &Command| match command {
            Command::Transfer(
                _,
                Step { op: TransferOp::Copy { to: Place::Memory(to), .. }, .. },
            ) => to.card(),
            _ => None,
        };
        let mut cards: Vec<u8> = self.commands.iter().filter_map(to).map(|card| card.0).collect();
        cards.sort_unstable();
        cards
    }

    /// Whether a fault is answered.
    fn is_resumed(&self, fault: FaultId) -> bool {
        let resumes = |command: &Command| match command {
            Command::Ring(_, Step { op: RingOp::Resume { faults }, .. }) => faults.contains(&fault),
            _ => false,
        };
        self.commands.iter().any(resumes)
    }

    fn at(&self, page: u64) -> Vec<u8> {
        self.fixture.copies(self.fixture.page(page))
    }
}

const FAILED: StepError = StepError { pages_done: 0, kind: StepErrorKind::Transfer };

#[test]
fn cards_that_read_a_page_at_once_get_their_copies_at_once() {
    let mut race = Race::new("farside");
    let faults = race.reads([0, 1, 2, 3], 7);
    assert_eq!(race.copying(), [0, 1, 2, 3]);
    assert_eq!(race.fixture.driver.stats().followed, 3);
    // Nobody waits for those that came later.
    race.copies(0, Ok(()));
    assert_eq!(faults.map(|fault| race.is_resumed(fault)), [true, false, false, false]);
    race.copies(1, Ok(()));
    assert_eq!(faults.map(|fault| race.is_resumed(fault)), [true, true, false, false]);
    race.finish();
    assert_eq!(race.at(7), [0, 1, 2, 3, 4]);
    assert_eq!(race.fixture.mapped_by(race.fixture.page(7)), [0, 1, 2, 3]);
}

#[test]
fn while_somebody_is_stopped_for_the_first_the_others_wait_and_then_copy_at_once() {
    let mut race = Race::new("farside");
    let _ = [0, 1, 2, 3].map(|card| race.read(card, 7));
    assert!(race.copying().is_empty(), "the host may write it");
    race.let_go();
    assert_eq!(race.copying(), [0]);
    race.copies(0, Ok(()));
    assert_eq!(race.copying(), [1, 2, 3]);
    race.finish();
    assert_eq!((race.at(7).len(), race.fixture.driver.stats().followed), (5, 2));
}

#[test]
fn who_is_faster_than_the_first_waits_for_it() {
    let mut race = Race::new("farside");
    let faults = race.reads([0, 1, 2], 7);
    race.copies(2, Ok(()));
    race.copies(1, Ok(()));
    assert!(!faults.iter().any(|&fault| race.is_resumed(fault)), "the first is under way");
    race.copies(0, Ok(()));
    assert!(faults.iter().all(|&fault| race.is_resumed(fault)));
    race.finish();
    assert_eq!(race.at(7), [0, 1, 2, 3]);
}

#[test]
fn in_schemes_of_papers_a_page_is_copied_to_one_after_the_other() {
    for scheme in ["duplication", "farside:together=off"] {
        let mut race = Race::new(scheme);
        race.reads([0, 1], 7);
        assert_eq!(race.copying(), [0], "{scheme}");
        race.copies(0, Ok(()));
        assert_eq!(race.copying(), [1], "{scheme}");
        race.finish();
        assert_eq!(race.fixture.driver.stats().followed, 0);
    }
}

#[test]
fn pages_of_one_batch_that_are_copied_by_several_chains_follow_each_its_own() {
    let mut race = Race::new("farside");
    race.faults(0, [3, 4, 20], Access::Read);
    race.reads([1], 40);
    race.faults(2, [3, 20, 40, 50], Access::Read);
    race.let_go();
    assert_eq!(race.fixture.driver.stats().followed, 3);
    race.read(3, 20);
    race.copies(2, Ok(()));
    race.finish();
    assert_eq!([3, 4, 20, 40, 50].map(|page| race.at(page).len()), [3, 2, 4, 3, 2]);
}

#[test]
fn if_the_first_fails_those_that_follow_fail_too_and_each_is_tried_again_alone() {
    for first in [Err(FAILED), Err(StepError { pages_done: 0, kind: StepErrorKind::TimedOut })] {
        let mut race = Race::new("farside");
        let faults = race.reads([0, 1, 2], 7);
        race.copies(1, Ok(()));
        race.copies(0, first);
        assert_eq!(race.copying(), [2], "the page is held for the one that copies");
        race.copies(2, Ok(()));
        assert!(!faults.iter().any(|&fault| race.is_resumed(fault)));
        assert_eq!(race.copying().len(), 1, "one after the other");
        race.finish();
        assert_eq!(race.at(7), [0, 1, 2, 3]);
        assert_eq!(race.fixture.driver.stats().rollbacks, 3);
    }
}

#[test]
fn if_one_that_follows_fails_the_others_do_not_notice() {
    let mut race = Race::new("farside");
    let faults = race.reads([0, 1], 7);
    race.copies(1, Err(FAILED));
    assert_eq!(race.copying(), [0], "it waits for the page");
    race.copies(0, Ok(()));
    assert_eq!(faults.map(|fault| race.is_resumed(fault)), [true, false]);
    race.finish();
    assert_eq!(race.at(7), [0, 1, 2]);
    assert_eq!(race.fixture.driver.stats().rollbacks, 1);
}

#[test]
fn nobody_joins_a_chain_that_has_a_follower_which_has_failed() {
    let mut race = Race::new("farside");
    race.reads([0, 1], 7);
    race.copies(1, Err(FAILED));
    race.reads([2], 7);
    assert_eq!(race.copying(), [0]);
    race.finish();
    assert_eq!(race.at(7), [0, 1, 2, 3]);
}

#[test]
fn a_writer_waits_for_all_that_read_and_then_has_the_page_alone() {
    let mut race = Race::new("farside");
    race.reads([0, 1], 7);
    let write = race.faults(2, [7], Access::Write);
    race.read(3, 7);
    for card in [0, 1, 3] {
        assert!(race.copying().contains(&card));
        race.copies(card, Ok(()));
    }
    assert!(!race.is_resumed(write));
    race.finish();
    assert_eq!(race.at(7), [3]);
}

#[test]
fn a_card_asks_once_and_has_no_two_copies() {
    let mut race = Race::new("farside");
    race.read(0, 7);
    race.reads([0, 1, 1], 7);
    assert_eq!(race.copying(), [0, 1]);
    race.finish();
    assert_eq!(race.at(7), [0, 1, 2]);
    assert_eq!(race.fixture.driver.stats().duplications, 2);
}

#[test]
fn cards_that_go_away_take_nobody_with_them() {
    for lost in [0, 1, 2] {
        for reset in [false, true] {
            for before in 0..3 {
                let mut race = Race::new("farside");
                let _ = race.reads([0, 1, 2], 7);
                (0..before).for_each(|card| race.copies(card, Ok(())));
                let card = CardId(lost);
                let gone = if reset { Event::CardReset { card } } else { Event::CardLost { card } };
                // What was sent to it is not answered.
                race.tell(gone);
                race.finish();
                let has: Vec<u8> = (0..4).filter(|memory| *memory != lost + 1).collect();
                assert_eq!(race.at(7), has, "card {lost} goes after {before} copies");
                if reset {
                    race.read(lost, 7);
                    race.finish();
                    assert_eq!(race.at(7), [0, 1, 2, 3]);
                }
            }
        }
    }
}

#[test]
fn where_there_is_no_chain_or_no_frame_left_a_card_waits_as_before() {
    let mut race = Race::new("farside");
    race.fixture.driver.config.limits.chains = 1;
    race.reads([0, 1], 7);
    assert_eq!(race.copying(), [0]);
    race.finish();
    assert_eq!(race.at(7), [0, 1, 2]);
    let mut race = Race::new("farside");
    (0..64).for_each(|page| race.fixture.read(1, race.fixture.page(page)));
    let other = race.fixture.allocate(1).start;
    race.fixture.cpu(other, Access::Write);
    let page = other.0 - race.fixture.pages.start.0;
    race.reads([0, 1], page);
    assert_eq!(race.copying(), [0], "card 1 is full");
    race.finish();
    assert_eq!(race.at(page), [0, 1, 2]);
}

#[test]
fn one_whose_copy_does_not_end_is_given_up_and_the_others_go_on() {
    let mut race = Race::new("farside");
    let faults = race.reads([0, 1], 7);
    race.copies(0, Ok(()));
    assert!(race.is_resumed(faults[0]));
    race.answer(Ok(()), |command| !matches!(command, Command::Transfer(..)));
    assert_eq!(race.copying(), [1]);
    let due = race.fixture.driver.poll_timeout().expect("the copy has a time limit");
    race.fixture.driver.handle_timeout(due + Span::from_millis(60_000));
    race.listen();
    assert_eq!(race.fixture.driver.stats().rollbacks, 1);
    assert_eq!(race.at(7), [0, 1], "the first has its copy");
    race.finish();
}

#[test]
fn what_the_program_asked_for_and_what_moves_in_blocks_or_is_fought_over_is_copied_to_one_at_a_time()
 {
    let mut race = Race::new("farside");
    let range = race.fixture.pages;
    let asks = |race: &mut Race, id, request| {
        race.tell(Event::Request { id: RequestId(id), request, after: &[] });
        race.let_go();
    };
    asks(&mut race, 1 << 20, Request::Advise { range, advice: Advice::ReadMostly(true) });
    let (to, access) = (CardId(0).memory(), Access::Read);
    asks(&mut race, 1 << 21, Request::Prefetch { range, to, access });
    assert_eq!(race.copying(), [0]);
    race.reads([1], 7);
    assert_eq!(race.copying(), [0], "it is the program's");
    race.finish();
    assert_eq!(race.at(7), [0, 1, 2]);

    let mut race = Race::new("farside");
    let page = race.fixture.page(7);
    // The copy that is under way is the move by which it is seen.
    let thrash = &mut race.fixture.driver.config.thrash;
    thrash.window = Span::from_millis(1 << 30);
    let bounces = thrash.throttle_after - 1;
    race.fixture.driver.table.get_mut(page).directory.set_bounces(bounces);
    race.reads([0, 1], 7);
    assert_eq!(race.copying(), [0], "it is fought over");
    assert_eq!(race.fixture.driver.stats().throttles, 0, "that is weighed when it is its turn");

    let mut race = Race::with(Fixture::new("farside", 4, 2048, 2 * BLOCK_PAGES));
    let range = race.fixture.pages;
    asks(&mut race, 1 << 20, Request::Advise { range, advice: Advice::WholeBlocks(true) });
    race.reads([0, 1], 7);
    assert_eq!(race.copying(), [0], "it is one of a block");
    race.finish();
    assert_eq!(race.at(7), [0, 1, 2]);
}
