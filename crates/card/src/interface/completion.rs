//! Completions: what came of a command.

use super::{DecodeError, Entry};

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// No such operation.
    UnknownOpcode = 1,
    /// A word or a flag has a value that is not allowed; `detail` is the word's number.
    BadOperand = 2,
    /// No such address-space id.
    BadAsid = 3,
    /// A frame is beyond the function's memory; `detail` is the frame.
    ForeignFrame = 4,
    /// A bus address could not be reached; `detail` is the address.
    BadAddress = 5,
    /// A copy failed after `pages` pages.
    CopyFailed = 6,
    /// No such kernel.
    NoSuchKernel = 7,
    /// No such processing element, or it is busy; `detail` is its number.
    NoPe = 8,
    /// No such job.
    NoSuchJob = 9,
    /// The job was aborted, or the command was given up by a reset.
    Aborted = 10,
    /// The kernel ended with an error of its own; the message says which.
    KernelFailed = 11,
    /// The kernel panicked.
    KernelPanicked = 12,
    /// A fault of the kernel was cancelled: `value` is the reason, `detail` the page.
    KernelFault = 13,
    /// The kernel went to an address that its launch was not given: `detail`; `value` is 1 for a
    /// write.
    WildAddress = 14,
    /// The kernel asked for something that cannot be; the message says what.
    BadRequest = 15,
    /// Too much of its kind is under way: try again when something has completed.
    Busy = 16,
    /// The link did not deliver in time; `pages` have arrived.
    LinkTimedOut = 17,
    /// Frames of the link were lost, repeated, damaged or foreign; `pages` have arrived whole.
    LinkBroken = 18,
    /// The function cannot do this: see its capability bits.
    Unsupported = 19,
    /// The job was aborted and did not stop: its processing element was given up. `value` is 1 if
    /// it holds memory: drains of that memory complete only when it lets go, or by a reset.
    Hung = 20,
    /// No place in the card's own window is long enough.
    NoSpace = 21,
    /// The memory has too few free frames.
    NoFrames = 22,
    /// No allocation of the window has the address.
    NotAllocated = 23,
    /// The address lies inside an allocation, and does not begin it.
    InsideAllocation = 24,
    /// The card could not reach the tables of its window.
    TablesFailed = 25,
}

impl Status {
    const ALL: [Status; 26] = [
        Status::Ok,
        Status::UnknownOpcode,
        Status::BadOperand,
        Status::BadAsid,
        Status::ForeignFrame,
        Status::BadAddress,
        Status::CopyFailed,
        Status::NoSuchKernel,
        Status::NoPe,
        Status::NoSuchJob,
        Status::Aborted,
        Status::KernelFailed,
        Status::KernelPanicked,
        Status::KernelFault,
        Status::WildAddress,
        Status::BadRequest,
        Status::Busy,
        Status::LinkTimedOut,
        Status::LinkBroken,
        Status::Unsupported,
        Status::Hung,
        Status::NoSpace,
        Status::NoFrames,
        Status::NotAllocated,
        Status::InsideAllocation,
        Status::TablesFailed,
    ];
}

/// A completion: words tag, status | message bytes << 32, value, pages, detail, bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompletionEntry {
    /// The command's tag.
    pub tag: u64,
    /// How it ended.
    pub status: Status,
    /// Bytes of text that were written to the launch's message buffer.
    pub message_bytes: u32,
    /// What the operation gives.
    pub value: u64,
    /// Pages that were done.
    pub pages: u64,
    /// What was wrong.
    pub detail: u64,
    /// Of [`super::Opcode::Unmap`] and [`super::Opcode::Accessed`] that ended well: a bit for each of
    /// the first pages, as far as `value` says.
    pub bits: [u64; 3],
}

/// Pages whose bits are in a completion.
pub const BITS_PAGES: u64 = 192;

impl CompletionEntry {
    /// A command that ended well, or not, with nothing more to say.
    pub const fn plain(tag: u64, status: Status) -> CompletionEntry {
        CompletionEntry {
            tag,
            status,
            message_bytes: 0,
            value: 0,
            pages: 0,
            detail: 0,
            bits: [0; 3],
        }
    }

    /// The entry.
    pub const fn to_entry(self) -> Entry {
        let head = self.status as u64 | (self.message_bytes as u64) << 32;
        let [a, b, c] = self.bits;
        [self.tag, head, self.value, self.pages, self.detail, a, b, c]
    }

    /// The completion of an entry.
    ///
    /// # Errors
    /// [`DecodeError::Word`] for a status that is not defined.
    pub fn from_entry(entry: &Entry) -> Result<CompletionEntry, DecodeError> {
        let head = entry[1];
        let code = usize::try_from(head & 0xffff_ffff).unwrap_or(usize::MAX);
        let status = *Status::ALL.get(code).ok_or(DecodeError::Word { word: 1, value: head })?;
        Ok(CompletionEntry {
            tag: entry[0],
            status,
            message_bytes: (head >> 32) as u32,
            value: entry[2],
            pages: entry[3],
            detail: entry[4],
            bits: [entry[5], entry[6], entry[7]],
        })
    }
}
