//! `docs/card-interface.md` and the code say the same: every number of the tables is a constant of
//! the code, every constant is in a table, and the example is what a function really does.

mod rig;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::Path;

use farside_card::interface::by_messages::{INTERRUPT, INTERRUPT_BYTES, INTERRUPTS_CAPABILITY};
use farside_card::interface::{
    ALLOC_LAZY, ARG_BYTES, ARGS_MAX, ArgKind, BITS_BYTES_MAX, BITS_PAGES, CommandEntry,
    CompletionEntry, DmaAddr, ENTRIES_MAX, ENTRIES_MIN, ENTRY_BYTES, ENTRY_WORDS, EXTENT_BYTES,
    EXTENTS_MAX, Extent, ExtentArg, ExtentList, FLAG_LIST, FLAG_QUIET, FLAG_RANGE, FaultArg,
    FaultHead, FaultRecord, FaultWants, KernelArg, LINK_HEADER_BYTES, LINK_LAST, LINK_MAGIC,
    LINK_PAYLOAD_BYTES, LINK_PAYLOAD_BYTES_MAX, LINK_RANGES_MAX, LINK_UNIT_BYTES, LIST_PAGES_MAX,
    LOCATE_NOWHERE, LOCATE_PAGES_MAX, LOCATE_TOUCH, LinkAddress, LinkField, LinkHeader, LinkKind,
    LinkVerdict, MAP_WRITTEN, MESSAGE_BYTES_MAX, MemoryKind, NAME_BYTES_MAX, NoticeRecord, Number,
    Opcode, Operation, PAGE_NUMBERS, RANGES_PER_RECORD, RING_COUNT, RingHeader, RingKind, Status,
    VERSION, entry_address, pci, reason_from_word, register,
};
use farside_card::link::{ReceiverConfig, SenderConfig};
use farside_card::tables::{Place, Root, TableEntry};
use farside_card::{Action, Geometry, JobEnd, Need, PAGES_MAX, Raised};
use farside_types::{Access, Asid, FaultId, JobId, PageNo, PageRange, PeId, Rights};
use rig::Rig;

const DOCUMENT: &str = include_str!("../../../docs/card-interface.md");

/// Constants by their paths, as written, with their values.
macro_rules! constants {
    ($($name:expr),* $(,)?) => {
        BTreeMap::from([$((stringify!($name).replace(' ', ""), $name as u64)),*])
    };
}

/// Rows of all tables of the document whose heads begin with these two cells.
fn rows(first: &str, second: &str) -> Vec<Vec<&'static str>> {
    let mut rows = Vec::new();
    let mut inside = false;
    for line in DOCUMENT.lines() {
        if !line.starts_with('|') {
            inside = false;
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if inside && !cells[0].starts_with("---") {
            rows.push(cells);
        } else if !inside {
            inside = cells.len() > 2 && cells[0] == first && cells[1] == second;
            if !inside {
                // Rows of a table that is not asked for must not be taken for heads.
                continue;
            }
        }
    }
    assert!(!rows.is_empty(), "the document has no table `| {first} | {second} |`");
    rows
}

fn number(cell: &str) -> u64 {
    let digits = cell.trim_start_matches("0x");
    let radix = if digits.len() < cell.len() { 16 } else { 10 };
    u64::from_str_radix(digits, radix).unwrap_or_else(|_| panic!("`{cell}` is no number"))
}

fn unquoted(cell: &str) -> String {
    cell.trim_matches('`').to_owned()
}

/// The first two columns of a table: name to number. No name twice.
fn table(first: &str, second: &str) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for row in rows(first, second) {
        let before = found.insert(unquoted(row[1]), number(row[0]));
        assert_eq!(before, None, "{} is in the document twice", row[1]);
    }
    found
}

/// `LinkSend` as `LINK_SEND`.
fn screaming(name: &impl Debug) -> String {
    let name = format!("{name:?}");
    let name = name.split(['(', ' ']).next().unwrap();
    let mut words = String::new();
    for (index, letter) in name.chars().enumerate() {
        if letter.is_uppercase() && index > 0 {
            words.push('_');
        }
        words.push(letter.to_ascii_uppercase());
    }
    words
}

/// Names of a table without their common beginning.
fn prefixed(prefix: &str, table: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    table.into_iter().map(|(name, value)| (format!("{prefix}{name}"), value)).collect()
}

