//! The lender's side: carries out what the leases' state machine decides about this host's devices.
//!
//! One task takes its actions in their order (`actions`): `grants` starts the lender's ends, `fence` cuts
//! them off. What may wait, writing the ledger and making a device clean, is done beside it and answered by
//! events. `presence` looks which devices are there. Here is what the services ask for.

mod actions;
mod fence;
mod grants;
mod judging;
mod presence;
mod reaching;
mod rules;
mod words;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use farside_lease::lender::{Event, Lease, Renewal, Status as DeviceStatus};
use farside_lease::{
    BorrowerId, DeviceName, DeviceSet, Epoch, HostName, LeaseId, Lender, Limits, RequestId, Stats,
    Text, UserName,
};
use farside_linux::lock::lock;
use futures_util::FutureExt;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tonic::Status;

use super::configured::Configured;
use super::device::Device;
use super::ledger_file::LedgerFile;
use super::listener::LinkCall;
use super::machine::{LendersEnd, Machine};
use super::observed::Observed;
use crate::LendError;
use crate::config::{Allowed, Way};
use crate::end::plain::Secret;
use crate::end::{Counted, Kind};
use crate::home::{Home, Settings};
use crate::proto::{self, BorrowEvent, BorrowRequest, RenewReply, RenewRequest, ReturnRequest};
use crate::steps::{Step, at};

use judging::{Ended, Judged};
use rules::Limited;
pub(super) use words::link_of;
use words::{described_renewal, device_name, epoch_of, host_name, lease_ids};

/// Events that a borrower has not taken, at most: more are left out.
const EVENTS_MAX: usize = 16;
/// Grants about which hooks are asked at a time, at most: others wait for their turn.
const GRANT_HOOKS_MAX: usize = 64;
/// Hooks that are told of ends at a time, at most.
const END_HOOKS_MAX: usize = 8;

/// See the module.
pub(super) struct Lending {
    core: Mutex<Core>,
    /// Something was decided, or time has to be looked at anew.
    wake: Notify,
    /// Something may have changed that others are told.
    changed: Notify,
    /// Where the ends' sockets are.
    folder: PathBuf,
    ledger: LedgerFile,
    configured: Arc<Configured>,
    observed: Arc<Observed>,
    /// How other hosts are found.
    hosts: OnceLock<Arc<reaching::FindHost>>,
    /// Turns of the hooks that are asked at grants, and of those that are told of ends.
    grant_hooks: Semaphore,
    end_hooks: Semaphore,
    machine: Arc<dyn Machine>,
    /// Of a lease, in nanoseconds; 0 is the default.
    duration_ns: AtomicU64,
}

type Events = mpsc::Sender<Result<BorrowEvent, Status>>;

struct Core {
    lender: Lender,
    devices: HashMap<DeviceName, Known>,
    /// Requests that are not answered.
    asking: HashMap<(HostName, RequestId), Asking>,
    renewing: HashMap<(HostName, RequestId), oneshot::Sender<Vec<Renewal>>>,
    /// The lender's ends, by their devices.
    ends: HashMap<DeviceName, End>,
    /// Leases of a former daemon whose ends did not answer this one.
    unheard: HashMap<DeviceName, Epoch>,
    /// Grants about which hooks are asked, and those about which they have spoken.
    judging: HashSet<(HostName, RequestId)>,
    judged: VecDeque<Judged>,
    /// Leases that were granted and that nobody was told of.
    untold: HashSet<LeaseId>,
    /// Leases that have ended, by their devices, which are not clean yet.
    ended: HashMap<DeviceName, Ended>,
    /// Leases that a rule limits, by their devices.
    limited: HashMap<DeviceName, Limited>,
    /// What was counted before it was looked at last.
    stats: Stats,
    /// What the ends of leases have counted that are over.
    carried: Counted,
}

/// A device that is lent.
struct Known {
    path: PathBuf,
    device: Device,
    description: String,
}

/// Somebody who waits for devices.
struct Asking {
    events: Events,
    /// The certificate of the borrower's end.
    certificate: Vec<u8>,
    /// Its data goes without TLS.
    plain: bool,
    borrower: BorrowerId,
    devices: DeviceSet,
    /// What the rules say of each, in their order.
    allowed: Vec<Allowed>,
    since: Instant,
}

/// The lender's end of a lease.
struct End {
    lease: LeaseId,
    kind: Kind,
    process: Box<dyn LendersEnd>,
    /// What it shows; not known of one that a former daemon has started.
    certificate: Option<Vec<u8>>,
    plain: Plain,
    /// Whoever borrowed, if this daemon was the one that was asked.
    events: Option<(RequestId, Events)>,
}

/// How the borrower's end of a lease is known.
#[derive(Clone, PartialEq, Eq)]
enum Plain {
    /// By its certificate.
    No,
    /// By this.
    By(Secret),
    /// By a secret that a former daemon has told it.
    Unknown,
}

impl Core {
    /// Whether the borrower of leases was told of them.
    fn is_told(&self, leases: &[Lease]) -> bool {
        let has_end = |lease: &Lease| {
            self.ends.get(&lease.id.device).is_some_and(|end| end.lease == lease.id)
        };
        leases.iter().all(has_end)
    }
}

