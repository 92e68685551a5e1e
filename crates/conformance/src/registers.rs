//! Register rules, and what enabling finds.

use std::time::Duration;

use super::client::{Client, reset, same};
use super::{Outcome, Target, Verdict};
use farside_card::interface::{RingKind, pci, register};

/// Registers of 32 bits that can only be read.
const READ_ONLY: [u64; 4] =
    [register::MAGIC, register::FRAMES, register::STATUS, register::KERNELS];
/// Offsets where no register begins.
const HOLES: [u64; 6] = [0x058, 0x0fc, 0x118, 0x214, 0x3fc, 0x2000];

pub(super) fn reads_that_are_no_registers_give_ones_and_change_nothing(
    target: &mut dyn Target,
) -> Outcome {
    reset(target)?;
    for offset in HOLES {
        same(&format!("a read at {offset:#x}"), target.read32(offset), u32::MAX)?;
    }
    let narrow = [register::CAPABILITIES, register::ERRORS, register::counter(0)];
    for offset in narrow {
        same(&format!("half of {offset:#x}"), target.read32(offset), u32::MAX)?;
    }
    same("the other half of ERRORS", target.read32(register::ERRORS + 4), u32::MAX)?;
    same("two registers at once", target.read64(register::FRAMES), u64::MAX)?;
    same("the doorbell", target.read32(register::DOORBELL), u32::MAX)?;
    same("ERRORS", target.read64(register::ERRORS), 0)?;
    Ok(Verdict::Passed)
}

pub(super) fn writes_that_are_not_allowed_change_nothing_but_the_error(
    target: &mut dyn Target,
) -> Outcome {
    reset(target)?;
    let holes = HOLES.into_iter().map(|offset| (offset, u32::MAX));
    let read_only: Vec<(u64, u32)> =
        READ_ONLY.into_iter().map(|offset| (offset, target.read32(offset))).collect();
    for (offset, value) in holes.chain(read_only) {
        target.write32(offset, 0x5a);
        refused(target, offset)?;
        same(&format!("{offset:#x} after a write"), target.read32(offset), value)?;
    }
    for (offset, value) in [(register::ERRORS, 1), (register::ring(RingKind::Fault), 64)] {
        target.write32(offset, value);
        refused(target, offset)?;
    }
    target.write64(register::CONTROL, 1);
    refused(target, register::CONTROL)?;
    target.write32(register::CONTROL, 1 << 7);
    refused(target, register::CONTROL)?;
    let at = register::ring(RingKind::Notice) + register::RING_VECTOR;
    target.write32(at, pci::VECTORS.into());
    refused(target, at)?;
    same("a vector beyond the last", target.read32(at), 0)?;
    Ok(Verdict::Passed)
}

fn refused(target: &mut dyn Target, offset: u64) -> Result<(), String> {
    let what = format!("ERRORS after a write to {offset:#x}");
    same(&what, target.read64(register::ERRORS), register::ERROR_REGISTER)?;
    same("ERROR_DETAIL", target.read64(register::ERROR_DETAIL), offset)?;
    target.write64(register::ERRORS, register::ERROR_REGISTER);
    same("ERRORS, cleared", target.read64(register::ERRORS), 0)
}

pub(super) fn errors_stay_until_a_one_is_written(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    let tag = client.tag();
    client.push(&[tag, 0xffff, 0, 0, 0, 0, 0, 0])?;
    client.wait_for(tag)?;
    client.target.write32(register::MAGIC, 0);
    let both = register::ERROR_COMMAND | register::ERROR_REGISTER;
    for _ in 0..3 {
        same("ERRORS", client.errors(), both)?;
        same("the first error's detail", client.target.read64(register::ERROR_DETAIL), tag)?;
    }
    client.target.write64(register::ERRORS, 0);
    same("ERRORS after writing zeros", client.errors(), both)?;
    client.target.write64(register::ERRORS, register::ERROR_COMMAND);
    same("ERRORS after clearing one", client.errors(), register::ERROR_REGISTER)?;
    client.target.write64(register::ERRORS, u64::MAX);
    client.finish()
}

pub(super) fn errors_signal_their_vector_once(target: &mut dyn Target) -> Outcome {
    reset(target)?;
    while target.wait(pci::ERROR_VECTOR, Duration::from_millis(1)) {}
    target.write32(register::MAGIC, 0);
    let signalled = target.wait(pci::ERROR_VECTOR, Duration::from_secs(5));
    same("an interrupt for an error", signalled, true)?;
    target.write32(register::MAGIC, 0);
    let again = target.wait(pci::ERROR_VECTOR, Duration::from_millis(5));
    same("an interrupt for an error that is set already", again, false)?;
    target.write64(register::ERRORS, u64::MAX);
    target.write32(register::MAGIC, 0);
    let signalled = target.wait(pci::ERROR_VECTOR, Duration::from_secs(5));
    same("an interrupt for an error that was cleared before", signalled, true)?;
    Ok(Verdict::Passed)
}