fn bits(second: &str) -> BTreeMap<String, u64> {
    table("bit", second).into_iter().map(|(name, bit)| (name, 1 << bit)).collect()
}

/// Every scalar constant of the interface.
fn scalars() -> BTreeMap<String, u64> {
    let mut all = constants![
        VERSION,
        PAGE_NUMBERS,
        ARG_BYTES,
        ARGS_MAX,
        INTERRUPT,
        INTERRUPT_BYTES,
        FLAG_LIST,
        FLAG_QUIET,
        FLAG_RANGE,
        NAME_BYTES_MAX,
        BITS_BYTES_MAX,
        BITS_PAGES,
        ALLOC_LAZY,
        LOCATE_TOUCH,
        LOCATE_PAGES_MAX,
        LOCATE_NOWHERE,
        MAP_WRITTEN,
        MESSAGE_BYTES_MAX,
        EXTENT_BYTES,
        EXTENTS_MAX,
        LIST_PAGES_MAX,
        RANGES_PER_RECORD,
        ENTRY_BYTES,
        ENTRY_WORDS,
        ENTRIES_MIN,
        ENTRIES_MAX,
        RING_COUNT,
        RingHeader::PRODUCER,
        RingHeader::PRODUCER_WAITS,
        RingHeader::CONSUMER,
        RingHeader::CONSUMER_SLEEPS,
        RingHeader::BYTES,
        LINK_HEADER_BYTES,
        LINK_MAGIC,
        LINK_LAST,
        LINK_PAYLOAD_BYTES,
        LINK_PAYLOAD_BYTES_MAX,
        LINK_UNIT_BYTES,
        LINK_RANGES_MAX,
        LinkField::MAGIC,
        LinkField::KIND,
        LinkField::ROUND,
        LinkField::TRANSFER,
        LinkField::FROM,
        LinkField::TO,
        LinkField::LENGTH,
        LinkField::ARGUMENT,
        LinkField::PAGE,
        LinkField::SEQUENCE,
        LinkField::PAGES,
        LinkField::CRC,
        pci::VENDOR,
        pci::DEVICE,
        pci::CLASS,
        pci::BAR_REGISTERS,
        pci::BAR_MEMORY,
        pci::BAR_MSIX,
        pci::BAR_REGISTERS_BYTES,
        pci::BAR_MSIX_BYTES,
        pci::MSIX_TABLE,
        pci::MSIX_PENDING,
        pci::VECTORS,
        pci::ERROR_VECTOR,
    ];
    all.extend(register_scalars());
    all
}

fn register_scalars() -> BTreeMap<String, u64> {
    constants![
        register::MAGIC,
        register::VERSION,
        register::CAPABILITIES,
        register::GENERATION,
        register::FRAMES,
        register::PES,
        register::ASIDS,
        register::FAULT_ENTRIES,
        register::GROUP_RANGES,
        register::COUNTER_GROUP_PAGES,
        register::COUNTER_THRESHOLD,
        register::DMA_PAGES,
        register::DMA_COMMANDS,
        register::JOBS,
        register::CARD,
        register::FUNCTION,
        register::PAGE_SIZES,
        register::KERNELS,
        register::TABLE_PAGES,
        register::TABLE_PAGES_USED,
        register::WINDOW_BASE,
        register::WINDOW_BYTES,
        register::WINDOW_FRAMES,
        register::WINDOW_FRAMES_FREE,
        register::WINDOW_PAGE,
        register::WINDOW_MEMORIES,
        register::WINDOW_FIRST,
        register::CONTROL,
        register::STATUS,
        register::ERRORS,
        register::ERROR_DETAIL,
        register::RINGS,
        register::RING_STRIDE,
        register::RING_BASE,
        register::RING_ENTRIES,
        register::RING_VECTOR,
        register::RING_INDEX,
        register::MEMORIES,
        register::MEMORY_STRIDE,
        register::MEMORY_FRAMES,
        register::MEMORY_FRAMES_FREE,
        register::MEMORY_KIND,
        register::MEMORIES_MAX,
        register::COUNTERS,
        register::DOORBELL,
        register::MAGIC_VALUE,
        register::CAP_DMA,
        register::CAP_DMA_BUS_TO_BUS,
        register::CAP_LINK,
        register::CAP_COUNTERS,
        register::CAP_GROUPS,
        register::CAP_TABLES,
        register::CAP_ALLOC,
        register::CAP_NUMBERS,
        register::CONTROL_ENABLE,
        register::CONTROL_RESET,
        register::STATUS_ENABLED,
        register::STATUS_QUIET,
        register::STATUS_RESETTING,
        register::STATUS_FAILED,
        register::ERROR_RING,
        register::ERROR_BUS,
        register::ERROR_FOREIGN_FRAME,
        register::ERROR_COMMAND,
        register::ERROR_REGISTER,
        register::ERROR_LINK,
        register::ERROR_CARD,
    ]
}

