//! Takes the server's messages: checks replies against what was asked, and hands on DMA requests.

use std::ops::Range;
use std::os::fd::OwnedFd;

use super::event::{
    ClientEvent, DeviceSummary, DmaToken, IoFdInfo, OtherToken, RegionInfo, RegionIoFds, Reply,
};
use super::{Client, Command, Errno, Header, Inbox, Limits, Negotiated, ProtocolError, RequestId};
use crate::device::{IoFdKind, Irq, SparseArea};
use crate::inbox::Message;
use crate::server::RegionAccess;
use crate::version::{Capabilities, MAJOR, Proposal};
use crate::wire::{
    self, ACCESS_SIZE, CAP_HEADER_SIZE, DEVICE_INFO_SIZE, FEATURE_SIZE, IO_FD_SIZE, IO_FDS_SIZE,
    IRQ_INFO_SIZE, REGION_INFO_SIZE, SPARSE_AREA_SIZE, SPARSE_HEADER_SIZE, u16_at, u32_at, u64_at,
};

/// What a request was, as far as its reply must fit it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expected {
    Version,
    Device,
    Region {
        index: u32,
        room: u32,
    },
    IoFds {
        index: u32,
        room: u32,
    },
    Irq {
        index: u32,
    },
    Data {
        access: RegionAccess,
    },
    /// The value of a feature.
    Feature {
        flags: u32,
        room: u32,
    },
    /// To a command of the users' own.
    Other {
        command: Command,
    },
    /// No more than an acknowledgement, of this many bytes at most.
    Done {
        payload: usize,
    },
}

impl Expected {
    pub(super) fn brings_fds(&self) -> bool {
        matches!(self, Expected::Region { .. } | Expected::IoFds { .. } | Expected::Other { .. })
    }

    fn answers(&self, command: Command) -> bool {
        match self {
            Expected::Version => command == Command::VERSION,
            Expected::Device => command == Command::DEVICE_GET_INFO,
            Expected::Region { .. } => command == Command::DEVICE_GET_REGION_INFO,
            Expected::IoFds { .. } => command == Command::DEVICE_GET_REGION_IO_FDS,
            Expected::Irq { .. } => command == Command::DEVICE_GET_IRQ_INFO,
            Expected::Data { .. } => command == Command::REGION_READ,
            Expected::Feature { .. } => command == Command::DEVICE_FEATURE,
            Expected::Other { command: asked } => command == *asked,
            Expected::Done { .. } => matches!(
                command,
                Command::DMA_MAP
                    | Command::DMA_UNMAP
                    | Command::DEVICE_SET_IRQS
                    | Command::REGION_WRITE
                    | Command::REGION_WRITE_MULTI
                    | Command::DEVICE_RESET
            ),
        }
    }
}

/// An event whose data still lies in the inbox.
pub(super) enum Item {
    Reply { request: RequestId, reply: Result<Answer, Errno> },
    Read(DmaToken),
    Write { token: DmaToken, data: Range<usize> },
    Other { token: OtherToken, data: Range<usize> },
}

pub(super) enum Answer {
    Owned(Reply<'static>),
    Data(Range<usize>),
    Feature(Range<usize>),
    Other(Range<usize>, Vec<OwnedFd>),
}

impl Item {
    pub(super) fn event(self, inbox: &Inbox) -> ClientEvent<'_> {
        match self {
            Item::Reply { request, reply } => {
                let reply = reply.map(|answer| match answer {
                    Answer::Owned(reply) => reply,
                    Answer::Data(range) => Reply::Data(inbox.bytes(range)),
                    Answer::Feature(range) => Reply::Feature(inbox.bytes(range)),
                    Answer::Other(range, fds) => Reply::Other(inbox.bytes(range), fds),
                });
                ClientEvent::Reply { request, reply }
            }
            Item::Read(token) => {
                let (address, count) = (token.address, token.count);
                ClientEvent::DmaRead { token, address, count }
            }
            Item::Write { token, data } => {
                let address = token.address;
                ClientEvent::DmaWrite { token, address, data: inbox.bytes(data) }
            }
            Item::Other { token, data } => {
                let command = token.command;
                ClientEvent::Other { token, command, data: inbox.bytes(data) }
            }
        }
    }
}

