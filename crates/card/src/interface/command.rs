//! Commands: what a driver asks of a card.

use std::ops::{Range, RangeInclusive};

use farside_types::{Asid, FaultId, JobId, PeId, Rights};

use super::{AllocRequest, DecodeError, Entry, Extent};

/// Flag: words 0 and 1 of the operands are the bus address and the length of a list.
pub const FLAG_LIST: u16 = 1 << 0;
/// Flag of [`Opcode::Resume`] and [`Opcode::Cancel`]: the operands are the first and the last id.
pub const FLAG_RANGE: u16 = 1 << 1;
/// Flag of every operation: if it ends well, its completion raises no interrupt by itself. The driver
/// finds it with the next one, or when it looks.
pub const FLAG_QUIET: u16 = 1 << 2;
/// Bit of operand 5 of [`Opcode::Map`]: the pages count as written from the beginning.
pub const MAP_WRITTEN: u64 = 1 << 0;
/// Bit of operand 2 of [`Opcode::Alloc`] and [`Opcode::Realloc`]: pages get their frames when they are
/// touched.
pub const ALLOC_LAZY: u64 = 1 << 0;
/// Bit of operand 2 of [`Opcode::Locate`]: pages that have no memory get some.
pub const LOCATE_TOUCH: u64 = 1 << 0;
/// Pages that [`Opcode::Locate`] may ask for at once.
pub const LOCATE_PAGES_MAX: u32 = 1 << 12;
/// `value` of a [`Opcode::Locate`] about pages that have no memory.
pub const LOCATE_NOWHERE: u64 = u64::MAX;
/// Bytes of a buffer for the bits of pages.
pub const BITS_BYTES_MAX: u32 = 1 << 23;
/// Bytes of a kernel's name.
pub const NAME_BYTES_MAX: u32 = 255;
/// Bytes of a launch's message buffer.
pub const MESSAGE_BYTES_MAX: u32 = 4096;

/// Codes of the operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
#[allow(missing_docs)]
pub enum Opcode {
    Nop = 0x01,
    Barrier = 0x02,
    Map = 0x10,
    Protect = 0x11,
    Unmap = 0x12,
    UnmapAll = 0x13,
    Accessed = 0x14,
    Resume = 0x20,
    Cancel = 0x21,
    Kernel = 0x30,
    Launch = 0x31,
    Abort = 0x32,
    PeStatus = 0x33,
    Copy = 0x40,
    Fill = 0x41,
    CountersClear = 0x50,
    LinkReceive = 0x60,
    LinkSend = 0x61,
    LinkCancel = 0x62,
    Alloc = 0x70,
    Realloc = 0x71,
    Free = 0x72,
    Locate = 0x73,
    TakeOver = 0x74,
}

impl Opcode {
    /// Every operation.
    pub const ALL: [Opcode; 24] = [
        Opcode::Nop,
        Opcode::Barrier,
        Opcode::Map,
        Opcode::Protect,
        Opcode::Unmap,
        Opcode::UnmapAll,
        Opcode::Accessed,
        Opcode::Resume,
        Opcode::Cancel,
        Opcode::Kernel,
        Opcode::Launch,
        Opcode::Abort,
        Opcode::PeStatus,
        Opcode::Copy,
        Opcode::Fill,
        Opcode::CountersClear,
        Opcode::LinkReceive,
        Opcode::LinkSend,
        Opcode::LinkCancel,
        Opcode::Alloc,
        Opcode::Realloc,
        Opcode::Free,
        Opcode::Locate,
        Opcode::TakeOver,
    ];

    /// The operation of a code.
    pub fn from_code(code: u16) -> Option<Opcode> {
        Opcode::ALL.into_iter().find(|&opcode| opcode as u16 == code)
    }
}

/// The pages of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentArg {
    /// In the entry itself.
    Inline(Extent),
    /// In memory.
    List(ExtentList),
}

/// A list in memory: it may be reused when the command has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtentList {
    /// Bus address, a multiple of 8.
    pub address: u64,
    /// Records in it: extents, ids or arguments.
    pub count: u32,
}

