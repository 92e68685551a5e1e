//! The thread of a link beside a program: sends what the driver publishes, puts what arrives into its
//! rings, and moves pages between the program's memory and the card's.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use farside_card::interface::{DmaAddr, Extent};
use farside_link::endpoint::Load;
use farside_link::error::{End, Violation};
use farside_link::frame::{DATA_BYTES_MAX, READ_BYTES_MAX};
use farside_link::{Class, Config, Endpoint, Event, Frame, Outgoing, Tag};
use farside_types::PAGE_SIZE;
use rustix::event::PollFlags;
use thiserror::Error;

use super::link_behind::{BehindLaunch, FIRST_BEHIND, Known, Wanted};
use super::link_fetch::{FIRST_FETCH, Fetch, Fetches, Started};
use super::link_shared::{Ask, Ended, Order, Shared};
use super::transport::{LaunchNews, MoveOrder, Moved};
use crate::far::{
    CARD_BY_RINGS, Carried, DialLine, Farewell, Line, Mirror, Nonsense, Over, Redial, Rest, Side,
    lines,
};

/// Reads of the card's memory that are asked for at a time.
const GETS_MAX: usize = 64;

/// Frames in a row with which nothing came, at most.
const EMPTY_FRAMES_MAX: u32 = 20_000;

const PAGE: u64 = PAGE_SIZE as u64;

/// What a card that is given up may still take until its end knows.
const FAREWELL_LIMIT: Duration = Duration::from_millis(100);

/// Numbers of requests that somebody waits for are below it, those of reads for moves above.
const FIRST_GET: u64 = 1 << 33;

/// Why a link ended.
#[derive(Debug, Error)]
enum Failure {
    #[error("the program gives the card up")]
    Closing,
    #[error("{0}; use versions of Farside that go together")]
    Version(&'static str),
    #[error("the end beside the card makes no sense: {0}")]
    Rings(#[from] Nonsense),
    #[error("the end beside the card makes no sense: {0}")]
    Other(&'static str),
    #[error("the card refuses what its driver does at {address:#x}: error {errno}")]
    Refused { address: u64, errno: u32 },
}

/// A part of a move, or commands, in the order in which they are sent.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// Bytes of the program's memory for the card's: bus address, offset there, how many.
    Put {
        tag: u64,
        bus: u64,
        offset: u64,
        left: u64,
    },
    Zero {
        tag: u64,
        offset: u64,
        bytes: u64,
    },
    /// Commands up to this index.
    Commands(u32),
}

/// A move that is under way.
#[derive(Debug)]
struct UnderWay {
    parts_left: usize,
    pages: u64,
    failed: bool,
    /// Nothing of it was asked for when it was wanted.
    came_along: bool,
}

/// What the thread has beside its link.
struct Beside {
    shared: Arc<Shared>,
    mirror: Option<Mirror>,
    /// Commands up to this index are in `work`, or sent.
    known: u32,
    /// What waits for credit.
    out: Outgoing,
    work: VecDeque<Work>,
    /// Reads of the card's memory that wait for their turn. Nothing behind them waits for them.
    to_get: VecDeque<Wanted>,
    /// Those that were asked for, by number.
    getting: HashMap<u64, Wanted>,
    next_get: u64,
    /// What comes with a launch's completion, and launches that are not sent yet.
    behind: BehindLaunch,
    launched: VecDeque<(u32, u64, Vec<Range<u64>>)>,
    /// What comes from other cards by direct links. Nothing waits for it either.
    fetches: Fetches,
    under_way: HashMap<u64, UnderWay>,
    /// Answers of which a part has come, by number.
    answers: HashMap<u64, Vec<u8>>,
    empty_frames: u32,
    failed: Option<Failure>,
}

/// The body of the thread: drives a link over a first connection and those that replace it.
/// When it ends whoever watches the card sees that.
pub(super) fn run(shared: &Arc<Shared>, config: Config, first: Line, dial: DialLine) {
    farside_linux::signals::block_for_whole_thread();
    let ended = drive(shared, config, first, dial)
        .unwrap_or_else(|error| Ended { why: error.to_string(), is_for_good: true });
    tracing::debug!(why = ended.why, "a link to a card has ended");
    shared.is_over(ended);
}

fn drive(
    shared: &Arc<Shared>,
    config: Config,
    first: Line,
    dial: DialLine,
) -> std::io::Result<Ended> {
    let config = Config { capabilities: CARD_BY_RINGS, ..config };
    let end = Endpoint::borrower(config, session());
    let (new, lines) = lines()?;
    let redial = Redial::new(dial, new);
    // Who is turned away at first is told so, and comes again by itself.
    let ask = || shared.was_up() && redial.start();
    let mut carried = Carried::new(end, first, &lines, &ask);
    Ok(ended(carried.carry(&mut Beside::new(Arc::clone(shared)))))
}

/// A number that no other link of the lease has.
pub(super) fn session() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // Drawn at random for each.
    RandomState::new().build_hasher().finish()
}

fn ended(over: Over<Failure>) -> Ended {
    let (why, is_for_good) = match over {
        Over::Link(End::PeerClosed(code)) => match Farewell::of(code) {
            Some(farewell) => (farewell.to_string(), farewell == Farewell::NoCard),
            None => (End::PeerClosed(code).to_string(), true),
        },
        Over::Link(End::Refused(code)) if code == Violation::Version.code() => {
            (Violation::Version.to_string(), true)
        }
        over => (over.to_string(), !matches!(over, Over::HungUp | Over::Link(End::NoConnection))),
    };
    Ended { why, is_for_good }
}

impl Beside {
    fn new(shared: Arc<Shared>) -> Beside {
        Beside {
            shared,
            mirror: None,
            known: 0,
            out: Outgoing::default(),
            work: VecDeque::new(),
            to_get: VecDeque::new(),
            getting: HashMap::new(),
            next_get: FIRST_GET,
            behind: BehindLaunch::default(),
            launched: VecDeque::new(),
            fetches: Fetches::default(),
            under_way: HashMap::new(),
            answers: HashMap::new(),
            empty_frames: 0,
            failed: None,
        }
    }
}

impl Side for Beside {
    type Gone = Failure;

