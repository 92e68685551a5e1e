//! The rings beside the program: what its driver puts in is taken out and sent, what arrives is put in.
//!
//! To the driver this is the card: it takes commands, writes completions, faults and notices, and heeds
//! the flags of both. Bound to the other end by credits alone: as many commands are on their way as its
//! ring holds, as many entries come as the driver's rings have room for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use farside_card::interface::{CompletionEntry, Entry, RING_COUNT, RingHeader, RingKind};
use farside_link::Frame;
use farside_linux::shared::SharedMemory;
use thiserror::Error;

use super::entries::{ATTACHED_SOFT_MAX, Attached, ITEMS_MAX, Item, News, Run, kind_of};
use super::refers::{Refers, command_of};
use super::rings::{RingRegisters, Rings};

/// The end beside the card has sent what cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Nonsense {
    /// More entries than there is room for.
    #[error("more entries came than the {} ring has room for", .0.name())]
    NoRoom(RingKind),
    /// Entries of the ring that the driver fills.
    #[error("entries came for the driver's own ring")]
    OwnRing,
    /// It has taken commands that were not sent.
    #[error("more commands were taken than were sent")]
    Consumed,
    /// Entries that are none, or do not follow those before, or memory that none of them refers to.
    #[error("entries came that are none, or in the wrong order")]
    Malformed,
}

/// Rings that the card fills.
pub(super) const INCOMING: [RingKind; 3] =
    [RingKind::Completion, RingKind::Fault, RingKind::Notice];

/// See the module.
#[derive(Debug)]
pub(crate) struct Mirror {
    rings: Rings,
    /// Commands that were taken out of the driver's ring and sent.
    sent: u32,
    /// Of them, those that the card has taken.
    taken: u32,
    /// Entries that were put into the driver's rings.
    written: [u32; RING_COUNT],
    /// How far the other end knows that the driver has taken them.
    told: [u32; RING_COUNT],
    /// The other end has no room for what it has.
    peer_wants_room: bool,
    /// It was told that this end has commands, and no room for them there.
    wish_is_told: bool,
    /// Where launches want their messages: address and bytes, by tag.
    messages: HashMap<u64, (u64, u64)>,
    /// Messages whose completions have not come.
    attached: Attached,
}

impl Mirror {
    /// The rings that a driver has set up in memory at a bus address; `None` if they are none.
    pub(crate) fn new(
        memory: Arc<SharedMemory>,
        bus: u64,
        registers: &RingRegisters,
    ) -> Option<Mirror> {
        let rings = Rings::new(memory, bus, registers)?;
        Some(Mirror {
            rings,
            sent: 0,
            taken: 0,
            written: [0; RING_COUNT],
            told: [0; RING_COUNT],
            peer_wants_room: false,
            wish_is_told: false,
            messages: HashMap::new(),
            attached: Attached::default(),
        })
    }

    /// How many commands the driver has published.
    pub(crate) fn published(&self) -> u32 {
        self.rings.word(RingKind::Command, RingHeader::PRODUCER)
    }

    /// Says that the driver need not ring, because this looks by itself.
    pub(crate) fn awake(&self) {
        self.rings.set_word(RingKind::Command, RingHeader::CONSUMER_SLEEPS, 0);
    }

    /// Says that the driver is to ring for its next command, beyond those up to `known`. `false`: there
    /// is one.
    ///
    /// The driver publishes, fences, and looks at what is stored here; this stores, fences, and looks at
    /// what it has published. One of the two sees the other.
    pub(crate) fn may_sleep(&self, known: u32) -> bool {
        self.rings.set_word(RingKind::Command, RingHeader::CONSUMER_SLEEPS, 1);
        fence(Ordering::SeqCst);
        self.published() == known
    }

    /// Commands that were sent.
    pub(crate) fn sent(&self) -> u32 {
        self.sent
    }

    /// Whether commands up to this index were all sent.
    pub(crate) fn has_sent(&self, until: u32) -> bool {
        // Indices wrap; a ring is far shorter than half of their range.
        until.wrapping_sub(self.sent) as i32 <= 0
    }

    fn room(&self) -> u32 {
        let entries = self.rings.entries(RingKind::Command);
        entries.saturating_sub(self.sent.wrapping_sub(self.taken))
    }

    /// What is to be told next, with commands up to the index `until` as far as the other end has room.
    /// `None`: nothing.
    pub(crate) fn poll(&mut self, until: u32) -> Option<News> {
        let count = until.wrapping_sub(self.sent).min(self.room()).min(ITEMS_MAX as u32);
        let wants_room = count == 0 && !self.has_sent(until);
        let tells_wish = wants_room && !self.wish_is_told;
        let consumed = self.worth_telling();
        if count == 0 && !tells_wish && consumed.is_empty() {
            return None;
        }
        let run = (count > 0).then(|| self.take_commands(count));
        self.wish_is_told = wants_room;
        for &(kind, index) in &consumed {
            self.told[kind.index()] = index;
            // Who still waits for room says so again.
            self.peer_wants_room = false;
        }
        self.mind_room();
        let waits = tells_wish.then_some(RingKind::Command);
        Some(News { consumed, runs: run.into_iter().collect(), waits })
    }

    fn take_commands(&mut self, count: u32) -> Run {
        let first = self.sent;
        let (mut items, mut attached) = (Vec::with_capacity(count as usize), 0);
        while items.len() < count as usize && attached < ATTACHED_SOFT_MAX {
            let item = self.take_command();
            attached += item.attached.as_ref().map_or(0, |(_, bytes)| bytes.len());
            items.push(item);
        }
        Run { ring: RingKind::Command, first, items }
    }

