//! Interoperation with the published crate `vfio_user`: its client with our server, our client with
//! its server.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use farside_vfio_user::client::MapRequest;
use farside_vfio_user::device::{irq, region};
use farside_vfio_user::unix::{CallError, Interrupts, Listener, Session, UnixClient};
use farside_vfio_user::{
    Bus, Device, DeviceInfo, DmaMap, DmaUnmap, Errno, Irq, IrqAction, Region, RequestError, Server,
    SetIrqs, SharedFd, SparseArea,
};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD,
    VFIO_REGION_INFO_FLAG_MMAP, VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE,
    vfio_region_info, vfio_region_sparse_mmap_area,
};

const LIMIT: Duration = Duration::from_secs(20);

fn memory(size: u64) -> OwnedFd {
    let fd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, size).unwrap();
    fd
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

fn count(fd: &OwnedFd) -> u64 {
    let mut value = [0; 8];
    rustix::io::read(fd, &mut value).map_or(0, |_| u64::from_ne_bytes(value))
}

/// A folder of its own for a socket, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("vfio-user-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Ours {
    bytes: Vec<u8>,
    interrupts: Interrupts,
    maps: Vec<DmaMap>,
}

impl Device for Ours {
    fn region_read(&mut self, _region: u32, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        let offset = offset as usize;
        data.copy_from_slice(&self.bytes[offset..offset + data.len()]);
        Ok(())
    }

    fn region_write(
        &mut self,
        _bus: &mut Bus<'_>,
        _region: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Errno> {
        let offset = offset as usize;
        self.bytes[offset..offset + data.len()].copy_from_slice(data);
        if let Some(fd) = self.maps.first().and_then(|map| map.fd.as_ref()) {
            // What is written goes to the client's memory too.
            File::from(fd.try_clone()?).write_all_at(data, 0)?;
        }
        if self.interrupts.is_set(irq::MSIX, 2) {
            self.interrupts.raise(irq::MSIX, 2)?;
        }
        Ok(())
    }

    fn dma_map(&mut self, map: DmaMap) -> Result<(), Errno> {
        self.maps.push(map);
        Ok(())
    }

    fn dma_unmap(&mut self, _unmap: DmaUnmap) -> Result<(), Errno> {
        self.maps.clear();
        Ok(())
    }

    fn set_irqs(&mut self, set: SetIrqs<'_>) -> Result<(), Errno> {
        self.interrupts.apply(set)
    }

    fn reset(&mut self, _bus: &mut Bus<'_>) -> Result<(), Errno> {
        self.bytes.fill(0);
        Ok(())
    }
}

#[test]
fn their_client_uses_our_server() {
    let folder = Folder::new("theirs");
    let path = folder.0.join("device.sock");
    let listener = Listener::bind(&path).unwrap();
    let server = thread::spawn(move || {
        let areas = vec![
            SparseArea { offset: 0, size: 0x1000 },
            SparseArea { offset: 0x3000, size: 0x1000 },
        ];
        let info = DeviceInfo::pci()
            .region(region::BAR0, Region::read_write(0x1000))
            .region(region::BAR2, Region::read_write(0x4000).mapped(memory(0x4000), 0, areas))
            .region(region::BAR4, Region::read_write(0x1000).mapped(memory(0x1000), 0, Vec::new()))
            .irq(irq::MSIX, Irq::messages(4));
        let interrupts = Interrupts::new(&info);
        let server = Server::new(info, Default::default()).unwrap();
        let connection = listener.accept().unwrap();
        connection.set_time_limit(Some(LIMIT)).unwrap();
        let mut device = Ours { bytes: vec![0; 0x1000], interrupts, maps: Vec::new() };
        Session::new(connection, server).run(&mut device)
    });

    let mut client = vfio_user::Client::new(&path).unwrap();
    assert_eq!(client.region(region::BAR0).unwrap().size, 0x1000);
    assert!(client.region(region::BAR0).unwrap().file_offset.is_none());
    let bar2 = client.region(region::BAR2).unwrap();
    assert_eq!(bar2.sparse_areas.len(), 2);
    assert_eq!(bar2.sparse_areas[1].offset, 0x3000);
    assert!(bar2.file_offset.is_some());
    assert!(client.region(region::BAR4).unwrap().file_offset.is_some());

    client.region_write(region::BAR0, 0x10, &[1, 2, 3, 4]).unwrap();
    let mut data = [0; 4];
    client.region_read(region::BAR0, 0x10, &mut data).unwrap();
    assert_eq!(data, [1, 2, 3, 4]);

    let info = client.get_irq_info(irq::MSIX).unwrap();
    assert_eq!((info.index, info.count), (irq::MSIX, 4));
    let events: Vec<OwnedFd> = (0..4).map(|_| event()).collect();
    let raw: Vec<i32> = events.iter().map(|fd| fd.as_raw_fd()).collect();
    let flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
    client.set_irqs(irq::MSIX, flags, 0, 4, &raw).unwrap();

    let ram = memory(0x1000);
    client.dma_map(0, 0x10_0000, 0x1000, ram.as_raw_fd()).unwrap();
    client.region_write(region::BAR0, 0, &[9; 8]).unwrap();
    assert_eq!(count(&events[2]), 1);
    let mut seen = [0; 8];
    let ram = File::from(ram);
    ram.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(seen, [9; 8], "the server writes the client's memory through its descriptor");
    client.dma_unmap(0x10_0000, 0x1000).unwrap();
    client.reset().unwrap();
    client.region_read(region::BAR0, 0x10, &mut data).unwrap();
    assert_eq!(data, [0; 4]);
    client.shutdown().unwrap();
    server.join().unwrap().unwrap();
}

#[derive(Default)]
struct Log {
    bytes: Vec<u8>,
    maps: Vec<(u64, u64, bool)>,
    irqs: Vec<(u32, u32, u32, u32, usize)>,
    resets: u32,
}

struct Theirs(Arc<Mutex<Log>>);

impl vfio_user::ServerBackend for Theirs {
    fn region_read(&mut self, _region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let log = self.0.lock().unwrap();
        let offset = offset as usize;
        data.copy_from_slice(&log.bytes[offset..offset + data.len()]);
        Ok(())
    }

