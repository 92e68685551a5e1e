//! Our client and our server over a real socket.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use farside_vfio_user::client::MapRequest;
use farside_vfio_user::device::{irq, region};
use farside_vfio_user::unix::{
    CallError, Connection, DmaMemory, Interrupts, Listener, Session, SessionError, UnixClient,
};
use farside_vfio_user::{
    Bus, Device, DeviceInfo, DmaMap, DmaUnmap, Errno, Event, IoFd, IoFdKind, Irq, IrqAction,
    Limits, ProtocolError, Region, RequestId, Server, SetIrqs, SharedFd, SparseArea,
};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

const LIMIT: Duration = Duration::from_secs(20);

fn memory(size: u64) -> OwnedFd {
    let fd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, size).unwrap();
    fd
}

fn event() -> SharedFd {
    Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap())
}

fn count(fd: &SharedFd) -> u64 {
    let mut value = [0; 8];
    match rustix::io::read(fd, &mut value) {
        Ok(8) => u64::from_ne_bytes(value),
        Ok(other) => panic!("an eventfd gave {other} bytes"),
        Err(rustix::io::Errno::AGAIN) => 0,
        Err(error) => panic!("{error}"),
    }
}

/// BAR 0: 0x00 scratch, 0x40 DMA address, 0x48 command (1 read to 0x80, 2 write from 0x80, 3 raise
/// MSI-X 1, 4 raise INTx, 5 ERR, 6 REQ, 7 raise MSI-X 1 or let it wait), 0x50 status.
struct Gadget {
    registers: Vec<u8>,
    interrupts: Interrupts,
    maps: Vec<(u64, u64, Option<OwnedFd>)>,
    waiting: Option<RequestId>,
}

impl Gadget {
    fn new(info: &DeviceInfo) -> Gadget {
        Gadget {
            registers: vec![0; 0x1000],
            interrupts: Interrupts::new(info),
            maps: Vec::new(),
            waiting: None,
        }
    }

    fn command(&mut self, bus: &mut Bus<'_>, command: u8) -> Result<(), Errno> {
        let mut address = [0; 8];
        address.copy_from_slice(&self.registers[0x40..0x48]);
        let address = u64::from_le_bytes(address);
        match command {
            1 => self.waiting = Some(bus.dma_read(address, 16).map_err(|_| Errno::FAULT)?),
            2 => {
                let data = self.registers[0x80..0x90].to_vec();
                self.waiting = Some(bus.dma_write(address, &data).map_err(|_| Errno::FAULT)?);
            }
            3 => assert!(self.interrupts.raise(irq::MSIX, 1)?),
            4 => drop(self.interrupts.raise(irq::INTX, 0)?),
            5 => drop(self.interrupts.raise(irq::ERROR, 0)?),
            6 => drop(self.interrupts.raise(irq::REQUEST, 0)?),
            7 => drop(self.interrupts.raise(irq::MSIX, 1)?),
            _ => return Err(Errno::IO),
        }
        Ok(())
    }
}

impl Device for Gadget {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        assert_eq!(region, region::BAR0);
        let offset = offset as usize;
        data.copy_from_slice(&self.registers[offset..offset + data.len()]);
        Ok(())
    }

    fn region_write(
        &mut self,
        bus: &mut Bus<'_>,
        _region: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Errno> {
        let offset = offset as usize;
        self.registers[offset..offset + data.len()].copy_from_slice(data);
        if offset == 0x48 { self.command(bus, data[0]) } else { Ok(()) }
    }

    fn dma_map(&mut self, map: DmaMap) -> Result<(), Errno> {
        if map.address == 0xbad000 {
            return Err(Errno::NOMEM);
        }
        self.maps.push((map.address, map.size, map.fd));
        Ok(())
    }

    fn dma_unmap(&mut self, unmap: DmaUnmap) -> Result<(), Errno> {
        match unmap {
            DmaUnmap::All => self.maps.clear(),
            DmaUnmap::Range { address, .. } => self.maps.retain(|map| map.0 != address),
        }
        Ok(())
    }

    fn set_irqs(&mut self, set: SetIrqs<'_>) -> Result<(), Errno> {
        self.interrupts.apply(set)
    }

    fn reset(&mut self, _bus: &mut Bus<'_>) -> Result<(), Errno> {
        self.registers.fill(0);
        Ok(())
    }

    fn dma_done(&mut self, _bus: &mut Bus<'_>, request: RequestId, result: Result<&[u8], Errno>) {
        assert_eq!(self.waiting.take(), Some(request));
        match result {
            Ok(data) => {
                self.registers[0x80..0x80 + data.len()].copy_from_slice(data);
                self.registers[0x50] = 1;
            }
            Err(errno) => self.registers[0x50] = errno.code() as u8 | 0x80,
        }
    }
}

