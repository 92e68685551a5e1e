//! This host as a borrower of one lender: carries out what the leases' state machine wants said and
//! done. One task takes its actions in their order; calls to the lender run beside it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::tls::Credentials;
use farside_lease::borrower::{Action, Answer, Config, Event, Message};
use farside_lease::{
    BootTime, Borrower, DeviceName, DeviceSet, Epoch, LeaseId, RequestId, Text, UserName,
};
use farside_linux::lock::lock;
use futures_util::FutureExt;
use tokio::sync::{Notify, oneshot};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;
use tonic::Status;

use super::super::dial::{self, PeerClient};
use super::super::machine::Machine;
use super::super::users::User;
use super::super::{Daemon, network};
use super::held::{HeldLease, Taking};
use super::{Events, told};
use crate::LendError;
use crate::pki;
use crate::proto::borrow_for_event::Event as Told;
use crate::proto::{self, BorrowRequest, RenewRequest, ReturnRequest, borrow_event, renewal};
use crate::steps::{Step, at};

/// How long a lender may take to say what has become of a request that was withdrawn.
const WITHDRAW_LIMIT: Duration = Duration::from_secs(10);
/// How long a lender may take to answer a call.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// How long giving back may take: if it is not heard, the lease ends by itself.
const RETURN_LIMIT: Duration = Duration::from_secs(2);

/// The leases that were granted, or why none are.
pub(super) type Outcome = Result<Vec<Arc<HeldLease>>, Status>;

/// See the module.
pub(super) struct Side {
    host: String,
    machine: Arc<dyn Machine>,
    core: Mutex<Core>,
    /// There is something to do.
    wake: Notify,
}

struct Core {
    borrower: Borrower,
    asked: HashMap<RequestId, Asked>,
    leases: BTreeMap<LeaseId, Arc<HeldLease>>,
    /// The way to the lender, where that leads, and which certificate of this host it shows.
    way: Option<((String, u64), PeerClient)>,
}

/// A request that is not answered.
struct Asked {
    /// The number that it had first.
    first: RequestId,
    devices: DeviceSet,
    /// Until when it waits.
    until: BootTime,
    /// How long it waits for devices that nobody has, if it has not done that yet.
    soon: Option<Duration>,
    /// How often it was sent by this number.
    sent: u32,
    user: User,
    /// What the borrower's ends of its leases show.
    own: Credentials,
    events: Events,
    answer: Option<oneshot::Sender<Outcome>>,
    /// What was granted, by its leases.
    granted: HashMap<LeaseId, proto::Lease>,
    before: Option<usize>,
    /// Why the lender was not heard the last time.
    unheard: Option<String>,
    /// Listens to the lender.
    listening: Option<AbortHandle>,
}

impl Side {
    /// A borrower of a lender, of which it has nothing yet.
    pub(super) fn start(daemon: &Arc<Daemon>, host: &str) -> Arc<Side> {
        let last = RequestId(daemon.requests);
        let core = Core {
            borrower: Borrower::new(Config::default(), last, daemon.machine.now()),
            asked: HashMap::new(),
            leases: BTreeMap::new(),
            way: None,
        };
        let side = Arc::new(Side {
            host: host.to_owned(),
            machine: Arc::clone(&daemon.machine),
            core: Mutex::new(core),
            wake: Notify::new(),
        });
        daemon.machine.spawn(Arc::clone(&side).run(Arc::clone(daemon)).boxed());
        side
    }

    /// Asks for devices, all or none. Devices that nobody has, which are not free yet, are waited for as long
    /// as `soon` at least. Gives the request, and what comes of it.
    pub(super) fn borrow(
        &self,
        user: &User,
        devices: DeviceSet,
        wait: Duration,
        soon: Duration,
        events: &Events,
    ) -> Result<(RequestId, oneshot::Receiver<Outcome>), Status> {
        let own = pki::link_credentials().map_err(LendError::from)?;
        let name = UserName::new(user.name()).ok();
        let mut core = lock(&self.core);
        let now = self.machine.now();
        let asked = core.borrower.borrow(now, name, devices.clone(), None, wait);
        let request = asked.map_err(|error| Status::resource_exhausted(error.to_string()))?;
        let (answer, answered) = oneshot::channel();
        core.asked.insert(
            request,
            Asked {
                first: request,
                devices,
                until: now.after(wait),
                soon: Some(soon).filter(|soon| *soon > wait),
                sent: 0,
                user: user.clone(),
                own,
                events: events.clone(),
                answer: Some(answer),
                granted: HashMap::new(),
                before: None,
                unheard: None,
                listening: None,
            },
        );
        drop(core);
        self.wake.notify_one();
        Ok((request, answered))
    }

