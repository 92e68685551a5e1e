//! A small driver, as the specification describes it, for the checks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use farside_types::{Asid, FaultId, JobId, PageNo, PageRange, PeId, Rights};

use super::Target;
use farside_card::interface::{
    ARG_BYTES, ArgKind, CommandEntry, CompletionEntry, DmaAddr, Entry, Extent, ExtentArg,
    ExtentList, FaultArg, FaultHead, FaultRecord, FaultWants, KernelArg, NoticeRecord, Operation,
    RingHeader, RingKind, Status, entry_address, entry_from_bytes, entry_to_bytes, register,
    ring_bytes,
};

/// Pauses after which something that must not come counts as absent.
const PAUSES_QUIET: u32 = 30;

/// The address-space id of commands that have none.
pub(super) const NO_ASID: Asid = Asid(0);
/// No list.
pub(super) const NO_LIST: ExtentList = ExtentList { address: 0, count: 0 };
/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

/// Fails with a text unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(format!($($text)*));
        }
    };
}
pub(super) use ensure;

/// Fails unless two values are the same.
pub(super) fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    found: T,
    expected: T,
) -> Result<(), String> {
    ensure!(found == expected, "{what} is {found:x?} and must be {expected:x?}");
    Ok(())
}

/// A fault with all its records.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) head: FaultHead,
    pub(super) ranges: Vec<(PageRange, farside_types::Access)>,
}

impl Fault {
    pub(super) fn id(&self) -> FaultId {
        self.head.id
    }

    /// Every page of it.
    pub(super) fn pages(&self) -> impl Iterator<Item = PageNo> + '_ {
        self.ranges.iter().flat_map(|(range, _)| range.pages())
    }
}

#[derive(Clone, Copy, Debug)]
struct Ring {
    base: u64,
    entries: u32,
    index: u32,
}

/// A driver of the function under test.
pub(super) struct Client<'a> {
    pub(super) target: &'a mut dyn Target,
    rings: [Ring; 4],
    next_tag: u64,
    outstanding: BTreeSet<u64>,
    done: BTreeMap<u64, CompletionEntry>,
    order: Vec<u64>,
    pub(super) faults: VecDeque<Fault>,
    partial: Option<(Fault, u32)>,
    pub(super) notices: Vec<NoticeRecord>,
    keeps_notices: bool,
}

/// Resets a function and waits until it is as new.
pub(super) fn reset(target: &mut dyn Target) -> Result<(), String> {
    target.write32(register::CONTROL, register::CONTROL_RESET);
    for _ in 0..target.patience() {
        if target.read32(register::STATUS) & register::STATUS_RESETTING == 0 {
            target.release();
            return Ok(());
        }
        target.pause();
    }
    Err("the reset does not end".into())
}

impl<'a> Client<'a> {
    /// Resets the function and enables rings of a size for most checks.
    pub(super) fn open(target: &'a mut dyn Target) -> Result<Client<'a>, String> {
        Client::with_rings(target, [64, 64, 512, 64], 0)
    }

    /// Resets the function and enables rings of these sizes, whose indices begin at `index`.
    pub(super) fn with_rings(
        target: &'a mut dyn Target,
        entries: [u32; 4],
        index: u32,
    ) -> Result<Client<'a>, String> {
        let mut client = Client::disabled(target, entries, index)?;
        client.enable()?;
        Ok(client)
    }

