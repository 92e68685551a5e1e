//! Peers that send and do not read, that stop half way, or that never give what is waited for: they
//! cost no processor time, hold no descriptors, and are given up.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use farside_vfio_user::device::region;
use farside_vfio_user::server::RegionAccess;
use farside_vfio_user::unix::{
    BlockingClient, CallError, Connection, DmaMemory, NoMemory, Ready, Session, SessionError,
    Stream, UnixClient,
};
use farside_vfio_user::wire::{Command, Header};
use farside_vfio_user::{Bus, Client, Device, DeviceInfo, Errno, Limits, Region, Server, Transmit};
use rustix::io::IoSlice;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

const LIMIT: Duration = Duration::from_secs(20);

/// Counts what it is given.
#[derive(Default)]
struct Registers {
    served: usize,
}

impl Device for Registers {
    fn region_read(&mut self, _region: u32, _offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        self.served += 1;
        data.fill(7);
        Ok(())
    }

    fn region_write(
        &mut self,
        _bus: &mut Bus<'_>,
        _region: u32,
        _offset: u64,
        _data: &[u8],
    ) -> Result<(), Errno> {
        self.served += 1;
        Ok(())
    }
}

fn engine(limits: Limits) -> Server {
    let info = DeviceInfo::pci().region(region::BAR0, Region::read_write(1 << 20));
    Server::new(info, limits).unwrap()
}

/// A client that has agreed on a version and waits for nothing.
fn negotiated(session: &mut Session, stream: &mut UnixStream) -> Client {
    let mut client = Client::new(Limits::default());
    client.negotiate().unwrap();
    send(&mut client, stream);
    assert!(session.step(&mut Registers::default()).unwrap());
    receive(&mut client, stream);
    assert!(client.poll().unwrap().is_some());
    client
}

fn send(client: &mut Client, stream: &mut UnixStream) {
    while let Some(transmit) = client.transmit() {
        stream.write_all(transmit.bytes).unwrap();
        let count = transmit.bytes.len();
        client.sent(count);
    }
}

fn receive(client: &mut Client, stream: &mut UnixStream) {
    let count = stream.read(client.space()).unwrap();
    client.received(count, Vec::new()).unwrap();
}

fn pair(limits: Limits) -> (Session, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    (Session::new(Connection::new(ours), engine(limits)), theirs)
}

fn read(count: u32) -> RegionAccess {
    RegionAccess { region: region::BAR0, offset: 0, count }
}

#[test]
fn a_client_that_reads_no_replies_is_neither_listened_to_nor_kept() {
    let limits = Limits { max_queued_bytes: 1 << 18, ..Limits::default() };
    let (mut session, mut stream) = pair(limits);
    let mut client = negotiated(&mut session, &mut stream);
    stream.set_nonblocking(true).unwrap();
    let mut device = Registers::default();
    let begin = Instant::now();
    let (mut steps, mut sent) = (0, true);
    let ended = loop {
        // It asks for as much as it can, and reads nothing.
        while sent && client.region_read(read(1 << 16)).is_ok() {
            let bytes = client.transmit().unwrap().bytes.to_vec();
            sent = stream.write_all(&bytes).is_ok();
            client.sent(bytes.len());
        }
        let wanted = session.wanted().unwrap();
        assert!(session.server.queued_bytes() <= (1 << 18) + (1 << 16) + 64);
        if !wanted.at_once && session.connection.wait(wanted.ready, wanted.deadline).is_err() {
            panic!("waiting failed");
        }
        steps += 1;
        match session.step(&mut device) {
            Ok(open) => assert!(open),
            Err(error) => break error,
        }
    };
    assert!(matches!(ended, SessionError::Io(_)), "{ended}");
    assert!(begin.elapsed() >= Duration::from_millis(200), "it has its time to read");
    assert!(begin.elapsed() < Duration::from_secs(10), "it is not kept");
    assert!(steps < 200, "{steps} steps: the server spins");
    assert!(device.served < 100, "{} commands were served that nobody hears of", device.served);
}

