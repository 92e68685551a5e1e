//! What a link's thread beside a program shares with everybody else ([`super::link_worker`]).

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use farside_card::interface::register;
use rustix::event::{EventfdFlags, eventfd};

use super::answers::Reach;
use super::calls::{CALL_LIMIT, errno_of};
use super::link_fetch::Neighbour;
use super::transport::{LaunchNews, MoveOrder, Moved, TransportError};
use farside_link::Frame;

use crate::far::{Mirror, RingRegisters};
use farside_linux::lock::lock;
use farside_linux::shared::SharedMemory;

/// Something that is to be sent, in front of pages that wait.
#[derive(Debug)]
pub(super) enum Ask {
    /// A request, by somebody who waits for the answer.
    Request(u32, Frame<Vec<u8>>),
    /// Nobody waits.
    Post(Frame<Vec<u8>>),
}

/// What the driver wants, in its order.
#[derive(Debug)]
pub(super) enum Order {
    Move(MoveOrder),
    Launch(LaunchNews),
}

/// What is answered: bytes, or the number of an error.
pub(super) type Answer = Result<Vec<u8>, u32>;

/// What others share with the thread.
#[derive(Debug)]
pub(super) struct Shared {
    /// The program's memory, and what its interrupts signal.
    reach: Reach,
    /// Has the thread look.
    bell: OwnedFd,
    /// Says when the link is over.
    over: OwnedFd,
    closing: AtomicBool,
    asked: Mutex<Asked>,
    answered: Condvar,
    orders: Mutex<VecDeque<Order>>,
    moved: Mutex<Vec<Moved>>,
    rings: Mutex<RingsOf>,
    /// Other cards to which the lender's end has a direct link.
    neighbours: Mutex<Vec<Neighbour>>,
    /// When what is under way has to be over.
    limit: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Asked {
    next_id: u32,
    asks: VecDeque<Ask>,
    /// By who waits for them.
    answers: HashMap<u32, Option<Answer>>,
    /// Since when there is a connection; none while another is made.
    up_since: Option<Instant>,
    was_up: bool,
    /// What the other end can do.
    capabilities: u64,
    over: Option<Ended>,
}

/// Why a link is over.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) why: String,
    /// Another would end in the same way.
    pub(super) is_for_good: bool,
}

/// Where the rings are, and whether they are in use.
#[derive(Debug, Default)]
struct RingsOf {
    memory: Option<(Arc<SharedMemory>, u64)>,
    registers: RingRegisters,
    /// For the thread: rings that it is to serve from now on, or none.
    change: Option<Option<Mirror>>,
}

