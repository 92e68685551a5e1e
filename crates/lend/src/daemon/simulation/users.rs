//! The users of a host: they borrow devices of others, hold them for a while, and give them back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tonic::Status;

use super::super::borrowing::borrow_for;
use super::super::users::User;
use super::host::{device_name, name_of};
use super::random::Random;
use super::run::Plan;
use super::world::World;
use crate::proto::borrow_for_event::Event;
use crate::proto::{BorrowForEvent, BorrowForRequest};

/// What became of requests.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Devices were borrowed, and given back.
    pub(super) borrows: AtomicUsize,
    /// Somebody said no: others have the devices, or their host is not there.
    pub(super) refused: AtomicUsize,
    /// The daemon, or the lease, was gone before that.
    pub(super) lost: AtomicUsize,
    pub(super) enough: AtomicBool,
}

impl Counts {
    fn count(counter: &AtomicUsize) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn borrowed(&self) -> usize {
        self.borrows.load(Ordering::Relaxed)
    }
}

type Events = mpsc::Receiver<Result<BorrowForEvent, Status>>;

/// Asks a host's daemon for devices, by its own code.
pub(super) async fn ask(world: &World, host: usize, request: BorrowForRequest) -> Option<Events> {
    let running = world.running(&name_of(host))?;
    borrow_for(&running.daemon, User::simulated(), request).await.ok()
}

/// Waits for the grant. `Err` says whether the daemon said no.
pub(super) async fn await_grant(events: &mut Events) -> Result<(), bool> {
    loop {
        match events.recv().await {
            Some(Ok(BorrowForEvent { event: Some(Event::Borrowed(_)) })) => return Ok(()),
            Some(Ok(_)) => {}
            Some(Err(_)) => return Err(true),
            None => return Err(false),
        }
    }
}

/// A user of a host, until there were enough borrows.
pub(super) async fn user(world: Arc<World>, plan: Plan, host: usize, counts: Arc<Counts>) {
    while !counts.enough.load(Ordering::Relaxed) {
        let (request, hold, pause) = world
            .random(|random| (wish(random, &plan, host), holding(random), random.millis(1, 200)));
        sleep(pause).await;
        let Some(mut events) = ask(&world, host, request).await else {
            Counts::count(&counts.refused);
            continue;
        };
        match await_grant(&mut events).await {
            Ok(()) if hold_on(&mut events, hold).await => Counts::count(&counts.borrows),
            Err(true) => Counts::count(&counts.refused),
            Ok(()) | Err(false) => Counts::count(&counts.lost),
        }
    }
}

/// Devices of other hosts, of one mostly, and how long to wait for them.
fn wish(random: &mut Random, plan: &Plan, host: usize) -> BorrowForRequest {
    let lenders = [1, 1, 1, 1, 1, 1, 1, 2, 2, 3][random.below(10)];
    let mut devices = Vec::new();
    for _ in 0..lenders {
        let lender = (host + 1 + random.below(plan.hosts - 1)) % plan.hosts;
        let each = [1, 1, 2, 3][random.below(4)];
        for _ in 0..each {
            let name = format!("{}@{}", device_name(random.below(plan.devices)), name_of(lender));
            if !devices.contains(&name) {
                devices.push(name);
            }
        }
    }
    let wait = random.millis(0, 5_000);
    let wait = if random.percent(20) { Duration::ZERO } else { wait };
    BorrowForRequest { devices, wait_ns: wait.as_nanos() as u64, any: 0 }
}

/// Mostly short, sometimes for several leases.
fn holding(random: &mut Random) -> Duration {
    match random.below(20) {
        0 => random.millis(12_000, 25_000),
        1..=3 => random.millis(2_000, 6_000),
        _ => random.millis(20, 1_500),
    }
}

/// Holds what it has. `false` if it was lost meanwhile.
async fn hold_on(events: &mut Events, hold: Duration) -> bool {
    let ended = async {
        while let Some(Ok(event)) = events.recv().await {
            if matches!(event.event, Some(Event::Ended(_))) {
                return;
            }
        }
    };
    timeout(hold, ended).await.is_err()
}