/// Where bits of pages go, for more pages than a completion has room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BitsBuffer {
    /// Bus address, a multiple of 8.
    pub address: u64,
    /// Bytes, a multiple of 8, at most [`BITS_BYTES_MAX`].
    pub bytes: u32,
}

/// The faults of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FaultArg {
    /// One.
    One(FaultId),
    /// All that are open, from the first to the last of these ids.
    Range(RangeInclusive<FaultId>),
    /// A list of ids in memory, eight bytes each.
    List(ExtentList),
}

/// What a command asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Nothing; it completes.
    Nop,
    /// Completes when every command before it has completed.
    Barrier,
    /// Insert translations to `dst`.
    Map(ExtentArg, Rights),
    /// [`Operation::Map`] of pages that count as written from the beginning: there is no other copy.
    MapWritten(ExtentArg, Rights),
    /// Lower rights, and drain those who may write.
    Protect(ExtentArg, Rights),
    /// Take translations away, and drain.
    Unmap(ExtentArg),
    /// [`Operation::Unmap`] that writes which pages were written to a buffer.
    UnmapTelling(ExtentArg, BitsBuffer),
    /// Read and clear the accessed bits of pages, into a buffer too where there is one.
    Accessed(ExtentArg, Option<BitsBuffer>),
    /// Take every translation of the address space away, and drain.
    UnmapAll,
    /// Replay the accesses that wait for these faults.
    Resume(FaultArg),
    /// End them with an error; the reason's code.
    Cancel(FaultArg, u32),
    /// Look a kernel up by its name, at a bus address; `value` of the completion is its id.
    Kernel {
        /// Bus address of the name.
        address: u64,
        /// Bytes of the name.
        bytes: u32,
    },
    /// Run a kernel; completes when it has ended.
    Launch {
        /// Names the job.
        job: JobId,
        /// Which kernel.
        kernel: u32,
        /// Where; `None`: on any, as soon as one is idle.
        pe: Option<PeId>,
        /// Its arguments, of [`super::ARG_BYTES`] each.
        args: ExtentList,
        /// Where the card may put a text that says what went wrong, and how many bytes.
        message: ExtentList,
    },
    /// End a job; completes when it touches memory no more.
    Abort(JobId),
    /// Tell what a processing element does: `value` is 0 idle, 1 running, 2 stalled in a fault;
    /// `detail` the job.
    PeStatus(PeId),
    /// Copy pages from `src` to `dst`.
    Copy(ExtentArg),
    /// Fill `dst` with a word.
    Fill(ExtentArg, u64),
    /// Set the access counters of these pages to zero.
    CountersClear(ExtentArg),
    /// Announce a transfer that comes over the link and goes to `dst`.
    LinkReceive {
        /// Where its pages go.
        extents: ExtentArg,
        /// Names the transfer on both cards.
        transfer: u32,
        /// The card it comes from; frames of others are foreign.
        from: u16,
    },
    /// Send pages from `src` over the link.
    LinkSend {
        /// Where its pages are.
        extents: ExtentArg,
        /// Names the transfer on both cards.
        transfer: u32,
        /// The card it goes to.
        to: u16,
    },
    /// Give an announced transfer up.
    LinkCancel {
        /// Which.
        transfer: u32,
        /// The card it would come from.
        from: u16,
    },
    /// Something of the allocator of the card's own window; `value` of the completion is the address.
    Allocate(AllocRequest),
    /// Where pages of the card's own window are in BAR2: as many as follow one another there. `value` of the
    /// completion is the first page, or [`LOCATE_NOWHERE`] of pages without memory; `pages` how many; `detail` what may
    /// be done with them, as a code of rights.
    Locate {
        /// Address of the first.
        address: u64,
        /// Of so many, at most [`LOCATE_PAGES_MAX`].
        pages: u32,
        /// Those without memory get some.
        touch: bool,
    },
    /// Whether a kernel has handed over the allocation that begins at an address. It is said once.
    TakeOver {
        /// Where it begins.
        address: u64,
        /// It has so many bytes, or more.
        bytes: u64,
    },
}

