//! Translation tables in card memory, by what commands and kernels see of them.

use farside_types::{Asid, Rights};

use super::client::{
    Client, NO_ASID, PAGE, ensure, kernel, needs, pages, pages_at, same, words_at,
};
use super::{Outcome, Target, Verdict};
use farside_card::interface::{
    ArgKind, BITS_PAGES, BitsBuffer, CompletionEntry, DmaAddr, Extent, FaultArg, Operation, Status,
    register,
};

/// More pages than the TLBs of any card here hold one by one.
const MANY: u64 = 1400;
/// Where they begin, in a table of the leaf level that they share with others.
const START: u64 = 0x1234;

/// The frame of a page of many: never the one behind that of the page before.
fn frame_of(page: u64) -> u32 {
    4 + (page * 7 % 56) as u32
}

/// Maps pages one by one, each to its frame.
fn map_scattered(client: &mut Client, asid: Asid, first: u64, count: u64) -> Result<(), String> {
    let extents: Vec<Extent> = (first..first + count)
        .map(|page| Extent {
            page,
            count: 1,
            src: DmaAddr::Bus(0),
            dst: DmaAddr::Own(frame_of(page)),
        })
        .collect();
    let list = client.list(&extents);
    let done = client.ok(asid, Operation::Map(list, Rights::ReadWrite))?;
    same("the pages of a MAP", done.pages, count)
}

/// Runs a kernel over pages, which must not fault.
fn without_fault(
    client: &mut Client,
    asid: Asid,
    kernel: u32,
    kind: ArgKind,
    first: u64,
    count: u64,
) -> Result<(), String> {
    let raised = client.counter("faults_raised");
    let launch = client.launch(asid, 1, kernel, &[words_at(kind, first, count * 512)])?;
    client.serve(launch, |page| DmaAddr::Own(frame_of(page.0)))?;
    same("faults on pages that are mapped", client.counter("faults_raised"), raised)
}

/// Runs a kernel over one page, which must fault, and cancels it.
fn with_fault(
    client: &mut Client,
    asid: Asid,
    kernel: u32,
    kind: ArgKind,
    page: u64,
) -> Result<(), String> {
    let launch = client.launch(asid, 2, kernel, &[words_at(kind, page, 512)])?;
    let fault = client
        .wait_fault()
        .map_err(|error| format!("{error}: page {page:#x} of {asid:?} is used, and it is gone"))?;
    client.ok(NO_ASID, Operation::Cancel(FaultArg::One(fault.id()), 1))?;
    same("the launch", client.wait_for(launch)?.status, Status::KernelFault)
}

/// The pages among the first ones whose bits are set.
fn ones(completion: &CompletionEntry) -> Vec<u64> {
    let bit = |page: u64| completion.bits[(page / 64) as usize] >> (page % 64) & 1 == 1;
    (0..completion.value.min(BITS_PAGES)).filter(|&page| bit(page)).collect()
}

pub(super) fn mapped_pages_beyond_the_tlbs_do_not_fault(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    needs!(client, CAP_TABLES);
    let touch = kernel!(client, "farside.touch");
    let (total, used) = (register::TABLE_PAGES, register::TABLE_PAGES_USED);
    let (total, used) = (client.read32(total), client.read32(used));
    ensure!(total > 0 && used <= total, "{used} of {total} table pages are in use");
    map_scattered(&mut client, NO_ASID, START, MANY)?;
    let walks = client.counter("walks");
    for _ in 0..2 {
        without_fault(&mut client, NO_ASID, touch, ArgKind::Write, START, MANY)?;
    }
    ensure!(client.counter("walks") > walks, "no walk was counted");
    ensure!(client.read32(register::TABLE_PAGES_USED) > 0, "tables take no page");
    client.finish()
}

