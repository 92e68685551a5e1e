//! The borrower's end: a vfio-user server for the local client, whose accesses become frames.
//!
//! Writes are posted and answered at once, those of configuration space when they are done. Reads, resets
//! and unmaps wait for the lender. What the device reads and writes by DMA is answered from the memory
//! that the client shares, and only within that.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;

use farside_fabric::{Access, Refusal, Refusals, Rights, Windows};
use farside_link::description::Description;
use farside_link::endpoint::Load;
use farside_link::frame::{DATA_BYTES_MAX, IrqAction, MapRights};
use farside_link::{Class, Endpoint, Event as LinkEvent, Frame, Outgoing, Tag};
use farside_vfio_user::device::region;
use farside_vfio_user::server::{Event, Token};
use farside_vfio_user::{
    DeviceInfo, DmaMap, DmaUnmap, Errno, IrqAction as Action, IrqData, Limits, ProtocolError,
    RequestError, Server, SetIrqs,
};

use super::local::Local;
use super::mutation::{Unchecked, is_away};
use super::{Counters, description, number};

/// Notices of refused frames that wait: more are counted only.
const NOTICES_MAX: usize = 64;
/// Pieces of replies that wait.
const PIECES_MAX: usize = 8;

/// What a request of this end is for.
enum Asked {
    Read { token: Token, data: Vec<u8> },
    Done { token: Token },
    Unmap { token: Token, address: u64, bytes: u64 },
}

/// A read of the device that is being answered.
struct Reading {
    tag: Tag,
    address: u64,
    bytes: u32,
    done: u32,
}

/// See the module.
pub struct BorrowerEnd<L: Local> {
    server: Server,
    local: L,
    windows: Windows<L::Place>,
    asked: HashMap<Tag, Asked>,
    /// Unmaps among what was asked.
    unmapping: usize,
    reading: VecDeque<Reading>,
    out: Outgoing,
    last_tag: u64,
    counters: Counters,
}

impl<L: Local> BorrowerEnd<L> {
    /// For a device that its lender has described, under an epoch of its lease.
    ///
    /// # Errors
    /// The description contradicts itself.
    pub fn new(
        described: &Description,
        epoch: u64,
        local: impl FnOnce(&DeviceInfo) -> L,
    ) -> Result<BorrowerEnd<L>, RequestError> {
        let info = description::offered(described);
        let local = local(&info);
        let limits = Limits {
            max_data_xfer_size: DATA_BYTES_MAX as u32,
            write_multiple: false,
            ..Limits::default()
        };
        Ok(BorrowerEnd {
            server: Server::new(info, limits)?,
            local,
            windows: Windows::new(epoch),
            asked: HashMap::new(),
            unmapping: 0,
            reading: VecDeque::new(),
            out: Outgoing::default(),
            last_tag: 0,
            counters: Counters::default(),
        })
    }

    /// The engine of the local client's connection: its bytes go in and out here.
    pub fn server(&mut self) -> &mut Server {
        &mut self.server
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What the windows refused.
    #[must_use]
    pub fn refusals(&self) -> Refusals {
        self.windows.refusals()
    }

    /// Whether frames wait for the link.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.out.is_empty()
    }

    /// The lease is over: the lender reaches nothing any more, and the client's commands fail.
    pub fn end(&mut self) {
        self.windows.close();
        self.reading.clear();
        self.asked.clear();
        self.unmapping = 0;
        self.server.revoke(Errno::NODEV);
    }

    /// Does what can be done: for the lender, for the client, and sends it.
    ///
    /// # Errors
    /// The client broke the protocol.
    pub fn drive(&mut self, link: &mut Endpoint) -> Result<(), ProtocolError> {
        loop {
            self.read_on();
            let sent = self.out.flush(link);
            // One command's frames wait at most, so that the client is held back in time.
            let is_free = self.out.waiting(Class::Posted) + self.out.waiting(Class::Request) == 0;
            let took = is_free && self.command()?;
            if !sent && !took {
                return Ok(());
            }
        }
    }

