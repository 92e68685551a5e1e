//! Feeds an engine what a hostile peer sends, and checks what must hold whatever that is.
//!
//! Shared by the tests and the fuzz targets. The input is a list of reads: a byte that says how many
//! bytes follow (bits 0 to 6, 127 means 1000) and whether a descriptor comes with them (bit 7).

use std::fs::File;
use std::os::fd::OwnedFd;

use farside_vfio_user::client::{ClientEvent, MapRequest};
use farside_vfio_user::device::{irq, region};
use farside_vfio_user::server::RegionAccess;
use farside_vfio_user::wire::{Command, HEADER_SIZE, Header};
use farside_vfio_user::{
    Bus, Client, Device, DeviceInfo, DmaMap, DmaUnmap, Errno, Feature, IoFd, IoFdKind, Irq,
    IrqAction, IrqData, Limits, OtherReply, ProtocolError, Region, RequestId, Server, SetIrqs,
    SharedFd, SparseArea,
};

/// Small limits, so that a short input reaches them.
pub(crate) fn limits() -> Limits {
    Limits {
        max_data_xfer_size: 512,
        max_msg_fds: 2,
        max_dma_maps: 4,
        max_outstanding: 8,
        max_queued_bytes: 4096,
        pgsizes: 0x1004,
        ..Limits::default()
    }
}

fn null() -> OwnedFd {
    OwnedFd::from(File::open("/dev/null").expect("every Linux has /dev/null"))
}

/// The device that is attacked.
pub(crate) fn info() -> DeviceInfo {
    let fd: SharedFd = std::sync::Arc::new(null());
    let areas = vec![SparseArea { offset: 0, size: 0x1000 }];
    let io_fd = IoFd {
        offset: 0,
        size: 4,
        flags: 0,
        kind: IoFdKind::IoEventFd { datamatch: 0 },
        fd: fd.clone(),
    };
    DeviceInfo::pci()
        .region(region::BAR0, Region::read_write(0x1000).io_fds(vec![io_fd]))
        .region(region::BAR2, Region::read_write(0x2000).mapped(fd, 0, areas))
        .region(region::CONFIG, Region::read_only(256))
        .irq(irq::INTX, Irq::INTX)
        .irq(irq::MSIX, Irq::messages(4))
        .irq(irq::ERROR, Irq::NOTICE)
        .irq(irq::REQUEST, Irq::NOTICE)
        .feature(Feature { number: READ_ONLY, readable: true, writable: false })
        .feature(Feature { number: READ_WRITE, readable: true, writable: true })
        .dma_end(DMA_END)
}

/// Features of the device.
const READ_ONLY: u16 = 1;
const READ_WRITE: u16 = 2;
/// Where the device's bus ends.
const DMA_END: u64 = 1 << 40;
/// What the device and its client have agreed to ask each other.
const OTHER: Command = Command(20);

/// Checks that it is only ever asked for what it has.
#[derive(Default)]
struct Victim {
    maps: Vec<(u64, u64)>,
    /// It must not be asked for anything any more.
    revoked: bool,
}

impl Victim {
    fn check(region: u32, offset: u64, count: usize) {
        let sizes = [(region::BAR0, 0x1000), (region::BAR2, 0x2000), (region::CONFIG, 256)];
        let size = sizes.iter().find(|(index, _)| *index == region).map_or(0, |(_, size)| *size);
        assert!(offset + count as u64 <= size, "{count} bytes at {offset:#x} of region {region}");
        assert!(count <= 512);
    }
}

