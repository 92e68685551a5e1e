//! Calls to etcd: each has a limit, goes to another member where one does not answer, and takes answers of
//! bounded size. What is called twice does no harm: writes name what they expect, or are the same again.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_lease::BootTime;
use farside_linux::lock::lock;
use futures_util::StreamExt;
use tokio::time::timeout;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};

use super::super::OwnHost;
use super::proto::kv_client::KvClient;
use super::proto::lease_client::LeaseClient;
use super::proto::watch_client::WatchClient;
use super::proto::watch_request::RequestUnion;
use super::proto::{
    KeyValue, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, PutRequest,
    RangeRequest, TxnRequest, TxnResponse, WatchCreateRequest, WatchRequest, WatchResponse,
};
use crate::daemon::dial::why;

/// How long a member may take to answer.
const CALL_LIMIT: Duration = Duration::from_millis(1_500);
/// Members that are asked before a call has failed, at most.
const TRIES_MAX: usize = 3;
/// Bytes of an answer, at most.
const ANSWER_MAX: usize = 4 << 20;
/// From such a silence on something is wrong.
const SILENCE: Duration = Duration::from_secs(5);

/// A member of the etcd cluster.
pub(crate) struct Member {
    /// As it was configured.
    pub(crate) endpoint: String,
    /// The way to it.
    pub(crate) way: Channel,
}

/// See the module.
pub(super) struct Client {
    members: Vec<Member>,
    /// The one that answered last.
    current: AtomicUsize,
    own: Arc<dyn OwnHost>,
    heard: Mutex<Heard>,
}

/// When etcd answered last, and what was wrong since.
struct Heard {
    at: BootTime,
    why: String,
}

/// What a range of keys has.
pub(super) struct Found {
    /// Of the store, when it answered.
    pub(super) revision: i64,
    pub(super) keys: Vec<KeyValue>,
    /// There are more of them.
    pub(super) more: bool,
}

impl Client {
    /// Of these members; at least one.
    pub(super) fn new(members: Vec<Member>, own: Arc<dyn OwnHost>) -> Client {
        let heard = Mutex::new(Heard { at: own.now().0, why: String::new() });
        Client { members, current: AtomicUsize::new(0), own, heard }
    }

    /// Since when it does not answer, and why, in words; `None` if it does.
    pub(super) fn silence(&self) -> Option<(Duration, String)> {
        let heard = lock(&self.heard);
        let silent = heard.at.until(self.own.now().0);
        (silent > SILENCE).then(|| (silent, heard.why.clone()))
    }

    /// Where it is, for people.
    pub(super) fn endpoints(&self) -> String {
        let endpoints: Vec<&str> = self.members.iter().map(|m| m.endpoint.as_str()).collect();
        endpoints.join(", ")
    }

    /// Reads keys, as they are after all that was written before.
    pub(super) async fn range(&self, request: RangeRequest) -> Result<Found, Status> {
        let call = |way| {
            let request = request.clone();
            async move { kv(way).range(request).await }
        };
        let answer = self.call("reading keys", call).await?;
        let revision = answer.header.as_ref().map_or(0, |header| header.revision);
        Ok(Found { revision, keys: answer.kvs, more: answer.more })
    }

    /// Writes a key.
    pub(super) async fn put(&self, request: PutRequest) -> Result<(), Status> {
        let call = |way| {
            let request = request.clone();
            async move { kv(way).put(request).await }
        };
        self.call("writing a key", call).await.map(drop)
    }

    /// Compares, and writes only where all is as expected.
    pub(super) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Status> {
        let call = |way| {
            let request = request.clone();
            async move { kv(way).txn(request).await }
        };
        self.call("a transaction", call).await
    }

    /// Makes an etcd lease, which takes its keys with it when nobody keeps it alive.
    pub(super) async fn grant(&self, span: Duration) -> Result<i64, Status> {
        let request = LeaseGrantRequest { ttl: span.as_secs().max(1) as i64, id: 0 };
        let call = |way| async move { lease(way).lease_grant(request).await };
        let answer = self.call("making an etcd lease", call).await?;
        if answer.id == 0 || !answer.error.is_empty() {
            return Err(Status::unavailable(format!("etcd makes no lease: {}", answer.error)));
        }
        Ok(answer.id)
    }