/// A command: words tag, opcode | flags << 16 | asid << 32, six operands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandEntry {
    /// Comes back in the completion.
    pub tag: u64,
    /// Address space, for those operations that have one; else 0.
    pub asid: Asid,
    /// What to do.
    pub operation: Operation,
}

/// First word of the operands in an entry.
const OPERANDS: u8 = 2;

/// Opcode, flags and operands of an operation.
type Encoded = (Opcode, u16, [u64; 6]);

fn with_extents(opcode: Opcode, extents: ExtentArg, a4: u64, a5: u64) -> Encoded {
    match extents {
        ExtentArg::Inline(extent) => {
            let [page, count, src, dst] = extent.to_words();
            (opcode, 0, [page, count, src, dst, a4, a5])
        }
        ExtentArg::List(list) => {
            (opcode, FLAG_LIST, [list.address, list.count.into(), 0, 0, a4, a5])
        }
    }
}

fn with_faults(opcode: Opcode, faults: &FaultArg, a4: u64) -> Encoded {
    let (flags, first, second) = match faults {
        FaultArg::One(id) => (0, id.0, 0),
        FaultArg::Range(ids) => (FLAG_RANGE, ids.start().0, ids.end().0),
        FaultArg::List(list) => (FLAG_LIST, list.address, list.count.into()),
    };
    (opcode, flags, [first, second, 0, 0, a4, 0])
}

/// The code of rights in commands and completions.
pub const fn rights_code(rights: Rights) -> u64 {
    match rights {
        Rights::Read => 1,
        Rights::ReadWrite => 3,
    }
}

/// The rights of a code.
pub const fn rights_from_code(code: u64) -> Option<Rights> {
    match code {
        1 => Some(Rights::Read),
        3 => Some(Rights::ReadWrite),
        _ => None,
    }
}

impl Operation {
    fn encode(&self) -> Encoded {
        let bare = |opcode| (opcode, 0, [0; 6]);
        match *self {
            Operation::Nop => bare(Opcode::Nop),
            Operation::Barrier => bare(Opcode::Barrier),
            Operation::Map(pages, rights) => {
                with_extents(Opcode::Map, pages, rights_code(rights), 0)
            }
            Operation::Protect(pages, rights) => {
                with_extents(Opcode::Protect, pages, rights_code(rights), 0)
            }
            Operation::MapWritten(pages, rights) => {
                with_extents(Opcode::Map, pages, rights_code(rights), MAP_WRITTEN)
            }
            Operation::Unmap(pages) => with_extents(Opcode::Unmap, pages, 0, 0),
            Operation::UnmapTelling(pages, buffer) => {
                with_extents(Opcode::Unmap, pages, buffer.address, buffer.bytes.into())
            }
            Operation::Accessed(pages, buffer) => {
                let buffer = buffer.unwrap_or(BitsBuffer { address: 0, bytes: 0 });
                with_extents(Opcode::Accessed, pages, buffer.address, buffer.bytes.into())
            }
            Operation::UnmapAll => bare(Opcode::UnmapAll),
            Operation::Resume(ref faults) => with_faults(Opcode::Resume, faults, 0),
            Operation::Cancel(ref faults, reason) => {
                with_faults(Opcode::Cancel, faults, reason.into())
            }
            Operation::Kernel { address, bytes } => {
                (Opcode::Kernel, 0, [address, bytes.into(), 0, 0, 0, 0])
            }
            Operation::Launch { job, kernel, pe, args, message } => {
                let pe = pe.map_or(0, |pe| u64::from(pe.0) + 1);
                let place = u64::from(kernel) | pe << 32;
                let counts = u64::from(args.count) | u64::from(message.count) << 32;
                (Opcode::Launch, 0, [job.0, place, args.address, counts, message.address, 0])
            }
            Operation::Abort(job) => (Opcode::Abort, 0, [job.0, 0, 0, 0, 0, 0]),
            Operation::PeStatus(pe) => (Opcode::PeStatus, 0, [pe.0.into(), 0, 0, 0, 0, 0]),
            Operation::Copy(pages) => with_extents(Opcode::Copy, pages, 0, 0),
            Operation::Fill(pages, pattern) => with_extents(Opcode::Fill, pages, pattern, 0),
            Operation::CountersClear(pages) => with_extents(Opcode::CountersClear, pages, 0, 0),
            Operation::LinkReceive { extents, transfer, from } => {
                with_extents(Opcode::LinkReceive, extents, transfer.into(), from.into())
            }
            Operation::LinkSend { extents, transfer, to } => {
                with_extents(Opcode::LinkSend, extents, transfer.into(), to.into())
            }
            Operation::LinkCancel { transfer, from } => {
                (Opcode::LinkCancel, 0, [0, 0, 0, 0, transfer.into(), from.into()])
            }
            Operation::Allocate(AllocRequest::Malloc { bytes, memory, rights, lazy }) => {
                let rights = rights_code(rights);
                (Opcode::Alloc, 0, [bytes, memory.into(), lazy.into(), 0, rights, 0])
            }
            Operation::Allocate(AllocRequest::Realloc { address, bytes, lazy }) => {
                (Opcode::Realloc, 0, [address, bytes, lazy.into(), 0, 0, 0])
            }
            Operation::Allocate(AllocRequest::Free { address }) => {
                (Opcode::Free, 0, [address, 0, 0, 0, 0, 0])
            }
            Operation::Locate { address, pages, touch } => {
                (Opcode::Locate, 0, [address, pages.into(), touch.into(), 0, 0, 0])
            }
            Operation::TakeOver { address, bytes } => {
                (Opcode::TakeOver, 0, [address, bytes, 0, 0, 0, 0])
            }
        }
    }
}

