//! Faults and drains, by kernels that reach for memory.

use farside_types::{Access, CancelReason, FaultId, JobId, PageNo, Rights};

use super::client::{Client, Fault, NO_ASID, PAGE, ensure, kernel, needs, pages, same, words_at};
use super::{Outcome, Target};
use farside_card::interface::{
    ArgKind, DmaAddr, ExtentArg, ExtentList, FaultArg, FaultRecord, Operation, RingKind, Status,
    reason_to_word, register,
};

/// Where most checks put page `page`: into the frame of its number.
fn frame_of(page: PageNo) -> DmaAddr {
    DmaAddr::Own(page.0 as u32)
}

pub(super) fn a_missing_page_faults_and_its_kernel_goes_on(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    let touch = kernel!(client, "farside.touch");
    let (raised, written) = (client.counter("faults_raised"), client.counter("faults_written"));
    for frame in 4..7 {
        client.mark_frame(frame, 0x60);
    }
    let args = [words_at(ArgKind::Write, 4, 3 * 512)];
    let launch = client.launch(NO_ASID, 9, touch, &args)?;
    let mut ids = Vec::new();
    for page in 4..7 {
        let fault = client.wait_fault()?;
        same("job", fault.head.job, JobId(9))?;
        same("asid", fault.head.asid, NO_ASID)?;
        same("page", fault.pages().collect(), vec![PageNo(page)])?;
        ensure!(!ids.contains(&fault.id()), "the id {:?} came twice", fault.id());
        ids.push(fault.id());
        client.map(NO_ASID, page, 1, frame_of(PageNo(page)), Rights::ReadWrite)?;
        same("accesses answered", client.resume(fault.id())?, 1)?;
    }
    same("pages touched", client.wait_ok(launch)?.value, 3)?;
    for frame in 4..7 {
        let words = client.frame_words(frame);
        ensure!(words[0] == (0x60 << 32) + 1, "frame {frame} was not touched: {:#x}", words[0]);
        ensure!(words[1] == (0x60 << 32) + 1, "frame {frame} was changed elsewhere");
    }
    same("faults_raised", client.counter("faults_raised"), raised + 3)?;
    same("faults_written", client.counter("faults_written"), written + 3)?;
    client.finish()
}

pub(super) fn a_write_faults_on_a_page_that_may_be_read(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    let (touch, sum) = (kernel!(client, "farside.touch"), kernel!(client, "farside.sum"));
    client.mark_frame(5, 0);
    let reading = [words_at(ArgKind::Read, 5, 512)];
    let writing = [words_at(ArgKind::Write, 5, 512)];
    for rights in [Rights::Read, Rights::ReadWrite] {
        client.map(NO_ASID, 5, 1, DmaAddr::Own(5), rights)?;
        if rights == Rights::ReadWrite {
            client.ok(NO_ASID, Operation::Protect(pages(5, 1), Rights::Read))?;
        }
        let launch = client.launch(NO_ASID, 1, sum, &reading)?;
        client.wait_ok(launch)?;
        let launch = client.launch(NO_ASID, 2, touch, &writing)?;
        let fault = client.wait_fault()?;
        same("what the fault wants", fault.ranges[0].1, Access::Write)?;
        ensure!(client.frame_words(5)[0] == 0, "a page that may be read was written");
        let reason = reason_to_word(CancelReason::ReadOnly);
        client.ok(NO_ASID, Operation::Cancel(FaultArg::One(fault.id()), reason))?;
        same("the launch", client.wait_for(launch)?.status, Status::KernelFault)?;
    }
    client.finish()
}

pub(super) fn a_group_is_granted_whole_or_not_at_all(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    needs!(client, CAP_GROUPS);
    let increment = kernel!(client, "farside.increment");
    for frame in [4, 5] {
        client.mark_frame(frame, 0x61);
    }
    let launch = client.launch(NO_ASID, 1, increment, &[words_at(ArgKind::Write, 4, 1024)])?;
    let fault = client.wait_fault()?;
    let wanted: Vec<PageNo> = fault.pages().collect();
    same("pages of the group", wanted, vec![PageNo(4), PageNo(5)])?;
    client.map(NO_ASID, 4, 1, DmaAddr::Own(4), Rights::ReadWrite)?;
    client.resume(fault.id())?;
    // Half of it is there: the kernel holds nothing, and asks for both again.
    let again = client.wait_fault()?;
    same("pages asked for again", again.pages().count(), 2)?;
    client.ok(NO_ASID, Operation::Unmap(pages(4, 1)))?;
    ensure!(client.frame_words(4)[0] == 0x61 << 32, "half of a group was used");
    client.map(NO_ASID, 4, 1, DmaAddr::Own(4), Rights::ReadWrite)?;
    client.map(NO_ASID, 5, 1, DmaAddr::Own(5), Rights::ReadWrite)?;
    client.resume(again.id())?;
    let done = client.serve(launch, frame_of)?;
    same("words", (done.status, done.value), (Status::Ok, 1024))?;
    for frame in [4, 5] {
        let words = client.frame_words(frame);
        let right = (0..).zip(&words).all(|(index, &word)| word == (0x61 << 32 | index) + 1);
        ensure!(right, "frame {frame} was not incremented word by word");
    }
    client.finish()
}

