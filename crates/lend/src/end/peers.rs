//! The ends of other lenders' leases: who may come to this one, and how this one comes to them.
//!
//! The borrower says both, over the link of its lease. Whoever comes shows the certificate that the borrower has
//! named, and can do nothing but read what it is lent. This process has no network of its own: its daemon
//! connects for it, to hosts that it knows and to no others, and hands the connection over.

use std::collections::HashMap;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use farside_linux::lock::lock;
use farside_live::far::{Come, Lasting, Line, PeerAdmission, PeerWay, PeerWays};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::control::{Said, send};
use super::link_name;
use super::secured::Secured;
use super::serve::Lease;
use crate::tls::{self, Credentials};

/// How long the daemon may take to connect: longer than it tries.
const REACH_LIMIT: Duration = Duration::from_secs(6);
/// How long both ends may take to agree on TLS.
const AGREE_LIMIT: Duration = Duration::from_secs(5);

/// Those who may come, by the numbers that they say.
#[derive(Default)]
pub(super) struct Admitted(Mutex<HashMap<u64, Guest>>);

#[derive(Clone)]
struct Guest {
    certificate: Vec<u8>,
    come: Arc<Come>,
}

impl Admitted {
    /// Whether anybody may come who shows this.
    pub(super) fn knows(&self, certificate: &[u8]) -> bool {
        lock(&self.0).values().any(|guest| guest.certificate == certificate)
    }

    /// Serves whoever shows this and says this, if it may come, until it goes.
    ///
    /// # Errors
    /// It may not.
    pub(super) fn come(&self, session: u64, certificate: &[u8], line: Line) -> io::Result<()> {
        let guest = lock(&self.0).get(&session).cloned();
        let guest = guest.filter(|guest| guest.certificate == certificate);
        let not_lent = || io::Error::new(io::ErrorKind::PermissionDenied, "nothing is lent to it");
        (guest.ok_or_else(not_lent)?.come)(line);
        Ok(())
    }
}

type Connected = io::Result<TcpStream>;

/// Connections that the daemon makes.
#[derive(Default)]
pub(super) struct Reaching {
    daemon: Mutex<Option<OwnedFd>>,
    asked: Mutex<Asked>,
}

#[derive(Default)]
struct Asked {
    last: u64,
    waiting: HashMap<u64, SyncSender<Connected>>,
}

impl Reaching {
    /// Another daemon is there, or none.
    pub(super) fn is_with(&self, daemon: Option<&OwnedFd>) {
        *lock(&self.daemon) = daemon.and_then(|daemon| daemon.try_clone().ok());
        // What the former one was asked it does not answer.
        lock(&self.asked).waiting.clear();
    }

    /// The daemon has answered.
    pub(super) fn reached(&self, number: u64, connected: Connected) {
        if let Some(waits) = lock(&self.asked).waiting.remove(&number) {
            // Who has given up has taken it out of there.
            let _ = waits.try_send(connected);
        }
    }

    /// Has the daemon connect to a host.
    fn reach(&self, host: &str) -> Connected {
        let (number, answer) = self.ask();
        let said = Said::Reach { number, host: host.to_owned() };
        let sent = match &*lock(&self.daemon) {
            Some(daemon) => send(daemon.as_fd(), &said, None),
            None => Err(io::Error::other("the lender's daemon is not there to connect")),
        };
        let connected = sent.and_then(|()| {
            let late = |_| io::Error::new(io::ErrorKind::TimedOut, "its daemon does not connect");
            answer.recv_timeout(REACH_LIMIT).map_err(late)?
        });
        lock(&self.asked).waiting.remove(&number);
        connected
    }

    fn ask(&self) -> (u64, Receiver<Connected>) {
        let mut asked = lock(&self.asked);
        asked.last += 1;
        let (waits, answer) = sync_channel(1);
        let number = asked.last;
        asked.waiting.insert(number, waits);
        (number, answer)
    }
}

/// The ways of one lease's end.
pub(super) struct Ways(pub(super) Arc<Lease>);

impl PeerWays for Ways {
    fn reach(&self, way: &PeerWay) -> io::Result<Line> {
        let lease = Arc::clone(&self.0);
        let far = lease.reaching.reach(&way.place.host)?;
        let tls = client(&lease.own, way)?;
        let stream = Secured::agree(far, tls, AGREE_LIMIT)?;
        let lasts = move || lease.left().is_some();
        Line::new(Box::new(Lasting { stream: Box::new(stream), lasts }))
    }

    fn admit(&self, admission: PeerAdmission, come: Come) -> Box<dyn Send> {
        let PeerAdmission { session, certificate } = admission;
        let guest = Guest { certificate, come: Arc::new(come) };
        lock(&self.0.admitted.0).insert(session, guest);
        Box::new(Admission { lease: Arc::downgrade(&self.0), session })
    }
}

fn client(own: &Credentials, way: &PeerWay) -> io::Result<ClientConnection> {
    let config = tls::client(own, &way.place.certificate).map_err(io::Error::other)?;
    let name = ServerName::try_from(link_name(way.place.epoch)).map_err(io::Error::other)?;
    ClientConnection::new(config, name).map_err(io::Error::other)
}

/// Nobody may come by it any more once it is dropped.
struct Admission {
    lease: Weak<Lease>,
    session: u64,
}

impl Drop for Admission {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.upgrade() {
            lock(&lease.admitted.0).remove(&self.session);
        }
    }
}
