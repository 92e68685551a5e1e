//! What two users of a connection have beyond the protocol: capabilities and commands of their own,
//! several calls at a time, access that is taken away, and streams without descriptors.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use farside_vfio_user::client::MapRequest;
use farside_vfio_user::device::{irq, region};
use farside_vfio_user::unix::{
    BlockingClient, CallError, Connection, DmaMemory, NoMemory, Plain, Session, SessionError,
    Stream, UnixClient,
};
use farside_vfio_user::wire::Command;
use farside_vfio_user::{
    Bus, Capabilities, Device, DeviceInfo, Errno, Event, Feature, IoFd, IoFdKind, Irq, IrqAction,
    Limits, OtherReply, ProtocolError, Region, RequestError, RequestId, Server,
};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(20);
/// Asks for a greeting; with data, for it backwards.
const GREET: Command = Command(Command::FIRST_OF_USERS.0 + 1);
/// Has the server ask the client to double a number.
const DOUBLE: Command = Command(Command::FIRST_OF_USERS.0 + 2);
/// Counts; wants no reply.
const BEAT: Command = Command(Command::FIRST_OF_USERS.0 + 3);

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

#[derive(Default)]
struct Talker {
    registers: Vec<u8>,
    beats: u32,
    /// What the client answered.
    doubled: Vec<Result<Vec<u8>, Errno>>,
    fds: usize,
    value: [u8; 4],
}

impl Device for Talker {
    fn region_read(&mut self, _region: u32, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
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
        if offset == 0x800 {
            // What is at 0x1000 of the client's memory goes to register 0.
            return bus.dma_read(0x1000, 8).map(|_| ()).map_err(|_| Errno::FAULT);
        }
        let offset = offset as usize;
        self.registers[offset..offset + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn dma_done(&mut self, _bus: &mut Bus<'_>, _request: RequestId, result: Result<&[u8], Errno>) {
        self.registers[..8].copy_from_slice(result.unwrap());
    }

    fn feature_get(&mut self, feature: u16, value: &mut Vec<u8>) -> Result<(), Errno> {
        assert_eq!(feature, 9);
        value.extend_from_slice(&self.value);
        Ok(())
    }

    fn feature_set(&mut self, _feature: u16, value: &[u8]) -> Result<(), Errno> {
        self.value = value.try_into().map_err(|_| Errno::INVAL)?;
        Ok(())
    }

    fn other(
        &mut self,
        bus: &mut Bus<'_>,
        command: Command,
        data: &[u8],
        fds: Vec<OwnedFd>,
        reply: &mut OtherReply,
    ) -> Result<(), Errno> {
        self.fds += fds.len();
        match command {
            GREET if data.is_empty() => reply.data.extend_from_slice(b"good day"),
            GREET => {
                reply.data.extend(data.iter().rev());
                reply.fds.extend(fds.into_iter().map(Arc::new));
            }
            DOUBLE => {
                bus.ask(DOUBLE, data).map_err(|_| Errno::AGAIN)?;
                bus.ask(GREET, data).map_err(|_| Errno::AGAIN)?;
            }
            BEAT => self.beats += 1,
            _ => return Err(Errno::NOTSUP),
        }
        Ok(())
    }

    fn answered(&mut self, bus: &mut Bus<'_>, _request: RequestId, result: Result<&[u8], Errno>) {
        self.doubled.push(result.map(<[u8]>::to_vec));
        bus.notify(BEAT, &[1]).unwrap();
    }
}

fn info() -> DeviceInfo {
    let memory = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, 0x1000).unwrap();
    let kind = IoFdKind::IoEventFd { datamatch: 0 };
    let bell = IoFd { offset: 0, size: 4, flags: 0, kind, fd: Arc::new(event()) };
    DeviceInfo::pci()
        .region(region::BAR0, Region::read_write(0x1000).io_fds(vec![bell]))
        .region(region::BAR2, Region::read_write(0x1000).mapped(memory, 0, Vec::new()))
        .irq(irq::MSIX, Irq::messages(2))
        .feature(Feature { number: 9, readable: true, writable: true })
}

fn talker() -> Talker {
    Talker { registers: vec![0; 0x1000], ..Talker::default() }
}

type Served = (Result<(), SessionError>, Talker);

fn serve<S: Stream + Send + 'static>(mut stream: S, server: Server) -> JoinHandle<Served> {
    stream.set_time_limit(Some(LIMIT)).unwrap();
    thread::spawn(move || {
        let mut device = talker();
        let ended = Session::new(stream, server).run(&mut device);
        (ended, device)
    })
}

