//! The driver's commands as entries of a card's ring.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use farside_card::interface::{
    ARG_BYTES, BITS_PAGES, BitsBuffer, CommandEntry, DmaAddr, EXTENT_BYTES, Extent, ExtentArg,
    ExtentList, FaultArg, KernelArg, Operation, RingHeader, RingKind, reason_to_word, register,
};
use farside_svm::{Header, Place, RingOp, Run, Step, TransferOp, Wait};
use farside_types::{CommandId, FaultId, JobId, List, Reason, Rights};

use super::control::{BLOCK_BYTES, Block};
use super::link::{InFlight, Link, OPEN_MAX, Pending};
use super::receive::fault_on_card;
use super::transport::{LaunchNews, MoveOrder};
use crate::runtime::ASID;
use farside_softcard::Job;

/// Extents of one list: a block of the control memory.
const LIST_EXTENTS: usize = BLOCK_BYTES / EXTENT_BYTES as usize;
/// Pages of one command that tells bits of them; the bits are at the end of the list's block.
const TOLD_PAGES: u64 = 512;
/// The first word of these bits.
pub(super) const TOLD_WORD: usize = (BLOCK_BYTES - TOLD_PAGES as usize / 8) / 8;
/// Extents before them.
const TOLD_EXTENTS: usize = TOLD_WORD * 8 / EXTENT_BYTES as usize;
/// Fault ids of one list.
const LIST_FAULTS: usize = BLOCK_BYTES / 8;
/// First word of the message buffer in a launch's block; the arguments are before it.
pub(super) const MESSAGE_WORD: usize = BLOCK_BYTES / 16;
/// Bytes of that buffer.
const MESSAGE_BYTES: u32 = (BLOCK_BYTES / 2) as u32;

/// Something that waits for room: in the ring, or for a block.
#[derive(Debug)]
pub(super) enum Waiting {
    /// A part of a driver's command.
    Pages(CommandId, PageOp, List<Extent>),
    /// A part of a driver's command that tells of its pages, from this one of all on.
    Telling(CommandId, Telling, u64, List<Extent>),
    /// Faults to be resumed or cancelled.
    Faults(CommandId, Option<u32>, List<FaultId>),
    /// A kernel to be looked up, and the jobs that run it.
    Kernel(Arc<str>, Vec<Arc<Job>>),
    /// A job to be launched.
    Launch(Arc<Job>),
    /// A job to be aborted.
    Abort(JobId),
    /// A command of a window's.
    Own(CommandId, Operation),
}

/// What is done with pages.
#[derive(Clone, Copy, Debug)]
pub(super) enum PageOp {
    Map(Rights),
    Protect(Rights),
    Unmap,
    Copy,
    Fill,
}

/// What a card tells of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Telling {
    /// Which were used.
    Used,
    /// Which were written; they are unmapped.
    Written,
}

impl PageOp {
    fn operation(self, pages: ExtentArg) -> Operation {
        match self {
            PageOp::Map(rights) => Operation::Map(pages, rights),
            PageOp::Protect(rights) => Operation::Protect(pages, rights),
            PageOp::Unmap => Operation::Unmap(pages),
            PageOp::Copy => Operation::Copy(pages),
            PageOp::Fill => Operation::Fill(pages, 0),
        }
    }

    /// Whether it is about pages of the address space; the others are about frames only.
    fn names_pages(self) -> bool {
        !matches!(self, PageOp::Copy | PageOp::Fill)
    }

    /// Pages of one command; only page DMA has a bound.
    fn pages_max(self, dma_pages: u32) -> u32 {
        match self {
            PageOp::Copy | PageOp::Fill => dma_pages,
            _ => u32::MAX,
        }
    }
}

