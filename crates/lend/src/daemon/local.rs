//! What the users of this host say to their daemon.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::tls::Credentials;
use farside_linux::lock::lock;
use futures_util::future::join_all;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::audit::{Act, Record};
use super::users::{User, host_name, is_host_name};
use super::{Daemon, borrowing, dial, looked_at, network};
use crate::LendError;
use crate::home::Lent;
use crate::pki::{self, HostIdentity, Keypair, Token};
use crate::proto::local_server::Local;
use crate::proto::{
    AvailableReply, AvailableRequest, BorrowForEvent, BorrowForRequest, DownReply, DownRequest,
    GiveBackReply, GiveBackRequest, HostDevices, InviteReply, InviteRequest, JoinPeersReply,
    JoinPeersRequest, JoinRequest, ListRequest, Peer, RecallReply, RecallRequest, ReleaseReply,
    ReleaseRequest, RulesReply, RulesRequest, StatusReply, StatusRequest, UpReply, UpRequest,
};

/// How long a peer may take to say what it lends.
const LIST_LIMIT: Duration = Duration::from_secs(3);
/// How long joining may take.
const JOIN_LIMIT: Duration = Duration::from_secs(10);

pub(super) struct LocalService(pub(super) Arc<Daemon>);

impl Daemon {
    /// Whoever asks, if it may change what this host lends.
    async fn governor<T>(&self, request: &Request<T>) -> Result<User, Status> {
        let user = User::of(request)?;
        user.governs(&self.configured.get())?;
        Ok(user.named().await)
    }

    fn invite(&self) -> Result<InviteReply, Status> {
        if self.identity().is_organisations {
            let why = "this host has certificates of its organisation: others that have them join by \
                       `farside join HOST@ADDRESS:PORT`";
            return Err(Status::failed_precondition(why));
        }
        if self.home.authority()?.is_none() {
            let why = "this host has joined others, whose authority is another host: invite there";
            return Err(Status::failed_precondition(why));
        }
        let mut state = lock(&self.state);
        if state.settings.address.is_empty() {
            let why = "this host is not open to others; `farside lend up` opens it";
            return Err(Status::failed_precondition(why));
        }
        let (host, address) = (state.host.clone(), state.settings.address.clone());
        let authority = state.identity.authority.clone();
        let token = state.invitations.invite(&host, &authority, Instant::now());
        Ok(InviteReply { address, token: token.to_string() })
    }

    /// Takes another name, if nobody knows the present one yet.
    fn rename(&self, name: &str) -> Result<(), Status> {
        if name.is_empty() || name == self.host() {
            return Ok(());
        }
        if !is_host_name(name) {
            return Err(Status::invalid_argument(format!("`{name}` is no name of a host")));
        }
        if self.identity().is_organisations {
            let why = format!("this host's certificate names it {}", self.host());
            return Err(Status::failed_precondition(why));
        }
        let authority = self.home.authority()?.filter(|_| self.peers().is_empty());
        if authority.is_none() {
            let why = format!("this host is known as {} already", self.host());
            return Err(Status::failed_precondition(why));
        }
        let identity = self.home.found(name)?;
        let mut state = lock(&self.state);
        state.identity = identity;
        name.clone_into(&mut state.host);
        self.registry.rename(name);
        Ok(())
    }

    async fn up(self: &Arc<Self>, request: UpRequest) -> Result<UpReply, Status> {
        looked_at::check(&request.metrics)?;
        self.rename(&request.name)?;
        for device in &request.devices {
            self.lending.lend(&device.name, device.path.as_ref())?;
        }
        let former = lock(&self.state).settings.listen.clone();
        let listen = [request.listen, former, network::OPEN.to_owned()];
        let listen = listen.into_iter().find(|listen| !listen.is_empty()).unwrap_or_default();
        let bound = network::open(self, &listen).await?;
        let address = network::reachable(bound).to_string();
        self.change(|state| {
            // With the port that was found, where none was said: peers look for it there.
            state.settings.listen = bound.to_string();
            state.settings.address.clone_from(&address);
            if !request.metrics.is_empty() {
                state.settings.metrics = request.metrics;
            }
            if request.duration_ns != 0 {
                state.settings.lease_ns = request.duration_ns;
            }
            for device in request.devices {
                let lent = Lent { name: device.name, path: device.path.into() };
                state.settings.devices.retain(|known| known.name != lent.name);
                state.settings.devices.push(lent);
            }
        })?;
        if request.duration_ns != 0 {
            self.lending.set_duration(Duration::from_nanos(request.duration_ns))?;
        }
        self.serve_metrics().await?;
        self.publish();
        self.announce().await;
        // A host that belongs to another's group invites nobody itself.
        let token = self.invite().map(|invited| invited.token).unwrap_or_default();
        let metrics = self.metrics_address().map(|address| address.to_string());
        let devices = self.lending.devices();
        Ok(UpReply { address, token, devices, metrics: metrics.unwrap_or_default() })
    }