    fn frame(&mut self, event: Event<'_>) -> Option<Load> {
        let (done, load) = match event {
            Event::Up { capabilities, .. } => {
                self.shared.is_up(Some(capabilities));
                let is_card = capabilities & CARD_BY_RINGS != 0;
                let other = Failure::Version("the other end of the link has no card of this kind");
                (if is_card { Ok(()) } else { Err(other) }, None)
            }
            Event::Lost(_) => {
                self.shared.is_up(None);
                (Ok(()), None)
            }
            Event::Posted { frame, load } => (self.posted(&frame), Some(load)),
            Event::Reply { tag, frame, is_last } => (self.reply(tag.0, &frame, is_last), None),
            Event::Request { .. } => (Err(Failure::Other("a request of this program")), None),
            Event::Ended(_) => (Ok(()), None),
        };
        if let Err(failure) = done {
            self.failed.get_or_insert(failure);
        }
        load
    }

    fn turn(&mut self, link: &mut Endpoint, is_ready: bool) -> Result<(), Failure> {
        if is_ready {
            // It does not block.
            let _ = rustix::io::read(self.shared.bell(), &mut [0; 8]);
        }
        if self.shared.is_closing() {
            return Err(Failure::Closing);
        }
        if let Some(failure) = self.failed.take() {
            return Err(failure);
        }
        if let Some(mirror) = &self.mirror {
            mirror.awake();
        }
        self.take_asks();
        self.take_work();
        self.send(link);
        Ok(())
    }

    fn has_waiting(&self) -> bool {
        !self.out.is_empty() || self.has_pages()
    }

    fn polled(&mut self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        vec![(self.shared.bell().as_fd(), PollFlags::IN)]
    }

    /// Whoever gives a card up does not wait for an end that is not there.
    fn farewell_limit(&self) -> Duration {
        FAREWELL_LIMIT
    }

    fn rest(&mut self) -> Rest {
        let Some(mirror) = &self.mirror else { return Rest::Sleep };
        let sleeps = mirror.may_sleep(self.known) && !mirror.has_news();
        if sleeps { Rest::Sleep } else { Rest::Work }
    }
}

impl Beside {
    fn posted(&mut self, frame: &Frame<&[u8]>) -> Result<(), Failure> {
        if let Frame::Refused { address, errno, .. } = *frame {
            return Err(Failure::Refused { address, errno });
        }
        let has_entries = matches!(frame, Frame::RingEntries { .. });
        self.is_empty_unless(has_entries)?;
        // What the card wrote before it was reset is of no interest.
        let Some(mirror) = &mut self.mirror else { return Ok(()) };
        match mirror.frame(frame)? {
            None => return Err(Failure::Other("a frame that only a program sends")),
            Some(true) => self.shared.reach().signal(),
            Some(false) => {}
        }
        Ok(())
    }

