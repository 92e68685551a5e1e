//! Claims: a place in the queue, and the turn.

use std::collections::BTreeSet;
use std::time::Duration;

use farside_linux::lock::lock;
use tokio::time::{Instant, sleep, timeout};
use tonic::Status;

use super::super::claims::Claims;
use super::super::{Claim, Turn};
use super::keeper::Keeper;
use super::keys::{self, CLAIMED_MAX};
use super::proto::compare::{CompareResult, CompareTarget, TargetUnion};
use super::proto::range_request::{SortOrder, SortTarget};
use super::proto::request_op::Request as Op;
use super::proto::response_op::Response as Answer;
use super::proto::{Compare, KeyValue, PutRequest, RangeRequest, RequestOp, TxnRequest};
use super::{Etcd, RETRY};

/// Claims that may wait, at most.
const CLAIMS_MAX: i64 = 1024;
/// How often a claim looks by itself, if nothing tells it to.
const LOOK: Duration = Duration::from_secs(1);
/// How long etcd may be silent before a claim gives up: a new leader is there sooner.
const PATIENCE: Duration = Duration::from_secs(6);

/// A claim that waits.
struct Place {
    name: String,
    devices: BTreeSet<String>,
    lease: i64,
    /// In which its key was made: its place.
    revision: i64,
}

impl Etcd {
    /// See [`super::super::Registry::claim`].
    pub(super) async fn wait_for_turn(&self, claim: &Claim) -> Result<Turn, Status> {
        let devices = keys::devices(claim);
        if devices.is_empty() || devices.len() > CLAIMED_MAX {
            let why = format!("1 to {CLAIMED_MAX} cards have a turn together");
            return Err(Status::invalid_argument(why));
        }
        let mut turns = self.turns.subscribe();
        let mut keeper = Keeper::begin(self).await?;
        let place = self.enter(devices, keeper.lease).await?;
        let mut answered = Instant::now();
        loop {
            turns.mark_unchanged();
            let pause = match self.is_turn(&place).await {
                Ok(true) => return Ok(Turn::held_by(keeper)),
                Ok(false) => {
                    answered = Instant::now();
                    LOOK
                }
                Err(status) if is_over(&status) || answered.elapsed() >= PATIENCE => {
                    return Err(status);
                }
                Err(_) => RETRY,
            };
            tokio::select! {
                _ = timeout(pause, turns.changed()) => {}
                () = keeper.lost() => return Err(expired()),
            }
            if pause == RETRY {
                sleep(RETRY).await;
            }
        }
    }

    /// Takes a place at the end of the queue.
    async fn enter(&self, devices: BTreeSet<String>, lease: i64) -> Result<Place, Status> {
        let name = self.claim_name();
        let key = self.keys.claim(&name).into_bytes();
        let put = PutRequest { key: key.clone(), value: keys::claimed(&devices), lease };
        let read = RangeRequest { key: key.clone(), ..RangeRequest::default() };
        let request = TxnRequest {
            compare: vec![made_in(key, 0)],
            success: vec![op(Op::RequestPut(put)), op(Op::RequestRange(read.clone()))],
            failure: vec![op(Op::RequestRange(read))],
        };
        let answer = self.client.txn(request).await?;
        let found = answer.responses.into_iter().find_map(|response| match response.response {
            Some(Answer::ResponseRange(found)) => found.kvs.into_iter().next(),
            _ => None,
        });
        let found = found.filter(|found| found.lease == lease).ok_or_else(expired)?;
        Ok(Place { name, devices, lease, revision: found.create_revision })
    }

    /// A name that no other claim has: this host's, the time, and a number.
    fn claim_name(&self) -> String {
        let number = {
            let mut claims = lock(&self.claims);
            *claims += 1;
            *claims
        };
        let host = lock(&self.view).own().to_owned();
        let (_, since_1970) = self.own.now();
        format!("{host}.{:x}.{number:x}", since_1970.as_nanos())
    }

    /// Takes the turn if it has come.
    async fn is_turn(&self, place: &Place) -> Result<bool, Status> {
        let claims = self.keys.claims();
        let request = RangeRequest {
            range_end: keys::end_of(&claims),
            key: claims.into_bytes(),
            limit: CLAIMS_MAX,
            sort_order: SortOrder::Ascend.into(),
            sort_target: SortTarget::Create.into(),
            ..RangeRequest::default()
        };
        let known = lock(&self.view).revision().max(place.revision);
        let found = self.client.range(request).await?;
        if found.revision < known {
            self.client.move_on();
            return Err(Status::unavailable("a member of etcd is behind the others"));
        }
        let mut queue = Claims::default();
        let sound =
            found.keys.iter().filter_map(|kv| Some((kv.create_revision, self.claimed(kv)?)));
        sound.for_each(|(revision, devices)| queue.enter(revision, devices));
        match queue.before(place.revision) {
            Some(0) => self.take_turn(place).await,
            Some(_) => Ok(false),
            // It is behind those that were read.
            None if found.more => Ok(false),
            None => Err(expired()),
        }
    }

    /// The devices of a claim, if it is one.
    fn claimed(&self, kv: &KeyValue) -> Option<BTreeSet<String>> {
        let is_claim = self.keys.claim_of(&kv.key).is_some() && kv.lease != 0;
        let devices = if is_claim { keys::read_claimed(&kv.value) } else { None };
        if devices.is_none() {
            lock(&self.view).refuse(&String::from_utf8_lossy(&kv.key), kv.mod_revision);
        }
        devices
    }

    async fn take_turn(&self, place: &Place) -> Result<bool, Status> {
        let own = self.keys.claim(&place.name).into_bytes();
        let turns: Vec<Vec<u8>> =
            place.devices.iter().map(|device| self.keys.turn(device).into_bytes()).collect();
        let free = turns.iter().map(|turn| made_in(turn.clone(), 0));
        let put = |key: &Vec<u8>| {
            let value = place.name.clone().into_bytes();
            op(Op::RequestPut(PutRequest { key: key.clone(), value, lease: place.lease }))
        };
        let read = |key: &Vec<u8>| {
            op(Op::RequestRange(RangeRequest { key: key.clone(), ..RangeRequest::default() }))
        };
        let request = TxnRequest {
            compare: [made_in(own, place.revision)].into_iter().chain(free).collect(),
            success: turns.iter().map(put).collect(),
            failure: turns.iter().map(read).collect(),
        };
        let answer = self.client.txn(request).await?;
        if answer.succeeded {
            return Ok(true);
        }
        // Its own turn, if the answer to an earlier try was lost.
        let is_own = |response: &super::proto::ResponseOp| match &response.response {
            Some(Answer::ResponseRange(found)) => found
                .kvs
                .iter()
                .any(|kv| kv.value == place.name.as_bytes() && kv.lease == place.lease),
            _ => false,
        };
        Ok(answer.responses.len() == turns.len() && answer.responses.iter().all(is_own))
    }
}

/// A key was made in that revision; 0: it is not there.
fn made_in(key: Vec<u8>, revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Create.into(),
        key,
        target_union: Some(TargetUnion::CreateRevision(revision)),
    }
}

fn op(request: Op) -> RequestOp {
    RequestOp { request: Some(request) }
}

fn expired() -> Status {
    Status::aborted("the place in etcd's queue has run out, or was taken away")
}

fn is_over(status: &Status) -> bool {
    status.code() == tonic::Code::Aborted
}
