use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use farside_svm::{Change, ChangeKind};
use farside_types::{Access, AgentId, AgentSet, CardId, JobId, MemoryId, MemorySet};
use farside_types::{PageNo, PageRange, Reason, VirtAddr};

use super::*;
use crate::buffer::ROOM;
use crate::{Cut, Kind, Memory, ReadError, Reader};

/// A file of a test's own, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        Scratch(std::env::temp_dir().join(format!("farside-events-{process}-{number}.parquet")))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn about() -> About {
    let memories = About::memories("card", [Some(1 << 20), None]);
    let words = |text: &str| text.to_owned();
    let (program, machine, scheme) = (words("test"), words("live"), words("on-touch"));
    About { program, machine, scheme, page_bytes: 4096, memories }
}

fn fault(page: u64) -> Note<'static> {
    let (agent, access) = (AgentId(1), Access::Write);
    Note::Fault { agent, pages: PageRange::page(PageNo(page)), access }
}

fn begin(file: &Scratch) -> EventLog {
    EventLog::create(&file.0, &about(), || ()).expect("can be written")
}

fn read(path: &Path) -> Result<(Vec<Event>, Option<Cut>), ReadError> {
    let reader = Reader::open(path)?;
    let mut events = Vec::new();
    reader.for_each(|batch| events.extend_from_slice(batch.events))?;
    assert_eq!(events.len() as u64, reader.events());
    Ok((events, reader.cut()))
}

/// Many faults in groups of their own, with a footer behind each.
fn in_groups(path: &Path, groups: u64) -> LogWriter<File> {
    let mut writer = LogWriter::new(File::create(path).unwrap(), &about()).unwrap();
    for group in 0..groups {
        let event = |at| Event { address: at * 4096, ..Event::new(group * 100 + at, Kind::Refill) };
        let events: Vec<Event> = (0..100).map(event).collect();
        writer.push(&events, &Names::default()).unwrap();
        writer.flush().unwrap();
        writer.foot().unwrap();
    }
    writer
}

#[test]
fn what_is_noted_is_read() {
    let file = Scratch::new();
    let log = begin(&file);
    let mut journal = log.journal(Time(1000), 4096, Full::Drop);
    let pages = PageRange::new(PageNo(7), 3);
    let (job, card) = (JobId(5), CardId(1));
    let change = Change {
        pages,
        before: MemorySet::only(MemoryId::HOST),
        after: MemorySet::only(MemoryId(2)),
        came: Some((Some(MemoryId::HOST), MemoryId(2))),
        around: 2,
        stopped: AgentSet::only(AgentId::CPU),
        agent: Some(AgentId(2)),
        kind: ChangeKind::Migration,
        reason: Reason::Demand,
    };
    let lent = Note::Lent { job, at: VirtAddr(123), bytes: 45, access: Access::Read };
    let notes = [
        Note::Alloc { pages, name: "points" },
        Note::Launch { job, card, name: "sum" },
        lent,
        Note::Begin { job, card },
        fault(7),
        Note::Change(change),
        Note::End { job, card, well: true },
    ];
    (1000..).zip(notes).for_each(|(at, note)| journal.note(Time(at), note));
    let written = log.finish().expect("can be written");
    assert_eq!((written.events, written.dropped), (7, 0));
    let reader = Reader::open(&file.0).expect("can be read");
    assert_eq!((reader.about(), reader.cut(), reader.end()), (&about(), None, Some(6)));
    let host = Memory { name: "host".to_owned(), bytes: None };
    assert_eq!(reader.about().memories[0], host);
    let mut seen = Vec::new();
    let mut names = Vec::new();
    let read = reader.for_each(|batch| {
        seen.extend_from_slice(batch.events);
        names.extend(batch.events.iter().map(|it| batch.names.get(it.name).to_owned()));
    });
    read.expect("can be read");
    assert_eq!(names[..3], ["points", "sum", ""]);
    let kinds: Vec<Kind> = seen.iter().map(|event| event.kind).collect();
    let lent = (seen[2].address, seen[2].bytes, seen[2].number);
    use Kind::{Alloc, Begin, End, FaultWrite, Launch, LentRead, Migration};
    assert_eq!(kinds, [Alloc, Launch, LentRead, Begin, FaultWrite, Migration, End]);
    assert_eq!(lent, (123, 45, 5));
    let moved = Event {
        reason: Some(Reason::Demand),
        agent: Some(AgentId(2)),
        address: 7 * 4096,
        bytes: 3 * 4096,
        from: Some(MemoryId::HOST),
        to: Some(MemoryId(2)),
        before: change.before,
        after: change.after,
        stopped: change.stopped,
        around: 2 * 4096,
        ..Event::new(5, Migration)
    };
    assert_eq!(seen[5], moved);
}

