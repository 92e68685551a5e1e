//! An etcd in this process, by the interface of the true one, which does what a script says.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_linux::lock::lock;
use futures_util::{Stream, StreamExt};
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Server, Uri};
use tonic::{Code, Request, Response, Status, Streaming};
use tower::service_fn;

use super::store::Store;
use crate::registry::etcd::proto::kv_server::{Kv, KvServer};
use crate::registry::etcd::proto::lease_server::{Lease, LeaseServer};
use crate::registry::etcd::proto::request_op::Request as Op;
use crate::registry::etcd::proto::response_op::Response as Answer;
use crate::registry::etcd::proto::watch_request::RequestUnion;
use crate::registry::etcd::proto::watch_server::{Watch, WatchServer};
use crate::registry::etcd::proto::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    LeaseRevokeRequest, LeaseRevokeResponse, PutRequest, PutResponse, RangeRequest, RangeResponse,
    RequestOp, ResponseOp, TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};
use crate::registry::etcd::{Member, connect};

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Range,
    Put,
    Txn,
    Watch,
    Grant,
    Revoke,
    KeepAlive,
}

impl Call {
    pub(super) const ALL: [Call; 7] = [
        Call::Range,
        Call::Put,
        Call::Txn,
        Call::Watch,
        Call::Grant,
        Call::Revoke,
        Call::KeepAlive,
    ];
}

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is refused, and not done.
    Error(Code),
    /// It takes a while.
    Late(Duration),
    /// It is not done, and there is no answer.
    Silent,
    /// It is done, and there is no answer.
    Lost,
    /// It is done, and the answer is an error.
    Broken,
    /// What is read, or told, is what was there so many revisions ago.
    Stale(i64),
    /// Of what is read only the newest key is told.
    Forgets,
    /// What a watch tells it tells twice.
    Repeated,
}

/// Who calls, what, and which call of this kind that is.
type Script = Box<dyn Fn(usize, Call, u64) -> Option<Fault> + Send>;

/// What all servers of one etcd share.
pub(crate) struct Shared {
    pub(super) store: Mutex<Store>,
    changed: watch::Sender<i64>,
    script: Mutex<Option<Script>>,
    counts: Mutex<Vec<(Call, u64)>>,
    /// A negative control: transactions compare nothing.
    pub(super) compares: Mutex<bool>,
}

impl Shared {
    pub(crate) fn new() -> Arc<Shared> {
        Arc::new(Shared {
            store: Mutex::default(),
            changed: watch::Sender::new(0),
            script: Mutex::default(),
            counts: Mutex::default(),
            compares: Mutex::new(true),
        })
    }

    pub(super) fn follow(
        &self,
        script: impl Fn(usize, Call, u64) -> Option<Fault> + Send + 'static,
    ) {
        *lock(&self.script) = Some(Box::new(script));
    }

    /// Nothing is answered from here on.
    pub(crate) fn be_silent(&self) {
        self.follow(|_, _, _| Some(Fault::Silent));
    }

    pub(super) fn behave(&self) {
        *lock(&self.script) = None;
    }

    /// Does something to what is kept, and tells those who watch.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Store) -> T) -> T {
        let (changed, revision) = {
            let mut store = lock(&self.store);
            let changed = change(&mut store);
            (changed, store.revision)
        };
        self.changed.send_if_modified(|known| std::mem::replace(known, revision) != revision);
        changed
    }

    fn fault(&self, host: usize, call: Call) -> Option<Fault> {
        let count = {
            let mut counts = lock(&self.counts);
            match counts.iter_mut().find(|(counted, _)| *counted == call) {
                Some((_, count)) => {
                    *count += 1;
                    *count
                }
                None => {
                    counts.push((call, 1));
                    1
                }
            }
        };
        lock(&self.script).as_ref().and_then(|script| script(host, call, count))
    }
}

/// To those who serve.
pub(super) type Callers = mpsc::Sender<Result<DuplexStream, std::io::Error>>;

/// The server that one host sees.
#[derive(Clone)]
pub(crate) struct Seen {
    shared: Arc<Shared>,
    host: usize,
    cut: watch::Sender<bool>,
}

impl Seen {
    /// The way of somebody to it, for as long as the runtime runs.
    pub(crate) fn member(shared: &Arc<Shared>) -> Member {
        let (_, way, _) = Seen::serve(shared, 0);
        Member { endpoint: "http://etcd:2379".to_owned(), way }
    }

