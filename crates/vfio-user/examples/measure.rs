//! Measures the engines and the socket layer.
//!
//! ```text
//! cargo run --release -p farside-vfio-user --example measure
//! ```
//!
//! Server and client are threads. "one CPU" pins both to the same one, "two CPUs" to two different
//! ones, where there are two. Each figure is the median of several runs.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use farside_vfio_user::client::ClientEvent;
use farside_vfio_user::device::region;
use farside_vfio_user::server::RegionAccess;
use farside_vfio_user::unix::{Connection, NoMemory, Session, UnixClient};
use farside_vfio_user::{Bus, Client, Device, DeviceInfo, Errno, Limits, Region, Server};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use vfio_bindings::bindings::vfio::{
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};

const RUNS: usize = 7;
const ROUND_TRIPS: u32 = 20_000;
const LIMIT: Duration = Duration::from_secs(10);

struct Registers([u8; 4096]);

impl Device for Registers {
    fn region_read(&mut self, _region: u32, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        let offset = offset as usize;
        data.copy_from_slice(&self.0[offset..offset + data.len()]);
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
        self.0[offset..offset + data.len()].copy_from_slice(data);
        Ok(())
    }
}

fn info() -> DeviceInfo {
    DeviceInfo::pci().region(region::BAR0, Region::read_write(4096))
}

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).expect("pinning to a CPU");
}

fn cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).expect("asking for the CPUs");
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Microseconds of one `call`.
fn per_call(mut call: impl FnMut()) -> f64 {
    for _ in 0..ROUND_TRIPS / 10 {
        call();
    }
    let start = Instant::now();
    for _ in 0..ROUND_TRIPS {
        call();
    }
    start.elapsed().as_secs_f64() * 1e6 / f64::from(ROUND_TRIPS)
}

/// A bare exchange of messages of the sizes of a 4-byte register read: 32 bytes, 36 back.
fn ping_pong(server_cpu: usize) -> f64 {
    let (mut ours, mut theirs) = UnixStream::pair().expect("a socket pair");
    let server = thread::spawn(move || {
        pin(server_cpu);
        let mut message = [0; 36];
        while theirs.read_exact(&mut message[..32]).is_ok() {
            theirs.write_all(&message).expect("answering");
        }
    });
    let mut message = [0; 36];
    let time = per_call(|| {
        ours.write_all(&message[..32]).expect("asking");
        ours.read_exact(&mut message).expect("the answer");
    });
    drop(ours);
    server.join().expect("the server ends");
    time
}

fn with_client(server_cpu: usize, mut call: impl FnMut(&mut UnixClient)) -> f64 {
    let (ours, theirs) = Connection::pair().expect("a socket pair");
    let server = thread::spawn(move || {
        pin(server_cpu);
        let engine = Server::new(info(), Limits::default()).expect("a good description");
        Session::new(theirs, engine).run(&mut Registers([0; 4096])).expect("a good client");
    });
    let mut client = UnixClient::new(ours, Limits::default(), LIMIT, Box::new(NoMemory))
        .expect("agreeing on a version");
    let time = per_call(|| call(&mut client));
    drop(client);
    server.join().expect("the server ends");
    time
}

fn register_read(server_cpu: usize) -> f64 {
    let mut data = [0; 4];
    with_client(server_cpu, |client| {
        client.region_read(region::BAR0, 8, &mut data).expect("reading a register");
    })
}

fn register_write(server_cpu: usize) -> f64 {
    with_client(server_cpu, |client| {
        client.region_write(region::BAR0, 8, &[1; 4]).expect("writing a register");
    })
}

/// The published crate `vfio_user`, client and server, for comparison.
struct Published([u8; 4096]);

impl vfio_user::ServerBackend for Published {
    fn region_read(&mut self, _region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let offset = offset as usize;
        data.copy_from_slice(&self.0[offset..offset + data.len()]);
        Ok(())
    }