fn info() -> DeviceInfo {
    let doorbell = event();
    let areas = vec![
        SparseArea { offset: 0x1000, size: 0x1000 },
        SparseArea { offset: 0x4000, size: 0x2000 },
    ];
    let io_fds = vec![
        IoFd {
            offset: 0x10,
            size: 4,
            flags: 1,
            kind: IoFdKind::IoEventFd { datamatch: 7 },
            fd: Arc::clone(&doorbell),
        },
        IoFd {
            offset: 0x20,
            size: 0,
            flags: 0,
            kind: IoFdKind::IoRegionFd { user_data: 9 },
            fd: doorbell,
        },
    ];
    DeviceInfo::pci()
        .region(region::BAR0, Region::read_write(0x1000).io_fds(io_fds))
        .region(region::BAR2, Region::read_write(0x8000).mapped(memory(0x9000), 0x1000, areas))
        .region(region::BAR4, Region::read_only(0x1000).mapped(memory(0x1000), 0, Vec::new()))
        .irq(irq::INTX, Irq::INTX)
        .irq(irq::MSIX, Irq::messages(32))
        .irq(irq::ERROR, Irq::NOTICE)
        .irq(irq::REQUEST, Irq::NOTICE)
}

type Served = (Result<(), SessionError>, Gadget);

fn serve(limits: Limits) -> (Connection, JoinHandle<Served>) {
    let (ours, theirs) = Connection::pair().unwrap();
    ours.set_time_limit(Some(LIMIT)).unwrap();
    let thread = thread::spawn(move || {
        let info = info();
        let mut gadget = Gadget::new(&info);
        let mut session = Session::new(ours, Server::new(info, limits).unwrap());
        (session.run(&mut gadget), gadget)
    });
    (theirs, thread)
}

struct Ram(Vec<u8>, mpsc::Sender<u64>);

impl DmaMemory for Ram {
    fn read(&mut self, address: u64, data: &mut [u8]) -> Result<(), Errno> {
        let from = (address - 0x10_0000) as usize;
        data.copy_from_slice(&self.0[from..from + data.len()]);
        let _ = self.1.send(address);
        Ok(())
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), Errno> {
        let from = (address - 0x10_0000) as usize;
        self.0[from..from + data.len()].copy_from_slice(data);
        let _ = self.1.send(address);
        Ok(())
    }
}

fn client(connection: Connection) -> (UnixClient, mpsc::Receiver<u64>) {
    let (sender, receiver) = mpsc::channel();
    let ram = (0..0x4000).map(|i| i as u8).collect();
    let memory = Box::new(Ram(ram, sender));
    let client = UnixClient::new(connection, Limits::default(), LIMIT, memory).unwrap();
    (client, receiver)
}

fn map(address: u64, size: u64) -> MapRequest {
    MapRequest { address, size, readable: true, writable: true, offset: 0 }
}

