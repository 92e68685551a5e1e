//! The calls: what a client asks of a device, one at a time.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use super::{BlockingClient, CallError, Stream, wrong_reply};
use crate::client::{DeviceSummary, MapRequest, RegionInfo, RegionIoFds, Reply};
use crate::device::Irq;
use crate::error::RequestError;
use crate::irqs::IrqAction;
use crate::maps::DmaUnmap;
use crate::outbox::SharedFd;
use crate::server::RegionAccess;
use crate::wire::Command;

impl<S: Stream> BlockingClient<S> {
    /// What the device has.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn device_info(&mut self) -> Result<DeviceSummary, CallError> {
        let request = self.client.device_info()?;
        self.wait(request, |reply| match reply {
            Reply::Device(summary) => Ok(summary),
            _ => Err(wrong_reply()),
        })
    }

    /// A region, with its sparse areas and the memory behind it.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn region_info(&mut self, index: u32) -> Result<RegionInfo, CallError> {
        // Room for one sparse area; a server that needs more says so.
        let region = self.ask_region(index, 64)?;
        if region.needed <= 64 {
            return Ok(region);
        }
        let needed = region.needed;
        self.ask_region(index, needed)
    }

    fn ask_region(&mut self, index: u32, room: u32) -> Result<RegionInfo, CallError> {
        let request = self.client.region_info(index, room)?;
        self.wait(request, |reply| match reply {
            Reply::Region(region) => Ok(region),
            _ => Err(wrong_reply()),
        })
    }

    /// The I/O descriptors of a region.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn region_io_fds(&mut self, index: u32) -> Result<RegionIoFds, CallError> {
        let first = self.ask_io_fds(index, 16)?;
        if first.needed <= 16 {
            return Ok(first);
        }
        self.ask_io_fds(index, first.needed)
    }

    fn ask_io_fds(&mut self, index: u32, room: u32) -> Result<RegionIoFds, CallError> {
        let request = self.client.region_io_fds(index, room)?;
        self.wait(request, |reply| match reply {
            Reply::IoFds(fds) => Ok(fds),
            _ => Err(wrong_reply()),
        })
    }

    /// An interrupt type.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn irq_info(&mut self, index: u32) -> Result<Irq, CallError> {
        let request = self.client.irq_info(index)?;
        self.wait(request, |reply| match reply {
            Reply::Irq(irq) => Ok(irq),
            _ => Err(wrong_reply()),
        })
    }

    /// Shares memory; with a descriptor if the server may map it.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn dma_map(
        &mut self,
        map: &MapRequest,
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<(), CallError> {
        let fd = fd.map(|fd| fd.try_clone_to_owned()).transpose()?;
        let request = self.client.dma_map(map, fd.map(Arc::new))?;
        self.wait_done(request)
    }

    /// Takes memory back. When this returns the server has let go of it.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn dma_unmap(&mut self, unmap: DmaUnmap) -> Result<(), CallError> {
        let request = self.client.dma_unmap(unmap)?;
        self.wait_done(request)
    }

    /// Masks, unmasks or raises interrupts now; as `Client::irqs_now` of the engine.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn irqs_now(
        &mut self,
        index: u32,
        start: u32,
        count: u32,
        action: IrqAction,
    ) -> Result<(), CallError> {
        let request = self.client.irqs_now(index, start, count, action)?;
        self.wait_done(request)
    }

    /// Masks, unmasks or raises some interrupts now; as `Client::irqs_now_if` of the engine.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn irqs_now_if(
        &mut self,
        index: u32,
        start: u32,
        which: &[u8],
        action: IrqAction,
    ) -> Result<(), CallError> {
        let request = self.client.irqs_now_if(index, start, which, action)?;
        self.wait_done(request)
    }

    /// Lets eventfds stand for an action, in as many messages as the server's limit asks for.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn irqs_assign(
        &mut self,
        index: u32,
        start: u32,
        eventfds: &[SharedFd],
        action: IrqAction,
    ) -> Result<(), CallError> {
        let negotiated = self.negotiated().ok_or(RequestError::NotReady)?;
        let most = (negotiated.peer_max_msg_fds as usize).max(1);
        let mut start = start;
        for some in eventfds.chunks(most) {
            let request = self.client.irqs_assign(index, start, some.to_vec(), action)?;
            self.wait_done(request)?;
            start = start.saturating_add(some.len() as u32);
        }
        Ok(())
    }

    /// Lets no eventfd stand for an action any more.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn irqs_unassign(
        &mut self,
        index: u32,
        start: u32,
        count: u32,
        action: IrqAction,
    ) -> Result<(), CallError> {
        let request = self.client.irqs_unassign(index, start, count, action)?;
        self.wait_done(request)
    }

    /// Reads a region: all of `data`, in one message.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn region_read(
        &mut self,
        region: u32,
        offset: u64,
        data: &mut [u8],
    ) -> Result<(), CallError> {
        let count = u32::try_from(data.len()).map_err(|_| self.too_large(data.len()))?;
        let request = self.client.region_read(RegionAccess { region, offset, count })?;
        self.wait(request, |reply| match reply {
            Reply::Data(bytes) if bytes.len() == data.len() => {
                data.copy_from_slice(bytes);
                Ok(())
            }
            Reply::Data(bytes) => Err(CallError::Short { wanted: data.len(), got: bytes.len() }),
            _ => Err(wrong_reply()),
        })
    }

    /// Writes a region in one message.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<(), CallError> {
        let request = self.client.region_write(region, offset, data)?;
        self.wait_done(request)
    }

    /// Writes a region and does not wait; the server's error is not heard of.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn region_write_posted(
        &mut self,
        region: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<(), CallError> {
        self.client.region_write_posted(region, offset, data)?;
        self.send_all(Instant::now() + self.time_limit)
    }

    /// Does several small writes with one message: (region, offset, at most 8 bytes).
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn region_write_multi(&mut self, writes: &[(u32, u64, &[u8])]) -> Result<(), CallError> {
        let request = self.client.region_write_multi(writes)?;
        self.wait_done(request)
    }

    /// Resets the device.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn reset(&mut self) -> Result<(), CallError> {
        let request = self.client.reset()?;
        self.wait_done(request)
    }

    /// Whether the device has a feature, and it can be read and changed as said. What it has not is
    /// refused with ENOTTY, what cannot be done so with EINVAL.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn feature_probe(
        &mut self,
        feature: u16,
        read: bool,
        change: bool,
    ) -> Result<(), CallError> {
        let request = self.client.feature_probe(feature, read, change)?;
        self.wait(request, |reply| match reply {
            Reply::Feature(_) => Ok(()),
            _ => Err(wrong_reply()),
        })
    }

    /// The value of a feature, of `room` bytes at most.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn feature_get(&mut self, feature: u16, room: u32) -> Result<Vec<u8>, CallError> {
        let request = self.client.feature_get(feature, room)?;
        self.wait(request, |reply| match reply {
            Reply::Feature(value) => Ok(value.to_vec()),
            _ => Err(wrong_reply()),
        })
    }

    /// Changes a feature.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn feature_set(&mut self, feature: u16, value: &[u8]) -> Result<(), CallError> {
        let request = self.client.feature_set(feature, value)?;
        self.wait(request, |reply| match reply {
            Reply::Feature(_) => Ok(()),
            _ => Err(wrong_reply()),
        })
    }

    /// Sends a command that the engines do not know: what it means, this client and the device have
    /// agreed upon. Gives the data and descriptors of the answer.
    ///
    /// # Errors
    ///
    /// See [`CallError`]; `Refused` with ENOTSUP if the device does not know it either.
    pub fn other(
        &mut self,
        command: Command,
        data: &[u8],
        fds: Vec<SharedFd>,
    ) -> Result<(Vec<u8>, Vec<OwnedFd>), CallError> {
        let request = self.client.other(command, data, fds)?;
        self.wait(request, |reply| match reply {
            Reply::Other(data, fds) => Ok((data.to_vec(), fds)),
            _ => Err(wrong_reply()),
        })
    }

    /// Sends a command that the engines do not know, and wants no answer.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub fn other_posted(&mut self, command: Command, data: &[u8]) -> Result<(), CallError> {
        self.client.other_posted(command, data)?;
        self.send_all(Instant::now() + self.time_limit)
    }
}