impl Shared {
    pub(super) fn new() -> io::Result<Shared> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Shared {
            reach: Reach::default(),
            bell: eventfd(0, flags)?,
            over: eventfd(0, flags)?,
            closing: AtomicBool::new(false),
            asked: Mutex::default(),
            answered: Condvar::new(),
            orders: Mutex::default(),
            moved: Mutex::default(),
            rings: Mutex::default(),
            neighbours: Mutex::default(),
            limit: Mutex::default(),
        })
    }

    pub(super) fn reach(&self) -> &Reach {
        &self.reach
    }

    /// Becomes readable when the link is over.
    pub(super) fn watched(&self) -> BorrowedFd<'_> {
        self.over.as_fd()
    }

    /// Why the link is over, if it is.
    pub(super) fn why_over(&self) -> Option<Ended> {
        lock(&self.asked).over.clone()
    }

    /// Has the thread look.
    pub(super) fn ring(&self) {
        // Full means that it is going to look.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// All that is asked has to be answered until `end`; `None`: each in its own time.
    pub(super) fn limit(&self, end: Option<Instant>) {
        *lock(&self.limit) = end;
    }

    /// Sends something, and waits for nobody.
    pub(super) fn post(
        &self,
        what: &'static str,
        frame: Frame<Vec<u8>>,
    ) -> Result<(), TransportError> {
        let mut asked = lock(&self.asked);
        if asked.over.is_some() {
            return Err(TransportError::Gone { what });
        }
        asked.asks.push_back(Ask::Post(frame));
        drop(asked);
        self.ring();
        Ok(())
    }

    /// Asks, and waits for the answer: for as long as a call may take, the time not counted in which
    /// there is no connection. Without one for long the link ends.
    pub(super) fn ask(
        &self,
        what: &'static str,
        request: Frame<Vec<u8>>,
    ) -> Result<Vec<u8>, TransportError> {
        self.ask_within(CALL_LIMIT, what, request)
    }

    /// The same for something that may take so long.
    pub(super) fn ask_within(
        &self,
        call: Duration,
        what: &'static str,
        request: Frame<Vec<u8>>,
    ) -> Result<Vec<u8>, TransportError> {
        let (begun, limit) = (Instant::now(), *lock(&self.limit));
        let mut asked = lock(&self.asked);
        let id = asked.next_id;
        asked.next_id = id.wrapping_add(1);
        asked.asks.push_back(Ask::Request(id, request));
        asked.answers.insert(id, None);
        // Whoever is woken wants the lock, and may have the processor at once.
        drop(asked);
        self.ring();
        let mut asked = lock(&self.asked);
        loop {
            if let Some(Some(_)) = asked.answers.get(&id) {
                let answer = asked.answers.remove(&id).flatten();
                let answer = answer.ok_or(TransportError::Gone { what })?;
                return answer
                    .map_err(|errno| TransportError::Refused { what, errno: errno_of(errno) });
            }
            let since = asked.up_since.map_or(Instant::now(), |since| since.max(begun));
            let own = since + call;
            let left =
                limit.map_or(own, |end| end.min(own)).saturating_duration_since(Instant::now());
            if asked.over.is_some() || left.is_zero() {
                asked.answers.remove(&id);
                let gone = TransportError::Gone { what };
                let late = TransportError::TimedOut { what };
                return Err(if asked.over.is_some() { gone } else { late });
            }
            let waited = self.answered.wait_timeout(asked, left);
            asked = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// For the thread: whether there has been a connection.
    pub(super) fn was_up(&self) -> bool {
        lock(&self.asked).was_up
    }

    /// There is a connection to an end that can do this, or none.
    pub(super) fn is_up(&self, capabilities: Option<u64>) {
        let mut asked = lock(&self.asked);
        asked.was_up |= capabilities.is_some();
        asked.up_since = capabilities.map(|_| Instant::now());
        asked.capabilities = capabilities.unwrap_or(asked.capabilities);
        self.answered.notify_all();
    }

    /// What the other end can do, as it has said.
    pub(super) fn capabilities(&self) -> u64 {
        lock(&self.asked).capabilities
    }

    /// Another card's memory, from this window of bus addresses on, is reached by a direct link.
    pub(super) fn has_neighbour(&self, neighbour: Neighbour) {
        let mut neighbours = lock(&self.neighbours);
        if self.is_closing() || self.why_over().is_some() {
            return;
        }
        neighbours.retain(|known| known.number != neighbour.number);
        neighbours.push(neighbour);
    }

    /// Two that know each other would keep each other.
    fn forget_neighbours(&self) {
        lock(&self.neighbours).clear();
    }

    /// Which direct link leads to these bus addresses.
    pub(super) fn neighbour(&self, bus: u64, bytes: u64) -> Option<Neighbour> {
        lock(&self.neighbours).iter().find(|known| known.holds(bus, bytes)).cloned()
    }

    /// Whether somebody waits for it: who has given it up does not want it any more.
    pub(super) fn answer(&self, id: u32, answer: Answer) -> bool {
        let mut asked = lock(&self.asked);
        let Some(slot) = asked.answers.get_mut(&id) else { return false };
        *slot = Some(answer);
        drop(asked);
        self.answered.notify_all();
        true
    }

    /// The memory of the rings, at a bus address.
    pub(super) fn has_rings(&self, memory: Arc<SharedMemory>, bus: u64) {
        lock(&self.rings).memory = Some((memory, bus));
    }

    /// A register is going to be written.
    pub(super) fn register_is_written(&self, offset: u64, value: u64) {
        lock(&self.rings).registers.note(offset, value);
    }

    /// The same of the register that starts and resets the card.
    pub(super) fn control_is_written(&self, value: u32) -> Result<(), TransportError> {
        let mut rings = lock(&self.rings);
        if value & register::CONTROL_RESET != 0 {
            rings.registers = RingRegisters::default();
            rings.change = Some(None);
        } else if value & register::CONTROL_ENABLE != 0 {
            let unfit = || TransportError::Unfit { what: "these are no rings".to_owned() };
            let (memory, bus) = rings.memory.clone().ok_or_else(unfit)?;
            let mirror = Mirror::new(memory, bus, &rings.registers).ok_or_else(unfit)?;
            rings.change = Some(Some(mirror));
        }
        Ok(())
    }

    /// Pages are to be moved.
    pub(super) fn start(&self, order: MoveOrder) {
        lock(&self.orders).push_back(Order::Move(order));
        self.ring();
    }

    /// Something is new of a launch. What follows it, or comes of it, has this looked at.
    pub(super) fn launch(&self, news: LaunchNews) {
        lock(&self.orders).push_back(Order::Launch(news));
    }

    /// What has been moved.
    pub(super) fn moved(&self) -> Vec<Moved> {
        std::mem::take(&mut lock(&self.moved))
    }

    /// Whether anything has.
    pub(super) fn has_moved(&self) -> bool {
        !lock(&self.moved).is_empty()
    }

    /// A move has ended.
    pub(super) fn has_ended(&self, moved: Moved) {
        lock(&self.moved).push(moved);
        self.reach.signal();
    }

    /// For the thread: whether it is to end.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// For the thread: rings that it is to serve from now on, or none, if that has changed.
    pub(super) fn take_rings(&self) -> Option<Option<Mirror>> {
        lock(&self.rings).change.take()
    }

    /// For the thread: what was asked.
    pub(super) fn take_asks(&self) -> VecDeque<Ask> {
        std::mem::take(&mut lock(&self.asked).asks)
    }

    /// For the thread: what the driver wants.
    pub(super) fn take_orders(&self) -> VecDeque<Order> {
        std::mem::take(&mut *lock(&self.orders))
    }

    /// For the thread: what it waits for beside the link.
    pub(super) fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// Ends the link. When this returns the thread reads and writes no memory of the program's.
    pub(super) fn end(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.forget_neighbours();
        self.reach.end();
        self.ring();
    }

    /// The link has ended: nobody waits for an answer any more.
    pub(super) fn is_over(&self, ended: Ended) {
        lock(&self.asked).over.get_or_insert(ended);
        self.forget_neighbours();
        self.answered.notify_all();
        // It is empty until then.
        let _ = rustix::io::write(&self.over, &1u64.to_ne_bytes());
    }
}
