//! The lender's end: a vfio-user client of the device, which does what the borrower's frames say.
//!
//! Frames are done in their order; one that the device cannot take yet waits, and those behind it. What
//! the device reads and writes by DMA, and what it raises, becomes frames: only within the windows that
//! the borrower has opened, whatever the device says.

use std::collections::{BTreeSet, HashMap, VecDeque};

use farside_fabric::{Access, InsertError, Refusals, Rights, Windows};
use farside_link::description::Description;
use farside_link::endpoint::Load;
use farside_link::frame::{DATA_BYTES_MAX, IrqAction};
use farside_link::{Class, Endpoint, Event as LinkEvent, Frame, Outgoing, Tag};
use farside_vfio_user::client::{ClientEvent, DmaToken, MapRequest};
use farside_vfio_user::device::region::BAR2;
use farside_vfio_user::server::RegionAccess;
use farside_vfio_user::{
    Client, DmaUnmap, Errno, IrqAction as Action, Limits, ProtocolError, Reply, RequestError,
    RequestId, SharedFd,
};

use super::description::{Discovery, Next};
use super::mutation::{Unchecked, is_away};
use super::{Counters, number};

/// Posted frames that wait for credit above which nothing more is taken of the device.
const POSTED_MAX: usize = 64;
/// Posted frames that wait above which refusals are counted only.
const NOTICES_MAX: usize = 2 * POSTED_MAX;

/// Makes the eventfds by which the device raises its interrupts; who makes them says
/// [`LenderEnd::raised`] when they are.
pub trait Eventfds {
    /// That of one interrupt.
    ///
    /// # Errors
    /// There are no more.
    fn eventfd(&mut self, index: u32, vector: u32) -> Result<SharedFd, Errno>;
}

/// A frame that the device has not been given yet.
enum Work {
    Posted { frame: Frame<Vec<u8>>, load: Load },
    Request { tag: Tag, frame: Frame<Vec<u8>> },
}

/// What the device was asked.
enum Asked {
    /// A posted frame: to be told of if it fails.
    Posted {
        kind: u16,
        address: u64,
        bytes: u64,
        load: Load,
        opened: bool,
    },
    Read {
        tag: Tag,
        bytes: usize,
    },
    Done {
        tag: Tag,
    },
    Unmap {
        tag: Tag,
        address: u64,
        bytes: u64,
    },
    /// A part of something whose last part is answered for.
    Part,
}

/// What the device reads, and what of it has come.
struct Reading {
    token: DmaToken,
    data: Vec<u8>,
}

/// See the module.
pub struct LenderEnd<E> {
    client: Client,
    eventfds: E,
    discovery: Discovery,
    /// Why it does not say what it is.
    refused: Option<Errno>,
    next: Option<Next>,
    described: Option<Description>,
    windows: Windows<()>,
    work: VecDeque<Work>,
    asked: HashMap<RequestId, Asked>,
    /// Posted frames that the device has not answered.
    open: BTreeSet<RequestId>,
    /// Barriers, each with the last posted frame before it.
    barriers: VecDeque<(Tag, RequestId)>,
    reading: HashMap<Tag, Reading>,
    last_tag: u64,
    out: Outgoing,
    raised: Vec<(u32, u32)>,
    /// Loads of frames that are done.
    loads: Vec<Load>,
    returned: bool,
    ended: bool,
    counters: Counters,
}

/// The device cannot take anything now: later.
struct Later;

impl<E: Eventfds> LenderEnd<E> {
    /// For a device whose connection is fresh, under an epoch of its lease.
    ///
    /// # Errors
    /// The engine takes no request, which a fresh one does.
    pub fn new(epoch: u64, eventfds: E) -> Result<LenderEnd<E>, RequestError> {
        let mut client = Client::new(Limits::default());
        let discovery = Discovery::new(&mut client)?;
        Ok(LenderEnd {
            client,
            eventfds,
            discovery,
            refused: None,
            next: None,
            described: None,
            windows: Windows::new(epoch),
            work: VecDeque::new(),
            asked: HashMap::new(),
            open: BTreeSet::new(),
            barriers: VecDeque::new(),
            reading: HashMap::new(),
            last_tag: 0,
            out: Outgoing::default(),
            raised: Vec::new(),
            loads: Vec::new(),
            returned: false,
            ended: false,
            counters: Counters::default(),
        })
    }

