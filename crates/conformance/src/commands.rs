//! Commands that are wrong in one thing, and what they are answered with.

use farside_types::{Asid, FaultId, JobId, PeId, Rights};

use super::client::{Client, NO_ASID, NO_LIST, PAGE, ensure, moved, pages, pages_at, same};
use super::{Outcome, Target, Verdict};
use farside_card::interface::{
    ARGS_MAX, CommandEntry, CompletionEntry, DmaAddr, EXTENTS_MAX, Entry, Extent, ExtentArg,
    ExtentList, FLAG_LIST, FLAG_RANGE, FaultArg, LIST_PAGES_MAX, MESSAGE_BYTES_MAX, NAME_BYTES_MAX,
    Operation, Status, register,
};

/// Gives an entry; its tag is filled in.
fn give(client: &mut Client, mut entry: Entry) -> Result<CompletionEntry, String> {
    entry[0] = client.tag();
    client.push(&entry)?;
    client.wait_for(entry[0])
}

/// The entry is refused with this status and detail, counted, and a mistake of the driver.
fn refused(
    client: &mut Client,
    entry: Entry,
    status: Status,
    detail: u64,
    error: u64,
) -> Result<(), String> {
    let before = client.counter("commands_refused");
    let done = give(client, entry)?;
    let right = done.status == status && done.detail == detail && done.pages == 0;
    ensure!(right, "{entry:x?} gives {done:x?} instead of {status:?} with detail {detail:#x}");
    let counted = client.counter("commands_refused") - before;
    ensure!(counted == 1, "{entry:x?} counts {counted} refusals");
    let errors = client.errors();
    ensure!(errors == error, "{entry:x?} sets errors {errors:#x} instead of {error:#x}");
    if error != 0 {
        same("ERROR_DETAIL", client.target.read64(register::ERROR_DETAIL), done.tag)?;
    }
    client.expect_errors(error)
}

fn mistake(client: &mut Client, entry: Entry, status: Status, detail: u64) -> Result<(), String> {
    refused(client, entry, status, detail, register::ERROR_COMMAND)
}

fn entry(asid: Asid, operation: Operation) -> Entry {
    CommandEntry { tag: 0, asid, operation }.to_entry()
}

/// The entry with one word changed.
fn with(mut entry: Entry, word: usize, value: u64) -> Entry {
    entry[word] = value;
    entry
}

fn flagged(entry: Entry, flags: u16) -> Entry {
    with(entry, 1, entry[1] | u64::from(flags) << 16)
}

pub(super) fn entries_with_one_mistake_are_refused_by_the_word(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    for code in [0, 3, 0xff, 0xffff] {
        mistake(&mut client, [0, code, 0, 0, 0, 0, 0, 0], Status::UnknownOpcode, code)?;
    }
    for (entry, word) in wrong_words(&mut client) {
        mistake(&mut client, entry, Status::BadOperand, word)?;
    }
    let asids = client.read32(register::ASIDS);
    if let Ok(asid) = u16::try_from(asids) {
        let asid = Asid(asid);
        for operation in [
            Operation::Map(pages_at(1, 1, DmaAddr::Own(0)), Rights::Read),
            Operation::Protect(pages(1, 1), Rights::Read),
            Operation::Unmap(pages(1, 1)),
            Operation::UnmapAll,
            Operation::CountersClear(pages(1, 1)),
        ] {
            mistake(&mut client, entry(asid, operation), Status::BadAsid, asid.0.into())?;
        }
    }
    let nowhere = client.target.unreachable();
    let bus = DmaAddr::Bus((nowhere / PAGE) as u32);
    let mut unreachable = vec![
        Operation::Kernel { address: nowhere, bytes: 8 },
        Operation::Map(pages_at(1, 1, bus), Rights::Read),
    ];
    if client.can(register::CAP_DMA) {
        let own = DmaAddr::Own(0);
        unreachable.push(Operation::Copy(moved(1, bus, own)));
        unreachable.push(Operation::Copy(moved(1, own, bus)));
        unreachable.push(Operation::Fill(pages_at(0, 1, bus), 0));
    }
    for operation in unreachable {
        let error = match operation {
            Operation::Kernel { .. } => register::ERROR_BUS,
            _ => register::ERROR_COMMAND,
        };
        let entry = entry(NO_ASID, operation);
        refused(&mut client, entry, Status::BadAddress, nowhere, error)?;
    }
    client.ok(NO_ASID, Operation::Nop)?;
    client.finish()
}