/// The names of the scalar constants in the sources of the interface.
fn names_in_sources() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/interface");
    let mut names = BTreeSet::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let module = path.file_stem().unwrap().to_str().unwrap();
        let mut place = match module {
            "register" | "pci" => format!("{module}::"),
            _ => String::new(),
        };
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            if let Some(name) = line.strip_prefix("impl ") {
                place = format!("{}::", name.trim_end_matches(" {"));
            }
            let constant = line.trim_start().strip_prefix("pub const ");
            let Some((name, rest)) = constant.and_then(|text| text.split_once(": ")) else {
                continue;
            };
            let indented = line.starts_with(' ');
            // Functions, lists of things that have tables of their own, and texts.
            if name.contains('(') || rest.starts_with(['[', '&']) {
                continue;
            }
            names.insert(if indented || matches!(module, "register" | "pci") {
                format!("{place}{name}")
            } else {
                name.to_owned()
            });
        }
    }
    names
}

#[test]
fn this_test_knows_every_constant_of_the_sources() {
    let known: BTreeSet<String> = scalars().into_keys().collect();
    assert_eq!(known, names_in_sources());
}

#[test]
fn the_capability_of_interrupts_is_named() {
    assert!(DOCUMENT.contains(&format!("`{INTERRUPTS_CAPABILITY}`")));
}

#[test]
fn every_constant_is_in_a_table_and_every_number_of_a_table_is_a_constant() {
    let mut document = table("value", "constant");
    assert_eq!(document.remove("PAGES_MAX"), Some(PAGES_MAX));
    for (prefix, rows) in [
        ("register::", table("offset", "register")),
        ("register::", table("offset", "ring register")),
        ("register::", table("offset", "memory register")),
        ("register::", bits("control")),
        ("register::", bits("status")),
        ("register::", bits("capability")),
        ("register::", bits("error")),
        ("", bits("flag")),
        ("RingHeader::", table("offset", "header word")),
        ("LinkField::", table("offset", "link field")),
    ] {
        for (name, value) in prefixed(prefix, rows) {
            assert_eq!(document.insert(name.clone(), value), None, "{name} is there twice");
        }
    }
    assert_eq!(document, scalars());
}

#[test]
fn counters_are_in_the_order_of_the_table() {
    let names: Vec<String> = rows("index", "counter")
        .iter()
        .enumerate()
        .map(|(index, row)| {
            assert_eq!(number(row[0]), index as u64);
            unquoted(row[1])
        })
        .collect();
    assert_eq!(names, register::COUNTER_NAMES);
}

#[test]
fn memories_have_the_codes_of_the_table() {
    let kinds = rows("code", "kind of memory");
    assert_eq!(kinds.len(), MemoryKind::ALL.len());
    for (kind, row) in MemoryKind::ALL.into_iter().zip(&kinds) {
        assert_eq!((number(row[0]), unquoted(row[1])), (kind.code().into(), kind.name().into()));
    }
}

#[test]
fn rings_have_the_codes_and_the_producers_of_the_table() {
    let rings = rows("code", "ring");
    assert_eq!(rings.len(), RING_COUNT);
    for (kind, row) in RingKind::ALL.into_iter().zip(&rings) {
        assert_eq!((number(row[0]), unquoted(row[1])), (kind.index() as u64, kind.name().into()));
        let card_reads = kind == RingKind::Command;
        assert_eq!(row[2..4], if card_reads { ["driver", "card"] } else { ["card", "driver"] });
    }
}

fn codes<T: Debug>(all: impl IntoIterator<Item = (T, u64)>) -> BTreeMap<String, u64> {
    all.into_iter().map(|(name, code)| (screaming(&name), code)).collect()
}