pub(super) fn no_byte_of_the_tables_is_in_the_memory_that_a_client_sees(
    target: &mut dyn Target,
) -> Outcome {
    /// At each end of the memory, of more frames than twice as many.
    const FRAMES: u64 = 1024;
    /// Words that would be entries: valid, writable, of frames that there are not.
    const BYTE: u8 = 0x77;
    let mut client = Client::open(target)?;
    needs!(client, CAP_TABLES);
    let touch = kernel!(client, "farside.touch");
    map_scattered(&mut client, NO_ASID, START, MANY)?;
    let frames = u64::from(client.frames());
    for frame in (0..frames).filter(|frame| *frame < FRAMES || frames - frame <= FRAMES) {
        client.target.write_frames(frame * PAGE, &[BYTE; PAGE as usize]);
    }
    without_fault(&mut client, NO_ASID, touch, ArgKind::Write, START, MANY)?;
    let touched = (START..START + MANY).filter(|&page| frame_of(page) == 9).count() as u64;
    let word = u64::from_le_bytes([BYTE; 8]) + touched;
    same("the word of a frame that pages have", client.frame_words(9)[0], word)?;
    client.finish()
}

pub(super) fn no_walk_cache_or_tlb_keeps_what_is_taken_away(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    needs!(client, CAP_TABLES);
    let (touch, sum) = (kernel!(client, "farside.touch"), kernel!(client, "farside.sum"));
    let other = if client.read32(register::ASIDS) > 1 { Asid(1) } else { NO_ASID };
    map_scattered(&mut client, NO_ASID, START, 64)?;
    without_fault(&mut client, NO_ASID, touch, ArgKind::Write, START, 64)?;
    // One page of a table that goes on to be used.
    client.ok(NO_ASID, Operation::Unmap(pages(START + 3, 1)))?;
    without_fault(&mut client, NO_ASID, touch, ArgKind::Write, START + 4, 8)?;
    with_fault(&mut client, NO_ASID, sum, ArgKind::Read, START + 3)?;
    // A right that is taken away.
    client.ok(NO_ASID, Operation::Protect(pages(START + 8, 2), Rights::Read))?;
    without_fault(&mut client, NO_ASID, sum, ArgKind::Read, START + 8, 2)?;
    with_fault(&mut client, NO_ASID, touch, ArgKind::Write, START + 9)?;
    without_fault(&mut client, NO_ASID, touch, ArgKind::Write, START + 10, 2)?;
    // A whole table, whose page goes to whoever needs one next.
    client.ok(NO_ASID, Operation::UnmapAll)?;
    map_scattered(&mut client, other, START + 0x10_0000, MANY)?;
    without_fault(&mut client, other, touch, ArgKind::Write, START + 0x10_0000, 600)?;
    for page in [START, START + 20, START + 63] {
        with_fault(&mut client, NO_ASID, sum, ArgKind::Read, page)?;
    }
    client.finish()
}

pub(super) fn aligned_runs_are_split_where_a_part_changes(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    needs!(client, CAP_TABLES);
    let (touch, sum) = (kernel!(client, "farside.touch"), kernel!(client, "farside.sum"));
    // Bus pages may be the same for many; a run of 32 at a time is aligned alike.
    for written in [false, true] {
        let place = pages_at(32, 32, DmaAddr::Own(32));
        let map = match written {
            false => Operation::Map(place, Rights::ReadWrite),
            true => Operation::MapWritten(place, Rights::ReadWrite),
        };
        client.ok(NO_ASID, map)?;
        without_fault(&mut client, NO_ASID, touch, ArgKind::Write, 32, 32)?;
        client.ok(NO_ASID, Operation::Unmap(pages(40, 1)))?;
        client.ok(NO_ASID, Operation::Protect(pages(48, 1), Rights::Read))?;
        with_fault(&mut client, NO_ASID, sum, ArgKind::Read, 40)?;
        with_fault(&mut client, NO_ASID, touch, ArgKind::Write, 48)?;
        for page in [32, 39, 41, 47, 49, 63] {
            without_fault(&mut client, NO_ASID, touch, ArgKind::Write, page, 1)?;
        }
        client.ok(NO_ASID, Operation::UnmapAll)?;
    }
    client.finish()
}

