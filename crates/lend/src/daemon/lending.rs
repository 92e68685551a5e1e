//! The lender's side: carries out what the leases' state machine decides about this host's devices.
//!
//! One task takes its actions in their order. What may wait, writing the ledger and making a device
//! clean, is done beside it and answered by events.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_lease::lender::{
    Action, DeviceView, Event, FenceId, FenceOutcome, Lease, Renewal, Status as DeviceStatus,
    WriteId, WriteKind,
};
use farside_lease::{
    BootTime, BorrowerId, DeviceName, DeviceSet, Epoch, HostName, LeaseId, Ledger, Lender, Limits,
    RequestId, Text, UserName,
};
use farside_linux::lock::lock;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::spawn_blocking;
use tonic::Status;

use super::device::Device;
use super::ledger_file::{LedgerFile, boot_id};
use super::listener::LinkCall;
use crate::LendError;
use crate::end::{Begin, EndProcess};
use crate::home::{Home, Settings};
use crate::pki;
use crate::proto::{self, BorrowEvent, BorrowRequest, RenewReply, RenewRequest, ReturnRequest};

/// Events that a borrower has not taken, at most: more are left out.
const EVENTS_MAX: usize = 16;
/// How long the process of a lender's end may take to die.
const KILL_LIMIT: Duration = Duration::from_secs(3);
/// How often devices are looked for that were not there.
const LOOK: Duration = Duration::from_secs(2);

/// See the module.
pub(super) struct Lending {
    core: Mutex<Core>,
    /// Something was decided, or time has to be looked at anew.
    wake: Notify,
    /// Where the ends' sockets are.
    folder: PathBuf,
    ledger: LedgerFile,
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
}

/// The lender's end of a lease.
struct End {
    lease: LeaseId,
    process: EndProcess,
    /// What it shows; not known of one that a former daemon has started.
    certificate: Option<Vec<u8>>,
    /// Whoever borrowed, if this daemon was the one that was asked.
    events: Option<(RequestId, Events)>,
}

fn now() -> BootTime {
    BootTime(farside_live::lease::BootTime::now().0)
}

/// The name by which connections are led to the end of a lease.
fn link_of(epoch: Epoch) -> String {
    format!("lease-{epoch}.farside")
}

fn epoch_of(link: &str) -> Option<Epoch> {
    link.strip_prefix("lease-")?.strip_suffix(".farside")?.parse().ok().map(Epoch)
}

impl Lending {
    /// Goes on where the ledger left off.
    pub(super) fn start(home: &Home, settings: &Settings) -> Result<Arc<Lending>, LendError> {
        let boot = boot_id()?;
        let ledger = LedgerFile::at(home.ledger());
        let restored = ledger.read(boot)?;
        kill_strays(&home.run(), &restored);
        let lender = Lender::new(Limits::default(), restored, boot, now());
        let core = Core {
            lender,
            devices: HashMap::new(),
            asking: HashMap::new(),
            renewing: HashMap::new(),
            ends: HashMap::new(),
        };
        let lending = Arc::new(Lending {
            core: Mutex::new(core),
            wake: Notify::new(),
            folder: home.run(),
            ledger,
            duration_ns: AtomicU64::new(settings.lease_ns),
        });
        let missing: Vec<_> = settings.devices.clone();
        tokio::spawn(Arc::clone(&lending).run());
        tokio::spawn(Arc::clone(&lending).find_devices(missing));
        Ok(lending)
    }