impl Link {
    /// Puts a command of the driver into the ring; `job` finds the job of a launch. It is published
    /// by [`Link::flush`]. `false`: nobody waits for its completion.
    pub(crate) fn submit(
        &mut self,
        step: &Step<RingOp>,
        job: impl FnOnce(JobId) -> Option<Arc<Job>>,
    ) -> bool {
        let (id, before) = (step.header.id, self.backlog.len());
        match &step.op {
            RingOp::Unmap { runs, tells } if *tells && self.has_tables() => {
                self.ask(id, Telling::Written, runs);
            }
            RingOp::Unmap { runs, .. } => self.pages(id, PageOp::Unmap, runs, |_, _| (OWN, OWN)),
            RingOp::Protect { runs, rights } => {
                self.pages(id, PageOp::Protect(*rights), runs, |_, _| (OWN, OWN));
            }
            RingOp::Map { runs, memory, rights } => {
                let (card, map, memory) = (self.card, Arc::clone(&self.map), *memory);
                self.pages(id, PageOp::Map(*rights), runs, |run, _| {
                    (OWN, map.frame(card, memory, run.dst))
                });
            }
            RingOp::Accessed { runs } if self.has_tables() => self.ask(id, Telling::Used, runs),
            RingOp::Accessed { .. } => {}
            RingOp::Resume { faults } => self.faults(id, None, faults),
            RingOp::Cancel { faults, reason } => {
                self.faults(id, Some(reason_to_word(*reason)), faults);
            }
            RingOp::Launch { job: id } => {
                if let Some(job) = job(*id) {
                    self.launch(job);
                }
                return false;
            }
        }
        // The driver does not ask how far these come.
        self.begin(&step.header, before, 0, is_quiet(step))
    }

    /// Puts a command of the card's window into the ring; its completion is told whole.
    pub(crate) fn ask_of_window(&mut self, id: CommandId, operation: Operation) {
        self.backlog.push_back(Waiting::Own(id, operation));
        self.send_backlog();
    }

    /// Puts a copy or fill for the card's page DMA into the ring, as [`Link::submit`] does.
    pub(crate) fn transfer(&mut self, step: &Step<TransferOp>) -> bool {
        if self.transport.mover().is_some() {
            return self.transfer_beside(step);
        }
        let (id, before) = (step.header.id, self.backlog.len());
        let (card, map) = (self.card, Arc::clone(&self.map));
        match &step.op {
            TransferOp::Copy { from, to, runs } => {
                let (from, to) = (*from, *to);
                self.pages(id, PageOp::Copy, runs, |run, done| {
                    let src = map.place(card, from, run.src, done);
                    (src, map.place(card, to, run.dst, done))
                });
            }
            TransferOp::Fill { memory, runs } => {
                let to = Place::Memory(*memory);
                self.pages(id, PageOp::Fill, runs, |run, done| {
                    (OWN, map.place(card, to, run.dst, done))
                });
            }
        }
        self.begin(&step.header, before, step.op.pages(), false)
    }

    /// The same where the transport moves pages, in one part.
    fn transfer_beside(&mut self, step: &Step<TransferOp>) -> bool {
        let (card, map) = (self.card, &self.map);
        let fills = matches!(step.op, TransferOp::Fill { .. });
        let (from, to) = match &step.op {
            TransferOp::Copy { from, to, .. } => (Some(*from), *to),
            TransferOp::Fill { memory, .. } => (None, Place::Memory(*memory)),
        };
        let mut done = 0;
        let extents = step.op.runs().iter().map(|run| {
            let src = from.map_or(OWN, |from| map.place(card, from, run.src, done));
            let dst = map.place(card, to, run.dst, done);
            done += run.count;
            Extent { page: 0, count: run.count, src, dst }
        });
        let extents: Vec<Extent> = extents.collect();
        if extents.is_empty() {
            return false;
        }
        let Header { id, epoch, .. } = step.header;
        let pages = step.op.pages();
        let state =
            InFlight { epoch, parts_left: 1, pages, pages_done: 0, failed: false, quiet: false };
        self.broken |= self.commands.len() > OPEN_MAX;
        self.commands.insert(id, state);
        let tag = self.next_tag;
        self.next_tag += 1;
        self.pending.insert(tag, Pending::Move { id });
        let order = MoveOrder { tag, fills, extents };
        if let Some(mover) = self.transport.mover() {
            mover.start(order);
        }
        true
    }

    /// A command is under way in as many parts as were added to the line, which was as long as
    /// `before`, for so many pages of page DMA; `false` if there are none.
    fn begin(&mut self, header: &Header, before: usize, pages: u64, quiet: bool) -> bool {
        let parts_left = (self.backlog.len() - before) as u32;
        if parts_left == 0 {
            return false;
        }
        if self.commands.len() + before > OPEN_MAX {
            // It has stood still for long, or lies; nothing more is kept for it.
            self.broken = true;
        }
        let epoch = header.epoch;
        let state = InFlight { epoch, parts_left, pages, pages_done: 0, failed: false, quiet };
        self.commands.insert(header.id, state);
        self.send_backlog();
        true
    }