/// The operands of an entry, while they are understood.
struct Operands {
    words: [u64; 6],
    flags: u16,
}

impl Operands {
    fn wrong(&self, index: usize) -> DecodeError {
        DecodeError::Word { word: OPERANDS + index as u8, value: self.words[index] }
    }

    fn narrow<T: TryFrom<u64>>(&self, index: usize) -> Result<T, DecodeError> {
        T::try_from(self.words[index]).map_err(|_| self.wrong(index))
    }

    /// These words must be 0.
    fn zero(&self, mut words: Range<usize>) -> Result<(), DecodeError> {
        match words.find(|&index| self.words[index] != 0) {
            Some(index) => Err(self.wrong(index)),
            None => Ok(()),
        }
    }

    /// The words from `first` on must be 0.
    fn end(&self, first: usize) -> Result<(), DecodeError> {
        self.zero(first..6)
    }

    fn allow(&self, flags: u16) -> Result<(), DecodeError> {
        if self.flags & !flags != 0 || self.flags.count_ones() > 1 {
            return Err(DecodeError::Flags(self.flags));
        }
        Ok(())
    }

    fn list(&self) -> Result<ExtentList, DecodeError> {
        let address = self.words[0];
        if address % 8 != 0 {
            return Err(self.wrong(0));
        }
        let count = self.narrow(1)?;
        if count == 0 || u64::from(count) > super::EXTENTS_MAX {
            return Err(self.wrong(1));
        }
        Ok(ExtentList { address, count })
    }

    fn extents(&self) -> Result<ExtentArg, DecodeError> {
        self.allow(FLAG_LIST)?;
        if self.flags & FLAG_LIST != 0 {
            self.zero(2..4)?;
            return Ok(ExtentArg::List(self.list()?));
        }
        let [a, b, c, d, ..] = self.words;
        Ok(ExtentArg::Inline(Extent::from_words([a, b, c, d], OPERANDS)?))
    }

    fn faults(&self) -> Result<FaultArg, DecodeError> {
        self.allow(FLAG_LIST | FLAG_RANGE)?;
        self.zero(2..4)?;
        self.end(5)?;
        Ok(match self.flags {
            0 => {
                self.zero(1..2)?;
                FaultArg::One(FaultId(self.words[0]))
            }
            FLAG_RANGE => FaultArg::Range(FaultId(self.words[0])..=FaultId(self.words[1])),
            _ => FaultArg::List(self.list()?),
        })
    }

    fn rights(&self) -> Result<Rights, DecodeError> {
        rights_from_code(self.words[4]).ok_or(self.wrong(4))
    }

