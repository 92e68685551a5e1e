//! The fixture.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use farside_link::description::Description;
use farside_link::{Config, Endpoint, Event, Frame, Lease, Tag};
use farside_linux::shared::SharedMemory;
use farside_vfio_user::client::{ClientEvent, MapRequest};
use farside_vfio_user::device::{irq, region};
use farside_vfio_user::server::{Bus, Device, RegionAccess};
use farside_vfio_user::{
    Client, DeviceInfo, DmaMap, DmaUnmap, Errno, Irq, IrqAction, Limits, Region, Reply,
    RequestError, RequestId, Server, SetIrqs, SharedFd, Transmit,
};
use rustix::event::{EventfdFlags, eventfd};

use crate::ends::borrower::BorrowerEnd;
use crate::ends::lender::{Eventfds, LenderEnd};
use crate::ends::local::{ByDescriptors, Local};

/// Registers of the device: a word to keep.
pub(super) const VALUE: u64 = 0;
/// Where its DMA begins.
pub(super) const DMA_ADDRESS: u64 = 4;
/// Writes a page, of bytes of this value.
pub(super) const DMA_WRITE: u64 = 8;
/// Reads so many bytes.
pub(super) const DMA_READ: u64 = 12;
/// Raises this vector.
pub(super) const RAISE: u64 = 16;

/// Where the client maps its page.
pub(super) const BUS: u64 = 0x1000_0000;
/// Bytes that it maps.
pub(super) const PAGE: u64 = 4096;

pub(super) fn access(region: u32, offset: u64, count: u32) -> RegionAccess {
    RegionAccess { region, offset, count }
}

/// A device that does what its registers say, by messages.
#[derive(Default)]
pub(super) struct Witness {
    pub(super) writes: Vec<(u32, u64, u32)>,
    pub(super) dma: Vec<Result<Vec<u8>, Errno>>,
    pub(super) irqs: Vec<IrqAction>,
    pub(super) resets: usize,
    pub(super) raised: Vec<u32>,
    /// Where its next DMA begins.
    address: u64,
}

impl Witness {
    fn dma(&mut self, asked: Result<RequestId, RequestError>) {
        if let Err(error) = asked {
            assert!(matches!(error, RequestError::NotMapped { .. }), "{error}");
            self.dma.push(Err(Errno::FAULT));
        }
    }
}

impl Device for Witness {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        let last = self.writes.iter().rev().find(|write| (write.0, write.1) == (region, offset));
        let value = last.map_or(0, |write| write.2).to_le_bytes();
        data.iter_mut().zip(value).for_each(|(to, byte)| *to = byte);
        Ok(())
    }

    fn region_write(
        &mut self,
        bus: &mut Bus<'_>,
        region: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Errno> {
        let value = u32::from_le_bytes(data.try_into().map_err(|_| Errno::INVAL)?);
        match (region, offset) {
            (region::BAR0, DMA_ADDRESS) => self.address = u64::from(value),
            (region::BAR0, DMA_WRITE) => {
                let asked = bus.dma_write(self.address, &[value as u8; PAGE as usize]);
                self.dma(asked);
            }
            (region::BAR0, DMA_READ) => {
                let asked = bus.dma_read(self.address, value);
                self.dma(asked);
            }
            (region::BAR0, RAISE) => self.raised.push(value),
            _ => self.writes.push((region, offset, value)),
        }
        Ok(())
    }

    fn set_irqs(&mut self, set: SetIrqs<'_>) -> Result<(), Errno> {
        self.irqs.push(set.action);
        Ok(())
    }

    fn reset(&mut self, _bus: &mut Bus<'_>) -> Result<(), Errno> {
        self.resets += 1;
        Ok(())
    }

    fn dma_done(&mut self, _: &mut Bus<'_>, _: RequestId, result: Result<&[u8], Errno>) {
        self.dma.push(result.map(<[u8]>::to_vec));
    }
}

/// What the client's side has seen, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    Write(usize),
    Raise(u32),
}

/// Writes down what happens to the client's memory.
pub(super) struct Logged {
    inner: ByDescriptors,
    log: Rc<RefCell<Vec<Seen>>>,
}