    /// Serves a host; gives the way to it.
    pub(super) fn serve(shared: &Arc<Shared>, host: usize) -> (Seen, Channel, Vec<AbortHandle>) {
        let (seen, callers, serving) = Seen::serve_streams(shared, host);
        let connect = service_fn(move |_: Uri| {
            let callers = callers.clone();
            async move {
                let (near, far) = tokio::io::duplex(1 << 20);
                callers.send(Ok(far)).await.map_err(std::io::Error::other)?;
                Ok::<_, std::io::Error>(TokioIo::new(near))
            }
        });
        (seen, connect::settings().connect_with_connector_lazy(connect), serving)
    }

    /// Serves whoever comes by a stream that is given to the sender.
    pub(super) fn serve_streams(
        shared: &Arc<Shared>,
        host: usize,
    ) -> (Seen, Callers, Vec<AbortHandle>) {
        let seen = Seen { shared: Arc::clone(shared), host, cut: watch::Sender::new(false) };
        let (callers, incoming) = mpsc::channel::<Result<DuplexStream, std::io::Error>>(16);
        let serving = Server::builder()
            .add_service(KvServer::new(seen.clone()))
            .add_service(WatchServer::new(seen.clone()))
            .add_service(LeaseServer::new(seen.clone()))
            .serve_with_incoming(ReceiverStream::new(incoming));
        let serving = tokio::spawn(async move { serving.await.expect("it serves") });
        let expiring = Arc::clone(shared);
        let expiring = tokio::spawn(async move {
            loop {
                sleep(Duration::from_millis(100)).await;
                expiring.change(Store::expire);
            }
        });
        (seen, callers, vec![serving.abort_handle(), expiring.abort_handle()])
    }

    pub(super) fn set_cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }

    async fn reached(&self) {
        let mut cut = self.cut.subscribe();
        if *cut.borrow() {
            // Whoever waits here has been given up when it gets through.
            let _ = cut.wait_for(|cut| !cut).await;
            std::future::pending::<()>().await;
        }
    }

    /// Does a call as the script says.
    async fn act<T>(
        &self,
        call: Call,
        act: impl FnOnce(&mut Store) -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        self.reached().await;
        self.act_as(self.shared.fault(self.host, call), act).await
    }

    async fn act_as<T>(
        &self,
        fault: Option<Fault>,
        act: impl FnOnce(&mut Store) -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        match fault {
            Some(Fault::Error(code)) => return Err(Status::new(code, "as the script says")),
            Some(Fault::Late(pause)) => sleep(pause).await,
            Some(Fault::Silent) => std::future::pending().await,
            _ => {}
        }
        let done = self.shared.change(act);
        match fault {
            Some(Fault::Lost) => std::future::pending().await,
            Some(Fault::Broken) => Err(Status::unavailable("the answer is lost")),
            _ => done.map(Response::new),
        }
    }
}

fn gone() -> Status {
    Status::not_found("etcdserver: requested lease not found")
}

