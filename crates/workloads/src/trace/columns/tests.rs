//! What is written is read again, and damage is named.

use std::fs::File;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;
use crate::{LINE_BYTES, Place};
use crate::{Trace, TraceError, convert};

/// A file that is gone afterwards.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Temporary {
        let name = format!("farside-{}-{name}.parquet", std::process::id());
        Temporary(std::env::temp_dir().join(name))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn description() -> TraceDescription {
    let allocations = vec![TraceAllocation { address: 0x10000, bytes: 1 << 20, pinned: false }];
    TraceDescription {
        name: "test".to_owned(),
        page_bytes: 4096,
        gpus: 2,
        cycles: false,
        allocations,
    }
}

fn row(gpu: u8, sequence: u32, line: u64, count: u32) -> TraceRow {
    TraceRow {
        launch: 0,
        place: Place { gpu, unit: 3 },
        wave: Some((7, 1)),
        sequence,
        address: 0x10000 + line * LINE_BYTES,
        count,
        write: false,
        scalar: false,
        time: None,
    }
}

fn write(to: &Path, rows: &[TraceRow], description: &TraceDescription) {
    let mut writer = TraceWriter::new(File::create(to).unwrap()).unwrap();
    rows.iter().for_each(|row| writer.push(*row).unwrap());
    writer.finish(description).unwrap();
}

fn read_back(name: &str, rows: &[TraceRow]) -> Result<Trace, TraceError> {
    let file = Temporary::new(name);
    write(&file.0, rows, &description());
    Trace::open(&file.0)
}

/// Where the columns of a file are: behind its first bytes, before its footer.
fn before_footer(file: &[u8]) -> std::ops::Range<usize> {
    let length = file.len() - 8;
    let footer = u32::from_le_bytes(file[length..length + 4].try_into().unwrap());
    4..length - footer as usize
}

/// All that a trace holds.
fn content(trace: &Trace) -> String {
    let allocations: Vec<_> = trace.allocations.iter().map(TraceAllocation::from).collect();
    format!("{:?} {allocations:?} {:?}", trace.gpus, trace.launches)
}

#[test]
fn a_converted_recording_is_the_same_trace() {
    for name in Trace::BUNDLED {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/{name}.bin.zst"));
        let (once, twice) = (Temporary::new(name), Temporary::new(&format!("{name}-twice")));
        let accesses = convert(&path, &once.0, 1).unwrap();
        convert(&once.0, &twice.0, 1).unwrap();
        let original = Trace::open(&path).unwrap();
        assert_eq!(accesses.accesses, original.accesses());
        for converted in [&once, &twice] {
            let read = Trace::open(&converted.0).unwrap();
            assert!(content(&read) == content(&original), "{name}");
            assert_eq!(read.name(), original.name());
        }
    }
}

#[test]
fn consecutive_lines_are_one_row_and_come_back_as_lines() {
    let rows = [row(0, 1, 0, 1), row(0, 1, 1, 3), row(0, 2, 4, 1), row(1, 2, 9, 70)];
    let trace = read_back("lines", &rows).unwrap();
    assert_eq!((trace.accesses(), trace.markers(), trace.gpus()), (75, 2, 2));
    let same = [row(0, 1, 0, 4), row(0, 2, 4, 1), row(1, 2, 9, 70)];
    assert_eq!(content(&trace), content(&read_back("lines-same", &same).unwrap()));
}

#[test]
fn rows_without_wavefronts_and_with_times_are_kept() {
    let bare = TraceRow { wave: None, time: Some(5), ..row(0, 1, 0, 1) };
    let other = TraceRow { wave: None, time: None, write: true, ..row(0, 2, 8, 2) };
    let trace = read_back("bare", &[bare, other, row(1, 3, 0, 1)]).unwrap();
    assert_eq!((trace.accesses(), trace.markers()), (4, 1));
}

#[test]
fn several_row_groups_are_one_trace() {
    let rows: Vec<_> = (0..300_000).map(|i| row(0, i, u64::from(i * 7 % 16_000), 1)).collect();
    assert_eq!(read_back("groups", &rows).unwrap().accesses(), 300_000);
}

