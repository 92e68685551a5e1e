//! A card behind registers and rings: a process of its own, or a device of the kernel's VFIO.
//!
//! The driver of the card interface (`docs/card-interface.md`): `link` is one connection,
//! `submit` turns the driver's commands into entries, `receive` turns what the card writes into
//! events, `control` is the memory they share, `bus_map` says where memories are on the card's
//! bus, and `transport` is what a bus has to offer.

mod answers;
mod bus_map;
mod by_link;
mod calls;
mod control;
mod descriptors;
mod doorbell;
mod link;
mod link_behind;
mod link_fetch;
mod link_shared;
mod link_worker;
mod messages;
mod place;
mod receive;
mod submit;
mod transport;
mod vfio;
mod vfio_user;

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farside_card::interface::register;
use farside_types::{CardId, CommandId, PAGE_SIZE};
use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll};
use rustix::io::Errno;

pub(crate) use bus_map::BusMap;
pub(crate) use control::Sizes;
pub use link::Identity;
pub(crate) use link::Link;
#[cfg(feature = "harness")]
pub(crate) use link::identify;
pub use messages::{CardStream, Dial, Dialled};
pub use place::connect;
pub use place::{CardPlace, PlaceError};
pub(crate) use receive::{Heard, Received};
#[cfg(feature = "harness")]
pub(crate) use receive::{fault_of, fault_on_card};
pub use transport::TransportError;
pub use transport::{DmaPiece, MoveOrder, Moved, PageMover, Transport, Watch};
pub(crate) use transport::{read_u32, read_u64};

use crate::error::LiveError;
use crate::memories::Memories;
use crate::window::WindowSizes;
use farside_linux::card_memory::CardMemory;
use farside_linux::lock::lock;

/// What says something about a connection: the card's interrupts, and when the card goes.
#[derive(Debug)]
pub(crate) struct Watched {
    /// The interrupts arrive here. A descriptor for each connection: a card that was given up keeps
    /// its own, and may raise what it likes.
    pub(crate) event: OwnedFd,
    /// Says when the card goes, if anything does.
    pub(crate) fd: Option<OwnedFd>,
    is_connection: bool,
    /// Interrupts in a row with which nothing came.
    empty: AtomicU32,
}

/// Interrupts in a row without anything to be said, at most. One that comes after what it is about
/// was found is usual; a card that raises so many does nothing else.
const EMPTY_INTERRUPTS_MAX: u32 = 20_000;

impl Watched {
    fn new(event: OwnedFd, watch: Option<Watch<'_>>) -> std::io::Result<Watched> {
        let (fd, is_connection) = match watch {
            Some(Watch::Connection(fd)) => (Some(fd.try_clone_to_owned()?), true),
            Some(Watch::Event(fd)) => (Some(fd.try_clone_to_owned()?), false),
            None => (None, false),
        };
        Ok(Watched { event, fd, is_connection, empty: AtomicU32::new(0) })
    }

    /// An interrupt has come; `false` if there are too many of them.
    pub(crate) fn interrupted(&self) -> bool {
        self.empty.fetch_add(1, Ordering::Relaxed) < EMPTY_INTERRUPTS_MAX
    }

    /// Something has come with them.
    fn is_useful(&self) {
        self.empty.store(0, Ordering::Relaxed);
    }

    /// What to wait for.
    pub(crate) fn flags(&self) -> epoll::EventFlags {
        // What arrives on a connection is of no interest.
        if self.is_connection { epoll::EventFlags::RDHUP } else { epoll::EventFlags::IN }
    }
}

/// A card behind registers and rings.
#[derive(Debug)]
pub(crate) struct RingCard {
    pub(crate) id: CardId,
    /// Where it is to be found, also when it comes back.
    pub(crate) place: CardPlace,
    /// The connection; none while the card is gone or being reset. It goes, and another comes, under the driver's lock; a
    /// command of a window's is put into its ring without.
    pub(crate) link: Mutex<Option<Link>>,
    /// Its interrupts, and what says when the card goes; none while it is gone.
    watch: Mutex<Option<Arc<Watched>>>,
    /// The former connection, while the card has not ended it on its side as well: until then it
    /// may still write to memory.
    leaving: Mutex<Option<Arc<Watched>>>,
    /// The way to the card, for messages that need no ring.
    transport: Mutex<Option<Arc<dyn Transport>>>,
    /// Once the driver was told that the card is lost: the commands by which others let go of its
    /// memory, and whatever else they had to do. Until these are done its memory is not replaced.
    pub(crate) letting_go: Mutex<Option<Vec<CommandId>>>,
    /// A thread is on its way to get it back.
    pub(crate) recovering: AtomicBool,
    /// It was pulled out or is given back, and nobody gets it back.
    pub(crate) pulled: AtomicBool,
    /// Why it is gone, where that is known.
    pub(crate) why_gone: Mutex<String>,
    /// It is being given back, and gets no more kernels.
    leaves: AtomicBool,
    map: Arc<BusMap>,
    sizes: CardSizes,
}