    fn region_write(&mut self, _region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        let offset = offset as usize;
        self.0[offset..offset + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn dma_map(
        &mut self,
        _flags: vfio_user::DmaMapFlags,
        _offset: u64,
        _address: u64,
        _size: u64,
        _fd: Option<File>,
    ) -> io::Result<()> {
        Ok(())
    }

    fn dma_unmap(
        &mut self,
        _flags: vfio_user::DmaUnmapFlags,
        _address: u64,
        _size: u64,
    ) -> io::Result<()> {
        Ok(())
    }

    fn reset(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn set_irqs(
        &mut self,
        _index: u32,
        _flags: u32,
        _start: u32,
        _count: u32,
        _fds: Vec<File>,
    ) -> io::Result<()> {
        Ok(())
    }
}

fn published_register_read(server_cpu: usize) -> f64 {
    let path = std::env::temp_dir().join(format!("vfio-user-measure-{}", std::process::id()));
    let info = vfio_region_info {
        argsz: size_of::<vfio_region_info>() as u32,
        flags: VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE,
        size: 4096,
        ..Default::default()
    };
    let region =
        vfio_user::ServerRegion { region_info: info, sparse_areas: Vec::new(), mmap_fd: None };
    let server = vfio_user::Server::new(&path, true, Vec::new(), vec![region])
        .expect("listening in the folder for temporary files");
    let server = thread::spawn(move || {
        pin(server_cpu);
        server.run(&mut Published([0; 4096])).expect("a good client");
    });
    let mut client = vfio_user::Client::new(&path).expect("connecting");
    let mut data = [0; 4];
    let time = per_call(|| {
        client.region_read(region::BAR0, 8, &mut data).expect("reading a register");
    });
    client.shutdown().expect("a connection");
    server.join().expect("the server ends");
    time
}

/// Messages that the server's engine takes and answers in a second, without a socket.
fn server_engine() -> f64 {
    let mut server = ready_server();
    let mut device = Registers([0; 4096]);
    let commands = read_commands();
    let count = 1_000_000u64;
    let start = Instant::now();
    for _ in 0..count / 64 {
        server.space()[..commands.len()].copy_from_slice(&commands);
        server.received(commands.len(), Vec::new()).expect("room for the commands");
        server.serve(&mut device).expect("good commands");
        discard(&mut server);
    }
    (count / 64 * 64) as f64 / start.elapsed().as_secs_f64()
}

/// As before, and one message at a time.
fn server_engine_single() -> f64 {
    let mut server = ready_server();
    let mut device = Registers([0; 4096]);
    let commands = read_commands();
    let command = &commands[..32];
    let count = 1_000_000;
    let start = Instant::now();
    for _ in 0..count {
        server.space()[..command.len()].copy_from_slice(command);
        server.received(command.len(), Vec::new()).expect("room for the command");
        server.serve(&mut device).expect("a good command");
        discard(&mut server);
    }
    f64::from(count) / start.elapsed().as_secs_f64()
}

fn ready_server() -> Server {
    let mut server = Server::new(info(), Limits::default()).expect("a good description");
    let mut client = Client::new(Limits::default());
    client.negotiate().expect("the first request");
    let version = client.transmit().expect("a queued request");
    server.receive(version.bytes, Vec::new()).expect("room for the request");
    server.serve(&mut Registers([0; 4096])).expect("a good request");
    discard(&mut server);
    server
}

fn discard(server: &mut Server) {
    while let Some(transmit) = server.transmit() {
        let count = transmit.bytes.len();
        std::hint::black_box(transmit.bytes);
        server.sent(count);
    }
}

/// 64 register reads.
fn read_commands() -> Vec<u8> {
    let mut server = Server::new(info(), Limits::default()).expect("a good description");
    let mut client = Client::new(Limits::default());
    client.negotiate().expect("the first request");
    let mut version = client.transmit().expect("a queued request").bytes.to_vec();
    client.sent(version.len());
    server.receive(&version, Vec::new()).expect("room");
    server.serve(&mut Registers([0; 4096])).expect("a good request");
    version.clear();
    version.extend_from_slice(server.transmit().expect("a reply").bytes);
    client.receive(&version, Vec::new()).expect("room");
    assert!(matches!(client.poll(), Ok(Some(ClientEvent::Reply { reply: Ok(_), .. }))));
    for _ in 0..64 {
        let access = RegionAccess { region: region::BAR0, offset: 8, count: 4 };
        client.region_read(access).expect("room for 64 requests");
    }
    client.transmit().expect("queued requests").bytes.to_vec()
}

fn report(what: &str, unit: &str, mut once: impl FnMut() -> f64) -> f64 {
    let value = median((0..RUNS).map(|_| once()).collect());
    println!("{what:<44} {value:>12.2} {unit}");
    value
}

fn sockets(place: &str, client_cpu: usize, server_cpu: usize) {
    pin(client_cpu);
    let bare = report(&format!("bare ping-pong, {place}"), "us", || ping_pong(server_cpu));
    let read = report(&format!("register read, {place}"), "us", || register_read(server_cpu));
    report(&format!("register write, {place}"), "us", || register_write(server_cpu));
    report(&format!("register read, published crate, {place}"), "us", || {
        published_register_read(server_cpu)
    });
    println!("{:<44} {:>12.2} times", format!("register read / bare, {place}"), read / bare);
}

fn main() {
    let cpus = cpus();
    pin(cpus[0]);
    report("server engine, 64 messages a read", "messages/s", server_engine);
    report("server engine, one message a read", "messages/s", server_engine_single);
    sockets("one CPU", cpus[0], cpus[0]);
    if let Some(&other) = cpus.get(1) {
        sockets("two CPUs", cpus[0], other);
    }
}