pub(super) fn an_unmap_tells_what_was_written(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    needs!(client, CAP_TABLES);
    let (touch, sum) = (kernel!(client, "farside.touch"), kernel!(client, "farside.sum"));
    let hold = kernel!(client, "farside.hold");
    map_scattered(&mut client, NO_ASID, START, 16)?;
    without_fault(&mut client, NO_ASID, sum, ArgKind::Read, START, 16)?;
    for page in [START + 2, START + 3, START + 15] {
        without_fault(&mut client, NO_ASID, touch, ArgKind::Write, page, 1)?;
    }
    let told = client.ok(NO_ASID, Operation::Unmap(pages(START, 17)))?;
    same("pages that are told", told.value, 17)?;
    same("pages that were written", ones(&told), vec![2, 3, 15, 16])?;
    // What is written until the drain ends is told.
    client.target.write_frames(5 * PAGE, &[0; 8]);
    client.map(NO_ASID, 5, 2, DmaAddr::Own(5), Rights::ReadWrite)?;
    let launch = client.launch(NO_ASID, 3, hold, &[words_at(ArgKind::Write, 5, 1)])?;
    client.until("the kernel to hold its page", |client| Ok(client.frame_words(5)[0] == 1))?;
    let taken = client.submit(NO_ASID, Operation::Unmap(pages(5, 2)))?;
    client.settle()?;
    ensure!(!client.has_completed(taken)?, "an UNMAP completed while its page is held");
    client.target.write_frames(5 * PAGE, &2u64.to_le_bytes());
    let told = client.wait_ok(taken)?;
    client.wait_ok(launch)?;
    same("pages that were written", (told.value, ones(&told)), (2, vec![0]))?;
    // What has no other copy counts as written.
    let map = Operation::MapWritten(pages_at(9, 2, DmaAddr::Own(9)), Rights::ReadWrite);
    client.ok(NO_ASID, map)?;
    let told = client.ok(NO_ASID, Operation::Unmap(pages(9, 2)))?;
    same("pages that count as written", ones(&told), vec![0, 1])?;
    client.finish()
}

pub(super) fn bits_outlive_faults_rights_and_new_entries_for_the_same_place(
    target: &mut dyn Target,
) -> Outcome {
    let mut client = Client::open(target)?;
    needs!(client, CAP_TABLES);
    let (touch, increment) =
        (kernel!(client, "farside.touch"), kernel!(client, "farside.increment"));
    // Written by what a fault was answered with.
    let range = [words_at(ArgKind::Write, START, 2 * 512)];
    let launch = client.launch(NO_ASID, 1, increment, &range)?;
    client.serve(launch, |page| DmaAddr::Own(frame_of(page.0)))?;
    client.map(NO_ASID, START + 2, 1, DmaAddr::Own(frame_of(START + 2)), Rights::ReadWrite)?;
    let told = client.ok(NO_ASID, Operation::Accessed(pages(START, 3), None))?;
    same("pages that were used", ones(&told), vec![0, 1])?;
    // Mapped where it is once more, with fewer rights and with all of them; and elsewhere.
    client.ok(NO_ASID, Operation::Protect(pages(START, 2), Rights::Read))?;
    for rights in [Rights::Read, Rights::ReadWrite] {
        client.map(NO_ASID, START, 1, DmaAddr::Own(frame_of(START)), rights)?;
    }
    client.map(NO_ASID, START + 1, 1, DmaAddr::Own(frame_of(START + 2)), Rights::ReadWrite)?;
    let told = client.ok(NO_ASID, Operation::Unmap(pages(START, 3)))?;
    same("pages that were written", ones(&told), vec![0])?;
    without_bits_after_an_unmap(&mut client, touch)?;
    client.finish()
}

