//! Queues the client's requests.

use super::{Client, Command, Expected, Header, Negotiated, RequestError, RequestId, wire};
use crate::irqs::{IrqAction, action_flag};
use crate::maps::DmaUnmap;
use crate::outbox::SharedFd;
use crate::server::RegionAccess;
use crate::version::{self, Capabilities};
use crate::wire::Fixed;

/// Memory to share with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRequest {
    /// First DMA address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Whether the device may read it.
    pub readable: bool,
    /// Whether the device may write it.
    pub writable: bool,
    /// Where the range begins in the descriptor, in bytes; 0 without one.
    pub offset: u64,
}

impl Client {
    /// Proposes a version. This must be the first request.
    ///
    /// # Errors
    ///
    /// The connection has failed.
    pub fn negotiate(&mut self) -> Result<RequestId, RequestError> {
        self.negotiate_with(&Capabilities::new())
    }

    /// Proposes a version, with capabilities of the user's own.
    ///
    /// # Errors
    ///
    /// `Invalid` if they are more than 7 KiB or have the names of the protocol's; the connection has
    /// failed.
    pub fn negotiate_with(&mut self, extra: &Capabilities) -> Result<RequestId, RequestError> {
        self.check_failed()?;
        self.answerable()?;
        version::check(extra).map_err(|reason| RequestError::Invalid { reason })?;
        let payload = version::propose(&self.limits, extra);
        Ok(self.ask(Command::VERSION, &[&payload], Vec::new(), Expected::Version))
    }

    /// Asks what the device has.
    ///
    /// # Errors
    ///
    /// Too much waits, or nothing is agreed yet.
    pub fn device_info(&mut self) -> Result<RequestId, RequestError> {
        self.ready(0)?;
        let size = wire::DEVICE_INFO_SIZE;
        let payload: [u8; 16] = Fixed::new().u32(size as u32).u32(0).u32(0).u32(0).done();
        Ok(self.ask(Command::DEVICE_GET_INFO, &[&payload], Vec::new(), Expected::Device))
    }

    /// Asks about a region, with room for `room` bytes of reply (at least 32, which is enough for a
    /// region without sparse areas).
    ///
    /// # Errors
    ///
    /// Too much waits, or nothing is agreed yet.
    pub fn region_info(&mut self, index: u32, room: u32) -> Result<RequestId, RequestError> {
        self.ready(0)?;
        let room = room.max(wire::REGION_INFO_SIZE as u32);
        let payload: [u8; 32] =
            Fixed::new().u32(room).u32(0).u32(index).u32(0).u64(0).u64(0).done();
        let expected = Expected::Region { index, room };
        Ok(self.ask(Command::DEVICE_GET_REGION_INFO, &[&payload], Vec::new(), expected))
    }

    /// Asks for the I/O descriptors of a region, with room for `room` bytes of reply.
    ///
    /// # Errors
    ///
    /// Too much waits, or nothing is agreed yet.
    pub fn region_io_fds(&mut self, index: u32, room: u32) -> Result<RequestId, RequestError> {
        self.ready(0)?;
        let room = room.max(wire::IO_FDS_SIZE as u32);
        let payload: [u8; 16] = Fixed::new().u32(room).u32(0).u32(index).u32(0).done();
        let expected = Expected::IoFds { index, room };
        Ok(self.ask(Command::DEVICE_GET_REGION_IO_FDS, &[&payload], Vec::new(), expected))
    }

    /// Asks about an interrupt type.
    ///
    /// # Errors
    ///
    /// Too much waits, or nothing is agreed yet.
    pub fn irq_info(&mut self, index: u32) -> Result<RequestId, RequestError> {
        self.ready(0)?;
        let size = wire::IRQ_INFO_SIZE as u32;
        let payload: [u8; 16] = Fixed::new().u32(size).u32(0).u32(index).u32(0).done();
        let expected = Expected::Irq { index };
        Ok(self.ask(Command::DEVICE_GET_IRQ_INFO, &[&payload], Vec::new(), expected))
    }

