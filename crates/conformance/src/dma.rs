//! The page DMA: copies and fills.

use super::client::{Client, NO_ASID, ensure, marked, moved, needs, pages_at, same};
use super::{Outcome, Target};
use farside_card::interface::{DmaAddr, Extent, Operation, Status, register};

fn page_of(mark: u64) -> Vec<u64> {
    marked(mark).collect()
}

pub(super) fn copies_move_exactly_their_pages(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    needs!(client, CAP_DMA);
    let bus = client.bus_pages(6);
    for index in 0..6 {
        client.mark_bus(bus + index, 0x100 + u64::from(index));
    }
    for frame in 0..8 {
        client.mark_frame(frame, 0x200 + u64::from(frame));
    }
    // Into own memory, within it, and out of it; the pages beside stay as they are.
    let steps = [
        moved(3, DmaAddr::Bus(bus + 1), DmaAddr::Own(2)),
        moved(2, DmaAddr::Own(3), DmaAddr::Own(5)),
        moved(2, DmaAddr::Own(5), DmaAddr::Bus(bus + 4)),
    ];
    for step in steps {
        let done = client.ok(NO_ASID, Operation::Copy(step))?;
        ensure!(done.pages > 1, "{done:?} of a copy of several pages");
    }
    let frames = [0x200, 0x201, 0x101, 0x102, 0x103, 0x102, 0x103, 0x207];
    for (frame, mark) in (0..).zip(frames) {
        ensure!(client.frame_words(frame) == page_of(mark), "frame {frame} has other bytes");
    }
    let pages = [0x100, 0x101, 0x102, 0x103, 0x102, 0x103];
    for (index, mark) in (0..).zip(pages) {
        let words = client.bus_words(bus + index);
        ensure!(words == page_of(mark), "bus page {index} has other bytes");
    }
    client.finish()
}

pub(super) fn lists_are_carried_out_in_their_order(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    needs!(client, CAP_DMA);
    let bus = client.bus_pages(8);
    for index in 0..8 {
        client.mark_bus(bus + index, 0x300 + u64::from(index));
    }
    let last = client.frames() - 1;
    // Scattered, backwards, up to the last frame; the third extent copies what the first brought.
    let extent = |src, dst, count| Extent { page: 0, count, src, dst };
    let list = client.list(&[
        extent(DmaAddr::Bus(bus + 7), DmaAddr::Own(last), 1),
        extent(DmaAddr::Bus(bus), DmaAddr::Own(4), 4),
        extent(DmaAddr::Own(last), DmaAddr::Own(1), 1),
    ]);
    let done = client.ok(NO_ASID, Operation::Copy(list))?;
    same("the pages of a list", done.pages, 6)?;
    for (frame, mark) in [(last, 0x307), (4, 0x300), (7, 0x303), (1, 0x307)] {
        ensure!(client.frame_words(frame) == page_of(mark), "frame {frame} has other bytes");
    }
    client.finish()
}

pub(super) fn copies_between_bus_pages_work_where_they_are_announced(
    target: &mut dyn Target,
) -> Outcome {
    let mut client = Client::open(target)?;
    needs!(client, CAP_DMA);
    let bus = client.bus_pages(4);
    client.mark_bus(bus, 0x77);
    let copy = Operation::Copy(moved(1, DmaAddr::Bus(bus), DmaAddr::Bus(bus + 2)));
    if client.can(register::CAP_DMA_BUS_TO_BUS) {
        client.ok(NO_ASID, copy)?;
        ensure!(client.bus_words(bus + 2) == page_of(0x77), "the copy has other bytes");
    } else {
        client.expect(NO_ASID, copy, Status::Unsupported)?;
        ensure!(client.bus_words(bus + 2)[1] == 0, "a refused copy was made");
        client.expect_errors(register::ERROR_COMMAND)?;
    }
    client.finish()
}

pub(super) fn fills_repeat_their_word(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    needs!(client, CAP_DMA);
    let bus = client.bus_pages(1);
    for frame in 0..4 {
        client.mark_frame(frame, 0x400);
    }
    let word = 0x0123_4567_89ab_cdef;
    let fill = Operation::Fill(pages_at(0, 2, DmaAddr::Own(1)), word);
    same("the pages of a fill", client.ok(NO_ASID, fill)?.pages, 2)?;
    client.ok(NO_ASID, Operation::Fill(pages_at(0, 1, DmaAddr::Bus(bus)), word))?;
    for frame in [1, 2] {
        let words = client.frame_words(frame);
        ensure!(words.iter().all(|&found| found == word), "frame {frame} is not filled");
    }
    for frame in [0, 3] {
        ensure!(client.frame_words(frame) == page_of(0x400), "frame {frame} is filled");
    }
    ensure!(client.bus_words(bus).iter().all(|&found| found == word), "a bus page is not filled");
    client.ok(NO_ASID, Operation::Fill(pages_at(0, 1, DmaAddr::Own(1)), 0))?;
    ensure!(client.frame_words(1).iter().all(|&found| found == 0), "frame 1 is not cleared");
    client.finish()
}

pub(super) fn a_refused_extent_leaves_all_of_the_command_undone(
    target: &mut dyn Target,
) -> Outcome {
    let mut client = Client::open(target)?;
    needs!(client, CAP_DMA);
    client.mark_frame(1, 0x500);
    let foreign = client.frames();
    let extent =
        |frame| Extent { page: 0, count: 1, src: DmaAddr::Bus(0), dst: DmaAddr::Own(frame) };
    let list = client.list(&[extent(1), extent(2), extent(foreign)]);
    let done = client.expect(NO_ASID, Operation::Fill(list, 0), Status::ForeignFrame)?;
    same("the pages of a refused fill", done.pages, 0)?;
    ensure!(client.frame_words(1) == page_of(0x500), "a refused fill has filled");
    client.expect_errors(register::ERROR_FOREIGN_FRAME)?;
    client.finish()
}

pub(super) fn more_copies_than_go_at_once_wait_and_complete(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    needs!(client, CAP_DMA);
    let most = client.read32(register::DMA_COMMANDS).min(1000);
    let frames = client.frames();
    let mut tags = Vec::new();
    for index in 0..most * 2 + 3 {
        let page = pages_at(0, 1, DmaAddr::Own(index % frames));
        tags.push(client.submit(NO_ASID, Operation::Fill(page, index.into()))?);
    }
    for tag in tags {
        same("the pages of a fill", client.wait_ok(tag)?.pages, 1)?;
    }
    client.finish()
}

pub(super) fn a_barrier_comes_behind_copies(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    needs!(client, CAP_DMA);
    for round in 0..10u64 {
        let mut before = Vec::new();
        for frame in 0..3 {
            let pages = pages_at(0, 1, DmaAddr::Own(frame));
            before.push(client.submit(NO_ASID, Operation::Fill(pages, round))?);
        }
        let barrier = client.submit(NO_ASID, Operation::Barrier)?;
        client.wait_ok(barrier)?;
        let position = client.position(barrier);
        for tag in before {
            ensure!(client.position(tag) < position, "a barrier completed before a fill");
            client.wait_ok(tag)?;
        }
    }
    client.finish()
}
