//! A lease that this host has: its folder, by which programs use it.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::tls::Credentials;
use farside_lease::{BootTime, LeaseId};
use farside_linux::lock::lock;
use farside_live::lease::{Term, Ticket};
use tonic::Status;

use super::super::lending::Lending;
use super::super::machine::{BorrowersEnd, Machine};
use super::super::users::User;
use super::{Events, Past, told};
use crate::LendError;
use crate::end::plain::Greeting;
use crate::end::{Counted, Kind, NearBegin};
use crate::home::Home;
use crate::proto::borrow_for_event::Event as Told;
use crate::proto::{self, Held};
use crate::steps::{Step, at};
use crate::words;

/// See the module.
pub(super) struct HeldLease {
    pub(super) lender: String,
    pub(super) id: LeaseId,
    pub(super) user: User,
    folder: PathBuf,
    kind: Kind,
    plain: bool,
    term: Term,
    /// The borrower's end of the link; none once the lease has ended, or where there is no link, because
    /// the lender is this host.
    end: Mutex<Option<Box<dyn BorrowersEnd>>>,
    /// Where it is noted what that has counted.
    past: Arc<Past>,
    /// Whoever borrowed it.
    events: Events,
}

/// What a lease is made of.
pub(super) struct Taking<'a> {
    pub(super) machine: &'a dyn Machine,
    pub(super) home: &'a Home,
    pub(super) lender: &'a str,
    pub(super) address: SocketAddr,
    pub(super) user: &'a User,
    /// What this end shows.
    pub(super) own: &'a Credentials,
    pub(super) until: BootTime,
    pub(super) events: &'a Events,
    pub(super) past: &'a Arc<Past>,
    /// The lender's side, if it is this host's.
    pub(super) here: Option<&'a Lending>,
    /// The lender may leave encryption out: both ends are in a network that the configuration names.
    pub(super) may_be_plain: bool,
}

/// On this host's clock.
fn live(time: BootTime) -> farside_live::lease::BootTime {
    farside_live::lease::BootTime(time.0)
}

impl HeldLease {
    /// Takes what was granted: makes the folder, and starts the borrower's end.
    pub(super) fn take(
        taking: &Taking<'_>,
        id: LeaseId,
        lease: &proto::Lease,
    ) -> Result<HeldLease, Status> {
        let lender = taking.lender.to_owned();
        let device = id.device.to_string();
        let (epoch, certificate) = (id.epoch.0, lease.end.clone());
        let ticket = Ticket { lender: lender.clone(), device, epoch, certificate };
        let name = format!("{}@{lender}-{}", ticket.device, ticket.epoch);
        let kind = match lease.kind() {
            proto::lease::Kind::Card => Kind::Card,
            proto::lease::Kind::Foreign => Kind::Foreign,
        };
        let begin = NearBegin {
            folder: taking.home.leases().join(name),
            device: ticket.device.clone(),
            kind,
            epoch: ticket.epoch,
            address: taking.address,
            link: lease.link.clone(),
            peer: lease.end.clone(),
            certificate: taking.own.certificate.clone(),
            key: taking.own.key.clone(),
            plain: greeting(taking, &id, lease)?,
        };
        let plain = begin.plain.is_some();
        let serve = || match taking.here {
            Some(lending) => serve_here(lending, &id, &begin).map(|()| None),
            None => taking.machine.start_near_end(&begin).map(Some),
        };
        let made = make_folder(&begin.folder, &ticket, taking.user, taking.until, serve);
        let (term, end) = made
            .map_err(|error| Status::internal(LendError::file(&begin.folder, error).to_string()))?;
        at(Step::NearEndStarted);
        let (user, events) = (taking.user.clone(), taking.events.clone());
        let (end, past) = (Mutex::new(end), Arc::clone(taking.past));
        let folder = begin.folder;
        Ok(HeldLease { lender, id, user, folder, kind, plain, term, end, past, events })
    }

    /// For people and programs.
    pub(super) fn described(&self) -> Held {
        let left = self.term.left(farside_live::lease::BootTime::now()).unwrap_or_default();
        Held {
            lender: self.lender.clone(),
            device: self.id.device.to_string(),
            epoch: self.id.epoch.0,
            user: self.user.name().to_owned(),
            pid: self.user.pid,
            left_ns: left.as_nanos() as u64,
            place: match self.kind {
                Kind::Card => format!("lease:{}", self.folder.display()),
                Kind::Foreign => self.folder.join(Ticket::DEVICE).display().to_string(),
            },
            plain: self.plain,
            refused: words::refused_accesses(&self.counted()),
        }
    }

    /// What its end has counted, until the lease ends: then it is in the past.
    pub(super) fn counted(&self) -> Counted {
        lock(&self.end).as_ref().map(|end| end.counted()).unwrap_or_default()
    }

