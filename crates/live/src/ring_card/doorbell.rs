//! The doorbell of a card that is a process: an eventfd, which the card has too, and may fill, empty and make
//! wait as it likes. Whoever rings it waits for nobody.
//!
//! The kernel rings it ([`EventSignal`]). Where that cannot be had it is written to after a look, and a ring
//! that the card makes wait all the same is freed by who looks now and then.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farside_linux::event_signal::EventSignal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::ReadWriteFlags;

/// How long a ring is helped at a time that a card makes wait.
const FREE_FOR: Duration = Duration::from_millis(200);

/// See the module.
pub(super) struct Doorbell {
    event: OwnedFd,
    signal: Option<EventSignal>,
    /// Beginnings and ends of rings by writing: odd while a thread rings.
    rings: AtomicU64,
    /// What [`Doorbell::free`] saw of it last.
    seen: AtomicU64,
    /// It has ended a ring that waited.
    was_freed: AtomicBool,
}

impl Doorbell {
    /// An eventfd that a card has given.
    pub(super) fn new(event: OwnedFd) -> Doorbell {
        let signal = EventSignal::new()
            .inspect_err(|error| tracing::debug!(%error, "a card's doorbell is written to"));
        Doorbell::by(event, signal.ok())
    }

    fn by(event: OwnedFd, signal: Option<EventSignal>) -> Doorbell {
        let (rings, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        Doorbell { event, signal, rings, seen, was_freed: AtomicBool::new(false) }
    }

    /// Wakes the card. `false`: it has made a ring wait, once since this was asked last.
    pub(super) fn ring(&self) -> bool {
        let signal = self.signal.as_ref();
        if signal.is_some_and(|signal| signal.signal(self.event.as_fd()).is_ok()) {
            return true;
        }
        if self.would_wait() {
            return true;
        }
        self.write();
        !self.was_freed.swap(false, Ordering::SeqCst)
    }

    fn write(&self) {
        self.rings.fetch_add(1, Ordering::SeqCst);
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        self.rings.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether a ring would wait now. A card that lies may have made its doorbell one that waits when it
    /// is full; full means that it has been rung often enough. Asking for the flag costs half of what
    /// asking for room does, and honest cards leave it set.
    fn would_wait(&self) -> bool {
        let flags = rustix::fs::fcntl_getfl(&self.event);
        if flags.is_ok_and(|flags| flags.contains(OFlags::NONBLOCK)) {
            return false;
        }
        let mut polled = [PollFd::new(&self.event, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        !matches!(poll(&mut polled, Some(&now)), Ok(1..))
    }

    /// Lets a ring go on that the card has made wait since this was called before.
    pub(super) fn free(&self) {
        let now = self.rings.load(Ordering::SeqCst);
        let before = self.seen.swap(now, Ordering::SeqCst);
        if now % 2 == 0 || now != before {
            return;
        }
        self.was_freed.store(true, Ordering::SeqCst);
        // It was filled between the look at it and the ring. Whoever empties it lets the ring end, unless
        // the card has filled it again before the thread that rings has woken: then it is emptied again.
        let until = Instant::now() + FREE_FOR;
        while self.rings.load(Ordering::SeqCst) == now && Instant::now() < until {
            self.empty();
            std::thread::yield_now();
        }
    }

    /// Waits for nothing, whatever the descriptor's flags say.
    fn empty(&self) {
        let mut count = [0; 8];
        let mut into = [IoSliceMut::new(&mut count)];
        let _ = rustix::io::preadv2(&self.event, &mut into, u64::MAX, ReadWriteFlags::NOWAIT);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    /// How long something may take that takes no time.
    const SOON: Duration = Duration::from_secs(5);

    /// A doorbell that is full, and made to wait for whoever empties it: nobody.
    fn full(signal: Option<EventSignal>) -> Arc<Doorbell> {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        Arc::new(Doorbell::by(event, signal))
    }

    /// Says when `body` has ended, beside this.
    fn ends(body: impl FnOnce() + Send + 'static) -> Receiver<()> {
        let (done, is_done) = channel();
        std::thread::spawn(move || {
            body();
            let _ = done.send(());
        });
        is_done
    }

    #[test]
    fn ringing_a_doorbell_that_is_full_waits_for_nobody() {
        for signal in [None, Some(EventSignal::new().unwrap())] {
            let bell = full(signal);
            let rung = ends(move || assert!(bell.ring()));
            assert!(rung.recv_timeout(SOON).is_ok(), "it waits for the card");
        }
    }

    #[test]
    fn a_ring_that_waits_all_the_same_is_freed_and_says_that_the_card_lies() {
        let bell = full(None);
        // It was filled between the look at it and the ring.
        let ringing = Arc::clone(&bell);
        let rung = ends(move || ringing.write());
        // The second look that finds the same ring frees it, and not a ring that has just begun.
        let end = Instant::now() + SOON;
        while rung.recv_timeout(Duration::from_millis(10)).is_err() {
            assert!(Instant::now() < end, "it waits for the card");
            bell.free();
        }
        rustix::io::ioctl_fionbio(&bell.event, true).unwrap();
        assert!(!bell.ring(), "nobody is told that the card made it wait");
        assert!(bell.ring(), "it is told once");
    }

    /// A card fills its doorbell again whenever somebody has emptied it.
    struct Fills {
        bell: Arc<Doorbell>,
        over: Arc<AtomicBool>,
        threads: Vec<std::thread::JoinHandle<()>>,
    }

    impl Fills {
        fn start(bell: &Arc<Doorbell>) -> Fills {
            let over = Arc::new(AtomicBool::new(false));
            let fill = |_| {
                let (event, over) = (bell.event.try_clone().unwrap(), Arc::clone(&over));
                std::thread::spawn(move || {
                    while !over.load(Ordering::SeqCst) {
                        let _ = rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes());
                    }
                })
            };
            let threads = (0..FILLERS).map(fill).collect();
            // They wait before anybody else does.
            std::thread::sleep(Duration::from_millis(50));
            Fills { bell: Arc::clone(bell), over, threads }
        }
    }

    impl Drop for Fills {
        fn drop(&mut self) {
            self.over.store(true, Ordering::SeqCst);
            for thread in self.threads.drain(..) {
                while !thread.is_finished() {
                    self.bell.empty();
                    std::thread::yield_now();
                }
            }
        }
    }

    /// Threads of a card that fill its doorbell.
    const FILLERS: usize = 64;

    #[test]
    fn a_card_that_fills_its_doorbell_again_and_again_makes_no_ring_wait() {
        let bell = full(Some(EventSignal::new().unwrap()));
        let fills = Fills::start(&bell);
        for _ in 0..100 {
            let bell = Arc::clone(&bell);
            let rung = ends(move || assert!(bell.ring()));
            assert!(rung.recv_timeout(SOON).is_ok(), "it waits for the card");
            fills.bell.empty();
        }
    }

    /// The control: a ring by writing waits for as long as the card leaves its doorbell full; whether it or the
    /// card is first when it is emptied is up to the kernel.
    #[test]
    fn such_a_card_makes_a_ring_wait_that_is_a_write() {
        let bell = full(None);
        let fills = Fills::start(&bell);
        let ringing = Arc::clone(&bell);
        let rung = ends(move || ringing.write());
        std::thread::sleep(Duration::from_millis(100));
        assert!(rung.try_recv().is_err(), "a write to a doorbell that is full waits for nobody");
        drop(fills);
        let end = Instant::now() + SOON;
        while rung.try_recv().is_err() {
            assert!(Instant::now() < end, "it is freed once nobody fills it");
            bell.empty();
            std::thread::yield_now();
        }
    }
}