impl Lending {
    /// Goes on where the ledger left off.
    pub(super) fn start(
        home: &Home,
        settings: &Settings,
        configured: Arc<Configured>,
        observed: Arc<Observed>,
        machine: Arc<dyn Machine>,
    ) -> Result<Arc<Lending>, LendError> {
        let boot = machine.boot()?;
        let ledger = LedgerFile::at(home.ledger());
        let restored = ledger.read(boot)?;
        fence::kill_strays(&home.run(), &restored);
        let lender = Lender::new(Limits::default(), restored, boot, machine.now());
        let core = Core {
            lender,
            devices: HashMap::new(),
            asking: HashMap::new(),
            renewing: HashMap::new(),
            ends: HashMap::new(),
            unheard: HashMap::new(),
            judging: HashSet::new(),
            judged: VecDeque::new(),
            untold: HashSet::new(),
            ended: HashMap::new(),
            limited: HashMap::new(),
            stats: Stats::default(),
            carried: Counted::default(),
        };
        let lending = Arc::new(Lending {
            core: Mutex::new(core),
            wake: Notify::new(),
            changed: Notify::new(),
            folder: home.run(),
            ledger,
            configured,
            machine,
            observed,
            hosts: OnceLock::new(),
            grant_hooks: Semaphore::new(GRANT_HOOKS_MAX),
            end_hooks: Semaphore::new(END_HOOKS_MAX),
            duration_ns: AtomicU64::new(settings.lease_ns),
        });
        let missing: Vec<_> = settings.devices.clone();
        lending.machine.spawn(Arc::clone(&lending).run().boxed());
        lending.machine.spawn(Arc::clone(&lending).watch_devices(missing).boxed());
        Ok(lending)
    }

    /// Tells the state machine; what follows is carried out by the task.
    fn tell(&self, event: Event) {
        lock(&self.core).lender.handle(self.machine.now(), event);
        self.wake.notify_one();
    }

    /// Waits until something may have changed of what is lent.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Lends a device from now on.
    pub(super) fn lend(&self, name: &str, path: &Path) -> Result<(), Status> {
        let name = device_name(name)?;
        let device = self.machine.device_at(path).map_err(Status::invalid_argument)?;
        let description = device.description();
        {
            let mut core = lock(&self.core);
            if let Some(known) = core.devices.get(&name).filter(|known| known.path != path) {
                let why = format!(
                    "{name} is lent already: {}; choose another name",
                    known.path.display()
                );
                return Err(Status::already_exists(why));
            }
            let known = Known { path: path.to_owned(), device, description };
            core.devices.insert(name.clone(), known);
        }
        self.tell(Event::DeviceAdded { device: name });
        Ok(())
    }

    /// How long leases run from now on.
    pub(super) fn set_duration(&self, duration: Duration) -> Result<(), Status> {
        let limits = lock(&self.core).lender.limits().clone();
        if duration < limits.duration_min || duration > limits.duration_max {
            let [least, most] = [limits.duration_min, limits.duration_max].map(|d| d.as_secs());
            let why = format!("a lease runs {least} to {most} seconds, not {}", duration.as_secs());
            return Err(Status::invalid_argument(why));
        }
        self.duration_ns.store(duration.as_nanos() as u64, Ordering::SeqCst);
        Ok(())
    }

    /// What is lent, and to whom.
    pub(super) fn devices(&self) -> Vec<proto::Device> {
        let core = lock(&self.core);
        core.lender.devices().map(|view| core.described(&view, self.machine.now())).collect()
    }

    /// Borrows for a host, which is at the other end of `way`. What comes of it goes to the receiver; dropping it gives up the place in the
    /// queue.
    pub(super) fn borrow(
        self: &Arc<Self>,
        host: &str,
        way: Option<Way>,
        request: BorrowRequest,
    ) -> Result<mpsc::Receiver<Result<BorrowEvent, Status>>, Status> {
        let host = host_name(host)?;
        let names = request.devices.iter().map(|name| device_name(name));
        let names: Vec<DeviceName> = names.collect::<Result<_, _>>()?;
        let devices =
            DeviceSet::new(names).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let borrower = BorrowerId { host: host.clone(), user: UserName::new(&request.user).ok() };
        let (events, receiver) = mpsc::channel(EVENTS_MAX);
        let number = RequestId(request.request);
        let is_named = |way| self.configured.get().plain.contain(way);
        let plain = request.plain && way.is_some_and(is_named);
        {
            let mut core = lock(&self.core);
            let allowed = self.allowed(&core, number, &borrower, &devices)?;
            let asking = Asking {
                events: events.clone(),
                certificate: request.end,
                plain,
                borrower: borrower.clone(),
                devices: devices.clone(),
                allowed,
                since: Instant::now(),
            };
            // The same request by another connection: the last one is answered.
            core.asking.insert((host.clone(), number), asking);
        }
        at(Step::Asked);
        let lending = Arc::clone(self);
        let watching = async move {
            events.closed().await;
            let key = (host.clone(), number);
            {
                // It may have been asked for again, by another connection.
                let mut core = lock(&lending.core);
                let gone = |asking: &Asking| asking.events.same_channel(&events);
                if !core.asking.get(&key).is_some_and(gone) {
                    return;
                }
                core.asking.remove(&key);
            }
            lending.tell(Event::Withdraw { host, request: number });
        };
        self.machine.spawn(watching.boxed());
        let duration = self.duration_ns.load(Ordering::SeqCst);
        self.tell(Event::Borrow {
            request: number,
            borrower,
            devices,
            duration: (duration != 0).then(|| Duration::from_nanos(duration)),
            wait: Duration::from_nanos(request.wait_ns),
        });
        Ok(receiver)
    }

