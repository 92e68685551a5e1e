//! A run is stored in its middle, at a random point, with whatever is under way, and goes on in two
//! drivers: both say the same for ever after.

use farside_types::{
    Access, CardId, CommandId, Epoch, FaultId, PageNo, PageRange, RequestId, Time,
};
use proptest::prelude::*;

use crate::api::event::{CardFault, Need, Request};
use crate::placement::{NAMES, by_name};
use crate::{Config, Driver, Event, Header};

const PAGES: u64 = 96;
const CARDS: u8 = 3;

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    Fault { card: u8, page: u64, write: bool },
    Group { card: u8, page: u64, pages: u64 },
    Host { page: u64, write: bool },
    Counter { card: u8, page: u64 },
    Migrate { page: u64, pages: u64, to: u8 },
    Answer { which: usize },
    Wait { micros: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let card = || 0..CARDS;
    let page = || 0..PAGES;
    prop_oneof![
        6 => (card(), page(), any::<bool>()).prop_map(|(card, page, write)| Step::Fault { card, page, write }),
        1 => (card(), page(), 1u64..6).prop_map(|(card, page, pages)| Step::Group { card, page, pages }),
        2 => (page(), any::<bool>()).prop_map(|(page, write)| Step::Host { page, write }),
        1 => (card(), page()).prop_map(|(card, page)| Step::Counter { card, page }),
        1 => (page(), 1u64..9, 0..=CARDS).prop_map(|(page, pages, to)| Step::Migrate { page, pages, to }),
        8 => (0usize..16).prop_map(|which| Step::Answer { which }),
        2 => (1u64..300).prop_map(|micros| Step::Wait { micros }),
    ]
}

/// A driver and the commands that are out.
struct World {
    driver: Driver,
    out: Vec<(CommandId, Epoch)>,
    log: Vec<String>,
    start: PageNo,
    now: Time,
    next: u64,
}

fn config() -> Config {
    let mut config = Config::embedded(PageRange::new(PageNo(1 << 12), 1 << 12), vec![24; 3]);
    config.limits.chains = 6;
    config
}

impl World {
    fn new(scheme: &str) -> World {
        let driver = Driver::new(config(), by_name(scheme).unwrap()).unwrap();
        let (start, now) = (driver.config().arena.start, Time::ZERO);
        let mut world = World { driver, out: Vec::new(), log: Vec::new(), start, now, next: 0 };
        let request = Request::Alloc { bytes: PAGES * 4096, name: "data".into() };
        world.handle(Event::Request { id: RequestId(0), request, after: &[] });
        while !world.out.is_empty() {
            world.take(&Step::Answer { which: 0 });
        }
        world
    }

    fn restored(&self, scheme: &str) -> World {
        let mut text = Vec::new();
        self.driver.save(&mut serde_json::Serializer::new(&mut text)).unwrap();
        let mut from = serde_json::Deserializer::from_slice(&text);
        let driver = Driver::restore(config(), by_name(scheme).unwrap(), &mut from).unwrap();
        World { driver, out: self.out.clone(), log: self.log.clone(), ..*self }
    }

    fn handle(&mut self, event: Event<'_>) {
        self.driver.handle(self.now, event);
        self.note();
    }

    fn note(&mut self) {
        while let Some(command) = self.driver.poll_command() {
            let Header { id, epoch, .. } = *command.header();
            self.out.push((id, epoch));
            self.log.push(format!("{command:?}"));
        }
        while let Some(reply) = self.driver.poll_reply() {
            self.log.push(format!("{reply:?}"));
        }
        self.log.push(format!("{:?}", self.driver.poll_timeout()));
    }

    fn take(&mut self, step: &Step) {
        self.next += 1;
        let id = FaultId(self.next);
        let page = |index: u64| self.start.offset(index);
        let range = |index: u64, pages: u64| PageRange::new(page(index), pages.min(PAGES - index));
        let access = |write: bool| if write { Access::Write } else { Access::Read };
        match *step {
            Step::Fault { card, page: at, write } => {
                let fault = CardFault { id, need: Need::Page(page(at), access(write)) };
                self.handle(Event::CardFaults { card: CardId(card), faults: &[fault] });
            }
            Step::Group { card, page: at, pages } => {
                let ranges = [(range(at, pages), Access::Write)];
                let fault = CardFault { id, need: Need::Group(ranges.into()) };
                self.handle(Event::CardFaults { card: CardId(card), faults: &[fault] });
            }
            Step::Host { page: at, write } => {
                self.handle(Event::HostFault { page: page(at), access: access(write) });
            }
            Step::Counter { card, page: at } => {
                let pages = range(at & !15, 16);
                self.handle(Event::CounterNotice { card: CardId(card), pages, count: 256 });
            }
            Step::Migrate { page: at, pages, to } => {
                let to = farside_types::MemoryId(to);
                let request = Request::Migrate { range: range(at, pages), to };
                self.handle(Event::Request { id: RequestId(self.next), request, after: &[] });
            }
            Step::Answer { which } => {
                if !self.out.is_empty() {
                    let (command, epoch) = self.out.remove(which % self.out.len());
                    self.handle(Event::Done { command, epoch, result: Ok(()) });
                }
            }
            Step::Wait { micros } => {
                self.now = Time(self.now.0 + micros * 1_000_000);
                self.driver.handle_timeout(self.now);
                self.note();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_restored_driver_goes_on_as_the_saved_one(
        scheme in 0..NAMES.len(),
        steps in prop::collection::vec(step(), 40..240),
        at in 0..40usize,
    ) {
        let name = NAMES[scheme];
        let mut world = World::new(name);
        let (before, after) = steps.split_at(steps.len() * at / 40);
        before.iter().for_each(|step| world.take(step));
        let mut other = world.restored(name);
        for step in after {
            world.take(step);
            other.take(step);
        }
        prop_assert_eq!(&world.log, &other.log);
        prop_assert_eq!(world.driver.stats(), other.driver.stats());
    }
}

#[test]
fn a_state_of_another_scheme_is_refused() {
    let mut text = Vec::new();
    World::new("grit").driver.save(&mut serde_json::Serializer::new(&mut text)).unwrap();
    let mut from = serde_json::Deserializer::from_slice(&text);
    let refused = Driver::restore(config(), by_name("on-touch").unwrap(), &mut from).err().unwrap();
    assert!(refused.to_string().contains("grit"), "{refused}");
}
