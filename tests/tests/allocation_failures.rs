//! Everything the driver allocates can run out: each place, one after the other. What fails is told,
//! nothing is lost, and the same request works when there is room again (invariant 31).

use farside_svm::{
    CardFault, Command, Config, Driver, Event, Limits, Need, Outcome, Reply, Request, RequestError,
    RingOp, placement::OnTouch,
};
use farside_types::{
    Access, CancelReason, CardId, FaultId, MemoryId, PAGE_SIZE, PageNo, PageRange, RequestId, Time,
};

const CARD: CardId = CardId(0);
const FRAMES: u64 = 8;

/// A driver and a machine that does everything at once.
struct Fixture {
    driver: Driver,
    next: u64,
}

impl Fixture {
    fn new(arena_pages: u64, change: impl Fn(&mut Limits)) -> Fixture {
        let arena = PageRange::new(PageNo(512), arena_pages);
        let mut config = Config::embedded(arena, vec![FRAMES as u32]);
        config.prefetch.density_percent = 100;
        change(&mut config.limits);
        Fixture { driver: Driver::new(config, Box::new(OnTouch)).unwrap(), next: 0 }
    }

    fn ask(&mut self, request: Request) -> Result<Outcome, RequestError> {
        self.next += 1;
        let id = RequestId(self.next);
        self.driver.handle(Time::from_nanos(self.next), Event::Request { id, request, after: &[] });
        self.carry_out();
        let reply = self.driver.poll_reply();
        self.driver.check().unwrap();
        match reply {
            Some(Reply::Request { id: of, result }) if of == id => result,
            other => panic!("{id} was not answered: {other:?}"),
        }
    }

    fn alloc(&mut self, pages: u64) -> Result<PageRange, RequestError> {
        let bytes = pages * PAGE_SIZE as u64;
        match self.ask(Request::Alloc { bytes, name: "".into() })? {
            Outcome::Allocated(range) => Ok(range),
            other => panic!("an allocation was answered with {other:?}"),
        }
    }

    /// Raises faults together; gives how each ended, in the order of their ids.
    fn fault(&mut self, needs: &[Need]) -> Vec<Result<(), CancelReason>> {
        let first = self.next + 1;
        let mut faults = Vec::new();
        for need in needs {
            self.next += 1;
            faults.push(CardFault { id: FaultId(self.next), need: need.clone() });
        }
        let now = Time::from_nanos(self.next);
        self.driver.handle(now, Event::CardFaults { card: CARD, faults: &faults });
        let mut ended = self.carry_out();
        ended.sort_by_key(|(id, _)| *id);
        assert_eq!(ended.len(), needs.len(), "each fault ends once");
        assert_eq!(ended[0].0, FaultId(first));
        self.driver.check().unwrap();
        ended.into_iter().map(|(_, how)| how).collect()
    }

    fn carry_out(&mut self) -> Vec<(FaultId, Result<(), CancelReason>)> {
        let mut ended = Vec::new();
        while let Some(command) = self.driver.poll_command() {
            if let Command::Ring(_, step) = &command {
                match &step.op {
                    RingOp::Resume { faults } => ended.extend(faults.iter().map(|&f| (f, Ok(())))),
                    RingOp::Cancel { faults, reason } => {
                        ended.extend(faults.iter().map(|&f| (f, Err(*reason))));
                    }
                    _ => {}
                }
            }
            self.driver.handle(Time::from_nanos(self.next), command.header().done(Ok(())));
        }
        ended
    }

    fn pin(&mut self, range: PageRange) -> Result<Outcome, RequestError> {
        self.ask(Request::Pin { range, at: CARD.memory() })
    }
}

fn page(range: PageRange, index: u64) -> Need {
    Need::Page(range.start.offset(index), Access::Write)
}

fn group(range: PageRange) -> Need {
    Need::Group([(range, Access::Write)].into())
}

#[test]
fn no_address_space() {
    let mut fixture = Fixture::new(512, |_| {});
    let all = fixture.alloc(500).unwrap();
    let refused = fixture.alloc(13).unwrap_err();
    assert_eq!(refused, RequestError::OutOfAddressSpace { pages: 13, largest_gap: 12 });
    fixture.ask(Request::Free { addr: all.start.addr() }).unwrap();
    assert_eq!(fixture.alloc(512).unwrap().count, 512);
}

