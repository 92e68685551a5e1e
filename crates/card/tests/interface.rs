//! Records on the wire: what is encoded is decoded to the same, and any bytes are decoded or refused
//! without a panic; what is decoded can be computed with.

use farside_card::interface::{
    AllocRequest, ArgKind, BITS_BYTES_MAX, BitsBuffer, CommandEntry, CompletionEntry, DecodeError,
    DmaAddr, Entry, Extent, ExtentArg, ExtentList, FaultArg, FaultHead, FaultRecord, FaultWants,
    KernelArg, LOCATE_PAGES_MAX, NoticeRecord, Opcode, Operation, PAGE_NUMBERS, Status,
    entry_from_bytes, entry_to_bytes, reason_from_word, reason_to_word,
};
use farside_types::{Access, Asid, FaultId, JobId, PageNo, PageRange, PeId, Rights};
use proptest::prelude::*;

/// Words near which mistakes are made.
fn word() -> impl Strategy<Value = u64> {
    let edges = [0, 1, 2, 3, 4, 0xffff, 1 << 16, u64::from(u32::MAX), 1 << 32, PAGE_NUMBERS];
    let edges: Vec<u64> = edges.into_iter().flat_map(|edge| [edge, !edge]).collect();
    prop_oneof![prop::sample::select(edges), any::<u64>(), 0u64..100]
}

fn entry() -> impl Strategy<Value = Entry> {
    prop::array::uniform8(word())
}

/// Entries whose operation exists, so that operands are looked at.
fn likely_entry() -> impl Strategy<Value = Entry> {
    let opcode = prop::sample::select(Opcode::ALL.to_vec());
    (entry(), opcode, 0u64..4, 0u64..3).prop_map(|(mut entry, opcode, flags, asid)| {
        entry[1] = opcode as u64 | flags << 16 | asid << 32;
        entry
    })
}

fn place() -> impl Strategy<Value = DmaAddr> {
    prop_oneof![any::<u32>().prop_map(DmaAddr::Own), any::<u32>().prop_map(DmaAddr::Bus)]
}

fn extent() -> impl Strategy<Value = Extent> {
    let page = 0..PAGE_NUMBERS - u64::from(u32::MAX);
    (page, 1u32.., place(), place()).prop_map(|(page, count, src, dst)| Extent {
        page,
        count,
        src,
        dst,
    })
}

fn list() -> impl Strategy<Value = ExtentList> {
    (any::<u64>(), 1u32..=1 << 16)
        .prop_map(|(address, count)| ExtentList { address: address & !7, count })
}

fn extents() -> impl Strategy<Value = ExtentArg> {
    prop_oneof![extent().prop_map(ExtentArg::Inline), list().prop_map(ExtentArg::List)]
}

fn faults() -> impl Strategy<Value = FaultArg> {
    prop_oneof![
        any::<u64>().prop_map(|id| FaultArg::One(FaultId(id))),
        any::<(u64, u64)>().prop_map(|(a, b)| FaultArg::Range(FaultId(a)..=FaultId(b))),
        list().prop_map(FaultArg::List),
    ]
}

fn rights() -> impl Strategy<Value = Rights> {
    prop::sample::select(vec![Rights::Read, Rights::ReadWrite])
}

fn launch() -> impl Strategy<Value = Operation> {
    let pe = prop::option::of(any::<u16>().prop_map(PeId));
    let words = (any::<u64>(), any::<u32>(), any::<u64>(), any::<u64>());
    (words, pe, 0u32..=64, 0u32..=4096).prop_map(|(words, pe, args, message)| {
        let (job, kernel, args_at, message_at) = words;
        Operation::Launch {
            job: JobId(job),
            kernel,
            pe,
            args: ExtentList { address: args_at & !7, count: args },
            message: ExtentList { address: message_at, count: message },
        }
    })
}