#[test]
fn a_client_that_reads_late_gets_every_reply() {
    // Small limits, so that commands wait in the input for room in the output.
    let limits = Limits { max_queued_bytes: 100_000, ..Limits::default() };
    let (mut session, mut stream) = pair(limits);
    let mut client = negotiated(&mut session, &mut stream);
    let server = thread::spawn(move || {
        session.connection.set_time_limit(Some(LIMIT)).unwrap();
        let mut device = Registers::default();
        let ended = session.run(&mut device);
        (ended, device.served)
    });
    for _ in 0..100 {
        client.region_read(read(60_000)).unwrap();
    }
    send(&mut client, &mut stream);
    // Long enough for the server to be stuck, were it to be.
    thread::sleep(Duration::from_millis(100));
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    while client.awaited() > 0 {
        receive(&mut client, &mut stream);
        while client.poll().unwrap().is_some() {}
    }
    drop(stream);
    let (ended, served) = server.join().unwrap();
    ended.unwrap();
    assert_eq!(served, 100);
}

#[test]
fn a_backlog_is_served_a_part_at_a_time() {
    let (mut session, mut stream) = pair(Limits::default());
    let mut client = negotiated(&mut session, &mut stream);
    for _ in 0..1000 {
        client.region_write_posted(region::BAR0, 0, &[1, 2, 3, 4]).unwrap();
    }
    send(&mut client, &mut stream);
    let mut device = Registers::default();
    let mut steps = 0;
    while device.served < 1000 {
        let before = device.served;
        assert!(session.step(&mut device).unwrap());
        assert!(device.served - before <= 64, "{} in one step", device.served - before);
        steps += 1;
    }
    assert!(steps >= 1000 / 64);
    assert!(!session.wanted().unwrap().at_once);
}

/// Sends bytes with descriptors of the write end of a pipe; gives its read end, which sees the end of
/// the pipe when nobody holds them any more.
fn send_pipes(stream: &UnixStream, bytes: &[u8], count: usize) -> OwnedFd {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let fds = vec![writer.as_fd(); count];
    let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let slices = [IoSlice::new(bytes)];
    let sent = sendmsg(stream, &slices, &mut control, SendFlags::empty()).unwrap();
    assert_eq!(sent, bytes.len());
    reader
}

fn nobody_holds(pipe: &OwnedFd) -> bool {
    let mut polled = [rustix::event::PollFd::new(pipe, rustix::event::PollFlags::IN)];
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now)).unwrap();
    polled[0].revents().contains(rustix::event::PollFlags::HUP)
}

#[test]
fn descriptors_before_version_are_closed_and_end_the_connection() {
    let (mut session, stream) = pair(Limits::default());
    // A half message would keep them for as long as its sender likes.
    let pipe = send_pipes(&stream, &[0, 0, 1, 0], 1);
    assert!(!nobody_holds(&pipe), "it is on its way");
    let ended = session.step(&mut Registers::default()).unwrap_err();
    assert!(matches!(ended, SessionError::Protocol(_)), "{ended}");
    assert!(nobody_holds(&pipe), "a descriptor is held by a session that has failed");
}

#[test]
fn descriptors_beyond_what_was_agreed_are_closed_at_once() {
    let (mut session, mut stream) = pair(Limits { max_msg_fds: 4, ..Limits::default() });
    negotiated(&mut session, &mut stream);
    let pipe = send_pipes(&stream, &[0; 4], 5);
    assert!(session.step(&mut Registers::default()).is_err());
    assert!(nobody_holds(&pipe));
}

#[test]
fn a_half_message_hoards_few_descriptors() {
    let (mut session, mut stream) = pair(Limits { max_msg_fds: 4, ..Limits::default() });
    negotiated(&mut session, &mut stream);
    let mut device = Registers::default();
    // A message of 16 KiB that comes byte by byte, four descriptors with each.
    let header = Header::command(1, Command::DMA_MAP, 16 * 1024 - 16).encode();
    let mut pipes = Vec::new();
    let failed = header.iter().chain(&[0; 100]).any(|byte| {
        pipes.push(send_pipes(&stream, &[*byte], 4));
        session.step(&mut device).is_err()
    });
    assert!(failed, "{} descriptors are held", pipes.len() * 4);
    assert!(pipes.len() <= 5, "{} descriptors were held", pipes.len() * 4);
    assert!(pipes.iter().all(nobody_holds), "a session that has failed holds descriptors");
}

/// A stream from a server that agrees on a version, and then asks for the client's memory again and
/// again, as soon as the client reads, and never answers.
struct Endless {
    first: Vec<u8>,
}

impl Endless {
    fn new() -> Endless {
        let mut engine = engine(Limits::default());
        let mut client = Client::new(Limits::default());
        client.negotiate().unwrap();
        engine.receive(client.transmit().unwrap().bytes, Vec::new()).unwrap();
        engine.serve(&mut Registers::default()).unwrap();
        Endless { first: engine.transmit().unwrap().bytes.to_vec() }
    }
}

