//! Files that pyarrow and DuckDB wrote (`fixtures/columns/make.py`) are read as what they are.

use std::path::{Path, PathBuf};

use super::*;
use crate::{Trace, TraceError, convert};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/columns/{name}.parquet"))
}

fn open(name: &str) -> Result<Trace, TraceError> {
    Trace::open(&path(name))
}

/// All that a trace holds besides its name and its allocations.
fn accesses(trace: &Trace) -> String {
    format!("{} {:?}", trace.gpus, trace.launches)
}

const DESCRIBED: [&str; 12] = [
    "arrow-snappy",
    "arrow-gzip",
    "arrow-zstd",
    "arrow-none",
    "arrow-groups",
    "arrow-plain",
    "arrow-int64",
    "arrow-mixed",
    "duckdb",
    "duckdb-zstd",
    "duckdb-v2",
    "duckdb-bigint",
];

#[test]
fn whoever_wrote_it_it_is_the_same_trace() {
    let expected = open(DESCRIBED[0]).unwrap();
    // Rows have 1, 2, 3 and 4 lines in turn; every other one is in a wavefront.
    assert_eq!((expected.accesses(), expected.gpus(), expected.launches()), (300, 2, 2));
    assert_eq!((expected.name(), expected.markers()), ("foreign", 2));
    for name in DESCRIBED {
        let trace = open(name).unwrap();
        assert_eq!(trace.name(), "foreign", "{name}");
        assert_eq!(accesses(&trace), accesses(&expected), "{name}");
        assert_eq!(trace.allocations(), expected.allocations(), "{name}");
    }
}

#[test]
fn a_file_that_says_nothing_of_itself_has_the_pages_that_it_touches() {
    let expected = open("duckdb").unwrap();
    let copied = open("duckdb-query").unwrap();
    assert_eq!((copied.name(), copied.gpus()), ("duckdb-query", 2));
    assert_eq!(accesses(&copied), accesses(&expected), "all of it is touched, from its first page");
    let bytes: Vec<_> = copied.allocations().iter().map(|it| (it.address, it.pages())).collect();
    assert_eq!(bytes, [(0x10000, 64)]);
    // And once more through the format as Farside writes it.
    let to = std::env::temp_dir().join(format!("farside-{}-foreign.parquet", std::process::id()));
    assert_eq!(convert(&path("duckdb-query"), &to, 1).unwrap().accesses, 300);
    let converted = Trace::open(&to);
    std::fs::remove_file(&to).unwrap();
    assert_eq!(accesses(&converted.unwrap()), accesses(&expected));
}

#[test]
fn group_and_wave_may_be_missing() {
    let bare = open("arrow-bare").unwrap();
    assert_eq!((bare.accesses(), bare.markers(), bare.gpus()), (300, 0, 2));
}

#[test]
fn what_cannot_be_is_named_with_its_file_and_its_column() {
    for (name, parts) in [
        ("bad-float", &["\"gpu\" is DOUBLE", "integers"][..]),
        ("bad-missing", &["no column \"line\"", "launch, gpu, unit, sequence, line, count, flags"]),
        ("bad-null", &["row group 0, row 77, column sequence", "no value"]),
        ("bad-negative", &["row group 0, row 5, column gpu", "negative"]),
        ("bad-large", &["row group 0, row 9, column sequence", "1099511627776"]),
        ("bad-gpus", &["row group 0, row 11, column gpu", "300", "0 to 15"]),
    ] {
        let error = open(name).unwrap_err().to_string();
        assert!(error.starts_with(&path(name).display().to_string()), "{error}");
        for part in parts {
            assert!(error.contains(part), "{name}: {error}");
        }
    }
}

#[test]
fn what_is_written_is_what_column_lists() {
    let schema = parquet::schema::parser::parse_message_type(SCHEMA).unwrap();
    let names: Vec<&str> = schema.get_fields().iter().map(|field| field.name()).collect();
    let read = column::COLUMNS.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    assert_eq!(names[..names.len() - 1], read, "`time` is for other programs");
}