#[test]
fn what_there_is_is_in_the_file_when_it_is_asked_for_and_the_log_goes_on() {
    let file = Scratch::new();
    let log = begin(&file);
    let mut journal = log.journal(Time::ZERO, 4096, Full::Drop);
    log.write_so_far().expect("can be written");
    assert_eq!(read(&file.0).expect("can be read").0.len(), 0);
    for page in 0..5 {
        journal.note(Time(page), fault(page));
        log.write_so_far().expect("can be written");
        assert_eq!(read(&file.0).expect("can be read").0.len() as u64, page + 1);
    }
    assert_eq!(log.finish().expect("can be written").events, 5);
    let (events, cut) = read(&file.0).expect("can be read");
    assert_eq!((events.len(), cut), (5, None));
}

#[test]
fn all_that_was_there_is_in_the_file_when_it_is_asked_for() {
    let file = Scratch::new();
    let log = begin(&file);
    let mut journal = log.journal(Time::ZERO, 4096, Full::Drop);
    for round in 1..=20 {
        // More than two chunks, so that some wait.
        (0..10_000).for_each(|page| journal.note(Time(page), fault(page)));
        log.write_so_far().expect("can be written");
        let found = Reader::open(&file.0).expect("can be read").events();
        assert_eq!((found, log.left_out()), (round * 10_000, 0));
    }
}

#[test]
fn who_asks_again_and_again_where_nothing_happens_makes_no_file_longer() {
    let file = Scratch::new();
    let log = begin(&file);
    let mut journal = log.journal(Time::ZERO, 4096, Full::Drop);
    journal.note(Time(0), fault(1));
    log.write_so_far().expect("can be written");
    let bytes = || std::fs::metadata(&file.0).expect("it is there").len();
    let before = bytes();
    (0..100).for_each(|_| log.write_so_far().expect("can be written"));
    assert_eq!(bytes(), before);
    journal.note(Time(1), fault(2));
    log.write_so_far().expect("can be written");
    assert_eq!(read(&file.0).expect("can be read").0.len(), 2);
}

#[test]
fn who_asks_for_what_a_full_disk_did_not_take_is_told() {
    let log = EventLog::create(Path::new("/dev/full"), &about(), || ()).expect("can be opened");
    let mut journal = log.journal(Time::ZERO, 4096, Full::Drop);
    journal.note(Time(1), fault(1));
    let error = log.write_so_far().expect_err("nothing can be written there");
    assert_eq!((error.path.as_path(), error.lost), (Path::new("/dev/full"), 1));
    let error = log.finish().expect_err("nothing could");
    assert!(error.why.contains("No space left"), "{error}");
}

#[test]
fn every_kind_has_a_word_of_its_own() {
    for &kind in Kind::ALL {
        assert_eq!(Kind::of(kind.name().as_bytes()), Some(kind));
    }
    assert_eq!(Kind::of(b"nothing"), None);
}