    /// Something that the link has brought: to be given here until it is over, and then
    /// [`drive`](Self::drive). A posted frame's load is given back, for `done`.
    #[must_use]
    pub fn frame(&mut self, event: &LinkEvent<'_>) -> Option<Load> {
        match event {
            LinkEvent::Posted { frame, load } => {
                if let Err(errno) = self.posted(frame) {
                    self.refuse(frame, errno);
                }
                Some(*load)
            }
            LinkEvent::Request { tag, frame } => {
                self.request(*tag, frame);
                None
            }
            LinkEvent::Reply { tag, frame, .. } => {
                self.reply(*tag, frame);
                None
            }
            LinkEvent::Ended(_) => {
                self.end();
                None
            }
            LinkEvent::Up { .. } | LinkEvent::Lost(_) => None,
        }
    }

    fn posted(&mut self, frame: &Frame<&[u8]>) -> Result<(), Errno> {
        match frame {
            Frame::DmaWrite { address, data } => {
                let bytes = data.len() as u64;
                let access =
                    if is_away(Unchecked::AtBorrower) { Access::Read } else { Access::Write };
                let epoch = self.windows.epoch();
                let found = self.windows.look_up(epoch, access, *address, bytes);
                let found = found.map_err(as_errno)?;
                let done = self.local.write(found.place, found.offset, data);
                done.inspect_err(|_| self.counters.failed += 1)
            }
            Frame::Interrupt { index, vector } => {
                let raised = self.local.raise(*index, *vector);
                raised.inspect_err(|_| self.counters.failed += 1)
            }
            Frame::Refused { .. } => {
                self.counters.refused_there += 1;
                Ok(())
            }
            _ => {
                self.counters.misplaced += 1;
                Err(Errno::NOTSUP)
            }
        }
    }

    fn refuse(&mut self, frame: &Frame<&[u8]>, errno: Errno) {
        self.counters.refused += 1;
        if self.out.waiting(Class::Posted) >= NOTICES_MAX {
            return;
        }
        let bytes = frame.data().map_or(0, |data| data.len() as u64);
        let address = if let Frame::DmaWrite { address, .. } = frame { *address } else { 0 };
        let kind = frame.kind().number();
        self.out.post(Frame::Refused { kind, errno: number(errno), address, bytes });
    }

    fn request(&mut self, tag: Tag, frame: &Frame<&[u8]>) {
        match *frame {
            Frame::DmaRead { address, bytes } => {
                self.reading.push_back(Reading { tag, address, bytes, done: 0 });
            }
            // What was posted is done when it comes.
            Frame::Barrier => self.out.push(tag, Frame::Done),
            _ => {
                self.counters.misplaced += 1;
                self.out.push(tag, Frame::Failed { errno: Errno::NOTSUP.code() });
            }
        }
    }

    /// Answers what the device reads, piece by piece.
    fn read_on(&mut self) {
        while self.out.waiting(Class::Reply) < PIECES_MAX {
            let Some(mut reading) = self.reading.pop_front() else { return };
            let left = reading.bytes - reading.done;
            let count = left.min(DATA_BYTES_MAX as u32);
            match self.read(&reading, count as usize) {
                Ok(data) => {
                    let (offset, last) = (reading.done, count == left);
                    self.out.push(reading.tag, Frame::Data { offset, last, data });
                    reading.done += count;
                    if !last {
                        self.reading.push_front(reading);
                    }
                }
                Err(errno) => {
                    self.out.push(reading.tag, Frame::Failed { errno: number(errno) });
                }
            }
        }
    }

    fn read(&mut self, reading: &Reading, count: usize) -> Result<Vec<u8>, Errno> {
        let epoch = self.windows.epoch();
        // The whole of it has to lie in one window, at every piece.
        let (start, whole) = (reading.address, u64::from(reading.bytes));
        let found = self.windows.look_up(epoch, Access::Read, start, whole).map_err(as_errno)?;
        let mut data = vec![0; count];
        self.local.read(found.place, found.offset + u64::from(reading.done), &mut data)?;
        Ok(data)
    }

