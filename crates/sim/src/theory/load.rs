//! Latency and throughput against offered load: more and more wavefronts, each of which loads a
//! line, waits for it, and loads the next.

use std::fmt;

use serde::Serialize;

use super::bandwidth::{UNITS, one_channel, warm};
use super::bench::{Bench, group};
use super::latency::Parts;
use crate::{GpuCounts, Outcome, SimError, Spec};
use farside_workloads::{Group, LINE_BYTES, Line, Step};

/// Most wavefronts, on as many compute units as there are in [`UNITS`].
const WAVES_MAX: u32 = 4_096;
/// Loads of each wavefront in the shorter run; the longer one has twice as many.
const ROUNDS: u32 = 4;

/// So many wavefronts at a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Loads under way, one of each wavefront.
    pub wavefronts: u32,
    /// What they would get through if nobody waited for another, in GB/s.
    pub offered: f64,
    /// What they get through, in GB/s.
    pub throughput: f64,
    /// From a load to the next of the same wavefront, in ns.
    pub latency: f64,
    /// Mean latency of the loads as the machine counted it on their way, in ns; `None` if it does
    /// not count such loads. By Little's law, throughput × this is the number of wavefronts.
    pub counted: Option<f64>,
}

/// What comes out of more and more load on one thing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// On what.
    pub name: &'static str,
    /// Its bandwidth, in GB/s: no point is above it.
    pub capacity: f64,
    /// The latency of a load that is alone, in ns: no point is below it.
    pub unloaded: f64,
    /// By number of wavefronts, 1 to 4096.
    pub points: Vec<Point>,
}

impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Curve { name, capacity, unloaded, points } = self;
        writeln!(f, "{name}: at most {capacity} GB/s, at least {unloaded} ns")?;
        let header = ["wavefronts", "offered", "throughput", "latency"].map(String::from).to_vec();
        let row = |Point { wavefronts, offered, throughput, latency, .. }: &Point| {
            let numbers = [offered, throughput, latency].map(|number| format!("{number:.3}"));
            std::iter::once(wavefronts.to_string()).chain(numbers).collect()
        };
        let rows = std::iter::once(header).chain(points.iter().map(row));
        f.write_str(&crate::screen::table("rrrr", rows))
    }
}

/// Load curves of a memory channel, of the link between GPUs, and of the link to the host.
///
/// # Errors
/// [`SimError`]: a machine that cannot be.
pub fn curves(spec: &Spec) -> Result<Vec<Curve>, SimError> {
    spec.check()?;
    let parts = Parts(spec);
    let near = || parts.l1_tlb().plus(parts.l1());
    let own = near().plus(parts.l2()).plus(parts.memory());
    let peer = near().plus(parts.nvlink()).plus(parts.l2()).plus(parts.memory());
    let host = near().plus(parts.host());
    let ns = |sum: super::Sum| sum.span.0 as f64 / 1_000.0;
    let channel = spec.gpu.memory_gb_per_s as f64 / f64::from(spec.gpu.memory_channels);
    let curve = |name, capacity: f64, unloaded, bench: Bench, line| {
        let points = points(&bench, line, unloaded)?;
        Ok::<Curve, SimError>(Curve { name, capacity, unloaded, points })
    };
    let bench = |scheme, touched_by: &[u8]| warm(spec, scheme, touched_by, WAVES_MAX);
    let (nvlink, pcie) = (spec.link.nvlink_gb_per_s as f64, spec.link.pcie_gb_per_s as f64);
    Ok(vec![
        curve("one memory channel", channel, ns(own), bench("on-touch", &[0]), one_channel)?,
        curve("memory of another GPU", nvlink, ns(peer), bench("first-touch", &[1, 0]), any)?,
        curve("host memory", pcie, ns(host), bench("access-counter:map-host=on", &[0]), any)?,
    ])
}

fn any(_: &Spec, index: u32) -> u32 {
    index
}

type LineOf = fn(&Spec, u32) -> u32;

fn points(bench: &Bench, line: LineOf, unloaded: f64) -> Result<Vec<Point>, SimError> {
    let counts = std::iter::successors(Some(1), |waves| Some(waves * 2));
    let counts = counts.take_while(|waves| *waves <= WAVES_MAX);
    counts.map(|waves| point(bench, line, waves, unloaded)).collect()
}

fn point(bench: &Bench, line: LineOf, waves: u32, unloaded: f64) -> Result<Point, SimError> {
    let run = |rounds| bench.run(groups(bench, line, waves, rounds));
    let (short, long) = (run(ROUNDS)?, run(2 * ROUNDS)?);
    let time = (long.time - short.time).0 as f64 / 1_000.0;
    let bytes = f64::from(waves * ROUNDS) * LINE_BYTES as f64;
    Ok(Point {
        wavefronts: waves,
        offered: f64::from(waves) * LINE_BYTES as f64 / unloaded,
        throughput: bytes / time,
        latency: time / f64::from(ROUNDS),
        counted: counted(&bench.spec, &short, &long),
    })
}

/// The mean latency of the loads that the longer run has more. What is counted begins behind the
/// L1 cache.
fn counted(spec: &Spec, short: &Outcome, long: &Outcome) -> Option<f64> {
    let more = |read: fn(&GpuCounts) -> u64| (read(&long.total) - read(&short.total)) as f64;
    let loads = more(|counts| counts.remote);
    let parts = Parts(spec);
    let before = parts.l1_tlb().plus(parts.l1()).span.0 as f64;
    let way = more(|counts| counts.handling_remote.0) / loads;
    (loads > 0.0).then_some((before + way) / 1_000.0)
}

/// A work-group per compute unit; wavefronts are dealt out to them in turn. Each first loads a line
/// of every page, so that its TLB knows them.
fn groups(bench: &Bench, line: LineOf, waves: u32, rounds: u32) -> Vec<Group> {
    let first: Vec<Line> = (0..bench.pages as u32).map(|page| bench.line(page, 0)).collect();
    let load = |index| vec![Step::Load(vec![Line(line(&bench.spec, index))]), Step::Wait];
    let wave = |wave: u32| {
        let rounds = (0..rounds).flat_map(|round| load(64 + round * waves + wave));
        [Step::Load(first.clone()), Step::Wait].into_iter().chain(rounds).collect()
    };
    let units = u32::from(UNITS).min(waves);
    (0..units)
        .map(|unit| {
            let mine = (unit..waves).step_by(units as usize);
            group(0, unit as u8, mine.map(wave).collect())
        })
        .collect()
}