    /// Whether the driver waits for room in its ring of commands. Asked after commands were taken.
    pub(crate) fn driver_waits(&self) -> bool {
        // The driver stores that it waits, fences, and looks what was taken; that was stored before.
        fence(Ordering::SeqCst);
        self.rings.word(RingKind::Command, RingHeader::PRODUCER_WAITS) != 0
    }

    fn take_command(&mut self) -> Item {
        let entry = self.rings.entry(RingKind::Command, self.sent);
        let mut attached = None;
        if let Some(command) = command_of(&entry) {
            let refers = Refers::of(&command.operation);
            attached = refers
                .list
                .and_then(|(at, bytes)| Some((at, self.rings.read(at, bytes as usize)?)));
            if let Some(message) = refers.message {
                self.messages.insert(command.tag, message);
            }
        }
        self.sent = self.sent.wrapping_add(1);
        self.rings.set_word(RingKind::Command, RingHeader::CONSUMER, self.sent);
        Item { entry, attached }
    }

    /// How far the driver has taken entries out of its rings, where the other end should know.
    fn worth_telling(&self) -> Vec<(RingKind, u32)> {
        let consumed = |kind| (kind, self.rings.word(kind, RingHeader::CONSUMER));
        let is_worth = |&(kind, index): &(RingKind, u32)| {
            let more = index.wrapping_sub(self.told[kind.index()]);
            more >= self.rings.entries(kind) / 4 || more > 0 && self.peer_wants_room
        };
        INCOMING.into_iter().map(consumed).filter(is_worth).collect()
    }

    /// Has the driver ring when it makes room that the other end has to be told of.
    fn mind_room(&self) {
        for kind in INCOMING {
            let open = self.written[kind.index()].wrapping_sub(self.told[kind.index()]);
            let minds = open > 0 && (self.peer_wants_room || open >= self.rings.entries(kind) / 2);
            self.rings.set_word(kind, RingHeader::PRODUCER_WAITS, minds.into());
        }
        // Stored, fenced; whoever calls looks at what the driver has taken before it sleeps.
        fence(Ordering::SeqCst);
    }

    /// Whether there is something to be told, apart from commands.
    pub(crate) fn has_news(&self) -> bool {
        !self.worth_telling().is_empty()
    }

    /// A frame of the other end's has come. `Some(true)`: the driver is to be woken; `None`: it is about
    /// something else.
    ///
    /// # Errors
    /// [`Nonsense`]: nothing of the other end can be believed any more.
    pub(crate) fn frame(&mut self, frame: &Frame<&[u8]>) -> Result<Option<bool>, Nonsense> {
        match *frame {
            Frame::DmaWrite { address, data } => {
                self.attached.came(address, data).then_some(()).ok_or(Nonsense::Malformed)?;
            }
            Frame::RingEntries { ring, first, data } => {
                let messages = &self.messages;
                let wanted = |entry: &Entry| messages.get(&entry[0]).map(|message| message.0);
                let run = self.attached.run(ring, first, data, wanted);
                return self.arrived(&run.ok_or(Nonsense::Malformed)?).map(Some);
            }
            Frame::RingConsumed { ring, index } => self.consumed(kind_of(ring), index)?,
            Frame::RingWaits { ring } => {
                if kind_of(ring) == RingKind::Command {
                    return Err(Nonsense::OwnRing);
                }
                self.peer_wants_room = true;
                self.mind_room();
            }
            _ => return Ok(None),
        }
        Ok(Some(false))
    }

    /// The card has taken commands.
    pub(super) fn consumed(&mut self, kind: RingKind, index: u32) -> Result<(), Nonsense> {
        let is_known = index.wrapping_sub(self.taken) <= self.sent.wrapping_sub(self.taken);
        if kind != RingKind::Command || !is_known {
            return Err(Nonsense::Consumed);
        }
        self.taken = index;
        // If there is still no room for what there is, that is said again.
        self.wish_is_told = false;
        Ok(())
    }

    /// Entries have come: they are put into the driver's rings. `true`: the driver is to be woken.
    pub(super) fn arrived(&mut self, run: &Run) -> Result<bool, Nonsense> {
        let kind = run.ring;
        if kind == RingKind::Command {
            return Err(Nonsense::OwnRing);
        }
        if run.first != self.written[kind.index()] {
            return Err(Nonsense::Malformed);
        }
        for item in &run.items {
            self.put(kind, item)?;
        }
        // Published together: the records of a group are looked for at once.
        self.rings.set_word(kind, RingHeader::PRODUCER, self.written[kind.index()]);
        self.mind_room();
        // The driver stores that it sleeps, fences, and looks at what was published; `mind_room` has
        // fenced behind that.
        Ok(self.rings.word(kind, RingHeader::CONSUMER_SLEEPS) != 0)
    }

    fn put(&mut self, kind: RingKind, item: &Item) -> Result<(), Nonsense> {
        let index = self.written[kind.index()];
        let open = index.wrapping_sub(self.rings.word(kind, RingHeader::CONSUMER));
        if open >= self.rings.entries(kind) {
            return Err(Nonsense::NoRoom(kind));
        }
        if kind == RingKind::Completion {
            self.put_message(item);
        }
        self.rings.put(kind, index, &item.entry);
        self.written[kind.index()] = index.wrapping_add(1);
        Ok(())
    }

    /// A launch's message, which the card would have written before its completion.
    fn put_message(&mut self, item: &Item) {
        let [tag, ..] = item.entry;
        let Some((address, bytes)) = self.messages.remove(&tag) else { return };
        let Some((_, text)) = &item.attached else { return };
        let length = text.len().min(bytes as usize);
        if CompletionEntry::from_entry(&item.entry).is_ok() {
            // The driver's own address: if it is wrong, nothing is written.
            let _ = self.rings.write(address, &text[..length]);
        }
    }
}
