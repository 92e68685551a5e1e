//! Drains: complete when the accesses that began before them have ended; not earlier, not later.

use farside_card::{AccessId, DrainKind, Drained, InFlight};
use farside_types::{Access, Asid, CommandId, PageNo, PageRange, PeId};
use proptest::prelude::*;

const ASID: Asid = Asid(1);

fn pages(start: u64, count: u64) -> PageRange {
    PageRange::new(PageNo(start), count)
}

fn begin(flights: &mut InFlight, pe: u16, range: PageRange, access: Access) -> AccessId {
    flights.begin(PeId(pe), ASID, [(range, access)].into_iter())
}

fn drain(flights: &mut InFlight, command: u64, range: PageRange) -> Drained {
    let ranges = [range].into_iter();
    flights.drain(CommandId(command), ASID, ranges, DrainKind::Everyone)
}

#[test]
fn a_drain_waits_for_the_last_access_that_overlaps_and_not_less() {
    let mut flights = InFlight::new();
    let first = begin(&mut flights, 0, pages(0, 10), Access::Read);
    let second = begin(&mut flights, 1, pages(9, 10), Access::Write);
    let apart = begin(&mut flights, 2, pages(100, 1), Access::Write);
    assert_eq!(drain(&mut flights, 7, pages(5, 5)), Drained::Waiting(2));
    assert!(flights.end(apart).is_empty());
    assert!(flights.end(first).is_empty(), "one access is still in flight");
    assert_eq!(flights.end(second), [CommandId(7)]);
    assert_eq!(flights.drains_waiting(), 0);
}

#[test]
fn a_drain_does_not_wait_for_accesses_that_begin_after_it() {
    let mut flights = InFlight::new();
    let before = begin(&mut flights, 0, pages(0, 1), Access::Read);
    assert_eq!(drain(&mut flights, 7, pages(0, 1)), Drained::Waiting(1));
    let _after = begin(&mut flights, 1, pages(0, 1), Access::Read);
    assert_eq!(flights.end(before), [CommandId(7)]);
}

#[test]
fn a_drain_of_writers_lets_readers_be() {
    let mut flights = InFlight::new();
    let _reader = begin(&mut flights, 0, pages(0, 4), Access::Read);
    let writer = begin(&mut flights, 1, pages(0, 4), Access::Write);
    let ranges = [pages(2, 1)].into_iter();
    let drained = flights.drain(CommandId(3), ASID, ranges, DrainKind::Writers);
    assert_eq!(drained, Drained::Waiting(1));
    assert_eq!(flights.end(writer), [CommandId(3)]);
}

#[test]
fn another_address_space_is_not_drained() {
    let mut flights = InFlight::new();
    begin(&mut flights, 0, pages(0, 4), Access::Write);
    let ranges = [pages(0, 4)].into_iter();
    let drained = flights.drain(CommandId(3), Asid(2), ranges, DrainKind::Everyone);
    assert_eq!(drained, Drained::Now);
    assert_eq!(flights.drain_all(CommandId(4), ASID), Drained::Waiting(1));
}

#[test]
fn an_access_ended_twice_completes_nothing_the_second_time() {
    let mut flights = InFlight::new();
    let one = begin(&mut flights, 0, pages(0, 1), Access::Write);
    let two = begin(&mut flights, 1, pages(0, 1), Access::Write);
    assert_eq!(drain(&mut flights, 7, pages(0, 1)), Drained::Waiting(2));
    assert!(flights.end(one).is_empty());
    assert!(flights.end(one).is_empty(), "a stale end completed the drain");
    assert_eq!(flights.end(two), [CommandId(7)]);
}

#[derive(Clone, Debug)]
enum Step {
    Begin(u64, u64, bool, u64),
    End(prop::sample::Index),
    Drain(Vec<(u64, u64)>, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..64u64, 1..16u64, any::<bool>(), 0..64u64)
            .prop_map(|(p, c, w, q)| Step::Begin(p, c, w, q)),
        3 => any::<prop::sample::Index>().prop_map(Step::End),
        2 => (prop::collection::vec((0..64u64, 0..16u64), 0..6), any::<bool>())
            .prop_map(|(ranges, writers)| Step::Drain(ranges, writers)),
    ]
}

/// A page set and a list of accesses left, per drain: the slow and obvious way.
#[derive(Default)]
struct Reference {
    flights: Vec<(AccessId, Vec<(u64, bool)>)>,
    drains: Vec<(CommandId, Vec<AccessId>)>,
}

impl Reference {
    fn end(&mut self, id: AccessId) -> Vec<CommandId> {
        self.flights.retain(|flight| flight.0 != id);
        for drain in &mut self.drains {
            drain.1.retain(|&left| left != id);
        }
        let complete = self.drains.iter().filter(|drain| drain.1.is_empty());
        let complete = complete.map(|drain| drain.0).collect();
        self.drains.retain(|drain| !drain.1.is_empty());
        complete
    }

    fn drain(&mut self, id: CommandId, ranges: &[(u64, u64)], writers: bool) -> usize {
        let drained = |page| ranges.iter().any(|&(p, c)| (p..p + c).contains(&page));
        let waits = |uses: &[(u64, bool)]| uses.iter().any(|&(p, w)| (w || !writers) && drained(p));
        let flights = self.flights.iter().filter(|flight| waits(&flight.1));
        let left: Vec<AccessId> = flights.map(|flight| flight.0).collect();
        let count = left.len();
        if count > 0 {
            self.drains.push((id, left));
        }
        count
    }
}

proptest! {
    #[test]
    fn drains_complete_exactly_when_the_accesses_before_them_have_ended(
        steps in prop::collection::vec(step(), 1..80)
    ) {
        let mut flights = InFlight::new();
        let mut reference = Reference::default();
        for (number, step) in steps.iter().enumerate() {
            let command = CommandId(number as u64);
            match step {
                &Step::Begin(page, count, write, other) => {
                    let access = if write { Access::Write } else { Access::Read };
                    let ranges = [(pages(page, count), access), (pages(other, 1), Access::Read)];
                    let id = flights.begin(PeId(0), ASID, ranges.into_iter());
                    let mut uses: Vec<_> = (page..page + count).map(|p| (p, write)).collect();
                    uses.push((other, false));
                    reference.flights.push((id, uses));
                }
                Step::End(index) if !reference.flights.is_empty() => {
                    let id = reference.flights[index.index(reference.flights.len())].0;
                    let mut complete = flights.end(id).to_vec();
                    complete.sort_unstable();
                    prop_assert_eq!(complete, reference.end(id));
                }
                Step::End(_) => {}
                Step::Drain(ranges, writers) => {
                    let kind = if *writers { DrainKind::Writers } else { DrainKind::Everyone };
                    let list = ranges.iter().map(|&(p, c)| pages(p, c));
                    let drained = flights.drain(command, ASID, list, kind);
                    let expected = match reference.drain(command, ranges, *writers) {
                        0 => Drained::Now,
                        left => Drained::Waiting(left),
                    };
                    prop_assert_eq!(drained, expected);
                }
            }
        }
    }
}
