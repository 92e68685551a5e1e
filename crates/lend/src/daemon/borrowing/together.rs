//! Borrowing for a user: all the devices that it wants, of all their lenders, or none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use farside_lease::{DeviceSet, RequestId};
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tonic::Status;

use super::super::Daemon;
use super::super::users::User;
use super::held::HeldLease;
use super::side::{Outcome, Side};
use super::{EVENTS_MAX, Events, HELD_MAX, any, told};
use crate::proto::borrow_for_event::Event as Told;
use crate::proto::{BorrowForEvent, BorrowForRequest, BorrowedLeases};
use crate::registry::{Claim, Turn};

/// How often other cards are tried, where any will do, before it waits for some.
const TRIES_MAX: usize = 8;

/// Lenders at which somebody waits at a time to whom any card will do, at most.
const QUEUES_MAX: usize = 32;

/// How long whoever does not wait for others waits for a card that nobody has, which is being cleaned.
const SOON_FREE: Duration = Duration::from_secs(3);

/// Leases that were granted, with where they came from.
type Borrowed = Vec<(Arc<Side>, Arc<HeldLease>)>;

/// Borrows devices for a user, until it hangs up.
pub(in super::super) async fn borrow_for(
    daemon: &Arc<Daemon>,
    user: User,
    request: BorrowForRequest,
) -> Result<mpsc::Receiver<Result<BorrowForEvent, Status>>, Status> {
    let any = request.any as usize;
    if any > 0 && !request.devices.is_empty() {
        let why = "either devices are named, or any will do; ask for the one or the other";
        return Err(Status::invalid_argument(why));
    }
    let wanted = if any > 0 { Claim::new() } else { daemon.by_lender(&request.devices).await? };
    if daemon.borrowing.leases().len() + any.max(request.devices.len()) > HELD_MAX {
        return Err(Status::resource_exhausted(format!("this host has {HELD_MAX} leases already")));
    }
    let (events, receiver) = mpsc::channel(EVENTS_MAX);
    let wait = Duration::from_nanos(request.wait_ns);
    let asking = Asking { daemon: Arc::clone(daemon), user, until: Instant::now() + wait, events };
    let borrowing = async move {
        let borrowed = if any > 0 {
            asking.borrow_any(any).await
        } else {
            asking.borrow(&wanted, false).await
        };
        match borrowed {
            Ok(borrowed) => {
                let leases = borrowed.iter().map(|(_, lease)| lease.described()).collect();
                let borrowed_all = Told::Borrowed(BorrowedLeases { leases });
                let _ = asking.events.send(Ok(told(borrowed_all))).await;
                asking.events.closed().await;
                give_back(&borrowed);
            }
            Err(status) => {
                let _ = asking.events.send(Err(status)).await;
            }
        }
    };
    daemon.machine.spawn(borrowing.boxed());
    Ok(receiver)
}

fn give_back(borrowed: &Borrowed) {
    borrowed.iter().for_each(|(side, lease)| side.give_back(&lease.id));
}

/// Somebody who borrows.
struct Asking {
    daemon: Arc<Daemon>,
    user: User,
    /// How long it waits.
    until: Instant,
    events: Events,
}

impl Asking {
    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Borrows of one lender after the other, in the order of their names: two that want the same devices
    /// never wait for each other, also where they have no turn.
    async fn borrow(&self, wanted: &Claim, at_once: bool) -> Result<Borrowed, Status> {
        // One lender's own queue is in order.
        let _turn = if wanted.len() > 1 && !at_once { self.turn(wanted).await? } else { None };
        let mut borrowed = Vec::new();
        for (host, devices) in wanted {
            let side = self.daemon.borrowing.side(&self.daemon, host);
            let (wait, soon) = if at_once { Default::default() } else { (self.left(), SOON_FREE) };
            match self.borrow_from(&side, devices.clone(), wait, soon).await {
                Ok(leases) => {
                    borrowed.extend(leases.into_iter().map(|lease| (Arc::clone(&side), lease)));
                }
                Err(status) => {
                    give_back(&borrowed);
                    return Err(status);
                }
            }
        }
        Ok(borrowed)
    }