impl Device for Victim {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        Victim::check(region, offset, data.len());
        assert!(!self.revoked);
        data.fill(0x5a);
        if offset == 0x40 { Err(Errno::IO) } else { Ok(()) }
    }

    fn region_write(
        &mut self,
        bus: &mut Bus<'_>,
        region: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Errno> {
        Victim::check(region, offset, data.len());
        assert!(!self.revoked);
        assert_ne!(region, region::CONFIG, "it is read-only");
        if let Some((address, _)) = self.maps.first() {
            let _ = bus.dma_read(*address, 16);
            let _ = bus.dma_write(*address, &[1; 8]);
        }
        Ok(())
    }

    fn dma_map(&mut self, map: DmaMap) -> Result<(), Errno> {
        assert!(
            map.size > 0 && map.address.checked_add(map.size).is_some_and(|end| end <= DMA_END)
        );
        assert_eq!((map.address | map.size | map.offset) % 4, 0, "not of the agreed page size");
        let last = map.address + (map.size - 1);
        for (address, size) in &self.maps {
            assert!(last < *address || map.address > address + (size - 1), "maps overlap");
        }
        if map.address == 0xbad_0000 {
            return Err(Errno::NOMEM);
        }
        self.maps.push((map.address, map.size));
        assert!(self.maps.len() <= 4);
        Ok(())
    }

    fn dma_unmap(&mut self, unmap: DmaUnmap) -> Result<(), Errno> {
        match unmap {
            DmaUnmap::All => self.maps.clear(),
            DmaUnmap::Range { address, size } => {
                assert!(size > 0 && address.checked_add(size - 1).is_some());
                let end = address + (size - 1);
                self.maps.retain(|&(start, bytes)| {
                    let last = start + (bytes - 1);
                    let touched = start <= end && address <= last;
                    assert!(!touched || (address <= start && last <= end), "a map is cut");
                    !touched
                });
            }
        }
        Ok(())
    }

    fn set_irqs(&mut self, set: SetIrqs<'_>) -> Result<(), Errno> {
        let count = match set.index {
            irq::INTX => 1,
            irq::MSIX => 4,
            irq::ERROR | irq::REQUEST => 1,
            other => panic!("interrupt type {other} has none"),
        };
        assert!(set.start + set.count <= count);
        match set.data {
            IrqData::NowIf(which) => assert_eq!(which.len(), set.count as usize),
            IrqData::EventFds(fds) => assert_eq!(fds.len(), set.count as usize),
            IrqData::Now | IrqData::Unassign => {}
        }
        assert!(set.action == IrqAction::Trigger || set.index <= irq::MSIX);
        Ok(())
    }

    fn feature_get(&mut self, feature: u16, value: &mut Vec<u8>) -> Result<(), Errno> {
        assert!(feature == READ_ONLY || feature == READ_WRITE);
        value.extend_from_slice(&[7; 8]);
        Ok(())
    }

    fn feature_set(&mut self, feature: u16, value: &[u8]) -> Result<(), Errno> {
        assert_eq!(feature, READ_WRITE);
        if value.len() == 4 { Ok(()) } else { Err(Errno::INVAL) }
    }

    fn other(
        &mut self,
        bus: &mut Bus<'_>,
        command: Command,
        data: &[u8],
        fds: Vec<OwnedFd>,
        reply: &mut OtherReply,
    ) -> Result<(), Errno> {
        assert!(!command.is_spoken() && data.len() <= 512 + 1024 * 16 && fds.len() <= 2);
        let _ = bus.ask(OTHER, &data[..data.len().min(8)]);
        if command != OTHER {
            return Err(Errno::NOTSUP);
        }
        reply.data.extend_from_slice(&data[..data.len().min(16)]);
        Ok(())
    }

    fn answered(&mut self, _bus: &mut Bus<'_>, _request: RequestId, result: Result<&[u8], Errno>) {
        assert!(result.is_err() || result.is_ok_and(|data| data.len() <= 1024 * 17));
    }

    fn dma_done(&mut self, _bus: &mut Bus<'_>, _request: RequestId, result: Result<&[u8], Errno>) {
        assert!(matches!(result, Ok(&[]) | Err(_)) || result.is_ok_and(|data| data.len() == 16));
    }
}

