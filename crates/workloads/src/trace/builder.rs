//! Makes a trace of records in the order of the recording.
//!
//! Records of one compute unit with the same sequence number (of a cycle-level recording: the
//! same cycle) and the same kind are one wavefront instruction, as long as it has no line twice.
//! The builder also puts in the waits, which recordings do not contain; see `docs/workloads.md`.

use super::sink::{Recorded, Sink};
use super::store::{Head, Kind, Launch, NO_GROUP, Piece, Stream};
use crate::Place;
use crate::TraceError;

/// Compute units of a GPU, at most.
pub(super) const UNITS_MAX: usize = 64;
/// Loads of a wavefront that are in flight at a time, when nothing else says that it waits.
const LOADS_MAX: u32 = 4;
/// In a cycle-level recording an instruction that was issued so many cycles after a load may
/// depend on it: about the shortest time in which a load that misses the first cache is answered.
const ANSWER_CYCLES: u32 = 100;

/// What is known of a stream while it is read.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    /// The instruction that may get more lines.
    sequence: Option<u32>,
    /// Loads since the last wait, whether there is a scalar one, and when the first was issued.
    loads: u32,
    scalar: bool,
    since: u32,
}

/// The streams of a launch that is read.
#[derive(Debug, Default)]
struct Building {
    launch: Launch,
    open: Vec<Open>,
    /// Number plus one of the stream of each place.
    index: Vec<u16>,
}

/// Collects records.
#[derive(Debug)]
pub(super) struct Builder {
    launches: Vec<Building>,
    /// Sequence numbers are cycles.
    cycles: bool,
    pub(super) accesses: u64,
    pub(super) markers: u64,
    pub(super) units: usize,
}

impl Builder {
    pub(super) fn new(cycles: bool) -> Builder {
        Builder { launches: Vec::new(), cycles, accesses: 0, markers: 0, units: 0 }
    }

    /// The stream of a place, which is checked, in a launch, counted from 0.
    fn stream(&mut self, launch: usize, place: Place) -> (&mut Stream, &mut Open) {
        if self.launches.len() <= launch {
            self.launches.resize_with(launch + 1, Building::default);
        }
        let building = &mut self.launches[launch];
        let at = usize::from(place.gpu) * UNITS_MAX + usize::from(place.unit);
        if building.index.len() <= at {
            building.index.resize(at + 1, 0);
        }
        if building.index[at] == 0 {
            let (heads, lines, pieces) = (Vec::new(), Vec::new(), Vec::new());
            building.launch.streams.push(Stream { place, heads, lines, pieces });
            building.open.push(Open::default());
            building.index[at] = building.open.len() as u16;
            self.units = self.units.max(usize::from(place.unit) + 1);
        }
        let stream = usize::from(building.index[at]) - 1;
        (&mut building.launch.streams[stream], &mut building.open[stream])
    }

    /// All launches.
    pub(super) fn finish(self) -> Vec<Launch> {
        let finished = self.launches.into_iter().map(|mut building| {
            for stream in &mut building.launch.streams {
                end(stream);
            }
            building.launch.finish();
            building.launch
        });
        finished.collect()
    }
}

impl Sink for Builder {
    fn marker(&mut self, launch: usize, place: Place, group: u32, wave: u16) {
        self.markers += 1;
        let (stream, open) = self.stream(launch, place);
        *open = Open::default();
        begin(stream, group, wave);
    }

    #[inline]
    fn access(&mut self, access: &Recorded) -> Result<(), TraceError> {
        let &Recorded { launch, place, sequence, kind, line, .. } = access;
        let cycles = self.cycles;
        let (stream, open) = self.stream(launch, place);
        if stream.heads.len() >= u32::MAX as usize - 1 || stream.lines.len() >= u32::MAX as usize {
            let (record, value) = (access.record, place.unit.into());
            let why = "more accesses than a compute unit can have in a launch";
            return Err(TraceError::Record { record, field: "CU", value, why });
        }
        if stream.pieces.is_empty() {
            begin(stream, NO_GROUP, 0);
        }
        if !(open.sequence == Some(sequence) && extend(stream, kind, line)) {
            if open.waits(cycles, sequence, kind) {
                stream.heads.push(Head::WAIT);
                (open.loads, open.scalar) = (0, false);
            }
            open.issued(sequence, kind);
            stream.heads.push(Head::one(kind));
            stream.lines.push(line);
        }
        self.accesses += 1;
        Ok(())
    }
}

/// Ends the piece under way, if there is one.
fn end(stream: &mut Stream) {
    let end = stream.heads.len() as u32;
    if let Some(piece) = stream.pieces.last_mut() {
        piece.end = end;
    }
}

fn begin(stream: &mut Stream, group: u32, wave: u16) {
    end(stream);
    let (head, line) = (stream.heads.len() as u32, stream.lines.len() as u32);
    stream.pieces.push(Piece { group, wave, head, line, end: head });
}

/// Adds a line to the last instruction, if it is of this kind and has room for it.
#[inline]
fn extend(stream: &mut Stream, kind: Kind, line: u32) -> bool {
    let Some(last) = stream.heads.last_mut() else {
        return false;
    };
    let lines = &stream.lines[stream.lines.len() - last.lines()..];
    match last.more() {
        Some(more) if last.kind() == kind && !lines.contains(&line) => {
            *last = more;
            stream.lines.push(line);
            true
        }
        _ => false,
    }
}

impl Open {
    /// Whether the wavefront waits for its loads before it issues this instruction.
    fn waits(&self, cycles: bool, sequence: u32, kind: Kind) -> bool {
        if self.loads == 0 {
            return false;
        }
        if cycles {
            return sequence.wrapping_sub(self.since) >= ANSWER_CYCLES;
        }
        let argument = self.scalar && kind != Kind::LoadScalar;
        argument || kind == Kind::Store || self.loads >= LOADS_MAX
    }

    fn issued(&mut self, sequence: u32, kind: Kind) {
        self.sequence = Some(sequence);
        if kind == Kind::Store {
            return;
        }
        if self.loads == 0 {
            self.since = sequence;
        }
        self.loads += 1;
        self.scalar |= kind == Kind::LoadScalar;
    }
}