    /// Cuts runs into parts that one command can carry.
    fn pages(
        &mut self,
        id: CommandId,
        op: PageOp,
        runs: &[Run],
        ends: impl Fn(&Run, u32) -> (DmaAddr, DmaAddr),
    ) {
        let pages_max = op.pages_max(self.identity.dma_pages);
        let (mut part, mut room, mut done) = (List::new(), pages_max, 0u32);
        for run in runs {
            let (src, dst) = ends(run, done);
            let mut taken = 0;
            while taken < run.count {
                let count = (run.count - taken).min(room);
                part.push(Extent {
                    page: if op.names_pages() { run.page.0 + u64::from(taken) } else { 0 },
                    count,
                    src: advance(src, taken),
                    dst: advance(dst, taken),
                });
                taken += count;
                room -= count;
                if room == 0 || part.len() == LIST_EXTENTS {
                    self.backlog.push_back(Waiting::Pages(id, op, std::mem::take(&mut part)));
                    room = pages_max;
                }
            }
            done = done.wrapping_add(run.count);
        }
        if !part.is_empty() {
            self.backlog.push_back(Waiting::Pages(id, op, part));
        }
    }

    /// Whether the card has tables, and so can tell of pages: it may have come back without.
    fn has_tables(&self) -> bool {
        self.identity.capabilities & register::CAP_TABLES != 0
    }

    /// As [`Link::pages`], in parts whose answers have room behind their lists.
    fn ask(&mut self, id: CommandId, what: Telling, runs: &[Run]) {
        let (mut part, mut pages, mut first) = (List::new(), 0u64, 0u64);
        for run in runs {
            let mut taken = 0;
            while taken < run.count {
                let count = (run.count - taken).min((TOLD_PAGES - pages) as u32);
                let page = run.page.0 + u64::from(taken);
                part.push(Extent { page, count, src: OWN, dst: OWN });
                (taken, pages) = (taken + count, pages + u64::from(count));
                if pages == TOLD_PAGES || part.len() == TOLD_EXTENTS {
                    let part = std::mem::take(&mut part);
                    self.backlog.push_back(Waiting::Telling(id, what, first, part));
                    (first, pages) = (first + pages, 0);
                }
            }
        }
        if !part.is_empty() {
            self.backlog.push_back(Waiting::Telling(id, what, first, part));
        }
    }

    fn faults(&mut self, id: CommandId, reason: Option<u32>, faults: &[FaultId]) {
        for chunk in faults.chunks(LIST_FAULTS) {
            let ids = chunk.iter().map(|&fault| fault_on_card(fault)).collect();
            self.backlog.push_back(Waiting::Faults(id, reason, ids));
        }
    }

    /// Launches a job; its kernel's name is looked up first, if it was not before. Jobs of one kernel
    /// reach the card in the order of their launches.
    pub(crate) fn launch(&mut self, job: Arc<Job>) {
        let name = Arc::clone(&job.name);
        if self.kernels.contains_key(&name) {
            self.backlog.push_back(Waiting::Launch(job));
        } else if let Some(jobs) = self.looked_up(&name) {
            jobs.push(job);
        } else {
            self.backlog.push_back(Waiting::Kernel(name, vec![job]));
        }
        self.send_backlog();
    }

    /// Asks for a kernel by its name, before there is a launch that would have to wait for the answer.
    pub(crate) fn look_up(&mut self, name: &str) {
        if !self.kernels.contains_key(name) && self.looked_up(name).is_none() {
            self.backlog.push_back(Waiting::Kernel(Arc::from(name), Vec::new()));
            self.send_backlog();
        }
    }

    /// The jobs that wait for the look-up of a name, if it is under way.
    fn looked_up(&mut self, wanted: &str) -> Option<&mut Vec<Arc<Job>>> {
        let sent = self.pending.values_mut().find_map(|pending| match pending {
            Pending::Kernel { name, jobs, .. } if **name == *wanted => Some(jobs),
            _ => None,
        });
        sent.or_else(|| {
            self.backlog.iter_mut().find_map(|waiting| match waiting {
                Waiting::Kernel(name, jobs) if **name == *wanted => Some(jobs),
                _ => None,
            })
        })
    }

