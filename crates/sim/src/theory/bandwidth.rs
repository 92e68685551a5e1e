//! Saturation: many wavefronts want the same bank, channel or link.
//!
//! Each probe runs a program in which every wavefront loads lines one instruction after the other,
//! and once more with twice as many. What the second run takes longer is the time of the additional
//! lines, without beginning and end. Pages are large, so that translation limits nothing.

use super::bench::{Bench, group};
use super::{Probe, Relation};
use crate::{SimError, Spec};
use farside_workloads::{Group, LINE_BYTES, LINES_MAX, Line, Step};

/// Compute units that load.
pub(super) const UNITS: u8 = 64;
/// Wavefronts of each.
const WAVES_EACH: u32 = 4;
const WAVES: u32 = UNITS as u32 * WAVES_EACH;
/// Pages of 2 MiB: enough for all lines.
const PAGES: u64 = 20;

/// What the wavefronts load.
struct Load {
    /// Lines of the whole program in the shorter run; the longer one has twice as many.
    lines: u32,
    /// Line number `index` of the program.
    line: fn(&Spec, u32) -> u32,
    store: bool,
}

/// Neighbouring lines, which are in different banks and channels.
fn any(_: &Spec, index: u32) -> u32 {
    index
}

/// Lines that an L2 cache holds, over and over.
fn few(_: &Spec, index: u32) -> u32 {
    index % 2_048
}

/// Such lines of one bank of the L2 cache.
fn one_bank(spec: &Spec, index: u32) -> u32 {
    within(spec.cache.l2_banks, index % (2_048 / spec.cache.l2_banks))
}

/// Lines that are in one memory channel.
pub(super) fn one_channel(spec: &Spec, index: u32) -> u32 {
    within(spec.gpu.memory_channels, index)
}

/// Line number `index` of those whose number has the same remainder as the number of the group of
/// 64 lines that it is in: neighbouring lines are spread over `parts` parts in this way.
fn within(parts: u32, index: u32) -> u32 {
    let per_group = 64 / parts;
    let group = index / per_group;
    let offset = (group % parts) + (index % per_group) * parts;
    group * 64 + offset
}

pub(super) fn probes(spec: &Spec) -> Result<Vec<Probe>, SimError> {
    let lines = |lines, line| Load { lines, line, store: false };
    let stores = |lines, line| Load { lines, line, store: true };
    let own = || warm(spec, "on-touch", &[0], WAVES);
    let peer = || warm(spec, "first-touch", &[1, 0], WAVES);
    let host = || warm(spec, "access-counter:map-host=on", &[0], WAVES);
    let cycle = spec.cycles(1).0 as f64 / 1_000.0;
    let line_a_cycle = LINE_BYTES as f64 / cycle;
    let (banks, channels) = (f64::from(spec.cache.l2_banks), f64::from(spec.gpu.memory_channels));
    let memory = spec.gpu.memory_gb_per_s as f64;
    let (nvlink, pcie) = (spec.link.nvlink_gb_per_s as f64, spec.link.pcie_gb_per_s as f64);
    let probe = |name, sum: &str, theory, bench: Bench, load: &Load| -> Result<Probe, SimError> {
        let measured = gb_per_s(&bench, load)?;
        let (sum, unit, relation) = (sum.to_owned(), "GB/s", Relation::Limit);
        Ok(Probe { name, sum, theory, measured, unit, relation })
    };
    let big = 1 << 15;
    Ok(vec![
        probe(
            "one bank of the L2 cache",
            "64 B a cycle",
            line_a_cycle,
            own(),
            &stores(1 << 12, one_bank),
        )?,
        probe(
            "L2 cache",
            "64 B a cycle × cache.l2_banks",
            line_a_cycle * banks,
            own(),
            &stores(big, few),
        )?,
        probe(
            "one memory channel",
            "gpu.memory_gb_per_s / gpu.memory_channels",
            memory / channels,
            own(),
            &lines(1 << 12, one_channel),
        )?,
        probe("own memory", "gpu.memory_gb_per_s", memory, own(), &lines(big, any))?,
        probe("loads from another GPU", "link.nvlink_gb_per_s", nvlink, peer(), &lines(big, any))?,
        probe("stores to another GPU", "link.nvlink_gb_per_s", nvlink, peer(), &stores(big, any))?,
        probe("loads from the host", "link.pcie_gb_per_s", pcie, host(), &lines(big, any))?,
        probe("stores to the host", "link.pcie_gb_per_s", pcie, host(), &stores(big, any))?,
    ])
}

/// A machine with room for so many wavefronts on its first GPU, and pages of 2 MiB, which these
/// GPUs touch one after the other before anything is measured.
pub(super) fn warm(spec: &Spec, scheme: &'static str, touched_by: &[u8], waves: u32) -> Bench {
    let mut bench = Bench::small(spec, scheme, PAGES);
    let spec = &mut bench.spec;
    (spec.page.bytes, spec.counter.group_bytes) = (2 << 20, 2 << 20);
    (spec.cache.l2_bytes, spec.cache.l2_ways) = (1 << 20, 16);
    (spec.tlb.l1_entries, spec.tlb.l1_ways) = (32, 32);
    spec.gpu.compute_units = UNITS.into();
    spec.gpu.wavefronts = spec.gpu.wavefronts.max(waves.div_ceil(UNITS.into()));
    let touch: Vec<Step> = (0..PAGES as u32).flat_map(|page| bench.load(page, 0)).collect();
    touched_by.iter().fold(bench, |bench, &gpu| bench.after(gpu, touch.clone()))
}

/// What gets through.
fn gb_per_s(bench: &Bench, load: &Load) -> Result<f64, SimError> {
    let run = |lines| bench.run(groups(&bench.spec, load, lines));
    let (short, long) = (run(load.lines)?, run(2 * load.lines)?);
    let bytes = u64::from(load.lines) * LINE_BYTES;
    Ok(bytes as f64 * 1_000.0 / (long.time - short.time).0 as f64)
}

/// A work-group per compute unit. Instructions are dealt out to all wavefronts in turn.
fn groups(spec: &Spec, load: &Load, lines: u32) -> Vec<Group> {
    let instruction = |index: u32| {
        let lines = (0..LINES_MAX as u32).map(|lane| index * LINES_MAX as u32 + lane);
        let lines = lines.map(|index| Line((load.line)(spec, index))).collect();
        if load.store { Step::Store(lines) } else { Step::Load(lines) }
    };
    let wave = |wave: u32| {
        let mine = (wave..lines / LINES_MAX as u32).step_by(WAVES as usize);
        mine.flat_map(|index| [instruction(index), Step::Wait]).collect()
    };
    (0..UNITS)
        .map(|unit| {
            let first = u32::from(unit) * WAVES_EACH;
            group(0, unit, (first..first + WAVES_EACH).map(wave).collect())
        })
        .collect()
}