    /// Waits for the turn among those who want some of these devices together. Without a registry it goes
    /// on without one: the lenders decide all the same.
    async fn turn(&self, wanted: &Claim) -> Result<Option<Turn>, Status> {
        let claimed = timeout(self.left(), self.daemon.registry.claim(wanted));
        tokio::select! {
            claimed = claimed => match claimed {
                Ok(Ok(turn)) => Ok(Some(turn)),
                Ok(Err(status)) => {
                    tracing::warn!(why = status.message(), "devices are borrowed without a turn");
                    Ok(None)
                }
                // Whoever does not wait tries at once.
                Err(_) => Ok(None),
            },
            () = self.events.closed() => Err(gone()),
        }
    }

    /// Borrows cards of whoever has some.
    async fn borrow_any(&self, count: usize) -> Result<Borrowed, Status> {
        let mut busy = BTreeSet::new();
        let mut tries = 0;
        loop {
            tries += 1;
            let hosts = self.daemon.available().await;
            let choice = any::choose(&hosts, &self.daemon.host(), count, &busy);
            let choice = choice.ok_or_else(|| {
                let why =
                    format!("fewer than {count} cards are lent; `farside available` lists them");
                Status::failed_precondition(why)
            })?;
            if !choice.all_free && count == 1 {
                return self
                    .wait_for_any(any::queues(&hosts, &self.daemon.host(), QUEUES_MAX))
                    .await;
            }
            if !choice.all_free || tries > TRIES_MAX {
                return self.borrow(&choice.wanted, false).await;
            }
            match self.borrow(&choice.wanted, true).await {
                Err(status) if !self.events.is_closed() => {
                    tracing::debug!(why = status.message(), "other cards are tried");
                }
                borrowed => return borrowed,
            }
            for (host, devices) in choice.wanted {
                busy.extend(devices.iter().map(|device| (host.clone(), device.to_string())));
            }
        }
    }

    /// Waits at several lenders, for the first card that one of them grants; gives up the other places.
    async fn wait_for_any(&self, queues: Vec<(String, DeviceSet)>) -> Result<Borrowed, Status> {
        let waiting = |(host, devices): (String, DeviceSet)| {
            let side = self.daemon.borrowing.side(&self.daemon, &host);
            async move {
                let leases = self.borrow_from(&side, devices, self.left(), SOON_FREE).await?;
                Ok(leases.into_iter().map(|lease| (Arc::clone(&side), lease)).collect())
            }
        };
        let mut waiting: FuturesUnordered<_> = queues.into_iter().map(waiting).collect();
        let mut why = None;
        while let Some(answered) = waiting.next().await {
            match answered {
                Ok(borrowed) => return Ok(borrowed),
                // One that refuses now keeps nobody from waiting for the others.
                Err(status) => why = why.or(Some(status)),
            }
        }
        Err(why.unwrap_or_else(gone))
    }

    /// Borrows from one lender: all or none. Whoever drops this waits no longer.
    async fn borrow_from(
        &self,
        side: &Arc<Side>,
        devices: DeviceSet,
        wait: Duration,
        soon: Duration,
    ) -> Result<Vec<Arc<HeldLease>>, Status> {
        let (request, answer) = side.borrow(&self.user, devices, wait, soon, &self.events)?;
        let mut waiting = Waiting { daemon: &self.daemon, side, request, answer };
        tokio::select! {
            answer = &mut waiting.answer => {
                answer.unwrap_or_else(|_| Err(Status::cancelled("it was withdrawn")))
            }
            () = self.events.closed() => Err(gone()),
        }
    }
}

/// A request that is withdrawn when this is dropped, if it is not answered.
struct Waiting<'a> {
    daemon: &'a Arc<Daemon>,
    side: &'a Arc<Side>,
    request: RequestId,
    answer: oneshot::Receiver<Outcome>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.side.withdraw(self.daemon, self.request);
        // Nothing is taken from here on; what was taken in the same moment goes back.
        self.answer.close();
        if let Ok(Ok(leases)) = self.answer.try_recv() {
            leases.iter().for_each(|lease| self.side.give_back(&lease.id));
        }
    }
}

fn gone() -> Status {
    Status::cancelled("whoever borrows has gone")
}
