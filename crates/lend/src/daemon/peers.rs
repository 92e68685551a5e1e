//! What other hosts say to this one.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use farside_lease::{DeviceName, DeviceSet};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::audit::{Act, Record};
use super::listener::CallerHost;
use super::metrics::Counts;
use super::{Daemon, users};
use crate::LendError;
use crate::config::Way;
use crate::home::Peer;
use crate::proto::peers_server::Peers;
use crate::proto::{
    self, BorrowEvent, BorrowRequest, ClaimEvent, ClaimRequest, ExchangeReply, ExchangeRequest,
    JoinReply, JoinRequest, ListReply, ListRequest, RenewReply, RenewRequest, ReturnReply,
    ReturnRequest,
};
use crate::steps::{Step, at};

pub(super) struct PeersService(pub(super) Arc<Daemon>);

impl From<LendError> for Status {
    fn from(error: LendError) -> Status {
        Status::internal(error.to_string())
    }
}

/// The host that calls.
fn caller<T>(request: &Request<T>) -> Result<String, Status> {
    let known = request.extensions().get::<CallerHost>();
    known.and_then(|caller| caller.host.clone()).ok_or_else(|| {
        Status::unauthenticated("this host does not know you; join it first: farside join")
    })
}

/// The way to the host that calls.
fn way<T>(request: &Request<T>) -> Option<Way> {
    request.extensions().get::<CallerHost>().and_then(|caller| caller.way)
}

impl Daemon {
    pub(super) fn peers(&self) -> Vec<proto::Peer> {
        let state = farside_linux::lock::lock(&self.state);
        let peer =
            |peer: &Peer| proto::Peer { host: peer.host.clone(), address: peer.address.clone() };
        state.settings.peers.iter().map(peer).collect()
    }

    /// Itself as a peer of others.
    pub(super) fn as_peer(&self) -> proto::Peer {
        let state = farside_linux::lock::lock(&self.state);
        proto::Peer { host: state.host.clone(), address: state.settings.address.clone() }
    }

    /// Notes a host of which another has said where it is: whoever joined it, or heard of it from itself,
    /// knows better.
    pub(super) fn hear_of_peer(&self, host: &str, address: &str) -> Result<(), LendError> {
        let is_known = {
            let state = farside_linux::lock::lock(&self.state);
            let mut peers = state.settings.peers.iter();
            peers.any(|peer| peer.host == host && !peer.address.is_empty())
        };
        if is_known { Ok(()) } else { self.note_peer(host, address) }
    }

    /// Notes a host, and where it is.
    pub(super) fn note_peer(&self, host: &str, address: &str) -> Result<(), LendError> {
        self.change(|state| {
            let is_fit = users::is_host_name(host) && address.len() <= ADDRESS_BYTES_MAX;
            if host == state.host || !is_fit {
                return;
            }
            let peers = &mut state.settings.peers;
            let is_full = peers.len() >= PEERS_MAX;
            self.registry.introduce(host, address);
            match peers.iter_mut().find(|peer| peer.host == host) {
                Some(known) if address.is_empty() || known.address == address => {}
                Some(known) => known.address = address.to_owned(),
                None if is_full => {
                    tracing::warn!(host, "a host more is not noted: {PEERS_MAX} are known");
                }
                None => peers.push(Peer { host: host.to_owned(), address: address.to_owned() }),
            }
        })
    }

    /// A name like the wanted one that no host has yet.
    fn free_name(&self, wanted: &str) -> Result<String, Status> {
        if !users::is_host_name(wanted) {
            return Err(Status::invalid_argument(format!("`{wanted}` is no name of a host")));
        }
        let state = farside_linux::lock::lock(&self.state);
        let taken = |name: &str| {
            state.host == name || state.settings.peers.iter().any(|peer| peer.host == name)
        };
        let numbered = (2..1000).map(|n| format!("{wanted}-{n}"));
        let mut names = std::iter::once(wanted.to_owned()).chain(numbered);
        let name = names.find(|name| !taken(name) && users::is_host_name(name));
        name.ok_or_else(|| Status::resource_exhausted("too many hosts have that name"))
    }

