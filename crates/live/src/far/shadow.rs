//! The rings beside the card: what arrives from the program is put in, what the card writes is taken
//! out and sent.
//!
//! To the card this is the driver. The program's end is not trusted, nor is the card: what the one sends
//! is checked before the card sees it, and what the other writes is bounded by its rings.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use farside_card::interface::{
    CommandEntry, CompletionEntry, Entry, FaultRecord, RING_COUNT, RingHeader, RingKind,
};
use farside_link::Frame;
use farside_linux::shared::SharedMemory;
use thiserror::Error;

use super::entries::{
    ATTACHED_MAX, ATTACHED_SOFT_MAX, Attached, ITEMS_MAX, Item, News, Run, kind_of,
};
use super::mirror::INCOMING;
use super::refers::{Refers, command_of, stays_on_card};
use super::rings::{RingRegisters, Rings};

/// What a program's end may not send. Nothing of it has reached the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Entries for a ring that the card fills.
    #[error("the program sent entries for a ring that the card fills")]
    OwnRing,
    /// More commands than the ring holds.
    #[error("the program sent more commands than the ring has room for")]
    NoRoom,
    /// An entry that is no command.
    #[error("the program sent an entry that is no command")]
    NoCommand,
    /// Lists that are missing, too long, or lie outside the memory for them.
    #[error("the program sent a command whose list or message is not in the memory for them")]
    List,
    /// A command that names memory beside the card's own.
    #[error("the program sent a command that names memory beyond the card's own")]
    Beyond,
    /// More messages of kernels are open than there is room for.
    #[error("the program launched more kernels than it has memory for their messages")]
    Messages,
    /// It says that it has taken entries that were never sent.
    #[error("the program says that it took entries that were not sent")]
    Consumed,
    /// Bytes outside the card's memory.
    #[error("the program named bytes outside the card's memory")]
    Memory,
    /// More at a time than is allowed, or in the wrong order.
    #[error("the program asked for too much at a time, or at the wrong time")]
    Order,
    /// A message that cannot be understood.
    #[error("the program sent a message that makes no sense")]
    Malformed,
}

/// The card has written indices that no ring can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the card's {} ring makes no sense", .0.name())]
pub(super) struct CardBroken(pub(super) RingKind);

/// Messages of kernels that are open at a time, at most.
const MESSAGES_MAX: usize = 4096;

/// Commands that complete without an interrupt and are kept in mind, at most: the completions of more come
/// with the next that interrupts.
const QUIET_MAX: usize = 1 << 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Shadow {
    rings: Rings,
    /// Commands that were put into the card's ring.
    put: u32,
    /// How far the program knows that the card has taken them.
    told: u32,
    /// Entries that were taken out of the card's rings.
    taken: [u32; RING_COUNT],
    /// Of them, those that the program has taken.
    program_taken: [u32; RING_COUNT],
    /// The program has commands, and no room for them here.
    peer_wants_room: bool,
    /// There are entries of this ring, and no room for them at the program.
    wants_room: [bool; RING_COUNT],
    wish_is_told: bool,
    /// The card waits for room that was made.
    room_made: bool,
    /// Where launches want their messages: address and bytes, by tag.
    messages: HashMap<u64, (u64, u64)>,
    /// Launches that have completed, by tag, since this was asked.
    ended: Vec<u64>,
    /// Tags of commands whose completions raise no interrupt, and have not come.
    quiet: HashSet<u64>,
    /// Lists whose commands have not come.
    attached: Attached,
}

impl Shadow {
    /// The rings that the program's driver has set up; `None` if they are none.
    pub(super) fn new(
        memory: Arc<SharedMemory>,
        bus: u64,
        registers: &RingRegisters,
    ) -> Option<Shadow> {
        let rings = Rings::new(memory, bus, registers)?;
        Some(Shadow {
            rings,
            put: 0,
            told: 0,
            taken: [0; RING_COUNT],
            program_taken: [0; RING_COUNT],
            peer_wants_room: false,
            wants_room: [false; RING_COUNT],
            wish_is_told: false,
            room_made: false,
            messages: HashMap::new(),
            ended: Vec::new(),
            quiet: HashSet::new(),
            attached: Attached::default(),
        })
    }

    /// A frame of the program's has come. `Some(true)`: the card sleeps, and its doorbell is to be rung;
    /// `None`: it is about something else.
    ///
    /// # Errors
    /// [`Refusal`]: nothing of the frame has reached the card.
    pub(super) fn frame(&mut self, frame: &Frame<&[u8]>) -> Result<Option<bool>, Refusal> {
        match *frame {
            Frame::DmaWrite { address, data } => {
                self.attached.came(address, data).then_some(()).ok_or(Refusal::List)?;
            }
            Frame::RingEntries { ring, first, data } => {
                let list = |entry: &Entry| {
                    let command = command_of(entry)?;
                    Refers::of(&command.operation).list.map(|list| list.0)
                };
                let run = self.attached.run(ring, first, data, list);
                return self.arrived(&run.ok_or(Refusal::List)?).map(Some);
            }
            Frame::RingConsumed { ring, index } => self.consumed(kind_of(ring), index)?,
            Frame::RingWaits { ring } => {
                if kind_of(ring) != RingKind::Command {
                    return Err(Refusal::OwnRing);
                }
                self.peer_wants_room = true;
                self.mind_room();
            }
            _ => return Ok(None),
        }
        Ok(Some(false))
    }