fn buffer() -> impl Strategy<Value = BitsBuffer> {
    (any::<u64>(), 1..=BITS_BYTES_MAX / 8)
        .prop_map(|(address, words)| BitsBuffer { address: address & !7, bytes: words * 8 })
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        prop::sample::select(vec![Operation::Nop, Operation::Barrier, Operation::UnmapAll]),
        (extents(), rights()).prop_map(|(pages, rights)| Operation::Map(pages, rights)),
        (extents(), rights()).prop_map(|(pages, rights)| Operation::Protect(pages, rights)),
        (extents(), rights()).prop_map(|(pages, rights)| Operation::MapWritten(pages, rights)),
        extents().prop_map(Operation::Unmap),
        (extents(), buffer()).prop_map(|(pages, at)| Operation::UnmapTelling(pages, at)),
        (extents(), prop::option::of(buffer()))
            .prop_map(|(pages, at)| Operation::Accessed(pages, at)),
        extents().prop_map(Operation::Copy),
        extents().prop_map(Operation::CountersClear),
        (extents(), any::<u64>()).prop_map(|(pages, word)| Operation::Fill(pages, word)),
        faults().prop_map(Operation::Resume),
        (faults(), any::<u32>()).prop_map(|(faults, reason)| Operation::Cancel(faults, reason)),
        (any::<u64>(), 1u32..=255)
            .prop_map(|(address, bytes)| Operation::Kernel { address, bytes }),
        launch(),
        any::<u64>().prop_map(|job| Operation::Abort(JobId(job))),
        any::<u16>().prop_map(|pe| Operation::PeStatus(PeId(pe))),
        (extents(), any::<u32>(), any::<u16>()).prop_map(|(extents, transfer, from)| {
            Operation::LinkReceive { extents, transfer, from }
        }),
        (extents(), any::<u32>(), any::<u16>())
            .prop_map(|(extents, transfer, to)| Operation::LinkSend { extents, transfer, to }),
        any::<(u32, u16)>().prop_map(|(transfer, from)| Operation::LinkCancel { transfer, from }),
        (any::<(u64, u8, bool)>(), rights()).prop_map(|((bytes, memory, lazy), rights)| {
            Operation::Allocate(AllocRequest::Malloc { bytes, memory, rights, lazy })
        }),
        any::<(u64, u64, bool)>().prop_map(|(address, bytes, lazy)| {
            Operation::Allocate(AllocRequest::Realloc { address, bytes, lazy })
        }),
        any::<u64>().prop_map(|address| Operation::Allocate(AllocRequest::Free { address })),
        (any::<(u64, bool)>(), 1..=LOCATE_PAGES_MAX)
            .prop_map(|((address, touch), pages)| Operation::Locate { address, pages, touch }),
        (any::<u64>(), 1..=u64::MAX)
            .prop_map(|(address, bytes)| Operation::TakeOver { address, bytes }),
    ]
}

fn access() -> impl Strategy<Value = Access> {
    prop::sample::select(vec![Access::Read, Access::Write])
}

fn range() -> impl Strategy<Value = Option<(PageRange, Access)>> {
    let page = 0..PAGE_NUMBERS - u64::from(u32::MAX);
    let range = (page, 1u64..=u64::from(u32::MAX), access());
    prop::option::of(
        range.prop_map(|(page, count, access)| (PageRange::new(PageNo(page), count), access)),
    )
}

fn fault_record() -> impl Strategy<Value = FaultRecord> {
    let wants = prop_oneof![
        (0..PAGE_NUMBERS, access()).prop_map(|(page, a)| FaultWants::Page(PageNo(page), a)),
        (1u32..).prop_map(|ranges| FaultWants::Group { ranges }),
    ];
    let head = (any::<(u64, u16, u16, u64)>(), wants).prop_map(|((id, asid, pe, job), wants)| {
        let (id, asid, pe, job) = (FaultId(id), Asid(asid), PeId(pe), JobId(job));
        FaultRecord::Head(FaultHead { id, asid, pe, job, wants })
    });
    let ranges = (any::<u64>(), prop::array::uniform3(range()))
        .prop_map(|(id, ranges)| FaultRecord::Ranges(FaultId(id), ranges));
    prop_oneof![head, ranges]
}

