//! The function through its registers and rings.

mod rig;

use farside_card::interface::{
    ArgKind, DmaAddr, Extent, ExtentArg, ExtentList, FaultArg, FaultHead, FaultRecord, FaultWants,
    KernelArg, Operation, RingKind, Status, reason_to_word, register,
};
use farside_card::{
    Action, Answer, Geometry, Grant, JobEnd, Need, Outcome, Raised, TransferFailed,
};
use farside_types::{
    Access, Asid, CancelReason, CommandId, FaultId, JobId, PageNo, PageRange, PeId, Rights,
};
use rig::{ASID, Rig, moved, pages, pages_at};

const NO_ASID: Asid = Asid(0);

const NO_LIST: ExtentList = ExtentList { address: 0, count: 0 };

fn launch(job: u64) -> Operation {
    Operation::Launch { job: JobId(job), kernel: 0, pe: None, args: NO_LIST, message: NO_LIST }
}

#[test]
fn a_kernel_faults_gets_its_page_and_ends() {
    let mut rig = Rig::new();
    let tag = rig.submit(ASID, launch(5));
    rig.doorbell();
    let [Action::Start { pe, job, asid, .. }] = rig.actions()[..] else {
        panic!("one job starts");
    };
    assert_eq!((pe, job, asid), (PeId(0), JobId(5), ASID));
    let need = Need::Page(PageNo(0x40), Access::Write);
    let Ok(Raised::Queued(id)) = rig.card.raise(pe, job, ASID, need) else {
        panic!("a fault");
    };
    rig.publish();
    let wants = FaultWants::Page(PageNo(0x40), Access::Write);
    let head = FaultHead { id, asid: ASID, pe, job, wants };
    assert_eq!(rig.faults(), [FaultRecord::Head(head)]);
    let to = pages_at(0x40, 1, DmaAddr::Own(9));
    assert_eq!(rig.ok(ASID, Operation::Map(to, Rights::ReadWrite)).pages, 1);
    assert_eq!(rig.ok(NO_ASID, Operation::Resume(FaultArg::One(id))).value, 1);
    let actions = rig.actions();
    let [Action::Answer(Answer { outcome: Outcome::Granted(grant), .. })] = &actions[..] else {
        panic!("the page is granted: {actions:?}");
    };
    assert_eq!(grant.runs[0].location.frame.0, 9);
    let unmap = rig.submit(ASID, Operation::Unmap(pages(0x40, 1)));
    rig.doorbell();
    assert!(rig.completions().is_empty(), "the page is held");
    let drained = rig.card.end(grant.access);
    rig.function.drained(&mut rig.card, &mut rig.bus, &drained);
    assert_eq!(rig.completions()[0].tag, unmap);
    let end = JobEnd::returned(42);
    rig.function.job_ended(&mut rig.card, &mut rig.bus, job, &end);
    let completion = rig.completions()[0];
    assert_eq!((completion.tag, completion.status, completion.value), (tag, Status::Ok, 42));
    assert!(rig.function.is_quiet(&rig.card));
}

#[test]
fn a_copy_is_given_to_the_embedder_and_completes_with_its_answer() {
    let mut rig = Rig::new();
    let bus_page = DmaAddr::Bus((rig.free >> 12) as u32);
    let tag = rig.submit(NO_ASID, Operation::Copy(moved(3, bus_page, DmaAddr::Own(7))));
    rig.doorbell();
    let actions = rig.actions();
    let [Action::Copy { id, extents }] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(extents[0].count, 3);
    assert!(rig.completions().is_empty());
    rig.function.copied(&mut rig.card, &mut rig.bus, *id, Ok(()));
    let completion = rig.completions()[0];
    assert_eq!((completion.tag, completion.status, completion.pages), (tag, Status::Ok, 3));
    assert_eq!(rig.counter("dma_pages"), 3);
}

#[test]
fn foreign_frames_are_refused_and_counted() {
    let mut rig = Rig::new();
    let to = pages_at(0x40, 2, DmaAddr::Own(rig::FRAMES - 1));
    let completion = rig.run(ASID, Operation::Map(to, Rights::Read));
    assert_eq!(completion.status, Status::ForeignFrame);
    assert_eq!(completion.detail, rig::FRAMES.into());
    assert_eq!(rig.counter("foreign_frames_refused"), 1);
    assert_eq!(rig.read64(register::ERRORS), register::ERROR_FOREIGN_FRAME);
    assert_eq!(rig.read64(register::ERROR_DETAIL), completion.tag);
    assert_eq!(rig.card.stats().pages_mapped, 0, "nothing was done");
}

