//! What a lease is compared with: bare sockets and bare rustls, between this thread and one on the other
//! processor.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use farside_lend::tls;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection, StreamOwned};

use super::super::{BenchError, median, pin};
use super::hosts::failed;

/// Bytes that are handed to the system at a time.
const CHUNK: usize = 256 << 10;
/// Bytes of a small message.
const SMALL: usize = 64;

/// A connection over the loopback interface.
fn loopback() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let here = TcpStream::connect(listener.local_addr()?)?;
    let (there, _) = listener.accept()?;
    here.set_nodelay(true)?;
    there.set_nodelay(true)?;
    Ok((here, there))
}

/// Serves a peer on this processor until its connection ends.
fn serve(cpu: usize, body: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    let body = move || {
        let _pinned = pin(cpu);
        // It ends with an error when the connection does.
        let _ = body();
    };
    std::thread::Builder::new().name("farside-peer".into()).spawn(body).map(drop)
}

/// One end of a stream of bytes, with or without a copy of them at this end.
struct Carrier {
    data: Vec<u8>,
    staging: Option<Vec<u8>>,
}

impl Carrier {
    fn new(bytes: usize, copies: bool) -> Carrier {
        Carrier { data: vec![1; bytes], staging: copies.then(|| vec![0; CHUNK]) }
    }

    fn send(&mut self, stream: &mut impl Write) -> io::Result<()> {
        for chunk in self.data.chunks(CHUNK) {
            match &mut self.staging {
                Some(staging) => {
                    staging[..chunk.len()].copy_from_slice(chunk);
                    stream.write_all(&staging[..chunk.len()])?;
                }
                None => stream.write_all(chunk)?,
            }
        }
        stream.flush()
    }

    fn receive(&mut self, stream: &mut impl Read) -> io::Result<()> {
        for chunk in self.data.chunks_mut(CHUNK) {
            match &mut self.staging {
                Some(staging) => {
                    stream.read_exact(&mut staging[..chunk.len()])?;
                    chunk.copy_from_slice(&staging[..chunk.len()]);
                }
                None => stream.read_exact(chunk)?,
            }
        }
        Ok(())
    }
}

/// A stream of bytes to a thread that sends them back once it has all of them.
pub(super) struct Bulk<S> {
    stream: S,
    own: Carrier,
}

impl<S: Read + Write> Bulk<S> {
    fn start<T: Read + Write + Send + 'static>(
        (stream, mut there): (S, T),
        bytes: usize,
        copies: bool,
        cpu: usize,
    ) -> io::Result<Bulk<S>> {
        let mut its = Carrier::new(bytes, copies);
        serve(cpu, move || {
            loop {
                its.receive(&mut there)?;
                its.send(&mut there)?;
            }
        })?;
        Ok(Bulk { stream, own: Carrier::new(bytes, copies) })
    }

    /// Seconds that all bytes take out and in again.
    pub(super) fn round(&mut self) -> io::Result<f64> {
        let begun = Instant::now();
        self.own.send(&mut self.stream)?;
        self.own.receive(&mut self.stream)?;
        Ok(begun.elapsed().as_secs_f64())
    }
}

/// Plain TCP, with a copy at each end.
pub(super) fn tcp(bytes: usize, cpu: usize) -> io::Result<Bulk<TcpStream>> {
    Bulk::start(loopback()?, bytes, true, cpu)
}

/// A client's end of bare rustls.
pub(super) type Tls = StreamOwned<ClientConnection, TcpStream>;

/// TLS 1.3 as a lease has it, by rustls and nothing else.
pub(super) fn tls(bytes: usize, cpu: usize) -> Result<Bulk<Tls>, BenchError> {
    let setup = |error: &dyn std::fmt::Display| failed(&format!("setting up TLS: {error}"));
    let make = || farside_lend::pki::link_credentials().map_err(|error| setup(&error));
    let (own, its) = (make()?, make()?);
    let client = tls::client(&own, &its.certificate).map_err(|error| setup(&error))?;
    let server = tls::server(&its, &own.certificate).map_err(|error| setup(&error))?;
    let name = ServerName::try_from("lease.farside").map_err(|error| setup(&error))?;
    let client = ClientConnection::new(Arc::clone(&client), name).map_err(|error| setup(&error))?;
    let server = ServerConnection::new(server).map_err(|error| setup(&error))?;
    let (here, there) = loopback()?;
    let ends = (StreamOwned::new(client, here), StreamOwned::new(server, there));
    Ok(Bulk::start(ends, bytes, false, cpu)?)
}

/// A small message to a thread that sends it back.
pub(super) struct PingPong<S>(S);

impl<S: Read + Write> PingPong<S> {
    /// To whatever answers at the other end of `stream`.
    pub(super) fn of(stream: S) -> PingPong<S> {
        PingPong(stream)
    }

    /// Microseconds there and back, the median of so many.
    pub(super) fn micros(&mut self, rounds: usize) -> io::Result<f64> {
        let mut samples = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let begun = Instant::now();
            let mut message = [1; SMALL];
            self.0.write_all(&message)?;
            self.0.read_exact(&mut message)?;
            samples.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        Ok(median(samples))
    }
}

/// Answers small messages until the connection ends.
pub(super) fn echo(mut there: impl Read + Write + Send + 'static, cpu: usize) -> io::Result<()> {
    serve(cpu, move || {
        let mut message = [0; SMALL];
        loop {
            there.read_exact(&mut message)?;
            there.write_all(&message)?;
        }
    })
}

/// Over TCP.
pub(super) fn tcp_ping_pong(cpu: usize) -> io::Result<PingPong<TcpStream>> {
    let (here, there) = loopback()?;
    echo(there, cpu)?;
    Ok(PingPong::of(here))
}

/// Over a UNIX socket.
pub(super) fn unix_ping_pong(cpu: usize) -> io::Result<PingPong<UnixStream>> {
    let (here, there) = UnixStream::pair()?;
    echo(there, cpu)?;
    Ok(PingPong::of(here))
}
