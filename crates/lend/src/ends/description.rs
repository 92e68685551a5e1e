//! A device's description: from vfio-user's words to the link's, and back.

use farside_link::description::{Description, IRQS_MAX, Irq, REGIONS_MAX, Region};
use farside_vfio_user::client::{ClientEvent, DeviceSummary};
use farside_vfio_user::{Client, DeviceInfo, Errno, Reply, RequestError, RequestId};

/// What the local client is offered: everything by messages, and DMA to memory that it shares.
pub(super) fn offered(described: &Description) -> DeviceInfo {
    let region = |region: &Region| farside_vfio_user::Region {
        size: region.size,
        readable: region.readable,
        writable: region.writable,
        ..farside_vfio_user::Region::default()
    };
    let irq = |irq: &Irq| farside_vfio_user::Irq {
        count: irq.count,
        maskable: irq.maskable,
        automasked: irq.automasked,
        noresize: irq.noresize,
    };
    let info = DeviceInfo {
        resettable: described.resettable,
        pci: described.pci,
        regions: described.regions.iter().map(region).collect(),
        irqs: described.irqs.iter().map(irq).collect(),
        ..DeviceInfo::default()
    };
    let info = info.dma_needs_fd();
    if described.dma_end == 0 { info } else { info.dma_end(described.dma_end) }
}

/// Asks a device what it is, one question after the other.
#[derive(Default)]
pub(super) struct Discovery {
    described: Description,
    summary: Option<DeviceSummary>,
    asked: Option<RequestId>,
}

impl Discovery {
    /// Begins.
    pub(super) fn new(client: &mut Client) -> Result<Discovery, RequestError> {
        Ok(Discovery { asked: Some(client.negotiate()?), ..Discovery::default() })
    }

    /// Whether an event is an answer to this.
    pub(super) fn is_of_this(&self, event: &ClientEvent<'_>) -> bool {
        matches!(event, ClientEvent::Reply { request, .. } if Some(*request) == self.asked)
    }

    /// An answer; gives the next question.
    pub(super) fn answered(&mut self, reply: Result<Reply<'_>, Errno>) -> Result<Next, Errno> {
        match reply? {
            Reply::Negotiated(_) => return Ok(Next::Device),
            Reply::Device(summary) => {
                let too_many =
                    summary.regions as usize > REGIONS_MAX || summary.irqs as usize > IRQS_MAX;
                if too_many {
                    return Err(Errno::RANGE);
                }
                self.described.pci = summary.pci;
                self.described.resettable = summary.resettable;
                self.summary = Some(summary);
            }
            Reply::Region(region) => self.described.regions.push(Region {
                size: region.size,
                readable: region.readable,
                writable: region.writable,
            }),
            Reply::Irq(irq) => self.described.irqs.push(Irq {
                count: irq.count,
                maskable: irq.maskable,
                automasked: irq.automasked,
                noresize: irq.noresize,
            }),
            _ => return Err(Errno::PROTO),
        }
        let summary = self.summary.ok_or(Errno::PROTO)?;
        let (regions, irqs) = (self.described.regions.len(), self.described.irqs.len());
        Ok(if regions < summary.regions as usize {
            Next::Region(regions as u32)
        } else if irqs < summary.irqs as usize {
            Next::Irq(irqs as u32)
        } else {
            Next::Nothing(std::mem::take(&mut self.described))
        })
    }

    /// Asks the next question.
    pub(super) fn ask(&mut self, next: &Next, client: &mut Client) -> Result<(), RequestError> {
        self.asked = match next {
            Next::Device => Some(client.device_info()?),
            // The parts of it that could be mapped are not asked for.
            Next::Region(index) => Some(client.region_info(*index, 0)?),
            Next::Irq(index) => Some(client.irq_info(*index)?),
            Next::Nothing(_) => None,
        };
        Ok(())
    }
}

/// What is to be asked next.
pub(super) enum Next {
    Device,
    Region(u32),
    Irq(u32),
    Nothing(Description),
}