#[test]
fn a_stale_answer_is_well_and_counted() {
    let mut rig = Rig::new();
    assert_eq!(rig.ok(NO_ASID, Operation::Resume(FaultArg::One(FaultId(99)))).value, 0);
    assert_eq!(rig.counter("stale_answers"), 1);
}

/// A list of extents in the driver's memory.
fn listed(rig: &mut Rig, extents: &[Extent]) -> ExtentArg {
    let bytes: Vec<u8> =
        extents.iter().flat_map(|e| e.to_words()).flat_map(u64::to_le_bytes).collect();
    rig.bus.put(rig.free, &bytes);
    ExtentArg::List(ExtentList { address: rig.free, count: extents.len() as u32 })
}

/// A job that runs.
fn running(rig: &mut Rig, job: u64) -> PeId {
    rig.submit(ASID, launch(job));
    rig.doorbell();
    match rig.actions()[..] {
        [Action::Start { pe, .. }] => pe,
        ref other => panic!("one job starts: {other:?}"),
    }
}

/// What a fault of this page got.
fn granted(rig: &mut Rig) -> Grant {
    match rig.actions().pop() {
        Some(Action::Answer(Answer { outcome: Outcome::Granted(grant), .. })) => grant,
        other => panic!("granted: {other:?}"),
    }
}

fn raise(rig: &mut Rig, pe: PeId, job: u64, page: u64) -> FaultId {
    let need = Need::Page(PageNo(page), Access::Write);
    let raised = rig.card.raise(pe, JobId(job), ASID, need).unwrap();
    rig.publish();
    match raised {
        Raised::Queued(id) | Raised::Joined(id) => id,
        Raised::Full => panic!("the queue is full"),
    }
}

#[test]
fn invariant_9_after_an_unmap_of_n_pages_through_the_ring_no_access_finds_one() {
    for count in [1u32, 63, 64, 65535, 65536, 131_072, 1 << 20] {
        for by_list in [false, true] {
            let mut rig = Rig::new();
            let start = 0x100_0000;
            let all = Extent { page: start, count, src: DmaAddr::Bus(0), dst: DmaAddr::Own(0) };
            let mapped = ExtentArg::Inline(all);
            assert_eq!(rig.ok(ASID, Operation::Map(mapped, Rights::Read)).pages, count.into());
            let last = start + u64::from(count) - 1;
            let finds = |rig: &mut Rig, page| {
                rig.card.access(PeId(0), ASID, PageNo(page), Access::Read).is_some()
            };
            assert!(finds(&mut rig, last), "{count} pages were mapped");
            // In a list, the same pages in pieces of uneven sizes, in the wrong order.
            let gone = Extent { dst: DmaAddr::Bus(0), ..all };
            let gone = if by_list {
                let piece = |(page, count)| Extent { page, count, ..gone };
                let half = count / 2;
                let tail = (start + u64::from(half), count - half);
                let pieces = [tail, (start, half)].into_iter().filter(|&(_, count)| count > 0);
                let pieces: Vec<Extent> = pieces.map(piece).collect();
                listed(&mut rig, &pieces)
            } else {
                ExtentArg::Inline(gone)
            };
            rig.ok(ASID, Operation::Unmap(gone));
            for page in [start, start + u64::from(count) / 2, last] {
                assert!(!finds(&mut rig, page), "page {page:#x} of {count} is still there");
            }
        }
    }
}

#[test]
fn invariant_10_an_unmap_and_a_copy_complete_when_nothing_uses_their_frames_any_more() {
    let mut rig = Rig::new();
    let pe = running(&mut rig, 1);
    rig.completions();
    let place = pages_at(7, 1, DmaAddr::Own(7));
    rig.ok(ASID, Operation::Map(place, Rights::ReadWrite));
    let grant = rig.card.acquire(pe, ASID, &[(PageRange::page(PageNo(7)), Access::Write)]).unwrap();
    let unmap = rig.submit(ASID, Operation::Unmap(pages(7, 1)));
    let copy = Operation::Copy(moved(1, DmaAddr::Own(7), DmaAddr::Own(8)));
    let copy = rig.submit(NO_ASID, copy);
    let barrier = rig.submit(NO_ASID, Operation::Barrier);
    rig.doorbell();
    assert!(!rig.function.is_quiet(&rig.card));
    let [Action::Copy { id, .. }] = rig.actions()[..] else { panic!("a copy") };
    assert!(rig.completions().is_empty());
    rig.function.copied(&mut rig.card, &mut rig.bus, id, Ok(()));
    assert_eq!(rig.completions().iter().map(|c| c.tag).collect::<Vec<_>>(), [copy]);
    let drained = rig.card.end(grant.access);
    rig.function.drained(&mut rig.card, &mut rig.bus, &drained);
    assert_eq!(rig.completions().iter().map(|c| c.tag).collect::<Vec<_>>(), [unmap]);
    let end = JobEnd::returned(0);
    rig.function.job_ended(&mut rig.card, &mut rig.bus, JobId(1), &end);
    assert_eq!(rig.completions().pop().map(|c| c.tag), Some(barrier), "the job was before it");
}