    /// Waits no longer; what is granted all the same goes back. `first` is what `borrow` gave.
    pub(super) fn withdraw(self: &Arc<Self>, daemon: &Arc<Daemon>, first: RequestId) {
        let (request, asked) = {
            let mut core = lock(&self.core);
            let known = core.asked.iter().find(|(_, asked)| asked.first == first);
            let Some(request) = known.map(|(request, _)| *request) else { return };
            core.borrower.withdraw(self.machine.now(), request);
            let Some(asked) = core.asked.remove(&request) else { return };
            (request, asked)
        };
        if let Some(listening) = &asked.listening {
            listening.abort();
        }
        if asked.sent > 0 {
            self.ask_what_became_of(daemon, request, &asked);
        }
        self.wake.notify_one();
    }

    /// A grant may have been on its way when nobody listened any more. It is asked for once more, by the
    /// same number and without a wait: what the lender says it has granted goes back at once.
    fn ask_what_became_of(
        self: &Arc<Self>,
        daemon: &Arc<Daemon>,
        request: RequestId,
        asked: &Asked,
    ) {
        let (side, daemon) = (Arc::clone(self), Arc::clone(daemon));
        let borrow = BorrowRequest {
            request: request.0,
            devices: asked.devices.iter().map(DeviceName::to_string).collect(),
            user: asked.user.name().to_owned(),
            wait_ns: 0,
            end: asked.own.certificate.clone(),
            plain: false,
        };
        let asking = async move {
            // A lender that is not reached hears nothing of its borrower either.
            if let Ok(Err(status)) =
                timeout(WITHDRAW_LIMIT, side.hear(&daemon, request, borrow)).await
            {
                tracing::debug!(why = status.message(), "a request was withdrawn");
            }
        };
        self.machine.spawn(asking.boxed());
    }

    /// Gives a lease back: nothing uses it when this returns.
    pub(super) fn give_back(&self, lease: &LeaseId) {
        let held = {
            let mut core = lock(&self.core);
            core.borrower.give_back(self.machine.now(), lease);
            core.leases.remove(lease)
        };
        if let Some(held) = held {
            held.end(None);
        }
        self.wake.notify_one();
    }

    /// The leases that it has.
    pub(super) fn leases(&self) -> Vec<Arc<HeldLease>> {
        lock(&self.core).leases.values().cloned().collect()
    }

    /// Whether nothing is held, asked for or to be said.
    pub(super) fn is_idle(&self) -> bool {
        let core = lock(&self.core);
        core.borrower.is_idle() && core.leases.is_empty()
    }

    fn tell(&self, event: Event) {
        lock(&self.core).borrower.handle(self.machine.now(), event);
        self.wake.notify_one();
    }

    async fn run(self: Arc<Self>, daemon: Arc<Daemon>) {
        loop {
            let (action, timeout) = {
                let mut core = lock(&self.core);
                (core.borrower.poll_action(), core.borrower.poll_timeout())
            };
            if let Some(action) = action {
                self.carry_out(&daemon, action).await;
                continue;
            }
            let left = timeout.map_or(Duration::from_secs(3600), |at| self.machine.now().until(at));
            tokio::select! {
                () = self.wake.notified() => {}
                // A millisecond later than wanted, never earlier.
                () = tokio::time::sleep(left + Duration::from_millis(1)) => self.tell(Event::Tick),
            }
        }
    }

    async fn carry_out(self: &Arc<Self>, daemon: &Arc<Daemon>, action: Action) {
        match action {
            Action::Send(message) => self.send(daemon, message),
            Action::Queued { request, before } => {
                let mut core = lock(&self.core);
                let Some(asked) = core.asked.get_mut(&request) else { return };
                if asked.before.replace(before) != Some(before) {
                    let before = u32::try_from(before).unwrap_or(u32::MAX);
                    let queued = Told::Queued(proto::Queued { before });
                    let _ = asked.events.try_send(Ok(told(queued)));
                }
            }
            Action::Got { request, leases } => self.got(daemon, request, leases).await,
            Action::Refused { request, why } => {
                let asked = lock(&self.core).asked.remove(&request);
                let Some(mut asked) = asked else { return };
                let unheard =
                    asked.unheard.take().map(|why| format!(" ({why})")).unwrap_or_default();
                let why = format!("host {}: {why}{unheard}", self.host);
                if let Some(answer) = asked.answer.take() {
                    let _ = answer.send(Err(Status::failed_precondition(why)));
                }
            }
            Action::Extended { lease, until } => {
                if let Some(held) = lock(&self.core).leases.get(&lease) {
                    held.extend(until);
                }
            }
            Action::Recalled { lease, deadline, .. } => {
                if let Some(held) = lock(&self.core).leases.get(&lease) {
                    held.recall(self.machine.now(), deadline);
                }
            }
            Action::Lost { lease, why } => {
                let held = lock(&self.core).leases.remove(&lease);
                if let Some(held) = held {
                    tracing::warn!(%lease, lender = self.host, %why, "a lease has ended");
                    held.end(Some(why.as_str()));
                }
            }
        }
    }