    /// Aborts a job. One that was not sent to the card yet never is: `true`.
    pub(crate) fn abort(&mut self, job: JobId) -> bool {
        let mut found = false;
        let mut keep = |other: &Arc<Job>| {
            found |= other.id == job;
            other.id != job
        };
        for waiting in &mut self.backlog {
            if let Waiting::Kernel(_, jobs) = waiting {
                jobs.retain(&mut keep);
            }
        }
        self.backlog.retain(|waiting| !matches!(waiting, Waiting::Launch(job) if !keep(job)));
        self.parked.retain(&mut keep);
        self.made.remove(&job);
        for pending in self.pending.values_mut() {
            if let Pending::Kernel { jobs, .. } = pending {
                jobs.retain(&mut keep);
            }
        }
        if !found {
            self.backlog.push_back(Waiting::Abort(job));
            self.send_backlog();
        }
        found
    }

    /// Puts what waits into the ring, as far as there is room. Launches that have no block wait
    /// beside the line: a kernel keeps its block until it ends, and may need what is behind it.
    pub(super) fn send_backlog(&mut self) {
        while !self.parked.is_empty() && self.launch_has_block() && self.find_room() {
            let job = self.parked.pop_front().expect("it is not empty");
            if let Err(Waiting::Launch(job)) = self.send(Waiting::Launch(job)) {
                return self.parked.push_front(job);
            }
        }
        while !self.backlog.is_empty() && self.find_room() {
            match self.backlog.pop_front().expect("it is not empty") {
                Waiting::Launch(job) if !self.launch_has_block() => self.parked.push_back(job),
                waiting => {
                    if let Err(waiting) = self.send(waiting) {
                        // No block is free: a completion will free one.
                        return self.backlog.push_front(waiting);
                    }
                }
            }
        }
    }

    /// Whether a launch may take a block: lists must find one, however many kernels run.
    fn launch_has_block(&self) -> bool {
        self.control.blocks_free() > self.control.blocks() / 4
    }

    /// Whether the ring has room. If not, the card is asked to say when it has.
    fn find_room(&self) -> bool {
        let waits = self.control.header(RingKind::Command, RingHeader::PRODUCER_WAITS);
        if self.room() == 0 {
            waits.store(1, Ordering::Relaxed);
            // The card takes entries, fences, and reads this wish; here it is stored, and behind a
            // fence looked what the card has taken. One of the two sees the other.
            fence(Ordering::SeqCst);
            if self.room() == 0 {
                return false;
            }
        }
        waits.store(0, Ordering::Relaxed);
        true
    }

    /// Whether something that waited for room in the ring has it now.
    pub(super) fn has_found_room(&self) -> bool {
        !self.backlog.is_empty()
            && self.room() > 0
            && self
                .control
                .header(RingKind::Command, RingHeader::PRODUCER_WAITS)
                .load(Ordering::Relaxed)
                == 1
    }

    fn room(&self) -> u32 {
        let consumed =
            self.control.header(RingKind::Command, RingHeader::CONSUMER).load(Ordering::Acquire);
        // Nothing that the card writes there makes the ring larger.
        self.control.entries(RingKind::Command).saturating_sub(self.produced.wrapping_sub(consumed))
    }

