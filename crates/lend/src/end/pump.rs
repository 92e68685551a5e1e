//! Carries a stream of bytes of this host over TLS until one of its ends hangs up or time is over.
//!
//! What is on its way is bounded: a side that does not read makes the other wait.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::Connection;
use thiserror::Error;

use super::secured::{SEALED_BYTES_MAX, UNSENT_BYTES_MAX, limit_unsent};

/// Bytes that may be on their way to each side.
const ON_THEIR_WAY_MAX: usize = 256 << 10;

/// How long an answer is looked for before it is slept, if the one before came within that. To wake a
/// processor takes as long as all the rest of a short way, for who is woken and for who wakes.
const LOOKS_FOR: Duration = Duration::from_micros(150);
/// What is no longer may be a request, for which somebody waits.
const REQUEST_BYTES_MAX: usize = 1 << 10;

/// How long both ends may take to agree on a connection.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// How often what has come is read when nothing can be sent any more, [`SEALED_BYTES_MAX`] each time.
const LAST_READS_MAX: usize = 64;

/// How the carrying ended.
#[derive(Debug, Error)]
pub(super) enum Ended {
    /// The side of this host hung up, and the other end was told.
    #[error("this end has hung up")]
    HungUp,
    /// The other end said that it is done.
    #[error("the other end has hung up")]
    PeerHungUp,
    /// The connection broke without a word.
    #[error("the connection is lost")]
    Lost,
    /// Nothing may go through any more.
    #[error("its time is over")]
    Over,
    /// There is no connection: the other end is not who it has to be, or speaks nonsense.
    #[error("the other end is refused: {0}")]
    Refused(#[from] rustls::Error),
    /// The system failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

/// What is carried between: `far` under `tls`, and `near` as it is.
pub(super) struct Pump<'a> {
    tls: Connection,
    far: &'a TcpStream,
    near: &'a UnixStream,
    /// What comes from either side, before TLS or the other side takes it: as much as is put under TLS at a
    /// time.
    space: Box<[u8]>,
    /// Came from afar, and is not read yet.
    arrived: Waiting,
    answer: Answer,
    /// `near` has said that no more comes.
    near_is_done: bool,
}

impl<'a> Pump<'a> {
    /// Between two connected sockets, which block no more from here on.
    ///
    /// # Errors
    /// Those of `fcntl` and `setsockopt`.
    pub(super) fn new(
        mut tls: Connection,
        far: &'a TcpStream,
        near: &'a UnixStream,
    ) -> io::Result<Pump<'a>> {
        tls.set_buffer_limit(Some(ON_THEIR_WAY_MAX));
        far.set_nonblocking(true)?;
        far.set_nodelay(true)?;
        limit_unsent(far, UNSENT_BYTES_MAX)?;
        near.set_nonblocking(true)?;
        let space = vec![0; SEALED_BYTES_MAX].into_boxed_slice();
        let arrived = Waiting::default();
        Ok(Pump { tls, far, near, space, arrived, answer: Answer::default(), near_is_done: false })
    }

    /// Carries until it ends. `left` is asked before anything is sent or handed on, and says how much
    /// longer that is allowed: nothing moves at `None`.
    pub(super) fn run(mut self, mut left: impl FnMut() -> Option<Duration>) -> Ended {
        let agreed_by = Instant::now() + HANDSHAKE_LIMIT;
        loop {
            let Some(time) = left() else { return Ended::Over };
            let agreeing = self.tls.is_handshaking();
            if agreeing && Instant::now() >= agreed_by {
                return Ended::Lost;
            }
            let pause = if agreeing { time.min(Duration::from_millis(100)) } else { time };
            let looks = self.answer.is_near(Instant::now());
            // It may have slept for long, and time is looked at again before anything moves.
            let ready = self.wait(if looks { Duration::ZERO } else { pause });
            if looks && matches!(ready, Ok([false, false, false, false])) {
                // Whoever else has something to do on this processor goes first.
                std::thread::yield_now();
            }
            let step = ready.and_then(|ready| self.step(ready, &mut left));
            match step {
                Ok(None) => {}
                Ok(Some(ended)) | Err(ended) => return ended,
            }
        }
    }

