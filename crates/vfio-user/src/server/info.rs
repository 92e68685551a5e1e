//! Answers questions about the device.

use std::sync::Arc;

use super::commands::Item;
use super::{Errno, Header, Message, Server, State};
use crate::device::{IoFdKind, Mapping, Region};
use crate::outbox::SharedFd;
use crate::wire::{
    CAP_HEADER_SIZE, CAP_SPARSE_MMAP, DEVICE_INFO_SIZE, Fixed, IO_FD_EVENT, IO_FD_REGION,
    IO_FD_SIZE, IO_FDS_SIZE, IRQ_INFO_SIZE, REGION_INFO_SIZE, SPARSE_AREA_SIZE, SPARSE_HEADER_SIZE,
    u32_at,
};

type Taken = Result<Option<Item>, Errno>;

impl Server {
    pub(super) fn device_get_info(&mut self, message: &Message) -> Taken {
        self.asked_size(message, DEVICE_INFO_SIZE, DEVICE_INFO_SIZE)?;
        let reply: [u8; DEVICE_INFO_SIZE] = Fixed::new()
            .u32(DEVICE_INFO_SIZE as u32)
            .u32(self.info.flags())
            .u32(self.info.regions.len() as u32)
            .u32(self.info.irqs.len() as u32)
            .done();
        self.answer(message, &[&reply], Vec::new());
        Ok(None)
    }

    pub(super) fn device_get_irq_info(&mut self, message: &Message) -> Taken {
        self.asked_size(message, IRQ_INFO_SIZE, IRQ_INFO_SIZE)?;
        let index = u32_at(self.payload(message, IRQ_INFO_SIZE)?, 8);
        let irq = self.info.irqs.get(index as usize).ok_or(Errno::INVAL)?;
        let reply: [u8; IRQ_INFO_SIZE] = Fixed::new()
            .u32(IRQ_INFO_SIZE as u32)
            .u32(irq.flags())
            .u32(index)
            .u32(irq.count)
            .done();
        self.answer(message, &[&reply], Vec::new());
        Ok(None)
    }

    /// A client that left too little room for the capabilities learns how much they need, and gets
    /// the descriptor when it asks again.
    pub(super) fn device_get_region_info(&mut self, message: &Message) -> Taken {
        let room = self.asked_size(message, REGION_INFO_SIZE, REGION_INFO_SIZE)?;
        let index = u32_at(self.payload(message, REGION_INFO_SIZE)?, 8);
        let info = Arc::clone(&self.info);
        let region = info.regions.get(index as usize).ok_or(Errno::INVAL)?;
        // A client that takes no descriptors reads and writes by messages.
        let unmapped = Region { mapping: None, io_fds: Vec::new(), ..*region };
        let region = if self.sends_fds() { region } else { &unmapped };
        let capabilities = sparse_capability(region);
        let needed = REGION_INFO_SIZE + capabilities.len();
        let fixed: [u8; REGION_INFO_SIZE] = Fixed::new()
            .u32(needed as u32)
            .u32(region.flags())
            .u32(index)
            .u32(if capabilities.is_empty() { 0 } else { REGION_INFO_SIZE as u32 })
            .u64(region.size)
            .u64(region.mapping.as_ref().map_or(0, |mapping| mapping.offset))
            .done();
        if room < needed {
            self.answer(message, &[&fixed], Vec::new());
        } else {
            let fds = region.mapping.iter().map(|mapping| Arc::clone(&mapping.fd)).collect();
            self.answer(message, &[&fixed, &capabilities], fds);
        }
        Ok(None)
    }