    /// Takes what was granted; what cannot be taken goes back.
    async fn got(&self, daemon: &Daemon, request: RequestId, leases: Vec<LeaseId>) {
        at(Step::GrantHeard);
        let asked = lock(&self.core).asked.remove(&request);
        let Some(mut asked) = asked else {
            return leases.iter().for_each(|lease| self.give_back(lease));
        };
        let taken = self.take(daemon, &asked, &leases).await;
        if taken.is_err() {
            leases.iter().for_each(|lease| self.give_back(lease));
        }
        let waits = asked.answer.take().is_some_and(|answer| answer.send(taken).is_ok());
        if !waits {
            leases.iter().for_each(|lease| self.give_back(lease));
        }
    }

    async fn take(
        &self,
        daemon: &Daemon,
        asked: &Asked,
        leases: &[LeaseId],
    ) -> Result<Vec<Arc<HeldLease>>, Status> {
        let (_, address) = self.way(daemon)?;
        let nowhere = |why: String| {
            Status::unavailable(format!(
                "the address {address} of host {} leads nowhere: {why}",
                self.host
            ))
        };
        let mut found =
            tokio::net::lookup_host(&address).await.map_err(|e| nowhere(e.to_string()))?;
        let found = found.next().ok_or_else(|| nowhere("no address".to_owned()))?;
        let way = network::way_of(found);
        let may_be_plain = way.is_some_and(|way| daemon.configured.get().plain.contain(way));
        let over = |id: &LeaseId| {
            Status::unavailable(format!("host {}: {id} was over at once", self.host))
        };
        let mut held = Vec::new();
        for id in leases {
            let until = lock(&self.core).borrower.usable_until(id);
            let (Some(until), Some(lease)) = (until, asked.granted.get(id)) else {
                return Err(over(id));
            };
            let taking = Taking {
                machine: &*daemon.machine,
                home: &daemon.home,
                lender: &self.host,
                address: found,
                user: &asked.user,
                own: &asked.own,
                until,
                events: &asked.events,
                past: &daemon.borrowing.past,
                may_be_plain,
                here: (self.host == daemon.host()).then(|| daemon.lending.as_ref()),
            };
            let lease = Arc::new(HeldLease::take(&taking, id.clone(), lease)?);
            let mut core = lock(&self.core);
            if core.borrower.usable_until(id).is_none() {
                drop(core);
                lease.end(None);
                return Err(over(id));
            }
            core.leases.insert(id.clone(), Arc::clone(&lease));
            held.push(lease);
        }
        Ok(held)
    }

    /// The way to the lender, and its address.
    fn way(&self, daemon: &Daemon) -> Result<(PeerClient, String), Status> {
        let address = daemon.address_of(&self.host).ok_or_else(|| super::unknown(&self.host))?;
        let leads = (address.clone(), daemon.identities.load(Ordering::SeqCst));
        let mut core = lock(&self.core);
        if let Some((_, peer)) = core.way.as_ref().filter(|(known, _)| *known == leads) {
            return Ok((peer.clone(), address));
        }
        let peer = daemon.dial(&address, &self.host)?;
        core.way = Some((leads, peer.clone()));
        Ok((peer, address))
    }

