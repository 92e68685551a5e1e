//! What a function says of itself.

use super::client::{ensure, reset, same};
use super::{Outcome, Target, Verdict};
use farside_card::interface::{VERSION, register};

pub(super) fn a_function_names_itself_and_its_sizes(target: &mut dyn Target) -> Outcome {
    reset(target)?;
    same("MAGIC", target.read32(register::MAGIC), register::MAGIC_VALUE)?;
    same("the major version", target.read32(register::VERSION) >> 16, VERSION >> 16)?;
    same("STATUS after a reset", target.read32(register::STATUS), register::STATUS_QUIET)?;
    for (name, offset) in [
        ("FRAMES", register::FRAMES),
        ("PES", register::PES),
        ("ASIDS", register::ASIDS),
        ("FAULT_ENTRIES", register::FAULT_ENTRIES),
        ("COUNTER_THRESHOLD", register::COUNTER_THRESHOLD),
    ] {
        let value = target.read32(offset);
        ensure!(value != 0 && value != u32::MAX, "{name} is {value:#x}");
    }
    let capabilities = target.read64(register::CAPABILITIES);
    for (capability, name, offset) in [
        (register::CAP_DMA, "DMA_PAGES", register::DMA_PAGES),
        (register::CAP_DMA, "DMA_COMMANDS", register::DMA_COMMANDS),
        (register::CAP_GROUPS, "GROUP_RANGES", register::GROUP_RANGES),
        (register::CAP_TABLES, "TABLE_PAGES", register::TABLE_PAGES),
        (register::CAP_COUNTERS, "COUNTER_GROUP_PAGES", register::COUNTER_GROUP_PAGES),
    ] {
        let value = target.read32(offset);
        ensure!(capabilities & capability == 0 || value > 0, "{name} is 0, but it is announced");
    }
    ensure!(target.read32(register::PAGE_SIZES) & 1 << 12 != 0, "PAGE_SIZES has no 4 KiB");
    let generation = target.read64(register::GENERATION);
    reset(target)?;
    same("GENERATION after a reset", target.read64(register::GENERATION), generation)?;
    Ok(Verdict::Passed)
}