    /// Lends the devices of the settings as soon as they are there.
    async fn find_devices(self: Arc<Self>, mut missing: Vec<crate::home::Lent>) {
        let mut told = false;
        while !missing.is_empty() {
            missing.retain(|lent| match self.lend(&lent.name, &lent.path) {
                Ok(()) => false,
                Err(why) => {
                    if !told {
                        tracing::warn!(
                            device = lent.name,
                            why = why.message(),
                            "a device is not there yet"
                        );
                    }
                    true
                }
            });
            told = true;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Tells the state machine; what follows is carried out by the task.
    fn tell(&self, event: Event) {
        lock(&self.core).lender.handle(now(), event);
        self.wake.notify_one();
    }

    /// Lends a device from now on.
    pub(super) fn lend(&self, name: &str, path: &Path) -> Result<(), Status> {
        let name = device_name(name)?;
        let device = Device::at(path).map_err(Status::invalid_argument)?;
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
        core.lender.devices().map(|view| core.described(&view)).collect()
    }

    /// Borrows for a host. What comes of it goes to the receiver; dropping it gives up the place in the
    /// queue.
    pub(super) fn borrow(
        self: &Arc<Self>,
        host: &str,
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
        let asking = Asking { events: events.clone(), certificate: request.end };
        // The same request by another connection: the last one is answered.
        lock(&self.core).asking.insert((host.clone(), number), asking);
        let lending = Arc::clone(self);
        tokio::spawn(async move {
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
        });
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
        self.tell(Event::Return { host, leases });
        Ok(())
    }

    /// Asks for a device back.
    pub(super) fn recall(&self, device: &str, within: Duration) -> Result<(), Status> {
        let device = device_name(device)?;
        if lock(&self.core).lender.lease(&device).is_none() {
            return Err(Status::not_found(format!(
                "nobody has {device}; `farside who` lists who has what"
            )));
        }
        self.tell(Event::Recall { device, within, by: Text::from("a user of its host") });
        Ok(())
    }

    /// Lends a quarantined device again.
    pub(super) fn release(&self, device: &str) -> Result<(), Status> {
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
        self.tell(Event::Release { device, by: Text::from("a user of its host") });
        Ok(())
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
    }

    /// Carries out what is decided, for ever.
    async fn run(self: Arc<Self>) {
        loop {
            let (action, timeout) = {
                let mut core = lock(&self.core);
                (core.lender.poll_action(), core.lender.poll_timeout())
            };
            if let Some(action) = action {
                self.carry_out(action);
                continue;
            }
            let left = timeout.map_or(Duration::from_secs(3600), |at| now().until(at));
            tokio::select! {
                () = self.wake.notified() => {}
                // A millisecond later than wanted, never earlier.
                () = tokio::time::sleep(left + Duration::from_millis(1)) => self.tell(Event::Tick),
            }
        }
    }

    fn carry_out(self: &Arc<Self>, action: Action) {
        match action {
            Action::Store { write, kind, bytes } => self.store(write, kind, bytes),
            Action::Fence { fence, device, epoch, why } => {
                tracing::info!(%device, %epoch, ?why, "a device is cut off and made clean");
                self.fence(fence, device, epoch);
            }
            Action::Queued { borrower, request, before } => {
                let event = proto::Queued { before: u32::try_from(before).unwrap_or(u32::MAX) };
                let core = lock(&self.core);
                if let Some(asking) = core.asking.get(&(borrower.host, request)) {
                    let event = proto::borrow_event::Event::Queued(event);
                    let _ = asking.events.try_send(Ok(told(request, event)));
                }
            }
            Action::Granted { borrower, request, leases, duration } => {
                self.granted(&borrower, request, &leases, duration);
            }
            Action::Refused { borrower, request, why } => {
                tracing::info!(%borrower, %why, "nothing is lent");
                let asking = lock(&self.core).asking.remove(&(borrower.host, request));
                if let Some(asking) = asking {
                    let refused = proto::Refused { why: why.to_string() };
                    let event = proto::borrow_event::Event::Refused(refused);
                    let _ = asking.events.try_send(Ok(told(request, event)));
                }
            }
            Action::Renewed { host, request, renewals } => self.renewed(host, request, renewals),
            Action::Recalled { lease, borrower, within, by } => {
                tracing::info!(%lease, %borrower, ?within, %by, "a lease is recalled");
                self.tell_holder(&lease, |id| {
                    proto::borrow_event::Event::Recalled(proto::Recalled {
                        device: id.device.to_string(),
                        epoch: id.epoch.0,
                        within_ns: within.as_nanos() as u64,
                    })
                });
            }
            Action::Ended { lease, why } => {
                tracing::info!(lease = %lease.id, borrower = %lease.borrower, %why, "a lease has ended");
                self.tell_holder(&lease.id, |id| {
                    proto::borrow_event::Event::Ended(proto::Ended {
                        device: id.device.to_string(),
                        epoch: id.epoch.0,
                        why: why.to_string(),
                    })
                });
            }
            Action::Kept { lease } => self.keep(lease),
            Action::Cleaned { device, .. } => tracing::info!(%device, "a device is clean"),
            Action::Quarantined { device, why } => {
                tracing::error!(%device, %why, "a device does not reset, and is lent to nobody until `farside lend release`");
            }
            Action::Released { device, by } => tracing::warn!(%device, %by, "a device is released"),
            Action::Removed { device } => {
                lock(&self.core).devices.remove(&device);
            }
            Action::NotAdded { device, allowed } => {
                tracing::error!(%device, allowed, "a device is not lent: there are too many");
                lock(&self.core).devices.remove(&device);
            }
        }
    }

    fn store(self: &Arc<Self>, write: WriteId, kind: WriteKind, bytes: Vec<u8>) {
        let lending = Arc::clone(self);
        let ledger = self.ledger.clone();
        tokio::spawn(async move {
            let written = spawn_blocking(move || ledger.write(kind, &bytes)).await;
            let failed = match written {
                Ok(Ok(())) => return lending.tell(Event::Stored { write }),
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            tracing::error!(error = failed, "the ledger cannot be written, so nothing is lent");
            lending.tell(Event::StoreFailed { write, why: Text::from(failed) });
        });
    }

    fn fence(self: &Arc<Self>, fence: FenceId, device: DeviceName, epoch: Epoch) {
        let (end, kind) = {
            let mut core = lock(&self.core);
            let end = core.ends.remove(&device);
            (end, core.devices.get(&device).map(|known| known.device.clone()))
        };
        let lending = Arc::clone(self);
        let folder = self.folder.clone();
        tokio::spawn(async move {
            let cleaned = spawn_blocking(move || clean(end.as_ref(), kind.as_ref(), &folder)).await;
            let outcome = match cleaned.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(()) => FenceOutcome::Clean { generation: epoch.0 },
                Err(why) => FenceOutcome::DoesNotReset { why: Text::from(why) },
            };
            lending.tell(Event::Fenced { fence, device, outcome });
        });
    }

    fn granted(
        &self,
        borrower: &BorrowerId,
        request: RequestId,
        leases: &[Lease],
        duration: Duration,
    ) {
        let asking = lock(&self.core).asking.remove(&(borrower.host.clone(), request));
        if self.granted_again(request, leases, duration, asking.as_ref()) {
            return;
        }
        let started = asking.and_then(|asking| {
            let begun = self.begin(borrower, leases, &asking);
            let begun = begun.inspect_err(|error| tracing::error!(%error, "no end of a lease"));
            Some((begun.ok()?, asking))
        });
        let Some((ends, asking)) = started else {
            // Nobody is told of it, so nobody has it.
            let leases = leases.iter().map(|lease| lease.id.clone()).collect();
            return self.tell(Event::Return { host: borrower.host.clone(), leases });
        };
        let mut granted =
            proto::Granted { leases: Vec::new(), duration_ns: duration.as_nanos() as u64 };
        let mut core = lock(&self.core);
        for (lease, (process, certificate)) in leases.iter().zip(ends) {
            tracing::info!(lease = %lease.id, %borrower, pid = process.pid(), "a device is lent");
            granted.leases.push(proto::Lease {
                device: lease.id.device.to_string(),
                epoch: lease.id.epoch.0,
                link: link_of(lease.id.epoch),
                end: certificate.clone(),
            });
            let events = Some((request, asking.events.clone()));
            let certificate = Some(certificate);
            let end = End { lease: lease.id.clone(), process, certificate, events };
            core.ends.insert(lease.id.device.clone(), end);
        }
        let event = proto::borrow_event::Event::Granted(granted);
        // Whoever does not take it does not renew it.
        let _ = asking.events.try_send(Ok(told(request, event)));
    }

    /// Tells a grant once more whose ends have begun already: the first answer may be lost. Says whether
    /// it is such a one.
    fn granted_again(
        &self,
        request: RequestId,
        leases: &[Lease],
        duration: Duration,
        asking: Option<&Asking>,
    ) -> bool {
        let mut core = lock(&self.core);
        let mut told_again = Vec::new();
        for lease in leases {
            let end = core.ends.get_mut(&lease.id.device).filter(|end| end.lease == lease.id);
            let Some(end) = end else { return false };
            if let Some(asking) = asking {
                end.events = Some((request, asking.events.clone()));
            }
            told_again.push(proto::Lease {
                device: lease.id.device.to_string(),
                epoch: lease.id.epoch.0,
                link: link_of(lease.id.epoch),
                end: end.certificate.clone().unwrap_or_default(),
            });
        }
        if let Some(asking) = asking {
            let duration_ns = duration.as_nanos() as u64;
            let granted = proto::Granted { leases: told_again, duration_ns };
            let event = proto::borrow_event::Event::Granted(granted);
            let _ = asking.events.try_send(Ok(told(request, event)));
        }
        true
    }

    /// Starts the ends of leases: all or none. Gives each with the certificate that it shows.
    fn begin(
        &self,
        borrower: &BorrowerId,
        leases: &[Lease],
        asking: &Asking,
    ) -> Result<Vec<(EndProcess, Vec<u8>)>, LendError> {
        let mut ends = Vec::new();
        for lease in leases {
            match self.begin_one(borrower, lease, asking) {
                Ok(end) => ends.push(end),
                Err(error) => {
                    ends.iter().for_each(|(end, _)| {
                        end.kill(KILL_LIMIT);
                    });
                    return Err(error);
                }
            }
        }
        Ok(ends)
    }

    fn begin_one(
        &self,
        borrower: &BorrowerId,
        lease: &Lease,
        asking: &Asking,
    ) -> Result<(EndProcess, Vec<u8>), LendError> {
        let own = pki::link_credentials()?;
        let path = lock(&self.core).devices.get(&lease.id.device).map(|known| known.path.clone());
        let path = path.ok_or_else(|| LendError::Refused("the device is gone".to_owned()))?;
        let begin = Begin {
            name: format!("{}, lent to {borrower}", lease.id),
            path,
            certificate: own.certificate.clone(),
            key: own.key,
            peer: asking.certificate.clone(),
            until: lease.end.0,
        };
        let started = EndProcess::start(&self.folder, lease.id.epoch.0, begin);
        let process = started.map_err(LendError::system("starting the lender's end of a lease"))?;
        Ok((process, own.certificate))
    }

    fn renewed(&self, host: HostName, request: RequestId, renewals: Vec<Renewal>) {
        let mut core = lock(&self.core);
        for renewal in renewals.iter().filter(|renewal| renewal.result.is_ok()) {
            let end = core.lender.lease(&renewal.lease.device).map(|lease| lease.end);
            let known = core.ends.get(&renewal.lease.device);
            if let (Some(until), Some(end)) = (end, known.filter(|end| end.lease == renewal.lease))
            {
                if let Err(error) = end.process.set_until(until.0) {
                    tracing::warn!(lease = %end.lease, %error, "the lender's end of a lease is gone");
                }
            }
        }
        if let Some(answer) = core.renewing.remove(&(host, request)) {
            let _ = answer.send(renewals);
        }
    }

    /// Takes the end of a lease over that a former daemon has started.
    fn keep(&self, lease: Lease) {
        match EndProcess::find(&self.folder, lease.id.epoch.0) {
            Some(process) => {
                tracing::info!(lease = %lease.id, borrower = %lease.borrower, "a lease goes on");
                let device = lease.id.device.clone();
                let end = End { lease: lease.id, process, certificate: None, events: None };
                lock(&self.core).ends.insert(device, end);
            }
            None => {
                tracing::warn!(lease = %lease.id, "the lender's end of a lease is gone, so that it ends");
                self.tell(Event::HungUp { lease: lease.id });
            }
        }
    }

    fn tell_holder(
        &self,
        lease: &LeaseId,
        event: impl FnOnce(&LeaseId) -> proto::borrow_event::Event,
    ) {
        let core = lock(&self.core);
        let end = core.ends.get(&lease.device).filter(|end| end.lease == *lease);
        if let Some((request, events)) = end.and_then(|end| end.events.as_ref()) {
            let _ = events.try_send(Ok(told(*request, event(lease))));
        }
    }
}

/// Kills ends of leases that have ended, which a daemon that was killed has left.
fn kill_strays(folder: &Path, ledger: &Ledger) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let epochs = entries.filter_map(|entry| EndProcess::epoch_of(&entry.file_name()));
    for epoch in epochs.filter(|&epoch| !ledger.leases().any(|(_, kept)| kept.epoch.0 == epoch)) {
        if let Some(end) = EndProcess::find(folder, epoch) {
            tracing::warn!(epoch, "the end of a former lease is killed");
            end.kill(KILL_LIMIT);
        }
        EndProcess::forget(folder, epoch);
    }
}

/// Makes sure that nothing of a lease reaches its device, and that nothing of it is left there.
fn clean(end: Option<&End>, device: Option<&Device>, folder: &Path) -> Result<(), String> {
    if let Some(end) = end {
        if !end.process.kill(KILL_LIMIT) {
            return Err(format!("the process {} of its lease does not end", end.process.pid()));
        }
        EndProcess::forget(folder, end.lease.epoch.0);
    }
    let device = device.ok_or("it is not there")?;
    device.clean(end.map(|end| end.process.pid()))
}

impl Core {
    fn described(&self, view: &DeviceView<'_>) -> proto::Device {
        use proto::device::State;
        let known = self.devices.get(view.name);
        let mut device = proto::Device {
            name: view.name.to_string(),
            description: known.map(|known| known.description.clone()).unwrap_or_default(),
            waiting: u32::try_from(view.waiting).unwrap_or(u32::MAX),
            ..proto::Device::default()
        };
        let state = match &view.status {
            DeviceStatus::Free => State::Free,
            DeviceStatus::Granting => State::Lent,
            DeviceStatus::Lent(lease) => {
                device.holder = lease.borrower.to_string();
                device.epoch = lease.id.epoch.0;
                device.left_ns = now().until(lease.end).as_nanos() as u64;
                State::Lent
            }
            DeviceStatus::Cleaning => State::Cleaning,
            DeviceStatus::Quarantined(why) => {
                device.why = why.to_string();
                State::Quarantined
            }
        };
        device.set_state(state);
        device
    }
}

fn told(request: RequestId, event: proto::borrow_event::Event) -> BorrowEvent {
    BorrowEvent { request: request.0, event: Some(event) }
}

fn described_renewal(renewal: Renewal) -> proto::Renewal {
    use proto::renewal::Result as Renewed;
    let result = match renewal.result {
        Ok(duration) => Renewed::DurationNs(duration.as_nanos() as u64),
        Err(why) => Renewed::Refused(proto::Refused { why: why.to_string() }),
    };
    proto::Renewal {
        device: renewal.lease.device.to_string(),
        epoch: renewal.lease.epoch.0,
        result: Some(result),
        // At least something: 0 says that it is not wanted back.
        recalled_within_ns: renewal.recalled_within.map_or(0, |d| (d.as_nanos() as u64).max(1)),
    }
}

fn invalid(error: impl std::fmt::Display) -> Status {
    Status::invalid_argument(error.to_string())
}

fn device_name(name: &str) -> Result<DeviceName, Status> {
    DeviceName::new(name).map_err(invalid)
}

fn host_name(name: &str) -> Result<HostName, Status> {
    HostName::new(name).map_err(invalid)
}

fn lease_ids(leases: &[proto::LeaseId]) -> Result<Vec<LeaseId>, Status> {
    let id = |lease: &proto::LeaseId| {
        Ok(LeaseId { device: device_name(&lease.device)?, epoch: Epoch(lease.epoch) })
    };
    leases.iter().map(id).collect()
}
