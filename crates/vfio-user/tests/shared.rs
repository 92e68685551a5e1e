//! A device that reaches its client's memory by messages, from any thread, at any time.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use farside_vfio_user::client::MapRequest;
use farside_vfio_user::device::region;
use farside_vfio_user::unix::{
    BlockingClient, CallError, Connection, DmaError, DmaMemory, Plain, Session, SessionError,
    SharedSession, Stream, UnixClient,
};
use farside_vfio_user::wire::{Command, Header};
use farside_vfio_user::{Bus, Device, DeviceInfo, Errno, Limits, Region, RequestError, Server};

const LIMIT: Duration = Duration::from_secs(20);
const BASE: u64 = 0x10_0000;
const BYTES: usize = 0x10_0000;

type Shared<S> = Arc<SharedSession<S>>;

/// How a session ended, and what its device could not reach.
type Served = (Result<(), SessionError>, Vec<DmaError>);

/// Writes to register 0 are a length: so many bytes are copied, in the client's memory, from its first
/// half to its second, before the write is answered.
struct Copier<S> {
    shared: Shared<S>,
    errors: Vec<DmaError>,
}

impl<S: Stream + AsFd + Send> Device for Copier<S> {
    fn region_read(&mut self, _region: u32, _offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        let count = self.errors.len() as u64;
        data.copy_from_slice(&count.to_le_bytes()[..data.len()]);
        Ok(())
    }

    fn region_write(
        &mut self,
        _bus: &mut Bus<'_>,
        _region: u32,
        _offset: u64,
        data: &[u8],
    ) -> Result<(), Errno> {
        let mut length = [0; 4];
        length.copy_from_slice(data);
        let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
        let half = BASE + BYTES as u64 / 2;
        let done = self.shared.dma_read(BASE, &mut bytes);
        let done = done.and_then(|()| self.shared.dma_write(half, &bytes));
        done.map_err(|error| {
            self.errors.push(error);
            Errno::FAULT
        })
    }
}

fn engine(limits: Limits) -> Server {
    let info = DeviceInfo::pci().region(region::BAR0, Region::read_write(0x1000));
    Server::new(info, limits).unwrap()
}

/// Serves until the client goes; `wake` is polled for, since a test has no descriptor to spare.
fn serve<S: Stream + AsFd + Send + 'static>(
    stream: S,
    limit: Duration,
) -> (Shared<S>, JoinHandle<Served>) {
    let session = Session::new(stream, engine(Limits::default()));
    let woken = Arc::new(AtomicBool::new(false));
    let wake = Arc::clone(&woken);
    let shared = SharedSession::new(session, limit, move || wake.store(true, Ordering::SeqCst));
    let shared = Arc::new(shared.unwrap());
    let own = Arc::clone(&shared);
    let thread = thread::spawn(move || {
        let mut device = Copier { shared: Arc::clone(&own), errors: Vec::new() };
        let ended = loop {
            match own.step(&mut device) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
            let wanted = own.wanted().unwrap();
            if !wanted.at_once && !woken.swap(false, Ordering::SeqCst) {
                own.with(|session| {
                    let soon = Instant::now() + Duration::from_millis(1);
                    session.connection.wait(wanted.ready, Some(soon)).unwrap();
                });
            }
        };
        (ended, device.errors)
    });
    (shared, thread)
}

/// The client's memory, with an order of what is done to it.
#[derive(Clone)]
struct Ram {
    bytes: Arc<Mutex<Vec<u8>>>,
    accesses: Arc<AtomicU64>,
}

impl Ram {
    fn new() -> Ram {
        let bytes = (0..BYTES).map(|at| (at / 7) as u8).collect();
        Ram { bytes: Arc::new(Mutex::new(bytes)), accesses: Arc::default() }
    }

    fn part(address: u64, count: usize) -> std::ops::Range<usize> {
        let start = (address - BASE) as usize;
        start..start + count
    }
}

impl DmaMemory for Ram {
    fn read(&mut self, address: u64, data: &mut [u8]) -> Result<(), Errno> {
        self.accesses.fetch_add(1, Ordering::SeqCst);
        data.copy_from_slice(&self.bytes.lock().unwrap()[Ram::part(address, data.len())]);
        Ok(())
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), Errno> {
        self.accesses.fetch_add(1, Ordering::SeqCst);
        self.bytes.lock().unwrap()[Ram::part(address, data.len())].copy_from_slice(data);
        Ok(())
    }
}

fn connect<S: Stream + AsFd>(stream: S, ram: &Ram, limits: Limits) -> BlockingClient<S> {
    let mut client = BlockingClient::new(stream, limits, LIMIT, Box::new(ram.clone())).unwrap();
    let size = BYTES as u64;
    let map = MapRequest { address: BASE, size, readable: true, writable: true, offset: 0 };
    client.dma_map(&map, None).unwrap();
    client
}

fn copied(ram: &Ram, length: usize) -> bool {
    let bytes = ram.bytes.lock().unwrap();
    bytes[..length] == bytes[BYTES / 2..BYTES / 2 + length]
}

