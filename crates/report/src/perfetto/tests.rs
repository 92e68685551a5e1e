//! Traces of logs that are made here, read back packet by packet. (Perfetto's own messages read them in
//! `scripts/report/check_trace.py`.)

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use farside_events::{LogWriter, Name};
use farside_types::{MemoryId, MemorySet, Reason};
use prost::Message;

use super::messages::{COUNTER, Trace, TracePacket, TrackDescriptor};
use super::*;

const PAGE: u64 = 4096;
const CARD: AgentId = AgentId(1);
const MICROSECOND: u64 = 1_000_000;

fn log(names: &Names, events: &[Event]) -> Reader {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let path: PathBuf = std::env::temp_dir().join(format!("farside-trace-{process}-{number}"));
    let memories = About::memories("card", [Some(64 * PAGE)]);
    let about = About { program: "p".into(), page_bytes: PAGE, memories, ..About::default() };
    let mut writer = LogWriter::new(File::create(&path).unwrap(), &about).unwrap();
    writer.push(events, names).unwrap();
    writer.finish().unwrap();
    let log = Reader::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    log
}

fn packets(logs: &[Reader]) -> (Traced, Vec<TracePacket>) {
    let mut out = Vec::new();
    let traced = perfetto(logs, &mut out).unwrap();
    (traced, Trace::decode(&out[..]).unwrap().packet)
}

fn track<'a>(packets: &'a [TracePacket], name: &str) -> &'a TrackDescriptor {
    let tracks = packets.iter().filter_map(|it| it.track_descriptor.as_ref());
    let named = tracks.filter(|it| it.name.as_deref() == Some(name)).collect::<Vec<_>>();
    let [one] = named[..] else { panic!("{name}: {named:?}") };
    one
}