/// What was taken away has no bits when it is mapped anew.
fn without_bits_after_an_unmap(client: &mut Client, touch: u32) -> Result<(), String> {
    map_scattered(client, NO_ASID, START, 3)?;
    without_fault(client, NO_ASID, touch, ArgKind::Write, START + 1, 1)?;
    let told = client.ok(NO_ASID, Operation::Unmap(pages(START, 3)))?;
    same("pages that were written", ones(&told), vec![1])
}

pub(super) fn bits_of_many_pages_go_to_a_buffer(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    needs!(client, CAP_TABLES);
    let touch = kernel!(client, "farside.touch");
    map_scattered(&mut client, NO_ASID, START, 256)?;
    without_fault(&mut client, NO_ASID, touch, ArgKind::Write, START + 190, 4)?;
    let address = client.target.unreachable();
    let wild = BitsBuffer { address, bytes: 32 };
    let refused = client.expect(
        NO_ASID,
        Operation::UnmapTelling(pages(START, 256), wild),
        Status::BadAddress,
    )?;
    same("detail", refused.detail, address)?;
    client.expect_errors(register::ERROR_COMMAND)?;
    let buffer = BitsBuffer { address: client.target.allocate(64), bytes: 32 };
    let told = client.ok(NO_ASID, Operation::UnmapTelling(pages(START, 256), buffer))?;
    same("pages that are told", (told.value, ones(&told)), (256, vec![190, 191]))?;
    let mut bytes = [0; 40];
    client.target.read(buffer.address, &mut bytes);
    let found = (0..320).filter(|page| bytes[page / 8] >> (page % 8) & 1 == 1);
    same("pages of the buffer", found.collect::<Vec<_>>(), vec![190, 191, 192, 193])?;
    client.finish()
}

pub(super) fn accessed_bits_are_read_and_cleared(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    needs!(client, CAP_TABLES);
    let sum = kernel!(client, "farside.sum");
    map_scattered(&mut client, NO_ASID, START, 16)?;
    let accessed = Operation::Accessed(pages(START, 17), None);
    for used in [vec![], vec![4, 9], vec![4]] {
        for page in &used {
            without_fault(&mut client, NO_ASID, sum, ArgKind::Read, START + page, 1)?;
        }
        let told = client.ok(NO_ASID, accessed.clone())?;
        let with_unknown: Vec<u64> = used.into_iter().chain([16]).collect();
        same("pages that are told", (told.value, told.pages), (17, 17))?;
        same("pages that were used", ones(&told), with_unknown)?;
    }
    client.finish()
}

/// Words that kernels have touched: the sum of the first words of the frames that pages of many have.
fn touched(client: &mut Client) -> u64 {
    (4..60).map(|frame| client.frame_words(frame)[0]).sum()
}

fn forget_touched(client: &mut Client) {
    for frame in 4..60 {
        client.target.write_frames(frame * PAGE, &[0; 8]);
    }
}