    /// Shares memory: with a descriptor that the server may map, or by messages only.
    ///
    /// # Errors
    ///
    /// Too much waits, or nothing is agreed yet.
    pub fn dma_map(
        &mut self,
        map: &MapRequest,
        fd: Option<SharedFd>,
    ) -> Result<RequestId, RequestError> {
        let negotiated = self.ready(0)?;
        check_fds(&negotiated, usize::from(fd.is_some()))?;
        if (map.address | map.size | map.offset) % negotiated.page_size() != 0 {
            let reason = "a DMA map does not begin and end at multiples of the agreed page size";
            return Err(RequestError::Invalid { reason });
        }
        let mut flags = 0;
        if map.readable {
            flags |= wire::DMA_READABLE;
        }
        if map.writable {
            flags |= wire::DMA_WRITABLE;
        }
        let payload: [u8; wire::DMA_MAP_SIZE] = Fixed::new()
            .u32(wire::DMA_MAP_SIZE as u32)
            .u32(flags)
            .u64(map.offset)
            .u64(map.address)
            .u64(map.size)
            .done();
        let fds = fd.into_iter().collect();
        Ok(self.ask(Command::DMA_MAP, &[&payload], fds, Expected::Done { payload: 0 }))
    }

    /// Takes memory back.
    ///
    /// # Errors
    ///
    /// Too much waits, or nothing is agreed yet.
    pub fn dma_unmap(&mut self, unmap: DmaUnmap) -> Result<RequestId, RequestError> {
        self.ready(0)?;
        let (flags, address, size) = match unmap {
            DmaUnmap::Range { address, size } => (0, address, size),
            DmaUnmap::All => (wire::DMA_UNMAP_ALL, 0, 0),
        };
        let length = wire::DMA_UNMAP_SIZE;
        let payload: [u8; wire::DMA_UNMAP_SIZE] =
            Fixed::new().u32(length as u32).u32(flags).u64(address).u64(size).done();
        let expected = Expected::Done { payload: length };
        Ok(self.ask(Command::DMA_UNMAP, &[&payload], Vec::new(), expected))
    }

    /// Masks, unmasks or raises the interrupts of a range now; with `Trigger` and a count of 0 at 0,
    /// switches the type off.
    ///
    /// # Errors
    ///
    /// Too much waits, or nothing is agreed yet.
    pub fn irqs_now(
        &mut self,
        index: u32,
        start: u32,
        count: u32,
        action: IrqAction,
    ) -> Result<RequestId, RequestError> {
        self.set_irqs([index, start, count], action, wire::SET_NONE, &[], Vec::new())
    }

    /// Masks, unmasks or raises those interrupts from `start` on whose byte is not 0.
    ///
    /// # Errors
    ///
    /// Too much waits, or nothing is agreed yet.
    pub fn irqs_now_if(
        &mut self,
        index: u32,
        start: u32,
        which: &[u8],
        action: IrqAction,
    ) -> Result<RequestId, RequestError> {
        let count = which.len() as u32;
        self.set_irqs([index, start, count], action, wire::SET_BOOL, which, Vec::new())
    }

    /// Lets eventfds stand for an action on the interrupts from `start` on, one each.
    ///
    /// # Errors
    ///
    /// More than the server takes in one message; too much waits; nothing is agreed yet.
    pub fn irqs_assign(
        &mut self,
        index: u32,
        start: u32,
        eventfds: Vec<SharedFd>,
        action: IrqAction,
    ) -> Result<RequestId, RequestError> {
        if eventfds.is_empty() {
            return Err(RequestError::Invalid { reason: "no eventfd was given" });
        }
        let count = eventfds.len() as u32;
        self.set_irqs([index, start, count], action, wire::SET_EVENTFD, &[], eventfds)
    }

    /// Lets no eventfd stand for an action on a range of interrupts.
    ///
    /// # Errors
    ///
    /// Too much waits, or nothing is agreed yet.
    pub fn irqs_unassign(
        &mut self,
        index: u32,
        start: u32,
        count: u32,
        action: IrqAction,
    ) -> Result<RequestId, RequestError> {
        self.set_irqs([index, start, count], action, wire::SET_EVENTFD, &[], Vec::new())
    }