pub(super) fn a_resume_without_a_page_faults_again(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    let touch = kernel!(client, "farside.touch");
    let launch = client.launch(NO_ASID, 1, touch, &[words_at(ArgKind::Write, 5, 512)])?;
    let first = client.wait_fault()?;
    client.resume(first.id())?;
    let second = client.wait_fault()?;
    ensure!(second.id() > first.id(), "{:?} came after {:?}", second.id(), first.id());
    // What was taken back before the resume is not kept for it.
    client.map(NO_ASID, 5, 1, DmaAddr::Own(5), Rights::ReadWrite)?;
    client.ok(NO_ASID, Operation::Unmap(pages(5, 1)))?;
    client.resume(second.id())?;
    let third = client.wait_fault()?;
    client.map(NO_ASID, 5, 1, DmaAddr::Own(5), Rights::ReadWrite)?;
    client.resume(third.id())?;
    client.wait_ok(launch)?;
    client.finish()
}

pub(super) fn a_cancelled_fault_fails_its_job_and_no_other(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    let touch = kernel!(client, "farside.touch");
    if client.read32(register::PES) < 2 {
        return Ok(super::Verdict::NotRun("the card has one processing element".into()));
    }
    let wild = client.launch(NO_ASID, 1, touch, &[words_at(ArgKind::Write, 0x1000, 512)])?;
    let fault = client.wait_fault()?;
    let good = client.launch(NO_ASID, 2, touch, &[words_at(ArgKind::Write, 6, 512)])?;
    let other = client.wait_fault()?;
    let reason = reason_to_word(CancelReason::Unallocated);
    let cancel = Operation::Cancel(FaultArg::One(fault.id()), reason);
    same("accesses answered", client.ok(NO_ASID, cancel)?.value, 1)?;
    let done = client.wait_for(wild)?;
    let found = (done.status, done.value, done.detail);
    same("the wild job", found, (Status::KernelFault, reason.into(), 0x1000))?;
    client.map(NO_ASID, 6, 1, DmaAddr::Own(6), Rights::ReadWrite)?;
    client.resume(other.id())?;
    same("the other job", client.wait_ok(good)?.value, 1)?;
    client.finish()
}

/// Launches a toucher of one page for each processing element, at most `most`, and gathers faults.
fn stalled(client: &mut Client, touch: u32, most: u64) -> Result<Vec<(u64, Fault)>, String> {
    let mut stalled = Vec::new();
    for job in 0..most.min(client.read32(register::PES).into()) {
        let args = [words_at(ArgKind::Write, 8 + job, 512)];
        let launch = client.launch(NO_ASID, job, touch, &args)?;
        stalled.push((launch, client.wait_fault()?));
    }
    Ok(stalled)
}

pub(super) fn faults_are_answered_by_range_and_by_list(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    let touch = kernel!(client, "farside.touch");
    for by_list in [false, true] {
        client.ok(NO_ASID, Operation::UnmapAll)?;
        let stalled = stalled(&mut client, touch, 8)?;
        let count = stalled.len() as u32;
        client.map(NO_ASID, 8, count, DmaAddr::Own(8), Rights::ReadWrite)?;
        let ids: Vec<FaultId> = stalled.iter().map(|(_, fault)| fault.id()).collect();
        let faults = if by_list {
            let address = client.target.allocate(ids.len() * 8);
            client.write_words(address, &ids.iter().map(|id| id.0).collect::<Vec<_>>());
            FaultArg::List(ExtentList { address, count })
        } else {
            FaultArg::Range(ids[0]..=ids[ids.len() - 1])
        };
        let answered = client.ok(NO_ASID, Operation::Resume(faults))?.value;
        same("accesses answered", answered, count.into())?;
        for (launch, _) in stalled {
            client.wait_ok(launch)?;
        }
    }
    client.finish()
}

pub(super) fn unmap_and_protect_wait_for_who_holds_the_page(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    let hold = kernel!(client, "farside.hold");
    for (job, take) in [
        (1, Operation::Unmap(pages(5, 1))),
        (2, Operation::Protect(pages(5, 1), Rights::Read)),
        (3, Operation::UnmapAll),
    ] {
        client.target.write_frames(5 * PAGE, &[0; 8]);
        client.map(NO_ASID, 5, 2, DmaAddr::Own(5), Rights::ReadWrite)?;
        let launch = client.launch(NO_ASID, job, hold, &[words_at(ArgKind::Write, 5, 1)])?;
        client.until("the kernel to hold its page", |client| Ok(client.frame_words(5)[0] == 1))?;
        // Other pages, and readers' rights, are not waited for.
        client.ok(NO_ASID, Operation::Unmap(pages(6, 1)))?;
        client.ok(NO_ASID, Operation::Protect(pages(5, 1), Rights::ReadWrite))?;
        let waited = client.counter("drains_waited");
        let text = format!("{take:?}");
        let taken = client.submit(NO_ASID, take)?;
        let counted = |client: &mut Client| Ok(client.counter("drains_waited"));
        client.comes_to("drains_waited", counted, waited + 1)?;
        client.settle()?;
        ensure!(!client.has_completed(taken)?, "{text} completed while the page is held");
        same("drains_waited of one command", client.counter("drains_waited"), waited + 1)?;
        let quiet = client.read32(register::STATUS) & register::STATUS_QUIET;
        same("STATUS_QUIET while a page is held", quiet, 0)?;
        client.target.write_frames(5 * PAGE, &2u64.to_le_bytes());
        client.wait_ok(taken)?;
        client.wait_ok(launch)?;
        client.ok(NO_ASID, Operation::UnmapAll)?;
    }
    client.finish()
}