    /// Tells the peers where this host is.
    async fn announce(&self) {
        for host in self.available().await {
            if !host.error.is_empty() {
                tracing::info!(host = host.host, why = host.error, "a peer does not answer");
            }
        }
    }

    /// What the peers lend, each asked at the same time, and this host.
    pub(super) async fn available(&self) -> Vec<HostDevices> {
        let own = self.as_peer();
        let asked = self.peers().into_iter().map(|peer| self.list(peer, own.address.clone()));
        let mut hosts = vec![HostDevices {
            host: own.host.clone(),
            address: own.address.clone(),
            devices: self.lending.devices(),
            ..HostDevices::default()
        }];
        hosts.extend(join_all(asked).await);
        hosts
    }

    async fn list(&self, peer: Peer, own_address: String) -> HostDevices {
        let mut found =
            HostDevices { host: peer.host, address: peer.address, ..HostDevices::default() };
        if found.address.is_empty() {
            found.error = "it is not open to others".to_owned();
            return found;
        }
        let request = ListRequest { address: own_address };
        let asked = async {
            let mut peer = self.dial(&found.address, &found.host)?;
            peer.list(request).await.map_err(|status| LendError::Refused(dial::why(&status)))
        };
        match tokio::time::timeout(LIST_LIMIT, asked).await {
            Ok(Ok(reply)) => {
                let reply = reply.into_inner();
                for known in &reply.peers {
                    if let Err(error) = self.hear_of_peer(&known.host, &known.address) {
                        tracing::warn!(%error, "a peer cannot be noted");
                    }
                }
                found.devices = reply.devices;
            }
            Ok(Err(error)) => found.error = error.to_string(),
            Err(_) => found.error = format!("no answer within {} s", LIST_LIMIT.as_secs()),
        }
        self.with_what_is_known(found)
    }

    /// Adds what was heard last of a host that does not answer.
    fn with_what_is_known(&self, mut found: HostDevices) -> HostDevices {
        let known = if found.error.is_empty() { None } else { self.known_of(&found.host) };
        if let Some((devices, heard)) = known {
            found.devices = devices;
            // At least something: 0 says that it is so now.
            found.heard_ns = (heard.as_nanos() as u64).max(1);
        }
        found
    }

    pub(super) fn dial(&self, address: &str, host: &str) -> Result<dial::PeerClient, LendError> {
        let config = self.identity().client()?;
        self.machine.dial(address, host, config).map_err(LendError::system("calling a peer"))
    }

    /// Joins a host by the certificates that both have of one organisation.
    async fn join_by_name(&self, host: &str, address: &str) -> Result<JoinPeersReply, Status> {
        if !self.identity().is_organisations {
            let why = "this host has no certificates of an organisation: join with a token, which \
                       `farside lend invite` prints there";
            return Err(Status::failed_precondition(why));
        }
        if !is_host_name(host) {
            return Err(Status::invalid_argument(format!("`{host}` is no name of a host")));
        }
        let (host, address) = (host.to_owned(), address.to_owned());
        let own = self.as_peer().address;
        let found = self.list(Peer { host, address }, own).await;
        if !found.error.is_empty() {
            let why = format!("{} cannot be joined: {}", found.address, found.error);
            return Err(Status::unavailable(why));
        }
        self.note_peer(&found.host, &found.address)?;
        Ok(JoinPeersReply { host: self.host(), peers: self.peers() })
    }

    async fn join(&self, request: JoinPeersRequest) -> Result<JoinPeersReply, Status> {
        if let Some((host, address)) = request.address.split_once('@') {
            return self.join_by_name(host, address).await;
        }
        if self.identity().is_organisations {
            let why = "this host has certificates of its organisation: join by HOST@ADDRESS:PORT, \
                       without a token";
            return Err(Status::failed_precondition(why));
        }
        let token: Token = request
            .token
            .parse()
            .map_err(|error: pki::TokenError| Status::invalid_argument(error.to_string()))?;
        if !self.peers().is_empty() && !lock(&self.state).identity.authority.is_empty() {
            let authority = self.identity().authority;
            if !token.is_authority(&authority) {
                let why = "this host knows other hosts already; a host belongs to one group";
                return Err(Status::failed_precondition(why));
            }
        }
        let keys = Keypair::create().map_err(LendError::from)?;
        let config = pki::joining(&token).map_err(LendError::from)?;
        let asked = JoinRequest {
            secret: token.secret(),
            host: if request.name.is_empty() { host_name() } else { request.name },
            public_key: keys.public(),
            address: lock(&self.state).settings.address.clone(),
        };
        let calling = async {
            let mut peer = dial::peer(&request.address, &token.host, config)
                .map_err(|error| Status::unavailable(error.to_string()))?;
            peer.join(asked).await
        };
        let limited = tokio::time::timeout(JOIN_LIMIT, calling).await;
        let fail = |why: String| {
            Status::unavailable(format!("{} cannot be joined: {why}", request.address))
        };
        let reply = limited
            .map_err(|_| fail(format!("no answer within {} s", JOIN_LIMIT.as_secs())))?
            .map_err(|status| fail(dial::why(&status)))?
            .into_inner();
        if !token.is_authority(&reply.authority) {
            return Err(fail("it shows another authority than the token names".to_owned()));
        }
        let own = Credentials { certificate: reply.certificate, key: keys.private() };
        let identity = HostIdentity::of_group(own, reply.authority);
        let host = identity.host().filter(|host| is_host_name(host));
        let host = host.ok_or_else(|| fail("its certificate names no host".to_owned()))?;
        self.home.join(&identity)?;
        {
            let mut state = lock(&self.state);
            state.identity = identity;
            state.host.clone_from(&host);
        }
        self.ways.forget();
        self.registry.rename(&host);
        self.note_peer(&reply.host, &request.address)?;
        for peer in reply.peers.iter().filter(|peer| peer.host != reply.host) {
            self.hear_of_peer(&peer.host, &peer.address)?;
        }
        self.publish();
        Ok(JoinPeersReply { host, peers: self.peers() })
    }
}