impl Stream for Endless {
    fn carries_descriptors(&self) -> bool {
        false
    }

    fn receive(&mut self, space: &mut [u8], _fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
        let mut message = std::mem::take(&mut self.first);
        if message.is_empty() {
            message.extend(Header::command(0x8000, Command::DMA_READ, 16).encode());
            message.extend(0u64.to_le_bytes());
            message.extend(64u64.to_le_bytes());
        }
        space[..message.len()].copy_from_slice(&message);
        Ok(message.len())
    }

    fn send(&mut self, transmit: Transmit<'_>) -> io::Result<usize> {
        Ok(transmit.bytes.len())
    }

    fn wait(&mut self, wanted: Ready, _deadline: Option<Instant>) -> io::Result<Ready> {
        Ok(wanted)
    }

    fn set_time_limit(&mut self, _limit: Option<Duration>) -> io::Result<()> {
        Ok(())
    }

    fn time_limit(&self) -> io::Result<Option<Duration>> {
        Ok(None)
    }

    fn shutdown(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Counter(u64);

impl DmaMemory for Counter {
    fn read(&mut self, _address: u64, _data: &mut [u8]) -> Result<(), Errno> {
        self.0 += 1;
        Ok(())
    }

    fn write(&mut self, _address: u64, _data: &[u8]) -> Result<(), Errno> {
        Err(Errno::FAULT)
    }
}

#[test]
fn a_server_that_asks_without_end_does_not_lengthen_a_wait() {
    let limit = Duration::from_millis(100);
    let (done, is_done) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let memory = Box::new(Counter(0));
        let stream = Endless::new();
        let mut client = BlockingClient::new(stream, Limits::default(), limit, memory).unwrap();
        let begin = Instant::now();
        let late = client.region_read(region::BAR0, 0, &mut [0; 4]);
        done.send((late, begin.elapsed())).unwrap();
    });
    let (late, waited) = is_done.recv_timeout(LIMIT).expect("the wait has no limit");
    assert!(matches!(late, Err(CallError::TimedOut(_))), "{late:?}");
    assert!(waited >= limit && waited < limit * 50, "waited {waited:?}");
}

#[test]
fn a_server_that_sends_a_byte_at_a_time_does_not_lengthen_a_wait() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || {
        // The header of a reply that is long enough to come for minutes.
        let header = Header::reply(0, Command::VERSION, 8000).encode();
        for byte in header.iter().chain(&[b' '; 8000]) {
            if theirs.write_all(&[*byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    });
    let limit = Duration::from_millis(200);
    let begin = Instant::now();
    let result =
        UnixClient::new(Connection::new(ours), Limits::default(), limit, Box::new(NoMemory));
    assert!(matches!(result, Err(CallError::TimedOut(_))));
    assert!(begin.elapsed() < limit * 20, "waited {:?}", begin.elapsed());
    server.join().unwrap();
}

#[test]
fn what_comes_with_a_reply_is_dealt_with_at_once() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.set_read_timeout(Some(LIMIT)).unwrap();
    let server = thread::spawn(move || {
        let mut engine = engine(Limits::default());
        let mut device = Registers::default();
        let mut answered = Vec::new();
        // The answer to the read and a request go out as one.
        while device.served == 0 {
            let count = theirs.read(engine.space()).unwrap();
            engine.received(count, Vec::new()).unwrap();
            engine.serve(&mut device).unwrap();
            let mut output = Vec::new();
            while let Some(transmit) = engine.transmit() {
                output.extend_from_slice(transmit.bytes);
                let count = transmit.bytes.len();
                engine.sent(count);
            }
            if device.served > 0 {
                output.extend(Header::command(0x8000, Command::DMA_READ, 16).encode());
                output.extend(0u64.to_le_bytes());
                output.extend(4u64.to_le_bytes());
            }
            theirs.write_all(&output).unwrap();
        }
        // The client does nothing more; the answer comes all the same.
        answered.resize(36, 0);
        theirs.read_exact(&mut answered).unwrap();
        answered
    });
    let memory = Box::new(Counter(0));
    let mut client =
        UnixClient::new(Connection::new(ours), Limits::default(), LIMIT, memory).unwrap();
    let mut data = [0; 4];
    client.region_read(region::BAR0, 0, &mut data).unwrap();
    assert_eq!(data, [7; 4]);
    assert_eq!(server.join().unwrap()[..4], [0, 0x80, 11, 0]);
}
