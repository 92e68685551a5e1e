//! What the reader accepts, and how it names what it does not.

use super::*;
use crate::BLOCK_LINES;
use crate::order::accesses;
use proptest::prelude::*;

const DESCRIPTION: &str = r#"{"allocs":[{"VAddr":8192,"Size":8192,"GPU":5},
    {"VAddr":4096,"Size":64,"GPU":1}],"page_size":4096,"per_gpu":[1,1],"comment":"kept out"}"#;

pub(super) type TestRecord = [u8; 16];

/// A record of launch 1.
pub(super) fn record(address: u64, gpu: u8, cu: u8, flags: u8) -> TestRecord {
    record_of(1, address, gpu, cu, flags)
}

/// From here on the compute unit runs this wavefront.
pub(super) fn marker(gpu: u8, cu: u8, group: u64, wave: u64) -> TestRecord {
    record(group << 8 | wave, gpu, cu, 0x80)
}

fn record_of(launch: u64, address: u64, gpu: u8, cu: u8, flags: u8) -> TestRecord {
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&(launch << 40 | address).to_le_bytes());
    raw[12..].copy_from_slice(&[gpu, cu, flags, 64]);
    raw
}

fn zstd(content: &[u8]) -> Vec<u8> {
    zstd::encode_all(content, 1).unwrap()
}

pub(super) fn read(records: &[TestRecord]) -> Result<Trace, TraceError> {
    Trace::read("test", DESCRIPTION, &zstd(&records.concat())[..])
}

/// As a cycle-level recording.
pub(super) fn read_cycles(records: &[TestRecord]) -> Result<Trace, TraceError> {
    let description = DESCRIPTION.replace("\"page_size\"", "\"timing\":true,\"page_size\"");
    Trace::read("test", &description, &zstd(&records.concat())[..])
}

fn refused(result: Result<Trace, TraceError>) -> String {
    result.expect_err("must be refused").to_string()
}

#[test]
fn records_become_streams_in_record_order() {
    let trace = read(&[
        record(8192, 0, 3, 0),
        record(4096, 1, 0, 2),
        record(12288, 0, 3, 1),
        record_of(2, 8192, 1, 0, 3),
    ])
    .unwrap();
    assert_eq!((trace.gpus(), trace.compute_units(), trace.launches()), (2, 4, 2));
    assert_eq!((trace.pages(), trace.accesses(), trace.markers()), (3, 4, 0));
    // Lines are counted in the order of the allocations, not of their addresses.
    let found: Vec<_> = accesses(&trace, 2, 4)
        .map(|a| (a.launch, a.place.gpu, a.place.unit, a.line.0, a.write, a.scalar))
        .collect();
    let expected = [
        (0, 1, 0, BLOCK_LINES, false, true),
        (0, 0, 3, 0, false, false),
        (0, 0, 3, 64, true, false),
        (1, 1, 0, 0, true, false),
    ];
    assert_eq!(found, expected);
}

#[test]
fn markers_are_no_accesses() {
    let trace = read(&[record(0xffff_ffff, 0, 0, 0x80), record(4096, 0, 0, 0)]).unwrap();
    assert_eq!((trace.accesses(), trace.markers()), (1, 1));
    let error = refused(read(&[record(0xff_ffff_ffff, 0, 0, 0x80)]));
    assert!(error.starts_with("record 0: work-group is 0xffffffff"), "{error}");
}

#[test]
fn several_frames_are_one_stream_even_if_a_record_spans_them() {
    let bytes = [record(4096, 0, 0, 0), record(8192, 1, 1, 1)].concat();
    let stream = [zstd(&bytes[..21]), zstd(&bytes[21..])].concat();
    let trace = Trace::read("test", DESCRIPTION, &stream[..]).unwrap();
    assert_eq!(trace.accesses(), 2);
}

#[test]
fn a_record_that_is_cut_off_is_named() {
    let bytes = [record(4096, 0, 0, 0); 3].concat();
    let error = refused(Trace::read("test", DESCRIPTION, &zstd(&bytes[..37])[..]));
    assert!(error.starts_with("record 2: only 5 of its 16 bytes"), "{error}");
}

#[test]
fn a_broken_stream_is_named_by_the_record_that_is_missing() {
    let garbage = refused(Trace::read("test", DESCRIPTION, &b"this is not zstd at all"[..]));
    assert!(garbage.starts_with("record 0 cannot be read"), "{garbage}");
    // Lines that do not repeat themselves, so that the stream has several blocks.
    let lines = (0..1_u64 << 16).map(|i| 4096 + ((i * i * 40_503) >> 9) % 64);
    let whole = zstd(&lines.map(|address| record(address, 0, 0, 0)).collect::<Vec<_>>().concat());
    let cut = refused(Trace::read("test", DESCRIPTION, &whole[..whole.len() / 2]));
    let record = cut.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
    assert!(record.is_some_and(|record| (1..1 << 16).contains(&record)), "{cut}");
}

