//! The way of a line behind the caches of its compute unit: a short list of stages.
//!
//! The same stages are either reserved at once, or kept and walked event by event (`engine.mode`).

use farside_types::{MemoryId, Span, Time};
use serde::{Deserialize, Serialize};

use super::Machine;
use super::access::Access;
use crate::links::{Links, PortKind, Resource};
use farside_workloads::Line;

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

/// What happens where the line comes to the L2 cache that is nearest to its memory.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Cached {
    /// The L2 cache that takes the line in, by GPU, and whether it is written there.
    fills: Option<(u8, bool)>,
    /// The line is on its way to the L2 cache already, and there at this time.
    ready: Time,
}

/// Who is told the stages of a way, one after the other.
trait Way {
    /// The line comes to a stage.
    fn stage(&mut self, links: &mut Links, stage: Stage);

    /// After the stages so far, `line` is in an L2 cache.
    fn cached(&mut self, machine: &mut Machine, line: Line, cached: Cached);

    /// Time that passes without being served.
    fn wait(&mut self, links: &mut Links, latency: Span) {
        self.stage(links, Stage { resource: None, occupancy: Span::ZERO, latency });
    }

    /// The line is served by `resource`.
    fn serve(&mut self, links: &mut Links, resource: Resource, occupancy: Span, latency: Span) {
        self.stage(links, Stage { resource: Some(resource), occupancy, latency });
    }
}

/// Reserves each stage as soon as it is told.
struct Reservation {
    at: Time,
}

impl Way for Reservation {
    fn stage(&mut self, links: &mut Links, stage: Stage) {
        if let Some(resource) = stage.resource {
            self.at = links.reserve(resource, self.at, stage.occupancy);
        }
        self.at = self.at + stage.latency;
    }

    fn cached(&mut self, machine: &mut Machine, line: Line, cached: Cached) {
        self.at = self.at.max(cached.ready);
        machine.fill_l2(cached, line, self.at);
    }
}

/// Keeps the stages, to be walked later.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Path {
    stages: [Stage; STAGES],
    len: u8,
    /// After so many stages the line is in the L2 cache of its GPU.
    cached_after: u8,
    cached: Cached,
}

impl Way for Path {
    fn stage(&mut self, _: &mut Links, stage: Stage) {
        self.stages[usize::from(self.len)] = stage;
        self.len += 1;
    }

    fn cached(&mut self, _: &mut Machine, _: Line, cached: Cached) {
        self.cached_after = self.len;
        self.cached = cached;
    }
}

impl Machine {
    /// The way of an access to `memory` and back, behind the L1 caches.
    pub(super) fn path(&mut self, access: Access, memory: MemoryId) -> Path {
        let nowhere = Stage { resource: None, occupancy: Span::ZERO, latency: Span::ZERO };
        let (stages, cached) = ([nowhere; STAGES], Cached::default());
        let mut path = Path { stages, len: 0, cached_after: 0, cached };
        self.route(access, memory, &mut path);
        path
    }

    /// Reserves the same way from `at` on, all at once: when the line has come to its end.
    pub(super) fn reserve(&mut self, access: Access, memory: MemoryId, at: Time) -> Time {
        let mut way = Reservation { at };
        self.route(access, memory, &mut way);
        way.at
    }

    fn route<W: Way>(&mut self, access: Access, memory: MemoryId, way: &mut W) {
        let (gpu, store) = (usize::from(access.gpu), access.kind.is_store());
        let Some(owner) = memory.card().map(|card| usize::from(card.0)) else {
            self.way_to_host(way, gpu, store);
            return;
        };
        if owner == gpu {
            self.way_to_memory(way, gpu, access.line, store);
            return;
        }
        let wire = self.links.nvlink();
        let (from, to) = if store { (gpu, owner) } else { (owner, gpu) };
        let out = self.links.port(from, PortKind::ToPeers);
        let into = self.links.port(to, PortKind::FromPeers);
        if !store {
            way.wait(&mut self.links, wire.latency);
            self.way_to_memory(way, owner, access.line, false);
        }
        way.serve(&mut self.links, out, wire.line, Span::ZERO);
        way.serve(&mut self.links, into, wire.line, wire.line + wire.latency);
        if store {
            self.way_to_memory(way, owner, access.line, true);
            way.wait(&mut self.links, wire.latency);
        }
    }

    /// The line travels in one of the two directions; the request or the answer without it has no
    /// size.
    fn way_to_host<W: Way>(&mut self, way: &mut W, gpu: usize, store: bool) {
        let (wire, links) = (self.links.pcie(), &mut self.links);
        let there = Span::from_nanos(self.spec.link.host_memory_ns);
        if store {
            let port = links.port(gpu, PortKind::ToHost);
            way.serve(links, port, wire.line, wire.line + wire.latency + there + wire.latency);
        } else {
            let port = links.port(gpu, PortKind::FromHost);
            way.wait(links, wire.latency + there);
            way.serve(links, port, wire.line, wire.line + wire.latency);
        }
    }

    /// The L2 cache of the GPU that owns the line, and its memory if it is not held there.
    fn way_to_memory<W: Way>(&mut self, way: &mut W, owner: usize, line: Line, store: bool) {
        let (bank, span) = self.links.bank(owner, line);
        way.serve(&mut self.links, bank, span, self.times.l2_cache);
        let mut cached = Cached::default();
        let gpu = &mut self.gpus[owner];
        match gpu.l2_cache.lookup(line) {
            Some(ready) => {
                gpu.counts.l2_hits += 1;
                if store {
                    gpu.l2_cache.mark_dirty(line);
                } else {
                    cached.ready = ready;
                }
            }
            None => {
                gpu.counts.l2_misses += 1;
                cached.fills = Some((owner as u8, store));
                if !store {
                    let (channel, span) = self.links.channel(owner, line);
                    way.serve(&mut self.links, channel, span, self.times.memory);
                }
            }
        }
        way.cached(self, line, cached);
    }

    /// When a line that goes this way from `at` on comes to its end if it never waits; takes it
    /// into the L2 cache on its way.
    pub(super) fn unloaded(&mut self, path: &Path, line: Line, at: Time) -> Time {
        let mut at = at;
        for (index, stage) in path.stages[..usize::from(path.len)].iter().enumerate() {
            at = at + stage.latency;
            if index + 1 == usize::from(path.cached_after) {
                at = at.max(path.cached.ready);
                self.fill_l2(path.cached, line, at);
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
        Some(if index + 1 == path.cached_after { next.max(path.cached.ready) } else { next })
    }

    /// Takes the line into the L2 cache; what has to go for it is written back.
    fn fill_l2(&mut self, cached: Cached, line: Line, at: Time) {
        let Some((owner, store)) = cached.fills else {
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