/// What a card is, also when it comes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CardSizes {
    /// Frames that the driver places.
    pub(crate) frames: u32,
    /// Its own window, if it has one that is used, and where that begins.
    pub(crate) window: Option<(WindowSizes, u64)>,
}

impl CardSizes {
    /// Checks that a card which has come back is the one that it was.
    ///
    /// # Errors
    /// [`LiveError::OtherCard`], [`LiveError::OtherWindow`].
    fn check(&self, card: CardId, found: &Identity) -> Result<(), LiveError> {
        if found.frames != self.frames {
            return Err(LiveError::OtherCard { card, frames: self.frames, found: found.frames });
        }
        if found.window != self.window.map(|(sizes, _)| sizes) {
            return Err(LiveError::OtherWindow { card });
        }
        Ok(())
    }
}

impl RingCard {
    /// A card that is not connected yet.
    pub(crate) fn new(
        id: CardId,
        place: CardPlace,
        map: Arc<BusMap>,
        sizes: CardSizes,
    ) -> RingCard {
        RingCard {
            id,
            place,
            link: Mutex::new(None),
            watch: Mutex::new(None),
            leaving: Mutex::new(None),
            transport: Mutex::new(None),
            letting_go: Mutex::new(None),
            recovering: AtomicBool::new(false),
            pulled: AtomicBool::new(false),
            why_gone: Mutex::default(),
            leaves: AtomicBool::new(false),
            map,
            sizes,
        }
    }

    /// Checks that a card which has come back is the one that it was.
    ///
    /// # Errors
    /// As [`CardSizes::check`].
    pub(crate) fn check_same(&self, found: &Identity) -> Result<(), LiveError> {
        self.sizes.check(self.id, found)
    }