#[test]
fn fields_that_cannot_be_are_named() {
    let good = record(4096, 0, 0, 0);
    let error = |bad| refused(read(&[good, bad]));
    assert!(error(record(4096, 2, 0, 0)).starts_with("record 1: GPU is 0x2"));
    assert!(error(record(4096, 0, 64, 0)).starts_with("record 1: CU is 0x40"));
    assert!(error(record(4095, 0, 0, 0)).starts_with("record 1: address is 0xfff"));
    assert!(error(record(16384, 0, 0, 0)).starts_with("record 1: address is 0x4000"));
    assert!(error(record(4096, 0, 0, 4)).starts_with("record 1: flags is 0x4"));
    assert!(error(record_of(0, 4096, 0, 0, 0)).starts_with("record 1: launch is 0x0"));
    assert!(error(record_of(70_000, 4096, 0, 0, 0)).starts_with("record 1: launch is"));
}

#[test]
fn a_description_that_cannot_be_is_refused() {
    let with = |text: &str| refused(Trace::read("test", text, &zstd(&[])[..]));
    assert!(with("{").contains("description cannot be read"));
    assert!(with(r#"{"allocs":[],"page_size":4096}"#).contains("per_gpu"));
    assert!(with(r#"{"allocs":[],"page_size":4096,"per_gpu":[]}"#).contains("1 to 16 GPUs"));
    assert!(with(r#"{"allocs":[],"page_size":65536,"per_gpu":[0]}"#).contains("65536 bytes"));
    let allocs =
        |list: &str| with(&format!(r#"{{"allocs":[{list}],"page_size":4096,"per_gpu":[0]}}"#));
    assert!(allocs(r#"{"VAddr":4096,"Size":0}"#).contains("allocation 0"));
    assert!(allocs(r#"{"VAddr":18446744073709551615,"Size":2}"#).contains("allocation 0"));
    assert!(allocs(r#"{"VAddr":0,"Size":1099511627776}"#).contains("16 GiB"));
    let shared = r#"{"VAddr":4096,"Size":100},{"VAddr":4196,"Size":100}"#;
    assert!(allocs(shared).contains("shares a page"));
}

#[test]
fn missing_records_are_noticed() {
    let promised = DESCRIPTION.replace("\"page_size\"", "\"records\":2,\"page_size\"");
    let stream = zstd(&record(4096, 0, 0, 0));
    let error = refused(Trace::read("test", &promised, &stream[..]));
    assert!(error.contains("has 1 records and its description says 2"), "{error}");
}

/// It is no file that is missing or may not be read, and nobody waits for who writes it.
#[test]
fn a_pipe_is_told_from_a_file_that_is_not_there() {
    use std::os::fd::AsRawFd;
    let mut sleeps = std::process::Command::new("sleep");
    let mut sleeps = sleeps.arg("60").stdout(std::process::Stdio::piped()).spawn().unwrap();
    let path = format!("/proc/self/fd/{}", sleeps.stdout.as_ref().unwrap().as_raw_fd());
    let error = refused(Trace::open(Path::new(&path)));
    sleeps.kill().unwrap();
    sleeps.wait().unwrap();
    assert!(error.contains(&path) && error.contains("write it to a file first"), "{error}");
}

#[test]
fn a_file_must_have_a_description_beside_it() {
    let error = refused(Trace::open(Path::new("nowhere/mm.bin.zst")));
    assert!(error.contains("mm.bin.zst"), "{error}");
    let folder = std::env::temp_dir();
    let file = |name: &str| {
        let path = folder.join(format!("farside-{}-{name}", std::process::id()));
        std::fs::write(&path, zstd(&[])).unwrap();
        let error = refused(Trace::open(&path));
        std::fs::remove_file(path).unwrap();
        error
    };
    let error = file("records.bin");
    assert!(error.contains("NAME.bin.zst"), "{error}");
    let error = file("records.bin.zst");
    assert!(error.contains("records.json"), "{error}");
}

#[test]
fn hand_made_traces_are_checked_as_well() {
    let access = Access { page: 1, bytes: 64, write: false };
    let build = |sizes: &[u64], cu| Trace::from_accesses("t", sizes, &[vec![(0, cu, access)]]);
    assert_eq!(build(&[4096, 1], 0).unwrap().pages(), 2);
    assert!(refused(build(&[4096], 0)).contains("page is 0x1"));
    assert!(refused(build(&[8192], 64)).contains("CU"));
    assert!(refused(build(&[8192, 0], 0)).contains("allocation 1"));
}

proptest! {
    /// Whatever the bytes are: an error or a trace, never a panic.
    #[test]
    fn hostile_bytes_never_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..400),
        framed in any::<bool>(),
    ) {
        if framed {
            bytes = zstd(&bytes);
        }
        let _ = Trace::read("test", DESCRIPTION, &bytes[..]);
    }

    #[test]
    fn a_damaged_stream_never_panics(at in 0usize..100, with in any::<u8>()) {
        let mut bytes = zstd(&[record(4096, 0, 0, 0); 8].concat());
        let at = at % bytes.len();
        bytes[at] = with;
        let _ = Trace::read("test", DESCRIPTION, &bytes[..]);
    }
}
