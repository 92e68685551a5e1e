//! Two ends of a link over real sockets, with and without TLS.

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use farside_link::endpoint::{Counters, Load};
use farside_link::frame::DATA_BYTES_MAX;
use farside_link::{Config, Endpoint, Event, Frame, Lease, Tag};
use farside_live::far::{Broken, Line};
use rustix::event::{PollFd, Timespec, poll};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection};

use super::secured::stream;
use crate::tls::{self, Credentials};

const LIMIT: Duration = Duration::from_secs(60);

fn config() -> Config {
    Config::new(Lease { device: "card0".to_owned(), epoch: 1 })
}

fn sockets() -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    [near, listener.accept().unwrap().0]
}

fn credentials() -> Credentials {
    let made = rcgen::generate_simple_self_signed(vec!["lease".to_owned()]).unwrap();
    Credentials { certificate: made.cert.der().to_vec(), key: made.signing_key.serialize_der() }
}

fn lines(with_tls: bool) -> [Line; 2] {
    let [near, far] = sockets();
    let line = |socket, tls| Line::new(stream(socket, tls, LIMIT).unwrap()).unwrap();
    if !with_tls {
        return [near, far].map(|socket| line(socket, None));
    }
    let [borrower, lender] = [credentials(), credentials()];
    let client = tls::client(&borrower, &lender.certificate).unwrap();
    let server = tls::server(&lender, &borrower.certificate).unwrap();
    let name = ServerName::try_from("lease").unwrap();
    let client = ClientConnection::new(client, name).unwrap().into();
    let server = ServerConnection::new(server).unwrap().into();
    std::thread::scope(|scope| {
        let near = scope.spawn(|| line(near, Some(client)));
        let far = line(far, Some(server));
        [near.join().unwrap(), far]
    })
}

/// One end with its line, and a clock.
struct Driven {
    line: Line,
    end: Endpoint,
    began: Instant,
}

impl Driven {
    fn new(line: Line, end: Endpoint) -> Driven {
        let mut driven = Driven { line, end, began: Instant::now() };
        driven.end.connected(Duration::ZERO);
        driven
    }

    /// Sends, waits for something, and receives.
    fn turn(&mut self, on: impl FnMut(Event<'_>) -> Option<Load>) -> Result<(), Broken> {
        assert!(self.began.elapsed() < LIMIT, "nothing comes of it");
        let is_all_sent = self.line.send(self.began.elapsed(), &mut self.end)?;
        let mut polled = [PollFd::new(&self.line, self.line.wanted(is_all_sent))];
        let pause = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        poll(&mut polled, Some(&pause)).unwrap();
        self.end.handle_timeout(self.began.elapsed());
        self.line.receive(self.began.elapsed(), &mut self.end, on)
    }
}

/// The lender's end: memory that is written, and a register that is read. Until it is given back.
fn lender(line: Line, memory: &mut [u8]) -> Counters {
    let mut driven = Driven::new(line, Endpoint::lender(config()));
    let (mut returned, mut asked) = (false, Vec::new());
    while !returned {
        let went = driven.turn(|event| match event {
            Event::Posted { frame: Frame::MemoryWrite { offset, data }, load } => {
                memory[offset as usize..][..data.len()].copy_from_slice(data);
                Some(load)
            }
            Event::Posted { frame, load } => {
                returned |= frame == Frame::Return;
                Some(load)
            }
            Event::Request { tag, .. } => {
                asked.push(tag);
                None
            }
            Event::Ended(end) => panic!("{end}"),
            _ => None,
        });
        went.unwrap();
        for tag in asked.drain(..) {
            let data = Frame::Data { offset: 0, last: true, data: vec![7; 4] };
            driven.end.send(tag, data).unwrap();
        }
    }
    driven.end.counters()
}

/// Writes all of `memory`, reading a register now and then, and gives how often that was.
fn borrower(line: Line, memory: &[u8]) -> u64 {
    let mut driven = Driven::new(line, Endpoint::borrower(config(), 9));
    let mut pieces = memory.chunks(DATA_BYTES_MAX).zip((0..).step_by(DATA_BYTES_MAX)).peekable();
    let (mut read, mut asked, mut barrier) = (0, 0, false);
    loop {
        while let Some((piece, offset)) = pieces.peek() {
            if driven.end.may_send(farside_link::Class::Posted, piece.len()).is_err() {
                break;
            }
            let frame = Frame::MemoryWrite { offset: *offset, data: piece.to_vec() };
            driven.end.send(Tag::NONE, frame).unwrap();
            pieces.next();
        }
        let register = Frame::RegionRead { region: 0, offset: 0, bytes: 4 };
        if asked == read && driven.end.send(Tag(asked + 1), register).is_ok() {
            asked += 1;
        }
        let went = driven.turn(|event| {
            read += u64::from(matches!(event, Event::Reply { .. }));
            None
        });
        let over = pieces.peek().is_none() && asked == read;
        if over && !barrier {
            barrier = driven.end.send(Tag::NONE, Frame::Return).is_ok();
        }
        match went {
            // The lender has gone when it had everything.
            Err(Broken::HungUp | Broken::Io(_)) if barrier => return read,
            other => other.unwrap(),
        }
    }
}

fn memory_goes_over(with_tls: bool) {
    let [near, far] = lines(with_tls);
    let sent: Vec<u8> =
        (0..8u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut came = vec![0; sent.len()];
    let (counters, read) = std::thread::scope(|scope| {
        let lender = scope.spawn(|| lender(far, &mut came));
        let read = borrower(near, &sent);
        (lender.join().unwrap(), read)
    });
    assert!(sent == came);
    assert!(read > 0);
    assert_eq!(counters.received_bytes, sent.len() as u64);
    assert_eq!((counters.duplicates, counters.violations), (0, 0));
}

#[test]
fn memory_goes_over_a_plain_line_while_registers_are_read() {
    memory_goes_over(false);
}

#[test]
fn memory_goes_over_tls_while_registers_are_read() {
    memory_goes_over(true);
}