    /// The buffer of the last two words; none where both are 0.
    fn buffer(&self) -> Result<Option<BitsBuffer>, DecodeError> {
        let [.., address, bytes] = self.words;
        if address == 0 && bytes == 0 {
            return Ok(None);
        }
        if address % 8 != 0 {
            return Err(self.wrong(4));
        }
        let bytes: u32 = self.narrow(5)?;
        if bytes == 0 || bytes % 8 != 0 || bytes > BITS_BYTES_MAX {
            return Err(self.wrong(5));
        }
        Ok(Some(BitsBuffer { address, bytes }))
    }

    fn map(&self) -> Result<Operation, DecodeError> {
        let (extents, rights) = (self.extents()?, self.rights()?);
        match self.words[5] {
            0 => Ok(Operation::Map(extents, rights)),
            MAP_WRITTEN => Ok(Operation::MapWritten(extents, rights)),
            _ => Err(self.wrong(5)),
        }
    }

    /// A bit that is all of operand 2.
    fn only_bit(&self, bit: u64) -> Result<bool, DecodeError> {
        match self.words[2] {
            0 => Ok(false),
            word if word == bit => Ok(true),
            _ => Err(self.wrong(2)),
        }
    }

    fn lazy(&self) -> Result<bool, DecodeError> {
        self.only_bit(ALLOC_LAZY)
    }

    fn locate(&self) -> Result<Operation, DecodeError> {
        self.allow(0)?;
        let (pages, touch) = (self.narrow(1)?, self.only_bit(LOCATE_TOUCH)?);
        self.end(3)?;
        if !(1..=LOCATE_PAGES_MAX).contains(&pages) {
            return Err(self.wrong(1));
        }
        Ok(Operation::Locate { address: self.words[0], pages, touch })
    }

    fn take_over(&self) -> Result<Operation, DecodeError> {
        self.allow(0)?;
        self.end(2)?;
        let [address, bytes, ..] = self.words;
        if bytes == 0 { Err(self.wrong(1)) } else { Ok(Operation::TakeOver { address, bytes }) }
    }

    fn alloc(&self) -> Result<AllocRequest, DecodeError> {
        self.allow(0)?;
        let (bytes, memory, lazy) = (self.words[0], self.narrow(1)?, self.lazy()?);
        self.zero(3..4)?;
        let rights = self.rights()?;
        self.end(5)?;
        Ok(AllocRequest::Malloc { bytes, memory, rights, lazy })
    }

    fn realloc(&self) -> Result<AllocRequest, DecodeError> {
        self.allow(0)?;
        let [address, bytes, ..] = self.words;
        let lazy = self.lazy()?;
        self.end(3)?;
        Ok(AllocRequest::Realloc { address, bytes, lazy })
    }

    fn free(&self) -> Result<AllocRequest, DecodeError> {
        self.allow(0)?;
        self.end(1)?;
        Ok(AllocRequest::Free { address: self.words[0] })
    }

    fn launch(&self) -> Result<Operation, DecodeError> {
        self.allow(0)?;
        self.end(5)?;
        let [job, place, args, counts, message, _] = self.words;
        let pe = match place >> 32 {
            0 => None,
            n => Some(PeId(u16::try_from(n - 1).map_err(|_| self.wrong(1))?)),
        };
        let args = ExtentList { address: args, count: counts as u32 };
        let message = ExtentList { address: message, count: (counts >> 32) as u32 };
        if args.count > super::ARGS_MAX || message.count > MESSAGE_BYTES_MAX {
            return Err(self.wrong(3));
        }
        if args.address % 8 != 0 {
            return Err(self.wrong(2));
        }
        Ok(Operation::Launch { job: JobId(job), kernel: place as u32, pe, args, message })
    }

