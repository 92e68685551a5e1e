//! Gives a device its commands one by one and answers each at once.

use super::commands::{Item, set_irqs};
use super::{
    Bus, Errno, Inbox, MultiWrites, OwnedFd, ProtocolError, Range, RegionAccess, Server, SharedFd,
    Token,
};
use crate::irqs::SetIrqs;
use crate::maps::{DmaMap, DmaUnmap};
use crate::pending::RequestId;
use crate::version::Negotiated;
use crate::wire::Command;

/// What a device answers to a command of the users' own.
#[derive(Debug, Default)]
pub struct OtherReply {
    /// At most 4096 bytes.
    pub data: Vec<u8>,
    /// At most as many as the client takes.
    pub fds: Vec<SharedFd>,
}

/// A device that answers every command at once. Use [`Server::poll`] if answers take time.
///
/// Ranges have been checked against the device's description. An error goes to the client as it is.
pub trait Device {
    /// Reads a region into `data`, which starts as zeros.
    ///
    /// # Errors
    ///
    /// What the client is told.
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), Errno>;

    /// Writes `data` to a region.
    ///
    /// # Errors
    ///
    /// What the client is told.
    fn region_write(
        &mut self,
        bus: &mut Bus<'_>,
        region: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Errno>;

    /// Whether it takes no command for now: those that have come wait in the engine, for instance until
    /// a `SharedSession` takes the session over.
    fn pauses(&self) -> bool {
        false
    }

    /// The client agreed on a version.
    fn negotiated(&mut self, negotiated: &Negotiated) {
        let _ = negotiated;
    }

    /// The client shares memory. Map `map.fd` and then close it, or drop it.
    ///
    /// # Errors
    ///
    /// What the client is told; the range then counts as not mapped.
    fn dma_map(&mut self, map: DmaMap) -> Result<(), Errno> {
        let _ = map;
        Ok(())
    }

    /// The client takes memory back. When this returns, nothing uses it any more.
    ///
    /// # Errors
    ///
    /// What the client is told; the range then still counts as mapped.
    fn dma_unmap(&mut self, unmap: DmaUnmap) -> Result<(), Errno> {
        let _ = unmap;
        Ok(())
    }

    /// The client sets up, masks or raises interrupts.
    ///
    /// # Errors
    ///
    /// What the client is told.
    fn set_irqs(&mut self, set: SetIrqs<'_>) -> Result<(), Errno> {
        let _ = set;
        Err(Errno::NOTSUP)
    }

    /// The client resets the device.
    ///
    /// # Errors
    ///
    /// What the client is told.
    fn reset(&mut self, bus: &mut Bus<'_>) -> Result<(), Errno> {
        let _ = bus;
        Ok(())
    }

    /// The client asks for the value of a feature that the device describes as readable.
    ///
    /// # Errors
    ///
    /// What the client is told.
    fn feature_get(&mut self, feature: u16, value: &mut Vec<u8>) -> Result<(), Errno> {
        let _ = (feature, value);
        Err(Errno::NOTTY)
    }

    /// The client changes a feature that the device describes as writable.
    ///
    /// # Errors
    ///
    /// What the client is told.
    fn feature_set(&mut self, feature: u16, value: &[u8]) -> Result<(), Errno> {
        let _ = (feature, value);
        Err(Errno::NOTTY)
    }

    /// A command that the engine does not know: what it means, client and device have agreed upon. The
    /// reply is empty before.
    ///
    /// # Errors
    ///
    /// What the client is told; ENOTSUP for a command that the device does not know either.
    fn other(
        &mut self,
        bus: &mut Bus<'_>,
        command: Command,
        data: &[u8],
        fds: Vec<OwnedFd>,
        reply: &mut OtherReply,
    ) -> Result<(), Errno> {
        let _ = (bus, command, data, fds, reply);
        Err(Errno::NOTSUP)
    }

    /// The client answered a command that was sent by [`Bus::ask`], or did not know it.
    fn answered(&mut self, bus: &mut Bus<'_>, request: RequestId, result: Result<&[u8], Errno>) {
        let _ = (bus, request, result);
    }

    /// The client answered a DMA request that was made on the bus: the data read (empty for a write),
    /// or its error.
    fn dma_done(&mut self, bus: &mut Bus<'_>, request: RequestId, result: Result<&[u8], Errno>) {
        let _ = (bus, request, result);
    }
}