    /// What can be done now: read and written afar, read and written near.
    fn wait(&self, pause: Duration) -> Result<[bool; 4], Ended> {
        let when = |wanted: bool, flag| if wanted { flag } else { PollFlags::empty() };
        let room = self.arrived.len() < ON_THEIR_WAY_MAX;
        let takes = !self.tls.is_handshaking() && !self.tls.wants_write() && !self.near_is_done;
        let far = when(room, PollFlags::IN) | when(self.tls.wants_write(), PollFlags::OUT);
        let near = when(takes, PollFlags::IN) | when(!self.arrived.is_empty(), PollFlags::OUT);
        let mut polled = vec![PollFd::new(self.far, far)];
        // One that has hung up would wake this for ever.
        if !self.near_is_done {
            polled.push(PollFd::new(self.near, near));
        }
        let pause = Timespec::try_from(pause).ok();
        match poll(&mut polled, pause.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
        let over = PollFlags::HUP | PollFlags::ERR;
        let [far, near] =
            [0, 1].map(|at| polled.get(at).map_or(PollFlags::empty(), PollFd::revents));
        Ok([
            room && far.intersects(PollFlags::IN | over),
            far.intersects(PollFlags::OUT | over),
            takes && near.intersects(PollFlags::IN | over) || near.contains(PollFlags::HUP),
            near.intersects(PollFlags::OUT | over),
        ])
    }

    fn step(
        &mut self,
        ready: [bool; 4],
        left: &mut impl FnMut() -> Option<Duration>,
    ) -> Result<Option<Ended>, Ended> {
        let [from_far, to_far, from_near, to_near] = ready;
        left().ok_or(Ended::Over)?;
        if from_near {
            self.take_near()?;
        }
        if to_far || self.tls.wants_write() {
            if let Err(lost) = self.send_far() {
                return Err(self.take_last().unwrap_or(lost));
            }
        }
        if self.near_is_done && !self.tls.wants_write() {
            return Ok(Some(Ended::HungUp));
        }
        let end = if from_far { self.take_far()? } else { None };
        if to_near || !self.arrived.is_empty() {
            self.hand_on()?;
        }
        Ok(end)
    }

    fn take_near(&mut self) -> Result<(), Ended> {
        match self.near.read(&mut self.space) {
            Ok(0) => self.end_near(),
            Ok(bytes) => {
                self.tls.writer().write_all(&self.space[..bytes])?;
                self.answer.may_come(Instant::now(), bytes);
            }
            Err(error) if is_later(&error) => {}
            Err(_) => self.end_near(),
        }
        Ok(())
    }

    fn end_near(&mut self) {
        self.near_is_done = true;
        self.tls.send_close_notify();
    }

    fn send_far(&mut self) -> Result<(), Ended> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.far) {
                Ok(_) => {}
                Err(error) if is_later(&error) => return Ok(()),
                Err(_) => return Err(Ended::Lost),
            }
        }
        Ok(())
    }

    /// Gives how it ended, if it did: what came before is handed on still.
    fn take_far(&mut self) -> Result<Option<Ended>, Ended> {
        let tls = &mut self.tls;
        let mut rest = match self.far.read(&mut self.space) {
            Ok(0) => return Ok(Some(Ended::Lost)),
            Ok(bytes) => {
                self.answer.came(Instant::now());
                &self.space[..bytes]
            }
            Err(error) if is_later(&error) => return Ok(None),
            Err(_) => return Err(Ended::Lost),
        };
        // TLS takes little at a time, and more only if what it has made of that is taken.
        while !rest.is_empty() {
            tls.read_tls(&mut rest)?;
            let state = match tls.process_new_packets() {
                Ok(state) => state,
                Err(error) => {
                    // The other end is told why, if it still listens.
                    let _ = tls.write_tls(&mut self.far);
                    return Err(error.into());
                }
            };
            let room = self.arrived.room(state.plaintext_bytes_to_read());
            if tls.reader().read_exact(room).is_err() {
                return Ok(Some(Ended::Lost));
            }
            if state.peer_has_closed() {
                return Ok(Some(Ended::PeerHungUp));
            }
        }
        Ok(None)
    }

    /// Nothing can be sent any more. What the other end has said before it left is handed on still, mostly why it did;
    /// gives how it ended, if it said so.
    fn take_last(&mut self) -> Option<Ended> {
        let reads = (0..LAST_READS_MAX).map(|_| self.take_far());
        let ended = reads.map(|read| read.unwrap_or_else(Some)).find(Option::is_some);
        // The one thing that it fails by is that nobody takes it.
        let _ = self.hand_on();
        ended.flatten()
    }

    fn hand_on(&mut self) -> Result<(), Ended> {
        while !self.arrived.is_empty() {
            match self.near.write(self.arrived.bytes()) {
                Ok(count) => self.arrived.has_left(count),
                Err(error) if is_later(&error) => break,
                Err(_) => {
                    self.end_near();
                    self.arrived.has_left(self.arrived.len());
                }
            }
        }
        Ok(())
    }
}

