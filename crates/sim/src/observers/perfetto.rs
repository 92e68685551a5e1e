//! A trace to look at: <https://ui.perfetto.dev> opens it.
//!
//! It is in the Trace Event Format that Chrome introduced, as a JSON array, and is written while
//! the machine runs. A process for each GPU: a track for each wavefront slot that says what its
//! wavefront waits for, a track for the command ring, faults and copies that overlap. A process
//! for the host: what the driver's processor does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Arguments;
use std::io::{self, Write};

use farside_types::{Access, PageNo, Time};

use super::{action_name, memory_name};
use crate::observe::{FaultParts, Observation, Observer, Slot, WaitsFor};

/// The part of the time that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// From here.
    pub from: Time,
    /// Until here.
    pub until: Time,
}

/// The compute units whose wavefronts are written. Rings, faults, copies and the driver always are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Units {
    /// The first so many of each GPU.
    First(u8),
    /// These, as (GPU, compute unit).
    List(BTreeSet<(u8, u8)>),
}

/// What has been written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Events in the file, besides the names of tracks.
    pub events: u64,
    /// Events that would have been too many.
    pub left_out: u64,
}

/// Writes a trace.
#[derive(Debug)]
pub struct Perfetto<W> {
    out: W,
    window: Window,
    units: Units,
    events_max: u64,
    written: Written,
    /// The first error of writing; nothing is written after it.
    failed: Option<io::Error>,
    empty: bool,
    named: BTreeSet<(u64, u64)>,
    waves: BTreeMap<Slot, Wave>,
    /// Until when a track is filled.
    filled: BTreeMap<(u64, u64), u64>,
    next_id: u64,
    last: Time,
}

/// The wavefront that sits in a slot.
#[derive(Clone, Copy, Debug)]
struct Wave {
    wave: (u32, u32, u16),
    since: Time,
    /// Its beginning is in the file.
    begun: bool,
}

const HOST: u64 = 1;
const FIRST_GPU: u64 = 2;
const RING: u64 = 1;
const PROCESSOR: u64 = 1;
const FIRST_WAVE: u64 = 1_000;

/// A whole trace: all the time, of the first four compute units of each GPU.
impl<W: Write + Send> Perfetto<W> {
    /// Most events unless another limit is given: a file of about 150 MB.
    pub const EVENTS_MAX: u64 = 1_000_000;

    /// Writes to `out`, which should be buffered. Events that lie outside of `window`, or of
    /// wavefronts of other compute units, are not written.
    pub fn new(out: W, window: Window, units: Units) -> Perfetto<W> {
        Perfetto {
            out,
            window,
            units,
            events_max: Perfetto::<W>::EVENTS_MAX,
            written: Written::default(),
            failed: None,
            empty: true,
            named: BTreeSet::new(),
            waves: BTreeMap::new(),
            filled: BTreeMap::new(),
            next_id: 0,
            last: Time::ZERO,
        }
    }