#[test]
fn a_notice_of_no_pages_is_refused_wherever_it_begins() {
    for page in [0, PAGE_NUMBERS - 1, PAGE_NUMBERS] {
        let refused = NoticeRecord::from_entry(&[page, 0, 256, 1, 0, 0, 0, 0]);
        assert_eq!(refused, Err(DecodeError::Word { word: 1, value: 0 }), "{page:#x}");
    }
    let last = [PAGE_NUMBERS - 1, 1, 256, 1, 0, 0, 0, 0];
    assert_eq!(NoticeRecord::from_entry(&last).map(NoticeRecord::to_entry), Ok(last));
}

/// Computes with a range as a driver would: a range that wraps would panic here.
fn use_range(range: PageRange) {
    assert!(range.end() >= range.start);
    assert!(range.start.addr().0 >> 12 == range.start.0, "its address has 64 bits");
    assert!(!range.overlaps(PageRange::new(range.end(), 0)));
}

proptest! {
    #[test]
    fn commands_come_back_as_they_were(
        tag: u64, asid: u16, operation in operation(),
    ) {
        let command = CommandEntry { tag, asid: Asid(asid), operation };
        let entry = entry_from_bytes(&entry_to_bytes(&command.to_entry()));
        prop_assert_eq!(CommandEntry::from_entry(&entry), Ok(command));
    }

    #[test]
    fn any_entry_is_a_command_or_is_refused(entry in prop_oneof![entry(), likely_entry()]) {
        if let Ok(command) = CommandEntry::from_entry(&entry) {
            prop_assert_eq!(command.tag, entry[0]);
            prop_assert_eq!(command.to_entry(), entry, "nothing of the entry was overlooked");
            if let Operation::Map(ExtentArg::Inline(extent), _) = command.operation {
                use_range(PageRange::new(PageNo(extent.page), extent.count.into()));
            }
        }
    }

    #[test]
    fn faults_come_back_as_they_were(record in fault_record()) {
        prop_assert_eq!(FaultRecord::from_entry(&record.to_entry()), Ok(record));
    }

    #[test]
    fn any_entry_is_a_fault_or_is_refused(mut entry in entry(), kind in 0u64..4) {
        entry[1] = entry[1] & !0xffff | kind;
        entry[1] &= !0xfffe_0000;
        match FaultRecord::from_entry(&entry) {
            Ok(FaultRecord::Head(FaultHead { wants: FaultWants::Page(page, _), .. })) => {
                use_range(PageRange::page(page));
            }
            Ok(FaultRecord::Ranges(_, ranges)) => {
                ranges.into_iter().flatten().for_each(|(range, _)| use_range(range));
            }
            Ok(FaultRecord::Head(_)) | Err(_) => {}
        }
    }

    #[test]
    fn any_entry_is_a_notice_or_is_refused(mut entry in entry(), simple: bool) {
        if simple {
            entry[3] %= 1 << 16;
            entry[4..].fill(0);
        }
        if let Ok(notice) = NoticeRecord::from_entry(&entry) {
            use_range(notice.pages);
            prop_assert_eq!(notice.to_entry(), entry);
        }
    }

    #[test]
    fn any_entry_is_a_completion_or_is_refused(mut entry in entry(), status in 0u64..30) {
        entry[1] = entry[1] & !0xffff_ffff | status;
        if let Ok(completion) = CompletionEntry::from_entry(&entry) {
            prop_assert_eq!(completion.to_entry()[..5].to_vec(), entry[..5].to_vec());
            prop_assert_eq!(completion.status as u64, status);
        } else {
            prop_assert!(status > Status::Hung as u64);
        }
    }

    #[test]
    fn any_words_are_an_argument_or_are_refused(words in prop::array::uniform4(word())) {
        if let Some(arg) = KernelArg::from_words(words) {
            prop_assert_eq!(arg.to_words(), words);
            prop_assert!(arg.kind == ArgKind::Value || arg.word.checked_add(arg.bytes).is_some());
        }
    }

    #[test]
    fn any_word_is_a_reason_or_is_refused(word: u32, low in 0u32..12) {
        for word in [word, low, word & 0xff_0000 | low] {
            if let Some(reason) = reason_from_word(word) {
                prop_assert_eq!(reason_to_word(reason), word);
            }
        }
    }
}
