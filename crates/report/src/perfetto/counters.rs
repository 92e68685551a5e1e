//! Counter tracks: bytes in each memory, bytes a second on each way, faults a second of each agent.

use std::collections::BTreeMap;
use std::io::Write;

use farside_events::Event;
use farside_types::{AgentId, MemoryId};

use super::messages::{CounterDescriptor, UNIT_SIZE_BYTES};
use super::packets::Packets;
use super::tracks::Tracks;

/// Points of a counter, at most.
const POINTS: u64 = 2048;
/// Picoseconds of a second.
const SECOND: u128 = 1_000_000_000_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Picoseconds of a point.
    width: u64,
    /// Bytes in each memory: now, and at the end of each point in which they changed.
    held: BTreeMap<MemoryId, (i64, BTreeMap<u64, i64>)>,
    /// Bytes that came in each point, by where from and to.
    came: BTreeMap<(Option<MemoryId>, MemoryId), BTreeMap<u64, u64>>,
    faults: BTreeMap<AgentId, BTreeMap<u64, u64>>,
}

impl Counters {
    /// Of a run of this length.
    pub(crate) fn new(end: u64) -> Counters {
        let width = end / POINTS + 1;
        Counters { width, held: BTreeMap::new(), came: BTreeMap::new(), faults: BTreeMap::new() }
    }

    /// An agent could not go on.
    pub(crate) fn fault(&mut self, event: &Event, agent: AgentId) {
        let point = event.at / self.width;
        *self.faults.entry(agent).or_default().entry(point).or_default() += 1;
    }

    /// Pages are in other places.
    pub(crate) fn change(&mut self, event: &Event) {
        let point = event.at / self.width;
        let bytes = i64::try_from(event.bytes).unwrap_or(i64::MAX);
        let gone = event.before.minus(event.after).iter().map(|memory| (memory, -bytes));
        let new = event.after.minus(event.before).iter().map(|memory| (memory, bytes));
        for (memory, bytes) in gone.chain(new) {
            let (now, points) = self.held.entry(memory).or_default();
            *now = now.saturating_add(bytes);
            points.insert(point, *now);
        }
        if let Some(to) = event.to {
            let came = self.came.entry((event.from, to)).or_default().entry(point).or_default();
            *came = came.saturating_add(event.bytes);
        }
    }

    /// Writes all of them.
    pub(crate) fn write<W: Write>(&self, packets: &mut Packets<W>, tracks: &mut Tracks) {
        let bytes = CounterDescriptor { unit: Some(UNIT_SIZE_BYTES), unit_name: None };
        let rate = |unit: &str| CounterDescriptor { unit: None, unit_name: Some(unit.to_owned()) };
        for (&memory, (_, points)) in &self.held {
            let (track, parent) = tracks.held(packets, memory);
            let name = format!("bytes in {}", tracks.words().memory(memory));
            packets.counter(track, parent, name, bytes.clone());
            points.iter().for_each(|(&point, &held)| {
                packets.value(point * self.width, track, held);
            });
        }
        for (&(from, to), points) in &self.came {
            let (track, parent) = tracks.way(packets, from, to);
            let from = from.map_or("zeros", |from| tracks.words().memory(from));
            let name = format!("{from} → {}", tracks.words().memory(to));
            packets.counter(track, parent, name, rate("B/s"));
            self.rates(packets, track, points);
        }
        for (&agent, points) in &self.faults {
            let (track, parent) = tracks.fault_rate(packets, agent);
            let name = format!("faults of {}", tracks.words().agent(agent));
            packets.counter(track, parent, name, rate("1/s"));
            self.rates(packets, track, points);
        }
    }

    /// A rate for each point, and 0 from its end on where nothing comes next.
    fn rates<W: Write>(&self, packets: &mut Packets<W>, track: u64, points: &BTreeMap<u64, u64>) {
        for (&point, &sum) in points {
            let rate = u128::from(sum) * SECOND / u128::from(self.width);
            packets.value(point * self.width, track, i64::try_from(rate).unwrap_or(i64::MAX));
            let next = point + 1;
            if !points.contains_key(&next) {
                packets.value(next.saturating_mul(self.width), track, 0);
            }
        }
    }
}