impl Local for Logged {
    type Place = SharedMemory;

    fn share(&mut self, map: DmaMap) -> Result<SharedMemory, Errno> {
        self.inner.share(map)
    }

    fn read(&mut self, place: &SharedMemory, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.inner.read(place, offset, into)
    }

    fn write(&mut self, place: &SharedMemory, offset: u64, from: &[u8]) -> Result<(), Errno> {
        self.log.borrow_mut().push(Seen::Write(from.len()));
        self.inner.write(place, offset, from)
    }

    fn set_irqs(&mut self, set: SetIrqs<'_>) -> Result<(), Errno> {
        self.inner.set_irqs(set)
    }

    fn raise(&mut self, index: u32, vector: u32) -> Result<(), Errno> {
        self.log.borrow_mut().push(Seen::Raise(vector));
        self.inner.raise(index, vector)
    }
}

pub(super) struct MadeHere;

impl Eventfds for MadeHere {
    fn eventfd(&mut self, _index: u32, _vector: u32) -> Result<SharedFd, Errno> {
        event().map(Arc::new)
    }
}

fn event() -> Result<OwnedFd, Errno> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|_| Errno::NOMEM)
}

/// What a request of the client came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Done,
    Data(Vec<u8>),
    Region { size: u64, mappable: bool },
    Failed(Errno),
}

pub(super) struct Rig {
    client: Client,
    pub(super) borrower: BorrowerEnd<Logged>,
    pub(super) ends: [Endpoint; 2],
    pub(super) lender: LenderEnd<MadeHere>,
    server: Server,
    pub(super) device: Witness,
    answers: Vec<(RequestId, Answer)>,
    file: SharedMemory,
    log: Rc<RefCell<Vec<Seen>>>,
}

const NOW: Duration = Duration::from_secs(1);

fn info() -> DeviceInfo {
    let mut info = DeviceInfo::pci();
    let file = Arc::new(SharedMemory::new(1 << 20).unwrap().file().try_clone_to_owned().unwrap());
    info.regions[region::BAR0 as usize] = Region::read_write(4096);
    info.regions[region::BAR2 as usize] = Region::read_write(1 << 20).mapped(file, 0, Vec::new());
    info.regions[region::CONFIG as usize] = Region::read_write(256);
    info.irqs[irq::MSIX as usize] = Irq::messages(4);
    info
}

impl Rig {
    pub(super) fn new() -> Rig {
        Rig::of(|info| info)
    }

    /// With another device.
    pub(super) fn of(change: impl FnOnce(DeviceInfo) -> DeviceInfo) -> Rig {
        let lease = Lease { device: "foreign".to_owned(), epoch: 3 };
        let config = || Config::new(lease.clone());
        let mut ends = [Endpoint::borrower(config(), 1), Endpoint::lender(config())];
        ends.iter_mut().for_each(|end| end.connected(NOW));
        let mut lender = LenderEnd::new(3, MadeHere).unwrap();
        let mut server = Server::new(change(info()), Limits::default()).unwrap();
        let mut device = Witness::default();
        let described = describe(&mut ends, &mut lender, &mut server, &mut device);
        let log = Rc::new(RefCell::new(Vec::new()));
        let borrower = BorrowerEnd::new(&described, 3, |info| Logged {
            inner: ByDescriptors::new(info),
            log: Rc::clone(&log),
        });
        let mut client = Client::new(Limits::default());
        client.negotiate().unwrap();
        let mut rig = Rig {
            client,
            borrower: borrower.unwrap(),
            ends,
            lender,
            server,
            device,
            answers: Vec::new(),
            file: SharedMemory::new(2 * PAGE).unwrap(),
            log,
        };
        rig.settle();
        assert!(rig.client.negotiated().is_some());
        rig
    }

    pub(super) fn device_info(&self) -> &DeviceInfo {
        self.server.info()
    }

    pub(super) fn local_log(&self) -> Vec<Seen> {
        self.log.borrow().clone()
    }