#[test]
fn codes_are_those_of_the_tables() {
    let opcodes = codes(Opcode::ALL.map(|opcode| (opcode, opcode as u64)));
    assert_eq!(table("code", "command"), opcodes);
    let statuses = (0..1000).map_while(|code| {
        let entry = CompletionEntry::from_entry(&[0, code, 0, 0, 0, 0, 0, 0]).ok()?;
        Some((entry.status, code))
    });
    assert_eq!(table("code", "completion status"), codes(statuses));
    let reasons = (0..1 << 16).filter_map(|code| Some((reason_from_word(code)?, code.into())));
    assert_eq!(table("code", "cancel reason"), codes(reasons));
    let kinds = codes(LinkKind::ALL.map(|kind| (kind, kind as u64)));
    assert_eq!(table("code", "link frame"), kinds);
    let verdicts = codes(LinkVerdict::ALL.map(|verdict| (verdict, verdict as u64)));
    assert_eq!(table("code", "link verdict"), verdicts);
    let argument = |kind| KernelArg { kind, element: 1, word: 0, bytes: 0 };
    let kinds = [ArgKind::Value, ArgKind::Read, ArgKind::Write, ArgKind::Shared];
    let kinds = kinds.map(|kind| (kind, argument(kind).to_words()[0] & 0xffff_ffff));
    assert_eq!(table("code", "argument kind"), codes(kinds));
    let numbers = codes(Number::ALL.map(|number| (number, number.code())));
    assert_eq!(table("code", "number"), numbers);
    assert_eq!(table("code", "ring").len(), RING_COUNT);
}

/// Flags and operands that the table of commands allows are taken, and others are refused.
#[test]
fn commands_take_the_flags_and_asids_of_the_table() {
    for row in rows("code", "command") {
        let code = number(row[0]);
        let mut entry = [7, code, 0, 0, 0, 0, 0, 0];
        match Opcode::from_code(code as u16).unwrap() {
            Opcode::Map | Opcode::Protect => (entry[3], entry[6]) = (1, 1),
            Opcode::Kernel | Opcode::Unmap | Opcode::Accessed => entry[3] = 1,
            Opcode::Locate | Opcode::TakeOver => entry[3] = 1,
            Opcode::Copy | Opcode::Fill => entry[3] = 1,
            Opcode::Alloc => (entry[2], entry[6]) = (1, 1),
            Opcode::CountersClear | Opcode::LinkReceive | Opcode::LinkSend => entry[3] = 1,
            _ => {}
        }
        CommandEntry::from_entry(&entry).unwrap_or_else(|error| panic!("{}: {error}", row[1]));
        let (list, range) = (row[3].contains("list"), row[3].contains("range"));
        for (flag, allowed) in
            [(FLAG_LIST, list), (FLAG_RANGE, range), (FLAG_QUIET, true), (8, false), (3, false)]
        {
            let mut entry = entry;
            entry[1] |= u64::from(flag) << 16;
            if flag == FLAG_LIST {
                entry[3] = 1;
            }
            let taken = CommandEntry::from_entry(&entry);
            assert_eq!(taken.is_ok(), allowed, "{} with flags {flag}: {taken:?}", row[1]);
        }
        let mut rig = Rig::new();
        entry[1] |= 1 << 32;
        rig.push(&entry);
        rig.doorbell();
        let refused = rig
            .completions()
            .iter()
            .any(|completion| (completion.status, completion.detail) == (Status::BadOperand, 1));
        assert_eq!(refused, row[2] == "no", "{} with an asid", row[1]);
    }
}

/// Where the tables of records say that a field is.
fn field(words: &[u64], record: &str, name: &str) -> u64 {
    let found: Vec<_> = rows("record", "word")
        .into_iter()
        .filter(|row| row[0] == record && row[3] == name)
        .collect();
    assert_eq!(found.len(), 1, "{record}.{name} is in the tables once");
    let (low, high) = found[0][2].split_once('-').unwrap();
    let (low, high) = (number(low), number(high));
    words[number(found[0][1]) as usize] >> low & u64::MAX >> (63 - (high - low))
}

