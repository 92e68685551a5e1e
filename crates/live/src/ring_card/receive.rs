//! What a card has written to its rings, in the driver's words.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use farside_card::interface::{
    CompletionEntry, Entry, FaultHead, FaultRecord, FaultWants, NoticeRecord, RANGES_PER_RECORD,
    RingHeader, RingKind, Status, reason_from_word,
};
use farside_svm::{CardFault, Need, StepError, StepErrorKind};
use farside_types::{
    Access, CancelReason, CardId, CommandId, Epoch, FaultId, List, PageNo, PageRange, VirtAddr,
};

use super::link::{Link, Pending};
use super::submit::TOLD_WORD;
use super::transport::{LaunchNews, Moved, PageMover};
use crate::runtime::ASID;
use farside_softcard::Job;
use farside_softcard::KernelError;

/// Something that a card has said.
#[derive(Debug)]
pub(crate) enum Received {
    /// A command of the driver has completed.
    Done(CommandId, Epoch, Result<(), StepError>),
    /// Bits of pages of a command, from this one on, and of how many. The command completes next.
    Told(CommandId, u64, u64, BitWords),
    /// The bytes of the command that completes next had been asked for before: it has waited for nobody.
    CameAlong,
    /// A job has ended; `bool`: it may still touch memory, because it hangs.
    JobEnded(Arc<Job>, Result<(), KernelError>, bool),
    /// A command of the card's window has completed.
    Own(CommandId, CompletionEntry),
}

/// Bits of pages; those that are in a completion need no memory of their own.
pub(crate) type BitWords = List<u64, 3>;

/// What a card has said since it was listened to before, in the order in which the driver is told. It is
/// kept from one time to the next, with the room that it has.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// Answers to commands.
    pub(crate) answers: Vec<Received>,
    /// Faults.
    pub(crate) faults: Vec<CardFault>,
    /// Groups of pages whose remote accesses reached the threshold, with how many there were.
    pub(crate) notices: Vec<(PageRange, u32)>,
}

impl Heard {
    /// Whether the card has said nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.faults.is_empty() && self.notices.is_empty()
    }
}

/// The part of a fault's id that the card gives; the card's number is the rest.
const ID_BITS: u32 = 56;

/// The name of a card's fault in the whole machine.
pub(crate) fn fault_of(card: CardId, id: FaultId) -> FaultId {
    FaultId(u64::from(card.0) << ID_BITS | id.0 & ((1 << ID_BITS) - 1))
}

/// The name of a fault on its card.
pub(crate) fn fault_on_card(id: FaultId) -> FaultId {
    FaultId(id.0 & ((1 << ID_BITS) - 1))
}

/// Pages of one notice, at most: the largest group that access counters count.
const NOTICE_PAGES_MAX: u64 = farside_types::BLOCK_PAGES;

/// Rings that the card writes.
const INCOMING: [RingKind; 3] = [RingKind::Completion, RingKind::Fault, RingKind::Notice];

impl Link {
    /// Takes what the card has written so far: as much as the rings hold, even if it goes on writing.
    pub(crate) fn receive(&mut self, heard: &mut Heard) {
        let Heard { answers, faults, notices } = heard;
        self.awake();
        let moved = self.transport.mover().map_or_else(Vec::new, PageMover::moved);
        moved.into_iter().for_each(|moved| self.moved(moved, answers));
        for _ in 0..self.control.entries(RingKind::Completion) {
            let Some(entry) = self.next(RingKind::Completion) else { break };
            self.completed(&entry, answers);
        }
        self.receive_faults(faults);
        for _ in 0..self.control.entries(RingKind::Notice) {
            let Some(entry) = self.next(RingKind::Notice) else { break };
            match NoticeRecord::from_entry(&entry) {
                Ok(notice) if notice.asid == ASID && notice.pages.count <= NOTICE_PAGES_MAX => {
                    notices.push((notice.pages, notice.count));
                }
                _ => self.nonsense("notice", &entry),
            }
        }
        self.send_backlog();
    }

    /// Says that entries need no interrupt, because they are looked for.
    pub(super) fn awake(&self) {
        for kind in INCOMING {
            self.control.header(kind, RingHeader::CONSUMER_SLEEPS).store(0, Ordering::Relaxed);
        }
    }

