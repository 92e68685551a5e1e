//! What the process of a lender's end does.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use farside_link::{Config, Lease as LinkLease};
use farside_live::far::{
    Came, FarEnd, FarEndError, FarEndReport, Farewell, Lasting, Line, Lines, Sessions, greeted,
    turn_away,
};
use farside_live::ring_card::{CardStream, connect};
use farside_live::{CardPlace, LiveError};
use farside_types::CardId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketFlags, accept_with};
use rustls::{ServerConfig, ServerConnection};

use super::control::{self, Begin, Hello, Kind, Order, Said};
use super::peers::{Admitted, Reaching, Ways};
use super::plain::Greeting;
use super::secured::Secured;
use super::tally::{Count, Counted, OfLink, Refused, Tally};
use super::{foreign, here, plain, sandbox, secured};
use crate::steps::{self, Step};
use crate::tls::{self, Credentials};

/// Connections that have not shown whose they are, at a time.
pub(super) const STRANGERS_MAX: u32 = 16;
/// How long one may take for that.
const HELLO_LIMIT: Duration = Duration::from_secs(5);
/// The card may be cleaning up after the connection before.
pub(super) const DEVICE_PATIENCE: Duration = Duration::from_secs(2);
/// A daemon that has died has a successor by then, or the lease is not renewed.
const ORPHAN_LOOK: Duration = Duration::from_secs(1);

/// What all connections of the lease share.
pub(super) struct Lease {
    name: String,
    epoch: u64,
    /// The device's name.
    device: String,
    folder: PathBuf,
    place: CardPlace,
    /// The device, if it is no card.
    foreign: Option<foreign::Lender>,
    config: Arc<ServerConfig>,
    /// What this end shows, and what its borrower's does.
    pub(super) own: Credentials,
    borrower: Vec<u8>,
    /// Ends of other lenders that may come, and the way to them.
    pub(super) admitted: Arc<Admitted>,
    pub(super) reaching: Reaching,
    /// By what the borrower's end is known without TLS.
    plain: Option<Greeting>,
    /// In nanoseconds of CLOCK_BOOTTIME.
    until: AtomicU64,
    /// Connections of which it is not known whose they are.
    strangers: Places,
    /// Programs that are served.
    sessions: Sessions,
    tally: Arc<Tally>,
}

/// Serves one lease. Standard input is the socket on which the daemon connects.
pub fn run() -> ExitCode {
    match serve(io::stdin()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the lender's end of a lease fails");
            ExitCode::FAILURE
        }
    }
}

fn serve(listener: impl AsFd) -> io::Result<()> {
    let first = accept(&listener)?;
    let lease = match control::receive(&first)? {
        Some((Order::Begin(begin), Some(tally))) => {
            let tally = Tally::of(tally).map_err(io::Error::other)?;
            Arc::new(Lease::of(*begin, tally)?)
        }
        _ => return Err(io::Error::other("the daemon does not say for which lease this is")),
    };
    steps::begin();
    sandbox::of_lender()?;
    tell_who(&first, &lease);
    steps::at(Step::EndReady);
    let mut daemon = Some(first);
    while let Some(left) = lease.left() {
        let mut polled = vec![PollFd::new(&listener, PollFlags::IN)];
        polled.extend(daemon.as_ref().map(|daemon| PollFd::new(daemon, PollFlags::IN)));
        let pause = Timespec::try_from(left.min(ORPHAN_LOOK)).ok();
        // Every outcome means: look.
        let _ = poll(&mut polled, pause.as_ref());
        let calls = !polled[0].revents().is_empty();
        let tells = polled.get(1).is_some_and(|polled| !polled.revents().is_empty());
        if calls {
            // The former daemon is gone, or is about to be.
            let successor = accept(&listener)?;
            tell_who(&successor, &lease);
            daemon = Some(successor);
        } else if let Some(told) = daemon.as_ref().filter(|_| tells) {
            match control::receive(told) {
                Ok(Some((order, beside))) => lease.obey(order, beside)?,
                // It has ended, which ends no lease; another may come.
                Ok(None) => daemon = None,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => daemon = None,
                Err(error) => return Err(error),
            }
            if daemon.is_none() {
                lease.reaching.is_with(None);
            }
        }
    }
    tracing::info!(lease = lease.name, "a lease has ended");
    // Its connections end with this process. What was handed on ends with the card's, which the daemon may
    // not be there to tell.
    if lease.foreign.is_none() {
        here::take_back(&lease.folder, lease.epoch);
    }
    Ok(())
}

