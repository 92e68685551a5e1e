//! A card as the harness knows it: a TLB, a ring, a fault buffer and access counters.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use farside_svm::{RingOp, Step, StepErrorKind};
use farside_types::{CardId, FaultId, PageNo, Rights, Time};

use crate::memory::Translation;
use crate::port::Port;

/// A command in the ring.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub(crate) step: Step<RingOp>,
    /// For a mapping: the life of the memory when it was handed out.
    pub(crate) generation: u32,
    /// The card refuses it, when it comes to it.
    pub(crate) refused: Option<StepErrorKind>,
}

/// A card.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) id: CardId,
    pub(crate) lost: bool,
    /// Where it is plugged in, if it is behind registers and rings. Its tables are then what it was
    /// told, and its ring the commands that have not completed.
    pub(crate) port: Option<Box<Port>>,
    /// It is behind registers and rings, also while it is gone.
    pub(crate) behind_rings: bool,
    /// The ring stands still until a reset.
    pub(crate) stalled: bool,
    /// The driver called it suspect; a reset is on its way.
    pub(crate) suspect: bool,
    /// A stall or a silent copy since the last reset: frames may be quarantined.
    pub(crate) doubtful: bool,
    /// It was reset, and no quiet point was reached since: the driver may still have to end what
    /// others had begun with its memory.
    pub(crate) recovering: bool,
    /// It does not answer, or has stopped, since the last reset: it has to be reset.
    pub(crate) deaf: bool,
    /// It refused to let go of something before anything that comes next, and stands still therefore.
    pub(crate) halted: bool,
    /// Pages whose translations it refused to take.
    pub(crate) not_mapped: BTreeSet<PageNo>,
    /// It refused to take an answer to its faults, since the last reset.
    pub(crate) answers_refused: bool,
    /// Pages that it did not let go in time: until a reset its accesses to them are nobody's.
    pub(crate) given_up: BTreeSet<PageNo>,
    /// Pages that it could write and was told to let go while its ring stood still, since the last
    /// reset: the ring goes on, and the answers may come too late.
    pub(crate) late: BTreeSet<PageNo>,
    pub(crate) tlb: BTreeMap<PageNo, Translation>,
    /// Entries of its translation tables, from which the TLB is filled: whether each says that its page was
    /// written since it came. They stay when a translation falls out of the TLB.
    pub(crate) written: BTreeMap<PageNo, (Translation, bool)>,
    pub(crate) ring: VecDeque<Queued>,
    /// The ring's next step is on the agenda.
    pub(crate) ring_scheduled: bool,
    /// The command at the head has begun: translations are gone, the drain goes on.
    pub(crate) head_begun: bool,
    /// Completions come in order: none before this.
    pub(crate) last_completion: Time,
    /// Faults that the driver was not told of yet.
    pub(crate) fault_buffer: Vec<FaultId>,
    pub(crate) flush_scheduled: bool,
    pub(crate) tick_scheduled: bool,
    /// Jobs that run.
    pub(crate) running: u32,
    /// Remote accesses per group of 16 pages.
    pub(crate) counters: BTreeMap<u64, u32>,
}

impl Card {
    pub(crate) fn new(id: CardId) -> Card {
        Card {
            id,
            lost: false,
            port: None,
            behind_rings: false,
            stalled: false,
            suspect: false,
            doubtful: false,
            recovering: false,
            deaf: false,
            halted: false,
            not_mapped: BTreeSet::new(),
            answers_refused: false,
            given_up: BTreeSet::new(),
            late: BTreeSet::new(),
            tlb: BTreeMap::new(),
            written: BTreeMap::new(),
            ring: VecDeque::new(),
            ring_scheduled: false,
            head_begun: false,
            last_completion: Time::ZERO,
            fault_buffer: Vec::new(),
            flush_scheduled: false,
            tick_scheduled: false,
            running: 0,
            counters: BTreeMap::new(),
        }
    }

    /// A translation comes. Whoever waited in vain for the page knows of an invalidation that stands
    /// in the ring yet: only that ends what the card may still read.
    pub(crate) fn enter(&mut self, page: PageNo, entry: Translation) {
        if !self.will_unmap(page) {
            self.given_up.remove(&page);
        }
        self.not_mapped.remove(&page);
        self.tlb.insert(page, entry);
        let stays = |(former, written): &(Translation, bool)| *written && former.same_place(&entry);
        let written = self.written.get(&page).is_some_and(stays);
        self.written.insert(page, (entry, written));
    }

    /// A translation goes, if there is one, and with it what was known of an old one.
    pub(crate) fn forget(&mut self, page: PageNo) -> Option<Translation> {
        self.given_up.remove(&page);
        self.tlb.remove(&page)
    }

    /// Whether an invalidation of the page waits in the ring.
    pub(crate) fn will_unmap(&self, page: PageNo) -> bool {
        self.ring.iter().any(|queued| match &queued.step.op {
            RingOp::Unmap { runs, .. } => runs.iter().any(|run| run.pages().contains(page)),
            _ => false,
        })
    }

    /// The strongest rights of the translations of a page that it has, or that wait in the ring.
    pub(crate) fn rights(&self, page: PageNo) -> Option<Rights> {
        let waiting = self.ring.iter().filter_map(|queued| match &queued.step.op {
            RingOp::Map { runs, rights, .. } => {
                runs.iter().any(|run| run.pages().contains(page)).then_some(*rights)
            }
            _ => None,
        });
        waiting.chain(self.tlb.get(&page).map(|entry| entry.rights)).max()
    }

    /// Whether a stale translation of the page is harmless: nothing runs, and the invalidation
    /// stands in the ring before any later launch.
    pub(crate) fn stale_is_harmless(&self, page: PageNo) -> bool {
        self.lost || (self.running == 0 && (self.halted || self.will_unmap(page)))
    }
}