    /// Keeps leases of a host.
    pub(super) async fn renew(
        &self,
        host: &str,
        request: &RenewRequest,
    ) -> Result<RenewReply, Status> {
        at(Step::RenewalHeard);
        let host = host_name(host)?;
        let number = RequestId(request.request);
        let leases = lease_ids(&request.leases)?;
        let (answer, answered) = oneshot::channel();
        lock(&self.core).renewing.insert((host.clone(), number), answer);
        self.tell(Event::Renew { request: number, host, leases });
        let renewals = answered.await.map_err(|_| Status::aborted("it was asked for twice"))?;
        let renewals = renewals.into_iter().map(described_renewal).collect();
        Ok(RenewReply { request: request.request, renewals })
    }

    /// Takes leases of a host back.
    pub(super) fn give_back(&self, host: &str, request: &ReturnRequest) -> Result<(), Status> {
        let host = host_name(host)?;
        let leases = lease_ids(&request.leases)?;
        at(Step::ReturnHeard);
        self.tell(Event::Return { host, leases });
        Ok(())
    }

    /// Asks for a device back.
    pub(super) fn recall(&self, device: &str, within: Duration, by: &str) -> Result<(), Status> {
        let device = device_name(device)?;
        if lock(&self.core).lender.lease(&device).is_none() {
            return Err(Status::not_found(format!(
                "nobody has {device}; `farside who` lists who has what"
            )));
        }
        at(Step::Recalled);
        let by = Text::from(format!("{by} of its host"));
        self.tell(Event::Recall { device, within, by });
        Ok(())
    }

    /// Lends a quarantined device again.
    pub(super) fn release(&self, device: &str, by: &str) -> Result<(), Status> {
        let device = device_name(device)?;
        let quarantined = {
            let core = lock(&self.core);
            let mut devices = core.lender.devices();
            devices.any(|view| {
                *view.name == device && matches!(view.status, DeviceStatus::Quarantined(_))
            })
        };
        if !quarantined {
            return Err(Status::failed_precondition(format!("{device} is not quarantined")));
        }
        self.tell(Event::Release { device, by: Text::from(format!("{by} of its host")) });
        Ok(())
    }

    /// How many requests wait, and what was counted since the daemon's start.
    pub(super) fn counted(&self) -> (usize, Stats) {
        let mut core = lock(&self.core);
        let more = core.lender.take_stats();
        core.stats = core.stats + more;
        (core.lender.waiting(), core.stats)
    }

    /// What has gone through the ends of all leases since the daemon's start.
    pub(super) fn carried(&self) -> Counted {
        let core = lock(&self.core);
        core.ends.values().fold(core.carried, |all, end| all.plus(end.process.counted()))
    }

    /// What has gone through the end of each lease that runs.
    pub(super) fn traffic(&self) -> Vec<proto::Traffic> {
        let core = lock(&self.core);
        let mut traffic: Vec<_> = core.ends.values().map(words::traffic).collect();
        traffic.sort_by(|one, other| one.device.cmp(&other.device));
        traffic
    }

    /// Has the end of a lease that this host has of its own device serve programs that come to `listener`.
    ///
    /// # Errors
    /// The lease is over, or its end is gone.
    pub(super) fn serve_programs(
        &self,
        lease: &LeaseId,
        listener: &UnixListener,
    ) -> io::Result<()> {
        let core = lock(&self.core);
        let end = core.ends.get(&lease.device).filter(|end| end.lease == *lease);
        let end = end.ok_or_else(|| io::Error::other("the lease is over"))?;
        end.process.serve_programs(listener.as_fd())
    }

    /// Leads a connection to the end of its lease.
    pub(super) fn connect(&self, call: &LinkCall) {
        let core = lock(&self.core);
        let epoch = epoch_of(&call.name);
        let end = core.ends.values().find(|end| Some(end.lease.epoch) == epoch);
        // An end may be there for a moment longer than its lease.
        let Some(end) = end.filter(|end| core.lender.is_current(&end.lease)) else {
            return tracing::warn!(link = call.name, "a connection is refused: its lease is over");
        };
        if let Err(error) = end.process.connect(call.stream.as_fd()) {
            tracing::warn!(link = call.name, %error, "a connection cannot be handed over");
        }
        drop(core);
        at(Step::ConnectionLed);
    }
}