/// Checks the fields of a record, that the tables have no others, and that no other bit is set.
fn check_record(record: &str, words: &[u64], expected: &[(&str, u64)]) {
    let names: BTreeSet<&str> = expected.iter().map(|&(name, _)| name).collect();
    let mut left = words.to_vec();
    let mut listed = BTreeSet::new();
    for row in rows("record", "word").into_iter().filter(|row| row[0] == record) {
        let (low, high) = row[2].split_once('-').unwrap();
        let (low, high) = (number(low), number(high));
        left[number(row[1]) as usize] &= !(u64::MAX >> (63 - (high - low)) << low);
        listed.insert(row[3]);
    }
    assert_eq!(names, listed, "fields of the record {record}");
    for &(name, value) in expected {
        assert_eq!(field(words, record, name), value, "{record}.{name}");
    }
    assert!(left.iter().all(|&word| word == 0), "{record} has bits that no field has: {left:x?}");
}

#[test]
fn records_have_the_fields_of_the_tables() {
    let reason = reason_from_word(6 | 2 << 16).unwrap();
    let faults = FaultArg::Range(FaultId(0xfed)..=FaultId(0xfff));
    let operation = Operation::Cancel(faults, farside_card::interface::reason_to_word(reason));
    let command = CommandEntry { tag: 0x1234_5678_9abc, asid: Asid(3), operation };
    let expected = [
        ("tag", 0x1234_5678_9abc),
        ("opcode", 0x21),
        ("flags", 2),
        ("asid", 3),
        ("operand 0", 0xfed),
        ("operand 1", 0xfff),
        ("operand 2", 0),
        ("operand 3", 0),
        ("operand 4", 0x2_0006),
        ("operand 5", 0),
    ];
    check_record("command", &command.to_entry(), &expected);
    let extent = Extent {
        page: 0xabc,
        count: 17,
        src: DmaAddr::Bus(0xffff_fff0),
        dst: DmaAddr::Own(0x1234),
    };
    let expected = [
        ("page", 0xabc),
        ("count", 17),
        ("source number", 0xffff_fff0),
        ("source own", 0),
        ("destination number", 0x1234),
        ("destination own", 1),
    ];
    check_record("extent", &extent.to_words(), &expected);
    let completion = CompletionEntry {
        tag: 9,
        status: Status::KernelFault,
        message_bytes: 40,
        value: 7,
        pages: 5,
        detail: 6,
        bits: [11, 12, 13],
    };
    let expected = [
        ("tag", 9),
        ("status", 13),
        ("message bytes", 40),
        ("value", 7),
        ("pages", 5),
        ("detail", 6),
        ("bits 0", 11),
        ("bits 1", 12),
        ("bits 2", 13),
    ];
    check_record("completion", &completion.to_entry(), &expected);
    let root = Root::new(0x1234_5678, 6);
    check_record("root", &[root.0], &[("valid", 1), ("levels", 6), ("table", 0x1234_5678)]);
    let entry = TableEntry::leaf(Place::Own(0x9abc), Rights::ReadWrite, false, 9).used(true);
    let expected = [
        ("valid", 1),
        ("writable", 1),
        ("own memory", 1),
        ("accessed", 1),
        ("dirty", 1),
        ("size", 9),
        ("first", 0),
        ("last", 0),
        ("memory", 0),
        ("pages", 0),
        ("number", 0x9abc),
    ];
    check_record("entry", &[entry.0], &expected);
    let window = entry.in_memory(5).bounding(true, true).of_pages(0x7001);
    let bits = [("first", 1), ("last", 1), ("memory", 5), ("pages", 0x7000)];
    bits.iter().for_each(|&(name, value)| assert_eq!(field(&[window.0], "entry", name), value));
    let expected = [("valid", 1), ("table", 1), ("number", 0xffff_fffe)];
    check_record("directory", &[TableEntry::directory(0xffff_fffe).0], &expected);
    let argument = KernelArg { kind: ArgKind::Write, element: 8, word: 0x7000, bytes: 64 };
    let expected = [("kind", 2), ("element bytes", 8), ("value or address", 0x7000), ("bytes", 64)];
    check_record("argument", &argument.to_words(), &expected);
    let pages = PageRange::new(PageNo(0x40), 16);
    let notice = NoticeRecord { asid: Asid(2), pages, count: 256 };
    let expected = [("page", 0x40), ("pages", 16), ("accesses", 256), ("asid", 2)];
    check_record("notice", &notice.to_entry(), &expected);
}