/// The client's memory, and its answers.
#[derive(Default)]
struct Ours {
    beats: Option<mpsc::Sender<()>>,
}

impl DmaMemory for Ours {
    fn read(&mut self, address: u64, data: &mut [u8]) -> Result<(), Errno> {
        data.iter_mut().zip(address as u8..).for_each(|(byte, value)| *byte = value);
        Ok(())
    }

    fn write(&mut self, _address: u64, _data: &[u8]) -> Result<(), Errno> {
        Err(Errno::FAULT)
    }

    fn other(&mut self, command: Command, data: &[u8], reply: &mut Vec<u8>) -> Result<(), Errno> {
        match command {
            DOUBLE => reply.extend(data.iter().map(|byte| byte * 2)),
            BEAT => {
                // The test may have heard enough.
                let _ = self.beats.as_ref().map(|beats| beats.send(()));
            }
            _ => return Err(Errno::NOTSUP),
        }
        Ok(())
    }
}

#[test]
fn both_users_have_commands_of_their_own() {
    let (ours, theirs) = Connection::pair().unwrap();
    let server = serve(ours, Server::new(info(), Limits::default()).unwrap());
    let (sender, beats) = mpsc::channel();
    let memory = Box::new(Ours { beats: Some(sender) });
    let mut client = UnixClient::new(theirs, Limits::default(), LIMIT, memory).unwrap();
    assert_eq!(client.other(GREET, &[], Vec::new()).unwrap().0, b"good day");
    let (data, fds) = client.other(GREET, b"abc", vec![Arc::new(event())]).unwrap();
    assert_eq!((data.as_slice(), fds.len()), (b"cba".as_slice(), 1), "descriptors go both ways");
    client.other_posted(BEAT, &[]).unwrap();
    client.other_posted(Command(0x7777), &[]).unwrap();
    let unknown = client.other(Command(0x7777), &[], Vec::new());
    assert!(matches!(unknown, Err(CallError::Refused(Errno::NOTSUP))), "{unknown:?}");
    let large = client.other(GREET, &[1; 5000], Vec::new());
    assert!(matches!(large, Err(CallError::Refused(Errno::MSGSIZE))), "{large:?}");
    let spoken = client.other(Command::DMA_MAP, &[], Vec::new());
    assert!(matches!(spoken, Err(CallError::Request(RequestError::Invalid { .. }))));
    // The server asks in turn, while the client waits or not.
    client.other(DOUBLE, &[1, 2, 3], Vec::new()).unwrap();
    while beats.try_recv().is_err() {
        client.serve_dma(Duration::from_millis(10)).unwrap();
    }
    drop(client);
    let (ended, device) = server.join().unwrap();
    ended.unwrap();
    assert_eq!((device.beats, device.fds), (1, 1));
    assert_eq!(device.doubled[0], Ok(vec![2, 4, 6]));
    if let Some(second) = device.doubled.get(1) {
        assert_eq!(*second, Err(Errno::NOTSUP));
    }
}

fn capabilities(from: serde_json::Value) -> Capabilities {
    from.as_object().cloned().unwrap()
}