    fn set_irqs(
        &mut self,
        [index, start, count]: [u32; 3],
        action: IrqAction,
        kind: u32,
        which: &[u8],
        fds: Vec<SharedFd>,
    ) -> Result<RequestId, RequestError> {
        let negotiated = self.ready(0)?;
        check_fds(&negotiated, fds.len())?;
        let limit = self.limits.max_irq_vectors;
        if which.len() > limit as usize {
            return Err(RequestError::TooLarge { count: which.len(), limit });
        }
        let size = (wire::SET_IRQS_SIZE + which.len()) as u32;
        let payload: [u8; wire::SET_IRQS_SIZE] = Fixed::new()
            .u32(size)
            .u32(kind | action_flag(action))
            .u32(index)
            .u32(start)
            .u32(count)
            .done();
        let expected = Expected::Done { payload: 0 };
        Ok(self.ask(Command::DEVICE_SET_IRQS, &[&payload, which], fds, expected))
    }

    /// Reads a region.
    ///
    /// # Errors
    ///
    /// More than was agreed for one message; too much waits; nothing is agreed yet.
    pub fn region_read(&mut self, access: RegionAccess) -> Result<RequestId, RequestError> {
        self.ready(access.count as usize)?;
        let payload = wire::region_access(access.offset, access.region, access.count);
        let expected = Expected::Data { access };
        Ok(self.ask(Command::REGION_READ, &[&payload], Vec::new(), expected))
    }

