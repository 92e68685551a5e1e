//! The two ends of a lease of any vfio-user device. Whoever is at the other end of the link keeps to its
//! protocol, without which there is no link, and says there whatever it likes.

use std::sync::Arc;
use std::time::Duration;

use farside_link::description::{Description, Irq, Region};
use farside_link::endpoint::Load;
use farside_link::frame::{DATA_BYTES_MAX, IrqAction, MapRights, Ring};
use farside_link::{Class, Config, Endpoint, Event, Frame, Lease, Tag};
use farside_linux::shared::SharedMemory;
use farside_vfio_user::client::MapRequest;
use farside_vfio_user::device::{irq, region};
use farside_vfio_user::server::{Bus, Device, RegionAccess};
use farside_vfio_user::{
    Client, DeviceInfo, Errno, IrqAction as Action, Limits, Server, SharedFd, Transmit,
};
use rustix::event::{EventfdFlags, eventfd};

use super::input::Input;
use crate::ends::borrower::BorrowerEnd;
use crate::ends::lender::{Eventfds, LenderEnd};
use crate::ends::local::ByDescriptors;

const NOW: Duration = Duration::from_secs(1);
/// Where the client's page is, and its bytes.
const BUS: u64 = 0x1000;
const PAGE: u64 = 4096;
/// So often everything is carried on after a step, at most.
const ROUNDS: usize = 64;

/// Who says whatever it likes.
struct Hostile {
    end: Endpoint,
    open: Vec<(Tag, u32)>,
    loads: Vec<Load>,
    handed_on: usize,
}

fn config() -> Config {
    Config::new(Lease { device: "foreign".to_owned(), epoch: 3 })
}

impl Hostile {
    fn new(end: Endpoint) -> Hostile {
        Hostile { end, open: Vec::new(), loads: Vec::new(), handed_on: 0 }
    }

    fn say(&mut self, input: &mut Input<'_>) {
        let frame = frame(input);
        let tag = if frame.class() == Class::Posted {
            Tag::NONE
        } else {
            Tag(input.number().saturating_add(1))
        };
        self.handed_on += usize::from(self.end.send(tag, frame).is_ok());
    }

    /// Answers what it was asked, rightly or not.
    fn answer(&mut self, input: &mut Input<'_>) {
        let Some((tag, wanted)) = self.open.pop() else { return };
        let reply = match input.byte() {
            0..=99 => Frame::Failed { errno: input.number() as u32 },
            100..=149 => Frame::Done,
            _ => {
                let data = vec![input.byte(); (wanted as usize).min(DATA_BYTES_MAX)];
                Frame::Data { offset: 0, last: data.len() == wanted as usize, data }
            }
        };
        let _ = self.end.send(tag, reply);
    }

    fn look(&mut self) {
        while let Some(event) = self.end.poll_event(NOW) {
            match event {
                Event::Posted { load, .. } => self.loads.push(load),
                Event::Request { tag, frame } => {
                    self.open.push((tag, frame.wanted_bytes().unwrap_or(0)));
                }
                _ => {}
            }
        }
    }
}

fn frame(input: &mut Input<'_>) -> Frame<Vec<u8>> {
    // Places near the page, and sizes that a device has.
    let address = BUS.wrapping_add(input.number()).wrapping_sub(8);
    let offset = input.number();
    let bytes = input.number() as u32;
    let data = input.bytes();
    let (index, vector) = (input.number() as u32, input.number() as u32);
    match input.byte() % 20 {
        0 => Frame::RegionWrite { region: index, offset, data },
        1 => Frame::MemoryWrite { offset, data },
        2 => Frame::MemoryFill { offset, bytes: u64::from(bytes), value: 1 },
        3 | 4 => Frame::DmaWrite { address, data },
        5 => Frame::Interrupt { index, vector },
        6 => {
            let all = [IrqAction::Enable, IrqAction::Disable, IrqAction::Mask, IrqAction::Unmask];
            let action = all[usize::from(input.byte()) % all.len()];
            Frame::IrqControl { action, index, start: vector, count: bytes }
        }
        7 | 8 => {
            let rights = MapRights { read: vector % 2 == 0, write: index % 2 == 0 };
            let bytes = if input.byte() < 128 { PAGE } else { offset };
            Frame::DmaMap { address: address & !(PAGE - 1), bytes, rights }
        }
        9 => Frame::RingEntries { ring: Ring::Command, first: vector, data },
        10 => Frame::RingConsumed { ring: Ring::Fault, index },
        11 => Frame::Refused { kind: index as u16, errno: vector, address, bytes: offset },
        12 => Frame::Return,
        13 => Frame::RegionRead { region: index, offset, bytes },
        14 => Frame::MemoryRead { offset, bytes },
        15 | 16 => Frame::DmaRead { address, bytes },
        17 => Frame::DmaUnmap { address: address & !(PAGE - 1), bytes: PAGE },
        18 => Frame::Reset,
        _ if vector % 2 == 0 => Frame::Barrier,
        _ => Frame::Describe,
    }
}

