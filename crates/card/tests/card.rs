//! The card as a whole: faults, grants and drains together.

use std::sync::Arc;

use farside_card::{
    AcquireError, Answer, Card, Drained, Geometry, Grant, Location, MapError, MappedRun, Need,
    Outcome, PAGES_MAX, PeError, PeState, RaiseError, Raised,
};
use farside_types::{
    Access, Asid, CancelReason, CardId, CommandId, FaultId, FrameNo, JobId, MemoryId, PageNo,
    PageRange, PeId, Rights,
};

const ASID: Asid = Asid(1);
const OWN: MemoryId = MemoryId(1);

fn card_of(geometry: Geometry) -> Card {
    let mut card = Card::new(CardId(0), 100_000, geometry).unwrap();
    for pe in 0..geometry.pes {
        card.launch(PeId(pe), job(pe)).unwrap();
    }
    card
}

fn card() -> Card {
    card_of(Geometry::default())
}

/// The job that runs on a processing element in these tests.
fn job(pe: u16) -> JobId {
    JobId(100 + u64::from(pe))
}

fn pages(start: u64, count: u64) -> PageRange {
    PageRange::new(PageNo(start), count)
}

fn own(frame: u32) -> Location {
    Location::new(OWN, FrameNo(frame))
}

fn run(page: u64, count: u32, frame: u32) -> MappedRun {
    MappedRun::new(PageNo(page), count, own(frame))
}

fn map(card: &mut Card, run: MappedRun, rights: Rights) {
    card.map(ASID, [run].into_iter(), rights).unwrap();
}

fn unmap(card: &mut Card, command: u64, range: PageRange) -> Drained {
    card.unmap(CommandId(command), ASID, [range].into_iter())
}

fn page(number: u64, access: Access) -> Need {
    Need::Page(PageNo(number), access)
}

fn group(ranges: &[(PageRange, Access)]) -> Need {
    Need::Group(Arc::from(ranges))
}

fn raise(card: &mut Card, pe: u16, need: Need) -> Raised {
    card.raise(PeId(pe), job(pe), ASID, need).unwrap()
}

fn queued(raised: Raised) -> FaultId {
    match raised {
        Raised::Queued(id) => id,
        other => panic!("expected a new fault, got {other:?}"),
    }
}

fn granted(answer: &Answer) -> &Grant {
    match &answer.outcome {
        Outcome::Granted(grant) => grant,
        other => panic!("expected a grant, got {other:?}"),
    }
}

#[test]
fn invariant_9_unmap_of_n_pages_stops_every_way_to_them() {
    for n in [1, 63, 64, 65535, 65536, 131_072, 1 << 20] {
        let mut card = Card::new(CardId(0), 2_000_000, Geometry::default()).unwrap();
        card.launch(PeId(0), job(0)).unwrap();
        map(&mut card, run(10, n as u32, 0), Rights::ReadWrite);
        let last = PageNo(10 + n - 1);
        assert!(card.access(PeId(0), ASID, last, Access::Write).is_some());
        let fault = queued(raise(&mut card, 0, page(last.0, Access::Write)));
        map(&mut card, run(last.0, 1, 0), Rights::ReadWrite);
        assert_eq!(unmap(&mut card, 1, pages(10, n)), Drained::Now);
        for probe in [10, 10 + n / 2, last.0] {
            assert_eq!(card.access(PeId(0), ASID, PageNo(probe), Access::Read), None);
        }
        let need = [(pages(last.0, 1), Access::Read)];
        assert_eq!(card.acquire(PeId(0), ASID, &need), Err(AcquireError::NotResident));
        assert_eq!(card.resume(fault)[0].outcome, Outcome::Retry, "n = {n}");
    }
}

#[test]
fn invariant_12_an_evicted_entry_of_a_resident_page_only_needs_its_translation_back() {
    let mut card = card();
    map(&mut card, run(0, 1, 77), Rights::ReadWrite);
    for other in 1..5000 {
        map(&mut card, run(other * 256, 1, other as u32), Rights::Read);
    }
    assert_eq!(card.access(PeId(0), ASID, PageNo(0), Access::Write), None);
    let fault = queued(raise(&mut card, 0, page(0, Access::Write)));
    map(&mut card, run(0, 1, 77), Rights::ReadWrite);
    let answers = card.resume(fault);
    assert_eq!(granted(&answers[0]).runs, [run(0, 1, 77)]);
}

