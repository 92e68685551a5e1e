//! Access counters and their notices.

use farside_types::Rights;

use super::client::{Client, NO_ASID, ensure, kernel, needs, pages, same, words_at};
use super::{Outcome, Target};
use farside_card::interface::{ArgKind, DmaAddr, Operation, RingHeader, RingKind, register};

/// Touches one page over the bus.
fn touch_page(client: &mut Client, touch: u32, page: u64) -> Result<(), String> {
    let launch = client.launch(NO_ASID, 1, touch, &[words_at(ArgKind::Write, page, 512)])?;
    client.wait_ok(launch).map(drop)
}

pub(super) fn remote_accesses_are_noticed_once_until_they_are_cleared(
    target: &mut dyn Target,
) -> Outcome {
    let mut client = Client::open(target)?;
    needs!(client, CAP_COUNTERS);
    let touch = kernel!(client, "farside.touch");
    let group = u64::from(client.read32(register::COUNTER_GROUP_PAGES));
    let bus = client.bus_pages(1);
    client.target.write32(register::COUNTER_THRESHOLD, 5);
    // Two accesses a page, of which all are in own memory here: nothing to notice.
    let page = 8 * group + 1;
    client.map(NO_ASID, page, 1, DmaAddr::Own(1), Rights::ReadWrite)?;
    for _ in 0..5 {
        touch_page(&mut client, touch, page)?;
    }
    client.settle()?;
    same("notices of own memory", client.notices.len(), 0)?;
    let remote = client.counter("remote_accesses");
    client.map(NO_ASID, page, 1, DmaAddr::Bus(bus), Rights::ReadWrite)?;
    for round in 0..2 {
        for _ in 0..6 {
            touch_page(&mut client, touch, page)?;
        }
        let polled = |client: &mut Client| client.poll().map(|()| client.notices.len());
        client.comes_to("notices", polled, 1)?;
        client.settle()?;
        same("notices of one group", client.notices.len(), 1)?;
        let notice = client.notices[0];
        same("asid", notice.asid, NO_ASID)?;
        same("pages", (notice.pages.start.0, notice.pages.count), (8 * group, group))?;
        ensure!(notice.count >= 5, "a notice after {} accesses, not 5", notice.count);
        client.notices.clear();
        if round == 0 {
            touch_page(&mut client, touch, page)?;
            client.settle()?;
            same("notices before clearing", client.notices.len(), 0)?;
            client.ok(NO_ASID, Operation::CountersClear(pages(page, 1)))?;
        }
    }
    ensure!(client.counter("remote_accesses") >= remote + 13, "remote_accesses are not counted");
    same("the word on the bus", client.bus_words(bus)[0], 13)?;
    client.finish()
}

pub(super) fn a_full_notice_ring_loses_nothing(target: &mut dyn Target) -> Outcome {
    let mut client = Client::with_rings(target, [64, 64, 64, 8], 0)?;
    needs!(client, CAP_COUNTERS);
    let touch = kernel!(client, "farside.touch");
    let group = u64::from(client.read32(register::COUNTER_GROUP_PAGES));
    let bus = client.bus_pages(1);
    client.target.write32(register::COUNTER_THRESHOLD, 1);
    client.keep_notices(true);
    for index in 0..12 {
        let page = index * group;
        client.map(NO_ASID, page, 1, DmaAddr::Bus(bus), Rights::ReadWrite)?;
        touch_page(&mut client, touch, page)?;
    }
    let written = |client: &mut Client| Ok(client.fresh(RingKind::Notice).len());
    client.comes_to("notices in a full ring", written, 8)?;
    for _ in 0..30 {
        client.target.pause();
        same("notices in a ring of 8 that nobody reads", written(&mut client)?, 8)?;
    }
    // Clearing takes the notice back that found no room yet.
    client.ok(NO_ASID, Operation::CountersClear(pages(11 * group, 1)))?;
    client.keep_notices(false);
    client.until("the other notices", |client| {
        client.poll()?;
        Ok(client.notices.len() >= 11)
    })?;
    client.settle()?;
    let groups: Vec<u64> = client.notices.iter().map(|notice| notice.pages.start.0).collect();
    same("groups noticed", groups, (0..11).map(|index| index * group).collect())?;
    same("PRODUCER", client.index_of(RingKind::Notice, RingHeader::PRODUCER), 11)?;
    client.finish()
}