#[test]
fn version_carries_what_the_users_agree_on() {
    let (ours, theirs) = Connection::pair().unwrap();
    let engine = Server::new(info(), Limits::default()).unwrap().with_capabilities(|theirs| {
        let epoch = theirs.get("epoch").and_then(serde_json::Value::as_u64);
        assert!(theirs.get("max_msg_fds").is_none(), "the engine's own are not the user's");
        match epoch {
            Some(epoch) => Ok(capabilities(json!({ "epoch": epoch + 1, "lease": [1, 2] }))),
            None => Err(Errno::ACCES),
        }
    });
    let server = serve(ours, engine);
    let offered = capabilities(json!({ "epoch": 7, "token": "secret" }));
    let client = UnixClient::with_capabilities(
        theirs,
        Limits::default(),
        LIMIT,
        Box::new(NoMemory),
        &offered,
    )
    .unwrap();
    let agreed = capabilities(json!({ "epoch": 8, "lease": [1, 2] }));
    assert_eq!(*client.peer_capabilities(), agreed);
    drop(client);
    server.join().unwrap().0.unwrap();
}

#[test]
fn a_user_refuses_a_client_by_its_capabilities() {
    let (ours, theirs) = Connection::pair().unwrap();
    let engine = Server::new(info(), Limits::default()).unwrap();
    let server = serve(ours, engine.with_capabilities(|_| Err(Errno::ACCES)));
    let refused = UnixClient::new(theirs, Limits::default(), LIMIT, Box::new(NoMemory)).err();
    assert!(matches!(refused, Some(CallError::Refused(Errno::ACCES))), "{refused:?}");
    let errno = Errno::ACCES;
    let ended = server.join().unwrap().0;
    assert!(
        matches!(ended, Err(SessionError::Protocol(ProtocolError::VersionRefused { errno: e, .. })) if e == errno)
    );
    let (ours, _theirs) = Connection::pair().unwrap();
    let named = capabilities(json!({ "max_msg_fds": 9000 }));
    let refused =
        UnixClient::with_capabilities(ours, Limits::default(), LIMIT, Box::new(NoMemory), &named);
    assert!(matches!(refused.err(), Some(CallError::Request(RequestError::Invalid { .. }))));
}

#[test]
fn features_are_probed_read_and_changed() {
    let (ours, theirs) = Connection::pair().unwrap();
    let server = serve(ours, Server::new(info(), Limits::default()).unwrap());
    let mut client = UnixClient::new(theirs, Limits::default(), LIMIT, Box::new(NoMemory)).unwrap();
    client.feature_probe(9, true, true).unwrap();
    client.feature_probe(9, false, false).unwrap();
    let none = client.feature_probe(1, true, false);
    assert!(matches!(none, Err(CallError::Refused(Errno::NOTTY))), "{none:?}");
    client.feature_set(9, &[1, 2, 3, 4]).unwrap();
    assert_eq!(client.feature_get(9, 64).unwrap(), [1, 2, 3, 4]);
    let small = client.feature_get(9, 3);
    assert!(matches!(small, Err(CallError::Refused(Errno::MSGSIZE))), "{small:?}");
    let long = client.feature_set(9, &[0; 5]);
    assert!(matches!(long, Err(CallError::Refused(Errno::INVAL))), "{long:?}");
    drop(client);
    server.join().unwrap().0.unwrap();
}

/// Takes `count` reads, and answers them newest first with their own offsets.
fn answer_backwards(session: &mut Session, count: usize) {
    let mut tokens = Vec::new();
    while tokens.len() < count {
        match session.server.poll().unwrap() {
            Some(Event::RegionRead { token, access }) => tokens.push((token, access.offset as u8)),
            Some(_) => {}
            None => {
                assert!(session.flush().unwrap());
                assert!(session.fill().unwrap());
            }
        }
    }
    for (token, offset) in tokens.into_iter().rev() {
        session.server.complete_read(token, |data| {
            data.fill(offset);
            if offset == 3 { Err(Errno::IO) } else { Ok(()) }
        });
    }
    assert!(session.flush().unwrap());
}