/// The reads that an input describes.
fn reads(mut input: &[u8]) -> impl Iterator<Item = (&[u8], usize)> {
    std::iter::from_fn(move || {
        let (&control, rest) = input.split_first()?;
        let count = if control & 0x7f == 0x7f { 1000 } else { usize::from(control & 0x7f) };
        let (chunk, rest) = rest.split_at(count.min(rest.len()));
        input = rest;
        Some((chunk, usize::from(control >> 7)))
    })
}

/// Whole messages of an engine's output; each is well formed.
fn messages(mut output: &[u8]) -> Vec<Header> {
    let mut found = Vec::new();
    while !output.is_empty() {
        let header = Header::decode(output.first_chunk().expect("a whole header"));
        let size = header.size as usize;
        assert!((HEADER_SIZE..=output.len()).contains(&size), "{header:?}");
        if header.flags & 0x20 != 0 {
            assert_eq!(size, HEADER_SIZE, "an error reply has no payload");
        }
        found.push(header);
        output = &output[size..];
    }
    found
}

/// A negotiated server.
pub(crate) fn ready_server() -> Server {
    let mut server = Server::new(info(), limits()).expect("a good description");
    let mut client = Client::new(limits());
    client.negotiate().expect("the first request");
    let request = client.transmit().expect("a queued request");
    server.receive(request.bytes, Vec::new()).expect("room");
    server.serve(&mut Victim::default()).expect("a good request");
    drain(&mut server);
    server
}

fn drain(server: &mut Server) -> Vec<u8> {
    let mut output = Vec::new();
    while let Some(transmit) = server.transmit() {
        output.extend_from_slice(transmit.bytes);
        let count = transmit.bytes.len();
        server.sent(count);
    }
    output
}

/// A hostile client; how many good replies it got.
pub(crate) fn server(input: &[u8]) -> usize {
    let mut good = 0;
    let mut server = match input.first() {
        Some(first) if first & 1 == 0 => Server::new(info(), limits()).expect("it is good"),
        _ => ready_server(),
    };
    let mut victim = Victim::default();
    // One input in sixteen loses its access on the way.
    let revoked_at = input.first().filter(|first| *first & 0x1e == 0x1e).map(|_| input.len() % 5);
    for (at, (chunk, fds)) in reads(input.get(1..).unwrap_or_default()).enumerate() {
        if revoked_at == Some(at) {
            server.revoke(Errno::CANCELED);
            victim = Victim { revoked: true, ..Victim::default() };
        }
        let fds = (0..fds).map(|_| null()).collect();
        let result = server.receive(chunk, fds).and_then(|()| server.serve(&mut victim));
        assert!(server.queued_bytes() <= 4096 + 1024, "{} bytes", server.queued_bytes());
        assert_eq!(server.unanswered(), 0);
        assert!(server.awaited() <= 8);
        for header in messages(&drain(&mut server)) {
            assert!(header.flags & 0xf <= 1);
            assert!(header.size as usize <= HEADER_SIZE + 32 + 512);
            good += usize::from(header.flags == 1);
        }
        if let Err(error) = result {
            failed(error, |bytes| {
                server.receive(bytes, Vec::new()).and_then(|()| server.serve(&mut victim))
            });
            return good;
        }
        // What waited for room in the queue is served now.
        while !server.wants_input() || server.has_work() {
            if server.serve(&mut victim).is_err() {
                return good;
            }
            drain(&mut server);
        }
    }
    assert_eq!(server.maps().count(), victim.maps.len());
    good
}

/// A failed engine stays so.
fn failed(error: ProtocolError, mut again: impl FnMut(&[u8]) -> Result<(), ProtocolError>) {
    assert_eq!(again(&[]), Err(error));
    assert_eq!(again(&[0; 64]), Err(error));
}

