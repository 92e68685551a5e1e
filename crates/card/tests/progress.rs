//! Random commands and accesses on a small card against a flat map: what is granted is right, what
//! was filled is granted whatever the TLBs forgot, and drains neither end early nor hang.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use farside_card::{
    AccessId, AcquireError, Card, Drained, Geometry, Grant, Location, MappedRun, Need, Outcome,
    Raised,
};
use farside_types::{
    Access, Asid, CardId, CommandId, FaultId, FrameNo, JobId, MemoryId, PageNo, PageRange, PeId,
    Rights,
};
use proptest::prelude::*;

const ASID: Asid = Asid(1);
const PES: u16 = 3;

type Ranges = Vec<(PageRange, Access)>;

#[derive(Clone, Debug)]
enum Step {
    Map(u64, u32, u32, Rights),
    Unmap(u64, u64),
    Protect(u64, u64),
    Acquire(u16, Ranges),
    RaisePage(u16, u64, Access),
    RaiseGroup(u16, Ranges),
    Serve(prop::sample::Index),
    Resume(prop::sample::Index),
    End(u16),
}

fn access() -> impl Strategy<Value = Access> + Clone {
    prop_oneof![Just(Access::Read), Just(Access::Write)]
}

fn ranges() -> impl Strategy<Value = Ranges> {
    let range = (0..64u64, 1..20u64, access());
    let range = range.prop_map(|(page, count, a)| (PageRange::new(PageNo(page), count), a));
    prop::collection::vec(range, 1..4)
}

fn step() -> impl Strategy<Value = Step> {
    let rights = prop_oneof![Just(Rights::Read), Just(Rights::ReadWrite)];
    let pe = 0..PES;
    let index = any::<prop::sample::Index>();
    prop_oneof![
        3 => (0..64u64, 1..24u32, 0..9u32, rights).prop_map(|(p, c, f, r)| Step::Map(p, c, f, r)),
        2 => (0..64u64, 0..24u64).prop_map(|(p, c)| Step::Unmap(p, c)),
        1 => (0..64u64, 0..24u64).prop_map(|(p, c)| Step::Protect(p, c)),
        2 => (pe.clone(), ranges()).prop_map(|(e, r)| Step::Acquire(e, r)),
        3 => (pe.clone(), 0..64u64, access()).prop_map(|(e, p, a)| Step::RaisePage(e, p, a)),
        2 => (pe.clone(), ranges()).prop_map(|(e, r)| Step::RaiseGroup(e, r)),
        3 => index.clone().prop_map(Step::Serve),
        3 => index.prop_map(Step::Resume),
        4 => pe.prop_map(Step::End),
    ]
}

/// The card under test and everything that is known about it.
struct Pair {
    card: Card,
    /// What is mapped, whether a TLB still knows it or not.
    mapped: HashMap<u64, (Location, Rights)>,
    /// Open faults: their needs, and the pages mapped since they were raised.
    open: BTreeMap<FaultId, (Need, BTreeSet<u64>)>,
    /// What each stalled processing element waits for.
    waiting: HashMap<PeId, (FaultId, Ranges)>,
    held: HashMap<PeId, (AccessId, Ranges)>,
    drains: HashMap<CommandId, BTreeSet<AccessId>>,
    commands: u64,
}

fn needs(need: &Need) -> Ranges {
    need.ranges().collect()
}

fn pages_of(range: PageRange) -> std::ops::Range<u64> {
    range.start.0..range.end().0
}

impl Pair {
    fn new() -> Pair {
        let geometry = Geometry {
            pes: PES,
            l1_entries: 2,
            l2_entries: 8,
            l2_ways: 2,
            flexible_entries: 2,
            flexible_pages_min: 8,
            fault_entries: 2,
            ..Geometry::default()
        };
        let mut card = Card::new(CardId(0), 1000, geometry).unwrap();
        for pe in 0..PES {
            card.launch(PeId(pe), JobId(pe.into())).unwrap();
        }
        Pair {
            card,
            mapped: HashMap::new(),
            open: BTreeMap::new(),
            waiting: HashMap::new(),
            held: HashMap::new(),
            drains: HashMap::new(),
            commands: 0,
        }
    }

