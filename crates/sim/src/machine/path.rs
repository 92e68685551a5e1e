//! The way of a line behind the caches of its compute unit: a short list of stages.
//!
//! The same list is either reserved at once or walked event by event (`engine.mode`).

use farside_types::{MemoryId, Span, Time};
use serde::{Deserialize, Serialize};

use super::Machine;
use super::access::Access;
use crate::links::{PortKind, Resource};
use crate::workload::Line;

/// A part of the way: the line waits for its turn at the resource, occupies it for a while, and
/// is at the next stage `latency` after its turn came.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Stage {
    resource: Option<Resource>,
    occupancy: Span,
    latency: Span,
}

/// Most stages of a way: a read from a peer's memory has five.
const STAGES: usize = 6;

/// The stages of a way.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Path {
    stages: [Stage; STAGES],
    len: u8,
    /// After so many stages the line is in the L2 cache of its GPU.
    cached_after: u8,
    /// The L2 cache that takes the line in, by GPU, and whether it is written there.
    fills: Option<(u8, bool)>,
    /// The line is on its way to the L2 cache already, and there at this time.
    ready: Time,
}

const NOWHERE: Stage = Stage { resource: None, occupancy: Span::ZERO, latency: Span::ZERO };

impl Path {
    const fn new() -> Path {
        let stages = [NOWHERE; STAGES];
        Path { stages, len: 0, cached_after: 0, fills: None, ready: Time::ZERO }
    }

    fn push(&mut self, resource: Option<Resource>, occupancy: Span, latency: Span) {
        self.stages[usize::from(self.len)] = Stage { resource, occupancy, latency };
        self.len += 1;
    }

    /// Time that passes without being served.
    fn wait(&mut self, latency: Span) {
        self.push(None, Span::ZERO, latency);
    }
}

impl Machine {
    /// The way of an access to `memory` and back, behind the L1 caches.
    pub(super) fn path(&mut self, access: Access, memory: MemoryId) -> Path {
        let mut path = Path::new();
        let (gpu, store) = (usize::from(access.gpu), access.kind.is_store());
        let Some(owner) = memory.card().map(|card| usize::from(card.0)) else {
            self.to_host(&mut path, gpu, store);
            return path;
        };
        if owner == gpu {
            self.memory(&mut path, gpu, access.line, store);
            return path;
        }
        let wire = self.links.nvlink();
        let (from, to) = if store { (gpu, owner) } else { (owner, gpu) };
        let out = self.links.port(from, PortKind::ToPeers);
        let into = self.links.port(to, PortKind::FromPeers);
        if store {
            path.push(Some(out), wire.line, Span::ZERO);
            path.push(Some(into), wire.line, wire.line + wire.latency);
            self.memory(&mut path, owner, access.line, true);
            path.wait(wire.latency);
        } else {
            path.wait(wire.latency);
            self.memory(&mut path, owner, access.line, false);
            path.push(Some(out), wire.line, Span::ZERO);
            path.push(Some(into), wire.line, wire.line + wire.latency);
        }
        path
    }

    /// The line travels in one of the two directions; the request or the answer without it has no
    /// size.
    fn to_host(&self, path: &mut Path, gpu: usize, store: bool) {
        let wire = self.links.pcie();
        let there = Span::from_nanos(self.spec.link.host_memory_ns);
        if store {
            let port = self.links.port(gpu, PortKind::ToHost);
            path.push(Some(port), wire.line, wire.line + wire.latency + there + wire.latency);
        } else {
            let port = self.links.port(gpu, PortKind::FromHost);
            path.wait(wire.latency + there);
            path.push(Some(port), wire.line, wire.line + wire.latency);
        }
    }

    /// The L2 cache of the GPU that owns the line, and its memory if it is not held there.
    fn memory(&mut self, path: &mut Path, owner: usize, line: Line, store: bool) {
        let (bank, span) = self.links.bank(owner, line);
        path.push(Some(bank), span, self.times.l2_cache);
        let gpu = &mut self.gpus[owner];
        match gpu.l2_cache.lookup(line) {
            Some(ready) => {
                gpu.counts.l2_hits += 1;
                if store {
                    gpu.l2_cache.mark_dirty(line);
                } else {
                    path.ready = ready;
                }
            }
            None => {
                gpu.counts.l2_misses += 1;
                path.fills = Some((owner as u8, store));
                if !store {
                    let (channel, span) = self.links.channel(owner, line);
                    path.push(Some(channel), span, self.times.memory);
                }
            }
        }
        path.cached_after = path.len;
    }

    /// When a line that goes this way from `at` on comes to its end if it never waits; takes it
    /// into the L2 cache on its way.
    pub(super) fn unloaded(&mut self, path: &Path, line: Line, at: Time) -> Time {
        let mut at = at;
        for (index, stage) in path.stages[..usize::from(path.len)].iter().enumerate() {
            at = at + stage.latency;
            if index + 1 == usize::from(path.cached_after) {
                at = at.max(path.ready);
                self.fill_l2(path, line, at);
            }
        }
        at
    }

    /// A line is at stage `index` of its way now: when it is at the next one. `None`: it has come
    /// to the end.
    pub(super) fn pass(&mut self, path: &Path, index: u8) -> Option<Time> {
        let now = self.queue.now();
        if index >= path.len {
            return None;
        }
        let stage = path.stages[usize::from(index)];
        let start = stage
            .resource
            .map_or(now, |resource| self.links.reserve(resource, now, stage.occupancy));
        let next = start + stage.latency;
        Some(if index + 1 == path.cached_after { next.max(path.ready) } else { next })
    }

    /// Reserves the whole way from `at` on: when the line has come to its end.
    pub(super) fn reserve(&mut self, path: &Path, line: Line, at: Time) -> Time {
        let mut at = at;
        for (index, stage) in path.stages[..usize::from(path.len)].iter().enumerate() {
            if let Some(resource) = stage.resource {
                at = self.links.reserve(resource, at, stage.occupancy);
            }
            at = at + stage.latency;
            if index + 1 == usize::from(path.cached_after) {
                at = at.max(path.ready);
                self.fill_l2(path, line, at);
            }
        }
        at
    }

    /// Takes the line into the L2 cache; what has to go for it is written back.
    fn fill_l2(&mut self, path: &Path, line: Line, at: Time) {
        let Some((owner, store)) = path.fills else {
            return;
        };
        let owner = usize::from(owner);
        let cache = &mut self.gpus[owner].l2_cache;
        let evicted = cache.insert(line, at);
        if store {
            cache.mark_dirty(line);
        }
        if let Some(evicted) = evicted {
            let (channel, span) = self.links.channel(owner, evicted);
            self.links.reserve(channel, at, span);
            self.gpus[owner].counts.l2_write_backs += 1;
        }
    }
}