    fn send(self: &Arc<Self>, daemon: &Arc<Daemon>, message: Message) {
        match message {
            Message::Borrow { request, user, devices, wait, .. } => {
                let heard = |asked: &Asked| {
                    asked.listening.as_ref().is_some_and(|listening| !listening.is_finished())
                };
                // As long as the lender is listened to it has the request.
                if lock(&self.core).asked.get(&request).is_none_or(heard) {
                    return;
                }
                let listening = self.listen(daemon, request, user, &devices, wait);
                if let Some(asked) = lock(&self.core).asked.get_mut(&request) {
                    asked.listening = Some(listening.abort_handle());
                    asked.sent += 1;
                }
            }
            Message::Withdraw { request } => {
                // The lender sees that nobody listens.
                if let Some(asked) = lock(&self.core).asked.get_mut(&request) {
                    asked.listening.take().inspect(AbortHandle::abort);
                }
            }
            Message::Renew { request, leases } => {
                let (side, daemon) = (Arc::clone(self), Arc::clone(daemon));
                let renewing = async move {
                    match side.renew(&daemon, request, &leases).await {
                        Ok(answers) => side.tell(Event::Renewed { request, answers }),
                        Err(why) => tracing::debug!(why, "a lease is not renewed yet"),
                    }
                };
                self.machine.spawn(renewing.boxed());
            }
            Message::Return { leases } => {
                let (side, daemon) = (Arc::clone(self), Arc::clone(daemon));
                let returning = async move { side.return_to_lender(&daemon, &leases).await };
                self.machine.spawn(returning.boxed());
            }
        }
    }

    /// Asks, and listens to what comes of it, also once it is granted.
    fn listen(
        self: &Arc<Self>,
        daemon: &Arc<Daemon>,
        request: RequestId,
        user: Option<UserName>,
        devices: &DeviceSet,
        wait: Duration,
    ) -> JoinHandle<()> {
        let (side, daemon) = (Arc::clone(self), Arc::clone(daemon));
        let devices = devices.iter().map(DeviceName::to_string).collect();
        let end = lock(&self.core).asked.get(&request).map(|asked| asked.own.certificate.clone());
        let borrow = BorrowRequest {
            request: request.0,
            devices,
            user: user.map(|user| user.to_string()).unwrap_or_default(),
            wait_ns: wait.as_nanos() as u64,
            end: end.unwrap_or_default(),
            plain: false,
        };
        let listening = async move {
            let Err(status) = side.hear(&daemon, request, borrow).await else { return };
            let why = dial::why(&status);
            match status.code() {
                // It may be there again before the request is given up.
                tonic::Code::Unavailable | tonic::Code::DeadlineExceeded | tonic::Code::Unknown => {
                    if let Some(asked) = lock(&side.core).asked.get_mut(&request) {
                        asked.unheard = Some(why);
                    }
                }
                _ => side.tell(Event::Refused { request, why: Text::from(why) }),
            }
        };
        self.machine.spawn(listening.boxed())
    }

    async fn hear(
        &self,
        daemon: &Daemon,
        request: RequestId,
        mut borrow: BorrowRequest,
    ) -> Result<(), Status> {
        let (mut peer, address) = self.way(daemon)?;
        let way = network::way_to(&address).await;
        borrow.plain = way.is_some_and(|way| daemon.configured.get().plain.contain(way));
        let called = timeout(ANSWER_LIMIT, peer.borrow(borrow)).await;
        let called = called.map_err(|_| Status::deadline_exceeded("no answer"))?;
        let mut stream = called?.into_inner();
        while let Some(event) = stream.message().await? {
            // A reply counts for the request that it names.
            let named = RequestId(event.request);
            if named == request {
                if let Some(event) = event.event {
                    self.heard(request, event)?;
                }
            }
        }
        Ok(())
    }

    fn heard(&self, request: RequestId, event: borrow_event::Event) -> Result<(), Status> {
        let id = |device: &str, epoch: u64| lease_id(device, epoch);
        let event = match event {
            // Nothing was granted before it was withdrawn: the lender hears that nobody listens any more.
            borrow_event::Event::Queued(_) if !lock(&self.core).asked.contains_key(&request) => {
                return Err(Status::cancelled("it is not waited for any more"));
            }
            borrow_event::Event::Queued(queued) => {
                Event::Queued { request, before: queued.before as usize }
            }
            borrow_event::Event::Granted(granted) => {
                let ids = granted.leases.iter().map(|lease| id(&lease.device, lease.epoch));
                let leases: Vec<LeaseId> = ids.collect::<Result<_, _>>()?;
                if let Some(asked) = lock(&self.core).asked.get_mut(&request) {
                    asked.granted = leases.iter().cloned().zip(granted.leases).collect();
                }
                let duration = Duration::from_nanos(granted.duration_ns);
                Event::Granted { request, leases, duration }
            }
            borrow_event::Event::Refused(refused) if self.ask_anew(request, &refused) => {
                return Ok(());
            }
            borrow_event::Event::Refused(refused) => {
                Event::Refused { request, why: Text::from(refused.why) }
            }
            borrow_event::Event::Recalled(recalled) => Event::Recalled {
                lease: id(&recalled.device, recalled.epoch)?,
                within: Duration::from_nanos(recalled.within_ns),
                by: Text::from("its lender"),
            },
            borrow_event::Event::Ended(ended) => {
                Event::Ended { lease: id(&ended.device, ended.epoch)?, why: Text::from(ended.why) }
            }
        };
        self.tell(event);
        Ok(())
    }