#[test]
fn invariant_14_ten_thousand_duplicate_faults_are_one_fault_and_one_resume_serves_all() {
    let geometry = Geometry { pes: 10_000, l1_entries: 1, ..Geometry::default() };
    let mut card = card_of(geometry);
    for pe in 0..10_000 {
        assert_ne!(raise(&mut card, pe, page(5, Access::Read)), Raised::Full);
    }
    let batch = card.take_faults(256);
    assert_eq!(batch.len(), 1);
    map(&mut card, run(5, 1, 6), Rights::Read);
    let answers = card.resume(batch[0].id);
    assert_eq!(answers.len(), 10_000);
    assert!(answers.iter().all(|answer| granted(answer).runs == [run(5, 1, 6)]));
    assert_eq!(card.stats().faults_raised, 1);
    assert_eq!(card.stats().faults_joined, 9_999);
}

#[test]
fn invariant_15_a_full_fault_queue_stalls_and_loses_nothing() {
    let geometry = Geometry { pes: 100, fault_entries: 8, ..Geometry::default() };
    let mut card = card_of(geometry);
    let mut waiting: Vec<u16> = (0..100).collect();
    let mut served = Vec::new();
    while served.len() < 100 {
        waiting.retain(|&pe| raise(&mut card, pe, page(pe.into(), Access::Write)) == Raised::Full);
        for fault in card.take_faults(3) {
            let Need::Page(at, _) = fault.need else {
                panic!("only single pages were asked for");
            };
            map(&mut card, run(at.0, 1, at.0 as u32), Rights::ReadWrite);
            for answer in card.resume(fault.id) {
                let grant = granted(&answer);
                assert!(card.end(grant.access).is_empty());
                served.push(answer.pe.0);
            }
        }
    }
    served.sort_unstable();
    assert_eq!(served, (0..100).collect::<Vec<_>>());
    assert!(card.stats().fault_queue_full > 0, "the queue was never full");
    assert_eq!(card.stats().faults_dropped, 0);
}

#[test]
fn invariant_16_a_fault_between_taking_a_batch_and_resuming_it_is_served() {
    let mut card = card();
    let first = queued(raise(&mut card, 0, page(1, Access::Read)));
    assert_eq!(card.take_faults(256).len(), 1);
    let between = queued(raise(&mut card, 1, page(2, Access::Read)));
    assert_eq!(raise(&mut card, 2, page(1, Access::Read)), Raised::Joined(first));
    map(&mut card, run(1, 2, 0), Rights::Read);
    let served: Vec<PeId> = card.resume(first).iter().map(|a| a.pe).collect();
    assert_eq!(served, [PeId(0), PeId(2)], "the one that joined is served too");
    assert!(card.has_faults());
    let batch = card.take_faults(256);
    assert_eq!(batch.len(), 1);
    assert_eq!(batch[0].id, between);
    assert_eq!(granted(&card.resume(between)[0]).runs, [run(2, 1, 1)]);
}

#[test]
fn invariant_18_a_page_taken_away_between_fill_and_resume_is_asked_for_again() {
    let mut card = card();
    let fault = queued(raise(&mut card, 0, page(1, Access::Read)));
    map(&mut card, run(1, 1, 4), Rights::Read);
    assert_eq!(unmap(&mut card, 1, pages(1, 1)), Drained::Now);
    assert_eq!(card.resume(fault)[0].outcome, Outcome::Retry);
    let again = queued(raise(&mut card, 0, page(1, Access::Read)));
    assert_ne!(again, fault);
    map(&mut card, run(1, 1, 9), Rights::Read);
    assert_eq!(granted(&card.resume(again)[0]).runs, [run(1, 1, 9)]);
}

#[test]
fn a_fill_that_was_protected_does_not_serve_a_write() {
    let mut card = card();
    let fault = queued(raise(&mut card, 0, page(1, Access::Write)));
    map(&mut card, run(1, 1, 4), Rights::ReadWrite);
    let ranges = [pages(0, 9)].into_iter();
    let drained = card.protect(CommandId(1), ASID, ranges, Rights::Read);
    assert_eq!(drained, Drained::Now);
    assert_eq!(card.resume(fault)[0].outcome, Outcome::Retry);
}