impl Client {
    pub(super) fn take(&mut self) -> Result<Option<Item>, ProtocolError> {
        self.check_failed()?;
        loop {
            let message = match self.inbox.next(!self.is_full()) {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(None),
                Err(error) => return Err(self.fail(error)),
            };
            let taken = if message.header.is_reply() {
                self.reply(message)
            } else {
                Ok(self.command(&message))
            };
            match taken {
                Ok(None) => {}
                Ok(Some(item)) => return Ok(Some(item)),
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    /// A request of the server.
    fn command(&mut self, message: &Message) -> Option<Item> {
        let header = message.header;
        let item = if header.command.is_spoken() {
            self.dma_request(message)
        } else {
            self.users_command(message)
        };
        match item {
            Ok(item) => Some(item),
            Err(errno) => {
                if !header.wants_no_reply() {
                    self.outbox.push(Header::error(header.id, header.command, errno), &[]);
                }
                None
            }
        }
    }

    /// A command of the users' own. Descriptors do not go this way.
    fn users_command(&mut self, message: &Message) -> Result<Item, Errno> {
        if self.negotiated.is_none() {
            return Err(Errno::PROTO);
        }
        if !message.fds.is_empty() {
            return Err(Errno::INVAL);
        }
        let Header { id, command, .. } = message.header;
        self.unanswered += 1;
        self.reserved += OtherToken::REPLY_SIZE;
        let token = OtherToken { id, command, no_reply: message.header.wants_no_reply() };
        Ok(Item::Other { token, data: message.payload.clone() })
    }

    fn dma_request(&mut self, message: &Message) -> Result<Item, Errno> {
        let Header { id, command, .. } = message.header;
        if command != Command::DMA_READ && command != Command::DMA_WRITE {
            return Err(Errno::NOTSUP);
        }
        let negotiated = self.negotiated.ok_or(Errno::PROTO)?;
        let payload = self.inbox.bytes(message.payload.clone());
        if payload.len() < ACCESS_SIZE || !message.fds.is_empty() {
            return Err(Errno::INVAL);
        }
        let count = u32::try_from(u64_at(payload, 8)).map_err(|_| Errno::INVAL)?;
        if count > negotiated.max_data_xfer_size {
            return Err(Errno::INVAL);
        }
        let no_reply = message.header.wants_no_reply();
        let token = DmaToken { id, command, address: u64_at(payload, 0), count, no_reply };
        let data = message.payload.start + ACCESS_SIZE..message.payload.end;
        let size = if command == Command::DMA_WRITE { count as usize } else { 0 };
        if data.len() != size {
            return Err(Errno::INVAL);
        }
        self.unanswered += 1;
        self.reserved += token.reply_size();
        if command == Command::DMA_READ {
            Ok(Item::Read(token))
        } else {
            Ok(Item::Write { token, data })
        }
    }

    fn reply(&mut self, mut message: Message) -> Result<Option<Item>, ProtocolError> {
        let Header { id, command, .. } = message.header;
        let unexpected = ProtocolError::UnexpectedReply { id, command: command.0 };
        let answered = self.requests.take(id).ok_or(unexpected)?;
        if !answered.what.answers(command) {
            return Err(unexpected);
        }
        let fds = std::mem::take(&mut message.fds);
        let reply = match message.header.error_reply() {
            Some(errno) => Err(errno),
            None => self.answer(&answered.what, message.payload, fds),
        };
        if answered.forgotten {
            return Ok(None);
        }
        Ok(Some(Item::Reply { request: answered.request, reply }))
    }

    fn answer(
        &mut self,
        expected: &Expected,
        range: Range<usize>,
        fds: Vec<OwnedFd>,
    ) -> Result<Answer, Errno> {
        let payload = self.inbox.bytes(range.clone());
        let reply = match *expected {
            Expected::Version => {
                let (negotiated, theirs) = agreed(payload, &self.limits).ok_or(Errno::PROTO)?;
                self.negotiated = Some(negotiated);
                self.peer = theirs;
                self.inbox.allow_fds(self.limits.max_msg_fds);
                Reply::Negotiated(negotiated)
            }
            Expected::Data { access } => {
                let count = data(payload, &access).ok_or(Errno::PROTO)?;
                let start = range.start + ACCESS_SIZE;
                return Ok(Answer::Data(start..start + count));
            }
            Expected::Feature { flags, room } => {
                let count = feature(payload, flags, room).ok_or(Errno::PROTO)?;
                return Ok(Answer::Feature(range.end - count..range.end));
            }
            Expected::Other { .. } => return Ok(Answer::Other(range, fds)),
            Expected::Device => Reply::Device(device(payload, &self.limits).ok_or(Errno::PROTO)?),
            Expected::Region { index, room } => {
                let region = region(payload, index, room, fds, &self.limits);
                Reply::Region(region.ok_or(Errno::PROTO)?)
            }
            Expected::IoFds { index, room } => {
                let parts = io_fds(payload, index, room, fds, &self.limits);
                Reply::IoFds(parts.ok_or(Errno::PROTO)?)
            }
            Expected::Irq { index } => {
                Reply::Irq(irq(payload, index, &self.limits).ok_or(Errno::PROTO)?)
            }
            Expected::Done { payload: limit } if payload.len() <= limit => Reply::Done,
            Expected::Done { .. } => return Err(Errno::PROTO),
        };
        Ok(Answer::Owned(reply))
    }
}

fn agreed(payload: &[u8], limits: &Limits) -> Option<(Negotiated, Capabilities)> {
    let (proposal, theirs) = Proposal::decode(payload).ok()?;
    let negotiated = proposal.agree(limits);
    (proposal.major == MAJOR && negotiated.pgsizes != 0).then_some((negotiated, theirs))
}

/// Bytes of value in the reply to a question about a feature.
fn feature(payload: &[u8], flags: u32, room: u32) -> Option<usize> {
    let count = payload.len().checked_sub(FEATURE_SIZE)?;
    (u32_at(payload, 4) == flags && count <= room as usize).then_some(count)
}

/// Bytes of data in the reply to a read.
fn data(payload: &[u8], access: &RegionAccess) -> Option<usize> {
    if payload.len() < ACCESS_SIZE {
        return None;
    }
    let count = u32_at(payload, 12);
    let fits = u64_at(payload, 0) == access.offset
        && u32_at(payload, 8) == access.region
        && count <= access.count
        && payload.len() - ACCESS_SIZE == count as usize;
    fits.then_some(count as usize)
}

fn device(payload: &[u8], limits: &Limits) -> Option<DeviceSummary> {
    if payload.len() < DEVICE_INFO_SIZE {
        return None;
    }
    let flags = u32_at(payload, 4);
    let summary = DeviceSummary {
        resettable: flags & wire::DEVICE_RESETTABLE != 0,
        pci: flags & wire::DEVICE_PCI != 0,
        regions: u32_at(payload, 8),
        irqs: u32_at(payload, 12),
    };
    let bounded = summary.regions <= limits.max_regions && summary.irqs <= limits.max_irq_types;
    bounded.then_some(summary)
}

fn irq(payload: &[u8], index: u32, limits: &Limits) -> Option<Irq> {
    if payload.len() < IRQ_INFO_SIZE || u32_at(payload, 8) != index {
        return None;
    }
    let flags = u32_at(payload, 4);
    let irq = Irq {
        count: u32_at(payload, 12),
        maskable: flags & wire::IRQ_MASKABLE != 0,
        automasked: flags & wire::IRQ_AUTOMASKED != 0,
        noresize: flags & wire::IRQ_NORESIZE != 0,
    };
    (irq.count <= limits.max_irq_vectors).then_some(irq)
}

fn region(
    payload: &[u8],
    index: u32,
    room: u32,
    mut fds: Vec<OwnedFd>,
    limits: &Limits,
) -> Option<RegionInfo> {
    if payload.len() < REGION_INFO_SIZE || u32_at(payload, 8) != index || fds.len() > 1 {
        return None;
    }
    let flags = u32_at(payload, 4);
    let needed = u32_at(payload, 0);
    let size = u64_at(payload, 16);
    let offset = u64_at(payload, 24);
    offset.checked_add(size)?;
    let whole = needed <= room && flags & wire::REGION_CAPS != 0;
    let areas = if whole { sparse_areas(payload, size, limits)? } else { Vec::new() };
    Some(RegionInfo {
        index,
        size,
        readable: flags & wire::REGION_READABLE != 0,
        writable: flags & wire::REGION_WRITABLE != 0,
        mappable: flags & wire::REGION_MAPPABLE != 0,
        fd: fds.pop(),
        offset,
        areas,
        needed,
    })
}

/// Walks the list of capabilities, which may only go forward, and reads the sparse areas.
fn sparse_areas(payload: &[u8], size: u64, limits: &Limits) -> Option<Vec<SparseArea>> {
    let mut areas = Vec::new();
    let mut at = u32_at(payload, 12) as usize;
    let mut least = REGION_INFO_SIZE;
    while at != 0 {
        if at < least {
            return None;
        }
        let capability = payload.get(at..)?;
        let header = capability.first_chunk::<CAP_HEADER_SIZE>()?;
        if u16_at(header, 0) == wire::CAP_SPARSE_MMAP {
            read_areas(capability, size, limits, &mut areas)?;
        }
        least = at + CAP_HEADER_SIZE;
        at = u32_at(header, 4) as usize;
    }
    Some(areas)
}

fn read_areas(
    capability: &[u8],
    size: u64,
    limits: &Limits,
    areas: &mut Vec<SparseArea>,
) -> Option<()> {
    let fixed = capability.first_chunk::<SPARSE_HEADER_SIZE>()?;
    let count = u32_at(fixed, 8) as usize;
    if areas.len() + count > limits.max_sparse_areas as usize {
        return None;
    }
    let table = capability[SPARSE_HEADER_SIZE..].get(..count * SPARSE_AREA_SIZE)?;
    for entry in table.chunks_exact(SPARSE_AREA_SIZE) {
        let area = SparseArea { offset: u64_at(entry, 0), size: u64_at(entry, 8) };
        if area.offset.checked_add(area.size)? > size {
            return None;
        }
        areas.push(area);
    }
    Some(())
}

fn io_fds(
    payload: &[u8],
    index: u32,
    room: u32,
    fds: Vec<OwnedFd>,
    limits: &Limits,
) -> Option<RegionIoFds> {
    if payload.len() < IO_FDS_SIZE || u32_at(payload, 8) != index {
        return None;
    }
    let needed = u32_at(payload, 0);
    let count = u32_at(payload, 12);
    if count > limits.max_io_fds {
        return None;
    }
    if needed > room || count == 0 {
        return Some(RegionIoFds { parts: Vec::new(), fds, needed });
    }
    // Later versions may have longer entries, all of one size.
    let table = &payload[IO_FDS_SIZE..];
    let stride = table.len() / count as usize;
    if stride < IO_FD_SIZE || table.len() % count as usize != 0 {
        return None;
    }
    let parts: Option<Vec<_>> =
        table.chunks_exact(stride).map(|entry| io_fd(entry, fds.len())).collect();
    Some(RegionIoFds { parts: parts?, fds, needed })
}

fn io_fd(entry: &[u8], fds: usize) -> Option<IoFdInfo> {
    let fd_index = u32_at(entry, 16);
    let data = u64_at(entry, 32);
    let kind = match u32_at(entry, 20) {
        wire::IO_FD_EVENT => IoFdKind::IoEventFd { datamatch: data },
        wire::IO_FD_REGION => IoFdKind::IoRegionFd { user_data: data },
        _ => return None,
    };
    if fd_index as usize >= fds {
        return None;
    }
    let (offset, size) = (u64_at(entry, 0), u64_at(entry, 8));
    Some(IoFdInfo { offset, size, fd_index, flags: u32_at(entry, 24), kind })
}