pub(super) fn ring_registers_are_locked_while_the_rings_are_used(
    target: &mut dyn Target,
) -> Outcome {
    let mut client = Client::open(target)?;
    let at = register::ring(RingKind::Fault);
    let base = client.target.read64(at + register::RING_BASE);
    client.target.write64(at + register::RING_BASE, 0x4_0000);
    client.expect_errors(register::ERROR_REGISTER)?;
    same("RING_BASE", client.target.read64(at + register::RING_BASE), base)?;
    for (register, value) in [(register::RING_ENTRIES, 8), (register::RING_VECTOR, 0)] {
        let before = client.read32(at + register);
        client.target.write32(at + register, value);
        client.expect_errors(register::ERROR_REGISTER)?;
        same("a locked register", client.read32(at + register), before)?;
    }
    reset(client.target)?;
    for kind in RingKind::ALL {
        let at = register::ring(kind);
        same("RING_BASE after a reset", client.target.read64(at + register::RING_BASE), 0)?;
        for register in [register::RING_ENTRIES, register::RING_VECTOR, register::RING_INDEX] {
            same("a ring register after a reset", client.read32(at + register), 0)?;
        }
    }
    Ok(Verdict::Passed)
}

pub(super) fn the_counter_threshold_can_be_written(target: &mut dyn Target) -> Outcome {
    reset(target)?;
    let before = target.read32(register::COUNTER_THRESHOLD);
    target.write32(register::COUNTER_THRESHOLD, 17);
    same("COUNTER_THRESHOLD", target.read32(register::COUNTER_THRESHOLD), 17)?;
    target.write32(register::COUNTER_THRESHOLD, 0);
    refused(target, register::COUNTER_THRESHOLD)?;
    same("COUNTER_THRESHOLD", target.read32(register::COUNTER_THRESHOLD), 17)?;
    reset(target)?;
    let after = target.read32(register::COUNTER_THRESHOLD);
    same("COUNTER_THRESHOLD after a reset", after, before)?;
    Ok(Verdict::Passed)
}

/// Enables with one register of a ring changed; the function must fail with this error.
fn fails(
    target: &mut dyn Target,
    kind: RingKind,
    change: (u64, u64),
    error: u64,
) -> Result<(), String> {
    let client = Client::disabled(target, [16; 4], 0)?;
    let (register, value) = change;
    let at = register::ring(kind) + register;
    match register {
        register::RING_BASE => client.target.write64(at, value),
        _ => client.target.write32(at, value as u32),
    }
    client.target.write32(register::CONTROL, register::CONTROL_ENABLE);
    let what = format!("ERRORS of a {} ring with {change:x?}", kind.name());
    same(&what, target.read64(register::ERRORS), error)?;
    let status = target.read32(register::STATUS) & !register::STATUS_QUIET;
    same("STATUS", status, register::STATUS_FAILED)?;
    target.write64(register::ERRORS, u64::MAX);
    target.write32(register::CONTROL, register::CONTROL_ENABLE);
    refused(target, register::CONTROL)?;
    let status = target.read32(register::STATUS) & !register::STATUS_QUIET;
    same("STATUS before a reset", status, register::STATUS_FAILED)
}

pub(super) fn rings_that_make_no_sense_are_found_when_they_are_enabled(
    target: &mut dyn Target,
) -> Outcome {
    for kind in RingKind::ALL {
        for entries in [4, 12, 1 << 17, u64::from(u32::MAX)] {
            fails(target, kind, (register::RING_ENTRIES, entries), register::ERROR_RING)?;
        }
        for base in [0x1_0000_0020, 0xffff_ffff_ffff_ffc0] {
            fails(target, kind, (register::RING_BASE, base), register::ERROR_RING)?;
        }
    }
    for kind in [RingKind::Command, RingKind::Completion] {
        fails(target, kind, (register::RING_ENTRIES, 0), register::ERROR_RING)?;
    }
    let client = Client::open(target)?;
    client.finish()
}

pub(super) fn rings_that_cannot_be_reached_are_found_when_they_are_enabled(
    target: &mut dyn Target,
) -> Outcome {
    let nowhere = target.unreachable();
    for kind in RingKind::ALL {
        fails(target, kind, (register::RING_BASE, nowhere), register::ERROR_BUS)?;
    }
    let client = Client::open(target)?;
    client.finish()
}