#[test]
fn several_calls_are_open_and_finish_in_any_order() {
    let (ours, theirs) = Connection::pair().unwrap();
    ours.set_time_limit(Some(LIMIT)).unwrap();
    let server = thread::spawn(move || {
        let engine = Server::new(info(), Limits::default()).unwrap();
        let mut session = Session::new(ours, engine);
        answer_backwards(&mut session, 5);
        answer_backwards(&mut session, 1);
    });
    let limits = Limits { max_outstanding: 5, ..Limits::default() };
    let mut client = UnixClient::new(theirs, limits, LIMIT, Box::new(NoMemory)).unwrap();
    let mut start = |offset| client.start_read(region::BAR0, offset, 2);
    let calls: Vec<_> = (0..5).map(|offset| start(offset).unwrap()).collect();
    let full = RequestError::TooManyOutstanding { limit: 5 };
    assert!(matches!(start(9), Err(CallError::Request(error)) if error == full));
    let [first, second, third, fourth, fifth] = calls.try_into().unwrap();
    client.forget(fifth);
    let still = client.start_read(region::BAR0, 9, 2);
    assert!(matches!(still, Err(CallError::Request(error)) if error == full), "it is in flight");
    // The first is answered last: the others' answers come meanwhile, and are kept.
    assert_eq!(client.finish(first).unwrap(), [0, 0]);
    let sixth = client.start_read(region::BAR0, 9, 2).unwrap();
    assert_eq!(client.finish(third).unwrap(), [2, 2]);
    let failed = client.finish(fourth);
    assert!(matches!(failed, Err(CallError::Refused(Errno::IO))), "{failed:?}");
    assert_eq!(client.finish(second).unwrap(), [1, 1]);
    assert_eq!(client.finish(sixth).unwrap(), [9, 9]);
    drop(client);
    server.join().unwrap();
}

#[test]
fn a_client_that_loses_its_access_is_told_so_and_dropped() {
    let (ours, theirs) = Connection::pair().unwrap();
    let (revoked, is_revoked) = mpsc::channel();
    let server = thread::spawn(move || {
        let mut session = Session::new(ours, Server::new(info(), Limits::default()).unwrap());
        // Two commands are open when the access goes.
        let mut tokens = Vec::new();
        while tokens.len() < 2 {
            match session.server.poll().unwrap() {
                Some(Event::RegionRead { token, .. } | Event::RegionWrite { token, .. }) => {
                    tokens.push(token);
                }
                Some(_) => {}
                None => {
                    assert!(session.flush().unwrap());
                    assert!(session.fill().unwrap());
                }
            }
        }
        session.server.revoke(Errno::CANCELED);
        assert!(session.server.is_revoked());
        assert_eq!(session.server.unanswered(), 0);
        let queued = session.server.queued_bytes();
        // What the device has to say to them now is too late.
        tokens.into_iter().for_each(|token| session.server.complete(token, Ok(())));
        assert_eq!(session.server.queued_bytes(), queued);
        assert!(session.server.bus().dma_read(0x1000, 8).is_err(), "its memory is out of reach");
        revoked.send(()).unwrap();
        let begin = Instant::now();
        session.revoke(Errno::CANCELED, Duration::from_millis(300)).unwrap();
        assert!(begin.elapsed() < Duration::from_secs(10));
    });
    let mut client = UnixClient::new(theirs, Limits::default(), LIMIT, Box::new(NoMemory)).unwrap();
    let read = client.start_read(region::BAR0, 0, 4).unwrap();
    let write = client.start_write(region::BAR0, 0, &[1]).unwrap();
    is_revoked.recv_timeout(LIMIT).unwrap();
    for call in [read, write] {
        let answer = client.finish(call);
        assert!(matches!(answer, Err(CallError::Refused(Errno::CANCELED))), "{answer:?}");
    }
    let later = client.reset();
    assert!(matches!(later, Err(CallError::Refused(Errno::CANCELED))), "{later:?}");
    server.join().unwrap();
    let gone = client.reset();
    assert!(matches!(gone, Err(CallError::Closed | CallError::Io(_))), "{gone:?}");
}