    /// Uses a card that was found: resets it, shares all memories with it, and starts its rings.
    ///
    /// # Errors
    /// [`LiveError::Card`] and others; the card is as absent as before.
    pub(crate) fn take_up(
        &self,
        memories: &Memories,
        transport: Arc<dyn Transport>,
        identity: Identity,
    ) -> Result<(), LiveError> {
        let fail = |error| LiveError::Card { card: self.id, error };
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = rustix::event::eventfd(0, flags).map_err(LiveError::Bell)?;
        transport.limit(Some(Instant::now() + place::SETUP_LIMIT));
        let link = Link::open(
            self.id,
            Arc::clone(&transport),
            identity,
            Arc::clone(&self.map),
            Sizes::default(),
            event.as_fd(),
            self.sizes.window.map(|(_, base)| base),
        )?;
        self.share_memories(memories, transport.as_ref()).map_err(fail)?;
        transport.limit(None);
        let watched = Watched::new(event, transport.watch()).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            fail(TransportError::Refused { what: "watching the card", errno })
        })?;
        *lock(&self.watch) = Some(Arc::new(watched));
        *lock(&self.transport) = Some(transport);
        *lock(&self.link) = Some(link);
        Ok(())
    }

    fn share_memories(
        &self,
        memories: &Memories,
        transport: &dyn Transport,
    ) -> Result<(), TransportError> {
        let arena = &memories.arena;
        transport.map(&DmaPiece {
            bus: self.map.host(),
            bytes: arena.pages().bytes(),
            address: arena.alias_base(),
            file: arena.file(),
            offset: 0,
        })?;
        for (slot, memory) in memories.bounces().iter().enumerate() {
            share(transport, self.map.bounce(slot), memory)?;
        }
        for (card, memory) in memories.mapped() {
            // Cards that share no memory with this program reach no other card.
            if card != self.id && !transport.is_by_messages() {
                share(transport, self.map.card(card), memory)?;
            }
        }
        Ok(())
    }

    /// A peer has come back with other memory: lets this card reach it instead of the old one.
    ///
    /// # Errors
    /// This card does not do that: it reaches nothing there, or still the old memory.
    pub(crate) fn share_again(
        &self,
        peer: CardId,
        memory: &CardMemory,
    ) -> Result<(), TransportError> {
        let Some(transport) = self.transport().filter(|way| !way.is_by_messages()) else {
            return Ok(());
        };
        let bus = self.map.card(peer);
        transport.unmap(bus, bytes_of(memory))?;
        share(transport.as_ref(), bus, memory)
    }

    /// Stops the card and lets go of the connection, whoever else still has its descriptor.
    pub(crate) fn drop_connection(&self) {
        let watch = lock(&self.watch).take().filter(|watch| watch.is_connection);
        // Before others see that there is no connection: it has not left yet.
        lock(&self.leaving).clone_from(&watch);
        lock(&self.link).take();
        if let Some(transport) = lock(&self.transport).take() {
            transport.stop();
        }
        if let Some(fd) = watch.as_ref().and_then(|watch| watch.fd.as_ref()) {
            // One that has ended already needs no end.
            let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Write);
        }
    }

    /// Where the memory of a card is on this one's bus.
    pub(crate) fn window_of(&self, card: CardId, bytes: u64) -> Range<u64> {
        let start = self.map.card(card);
        start..start + bytes
    }

    /// Whether it is a device of this machine, which this side stops and which has to be closed before
    /// it can be opened again.
    pub(crate) fn is_device(&self) -> bool {
        matches!(self.place, CardPlace::Vfio(_))
    }

    /// Whether it writes to memory no more when its connection is given up, whatever it does itself: this
    /// side stops it, or does not answer its messages.
    pub(crate) fn ends_with_its_connection(&self) -> bool {
        self.is_device() || self.transport().is_some_and(|transport| transport.is_by_messages())
    }

    /// Whether the card has ended the former connection too: nothing of its former life writes to
    /// memory any more.
    pub(crate) fn has_left(&self) -> bool {
        let mut leaving = lock(&self.leaving);
        let former = leaving.as_ref().and_then(|former| former.fd.as_ref());
        let left = former.is_none_or(hangs_up);
        if left {
            leaving.take();
        }
        left
    }

    /// Something has come from the card.
    pub(crate) fn has_spoken(&self) {
        lock(&self.watch).iter().for_each(|watched| watched.is_useful());
    }

    /// Lets a ring of the doorbell go on that the card has made wait.
    pub(crate) fn free_doorbell(&self) {
        self.transport().iter().for_each(|transport| transport.free_doorbell());
    }

    /// What says something about the connection.
    pub(crate) fn watched(&self) -> Option<Arc<Watched>> {
        lock(&self.watch).clone()
    }

    /// Whether the connection is known to have ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.transport().is_some_and(|transport| transport.is_gone())
    }

    /// Notes why it is gone, for those who ask for it from now on, and gives it.
    pub(crate) fn note_why_gone(&self) -> String {
        let why = self.transport().and_then(|transport| transport.why_gone());
        let why = why.unwrap_or_default();
        lock(&self.why_gone).clone_from(&why);
        why
    }

    /// The connection, if its card answers no more. Whoever asks may have waited for that until there is
    /// another, which is not to blame.
    pub(crate) fn silent(&self) -> Option<Arc<dyn Transport>> {
        let transport = self.transport()?;
        // A device that is gone answers with all ones.
        let magic = read_u32(transport.as_ref(), register::MAGIC);
        (!magic.is_ok_and(|magic| magic != u32::MAX)).then_some(transport)
    }

    /// Whether this is the connection that it has now.
    pub(crate) fn is_connected_by(&self, transport: &Arc<dyn Transport>) -> bool {
        self.transport().is_some_and(|now| Arc::ptr_eq(&now, transport))
    }

    pub(crate) fn transport(&self) -> Option<Arc<dyn Transport>> {
        lock(&self.transport).clone()
    }

    /// It is going to be given back; `false` if that was said before.
    pub(crate) fn leave(&self) -> bool {
        self.pulled.store(true, Ordering::SeqCst);
        !self.leaves.swap(true, Ordering::SeqCst)
    }

    /// How soon whoever has lent it wants it back, if they do and nobody gives it back already.
    pub(crate) fn wanted_back(&self) -> Option<Duration> {
        if self.leaves() {
            return None;
        }
        self.transport().and_then(|transport| transport.wanted_back())
    }

    /// Whether it is being given back, or was.
    pub(crate) fn leaves(&self) -> bool {
        self.leaves.load(Ordering::SeqCst)
    }

    /// Whether there is a connection.
    pub(crate) fn is_connected(&self) -> bool {
        lock(&self.link).is_some()
    }

    /// Whether nobody has begun to get it back; then the caller has.
    pub(crate) fn begin_recovery(&self) -> bool {
        !self.pulled.load(Ordering::SeqCst) && !self.recovering.swap(true, Ordering::SeqCst)
    }
}

