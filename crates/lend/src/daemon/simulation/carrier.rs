//! Calls between daemons over a network that is simulated: the code of the calls and their messages as
//! bytes are those of users, what carries them is not.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use http_body::Frame;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{Body as _, Bytes, Service};
use tower::ServiceExt;

use super::super::dial::PeerClient;
use super::super::listener::CallerHost;
use super::super::machine::Machine;
use super::super::peers::PeersService;
use super::world::World;
use crate::proto::peers_client::PeersClient;
use crate::proto::peers_server::PeersServer;

/// After this time without a sign of life a connection counts as broken.
const KEEP_ALIVE: Duration = Duration::from_secs(4);
/// Frames on their way, at most.
const FRAMES_MAX: usize = 16;

/// The way from a host to another.
pub(super) fn to(world: &Arc<World>, from: &str, to: &str) -> PeerClient {
    let way = Way { world: Arc::clone(world), from: from.into(), to: to.into() };
    let service = tower::service_fn(move |request| way.clone().carry(request));
    PeersClient::new(service.boxed_clone())
}

#[derive(Clone)]
struct Way {
    world: Arc<World>,
    from: Arc<str>,
    to: Arc<str>,
}

impl Way {
    async fn carry(self, mut request: Request<Body>) -> Result<Response<Body>, Status> {
        self.pass(&self.from, &self.to).await?;
        let refused = || Status::unavailable("the connection is refused");
        let running = self.world.running(&self.to).ok_or_else(refused)?;
        let caller = CallerHost { host: Some(self.from.to_string()), way: None, _place: None };
        request.extensions_mut().insert(caller);
        let mut service = PeersServer::new(PeersService(Arc::clone(&running.daemon)));
        let (answer, answered) = oneshot::channel();
        let way = self.clone();
        // It runs to its end though whoever calls may be gone, unless its own daemon is.
        let serving = async move {
            let Ok(response) = service.call(request).await;
            let (parts, body) = response.into_parts();
            let (frames, arriving) = mpsc::channel(FRAMES_MAX);
            let arriving = Body::new(Arriving { frames: arriving, ended: false });
            if answer.send(Response::from_parts(parts, arriving)).is_ok() {
                way.bring(body, frames).await;
            }
        };
        running.machine.spawn(serving.boxed());
        drop(running);
        let response = answered.await.map_err(|_| broken())?;
        self.pass(&self.to, &self.from).await?;
        Ok(response)
    }

    /// A message goes from one to the other, or is found to be lost.
    async fn pass(&self, from: &str, to: &str) -> Result<(), Status> {
        let (delay, arrives) = self.world.message(from, to);
        sleep(delay).await;
        if arrives {
            return Ok(());
        }
        sleep(KEEP_ALIVE).await;
        Err(broken())
    }

    /// Brings what comes of a call to the caller, as long as that wants it and can be reached.
    async fn bring(&self, mut body: Body, frames: mpsc::Sender<Result<Frame<Bytes>, Status>>) {
        let mut cuts = self.world.cuts();
        loop {
            let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
            tokio::select! {
                frame = frame => {
                    let Some(frame) = frame else { return };
                    if self.pass(&self.to, &self.from).await.is_err()
                        || frames.send(frame).await.is_err()
                    {
                        return;
                    }
                }
                () = frames.closed() => return,
                _ = cuts.changed() => {
                    if self.is_cut() {
                        sleep(KEEP_ALIVE).await;
                        if self.is_cut() {
                            return;
                        }
                    }
                }
            }
        }
    }

    fn is_cut(&self) -> bool {
        self.world.is_cut(&self.to, &self.from) || self.world.is_cut(&self.from, &self.to)
    }
}

fn broken() -> Status {
    Status::unavailable("the connection has broken")
}

/// What comes of a call, as its caller sees it.
struct Arriving {
    frames: mpsc::Receiver<Result<Frame<Bytes>, Status>>,
    ended: bool,
}

impl http_body::Body for Arriving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let frame = match std::task::ready!(self.frames.poll_recv(cx)) {
            Some(frame) => frame,
            // Its end was not among what came.
            None => Err(broken()),
        };
        self.ended = frame.as_ref().map_or(true, Frame::is_trailers);
        Poll::Ready(Some(frame))
    }
}