pub(super) fn an_unmap_beside_a_kernel_is_the_end_of_its_walks(target: &mut dyn Target) -> Outcome {
    /// Pages of the bus, and of one `UNMAP`.
    const PAGES: u64 = 128;
    const PART: u64 = 32;
    let mut client = Client::open(target)?;
    needs!(client, CAP_TABLES);
    let touch = kernel!(client, "farside.touch");
    let bus = client.bus_pages(PAGES as usize);
    for round in 0..4u64 {
        forget_touched(&mut client);
        (0..PAGES).for_each(|page| client.write_words((u64::from(bus) + page) * PAGE, &[0]));
        client.map(NO_ASID, START, PAGES as u32, DmaAddr::Bus(bus), Rights::ReadWrite)?;
        let range = [words_at(ArgKind::Write, START, PAGES * 512)];
        let launch = client.launch(NO_ASID, round, touch, &range)?;
        // Everything is taken away while the kernel comes by, in another order each time.
        let mut left = Vec::new();
        for part in 0..PAGES / PART {
            let first = (part + round) * PART % PAGES;
            let unmap = Operation::Unmap(pages(START + first, PART as u32));
            let told = client.submit(NO_ASID, unmap)?;
            let told = client.wait_ok(told)?;
            for page in 0..PART {
                let word = client.bus_words(bus + (first + page) as u32)[0];
                let is_told = ones(&told).contains(&page);
                ensure!(word == 0 || is_told, "page {} was written, untold", first + page);
                left.push((first + page, word));
            }
        }
        client.serve(launch, |page| DmaAddr::Own(frame_of(page.0)))?;
        for &(page, word) in &left {
            let now = client.bus_words(bus + page as u32)[0];
            same("a word of a page that was taken away", now, word)?;
        }
        let before: u64 = left.iter().map(|(_, word)| word).sum();
        same("pages that were touched", before + touched(&mut client), PAGES)?;
        client.ok(NO_ASID, Operation::UnmapAll)?;
    }
    client.finish()
}

pub(super) fn two_address_spaces_have_tables_and_bits_of_their_own(
    target: &mut dyn Target,
) -> Outcome {
    let mut client = Client::open(target)?;
    needs!(client, CAP_TABLES);
    let (touch, sum) = (kernel!(client, "farside.touch"), kernel!(client, "farside.sum"));
    if client.read32(register::ASIDS) < 2 {
        return Ok(Verdict::NotRun("the function has one address space".into()));
    }
    let (one, other) = (Asid(0), Asid(1));
    // The same pages in frames and with rights of their own.
    client.map(one, START, 16, DmaAddr::Own(4), Rights::ReadWrite)?;
    client.map(other, START, 16, DmaAddr::Own(24), Rights::Read)?;
    without_fault(&mut client, one, touch, ArgKind::Write, START + 2, 1)?;
    without_fault(&mut client, other, sum, ArgKind::Read, START + 5, 1)?;
    with_fault(&mut client, other, touch, ArgKind::Write, START + 2)?;
    for (asid, used) in [(one, vec![2]), (other, vec![5])] {
        let told = client.ok(asid, Operation::Accessed(pages(START + 2, 14), None))?;
        let used: Vec<u64> = used.into_iter().map(|page: u64| page - 2).collect();
        // Somebody asked for page 2 in vain: whether that counts as use is the card's.
        let found = ones(&told).into_iter().filter(|&page| asid == one || page != 0);
        same("pages that were used", found.collect::<Vec<_>>(), used)?;
    }
    // What is taken from one is there in the other, with its bits.
    let told = client.ok(other, Operation::Unmap(pages(START, 16)))?;
    same("pages that were written", ones(&told), vec![])?;
    without_fault(&mut client, one, sum, ArgKind::Read, START, 16)?;
    client.ok(other, Operation::UnmapAll)?;
    let told = client.ok(one, Operation::Unmap(pages(START, 16)))?;
    same("pages that were written", ones(&told), vec![2])?;
    client.finish()
}

/// Maps pages so far from one another that the tables have no room for all of them. Gives the last one, or
/// the table pages that are too many to fill.
fn fill_tables(client: &mut Client) -> Result<Result<u64, u64>, String> {
    // Each page so far from the others needs two tables at least.
    let wanted = u64::from(client.read32(register::TABLE_PAGES));
    if wanted > 60_000 {
        return Ok(Err(wanted));
    }
    let far = |index: u64| (index + 1) << 27;
    let extents: Vec<Extent> = (0..wanted)
        .map(|index| Extent {
            page: far(index),
            count: 1,
            src: DmaAddr::Bus(0),
            dst: DmaAddr::Own(frame_of(index)),
        })
        .collect();
    let full = client.counter("table_full");
    let list = client.list(&extents);
    client.ok(NO_ASID, Operation::Map(list, Rights::ReadWrite))?;
    ensure!(client.counter("table_full") > full, "tables of {wanted} pages are not full");
    Ok(Ok(far(wanted - 1)))
}

