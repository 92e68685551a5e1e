//! Takes the client's messages, checks them, and answers those that the engine can answer itself.

use super::event::Body;
use super::{
    DmaMap, Errno, Event, Header, Inbox, MULTI_WRITE_SIZE, Message, MultiWrites, OwnedFd,
    ProtocolError, Range, RegionAccess, Restore, Server, State, Token, Write,
};
use crate::irqs::{Fixed, IrqData, Kind, SetIrqs};
use crate::maps::{DmaUnmap, Extent};
use crate::pending::RequestId;
use crate::version::{self, Capabilities, MAJOR, Negotiated, Proposal};
use crate::wire::{
    ACCESS_SIZE, Command, DMA_MAP_SIZE, DMA_READABLE, DMA_UNMAP_ALL, DMA_UNMAP_SIZE, DMA_WRITABLE,
    SET_IRQS_SIZE, u32_at, u64_at,
};

/// An event whose data still lies in the inbox.
pub(super) enum Item {
    Negotiated(Negotiated),
    Read { token: Token, access: RegionAccess },
    Write { token: Token, access: RegionAccess, data: Range<usize> },
    Multi { token: Token, data: Range<usize> },
    Map { token: Token, map: DmaMap },
    Unmap { token: Token, unmap: DmaUnmap },
    Irqs { token: Token, set: Fixed, flags: Range<usize>, fds: Vec<OwnedFd> },
    Reset { token: Token },
    FeatureGet { token: Token, feature: u16, room: u32 },
    FeatureSet { token: Token, feature: u16, data: Range<usize> },
    Other { token: Token, data: Range<usize>, fds: Vec<OwnedFd> },
    Answered { request: RequestId, result: Result<Range<usize>, Errno> },
    DmaDone { request: RequestId, result: Result<Range<usize>, Errno> },
}

impl Item {
    /// What has to be answered, if anything has.
    pub(super) fn token(&mut self) -> Option<&mut Token> {
        match self {
            Item::Read { token, .. }
            | Item::Write { token, .. }
            | Item::Multi { token, .. }
            | Item::Map { token, .. }
            | Item::Unmap { token, .. }
            | Item::Irqs { token, .. }
            | Item::Reset { token }
            | Item::FeatureGet { token, .. }
            | Item::FeatureSet { token, .. }
            | Item::Other { token, .. } => Some(token),
            Item::Negotiated(_) | Item::Answered { .. } | Item::DmaDone { .. } => None,
        }
    }

    pub(super) fn event(self, inbox: &Inbox) -> Event<'_> {
        match self {
            Item::Negotiated(negotiated) => Event::Negotiated(negotiated),
            Item::Read { token, access } => Event::RegionRead { token, access },
            Item::Write { token, access, data } => {
                Event::RegionWrite { token, access, data: inbox.bytes(data) }
            }
            Item::Multi { token, data } => {
                Event::RegionWriteMulti { token, writes: MultiWrites::new(inbox.bytes(data)) }
            }
            Item::Map { token, map } => Event::DmaMap { token, map },
            Item::Unmap { token, unmap } => Event::DmaUnmap { token, unmap },
            Item::Irqs { token, set, flags, fds } => {
                Event::SetIrqs { token, set: set_irqs(set, inbox.bytes(flags), fds) }
            }
            Item::Reset { token } => Event::Reset { token },
            Item::FeatureGet { token, feature, room } => Event::FeatureGet { token, feature, room },
            Item::FeatureSet { token, feature, data } => {
                Event::FeatureSet { token, feature, data: inbox.bytes(data) }
            }
            Item::Other { token, data, fds } => {
                let command = token.command;
                Event::Other { token, command, data: inbox.bytes(data), fds }
            }
            Item::Answered { request, result } => {
                Event::Answered { request, result: result.map(|range| inbox.bytes(range)) }
            }
            Item::DmaDone { request, result } => {
                Event::DmaDone { request, result: result.map(|range| inbox.bytes(range)) }
            }
        }
    }
}