    /// Frames with which no entry comes are few.
    fn is_empty_unless(&mut self, is_useful: bool) -> Result<(), Failure> {
        self.empty_frames = if is_useful { 0 } else { self.empty_frames + 1 };
        if self.empty_frames > EMPTY_FRAMES_MAX {
            return Err(Failure::Other("frames without end, and nothing in them"));
        }
        Ok(())
    }

    /// A reply has come, or a piece of one: the link has seen to it that it was asked for, and is no longer
    /// than that.
    fn reply(&mut self, tag: u64, frame: &Frame<&[u8]>, is_last: bool) -> Result<(), Failure> {
        if tag >= FIRST_BEHIND {
            for (wanted, data) in self.behind.came(tag, frame, is_last) {
                match data {
                    Some(data) => self.bring(wanted, &data),
                    None => self.get(wanted),
                }
            }
            return self.is_empty_unless(true);
        }
        if tag >= FIRST_FETCH {
            let is_there = matches!(frame, Frame::Done);
            if let Some(moves) = self.fetches.answered(tag, is_there) {
                self.fetch_ended(moves, is_there);
            }
            return self.is_empty_unless(true);
        }
        if tag >= FIRST_GET {
            self.got(tag, frame, is_last);
            return self.is_empty_unless(true);
        }
        let mut bytes = self.answers.remove(&tag).unwrap_or_default();
        let answer = match *frame {
            Frame::Data { data, .. } => {
                bytes.extend_from_slice(data);
                if !is_last {
                    self.answers.insert(tag, bytes);
                    return Ok(());
                }
                Ok(bytes)
            }
            Frame::Failed { errno } => Err(errno),
            _ => Ok(bytes),
        };
        let is_wanted = self.shared.answer((tag - 1) as u32, answer);
        self.is_empty_unless(is_wanted)
    }

    /// Somebody has waited for these bytes, which came behind a launch.
    fn bring(&mut self, wanted: Wanted, data: &[u8]) {
        if self.shared.reach().write(wanted.bus, data).is_none() {
            self.has_failed(wanted.tag);
        }
        self.part_done(wanted.tag);
    }

    /// Bytes are to be asked for.
    fn get(&mut self, wanted: Wanted) {
        self.under_way.get_mut(&wanted.tag).into_iter().for_each(|moves| moves.came_along = false);
        self.to_get.push_back(wanted);
    }

    /// Bytes of the card's memory have come.
    fn got(&mut self, tag: u64, frame: &Frame<&[u8]>, is_last: bool) {
        let Some(get) = self.getting.get(&tag) else { return };
        let written = match *frame {
            Frame::Data { offset, data, .. } => {
                self.shared.reach().write(get.bus + u64::from(offset), data)
            }
            _ => None,
        };
        let moves = get.tag;
        if written.is_none() {
            // The card was given up, or the memory taken away.
            self.has_failed(moves);
        }
        if is_last {
            self.getting.remove(&tag);
            self.part_done(moves);
        }
    }

    /// A piece of another card's memory is there, or will not be.
    fn fetch_ended(&mut self, moves: u64, is_there: bool) {
        if !is_there {
            self.has_failed(moves);
        }
        self.part_done(moves);
    }

    fn has_failed(&mut self, tag: u64) {
        self.under_way.get_mut(&tag).into_iter().for_each(|moves| moves.failed = true);
    }

    fn part_done(&mut self, tag: u64) {
        let Some(moves) = self.under_way.get_mut(&tag) else { return };
        moves.parts_left -= 1;
        if moves.parts_left == 0 {
            let (pages, came_along) = ((!moves.failed).then_some(moves.pages), moves.came_along);
            self.under_way.remove(&tag);
            self.shared.has_ended(Moved { tag, pages, came_along });
        }
    }