/// Entries with one wrong word each, and its number.
fn wrong_words(client: &mut Client) -> Vec<(Entry, u64)> {
    let has_tables = client.can(register::CAP_TABLES);
    let own = DmaAddr::Own(0);
    let map = entry(NO_ASID, Operation::Map(pages_at(1, 1, own), Rights::Read));
    let unmap = entry(NO_ASID, Operation::Unmap(pages(1, 1)));
    let resume = entry(NO_ASID, Operation::Resume(FaultArg::One(FaultId(0))));
    let cancel = entry(NO_ASID, Operation::Cancel(FaultArg::One(FaultId(0)), 1));
    let nop = entry(NO_ASID, Operation::Nop);
    let name = Operation::Kernel { address: 0, bytes: 1 };
    let mut wrong = vec![
        (flagged(nop, FLAG_LIST), 1),
        (flagged(map, FLAG_RANGE), 1),
        (flagged(resume, FLAG_LIST | FLAG_RANGE), 1),
        (flagged(unmap, 1 << 9), 1),
        (with(nop, 1, nop[1] | 1 << 32), 1),
        (with(nop, 1, nop[1] | 1 << 48), 1),
        (with(map, 2, farside_card::PAGES_MAX), 2),
        (with(map, 2, u64::MAX), 2),
        (with(map, 3, 0), 3),
        (with(map, 3, 1 << 32), 3),
        (with(map, 4, 1), 4),
        (with(map, 5, 1 << 32), 5),
        (with(map, 6, 0), 6),
        (with(map, 6, 2), 6),
        (with(map, 7, if has_tables { 2 } else { 1 }), 7),
        (with(unmap, 5, 1), 5),
        (with(unmap, 6, 1), 6),
        (with(resume, 3, 1), 3),
        (with(resume, 4, 1), 4),
        (with(cancel, 6, 0), 6),
        (with(cancel, 6, 99), 6),
        (with(cancel, 6, 1 << 32), 6),
        (with(cancel, 7, 1), 7),
        (with(entry(NO_ASID, name.clone()), 3, 0), 3),
        (with(entry(NO_ASID, name), 3, u64::from(NAME_BYTES_MAX) + 1), 3),
        (with(entry(NO_ASID, Operation::Abort(JobId(0))), 3, 1), 3),
        (with(entry(NO_ASID, Operation::PeStatus(PeId(0))), 2, 1 << 16), 2),
    ];
    wrong.extend((2..8).map(|word| (with(nop, word, 1), word as u64)));
    let launch = entry(
        NO_ASID,
        Operation::Launch { job: JobId(1), kernel: 0, pe: None, args: NO_LIST, message: NO_LIST },
    );
    wrong.extend([
        (with(launch, 3, 0x10001 << 32), 3),
        (with(launch, 4, 4), 4),
        (with(launch, 5, u64::from(ARGS_MAX) + 1), 5),
        (with(launch, 5, (u64::from(MESSAGE_BYTES_MAX) + 1) << 32), 5),
        (with(launch, 7, 1), 7),
    ]);
    if client.can(register::CAP_DMA) {
        let copy = |src, dst| entry(NO_ASID, Operation::Copy(moved(1, src, dst)));
        let fill = entry(NO_ASID, Operation::Fill(pages_at(0, 1, own), 0));
        let most = u64::from(client.read32(register::DMA_PAGES));
        wrong.extend([
            (with(copy(own, DmaAddr::Own(1)), 2, 1), 2),
            (copy(own, own), 5),
            (with(copy(own, DmaAddr::Own(1)), 6, 1), 6),
            (with(fill, 4, 1), 4),
            (with(fill, 7, 1), 7),
        ]);
        if most < client.frames().into() {
            wrong.push((with(fill, 3, most + 1), 3));
        }
    }
    wrong
}

pub(super) fn lists_with_one_mistake_are_refused_by_the_record(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    let nowhere = DmaAddr::Bus(0);
    let good = Extent { page: 9, count: 1, src: nowhere, dst: nowhere };
    let list = client.list(&[good; 3]);
    client.ok(NO_ASID, Operation::Unmap(list))?;
    let ExtentArg::List(ExtentList { address, .. }) = list else {
        return Err("a list is a list".into());
    };
    let unmap = entry(NO_ASID, Operation::Unmap(list));
    for (word, value) in [(2, address + 4), (3, 0), (3, EXTENTS_MAX + 1), (4, 1), (5, 1)] {
        mistake(&mut client, with(unmap, word, value), Status::BadOperand, word as u64)?;
    }
    for (record, word, value) in [(1, 1, 0), (2, 0, u64::MAX), (2, 2, 1), (3, 3, 1 << 40)] {
        let wrong = address + (record - 1) * 32 + word * 8;
        let before = good.to_words()[word as usize];
        client.write_words(wrong, &[value]);
        mistake(&mut client, unmap, Status::BadOperand, record << 8 | word)?;
        client.write_words(wrong, &[before]);
    }
    client.ok(NO_ASID, Operation::Unmap(list))?;
    // More pages than a command may name, though each record is well.
    let half = Extent { count: (LIST_PAGES_MAX / 2) as u32, ..good };
    let whole = client.list(&[half, half]);
    client.ok(NO_ASID, Operation::Unmap(whole))?;
    let too_long = client.list(&[half, half, good]);
    mistake(&mut client, entry(NO_ASID, Operation::Unmap(too_long)), Status::BadOperand, 3)?;
    let unreachable = client.target.unreachable();
    for entry in [
        with(unmap, 2, unreachable),
        entry(
            NO_ASID,
            Operation::Resume(FaultArg::List(ExtentList { address: unreachable, count: 2 })),
        ),
    ] {
        refused(&mut client, entry, Status::BadAddress, unreachable, register::ERROR_BUS)?;
    }
    client.finish()
}

