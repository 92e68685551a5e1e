//! Logs as a trace for [Perfetto](https://ui.perfetto.dev), in its own format: a process for each run, in it a group for
//! each agent with its kernels, its faults, the pages that come to its memory, and counters over time.
//!
//! A log is read once; memory is taken for what is allocated, for the kernels that run, and for the points of counters.

mod counters;
mod messages;
mod packets;
mod tracks;

use std::collections::BTreeMap;
use std::io::{self, Write};

use farside_events::{About, Event, Kind, Names, ReadError, Reader};
use farside_types::AgentId;

use crate::text::shown;
use counters::Counters;
use messages::{DebugAnnotation, INSTANT, SLICE_BEGIN, SLICE_END};
use packets::{Packets, address, number, word};
use tracks::Tracks;

/// Faults, moves and what the program says that are written at most, of each run: a file of about 100 MB. Kernels and
/// counters are of the whole run always.
pub const INSTANTS_MOST: u64 = 1_000_000;

/// What has been written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traced {
    /// Faults, moves, and what the program says.
    pub instants: u64,
    /// Those that would have been too many: the last of each run.
    pub left_out: u64,
}

/// Why there is no whole trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A log cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The trace cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// Writes these logs as one trace.
///
/// # Errors
/// [`TraceError`] says which of the two sides failed, and why.
pub fn perfetto<W: Write>(logs: &[Reader], out: W) -> Result<Traced, TraceError> {
    let mut packets = Packets::new(out);
    let mut traced = Traced::default();
    for (at, log) in logs.iter().enumerate() {
        let end = crate::end(log)?;
        let mut run = Run::new(at, log.about(), end, &mut packets);
        log.for_each(|batch| batch.events.iter().for_each(|event| run.take(event, batch.names)))?;
        let of_run = run.finish();
        traced.instants += of_run.instants;
        traced.left_out += of_run.left_out;
    }
    packets.finish()?;
    Ok(traced)
}

/// A run that is being written.
struct Run<'a, W> {
    packets: &'a mut Packets<W>,
    tracks: Tracks,
    counters: Counters,
    end: u64,
    /// Allocations in use: their first byte, the first one behind them, their name.
    allocations: BTreeMap<u64, (u64, String)>,
    /// Names of jobs that were launched.
    launched: BTreeMap<u64, String>,
    /// Jobs that run: who runs them, in which track.
    running: BTreeMap<u64, (AgentId, u64)>,
    /// When a kernel began or ended last in each track.
    latest: BTreeMap<u64, u64>,
    traced: Traced,
}

