//! Rings: indices, back-pressure and signals.

use std::time::Duration;

use super::client::{Client, NO_ASID, ensure, same, vector};
use super::{Outcome, Target};
use farside_card::interface::{
    CommandEntry, Entry, FLAG_QUIET, Operation, RingHeader, RingKind, Status, register,
};

/// Long enough for an interrupt of a card process.
const SOON: Duration = Duration::from_secs(5);
/// Long enough to see that none comes.
const NEVER: Duration = Duration::from_millis(5);

fn nop(client: &mut Client) -> Entry {
    let tag = client.tag();
    CommandEntry { tag, asid: NO_ASID, operation: Operation::Nop }.to_entry()
}

pub(super) fn indices_wrap_at_the_ring_and_at_the_word(target: &mut dyn Target) -> Outcome {
    let mut client = Client::with_rings(target, [8; 4], u32::MAX - 20)?;
    let mut tags = Vec::new();
    for _ in 0..100 {
        tags.push(client.submit(NO_ASID, Operation::Nop)?);
    }
    for tag in tags {
        client.wait_ok(tag)?;
    }
    let reached = 100u32.wrapping_add(u32::MAX - 20);
    for kind in [RingKind::Command, RingKind::Completion] {
        let index = client.read32(register::ring(kind) + register::RING_INDEX);
        same("RING_INDEX", index, reached)?;
    }
    client.finish()
}

pub(super) fn rings_of_every_kind_go_on_where_the_headers_say(target: &mut dyn Target) -> Outcome {
    let mut client = Client::disabled(target, [8; 4], 5)?;
    let entry = nop(&mut client);
    client.push_quietly(&entry);
    client.enable()?;
    let done = client.wait_for(entry[0])?;
    same("a command that was in the ring before", done.status, Status::Ok)?;
    same("CONSUMER", client.index_of(RingKind::Command, RingHeader::CONSUMER), 6)?;
    same("PRODUCER", client.index_of(RingKind::Completion, RingHeader::PRODUCER), 6)?;
    client.finish()
}

pub(super) fn a_full_completion_ring_stops_commands_and_loses_nothing(
    target: &mut dyn Target,
) -> Outcome {
    let mut client = Client::with_rings(target, [64, 8, 8, 8], 0)?;
    let entries: Vec<Entry> = (0..50).map(|_| nop(&mut client)).collect();
    for entry in &entries {
        client.push_quietly(entry);
    }
    client.doorbell();
    let written = |client: &mut Client| Ok(client.fresh(RingKind::Completion).len());
    client.comes_to("completions without room for more", written, 8)?;
    for _ in 0..50 {
        client.target.pause();
        same("completions in a ring of 8 that nobody reads", written(&mut client)?, 8)?;
    }
    let taken = client.index_of(RingKind::Command, RingHeader::CONSUMER);
    ensure!(taken <= 16, "{taken} commands were taken with room for 8 completions");
    for entry in &entries {
        let done = client.wait_for(entry[0])?;
        same("a command behind a full ring", done.status, Status::Ok)?;
    }
    client.finish()
}

pub(super) fn a_sleeping_driver_is_interrupted_and_an_awake_one_is_not(
    target: &mut dyn Target,
) -> Outcome {
    let mut client = Client::open(target)?;
    let completions = vector(RingKind::Completion);
    let sleeps = client.header(RingKind::Completion, RingHeader::CONSUMER_SLEEPS);
    for _ in 0..3 {
        while client.target.wait(completions, Duration::from_millis(1)) {}
        client.target.store(sleeps, 1);
        let tag = client.submit(NO_ASID, Operation::Nop)?;
        let woken = client.target.wait(completions, SOON);
        same("an interrupt for a driver that sleeps", woken, true)?;
        ensure!(client.has_completed(tag)?, "the interrupt came before its completion");
        client.target.store(sleeps, 0);
        client.wait_ok(tag)?;
    }
    let before = client.counter("interrupts");
    for _ in 0..20 {
        client.ok(NO_ASID, Operation::Nop)?;
    }
    same("interrupts for a driver that is awake", client.counter("interrupts"), before)?;
    client.finish()
}