impl Server {
    /// Gives `device` every command that has come in whole, and answers it.
    ///
    /// Send the output afterwards. Input that is left because the output queue is full is served by
    /// the next call.
    ///
    /// # Errors
    ///
    /// The client broke the protocol: send what is queued, close, and drop the engine.
    pub fn serve(&mut self, device: &mut impl Device) -> Result<(), ProtocolError> {
        self.serve_some(device, usize::MAX).map(drop)
    }

    /// As [`serve`](Server::serve), and gives the device at most so many commands; how many it was
    /// given. [`has_work`](Server::has_work) says whether more are there.
    ///
    /// # Errors
    ///
    /// As for [`serve`](Server::serve).
    pub fn serve_some(
        &mut self,
        device: &mut impl Device,
        most: usize,
    ) -> Result<usize, ProtocolError> {
        let mut served = 0;
        while served < most && !device.pauses() {
            if served > 0 && self.inbox.is_empty() {
                // What came before has failed nothing, so nothing is left to be told either.
                break;
            }
            let Some(item) = self.take()? else { break };
            self.give(item, device);
            served += 1;
        }
        Ok(served)
    }

    fn give(&mut self, item: Item, device: &mut impl Device) {
        let (token, result) = match item {
            Item::Negotiated(negotiated) => return device.negotiated(&negotiated),
            Item::Read { token, access } => return self.give_read(token, access, device),
            Item::FeatureGet { token, feature, .. } => {
                let mut value = Vec::new();
                return match device.feature_get(feature, &mut value) {
                    Ok(()) => self.complete_with(token, &value, Vec::new()),
                    Err(errno) => self.complete(token, Err(errno)),
                };
            }
            Item::Other { token, data, fds } => return self.give_other(token, data, fds, device),
            Item::Answered { request, result } => {
                let (inbox, mut bus) = self.split();
                let result = result.map(|range| inbox.bytes(range));
                return device.answered(&mut bus, request, result);
            }
            Item::DmaDone { request, result } => {
                let (inbox, mut bus) = self.split();
                let result = result.map(|range| inbox.bytes(range));
                return device.dma_done(&mut bus, request, result);
            }
            Item::FeatureSet { token, feature, data } => {
                (token, device.feature_set(feature, self.inbox.bytes(data)))
            }
            Item::Write { token, access, data } => {
                let (inbox, mut bus) = self.split();
                let data = inbox.bytes(data);
                (token, device.region_write(&mut bus, access.region, access.offset, data))
            }
            Item::Multi { token, data } => {
                let (inbox, mut bus) = self.split();
                (token, write_all(MultiWrites::new(inbox.bytes(data)), &mut bus, device))
            }
            Item::Map { token, map } => (token, device.dma_map(map)),
            Item::Unmap { token, unmap } => (token, device.dma_unmap(unmap)),
            Item::Irqs { token, set, flags, fds } => {
                (token, device.set_irqs(set_irqs(set, self.inbox.bytes(flags), fds)))
            }
            Item::Reset { token } => (token, device.reset(&mut self.bus())),
        };
        self.complete(token, result);
    }

    fn give_other(
        &mut self,
        token: Token,
        data: Range<usize>,
        fds: Vec<OwnedFd>,
        device: &mut impl Device,
    ) {
        let mut reply = OtherReply::default();
        let (inbox, mut bus) = self.split();
        let data = inbox.bytes(data);
        match device.other(&mut bus, token.command, data, fds, &mut reply) {
            Ok(()) => self.complete_with(token, &reply.data, reply.fds),
            Err(errno) => self.complete(token, Err(errno)),
        }
    }

    fn give_read(&mut self, token: Token, access: RegionAccess, device: &mut impl Device) {
        self.complete_read(token, |data| device.region_read(access.region, access.offset, data));
    }

    /// The input, and the way out, at the same time.
    fn split(&mut self) -> (&Inbox, Bus<'_>) {
        let negotiated = self.negotiated().copied();
        let bus = Bus {
            outbox: &mut self.outbox,
            requests: &mut self.requests,
            maps: &self.maps,
            limits: &self.limits,
            negotiated,
        };
        (&self.inbox, bus)
    }
}

fn write_all(
    writes: MultiWrites<'_>,
    bus: &mut Bus<'_>,
    device: &mut impl Device,
) -> Result<(), Errno> {
    for write in writes {
        let access = write.access;
        device.region_write(bus, access.region, access.offset, write.data())?;
    }
    Ok(())
}