#[test]
fn a_resume_does_not_depend_on_the_capacity_of_the_tlbs() {
    let geometry =
        Geometry { l2_entries: 4, l2_ways: 4, flexible_entries: 0, ..Geometry::default() };
    let mut card = card_of(geometry);
    let need = group(&[(pages(0, 500), Access::Read), (pages(900, 3), Access::Write)]);
    let fault = queued(raise(&mut card, 0, need));
    for page in (0..500).rev() {
        map(&mut card, run(page, 1, page as u32 * 2), Rights::Read);
    }
    map(&mut card, run(900, 3, 5000), Rights::ReadWrite);
    let answers = card.resume(fault);
    let grant = granted(&answers[0]);
    assert_eq!(grant.runs.len(), 501);
    assert_eq!(grant.runs[499], run(499, 1, 998));
    assert_eq!(grant.runs[500], run(900, 3, 5000));
}

#[test]
fn a_group_of_which_one_page_is_missing_gets_nothing() {
    let mut card = card();
    let need = group(&[(pages(0, 100), Access::Read), (pages(200, 2), Access::Write)]);
    let fault = queued(raise(&mut card, 0, need));
    map(&mut card, run(0, 100, 0), Rights::Read);
    map(&mut card, run(200, 1, 200), Rights::ReadWrite);
    assert_eq!(card.resume(fault)[0].outcome, Outcome::Retry);
    assert_eq!(card.in_flight().accesses(), 0);
}

#[test]
fn runs_of_a_grant_follow_the_need_and_merge_where_frames_are_contiguous() {
    let mut card = card();
    map(&mut card, run(0, 100, 0), Rights::ReadWrite);
    map(&mut card, run(100, 3, 100), Rights::ReadWrite);
    map(&mut card, run(103, 2, 500), Rights::ReadWrite);
    let need = [(pages(98, 7), Access::Write), (pages(2, 1), Access::Read)];
    let grant = card.acquire(PeId(0), ASID, &need).unwrap();
    assert_eq!(grant.runs, [run(98, 5, 98), run(103, 2, 500), run(2, 1, 2)]);
}

#[test]
fn a_resumed_access_makes_progress_and_a_later_drain_waits_for_it() {
    let mut card = card();
    let fault = queued(raise(&mut card, 0, page(1, Access::Write)));
    map(&mut card, run(1, 1, 4), Rights::ReadWrite);
    let answers = card.resume(fault);
    let grant = granted(&answers[0]).clone();
    assert_eq!(unmap(&mut card, 9, pages(0, 10)), Drained::Waiting(1));
    assert_eq!(grant.runs, [run(1, 1, 4)], "it goes on with what it got");
    assert_eq!(card.end(grant.access), [CommandId(9)]);
}

#[test]
fn an_access_that_stands_in_a_fault_counts_as_drained() {
    let mut card = card();
    let _ = raise(&mut card, 0, page(1, Access::Write));
    assert_eq!(unmap(&mut card, 9, pages(0, 10)), Drained::Now);
}

#[test]
fn a_drain_of_several_resumed_accesses_waits_for_each() {
    let mut card = card();
    let fault = queued(raise(&mut card, 0, page(1, Access::Read)));
    let _ = raise(&mut card, 1, page(1, Access::Write));
    map(&mut card, run(1, 1, 4), Rights::ReadWrite);
    let answers = card.resume(fault);
    let ranges = [pages(1, 1)].into_iter();
    let lowered = card.protect(CommandId(8), ASID, ranges, Rights::Read);
    assert_eq!(lowered, Drained::Waiting(1), "only the writer");
    assert_eq!(unmap(&mut card, 9, pages(1, 1)), Drained::Waiting(2));
    assert!(card.end(granted(&answers[0]).access).is_empty(), "too early");
    assert_eq!(card.end(granted(&answers[1]).access), [CommandId(8), CommandId(9)]);
    assert_eq!(card.stats().drains_waited, 2);
}

#[test]
fn who_holds_memory_can_neither_fault_nor_take_more() {
    let mut card = card();
    map(&mut card, run(0, 2, 0), Rights::Read);
    let need = [(pages(0, 1), Access::Read)];
    let grant = card.acquire(PeId(0), ASID, &need).unwrap();
    assert_eq!(card.acquire(PeId(0), ASID, &need), Err(AcquireError::HoldsMemory { pe: PeId(0) }));
    let raised = card.raise(PeId(0), job(0), ASID, page(9, Access::Read));
    assert_eq!(raised, Err(RaiseError::HoldsMemory { pe: PeId(0) }));
    assert!(card.end(grant.access).is_empty());
    assert!(card.acquire(PeId(0), ASID, &need).is_ok());
}