pub(super) fn quiet_commands_raise_no_interrupt_if_they_end_well(
    target: &mut dyn Target,
) -> Outcome {
    let mut client = Client::with_rings(target, [64, 16, 8, 8], 0)?;
    let completions = vector(RingKind::Completion);
    let sleeps = client.header(RingKind::Completion, RingHeader::CONSUMER_SLEEPS);
    while client.target.wait(completions, Duration::from_millis(1)) {}
    client.target.store(sleeps, 1);
    let give = |client: &mut Client, operand: u64| {
        let mut entry = nop(client);
        entry[1] |= u64::from(FLAG_QUIET) << 16;
        entry[2] = operand;
        let before = client.fresh(RingKind::Completion).len();
        client.push_quietly(&entry);
        client.doorbell();
        client.until("a quiet completion", |client| {
            Ok(client.fresh(RingKind::Completion).len() > before)
        })
    };
    for _ in 0..3 {
        give(&mut client, 0)?;
    }
    let woken = client.target.wait(completions, NEVER);
    same("an interrupt for quiet completions", woken, false)?;
    give(&mut client, 1)?;
    let woken = client.target.wait(completions, SOON);
    same("an interrupt for a quiet command that is refused", woken, true)?;
    client.expect_errors(register::ERROR_COMMAND)?;
    while client.target.wait(completions, NEVER) {}
    // Nobody consumes: the driver is woken before the ring is full.
    for _ in 4..12 {
        give(&mut client, 0)?;
    }
    let woken = client.target.wait(completions, SOON);
    same("an interrupt when half of the ring is full of quiet completions", woken, true)?;
    client.target.store(sleeps, 0);
    client.finish()
}

pub(super) fn a_driver_that_waits_for_room_is_told(target: &mut dyn Target) -> Outcome {
    let mut client = Client::disabled(target, [8, 64, 8, 8], 0)?;
    let entries: Vec<Entry> = (0..8).map(|_| nop(&mut client)).collect();
    for entry in &entries {
        client.push_quietly(entry);
    }
    let waits = client.header(RingKind::Command, RingHeader::PRODUCER_WAITS);
    client.target.store(waits, 1);
    client.target.fence();
    client.enable()?;
    let told = client.target.wait(vector(RingKind::Completion), SOON);
    same("an interrupt for a driver that waits for room", told, true)?;
    ensure!(client.room_for_commands() > 0, "the interrupt came before the room");
    client.target.store(waits, 0);
    for entry in &entries {
        client.wait_ok(entry[0])?;
    }
    client.settle()?;
    while client.target.wait(vector(RingKind::Completion), NEVER) {}
    client.ok(NO_ASID, Operation::Nop)?;
    let told = client.target.wait(vector(RingKind::Completion), NEVER);
    same("an interrupt for a driver that waits no more", told, false)?;
    client.finish()
}

/// The function must have failed with [`register::ERROR_RING`], and work again after a reset.
fn failed(client: &mut Client, what: &str) -> Result<(), String> {
    client.until("the function to fail", |client| {
        Ok(client.read32(register::STATUS) & register::STATUS_FAILED != 0)
    })?;
    same(what, client.errors(), register::ERROR_RING)
}

pub(super) fn indices_that_make_no_sense_stop_the_function(target: &mut dyn Target) -> Outcome {
    for producer in [9, u32::MAX, 1 << 31] {
        let mut client = Client::with_rings(target, [8; 4], 0)?;
        let address = client.header(RingKind::Command, RingHeader::PRODUCER);
        client.target.store(address, producer);
        client.doorbell();
        failed(&mut client, "ERRORS with a command index that cannot be")?;
    }
    for consumer in [9, u32::MAX] {
        let mut client = Client::with_rings(target, [16, 8, 8, 8], 0)?;
        for _ in 0..9 {
            let entry = nop(&mut client);
            client.push_quietly(&entry);
        }
        client.doorbell();
        client.until("a full completion ring", |client| {
            Ok(client.fresh(RingKind::Completion).len() == 8)
        })?;
        let address = client.header(RingKind::Completion, RingHeader::CONSUMER);
        client.target.store(address, consumer);
        client.doorbell();
        failed(&mut client, "ERRORS with a completion index that cannot be")?;
    }
    let mut client = Client::open(target)?;
    client.ok(NO_ASID, Operation::Nop)?;
    client.finish()
}

pub(super) fn disabled_rings_are_not_touched_and_go_on_later(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    client.ok(NO_ASID, Operation::Nop)?;
    client.target.write32(register::CONTROL, 0);
    let status = client.read32(register::STATUS);
    same("STATUS, disabled", status, register::STATUS_QUIET)?;
    let at = register::ring(RingKind::Command) + register::RING_INDEX;
    same("RING_INDEX, disabled", client.read32(at), 1)?;
    let entry = nop(&mut client);
    client.push_quietly(&entry);
    client.doorbell();
    client.settle()?;
    let taken = client.index_of(RingKind::Command, RingHeader::CONSUMER);
    same("commands taken from a disabled ring", taken, 1)?;
    client.enable()?;
    client.wait_ok(entry[0])?;
    client.finish()
}