    fn region_write(&mut self, _region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        let offset = offset as usize;
        self.0.lock().unwrap().bytes[offset..offset + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn dma_map(
        &mut self,
        _flags: vfio_user::DmaMapFlags,
        _offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        self.0.lock().unwrap().maps.push((address, size, fd.is_some()));
        Ok(())
    }

    fn dma_unmap(
        &mut self,
        _flags: vfio_user::DmaUnmapFlags,
        address: u64,
        _size: u64,
    ) -> io::Result<()> {
        self.0.lock().unwrap().maps.retain(|map| map.0 != address);
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.0.lock().unwrap().resets += 1;
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        fds: Vec<File>,
    ) -> io::Result<()> {
        self.0.lock().unwrap().irqs.push((index, flags, start, count, fds.len()));
        Ok(())
    }
}

fn their_region(index: u32, size: u64) -> vfio_user::ServerRegion {
    let region_info = vfio_region_info {
        argsz: size_of::<vfio_region_info>() as u32,
        flags: VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE,
        index,
        size,
        ..Default::default()
    };
    vfio_user::ServerRegion { region_info, sparse_areas: Vec::new(), mmap_fd: None }
}

/// Their server needs a moment until it listens.
fn connect(path: &std::path::Path) -> UnixClient {
    let end = Instant::now() + LIMIT;
    loop {
        match UnixClient::connect(path, LIMIT) {
            Ok(client) => return client,
            Err(error) if Instant::now() > end => panic!("{error}"),
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

#[test]
fn our_client_uses_their_server() {
    let folder = Folder::new("ours");
    let path = folder.0.join("device.sock");
    let log = Arc::new(Mutex::new(Log { bytes: vec![0; 0x1000], ..Log::default() }));
    let shared = memory(0x4000);
    let mut regions: Vec<_> = (0..9).map(|index| their_region(index, 0)).collect();
    regions[0] = their_region(0, 0x1000);
    regions[2] = their_region(2, 0x4000);
    regions[2].region_info.flags |= VFIO_REGION_INFO_FLAG_MMAP;
    regions[2].mmap_fd = Some(shared.as_raw_fd());
    let area = vfio_region_sparse_mmap_area { offset: 0x1000, size: 0x1000 };
    regions[2].sparse_areas = vec![vfio_user::SparseArea { area }; 3];
    let irqs = (0..5).map(|index| {
        let count = if index == irq::MSIX { 40 } else { 0 };
        vfio_user::IrqInfo { index, flags: VFIO_IRQ_INFO_EVENTFD, count }
    });
    let server = vfio_user::Server::new(&path, true, irqs.collect(), regions).unwrap();
    let mut backend = Theirs(Arc::clone(&log));
    let server = thread::spawn(move || server.run(&mut backend));

    let mut client = connect(&path);
    let summary = client.device_info().unwrap();
    assert_eq!((summary.regions, summary.irqs, summary.resettable), (9, 5, true));
    assert_eq!(client.region_info(0).unwrap().size, 0x1000);
    let bar2 = client.region_info(2).unwrap();
    assert_eq!(bar2.areas, [SparseArea { offset: 0x1000, size: 0x1000 }; 3]);
    assert!(bar2.fd.is_some());
    assert_eq!(client.irq_info(irq::MSIX).unwrap().count, 40);

    client.region_write(0, 8, &[5, 6, 7]).unwrap();
    client.region_write_posted(0, 11, &[8]).unwrap();
    let mut data = [0; 4];
    client.region_read(0, 8, &mut data).unwrap();
    assert_eq!(data, [5, 6, 7, 8]);
    assert!(matches!(
        client.region_write_multi(&[]),
        Err(CallError::Request(RequestError::NotAgreed { .. }))
    ));
    assert!(matches!(client.region_info(9), Err(CallError::Refused(Errno::INVAL))));

    let ram = memory(0x2000);
    let map =
        MapRequest { address: 0x1000, size: 0x2000, readable: true, writable: true, offset: 0 };
    client.dma_map(&map, Some(ram.as_fd())).unwrap();
    client.dma_map(&MapRequest { address: 0x8000, ..map }, None).unwrap();
    client.dma_unmap(DmaUnmap::Range { address: 0x1000, size: 0x2000 }).unwrap();
    assert_eq!(log.lock().unwrap().maps, [(0x8000, 0x2000, false)]);

    // Their server announces that it takes one descriptor in a message.
    let events: Vec<SharedFd> = (0..3).map(|_| Arc::new(event())).collect();
    client.irqs_assign(irq::MSIX, 4, &events, IrqAction::Trigger).unwrap();
    let flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
    let one = |start| (irq::MSIX, flags, start, 1, 1);
    assert_eq!(log.lock().unwrap().irqs, [one(4), one(5), one(6)]);
    client.irqs_unassign(irq::MSIX, 4, 3, IrqAction::Trigger).unwrap();
    assert_eq!(log.lock().unwrap().irqs[3], (irq::MSIX, flags, 4, 3, 0));
    client.reset().unwrap();
    assert_eq!(log.lock().unwrap().resets, 1);
    drop(client);
    server.join().unwrap().unwrap();
}