pub(super) fn set_irqs(set: Fixed, flags: &[u8], fds: Vec<OwnedFd>) -> SetIrqs<'_> {
    let data = match set.kind {
        Kind::Now => IrqData::Now,
        Kind::NowIf => IrqData::NowIf(flags),
        Kind::EventFds if fds.is_empty() => IrqData::Unassign,
        Kind::EventFds => IrqData::EventFds(fds),
    };
    let Fixed { index, start, count, action, .. } = set;
    SetIrqs { index, start, count, action, data }
}

/// What becomes of a good command: something for the embedder, or nothing more to do.
type Taken = Result<Option<Item>, Errno>;

impl Server {
    /// The next thing for the embedder.
    pub(super) fn take(&mut self) -> Result<Option<Item>, ProtocolError> {
        self.failed()?;
        loop {
            let message = match self.inbox.next(!self.is_full()) {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(None),
                Err(error) => return Err(self.fail_on_header(error)),
            };
            let header = message.header;
            if self.negotiated().is_some()
                && !header.is_reply()
                && header.command != Command::VERSION
            {
                // Nearly all messages come here. Items are large, so they are moved only once.
                match self.ready_command(message) {
                    Ok(Some(item)) => return Ok(Some(item)),
                    Ok(None) => {}
                    Err(errno) => self.answer_error(&header, errno),
                }
                continue;
            }
            let taken =
                if header.is_reply() { self.reply(message) } else { self.first_command(message) };
            match taken {
                Ok(None) => {}
                Ok(Some(item)) => return Ok(Some(item)),
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    /// A VERSION, or a command of a client that may give none, not yet or not any more.
    fn first_command(&mut self, message: Message) -> Result<Option<Item>, ProtocolError> {
        let header = message.header;
        if let State::Revoked(errno) = self.state {
            self.answer_error(&header, errno);
            return Ok(None);
        }
        if header.command == Command::VERSION {
            return self.version(&message);
        }
        self.answer_error(&header, Errno::PROTO);
        Err(ProtocolError::NotNegotiated { command: header.command.0 })
    }

    fn ready_command(&mut self, message: Message) -> Taken {
        match message.header.command {
            Command::REGION_READ => self.region_read(&message),
            Command::REGION_WRITE => self.region_write(&message),
            Command::REGION_WRITE_MULTI => self.region_write_multi(&message),
            Command::DMA_MAP => self.dma_map(message),
            Command::DMA_UNMAP => self.dma_unmap(&message),
            Command::DEVICE_SET_IRQS => self.device_set_irqs(message),
            Command::DEVICE_RESET => self.device_reset(&message),
            Command::DEVICE_GET_INFO => self.device_get_info(&message),
            Command::DEVICE_GET_REGION_INFO => self.device_get_region_info(&message),
            Command::DEVICE_GET_REGION_IO_FDS => self.device_get_region_io_fds(&message),
            Command::DEVICE_GET_IRQ_INFO => self.device_get_irq_info(&message),
            Command::DEVICE_FEATURE => self.device_feature(&message),
            command if command.is_spoken() => Err(Errno::NOTSUP),
            _ => Ok(Some(self.other(message))),
        }
    }

    /// A command of the users' own.
    fn other(&mut self, message: Message) -> Item {
        let token = Server::token(&message.header, Body::Other, Restore::Nothing);
        Item::Other { token, data: message.payload, fds: message.fds }
    }

    fn answer_error(&mut self, header: &Header, errno: Errno) {
        if !header.wants_no_reply() {
            self.outbox.push(Header::error(header.id, header.command, errno), &[]);
        }
    }

    /// The token of a command. Whoever gives it out enters it into the table.
    pub(super) fn token(header: &Header, body: Body, restore: Restore) -> Token {
        Token {
            serial: None,
            id: header.id,
            command: header.command,
            no_reply: header.wants_no_reply(),
            body,
            restore,
        }
    }

    fn version(&mut self, message: &Message) -> Result<Option<Item>, ProtocolError> {
        let refused = match self.state {
            State::Ready(_) => {
                self.answer_error(&message.header, Errno::INVAL);
                return Ok(None);
            }
            State::Refusing(errno) => Some(("this server takes no client now", errno)),
            // Commands do not come here in these states.
            State::Revoked(errno) => Some(("the client's access was taken away", errno)),
            State::Failed(error) => return Err(error),
            State::Waiting if message.header.wants_no_reply() => {
                Some(("the client wants no reply", Errno::INVAL))
            }
            State::Waiting => None,
        };
        let proposal = match refused {
            Some(why) => Err(why),
            None => self.proposal(message),
        };
        match proposal {
            Ok((negotiated, offered)) => {
                let payload = version::accept(&self.limits, &negotiated, &offered);
                self.inbox.allow_fds(self.limits.max_msg_fds);
                let header = Header::reply(message.header.id, Command::VERSION, 0);
                self.outbox.push(header, &[&payload]);
                self.state = State::Ready(negotiated);
                Ok(Some(Item::Negotiated(negotiated)))
            }
            Err((reason, errno)) => {
                self.answer_error(&message.header, errno);
                Err(ProtocolError::VersionRefused { reason, errno })
            }
        }
    }

    /// What holds, and what this side's user offers.
    fn proposal(
        &mut self,
        message: &Message,
    ) -> Result<(Negotiated, Capabilities), (&'static str, Errno)> {
        let payload = self.inbox.bytes(message.payload.clone());
        let (proposal, theirs) =
            Proposal::decode(payload).map_err(|reason| (reason, Errno::INVAL))?;
        if proposal.major != MAJOR {
            return Err(("the client's major version is not 0", Errno::NOTSUP));
        }
        let negotiated = proposal.agree(&self.limits);
        if negotiated.pgsizes == 0 {
            return Err(("the client and this side have no page size in common", Errno::INVAL));
        }
        self.peer = theirs;
        let Some(choose) = &mut self.choose else { return Ok((negotiated, Capabilities::new())) };
        let ours = choose(&self.peer)
            .map_err(|errno| ("the client's capabilities are not the ones wanted", errno))?;
        version::check(&ours).map_err(|reason| (reason, Errno::IO))?;
        Ok((negotiated, ours))
    }

    /// The payload of a command that takes no descriptors and has at least `size` bytes.
    pub(super) fn payload(&self, message: &Message, size: usize) -> Result<&[u8], Errno> {
        let payload = self.inbox.bytes(message.payload.clone());
        if payload.len() < size || !message.fds.is_empty() {
            return Err(Errno::INVAL);
        }
        Ok(payload)
    }

    /// The range of a read or write, checked against the device and the limits.
    fn access(&self, message: &Message) -> Result<RegionAccess, Errno> {
        let payload = self.payload(message, ACCESS_SIZE)?;
        let access = RegionAccess {
            offset: u64_at(payload, 0),
            region: u32_at(payload, 8),
            count: u32_at(payload, 12),
        };
        let State::Ready(negotiated) = &self.state else { return Err(Errno::PROTO) };
        if access.count > negotiated.max_data_xfer_size {
            return Err(Errno::INVAL);
        }
        Ok(access)
    }

    fn check_access(&self, access: &RegionAccess, write: bool) -> Result<(), Errno> {
        let region = self.info.regions.get(access.region as usize).ok_or(Errno::INVAL)?;
        let end = access.offset.checked_add(u64::from(access.count)).ok_or(Errno::INVAL)?;
        if end > region.size {
            return Err(Errno::INVAL);
        }
        let right = if write { region.writable } else { region.readable };
        if right { Ok(()) } else { Err(Errno::PERM) }
    }

    fn region_read(&mut self, message: &Message) -> Taken {
        if message.header.wants_no_reply() {
            // There is nobody to give the data to.
            return Err(Errno::INVAL);
        }
        let access = self.access(message)?;
        self.check_access(&access, false)?;
        let token = Server::token(&message.header, Body::Access(access), Restore::Nothing);
        Ok(Some(Item::Read { token, access }))
    }

    fn region_write(&mut self, message: &Message) -> Taken {
        let access = self.access(message)?;
        self.check_access(&access, true)?;
        let start = message.payload.start + ACCESS_SIZE;
        if message.payload.end - start != access.count as usize {
            return Err(Errno::INVAL);
        }
        let data = start..message.payload.end;
        let token = Server::token(&message.header, Body::Access(access), Restore::Nothing);
        Ok(Some(Item::Write { token, access, data }))
    }

    /// All writes are checked before the first is done.
    fn region_write_multi(&mut self, message: &Message) -> Taken {
        let payload = self.payload(message, 8)?;
        let State::Ready(negotiated) = &self.state else { return Err(Errno::PROTO) };
        if !negotiated.write_multiple {
            return Err(Errno::NOTSUP);
        }
        let count = u64_at(payload, 0);
        let writes = &payload[8..];
        let size = usize::try_from(count).ok().and_then(|n| n.checked_mul(MULTI_WRITE_SIZE));
        if size != Some(writes.len()) {
            return Err(Errno::INVAL);
        }
        for bytes in writes.chunks_exact(MULTI_WRITE_SIZE) {
            let write = Write::decode(bytes);
            if write.access.count > 8 {
                return Err(Errno::INVAL);
            }
            self.check_access(&write.access, true)?;
        }
        let data = message.payload.start + 8..message.payload.end;
        let token = Server::token(&message.header, Body::Multi { count }, Restore::Nothing);
        Ok(Some(Item::Multi { token, data }))
    }

    fn dma_map(&mut self, mut message: Message) -> Taken {
        let payload = self.inbox.bytes(message.payload.clone());
        if payload.len() < DMA_MAP_SIZE || message.fds.len() > 1 {
            return Err(Errno::INVAL);
        }
        let flags = u32_at(payload, 4);
        let map = DmaMap {
            address: u64_at(payload, 16),
            size: u64_at(payload, 24),
            readable: flags & DMA_READABLE != 0,
            writable: flags & DMA_WRITABLE != 0,
            fd: message.fds.pop(),
            offset: u64_at(payload, 8),
        };
        if map.offset.checked_add(map.size).is_none() {
            return Err(Errno::INVAL);
        }
        let (address, size) = (map.address, map.size);
        let extent = Extent { size, readable: map.readable, writable: map.writable };
        let State::Ready(negotiated) = &self.state else { return Err(Errno::PROTO) };
        if (address | size | map.offset) % negotiated.page_size() != 0 {
            return Err(Errno::INVAL);
        }
        self.info.reaches(&map)?;
        self.maps.insert(address, extent, negotiated.max_dma_maps)?;
        let restore = Restore::Mapped { address, size };
        let token = Server::token(&message.header, Body::Empty, restore);
        Ok(Some(Item::Map { token, map }))
    }

    fn dma_unmap(&mut self, message: &Message) -> Taken {
        let payload = self.payload(message, DMA_UNMAP_SIZE)?;
        let (argsz, flags) = (u32_at(payload, 0), u32_at(payload, 4));
        let (address, size) = (u64_at(payload, 8), u64_at(payload, 16));
        let body = Body::Unmap { argsz, flags, address, size };
        if flags & !DMA_UNMAP_ALL != 0 {
            return Err(Errno::NOTSUP);
        }
        if flags == DMA_UNMAP_ALL {
            if address != 0 || size != 0 {
                return Err(Errno::INVAL);
            }
            self.maps.clear();
            let token = Server::token(&message.header, body, Restore::Nothing);
            return Ok(Some(Item::Unmap { token, unmap: DmaUnmap::All }));
        }
        let extents = self.maps.remove_within(address, size)?;
        let token = Server::token(&message.header, body, Restore::Unmapped(extents));
        Ok(Some(Item::Unmap { token, unmap: DmaUnmap::Range { address, size } }))
    }

    fn device_set_irqs(&mut self, message: Message) -> Taken {
        let payload = self.inbox.bytes(message.payload.clone());
        let set = Fixed::decode(payload, &self.info.irqs, message.fds.len())?;
        let start = message.payload.start + SET_IRQS_SIZE;
        let flags = match set.kind {
            Kind::NowIf => start..start + set.count as usize,
            Kind::Now | Kind::EventFds => start..start,
        };
        let token = Server::token(&message.header, Body::Empty, Restore::Nothing);
        Ok(Some(Item::Irqs { token, set, flags, fds: message.fds }))
    }

    fn device_reset(&mut self, message: &Message) -> Taken {
        self.payload(message, 0)?;
        if !self.info.resettable {
            return Err(Errno::NOTSUP);
        }
        let token = Server::token(&message.header, Body::Empty, Restore::Nothing);
        Ok(Some(Item::Reset { token }))
    }
}