#[test]
fn invariant_17_a_cancelled_fault_fails_its_own_jobs_only() {
    let mut card = card();
    let wild = queued(raise(&mut card, 0, page(u64::MAX, Access::Read)));
    let good = queued(raise(&mut card, 1, page(1, Access::Read)));
    let answers = card.cancel(wild, CancelReason::Unallocated);
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].job, job(0));
    assert_eq!(answers[0].outcome, Outcome::Cancelled(CancelReason::Unallocated));
    map(&mut card, run(1, 1, 1), Rights::Read);
    assert_eq!(card.resume(good).len(), 1);
}

#[test]
fn faults_are_resumed_and_cancelled_by_a_range_of_ids() {
    let mut card = card();
    let ids = [0, 1, 2, 3].map(|pe| queued(raise(&mut card, pe, page(pe.into(), Access::Read))));
    map(&mut card, run(0, 4, 0), Rights::Read);
    assert_eq!(card.resume_range(ids[0]..=ids[1]).len(), 2);
    assert_eq!(card.cancel_range(ids[1]..=ids[3], CancelReason::Lost).len(), 2);
    assert!(card.resume(ids[3]).is_empty());
    assert_eq!(card.stats().stale_answers, 1);
}

#[test]
fn abort_ends_the_waiting_and_the_accesses_of_its_job_and_of_no_other() {
    let mut card = card();
    map(&mut card, run(0, 4, 0), Rights::ReadWrite);
    let need = [(pages(0, 1), Access::Write)];
    let mine = card.acquire(PeId(0), ASID, &need).unwrap();
    let other = card.acquire(PeId(1), ASID, &need).unwrap();
    assert_eq!(unmap(&mut card, 9, pages(0, 1)), Drained::Waiting(2));
    assert!(card.abort(job(0)).unwrap().drains.is_empty(), "too early");
    assert!(card.end(mine.access).is_empty(), "ended by the abort already");
    assert_eq!(card.end(other.access), [CommandId(9)]);

    let fault = queued(raise(&mut card, 2, page(50, Access::Read)));
    assert_eq!(raise(&mut card, 3, page(50, Access::Read)), Raised::Joined(fault));
    let aborted = card.abort_pe(PeId(2)).unwrap();
    assert_eq!(aborted.answers[0].outcome, Outcome::Aborted);
    assert_eq!(card.pes().status(PeId(2)), Ok(PeState::Idle));
    map(&mut card, run(50, 1, 50), Rights::Read);
    let served: Vec<PeId> = card.resume(fault).iter().map(|a| a.pe).collect();
    assert_eq!(served, [PeId(3)]);
}

#[test]
fn a_fault_whose_only_job_was_aborted_is_gone() {
    let mut card = card();
    let fault = queued(raise(&mut card, 0, page(1, Access::Read)));
    card.take_faults(1);
    card.abort(job(0)).unwrap();
    assert!(card.resume(fault).is_empty());
    assert!(card.take_faults(9).is_empty());
}

#[test]
fn interrupt_wakes_a_job_but_what_it_holds_stays_in_flight() {
    let mut card = card();
    map(&mut card, run(0, 1, 0), Rights::ReadWrite);
    let need = [(pages(0, 1), Access::Write)];
    let grant = card.acquire(PeId(0), ASID, &need).unwrap();
    assert!(card.interrupt(job(0)).unwrap().is_empty());
    assert_eq!(unmap(&mut card, 9, pages(0, 1)), Drained::Waiting(1));
    assert_eq!(card.end(grant.access), [CommandId(9)]);
}

#[test]
fn a_processing_element_runs_one_job_and_stands_in_one_fault() {
    let mut card = card();
    let busy = card.launch(PeId(0), JobId(7));
    assert_eq!(busy, Err(PeError::Busy { pe: PeId(0), job: job(0) }));
    assert!(matches!(card.launch(PeId(4), JobId(7)), Err(PeError::NoSuchPe { .. })));
    assert_eq!(card.abort(JobId(7)), Err(PeError::NoSuchJob { job: JobId(7) }));
    let fault = queued(raise(&mut card, 0, page(1, Access::Read)));
    assert_eq!(card.pes().status(PeId(0)), Ok(PeState::Stalled(job(0), fault)));
    assert_eq!(raise(&mut card, 0, page(1, Access::Read)), Raised::Joined(fault));
    let second = card.raise(PeId(0), job(0), ASID, page(2, Access::Read));
    assert!(matches!(second, Err(RaiseError::NotRunning { .. })));
    let foreign = card.raise(PeId(1), job(0), ASID, page(2, Access::Read));
    assert!(matches!(foreign, Err(RaiseError::NotRunning { .. })));
    card.cancel(fault, CancelReason::Freed);
    assert_eq!(card.pes().status(PeId(0)), Ok(PeState::Running(job(0))));
}