/// Numbers of pages of one invalidation, some of which do not fit narrow counters.
const COUNTS: [u32; 7] = [1, 63, 64, 65535, 65536, 131_072, 1 << 20];

pub(super) fn unmapped_pages_fault_whatever_their_number(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    let touch = kernel!(client, "farside.touch");
    let start = 0x10_0000;
    for (count, by_list) in COUNTS.into_iter().flat_map(|count| [(count, false), (count, true)]) {
        let end = start + u64::from(count);
        // The first and the last page are mapped, and one on either side.
        let mut inside = vec![start, end - 1];
        inside.dedup();
        for (frame, page) in (8..).zip([start - 1, end].iter().chain(&inside)) {
            client.map(NO_ASID, *page, 1, DmaAddr::Own(frame), Rights::ReadWrite)?;
        }
        let unmapped = match (by_list, pages(start, count)) {
            (true, ExtentArg::Inline(extent)) => client.list(&[extent]),
            (_, inline) => inline,
        };
        client.ok(NO_ASID, Operation::Unmap(unmapped))?;
        for &page in &inside {
            let args = [words_at(ArgKind::Write, page, 512)];
            let launch = client.launch(NO_ASID, 1, touch, &args)?;
            let fault = client.wait_fault()?;
            same("the page that faults", fault.pages().collect(), vec![PageNo(page)])?;
            let reason = reason_to_word(CancelReason::Freed);
            client.ok(NO_ASID, Operation::Cancel(FaultArg::One(fault.id()), reason))?;
            same("the launch", client.wait_for(launch)?.status, Status::KernelFault)?;
        }
        for page in [start - 1, end] {
            let args = [words_at(ArgKind::Write, page, 512)];
            let launch = client.launch(NO_ASID, 1, touch, &args)?;
            client.serve(launch, |_| DmaAddr::Own(8))?;
        }
        client.ok(NO_ASID, Operation::UnmapAll)?;
    }
    client.finish()
}

pub(super) fn a_full_fault_ring_loses_nothing(target: &mut dyn Target) -> Outcome {
    let mut client = Client::with_rings(target, [64, 64, 8, 8], 0)?;
    let touch = kernel!(client, "farside.touch");
    let launch = client.launch(NO_ASID, 1, touch, &[words_at(ArgKind::Write, 8, 20 * 512)])?;
    // Faults are answered, but their records are not consumed: eight and no more are written.
    for nth in 1..=8 {
        client.until("a fault record", |client| Ok(client.fresh(RingKind::Fault).len() >= nth))?;
        let entries = client.fresh(RingKind::Fault);
        same("fault records", entries.len(), nth)?;
        let record = FaultRecord::from_entry(&entries[nth - 1]).map_err(|e| e.to_string())?;
        let FaultRecord::Head(head) = record else {
            return Err(format!("{record:?} instead of a page fault"));
        };
        let page = 8 + nth as u64 - 1;
        // Without polling, which would consume the records.
        answer_quietly(&mut client, page, head.id)?;
    }
    for _ in 0..30 {
        client.target.pause();
        same("records in a full fault ring", client.fresh(RingKind::Fault).len(), 8)?;
    }
    client.consume(RingKind::Fault, 8);
    let done = client.serve(launch, frame_of)?;
    same("pages touched", (done.status, done.value), (Status::Ok, 20))?;
    client.finish()
}

/// Maps a page and resumes its fault, and lets the completions lie.
fn answer_quietly(client: &mut Client, page: u64, fault: FaultId) -> Result<(), String> {
    let place = super::client::pages_at(page, 1, frame_of(PageNo(page)));
    let before = client.fresh(RingKind::Completion).len();
    for operation in
        [Operation::Map(place, Rights::ReadWrite), Operation::Resume(FaultArg::One(fault))]
    {
        let tag = client.tag();
        let entry =
            farside_card::interface::CommandEntry { tag, asid: NO_ASID, operation }.to_entry();
        client.push_quietly(&entry);
    }
    client.doorbell();
    client.until("two completions", |client| {
        Ok(client.fresh(RingKind::Completion).len() >= before + 2)
    })
}