#[test]
fn what_finds_no_room_is_counted_and_said_where_it_was() {
    // Without its thread nobody makes room.
    let shared = Arc::new(Shared::new());
    let scale = Scale { start: Time::ZERO, page_bytes: 4096 };
    let mut keeper = Keeper { shared: Arc::clone(&shared), scale };
    let more = 10;
    for page in 0..ROOM as u64 + more {
        keeper.note(Time(page), fault(page));
    }
    assert_eq!(shared.lock().len(), ROOM);
    assert_eq!(shared.lock().left_out(), more);
    // Room again: what is missing is said first, in the place of the event that had found it out.
    let (mut taken, mut pages) = (Taken::new(), Vec::new());
    while shared.lock().len() > 0 {
        taken.events.clear();
        shared.take(&mut taken);
        pages.extend(taken.events.iter().map(|event| event.address / 4096));
    }
    assert!(pages.iter().copied().eq(0..ROOM as u64), "in the order in which they came");
    keeper.note(Time(99), fault(1));
    keeper.note(Time(100), fault(2));
    taken.events.clear();
    shared.take(&mut taken);
    let [missing, fault] = taken.events[..] else { panic!("{:?}", taken.events) };
    assert_eq!((missing.kind, missing.at, missing.number), (Kind::Dropped, 99, more + 1));
    assert_eq!((fault.kind, fault.address), (Kind::FaultWrite, 2 * 4096));
    assert_eq!(shared.lock().left_out(), more + 1);
}

#[test]
fn who_can_wait_loses_nothing() {
    let file = Scratch::new();
    let log = begin(&file);
    let mut journal = log.journal(Time::ZERO, 4096, Full::Wait);
    let many = 3 * ROOM as u64 + 7;
    for page in 0..many {
        journal.note(Time(page), fault(page));
    }
    // It hands over what it has when it goes.
    drop(journal);
    let written = log.finish().expect("can be written");
    assert_eq!((written.events, written.dropped), (many, 0));
    let (events, _) = read(&file.0).expect("can be read");
    assert!(events.iter().zip(0..).all(|(event, page)| event.address == page * 4096));
}

