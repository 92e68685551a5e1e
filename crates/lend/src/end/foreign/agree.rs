//! TLS is agreed on before a connection counts: whoever cannot show the certificate of the lease takes no
//! connection's place.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use farside_link::line::Line;
use rustls::Connection;

/// How long both ends may take to show who they are.
pub(super) const AGREE_LIMIT: Duration = Duration::from_secs(5);

/// Agrees on TLS over a fresh connection.
///
/// # Errors
/// The other end is not who it has to be, too slow, or gone.
pub(super) fn agree(mut socket: &TcpStream, tls: &mut Connection) -> io::Result<()> {
    let end = Instant::now() + AGREE_LIMIT;
    socket.set_nonblocking(false)?;
    while tls.is_handshaking() || tls.wants_write() {
        let left = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        let left = left.ok_or(io::ErrorKind::TimedOut)?;
        socket.set_read_timeout(Some(left))?;
        socket.set_write_timeout(Some(left))?;
        if tls.wants_write() {
            tls.write_tls(&mut socket)?;
            continue;
        }
        if tls.read_tls(&mut socket)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Err(error) = tls.process_new_packets() {
            // The other end is told why, if it still listens.
            let _ = tls.write_tls(&mut socket);
            return Err(io::Error::other(error));
        }
    }
    Ok(())
}

/// A line over a fresh connection: plain, or over TLS once that is agreed.
///
/// # Errors
/// As [`agree`].
pub(in crate::end) fn line(socket: TcpStream, tls: Option<Connection>) -> io::Result<Line> {
    match tls {
        None => Line::plain(socket),
        Some(mut tls) => {
            agree(&socket, &mut tls)?;
            Line::tls(socket, tls)
        }
    }
}