    /// The client's connection, whoever does what there.
    fn near(&mut self) -> bool {
        let server = self.borrower.server();
        let mut did = exchange(self.client.transmit(), |bytes, fds| {
            server.receive(bytes, fds).unwrap();
        });
        self.client.sent(did);
        let back = exchange(server.transmit(), |bytes, fds| {
            self.client.receive(bytes, fds).unwrap();
        });
        server.sent(back);
        did += back;
        while let Some(event) = self.client.poll().unwrap() {
            let ClientEvent::Reply { request, reply } = event else { panic!("{event:?}") };
            let answer = match reply {
                Ok(Reply::Data(data)) => Answer::Data(data.to_vec()),
                Ok(Reply::Region(region)) => {
                    Answer::Region { size: region.size, mappable: region.mappable }
                }
                Ok(_) => Answer::Done,
                Err(errno) => Answer::Failed(errno),
            };
            self.answers.push((request, answer));
        }
        did > 0
    }

    /// The device's connection, and its interrupts after it.
    fn far(&mut self) -> bool {
        let did = far(&mut self.lender, &mut self.server, &mut self.device);
        for vector in std::mem::take(&mut self.device.raised) {
            self.lender.raised(irq::MSIX, vector);
        }
        did
    }

    /// The link, and what it brings.
    fn link(&mut self) -> bool {
        let mut did = cross(&mut self.ends);
        while let Some(event) = self.ends[0].poll_event(NOW) {
            did = true;
            // What the test itself has asked is nobody else's.
            if let Event::Reply { tag: Tag(tag), .. } = event {
                if tag >= 1 << 40 {
                    continue;
                }
            }
            if let Some(load) = self.borrower.frame(&event) {
                self.ends[0].done(load);
            }
        }
        while let Some(event) = self.ends[1].poll_event(NOW) {
            did = true;
            self.lender.frame(event);
        }
        did
    }

    fn step(&mut self) -> bool {
        let near = self.near();
        self.borrower.drive(&mut self.ends[0]).unwrap();
        let link = self.link();
        let far = self.far();
        self.lender.drive(&mut self.ends[1]).unwrap();
        near | link | far
    }

    pub(super) fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step();
        }
    }

    pub(super) fn settle(&mut self) {
        for _ in 0..10_000 {
            if !self.step() {
                return;
            }
        }
        panic!("it goes on for ever");
    }

    /// The connection between the ends breaks, with what was on its way from the lender, and another
    /// takes its place.
    pub(super) fn reconnect(&mut self) {
        self.borrower.drive(&mut self.ends[0]).unwrap();
        let transmit = self.ends[0].transmit(NOW);
        let lost: usize = transmit.slices().iter().map(|slice| slice.len()).sum();
        self.ends[0].transmitted(NOW, lost);
        self.ends.iter_mut().for_each(|end| end.connected(NOW));
    }

    /// Asks, and gives the answer.
    pub(super) fn ask(
        &mut self,
        ask: impl FnOnce(&mut Client) -> Result<RequestId, RequestError>,
    ) -> Answer {
        let request = ask(&mut self.client).unwrap();
        self.settle();
        let at = self.answers.iter().position(|(answered, _)| *answered == request);
        self.answers.swap_remove(at.expect("it is answered")).1
    }

    pub(super) fn write(&mut self, region: u32, offset: u64, value: u32) {
        let bytes = value.to_le_bytes();
        assert_eq!(self.ask(|client| client.region_write(region, offset, &bytes)), Answer::Done);
    }

    pub(super) fn start_write(&mut self, region: u32, offset: u64, value: u32) {
        self.client.region_write(region, offset, &value.to_le_bytes()).unwrap();
    }

    /// Unmaps a page without waiting for it.
    pub(super) fn start_unmap(&mut self, address: u64) {
        self.client.dma_unmap(DmaUnmap::Range { address, size: PAGE }).unwrap();
    }

    pub(super) fn read(&mut self, region: u32, offset: u64) -> Result<u32, Errno> {
        match self.ask(|client| client.region_read(access(region, offset, 4))) {
            Answer::Data(bytes) => Ok(u32::from_le_bytes(bytes.try_into().unwrap())),
            Answer::Failed(errno) => Err(errno),
            other => panic!("{other:?}"),
        }
    }

    /// Maps the first page of the client's file.
    pub(super) fn map(&mut self, address: u64, readable: bool, writable: bool) {
        let file = Arc::new(self.file.file().try_clone_to_owned().unwrap());
        let map = MapRequest { address, size: PAGE, readable, writable, offset: 0 };
        assert_eq!(self.ask(|client| client.dma_map(&map, Some(file))), Answer::Done);
    }

    /// Has the device believe that it reaches everything around the client's page.
    pub(super) fn deceive_the_device(&mut self) {
        let client = self.lender.client();
        client.dma_unmap(DmaUnmap::All).unwrap();
        let (address, size) = (BUS - 16 * PAGE, 64 * PAGE);
        let map = MapRequest { address, size, readable: true, writable: true, offset: 0 };
        client.dma_map(&map, None).unwrap();
        self.settle();
    }

    /// Has an eventfd raised by the first vector.
    pub(super) fn listen(&mut self) -> Answer {
        let event = Arc::new(event().unwrap());
        self.ask(|client| client.irqs_assign(irq::MSIX, 0, vec![event], IrqAction::Trigger))
    }

    /// The device writes by itself.
    pub(super) fn device_writes(&mut self, address: u64, bytes: usize) {
        self.server.bus().dma_write(address, &vec![1; bytes]).unwrap();
        self.settle();
    }

    pub(super) fn memory(&self, offset: u64, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        self.file.read(offset, &mut read).unwrap();
        read
    }

    pub(super) fn memory_write(&self, offset: u64, bytes: &[u8]) {
        self.file.write(offset, bytes).unwrap();
    }
}