#[test]
fn a_log_that_was_cut_anywhere_is_read_up_to_the_last_footer() {
    let file = Scratch::new();
    let whole = in_groups(&file.0, 5).finish().map(drop).map(|()| std::fs::read(&file.0).unwrap());
    let whole = whole.expect("can be written");
    let mut seen = std::collections::BTreeSet::new();
    for length in (0..whole.len()).step_by(29) {
        std::fs::write(&file.0, &whole[..length]).unwrap();
        match read(&file.0) {
            Ok((events, Some(cut))) => {
                assert_eq!(cut.bytes + cut.left_out, length as u64);
                assert_eq!(events.len() % 100, 0, "a group is there as a whole or not at all");
                assert!(events.iter().zip(0..).all(|(event, at)| event.at == at));
                seen.insert(events.len());
            }
            Ok((_, None)) => {}
            Err(ReadError::NotOne { what, .. }) => assert!(length < 4, "{length}: {what}"),
            Err(ReadError::Cut { bytes, .. }) => assert_eq!(bytes, length as u64),
            Err(error) => panic!("{length}: {error}"),
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [100, 200, 300, 400, 500]);
}

#[test]
fn a_log_of_a_run_that_was_killed_ends_where_it_was() {
    let file = Scratch::new();
    // As it is on disk before `finish`, and with a group begun behind it.
    drop(in_groups(&file.0, 3));
    OpenOptions::new().append(true).open(&file.0).unwrap().write_all(&[0x15; 999]).unwrap();
    let (events, cut) = read(&file.0).expect("can be read");
    assert_eq!((events.len(), cut.map(|cut| cut.left_out)), (300, Some(999)));
}

#[test]
fn footers_on_the_way_are_a_small_part_of_a_long_log() {
    let file = Scratch::new();
    let mut writer = LogWriter::new(File::create(&file.0).unwrap(), &about()).unwrap();
    let mut state = 1u64;
    for group in 0..60u64 {
        let event = |at| {
            // Addresses that do not compress.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            Event { address: (state >> 20) & !4095, ..Event::new(group * 1000 + at, Kind::Refill) }
        };
        let events: Vec<Event> = (0..1000).map(event).collect();
        writer.push(&events, &Names::default()).unwrap();
        writer.flush().unwrap();
    }
    let bytes = writer.finish().unwrap().metadata().unwrap().len();
    let reader = Reader::open(&file.0).unwrap();
    assert_eq!(reader.events(), 60_000);
    let data: i64 = reader.column_bytes();
    assert!((bytes as i64) < data * 3 / 2, "{bytes} bytes for {data} of columns");
}

#[test]
fn what_is_no_log_is_named() {
    let file = Scratch::new();
    let text = |bytes: &[u8]| {
        std::fs::write(&file.0, bytes).unwrap();
        Reader::open(&file.0).err().expect("it is none").to_string()
    };
    assert!(text(b"").contains("killed in its first second"), "{}", text(b""));
    assert!(text(b"hello").contains("does not begin as a Parquet file does"));
    assert!(text(b"PAR1").contains("was cut before its first row group"));
    let missing = Reader::open(Path::new("/nowhere/log.parquet")).err().expect("there is none");
    assert!(missing.to_string().contains("/nowhere/log.parquet"), "{missing}");
    let folder = Reader::open(Path::new("/")).err().expect("it is none").to_string();
    assert!(folder.contains("it is a folder"), "{folder}");
}

#[test]
fn a_log_that_is_not_there_is_told_with_those_of_its_run() {
    let folder = Scratch::new().0.with_extension("folder");
    std::fs::create_dir(&folder).unwrap();
    let missing = folder.join("log.parquet");
    let told = || Reader::open(&missing).err().expect("it is not there").to_string();
    assert!(told().ends_with("(os error 2)"), "{}", told());
    for name in ["log.on-demand.parquet", "log.managed.parquet", "log.txt", "blog.a.parquet"] {
        std::fs::write(folder.join(name), "").unwrap();
    }
    let few = told();
    (0..8).for_each(|it| std::fs::write(folder.join(format!("log.{it}.parquet")), "").unwrap());
    let many = told();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(few.ends_with("; there are log.managed.parquet, log.on-demand.parquet"), "{few}");
    assert!(many.ends_with(", log.6.parquet, log.7.parquet and 2 more"), "{many}");
}

#[test]
fn another_schema_and_another_version_are_named() {
    use parquet::data_type::Int32Type;
    use parquet::file::metadata::KeyValue;
    use parquet::file::writer::SerializedFileWriter;
    let file = Scratch::new();
    let write = |version: Option<&str>| {
        let message = "message m { required int32 a; }";
        let schema = parquet::schema::parser::parse_message_type(message).unwrap();
        let out = File::create(&file.0).unwrap();
        let mut writer =
            SerializedFileWriter::new(out, Arc::new(schema), Default::default()).unwrap();
        if let Some(version) = version {
            let key = crate::schema::VERSION_KEY.to_owned();
            writer.append_key_value_metadata(KeyValue::new(key, version.to_owned()));
            let about = serde_json::to_string(&about()).unwrap();
            let key = crate::schema::ABOUT_KEY.to_owned();
            writer.append_key_value_metadata(KeyValue::new(key, about));
        }
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&[1], None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        Reader::open(&file.0).err().expect("it is none").to_string()
    };
    assert!(write(None).contains("it is a Parquet file of a"), "{}", write(None));
    assert!(write(Some("7")).contains("version 7; this release reads version 1"));
    assert!(write(Some("1")).contains("it has no column \"at\""));
}

/// Every which bit is tried.
const STEP: usize = 61;

/// A log with all kinds of values, in two groups, and how many bytes it has before its first footer.
fn varied(path: &Path) -> usize {
    let mut names = Names::default();
    let mut writer = LogWriter::new(File::create(path).unwrap(), &about()).unwrap();
    for group in 0..2 {
        let event = |at: u64| Event {
            address: at * at * 4096,
            bytes: 4096 << (at % 3),
            agent: (at % 4 > 0).then_some(AgentId((at % 4) as u8)),
            to: Some(MemoryId((at % 3) as u8)),
            before: MemorySet((at % 7) as u32),
            number: at % 11,
            reason: (at % 5 == 0).then_some(Reason::Demand),
            name: names.number(["", "sum", "points"][at as usize % 3]),
            ..Event::new(group * 300 + at, Kind::ALL[at as usize % Kind::ALL.len()])
        };
        let events: Vec<Event> = (0..300).map(event).collect();
        writer.push(&events, &names).unwrap();
        writer.flush().unwrap();
    }
    let bytes = writer.bytes() as usize;
    writer.finish().unwrap();
    bytes
}

/// What a log is read as with a bit flipped.
fn flipped(whole: &[u8], file: &Scratch, bit: usize) -> Result<Vec<Event>, ReadError> {
    let mut damaged = whole.to_vec();
    damaged[bit / 8] ^= 1 << (bit % 8);
    std::fs::write(&file.0, &damaged).unwrap();
    read(&file.0).map(|(events, _)| events)
}

/// Of the bits that are tried, the footer's too, none makes other events.
#[test]
fn a_bit_that_flips_is_an_error_with_its_place_or_changes_no_event() {
    let file = Scratch::new();
    let footer = 8 * varied(&file.0);
    let (whole, events) = (std::fs::read(&file.0).unwrap(), read(&file.0).unwrap().0);
    let mut by_checksum = 0;
    // All of them take minutes.
    for bit in (0..8 * whole.len()).step_by(STEP) {
        match flipped(&whole, &file, bit) {
            Ok(read) => assert!(read == events, "bit {bit} makes other events"),
            Err(ReadError::Damaged { row_group, column, what, .. }) => {
                assert!(row_group < 2 && !column.is_empty());
                by_checksum += usize::from(what.contains("checksum"));
            }
            Err(error) => assert!(bit < 4 * 8 || bit >= footer, "bit {bit}: {error}"),
        }
    }
    assert!(by_checksum > footer / STEP / 2, "{by_checksum}");
}

#[test]
fn a_footer_with_other_numbers_of_rows_is_refused() {
    let file = Scratch::new();
    let footer = varied(&file.0);
    let mut whole = std::fs::read(&file.0).unwrap();
    // The file's 600 rows, as Thrift has numbers of 64 bits: the first in the footer, behind the schema.
    let rows = |it: &[u8]| it == [0x16, 0xb0, 0x09];
    let at = footer + whole[footer..].windows(3).position(rows).expect("it is there");
    whole[at + 1] ^= 2;
    std::fs::write(&file.0, &whole).unwrap();
    let error = read(&file.0).unwrap_err().to_string();
    assert!(error.contains("its footer has 601 rows, and its row groups 600"), "{error}");
}

#[test]
fn a_full_disk_loses_the_log_and_says_so() {
    let path = Path::new("/dev/full");
    if !path.exists() {
        panic!("this test needs /dev/full");
    }
    let log = EventLog::create(path, &about(), || ()).expect("it can be opened");
    let mut journal = log.journal(Time::ZERO, 4096, Full::Wait);
    // Whoever would wait for room is not kept waiting by a log that is written no more.
    for page in 0..4 * ROOM as u64 {
        journal.note(Time(page), fault(page));
    }
    let error = log.finish().expect_err("nothing can be written");
    assert!(error.to_string().contains("/dev/full"), "{error}");
    assert!(error.to_string().contains("No space left"), "{error}");
    assert!(error.lost > 0, "{error}");
}

#[test]
fn two_logs_are_not_written_into_one_file() {
    let file = Scratch::new();
    assert!(!EventLog::is_being_written(&file.0));
    let log = begin(&file);
    log.journal(Time::ZERO, 4096, Full::Drop).note(Time(1), fault(3));
    assert!(EventLog::is_being_written(&file.0));
    let refused = EventLog::create(&file.0, &about(), || ()).unwrap_err().to_string();
    assert!(refused.contains("another log is being written there"), "{refused}");
    assert_eq!(log.finish().unwrap().events, 1);
    assert_eq!(read(&file.0).unwrap().0.len(), 1);
    assert!(!EventLog::is_being_written(&file.0));
    begin(&file).finish().unwrap();
    assert_eq!(read(&file.0).unwrap().0.len(), 0);
}