fn accept(listener: impl AsFd) -> io::Result<OwnedFd> {
    Ok(accept_with(listener, SocketFlags::CLOEXEC)?)
}

/// A daemon that comes is told which process this is, and whether its lease goes without TLS, and gets what is
/// counted.
fn tell_who(daemon: &OwnedFd, lease: &Lease) {
    let kind = if lease.foreign.is_some() { Kind::Foreign } else { Kind::Card };
    let hello = Hello { pid: std::process::id(), plain: lease.plain.is_some(), kind };
    // One that has gone again is noticed later.
    let _ = control::send(daemon.as_fd(), &Said::Hello(hello), Some(lease.tally.file()));
    lease.reaching.is_with(Some(daemon));
}

impl Lease {
    pub(super) fn of(begin: Begin, tally: Tally) -> io::Result<Lease> {
        let Begin { name, epoch, device, kind, path, certificate, key, peer, plain, until } = begin;
        let own = Credentials { certificate, key };
        let admitted = Arc::new(Admitted::default());
        let (guests, borrower) = (Arc::clone(&admitted), peer.clone());
        let is_known = move |shown: &[u8]| shown == borrower || guests.knows(shown);
        let config = tls::server_for(&own, Arc::new(is_known)).map_err(io::Error::other)?;
        let until = AtomicU64::new(until);
        let tally = Arc::new(tally);
        let foreign = (kind == Kind::Foreign).then(|| {
            let tally = Arc::clone(&tally);
            foreign::Lender::new(name.clone(), epoch, device.clone(), path.clone(), tally)
        });
        let place = CardPlace::Socket(path.clone());
        Ok(Lease {
            name,
            epoch,
            device,
            folder: path,
            place,
            foreign,
            config,
            own,
            borrower: peer,
            admitted,
            reaching: Reaching::default(),
            plain,
            until,
            strangers: Places::new(STRANGERS_MAX),
            sessions: Sessions::default(),
            tally,
        })
    }

    pub(super) fn left(&self) -> Option<Duration> {
        control::left(self.until.load(Ordering::SeqCst))
    }

    pub(super) fn obey(self: &Arc<Self>, order: Order, beside: Option<OwnedFd>) -> io::Result<()> {
        match (order, beside) {
            (Order::Until(until), None) => self.until.store(until, Ordering::SeqCst),
            (Order::Connection, Some(connection)) => self.connect(connection.into())?,
            (Order::Programs, Some(listener)) => match &self.foreign {
                Some(device) => device.serve_programs(listener.into())?,
                None => self.serve_programs(listener)?,
            },
            (Order::Reached { number, why: None }, Some(far)) => {
                self.reaching.reached(number, Ok(far.into()));
            }
            (Order::Reached { number, why: Some(why) }, None) => {
                self.reaching.reached(number, Err(io::Error::other(why)));
            }
            _ => return Err(io::Error::other("the daemon gives an order that makes no sense")),
        }
        Ok(())
    }

    /// Hands the card's functions on to programs of this host, in a thread of its own.
    fn serve_programs(self: &Arc<Self>, listener: OwnedFd) -> io::Result<()> {
        let lease = Arc::clone(self);
        let serve = move || here::serve(&lease.folder, lease.epoch, &listener.into());
        std::thread::Builder::new().name("farside-here".into()).spawn(serve)?;
        Ok(())
    }

    /// Carries what comes over a connection to the device, in a thread of its own.
    pub(super) fn connect(self: &Arc<Self>, far: TcpStream) -> io::Result<()> {
        match &self.foreign {
            Some(device) => {
                let lease = Arc::clone(self);
                device.connect(far, move |far| lease.admit(far))
            }
            None => self.connect_card(far),
        }
    }