#[test]
fn invariant_10_a_hung_job_that_holds_a_page_never_lets_its_unmap_complete() {
    let mut rig = Rig::new();
    let pe = running(&mut rig, 1);
    let place = pages_at(7, 1, DmaAddr::Own(7));
    rig.ok(ASID, Operation::Map(place, Rights::ReadWrite));
    let needs = [(PageRange::page(PageNo(7)), Access::Write)];
    let grant = rig.card.acquire(pe, ASID, &needs).unwrap();
    let unmap = rig.submit(ASID, Operation::Unmap(pages(7, 1)));
    let abort = rig.submit(NO_ASID, Operation::Abort(JobId(1)));
    rig.doorbell();
    assert_eq!(rig.actions(), [Action::Stop { job: JobId(1) }]);
    assert!(!rig.function.wants(JobId(1)));
    let end = JobEnd::failed(Status::Hung, String::new());
    rig.function.job_ended(&mut rig.card, &mut rig.bus, JobId(1), &end);
    let completions = rig.completions();
    assert_eq!((completions[0].status, completions[0].value), (Status::Hung, 1));
    assert_eq!((completions[1].tag, completions[1].status), (abort, Status::Ok));
    assert_eq!(completions.len(), 2, "the page is held");
    assert_ne!(rig.card.pes().idle(), Some(pe), "its processing element is given up");
    assert!(!rig.function.is_quiet(&rig.card));
    let drained = rig.card.end(grant.access);
    rig.function.drained(&mut rig.card, &mut rig.bus, &drained);
    assert_eq!(rig.completions()[0].tag, unmap);
}

#[test]
fn invariant_14_ten_thousand_equal_faults_are_one_record_and_one_resume() {
    let geometry = Geometry { pes: 10_000, ..Geometry::default() };
    let mut rig = Rig::with_rings(geometry, [64, 64, 128, 64], 0);
    let first = FaultId(0);
    for pe in 0..10_000 {
        rig.card.launch(PeId(pe), JobId(pe.into())).unwrap();
        assert_eq!(raise(&mut rig, PeId(pe), pe.into(), 9), first);
    }
    assert_eq!(rig.faults().len(), 1);
    let place = pages_at(9, 1, DmaAddr::Own(9));
    rig.ok(ASID, Operation::Map(place, Rights::ReadWrite));
    assert_eq!(rig.ok(NO_ASID, Operation::Resume(FaultArg::One(first))).value, 10_000);
    assert_eq!(rig.actions().len(), 10_000, "each is answered");
}

#[test]
fn invariant_15_a_full_fault_ring_and_a_full_queue_lose_nothing() {
    let geometry = Geometry { pes: 200, fault_entries: 32, ..Geometry::default() };
    let mut rig = Rig::with_rings(geometry, [64, 64, 8, 64], u32::MAX - 3);
    let mut waiting: Vec<u16> = (0..200).collect();
    for &pe in &waiting {
        rig.card.launch(PeId(pe), JobId(pe.into())).unwrap();
    }
    let mut seen = Vec::new();
    while seen.len() < 200 {
        waiting.retain(|&pe| {
            let need = Need::Page(PageNo(pe.into()), Access::Read);
            rig.card.raise(PeId(pe), JobId(pe.into()), ASID, need) == Ok(Raised::Full)
        });
        rig.publish();
        let records = rig.faults();
        assert!((1..=8).contains(&records.len()), "{} records", records.len());
        for record in records {
            let FaultRecord::Head(head) = record else { panic!("{record:?}") };
            seen.push(head.pe.0);
            let reason = reason_to_word(CancelReason::Unallocated);
            rig.ok(NO_ASID, Operation::Cancel(FaultArg::One(head.id), reason));
        }
        rig.actions();
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..200).collect::<Vec<_>>(), "each once");
    assert!(rig.counter("fault_queue_full") > 0, "the queue was full");
}