    /// Keeps one alive. `false`: it is gone.
    pub(super) async fn keep_alive(&self, id: i64) -> Result<bool, Status> {
        let call = |way| async move {
            let request = tokio_stream::once(LeaseKeepAliveRequest { id });
            let mut answers = lease(way).lease_keep_alive(request).await?.into_inner();
            let answer = answers.message().await?;
            answer.map(Response::new).ok_or_else(|| Status::unavailable("it hung up"))
        };
        let answer = self.call("keeping an etcd lease", call).await;
        match answer {
            Ok(answer) => Ok(answer.ttl > 0 && answer.id == id),
            Err(status) if status.code() == Code::NotFound => Ok(false),
            Err(status) => Err(status),
        }
    }

    /// Ends one, with its keys.
    pub(super) async fn revoke(&self, id: i64) -> Result<(), Status> {
        let call = |way| async move { lease(way).lease_revoke(LeaseRevokeRequest { id }).await };
        match self.call("ending an etcd lease", call).await {
            Ok(_) => Ok(()),
            Err(status) if status.code() == Code::NotFound => Ok(()),
            Err(status) => Err(status),
        }
    }

    /// Watches all keys from `key` to `range_end`, from that revision on. The caller gives what comes a limit.
    pub(super) async fn watch(
        &self,
        key: Vec<u8>,
        range_end: Vec<u8>,
        start_revision: i64,
    ) -> Result<Streaming<WatchResponse>, Status> {
        let create = WatchCreateRequest { key, range_end, start_revision };
        let call = |way| {
            let create = RequestUnion::CreateRequest(create.clone());
            let first = WatchRequest { request_union: Some(create) };
            // Who says no more is taken to have hung up.
            let said = tokio_stream::once(first).chain(futures_util::stream::pending());
            let mut request = Request::new(said);
            // A member that was cut off from the others shall not be silent about it.
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
            async move { watch(way).watch(request).await }
        };
        self.call("watching keys", call).await
    }

    /// Asks another member from now on.
    pub(super) fn move_on(&self) {
        self.move_on_from(self.current.load(Ordering::Relaxed));
    }

    fn move_on_from(&self, at: usize) {
        let next = (at + 1) % self.members.len().max(1);
        // Whoever comes later finds that it was done.
        let moved = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.current.compare_exchange(at, next, moved.0, moved.1);
    }

    async fn call<T, F>(&self, what: &str, call: impl Fn(Channel) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let mut last = Status::unavailable("no member of etcd is configured");
        for _ in 0..self.members.len().min(TRIES_MAX) {
            let at = self.current.load(Ordering::Relaxed);
            let Some(member) = self.members.get(at) else { break };
            let answer = timeout(CALL_LIMIT, call(member.way.clone())).await;
            let status = match answer {
                Ok(Ok(answer)) => {
                    self.hear(String::new());
                    return Ok(answer.into_inner());
                }
                Ok(Err(status)) => status,
                Err(_) => Status::deadline_exceeded(format!("no answer within {CALL_LIMIT:?}")),
            };
            let said = format!("{}: {what}: {}", member.endpoint, why(&status));
            let is_final = is_final(status.code());
            last = Status::new(status.code(), said);
            if is_final {
                break;
            }
            self.move_on_from(at);
        }
        self.fail(last.message());
        Err(last)
    }

    fn hear(&self, why: String) {
        *lock(&self.heard) = Heard { at: self.own.now().0, why };
    }

    fn fail(&self, why: &str) {
        why.clone_into(&mut lock(&self.heard).why);
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.endpoints()).finish()
    }
}

/// Another member would say the same.
fn is_final(code: Code) -> bool {
    use Code::{
        FailedPrecondition, InvalidArgument, NotFound, OutOfRange, PermissionDenied,
        Unauthenticated, Unimplemented,
    };
    matches!(
        code,
        FailedPrecondition
            | InvalidArgument
            | NotFound
            | OutOfRange
            | PermissionDenied
            | Unauthenticated
            | Unimplemented
    )
}

fn kv(way: Channel) -> KvClient<Channel> {
    KvClient::new(way).max_decoding_message_size(ANSWER_MAX)
}

fn lease(way: Channel) -> LeaseClient<Channel> {
    LeaseClient::new(way).max_decoding_message_size(ANSWER_MAX)
}

fn watch(way: Channel) -> WatchClient<Channel> {
    WatchClient::new(way).max_decoding_message_size(ANSWER_MAX)
}
