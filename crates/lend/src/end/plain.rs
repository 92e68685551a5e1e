//! A connection of a lease without TLS, in a network that both hosts' administrators have named.
//!
//! There is no certificate, so the borrower's end begins with 48 bytes: four that say what this is, the
//! version, the epoch, by which the lender's daemon leads it to its end, and a secret of the lease, which
//! the daemons have exchanged over TLS and which the end compares. What goes after that anybody sees and
//! changes who sees and changes the packets of that network, the secret too: that is what was allowed.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

/// What the two ends of one lease and their daemons know, and nobody else.
pub(crate) type Secret = [u8; 32];

/// What the borrower's end says first.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Greeting {
    /// Of the lease.
    pub(crate) epoch: u64,
    /// Of the lease too.
    pub(crate) secret: Secret,
}

impl std::fmt::Debug for Greeting {
    /// The secret is nobody's business.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Greeting(of lease {})", self.epoch)
    }
}

/// What such a connection begins with. TLS begins with the byte 0x16.
const MAGIC: [u8; 4] = *b"FSPL";
/// Of what comes first.
const VERSION: u16 = 1;
/// Magic, version, two bytes of 0, epoch.
pub(crate) const NAMED_BYTES: usize = 16;
/// The secret too.
const GREETING_BYTES: usize = NAMED_BYTES + size_of::<Secret>();
/// How long it may take to come.
const LIMIT: Duration = Duration::from_secs(5);

/// What the first bytes of a connection say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// It is one of these, of the lease with this epoch.
    Plain {
        /// Of the lease.
        epoch: u64,
    },
    /// More has to come to know.
    More,
    /// It is something else.
    Other,
}

/// Tells by its first bytes what a connection is.
pub(crate) fn first(bytes: &[u8]) -> First {
    let named = named(0);
    let known = &named[..8];
    let common = bytes.len().min(known.len());
    if bytes[..common] != known[..common] {
        return First::Other;
    }
    match bytes.get(8..NAMED_BYTES).and_then(|epoch| epoch.try_into().ok()) {
        Some(epoch) => First::Plain { epoch: u64::from_le_bytes(epoch) },
        None => First::More,
    }
}

fn named(epoch: u64) -> [u8; NAMED_BYTES] {
    let mut bytes = [0; NAMED_BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
    bytes[8..].copy_from_slice(&epoch.to_le_bytes());
    bytes
}

impl Greeting {
    fn bytes(&self) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        bytes[..NAMED_BYTES].copy_from_slice(&named(self.epoch));
        bytes[NAMED_BYTES..].copy_from_slice(&self.secret);
        bytes
    }

    /// The borrower's end begins a connection.
    ///
    /// # Errors
    /// Those of the socket.
    pub(crate) fn say(&self, mut far: &TcpStream) -> io::Result<()> {
        far.write_all(&self.bytes())
    }

    /// The lender's end takes what a connection begins with, and nothing behind it.
    ///
    /// # Errors
    /// It is not of this lease, or does not come in time.
    pub(crate) fn admit(&self, far: &TcpStream) -> io::Result<()> {
        let mut said = [0; GREETING_BYTES];
        read_within(far, &mut said, LIMIT)?;
        // However much of it is right, this takes as long.
        if said.ct_eq(&self.bytes()).into() {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "it does not know the lease's secret"))
    }
}

/// Whether a connection begins as TLS does. What it begins with stays where it is.
///
/// # Errors
/// It does not begin in time.
pub(crate) fn is_tls(far: &TcpStream) -> io::Result<bool> {
    const HANDSHAKE: u8 = 0x16;
    let mut begins = [0];
    far.set_nonblocking(false)?;
    far.set_read_timeout(Some(LIMIT))?;
    let count = far.peek(&mut begins)?;
    far.set_read_timeout(None)?;
    Ok(count > 0 && begins == [HANDSHAKE])
}

/// Reads all of it, however slowly it comes, or gives up when `limit` is over.
fn read_within(mut far: &TcpStream, mut into: &mut [u8], limit: Duration) -> io::Result<()> {
    let end = Instant::now() + limit;
    far.set_nonblocking(false)?;
    while !into.is_empty() {
        let left = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        let left = left.ok_or(io::ErrorKind::TimedOut)?;
        far.set_read_timeout(Some(left))?;
        match far.read(into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => into = &mut into[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    far.set_read_timeout(None)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn greeting(epoch: u64, secret: Secret) -> Greeting {
        Greeting { epoch, secret }
    }

    #[test]
    fn who_knows_the_secret_is_admitted_and_what_follows_is_left() {
        let (mut near, mut far) = pair();
        greeting(7, [5; 32]).say(&near).unwrap();
        near.write_all(b"rest").unwrap();
        greeting(7, [5; 32]).admit(&far).unwrap();
        let mut rest = [0; 4];
        far.read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"rest");
    }

    #[test]
    fn who_has_another_secret_epoch_or_nothing_is_refused() {
        let mut almost = [5; 32];
        almost[31] ^= 1;
        for (epoch, secret) in [(7, [0; 32]), (7, almost), (8, [5; 32]), (6, [5; 32])] {
            let (near, far) = pair();
            greeting(epoch, secret).say(&near).unwrap();
            let refused = greeting(7, [5; 32]).admit(&far).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        }
        let (near, far) = pair();
        (&near).write_all(&named(7)).unwrap();
        drop(near);
        let refused = greeting(7, [5; 32]).admit(&far).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn who_is_slow_is_given_up() {
        let (near, far) = pair();
        (&near).write_all(b"FSP").unwrap();
        let started = Instant::now();
        let mut into = [0; 48];
        assert!(read_within(&far, &mut into, Duration::from_millis(50)).is_err());
        assert!(started.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn what_a_connection_is_shows_in_its_first_bytes() {
        let whole = named(0x1122_3344_5566_7788);
        for length in 0..NAMED_BYTES {
            assert_eq!(first(&whole[..length]), First::More, "{length}");
        }
        assert_eq!(first(&whole), First::Plain { epoch: 0x1122_3344_5566_7788 });
        for other in [&[0x16, 3, 1][..], b"GET /", b"FSPL\x02\0\0\0", b"FSPM"] {
            assert_eq!(first(other), First::Other);
        }
    }
}
