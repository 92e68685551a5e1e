//! The judge is judged: the machine, driven by hand without a driver, must let the right order
//! pass and must see each wrong one.

use farside_svm::{
    Command, FaultIds, Header, HostOp, Mover, Phase, Place, Request, RequestError, RingOp, Run,
    Runs, Step, StepErrorKind, TransferOp, Wait,
};
use farside_types::{
    Access, AgentId, CancelReason, CardId, CommandId, Epoch, FaultId, FrameNo, JobId, MemoryId,
    PageNo, PageRange, Reason, Rights, StreamId,
};

use crate::access::{Fault, WordAccess};
use crate::failures::{Sabotage, Saboteur};
use crate::hostility::Hostility;
use crate::job::{JobState, Script};
use crate::machine::{Machine, Parcel, Work};
use crate::setup::{ARENA_START, Setup};
use crate::transfers::Fate;
use crate::violation::Violation;
use crate::world::World;

const CARD: CardId = CardId(0);
const PAGE: PageNo = ARENA_START;
const ON_CARD: MemoryId = MemoryId(1);

/// A machine of two cards, one allocation of 16 pages, and a hand that gives commands.
struct Hand {
    machine: Machine,
    told: Vec<Parcel>,
    next: u64,
}

impl Hand {
    fn new() -> Hand {
        let setup = Setup::plain(&[8, 8]);
        let mut machine = Machine::new(&setup.config, 0, Hostility::none(), 1);
        let range = PageRange::new(PAGE, 16);
        machine.facts.allocated(range, 1);
        machine.allocations.push(range);
        machine.stamp = 2;
        Hand { machine, told: Vec::new(), next: 0 }
    }

    fn give(&mut self, order: impl Into<Order>) -> Result<(), Violation> {
        self.next += 1;
        let header = Header {
            id: CommandId(self.next),
            epoch: Epoch(0),
            wait: Wait::Awaited,
            phase: Phase::Copy,
            reason: Reason::Demand,
        };
        self.machine.take(match order.into() {
            Order::Host(op) => Command::Host(Step { header, op }),
            Order::Ring(op) => Command::Ring(CARD, Step { header, op }),
            Order::Transfer(mover, op) => Command::Transfer(mover, Step { header, op }),
        })
    }

    /// Gives a command and lets everything happen that is due.
    fn run(&mut self, order: impl Into<Order>) -> Result<(), Violation> {
        self.give(order)?;
        self.rest()
    }

    fn rest(&mut self) -> Result<(), Violation> {
        while let Some((at, work)) = self.machine.agenda.pop() {
            self.machine.now = at;
            self.machine.stamp += 1;
            match work {
                Work::Deliver(parcel) => {
                    if let Parcel::Done(id, ..) = &parcel {
                        self.machine.transfers.remove(id);
                    }
                    self.told.push(parcel);
                }
                other => self.machine.run(other)?,
            }
        }
        Ok(())
    }

    /// Fills the page's frame on the card and maps it there.
    fn bring(&mut self, page: PageNo, frame: u32) -> Result<(), Violation> {
        self.run(TransferOp::Fill { memory: ON_CARD, runs: runs(page, frame) })?;
        self.run(map(page, frame))
    }

    fn access(&mut self, agent: AgentId, access: WordAccess) -> Result<(), Violation> {
        let found = self.machine.hit(agent, access.page, access.op.access()).expect("a hit");
        self.machine.perform(agent, access, found).map(|_| ())
    }

    fn launch(&mut self) -> Result<JobId, Violation> {
        let (job, _) =
            self.machine.ask_launch(CARD, StreamId(0), Vec::new(), Script::default().lingering());
        self.run(RingOp::Launch { job })?;
        Ok(job)
    }
}

/// What is to be done; bytes are moved by the CPU if nobody else is named.
enum Order {
    Host(HostOp),
    Ring(RingOp),
    Transfer(Mover, TransferOp),
}

impl From<HostOp> for Order {
    fn from(op: HostOp) -> Order {
        Order::Host(op)
    }
}

impl From<RingOp> for Order {
    fn from(op: RingOp) -> Order {
        Order::Ring(op)
    }
}

impl From<TransferOp> for Order {
    fn from(op: TransferOp) -> Order {
        Order::Transfer(Mover::HostCpu, op)
    }
}

impl From<(Mover, TransferOp)> for Order {
    fn from((mover, op): (Mover, TransferOp)) -> Order {
        Order::Transfer(mover, op)
    }
}

fn runs(page: PageNo, dst: u32) -> Runs {
    let src = FrameNo((page.0 - ARENA_START.0) as u32);
    [Run { page, count: 1, src, dst: FrameNo(dst) }].into()
}