#[test]
fn launches_and_faults_have_the_fields_of_the_tables() {
    let args = ExtentList { address: 0x8000, count: 3 };
    let message = ExtentList { address: 0x9000, count: 100 };
    let (job, pe) = (JobId(77), Some(PeId(2)));
    let operation = Operation::Launch { job, kernel: 5, pe, args, message };
    let launch = CommandEntry { tag: 0, asid: Asid(0), operation }.to_entry();
    let expected = [
        ("job", 77),
        ("kernel", 5),
        ("processing element plus one", 3),
        ("arguments address", 0x8000),
        ("arguments count", 3),
        ("message bytes", 100),
        ("message address", 0x9000),
    ];
    let operands = [0, 0, launch[2], launch[3], launch[4], launch[5], launch[6], launch[7]];
    check_record("launch", &operands, &expected);
    let head = |wants| {
        let (id, asid, pe, job) = (FaultId(11), Asid(3), PeId(2), JobId(77));
        FaultRecord::Head(FaultHead { id, asid, pe, job, wants }).to_entry()
    };
    let common = [("id", 11), ("processing element", 2), ("asid", 3), ("job", 77)];
    let page = [("kind", 0), ("access", 1), ("page", 0x40), ("count", 1)];
    let wants = FaultWants::Page(PageNo(0x40), Access::Write);
    check_record("page", &head(wants), &[&common[..], &page].concat());
    let group = [("kind", 1), ("ranges", 3)];
    check_record("group", &head(FaultWants::Group { ranges: 3 }), &[&common[..], &group].concat());
    let range = |page, access| Some((PageRange::new(PageNo(page), page + 1), access));
    let ranges = [range(1, Access::Write), range(2, Access::Read), range(3, Access::Write)];
    let expected = [
        ("id", 11),
        ("kind", 2),
        ("page 1", 1),
        ("count 1", 2),
        ("access 1", 1),
        ("page 2", 2),
        ("count 2", 3),
        ("access 2", 0),
        ("page 3", 3),
        ("count 3", 4),
        ("access 3", 1),
    ];
    check_record("ranges", &FaultRecord::Ranges(FaultId(11), ranges).to_entry(), &expected);
}

/// Every record of the tables is checked above.
#[test]
fn no_record_is_left_out() {
    let records: BTreeSet<&str> = rows("record", "word").iter().map(|row| row[0]).collect();
    let checked = [
        "argument",
        "command",
        "completion",
        "directory",
        "entry",
        "extent",
        "group",
        "launch",
        "notice",
        "page",
        "ranges",
        "root",
    ];
    assert_eq!(records, BTreeSet::from(checked));
}

/// Bytes of a register as read at a width.
fn read(rig: &Rig, offset: u64, bytes: usize) -> Vec<u8> {
    let mut into = vec![0x5a; bytes];
    rig.function.read_register(&rig.card, offset, &mut into);
    into
}

/// Whether writing a register's own value back, or a harmless one, is allowed.
fn may_write(offset: u64, bytes: usize) -> bool {
    let mut rig = Rig::new();
    rig.write32(register::CONTROL, 0);
    let value = match offset {
        register::DOORBELL => vec![0; bytes],
        _ => read(&rig, offset, bytes),
    };
    rig.function.write_register(&mut rig.card, &mut rig.bus, offset, &value);
    rig.read64(register::ERRORS) & register::ERROR_REGISTER == 0
}