/// Whether the other side of a connection has ended it.
pub(crate) fn hangs_up(connection: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(connection, PollFlags::RDHUP)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    match rustix::event::poll(&mut polled, Some(&now)) {
        Ok(_) => {
            let gone = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR | PollFlags::NVAL;
            polled[0].revents().intersects(gone)
        }
        Err(_) => false,
    }
}

fn bytes_of(memory: &CardMemory) -> u64 {
    u64::from(memory.frames()) * PAGE_SIZE as u64
}

fn share(transport: &dyn Transport, bus: u64, memory: &CardMemory) -> Result<(), TransportError> {
    let (file, offset) = memory.file();
    transport.map(&DmaPiece {
        bus,
        bytes: bytes_of(memory),
        address: memory.base(),
        file: file.as_fd(),
        offset,
    })
}

#[cfg(test)]
mod tests {
    use farside_softcard::WindowMemory;

    use super::*;

    fn identity(frames: u32, window: Option<WindowSizes>) -> Identity {
        Identity { frames, pes: 1, generation: 1, dma_pages: 1, capabilities: 0, window }
    }

    /// Whoever sees that there is no connection, and asks whether the card has ended the former one too, is told that it has
    /// not: else he would take memory for free that the card still writes.
    #[test]
    fn a_connection_that_goes_is_leaving_before_it_is_gone() {
        let map = BusMap::new(1 << 20, 1 << 20, &[], &[1 << 20]).unwrap();
        let sizes = CardSizes { frames: 256, window: None };
        let place = CardPlace::InProgram { frames: 256 };
        let ring = RingCard::new(CardId(0), place, Arc::new(map), sizes);
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let watched = Watched::new(event, Some(Watch::Connection(here.as_fd()))).unwrap();
        *lock(&ring.watch) = Some(Arc::new(watched));
        std::thread::scope(|scope| {
            // Nobody sees that there is none as long as this is held.
            let link = lock(&ring.link);
            scope.spawn(|| ring.drop_connection());
            let end = Instant::now() + std::time::Duration::from_secs(10);
            while lock(&ring.leaving).is_none() {
                assert!(
                    Instant::now() < end,
                    "it would be gone, and nobody would know that it leaves"
                );
                std::thread::yield_now();
            }
            drop(link);
        });
        assert!(!ring.is_connected() && !ring.has_left());
        drop(there);
        assert!(ring.has_left());
    }

    /// Frames that went from one to the other are as many in all.
    #[test]
    fn a_card_that_comes_back_with_another_share_of_window_frames_is_another() {
        let sizes = |bytes, first, frames: &[u32]| {
            let memories: Vec<_> = frames.iter().map(|&it| WindowMemory::plain(it)).collect();
            Some(WindowSizes::new(bytes, first, &memories).unwrap())
        };
        let window = |first, frames| sizes(1 << 32, first, &[frames]);
        let before = CardSizes { frames: 100, window: window(100, 50).map(|it| (it, 1 << 40)) };
        assert!(before.check(CardId(0), &identity(100, window(100, 50))).is_ok());
        for other in [
            identity(50, window(50, 100)),
            identity(100, window(120, 30)),
            identity(100, None),
            identity(150, None),
            identity(100, sizes(1 << 33, 100, &[50])),
            identity(100, sizes(1 << 32, 100, &[25, 25])),
        ] {
            assert!(before.check(CardId(0), &other).is_err(), "{other:?}");
        }
        let without = CardSizes { frames: 100, window: None };
        assert!(without.check(CardId(0), &identity(100, None)).is_ok());
        assert!(without.check(CardId(0), &identity(100, window(100, 50))).is_err());
    }
}