    /// With another limit to the number of events. What is open is always closed.
    #[must_use]
    pub fn with_events_max(self, events_max: u64) -> Perfetto<W> {
        Perfetto { events_max, ..self }
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// The first error of writing, also an earlier one.
    pub fn finish(mut self) -> io::Result<(Written, W)> {
        let end = self.last.min(self.window.until);
        for (slot, wave) in std::mem::take(&mut self.waves) {
            self.wave_end(slot, wave, end);
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.out.write_all(if self.empty { b"[]\n" } else { b"\n]\n" })?;
        self.out.flush()?;
        Ok((self.written, self.out))
    }

    fn wanted(&self, slot: Slot) -> bool {
        match &self.units {
            Units::First(count) => slot.unit < *count,
            Units::List(units) => units.contains(&(slot.gpu, slot.unit)),
        }
    }

    /// A span of time in whole ns, cut to the window; `None` if nothing of it is left. Whole,
    /// because the viewer counts in ns: rounded one by one, neighbours could overlap.
    fn cut(&self, since: Time, until: Time) -> Option<(u64, u64)> {
        let from = since.max(self.window.from).0 / 1_000;
        let until = until.min(self.window.until).0 / 1_000;
        (from < until).then_some((from, until))
    }

    /// Room for an event, or one more that is left out.
    fn has_room(&mut self) -> bool {
        if self.written.events >= self.events_max {
            self.written.left_out += 1;
            return false;
        }
        true
    }

    fn put(&mut self, event: Arguments<'_>) {
        if self.failed.is_some() {
            return;
        }
        let before = if self.empty { "[\n" } else { ",\n" };
        self.empty = false;
        if let Err(error) = self.out.write_fmt(format_args!("{before}{event}")) {
            self.failed = Some(error);
        }
    }

    fn event(&mut self, event: Arguments<'_>) {
        self.written.events += 1;
        self.put(event);
    }

    /// Gives process and thread their names, once.
    fn name(&mut self, (process, thread): (u64, u64), name: Arguments<'_>) {
        if self.named.insert((process, 0)) {
            let title = match process {
                HOST => "host".to_owned(),
                gpu => format!("GPU {}", gpu - FIRST_GPU),
            };
            self.put(format_args!(
                r#"{{"ph":"M","pid":{process},"name":"process_name","args":{{"name":"{title}"}}}}"#
            ));
        }
        if self.named.insert((process, thread)) {
            self.put(format_args!(
                r#"{{"ph":"M","pid":{process},"tid":{thread},"name":"thread_name","args":{{"name":"{name}"}}}}"#
            ));
        }
    }

    /// A slice on a track of its own kind: what comes on one track does not overlap. What began
    /// before the slice on its left has ended is cut.
    fn slice(
        &mut self,
        track: (u64, u64),
        since: Time,
        now: Time,
        name: &str,
        args: Arguments<'_>,
    ) {
        let filled = self.filled.get(&track).copied().unwrap_or(0);
        let Some((from, until)) = self.cut(since.max(Time::from_nanos(filled)), now) else {
            return;
        };
        if !self.has_room() {
            return;
        }
        self.filled.insert(track, until);
        let ((process, thread), name) = (track, quoted(name));
        let (start, length) = (Micros(from), Micros(until - from));
        self.event(format_args!(
            r#"{{"ph":"X","pid":{process},"tid":{thread},"ts":{start},"dur":{length},"name":{name},"args":{{{args}}}}}"#
        ));
    }

    /// Something of which several may be under way on a GPU.
    fn overlapping(
        &mut self,
        process: u64,
        kind: &str,
        (since, now): (Time, Time),
        name: &str,
        args: Arguments<'_>,
    ) {
        let Some((from, until)) = self.cut(since, now) else {
            return;
        };
        if !self.has_room() {
            return;
        }
        let (id, name) = (self.next_id, quoted(name));
        self.next_id += 1;
        let common = format!(r#""cat":"{kind}","id":{id},"pid":{process},"tid":0,"name":{name}"#);
        let (from, until) = (Micros(from), Micros(until));
        self.event(format_args!(r#"{{"ph":"b",{common},"ts":{from},"args":{{{args}}}}}"#));
        self.put(format_args!(r#"{{"ph":"e",{common},"ts":{until}}}"#));
    }

    /// Writes the beginning of a slot's wavefront if it is not in the file yet.
    fn wave_begin(&mut self, slot: Slot, now: Time) {
        let Some(wave) = self.waves.get(&slot).copied().filter(|wave| !wave.begun) else {
            return;
        };
        let track = wave_track(slot);
        let filled = self.filled.get(&track).copied().unwrap_or(0);
        let Some((from, _)) = self.cut(wave.since.max(Time::from_nanos(filled)), now) else {
            return;
        };
        if !self.has_room() {
            return;
        }
        self.filled.insert(track, from);
        self.name(track, format_args!("CU {} slot {}", slot.unit, slot.slot));
        let ((process, thread), start) = (track, Micros(from));
        let (launch, group, index) = wave.wave;
        self.event(format_args!(
            r#"{{"ph":"B","pid":{process},"tid":{thread},"ts":{start},"name":"group {group} wave {index}","args":{{"launch":{launch}}}}}"#
        ));
        self.waves.insert(slot, Wave { begun: true, ..wave });
    }

    fn wave_end(&mut self, slot: Slot, wave: Wave, now: Time) {
        if !wave.begun {
            return;
        }
        let (process, thread) = wave_track(slot);
        let filled = self.filled.get(&(process, thread)).copied().unwrap_or(0);
        let end = (now.min(self.window.until).0 / 1_000).max(filled);
        self.filled.insert((process, thread), end);
        let end = Micros(end);
        self.put(format_args!(r#"{{"ph":"E","pid":{process},"tid":{thread},"ts":{end}}}"#));
    }

    fn wait(
        &mut self,
        slot: Slot,
        waits_for: WaitsFor,
        page: Option<PageNo>,
        (since, now): (Time, Time),
    ) {
        if !self.wanted(slot) || self.cut(since, now).is_none() {
            return;
        }
        self.wave_begin(slot, now);
        let track = wave_track(slot);
        self.name(track, format_args!("CU {} slot {}", slot.unit, slot.slot));
        let name = wait_name(waits_for);
        match page {
            Some(page) => self.slice(track, since, now, name, format_args!(r#""page":{}"#, page.0)),
            None => self.slice(track, since, now, name, format_args!("")),
        }
    }

    fn replay(
        &mut self,
        gpu: u8,
        page: PageNo,
        access: Access,
        times: (Time, Time),
        parts: &FaultParts,
    ) {
        let name = match access {
            Access::Read => "read fault",
            Access::Write => "write fault",
        };
        let FaultParts { reported, host, invalidation, copy, replay } = *parts;
        self.overlapping(
            process(gpu),
            "fault",
            times,
            name,
            format_args!(
                r#""page":{},"reported_ns":{},"host_ns":{},"invalidation_ns":{},"copy_ns":{},"replay_ns":{}"#,
                page.0,
                reported.as_nanos(),
                host.as_nanos(),
                invalidation.as_nanos(),
                copy.as_nanos(),
                replay.as_nanos()
            ),
        );
    }
}

impl<W: Write + Send> Observer for Perfetto<W> {
    fn observe(&mut self, now: Time, what: &Observation) {
        self.last = self.last.max(now);
        match *what {
            Observation::WaveBegin { slot, wave } => {
                if self.wanted(slot) {
                    let before = self.waves.insert(slot, Wave { wave, since: now, begun: false });
                    before.into_iter().for_each(|before| self.wave_end(slot, before, now));
                }
            }
            Observation::WaveEnd { slot } => {
                self.wave_begin(slot, now);
                if let Some(wave) = self.waves.remove(&slot) {
                    self.wave_end(slot, wave, now);
                }
            }
            Observation::Wait { slot, waits_for, page, since } => {
                self.wait(slot, waits_for, page, (since, now));
            }
            Observation::Replay { gpu, page, access, since, ref parts } => {
                self.replay(gpu, page, access, (since, now), parts);
            }
            Observation::Transfer { page, pages, from, to, reason, since } => {
                let gpu = to.card().or(from.and_then(|from| from.card()));
                let process = gpu.map_or(HOST, |gpu| process(gpu.0));
                let way = format!("{} to {}", memory_name(from), memory_name(Some(to)));
                let page = page.0;
                let args = format_args!(r#""page":{page},"pages":{pages},"reason":"{reason}""#)
                    .to_string();
                self.overlapping(process, "copy", (since, now), &way, format_args!("{args}"));
            }
            Observation::Command { gpu, name, page, pages, since } => {
                let track = (process(gpu), RING);
                self.name(track, format_args!("command ring"));
                let page = page.map_or("null".to_owned(), |page| page.0.to_string());
                self.slice(
                    track,
                    since,
                    now,
                    name,
                    format_args!(r#""page":{page},"pages":{pages}"#),
                );
            }
            Observation::Host { name, entries, since } => {
                let track = (HOST, PROCESSOR);
                self.name(track, format_args!("driver"));
                self.slice(track, since, now, name, format_args!(r#""entries":{entries}"#));
            }
            Observation::Decision { page, gpu, action, reason, made: _ } => {
                if now >= self.window.from && now < self.window.until && self.has_room() {
                    self.name((HOST, PROCESSOR), format_args!("driver"));
                    let gpu = gpu.map_or("null".to_owned(), |gpu| gpu.to_string());
                    let (at, page, action) = (Micros(now.0 / 1_000), page.0, action_name(action));
                    self.event(format_args!(
                        r#"{{"ph":"i","s":"t","pid":{HOST},"tid":{PROCESSOR},"ts":{at},"name":"{action}","args":{{"page":{page},"gpu":{gpu},"reason":"{reason}"}}}}"#
                    ));
                }
            }
            Observation::Fault { .. } | Observation::LaunchEnd { .. } => {}
        }
    }
}

fn process(gpu: u8) -> u64 {
    FIRST_GPU + u64::from(gpu)
}

fn wave_track(slot: Slot) -> (u64, u64) {
    let thread = FIRST_WAVE + u64::from(slot.unit) * 256 + u64::from(slot.slot);
    (process(slot.gpu), thread)
}

fn wait_name(waits_for: WaitsFor) -> &'static str {
    match waits_for {
        WaitsFor::Walk => "walk",
        WaitsFor::Local => "local",
        WaitsFor::Remote => "remote",
        WaitsFor::Fault => "fault",
        WaitsFor::Barrier => "barrier",
        WaitsFor::Compute => "compute",
        WaitsFor::Flush => "flush",
    }
}

/// A string as JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Nanoseconds, written as the format's microseconds.
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_svm::placement::Action;
    use farside_types::{MemoryId, Reason, Span};
    use proptest::prelude::*;
    use serde_json::Value;

    const ALL: Window = Window { from: Time::ZERO, until: Time(u64::MAX) };

    fn slot(gpu: u8, unit: u8, slot: u8) -> Slot {
        Slot { gpu, unit, slot }
    }

    fn ns(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    fn wait(at: Slot, waits_for: WaitsFor, page: Option<u64>, since: u64) -> Observation {
        Observation::Wait { slot: at, waits_for, page: page.map(PageNo), since: ns(since) }
    }

    /// The events of a trace, and what was written.
    fn trace(
        window: Window,
        units: Units,
        events_max: u64,
        what: &[(Time, Observation)],
    ) -> (Vec<Value>, Written) {
        let perfetto = Perfetto::new(Vec::new(), window, units);
        let mut perfetto = perfetto.with_events_max(events_max);
        what.iter().for_each(|(now, what)| perfetto.observe(*now, what));
        let (written, bytes) = perfetto.finish().unwrap();
        let Value::Array(events) = serde_json::from_slice(&bytes).unwrap() else {
            panic!("not a list");
        };
        (events, written)
    }

    fn nanos(event: &Value, key: &str) -> u64 {
        (event[key].as_f64().unwrap() * 1_000.0).round() as u64
    }

    /// Slices of a track lie in each other or beside each other; all that begins ends.
    fn check_nesting(events: &[Value]) {
        let mut tracks: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
        let mut open = BTreeMap::new();
        for event in events {
            match event["ph"].as_str().unwrap() {
                "B" | "E" | "X" => {
                    let track = format!("{}/{}", event["pid"], event["tid"]);
                    tracks.entry(track).or_default().push(event);
                }
                "b" => assert!(open.insert(event["id"].to_string(), nanos(event, "ts")).is_none()),
                "e" => assert!(open.remove(&event["id"].to_string()).unwrap() < nanos(event, "ts")),
                "M" | "i" => {}
                other => panic!("{other}"),
            }
        }
        assert!(open.is_empty());
        for (track, mut events) in tracks {
            // The order in which a viewer takes them: of time, and of the file among equals.
            events.sort_by_key(|event| nanos(event, "ts"));
            let (mut depth, mut free_at, mut begun_at) = (0, 0, 0);
            for event in events {
                let at = nanos(event, "ts");
                assert!(at >= free_at, "{track}: {event}");
                match event["ph"].as_str().unwrap() {
                    "B" => (depth, begun_at) = (depth + 1, at),
                    "E" => {
                        depth -= 1;
                        assert!(at >= begun_at);
                    }
                    _ => free_at = at + nanos(event, "dur"),
                }
                assert!((0..=1).contains(&depth), "{track}: {event}");
            }
            assert_eq!(depth, 0, "{track}");
        }
    }

    /// A wavefront that walks, faults and computes; what the host and the ring do meanwhile.
    fn story() -> Vec<(Time, Observation)> {
        let at = slot(1, 2, 3);
        let (page, reason, since) = (PageNo(77), Reason::Demand, ns(90));
        let parts = FaultParts { host: Span::from_nanos(40), ..FaultParts::default() };
        let access = Access::Write;
        vec![
            (ns(10), Observation::WaveBegin { slot: at, wave: (0, 4, 1) }),
            (ns(30), wait(at, WaitsFor::Walk, Some(77), 10)),
            (ns(70), Observation::Host { name: "batch", entries: 1, since: ns(50) }),
            (
                ns(70),
                Observation::Decision {
                    page,
                    gpu: Some(1),
                    action: Action::Migrate,
                    reason,
                    made: ns(60),
                },
            ),
            (
                ns(85),
                Observation::Command {
                    gpu: 0,
                    name: "unmap \"all\"",
                    page: Some(page),
                    pages: 1,
                    since: ns(80),
                },
            ),
            (
                ns(95),
                Observation::Transfer {
                    page,
                    pages: 1,
                    from: Some(MemoryId(1)),
                    to: MemoryId(2),
                    reason,
                    since,
                },
            ),
            (ns(99), Observation::Replay { gpu: 1, page, access, since: ns(30), parts }),
            (ns(99), wait(at, WaitsFor::Fault, Some(77), 30)),
            (ns(120), wait(at, WaitsFor::Compute, None, 110)),
            (ns(130), Observation::WaveEnd { slot: at }),
        ]
    }

    fn named<'a>(events: &'a [Value], name: &str) -> &'a Value {
        let found = events.iter().find(|event| event["name"] == name);
        found.unwrap_or_else(|| panic!("no {name}"))
    }

    #[test]
    fn each_wavefront_says_what_it_waits_for() {
        let (events, written) = trace(ALL, Units::First(4), u64::MAX, &story());
        check_nesting(&events);
        assert_eq!(written, Written { events: 9, left_out: 0 });
        let wave = named(&events, "group 4 wave 1");
        assert_eq!((nanos(wave, "ts"), &wave["args"]["launch"]), (10, &Value::from(0)));
        let fault = named(&events, "fault");
        assert_eq!((nanos(fault, "ts"), nanos(fault, "dur")), (30, 69));
        assert_eq!(fault["args"]["page"], 77);
        assert_eq!((&fault["pid"], &fault["tid"]), (&wave["pid"], &wave["tid"]));
        assert_eq!(named(&events, "unmap \"all\"")["args"]["page"], 77);
        assert_eq!(named(&events, "gpu 0 to gpu 1")["args"]["reason"], "demand");
        assert_eq!(named(&events, "write fault")["args"]["host_ns"], 40);
        assert_eq!(named(&events, "batch")["args"]["entries"], 1);
        assert_eq!(named(&events, "migrate")["args"]["gpu"], 1);
        let names: Vec<_> = events.iter().filter(|event| event["ph"] == "M").collect();
        let titles: Vec<_> = names.iter().map(|m| m["args"]["name"].as_str().unwrap()).collect();
        let expected = ["GPU 1", "CU 2 slot 3", "host", "driver", "GPU 0", "command ring"];
        assert_eq!(titles, expected);
    }

    #[test]
    fn a_window_cuts_what_lies_across_its_ends() {
        let window = Window { from: ns(40), until: ns(92) };
        let (events, _) = trace(window, Units::First(4), u64::MAX, &story());
        check_nesting(&events);
        let times = |name: &str| {
            let event = named(&events, name);
            (nanos(event, "ts"), nanos(event, "dur"))
        };
        assert_eq!((times("fault"), times("batch")), ((40, 52), (50, 20)));
        assert_eq!(nanos(named(&events, "group 4 wave 1"), "ts"), 40);
        let end = events.iter().find(|event| event["ph"] == "E").unwrap();
        assert_eq!(nanos(end, "ts"), 92);
        assert!(events.iter().all(|event| event["name"] != "walk" && event["name"] != "compute"));
    }

    #[test]
    fn other_compute_units_are_left_away() {
        for units in [Units::First(2), Units::List([(0, 2), (1, 1)].into())] {
            let (events, _) = trace(ALL, units, u64::MAX, &story());
            assert!(events.iter().all(|event| event["ph"] != "B" && event["name"] != "fault"));
            named(&events, "write fault");
        }
        let (events, _) = trace(ALL, Units::List([(1, 2)].into()), u64::MAX, &story());
        named(&events, "fault");
    }

    #[test]
    fn a_trace_that_is_full_stays_whole() {
        for events_max in 0..9 {
            let (events, written) = trace(ALL, Units::First(4), events_max, &story());
            check_nesting(&events);
            assert_eq!(written.events, events_max);
            assert!(written.left_out > 0);
        }
    }

    #[test]
    fn a_run_that_stops_in_the_middle_leaves_a_whole_trace() {
        for length in 0..story().len() {
            let (events, _) = trace(ALL, Units::First(4), u64::MAX, &story()[..length]);
            check_nesting(&events);
        }
    }

    #[test]
    fn an_error_of_the_file_comes_out_at_the_end() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::other("the disk is full"))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut perfetto = Perfetto::new(Full, ALL, Units::First(4));
        story().iter().for_each(|(now, what)| perfetto.observe(*now, what));
        let Err(error) = perfetto.finish() else { panic!("must fail") };
        assert_eq!(error.to_string(), "the disk is full");
    }

    proptest! {
        /// Whatever waits come, also such that overlap, slices nest.
        #[test]
        fn slices_always_nest(
            steps in prop::collection::vec((0u8..3, 0u64..5_000, 0u64..9_000, 0u8..4), 0..100),
            window in (0u64..60_000, 0u64..300_000),
        ) {
            let mut now = Time::ZERO;
            let mut what = Vec::new();
            for (unit, later, long, kind) in steps {
                now = now + Span(later);
                let at = slot(0, unit, 0);
                let since = Time(now.0.saturating_sub(long));
                what.push((now, match kind {
                    0 => Observation::WaveBegin { slot: at, wave: (0, 0, 0) },
                    1 => Observation::WaveEnd { slot: at },
                    _ => Observation::Wait { slot: at, waits_for: WaitsFor::Local, page: None, since },
                }));
            }
            let window = Window { from: Time(window.0), until: Time(window.0 + window.1) };
            let (events, _) = trace(window, Units::First(3), u64::MAX, &what);
            check_nesting(&events);
        }
    }
}