    /// Puts one thing into the ring; gives it back if no block is free.
    fn send(&mut self, waiting: Waiting) -> Result<(), Waiting> {
        match waiting {
            Waiting::Pages(id, op, extents) => {
                let (arg, block) = match self.extents(&extents) {
                    Some(found) => found,
                    None => return Err(Waiting::Pages(id, op, extents)),
                };
                self.put(op.operation(arg), Pending::Command { id, block });
            }
            Waiting::Telling(id, what, first, extents) => {
                if !self.send_telling(id, what, first, &extents) {
                    return Err(Waiting::Telling(id, what, first, extents));
                }
            }
            Waiting::Faults(id, reason, ids) => {
                let (arg, block) = match self.fault_ids(&ids) {
                    Some(found) => found,
                    None => return Err(Waiting::Faults(id, reason, ids)),
                };
                let operation = match reason {
                    None => Operation::Resume(arg),
                    Some(reason) => Operation::Cancel(arg, reason),
                };
                self.put(operation, Pending::Command { id, block });
            }
            Waiting::Kernel(name, jobs) => {
                let Some(block) = self.control.take_block() else {
                    return Err(Waiting::Kernel(name, jobs));
                };
                self.control.write_block(&block, 0, words_of(name.as_bytes()));
                let address = self.control.block_bus(&block);
                let bytes = name.len() as u32;
                self.put(
                    Operation::Kernel { address, bytes },
                    Pending::Kernel { name, block, jobs },
                );
            }
            Waiting::Launch(job) => {
                let Some(block) = self.control.take_block() else {
                    return Err(Waiting::Launch(job));
                };
                let operation = self.launch_of(&job, &block);
                let made = self.made.remove(&job.id).unwrap_or_default();
                self.launched.push((self.next_tag, made));
                self.put(operation, Pending::Launch { job, block });
            }
            Waiting::Abort(job) => self.put(Operation::Abort(job), Pending::Abort),
            Waiting::Own(id, operation) => self.put(operation, Pending::Own { id }),
        }
        Ok(())
    }

    /// Puts a command into the ring that tells of pages; `false` if no block is free. Few pages in one extent
    /// need none: their bits are in the completion.
    fn send_telling(
        &mut self,
        id: CommandId,
        what: Telling,
        first: u64,
        extents: &[Extent],
    ) -> bool {
        let pages = extents.iter().map(|extent| u64::from(extent.count)).sum();
        if let (&[extent], true) = (extents, pages <= BITS_PAGES) {
            let pages_arg = ExtentArg::Inline(extent);
            let operation = match what {
                Telling::Used => Operation::Accessed(pages_arg, None),
                Telling::Written => Operation::Unmap(pages_arg),
            };
            self.put(operation, Pending::Telling { id, block: None, first, pages });
            return true;
        }
        let Some(block) = self.control.take_block() else { return false };
        self.control.write_block(&block, 0, extents.iter().flat_map(|extent| extent.to_words()));
        let address = self.control.block_bus(&block);
        let list = ExtentArg::List(ExtentList { address, count: extents.len() as u32 });
        let bits =
            BitsBuffer { address: address + TOLD_WORD as u64 * 8, bytes: (TOLD_PAGES / 8) as u32 };
        let operation = match what {
            Telling::Used => Operation::Accessed(list, Some(bits)),
            Telling::Written => Operation::UnmapTelling(list, bits),
        };
        self.put(operation, Pending::Telling { id, block: Some(block), first, pages });
        true
    }

    fn launch_of(&mut self, job: &Job, block: &Block) -> Operation {
        let args = job.args();
        debug_assert!(args.len() * ARG_BYTES as usize <= MESSAGE_WORD * 8);
        let is_told = self.identity.capabilities & register::CAP_NUMBERS != 0;
        let told = |arg: &KernelArg| if is_told { *arg } else { arg.without_number() };
        self.control.write_block(block, 0, args.iter().flat_map(|arg| told(arg).to_words()));
        let address = self.control.block_bus(block);
        Operation::Launch {
            job: job.id,
            kernel: self.kernels.get(&job.name).copied().unwrap_or(u32::MAX),
            pe: None,
            args: ExtentList { address, count: args.len() as u32 },
            message: ExtentList {
                address: address + MESSAGE_WORD as u64 * 8,
                count: MESSAGE_BYTES,
            },
        }
    }

    fn extents(&mut self, extents: &[Extent]) -> Option<(ExtentArg, Option<Block>)> {
        if let &[extent] = extents {
            return Some((ExtentArg::Inline(extent), None));
        }
        let block = self.control.take_block()?;
        self.control.write_block(&block, 0, extents.iter().flat_map(|extent| extent.to_words()));
        let address = self.control.block_bus(&block);
        let list = ExtentList { address, count: extents.len() as u32 };
        Some((ExtentArg::List(list), Some(block)))
    }