#[test]
fn values_that_cannot_be_are_named() {
    let good = row(0, 1, 0, 1);
    let refused = |bad: TraceRow| {
        let error = read_back("wrong", &[good, bad]).unwrap_err().to_string();
        let (file, what) = error.split_once(": ").unwrap();
        assert!(file.ends_with("wrong.parquet"), "{error}");
        what.to_owned()
    };
    let at = |column| format!("row group 0, row 1, column {column}: ");
    let place = |gpu, unit| TraceRow { place: Place { gpu, unit }, ..row(0, 2, 5, 1) };
    assert!(refused(place(2, 0)).starts_with(&at("gpu")));
    assert!(refused(place(0, 64)).starts_with(&at("unit")));
    assert!(refused(row(0, 2, 1 << 14, 1)).starts_with(&at("line")));
    assert!(refused(row(0, 2, (1 << 14) - 1, 2)).starts_with(&at("line")));
    let launch = TraceRow { launch: 1 << 16, ..row(0, 2, 5, 1) };
    assert!(refused(launch).starts_with(&at("launch")));
    let group = TraceRow { wave: Some((u32::MAX, 0)), ..row(0, 2, 5, 1) };
    assert!(refused(group).starts_with(&at("group")));
    let wave = TraceRow { wave: Some((0, u16::MAX)), ..row(0, 2, 5, 1) };
    assert!(refused(wave).starts_with(&at("wave")));
}

#[test]
fn descriptions_that_cannot_be_are_named() {
    let refused = |description: &TraceDescription| {
        let file = Temporary::new("description");
        write(&file.0, &[row(0, 1, 0, 1)], description);
        Trace::open(&file.0).unwrap_err().to_string()
    };
    let base = description;
    assert!(refused(&TraceDescription { page_bytes: 1, ..base() }).contains("1 bytes"));
    assert!(refused(&TraceDescription { gpus: 17, ..base() }).contains("1 to 16 GPUs"));
    let empty = TraceAllocation { address: 0, bytes: 0, pinned: false };
    let allocations = vec![empty];
    assert!(refused(&TraceDescription { allocations, ..base() }).contains("allocation 0"));
}

#[test]
fn another_parquet_file_is_no_trace() {
    let file = Temporary::new("other");
    std::fs::write(&file.0, b"PAR1 and nothing else PAR1").unwrap();
    let error = Trace::open(&file.0).unwrap_err().to_string();
    assert!(error.contains("other.parquet: the Parquet file cannot be used"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever is damaged: an error that says where, or a trace; never a panic.
    #[test]
    fn damaged_files_are_errors(damage in prop::collection::vec((any::<u32>(), any::<u8>()), 1..6)) {
        let file = Temporary::new("damaged");
        let rows: Vec<_> = (0..200).map(|i| row((i % 2) as u8, i, u64::from(i % 30), 2)).collect();
        write(&file.0, &rows, &description());
        let mut bytes = std::fs::read(&file.0).unwrap();
        for (at, with) in damage {
            let at = at as usize % bytes.len();
            bytes[at] ^= with;
        }
        std::fs::write(&file.0, &bytes).unwrap();
        if let Err(error) = Trace::open(&file.0) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    /// A flipped bit before the footer: an error that says where, or the same trace.
    #[test]
    fn a_bit_that_flips_in_a_page_makes_no_other_trace(bits in prop::collection::vec(any::<u32>(), 8)) {
        let file = Temporary::new("flipped");
        let rows: Vec<_> = (0..200).map(|i| row((i % 2) as u8, i, u64::from(i % 30), 2)).collect();
        write(&file.0, &rows, &description());
        let (whole, trace) = (std::fs::read(&file.0).unwrap(), content(&Trace::open(&file.0).unwrap()));
        let pages = before_footer(&whole);
        for bit in bits {
            let mut damaged = whole.clone();
            let at = pages.start + bit as usize / 8 % pages.len();
            damaged[at] ^= 1 << (bit % 8);
            std::fs::write(&file.0, &damaged).unwrap();
            match Trace::open(&file.0) {
                Ok(read) => prop_assert!(content(&read) == trace, "byte {}", at),
                Err(error) => prop_assert!(error.to_string().contains("row group 0, "), "{}", error),
            }
        }
    }

    #[test]
    fn files_that_are_cut_off_are_errors(share in 0.0..1.0) {
        let file = Temporary::new("cut");
        write(&file.0, &[row(0, 1, 0, 1); 50], &description());
        let bytes = std::fs::read(&file.0).unwrap();
        let length = (bytes.len() as f64 * share) as usize;
        std::fs::write(&file.0, &bytes[..length]).unwrap();
        let error = Trace::open(&file.0).unwrap_err().to_string();
        prop_assert!(length < 4 || error.contains("it was cut off"), "{length}: {error}");
    }
}