    fn reply(&mut self, tag: Tag, frame: &Frame<&[u8]>) {
        let Some(asked) = self.asked.remove(&tag) else { return };
        let result = match frame {
            Frame::Failed { errno } => Err(Errno::new(*errno)),
            _ => Ok(()),
        };
        match (asked, frame) {
            (Asked::Read { token, mut data }, Frame::Data { data: piece, last, .. }) => {
                data.extend_from_slice(piece);
                if *last {
                    self.server.complete_read(token, |into| fill(into, &data));
                } else {
                    self.asked.insert(tag, Asked::Read { token, data });
                }
            }
            (Asked::Unmap { token, address, bytes }, _) => {
                self.unmapping -= 1;
                if result.is_ok() {
                    self.windows.remove(address, bytes);
                }
                self.server.complete(token, result);
            }
            (Asked::Read { token, .. } | Asked::Done { token }, _) => {
                self.server.complete(token, result);
            }
        }
    }

    /// Takes one command of the client; `false` if there is none.
    fn command(&mut self) -> Result<bool, ProtocolError> {
        // QEMU maps anew what it has just unmapped, and waits for both together: the window has to be gone first.
        if self.unmapping > 0 {
            return Ok(false);
        }
        let command = match self.server.poll()? {
            None => return Ok(false),
            Some(event) => Command::of(event),
        };
        match command {
            Command::Nothing => {}
            Command::Frame { token, frame } => {
                self.out.post(frame);
                self.server.complete(token, Ok(()));
            }
            Command::Confirmed { token, frame } => {
                self.out.post(frame);
                self.ask(Asked::Done { token }, Frame::Barrier);
            }
            Command::Ask { token, frame } => {
                let asked = match frame {
                    Frame::RegionRead { bytes, .. } => {
                        Asked::Read { token, data: Vec::with_capacity(bytes as usize) }
                    }
                    _ => Asked::Done { token },
                };
                self.ask(asked, frame);
            }
            Command::Map { token, map } => self.map(token, map),
            Command::Unmap { token, unmap } => self.unmap(token, unmap),
            Command::Refuse { token } => self.server.complete(token, Err(Errno::NOTSUP)),
            Command::Irqs { token, index, start, count, action, mut data } => {
                let frames = irq_frames(index, start, count, action, &data);
                let set = SetIrqs { index, start, count, action, data: data.borrowed() };
                let result = self.local.set_irqs(set);
                if result.is_ok() {
                    frames.into_iter().for_each(|frame| self.out.post(frame));
                }
                self.server.complete(token, result);
            }
        }
        Ok(true)
    }

    fn ask(&mut self, asked: Asked, frame: Frame<Vec<u8>>) {
        self.last_tag += 1;
        let tag = Tag(self.last_tag);
        self.asked.insert(tag, asked);
        self.out.push(tag, frame);
    }

    fn map(&mut self, token: Token, map: DmaMap) {
        let (address, bytes) = (map.address, map.size);
        let (read, write) = (map.readable, map.writable);
        let opened = self.local.share(map).and_then(|place| {
            let opened = self.windows.insert(address, bytes, Rights { read, write }, place);
            opened.map_err(|_| Errno::INVAL)
        });
        if opened.is_ok() {
            let rights = MapRights { read, write };
            self.out.post(Frame::DmaMap { address, bytes, rights });
        }
        self.server.complete(token, opened);
    }

    fn unmap(&mut self, token: Token, unmap: DmaUnmap) {
        let (address, bytes) = match unmap {
            DmaUnmap::Range { address, size } => (address, size),
            DmaUnmap::All => {
                let first = self.windows.iter().next().map(|(start, ..)| start);
                let last = self.windows.iter().last().map(|(start, bytes, ..)| start + (bytes - 1));
                let Some((first, last)) = first.zip(last) else {
                    return self.server.complete(token, Ok(()));
                };
                (first, (last - first).saturating_add(1))
            }
        };
        self.unmapping += 1;
        self.ask(Asked::Unmap { token, address, bytes }, Frame::DmaUnmap { address, bytes });
    }
}

/// A command of the client, cut loose from the engine's buffer.
enum Command {
    Nothing,
    /// To be answered at once.
    Frame {
        token: Token,
        frame: Frame<Vec<u8>>,
    },
    /// To be answered when it is done.
    Confirmed {
        token: Token,
        frame: Frame<Vec<u8>>,
    },
    Ask {
        token: Token,
        frame: Frame<Vec<u8>>,
    },
    Map {
        token: Token,
        map: DmaMap,
    },
    Unmap {
        token: Token,
        unmap: DmaUnmap,
    },
    Irqs {
        token: Token,
        index: u32,
        start: u32,
        count: u32,
        action: Action,
        data: OwnIrqData,
    },
    Refuse {
        token: Token,
    },
}