#[test]
fn no_frame_for_a_fault_because_all_are_pinned() {
    let mut fixture = Fixture::new(512, |_| {});
    let (pinned, other) = (fixture.alloc(FRAMES).unwrap(), fixture.alloc(4).unwrap());
    fixture.pin(pinned).unwrap();
    assert_eq!(fixture.fault(&[page(other, 0)]), [Err(CancelReason::OutOfMemory)]);
    assert_eq!(fixture.fault(&[group(other)]), [Err(CancelReason::OutOfMemory)]);
    assert_eq!(fixture.driver.page(other.start).owner, None, "still fresh, nothing was taken");
    fixture.ask(Request::Unpin { range: pinned }).unwrap();
    assert_eq!(fixture.fault(&[page(other, 0), group(other)]), [Ok(()), Ok(())]);
}

#[test]
fn no_frame_for_a_migration_a_pin_or_a_prefetch() {
    let mut fixture = Fixture::new(512, |_| {});
    let (pinned, other) = (fixture.alloc(FRAMES).unwrap(), fixture.alloc(4).unwrap());
    fixture.pin(pinned).unwrap();
    let to = CARD.memory();
    let misfit = RequestError::DoesNotFit { memory: to, pages: 4, frames: FRAMES, pinned: FRAMES };
    assert_eq!(fixture.ask(Request::Migrate { range: other, to }), Err(misfit.clone()));
    assert_eq!(fixture.pin(other), Err(misfit));
    let prefetched = fixture.ask(Request::Prefetch { range: other, to, access: Access::Write });
    assert_eq!(prefetched, Ok(Outcome::Done { pages_moved: 0 }), "it takes the room there is");
    fixture.ask(Request::Unpin { range: pinned }).unwrap();
    let moved = fixture.ask(Request::Migrate { range: other, to });
    assert_eq!(moved, Ok(Outcome::Done { pages_moved: 4 }));
}

#[test]
fn no_frame_but_pages_that_may_leave() {
    let mut fixture = Fixture::new(512, |_| {});
    let (first, second) = (fixture.alloc(FRAMES).unwrap(), fixture.alloc(FRAMES).unwrap());
    assert_eq!(fixture.fault(&[group(first)]), [Ok(())]);
    assert_eq!(fixture.fault(&[group(second)]), [Ok(())], "the first ones were evicted");
    let home = |page| fixture.driver.page(page).owner;
    assert!(first.pages().all(|page| home(page) == Some(MemoryId::HOST)));
}

#[test]
fn no_chain_but_one() {
    let mut fixture = Fixture::new(512, |limits| {
        limits.chains = 1;
        limits.chain_pages = 1;
    });
    let range = fixture.alloc(6).unwrap();
    let needs: Vec<Need> = (0..6).map(|i| page(range, i)).collect();
    assert_eq!(fixture.fault(&needs), [Ok(()); 6], "one after the other");
    let to = MemoryId::HOST;
    let back = fixture.ask(Request::Migrate { range, to });
    assert_eq!(back, Ok(Outcome::Done { pages_moved: 6 }));
}

#[test]
fn no_room_for_one_more_open_fault() {
    let mut fixture = Fixture::new(512, |limits| limits.faults = 2);
    let range = fixture.alloc(3).unwrap();
    let ended = fixture.fault(&[page(range, 0), page(range, 1), page(range, 2)]);
    assert_eq!(ended, [Ok(()), Ok(()), Err(CancelReason::TooManyFaults)]);
    assert_eq!(fixture.fault(&[page(range, 2)]), [Ok(())]);
}

#[test]
fn no_room_for_one_more_open_request() {
    let mut fixture = Fixture::new(512, |limits| limits.requests = 1);
    let range = fixture.alloc(2).unwrap();
    let to = CARD.memory();
    let request = Request::Migrate { range, to };
    fixture.driver.handle(Time::ZERO, Event::Request { id: RequestId(100), request, after: &[] });
    let request = Request::Trim;
    fixture.driver.handle(Time::ZERO, Event::Request { id: RequestId(101), request, after: &[] });
    let refused = Err(RequestError::TooManyRequests { open: 1 });
    assert_eq!(
        fixture.driver.poll_reply(),
        Some(Reply::Request { id: RequestId(101), result: refused })
    );
    fixture.carry_out();
    assert!(matches!(fixture.driver.poll_reply(), Some(Reply::Request { result: Ok(_), .. })));
    assert_eq!(fixture.ask(Request::Trim), Ok(Outcome::Done { pages_moved: 0 }));
}

#[test]
fn a_group_larger_than_the_card_or_the_limit() {
    let mut fixture = Fixture::new(512, |limits| limits.group_pages = 6);
    let range = fixture.alloc(7).unwrap();
    assert_eq!(fixture.fault(&[group(range)]), [Err(CancelReason::GroupTooLarge)]);
    let mut fixture = Fixture::new(512, |_| {});
    let range = fixture.alloc(FRAMES + 1).unwrap();
    assert_eq!(fixture.fault(&[group(range)]), [Err(CancelReason::GroupTooLarge)]);
}