/// Carries what two ends of a link want to send.
fn cross(one: &mut Endpoint, other: &mut Endpoint) -> bool {
    let carry = |from: &mut Endpoint, to: &mut Endpoint| {
        let transmit = from.transmit(NOW);
        let bytes: Vec<u8> = transmit.slices().iter().flat_map(|slice| slice.to_vec()).collect();
        let space = to.space();
        let count = bytes.len().min(space.len());
        space[..count].copy_from_slice(&bytes[..count]);
        to.filled(NOW, count);
        from.transmitted(NOW, count);
        count > 0
    };
    carry(one, other) | carry(other, one)
}

/// Carries what an engine of vfio-user wants to send.
fn carry(
    transmit: Option<Transmit<'_>>,
    to: impl FnOnce(&[u8], Vec<std::os::fd::OwnedFd>),
) -> usize {
    let Some(Transmit { bytes, fds }) = transmit else { return 0 };
    let fds = fds.iter().map(|fd| fd.try_clone().expect("a descriptor more")).collect();
    to(bytes, fds);
    bytes.len()
}

/// A device that keeps nothing.
struct Idle;

impl Device for Idle {
    fn region_read(&mut self, _: u32, _: u64, data: &mut [u8]) -> Result<(), Errno> {
        data.fill(7);
        Ok(())
    }

    fn region_write(&mut self, _: &mut Bus<'_>, _: u32, _: u64, _: &[u8]) -> Result<(), Errno> {
        Ok(())
    }

    fn set_irqs(&mut self, _: farside_vfio_user::SetIrqs<'_>) -> Result<(), Errno> {
        Ok(())
    }
}

struct MadeHere;

impl Eventfds for MadeHere {
    fn eventfd(&mut self, _index: u32, _vector: u32) -> Result<SharedFd, Errno> {
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        made.map(Arc::new).map_err(|_| Errno::NOMEM)
    }
}

fn info() -> DeviceInfo {
    DeviceInfo::pci()
        .region(region::BAR0, farside_vfio_user::Region::read_write(4096))
        .region(region::BAR2, farside_vfio_user::Region::read_write(1 << 20))
        .region(region::CONFIG, farside_vfio_user::Region::read_only(256))
        .irq(irq::MSIX, farside_vfio_user::Irq::messages(4))
}

/// Carries what the lender's end and its device want to send.
fn exchange(lender: &mut LenderEnd<MadeHere>, server: &mut Server) -> bool {
    let client = lender.client();
    let there = carry(client.transmit(), |bytes, fds| {
        server.receive(bytes, fds).expect("this end keeps to it");
    });
    client.sent(there);
    server.serve(&mut Idle).expect("and so in order");
    let back = carry(server.transmit(), |bytes, fds| {
        client.receive(bytes, fds).expect("the device keeps to it");
    });
    server.sent(back);
    there + back > 0
}

/// A borrower that says whatever it likes to the lender's end, of a device that does DMA as it likes.
/// Gives how many frames were taken.
pub fn lender_end(input: &[u8]) -> usize {
    let mut input = Input(input);
    let mut own = Endpoint::lender(config());
    let mut peer = Hostile::new(Endpoint::borrower(config(), 1));
    own.connected(NOW);
    peer.end.connected(NOW);
    let mut lender = LenderEnd::new(3, MadeHere).expect("a fresh engine");
    let mut server = Server::new(info(), Limits::default()).expect("a device");
    while !input.is_empty() {
        match input.byte() {
            0..=159 => peer.say(&mut input),
            160..=179 => peer.answer(&mut input),
            180..=199 => peer.loads.drain(..).for_each(|load| peer.end.done(load)),
            200..=219 => {
                let (address, bytes) = (input.number(), input.bytes());
                let _ = server.bus().dma_write(BUS.wrapping_add(address), &bytes);
            }
            220..=239 => {
                let (address, bytes) = (input.number(), input.number() as u32);
                let _ = server.bus().dma_read(BUS.wrapping_add(address), bytes);
            }
            240..=253 => lender.raised(input.number() as u32, input.number() as u32),
            254.. => lender.end(),
        }
        for _ in 0..ROUNDS {
            let mut did = cross(&mut peer.end, &mut own);
            peer.look();
            while let Some(event) = own.poll_event(NOW) {
                lender.frame(event);
            }
            lender.drive(&mut own).expect("the device keeps to its protocol");
            did |= exchange(&mut lender, &mut server);
            if !did {
                break;
            }
        }
    }
    peer.handed_on
}