    /// Whether a name is this lease's: DEVICE, or DEVICE@HOST.
    pub(super) fn is_named(&self, name: &str) -> bool {
        match name.split_once('@') {
            Some((device, host)) => self.id.device.as_str() == device && self.lender == host,
            None => self.id.device.as_str() == name,
        }
    }

    /// It may be used until then.
    pub(super) fn extend(&self, until: BootTime) {
        self.term.set_usable_until(live(until));
    }

    /// The lender wants it back by then.
    pub(super) fn recall(&self, now: BootTime, deadline: BootTime) {
        self.term.set_wanted_back_by(live(deadline));
        let within_ns = now.until(deadline).as_nanos() as u64;
        let (device, epoch) = (self.id.device.to_string(), self.id.epoch.0);
        self.tell(Told::Recalled(proto::Recalled { device, epoch, within_ns }));
    }

    /// Programs stop: the page says so, and the borrower's end is gone when this returns.
    pub(super) fn end(&self, why: Option<&str>) {
        self.term.end();
        let end = lock(&self.end).take();
        if let Some(end) = end {
            self.note(end.end());
        }
        let _ = std::fs::remove_dir_all(&self.folder);
        if let Some(why) = why {
            let (device, epoch) = (self.id.device.to_string(), self.id.epoch.0);
            self.tell(Told::Ended(proto::Ended { device, epoch, why: why.to_owned() }));
        }
    }

    /// Its end is gone, and has counted this.
    fn note(&self, counted: Counted) {
        self.past.note(counted);
        if let Some(refused) = counted.refused_words() {
            let (lease, lender) = (&self.id, &self.lender);
            tracing::warn!(%lease, lender, refused, "accesses of a lender were refused");
        }
    }

    /// Whoever does not listen is told less.
    fn tell(&self, event: Told) {
        let _ = self.events.try_send(Ok(told(event)));
    }
}

/// What the borrower's end says first in a lease without TLS, if it is one.
fn greeting(
    taking: &Taking<'_>,
    id: &LeaseId,
    lease: &proto::Lease,
) -> Result<Option<Greeting>, Status> {
    if lease.plain_secret.is_empty() {
        return Ok(None);
    }
    let wrong = |why: &str| Status::failed_precondition(format!("host {}: {why}", taking.lender));
    if !taking.may_be_plain {
        return Err(wrong(
            "it leaves encryption out, over a network that this host's configuration does not name",
        ));
    }
    let secret = lease.plain_secret.as_slice().try_into();
    let secret = secret.map_err(|_| wrong("the secret of its lease has not 32 bytes"))?;
    Ok(Some(Greeting { epoch: id.epoch.0, secret }))
}

/// Ends what a daemon that was killed has left: nobody renews it, and whoever borrowed has been told.
pub(in crate::daemon) fn end_former(leases: &Path) {
    for entry in std::fs::read_dir(leases).into_iter().flatten().flatten() {
        let folder = entry.path();
        // The borrower's end sees it, and ends.
        if let Ok(term) = Term::open(&folder.join(Term::FILE)) {
            term.end();
        }
        match std::fs::remove_dir_all(&folder) {
            Ok(()) => {
                tracing::warn!(lease = %folder.display(), "a lease of a former daemon is over")
            }
            Err(error) => tracing::warn!(lease = %folder.display(), %error, "it cannot be removed"),
        }
    }
}

/// Has the lender's end, which is a process of this host, serve the programs itself.
fn serve_here(lending: &Lending, lease: &LeaseId, begin: &NearBegin) -> io::Result<()> {
    let name = if begin.kind == Kind::Card { Ticket::CARD } else { Ticket::DEVICE };
    let listener = UnixListener::bind(begin.folder.join(name))?;
    lending.serve_programs(lease, &listener)
}

/// Makes the folder of a lease, with all that a program needs in it; `serve` makes the socket.
fn make_folder<E>(
    folder: &Path,
    ticket: &Ticket,
    user: &User,
    until: BootTime,
    serve: impl FnOnce() -> io::Result<E>,
) -> io::Result<(Term, E)> {
    // One that is left of a daemon that was killed.
    let _ = std::fs::remove_dir_all(folder);
    std::fs::DirBuilder::new().mode(0o700).create(folder)?;
    ticket.write(folder)?;
    let term = Term::create(&folder.join(Term::FILE))?;
    term.set_usable_until(live(until));
    let end = serve()?;
    if rustix::process::geteuid().is_root() && user.uid != 0 {
        for entry in std::fs::read_dir(folder)? {
            chown(entry?.path(), Some(user.uid), None)?;
        }
        chown(folder, Some(user.uid), None)?;
    }
    Ok((term, end))
}