#[test]
fn a_device_uses_the_clients_memory_before_it_answers() {
    let (ours, theirs) = Connection::pair().unwrap();
    let (_, server) = serve(ours, LIMIT);
    let ram = Ram::new();
    // Pieces smaller than what is copied.
    let limits = Limits { max_data_xfer_size: 4096, ..Limits::default() };
    let mut client = connect(theirs, &ram, limits);
    for length in [1u32, 4096, 4097, 100_000] {
        client.region_write(region::BAR0, 0, &length.to_le_bytes()).unwrap();
        assert!(copied(&ram, length as usize), "{length} bytes");
        ram.bytes.lock().unwrap()[BYTES / 2..].fill(0xee);
    }
    assert!(ram.accesses.load(Ordering::SeqCst) >= 2 + 2 + 4 + 50);
    drop(client);
    let (ended, errors) = server.join().unwrap();
    ended.unwrap();
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn it_works_on_a_stream_without_descriptors() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (_, server) = serve(Plain::new(ours), LIMIT);
    let ram = Ram::new();
    let mut client = connect(Plain::new(theirs), &ram, Limits::default());
    client.region_write(region::BAR0, 0, &5000u32.to_le_bytes()).unwrap();
    assert!(copied(&ram, 5000));
    drop(client);
    server.join().unwrap().0.unwrap();
}

#[test]
fn threads_of_the_device_use_it_beside_the_one_that_serves() {
    let (ours, theirs) = Connection::pair().unwrap();
    let (shared, server) = serve(ours, LIMIT);
    let ram = Ram::new();
    let mut client = connect(theirs, &ram, Limits::default());
    let stop = Arc::new(AtomicBool::new(false));
    // Each has a stretch of its own in the first half, and counts in it.
    let threads: Vec<_> = (0..3u64)
        .map(|index| {
            let (shared, stop) = (Arc::clone(&shared), Arc::clone(&stop));
            thread::spawn(move || {
                let at = BASE + 0x4_0000 + index * 8;
                shared.dma_write(at, &0u64.to_le_bytes()).unwrap();
                let mut rounds = 0u64;
                while !stop.load(Ordering::SeqCst) {
                    let mut word = [0; 8];
                    shared.dma_read(at, &mut word).unwrap();
                    assert_eq!(u64::from_le_bytes(word), rounds, "a write of its own was lost");
                    rounds += 1;
                    shared.dma_write(at, &rounds.to_le_bytes()).unwrap();
                }
                rounds
            })
        })
        .collect();
    let end = Instant::now() + Duration::from_millis(300);
    let mut calls = 0;
    while Instant::now() < end {
        client.region_write(region::BAR0, 0, &64u32.to_le_bytes()).unwrap();
        assert!(copied(&ram, 64));
        calls += 1;
    }
    stop.store(true, Ordering::SeqCst);
    // The last of them wait for answers that only a client at work gives.
    while threads.iter().any(|thread| !thread.is_finished()) {
        client.serve_dma(Duration::from_millis(1)).unwrap();
    }
    let rounds: Vec<u64> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(rounds.iter().all(|&rounds| rounds > 0) && calls > 0, "{rounds:?}, {calls} calls");
    drop(client);
    server.join().unwrap().0.unwrap();
}

#[test]
fn memory_that_is_not_shared_or_refused_is_an_error() {
    struct Refusing;
    impl DmaMemory for Refusing {
        fn read(&mut self, _address: u64, _data: &mut [u8]) -> Result<(), Errno> {
            Err(Errno::FAULT)
        }
        fn write(&mut self, _address: u64, _data: &[u8]) -> Result<(), Errno> {
            Err(Errno::FAULT)
        }
    }
    let (ours, theirs) = Connection::pair().unwrap();
    let (_, server) = serve(ours, LIMIT);
    let mut client = UnixClient::new(theirs, Limits::default(), LIMIT, Box::new(Refusing)).unwrap();
    let unmapped = client.region_write(region::BAR0, 0, &64u32.to_le_bytes());
    assert!(matches!(unmapped, Err(CallError::Refused(Errno::FAULT))), "{unmapped:?}");
    let map = MapRequest { address: BASE, size: 0x1000, readable: true, writable: true, offset: 0 };
    client.dma_map(&map, None).unwrap();
    let refused = client.region_write(region::BAR0, 0, &64u32.to_le_bytes());
    assert!(matches!(refused, Err(CallError::Refused(Errno::FAULT))), "{refused:?}");
    drop(client);
    let (ended, errors) = server.join().unwrap();
    ended.unwrap();
    assert!(matches!(errors[0], DmaError::Request(_)), "{:?}", errors[0]);
    assert!(matches!(errors[1], DmaError::Refused(Errno::FAULT)), "{:?}", errors[1]);
}