#[test]
fn a_client_learns_everything_about_the_device() {
    let (connection, server) = serve(Limits::default());
    let (mut client, _) = client(connection);
    let summary = client.device_info().unwrap();
    assert!(summary.pci && summary.resettable);
    assert_eq!((summary.regions, summary.irqs), (9, 5));

    let bar0 = client.region_info(region::BAR0).unwrap();
    assert_eq!((bar0.size, bar0.readable, bar0.writable), (0x1000, true, true));
    assert!(!bar0.mappable && bar0.fd.is_none() && bar0.areas.is_empty());

    let bar2 = client.region_info(region::BAR2).unwrap();
    assert!(bar2.mappable && bar2.fd.is_some());
    assert_eq!(bar2.offset, 0x1000);
    assert_eq!(bar2.areas[1], SparseArea { offset: 0x4000, size: 0x2000 });

    let bar4 = client.region_info(region::BAR4).unwrap();
    assert!(bar4.mappable && !bar4.writable && bar4.areas.is_empty());
    assert!(bar4.fd.is_some(), "a region that is mapped as a whole has its descriptor too");
    assert_eq!(client.region_info(region::VGA).unwrap().size, 0);

    let io_fds = client.region_io_fds(region::BAR0).unwrap();
    assert_eq!(io_fds.fds.len(), 1, "a shared descriptor is passed once");
    assert_eq!(io_fds.parts.len(), 2);
    assert_eq!(io_fds.parts[0].kind, IoFdKind::IoEventFd { datamatch: 7 });
    assert_eq!(io_fds.parts[1].kind, IoFdKind::IoRegionFd { user_data: 9 });
    assert!(client.region_io_fds(region::BAR2).unwrap().parts.is_empty());

    assert_eq!(client.irq_info(irq::MSIX).unwrap(), Irq::messages(32));
    assert_eq!(client.irq_info(irq::INTX).unwrap(), Irq::INTX);
    assert_eq!(client.irq_info(irq::ERROR).unwrap(), Irq::NOTICE);
    assert_eq!(client.irq_info(irq::REQUEST).unwrap(), Irq::NOTICE);
    assert_eq!(client.irq_info(irq::MSI).unwrap().count, 0);
    assert!(matches!(client.irq_info(5), Err(CallError::Refused(Errno::INVAL))));
    assert!(matches!(client.region_info(9), Err(CallError::Refused(Errno::INVAL))));

    drop(client);
    server.join().unwrap().0.unwrap();
}

#[test]
fn registers_are_read_and_written() {
    let (connection, server) = serve(Limits::default());
    let (mut client, _) = client(connection);
    client.region_write(region::BAR0, 0, &[1, 2, 3, 4]).unwrap();
    client.region_write_posted(region::BAR0, 4, &[5]).unwrap();
    client.region_write_multi(&[(0, 5, &[6]), (0, 6, &[7, 8])]).unwrap();
    let mut data = [0; 9];
    client.region_read(region::BAR0, 0, &mut data).unwrap();
    assert_eq!(data, [1, 2, 3, 4, 5, 6, 7, 8, 0]);
    client.reset().unwrap();
    client.region_read(region::BAR0, 0, &mut data).unwrap();
    assert_eq!(data, [0; 9]);

    let refused = |result| match result {
        Err(CallError::Refused(errno)) => errno,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(client.region_write(region::BAR0, 0xfff, &[1, 2])), Errno::INVAL);
    assert_eq!(refused(client.region_write(region::BAR0, u64::MAX, &[1, 2])), Errno::INVAL);
    assert_eq!(refused(client.region_write(region::BAR4, 0, &[1])), Errno::PERM);
    assert_eq!(refused(client.region_write(77, 0, &[1])), Errno::INVAL);
    assert_eq!(refused(client.region_write(region::BAR0, 0x48, &[99])), Errno::IO);
    let multi: [(u32, u64, &[u8]); 2] = [(0, 0, &[9]), (0, 0x1000, &[9])];
    assert_eq!(refused(client.region_write_multi(&multi)), Errno::INVAL);
    client.region_read(region::BAR0, 0, &mut data).unwrap();
    assert_eq!(data[0], 0, "no write is done if one is bad");
    drop(client);
    server.join().unwrap().0.unwrap();
}