#[tonic::async_trait]
impl Local for LocalService {
    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusReply>, Status> {
        let daemon = &self.0;
        let own = daemon.as_peer();
        Ok(Response::new(StatusReply {
            host: own.host,
            pid: std::process::id(),
            address: own.address,
            devices: daemon.lending.devices(),
            traffic: daemon.lending.traffic(),
            peers: daemon.peers(),
            held: daemon.borrowing.held(),
            warnings: daemon.warnings().into_iter().chain(daemon.registry.trouble()).collect(),
        }))
    }

    async fn up(&self, request: Request<UpRequest>) -> Result<Response<UpReply>, Status> {
        let user = self.0.governor(&request).await?;
        let up = self.0.up(request.into_inner()).await?;
        self.0.observed.note(Record::of(Act::Opened).user(user.name()).why(&up.address));
        Ok(Response::new(up))
    }

    async fn down(&self, request: Request<DownRequest>) -> Result<Response<DownReply>, Status> {
        let user = self.0.governor(&request).await?;
        let daemon = &self.0;
        network::open(daemon, "").await?;
        daemon.observed.note(Record::of(Act::Closed).user(user.name()));
        daemon.change(|state| {
            state.settings.listen.clear();
            state.settings.address.clear();
        })?;
        daemon.publish();
        Ok(Response::new(DownReply {}))
    }

    async fn invite(
        &self,
        request: Request<InviteRequest>,
    ) -> Result<Response<InviteReply>, Status> {
        let user = self.0.governor(&request).await?;
        let invited = self.0.invite()?;
        self.0.observed.note(Record::of(Act::Invited).user(user.name()));
        Ok(Response::new(invited))
    }

    async fn join_peers(
        &self,
        request: Request<JoinPeersRequest>,
    ) -> Result<Response<JoinPeersReply>, Status> {
        self.0.governor(&request).await?;
        let reply = self.0.join(request.into_inner()).await?;
        // Callers are to see the new certificate.
        let listen = lock(&self.0.state).settings.listen.clone();
        network::open(&self.0, &listen).await?;
        Ok(Response::new(reply))
    }

    async fn available(
        &self,
        _: Request<AvailableRequest>,
    ) -> Result<Response<AvailableReply>, Status> {
        let hosts = self.0.available().await;
        let warnings = self.0.registry.trouble().into_iter().collect();
        Ok(Response::new(AvailableReply { hosts, warnings }))
    }

    type BorrowForStream = Pin<Box<dyn Stream<Item = Result<BorrowForEvent, Status>> + Send>>;

    async fn borrow_for(
        &self,
        request: Request<BorrowForRequest>,
    ) -> Result<Response<Self::BorrowForStream>, Status> {
        let user = User::of(&request)?.named().await;
        let events = borrowing::borrow_for(&self.0, user, request.into_inner()).await?;
        Ok(Response::new(Box::pin(ReceiverStream::new(events))))
    }

    async fn give_back(
        &self,
        request: Request<GiveBackRequest>,
    ) -> Result<Response<GiveBackReply>, Status> {
        let user = User::of(&request)?;
        let config = self.0.configured.get();
        self.0.borrowing.give_back(&user, &config, &request.get_ref().device)?;
        Ok(Response::new(GiveBackReply {}))
    }

    async fn recall(
        &self,
        request: Request<RecallRequest>,
    ) -> Result<Response<RecallReply>, Status> {
        let user = self.0.governor(&request).await?;
        let RecallRequest { device, within_ns } = request.into_inner();
        self.0.lending.recall(&device, Duration::from_nanos(within_ns), user.name())?;
        Ok(Response::new(RecallReply {}))
    }

    async fn release(
        &self,
        request: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseReply>, Status> {
        let user = self.0.governor(&request).await?;
        self.0.lending.release(&request.get_ref().device, user.name())?;
        Ok(Response::new(ReleaseReply {}))
    }

    async fn rules(&self, _: Request<RulesRequest>) -> Result<Response<RulesReply>, Status> {
        let rules = self.0.configured.get().rules.described();
        Ok(Response::new(RulesReply { rules }))
    }
}