    /// The program has taken entries.
    pub(super) fn consumed(&mut self, kind: RingKind, index: u32) -> Result<(), Refusal> {
        let (taken, before) = (self.taken[kind.index()], self.program_taken[kind.index()]);
        let is_known = index.wrapping_sub(before) <= taken.wrapping_sub(before);
        if kind == RingKind::Command || !is_known {
            return Err(Refusal::Consumed);
        }
        self.program_taken[kind.index()] = index;
        // If there is still no room for what there is, that is said again.
        (self.wants_room[kind.index()], self.wish_is_told) = (false, false);
        Ok(())
    }

    /// Commands have come from the program: they are put into the card's ring. `true`: the card sleeps.
    pub(super) fn arrived(&mut self, run: &Run) -> Result<bool, Refusal> {
        if run.ring != RingKind::Command {
            return Err(Refusal::OwnRing);
        }
        if run.first != self.put {
            return Err(Refusal::Order);
        }
        let room = self.rings.entries(RingKind::Command) - self.put.wrapping_sub(self.told);
        if run.items.len() > room as usize {
            return Err(Refusal::NoRoom);
        }
        let checked: Result<Vec<_>, _> = run.items.iter().map(|item| self.check(item)).collect();
        let checked = checked?;
        let launches = checked.iter().filter(|(_, refers)| refers.message.is_some()).count();
        if self.messages.len() + launches > MESSAGES_MAX {
            return Err(Refusal::Messages);
        }
        for (item, (tag, refers)) in run.items.iter().zip(checked) {
            if let Some((address, list)) = &item.attached {
                self.rings.write(*address, list).ok_or(Refusal::List)?;
            }
            refers.message.map(|message| self.messages.insert(tag, message));
            if CommandEntry::is_quiet(&item.entry) && self.quiet.len() < QUIET_MAX {
                self.quiet.insert(tag);
            }
            self.rings.put(RingKind::Command, self.put, &item.entry);
            self.put = self.put.wrapping_add(1);
        }
        self.rings.set_word(RingKind::Command, RingHeader::PRODUCER, self.put);
        self.mind_room();
        // The card stores that it sleeps, fences, and looks at the index, which was stored before the
        // fence of `mind_room`. One of the two sees the other.
        Ok(self.rings.word(RingKind::Command, RingHeader::CONSUMER_SLEEPS) != 0)
    }

    /// What a command's tag is and what it refers to, if the card may see it.
    fn check(&self, item: &Item) -> Result<(u64, Refers), Refusal> {
        let command = command_of(&item.entry).ok_or(Refusal::NoCommand)?;
        let refers = Refers::of(&command.operation);
        let came = item.attached.as_ref().map(|(address, list)| (*address, list.len() as u64));
        let is_small = came.is_none_or(|(_, bytes)| bytes <= ATTACHED_MAX as u64);
        let is_within = |at: Option<(u64, u64)>| {
            at.is_none_or(|(address, bytes)| self.rings.holds(address, bytes))
        };
        let is_there = refers.list == came && is_small;
        if !is_there || !is_within(refers.list) || !is_within(refers.message) {
            return Err(Refusal::List);
        }
        let list = item.attached.as_ref().map_or(&[][..], |(_, list)| list);
        if !stays_on_card(&command.operation, list) {
            return Err(Refusal::Beyond);
        }
        Ok((command.tag, refers))
    }

    /// Has the card tell when it takes commands, if the program has to know of that.
    fn mind_room(&self) {
        let open = self.put.wrapping_sub(self.told);
        let half = self.rings.entries(RingKind::Command) / 2;
        let minds = open > 0 && (self.peer_wants_room || open >= half);
        self.rings.set_word(RingKind::Command, RingHeader::PRODUCER_WAITS, minds.into());
        fence(Ordering::SeqCst);
    }

    /// What is to be told to the program next, if there is something.
    ///
    /// # Errors
    /// [`CardBroken`]: nothing of the card can be believed any more.
    pub(super) fn poll(&mut self) -> Result<Option<News>, CardBroken> {
        let consumed = self.rings.word(RingKind::Command, RingHeader::CONSUMER);
        if self.put.wrapping_sub(consumed) > self.put.wrapping_sub(self.told) {
            return Err(CardBroken(RingKind::Command));
        }
        let mut runs = Vec::new();
        for kind in INCOMING {
            runs.extend(self.take(kind)?);
        }
        let waiting = INCOMING.into_iter().find(|kind| self.wants_room[kind.index()]);
        let waits = waiting.filter(|_| !self.wish_is_told);
        let mut news = News { consumed: Vec::new(), runs, waits };
        if self.is_worth_telling(consumed) {
            self.told = consumed;
            // Who still waits for room says so again.
            self.peer_wants_room = false;
            news.consumed.push((RingKind::Command, consumed));
        }
        self.wish_is_told = waiting.is_some();
        if news == News::default() {
            return Ok(None);
        }
        self.mind_room();
        Ok(Some(news))
    }