impl<'a, W: Write> Run<'a, W> {
    fn new(at: usize, about: &About, end: u64, packets: &'a mut Packets<W>) -> Run<'a, W> {
        Run {
            packets,
            tracks: Tracks::new(at, about),
            counters: Counters::new(end),
            end,
            allocations: BTreeMap::new(),
            launched: BTreeMap::new(),
            running: BTreeMap::new(),
            latest: BTreeMap::new(),
            traced: Traced::default(),
        }
    }

    fn take(&mut self, event: &Event, names: &Names) {
        match event.kind {
            Kind::FaultRead | Kind::FaultWrite => self.fault(event),
            kind if kind.is_change() => self.change(event),
            Kind::Alloc => {
                let name = shown(names.get(event.name));
                let until = event.address.saturating_add(event.bytes);
                self.allocations.insert(event.address, (until, name));
                self.say(event);
            }
            Kind::Free => {
                self.say(event);
                self.allocations.remove(&event.address);
            }
            Kind::Launch => {
                self.launched.insert(event.number, shown(names.get(event.name)));
            }
            Kind::Begin => self.begin(event),
            Kind::End | Kind::Failed => self.end(event),
            Kind::Gone | Kind::Dropped => self.say(event),
            kind if kind.is_hint() => self.say(event),
            // A missing translation is nobody's wait for pages; what is lent and noticed is in the log.
            _ => {}
        }
    }

    fn fault(&mut self, event: &Event) {
        let Some(agent) = event.agent else { return };
        self.counters.fault(event, agent);
        let track = self.tracks.faults(self.packets, agent);
        self.instant(event, track, Vec::new());
    }

    fn change(&mut self, event: &Event) {
        self.counters.change(event);
        let memory = event.to.or_else(|| event.before.minus(event.after).first());
        let Some(memory) = memory.filter(|_| event.kind != Kind::Found) else { return };
        let track = self.tracks.arrivals(self.packets, memory);
        let words = self.tracks.words();
        let mut more = vec![word("reason", event.reason.map_or("", |reason| reason.name()))];
        more.extend(event.from.map(|from| word("from", words.memory(from))));
        more.extend(event.agent.map(|agent| word("for", words.agent(agent))));
        self.instant(event, track, more);
    }

    /// What the program says, and what there is to say of the log.
    fn say(&mut self, event: &Event) {
        let track = self.tracks.program(self.packets);
        let words = self.tracks.words();
        let mut more = Vec::new();
        more.extend(event.to.map(|to| word("to", words.memory(to))));
        more.extend(event.agent.map(|agent| word("agent", words.agent(agent))));
        if event.kind == Kind::Dropped {
            more.push(number("events", event.number));
        }
        self.instant(event, track, more);
    }

    fn instant(&mut self, event: &Event, track: u64, more: Vec<DebugAnnotation>) {
        if self.traced.instants == INSTANTS_MOST {
            self.traced.left_out += 1;
            return;
        }
        self.traced.instants += 1;
        let mut arguments = Vec::new();
        if event.bytes > 0 {
            arguments.extend([address("address", event.address), number("bytes", event.bytes)]);
            arguments.extend(self.allocation(event.address).map(|name| word("allocation", name)));
        }
        arguments.extend(more);
        self.packets.event(event.at, track, INSTANT, Some(event.kind.name()), arguments);
    }

    /// The name of what an address is in.
    fn allocation(&self, address: u64) -> Option<&str> {
        let (_, (until, name)) = self.allocations.range(..=address).next_back()?;
        (address < *until && !name.is_empty()).then_some(name)
    }

    fn begin(&mut self, event: &Event) {
        let agent = event.agent.unwrap_or(AgentId::CPU);
        // A log that says it twice has damage; the first of the two ends here.
        self.end(event);
        let track = self.tracks.enter(self.packets, agent);
        self.running.insert(event.number, (agent, track));
        let name = self.launched.remove(&event.number).filter(|name| !name.is_empty());
        let name = name.as_deref().unwrap_or("(unnamed)");
        let job = vec![number("job", event.number)];
        let at = self.in_order(event.at, track);
        self.packets.event(at, track, SLICE_BEGIN, Some(name), job);
    }

    /// That time, but not before what happened last in a track of kernels: threads of a live program note what they do a
    /// moment after it, and kernels that overlapped by that would lie in each other.
    fn in_order(&mut self, at: u64, track: u64) -> u64 {
        let latest = self.latest.entry(track).or_default();
        *latest = at.max(*latest);
        *latest
    }

    fn end(&mut self, event: &Event) {
        if let Some((agent, track)) = self.running.remove(&event.number) {
            let failed = (event.kind == Kind::Failed).then(|| word("ended", "failed"));
            let failed = failed.into_iter().collect();
            let at = self.in_order(event.at, track);
            self.packets.event(at, track, SLICE_END, None, failed);
            self.tracks.leave(agent, track);
        }
    }

    /// What runs still did until then.
    fn finish(mut self) -> Traced {
        for (_, track) in std::mem::take(&mut self.running).into_values() {
            let at = self.in_order(self.end, track);
            self.packets.event(at, track, SLICE_END, None, Vec::new());
        }
        self.packets.next_sequence();
        self.counters.write(self.packets, &mut self.tracks);
        self.packets.next_sequence();
        self.traced
    }
}

#[cfg(test)]
mod tests;