fn host_runs(page: PageNo) -> Runs {
    runs(page, (page.0 - ARENA_START.0) as u32)
}

fn map(page: PageNo, frame: u32) -> RingOp {
    RingOp::Map { runs: runs(page, frame), memory: ON_CARD, rights: Rights::ReadWrite }
}

fn host_map(page: PageNo) -> HostOp {
    HostOp::Map { runs: host_runs(page), rights: Rights::ReadWrite }
}

fn copy_out(page: PageNo, frame: u32) -> TransferOp {
    let (from, to) = (Place::Memory(MemoryId::HOST), Place::Memory(ON_CARD));
    TransferOp::Copy { from, to, runs: runs(page, frame) }
}

fn says<T: std::fmt::Debug>(result: Result<T, Violation>, words: &str) {
    let violation = result.expect_err("the judge must object");
    assert!(violation.0.contains(words), "{violation}");
}

#[test]
fn a_move_in_the_right_order_passes_and_carries_the_bytes() -> Result<(), Violation> {
    let mut hand = Hand::new();
    hand.run(host_map(PAGE))?;
    hand.access(AgentId::CPU, WordAccess::increment(PAGE, 1))?;
    hand.run(HostOp::Unmap { runs: host_runs(PAGE) })?;
    hand.run(copy_out(PAGE, 3))?;
    hand.run(map(PAGE, 3))?;
    hand.access(CARD.agent(), WordAccess::increment(PAGE, 1))?;
    assert_eq!(hand.machine.reference.page(PAGE)[1], 2);
    assert_eq!(hand.told.len(), 4);
    Ok(())
}

#[test]
fn a_copy_before_the_cpu_is_stopped_is_seen() -> Result<(), Violation> {
    let mut hand = Hand::new();
    hand.run(host_map(PAGE))?;
    hand.give(copy_out(PAGE, 3))?;
    says(hand.access(AgentId::CPU, WordAccess::store(PAGE, 0)), "source of");
    Ok(())
}

#[test]
fn a_write_beside_another_copy_that_is_mapped_is_seen() -> Result<(), Violation> {
    let mut hand = Hand::new();
    hand.launch()?;
    hand.bring(PAGE, 3)?;
    hand.run(host_map(PAGE))?;
    says(hand.access(AgentId::CPU, WordAccess::store(PAGE, 0)), "still has the page mapped");
    Ok(())
}

#[test]
fn a_posted_invalidation_on_an_idle_card_is_no_reason_to_object() -> Result<(), Violation> {
    let mut hand = Hand::new();
    hand.bring(PAGE, 3)?;
    hand.run(host_map(PAGE))?;
    hand.give(RingOp::Unmap { runs: runs(PAGE, 3), tells: false })?;
    hand.access(AgentId::CPU, WordAccess::store(PAGE, 0))?;
    hand.rest()?;
    assert!(hand.machine.translation(CARD.agent(), PAGE).is_none());
    Ok(())
}

#[test]
fn a_fresh_page_that_was_not_filled_is_seen() -> Result<(), Violation> {
    let mut hand = Hand::new();
    says(hand.run(map(PAGE, 3)), "maps page");
    Ok(())
}

#[test]
fn a_stale_copy_is_seen_by_the_load() -> Result<(), Violation> {
    let mut hand = Hand::new();
    hand.bring(PAGE, 3)?;
    hand.access(CARD.agent(), WordAccess::increment(PAGE, 0))?;
    hand.run(host_map(PAGE))?;
    says(hand.access(AgentId::CPU, WordAccess::load(PAGE, 0)), "was written last");
    Ok(())
}

#[test]
fn a_frame_that_gets_another_page_while_it_is_mapped_is_seen() -> Result<(), Violation> {
    let mut hand = Hand::new();
    hand.bring(PAGE, 3)?;
    says(hand.bring(PAGE.offset(1), 3), "still has page");
    Ok(())
}

#[test]
fn a_drain_waits_for_what_is_in_flight() -> Result<(), Violation> {
    let mut hand = Hand::new();
    let job = hand.launch()?;
    hand.bring(PAGE, 3)?;
    let held = hand.machine.hit(CARD.agent(), PAGE, Access::Write).expect("mapped");
    hand.machine.hold_group(CARD, job, vec![(PAGE, Access::Write, held)]);
    hand.give(RingOp::Unmap { runs: runs(PAGE, 3), tells: false })?;
    let before = hand.told.len();
    while let Some((at, work)) = hand.machine.agenda.pop() {
        hand.machine.now = at;
        match work {
            Work::Deliver(parcel) => hand.told.push(parcel),
            other => hand.machine.run(other)?,
        }
        let drained = hand.machine.flights.is_empty();
        assert!(drained || hand.told.len() == before, "completed before the drain");
    }
    assert_eq!(hand.told.len(), before + 1);
    Ok(())
}