    fn certify(&self, request: &JoinRequest) -> Result<JoinReply, Status> {
        if self.identity().is_organisations {
            let why = "this host takes no tokens: it has certificates of its organisation";
            return Err(Status::failed_precondition(why));
        }
        let authority = self.home.authority()?.ok_or_else(|| {
            Status::failed_precondition("this host is not the authority of its group")
        })?;
        let invited = {
            let mut state = farside_linux::lock::lock(&self.state);
            state.invitations.accept(&request.secret, Instant::now())
        };
        if !invited {
            let why = "the token is not good: it was used, is older than an hour, or this host's \
                       daemon was started again since; `farside lend invite` there prints another";
            return Err(Status::permission_denied(why));
        }
        let name = self.free_name(&request.host)?;
        let certificate = authority.certify(&name, &request.public_key).map_err(LendError::from)?;
        let mut peers = self.peers();
        peers.push(self.as_peer());
        self.note_peer(&name, &request.address)?;
        tracing::info!(host = name, "a host has joined");
        self.observed.note(Record::of(Act::Joined).host(&name));
        self.observed.count(Counts::joined);
        at(Step::Joining);
        let authority = authority.certificate().to_vec();
        Ok(JoinReply { certificate, authority, host: self.host(), peers })
    }
}

/// Bytes of an address, at most: a name, and a port.
const ADDRESS_BYTES_MAX: usize = 264;

/// Hosts that are known, at most.
const PEERS_MAX: usize = 4096;

#[tonic::async_trait]
impl Peers for PeersService {
    async fn join(&self, request: Request<JoinRequest>) -> Result<Response<JoinReply>, Status> {
        Ok(Response::new(self.0.certify(request.get_ref())?))
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListReply>, Status> {
        let caller = caller(&request)?;
        self.0.note_peer(&caller, &request.get_ref().address)?;
        let devices = self.0.lending.devices();
        Ok(Response::new(ListReply { host: self.0.host(), devices, peers: self.0.peers() }))
    }

    async fn exchange(
        &self,
        request: Request<ExchangeRequest>,
    ) -> Result<Response<ExchangeReply>, Status> {
        caller(&request)?;
        Ok(Response::new(self.0.finding.told_by_others()?.answer(request.get_ref())))
    }

    type ClaimStream = Pin<Box<dyn Stream<Item = Result<ClaimEvent, Status>> + Send>>;

    async fn claim(
        &self,
        request: Request<ClaimRequest>,
    ) -> Result<Response<Self::ClaimStream>, Status> {
        let caller = caller(&request)?;
        let names = request.get_ref().devices.iter().map(|name| DeviceName::new(name));
        let names = names.collect::<Result<Vec<_>, _>>();
        let invalid = |error: &dyn std::fmt::Display| Status::invalid_argument(error.to_string());
        let names = names.map_err(|error| invalid(&error))?;
        let devices = DeviceSet::new(names).map_err(|error| invalid(&error))?;
        let places = self.0.finding.told_by_others()?.take_claim(&caller, &devices)?;
        Ok(Response::new(Box::pin(ReceiverStream::new(places))))
    }

    type BorrowStream = Pin<Box<dyn Stream<Item = Result<BorrowEvent, Status>> + Send>>;

    async fn borrow(
        &self,
        request: Request<BorrowRequest>,
    ) -> Result<Response<Self::BorrowStream>, Status> {
        let caller = caller(&request)?;
        let way = way(&request);
        let events = self.0.lending.borrow(&caller, way, request.into_inner())?;
        Ok(Response::new(Box::pin(ReceiverStream::new(events))))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<RenewReply>, Status> {
        let caller = caller(&request)?;
        Ok(Response::new(self.0.lending.renew(&caller, request.get_ref()).await?))
    }

    async fn r#return(
        &self,
        request: Request<ReturnRequest>,
    ) -> Result<Response<ReturnReply>, Status> {
        let caller = caller(&request)?;
        self.0.lending.give_back(&caller, request.get_ref())?;
        Ok(Response::new(ReturnReply { request: request.get_ref().request }))
    }
}