    /// What somebody asks goes at once, in front of pages that wait.
    fn take_asks(&mut self) {
        if let Some(change) = self.shared.take_rings() {
            self.mirror = change;
            self.known = 0;
            self.launched.clear();
            self.behind.forget();
        }
        for ask in self.shared.take_asks() {
            match ask {
                Ask::Request(id, frame) => self.out.push(Tag(u64::from(id) + 1), frame),
                Ask::Post(frame) => self.out.post(frame),
            }
        }
    }

    /// Takes moves and commands, in an order that puts no command in front of pages that were there when
    /// it was published: first it is looked how far commands are published, then which moves there are.
    fn take_work(&mut self) {
        let published = self.mirror.as_ref().map_or(self.known, Mirror::published);
        let orders = self.shared.take_orders();
        for order in orders {
            match order {
                Order::Move(order) => self.take_order(order),
                Order::Launch(news) => self.take_news(news),
            }
        }
        if published != self.known {
            self.known = published;
            self.work.push_back(Work::Commands(published));
        }
    }

    fn take_news(&mut self, news: LaunchNews) {
        match news {
            LaunchNews::Begins => self.behind.forget(),
            LaunchNews::Alone { tag, index, made } => self.launched.push_back((index, tag, made)),
            LaunchNews::Ended { tag } => self.behind.completed(tag),
        }
    }

    fn take_order(&mut self, order: MoveOrder) {
        let MoveOrder { tag, fills, extents } = order;
        let pages = extents.iter().map(|extent| u64::from(extent.count)).sum();
        // The part that stands for the order itself.
        let moves = UnderWay { parts_left: 1, pages, failed: false, came_along: !fills };
        self.under_way.insert(tag, moves);
        for Extent { count, src, dst, .. } in extents {
            let bytes = u64::from(count) * PAGE;
            if let DmaAddr::Own(frame) = dst {
                let offset = u64::from(frame) * PAGE;
                self.behind.forget_within(&(offset..offset + bytes));
            }
            match (src, dst) {
                (_, DmaAddr::Own(frame)) if fills => {
                    self.more_parts(tag, 1);
                    self.work.push_back(Work::Zero { tag, offset: u64::from(frame) * PAGE, bytes });
                }
                (DmaAddr::Bus(page), DmaAddr::Own(frame)) => {
                    let (bus, offset) = (u64::from(page) * PAGE, u64::from(frame) * PAGE);
                    self.take_into_card(Fetch { tag, bus, offset, bytes });
                }
                (DmaAddr::Own(frame), DmaAddr::Bus(page)) if !fills => {
                    let (bus, offset) = (u64::from(page) * PAGE, u64::from(frame) * PAGE);
                    self.take_out_of_card(Fetch { tag, bus, offset, bytes });
                }
                // Nobody at this end reaches both.
                _ => self.has_failed(tag),
            }
        }
        self.part_done(tag);
    }

    /// Bytes of the program's memory, or of another card's, are to go to this one's.
    fn take_into_card(&mut self, fetch: Fetch) {
        let Fetch { tag, bus, offset, bytes } = fetch;
        self.under_way.get_mut(&tag).into_iter().for_each(|moves| moves.came_along = false);
        if self.shared.neighbour(bus, bytes).is_some() {
            let pieces = self.fetches.push(fetch);
            return self.more_parts(tag, pieces);
        }
        self.more_parts(tag, 1);
        self.work.push_back(Work::Put { tag, bus, offset, left: bytes });
    }

    /// Bytes of this card's memory are to go to the program's.
    fn take_out_of_card(&mut self, fetch: Fetch) {
        let Fetch { tag, mut bus, offset, bytes } = fetch;
        let (mut at, end) = (offset, offset + bytes);
        while at < end {
            let done = match self.behind.known(&(at..end)) {
                Known::Here(data) => {
                    if self.shared.reach().write(bus, data).is_none() {
                        return self.has_failed(tag);
                    }
                    data.len() as u64
                }
                Known::Coming(bytes) => {
                    let wanted = Wanted { tag, bus, offset: at, bytes: bytes as u32 };
                    self.behind.wait(wanted);
                    self.more_parts(tag, 1);
                    bytes
                }
                Known::Nothing(bytes) => {
                    let bytes = bytes.min(READ_BYTES_MAX.into());
                    self.more_parts(tag, 1);
                    self.get(Wanted { tag, bus, offset: at, bytes: bytes as u32 });
                    bytes
                }
            };
            (at, bus) = (at + done, bus + done);
        }
    }

