//! What memory an entry refers to, and what a card elsewhere may be asked for.

use farside_card::interface::{
    ARG_BYTES, CommandEntry, DmaAddr, EXTENT_BYTES, Entry, Extent, ExtentArg, ExtentList, FaultArg,
    Operation,
};

/// Memory that a command refers to, by bus addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Refers {
    /// The card reads it: address and bytes.
    pub(super) list: Option<(u64, u64)>,
    /// The card writes its message there.
    pub(super) message: Option<(u64, u64)>,
}

fn list_of(list: ExtentList, bytes: u64) -> Option<(u64, u64)> {
    (list.count > 0).then(|| (list.address, u64::from(list.count) * bytes))
}

impl Refers {
    /// What an operation refers to.
    pub(super) fn of(operation: &Operation) -> Refers {
        let pages = |extents: &ExtentArg| match extents {
            ExtentArg::Inline(_) => None,
            ExtentArg::List(list) => list_of(*list, EXTENT_BYTES),
        };
        let list = match operation {
            Operation::Map(extents, _)
            | Operation::MapWritten(extents, _)
            | Operation::Protect(extents, _)
            | Operation::Unmap(extents)
            | Operation::UnmapTelling(extents, _)
            | Operation::Accessed(extents, _)
            | Operation::Copy(extents)
            | Operation::Fill(extents, _)
            | Operation::CountersClear(extents)
            | Operation::LinkReceive { extents, .. }
            | Operation::LinkSend { extents, .. } => pages(extents),
            Operation::Resume(faults) | Operation::Cancel(faults, _) => match faults {
                FaultArg::List(list) => list_of(*list, 8),
                FaultArg::One(_) | FaultArg::Range(_) => None,
            },
            // Whole words, as all of that memory is read and written.
            Operation::Kernel { address, bytes } => {
                Some((*address, u64::from(*bytes).next_multiple_of(8)))
            }
            Operation::Launch { args, .. } => list_of(*args, ARG_BYTES),
            Operation::Nop
            | Operation::Barrier
            | Operation::UnmapAll
            | Operation::Abort(_)
            | Operation::PeStatus(_)
            | Operation::LinkCancel { .. }
            | Operation::Allocate(_)
            | Operation::Locate { .. }
            | Operation::TakeOver { .. } => None,
        };
        let message = match operation {
            Operation::Launch { message, .. } => list_of(*message, 1),
            _ => None,
        };
        Refers { list, message }
    }
}

/// The command of an entry, if it is one.
pub(super) fn command_of(entry: &Entry) -> Option<CommandEntry> {
    CommandEntry::from_entry(entry).ok()
}

/// Whether a command, with its list, names nothing but frames of the card's own: there is nothing else
/// that a card elsewhere reaches.
pub(super) fn stays_on_card(operation: &Operation, list: &[u8]) -> bool {
    let extents = match operation {
        // A buffer for bits is memory of the driver's, which nobody would bring back to it.
        Operation::UnmapTelling(..) | Operation::Accessed(_, Some(_)) => return false,
        Operation::Map(extents, _)
        | Operation::MapWritten(extents, _)
        | Operation::Protect(extents, _)
        | Operation::Unmap(extents)
        | Operation::Accessed(extents, None)
        | Operation::Fill(extents, _)
        | Operation::CountersClear(extents) => extents,
        Operation::Copy(_)
        | Operation::LinkReceive { .. }
        | Operation::LinkSend { .. }
        | Operation::LinkCancel { .. } => return false,
        _ => return true,
    };
    // An end that an operation does not have is page 0 of the bus.
    let is_own = |end: DmaAddr| !matches!(end, DmaAddr::Bus(page) if page != 0);
    let stays = |extent: Extent| is_own(extent.src) && is_own(extent.dst);
    match extents {
        ExtentArg::Inline(extent) => stays(*extent),
        ExtentArg::List(_) => list.chunks_exact(EXTENT_BYTES as usize).all(|record| {
            let mut words = [0; 4];
            for (word, bytes) in words.iter_mut().zip(record.chunks_exact(8)) {
                let mut value = [0; 8];
                value.copy_from_slice(bytes);
                *word = u64::from_le_bytes(value);
            }
            Extent::from_words(words, 0).is_ok_and(stays)
        }),
    }
}
