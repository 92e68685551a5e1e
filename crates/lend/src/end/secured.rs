//! A TCP connection under TLS as a stream of bytes, for an end that is driven by it directly: no thread
//! and no copy in between.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use farside_link::endpoint::BULK_AHEAD_BYTES_MAX;
use farside_live::ring_card::CardStream;
use farside_vfio_user::Transmit;
use farside_vfio_user::unix::{Plain, Ready, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::Connection;

/// Bytes that one read of the socket takes, at most.
const READ_BYTES: usize = 128 << 10;
/// Bytes that a socket takes before it has sent what it has.
pub(super) const UNSENT_BYTES_MAX: u32 = 128 << 10;
/// The same where there is nobody on the way who holds more: together with what waits in front of it, a mebibyte.
/// With less, who sends is woken for every piece, and the system sets a timer for it.
pub(super) const UNSENT_STRAIGHT_BYTES_MAX: u32 = (1 << 20) - BULK_AHEAD_BYTES_MAX as u32;
/// Bytes that are put under TLS and sent at a time: three records, which leave as one piece. A second piece
/// behind them would have the system set a timer, where it spreads what it sends over time.
pub(super) const SEALED_BYTES_MAX: usize = 48 << 10;
/// The same while the two ends agree.
const HELLO_BYTES: usize = 4 << 10;
/// Bytes that TLS may hold back of what it was given: a record that has not come whole.
const RECORD_BYTES_MAX: usize = 20 << 10;

/// See the module. Whoever polls its descriptor misses nothing: what was read from the socket has been
/// handed on, or was too little for TLS to make anything of.
pub(super) struct Secured {
    socket: TcpStream,
    tls: Connection,
    /// What comes from the socket, before TLS takes it.
    space: Box<[u8]>,
    /// Data may have come with the last of what was said to agree.
    has_early: bool,
    limit: Option<Duration>,
}

/// A stream over a fresh connection: as it is, or over TLS once that is agreed on, which has to be done by
/// the end of `limit`. Whoever cannot show the certificate of the lease gets none.
///
/// # Errors
/// The other end is not who it has to be, too slow, or gone.
pub(super) fn stream(
    socket: TcpStream,
    tls: Option<Connection>,
    limit: Duration,
) -> io::Result<Box<dyn CardStream>> {
    if let Some(tls) = tls {
        return Ok(Box::new(Secured::agree(socket, tls, limit)?));
    }
    limit_unsent(&socket, UNSENT_STRAIGHT_BYTES_MAX)?;
    Ok(Box::new(Plain::tcp(socket)?))
}

impl Secured {
    /// Agrees with the other end on a connection.
    ///
    /// # Errors
    /// It is not who it has to be, speaks nonsense, or takes longer than `limit`.
    pub(super) fn agree(
        socket: TcpStream,
        tls: impl Into<Connection>,
        limit: Duration,
    ) -> io::Result<Secured> {
        let mut tls = tls.into();
        tls.set_buffer_limit(Some(SEALED_BYTES_MAX));
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        limit_unsent(&socket, UNSENT_BYTES_MAX)?;
        let space = vec![0; READ_BYTES].into_boxed_slice();
        let mut secured = Secured { socket, tls, space, has_early: true, limit: None };
        let end = Instant::now() + limit;
        while secured.tls.is_handshaking() {
            let wanted =
                Ready { readable: secured.tls.wants_read(), writable: secured.tls.wants_write() };
            if secured.poll(wanted, Some(end))?.is_none() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            secured.send_sealed()?;
            // Little, so that data which comes with the last of it waits in TLS.
            match secured.take_in(HELLO_BYTES, &mut Plaintext::none()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) => {
                    // The other end is told why, if it still listens.
                    let _ = secured.send_sealed();
                    return Err(error);
                }
            }
        }
        secured.send_sealed()?;
        Ok(secured)
    }

    /// What the other end has shown, DER.
    pub(super) fn shown(&self) -> &[u8] {
        let shown = self.tls.peer_certificates().and_then(|shown| shown.first());
        shown.map_or(&[], |certificate| certificate.as_ref())
    }

    /// Reads the socket once, at most `room` bytes, and gives them to TLS; what comes of them is added to
    /// `plain`. How many there were, 0 at the socket's end.
    fn take_in(&mut self, room: usize, plain: &mut Plaintext<'_>) -> io::Result<usize> {
        let room = room.min(self.space.len());
        let count = self.socket.read(&mut self.space[..room])?;
        let mut rest = &self.space[..count];
        loop {
            // At the end of the stream it is told of that once.
            self.tls.read_tls(&mut rest)?;
            self.tls.process_new_packets().map_err(io::Error::other)?;
            // It takes more only if what it has made is taken.
            plain.fill(&mut self.tls)?;
            if rest.is_empty() {
                return Ok(count);
            }
        }
    }

    /// Sends what is under TLS; whether all of it has left.
    fn send_sealed(&mut self) -> io::Result<bool> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn poll(&self, wanted: Ready, deadline: Option<Instant>) -> io::Result<Ready> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, wanted.readable);
        flags.set(PollFlags::OUT, wanted.writable);
        loop {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            let pause = left.and_then(|left| Timespec::try_from(left).ok());
            let mut polled = [PollFd::new(&self.socket, flags)];
            match poll(&mut polled, pause.as_ref()) {
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(_) => {
                    let is = |flag| {
                        polled[0].revents().intersects(flag | PollFlags::HUP | PollFlags::ERR)
                    };
                    return Ok(Ready {
                        readable: wanted.readable && is(PollFlags::IN),
                        writable: wanted.writable && is(PollFlags::OUT),
                    });
                }
            }
        }
    }
}