/// Why tables are not filled.
fn too_many(wanted: u64) -> Outcome {
    Ok(Verdict::NotRun(format!("{wanted} table pages are too many to fill").into()))
}

pub(super) fn full_tables_are_no_error(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    needs!(client, CAP_TABLES);
    let touch = kernel!(client, "farside.touch");
    let last = match fill_tables(&mut client)? {
        Ok(last) => last,
        Err(wanted) => return too_many(wanted),
    };
    let told = client.ok(NO_ASID, Operation::Unmap(pages(last, 1)))?;
    same("a page without an entry", (told.value, ones(&told)), (1, vec![0]))?;
    with_fault(&mut client, NO_ASID, touch, ArgKind::Write, last)?;
    client.ok(NO_ASID, Operation::UnmapAll)?;
    let full = client.counter("table_full");
    map_scattered(&mut client, NO_ASID, START, 600)?;
    same("table_full after everything was unmapped", client.counter("table_full"), full)?;
    without_fault(&mut client, NO_ASID, touch, ArgKind::Write, START, 600)?;
    client.finish()
}

pub(super) fn what_finds_no_room_in_the_tables_is_served_by_faults(
    target: &mut dyn Target,
) -> Outcome {
    /// Pages that a kernel touches.
    const FEW: u64 = 128;
    let mut client = Client::open(target)?;
    needs!(client, CAP_TABLES);
    let touch = kernel!(client, "farside.touch");
    if let Err(wanted) = fill_tables(&mut client)? {
        return too_many(wanted);
    }
    let total = client.read32(register::TABLE_PAGES);
    let used = client.read32(register::TABLE_PAGES_USED);
    ensure!(used <= total, "{used} of {total} table pages are in use");
    // All address spaces have the quota together.
    let other = if client.read32(register::ASIDS) > 1 { Asid(1) } else { NO_ASID };
    for (asid, count) in [(NO_ASID, MANY), (other, FEW)] {
        let first = START + 0x20_0000;
        forget_touched(&mut client);
        let full = client.counter("table_full");
        map_scattered(&mut client, asid, first, count)?;
        ensure!(client.counter("table_full") > full, "there was room for {asid:?} after all");
        // Of many pages the first ones are in no TLB any more.
        let range = [words_at(ArgKind::Write, first, FEW * 512)];
        let faults = client.counter("faults_raised");
        let launch = client.launch(asid, 1, touch, &range)?;
        let done = client.serve(launch, |page| DmaAddr::Own(frame_of(page.0)))?;
        same("the launch", done.status, Status::Ok)?;
        same("pages that were touched", touched(&mut client), FEW)?;
        let faults = client.counter("faults_raised") - faults;
        ensure!(count == FEW || faults > 0, "{count} pages without entries do not fault");
        let told = client.ok(asid, Operation::Unmap(pages(first, 64)))?;
        same("pages without an entry", ones(&told).len(), 64)?;
        with_fault(&mut client, asid, touch, ArgKind::Write, first + 1)?;
    }
    // What was written without an entry is so when it gets one.
    let page = START + 0x20_0000 + 100;
    client.map(NO_ASID, page, 1, DmaAddr::Own(frame_of(page)), Rights::ReadWrite)?;
    without_fault(&mut client, NO_ASID, touch, ArgKind::Write, page, 1)?;
    client.ok(NO_ASID, Operation::Unmap(pages(1 << 27, 60_000 << 15)))?;
    client.map(NO_ASID, page, 1, DmaAddr::Own(frame_of(page)), Rights::ReadWrite)?;
    let told = client.ok(NO_ASID, Operation::Unmap(pages(page, 1)))?;
    same("a page that was written without an entry", ones(&told), vec![0])?;
    client.finish()
}