    /// Whether the program should know that the card has taken commands so far.
    fn is_worth_telling(&self, consumed: u32) -> bool {
        let more = consumed.wrapping_sub(self.told);
        more >= self.rings.entries(RingKind::Command) / 4 || more > 0 && self.peer_wants_room
    }

    fn published(&self, kind: RingKind) -> u32 {
        self.rings.word(kind, RingHeader::PRODUCER)
    }

    /// Takes entries out of a ring of the card's, as far as the program has room for them.
    fn take(&mut self, kind: RingKind) -> Result<Option<Run>, CardBroken> {
        let index = kind.index();
        let entries = self.rings.entries(kind);
        let first = self.taken[index];
        let waiting = self.published(kind).wrapping_sub(first);
        if waiting > entries {
            return Err(CardBroken(kind));
        }
        let room = entries - first.wrapping_sub(self.program_taken[index]);
        let sendable = self.whole_records(kind, waiting, waiting.min(room));
        self.wants_room[index] = sendable < waiting;
        let most = sendable.min(ITEMS_MAX as u32);
        let count = match self.whole_records(kind, waiting, most) {
            // Longer than any frame: the driver has no room for such a group either.
            0 => most,
            count => count,
        };
        let (mut items, mut attached) = (Vec::new(), 0);
        while items.len() < count as usize && attached < ATTACHED_SOFT_MAX {
            let entry = self.rings.entry(kind, self.taken[index]);
            let text = if kind == RingKind::Completion { self.completed(&entry) } else { None };
            attached += text.as_ref().map_or(0, |(_, text)| text.len());
            items.push(Item { entry, attached: text });
            self.taken[index] = self.taken[index].wrapping_add(1);
        }
        if items.is_empty() {
            return Ok(None);
        }
        self.rings.set_word(kind, RingHeader::CONSUMER, self.taken[index]);
        // Stored before the look whether the card waits for it.
        fence(Ordering::SeqCst);
        self.room_made |=
            waiting == entries || self.rings.word(kind, RingHeader::PRODUCER_WAITS) != 0;
        Ok(Some(Run { ring: kind, first, items }))
    }

    /// The most entries, of so many, that end with a whole record: the records of a group of faults
    /// travel together, since the driver looks for them at once.
    fn whole_records(&self, kind: RingKind, waiting: u32, most: u32) -> u32 {
        let goes_on = |count: u32| {
            let entry = self.rings.entry(kind, self.taken[kind.index()].wrapping_add(count));
            matches!(FaultRecord::from_entry(&entry), Ok(FaultRecord::Ranges(..)))
        };
        let mut count = most;
        while kind == RingKind::Fault && count > 0 && count < waiting && goes_on(count) {
            count -= 1;
        }
        count
    }

    /// A command is complete: the text that the card has written for it, if it was a launch, and where.
    fn completed(&mut self, entry: &Entry) -> Option<(u64, Vec<u8>)> {
        self.quiet.remove(&entry[0]);
        let completion = CompletionEntry::from_entry(entry).ok()?;
        let (address, bytes) = self.messages.remove(&completion.tag)?;
        self.ended.push(completion.tag);
        let length = u64::from(completion.message_bytes).min(bytes).min(ATTACHED_MAX as u64);
        let text = self.rings.read(address, length as usize)?;
        (!text.is_empty()).then_some((address, text))
    }

    /// Whether a launch with this tag is under way.
    pub(super) fn is_open(&self, launch: u64) -> bool {
        self.messages.contains_key(&launch)
    }

    /// The launches whose completions were taken since this was asked.
    pub(super) fn ended(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.ended)
    }

    /// Whether completions will come that raise no interrupt: they are to be looked for.
    pub(super) fn expects_quiet_news(&self) -> bool {
        !self.quiet.is_empty()
    }

    /// Whether the card waits for room that was made: its doorbell is to be rung.
    pub(super) fn has_made_room(&mut self) -> bool {
        std::mem::take(&mut self.room_made)
    }

    /// Says that the card need not interrupt, because this looks by itself.
    pub(super) fn awake(&self) {
        for kind in INCOMING {
            self.rings.set_word(kind, RingHeader::CONSUMER_SLEEPS, 0);
        }
    }

    /// Says that the card is to interrupt for its next entry. `false`: there is one that can be sent.
    ///
    /// The card publishes an entry, fences, and reads what is stored here; this stores, fences, and looks
    /// for entries. One of the two sees the other.
    pub(super) fn may_sleep(&self) -> bool {
        for kind in INCOMING {
            self.rings.set_word(kind, RingHeader::CONSUMER_SLEEPS, 1);
        }
        fence(Ordering::SeqCst);
        let consumed = self.rings.word(RingKind::Command, RingHeader::CONSUMER);
        !self.is_worth_telling(consumed)
            && INCOMING.iter().all(|&kind| {
                let index = kind.index();
                // What the program has no room for waits until it tells of some.
                self.published(kind) == self.taken[index] || self.wants_room[index]
            })
    }
}