/// Has a socket take no more than it can send soon: what else there is waits where something may still go
/// before it.
///
/// # Errors
/// Those of `setsockopt`.
pub(super) fn limit_unsent(socket: &TcpStream, unsent: u32) -> io::Result<()> {
    let value = unsent as libc::c_int;
    let bytes = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the socket is open, and the value is an int that lives until the call is over.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            std::ptr::from_ref(&value).cast(),
            bytes,
        )
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Where what has come goes.
struct Plaintext<'a> {
    space: &'a mut [u8],
    count: usize,
    /// The other end has said that nothing more comes.
    is_over: bool,
}

impl Plaintext<'_> {
    /// Nowhere: it waits in TLS.
    fn none() -> Plaintext<'static> {
        Plaintext { space: &mut [], count: 0, is_over: false }
    }

    /// Takes what TLS has, as far as there is room.
    fn fill(&mut self, tls: &mut Connection) -> io::Result<()> {
        while self.count < self.space.len() {
            match tls.reader().read(&mut self.space[self.count..]) {
                Ok(0) => {
                    self.is_over = true;
                    return Ok(());
                }
                Ok(more) => self.count += more,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // What came before is told first, and this the next time.
                Err(_) if self.count > 0 => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Stream for Secured {
    fn carries_descriptors(&self) -> bool {
        false
    }

    /// Takes all that has come and finds room; `space` is to have more than [`RECORD_BYTES_MAX`].
    fn receive(&mut self, space: &mut [u8], _fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
        self.has_early = false;
        let room = space.len().saturating_sub(RECORD_BYTES_MAX);
        let mut plain = Plaintext { space, count: 0, is_over: false };
        plain.fill(&mut self.tls)?;
        while !plain.is_over {
            // What comes of it has to find room, since nobody is woken for what is left in TLS.
            let left = room.saturating_sub(plain.count).min(self.space.len());
            if left == 0 || plain.count > 0 && left < RECORD_BYTES_MAX {
                break;
            }
            match self.take_in(left, &mut plain) {
                // That was all, mostly, and whoever polls is woken for what is not. Or the socket has ended:
                // how, is told next time, if anything came before it.
                Ok(count) if count < left && (plain.count > 0 || count == 0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It is told next time.
                Err(_) if plain.count > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(plain.count)
    }

    fn send(&mut self, transmit: Transmit<'_>) -> io::Result<usize> {
        self.send_slices(&[IoSlice::new(transmit.bytes)])
    }

    /// What TLS takes it keeps until it has left, and takes more only then.
    fn send_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.send_sealed()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = self.tls.writer().write_vectored(slices)?;
        // They are taken, and may have come: if the connection has failed, that is said next time.
        let _ = self.send_sealed();
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<bool> {
        self.send_sealed()
    }

    fn wait(&mut self, wanted: Ready, deadline: Option<Instant>) -> io::Result<Ready> {
        if self.has_early && wanted.readable {
            return Ok(wanted);
        }
        self.poll(wanted, deadline)
    }

    fn set_time_limit(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.limit = limit;
        Ok(())
    }

    fn time_limit(&self) -> io::Result<Option<Duration>> {
        Ok(self.limit)
    }

    fn shutdown(&mut self) -> io::Result<()> {
        self.tls.send_close_notify();
        let _ = self.send_sealed();
        self.socket.shutdown(std::net::Shutdown::Both)
    }
}

impl AsFd for Secured {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::thread::JoinHandle;

    use crate::tls::{self, Credentials};
    use rustls::pki_types::ServerName;
    use rustls::{ClientConnection, ServerConnection};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    fn credentials() -> Credentials {
        let made = rcgen::generate_simple_self_signed(vec!["lease".to_owned()]).unwrap();
        Credentials { certificate: made.cert.der().to_vec(), key: made.signing_key.serialize_der() }
    }

    /// Both ends; `shown` is what the client shows, `expected` what the server expects.
    fn ends(shown: &Credentials, expected: &Credentials) -> [io::Result<Secured>; 2] {
        let lender = credentials();
        let client = tls::client(shown, &lender.certificate).unwrap();
        let server = tls::server(&lender, &expected.certificate).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        let name = ServerName::try_from("lease").unwrap();
        let client = ClientConnection::new(Arc::clone(&client), name).unwrap();
        let server = ServerConnection::new(server).unwrap();
        let agreeing = std::thread::spawn(move || Secured::agree(near, client, LIMIT));
        let server = Secured::agree(far, server, LIMIT);
        [agreeing.join().unwrap(), server]
    }

    fn pair() -> [Secured; 2] {
        let own = credentials();
        ends(&own, &own).map(Result::unwrap)
    }

    fn bytes(count: u32) -> Vec<u8> {
        (0..count).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    /// Sends all of it as whoever has an outbox does.
    fn sending(mut end: Secured, bytes: Vec<u8>) -> JoinHandle<Secured> {
        std::thread::spawn(move || {
            let mut sent = 0;
            while sent < bytes.len() || !end.flush().unwrap() {
                match end.send(Transmit { bytes: &bytes[sent..], fds: &[] }) {
                    Ok(count) => sent += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        end.wait(Ready { readable: false, writable: true }, None).unwrap();
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            end
        })
    }

    /// Receives so many, and sleeps only where whoever polls the descriptor would.
    fn received(end: &mut Secured, count: usize, space: usize) -> Vec<u8> {
        let (mut all, mut space) = (Vec::new(), vec![0; space]);
        while all.len() < count {
            let ready = Ready { readable: true, writable: false };
            let until = Some(Instant::now() + LIMIT);
            assert!(!end.wait(ready, until).unwrap().is_none(), "{} of {count}", all.len());
            match end.receive_bytes(&mut space) {
                Ok(0) => panic!("it has ended after {}", all.len()),
                Ok(more) => all.extend_from_slice(&space[..more]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
        }
        all
    }

    #[test]
    fn bytes_come_out_as_they_went_in_and_nobody_sleeps_on_them() {
        for space in [RECORD_BYTES_MAX + 1, 64 << 10, 300 << 10] {
            let [client, mut server] = pair();
            let sent = bytes(3 << 20);
            let sending = sending(client, sent.clone());
            assert!(received(&mut server, sent.len(), space) == sent, "{space}");
            let mut client = sending.join().unwrap();
            client.shutdown().unwrap();
            let mut space = vec![0; 64 << 10];
            server.wait(Ready { readable: true, writable: false }, None).unwrap();
            assert_eq!(
                server.receive_bytes(&mut space).unwrap(),
                0,
                "it is told that this was all"
            );
        }
    }

    #[test]
    fn who_reads_nothing_makes_the_other_wait_and_loses_nothing() {
        let [mut client, mut server] = pair();
        let sent = bytes(32 << 20);
        let mut taken = 0;
        let full = loop {
            match client.send(Transmit { bytes: &sent[taken..], fds: &[] }) {
                Ok(count) => taken += count,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        assert!(taken < sent.len());
        let rest = sent[taken..].to_vec();
        let sending = sending(client, rest);
        assert!(received(&mut server, sent.len(), 256 << 10) == sent);
        sending.join().unwrap();
    }

    #[test]
    fn what_comes_with_the_last_of_the_greeting_is_not_slept_on() {
        let own = credentials();
        let client = tls::client(&own, &own.certificate).unwrap();
        let server = tls::server(&own, &own.certificate).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        let server = ServerConnection::new(server).unwrap();
        let agreeing = std::thread::spawn(move || Secured::agree(far, server, LIMIT));
        let name = ServerName::try_from("lease").unwrap();
        let mut client = ClientConnection::new(client, name).unwrap();
        // Waits under TLS, and leaves with the last message of the greeting.
        client.writer().write_all(b"early").unwrap();
        let mut last = Vec::new();
        while client.is_handshaking() {
            near.write_all(&last).unwrap();
            last.clear();
            while client.wants_write() {
                client.write_tls(&mut last).unwrap();
            }
            if last.is_empty() || client.wants_read() {
                near.write_all(&std::mem::take(&mut last)).unwrap();
                client.read_tls(&mut near).unwrap();
                client.process_new_packets().unwrap();
            }
        }
        while client.wants_write() {
            client.write_tls(&mut last).unwrap();
        }
        near.write_all(&last).unwrap();
        let mut server = agreeing.join().unwrap().unwrap();
        assert_eq!(received(&mut server, 5, 64 << 10), b"early");
    }

    #[test]
    fn a_stranger_is_refused() {
        let [client, server] = ends(&credentials(), &credentials());
        assert!(server.is_err());
        // A client of TLS 1.3 hears of it when it reads.
        if let Ok(mut client) = client {
            client.wait(Ready { readable: true, writable: false }, None).unwrap();
            assert!(client.receive_bytes(&mut vec![0; 64 << 10]).is_err());
        }
    }

    #[test]
    fn what_came_before_a_cut_is_told_before_it() {
        let [mut client, mut server] = pair();
        client.send(Transmit { bytes: b"last", fds: &[] }).unwrap();
        assert!(client.flush().unwrap());
        client.socket.shutdown(std::net::Shutdown::Both).unwrap();
        // Both are there when the server looks.
        while server.socket.peek(&mut [0; 4096]).unwrap() == 0 {}
        std::thread::sleep(Duration::from_millis(20));
        let mut space = vec![0; 64 << 10];
        assert_eq!(server.receive_bytes(&mut space).unwrap(), 4);
        let error = server.receive_bytes(&mut space).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_connection_that_is_cut_is_no_end() {
        let [client, mut server] = pair();
        client.socket.shutdown(std::net::Shutdown::Both).unwrap();
        server.wait(Ready { readable: true, writable: false }, None).unwrap();
        let error = server.receive_bytes(&mut vec![0; 64 << 10]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn who_says_nothing_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        let own = credentials();
        let server = ServerConnection::new(tls::server(&own, &own.certificate).unwrap()).unwrap();
        let given_up = Secured::agree(far, server, Duration::from_millis(50));
        assert_eq!(given_up.err().unwrap().kind(), io::ErrorKind::TimedOut);
    }
}