#[test]
fn registers_have_the_widths_and_the_access_of_the_tables() {
    let mut table: Vec<(u64, Vec<&str>)> =
        rows("offset", "register").into_iter().map(|row| (number(row[0]), row)).collect();
    for kind in RingKind::ALL {
        let ring = rows("offset", "ring register").into_iter();
        table.extend(ring.map(|row| (register::ring(kind) + number(row[0]), row)));
    }
    let geometry = Geometry { table_pages: 64, ..Geometry::default() };
    let rig = Rig::with_rings(geometry, [64, 64, 128, 64], 0);
    for memory in 0..rig.function.window_memories().count() as u8 {
        let memories = rows("offset", "memory register").into_iter();
        table.extend(memories.map(|row| (register::memory(memory) + number(row[0]), row)));
    }
    for (offset, row) in &table {
        let right = number(row[2]) as usize / 8;
        for bytes in [1, 2, 4, 8] {
            let readable = row[3] != "w" && bytes == right;
            let ones = read(&rig, *offset, bytes) == vec![0xff; bytes];
            assert_eq!(!ones, readable, "read {bytes} bytes of {}", row[1]);
            let writable = row[3] != "r" && bytes == right;
            assert_eq!(may_write(*offset, bytes), writable, "write {bytes} bytes of {}", row[1]);
        }
    }
    let offsets: BTreeSet<u64> = table.iter().map(|(offset, _)| *offset).collect();
    for offset in (0..register::COUNTERS).step_by(4).filter(|offset| !offsets.contains(offset)) {
        for bytes in [4, 8] {
            assert_eq!(read(&rig, offset, bytes), vec![0xff; bytes], "nothing is at {offset:#x}");
        }
    }
}

#[test]
fn a_link_frames_fields_follow_one_another_at_their_widths() {
    let mut end = 0;
    for row in rows("offset", "link field") {
        assert_eq!(number(row[0]), end, "{}", row[1]);
        end += number(row[2]) / 8;
    }
    assert_eq!(end, LINK_HEADER_BYTES as u64);
}

#[test]
fn the_defaults_are_those_of_the_limits() {
    let geometry = serde_words(&Geometry::default());
    let mut limits = table("value", "default");
    let address = LinkAddress::new(0, 0);
    let (sender, receiver) = (SenderConfig::new(address), ReceiverConfig::new(address));
    assert_eq!(limits.remove("link_rounds_max"), Some(sender.rounds_max.into()));
    let transfers = limits.remove("link_transfers_max");
    assert_eq!(transfers, Some(sender.transfers_max.into()));
    assert_eq!(transfers, Some(receiver.transfers_max.into()));
    let pages = limits.get("dma_pages_max").copied();
    assert_eq!(pages, Some(sender.pages_max.into()));
    assert_eq!(pages, Some(receiver.pages_max.into()));
    assert_eq!(sender.payload_bytes as usize, LINK_PAYLOAD_BYTES);
    assert_eq!(limits, geometry);
}

/// The fields of a geometry, from its text, so that none is left out.
fn serde_words(geometry: &Geometry) -> BTreeMap<String, u64> {
    let text = format!("{geometry:?}");
    let fields = text.split_once('{').unwrap().1.trim_end_matches(" }");
    let fields = fields.split(", ").map(|field| {
        let (name, value) = field.trim().split_once(": ").unwrap();
        match name {
            "counter_group" => ("counter_group_pages".to_owned(), geometry.counter_group.pages()),
            "l1_shared" => (name.to_owned(), u64::from(geometry.l1_shared)),
            _ => (name.to_owned(), number(value)),
        }
    });
    fields.collect()
}

/// Memory as the document shows it: address and 16 bytes to a line.
fn dump(address: u64, bytes: &[u8]) -> Vec<String> {
    let lines = bytes.chunks(16).enumerate().map(|(line, bytes)| {
        let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{:09x}  {}", address + 16 * line as u64, bytes.join(" "))
    });
    lines.collect()
}

/// The last entry that the driver put into a ring, or the card did.
fn entry_of(rig: &Rig, kind: RingKind, index: u32) -> Vec<String> {
    let ring = rig.rings[kind.index()];
    let address = entry_address(ring.base, ring.entries, index);
    dump(address, rig.bus.get(address, 64))
}

fn header_of(rig: &Rig, kind: RingKind) -> Vec<String> {
    let base = rig.rings[kind.index()].base;
    [dump(base, rig.bus.get(base, 16)), dump(base + 0x40, rig.bus.get(base + 0x40, 16))].concat()
}