    fn fault_ids(&mut self, ids: &[FaultId]) -> Option<(FaultArg, Option<Block>)> {
        if let &[id] = ids {
            return Some((FaultArg::One(id), None));
        }
        let block = self.control.take_block()?;
        self.control.write_block(&block, 0, ids.iter().map(|id| id.0));
        let list = ExtentList { address: self.control.block_bus(&block), count: ids.len() as u32 };
        Some((FaultArg::List(list), Some(block)))
    }

    fn put(&mut self, operation: Operation, pending: Pending) {
        let tag = self.next_tag;
        self.next_tag += 1;
        let entry = CommandEntry { tag, asid: ASID, operation };
        let quiet = match &pending {
            Pending::Command { id, .. } => self.commands.get(id).is_some_and(|state| state.quiet),
            _ => false,
        };
        self.quiet_pending += u32::from(quiet);
        let entry = if quiet { entry.to_quiet_entry() } else { entry.to_entry() };
        self.control.put(RingKind::Command, self.produced, &entry);
        self.produced = self.produced.wrapping_add(1);
        self.pending.insert(tag, pending);
    }

    /// What a job, which is launched next, is believed to make: parts of the card's memory.
    pub(crate) fn will_make(&mut self, job: JobId, made: Vec<Range<u64>>) {
        if !made.is_empty() {
            self.made.insert(job, made);
        }
    }

    /// Launches were published: what one makes that is alone on the card is to come with its completion.
    fn expect_behind(&self, launched: Vec<(u64, Vec<Range<u64>>)>) {
        let Ok([(tag, made)]) = <[_; 1]>::try_from(launched) else { return };
        let launches = self.pending.values().filter(|it| matches!(it, Pending::Launch { .. }));
        if !made.is_empty() && launches.count() == 1 {
            self.tell_of_launch(LaunchNews::Alone { tag, index: self.produced, made });
        }
    }

    pub(super) fn tell_of_launch(&self, news: LaunchNews) {
        if let Some(mover) = self.transport.mover() {
            mover.launch(news);
        }
    }

    /// Publishes what was put into the ring, and tells the card if it sleeps. `listens`: whoever calls
    /// looks for answers before it sleeps ([`Link::may_sleep`]), so that none needs an interrupt.
    pub(crate) fn flush(&mut self, listens: bool) {
        let header = |word| self.control.header(RingKind::Command, word);
        let published = header(RingHeader::PRODUCER).load(Ordering::Relaxed);
        if published == self.produced && !self.room_made {
            return;
        }
        if listens {
            self.awake();
        }
        let launched = std::mem::take(&mut self.launched);
        if !launched.is_empty() {
            self.tell_of_launch(LaunchNews::Begins);
        }
        header(RingHeader::PRODUCER).store(self.produced, Ordering::Release);
        self.expect_behind(launched);
        // The card stores that it sleeps, fences, and looks at the index; this stores the index,
        // fences, and looks whether it sleeps. One of the two sees the other.
        fence(Ordering::SeqCst);
        let sleeps = header(RingHeader::CONSUMER_SLEEPS).load(Ordering::Relaxed) != 0;
        if !(sleeps || std::mem::take(&mut self.room_made)) {
            return;
        }
        crate::trace::doorbell(self.card);
        if !self.transport.ring_doorbell() {
            tracing::error!(card = %self.card, "a card makes those wait who ring its doorbell");
            self.broken = true;
        }
    }
}

/// Whether nobody waits for a command's completion: what ends the service of a card's fault. The
/// kernel goes on with it, and the program need not be woken for that.
fn is_quiet(step: &Step<RingOp>) -> bool {
    let Header { wait, reason, .. } = step.header;
    let ends_fault = matches!(step.op, RingOp::Map { .. } | RingOp::Resume { .. });
    ends_fault && wait == Wait::Posted && reason == Reason::Demand
}

/// An end that an operation does not have.
const OWN: DmaAddr = DmaAddr::Bus(0);

fn advance(at: DmaAddr, pages: u32) -> DmaAddr {
    match at {
        DmaAddr::Own(frame) => DmaAddr::Own(frame + pages),
        // What has no source or destination leaves its word 0, however far it is.
        DmaAddr::Bus(0) => DmaAddr::Bus(0),
        DmaAddr::Bus(page) => DmaAddr::Bus(page + pages),
    }
}

fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    })
}

/// What waits for room.
pub(super) type Backlog = VecDeque<Waiting>;