#[test]
fn memory_is_shared_and_taken_back() {
    let (connection, server) = serve(Limits { max_dma_maps: 3, ..Limits::default() });
    let (mut client, _) = client(connection);
    let ram = memory(0x4000);
    client.dma_map(&map(0x1000, 0x1000), Some(ram.as_fd())).unwrap();
    client.dma_map(&map(0x2000, 0x1000), None).unwrap();
    let refused = |result| match result {
        Err(CallError::Refused(errno)) => errno,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(client.dma_map(&map(0x2000, 0x2000), None)), Errno::EXIST);
    assert_eq!(refused(client.dma_map(&map(0xbad000, 0x1000), None)), Errno::NOMEM);
    client.dma_map(&map(0x8000, 0x1000), Some(ram.as_fd())).unwrap();
    assert_eq!(refused(client.dma_map(&map(0x9000, 0x1000), None)), Errno::NOSPC);
    let part = DmaUnmap::Range { address: 0x1000, size: 0x800 };
    assert_eq!(refused(client.dma_unmap(part)), Errno::INVAL);
    client.dma_unmap(DmaUnmap::Range { address: 0x1000, size: 0x1000 }).unwrap();
    client.dma_map(&map(0x1000, 0x1000), Some(ram.as_fd())).unwrap();
    client.dma_unmap(DmaUnmap::All).unwrap();
    client.dma_map(&map(0, 0x10_0000), None).unwrap();
    drop(client);
    let (result, gadget) = server.join().unwrap();
    result.unwrap();
    assert_eq!(gadget.maps.len(), 1);
}

#[test]
fn dma_by_messages_while_the_client_waits() {
    let (connection, server) = serve(Limits::default());
    let (mut client, accesses) = client(connection);
    client.dma_map(&map(0x10_0000, 0x4000), None).unwrap();
    client.region_write(region::BAR0, 0x40, &0x10_0123u64.to_le_bytes()).unwrap();
    // The server's request may come before or after the reply to this write.
    client.region_write(region::BAR0, 0x48, &[1]).unwrap();
    let mut data = [0; 0x40];
    while data[0] == 0 {
        client.region_read(region::BAR0, 0x50, &mut data).unwrap();
    }
    assert_eq!(data[0x30..0x40], (0x23..0x33).collect::<Vec<u8>>());
    assert_eq!(accesses.try_recv().unwrap(), 0x10_0123);

    client.region_write(region::BAR0, 0x40, &0x10_3000u64.to_le_bytes()).unwrap();
    client.region_write(region::BAR0, 0x48, &[2]).unwrap();
    while accesses.try_recv().is_err() {
        client.serve_dma(Duration::from_millis(10)).unwrap();
    }
    let unmapped = 0x20_0000u64.to_le_bytes();
    client.region_write(region::BAR0, 0x40, &unmapped).unwrap();
    let refused = client.region_write(region::BAR0, 0x48, &[1]);
    assert!(matches!(refused, Err(CallError::Refused(Errno::FAULT))), "{refused:?}");
    drop(client);
    server.join().unwrap().0.unwrap();
}

/// Writes a MiB to the client's memory whenever it is written to.
struct Flood(u32);

impl Device for Flood {
    fn region_read(&mut self, _region: u32, _offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        data.fill(self.0 as u8);
        Ok(())
    }

    fn region_write(
        &mut self,
        bus: &mut Bus<'_>,
        _region: u32,
        _offset: u64,
        data: &[u8],
    ) -> Result<(), Errno> {
        assert_eq!(data.len(), 1 << 20);
        for _ in 0..2 {
            bus.dma_write(0x10_0000, data).map_err(|_| Errno::AGAIN)?;
            bus.dma_read(0x10_0000, 1 << 20).map_err(|_| Errno::AGAIN)?;
        }
        Ok(())
    }