    /// Says that an interrupt is wanted for the next entry. `false`: there is one already.
    ///
    /// The card publishes an entry, fences, and reads what is stored here; this stores, fences, and
    /// looks for entries. One of the two sees the other, so no entry is slept over.
    pub(crate) fn may_sleep(&self) -> bool {
        for kind in INCOMING {
            self.control.header(kind, RingHeader::CONSUMER_SLEEPS).store(1, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        !self.has_news()
    }

    /// Whether completions will come that raise no interrupt: they are to be looked for.
    pub(crate) fn expects_quiet_news(&self) -> bool {
        self.quiet_pending > 0
    }

    /// Whether the card has written something that was not taken, or taken something that made room
    /// which is waited for.
    pub(crate) fn has_news(&self) -> bool {
        self.has_found_room()
            || self.transport.mover().is_some_and(PageMover::has_moved)
            || INCOMING.iter().any(|&kind| self.produced(kind) != self.consumed[kind.index()])
    }

    fn produced(&self, kind: RingKind) -> u32 {
        self.control.header(kind, RingHeader::PRODUCER).load(Ordering::Acquire)
    }

    /// The next entry of a ring, which is given back to the card.
    fn next(&mut self, kind: RingKind) -> Option<Entry> {
        if self.broken {
            // Nothing of it can be believed any more.
            return None;
        }
        let index = self.consumed[kind.index()];
        let waiting = self.produced(kind).wrapping_sub(index);
        if waiting == 0 {
            return None;
        }
        if waiting > self.control.entries(kind) {
            tracing::error!(card = %self.card, ring = kind.name(), "a card's ring makes no sense");
            self.broken = true;
            return None;
        }
        let entry = self.control.get(kind, index);
        let next = index.wrapping_add(1);
        self.consumed[kind.index()] = next;
        self.control.header(kind, RingHeader::CONSUMER).store(next, Ordering::Release);
        self.room_made |= waiting == self.control.entries(kind)
            || self.control.header(kind, RingHeader::PRODUCER_WAITS).load(Ordering::Relaxed) != 0;
        Some(entry)
    }

    fn receive_faults(&mut self, faults: &mut Vec<CardFault>) {
        for _ in 0..self.control.entries(RingKind::Fault) {
            let Some(entry) = self.next(RingKind::Fault) else { break };
            match FaultRecord::from_entry(&entry) {
                Ok(FaultRecord::Head(head)) if head.asid == ASID => {
                    faults.extend(self.fault(head));
                }
                _ => self.nonsense("fault", &entry),
            }
        }
    }

    /// A fault with the ranges that follow it, if it is a group.
    fn fault(&mut self, head: FaultHead) -> Option<CardFault> {
        let need = match head.wants {
            FaultWants::Page(page, access) => Need::Page(page, access),
            FaultWants::Group { ranges } => Need::Group(self.group(head.id, ranges)?.into()),
        };
        Some(CardFault { id: fault_of(self.card, head.id), need })
    }

    /// The records of a group are written together, so they are all there.
    fn group(&mut self, id: FaultId, count: u32) -> Option<Vec<(PageRange, Access)>> {
        let room = self.control.entries(RingKind::Fault) as usize * RANGES_PER_RECORD;
        let mut ranges = Vec::new();
        while ranges.len() < count as usize {
            let Some(entry) = self.next(RingKind::Fault).filter(|_| ranges.len() < room) else {
                tracing::error!(card = %self.card, count, "a card's group of faults has no end");
                self.broken = true;
                return None;
            };
            match FaultRecord::from_entry(&entry) {
                Ok(FaultRecord::Ranges(of, part)) if of == id && part[0].is_some() => {
                    ranges.extend(part.into_iter().flatten());
                }
                _ => {
                    self.nonsense("fault", &entry);
                    return None;
                }
            }
        }
        Some(ranges)
    }

    fn nonsense(&mut self, what: &str, entry: &Entry) {
        tracing::error!(card = %self.card, ?entry, "a {what} record of a card makes no sense");
        self.broken = true;
    }

    fn completed(&mut self, entry: &Entry, received: &mut Vec<Received>) {
        let Ok(completion) = CompletionEntry::from_entry(entry) else {
            return self.nonsense("completion", entry);
        };
        match self.pending.remove(&completion.tag) {
            Some(Pending::Command { id, block }) => {
                block.into_iter().for_each(|block| self.control.release(block));
                received.extend(self.part_done(id, &completion));
            }
            Some(Pending::Telling { id, block, first, pages }) => {
                if completion.status == Status::Ok {
                    let told = pages.min(completion.value);
                    let bits = match &block {
                        Some(block) => self.control.read_words(block, TOLD_WORD, told.div_ceil(64)),
                        None => completion.bits[..told.div_ceil(64) as usize].into(),
                    };
                    received.push(Received::Told(id, first, told, bits));
                }
                block.into_iter().for_each(|block| self.control.release(block));
                received.extend(self.part_done(id, &completion));
            }
            Some(Pending::Kernel { name, block, jobs }) => {
                self.control.release(block);
                self.kernel_found(&name, jobs, &completion, received);
            }
            Some(Pending::Launch { job, block }) => {
                self.tell_of_launch(LaunchNews::Ended { tag: completion.tag });
                let text = self.control.read_block(
                    &block,
                    super::submit::MESSAGE_WORD,
                    completion.message_bytes as usize,
                );
                self.control.release(block);
                let message = String::from_utf8_lossy(&text).into_owned();
                let hangs = completion.status == Status::Hung && completion.value != 0;
                let result = job_result(&job, &completion, message);
                received.push(Received::JobEnded(job, result, hangs));
            }
            Some(Pending::Abort) => {}
            Some(Pending::Own { id }) => received.push(Received::Own(id, completion)),
            Some(moves @ Pending::Move { .. }) => {
                // Its bytes may still be on their way.
                self.pending.insert(completion.tag, moves);
                self.nonsense("completion", entry);
            }
            None => self.nonsense("completion", entry),
        }
    }

    /// A move beside the rings has ended.
    fn moved(&mut self, moved: Moved, received: &mut Vec<Received>) {
        let status = moved.pages.map_or(Status::CopyFailed, |_| Status::Ok);
        let pages = moved.pages.unwrap_or_default();
        let completion = CompletionEntry { pages, ..CompletionEntry::plain(moved.tag, status) };
        if let Some(Pending::Move { id }) = self.pending.remove(&moved.tag) {
            received.extend(moved.came_along.then_some(Received::CameAlong));
            received.extend(self.part_done(id, &completion));
        }
    }

    /// A part of a driver's command has completed; the command has with its last part.
    fn part_done(&mut self, id: CommandId, completion: &CompletionEntry) -> Option<Received> {
        let command = self.commands.get_mut(&id)?;
        command.parts_left -= 1;
        self.quiet_pending -= u32::from(command.quiet);
        if completion.status == Status::Ok {
            let done = command.pages_done.saturating_add(completion.pages);
            command.pages_done = done.min(command.pages);
        } else {
            let status = completion.status;
            let detail = completion.detail;
            tracing::error!(card = %self.card, ?status, detail, "a card refused or failed a command");
            command.failed = true;
        }
        if command.parts_left > 0 {
            return None;
        }
        let command = self.commands.remove(&id)?;
        let error = StepError { pages_done: command.pages_done, kind: StepErrorKind::Transfer };
        let result = if command.failed { Err(error) } else { Ok(()) };
        Some(Received::Done(id, command.epoch, result))
    }

    fn kernel_found(
        &mut self,
        name: &Arc<str>,
        jobs: Vec<Arc<Job>>,
        completion: &CompletionEntry,
        received: &mut Vec<Received>,
    ) {
        if completion.status == Status::Ok {
            self.kernels.insert(Arc::clone(name), completion.value as u32);
            jobs.into_iter().for_each(|job| self.launch(job));
            return;
        }
        for job in jobs {
            let (kernel, card) = (Arc::clone(name), self.card);
            received.push(Received::JobEnded(
                job,
                Err(KernelError::NotOnCard { kernel, card }),
                false,
            ));
        }
    }
}

/// How a job of another process ended.
fn job_result(job: &Job, completion: &CompletionEntry, message: String) -> Result<(), KernelError> {
    let (kernel, card) = (Arc::clone(&job.name), job.card);
    Err(match completion.status {
        Status::Ok => {
            job.returned(completion.value);
            return Ok(());
        }
        Status::Aborted => return Err(job.stopped().unwrap_or(KernelError::Cancelled { kernel })),
        Status::KernelFailed => KernelError::Failed { kernel, message },
        Status::KernelPanicked => KernelError::Panicked { kernel, message },
        Status::KernelFault => {
            let reason = reason_from_word(completion.value as u32);
            let reason = reason.unwrap_or(CancelReason::CopyFailed);
            KernelError::Fault { kernel, card, page: PageNo(completion.detail), reason }
        }
        Status::WildAddress => {
            let access = if completion.value == 1 { Access::Write } else { Access::Read };
            let addr = VirtAddr(completion.detail);
            KernelError::WildAddress { kernel, addr, access, hint: String::new() }
        }
        Status::BadRequest => KernelError::BadRequest { kernel, why: message },
        Status::Hung => KernelError::Hung { kernel, card },
        Status::NoSuchKernel => KernelError::NotOnCard { kernel, card },
        Status::Busy => KernelError::Busy { kernel, card },
        status => {
            let why = format!("the card refused the launch: {status:?}, {:#x}", completion.detail);
            KernelError::BadRequest { kernel, why }
        }
    })
}
