//! Direct links between cards of different lenders: made in a thread of their own as soon as both cards are
//! there, and again after they have failed. Until then, and meanwhile, pages between such cards go through this
//! program.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use farside_linux::signals::block_for_whole_thread;
use farside_svm::Event;
use farside_types::{CardId, MAX_CARDS, PAGE_SIZE};

use super::{Port, Runtime};
use crate::ring_card::{RingCard, TransportError};

/// How soon after it has failed a direct link is made again; then after twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// At most.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Something for the thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// A direct link has failed.
    Failed(Pair),
    /// A card is another one than before.
    Card(CardId),
    /// There are no cards any more.
    End,
}

/// Where the thread is told.
pub(super) type Changes = Sender<Change>;

/// A direct link, in its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    from: CardId,
    to: CardId,
}

impl Pair {
    /// By which both ends know of it.
    fn number(self) -> u32 {
        u32::from(self.from.0) * MAX_CARDS as u32 + u32::from(self.to.0)
    }
}

/// What is known of a direct link.
#[derive(Debug)]
struct Known {
    pair: Pair,
    /// When it is to be made; none while it works.
    due: Option<Instant>,
    pause: Duration,
}

impl Runtime {
    /// Has direct links made between all cards that may have any.
    pub(crate) fn make_direct_links(self: &Arc<Self>) {
        let linked: Vec<CardId> =
            self.rings().filter(|ring| may_have(ring)).map(|ring| ring.id).collect();
        let pairs = linked.iter().flat_map(|&from| {
            let others = linked.iter().filter(move |&&to| to != from);
            others.map(move |&to| Pair { from, to })
        });
        let now = Instant::now();
        let known = |pair| Known { pair, due: Some(now), pause: FIRST_PAUSE };
        let known: Vec<Known> = pairs.map(known).collect();
        if known.is_empty() {
            return;
        }
        let (changes, told) = channel();
        let _ = self.direct.set(changes.clone());
        let runtime = Arc::downgrade(self);
        let run = move || {
            block_for_whole_thread();
            Direct { runtime, known, changes, told }.run();
        };
        let started = std::thread::Builder::new().name("farside-direct".into()).spawn(run);
        if let Err(error) = started {
            tracing::warn!(%error, "no thread can make direct links between borrowed cards");
        }
    }

    /// A card has been taken back: its direct links are none any more.
    pub(super) fn card_is_another(&self, card: CardId) {
        self.tell_direct(Change::Card(card));
    }

    /// No more direct links are made.
    pub(crate) fn end_direct_links(&self) {
        self.tell_direct(Change::End);
    }

    fn tell_direct(&self, change: Change) {
        if let Some(direct) = self.direct.get() {
            // If the thread is gone, so are all of them.
            let _ = direct.send(change);
        }
    }
}

fn may_have(ring: &RingCard) -> bool {
    let transport = ring.transport();
    let link = transport.as_ref().and_then(|transport| transport.as_link());
    link.is_some_and(|link| link.may_have_direct_links())
}

struct Direct {
    runtime: Weak<Runtime>,
    known: Vec<Known>,
    changes: Changes,
    told: Receiver<Change>,
}

impl Direct {
    fn run(mut self) {
        loop {
            let now = Instant::now();
            let due = |known: &Known| known.due.is_some_and(|due| due <= now);
            if let Some(at) = self.known.iter().position(due) {
                self.make(at);
                continue;
            }
            let next = self.known.iter().filter_map(|known| known.due).min();
            let left = next.map_or(PAUSE_MAX, |next| next - now);
            match self.told.recv_timeout(left) {
                Ok(Change::Failed(pair)) => self.failed(pair),
                Ok(Change::Card(card)) => self.is_another(card),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Change::End) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn make(&mut self, at: usize) {
        let Known { pair, due, pause } = &mut self.known[at];
        let pair = *pair;
        match link(&self.runtime, pair, &self.changes) {
            Some(Ok(())) => {
                tracing::info!(from = %pair.from, to = %pair.to, "pages go directly between two cards");
                (*due, *pause) = (None, FIRST_PAUSE);
                self.say(pair, true);
            }
            Some(Err(why)) => {
                let (from, to) = (pair.from, pair.to);
                tracing::info!(%from, %to, %why, "pages between two cards go through this program");
                *due = Some(Instant::now() + *pause);
                *pause = (*pause * 2).min(PAUSE_MAX);
            }
            // One of the cards is away: it says when it is back.
            None => *due = None,
        }
    }

    fn failed(&mut self, pair: Pair) {
        self.say(pair, false);
        let is_it = |known: &&mut Known| known.pair == pair && known.due.is_none();
        if let Some(known) = self.known.iter_mut().find(is_it) {
            known.due = Some(Instant::now() + known.pause);
        }
    }

    fn is_another(&mut self, card: CardId) {
        for at in 0..self.known.len() {
            let pair = self.known[at].pair;
            if pair.from == card || pair.to == card {
                self.say(pair, false);
                (self.known[at].due, self.known[at].pause) = (Some(Instant::now()), FIRST_PAUSE);
            }
        }
    }

    fn say(&self, pair: Pair, works: bool) {
        if let Some(runtime) = self.runtime.upgrade() {
            runtime.handle(Event::Link { from: pair.from, to: pair.to, works });
        }
    }
}

/// Makes a direct link; nothing if one of the cards is away.
fn link(
    runtime: &Weak<Runtime>,
    pair: Pair,
    changes: &Changes,
) -> Option<Result<(), TransportError>> {
    let (from, to, window) = {
        let runtime = runtime.upgrade()?;
        let transport = |card: CardId| match &runtime.ports[card.0 as usize] {
            Port::Ring(ring) => ring.transport().map(|transport| (Arc::clone(ring), transport)),
            Port::InProgram(_) => None,
        };
        let ((_, from), (ring, to)) = (transport(pair.from)?, transport(pair.to)?);
        let frames = runtime.memories.card(pair.from).count();
        (from, to, ring.window_of(pair.from, u64::from(frames) * PAGE_SIZE as u64))
    };
    let changes = changes.clone();
    let failed = move || {
        let _ = changes.send(Change::Failed(pair));
    };
    // The runtime may go meanwhile, and with it the links.
    Some(to.as_link()?.link_to(from.as_link()?, pair.number(), window, Arc::new(failed)))
}