    fn dma_done(&mut self, _bus: &mut Bus<'_>, _request: RequestId, result: Result<&[u8], Errno>) {
        assert!(result.is_ok());
        self.0 += 1;
    }
}

#[test]
fn large_transfers_cross_without_a_deadlock() {
    let (ours, theirs) = Connection::pair().unwrap();
    ours.set_time_limit(Some(LIMIT)).unwrap();
    let server = thread::spawn(move || {
        let info = DeviceInfo::pci().region(region::BAR0, Region::read_write(1 << 20));
        let server = Server::new(info, Limits::default()).unwrap();
        let mut device = Flood(0);
        Session::new(ours, server).run(&mut device).unwrap();
        device.0
    });
    let (sender, accesses) = mpsc::channel();
    let memory = Box::new(Ram(vec![0; 1 << 20], sender));
    let mut client = UnixClient::new(theirs, Limits::default(), LIMIT, memory).unwrap();
    client.dma_map(&map(0x10_0000, 1 << 20), None).unwrap();
    for round in 0..8u8 {
        client.region_write_posted(region::BAR0, 0, &vec![round; 1 << 20]).unwrap();
    }
    let mut done = [0];
    while done[0] == 0 || accesses.try_iter().count() > 0 {
        client.region_read(region::BAR0, 0, &mut done).unwrap();
    }
    drop(client);
    assert!(server.join().unwrap() >= 4);
}

#[test]
fn interrupts_reach_the_client() {
    let (connection, server) = serve(Limits::default());
    let (mut client, _) = client(connection);
    // More than one message may carry.
    let vectors: Vec<SharedFd> = (0..32).map(|_| event()).collect();
    client.irqs_assign(irq::MSIX, 0, &vectors, IrqAction::Trigger).unwrap();
    client.region_write(region::BAR0, 0x48, &[3]).unwrap();
    assert_eq!(count(&vectors[1]), 1);
    client.irqs_now_if(irq::MSIX, 30, &[0, 1], IrqAction::Trigger).unwrap();
    client.irqs_now(irq::MSIX, 4, 2, IrqAction::Trigger).unwrap();
    let counts: Vec<u64> = vectors.iter().map(count).collect();
    assert_eq!(counts[31], 1);
    assert_eq!(counts[4..6], [1, 1]);
    assert_eq!(counts.iter().sum::<u64>(), 3);
    client.irqs_unassign(irq::MSIX, 4, 1, IrqAction::Trigger).unwrap();
    client.irqs_now(irq::MSIX, 4, 2, IrqAction::Trigger).unwrap();
    assert_eq!((count(&vectors[4]), count(&vectors[5])), (0, 1));
    client.irqs_now(irq::MSIX, 0, 0, IrqAction::Trigger).unwrap();
    client.irqs_now(irq::MSIX, 0, 32, IrqAction::Trigger).unwrap();
    assert_eq!(vectors.iter().map(count).sum::<u64>(), 0);

    let pin = event();
    client.irqs_assign(irq::INTX, 0, &[Arc::clone(&pin)], IrqAction::Trigger).unwrap();
    client.region_write(region::BAR0, 0x48, &[4]).unwrap();
    client.region_write(region::BAR0, 0x48, &[4]).unwrap();
    assert_eq!(count(&pin), 1, "the pin masks itself");
    client.irqs_now(irq::INTX, 0, 1, IrqAction::Unmask).unwrap();
    assert_eq!(count(&pin), 1, "what waited is raised again");

    let unmask = client.irqs_assign(irq::INTX, 0, &[Arc::clone(&pin)], IrqAction::Unmask);
    assert!(matches!(unmask, Err(CallError::Refused(Errno::NOTSUP))), "{unmask:?}");
    client.irqs_unassign(irq::INTX, 0, 1, IrqAction::Unmask).unwrap();
    client.irqs_now(irq::INTX, 0, 1, IrqAction::Mask).unwrap();
    client.irqs_now(irq::INTX, 0, 1, IrqAction::Trigger).unwrap();
    assert_eq!(count(&pin), 0);

    for bad in [
        client.irqs_now(irq::MSIX, 31, 2, IrqAction::Trigger),
        client.irqs_now(irq::MSIX, u32::MAX, 2, IrqAction::Trigger),
        client.irqs_now(7, 0, 1, IrqAction::Trigger),
        client.irqs_now(irq::MSIX, 1, 0, IrqAction::Trigger),
    ] {
        assert!(matches!(bad, Err(CallError::Refused(Errno::INVAL))), "{bad:?}");
    }
    drop(client);
    server.join().unwrap().0.unwrap();
}