/// Hands over what an engine wants to send, and gives how much.
fn exchange(transmit: Option<Transmit<'_>>, to: impl FnOnce(&[u8], Vec<OwnedFd>)) -> usize {
    let Some(Transmit { bytes, fds }) = transmit else { return 0 };
    let count = bytes.len().min(64 << 10);
    to(&bytes[..count], fds.iter().map(|fd| fd.try_clone().unwrap()).collect());
    count
}

fn far(lender: &mut LenderEnd<MadeHere>, server: &mut Server, device: &mut Witness) -> bool {
    let client = lender.client();
    let there = exchange(client.transmit(), |bytes, fds| server.receive(bytes, fds).unwrap());
    client.sent(there);
    server.serve(device).unwrap();
    let back = exchange(server.transmit(), |bytes, fds| client.receive(bytes, fds).unwrap());
    server.sent(back);
    there + back > 0
}

/// Carries what both ends want to send.
fn cross(ends: &mut [Endpoint; 2]) -> bool {
    let mut did = false;
    for from in [0, 1] {
        let transmit = ends[from].transmit(NOW);
        let bytes: Vec<u8> = transmit.slices().iter().flat_map(|slice| slice.to_vec()).collect();
        let to = ends[1 - from].space();
        let count = bytes.len().min(to.len());
        to[..count].copy_from_slice(&bytes[..count]);
        ends[1 - from].filled(NOW, count);
        ends[from].transmitted(NOW, count);
        did |= count > 0;
    }
    did
}

/// What the device is, as the borrower's end asks first of all.
fn describe(
    ends: &mut [Endpoint; 2],
    lender: &mut LenderEnd<MadeHere>,
    server: &mut Server,
    device: &mut Witness,
) -> Description {
    let mut asked = false;
    for _ in 0..1000 {
        cross(ends);
        asked = asked || ends[0].send(Tag(1 << 41), Frame::Describe).is_ok();
        far(lender, server, device);
        lender.drive(&mut ends[1]).unwrap();
        while let Some(event) = ends[1].poll_event(NOW) {
            lender.frame(event);
        }
        while let Some(event) = ends[0].poll_event(NOW) {
            if let Event::Reply { frame: Frame::Data { data, .. }, .. } = event {
                return Description::decode(data).unwrap();
            }
        }
    }
    panic!("the device is not described");
}