    /// Writes a region.
    ///
    /// # Errors
    ///
    /// More than was agreed for one message; too much waits; nothing is agreed yet.
    pub fn region_write(
        &mut self,
        region: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<RequestId, RequestError> {
        self.ready(data.len())?;
        let payload = wire::region_access(offset, region, data.len() as u32);
        let expected = Expected::Done { payload: wire::ACCESS_SIZE };
        Ok(self.ask(Command::REGION_WRITE, &[&payload, data], Vec::new(), expected))
    }

    /// Writes a region and wants no reply: an error is not heard of. A later request that is answered
    /// was carried out after it.
    ///
    /// # Errors
    ///
    /// More than was agreed for one message; too much waits; nothing is agreed yet.
    pub fn region_write_posted(
        &mut self,
        region: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<(), RequestError> {
        self.postable(data.len())?;
        let payload = wire::region_access(offset, region, data.len() as u32);
        self.post(Command::REGION_WRITE, &[&payload, data]);
        Ok(())
    }

    /// Does several small writes (at most 8 bytes each) with one message.
    ///
    /// # Errors
    ///
    /// The server did not agree to it; too large; too much waits; nothing is agreed yet.
    pub fn region_write_multi(
        &mut self,
        writes: &[(u32, u64, &[u8])],
    ) -> Result<RequestId, RequestError> {
        let negotiated = self.ready(writes.len().saturating_mul(wire::MULTI_WRITE_SIZE))?;
        if !negotiated.write_multiple {
            return Err(RequestError::NotAgreed { what: "REGION_WRITE_MULTI" });
        }
        if writes.iter().any(|(_, _, data)| data.len() > 8) {
            let reason = "a write of REGION_WRITE_MULTI has more than 8 bytes";
            return Err(RequestError::Invalid { reason });
        }
        let count = writes.len() as u64;
        let mut payload = Vec::with_capacity(8 + writes.len() * wire::MULTI_WRITE_SIZE);
        payload.extend_from_slice(&count.to_le_bytes());
        for (region, offset, data) in writes {
            payload.extend_from_slice(&wire::region_access(*offset, *region, data.len() as u32));
            payload.extend_from_slice(data);
            payload.resize(payload.len() + 8 - data.len(), 0);
        }
        let expected = Expected::Done { payload: 8 };
        Ok(self.ask(Command::REGION_WRITE_MULTI, &[&payload], Vec::new(), expected))
    }

    /// Resets the device.
    ///
    /// # Errors
    ///
    /// Too much waits, or nothing is agreed yet.
    pub fn reset(&mut self) -> Result<RequestId, RequestError> {
        self.ready(0)?;
        let expected = Expected::Done { payload: 0 };
        Ok(self.ask(Command::DEVICE_RESET, &[], Vec::new(), expected))
    }

    /// Asks whether the device has a feature, and whether it can be read and changed as said.
    ///
    /// # Errors
    ///
    /// Too much waits, or nothing is agreed yet.
    pub fn feature_probe(
        &mut self,
        feature: u16,
        read: bool,
        change: bool,
    ) -> Result<RequestId, RequestError> {
        let read = if read { wire::FEATURE_GET } else { 0 };
        let change = if change { wire::FEATURE_SET } else { 0 };
        self.feature(u32::from(feature) | wire::FEATURE_PROBE | read | change, 0, &[])
    }

    /// Asks for the value of a feature, with room for so many bytes.
    ///
    /// # Errors
    ///
    /// Too much waits, or nothing is agreed yet.
    pub fn feature_get(&mut self, feature: u16, room: u32) -> Result<RequestId, RequestError> {
        self.feature(u32::from(feature) | wire::FEATURE_GET, room, &[])
    }

    /// Changes a feature.
    ///
    /// # Errors
    ///
    /// More than was agreed for one message; too much waits; nothing is agreed yet.
    pub fn feature_set(&mut self, feature: u16, data: &[u8]) -> Result<RequestId, RequestError> {
        self.feature(u32::from(feature) | wire::FEATURE_SET, data.len() as u32, data)
    }

    fn feature(&mut self, flags: u32, room: u32, data: &[u8]) -> Result<RequestId, RequestError> {
        self.ready(data.len())?;
        let size = (wire::FEATURE_SIZE as u32).saturating_add(room);
        let payload: [u8; wire::FEATURE_SIZE] = Fixed::new().u32(size).u32(flags).done();
        let expected = Expected::Feature { flags, room };
        Ok(self.ask(Command::DEVICE_FEATURE, &[&payload, data], Vec::new(), expected))
    }

    /// Sends a command that the engines do not know: what it means is between the two users. A server
    /// that does not know it either says ENOTSUP.
    ///
    /// # Errors
    ///
    /// `Invalid` for a command that the engines know; more data or descriptors than were agreed; too
    /// much waits; nothing is agreed yet.
    pub fn other(
        &mut self,
        command: Command,
        data: &[u8],
        fds: Vec<SharedFd>,
    ) -> Result<RequestId, RequestError> {
        let negotiated = self.ready(data.len())?;
        RequestError::unless_of_users(command)?;
        check_fds(&negotiated, fds.len())?;
        Ok(self.ask(command, &[data], fds, Expected::Other { command }))
    }

    /// Sends a command that the engines do not know, and wants no reply.
    ///
    /// # Errors
    ///
    /// As for [`other`](Client::other).
    pub fn other_posted(&mut self, command: Command, data: &[u8]) -> Result<(), RequestError> {
        self.postable(data.len())?;
        RequestError::unless_of_users(command)?;
        self.post(command, &[data]);
        Ok(())
    }

    /// Checks that a request that moves `count` bytes and is answered can be queued.
    fn ready(&self, count: usize) -> Result<Negotiated, RequestError> {
        let negotiated = self.postable(count)?;
        self.answerable()?;
        Ok(negotiated)
    }

    /// Checks that a command that moves `count` bytes can be queued.
    fn postable(&self, count: usize) -> Result<Negotiated, RequestError> {
        self.check_failed()?;
        let negotiated = self.negotiated.ok_or(RequestError::NotReady)?;
        if count > negotiated.max_data_xfer_size as usize {
            return Err(RequestError::TooLarge { count, limit: negotiated.max_data_xfer_size });
        }
        let queued = self.outbox.len();
        if queued > 0 && queued + count > self.limits.max_queued_bytes {
            return Err(RequestError::QueueFull { queued });
        }
        Ok(negotiated)
    }

    fn answerable(&self) -> Result<(), RequestError> {
        if self.requests.is_full() {
            return Err(RequestError::TooManyOutstanding { limit: self.requests.limit() });
        }
        Ok(())
    }

    fn ask(
        &mut self,
        command: Command,
        parts: &[&[u8]],
        fds: Vec<SharedFd>,
        expected: Expected,
    ) -> RequestId {
        let (id, request) = self.requests.insert(expected);
        self.outbox.push_with_fds(Header::command(id, command, 0), parts, fds);
        request
    }

    fn post(&mut self, command: Command, parts: &[&[u8]]) {
        let id = self.requests.unanswered();
        let mut header = Header::command(id, command, 0);
        header.flags |= wire::FLAG_NO_REPLY;
        self.outbox.push(header, parts);
    }
}

fn check_fds(negotiated: &Negotiated, count: usize) -> Result<(), RequestError> {
    let limit = negotiated.peer_max_msg_fds;
    if count > limit as usize {
        return Err(RequestError::TooManyDescriptors { count, limit });
    }
    Ok(())
}
