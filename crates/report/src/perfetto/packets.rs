//! Packets into a file: each track is described before its first event.

use std::collections::HashSet;
use std::io::{self, Write};

use prost::Message;

use super::messages::{
    COUNTER, CounterDescriptor, DebugAnnotation, Trace, TracePacket, TrackDescriptor, TrackEvent,
};

/// Picoseconds of the log in one of Perfetto's units of time.
const PICOSECONDS: u64 = 1000;

/// Writes packets.
pub(crate) struct Packets<W> {
    out: W,
    described: HashSet<u64>,
    /// Whose packets come.
    sequence: u32,
    buffer: Vec<u8>,
    /// The first error: nothing is written after it.
    failed: Option<io::Error>,
}

impl<W: Write> Packets<W> {
    pub(crate) fn new(out: W) -> Packets<W> {
        let (described, buffer) = (HashSet::new(), Vec::new());
        Packets { out, described, sequence: 1, buffer, failed: None }
    }

    /// The packets that come are in no order with those before.
    pub(crate) fn next_sequence(&mut self) {
        self.sequence += 1;
    }

    /// A track, unless it was described already.
    pub(crate) fn track(&mut self, uuid: u64, descriptor: impl FnOnce() -> TrackDescriptor) {
        if self.described.insert(uuid) {
            let track = TrackDescriptor { uuid: Some(uuid), ..descriptor() };
            self.put(TracePacket { track_descriptor: Some(track), ..TracePacket::default() });
        }
    }

    /// A track of a counter.
    pub(crate) fn counter(&mut self, uuid: u64, parent: u64, name: String, of: CounterDescriptor) {
        let counter = Some(of);
        self.track(uuid, || TrackDescriptor {
            name: Some(name),
            parent_uuid: Some(parent),
            counter,
            ..TrackDescriptor::default()
        });
    }

    /// Something that happened on a track, in picoseconds.
    pub(crate) fn event(
        &mut self,
        at: u64,
        track: u64,
        what: i32,
        name: Option<&str>,
        arguments: Vec<DebugAnnotation>,
    ) {
        let event = TrackEvent {
            debug_annotations: arguments,
            r#type: Some(what),
            track_uuid: Some(track),
            name: name.map(str::to_owned),
            counter_value: None,
        };
        self.put_event(at, event);
    }

    /// The value that a counter has from then on.
    pub(crate) fn value(&mut self, at: u64, track: u64, value: i64) {
        let event = TrackEvent {
            r#type: Some(COUNTER),
            track_uuid: Some(track),
            counter_value: Some(value),
            ..TrackEvent::default()
        };
        self.put_event(at, event);
    }

    fn put_event(&mut self, at: u64, event: TrackEvent) {
        let timestamp = Some(at / PICOSECONDS);
        self.put(TracePacket { timestamp, track_event: Some(event), ..TracePacket::default() });
    }

    fn put(&mut self, packet: TracePacket) {
        if self.failed.is_some() {
            return;
        }
        let trusted_packet_sequence_id = Some(self.sequence);
        let packet = vec![TracePacket { trusted_packet_sequence_id, ..packet }];
        self.buffer.clear();
        // A file of one packet: files behind each other are one file.
        let written = Trace { packet }.encode(&mut self.buffer).map_err(io::Error::other);
        self.failed = written.and_then(|()| self.out.write_all(&self.buffer)).err();
    }

    /// # Errors
    /// The first one of writing.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.out.flush().map(|()| self.out),
        }
    }
}

/// Arguments that are shown beside an event.
pub(crate) fn address(name: &str, value: u64) -> DebugAnnotation {
    DebugAnnotation { pointer_value: Some(value), ..named(name) }
}

pub(crate) fn number(name: &str, value: u64) -> DebugAnnotation {
    DebugAnnotation { uint_value: Some(value), ..named(name) }
}

pub(crate) fn word(name: &str, value: &str) -> DebugAnnotation {
    DebugAnnotation { string_value: Some(value.to_owned()), ..named(name) }
}

fn named(name: &str) -> DebugAnnotation {
    DebugAnnotation { name: Some(name.to_owned()), ..DebugAnnotation::default() }
}