#[test]
fn invariant_17_a_cancelled_fault_ends_its_job_and_no_other() {
    let mut rig = Rig::new();
    let pes = [running(&mut rig, 0), running(&mut rig, 1)];
    let wild = raise(&mut rig, pes[0], 0, 0x1000);
    let good = raise(&mut rig, pes[1], 1, 3);
    let reason = reason_to_word(CancelReason::Unallocated);
    rig.ok(NO_ASID, Operation::Cancel(FaultArg::One(wild), reason));
    let outcome = Outcome::Cancelled(CancelReason::Unallocated);
    assert_eq!(rig.actions(), [Action::Answer(Answer { pe: pes[0], job: JobId(0), outcome })]);
    let place = pages_at(3, 1, DmaAddr::Own(3));
    rig.ok(ASID, Operation::Map(place, Rights::ReadWrite));
    rig.ok(NO_ASID, Operation::Resume(FaultArg::One(good)));
    assert_eq!(granted(&mut rig).pe, pes[1]);
}

#[test]
fn a_group_is_written_whole_or_not_yet_and_one_that_never_fits_is_cancelled() {
    let mut rig = Rig::with_rings(Geometry::default(), [8, 8, 8, 8], 0);
    let group = |ranges: u64, first: u64| {
        let range = |index| (PageRange::new(PageNo(first + 2 * index), 1), Access::Read);
        Need::Group((0..ranges).map(range).collect())
    };
    for (job, need) in [(0, group(12, 0)), (1, group(10, 100)), (2, group(22, 200))] {
        let pe = running(&mut rig, job);
        assert!(matches!(rig.card.raise(pe, JobId(job), ASID, need), Ok(Raised::Queued(_))));
        rig.publish();
        rig.completions();
    }
    // 5 of 8 places are taken; the second group needs 5, and is not begun.
    assert_eq!(rig.take(RingKind::Fault).len(), 5);
    rig.publish();
    let records = rig.faults();
    assert_eq!(records.len(), 5);
    assert!(matches!(records[0], FaultRecord::Head(head) if head.job == JobId(1)));
    // The third needs 9.
    let outcome = Outcome::Cancelled(CancelReason::GroupTooLarge);
    assert_eq!(rig.actions(), [Action::Answer(Answer { pe: PeId(2), job: JobId(2), outcome })]);
}

#[test]
fn a_copy_that_fails_says_how_many_pages_are_whole() {
    let mut rig = Rig::new();
    let fill = Operation::Fill(pages_at(0, 9, DmaAddr::Own(0)), 5);
    rig.submit(NO_ASID, fill);
    rig.doorbell();
    let [Action::Fill { id, pattern: 5, .. }] = rig.actions()[..] else { panic!("a fill") };
    let failed = Err(TransferFailed { pages_done: 4 });
    rig.function.copied(&mut rig.card, &mut rig.bus, id, failed);
    let completion = rig.completions()[0];
    assert_eq!((completion.status, completion.pages), (Status::CopyFailed, 4));
    rig.function.copied(&mut rig.card, &mut rig.bus, id, Ok(()));
    assert!(rig.completions().is_empty(), "an answer counts once");
}

#[test]
fn a_link_command_is_given_to_the_embedder_and_bounded() {
    let mut rig = Rig::new();
    let most = rig.read32(register::DMA_COMMANDS);
    let to_card = pages_at(0, 1, DmaAddr::Own(0));
    let receive = |transfer| Operation::LinkReceive { extents: to_card, transfer, from: 7 };
    let mut ids: Vec<CommandId> = Vec::new();
    for transfer in 0..most {
        rig.submit(NO_ASID, receive(transfer));
        rig.doorbell();
        let [Action::LinkReceive { id, transfer: named, from: 7, .. }] = rig.actions()[..] else {
            panic!("a receive")
        };
        assert_eq!(named, transfer);
        ids.push(id);
    }
    assert_eq!(rig.run(NO_ASID, receive(most)).status, Status::Busy);
    let cancel = rig.submit(NO_ASID, Operation::LinkCancel { transfer: 0, from: 7 });
    rig.doorbell();
    let [Action::LinkCancel { id, transfer: 0, from: 7 }] = rig.actions()[..] else {
        panic!("a cancel is taken when the link is full")
    };
    rig.function.linked(&mut rig.card, &mut rig.bus, ids[0], Status::Aborted, 0);
    rig.function.linked(&mut rig.card, &mut rig.bus, id, Status::Ok, 0);
    let completions = rig.completions();
    assert_eq!(completions[0].status, Status::Aborted);
    assert_eq!((completions[1].tag, completions[1].status), (cancel, Status::Ok));
}