    /// The engine of the connection to the device: its bytes go in and out here.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Whether a version is agreed on with the device, by what it has said so far. To be asked before anything is
    /// driven.
    ///
    /// # Errors
    /// It refuses: with EBUSY, because somebody else has it.
    pub fn agreed(&mut self) -> Result<bool, Errno> {
        self.device().map_err(|_| Errno::PROTO)?;
        match self.refused {
            Some(errno) => Err(errno),
            None => Ok(self.client.negotiated().is_some()),
        }
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Posted frames that wait for credit.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.out.waiting(Class::Posted)
    }

    /// What the windows refused.
    #[must_use]
    pub fn refusals(&self) -> Refusals {
        self.windows.refusals()
    }

    /// Whether the borrower has given the device back.
    #[must_use]
    pub fn is_returned(&self) -> bool {
        self.returned
    }

    /// Whether frames wait for the link.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.out.is_empty()
    }

    /// The device has raised an interrupt. Whoever finds that reads the device's connection until
    /// nothing is there before it calls [`drive`](Self::drive): what the device wrote before goes first.
    pub fn raised(&mut self, index: u32, vector: u32) {
        self.raised.push((index, vector));
    }

    /// The lease is over: the device reaches nothing any more, and nothing is asked of it.
    pub fn end(&mut self) {
        self.ended = true;
        self.windows.close();
        self.work.clear();
        self.raised.clear();
        for (_, reading) in self.reading.drain() {
            self.client.complete(reading.token, |_| Err(Errno::NODEV));
        }
    }

    /// Something that the link has brought: to be given here, and then [`drive`](Self::drive).
    pub fn frame(&mut self, event: LinkEvent<'_>) {
        match event {
            // The lease may be over before the link is.
            LinkEvent::Posted { load, .. } if self.ended => self.loads.push(load),
            LinkEvent::Request { tag, .. } if self.ended => {
                self.out.push(tag, Frame::Failed { errno: Errno::NODEV.code() });
            }
            LinkEvent::Posted { frame, load } => {
                let frame = frame.map(<[u8]>::to_vec);
                self.work.push_back(Work::Posted { frame, load });
            }
            LinkEvent::Request { tag, frame } => {
                let frame = frame.map(<[u8]>::to_vec);
                self.work.push_back(Work::Request { tag, frame });
            }
            LinkEvent::Reply { tag, frame, is_last } => self.reply(tag, &frame, is_last),
            LinkEvent::Ended(_) => self.end(),
            LinkEvent::Up { .. } | LinkEvent::Lost(_) => {}
        }
    }

    /// Does what can be done: for the borrower, for the device, and sends it.
    ///
    /// # Errors
    /// The device broke the protocol.
    pub fn drive(&mut self, link: &mut Endpoint) -> Result<(), ProtocolError> {
        loop {
            let mut did = self.ask_next();
            did |= self.work();
            did |= self.device()?;
            if self.out.waiting(Class::Posted) < POSTED_MAX {
                for (index, vector) in std::mem::take(&mut self.raised) {
                    self.out.post(Frame::Interrupt { index, vector });
                }
            }
            did |= self.out.flush(link);
            self.loads.drain(..).for_each(|load| link.done(load));
            if !did {
                return Ok(());
            }
        }
    }

    /// Asks the device what it is, until that is known.
    fn ask_next(&mut self) -> bool {
        let Some(next) = self.next.take() else { return false };
        if self.discovery.ask(&next, &mut self.client).is_err() {
            self.next = Some(next);
            return false;
        }
        if let Next::Nothing(described) = next {
            self.described = Some(described);
        }
        true
    }

    /// Gives the device what the borrower wants of it.
    fn work(&mut self) -> bool {
        let mut did = false;
        // What the device is has to be known first.
        while self.described.is_some() {
            let Some(work) = self.work.pop_front() else { break };
            let done = match &work {
                Work::Posted { frame, load } => self.posted(frame, *load),
                Work::Request { tag, frame } => self.request(*tag, frame),
            };
            if let Err(Later) = done {
                self.work.push_front(work);
                break;
            }
            did = true;
        }
        did
    }

    fn posted(&mut self, frame: &Frame<Vec<u8>>, load: Load) -> Result<(), Later> {
        let kind = frame.kind().number();
        let (address, bytes, asked) = match frame {
            Frame::RegionWrite { region, offset, data } => {
                let asked = self.client.region_write(*region, *offset, data);
                (*offset, data.len() as u64, asked.map_err(as_errno))
            }
            Frame::MemoryWrite { offset, data } => {
                let asked = self.client.region_write(BAR2, *offset, data);
                (*offset, data.len() as u64, asked.map_err(as_errno))
            }
            Frame::DmaMap { address, bytes, rights } => {
                let rights = Rights { read: rights.read, write: rights.write };
                (*address, *bytes, self.map(*address, *bytes, rights))
            }
            Frame::IrqControl { action, index, start, count } => {
                (u64::from(*start), u64::from(*count), self.irqs(*action, *index, *start, *count))
            }
            Frame::Refused { .. } => {
                self.counters.refused_there += 1;
                self.loads.push(load);
                return Ok(());
            }
            Frame::Return => {
                self.returned = true;
                self.loads.push(load);
                return Ok(());
            }
            _ => {
                self.counters.misplaced += 1;
                (0, 0, Err(Some(Errno::NOTSUP)))
            }
        };
        let opened = matches!(frame, Frame::DmaMap { .. });
        match asked {
            Ok(request) => {
                self.open.insert(request);
                let asked = Asked::Posted { kind, address, bytes, load, opened };
                self.asked.insert(request, asked);
            }
            Err(None) => return Err(Later),
            Err(Some(errno)) => {
                self.refuse(kind, address, bytes, errno);
                self.loads.push(load);
            }
        }
        Ok(())
    }

    /// Tells the borrower that what it posted is not done.
    fn refuse(&mut self, kind: u16, address: u64, bytes: u64, errno: Errno) {
        self.counters.refused += 1;
        // A borrower that posts and takes nothing would make them grow for ever.
        if self.out.waiting(Class::Posted) >= NOTICES_MAX {
            return;
        }
        self.out.post(Frame::Refused { kind, errno: number(errno), address, bytes });
    }

    fn map(
        &mut self,
        address: u64,
        bytes: u64,
        rights: Rights,
    ) -> Result<RequestId, Option<Errno>> {
        let opened = self.windows.insert(address, bytes, rights, ());
        opened.map_err(|error| {
            Some(if error == InsertError::Full { Errno::NOSPC } else { Errno::INVAL })
        })?;
        let Rights { read: readable, write: writable } = rights;
        let map = MapRequest { address, size: bytes, readable, writable, offset: 0 };
        // Without a descriptor: the device comes here for every access.
        self.client.dma_map(&map, None).map_err(|error| {
            self.windows.remove(address, bytes);
            as_errno(error)
        })
    }

    fn irqs(
        &mut self,
        action: IrqAction,
        index: u32,
        start: u32,
        count: u32,
    ) -> Result<RequestId, Option<Errno>> {
        let there = self.described.as_ref().and_then(|it| it.irqs.get(index as usize));
        let there = there.map_or(0, |irq| irq.count);
        if start.checked_add(count).is_none_or(|end| end > there) {
            return Err(Some(Errno::INVAL));
        }
        let client = &mut self.client;
        let asked = match action {
            IrqAction::Disable if count == 0 => client.irqs_now(index, 0, 0, Action::Trigger),
            IrqAction::Disable => client.irqs_unassign(index, start, count, Action::Trigger),
            IrqAction::Mask => client.irqs_now(index, start, count, Action::Mask),
            IrqAction::Unmask => client.irqs_now(index, start, count, Action::Unmask),
            IrqAction::Enable => return self.enable(index, start, count),
        };
        asked.map_err(as_errno)
    }

    /// Has eventfds raise interrupts, as many with a message as the device takes. Done again from the
    /// start if the device can take no more now.
    fn enable(&mut self, index: u32, start: u32, count: u32) -> Result<RequestId, Option<Errno>> {
        let most = self.client.negotiated().map_or(1, |it| it.peer_max_msg_fds).max(1);
        let mut last = None;
        for from in (start..start + count).step_by(most as usize) {
            let to = from.saturating_add(most).min(start + count);
            let made: Result<Vec<SharedFd>, Errno> =
                (from..to).map(|vector| self.eventfds.eventfd(index, vector)).collect();
            let assigned = self.client.irqs_assign(index, from, made?, Action::Trigger);
            if let Some(before) = last.replace(assigned.map_err(as_errno)?) {
                self.asked.insert(before, Asked::Part);
            }
        }
        last.ok_or(Some(Errno::INVAL))
    }

    fn request(&mut self, tag: Tag, frame: &Frame<Vec<u8>>) -> Result<(), Later> {
        let (asked, what) = match *frame {
            Frame::RegionRead { region, offset, bytes } => self.read(tag, region, offset, bytes),
            Frame::MemoryRead { offset, bytes } => self.read(tag, BAR2, offset, bytes),
            Frame::Reset => (self.client.reset(), Asked::Done { tag }),
            Frame::DmaUnmap { address, bytes } => {
                let unmap = DmaUnmap::Range { address, size: bytes };
                (self.client.dma_unmap(unmap), Asked::Unmap { tag, address, bytes })
            }
            Frame::Barrier => {
                match self.open.last() {
                    Some(last) => self.barriers.push_back((tag, *last)),
                    None => self.out.push(tag, Frame::Done),
                }
                return Ok(());
            }
            Frame::Describe => {
                self.describe(tag);
                return Ok(());
            }
            _ => {
                self.counters.misplaced += 1;
                self.out.push(tag, Frame::Failed { errno: Errno::NOTSUP.code() });
                return Ok(());
            }
        };
        match asked.map_err(as_errno) {
            Ok(request) => {
                self.asked.insert(request, what);
            }
            Err(None) => return Err(Later),
            Err(Some(errno)) => self.out.push(tag, Frame::Failed { errno: number(errno) }),
        }
        Ok(())
    }

    fn read(
        &mut self,
        tag: Tag,
        region: u32,
        offset: u64,
        bytes: u32,
    ) -> (Result<RequestId, RequestError>, Asked) {
        let access = RegionAccess { region, offset, count: bytes };
        (self.client.region_read(access), Asked::Read { tag, bytes: bytes as usize })
    }

    fn describe(&mut self, tag: Tag) {
        let bytes = self.described.as_ref().and_then(Description::encode);
        self.out.push(
            tag,
            match bytes {
                Some(data) => Frame::Data { offset: 0, last: true, data },
                None => Frame::Failed { errno: Errno::RANGE.code() },
            },
        );
    }

    /// Takes what the device has said.
    fn device(&mut self) -> Result<bool, ProtocolError> {
        let mut did = false;
        while self.out.waiting(Class::Posted) < POSTED_MAX {
            let Some(event) = self.client.poll()? else { break };
            did = true;
            if self.discovery.is_of_this(&event) {
                if let ClientEvent::Reply { reply, .. } = event {
                    match self.discovery.answered(reply) {
                        Ok(next) => self.next = Some(next),
                        // What cannot be described is nothing: every access of it fails.
                        Err(errno) => {
                            self.refused = Some(errno);
                            self.described = Some(Description::default());
                        }
                    }
                }
                continue;
            }
            match event {
                ClientEvent::Reply { request, reply } => {
                    let reply = match reply {
                        Ok(Reply::Data(data)) => Ok(data.to_vec()),
                        Ok(_) => Ok(Vec::new()),
                        Err(errno) => Err(errno),
                    };
                    self.answered(request, reply);
                }
                ClientEvent::DmaRead { token, address, count } => {
                    self.device_reads(token, address, count);
                }
                ClientEvent::DmaWrite { token, address, data } => {
                    let data = data.to_vec();
                    self.device_writes(token, address, &data);
                }
                ClientEvent::Other { token, .. } => {
                    self.client.complete_other(token, Err(Errno::NOTSUP));
                }
                _ => {}
            }
        }
        Ok(did)
    }

    /// The device has answered.
    fn answered(&mut self, request: RequestId, reply: Result<Vec<u8>, Errno>) {
        match (self.asked.remove(&request), reply) {
            (Some(Asked::Posted { kind, address, bytes, load, opened }), reply) => {
                self.loads.push(load);
                if let Err(errno) = reply {
                    if opened {
                        self.windows.remove(address, bytes);
                    }
                    self.refuse(kind, address, bytes, errno);
                }
                self.open.remove(&request);
                self.pass_barriers();
            }
            (Some(Asked::Read { tag, bytes }), Ok(data)) if data.len() == bytes => {
                self.answer_read(tag, &data);
            }
            (Some(Asked::Read { tag, .. }), reply) => {
                let errno = reply.err().unwrap_or(Errno::IO);
                self.out.push(tag, Frame::Failed { errno: number(errno) });
            }
            (Some(Asked::Unmap { tag, address, bytes }), Ok(_)) => {
                self.windows.remove(address, bytes);
                self.out.push(tag, Frame::Done);
            }
            (Some(Asked::Done { tag }), Ok(_)) => self.out.push(tag, Frame::Done),
            (Some(Asked::Done { tag } | Asked::Unmap { tag, .. }), Err(errno)) => {
                self.out.push(tag, Frame::Failed { errno: number(errno) });
            }
            (Some(Asked::Part) | None, _) => {}
        }
    }

    fn answer_read(&mut self, tag: Tag, data: &[u8]) {
        let mut offset = 0;
        loop {
            let piece = &data[offset..data.len().min(offset + DATA_BYTES_MAX)];
            let last = offset + piece.len() == data.len();
            let at = offset as u32;
            self.out.push(tag, Frame::Data { offset: at, last, data: piece.to_vec() });
            if last {
                return;
            }
            offset += piece.len();
        }
    }

    fn pass_barriers(&mut self) {
        while let Some((tag, last)) = self.barriers.front().copied() {
            if self.open.first().is_some_and(|open| *open <= last) {
                return;
            }
            self.barriers.pop_front();
            self.out.push(tag, Frame::Done);
        }
    }

    /// Whether a window lets the device do this.
    fn may(&mut self, access: Access, address: u64, bytes: usize) -> bool {
        let epoch = self.windows.epoch();
        let found = self.windows.look_up(epoch, access, address, bytes as u64);
        found.is_ok() || is_away(Unchecked::AtLender)
    }

    fn device_reads(&mut self, token: DmaToken, address: u64, count: u32) {
        if !self.may(Access::Read, address, count as usize) {
            return self.client.complete(token, |_| Err(Errno::FAULT));
        }
        self.last_tag += 1;
        let tag = Tag(self.last_tag);
        self.reading.insert(tag, Reading { token, data: Vec::with_capacity(count as usize) });
        self.out.push(tag, Frame::DmaRead { address, bytes: count });
    }

    fn device_writes(&mut self, token: DmaToken, address: u64, data: &[u8]) {
        if !self.may(Access::Write, address, data.len()) {
            return self.client.complete(token, |_| Err(Errno::FAULT));
        }
        for (at, piece) in (address..).step_by(DATA_BYTES_MAX).zip(data.chunks(DATA_BYTES_MAX)) {
            self.out.post(Frame::DmaWrite { address: at, data: piece.to_vec() });
        }
        self.client.complete(token, |_| Ok(()));
    }

    /// What the device has read has come.
    fn reply(&mut self, tag: Tag, frame: &Frame<&[u8]>, is_last: bool) {
        if let (Frame::Data { data, .. }, Some(reading)) = (frame, self.reading.get_mut(&tag)) {
            reading.data.extend_from_slice(data);
        }
        if !is_last {
            return;
        }
        let Some(Reading { token, data }) = self.reading.remove(&tag) else { return };
        let failed = match frame {
            Frame::Failed { errno } => Some(Errno::new(*errno)),
            _ => None,
        };
        self.client.complete(token, |into| match failed {
            Some(errno) => Err(errno),
            None if into.len() != data.len() => Err(Errno::IO),
            None => {
                into.copy_from_slice(&data);
                Ok(())
            }
        });
    }
}

/// The error that the borrower hears; `None` if it is to be tried again.
fn as_errno(error: RequestError) -> Option<Errno> {
    match error {
        RequestError::TooManyOutstanding { .. } | RequestError::QueueFull { .. } => None,
        RequestError::TooLarge { .. } => Some(Errno::MSGSIZE),
        _ => Some(Errno::INVAL),
    }
}
