//! What the process of a lender's end does.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use farside_link::line::limit_unsent;
use farside_link::tls::{self, Credentials};
use farside_live::CardPlace;
use farside_live::far::{FarEnd, FarEndError};
use farside_live::ring_card::{CardStream, connect};
use farside_types::CardId;
use farside_vfio_user::unix::Plain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketFlags, accept_with};
use rustls::{ServerConfig, ServerConnection};

use super::control::{self, Begin, Hello, Kind, Order};
use super::lasting::Lasting;
use super::plain::Greeting;
use super::secured::Secured;
use super::{foreign, here, sandbox};
use crate::steps::{self, Step};

/// Connections of one lease at a time, at most: a card has no more functions.
const CONNECTIONS_MAX: u32 = farside_softcard::serve::FUNCTIONS_MAX as u32;
/// Connections that have not shown whose they are, at a time.
const STRANGERS_MAX: u32 = 16;
/// How long one may take for that.
const HELLO_LIMIT: Duration = Duration::from_secs(5);
/// The card may be cleaning up after the connection before.
const DEVICE_PATIENCE: Duration = Duration::from_secs(2);
/// A daemon that has died has a successor by then, or the lease is not renewed.
const ORPHAN_LOOK: Duration = Duration::from_secs(1);

/// What all connections of the lease share.
struct Lease {
    name: String,
    epoch: u64,
    folder: PathBuf,
    device: CardPlace,
    /// The device, if it is no card.
    foreign: Option<foreign::Lender>,
    config: Arc<ServerConfig>,
    /// By what the borrower's end is known without TLS.
    plain: Option<Greeting>,
    /// In nanoseconds of CLOCK_BOOTTIME.
    until: AtomicU64,
    /// Connections of which it is not known whose they are.
    strangers: Places,
    /// Programs that are served.
    open: Places,
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
        Some((Order::Begin(begin), None)) => Arc::new(Lease::of(*begin)?),
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

/// A daemon that comes is told which process this is, and whether its lease goes without TLS.
fn tell_who(daemon: &OwnedFd, lease: &Lease) {
    let kind = if lease.foreign.is_some() { Kind::Foreign } else { Kind::Card };
    let hello = Hello { pid: std::process::id(), plain: lease.plain.is_some(), kind };
    // One that has gone again is noticed later.
    let _ = control::send(daemon.as_fd(), &hello, None);
}

impl Lease {
    fn of(begin: Begin) -> io::Result<Lease> {
        let Begin { name, epoch, device, kind, path, certificate, key, peer, plain, until } = begin;
        let own = Credentials { certificate, key };
        let config = tls::server(&own, &peer).map_err(io::Error::other)?;
        let until = AtomicU64::new(until);
        let [strangers, open] = [STRANGERS_MAX, CONNECTIONS_MAX].map(Places::new);
        let foreign = (kind == Kind::Foreign)
            .then(|| foreign::Lender::new(name.clone(), epoch, device, path.clone()));
        let device = CardPlace::Socket(path.clone());
        let folder = path;
        Ok(Lease { name, epoch, folder, device, foreign, config, plain, until, strangers, open })
    }

    fn left(&self) -> Option<Duration> {
        control::left(self.until.load(Ordering::SeqCst))
    }

    fn obey(self: &Arc<Self>, order: Order, beside: Option<OwnedFd>) -> io::Result<()> {
        match (order, beside) {
            (Order::Until(until), None) => self.until.store(until, Ordering::SeqCst),
            (Order::Connection, Some(connection)) => match &self.foreign {
                Some(device) => {
                    let lease = Arc::clone(self);
                    device.connect(connection.into(), move |far| lease.admit(far))?;
                }
                None => self.connect(connection.into())?,
            },
            (Order::Programs, Some(listener)) => match &self.foreign {
                Some(device) => device.serve_programs(listener.into())?,
                None => self.serve_programs(listener)?,
            },
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
    fn connect(self: &Arc<Self>, far: TcpStream) -> io::Result<()> {
        if !self.strangers.enter() {
            tracing::warn!(
                lease = self.name,
                "a connection is refused: too many do not say who they are"
            );
            return Ok(());
        }
        let lease = Arc::clone(self);
        let carry = move || {
            let admitted = lease.let_in(far);
            lease.strangers.leave();
            let carried = admitted.map_err(EndError::from).and_then(|stream| lease.carry(stream));
            match carried {
                Ok(()) => tracing::info!(lease = lease.name, "a connection has ended"),
                Err(error) => tracing::warn!(lease = lease.name, %error, "no connection"),
            }
        };
        std::thread::Builder::new().name("farside-link".into()).spawn(carry)?;
        Ok(())
    }

    /// Begins with a connection: without TLS, if that is how it goes, once it is the borrower's.
    fn admit(&self, far: &TcpStream) -> io::Result<Option<rustls::Connection>> {
        if let Some(greeting) = &self.plain {
            greeting.admit(far)?;
            return Ok(None);
        }
        let tls = ServerConnection::new(Arc::clone(&self.config)).map_err(io::Error::other)?;
        Ok(Some(tls.into()))
    }

    /// Lets the borrower's end in, and nobody else. A stranger costs nothing of the card.
    fn let_in(&self, far: TcpStream) -> io::Result<Box<dyn CardStream>> {
        if let Some(tls) = self.admit(&far)? {
            return Ok(Box::new(Secured::agree(far, tls, HELLO_LIMIT)?));
        }
        limit_unsent(&far)?;
        Ok(Box::new(Plain::tcp(far)?))
    }

    /// Serves a program until it hangs up, or the process ends with its lease.
    fn carry(self: &Arc<Self>, stream: Box<dyn CardStream>) -> Result<(), EndError> {
        if !self.open.enter() {
            return Err(io::Error::other("the lease has as many as the card has functions").into());
        }
        steps::at(Step::ConnectionTaken);
        let lease = Arc::clone(self);
        let stream = Box::new(Lasting { stream, lasts: move || lease.left().is_some() });
        let served = connect(CardId(0), &self.device, DEVICE_PATIENCE)
            .map_err(EndError::from)
            .and_then(|(card, identity)| Ok(FarEnd::new(stream, card, &identity)?.serve()?));
        self.open.leave();
        served
    }
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
    Card(#[from] farside_live::LiveError),
    #[error(transparent)]
    End(#[from] FarEndError),
    #[error(transparent)]
    Io(#[from] io::Error),
}