/// When, of which kind, which name and which value, of the events of a track.
fn on(packets: &[TracePacket], name: &str) -> Vec<(u64, i32, String, i64)> {
    let uuid = track(packets, name).uuid;
    let of = |it: &TracePacket| {
        let event = it.track_event.as_ref().filter(|event| event.track_uuid == uuid)?;
        let name = event.name.clone().unwrap_or_default();
        Some((it.timestamp?, event.r#type?, name, event.counter_value.unwrap_or_default()))
    };
    packets.iter().filter_map(of).collect()
}

fn job(at: u64, number: u64, kind: Kind, name: Name) -> Event {
    Event { agent: Some(CARD), number, name, ..Event::new(at * MICROSECOND, kind) }
}

fn moved(at: u64, pages: u64, from: Option<MemoryId>, to: MemoryId) -> Event {
    Event {
        reason: Some(Reason::Demand),
        address: PAGE,
        bytes: pages * PAGE,
        from,
        to: Some(to),
        before: from.map_or(MemorySet::EMPTY, MemorySet::only),
        after: MemorySet::only(to),
        ..Event::new(at * MICROSECOND, Kind::Migration)
    }
}

#[test]
fn kernels_that_run_at_once_are_in_lanes_and_all_end() {
    let mut names = Names::default();
    let (a, b) = (names.number("a"), names.number(""));
    let events = [
        job(0, 1, Kind::Launch, a),
        job(0, 2, Kind::Launch, b),
        job(1, 1, Kind::Begin, Name::NONE),
        job(2, 2, Kind::Begin, Name::NONE),
        job(3, 1, Kind::End, Name::NONE),
        job(4, 3, Kind::Begin, Name::NONE),
        job(5, 2, Kind::Failed, Name::NONE),
        // Of no job that runs.
        job(6, 9, Kind::End, Name::NONE),
        job(7, 4, Kind::Launch, a),
    ];
    let (_, packets) = packets(&[log(&names, &events)]);
    let named = |name: &str| name.to_owned();
    let unnamed = || named("(unnamed)");
    let first = [
        (1000, SLICE_BEGIN, named("a"), 0),
        (3000, SLICE_END, named(""), 0),
        (4000, SLICE_BEGIN, unnamed(), 0),
        // It had not ended when the log did.
        (7000, SLICE_END, named(""), 0),
    ];
    assert_eq!(on(&packets, "kernels"), first);
    let second = [(2000, SLICE_BEGIN, unnamed(), 0), (5000, SLICE_END, named(""), 0)];
    assert_eq!(on(&packets, "kernels 2"), second);
}

#[test]
fn a_kernel_begins_when_the_one_before_it_in_its_lane_has_ended() {
    let events = [
        job(1, 1, Kind::Begin, Name::NONE),
        job(5, 1, Kind::End, Name::NONE),
        // Noted later, but its clock was read before.
        job(4, 2, Kind::Begin, Name::NONE),
        job(6, 2, Kind::End, Name::NONE),
    ];
    let (_, packets) = packets(&[log(&Names::default(), &events)]);
    let times: Vec<u64> = on(&packets, "kernels").iter().map(|it| it.0).collect();
    assert_eq!(times, [1000, 5000, 5000, 6000]);
}

#[test]
fn counters_say_what_is_where_and_how_fast_it_came() {
    let (host, card) = (MemoryId::HOST, MemoryId(1));
    // 2048 ms: points of a millisecond and a bit.
    let events = [
        moved(0, 4, None, host),
        moved(100_000, 3, Some(host), card),
        moved(100_000, 1, Some(host), card),
        Event { agent: Some(CARD), ..Event::new(2_048_000 * MICROSECOND - 1, Kind::FaultRead) },
    ];
    let (traced, packets) = packets(&[log(&Names::default(), &events)]);
    assert_eq!(traced, Traced { instants: 4, left_out: 0 });
    let values = |name: &str| on(&packets, name).iter().map(|it| it.3).collect::<Vec<_>>();
    assert_eq!(values("bytes in host"), [4 * PAGE as i64, 0]);
    assert_eq!(values("bytes in card 0"), [4 * PAGE as i64]);
    assert_eq!(values("host → card 0"), [4 * PAGE as i64 * 1000, 0]);
    assert_eq!(values("faults of card 0"), [1000, 0]);
    assert!(on(&packets, "bytes in host").iter().all(|it| it.1 == COUNTER));
    // Each kind has its unit.
    let unit = |name: &str| track(&packets, name).counter.clone().unwrap();
    assert_eq!(unit("bytes in host").unit, Some(messages::UNIT_SIZE_BYTES));
    assert_eq!(unit("host → card 0").unit_name.as_deref(), Some("B/s"));
}

#[test]
fn every_event_has_a_track_and_every_track_a_parent() {
    let mut names = Names::default();
    let name = names.number("array");
    let alloc = Event { address: PAGE, bytes: 2 * PAGE, name, ..Event::new(0, Kind::Alloc) };
    let fault = |address| Event {
        agent: Some(CARD),
        address,
        bytes: PAGE,
        ..Event::new(5, Kind::FaultWrite)
    };
    let hint = Event { to: Some(MemoryId(1)), ..Event::new(6, Kind::Migrate) };
    let dropped = Event { number: 17, ..Event::new(7, Kind::Dropped) };
    let events = [alloc, fault(2 * PAGE), fault(3 * PAGE), hint, dropped];
    let logs = [log(&names, &events), log(&names, &events[..2])];
    let (traced, packets) = packets(&logs);
    assert_eq!(traced.instants, 7);
    let tracks: Vec<_> = packets.iter().filter_map(|it| it.track_descriptor.as_ref()).collect();
    let known = |uuid| tracks.iter().any(|it| it.uuid == uuid);
    assert!(tracks.iter().all(|it| it.process.is_some() || known(it.parent_uuid)));
    assert_eq!(tracks.iter().filter(|it| it.process.is_some()).count(), 2);
    let events: Vec<_> = packets.iter().filter_map(|it| it.track_event.as_ref()).collect();
    assert!(events.iter().all(|it| known(it.track_uuid)));
    // The page in the array has its name, the one behind it has none.
    let faults = events.iter().filter(|it| it.name.as_deref() == Some("fault-write"));
    let inside = faults.map(|it| {
        it.debug_annotations.iter().find_map(|it| it.string_value.clone()).unwrap_or_default()
    });
    assert_eq!(inside.collect::<Vec<_>>(), ["array", "", "array"]);
}

#[test]
fn numbers_that_nobody_writes_are_no_panic() {
    // More is damage: it is told when the log is read.
    let most = i64::MAX as u64;
    let (bytes_most, address) = (1 << 53, 1 << 62);
    for (at, bytes) in [(most, bytes_most), (most - 1, 0), (0, bytes_most)] {
        let far = MemoryId(farside_types::MAX_CARDS as u8);
        let change = Event { address, bytes, ..moved(0, 1, Some(MemoryId::HOST), far) };
        let fault = Event { agent: Some(far.agent()), ..Event::new(at, Kind::FaultRead) };
        let alloc = Event { address, bytes, ..Event::new(at, Kind::Alloc) };
        let begin = Event { number: most, ..Event::new(at, Kind::Begin) };
        let events = [Event { at, ..change }, fault, alloc, begin, Event { at, ..change }];
        let (traced, packets) = packets(&[log(&Names::default(), &events)]);
        assert_eq!(traced.instants, 4);
        assert!(!packets.is_empty());
    }
}

#[test]
fn a_trace_that_cannot_be_written_is_an_error() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::other("full"))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let logs = [log(&Names::default(), &[moved(0, 1, None, MemoryId::HOST)])];
    let Err(TraceError::Write(error)) = perfetto(&logs, Full) else { panic!("must fail") };
    assert_eq!(error.to_string(), "full");
}