#[test]
fn a_frame_of_a_silent_copy_must_not_be_used() -> Result<(), Violation> {
    let mut hand = Hand::new();
    hand.machine.planned_fates.push_back(Fate::Silent);
    hand.give(copy_out(PAGE, 3))?;
    hand.give(copy_out(PAGE.offset(1), 3))?;
    says(hand.rest(), "may still write");
    Ok(())
}

#[test]
fn a_failed_copy_leaves_bytes_that_no_load_accepts() -> Result<(), Violation> {
    let mut hand = Hand::new();
    hand.machine.planned_fates.push_back(Fate::Fails(0));
    hand.run(copy_out(PAGE, 3))?;
    assert!(hand.told.iter().any(|told| matches!(told, Parcel::Done(_, _, Err(_)))));
    hand.run(map(PAGE, 3))?;
    says(hand.access(CARD.agent(), WordAccess::load(PAGE, 3)), "was written last");
    Ok(())
}

#[test]
fn a_fault_is_answered_once_and_finds_its_page() -> Result<(), Violation> {
    let mut hand = Hand::new();
    let job = hand.launch()?;
    hand.machine.raise_word(CARD, job, WordAccess::load(PAGE, 0));
    let id = *hand.machine.faults.keys().next().expect("a fault");
    hand.rest()?;
    let resume = || RingOp::Resume { faults: [id].into() };
    says(hand.give(resume()), "before the driver was told");
    let open = |fault: &mut Fault| fault.delivered = true;
    open(hand.machine.faults.get_mut(&id).expect("open"));
    hand.give(resume())?;
    says(hand.give(resume()), "a second time");
    says(hand.rest(), "is not there");
    let unknown = RingOp::Resume { faults: [FaultId(99)].into() };
    says(hand.give(unknown), "not open");
    Ok(())
}

#[test]
fn an_error_without_a_reason_is_seen() -> Result<(), Violation> {
    let mut hand = Hand::new();
    let job = hand.launch()?;
    hand.machine.raise_word(CARD, job, WordAccess::store(PAGE, 0));
    let fault = hand.machine.faults.values().next().expect("a fault").clone();
    for reason in [
        CancelReason::Unallocated,
        CancelReason::ReadOnly,
        CancelReason::Lost,
        CancelReason::CopyFailed,
        CancelReason::OutOfMemory,
        CancelReason::GroupTooLarge,
        CancelReason::CardLost(CARD),
        CancelReason::TooManyFaults,
        CancelReason::PinnedElsewhere,
        CancelReason::HostKeeps,
        CancelReason::WindowFull,
    ] {
        says(hand.machine.judge_cancel(&fault, reason), "without a reason");
    }
    hand.machine.facts.dying(PageRange::page(PAGE), 50);
    hand.machine.judge_cancel(&fault, CancelReason::Freed)?;
    says(hand.machine.judge_poison(CommandId(9), PAGE.offset(1)), "never failed");
    hand.machine.judge_poison(CommandId(9), PAGE)
}

#[test]
fn what_failed_before_a_fault_may_be_its_reason_too() -> Result<(), Violation> {
    let mut hand = Hand::new();
    let job = hand.launch()?;
    hand.machine.raise_word(CARD, job, WordAccess::store(PAGE, 0));
    let fault = hand.machine.faults.values().next().expect("a fault").clone();
    // Eight frames, seven of them with pages that could not be sent away.
    for (at, frame) in hand.machine.memory_mut(ON_CARD).frames.iter_mut().enumerate() {
        frame.page = Some(PAGE.offset(1 + at as u64));
    }
    hand.machine.facts.each(PageRange::new(PAGE.offset(1), 7), |facts| facts.stays = true);
    says(hand.machine.judge_cancel(&fault, CancelReason::OutOfMemory), "without a reason");
    hand.machine.facts.each(PageRange::new(PAGE.offset(8), 1), |facts| facts.stays = true);
    hand.machine.judge_cancel(&fault, CancelReason::OutOfMemory)?;
    // They are tried again before the next is refused.
    says(hand.machine.judge_cancel(&fault, CancelReason::OutOfMemory), "without a reason");
    // A card that may still write what lies between two others.
    says(hand.machine.judge_cancel(&fault, CancelReason::CopyFailed), "without a reason");
    hand.machine.card_mut(CardId(1)).doubtful = true;
    hand.machine.judge_cancel(&fault, CancelReason::CopyFailed)
}