    fn more_parts(&mut self, tag: u64, parts: usize) {
        self.under_way.get_mut(&tag).into_iter().for_each(|moves| moves.parts_left += parts);
    }

    /// Sends what there is credit for.
    fn send(&mut self, link: &mut Endpoint) {
        self.out.flush(link);
        while self.getting.len() < GETS_MAX && self.out.waiting(Class::Request) == 0 {
            let Some(get) = self.to_get.pop_front() else { break };
            let (number, frame) =
                (self.next_get, Frame::MemoryRead { offset: get.offset, bytes: get.bytes });
            self.next_get += 1;
            self.out.push(Tag(number), frame);
            self.getting.insert(number, get);
            self.out.flush(link);
        }
        while self.out.waiting(Class::Request) == 0 {
            match self.fetches.start(&self.shared) {
                Started::Nothing => break,
                Started::Asked(number, frame) => self.out.push(number, frame),
                Started::Failed(moves) => self.fetch_ended(moves, false),
            }
            self.out.flush(link);
        }
        while let Some(work) = self.work.pop_front() {
            if let Some(rest) = self.send_work(work, link) {
                self.work.push_front(rest);
                break;
            }
        }
        self.ask_behind();
        if !matches!(self.work.front(), Some(Work::Commands(_))) {
            let until = self.mirror.as_ref().map_or(0, Mirror::sent);
            self.tell(until);
        }
        self.out.flush(link);
    }

    /// Asks for what is to come behind launches that were sent.
    fn ask_behind(&mut self) {
        while let Some((index, _, _)) = self.launched.front() {
            if !self.mirror.as_ref().is_some_and(|mirror| mirror.has_sent(*index)) {
                return;
            }
            let Some((_, launch, made)) = self.launched.pop_front() else { return };
            for (number, frame) in self.behind.ask(launch, made) {
                self.out.push(number, frame);
            }
        }
    }

    /// Sends a part; gives back what is left of it and waits.
    fn send_work(&mut self, work: Work, link: &mut Endpoint) -> Option<Work> {
        match work {
            Work::Commands(until) => {
                self.tell(until);
                let all = self.mirror.as_ref().is_none_or(|mirror| mirror.has_sent(until));
                (!all).then_some(Work::Commands(until))
            }
            Work::Zero { tag, offset, bytes } => {
                self.out.post(Frame::MemoryFill { offset, bytes, value: 0 });
                self.part_done(tag);
                None
            }
            Work::Put { tag, bus, offset, left } => {
                let bytes = left.min(DATA_BYTES_MAX as u64);
                self.out.flush(link);
                let is_first = self.out.waiting(Class::Posted) == 0;
                if !is_first || link.may_send(Class::Posted, bytes as usize).is_err() {
                    return Some(work);
                }
                let left = if self.put(link, bus, offset, bytes as usize) {
                    left - bytes
                } else {
                    self.has_failed(tag);
                    0
                };
                if left > 0 {
                    let (bus, offset) = (bus + bytes, offset + bytes);
                    return self.send_work(Work::Put { tag, bus, offset, left }, link);
                }
                // All of it has left the program's memory, and goes in front of what is sent later.
                self.part_done(tag);
                None
            }
        }
    }

    /// Sends a piece of the program's memory; whether it was there.
    fn put(&mut self, link: &mut Endpoint, bus: u64, offset: u64, bytes: usize) -> bool {
        let mut data = link.room(bytes);
        let read = self.shared.reach().read(bus, &mut data);
        read.is_some() && link.send(Tag::NONE, Frame::MemoryWrite { offset, data }).is_ok()
    }

    /// Whether pages wait that there was no room for.
    fn has_pages(&self) -> bool {
        !matches!(self.work.front(), None | Some(Work::Commands(_)))
    }

    /// Sends commands up to an index, and what the driver has taken.
    fn tell(&mut self, until: u32) {
        let Some(mirror) = &mut self.mirror else { return };
        while let Some(news) = mirror.poll(until) {
            let is_sent = !news.runs.is_empty();
            let out = &mut self.out;
            news.post(|frame| out.post(frame));
            if is_sent && mirror.driver_waits() {
                self.shared.reach().signal();
            }
        }
    }
}
