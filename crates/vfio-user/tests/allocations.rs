//! In the steady state no message costs an allocation, on either side.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use farside_vfio_user::client::ClientEvent;
use farside_vfio_user::device::region;
use farside_vfio_user::server::RegionAccess;
use farside_vfio_user::{
    Bus, Client, Device, DeviceInfo, Errno, Limits, Region, Reply, RequestId, Server,
};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Registers {
    bytes: Vec<u8>,
    asked: u64,
    answered: u64,
}

impl Device for Registers {
    fn region_read(&mut self, _region: u32, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        let offset = offset as usize;
        data.copy_from_slice(&self.bytes[offset..offset + data.len()]);
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
        self.bytes[offset..offset + data.len()].copy_from_slice(data);
        bus.dma_read(0x1000, 64).map_err(|_| Errno::IO)?;
        bus.dma_write(0x1000, &data[..4]).map_err(|_| Errno::IO)?;
        self.asked += 2;
        Ok(())
    }

    fn dma_done(&mut self, _bus: &mut Bus<'_>, _request: RequestId, result: Result<&[u8], Errno>) {
        assert!(result.is_ok());
        self.answered += 1;
    }
}

fn carry(client: &mut Client, server: &mut Server) {
    while let Some(transmit) = client.transmit() {
        let count = transmit.bytes.len();
        server.space()[..count].copy_from_slice(transmit.bytes);
        server.received(count, Vec::new()).unwrap();
        client.sent(count);
    }
}

fn carry_back(server: &mut Server, client: &mut Client) {
    while let Some(transmit) = server.transmit() {
        let count = transmit.bytes.len();
        client.space()[..count].copy_from_slice(transmit.bytes);
        client.received(count, Vec::new()).unwrap();
        server.sent(count);
    }
}

/// Takes everything that came, answers DMA requests; how many replies.
fn take(client: &mut Client) -> usize {
    let mut replies = 0;
    while let Some(event) = client.poll().unwrap() {
        match event {
            ClientEvent::Reply { reply, .. } => {
                if let Reply::Data(data) = reply.unwrap() {
                    assert_eq!(data.len(), 8);
                }
                replies += 1;
            }
            ClientEvent::DmaRead { token, .. } | ClientEvent::DmaWrite { token, .. } => {
                client.complete(token, |_| Ok(()));
            }
            other => panic!("{other:?}"),
        }
    }
    replies
}

fn round(client: &mut Client, server: &mut Server, device: &mut Registers) {
    let access = RegionAccess { region: region::BAR0, offset: 0x10, count: 8 };
    client.region_read(access).unwrap();
    client.region_read(access).unwrap();
    client.region_write(region::BAR0, 0x20, &[7; 16]).unwrap();
    let mut replies = 0;
    while replies < 3 || device.answered < device.asked {
        carry(client, server);
        server.serve(device).unwrap();
        carry_back(server, client);
        replies += take(client);
    }
    assert_eq!(replies, 3);
}

#[test]
fn reads_and_writes_and_dma_by_messages_allocate_nothing() {
    let info = DeviceInfo::pci().region(region::BAR0, Region::read_write(0x1000));
    let mut server = Server::new(info, Limits::default()).unwrap();
    let mut client = Client::new(Limits::default());
    let mut device = Registers { bytes: vec![0; 0x1000], asked: 0, answered: 0 };
    client.negotiate().unwrap();
    carry(&mut client, &mut server);
    server.serve(&mut device).unwrap();
    carry_back(&mut server, &mut client);
    assert_eq!(take(&mut client), 1);
    let map = farside_vfio_user::client::MapRequest {
        address: 0x1000,
        size: 0x1000,
        readable: true,
        writable: true,
        offset: 0,
    };
    client.dma_map(&map, None).unwrap();
    carry(&mut client, &mut server);
    server.serve(&mut device).unwrap();
    carry_back(&mut server, &mut client);
    assert_eq!(take(&mut client), 1);

    for _ in 0..10 {
        round(&mut client, &mut server, &mut device);
    }
    let before = ALLOCATIONS.with(Cell::get);
    for _ in 0..10_000 {
        round(&mut client, &mut server, &mut device);
    }
    let after = ALLOCATIONS.with(Cell::get);
    assert_eq!(after - before, 0, "10000 rounds of 3 accesses and 2 DMA messages");
    drop(vec![1u8; 100]);
    assert!(ALLOCATIONS.with(Cell::get) > after, "the allocator counts");
}
