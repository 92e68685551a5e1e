//! The borrower's side: the leases that users of this host have of others' devices.
//!
//! Each grant has a task that renews it, tells the programs by the page of its term how long it may be
//! used, and gives it back when whoever borrowed hangs up.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use farside_linux::lock::lock;
use farside_live::lease::{BootTime, Term, Ticket};
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};
use tonic::{Status, Streaming};

use super::dial::{self, PeerClient};
use super::users::User;
use super::{Daemon, network};
use crate::LendError;
use crate::end::{NearBegin, NearEnd};
use crate::pki;
use crate::proto::borrow_for_event::Event as Told;
use crate::proto::{
    BorrowEvent, BorrowForEvent, BorrowForRequest, BorrowRequest, BorrowedLeases, Ended, Granted,
    Held, Lease, LeaseId, Recalled, RenewRequest, Renewal, ReturnRequest, borrow_event, renewal,
};

/// Devices of one request, at most.
const DEVICES_MAX: usize = 64;
/// Leases that this host has at a time, at most.
const HELD_MAX: usize = 1024;
/// A clock may be wrong by so much, in percent: the lease ends here before it ends there.
const DRIFT_PERCENT: u64 = 1;
/// How long a peer may take to answer; then it is asked again.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// How long giving back may take: if it is not heard, the lease ends by itself.
const RETURN_LIMIT: Duration = Duration::from_secs(2);
/// Between two tries to renew.
const AGAIN: Duration = Duration::from_millis(200);
/// Events that whoever borrows has not taken, at most.
const EVENTS_MAX: usize = 16;

/// See the module.
#[derive(Default)]
pub(super) struct Borrowing {
    leases: Mutex<BTreeMap<(String, String), Arc<Borrowed>>>,
    /// Behind the last request.
    requests: Requests,
}

/// Numbers of requests, which a host uses once, also over its restarts.
struct Requests(AtomicU64);

impl Default for Requests {
    fn default() -> Requests {
        // A lender takes them in their order. A daemon that begins again begins above what the one
        // before it can have asked for in that time.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Requests(AtomicU64::new((since.as_millis() as u64) << 16))
    }
}

impl Requests {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// A lease that this host has.
struct Borrowed {
    lender: String,
    id: LeaseId,
    user: User,
    folder: PathBuf,
    term: Term,
    /// The borrower's end of the link; none once the lease has ended.
    end: Mutex<Option<NearEnd>>,
    /// Somebody wants it given back.
    back: Notify,
}

impl Borrowed {
    fn held(&self) -> Held {
        let left = self.term.left(BootTime::now()).unwrap_or_default();
        Held {
            lender: self.lender.clone(),
            device: self.id.device.clone(),
            epoch: self.id.epoch,
            user: self.user.name(),
            pid: self.user.pid,
            left_ns: left.as_nanos() as u64,
            place: format!("lease:{}", self.folder.display()),
        }
    }