#[tonic::async_trait]
impl Kv for Seen {
    async fn range(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<RangeResponse>, Status> {
        let mut request = request.into_inner();
        self.reached().await;
        let fault = self.shared.fault(self.host, Call::Range);
        if fault == Some(Fault::Forgets) {
            let mut found = self.shared.change(|store| store.range(&request));
            found.kvs.sort_by_key(|kv| kv.create_revision);
            found.kvs.drain(..found.kvs.len().saturating_sub(1));
            return Ok(Response::new(found));
        }
        if let Some(Fault::Stale(by)) = fault {
            let then = (lock(&self.shared.store).revision - by).max(1);
            request.revision = then;
            let mut found = self.shared.change(|store| store.range(&request));
            found.header.as_mut().expect("a header").revision = then;
            return Ok(Response::new(found));
        }
        self.act_as(fault, |store| Ok(store.range(&request))).await
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let request = request.into_inner();
        self.act(Call::Put, |store| match store.put(request) {
            true => Ok(PutResponse { header: store.header() }),
            false => Err(gone()),
        })
        .await
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        let TxnRequest { compare, success, failure } = request.into_inner();
        let compares = *lock(&self.shared.compares);
        self.act(Call::Txn, |store| {
            let succeeded = !compares || compare.iter().all(|compare| store.holds(compare));
            let ops = if succeeded { success } else { failure };
            let is_put = |op: &RequestOp| match &op.request {
                Some(Op::RequestPut(put)) => Some(put.clone()),
                _ => None,
            };
            let puts: Vec<PutRequest> = ops.iter().filter_map(is_put).collect();
            if !puts.is_empty() && !store.put_all(puts) {
                return Err(gone());
            }
            let answered = |op: &RequestOp| match &op.request {
                Some(Op::RequestRange(range)) => Answer::ResponseRange(store.range(range)),
                _ => Answer::ResponsePut(PutResponse { header: None }),
            };
            let responses = ops.iter().map(answered);
            let responses =
                responses.map(|response| ResponseOp { response: Some(response) }).collect();
            Ok(TxnResponse { header: store.header(), succeeded, responses })
        })
        .await
    }
}

type Told = mpsc::Sender<Result<WatchResponse, Status>>;

impl Seen {
    async fn tell(self, from: i64, fault: Option<Fault>, told: Told) {
        let mut next = from;
        let mut changed = self.shared.changed.subscribe();
        let created = WatchResponse { created: true, ..WatchResponse::default() };
        if told.send(Ok(created)).await.is_err() {
            return;
        }
        let compacted = lock(&self.shared.store).compacted;
        if from <= compacted {
            let canceled = WatchResponse {
                canceled: true,
                compact_revision: compacted,
                cancel_reason: "etcdserver: mvcc: required revision has been compacted".to_owned(),
                ..WatchResponse::default()
            };
            let _ = told.send(Ok(canceled)).await;
            return;
        }
        loop {
            changed.mark_unchanged();
            let events = lock(&self.shared.store).since(next);
            let mut cut = self.cut.subscribe();
            let _ = cut.wait_for(|cut| !cut).await;
            if !events.is_empty() {
                next =
                    events.last().and_then(|e| Some(e.kv.as_ref()?.mod_revision)).unwrap_or(0) + 1;
                let times = if fault == Some(Fault::Repeated) { 2 } else { 1 };
                for _ in 0..times {
                    let header = lock(&self.shared.store).header();
                    let news = WatchResponse {
                        header,
                        events: events.clone(),
                        ..WatchResponse::default()
                    };
                    if told.send(Ok(news)).await.is_err() {
                        return;
                    }
                }
            }
            tokio::select! {
                changed = changed.changed() => if changed.is_err() { return },
                () = told.closed() => return,
            }
        }
    }
}

#[tonic::async_trait]
impl Watch for Seen {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<Streaming<WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        self.reached().await;
        assert!(
            request.metadata().get("hasleader").is_some(),
            "it would not hear of a lost leader"
        );
        let first = request.into_inner().message().await?;
        let Some(RequestUnion::CreateRequest(create)) = first.and_then(|r| r.request_union) else {
            return Err(Status::invalid_argument("nothing is watched"));
        };
        let fault = self.shared.fault(self.host, Call::Watch);
        let (told, telling) = mpsc::channel(64);
        match fault {
            Some(Fault::Error(code)) => return Err(Status::new(code, "as the script says")),
            Some(Fault::Late(pause)) => sleep(pause).await,
            Some(Fault::Silent) => std::future::pending().await,
            // It begins, and never tells anything.
            Some(Fault::Lost | Fault::Stale(_)) => {
                return Ok(Response::new(Box::pin(ReceiverStream::new(telling).chain(
                    futures_util::stream::once(async move {
                        let _told = told;
                        std::future::pending().await
                    }),
                ))));
            }
            Some(Fault::Broken) => {
                let seen = self.clone();
                tokio::spawn(async move {
                    let telling = seen.tell(create.start_revision, None, told);
                    let _ = tokio::time::timeout(Duration::from_millis(300), telling).await;
                });
                return Ok(Response::new(Box::pin(ReceiverStream::new(telling))));
            }
            _ => {}
        }
        tokio::spawn(self.clone().tell(create.start_revision, fault, told));
        Ok(Response::new(Box::pin(ReceiverStream::new(telling))))
    }
}

#[tonic::async_trait]
impl Lease for Seen {
    async fn lease_grant(
        &self,
        request: Request<LeaseGrantRequest>,
    ) -> Result<Response<LeaseGrantResponse>, Status> {
        let ttl = request.into_inner().ttl;
        self.act(Call::Grant, |store| {
            let id = store.grant(ttl);
            Ok(LeaseGrantResponse { header: store.header(), id, ttl, error: String::new() })
        })
        .await
    }

    async fn lease_revoke(
        &self,
        request: Request<LeaseRevokeRequest>,
    ) -> Result<Response<LeaseRevokeResponse>, Status> {
        let id = request.into_inner().id;
        self.act(Call::Revoke, |store| match store.revoke(id) {
            true => Ok(LeaseRevokeResponse { header: store.header() }),
            false => Err(gone()),
        })
        .await
    }

    type LeaseKeepAliveStream =
        Pin<Box<dyn Stream<Item = Result<LeaseKeepAliveResponse, Status>> + Send>>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let first = request.into_inner().message().await?;
        let id = first.ok_or_else(|| Status::invalid_argument("which lease?"))?.id;
        let kept = self.act(Call::KeepAlive, |store| {
            let ttl = store.keep_alive(id);
            Ok(LeaseKeepAliveResponse { header: store.header(), id, ttl })
        });
        let kept = kept.await?.into_inner();
        Ok(Response::new(Box::pin(tokio_stream::once(Ok(kept)))))
    }
}
