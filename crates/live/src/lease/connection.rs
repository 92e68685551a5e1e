//! The borrower's end of a lease's connection: what the card's driver says goes to the lender's end,
//! under TLS, for as long as the lease may be used.

use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_link::pump::{Ended, Pump};
use farside_link::tls;
use farside_linux::lock::lock;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::{BootTime, Term, Ticket};

/// How long the lender's host may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// How often the term is looked at while nothing happens: it may end early.
const LOOK: Duration = Duration::from_millis(50);

/// A connection to a borrowed card.
pub(crate) struct Borrowed {
    /// This side of it, which carries bytes and no descriptors.
    pub(crate) stream: UnixStream,
    /// Why it has ended, once it has.
    pub(crate) ended: WhyGone,
}

/// Filled by the thread that carries.
pub(crate) type WhyGone = Arc<Mutex<Option<String>>>;

/// Why a borrowed card cannot be reached.
#[derive(Debug)]
pub(crate) enum NotReached {
    /// There is no such lease, or it is over: trying again is of no use.
    Over(String),
    /// The lender's host does not answer.
    Absent(io::Error),
}

impl From<io::Error> for NotReached {
    fn from(error: io::Error) -> NotReached {
        NotReached::Absent(error)
    }
}

fn over(ticket: &Ticket) -> String {
    let Ticket { device, lender, .. } = ticket;
    format!(
        "the lease of {} is over; borrow it again: farside borrow {device}@{lender}",
        ticket.name()
    )
}

/// Connects to the card that is lent by the lease in `folder`.
pub(crate) fn connect(folder: &Path) -> Result<Borrowed, NotReached> {
    if !folder.exists() {
        // The daemon of this host has removed it.
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        return Err(NotReached::Over(format!("the lease {name} is over; borrow it again")));
    }
    let ticket = Ticket::read(folder).map_err(|error| NotReached::Over(error.to_string()))?;
    let term = Term::open(&folder.join(Term::FILE)).map_err(|_| NotReached::Over(over(&ticket)))?;
    if term.left(BootTime::now()).is_none() {
        return Err(NotReached::Over(over(&ticket)));
    }
    let unusable = |why: &dyn std::fmt::Display| {
        NotReached::Over(format!("the ticket of {} cannot be used: {why}", ticket.name()))
    };
    let config = tls::client(&ticket.credentials(), &ticket.peer).map_err(|e| unusable(&e))?;
    let name = ServerName::try_from(ticket.link.clone()).map_err(|e| unusable(&e))?;
    let client = ClientConnection::new(config, name).map_err(|e| unusable(&e))?;
    let far = TcpStream::connect_timeout(&ticket.address, CONNECT_LIMIT)?;
    let (stream, inside) = UnixStream::pair()?;
    let ended = WhyGone::default();
    let told = Arc::clone(&ended);
    let builder = std::thread::Builder::new().name("farside-lease".into());
    builder.spawn(move || {
        farside_linux::signals::block_for_whole_thread();
        let how = match Pump::new(client, &far, &inside) {
            Ok(pump) => pump.run(|| term.left(BootTime::now()).map(|left| left.min(LOOK))),
            Err(error) => Ended::Io(error),
        };
        let why = match how {
            Ended::Over => over(&ticket),
            other => format!("the connection to {} has ended: {other}", ticket.name()),
        };
        *lock(&told) = Some(why);
        // The other side sees its end only now, and finds out why.
        drop(inside);
    })?;
    Ok(Borrowed { stream, ended })
}