    fn connect_card(self: &Arc<Self>, far: TcpStream) -> io::Result<()> {
        if !self.strangers.enter() {
            self.refused(Refused::Stranger);
            tracing::warn!(
                lease = self.name,
                "a connection is refused: too many do not say who they are"
            );
            return Ok(());
        }
        let lease = Arc::clone(self);
        let carry = move || {
            let came = lease.let_in(far).inspect_err(|_| lease.refused(Refused::Stranger));
            let placed = came.and_then(|came| match came.guest {
                None => lease.place(came.session, came.line),
                Some(guest) => lease.serve_guest(&guest, came.session, came.line),
            });
            lease.strangers.leave();
            let carried = match placed {
                Ok(Some(program)) => lease.carry(program).map(Some),
                Ok(None) => Ok(None),
                Err(error) => Err(error.into()),
            };
            match carried {
                Ok(Some(report)) => {
                    tracing::info!(lease = lease.name, ?report, "a program has gone")
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(lease = lease.name, %error, "no connection"),
            }
        };
        std::thread::Builder::new().name("farside-link".into()).spawn(carry)?;
        Ok(())
    }

    /// Serves another lender's end, in a thread of its own.
    fn serve_guest(
        self: &Arc<Self>,
        guest: &[u8],
        session: u64,
        line: Line,
    ) -> io::Result<Option<Program>> {
        let (lease, guest) = (Arc::clone(self), guest.to_vec());
        let serve = move || {
            if let Err(error) = lease.admitted.come(session, &guest, line) {
                lease.refused(Refused::Stranger);
                tracing::warn!(lease = lease.name, %error, "another lender's end is refused");
            }
        };
        std::thread::Builder::new().name("farside-guest".into()).spawn(serve)?;
        Ok(None)
    }

    /// Begins with a connection: without TLS, if that is how it goes, once it is the borrower's.
    fn admit(&self, far: &TcpStream) -> io::Result<Option<rustls::Connection>> {
        if let Some(greeting) = &self.plain {
            // Other lenders' ends come by TLS in any case: nothing that they could say instead is known of them.
            if !plain::is_tls(far)? {
                greeting.admit(far)?;
                return Ok(None);
            }
        }
        let tls = ServerConnection::new(Arc::clone(&self.config)).map_err(io::Error::other)?;
        Ok(Some(tls.into()))
    }

    /// Lets the borrower's end in, those of other lenders that it has named, and nobody else, and hears for
    /// which program it comes. A stranger costs nothing of the card.
    fn let_in(self: &Arc<Self>, far: TcpStream) -> io::Result<Visitor> {
        let mut guest = None;
        let stream = match self.admit(&far)? {
            Some(tls) => {
                let secured = Secured::agree(far, tls, HELLO_LIMIT)?;
                let shown = secured.shown();
                guest = (shown != self.borrower).then(|| shown.to_vec());
                Box::new(secured)
            }
            None => secured::stream(far, None, HELLO_LIMIT)?,
        };
        let lease = Arc::clone(self);
        let stream: Box<dyn CardStream> =
            Box::new(Lasting { stream, lasts: move || lease.left().is_some() });
        let (session, line) = greeted(stream, self.link(), HELLO_LIMIT)?;
        Ok(Visitor { guest, session, line })
    }

    fn refused(&self, what: Refused) {
        self.tally.add(Count::Refused(what), 1);
    }

    /// What both ends of a link have to agree on, and how this one is to send.
    fn link(&self) -> Config {
        let link = Config::new(LinkLease { device: self.device.clone(), epoch: self.epoch });
        if self.plain.is_some() { link.straight() } else { link }
    }

    /// The program that a connection is the first of; none if who serves it has been given it.
    fn place(&self, session: u64, line: Line) -> io::Result<Option<Program>> {
        match self.sessions.came(session, line)? {
            Came::First(line, lines) => Ok(Some(Program { session, line, lines })),
            Came::Again => Ok(None),
            Came::TooMany(line) => {
                self.refused(Refused::Program);
                turn_away(self.link(), line, Farewell::Busy);
                let most = "the lease has as many programs as the card has functions";
                Err(io::Error::other(most))
            }
        }
    }

    /// Serves a program until it hangs up, or the process ends with its lease.
    fn carry(self: &Arc<Self>, program: Program) -> Result<FarEndReport, EndError> {
        let Program { session, line, lines } = program;
        self.tally.add(Count::Programs, 1);
        steps::at(Step::ConnectionTaken);
        let connected = connect(CardId(0), &self.place, DEVICE_PATIENCE)
            .map_err(EndError::from)
            .and_then(|(card, identity)| Ok(FarEnd::new(card, &identity)?))
            .map(|end| end.with_peers(Arc::new(Ways(Arc::clone(self)))));
        let mut end = match connected {
            Ok(end) => end,
            Err(error) => {
                self.sessions.left(session);
                // It may have come again meanwhile; the last connection is the one that it listens to.
                let mut came: Vec<Line> = std::iter::once(line).collect();
                came.extend(std::iter::from_fn(|| lines.wait()));
                for line in came.into_iter().rev() {
                    turn_away(self.link(), line, error.farewell());
                }
                return Err(error);
            }
        };
        let mut counted = OfLink::new(Arc::clone(&self.tally));
        end.watched(move |report| counted.is_at(Counted::of_card(report)));
        let served = end.serve(self.link(), line, &lines);
        self.sessions.left(session);
        if let Err(FarEndError::Refused(why)) = &served {
            self.refused(Refused::of_card(*why));
        }
        served.map(|()| end.report()).map_err(EndError::from)
    }
}

/// Somebody who was let in.
struct Visitor {
    /// The certificate of another lender's end; none is the borrower's.
    guest: Option<Vec<u8>>,
    session: u64,
    line: Line,
}

/// A program that has come.
struct Program {
    session: u64,
    line: Line,
    /// Its later connections.
    lines: Lines,
}

/// Some may be somewhere at a time.
struct Places {
    taken: AtomicU32,
    most: u32,
}

impl Places {
    fn new(most: u32) -> Places {
        Places { taken: AtomicU32::new(0), most }
    }

