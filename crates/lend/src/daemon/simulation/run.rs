//! A simulation from its beginning to its end.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use farside_linux::lock::lock;
use futures_util::future::join_all;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::faults::{self, Faults};
use super::history::Side;
use super::host::{Host, device_name, name_of};
use super::machine::Alive;
use super::users::{self, Counts};
use super::world::World;
use crate::LendError;
use crate::proto::device::State;
use crate::proto::{BorrowForRequest, Device};

/// Users of each host.
const USERS: usize = 2;
/// Within this time all devices are lendable, once nobody wants any: the longest lease, and what comes
/// before and after it.
const LENDABLE_LIMIT: Duration = Duration::from_secs(180);
/// How long it is looked whether all know the same.
const CONVERGE_LIMIT: Duration = Duration::from_secs(30);
/// How often.
const LOOK: Duration = Duration::from_millis(10);

/// How often it is looked whether all know the same: each look costs, and none takes simulated time.
const VIEW_LOOK: Duration = Duration::from_millis(20);

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Hosts; at least two.
    pub hosts: usize,
    /// Devices of each.
    pub devices: usize,
    /// Devices are borrowed and given back so often, at least.
    pub borrows: usize,
    /// Decides what happens.
    pub seed: u64,
    /// A negative control: daemons forget at each start which leases they have given.
    pub forgets_ledgers: bool,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Requests that were granted, used and given back.
    pub borrows: usize,
    /// Requests that were refused, because others had the devices or a host was away.
    pub refused: usize,
    /// Requests and leases that ended with a daemon or a host.
    pub lost: usize,
    /// Leases that were granted, of one device each.
    pub leases: usize,
    /// Daemons that were killed and started again.
    pub crashes: usize,
    /// Machines that were.
    pub machines: usize,
    /// Hosts that were cut off.
    pub cuts: usize,
    /// What was held twice at a time.
    pub held_twice: Vec<String>,
    /// Devices that nobody could borrow after all was over.
    pub not_lendable: Vec<String>,
    /// How long after the last change all hosts knew the same, and that was so.
    pub converged: Duration,
    /// How long it took, by the simulated time.
    pub simulated: Duration,
}

/// Simulates, with the files of the hosts in a folder, which is left to the caller.
///
/// # Errors
/// Files of the simulated hosts cannot be written.
pub fn run(plan: &Plan, folder: &Path) -> Result<Outcome, LendError> {
    // Daemons complain of what goes wrong here on purpose.
    let _quiet = tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::new());
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.map_err(LendError::system("starting a simulation"))?;
    // What the daemons still write is written when this returns: the caller may remove it.
    runtime.block_on(async { simulate(plan, folder, World::new(plan.seed)).await })
}

/// See [`run`]; in a world of one's own.
pub(super) async fn simulate(
    plan: &Plan,
    folder: &Path,
    world: Arc<World>,
) -> Result<Outcome, LendError> {
    let hosts = (0..plan.hosts).map(|host| Host::new(&world, folder, host, plan));
    let hosts = Arc::new(hosts.collect::<Result<Vec<Host>, LendError>>()?);
    hosts.iter().try_for_each(Host::start)?;
    let (counts, faults) = (Arc::<Counts>::default(), Arc::<Faults>::default());
    let mut busy = JoinSet::new();
    for host in 0..plan.hosts {
        for _ in 0..USERS {
            busy.spawn(users::user(Arc::clone(&world), *plan, host, Arc::clone(&counts)));
        }
    }
    let wrong = (Arc::clone(&world), Arc::clone(&hosts), Arc::clone(&counts), Arc::clone(&faults));
    busy.spawn(faults::go_wrong(wrong.0, wrong.1, wrong.2, wrong.3));
    while counts.borrowed() < plan.borrows {
        sleep(LOOK).await;
    }
    counts.enough.store(true, Ordering::Relaxed);
    while let Some(ended) = busy.join_next().await {
        if let Err(error) = ended {
            return Err(LendError::Refused(format!("the simulation fails: {error}")));
        }
    }
    let not_lendable = await_lendable(&world, plan).await;
    let converged = await_view(&world, plan).await;
    let simulated = Duration::from_nanos(world.now());
    hosts.iter().for_each(|host| {
        host.crash(Alive::NoMachine);
    });
    let history = lock(&world.history);
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    Ok(Outcome {
        borrows: counts.borrowed(),
        refused: count(&counts.refused),
        lost: count(&counts.lost),
        leases: history.count(Side::Lender),
        crashes: count(&faults.crashes),
        machines: count(&faults.machines),
        cuts: count(&faults.cuts),
        held_twice: history.held_twice(),
        not_lendable,
        converged,
        simulated,
    })
}

/// What all lenders say themselves, by their names.
fn truth(world: &World, plan: &Plan) -> BTreeMap<String, Vec<Device>> {
    let said = |host: usize| {
        let name = name_of(host);
        let running = world.running(&name)?;
        Some((name, running.daemon.said_devices()))
    };
    (0..plan.hosts).filter_map(said).collect()
}

/// Waits until every device is free; gives those that are not.
async fn await_lendable(world: &World, plan: &Plan) -> Vec<String> {
    let end = Instant::now() + LENDABLE_LIMIT;
    loop {
        let truth = truth(world, plan);
        let mut not = Vec::new();
        for host in (0..plan.hosts).map(name_of) {
            let free = truth.get(&host).map_or(0, |devices| {
                devices.iter().filter(|device| device.state() == State::Free).count()
            });
            if free != plan.devices {
                not.push(format!("{} devices of {host}", plan.devices - free));
            }
        }
        if not.is_empty() || Instant::now() >= end {
            return not;
        }
        sleep(LOOK).await;
    }
}

/// Each host borrows a device of the next one; waits until all know the same of all. Gives how long after
/// the last change that is.
async fn await_view(world: &World, plan: &Plan) -> Duration {
    let borrow = async |host: usize| {
        let name = format!("{}@{}", device_name(0), name_of((host + 1) % plan.hosts));
        let request = BorrowForRequest { devices: vec![name], wait_ns: 0, any: 0 };
        let mut events = users::ask(world, host, request).await?;
        // Refused or not: what counts is that something changes.
        let _ = users::await_grant(&mut events).await;
        Some(events)
    };
    let mut borrowing = pin!(join_all((0..plan.hosts).map(borrow)));
    let mut held = None;
    let end = Instant::now() + CONVERGE_LIMIT;
    let (mut last, mut changed, mut converged) = (truth(world, plan), Instant::now(), None);
    loop {
        let now = truth(world, plan);
        if now != last {
            (last, changed, converged) = (now, Instant::now(), None);
        }
        if converged.is_none() && (0..plan.hosts).all(|host| knows(world, host, &last)) {
            converged = Some(changed.elapsed());
        }
        match converged {
            // Nothing changes any more.
            Some(converged) if held.is_some() => return converged,
            _ if Instant::now() >= end => return changed.elapsed(),
            _ => {}
        }
        tokio::select! {
            all = &mut borrowing, if held.is_none() => held = Some(all),
            () = sleep(VIEW_LOOK) => {}
        }
    }
}

/// Whether a host knows what all lenders say.
fn knows(world: &World, host: usize, truth: &BTreeMap<String, Vec<Device>>) -> bool {
    let Some(running) = world.running(&name_of(host)) else { return false };
    let view = running.daemon.registry.view();
    let view: BTreeMap<&str, &Vec<Device>> =
        view.iter().map(|found| (found.host.as_str(), &found.said.devices)).collect();
    truth.iter().all(|(host, devices)| view.get(host.as_str()) == Some(&devices))
}