#[test]
fn masked_messages_wait_and_notices_come() {
    let (connection, server) = serve(Limits::default());
    let (mut client, _) = client(connection);
    let vectors: Vec<SharedFd> = (0..3).map(|_| event()).collect();
    client.irqs_assign(irq::MSIX, 0, &vectors, IrqAction::Trigger).unwrap();
    client.irqs_now_if(irq::MSIX, 0, &[0, 1, 1], IrqAction::Mask).unwrap();
    let raise = |client: &mut UnixClient| client.region_write(region::BAR0, 0x48, &[7]).unwrap();
    raise(&mut client);
    raise(&mut client);
    assert_eq!(count(&vectors[1]), 0, "it is masked");
    client.irqs_now(irq::MSIX, 1, 2, IrqAction::Unmask).unwrap();
    assert_eq!(count(&vectors[1]), 1, "what was raised meanwhile comes once");
    assert_eq!(count(&vectors[2]), 0);
    raise(&mut client);
    assert_eq!(count(&vectors[1]), 1);

    let notices = [(irq::ERROR, 5), (irq::REQUEST, 6)];
    for (index, command) in notices {
        let notice = event();
        client.irqs_assign(index, 0, &[Arc::clone(&notice)], IrqAction::Trigger).unwrap();
        client.region_write(region::BAR0, 0x48, &[command]).unwrap();
        assert_eq!(count(&notice), 1);
        let masked = client.irqs_now(index, 0, 1, IrqAction::Mask);
        assert!(matches!(masked, Err(CallError::Refused(Errno::NOTSUP))), "{masked:?}");
    }
    drop(client);
    server.join().unwrap().0.unwrap();
}

#[test]
fn a_mapped_region_is_the_server_s_memory() {
    let (connection, server) = serve(Limits::default());
    let (mut client, _) = client(connection);
    let bar2 = client.region_info(region::BAR2).unwrap();
    let file = std::fs::File::from(bar2.fd.unwrap());
    assert_eq!(file.metadata().unwrap().len(), 0x9000);
    let mut content = Vec::new();
    (&file).read_to_end(&mut content).unwrap();
    assert_eq!(content.len(), 0x9000);
    drop(client);
    server.join().unwrap().0.unwrap();
}

#[test]
fn a_second_client_is_refused_with_a_reason() {
    let (ours, theirs) = Connection::pair().unwrap();
    let thread = thread::spawn(move || {
        let info = DeviceInfo::pci();
        let mut gadget = Gadget::new(&info);
        let mut session = Session::new(ours, Server::refusing(Errno::BUSY, Limits::default()));
        session.run(&mut gadget)
    });
    let memory = Box::new(farside_vfio_user::unix::NoMemory);
    let refused = UnixClient::new(theirs, Limits::default(), LIMIT, memory).err();
    assert!(matches!(refused, Some(CallError::Refused(Errno::BUSY))), "{refused:?}");
    let ended = thread.join().unwrap();
    let errno = Errno::BUSY;
    assert!(
        matches!(ended, Err(SessionError::Protocol(ProtocolError::VersionRefused { errno: e, .. })) if e == errno)
    );
}