    pub(super) fn device_get_region_io_fds(&mut self, message: &Message) -> Taken {
        let room = self.asked_size(message, IO_FDS_SIZE, IO_FDS_SIZE)?;
        let index = u32_at(self.payload(message, IO_FDS_SIZE)?, 8);
        let info = Arc::clone(&self.info);
        let region = info.regions.get(index as usize).ok_or(Errno::INVAL)?;
        let unmapped = Region { mapping: None, io_fds: Vec::new(), ..*region };
        let region = if self.sends_fds() { region } else { &unmapped };
        let (table, fds) = io_fd_table(region);
        let State::Ready(negotiated) = &self.state else { return Err(Errno::PROTO) };
        if fds.len() > negotiated.peer_max_msg_fds as usize {
            return Err(Errno::NOSPC);
        }
        let needed = IO_FDS_SIZE + table.len();
        let fixed: [u8; IO_FDS_SIZE] = Fixed::new()
            .u32(needed as u32)
            .u32(0)
            .u32(index)
            .u32(region.io_fds.len() as u32)
            .done();
        if room < needed {
            self.answer(message, &[&fixed], Vec::new());
        } else {
            self.answer(message, &[&fixed, &table], fds);
        }
        Ok(None)
    }

    /// How many bytes of reply the client has room for, at least `least`.
    fn asked_size(&self, message: &Message, size: usize, least: usize) -> Result<usize, Errno> {
        let room = u32_at(self.payload(message, size)?, 0) as usize;
        if room < least { Err(Errno::INVAL) } else { Ok(room) }
    }

    /// Whether the client takes descriptors at all.
    fn sends_fds(&self) -> bool {
        self.negotiated().is_some_and(|negotiated| negotiated.peer_max_msg_fds > 0)
    }

    pub(super) fn answer(&mut self, message: &Message, parts: &[&[u8]], fds: Vec<SharedFd>) {
        if !message.header.wants_no_reply() {
            let header = Header::reply(message.header.id, message.header.command, 0);
            self.outbox.push_with_fds(header, parts, fds);
        }
    }
}

/// The capability that lists the mappable areas; nothing if the whole region or none of it is.
fn sparse_capability(region: &Region) -> Vec<u8> {
    let Some(Mapping { areas, .. }) = &region.mapping else { return Vec::new() };
    if areas.is_empty() {
        return Vec::new();
    }
    let mut bytes = Vec::with_capacity(SPARSE_HEADER_SIZE + areas.len() * SPARSE_AREA_SIZE);
    bytes.extend_from_slice(&CAP_SPARSE_MMAP.to_le_bytes());
    bytes.extend_from_slice(&1u16.to_le_bytes());
    bytes.extend_from_slice(&0u32.to_le_bytes());
    debug_assert_eq!(bytes.len(), CAP_HEADER_SIZE, "the header of a capability is 8 bytes");
    bytes.extend_from_slice(&(areas.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&0u32.to_le_bytes());
    for area in areas {
        bytes.extend_from_slice(&area.offset.to_le_bytes());
        bytes.extend_from_slice(&area.size.to_le_bytes());
    }
    bytes
}

/// The table of sub-regions and the descriptors it names, each once.
fn io_fd_table(region: &Region) -> (Vec<u8>, Vec<SharedFd>) {
    let mut table = Vec::with_capacity(region.io_fds.len() * IO_FD_SIZE);
    let mut fds: Vec<SharedFd> = Vec::new();
    for io in &region.io_fds {
        let known = fds.iter().position(|fd| Arc::ptr_eq(fd, &io.fd));
        let fd_index = known.unwrap_or_else(|| {
            fds.push(Arc::clone(&io.fd));
            fds.len() - 1
        });
        let (kind, data) = match io.kind {
            IoFdKind::IoEventFd { datamatch } => (IO_FD_EVENT, datamatch),
            IoFdKind::IoRegionFd { user_data } => (IO_FD_REGION, user_data),
        };
        let entry: [u8; IO_FD_SIZE] = Fixed::new()
            .u64(io.offset)
            .u64(io.size)
            .u32(fd_index as u32)
            .u32(kind)
            .u32(io.flags)
            .u32(0)
            .u64(data)
            .done();
        table.extend_from_slice(&entry);
    }
    (table, fds)
}