/// A client with a request of every kind on its way.
pub(crate) fn busy_client(negotiated: bool) -> Client {
    let mut client = Client::new(Limits { max_outstanding: 16, ..limits() });
    client.negotiate().expect("the first request");
    if !negotiated {
        sent(&mut client);
        return client;
    }
    let mut server = Server::new(info(), limits()).expect("a good description");
    let request = client.transmit().expect("a queued request").bytes;
    server.receive(request, Vec::new()).expect("room");
    sent(&mut client);
    server.serve(&mut Victim::default()).expect("a good request");
    client.receive(&drain(&mut server), Vec::new()).expect("room");
    assert!(matches!(client.poll(), Ok(Some(ClientEvent::Reply { reply: Ok(_), .. }))));
    let map = MapRequest { address: 0, size: 4096, readable: true, writable: true, offset: 0 };
    client.device_info().expect("room");
    client.region_info(region::BAR2, 64).expect("room");
    client.region_io_fds(region::BAR0, 64).expect("room");
    client.irq_info(irq::MSIX).expect("room");
    client.dma_map(&map, None).expect("room");
    client.dma_unmap(DmaUnmap::All).expect("room");
    let access = RegionAccess { region: region::BAR0, offset: 0, count: 8 };
    client.region_read(access).expect("room");
    client.region_write(region::BAR0, 0, &[1]).expect("room");
    client.reset().expect("room");
    client.feature_get(READ_WRITE, 8).expect("room");
    client.other(OTHER, &[1, 2, 3], Vec::new()).expect("room");
    sent(&mut client);
    client
}

/// All that was queued is on its way.
fn sent(client: &mut Client) {
    while let Some(transmit) = client.transmit() {
        let count = transmit.bytes.len();
        client.sent(count);
    }
}

/// A hostile server; how many messages were taken from it.
pub(crate) fn client(input: &[u8]) -> usize {
    let mut taken = 0;
    let mut client = busy_client(input.first().is_some_and(|first| first & 1 != 0));
    let mut awaited = client.awaited();
    for (chunk, fds) in reads(input.get(1..).unwrap_or_default()) {
        let fds = (0..fds).map(|_| null()).collect();
        let received = client.receive(chunk, fds);
        let result = received.and_then(|()| take_all(&mut client, &mut taken));
        assert!(client.awaited() <= awaited, "replies are taken once");
        awaited = client.awaited();
        assert!(client.queued_bytes() <= 4096 + 1024, "{} bytes", client.queued_bytes());
        let mut output = Vec::new();
        while let Some(transmit) = client.transmit() {
            output.extend_from_slice(transmit.bytes);
            let count = transmit.bytes.len();
            client.sent(count);
        }
        if awaited > 0 {
            for header in messages(&output) {
                let known = [Command::DMA_READ, Command::DMA_WRITE].contains(&header.command);
                let version = header.command == Command::VERSION;
                let users = !header.command.is_spoken();
                assert!(known || version || users || header.flags & 0x20 != 0, "{header:?}");
            }
        }
        if let Err(error) = result {
            failed(error, |bytes| {
                client.receive(bytes, Vec::new()).and_then(|()| take_all(&mut client, &mut 0))
            });
            return taken;
        }
    }
    taken
}

fn take_all(client: &mut Client, taken: &mut usize) -> Result<(), ProtocolError> {
    while let Some(event) = client.poll()? {
        *taken += 1;
        match event {
            ClientEvent::DmaRead { token, count, .. } => {
                assert!(count <= 512);
                client.complete(token, |data| {
                    assert_eq!(data.len(), count as usize);
                    Ok(())
                });
            }
            ClientEvent::DmaWrite { token, data, .. } => {
                assert!(data.len() <= 512);
                client.complete(token, |data| {
                    assert!(data.is_empty());
                    Err(Errno::FAULT)
                });
            }
            ClientEvent::Other { token, command, data } => {
                assert!(!command.is_spoken() && data.len() <= 1024 * 17);
                let reply = data[..data.len().min(16)].to_vec();
                client.complete_other(token, Ok(&reply));
            }
            ClientEvent::Reply { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    Ok(())
}