impl Command {
    fn of(event: Event<'_>) -> Command {
        match event {
            Event::RegionRead { token, access } => Command::Ask {
                token,
                frame: Frame::RegionRead {
                    region: access.region,
                    offset: access.offset,
                    bytes: access.count,
                },
            },
            Event::RegionWrite { token, access, data } => {
                let frame = Frame::RegionWrite {
                    region: access.region,
                    offset: access.offset,
                    data: data.to_vec(),
                };
                // PCIe does not post what changes the configuration.
                if access.region == region::CONFIG {
                    Command::Confirmed { token, frame }
                } else {
                    Command::Frame { token, frame }
                }
            }
            Event::DmaMap { token, map } => Command::Map { token, map },
            Event::DmaUnmap { token, unmap } => Command::Unmap { token, unmap },
            Event::Reset { token } => Command::Ask { token, frame: Frame::Reset },
            Event::SetIrqs { token, set } => {
                let SetIrqs { index, start, count, action, data } = set;
                Command::Irqs { token, index, start, count, action, data: OwnIrqData::of(data) }
            }
            Event::RegionWriteMulti { token, .. }
            | Event::FeatureGet { token, .. }
            | Event::FeatureSet { token, .. }
            | Event::Other { token, .. } => Command::Refuse { token },
            _ => Command::Nothing,
        }
    }
}

/// [`IrqData`] that borrows nothing.
enum OwnIrqData {
    Now,
    NowIf(Vec<u8>),
    EventFds(Vec<OwnedFd>),
    Unassign,
}

impl OwnIrqData {
    fn of(data: IrqData<'_>) -> OwnIrqData {
        match data {
            IrqData::Now => OwnIrqData::Now,
            IrqData::NowIf(which) => OwnIrqData::NowIf(which.to_vec()),
            IrqData::EventFds(fds) => OwnIrqData::EventFds(fds),
            IrqData::Unassign => OwnIrqData::Unassign,
        }
    }

    /// The same, borrowed; descriptors go with it.
    fn borrowed(&mut self) -> IrqData<'_> {
        match self {
            OwnIrqData::Now => IrqData::Now,
            OwnIrqData::NowIf(which) => IrqData::NowIf(which),
            OwnIrqData::EventFds(fds) => IrqData::EventFds(std::mem::take(fds)),
            OwnIrqData::Unassign => IrqData::Unassign,
        }
    }
}

/// What the device has to hear of a change of interrupts.
fn irq_frames(
    index: u32,
    start: u32,
    count: u32,
    action: Action,
    data: &OwnIrqData,
) -> Vec<Frame<Vec<u8>>> {
    let frame = |action, start, count| Frame::IrqControl { action, index, start, count };
    let mask = match action {
        Action::Mask => Some(IrqAction::Mask),
        Action::Unmask => Some(IrqAction::Unmask),
        Action::Trigger => None,
    };
    match (data, mask) {
        (OwnIrqData::EventFds(_), None) => vec![frame(IrqAction::Enable, start, count)],
        (OwnIrqData::Unassign, None) => vec![frame(IrqAction::Disable, start, count)],
        // With a count of 0: all of the type.
        (OwnIrqData::Now, None) if count == 0 => vec![frame(IrqAction::Disable, 0, 0)],
        (OwnIrqData::Now, Some(mask)) => vec![frame(mask, start, count)],
        (OwnIrqData::NowIf(which), Some(mask)) => {
            let set = (start..).zip(which).filter(|(_, byte)| **byte != 0);
            set.map(|(vector, _)| frame(mask, vector, 1)).collect()
        }
        // The client raises them itself, or eventfds stand for masks, which the local side refuses.
        _ => Vec::new(),
    }
}

fn fill(into: &mut [u8], data: &[u8]) -> Result<(), Errno> {
    if into.len() != data.len() {
        return Err(Errno::IO);
    }
    into.copy_from_slice(data);
    Ok(())
}

fn as_errno(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::Closed | Refusal::Epoch => Errno::NODEV,
        Refusal::Outside | Refusal::BeyondEnd => Errno::FAULT,
        Refusal::Rights => Errno::ACCES,
    }
}