    /// [`Client::with_rings`], not enabled yet.
    pub(super) fn disabled(
        target: &'a mut dyn Target,
        entries: [u32; 4],
        index: u32,
    ) -> Result<Client<'a>, String> {
        reset(target)?;
        let rings = entries.map(|entries| {
            let base = target.allocate(ring_bytes(entries) as usize);
            for word in [RingHeader::PRODUCER, RingHeader::CONSUMER] {
                target.store(base + word, index);
            }
            Ring { base, entries, index }
        });
        for kind in RingKind::ALL {
            let (at, ring) = (register::ring(kind), rings[kind.index()]);
            target.write64(at + register::RING_BASE, ring.base);
            target.write32(at + register::RING_ENTRIES, ring.entries);
            target.write32(at + register::RING_VECTOR, vector(kind).into());
        }
        Ok(Client {
            target,
            rings,
            next_tag: 0x1000,
            outstanding: BTreeSet::new(),
            done: BTreeMap::new(),
            order: Vec::new(),
            faults: VecDeque::new(),
            partial: None,
            notices: Vec::new(),
            keeps_notices: false,
        })
    }

    pub(super) fn enable(&mut self) -> Result<(), String> {
        self.target.write32(register::CONTROL, register::CONTROL_ENABLE);
        let status = self.target.read32(register::STATUS);
        let errors = self.target.read64(register::ERRORS);
        let enabled = status & register::STATUS_ENABLED != 0;
        ensure!(enabled, "enabling rings gives status {status:#x} and errors {errors:#x}");
        Ok(())
    }

    // Registers.

    pub(super) fn read32(&mut self, offset: u64) -> u32 {
        self.target.read32(offset)
    }

    pub(super) fn errors(&mut self) -> u64 {
        self.target.read64(register::ERRORS)
    }

    /// Clears every error, which must be these.
    pub(super) fn expect_errors(&mut self, errors: u64) -> Result<(), String> {
        let found = self.errors();
        self.target.write64(register::ERRORS, found);
        same("ERRORS", found, errors)
    }

    pub(super) fn counter(&mut self, name: &str) -> u64 {
        let index = register::COUNTER_NAMES.iter().position(|&known| known == name);
        self.target.read64(register::counter(index.unwrap_or(usize::MAX >> 8)))
    }

    pub(super) fn can(&mut self, capability: u64) -> bool {
        self.target.read64(register::CAPABILITIES) & capability != 0
    }

    pub(super) fn frames(&mut self) -> u32 {
        self.read32(register::FRAMES)
    }

    // Rings.

    pub(super) fn header(&self, kind: RingKind, word: u64) -> u64 {
        self.rings[kind.index()].base + word
    }

    pub(super) fn index_of(&mut self, kind: RingKind, word: u64) -> u32 {
        let address = self.header(kind, word);
        self.target.load(address)
    }

    /// Writes an entry and shows it to the card, as soon as there is room; rings the doorbell only
    /// if the card sleeps.
    pub(super) fn push(&mut self, entry: &Entry) -> Result<(), String> {
        self.until("room in the command ring", |client| {
            client.poll()?;
            Ok(client.room_for_commands() > 0)
        })?;
        self.push_quietly(entry);
        self.target.fence();
        if self.index_of(RingKind::Command, RingHeader::CONSUMER_SLEEPS) == 1 {
            self.doorbell();
        }
        Ok(())
    }

    pub(super) fn room_for_commands(&mut self) -> u32 {
        let consumer = self.index_of(RingKind::Command, RingHeader::CONSUMER);
        let ring = self.rings[RingKind::Command.index()];
        ring.entries - ring.index.wrapping_sub(consumer)
    }

    /// Writes an entry, for which there is room, and shows it to the card without a doorbell.
    pub(super) fn push_quietly(&mut self, entry: &Entry) {
        let ring = &mut self.rings[RingKind::Command.index()];
        let at = entry_address(ring.base, ring.entries, ring.index);
        ring.index = ring.index.wrapping_add(1);
        let (base, index) = (ring.base, ring.index);
        self.target.write(at, &entry_to_bytes(entry));
        self.outstanding.insert(entry[0]);
        self.target.store(base + RingHeader::PRODUCER, index);
    }

    pub(super) fn doorbell(&mut self) {
        self.target.write32(register::DOORBELL, 1);
    }

    pub(super) fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    /// Gives a command. Returns its tag.
    pub(super) fn submit(&mut self, asid: Asid, operation: Operation) -> Result<u64, String> {
        let tag = self.tag();
        self.push(&CommandEntry { tag, asid, operation }.to_entry())?;
        Ok(tag)
    }

    /// Entries of a ring that the card has written and the driver has not consumed.
    pub(super) fn fresh(&mut self, kind: RingKind) -> Vec<Entry> {
        let producer = self.index_of(kind, RingHeader::PRODUCER);
        let mut ring = self.rings[kind.index()];
        let mut entries = Vec::new();
        while ring.index != producer && entries.len() <= ring.entries as usize {
            let mut bytes = [0; 64];
            self.target.read(entry_address(ring.base, ring.entries, ring.index), &mut bytes);
            entries.push(entry_from_bytes(&bytes));
            ring.index = ring.index.wrapping_add(1);
        }
        entries
    }

    /// Consumes entries; rings the doorbell only if the card waits for room.
    pub(super) fn consume(&mut self, kind: RingKind, count: u32) {
        if count == 0 {
            return;
        }
        let ring = &mut self.rings[kind.index()];
        ring.index = ring.index.wrapping_add(count);
        let (base, index) = (ring.base, ring.index);
        self.target.store(base + RingHeader::CONSUMER, index);
        self.target.fence();
        if self.target.load(base + RingHeader::PRODUCER_WAITS) == 1 {
            self.doorbell();
        }
    }

    /// Whether notices stay in their ring.
    pub(super) fn keep_notices(&mut self, keeps: bool) {
        self.keeps_notices = keeps;
    }

    fn take(&mut self, kind: RingKind) -> Result<Vec<Entry>, String> {
        let entries = self.fresh(kind);
        let most = self.rings[kind.index()].entries as usize;
        ensure!(entries.len() <= most, "the {} ring holds more than its entries", kind.name());
        self.consume(kind, entries.len() as u32);
        Ok(entries)
    }

    /// Takes everything that the card has written.
    pub(super) fn poll(&mut self) -> Result<(), String> {
        for entry in self.take(RingKind::Completion)? {
            let completion = CompletionEntry::from_entry(&entry)
                .map_err(|error| format!("a completion cannot be: {error}"))?;
            let tag = completion.tag;
            let known = self.outstanding.remove(&tag);
            ensure!(known, "a completion for tag {tag:#x}, of which there is no command");
            self.done.insert(tag, completion);
            self.order.push(tag);
        }
        for entry in self.take(RingKind::Fault)? {
            let record = FaultRecord::from_entry(&entry)
                .map_err(|error| format!("a fault record cannot be: {error}"))?;
            self.gather(record)?;
        }
        if self.keeps_notices {
            return Ok(());
        }
        for entry in self.take(RingKind::Notice)? {
            let notice = NoticeRecord::from_entry(&entry)
                .map_err(|error| format!("a notice cannot be: {error}"))?;
            self.notices.push(notice);
        }
        Ok(())
    }

    pub(super) fn gather(&mut self, record: FaultRecord) -> Result<(), String> {
        match (record, self.partial.take()) {
            (FaultRecord::Head(head), None) => match head.wants {
                FaultWants::Page(page, access) => {
                    let ranges = vec![(PageRange::page(page), access)];
                    self.faults.push_back(Fault { head, ranges });
                }
                FaultWants::Group { ranges } => {
                    self.partial = Some((Fault { head, ranges: Vec::new() }, ranges));
                }
            },
            (FaultRecord::Ranges(id, some), Some((mut fault, expected))) => {
                same("the id of a range record", id, fault.head.id)?;
                fault.ranges.extend(some.into_iter().flatten());
                if fault.ranges.len() as u32 >= expected {
                    same("the ranges of a group", fault.ranges.len() as u32, expected)?;
                    self.faults.push_back(fault);
                } else {
                    self.partial = Some((fault, expected));
                }
            }
            (record, open) => {
                return Err(format!("{record:?} does not continue {open:?}"));
            }
        }
        Ok(())
    }

    // Waiting.

    /// Pauses until something holds.
    pub(super) fn until(
        &mut self,
        what: &str,
        mut holds: impl FnMut(&mut Client) -> Result<bool, String>,
    ) -> Result<(), String> {
        for _ in 0..self.target.patience() {
            if holds(self)? {
                return Ok(());
            }
            self.target.pause();
        }
        Err(format!("waited in vain for {what}"))
    }

    /// Pauses until what is found is what it must be: a card may take its time.
    pub(super) fn comes_to<T: PartialEq + std::fmt::Debug>(
        &mut self,
        what: &str,
        mut find: impl FnMut(&mut Client) -> Result<T, String>,
        expected: T,
    ) -> Result<(), String> {
        let mut found = find(self)?;
        for _ in 0..self.target.patience() {
            if found == expected {
                break;
            }
            self.target.pause();
            found = find(self)?;
        }
        same(what, found, expected)
    }

    /// Lets the card do whatever it still would. It shows that something does not come, never that it has come.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        for _ in 0..PAUSES_QUIET {
            self.target.pause();
            self.poll()?;
        }
        Ok(())
    }

    /// Waits for a command's completion.
    pub(super) fn wait_for(&mut self, tag: u64) -> Result<CompletionEntry, String> {
        let what = format!("the completion of tag {tag:#x}");
        self.until(&what, |client| {
            client.poll()?;
            Ok(client.done.contains_key(&tag))
        })?;
        self.done.remove(&tag).ok_or(what)
    }

    /// Whether a command has completed by now.
    pub(super) fn has_completed(&mut self, tag: u64) -> Result<bool, String> {
        self.poll()?;
        Ok(self.done.contains_key(&tag))
    }

    /// Position of a command among the completions.
    pub(super) fn position(&self, tag: u64) -> Option<usize> {
        self.order.iter().position(|&known| known == tag)
    }

    /// A fault, when there is one.
    pub(super) fn wait_fault(&mut self) -> Result<Fault, String> {
        self.until("a fault", |client| {
            client.poll()?;
            Ok(!client.faults.is_empty())
        })?;
        self.faults.pop_front().ok_or_else(|| "a fault".into())
    }

    /// A command, carried out.
    pub(super) fn run(
        &mut self,
        asid: Asid,
        operation: Operation,
    ) -> Result<CompletionEntry, String> {
        let tag = self.submit(asid, operation)?;
        self.wait_for(tag)
    }

    /// A command that must end like this.
    pub(super) fn expect(
        &mut self,
        asid: Asid,
        operation: Operation,
        status: Status,
    ) -> Result<CompletionEntry, String> {
        let text = format!("{operation:?}");
        let completion = self.run(asid, operation)?;
        ensure!(completion.status == status, "{text} gives {completion:x?} instead of {status:?}");
        Ok(completion)
    }

    /// A command that must end well.
    pub(super) fn ok(
        &mut self,
        asid: Asid,
        operation: Operation,
    ) -> Result<CompletionEntry, String> {
        self.expect(asid, operation, Status::Ok)
    }

    /// Waits for a command that must end well.
    pub(super) fn wait_ok(&mut self, tag: u64) -> Result<CompletionEntry, String> {
        let completion = self.wait_for(tag)?;
        ensure!(completion.status == Status::Ok, "a command gives {completion:x?} instead of Ok");
        Ok(completion)
    }

    /// The end of a check in which the driver made no mistake.
    pub(super) fn finish(mut self) -> super::Outcome {
        self.settle()?;
        same("commands without a completion", self.outstanding.len(), 0)?;
        same("ERRORS at the end", self.errors(), 0)?;
        Ok(super::Verdict::Passed)
    }

    // Memory and jobs.

    /// A kernel's id, if the card has it.
    pub(super) fn kernel(&mut self, name: &str) -> Result<Option<u32>, String> {
        let address = self.target.allocate(name.len());
        self.target.write(address, name.as_bytes());
        let bytes = name.len() as u32;
        let completion = self.run(NO_ASID, Operation::Kernel { address, bytes })?;
        match completion.status {
            Status::Ok => Ok(Some(completion.value as u32)),
            Status::NoSuchKernel => Ok(None),
            _ => Err(format!("looking {name} up gives {completion:x?}")),
        }
    }

    /// Launches a kernel on any processing element.
    pub(super) fn launch(
        &mut self,
        asid: Asid,
        job: u64,
        kernel: u32,
        args: &[KernelArg],
    ) -> Result<u64, String> {
        let args = self.args(args);
        let job = JobId(job);
        let message = NO_LIST;
        self.submit(asid, Operation::Launch { job, kernel, pe: None, args, message })
    }

    /// Records of arguments in memory.
    pub(super) fn args(&mut self, args: &[KernelArg]) -> ExtentList {
        if args.is_empty() {
            return NO_LIST;
        }
        let address = self.target.allocate(args.len() * ARG_BYTES as usize);
        let words: Vec<u64> = args.iter().flat_map(|arg| arg.to_words()).collect();
        self.write_words(address, &words);
        ExtentList { address, count: args.len() as u32 }
    }

    pub(super) fn write_words(&mut self, address: u64, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.target.write(address, &bytes);
    }

    /// A list of extents in memory.
    pub(super) fn list(&mut self, extents: &[Extent]) -> ExtentArg {
        let words: Vec<u64> = extents.iter().flat_map(|extent| extent.to_words()).collect();
        let address = self.target.allocate(words.len() * 8);
        self.write_words(address, &words);
        ExtentArg::List(ExtentList { address, count: extents.len() as u32 })
    }

    /// Pages of the bus: the first one's number.
    pub(super) fn bus_pages(&mut self, count: usize) -> u32 {
        (self.target.allocate(count * PAGE as usize) / PAGE) as u32
    }

    /// Maps pages of an address space to frames or bus pages.
    pub(super) fn map(
        &mut self,
        asid: Asid,
        page: u64,
        count: u32,
        dst: DmaAddr,
        rights: Rights,
    ) -> Result<(), String> {
        let operation = Operation::Map(pages_at(page, count, dst), rights);
        let done = self.ok(asid, operation)?;
        same("the pages of a MAP", done.pages, count.into())
    }

    pub(super) fn resume(&mut self, fault: FaultId) -> Result<u64, String> {
        Ok(self.ok(NO_ASID, Operation::Resume(FaultArg::One(fault)))?.value)
    }

    /// Serves faults, each page where `place` says, until a command has completed.
    pub(super) fn serve(
        &mut self,
        tag: u64,
        place: impl Fn(PageNo) -> DmaAddr,
    ) -> Result<CompletionEntry, String> {
        for _ in 0..self.target.patience() {
            if self.has_completed(tag)? {
                return self.wait_for(tag);
            }
            match self.faults.pop_front() {
                None => self.target.pause(),
                Some(fault) => {
                    for (range, access) in fault.ranges.clone() {
                        for page in range.pages() {
                            let dst = place(page);
                            self.map(fault.head.asid, page.0, 1, dst, access.rights())?;
                        }
                    }
                    self.resume(fault.id())?;
                }
            }
        }
        Err(format!("tag {tag:#x} did not complete while its faults were served"))
    }

    /// The words of a frame.
    pub(super) fn frame_words(&mut self, frame: u32) -> Vec<u64> {
        let mut bytes = vec![0; PAGE as usize];
        self.target.read_frames(u64::from(frame) * PAGE, &mut bytes);
        to_words(&bytes)
    }

    /// The words of a bus page.
    pub(super) fn bus_words(&mut self, page: u32) -> Vec<u64> {
        let mut bytes = vec![0; PAGE as usize];
        self.target.read(u64::from(page) * PAGE, &mut bytes);
        to_words(&bytes)
    }

    /// Fills a frame with words that name it and their place.
    pub(super) fn mark_frame(&mut self, frame: u32, mark: u64) {
        let bytes: Vec<u8> = marked(mark).flat_map(u64::to_le_bytes).collect();
        self.target.write_frames(u64::from(frame) * PAGE, &bytes);
    }

    /// [`Client::mark_frame`] of a bus page.
    pub(super) fn mark_bus(&mut self, page: u32, mark: u64) {
        let words: Vec<u64> = marked(mark).collect();
        self.write_words(u64::from(page) * PAGE, &words);
    }

    /// What a processing element does: code and job.
    pub(super) fn pe_status(&mut self, pe: u16) -> Result<(u64, u64), String> {
        let done = self.ok(NO_ASID, Operation::PeStatus(PeId(pe)))?;
        Ok((done.value, done.detail))
    }
}