    /// `false`: there is no room.
    fn enter(&self) -> bool {
        let more = |taken| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    fn leave(&self) {
        self.taken.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
enum EndError {
    #[error(transparent)]
    Card(#[from] LiveError),
    #[error(transparent)]
    End(#[from] FarEndError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl EndError {
    /// What the program is told.
    fn farewell(&self) -> Farewell {
        match self {
            EndError::Card(LiveError::CardsBusy { .. }) => Farewell::Busy,
            _ => Farewell::NoCard,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;
    use std::time::Instant;

    use super::*;

    fn lease(until: u64) -> Arc<Lease> {
        let made = rcgen::generate_simple_self_signed(vec!["lease".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.der().to_vec(), made.signing_key.serialize_der());
        let begin = Begin {
            name: "lease".to_owned(),
            epoch: 1,
            device: "card0".to_owned(),
            kind: Kind::Card,
            path: PathBuf::from("/nowhere"),
            peer: certificate.clone(),
            certificate,
            key,
            plain: None,
            until,
        };
        Arc::new(Lease::of(begin, Tally::unseen()).unwrap())
    }

    #[test]
    fn whoever_shows_no_certificate_takes_no_borrowers_place() {
        let lease = lease(u64::MAX);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut strangers = Vec::new();
        for _ in 0..STRANGERS_MAX + 5 {
            strangers.push(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            lease.connect(listener.accept().unwrap().0).unwrap();
        }
        assert_eq!(lease.strangers.taken.load(Ordering::SeqCst), STRANGERS_MAX);
        // One too many is closed at once, and the others are when they hang up.
        assert_eq!(strangers.pop().unwrap().read(&mut [0; 1]).unwrap(), 0);
        drop(strangers);
        let end = Instant::now() + Duration::from_secs(20);
        while lease.strangers.taken.load(Ordering::SeqCst) > 0 {
            assert!(Instant::now() < end, "a stranger is not let go");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