    fn map(&mut self, page: u64, count: u32, frame: u32, rights: Rights) {
        let location = Location::new(MemoryId(1), FrameNo(frame));
        let run = MappedRun::new(PageNo(page), count, location);
        self.card.map(ASID, [run].into_iter(), rights).unwrap();
        for i in 0..count {
            let page = page + u64::from(i);
            self.mapped.insert(page, (location.offset(i), rights));
            self.open.values_mut().for_each(|(_, filled)| {
                filled.insert(page);
            });
        }
    }

    fn drain(&mut self, range: PageRange, protect: bool) {
        self.commands += 1;
        let command = CommandId(self.commands);
        let ranges = [range].into_iter();
        let drained = if protect {
            self.card.protect(command, ASID, ranges, Rights::Read)
        } else {
            self.card.unmap(command, ASID, ranges)
        };
        for page in pages_of(range) {
            if protect {
                self.mapped.entry(page).and_modify(|e| e.1 = Rights::Read);
            } else {
                self.mapped.remove(&page);
                self.open.values_mut().for_each(|(_, filled)| {
                    filled.remove(&page);
                });
            }
        }
        let waits = |(used, a): &(PageRange, Access)| {
            !range.is_empty() && used.overlaps(range) && (!protect || a.is_write())
        };
        let held = self.held.values().filter(|held| held.1.iter().any(waits));
        let left: BTreeSet<AccessId> = held.map(|held| held.0).collect();
        match drained {
            Drained::Now => assert!(left.is_empty(), "{left:?} still use {range}"),
            Drained::Waiting(count) => assert_eq!(count, left.len()),
        }
        if !left.is_empty() {
            self.drains.insert(command, left);
        }
    }

    fn covered(&self, ranges: &Ranges, known: impl Fn(u64) -> bool) -> bool {
        ranges.iter().all(|&(range, access)| {
            pages_of(range).all(|page| {
                let rights = self.mapped.get(&page).map(|entry| entry.1);
                known(page) && rights.is_some_and(|rights| rights.allows(access))
            })
        })
    }

    fn hold(&mut self, grant: &Grant, ranges: Ranges) {
        let mut granted = grant.runs.iter().flat_map(|run| {
            (0..run.count).map(|i| (run.page.0 + u64::from(i), run.location.offset(i)))
        });
        for (page, access) in ranges.iter().flat_map(|&(r, a)| pages_of(r).map(move |p| (p, a))) {
            let (location, rights) = self.mapped[&page];
            assert_eq!(granted.next(), Some((page, location)));
            assert!(rights.allows(access));
        }
        assert_eq!(granted.next(), None);
        self.held.insert(grant.pe, (grant.access, ranges));
    }

    fn acquire(&mut self, pe: PeId, ranges: Ranges) {
        match self.card.acquire(pe, ASID, &ranges) {
            Ok(grant) => self.hold(&grant, ranges),
            Err(AcquireError::HoldsMemory { .. }) => assert!(self.held.contains_key(&pe)),
            Err(error) => assert_eq!(error, AcquireError::NotResident),
        }
    }

    fn raise(&mut self, pe: PeId, need: Need) {
        let job = JobId(pe.0.into());
        let Ok(raised) = self.card.raise(pe, job, ASID, need.clone()) else {
            assert!(self.held.contains_key(&pe) || self.waiting.contains_key(&pe));
            return;
        };
        match raised {
            Raised::Full => assert_eq!(self.open.len(), 2),
            Raised::Joined(id) => {
                self.waiting.insert(pe, (id, needs(&need)));
            }
            Raised::Queued(id) => {
                self.waiting.insert(pe, (id, needs(&need)));
                self.open.insert(id, (need, BTreeSet::new()));
            }
        }
    }