    /// Asks by a new number for what a lender refuses by the old one, where that may be worth it. Says whether
    /// it does. Nothing is held for the old number, and what is granted for it all the same goes back.
    fn ask_anew(&self, request: RequestId, refused: &proto::Refused) -> bool {
        let now = self.machine.now();
        let mut core = lock(&self.core);
        let Core { borrower, asked, .. } = &mut *core;
        let Some(mut old) = asked.remove(&request) else { return false };
        let wait = if refused.answered_before && old.sent > 1 {
            // The lender gave it up when the way to it was cut, and was then asked again. A number that it
            // hears for the first time is not answered before.
            Some(now.until(old.until))
        } else if refused.not_yet {
            old.soon.take()
        } else {
            None
        };
        let again = wait.and_then(|wait| {
            let name = UserName::new(old.user.name()).ok();
            let again = borrower.borrow(now, name, old.devices.clone(), None, wait).ok()?;
            borrower.withdraw(now, request);
            Some(again)
        });
        let Some(again) = again else {
            asked.insert(request, old);
            return false;
        };
        (old.listening, old.sent, old.before) = (None, 0, None);
        asked.insert(again, old);
        drop(core);
        self.wake.notify_one();
        true
    }

    async fn renew(
        &self,
        daemon: &Daemon,
        request: RequestId,
        leases: &[LeaseId],
    ) -> Result<Vec<Answer>, String> {
        let (mut peer, _) = self.way(daemon).map_err(|status| status.message().to_owned())?;
        let asking =
            RenewRequest { request: request.0, leases: leases.iter().map(to_proto).collect() };
        at(Step::RenewalAsked);
        let reply = timeout(ANSWER_LIMIT, peer.renew(asking)).await;
        let reply = reply.map_err(|_| "no answer".to_owned())?;
        let reply = reply.map_err(|status| dial::why(&status))?.into_inner();
        if reply.request != request.0 {
            return Err("an answer to another request".to_owned());
        }
        reply.renewals.into_iter().filter_map(answer_of).collect()
    }

    async fn return_to_lender(&self, daemon: &Daemon, leases: &[LeaseId]) {
        let Ok((mut peer, _)) = self.way(daemon) else { return };
        // Nothing else of it has a number to be told from others by.
        let returning = ReturnRequest { request: 0, leases: leases.iter().map(to_proto).collect() };
        let why = match timeout(RETURN_LIMIT, peer.r#return(returning)).await {
            Ok(Ok(_)) => return,
            Ok(Err(status)) => dial::why(&status),
            Err(_) => "no answer".to_owned(),
        };
        tracing::warn!(lender = self.host, why, "a lease is not given back; it ends by itself");
    }
}

fn lease_id(device: &str, epoch: u64) -> Result<LeaseId, Status> {
    let device = DeviceName::new(device).map_err(|error| Status::internal(error.to_string()))?;
    Ok(LeaseId { device, epoch: Epoch(epoch) })
}

fn to_proto(lease: &LeaseId) -> proto::LeaseId {
    proto::LeaseId { device: lease.device.to_string(), epoch: lease.epoch.0 }
}

/// What a lender answers for a lease; nothing if it does not say.
fn answer_of(renewal: proto::Renewal) -> Option<Result<Answer, String>> {
    let result = match renewal.result? {
        renewal::Result::DurationNs(duration) => Ok(Duration::from_nanos(duration)),
        renewal::Result::Refused(refused) => Err(Text::from(refused.why)),
    };
    let within = Some(renewal.recalled_within_ns).filter(|&ns| ns != 0);
    let answer = lease_id(&renewal.device, renewal.epoch).map(|lease| Answer {
        lease,
        result,
        recalled_within: within.map(Duration::from_nanos),
    });
    Some(answer.map_err(|status| status.message().to_owned()))
}