#[test]
fn a_launch_hands_its_arguments_over_and_its_message_back() {
    let mut rig = Rig::new();
    let arg = KernelArg { kind: ArgKind::Read, element: 4, word: 0x5000, bytes: 64 };
    let bytes: Vec<u8> = arg.to_words().into_iter().flat_map(u64::to_le_bytes).collect();
    rig.bus.put(rig.free, &bytes);
    let args = ExtentList { address: rig.free, count: 1 };
    let message = ExtentList { address: rig.free + 256, count: 4 };
    let (job, pe) = (JobId(3), Some(PeId(2)));
    rig.submit(ASID, Operation::Launch { job, kernel: 1, pe, args, message });
    rig.doorbell();
    let started = Action::Start { pe: PeId(2), job, asid: ASID, kernel: 1, args: vec![arg] };
    assert_eq!(rig.actions(), [started]);
    let end = JobEnd::failed(Status::KernelFailed, "näh: nothing".into());
    rig.function.job_ended(&mut rig.card, &mut rig.bus, job, &end);
    let completion = rig.completions()[0];
    assert_eq!((completion.status, completion.message_bytes), (Status::KernelFailed, 4));
    assert_eq!(rig.bus.get(rig.free + 256, 5), "näh\0".as_bytes(), "cut at its room");
}

#[test]
fn a_message_is_cut_at_a_character_and_a_bad_place_is_only_reported() {
    let mut rig = Rig::new();
    for (job, room, expected) in [(1, 2, 1), (2, 0, 0), (3, 3, 3)] {
        let message = ExtentList { address: rig.free, count: room };
        let (job, args) = (JobId(job), NO_LIST);
        rig.submit(ASID, Operation::Launch { job, kernel: 0, pe: None, args, message });
        rig.doorbell();
        let end = JobEnd::failed(Status::KernelPanicked, "nä".into());
        rig.function.job_ended(&mut rig.card, &mut rig.bus, job, &end);
        assert_eq!(rig.completions()[0].message_bytes, expected);
    }
    // Reachable when it was checked, and not when it is written.
    rig.bus.windows.push((0x9_0000_0000, 0x9_0000_1000));
    let message = ExtentList { address: 0x9_0000_0000, count: 99 };
    let (job, args) = (JobId(4), NO_LIST);
    rig.submit(ASID, Operation::Launch { job, kernel: 0, pe: None, args, message });
    rig.doorbell();
    let end = JobEnd::failed(Status::KernelPanicked, "text".into());
    rig.function.job_ended(&mut rig.card, &mut rig.bus, job, &end);
    assert_eq!(rig.completions()[0].message_bytes, 0);
    assert_eq!(rig.read64(register::ERRORS), register::ERROR_BUS);
    assert_eq!(rig.read32(register::STATUS) & register::STATUS_FAILED, 0);
}