    /// Maps what a fault needs, page by page, as the driver does.
    fn serve(&mut self, id: FaultId) {
        for fault in self.card.take_faults(9) {
            self.open.get_mut(&fault.id).unwrap().0 = fault.need;
        }
        for (range, access) in needs(&self.open[&id].0) {
            for page in pages_of(range) {
                let known = self.mapped.get(&page).map(|entry| entry.1);
                let rights = known.map_or(access.rights(), |known| known.max(access.rights()));
                self.map(page, 1, (page % 7 * 100) as u32, rights);
            }
        }
    }

    fn resume(&mut self, id: FaultId) {
        let (_, filled) = self.open.remove(&id).unwrap();
        let answers = self.card.resume(id);
        assert!(!answers.is_empty(), "somebody waits for every open fault");
        for answer in answers {
            let (fault, ranges) = self.waiting.remove(&answer.pe).unwrap();
            assert_eq!(fault, id);
            match &answer.outcome {
                Outcome::Granted(grant) => self.hold(grant, ranges),
                Outcome::Retry => assert!(
                    !self.covered(&ranges, |page| filled.contains(&page)),
                    "all of {ranges:?} was filled, and yet the access was sent back"
                ),
                other => panic!("nobody cancelled: {other:?}"),
            }
        }
    }

    fn end(&mut self, pe: PeId) {
        let Some((access, _)) = self.held.remove(&pe) else {
            return;
        };
        let mut complete = self.card.end(access).to_vec();
        complete.sort_unstable();
        for left in self.drains.values_mut() {
            left.remove(&access);
        }
        let done = self.drains.iter().filter(|(_, left)| left.is_empty());
        let mut expected: Vec<CommandId> = done.map(|(&command, _)| command).collect();
        expected.sort_unstable();
        assert_eq!(complete, expected);
        self.drains.retain(|_, left| !left.is_empty());
    }
}

fn apply(pair: &mut Pair, step: Step) {
    let nth = |pair: &Pair, index: prop::sample::Index| {
        let open = pair.open.len();
        (open > 0).then(|| *pair.open.keys().nth(index.index(open)).unwrap())
    };
    match step {
        Step::Map(page, count, frame, rights) => pair.map(page, count, frame, rights),
        Step::Unmap(page, count) => pair.drain(PageRange::new(PageNo(page), count), false),
        Step::Protect(page, count) => pair.drain(PageRange::new(PageNo(page), count), true),
        Step::Acquire(pe, ranges) if !pair.waiting.contains_key(&PeId(pe)) => {
            pair.acquire(PeId(pe), ranges);
        }
        Step::Acquire(..) => {}
        Step::RaisePage(pe, page, access) => pair.raise(PeId(pe), Need::Page(PageNo(page), access)),
        Step::RaiseGroup(pe, ranges) => pair.raise(PeId(pe), Need::Group(Arc::from(ranges))),
        Step::Serve(index) => nth(pair, index).into_iter().for_each(|id| pair.serve(id)),
        Step::Resume(index) => nth(pair, index).into_iter().for_each(|id| pair.resume(id)),
        Step::End(pe) => pair.end(PeId(pe)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn grants_are_right_filled_faults_are_granted_and_drains_end_exactly_on_time(
        steps in prop::collection::vec(step(), 1..120)
    ) {
        let mut pair = Pair::new();
        for step in steps {
            apply(&mut pair, step);
        }
        let open: Vec<FaultId> = pair.open.keys().copied().collect();
        for id in open {
            pair.serve(id);
            pair.resume(id);
        }
        for pe in 0..PES {
            pair.end(PeId(pe));
        }
        prop_assert!(pair.drains.is_empty(), "a drain hangs");
        prop_assert_eq!(pair.card.in_flight().drains_waiting(), 0);
        prop_assert!(pair.waiting.is_empty(), "a processing element hangs");
    }
}
