//! The program's way to a borrowed card: to the borrower's end of its lease, a process of this host
//! that speaks to the lender's end for as long as the lease may be used; or, where data goes without TLS, by a
//! connection that this process has begun.

use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farside_link::{Config, Lease};
use farside_vfio_user::unix::Plain;

use super::here::receive;
use super::{BootTime, Term, Ticket};
use crate::far::{Lasting, PeerPlace};
use crate::ring_card::CardStream;

/// A connection to a borrowed card.
pub(crate) struct Borrowed {
    /// The lease, for people.
    pub(crate) name: String,
    /// What both ends of the link have to agree on, and how this one is to send.
    pub(crate) link: Config,
    /// Where other lenders' ends find the lender's, if they can.
    pub(crate) place: Option<PeerPlace>,
    /// This side of it.
    pub(crate) stream: Box<dyn CardStream>,
    /// Says why it has ended, once it has.
    pub(crate) why_gone: WhyGone,
    /// Says how soon the lender wants the card back, if it does.
    pub(crate) wanted_back: WantedBack,
}

/// Given what the link says of that, if there is one.
pub(crate) type WhyGone = Box<dyn Fn(Option<&str>) -> String + Send + Sync>;
pub(crate) type WantedBack = Box<dyn Fn() -> Option<Duration> + Send + Sync>;

/// Why a borrowed card cannot be reached.
#[derive(Debug)]
pub(crate) enum NotReached {
    /// There is no such lease, or it is over: trying again is of no use.
    Over(String),
    /// Nobody answers.
    Absent(io::Error),
    /// All of its functions are in use.
    Busy,
}

fn over(ticket: &Ticket) -> String {
    let Ticket { device, lender, .. } = ticket;
    format!(
        "the lease of {} is over; borrow it again: farside borrow {device}@{lender}",
        ticket.name()
    )
}

/// The lease in a folder, if it may still be used.
pub(super) fn open(folder: &Path) -> Result<(Ticket, Arc<Term>), NotReached> {
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
    Ok((ticket, Arc::new(term)))
}

/// What is known of a lease while it is used.
pub(super) fn words(ticket: Ticket, term: Arc<Term>) -> (WhyGone, WantedBack) {
    let seen = Arc::clone(&term);
    let wanted_back = Box::new(move || {
        let by = seen.wanted_back_by()?;
        Some(Duration::from_nanos(by.0.saturating_sub(BootTime::now().0)))
    });
    let why_gone = Box::new(move |link: Option<&str>| match (term.left(BootTime::now()), link) {
        (None, _) => over(&ticket),
        (Some(_), None) => format!("the connection to {} is lost", ticket.name()),
        (Some(_), Some(why)) => format!("the connection to {} is lost: {why}", ticket.name()),
    });
    (why_gone, wanted_back)
}

/// Connects to the card that is lent by the lease in `folder`.
pub(crate) fn connect(folder: &Path) -> Result<Borrowed, NotReached> {
    let (ticket, term) = open(folder)?;
    let link = Config::new(Lease { device: ticket.device.clone(), epoch: ticket.epoch });
    let (stream, link): (Box<dyn CardStream>, _) = if folder.join(Ticket::PLAIN).exists() {
        (straight(&folder.join(Ticket::PLAIN), &ticket, &term)?, link.straight())
    } else {
        (Box::new(Plain::new(socket(&folder.join(Ticket::LINK), &ticket)?)), link)
    };
    let (name, place) = (ticket.name(), ticket.place());
    let (why_gone, wanted_back) = words(ticket, term);
    Ok(Borrowed { name, link, place, stream, why_gone, wanted_back })
}

/// A connection to the borrower's end of a lease.
fn socket(path: &Path, ticket: &Ticket) -> Result<UnixStream, NotReached> {
    UnixStream::connect(path).map_err(|error| {
        if error.kind() != io::ErrorKind::ConnectionRefused {
            return NotReached::Absent(error);
        }
        let (name, Ticket { device, lender, .. }) = (ticket.name(), ticket);
        NotReached::Over(format!(
            "the borrower's end of the lease of {name} is gone; borrow it again: farside borrow \
             {device}@{lender}"
        ))
    })
}

/// A connection straight to the lender's end, which the borrower's end has begun: there is no key that a
/// program must not have. It carries nothing once the lease may not be used any more.
fn straight(
    path: &Path,
    ticket: &Ticket,
    term: &Arc<Term>,
) -> Result<Box<dyn CardStream>, NotReached> {
    let handed = receive(socket(path, ticket)?).map_err(NotReached::Absent)?;
    let stream = Plain::tcp(TcpStream::from(handed)).map_err(NotReached::Absent)?;
    let term = Arc::clone(term);
    let lasts = move || term.left(BootTime::now()).is_some();
    Ok(Box::new(Lasting { stream: Box::new(stream), lasts }))
}