#[test]
fn a_client_that_does_not_answer_is_not_waited_for() {
    let (ours, theirs) = Connection::pair().unwrap();
    let limit = Duration::from_millis(100);
    let (shared, server) = serve(ours, limit);
    let ram = Ram::new();
    let mut client = connect(theirs, &ram, Limits::default());
    let begin = Instant::now();
    let silent = shared.dma_read(BASE, &mut [0; 8]);
    assert!(matches!(silent, Err(DmaError::TimedOut(_))), "{silent:?}");
    assert!(begin.elapsed() >= limit && begin.elapsed() < LIMIT);
    // The answer that comes late is dropped, and the connection goes on.
    client.region_write(region::BAR0, 0, &64u32.to_le_bytes()).unwrap();
    assert!(copied(&ram, 64));
    drop(client);
    server.join().unwrap().0.unwrap();
    let gone = shared.dma_read(BASE, &mut [0; 8]);
    assert!(gone.is_err(), "there is nobody to ask");
}

#[test]
fn a_client_that_goes_while_it_is_asked_ends_the_wait() {
    let (ours, theirs) = Connection::pair().unwrap();
    let (shared, server) = serve(ours, LIMIT);
    let client = connect(theirs, &Ram::new(), Limits::default());
    let asking = thread::spawn(move || shared.dma_read(BASE, &mut [0; 8]));
    thread::sleep(Duration::from_millis(20));
    let begin = Instant::now();
    drop(client);
    assert!(matches!(asking.join().unwrap(), Err(DmaError::Gone)));
    server.join().unwrap().0.unwrap();
    assert!(begin.elapsed() < LIMIT / 2);
}

#[test]
fn commands_without_end_do_not_lengthen_a_wait() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(LIMIT)).unwrap();
    let (shared, server) = serve(Connection::new(ours), Duration::from_millis(200));
    let ram = Ram::new();
    let client = connect(Connection::new(theirs.try_clone().unwrap()), &ram, Limits::default());
    // Writes without end, while a request of the device waits for an answer that never comes.
    let begin = Instant::now();
    let asking = thread::spawn(move || shared.dma_read(BASE, &mut [0; 8]));
    let mut write = Header::command(7, Command::REGION_WRITE, 16 + 4).encode().to_vec();
    write[8] = 0x10;
    write.extend_from_slice(&0u64.to_le_bytes());
    write.extend_from_slice(&0u32.to_le_bytes());
    write.extend_from_slice(&4u32.to_le_bytes());
    write.extend_from_slice(&0u32.to_le_bytes());
    theirs.set_nonblocking(true).unwrap();
    let many = write.repeat(1000);
    let end = Instant::now() + Duration::from_millis(300);
    while Instant::now() < end {
        // Part of a message may be sent last; the connection ends then.
        if std::io::Write::write_all(&mut &theirs, &many).is_err() {
            break;
        }
    }
    assert!(matches!(asking.join().unwrap(), Err(DmaError::TimedOut(_) | DmaError::Gone)));
    drop((client, theirs));
    let _ = server.join().unwrap();
    assert!(begin.elapsed() < LIMIT, "waited {:?}", begin.elapsed());
}

/// Memory that also hears what it is told.
struct Hearing(Ram, Arc<Mutex<Vec<Vec<u8>>>>);

impl DmaMemory for Hearing {
    fn read(&mut self, address: u64, data: &mut [u8]) -> Result<(), Errno> {
        self.0.read(address, data)
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), Errno> {
        self.0.write(address, data)
    }

    fn other(&mut self, command: Command, data: &[u8], _: &mut Vec<u8>) -> Result<(), Errno> {
        assert_eq!(command, Command::FIRST_OF_USERS);
        self.1.lock().unwrap().push(data.to_vec());
        Ok(())
    }
}

#[test]
fn what_any_thread_tells_comes_in_order_and_nobody_waits_for_a_client_that_does_not_read() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (shared, server) = serve(Plain::new(ours), LIMIT);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let memory = Box::new(Hearing(Ram::new(), Arc::clone(&heard)));
    let theirs = Plain::new(theirs);
    let mut client = BlockingClient::new(theirs, Limits::default(), LIMIT, memory).unwrap();
    let tell = |text: &[u8]| shared.notify(Command::FIRST_OF_USERS, text);
    tell(b"one").unwrap();
    tell(b"two").unwrap();
    let end = Instant::now() + LIMIT;
    while heard.lock().unwrap().len() < 2 {
        assert!(Instant::now() < end);
        client.serve_dma(Duration::from_millis(10)).unwrap();
    }
    assert_eq!(*heard.lock().unwrap(), [b"one", b"two"]);
    let known = shared.notify(Command::DMA_READ, &[]);
    assert!(matches!(known, Err(DmaError::Request(RequestError::Invalid { .. }))), "{known:?}");
    // It stops reading. What waits is bounded, and then it is said.
    let begin = Instant::now();
    let full = (0..1_000_000).find_map(|_| tell(&[0; 1000]).err());
    let is_full = matches!(
        full,
        Some(DmaError::Request(RequestError::QueueFull { .. }) | DmaError::Gone | DmaError::Io(_))
    );
    assert!(is_full, "{full:?}");
    assert!(begin.elapsed() < LIMIT / 2, "{:?}", begin.elapsed());
    drop(client);
    let _ = server.join().unwrap();
}