#[test]
fn both_sides_can_move_between_threads() {
    fn movable<T: Send>() {}
    movable::<UnixClient>();
    movable::<Session>();
    movable::<Server>();
    movable::<farside_vfio_user::Client>();
}

#[test]
fn a_silent_server_is_not_waited_for() {
    let (ours, theirs) = Connection::pair().unwrap();
    let memory = Box::new(farside_vfio_user::unix::NoMemory);
    let limit = Duration::from_millis(30);
    let result = UnixClient::new(theirs, Limits::default(), limit, memory).err();
    assert!(matches!(result, Some(CallError::TimedOut(_))), "{result:?}");
    drop(ours);
}

/// Takes the next command that wants a reply and answers it after `say` says so.
fn answer_late(session: &mut Session, say: &mpsc::Receiver<()>) {
    loop {
        if let Some(Event::RegionRead { token, .. }) = session.server.poll().unwrap() {
            say.recv_timeout(LIMIT).unwrap();
            session.server.complete_read(token, |data| {
                data.fill(7);
                Ok(())
            });
            assert!(session.flush().unwrap());
            return;
        }
        assert!(session.flush().unwrap());
        assert!(session.fill().unwrap());
    }
}

#[test]
fn a_late_reply_is_dropped_and_the_connection_goes_on() {
    let (ours, theirs) = Connection::pair().unwrap();
    ours.set_time_limit(Some(LIMIT)).unwrap();
    let (go, say) = mpsc::channel();
    let server = thread::spawn(move || {
        let mut session = Session::new(ours, Server::new(info(), Limits::default()).unwrap());
        answer_late(&mut session, &say);
        answer_late(&mut session, &say);
    });
    let memory = Box::new(farside_vfio_user::unix::NoMemory);
    let mut client = UnixClient::new(theirs, Limits::default(), LIMIT, memory).unwrap();
    client.set_time_limit(Duration::from_millis(20)).unwrap();
    let mut data = [0; 4];
    let late = client.region_read(region::BAR0, 0, &mut data);
    assert!(matches!(late, Err(CallError::TimedOut(_))), "{late:?}");
    client.set_time_limit(LIMIT).unwrap();
    go.send(()).unwrap();
    go.send(()).unwrap();
    let mut data = [0; 8];
    client.region_read(region::BAR0, 8, &mut data).unwrap();
    assert_eq!(data, [7; 8]);
    drop(client);
    server.join().unwrap();
}

#[test]
fn a_server_that_goes_is_noticed() {
    let (connection, server) = serve(Limits::default());
    let stop = connection.try_clone().unwrap();
    let (mut client, _) = client(connection);
    stop.shutdown().unwrap();
    let closed = client.reset();
    assert!(matches!(closed, Err(CallError::Closed)), "{closed:?}");
    server.join().unwrap().0.unwrap();
}

#[test]
fn a_listener_removes_stale_sockets_and_only_those() {
    let directory = std::env::temp_dir().join(format!("vfio-user-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("device.sock");
    // A server that died leaves its path behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let listener = Listener::bind(&path).unwrap();
    let in_use = Listener::bind(&path).unwrap_err();
    assert_eq!(in_use.kind(), std::io::ErrorKind::AddrInUse);
    let connection = Connection::connect(&path).unwrap();
    let accepted = {
        // The first connection in line is the probe of the second bind.
        drop(listener.accept().unwrap());
        listener.accept().unwrap()
    };
    let peer = accepted.peer().unwrap();
    assert_eq!(peer.pid, std::process::id());
    assert_eq!(connection.peer().unwrap().pid, std::process::id());
    drop(listener);
    assert!(!path.exists());
    std::fs::write(&path, "not a socket").unwrap();
    assert!(Listener::bind(&path).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"not a socket");
    std::fs::remove_dir_all(&directory).unwrap();
}