#[test]
fn a_reset_waits_for_every_answer_and_takes_back_what_was_not_begun() {
    let mut rig = Rig::new();
    let pe = running(&mut rig, 1);
    raise(&mut rig, pe, 1, 5);
    let fill = Operation::Fill(pages_at(0, 1, DmaAddr::Own(0)), 5);
    rig.submit(NO_ASID, fill.clone());
    rig.doorbell();
    let [Action::Fill { id, .. }] = rig.actions()[..] else { panic!("a fill") };
    // These are known to nobody yet.
    rig.submit(ASID, launch(2));
    rig.submit(NO_ASID, fill);
    rig.submit(NO_ASID, Operation::Abort(JobId(2)));
    rig.doorbell();
    let written = rig.take(RingKind::Completion).len();
    rig.write32(register::CONTROL, register::CONTROL_RESET);
    let resets = |rig: &Rig| rig.read32(register::STATUS) & register::STATUS_RESETTING != 0;
    let answer = Answer { pe, job: JobId(1), outcome: Outcome::Aborted };
    let stop = Action::Stop { job: JobId(1) };
    assert_eq!(rig.actions(), [Action::Answer(answer), stop, Action::StopCopies]);
    rig.function.reset_done(&mut rig.card);
    assert!(resets(&rig), "the embedder was not asked yet");
    rig.function.copied(&mut rig.card, &mut rig.bus, id, Ok(()));
    assert_eq!(rig.actions(), []);
    let end = JobEnd::failed(Status::Aborted, String::new());
    rig.function.job_ended(&mut rig.card, &mut rig.bus, JobId(1), &end);
    assert_eq!(rig.actions(), [Action::Reset]);
    assert!(resets(&rig));
    rig.write32(register::CONTROL, register::CONTROL_ENABLE);
    assert_eq!(rig.read64(register::ERRORS), register::ERROR_REGISTER, "it is under way");
    rig.function.reset_done(&mut rig.card);
    assert_eq!(rig.read32(register::STATUS), register::STATUS_QUIET);
    assert_eq!(rig.read64(register::ERRORS), 0);
    assert_eq!(rig.read64(register::ring(RingKind::Command)), 0);
    assert_eq!(written, 0);
    assert!(rig.take(RingKind::Completion).is_empty(), "a reset gives no completions");
    assert_eq!(rig.card.pes().idle(), Some(PeId(0)));
}

#[test]
fn a_reset_ends_link_transfers_through_the_embedder() {
    let mut rig = Rig::new();
    let extents = pages_at(0, 1, DmaAddr::Own(0));
    rig.submit(NO_ASID, Operation::LinkReceive { extents, transfer: 1, from: 7 });
    rig.doorbell();
    let [Action::LinkReceive { id, .. }] = rig.actions()[..] else { panic!("a receive") };
    rig.write32(register::CONTROL, register::CONTROL_RESET);
    assert_eq!(rig.actions(), [Action::StopLinks]);
    rig.function.linked(&mut rig.card, &mut rig.bus, id, Status::Aborted, 0);
    assert_eq!(rig.actions(), [Action::Reset]);
}

#[test]
fn a_list_is_read_when_its_copy_begins_and_a_vanished_one_is_refused() {
    let mut rig = Rig::new();
    let commands = rig.read32(register::DMA_COMMANDS);
    for _ in 0..commands {
        rig.submit(NO_ASID, Operation::Fill(pages_at(0, 1, DmaAddr::Own(0)), 0));
        rig.doorbell();
    }
    let busy = rig.actions();
    assert_eq!(busy.len(), commands as usize);
    let extent = Extent { page: 0, count: 1, src: DmaAddr::Own(1), dst: DmaAddr::Own(2) };
    let list = listed(&mut rig, &[extent]);
    rig.submit(NO_ASID, Operation::Copy(list));
    rig.doorbell();
    assert_eq!(rig.actions(), [], "it waits");
    rig.bus.bytes.truncate((rig.free - rig::BASE) as usize);
    let Action::Fill { id, .. } = busy[0] else { panic!("a fill") };
    rig.function.copied(&mut rig.card, &mut rig.bus, id, Ok(()));
    let completions = rig.completions();
    assert_eq!(completions.len(), 2);
    assert_eq!(completions[1].status, Status::BadAddress);
    assert_eq!(rig.read64(register::ERRORS), register::ERROR_BUS);
}

#[test]
fn a_failed_card_touches_no_ring_until_it_is_reset() {
    let mut rig = Rig::new();
    rig.function.report(register::ERROR_LINK, 9, &mut rig.bus);
    assert_eq!(rig.ok(NO_ASID, Operation::Nop).pages, 0, "an error of the link stops nothing");
    rig.function.report(register::ERROR_CARD, 1, &mut rig.bus);
    assert_eq!(rig.read32(register::STATUS) & register::STATUS_FAILED, register::STATUS_FAILED);
    let errors = register::ERROR_LINK | register::ERROR_CARD;
    assert_eq!((rig.read64(register::ERRORS), rig.read64(register::ERROR_DETAIL)), (errors, 9));
    rig.submit(NO_ASID, Operation::Nop);
    rig.doorbell();
    assert!(rig.completions().is_empty());
    rig.write32(register::CONTROL, register::CONTROL_RESET);
    assert_eq!(rig.actions(), [Action::Reset]);
    rig.function.reset_done(&mut rig.card);
    assert_eq!(rig.read32(register::STATUS), register::STATUS_QUIET);
}