fn to_words(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.chunks_exact(8);
    words
        .map(|word| word.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
        .collect()
}

/// The words that a marked page holds.
pub(super) fn marked(mark: u64) -> impl Iterator<Item = u64> {
    (0..PAGE / 8).map(move |index| mark << 32 | index)
}

/// The interrupt vector that the checks give a ring.
pub(super) fn vector(kind: RingKind) -> u16 {
    kind.index().saturating_sub(1) as u16
}

/// Pages of an address space alone.
pub(super) fn pages(page: u64, count: u32) -> ExtentArg {
    pages_at(page, count, DmaAddr::Bus(0))
}

/// Pages of an address space and where they go.
pub(super) fn pages_at(page: u64, count: u32, dst: DmaAddr) -> ExtentArg {
    ExtentArg::Inline(Extent { page, count, src: DmaAddr::Bus(0), dst })
}

/// Pages from one place to another.
pub(super) fn moved(count: u32, src: DmaAddr, dst: DmaAddr) -> ExtentArg {
    ExtentArg::Inline(Extent { page: 0, count, src, dst })
}

/// Words of memory as an argument.
pub(super) fn words_at(kind: ArgKind, page: u64, words: u64) -> KernelArg {
    KernelArg { kind, element: 8, word: page * PAGE, bytes: words * 8 }
}

/// The kernel's id, or the check is not run.
macro_rules! kernel {
    ($client:expr, $name:literal) => {
        match $client.kernel($name)? {
            Some(kernel) => kernel,
            None => {
                return Ok($crate::Verdict::NotRun(
                    concat!("the card has no kernel ", $name).into(),
                ));
            }
        }
    };
}
pub(super) use kernel;

/// The function can do this, or the check is not run.
macro_rules! needs {
    ($client:expr, $capability:ident) => {
        if !$client.can(register::$capability) {
            return Ok($crate::Verdict::NotRun($crate::Lack::Capability {
                bit: register::$capability,
                name: stringify!($capability),
            }));
        }
    };
}
pub(super) use needs;