    /// The programs stop.
    fn end(&self) {
        self.term.end();
        lock(&self.end).take();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Borrowing {
    /// The leases that are held.
    pub(super) fn held(&self) -> Vec<Held> {
        lock(&self.leases).values().map(|lease| lease.held()).collect()
    }

    /// Has a user's lease given back.
    pub(super) fn give_back(&self, user: &User, name: &str) -> Result<(), Status> {
        let leases = lock(&self.leases);
        let mut found = leases.values().filter(|lease| is_named(lease, name));
        let lease = found.next().ok_or_else(|| {
            Status::not_found(format!(
                "this host does not have {name}; `farside who` lists what it has"
            ))
        })?;
        if found.next().is_some() {
            return Err(Status::invalid_argument(format!(
                "several hosts lend {name}: say {name}@HOST"
            )));
        }
        if lease.user.uid != user.uid {
            user.governs()?;
        }
        lease.back.notify_one();
        Ok(())
    }

    /// Gives all back, as far as lenders answer.
    pub(super) async fn give_all_back(&self) {
        lock(&self.leases).values().for_each(|lease| lease.back.notify_one());
        let empty = async {
            while !lock(&self.leases).is_empty() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let _ = timeout(RETURN_LIMIT, empty).await;
    }
}

fn is_named(lease: &Borrowed, name: &str) -> bool {
    match name.split_once('@') {
        Some((device, host)) => lease.id.device == device && lease.lender == host,
        None => lease.id.device == name,
    }
}

/// What a grant's task needs to go on.
struct Grant {
    peer: PeerClient,
    leases: Vec<Arc<Borrowed>>,
    duration: Duration,
    events: Streaming<BorrowEvent>,
}

/// Why a lease does not run on.
enum NotRenewed {
    /// The lender says that it has ended.
    Refused(String),
    /// It was not heard, or its answer was not: there is time to ask again.
    Unheard(String),
}

fn id_of(lease: &Lease) -> LeaseId {
    LeaseId { device: lease.device.clone(), epoch: lease.epoch }
}

type Events = mpsc::Sender<Result<BorrowForEvent, Status>>;

fn told(event: Told) -> BorrowForEvent {
    BorrowForEvent { event: Some(event) }
}

/// Borrows devices for a user, until it hangs up.
pub(super) async fn borrow_for(
    daemon: &Arc<Daemon>,
    user: User,
    request: BorrowForRequest,
) -> Result<mpsc::Receiver<Result<BorrowForEvent, Status>>, Status> {
    let wanted = daemon.by_lender(&request.devices).await?;
    let (events, receiver) = mpsc::channel(EVENTS_MAX);
    let daemon = Arc::clone(daemon);
    tokio::spawn(async move {
        let wait = Duration::from_nanos(request.wait_ns);
        let mut grants = Vec::new();
        for (host, devices) in wanted {
            // One lender after the other, in the order of their names: two that want the same devices
            // never wait for each other.
            let granted = tokio::select! {
                granted = daemon.borrow_from(&host, devices, &user, wait, &events) => granted,
                () = events.closed() => Err(Status::cancelled("whoever borrows has gone")),
            };
            match granted {
                Ok(grant) => grants.push(grant),
                Err(status) => {
                    daemon.give_grants_back(grants).await;
                    let _ = events.send(Err(status)).await;
                    return;
                }
            }
        }
        let leases = grants.iter().flat_map(|grant| &grant.leases).map(|lease| lease.held());
        let leases = leases.collect();
        let _ = events.send(Ok(told(Told::Borrowed(BorrowedLeases { leases })))).await;
        for grant in grants {
            tokio::spawn(keep(Arc::clone(&daemon), grant, events.clone()));
        }
    });
    Ok(receiver)
}

impl Daemon {
    /// The devices of a request, by the hosts that lend them.
    async fn by_lender(&self, names: &[String]) -> Result<BTreeMap<String, Vec<String>>, Status> {
        if names.is_empty() || names.len() > DEVICES_MAX {
            let why =
                format!("1 to {DEVICES_MAX} devices are borrowed at a time, not {}", names.len());
            return Err(Status::invalid_argument(why));
        }
        let mut wanted: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let hosts = if names.iter().all(|name| name.contains('@')) {
            Vec::new()
        } else {
            self.available().await
        };
        for name in names {
            let (device, host) = match name.split_once('@') {
                Some((device, host)) => (device, host.to_owned()),
                None => (name.as_str(), lender_of(name, &hosts)?),
            };
            let devices = wanted.entry(host).or_default();
            if devices.iter().any(|known| known == device) {
                return Err(Status::invalid_argument(format!("{name} is named twice")));
            }
            devices.push(device.to_owned());
        }
        Ok(wanted)
    }

    fn way_to(&self, host: &str) -> Result<(PeerClient, String), Status> {
        let address = if host == self.host() {
            self.network.address().map(|address| network::reachable(address).to_string())
        } else {
            self.peers().into_iter().find(|peer| peer.host == host).map(|peer| peer.address)
        };
        let address = address.filter(|address| !address.is_empty()).ok_or_else(|| {
            Status::not_found(format!(
                "nothing is known of host {host}; `farside available` lists hosts"
            ))
        })?;
        Ok((self.dial(&address, host)?, address))
    }

    /// Borrows from one lender: all or none.
    async fn borrow_from(
        &self,
        host: &str,
        devices: Vec<String>,
        user: &User,
        wait: Duration,
        events: &Events,
    ) -> Result<Grant, Status> {
        let (mut peer, address) = self.way_to(host)?;
        let end = pki::link_credentials().map_err(LendError::from)?;
        let request = self.borrowing.requests.next();
        let asked = BootTime::now();
        let borrow = BorrowRequest {
            request,
            devices,
            user: user.name(),
            wait_ns: wait.as_nanos() as u64,
            end: end.certificate.clone(),
        };
        let unreachable =
            |status: Status| Status::unavailable(format!("host {host}: {}", dial::why(&status)));
        let called = timeout(ANSWER_LIMIT * 2, peer.borrow(borrow)).await;
        let called =
            called.map_err(|_| Status::unavailable(format!("host {host} does not answer")))?;
        let mut stream = called.map_err(unreachable)?.into_inner();
        let granted = loop {
            let event = stream.message().await.map_err(unreachable)?;
            let event = event.filter(|event| event.request == request).and_then(|e| e.event);
            match event {
                Some(borrow_event::Event::Granted(granted)) => break granted,
                Some(borrow_event::Event::Queued(queued)) => {
                    let _ = events.send(Ok(told(Told::Queued(queued)))).await;
                }
                Some(borrow_event::Event::Refused(refused)) => {
                    return Err(Status::failed_precondition(format!(
                        "host {host}: {}",
                        refused.why
                    )));
                }
                Some(_) => {}
                None => return Err(Status::unavailable(format!("host {host} gives no answer"))),
            }
        };
        let duration = Duration::from_nanos(granted.duration_ns);
        let ids: Vec<LeaseId> = granted.leases.iter().map(id_of).collect();
        let until = self.usable_after_waiting(&mut peer, asked, duration, &ids).await;
        let made = match until {
            Ok(until) => self.take(host, &address, &granted, user, &end, until).await,
            Err(why) => Err(Status::unavailable(format!("host {host}: {why}"))),
        };
        match made {
            Ok(leases) => Ok(Grant { peer, leases, duration, events: stream }),
            Err(status) => {
                self.give_back_to(&mut peer, ids).await;
                Err(status)
            }
        }
    }

    /// Until when a new grant may be used. It runs from before it was asked for; whoever has waited for
    /// it in the queue asks anew.
    async fn usable_after_waiting(
        &self,
        peer: &mut PeerClient,
        asked: BootTime,
        duration: Duration,
        ids: &[LeaseId],
    ) -> Result<BootTime, String> {
        if BootTime::now().0 < asked.0 + duration.as_nanos() as u64 / 3 {
            return Ok(usable_until(asked, duration));
        }
        let (asked, renewals) = self.ask_to_renew(peer, ids.to_vec()).await?;
        let until = |renewal: &Renewal| match &renewal.result {
            Some(renewal::Result::DurationNs(ns)) => {
                Ok(usable_until(asked, Duration::from_nanos(*ns)))
            }
            Some(renewal::Result::Refused(refused)) => Err(refused.why.clone()),
            None => Err("no answer".to_owned()),
        };
        let ends: Vec<BootTime> = renewals.iter().map(until).collect::<Result<_, _>>()?;
        let all = ends.len() == ids.len();
        ends.into_iter()
            .min()
            .filter(|_| all)
            .ok_or_else(|| "an answer about other leases".to_owned())
    }

    /// Makes the folders of granted leases.
    async fn take(
        &self,
        host: &str,
        address: &str,
        granted: &Granted,
        user: &User,
        end: &farside_link::tls::Credentials,
        until: BootTime,
    ) -> Result<Vec<Arc<Borrowed>>, Status> {
        let mut found = tokio::net::lookup_host(address).await.map_err(|error| {
            Status::unavailable(format!(
                "the address {address} of host {host} leads nowhere: {error}"
            ))
        })?;
        let address =
            found.next().ok_or_else(|| Status::unavailable(format!("no address for {host}")))?;
        let mut leases = Vec::new();
        for lease in &granted.leases {
            let ticket = Ticket {
                lender: host.to_owned(),
                device: lease.device.clone(),
                epoch: lease.epoch,
            };
            let folder = format!("{}@{host}-{}", ticket.device, ticket.epoch);
            let folder = self.home.leases().join(folder);
            let begin = NearBegin {
                folder: folder.clone(),
                address,
                link: lease.link.clone(),
                peer: lease.end.clone(),
                certificate: end.certificate.clone(),
                key: end.key.clone(),
            };
            let (term, end) = make_folder(&begin, &ticket, user, until)?;
            leases.push(Arc::new(Borrowed {
                lender: host.to_owned(),
                id: LeaseId { device: ticket.device, epoch: ticket.epoch },
                user: user.clone(),
                folder,
                term,
                end: Mutex::new(Some(end)),
                back: Notify::new(),
            }));
        }
        let mut held = lock(&self.borrowing.leases);
        if held.len() + leases.len() > HELD_MAX {
            leases.iter().for_each(|lease| lease.end());
            return Err(Status::resource_exhausted(format!(
                "this host has {HELD_MAX} leases already"
            )));
        }
        for lease in &leases {
            held.insert((lease.lender.clone(), lease.id.device.clone()), Arc::clone(lease));
        }
        Ok(leases)
    }

    /// Asks for leases to run on; gives when that was asked, and the answers.
    async fn ask_to_renew(
        &self,
        peer: &mut PeerClient,
        leases: Vec<LeaseId>,
    ) -> Result<(BootTime, Vec<Renewal>), String> {
        let request = self.borrowing.requests.next();
        let asked = BootTime::now();
        let renewing = peer.renew(RenewRequest { request, leases });
        let reply = timeout(ANSWER_LIMIT, renewing).await.map_err(|_| "no answer".to_owned())?;
        let reply = reply.map_err(|status| dial::why(&status))?.into_inner();
        if reply.request != request {
            return Err("an answer to another request".to_owned());
        }
        Ok((asked, reply.renewals))
    }

    /// Renews a grant's leases. Gives those that are wanted back.
    async fn renew(&self, grant: &mut Grant) -> Result<Vec<Recalled>, NotRenewed> {
        let ids = grant.leases.iter().map(|lease| lease.id.clone()).collect();
        let asked = self.ask_to_renew(&mut grant.peer, ids).await;
        let (asked, renewals) = asked.map_err(NotRenewed::Unheard)?;
        let mut recalled = Vec::new();
        for renewal in renewals {
            let id = LeaseId { device: renewal.device, epoch: renewal.epoch };
            let Some(lease) = grant.leases.iter().find(|lease| lease.id == id) else { continue };
            match renewal.result {
                Some(renewal::Result::DurationNs(duration)) => {
                    let end = usable_until(asked, Duration::from_nanos(duration));
                    lease.term.set_usable_until(end);
                }
                Some(renewal::Result::Refused(refused)) => {
                    return Err(NotRenewed::Refused(refused.why));
                }
                None => continue,
            }
            if renewal.recalled_within_ns != 0 {
                let within_ns = renewal.recalled_within_ns;
                lease.term.set_wanted_back_by(BootTime(asked.0 + within_ns));
                recalled.push(Recalled { device: id.device, epoch: id.epoch, within_ns });
            }
        }
        Ok(recalled)
    }

    async fn give_grants_back(&self, grants: Vec<Grant>) {
        for grant in grants {
            self.drop_grant(grant).await;
        }
    }

    /// Ends leases here, then gives them back.
    async fn drop_grant(&self, mut grant: Grant) {
        grant.leases.iter().for_each(|lease| lease.end());
        let ids = grant.leases.iter().map(|lease| lease.id.clone()).collect();
        self.give_back_to(&mut grant.peer, ids).await;
        let mut held = lock(&self.borrowing.leases);
        for lease in &grant.leases {
            held.remove(&(lease.lender.clone(), lease.id.device.clone()));
        }
    }

    async fn give_back_to(&self, peer: &mut PeerClient, leases: Vec<LeaseId>) {
        let request = self.borrowing.requests.next();
        let returning = peer.r#return(ReturnRequest { request, leases });
        match timeout(RETURN_LIMIT, returning).await {
            Ok(Ok(_)) => {}
            Ok(Err(status)) => tracing::warn!(
                why = dial::why(&status),
                "a lease is not given back; it ends by itself"
            ),
            Err(_) => tracing::warn!("a lease is not given back; it ends by itself"),
        }
    }
}

fn lender_of(name: &str, hosts: &[crate::proto::HostDevices]) -> Result<String, Status> {
    let lends = |host: &&crate::proto::HostDevices| host.devices.iter().any(|d| d.name == name);
    let mut lenders = hosts.iter().filter(lends);
    let lender = lenders.next().ok_or_else(|| {
        Status::not_found(format!("no host lends {name}; `farside available` lists what is lent"))
    })?;
    if let Some(other) = lenders.next() {
        let why = format!("{} and {} lend {name}: say {name}@HOST", lender.host, other.host);
        return Err(Status::invalid_argument(why));
    }
    Ok(lender.host.clone())
}

/// Makes the folder of a lease, with all that a program needs in it.
fn make_folder(
    begin: &NearBegin,
    ticket: &Ticket,
    user: &User,
    until: BootTime,
) -> Result<(Term, NearEnd), Status> {
    let folder = &begin.folder;
    // One that is left of a daemon that was killed.
    let _ = std::fs::remove_dir_all(folder);
    let made = || -> std::io::Result<(Term, NearEnd)> {
        std::fs::DirBuilder::new().mode(0o700).create(folder)?;
        ticket.write(folder)?;
        let term = Term::create(&folder.join(Term::FILE))?;
        term.set_usable_until(until);
        let end = NearEnd::start(begin)?;
        if rustix::process::geteuid().is_root() && user.uid != 0 {
            for entry in std::fs::read_dir(folder)? {
                std::os::unix::fs::chown(entry?.path(), Some(user.uid), None)?;
            }
            std::os::unix::fs::chown(folder, Some(user.uid), None)?;
        }
        Ok((term, end))
    };
    made().map_err(|error| Status::internal(LendError::file(folder, error).to_string()))
}

/// Until when a lease may be used that was asked for then.
fn usable_until(asked: BootTime, duration: Duration) -> BootTime {
    let duration = duration.as_nanos() as u64;
    BootTime(asked.0.saturating_add(duration - duration / 100 * DRIFT_PERCENT))
}

/// Keeps a grant until somebody wants it given back, or it is lost.
async fn keep(daemon: Arc<Daemon>, mut grant: Grant, events: Events) {
    let why = tokio::select! {
        why = renew_on(&daemon, &mut grant, &events) => Some(why),
        () = events.closed() => None,
    };
    if let Some(why) = why {
        for lease in &grant.leases {
            tracing::warn!(
                device = lease.id.device,
                lender = lease.lender,
                why,
                "a lease has ended"
            );
            let LeaseId { device, epoch } = lease.id.clone();
            let ended = Ended { device, epoch, why: why.clone() };
            let _ = events.try_send(Ok(told(Told::Ended(ended))));
        }
    }
    daemon.drop_grant(grant).await;
}

/// Renews; gives why that has come to an end.
async fn renew_on(daemon: &Daemon, grant: &mut Grant, events: &Events) -> String {
    let mut pause = grant.duration / 3;
    let mut streams = true;
    loop {
        let lease = Arc::clone(&grant.leases[0]);
        let wanted_back = grant.leases.clone();
        let wanted_back = wanted_back.iter().map(|lease| Box::pin(lease.back.notified()));
        tokio::select! {
            () = sleep(pause) => {}
            _ = futures_util::future::select_all(wanted_back) => return "it is given back".to_owned(),
            event = grant.events.message(), if streams => {
                match event.ok().flatten().and_then(|event| event.event) {
                    Some(borrow_event::Event::Ended(ended)) => return ended.why,
                    Some(borrow_event::Event::Recalled(recalled)) => {
                        let _ = events.try_send(Ok(told(Told::Recalled(recalled))));
                    }
                    Some(_) => {}
                    // A connection that is lost ends no lease.
                    None => streams = false,
                }
                continue;
            }
        }
        match daemon.renew(grant).await {
            Ok(recalled) => {
                for recalled in recalled {
                    let _ = events.try_send(Ok(told(Told::Recalled(recalled))));
                }
                pause = grant.duration / 3;
            }
            Err(NotRenewed::Refused(why)) => return why,
            Err(NotRenewed::Unheard(why)) => {
                if lease.term.left(BootTime::now()).is_none() {
                    return format!("it was not renewed in time ({why})");
                }
                tracing::debug!(why, "a lease is not renewed yet");
                pause = AGAIN;
            }
        }
    }
}