/// Whether the answer to what was sent is so near that it is looked for, rather than slept.
#[derive(Default)]
struct Answer {
    /// Since when one may come.
    awaited: Option<Instant>,
    /// The last came within [`LOOKS_FOR`].
    was_soon: bool,
}

impl Answer {
    /// So many bytes are on their way to the other end.
    fn may_come(&mut self, now: Instant, bytes: usize) {
        self.awaited = (bytes <= REQUEST_BYTES_MAX).then_some(now);
    }

    /// Something has come.
    fn came(&mut self, now: Instant) {
        if let Some(since) = self.awaited.take() {
            self.was_soon = now.duration_since(since) <= LOOKS_FOR;
        }
    }

    fn is_near(&self, now: Instant) -> bool {
        let within = |since| now.duration_since(since) < LOOKS_FOR;
        self.was_soon && self.awaited.is_some_and(within)
    }
}

/// Bytes that wait, in room that is not cleared for them.
#[derive(Default)]
struct Waiting {
    room: Vec<u8>,
    waiting: Range<usize>,
}

impl Waiting {
    /// Room behind what waits, for so many bytes, which wait from here on.
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.waiting.is_empty() {
            self.waiting = 0..0;
        } else if self.waiting.end + bytes > self.room.len() {
            self.room.copy_within(self.waiting.clone(), 0);
            self.waiting = 0..self.waiting.len();
        }
        let start = self.waiting.end;
        self.waiting.end += bytes;
        if self.waiting.end > self.room.len() {
            self.room.resize(self.waiting.end, 0);
        }
        &mut self.room[start..self.waiting.end]
    }

    fn bytes(&self) -> &[u8] {
        &self.room[self.waiting.clone()]
    }

    fn has_left(&mut self, bytes: usize) {
        self.waiting.start += bytes;
    }

    fn len(&self) -> usize {
        self.waiting.len()
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    use rustls::pki_types::ServerName;
    use rustls::{ClientConnection, ServerConnection};

    use super::*;
    use crate::tls::{self, Credentials};

    fn credentials() -> Credentials {
        let made = rcgen::generate_simple_self_signed(vec!["lease".to_owned()]).unwrap();
        Credentials { certificate: made.cert.der().to_vec(), key: made.signing_key.serialize_der() }
    }

    /// Both ends over TCP, each a thread that carries; gives their inner sides, and how each ended.
    struct Ends {
        near: [UnixStream; 2],
        ended: [std::thread::JoinHandle<Ended>; 2],
    }

    /// `shown` is what the client shows, `expected` what the server expects.
    fn connect(
        shown: &Credentials,
        expected: &Credentials,
        left: impl Fn() -> Option<Duration> + Send + Sync + 'static,
    ) -> Ends {
        let (client, server) = connections(shown, expected);
        carry([client.into(), server.into()], left)
    }

    fn connections(
        shown: &Credentials,
        expected: &Credentials,
    ) -> (ClientConnection, ServerConnection) {
        let lender = credentials();
        let client = tls::client(shown, &lender.certificate).unwrap();
        let server = tls::server(&lender, &expected.certificate).unwrap();
        let name = ServerName::try_from("lease").unwrap();
        (ClientConnection::new(client, name).unwrap(), ServerConnection::new(server).unwrap())
    }

    fn over_tcp() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (far, listener.accept().unwrap().0)
    }

    fn carry(
        tls: [Connection; 2],
        left: impl Fn() -> Option<Duration> + Send + Sync + 'static,
    ) -> Ends {
        let (far, accepted) = over_tcp();
        let [client, server] = tls;
        let left = Arc::new(left);
        let carry = |tls: Connection, far: TcpStream| {
            let (inside, outside) = UnixStream::pair().unwrap();
            outside.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let left = Arc::clone(&left);
            let thread =
                std::thread::spawn(move || Pump::new(tls, &far, &inside).unwrap().run(|| left()));
            (outside, thread)
        };
        let (a, b) = (carry(client, far), carry(server, accepted));
        Ends { near: [a.0, b.0], ended: [a.1, b.1] }
    }

    fn always() -> Option<Duration> {
        Some(Duration::from_secs(1))
    }

    #[test]
    fn an_answer_is_looked_for_while_it_is_near_and_never_for_long() {
        let (begun, mut answer) = (Instant::now(), Answer::default());
        let at = |parts: u32| begun + LOOKS_FOR * parts / 4;
        answer.may_come(at(0), 48);
        assert!(!answer.is_near(at(0)), "nobody knows yet");
        answer.came(at(1));
        assert!(!answer.is_near(at(1)), "it is there");
        answer.may_come(at(2), 48);
        assert!(answer.is_near(at(2)) && answer.is_near(at(5)));
        assert!(!answer.is_near(at(6)), "it was looked for long enough");
        answer.came(at(7));
        answer.may_come(at(8), 48);
        assert!(!answer.is_near(at(8)), "the last came too late");
        answer.came(at(9));
        answer.may_come(at(10), REQUEST_BYTES_MAX + 1);
        assert!(!answer.is_near(at(10)), "nobody waits for an answer to bulk");
        answer.came(at(20));
        answer.may_come(at(20), 48);
        assert!(answer.is_near(at(20)), "nor did that say anything");
    }

    #[test]
    fn bytes_come_out_as_they_went_in_both_ways_and_an_end_is_told() {
        let own = credentials();
        let Ends { near: [mut a, mut b], ended: [first, second] } = connect(&own, &own, always);
        let sent: Vec<u8> =
            (0..5u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let [mut to, wanted] = [a.try_clone().unwrap(), b.try_clone().unwrap()];
        let copy = sent.clone();
        let sending = std::thread::spawn(move || to.write_all(&copy).unwrap());
        let mut wanted = wanted;
        let mut got = vec![0; sent.len()];
        wanted.read_exact(&mut got).unwrap();
        sending.join().unwrap();
        assert!(got == sent);
        b.write_all(b"back").unwrap();
        let mut back = [0; 4];
        a.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"back");
        drop((a, wanted));
        assert_eq!(b.read(&mut [0; 1]).unwrap(), 0);
        assert!(matches!(first.join().unwrap(), Ended::HungUp));
        assert!(matches!(second.join().unwrap(), Ended::PeerHungUp));
    }

    /// An end that leaves with something unread resets the connection: whoever sends then is told of that before it has
    /// read all.
    #[test]
    fn what_the_other_end_has_said_comes_out_though_nothing_can_be_sent_any_more() {
        let own = credentials();
        let (client, mut server) = connections(&own, &own);
        let (far, mut accepted) = over_tcp();
        let (inside, mut outside) = UnixStream::pair().unwrap();
        outside.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let gate = Arc::new(Mutex::new(()));
        let held = Arc::clone(&gate);
        let left = move || {
            drop(held.lock().unwrap());
            Some(Duration::from_millis(10))
        };
        let pump = move || Pump::new(client.into(), &far, &inside).unwrap().run(left);
        let pump = std::thread::spawn(pump);
        outside.write_all(b"hello").unwrap();
        let mut tls = rustls::Stream::new(&mut server, &mut accepted);
        tls.read_exact(&mut [0; 5]).unwrap();
        outside.write_all(b"unread").unwrap();
        assert_eq!(tls.sock.peek(&mut [0; 1]).unwrap(), 1);
        // It stands still before it looks again, and then finds both: what came, and something to send.
        let closed = gate.lock().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        tls.write_all(b"farewell").unwrap();
        drop(accepted);
        outside.write_all(b"more").unwrap();
        drop(closed);
        let mut said = [0; 8];
        outside.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"farewell");
        assert!(matches!(pump.join().unwrap(), Ended::Lost));
    }

    #[test]
    fn whoever_shows_another_certificate_is_refused() {
        let Ends { near: [mut a, mut b], ended: [_, second] } =
            connect(&credentials(), &credentials(), always);
        let ended = second.join().unwrap();
        assert!(matches!(ended, Ended::Refused(_)), "{ended}");
        // Nothing of it comes out.
        let _ = a.write_all(b"x");
        assert_eq!(b.read(&mut [0; 1]).unwrap(), 0);
        assert_eq!(a.read(&mut [0; 1]).unwrap_or(0), 0);
    }

    #[test]
    fn nothing_goes_through_when_time_is_over() {
        let own = credentials();
        let end = Instant::now() + Duration::from_millis(300);
        let left =
            move || end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        let Ends { near: [mut a, mut b], ended } = connect(&own, &own, left);
        a.write_all(b"in time").unwrap();
        let mut got = [0; 7];
        b.read_exact(&mut got).unwrap();
        // One of them is the first, and the other may find the connection closed.
        let ended = ended.map(|thread| thread.join().unwrap());
        assert!(ended.iter().any(|ended| matches!(ended, Ended::Over)), "{ended:?}");
        let _ = a.write_all(b"late");
        assert_eq!(b.read(&mut [0; 1]).unwrap_or(0), 0);
    }
}
