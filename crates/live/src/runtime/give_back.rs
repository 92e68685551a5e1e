//! Giving a card back in order, before it goes to somebody else: its kernels end, what is only there comes
//! to the host, and then it is let go.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farside_svm::{Driver, Request};
use farside_types::{CardId, MemoryId, PageRange};

use super::{Port, Runtime};
use crate::error::LiveError;
use crate::ring_card::{RingCard, TransportError};
use farside_linux::lock::lock;
use farside_linux::signals::{BlockedSignals, block_for_whole_thread};
use farside_softcard::Stop;

/// How a card was given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenBack {
    /// Kernels that had to be stopped for it.
    pub jobs_stopped: u64,
    /// Pages that were only there, and are with the host now.
    pub pages_moved: u64,
    /// Pages that were only there and could not be moved in time: accesses to them fail.
    pub pages_lost: u64,
}

/// The part of the time until a card is wanted back that is kept for what takes longer.
const SPARE: u32 = 8;

/// Between two looks at what is left.
const PAUSE: Duration = Duration::from_millis(1);

impl Runtime {
    /// Gives a card back until `end`: it gets no more kernels; those that run have half of the time, and
    /// are stopped then; pages that are only there are moved to the host; and it is let go, whatever it
    /// has come to by then. Nothing of the program reaches it any more.
    ///
    /// # Errors
    /// [`LiveError::NoSuchCard`]; [`LiveError::WrongProcess`] after a fork; [`LiveError::Card`] for a card
    /// in the program.
    pub fn give_back(&self, card: CardId, end: Instant) -> Result<GivenBack, LiveError> {
        self.check_process()?;
        let cards = self.card_count();
        let port = self.ports.get(card.0 as usize).ok_or(LiveError::NoSuchCard { card, cards })?;
        let Port::Ring(ring) = port else {
            let what = "a card in the program is part of it, and is given back to nobody";
            let error = TransportError::Unfit { what: what.to_owned() };
            return Err(LiveError::Card { card, error });
        };
        let _signals = BlockedSignals::block();
        ring.leave();
        let half = Instant::now() + end.saturating_duration_since(Instant::now()) / 2;
        let jobs_stopped = self.end_jobs(card, half, end);
        let before = self.inspect(|driver| pages(&only_there(driver, card.memory())))?;
        let left = self.evacuate(ring, end)?;
        Ok(GivenBack { jobs_stopped, pages_moved: before.saturating_sub(left), pages_lost: left })
    }

    /// Gives cards back that are wanted back, each by a thread of its own: nothing else is to wait for it.
    pub(crate) fn look_after_recalls(&self) {
        if !self.recalled.swap(false, Ordering::SeqCst) {
            return;
        }
        for ring in self.rings() {
            let Some(left) = ring.wanted_back().filter(|_| ring.leave()) else { continue };
            let Some(runtime) = self.shared() else { return };
            let (card, end) = (ring.id, Instant::now() + left - left / SPARE);
            tracing::warn!(%card, place = %ring.place, ?left, "a card is wanted back");
            let name = format!("farside-give-{}", card.0);
            let started = std::thread::Builder::new().name(name).spawn(move || {
                block_for_whole_thread();
                match runtime.give_back(card, end) {
                    Ok(GivenBack { pages_lost: 0, .. }) => {}
                    Ok(given) => tracing::error!(%card, ?given, "pages are lost with a card"),
                    Err(error) => tracing::error!(%card, %error, "a card is not given back"),
                }
            });
            if let Err(error) = started {
                tracing::error!(%card, %error, "no thread can give the card back");
            }
        }
    }

    /// Waits for the kernels of a card, and stops those that run at `half`; gives how many these were.
    fn end_jobs(&self, card: CardId, half: Instant, end: Instant) -> u64 {
        let mut jobs = self.open_jobs();
        jobs.retain(|job| job.card == card);
        jobs.iter().for_each(|job| {
            job.wait(Some(half));
        });
        jobs.retain(|job| !job.is_done());
        jobs.iter().for_each(|job| self.stop_job(job, Stop::CardGone));
        jobs.iter().for_each(|job| {
            job.wait(Some(end));
        });
        jobs.len() as u64
    }

    /// Moves what is only on a card to the host, and lets the card go as soon as nothing is, or at the
    /// end. Gives the pages that are lost.
    fn evacuate(&self, ring: &RingCard, end: Instant) -> Result<u64, LiveError> {
        let memory = ring.id.memory();
        loop {
            {
                // Nothing comes there between this look and the loss.
                let core = lock(&self.core);
                let left = pages(&only_there(&core.driver.0, memory));
                if left == 0 || Instant::now() >= end || !ring.is_connected() {
                    self.lose_now(core, ring);
                    return Ok(left);
                }
            }
            // A pin keeps pages where they are, and there they cannot stay.
            for range in self.inspect(|driver| driver.pins_at(memory))? {
                self.try_request(Request::Unpin { range })?;
            }
            for range in self.inspect(|driver| only_there(driver, memory))? {
                self.try_request(Request::Migrate { range, to: MemoryId::HOST })?;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Asks the driver for something that may fail, and is then looked at again.
    fn try_request(&self, request: Request) -> Result<(), LiveError> {
        match self.request(request) {
            Err(LiveError::Request(error)) => {
                tracing::debug!(%error, "pages cannot leave a card yet");
                Ok(())
            }
            other => other.map(drop),
        }
    }
}

/// Pages of which a memory has the only copy.
fn only_there(driver: &Driver, memory: MemoryId) -> Vec<PageRange> {
    let objects = driver.objects();
    let parts = objects.into_iter().flat_map(|object| driver.locate(object.range));
    let only = parts.filter(|part| part.copies.contains(memory) && part.copies.len() == 1);
    only.map(|part| part.range).collect()
}

fn pages(ranges: &[PageRange]) -> u64 {
    ranges.iter().map(|range| range.count).sum()
}