    fn operation(&self, opcode: Opcode) -> Result<Operation, DecodeError> {
        let bare = |operation| self.allow(0).and_then(|()| self.end(0)).map(|()| operation);
        let only_extents = || self.end(4).and_then(|()| self.extents());
        Ok(match opcode {
            Opcode::Nop => bare(Operation::Nop)?,
            Opcode::Barrier => bare(Operation::Barrier)?,
            Opcode::UnmapAll => bare(Operation::UnmapAll)?,
            Opcode::Map => self.map()?,
            Opcode::Alloc => Operation::Allocate(self.alloc()?),
            Opcode::Realloc => Operation::Allocate(self.realloc()?),
            Opcode::Free => Operation::Allocate(self.free()?),
            Opcode::Locate => self.locate()?,
            Opcode::TakeOver => self.take_over()?,
            Opcode::Protect => {
                self.end(5)?;
                Operation::Protect(self.extents()?, self.rights()?)
            }
            Opcode::Unmap => match self.buffer()? {
                None => Operation::Unmap(self.extents()?),
                Some(buffer) => Operation::UnmapTelling(self.extents()?, buffer),
            },
            Opcode::Accessed => Operation::Accessed(self.extents()?, self.buffer()?),
            Opcode::Copy => Operation::Copy(only_extents()?),
            Opcode::CountersClear => Operation::CountersClear(only_extents()?),
            Opcode::Fill => {
                self.end(5)?;
                Operation::Fill(self.extents()?, self.words[4])
            }
            Opcode::Resume => {
                self.end(4)?;
                Operation::Resume(self.faults()?)
            }
            Opcode::Cancel => Operation::Cancel(self.faults()?, self.narrow(4)?),
            Opcode::Kernel => {
                self.allow(0)?;
                self.end(2)?;
                let bytes: u32 = self.narrow(1)?;
                if bytes == 0 || bytes > NAME_BYTES_MAX {
                    return Err(self.wrong(1));
                }
                Operation::Kernel { address: self.words[0], bytes }
            }
            Opcode::Launch => self.launch()?,
            Opcode::Abort => {
                self.allow(0)?;
                self.end(1)?;
                Operation::Abort(JobId(self.words[0]))
            }
            Opcode::PeStatus => {
                self.allow(0)?;
                self.end(1)?;
                Operation::PeStatus(PeId(self.narrow(0)?))
            }
            Opcode::LinkReceive => {
                let (transfer, from) = (self.narrow(4)?, self.narrow(5)?);
                Operation::LinkReceive { extents: self.extents()?, transfer, from }
            }
            Opcode::LinkSend => {
                let (transfer, to) = (self.narrow(4)?, self.narrow(5)?);
                Operation::LinkSend { extents: self.extents()?, transfer, to }
            }
            Opcode::LinkCancel => {
                self.allow(0)?;
                self.zero(0..4)?;
                Operation::LinkCancel { transfer: self.narrow(4)?, from: self.narrow(5)? }
            }
        })
    }
}

impl CommandEntry {
    /// Whether an entry asks for a completion without an interrupt.
    pub fn is_quiet(entry: &Entry) -> bool {
        (entry[1] >> 16) as u16 & FLAG_QUIET != 0
    }

    /// The entry, asking for a completion without an interrupt.
    pub fn to_quiet_entry(&self) -> Entry {
        let mut entry = self.to_entry();
        entry[1] |= u64::from(FLAG_QUIET) << 16;
        entry
    }

    /// The entry.
    pub fn to_entry(&self) -> Entry {
        let (opcode, flags, operands) = self.operation.encode();
        let head = opcode as u64 | u64::from(flags) << 16 | u64::from(self.asid.0) << 32;
        let [a, b, c, d, e, f] = operands;
        [self.tag, head, a, b, c, d, e, f]
    }

    /// The command of an entry.
    ///
    /// # Errors
    /// [`DecodeError`] says what is wrong; the tag is word 0 of the entry in any case.
    pub fn from_entry(entry: &Entry) -> Result<CommandEntry, DecodeError> {
        let [tag, head, words @ ..] = *entry;
        let code = head as u16;
        let opcode = Opcode::from_code(code).ok_or(DecodeError::Opcode(code))?;
        let flags = (head >> 16) as u16 & !FLAG_QUIET;
        if head >> 48 != 0 {
            return Err(DecodeError::Word { word: 1, value: head });
        }
        let operation = Operands { words, flags }.operation(opcode)?;
        Ok(CommandEntry { tag, asid: Asid((head >> 32) as u16), operation })
    }
}