/// An answer that its card refused is given again, and what was its reason may be over.
#[test]
fn an_error_that_is_given_again_needs_no_other_reason() -> Result<(), Violation> {
    let mut hand = Hand::new();
    let job = hand.launch()?;
    hand.machine.raise_word(CARD, job, WordAccess::store(PAGE, 0));
    hand.machine.flush_faults(CARD);
    for fault in hand.machine.faults.values_mut() {
        fault.delivered = true;
    }
    let faults: FaultIds = hand.machine.faults.keys().copied().collect();
    let cancel = |reason| RingOp::Cancel { faults: faults.clone(), reason };
    let range = PageRange::page(PAGE);
    hand.machine.facts.each(range, |facts| facts.lost = true);
    let once = Sabotage { at: 0, kind: StepErrorKind::Transfer, times: 1 };
    hand.machine.saboteur = Saboteur::new(once);
    hand.give(cancel(CancelReason::Lost))?;
    hand.rest()?;
    hand.machine.facts.allocated(range, hand.machine.stamp);
    says(hand.give(cancel(CancelReason::TooManyFaults)), "without a reason");
    let fault = hand.machine.faults.values_mut().next().expect("it was refused");
    (fault.answered, fault.judged) = (false, Some(CancelReason::Lost));
    hand.give(cancel(CancelReason::Lost))?;
    hand.rest()
}

#[test]
fn two_jobs_of_one_stream_at_a_time_are_seen() -> Result<(), Violation> {
    let mut hand = Hand::new();
    hand.launch()?;
    says(hand.launch(), "of the same stream");
    Ok(())
}

#[test]
fn an_executor_that_does_not_reach_a_memory_is_seen() {
    let mut hand = Hand::new();
    let fill = TransferOp::Fill { memory: ON_CARD, runs: runs(PAGE, 0) };
    says(hand.give((Mover::CardDma(CARD), fill)), "does not reach");
    let wrong_frame = HostOp::Map { runs: runs(PAGE, 5), rights: Rights::Read };
    says(hand.give(wrong_frame), "not at its own frame");
}

#[test]
fn a_lost_card_answers_everything_with_gone() -> Result<(), Violation> {
    let mut hand = Hand::new();
    let job = hand.launch()?;
    hand.bring(PAGE, 3)?;
    hand.machine.lose(CARD);
    hand.run(RingOp::Unmap { runs: runs(PAGE, 3), tells: false })?;
    assert!(hand.told.iter().any(|told| matches!(told, Parcel::Done(_, _, Err(_)))));
    assert_eq!(hand.machine.jobs[&job].state, JobState::Done);
    assert!(hand.machine.facts.was_lost(PAGE));
    assert!(!hand.machine.facts.was_lost(PAGE.offset(1)));
    Ok(())
}

/// A thread goes on before the driver hears of its fault, and then the page is pinned: the driver,
/// which may hold the fault back, may still bring the page to the host.
#[test]
fn a_fault_that_the_driver_has_not_answered_disturbs_a_pin_that_comes_later() {
    let disturbed = |told: bool, answered: bool| {
        let mut machine = Hand::new().machine;
        if told {
            machine.note_told(PAGE);
        }
        if answered {
            machine.forget_told(&host_map(PAGE));
        }
        machine.stamp += 5;
        let issued = machine.stamp;
        machine.date_waiting();
        machine.facts.pin(PageRange::page(PAGE), ON_CARD, issued);
        machine.facts.get(PAGE).expect("a page of the arena").pin_disturbed
    };
    assert!(disturbed(true, false), "it waits in the driver");
    assert!(!disturbed(true, true), "the driver mapped the page");
    assert!(!disturbed(false, false), "nobody asked");
}

/// A card fails what it is given from the moment that it is lost, and the driver hears of that later.
#[test]
fn a_copy_to_a_card_may_fail_before_the_driver_hears_that_it_is_lost() {
    let mut world = World::new(Setup::plain(&[8, 8]));
    let range = world.alloc(1).expect("there is room");
    world.machine.lose(CARD);
    world.machine.stamp += 1;
    let id = world.request(Request::Migrate { range, to: ON_CARD }).expect("it is taken");
    while world.answer(id).is_none() && world.step().expect("the error has a reason") {}
    let answer = world.answer(id);
    assert!(matches!(answer, Some(Err(RequestError::CopyFailed { .. }))), "{answer:?}");
    world.deliver(Parcel::CardLost(CARD)).expect("the driver is told");
    world.drive().expect("all is well");
}