/// A lender that says whatever it likes to the borrower's end, whose client is honest. Gives how many
/// frames were taken.
pub fn borrower_end(input: &[u8]) -> usize {
    let mut input = Input(input);
    let mut own = Endpoint::borrower(config(), 1);
    let mut peer = Hostile::new(Endpoint::lender(config()));
    own.connected(NOW);
    peer.end.connected(NOW);
    let described = described();
    let Ok(mut borrower) = BorrowerEnd::new(&described, 3, ByDescriptors::new) else {
        panic!("a description that makes sense is refused")
    };
    let memory = SharedMemory::new(3 * PAGE).expect("memory");
    let file = Arc::new(memory.file().try_clone_to_owned().expect("a descriptor more"));
    let mut client = Client::new(Limits::default());
    client.negotiate().expect("a fresh engine");
    // Between two pages that nobody may reach.
    let write = input.byte() % 2 == 0;
    let map =
        MapRequest { address: BUS, size: PAGE, readable: true, writable: write, offset: PAGE };
    let (mut mapped, mut over) = (false, false);
    while !input.is_empty() {
        match input.byte() {
            0..=159 => peer.say(&mut input),
            160..=209 => peer.answer(&mut input),
            210..=229 => peer.loads.drain(..).for_each(|load| peer.end.done(load)),
            230..=234 if client.negotiated().is_some() && !mapped => {
                mapped = client.dma_map(&map, Some(Arc::clone(&file))).is_ok();
            }
            230..=239 => {
                let _ = client.region_write(region::BAR0, input.number(), &input.bytes());
            }
            240..=249 => {
                let count = input.number() as u32;
                let access = RegionAccess { region: region::BAR2, offset: input.number(), count };
                let _ = client.region_read(access);
            }
            250..=254 => {
                let _ = client.irqs_now(irq::MSIX, 0, 0, Action::Trigger);
            }
            255 => {
                over = true;
                borrower.end();
            }
        }
        for _ in 0..ROUNDS {
            let mut did = cross(&mut own, &mut peer.end);
            peer.look();
            while let Some(event) = own.poll_event(NOW) {
                if let Some(load) = borrower.frame(&event) {
                    own.done(load);
                }
            }
            over |= own.is_over();
            if let Err(error) = borrower.drive(&mut own) {
                // A client that comes when the lease is over is sent away.
                assert!(over, "the client keeps to its protocol: {error}");
                return peer.handed_on;
            }
            let server = borrower.server();
            let there = carry(client.transmit(), |bytes, fds| {
                server.receive(bytes, fds).expect("the client keeps to it");
            });
            client.sent(there);
            let back = carry(server.transmit(), |bytes, fds| {
                client.receive(bytes, fds).expect("this end keeps to it");
            });
            server.sent(back);
            while client.poll().expect("and so in order").is_some() {}
            did |= there + back > 0;
            if !did {
                break;
            }
        }
    }
    let mut all = vec![0; 3 * PAGE as usize];
    memory.read(0, &mut all).expect("it is there");
    let (page, shared) = (PAGE as usize, PAGE as usize..2 * PAGE as usize);
    let is_outside = |at: &usize| !shared.contains(at) || !write || !mapped;
    assert!((0..3 * page).filter(is_outside).all(|at| all[at] == 0), "it wrote where it may not");
    peer.handed_on
}

fn described() -> Description {
    let region = |size| Region { size, readable: true, writable: true };
    let mut regions = vec![Region::default(); 9];
    regions[region::BAR0 as usize] = region(4096);
    regions[region::BAR2 as usize] = region(1 << 20);
    regions[region::CONFIG as usize] = region(256);
    let mut irqs = vec![Irq::default(); 5];
    irqs[irq::MSIX as usize] = Irq { count: 4, ..Irq::default() };
    Description { pci: true, resettable: true, dma_end: 0, regions, irqs }
}

/// However much a borrower posts that is refused, and takes none of what it is told: what waits is
/// bounded. Gives how much was refused, and how many notices wait.
#[cfg(test)]
pub(super) fn refused_and_not_taken(frames: u64) -> (u64, usize) {
    let mut own = Endpoint::lender(config());
    let mut peer = Hostile::new(Endpoint::borrower(config(), 1));
    own.connected(NOW);
    peer.end.connected(NOW);
    let mut lender = LenderEnd::new(3, MadeHere).expect("a fresh engine");
    let mut server = Server::new(info(), Limits::default()).expect("a device");
    let mut sent = 0;
    while lender.counters().refused < frames {
        let fill = Frame::MemoryFill { offset: 0, bytes: 1, value: 1 };
        sent += u64::from(peer.end.send(Tag::NONE, fill).is_ok());
        assert!(sent <= frames + 1, "{sent} were sent, and {} refused", lender.counters().refused);
        cross(&mut peer.end, &mut own);
        peer.look();
        while let Some(event) = own.poll_event(NOW) {
            lender.frame(event);
        }
        lender.drive(&mut own).expect("the device keeps to its protocol");
        exchange(&mut lender, &mut server);
    }
    (lender.counters().refused, lender.waiting())
}