#[test]
fn mappings_to_frames_that_the_card_does_not_have_are_refused_whole_and_counted() {
    let mut card = card();
    let runs = [run(0, 1, 0), run(1, 2, 99_999)];
    let refused = card.map(ASID, runs.into_iter(), Rights::Read);
    assert!(matches!(refused, Err(MapError::BeyondMemory { frames: 100_000, .. })));
    assert_eq!(card.access(PeId(0), ASID, PageNo(0), Access::Read), None);
    assert_eq!(card.stats().mappings_refused, 1);
    assert_eq!(card.stats().pages_mapped, 0);
    let remote = MappedRun::new(PageNo(1), 2, Location::new(MemoryId::HOST, FrameNo(200_000)));
    assert!(card.map(ASID, [remote].into_iter(), Rights::Read).is_ok());
}

#[test]
fn only_remote_accesses_are_counted_and_reported_at_the_threshold() {
    let mut card = card();
    map(&mut card, run(0, 16, 0), Rights::Read);
    let remote = MappedRun::new(PageNo(16), 16, Location::new(MemoryId(2), FrameNo(0)));
    map(&mut card, remote, Rights::Read);
    for _ in 0..256 {
        card.access(PeId(0), ASID, PageNo(3), Access::Read).unwrap();
        assert!(card.take_notices().is_empty());
        card.access(PeId(0), ASID, PageNo(17), Access::Read).unwrap();
    }
    let notices = card.take_notices();
    assert_eq!(notices.len(), 1);
    assert_eq!(notices[0].pages, pages(16, 16));
    assert_eq!(card.stats().remote_accesses, 256);
}

#[test]
fn wild_needs_are_refused_with_an_error_and_never_panic() {
    let mut card = card();
    let wild = [
        group(&[]),
        group(&[(pages(5, 0), Access::Read)]),
        group(&[(pages(u64::MAX, 2), Access::Read)]),
        group(&[(pages(1, 1), Access::Read); 257]),
    ];
    for need in wild {
        let raised = card.raise(PeId(0), job(0), ASID, need.clone());
        assert!(matches!(raised, Err(RaiseError::Need(_))));
        if let Need::Group(ranges) = need {
            let acquired = card.acquire(PeId(0), ASID, &ranges);
            assert!(matches!(acquired, Err(AcquireError::Need(_))));
        }
    }
    let nobody = card.raise(PeId(99), job(0), ASID, page(0, Access::Read));
    assert!(matches!(nobody, Err(RaiseError::NoSuchPe { .. })));
    assert_eq!(card.access(PeId(99), ASID, PageNo(0), Access::Read), None);
    let beyond = [(pages(PAGES_MAX - 1, 5), Access::Read)];
    assert_eq!(card.acquire(PeId(0), ASID, &beyond), Err(AcquireError::NotResident));
    let huge = pages(u64::MAX, u64::MAX);
    assert_eq!(unmap(&mut card, 1, huge), Drained::Now);
}

#[test]
fn reset_returns_the_card_to_its_known_state() {
    let mut card = card();
    map(&mut card, run(0, 100, 0), Rights::ReadWrite);
    let grant = card.acquire(PeId(0), ASID, &[(pages(0, 100), Access::Write)]).unwrap();
    let fault = queued(raise(&mut card, 1, page(500, Access::Read)));
    assert_eq!(unmap(&mut card, 9, pages(0, 1)), Drained::Waiting(1));
    let ended = card.reset();
    assert_eq!(ended.drains, [CommandId(9)]);
    assert_eq!(ended.answers.len(), 1);
    assert_eq!(card.access(PeId(0), ASID, PageNo(50), Access::Read), None);
    assert!(card.end(grant.access).is_empty());
    assert!(card.resume(fault).is_empty());
    assert_eq!(card.pes().idle(), Some(PeId(0)));
    card.launch(PeId(1), job(1)).unwrap();
    let fresh = queued(raise(&mut card, 1, page(500, Access::Read)));
    assert!(fresh > fault, "an old answer could meet a new fault");
}