/// The session of section 13: a kernel faults, gets its page, ends; the page is taken back.
fn session() -> Vec<Vec<String>> {
    let mut rig = Rig::new();
    let none = Asid(0);
    let list = ExtentList { address: 0, count: 0 };
    let (job, pe) = (JobId(5), PeId(0));
    let mut blocks = Vec::new();
    rig.submit(Asid(1), Operation::Launch { job, kernel: 1, pe: None, args: list, message: list });
    blocks
        .push([entry_of(&rig, RingKind::Command, 0), header_of(&rig, RingKind::Command)].concat());
    rig.doorbell();
    assert!(matches!(rig.actions()[..], [Action::Start { .. }]));
    let need = Need::Page(PageNo(0x40), Access::Write);
    let Ok(Raised::Queued(id)) = rig.card.raise(pe, job, Asid(1), need) else {
        panic!("the page is not mapped");
    };
    rig.publish();
    assert_eq!(rig.faults().len(), 1);
    blocks.push([entry_of(&rig, RingKind::Fault, 0), header_of(&rig, RingKind::Fault)].concat());
    let host = DmaAddr::Bus((rig.free >> 12) as u32);
    let extent = Extent { page: 0, count: 1, src: host, dst: DmaAddr::Own(9) };
    rig.submit(none, Operation::Copy(ExtentArg::Inline(extent)));
    rig.doorbell();
    let actions = rig.actions();
    let [Action::Copy { id: copy, .. }] = &actions[..] else { panic!("{actions:?}") };
    rig.function.copied(&mut rig.card, &mut rig.bus, *copy, Ok(()));
    rig.completions();
    let command = entry_of(&rig, RingKind::Command, 1);
    blocks.push([command, entry_of(&rig, RingKind::Completion, 0)].concat());
    let to = rig::pages_at(0x40, 1, DmaAddr::Own(9));
    rig.submit(Asid(1), Operation::Map(to, Rights::ReadWrite));
    rig.submit(none, Operation::Resume(FaultArg::One(id)));
    rig.doorbell();
    assert_eq!(rig.completions().len(), 2);
    let commands = [2, 3].map(|index| entry_of(&rig, RingKind::Command, index));
    let completions = [1, 2].map(|index| entry_of(&rig, RingKind::Completion, index));
    blocks.push([commands.concat(), completions.concat()].concat());
    rig.submit(Asid(1), Operation::Unmap(rig::pages(0x40, 1)));
    rig.doorbell();
    assert!(rig.completions().is_empty(), "the kernel holds the page");
    blocks.push(entry_of(&rig, RingKind::Command, 4));
    rig.function.job_ended(&mut rig.card, &mut rig.bus, job, &JobEnd::returned(42));
    let statuses = rig.completions().into_iter().map(|completion| completion.status);
    assert_eq!(statuses.collect::<Vec<_>>(), [Status::Ok; 2]);
    let completions = [3, 4].map(|index| entry_of(&rig, RingKind::Completion, index));
    let header = header_of(&rig, RingKind::Completion);
    blocks.push([completions.concat(), header].concat());
    blocks.push(link_frames());
    blocks
}

/// A frame of data without its payload, of 64 bytes 0x00 to 0x3f, and a pause.
fn link_frames() -> Vec<String> {
    let payload: Vec<u8> = (0..64).collect();
    let data = LinkHeader {
        kind: LinkKind::Data,
        last: true,
        round: 0,
        transfer: 9,
        from: LinkAddress::new(3, 2),
        to: LinkAddress::new(4, 1),
        length: 64,
        argument: 4032,
        page: 1,
        sequence: 127,
        pages: 2,
    };
    let pause = LinkHeader {
        kind: LinkKind::Pause,
        last: false,
        transfer: 0,
        from: data.to,
        to: data.from,
        length: 0,
        argument: 1000,
        page: 0,
        sequence: 0,
        pages: 0,
        ..data
    };
    [dump(0, &data.to_bytes(&payload)), dump(0, &pause.to_bytes(&[]))].concat()
}

#[test]
fn the_example_is_what_a_function_does() {
    let (_, example) = DOCUMENT.split_once("## 13.").expect("section 13");
    let written: Vec<Vec<&str>> = example
        .split("```")
        .skip(1)
        .step_by(2)
        .map(|block| block.lines().skip(1).map(str::trim_end).collect())
        .collect();
    let real = session();
    let text = real.iter().map(|block| format!("```text\n{}\n```\n", block.join("\n")));
    let text = text.collect::<Vec<_>>().join("\n");
    for (index, block) in real.iter().enumerate() {
        let shown = written.get(index).cloned().unwrap_or_default();
        assert_eq!(&shown, block, "block {index} differs; the blocks should be:\n{text}");
    }
    assert_eq!(written.len(), real.len(), "blocks of section 13");
}