#[test]
fn a_client_that_ignores_the_end_of_its_access_is_dropped_in_time() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut session =
        Session::new(Connection::new(ours), Server::new(info(), Limits::default()).unwrap());
    let begin = Instant::now();
    session.revoke(Errno::CANCELED, Duration::from_millis(50)).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert!(session.connection.peer().is_ok());
    let mut connection = Connection::new(theirs);
    assert_eq!(Stream::receive(&mut connection, &mut [0; 16], &mut Vec::new()).unwrap(), 0);
}

/// What a client does on a stream without descriptors: everything, by messages.
fn by_messages<S: Stream + AsFd + Send + 'static>(ours: S, theirs: S) {
    let server = serve(ours, Server::new(info(), Limits::default()).unwrap());
    let memory = Box::new(Ours::default());
    let mut client = BlockingClient::new(theirs, Limits::default(), LIMIT, memory).unwrap();
    assert_eq!(client.negotiated().unwrap().peer_max_msg_fds, 0);
    let bar2 = client.region_info(region::BAR2).unwrap();
    assert!(!bar2.mappable && bar2.fd.is_none(), "what cannot be mapped is not offered for it");
    let doorbells = client.region_io_fds(region::BAR0).unwrap();
    assert!(doorbells.parts.is_empty() && doorbells.fds.is_empty());

    client.region_write(region::BAR2, 8, &[1, 2, 3, 4]).unwrap();
    let mut data = [0; 4];
    client.region_read(region::BAR2, 8, &mut data).unwrap();
    assert_eq!(data, [1, 2, 3, 4]);

    // Memory and interrupts have no descriptors to go by.
    let map =
        MapRequest { address: 0x1000, size: 0x1000, readable: true, writable: true, offset: 0 };
    let memory = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    let with_fd = client.dma_map(&map, Some(memory.as_fd()));
    let none = RequestError::TooManyDescriptors { count: 1, limit: 0 };
    assert!(matches!(with_fd, Err(CallError::Request(error)) if error == none));
    let assigned = client.irqs_assign(irq::MSIX, 0, &[Arc::new(event())], IrqAction::Trigger);
    assert!(matches!(assigned, Err(CallError::Request(error)) if error == none));
    client.dma_map(&map, None).unwrap();
    client.region_write(region::BAR0, 0x800, &[1]).unwrap();
    let mut read = [0; 8];
    let end = Instant::now() + LIMIT;
    while read == [0, 0, 0, 0, 0, 0, 0, 0] || read[..4] == [1, 2, 3, 4] {
        assert!(Instant::now() < end, "the client's memory was not read");
        client.region_read(region::BAR0, 0, &mut read).unwrap();
    }
    assert_eq!(read, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(client.other(GREET, &[], Vec::new()).unwrap().0, b"good day");
    let call = client.start_read(region::BAR0, 4, 2).unwrap();
    assert_eq!(client.finish(call).unwrap(), [4, 5]);
    drop(client);
    server.join().unwrap().0.unwrap();
}

#[test]
fn tcp_carries_the_protocol_without_descriptors() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    by_messages(Plain::tcp(ours).unwrap(), Plain::tcp(theirs).unwrap());
}

#[test]
fn any_socket_carries_the_protocol_without_descriptors() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    by_messages(Plain::new(ours), Plain::new(theirs));
}

#[test]
fn a_side_that_takes_no_descriptors_gets_none_from_one_that_could_send_them() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let connection = Connection::new(ours);
    connection.set_time_limit(Some(LIMIT)).unwrap();
    let server = serve(connection, Server::new(info(), Limits::default()).unwrap());
    let mut client =
        BlockingClient::new(Plain::new(theirs), Limits::default(), LIMIT, Box::new(NoMemory))
            .unwrap();
    assert!(!client.region_info(region::BAR2).unwrap().mappable);
    assert!(client.region_io_fds(region::BAR0).unwrap().parts.is_empty());
    drop(client);
    server.join().unwrap().0.unwrap();
}
