//! `docs/link-protocol.md` and the code say the same.

use farside_link::control::{CONTROL_BYTES_MAX, CONTROLS, NAME_BYTES_MAX};
use farside_link::description::{IRQS_MAX, REGIONS_MAX};
use farside_link::endpoint::BULK_AHEAD_BYTES_MAX;
use farside_link::error::Violation;
use farside_link::frame::{Class, DATA_BYTES_MAX, Kind, READ_BYTES_MAX, SMALL_BYTES_MAX};
use farside_link::wire::{HEADER_BYTES, Header};

const DOCUMENT: &str = include_str!("../../../docs/link-protocol.md");

/// Rows of the table whose head begins with these cells.
fn rows(head: [&str; 3]) -> Vec<Vec<&'static str>> {
    let cells = |line: &'static str| -> Vec<&'static str> {
        line.trim_matches('|').split('|').map(str::trim).collect()
    };
    let lines = DOCUMENT.lines().skip_while(|line| {
        let found = cells(line);
        !line.starts_with('|') || !head.iter().zip(found).all(|(a, b)| a.is_empty() || *a == b)
    });
    let rows: Vec<_> = lines.skip(2).take_while(|line| line.starts_with('|')).map(cells).collect();
    assert!(!rows.is_empty(), "the document has no table {head:?}");
    rows
}

/// Bytes of fields such as `offset u64, value u8 (0 or 1)`.
fn bytes_of(fields: &str) -> usize {
    let words = fields.split(|c: char| !c.is_alphanumeric());
    let bits = words.filter_map(|word| word.strip_prefix('u')?.parse::<usize>().ok());
    bits.sum::<usize>() / 8
}

#[test]
fn the_frames_are_those_of_the_document() {
    let rows = rows(["kind", "name", "class"]);
    assert_eq!(rows.len(), Kind::ALL.len());
    for (row, kind) in rows.iter().zip(Kind::ALL) {
        let class = format!("{:?}", kind.class());
        assert_eq!(row[0], format!("{:#06x}", kind.number()));
        assert_eq!((row[1], row[2]), (&*format!("{kind:?}"), &*class));
        assert_eq!(row[3], kind.field_bytes().to_string(), "{kind:?}");
        assert_eq!(row[4], if kind.has_data() { "yes" } else { "no" }, "{kind:?}");
        assert_eq!(bytes_of(row[5]), kind.field_bytes(), "{kind:?}");
        assert_eq!(Kind::decode(kind.number()), Some(*kind));
    }
}

#[test]
fn the_control_frames_are_those_of_the_document() {
    let rows = rows(["kind", "name", "fewest bytes"]);
    assert_eq!(rows.len(), CONTROLS.len());
    for (row, (number, name, least, most)) in rows.iter().zip(CONTROLS) {
        let [least, most] = [least, most].map(|bytes| bytes.to_string());
        assert_eq!(row[..4], [&*format!("{number:#06x}"), name, &least, &most]);
    }
}

#[test]
fn the_header_is_that_of_the_document() {
    let header = Header { kind: 1, length: 2, sequence: 3, acknowledged: 4, tag: 5 };
    let bytes = header.encode();
    let rows = rows(["at", "bytes", "field"]);
    for (row, value) in rows.iter().zip(1u8..) {
        let at: usize = row[0].parse().unwrap();
        let length: usize = row[1].parse().unwrap();
        assert_eq!(bytes[at], value, "{}", row[2]);
        assert!(bytes[at + 1..at + length].iter().all(|&byte| byte == 0), "{}", row[2]);
    }
    assert_eq!((rows.len(), bytes.len()), (5, HEADER_BYTES));
}

#[test]
fn the_limits_are_those_of_the_document() {
    let limits = [
        ("DATA_BYTES_MAX", DATA_BYTES_MAX),
        ("SMALL_BYTES_MAX", SMALL_BYTES_MAX),
        ("READ_BYTES_MAX", READ_BYTES_MAX as usize),
        ("BULK_AHEAD_BYTES_MAX", BULK_AHEAD_BYTES_MAX),
        ("NAME_BYTES_MAX", NAME_BYTES_MAX),
        ("CONTROL_BYTES_MAX", CONTROL_BYTES_MAX),
        ("REGIONS_MAX", REGIONS_MAX),
        ("IRQS_MAX", IRQS_MAX),
    ];
    let rows = rows(["what", "at most", ""]);
    assert_eq!(rows.len(), limits.len());
    for (row, (name, value)) in rows.iter().zip(limits) {
        assert!(row[0].starts_with(&format!("{name},")), "{}", row[0]);
        assert_eq!(row[1], value.to_string());
    }
}

#[test]
fn the_violations_are_those_of_the_document() {
    let all = [
        Violation::NoLink,
        Violation::Version,
        Violation::Device,
        Violation::Epoch { theirs: 0, ours: 0 },
        Violation::Session,
        Violation::Resume { wanted: 0, first: 0, end: 0 },
        Violation::UnknownKind(0),
        Violation::Unexpected(0),
        Violation::Length { kind: 0, length: 0 },
        Violation::Header,
        Violation::Malformed(Kind::Barrier),
        Violation::Gap { expected: 0, got: 0 },
        Violation::Acknowledged,
        Violation::Credit(Class::Posted),
        Violation::CreditBack,
        Violation::TagInUse(0),
        Violation::Reply(0),
    ];
    let rows = rows(["code", "violation", ""]);
    assert_eq!(rows.len(), all.len());
    for (row, violation) in rows.iter().zip(all) {
        assert_eq!(row[0], violation.code().to_string());
        assert!(format!("{violation:?}").starts_with(row[1]), "{}", row[1]);
    }
}