pub(super) fn what_the_state_forbids_is_refused_without_an_error(
    target: &mut dyn Target,
) -> Outcome {
    let mut client = Client::open(target)?;
    let (pes, kernels) = (client.read32(register::PES), client.read32(register::KERNELS));
    let launch =
        |kernel, pe, args| Operation::Launch { job: JobId(1), kernel, pe, args, message: NO_LIST };
    let mut cases = vec![
        (Operation::Abort(JobId(77)), Status::NoSuchJob, 77),
        (launch(kernels, None, NO_LIST), Status::NoSuchKernel, kernels.into()),
    ];
    if let Ok(pe) = u16::try_from(pes) {
        cases.push((Operation::PeStatus(PeId(pe)), Status::NoPe, pes.into()));
        if kernels > 0 {
            cases.push((launch(0, Some(PeId(pe)), NO_LIST), Status::NoPe, pes.into()));
        }
    }
    for (operation, status, detail) in cases {
        refused(&mut client, entry(NO_ASID, operation), status, detail, 0)?;
    }
    let name = client.target.allocate(64);
    client.target.write(name, b"no such kernel");
    let unknown = Operation::Kernel { address: name, bytes: 14 };
    refused(&mut client, entry(NO_ASID, unknown), Status::NoSuchKernel, 0, 0)?;
    if kernels > 0 {
        client.write_words(name, &[9, 0, 0, 0]);
        let args = ExtentList { address: name, count: 1 };
        let wrong = entry(NO_ASID, launch(0, None, args));
        mistake(&mut client, wrong, Status::BadOperand, 4)?;
    }
    client.finish()
}

pub(super) fn foreign_frames_are_refused_and_counted(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    let frames = client.frames();
    let own = DmaAddr::Own;
    let mut operations = vec![
        Operation::Map(pages_at(1, 1, own(frames)), Rights::Read),
        Operation::Map(pages_at(1, 2, own(frames - 1)), Rights::Read),
    ];
    if client.can(register::CAP_DMA) {
        let bus = DmaAddr::Bus(client.bus_pages(2));
        operations.extend([
            Operation::Copy(moved(1, bus, own(frames))),
            Operation::Copy(moved(1, own(frames), bus)),
            Operation::Copy(moved(2, own(frames - 1), bus)),
            Operation::Fill(pages_at(0, 1, own(frames)), 0),
        ]);
    }
    for operation in operations {
        let before = client.counter("foreign_frames_refused");
        let entry = entry(NO_ASID, operation);
        let error = register::ERROR_FOREIGN_FRAME;
        refused(&mut client, entry, Status::ForeignFrame, frames.into(), error)?;
        same("foreign_frames_refused", client.counter("foreign_frames_refused"), before + 1)?;
    }
    let last = Operation::Map(pages_at(1, 1, own(frames - 1)), Rights::Read);
    client.ok(NO_ASID, last)?;
    client.finish()
}

pub(super) fn answers_to_faults_that_are_not_open_are_counted(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    let (first, last) = (FaultId(7), FaultId(9));
    let list = client.target.allocate(64);
    client.write_words(list, &[1, 2, 3]);
    let list = ExtentList { address: list, count: 3 };
    for (faults, stale) in [
        (FaultArg::One(first), 1),
        (FaultArg::Range(first..=last), 1),
        (FaultArg::Range(last..=first), 1),
        (FaultArg::List(list), 3),
    ] {
        for operation in [Operation::Resume(faults.clone()), Operation::Cancel(faults.clone(), 1)] {
            let before = client.counter("stale_answers");
            same("accesses answered", client.ok(NO_ASID, operation)?.value, 0)?;
            same("stale_answers", client.counter("stale_answers"), before + stale)?;
        }
    }
    client.finish()
}

pub(super) fn links_are_refused_where_there_is_none(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    if client.can(register::CAP_LINK) {
        return Ok(Verdict::NotRun("the function has a link".into()));
    }
    let extents = moved(1, DmaAddr::Own(0), DmaAddr::Bus(0));
    let send = entry(NO_ASID, Operation::LinkSend { extents, transfer: 1, to: 1 });
    mistake(&mut client, send, Status::Unsupported, 0)?;
    let cancel = entry(NO_ASID, Operation::LinkCancel { transfer: 1, from: 1 });
    mistake(&mut client, cancel, Status::Unsupported, 0)?;
    client.finish()
}
