//! The lending daemon of a host: it decides about the host's own devices, and keeps the leases that the
//! host's users have of others.
//!
//! `lending` is the lender's side, `borrowing` the borrower's; `peers` and `local` are what others say to
//! it. Nothing here decides who gets a device: `farside-lease` does.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod attacked;
mod audit;
mod borrowing;
mod configured;
mod connection;
mod device;
pub(crate) mod dial;
mod finding;
#[cfg(test)]
mod flood_tests;
mod hooks;
mod identity;
mod ledger_file;
mod lending;
mod listener;
mod local;
mod looked_at;
mod machine;
mod metrics;
mod neighbours;
mod network;
mod observed;
mod peers;
mod places;
pub mod simulation;
mod users;

use std::fs::File;
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use farside_linux::lock::lock;
use rustix::fs::{FlockOperation, flock};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::LendError;
use crate::home::{Home, Settings};
use crate::pki::{HostIdentity, Invitations};
use crate::proto::local_server::LocalServer;
use crate::registry::Registry;

use audit::{Act, Record};
use borrowing::Borrowing;
use configured::Configured;
use connection::Connection;
use finding::Finding;
use lending::Lending;
use looked_at::LookedAt;
use machine::{Machine, ThisMachine};
use neighbours::Ways;
use network::Network;
use observed::Observed;
use users::LocalCaller;

/// What all services of a daemon share.
pub(crate) struct Daemon {
    home: Home,
    configured: Arc<Configured>,
    observed: Arc<Observed>,
    looked_at: LookedAt,
    state: Mutex<State>,
    lending: Arc<Lending>,
    borrowing: Borrowing,
    network: Network,
    /// How often this host has taken another certificate.
    identities: AtomicU64,
    /// The requests of this run of the daemon are above it.
    requests: u64,
    machine: Arc<dyn Machine>,
    /// What it knows of other hosts.
    registry: Arc<dyn Registry>,
    /// Which kind of registry that is.
    finding: Finding,
    ways: Arc<Ways>,
}

/// What changes while it runs.
struct State {
    settings: Settings,
    identity: HostIdentity,
    /// Its name, as the certificate says.
    host: String,
    invitations: Invitations,
}

impl Daemon {
    /// One that listens to nobody yet; what it lends is found by tasks of the runtime that this is in.
    fn new(home: &Home, machine: Arc<dyn Machine>) -> Result<Arc<Daemon>, LendError> {
        let configured = Configured::read(home)?;
        let found_by = finding::Configured::of(&configured.get().registry, &*machine)?;
        let mut settings = home.settings()?;
        let requests = requests_above(settings.requests, machine.since_1970());
        settings.requests = requests + REQUESTS_OF_A_RUN;
        if let Err(error) = home.keep(&settings) {
            // What is lent goes on all the same.
            tracing::error!(%error, "what is known cannot be kept");
        }
        let identity = match identity::of_files(home, &configured.get())? {
            Some(identity) => identity,
            None => home.found(&users::host_name())?,
        };
        let host = identity.host().unwrap_or_default();
        borrowing::held::end_former(&home.leases());
        let observed = Arc::new(Observed::start(home, &configured.get())?);
        observed.note(Record::of(Act::Started).host(&host));
        let lending = Lending::start(
            home,
            &settings,
            Arc::clone(&configured),
            Arc::clone(&observed),
            Arc::clone(&machine),
        )?;
        let invitations = Invitations::default();
        let daemon = Arc::new_cyclic(|weak| {
            let ways = Ways::new(Weak::clone(weak), Arc::clone(&machine));
            let finding = Finding::new(found_by, &host, &ways, &machine);
            Daemon {
                home: home.clone(),
                configured,
                observed,
                looked_at: LookedAt::default(),
                state: Mutex::new(State { settings, identity, host, invitations }),
                lending,
                borrowing: Borrowing::default(),
                network: Network::default(),
                identities: AtomicU64::new(0),
                requests,
                machine,
                registry: finding.registry(),
                finding,
                ways,
            }
        });
        let weak = Arc::downgrade(&daemon);
        let find = move |host: &str| weak.upgrade()?.address_of(host);
        daemon.lending.find_hosts_by(Arc::new(find));
        daemon.begin_telling();
        Ok(daemon)
    }

    fn host(&self) -> String {
        lock(&self.state).host.clone()
    }

    /// Where a host listens, this one too.
    fn address_of(&self, host: &str) -> Option<String> {
        let address = if host == self.host() {
            self.network.address().map(|address| network::reachable(address).to_string())
        } else {
            self.peers().into_iter().find(|peer| peer.host == host).map(|peer| peer.address)
        };
        address.filter(|address| !address.is_empty())
    }

    fn identity(&self) -> HostIdentity {
        lock(&self.state).identity.clone()
    }

    /// Changes what is known, and keeps it.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> Result<T, LendError> {
        let mut state = lock(&self.state);
        let before = state.settings.clone();
        let result = change(&mut state);
        if state.settings != before {
            self.home.keep(&state.settings)?;
        }
        Ok(result)
    }
}

/// Requests that a daemon makes at most, from its start to its end.
const REQUESTS_OF_A_RUN: u64 = 1 << 40;

/// Above what all daemons before can have asked for: lenders take a host's requests in their order. Who has
/// lost what was known goes by the clock; whose clock has gone back, by what was known.
fn requests_above(known: u64, since_1970: Duration) -> u64 {
    known.max((since_1970.as_millis() as u64) << 16)
}

/// Serves this host until SIGTERM or SIGINT. `ready` is called once it does.
///
/// # Errors
/// Another daemon serves it, or the system fails.
pub fn run(home: &Home, ready: impl FnOnce()) -> Result<(), LendError> {
    home.make()?;
    let _only = only(home)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(LendError::system("starting the lending daemon"))?;
    runtime.block_on(serve(home, ready))
}

/// How long the daemon before may take to end: what it has borrowed it gives back first.
const FORMER_LIMIT: Duration = Duration::from_secs(3);

/// Holds the lock of this host's daemon. One that is ending, or being killed, holds it for a moment longer than
/// it lets callers in.
fn only(home: &Home) -> Result<File, LendError> {
    let path = home.lock();
    let file = File::options().create(true).append(true).mode(0o600).open(&path);
    let file = file.map_err(|error| LendError::file(&path, error))?;
    let until = Instant::now() + FORMER_LIMIT;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(LendError::Served { path }),
            Err(errno) => return Err(LendError::file(&path, errno.into())),
        }
    }
}

async fn serve(home: &Home, ready: impl FnOnce()) -> Result<(), LendError> {
    let daemon = Daemon::new(home, Arc::new(ThisMachine))?;
    let listen = lock(&daemon.state).settings.listen.clone();
    network::open(&daemon, &listen).await?;
    daemon.serve_metrics().await?;
    let local = local_listener(home)?;
    let service = LocalServer::new(local::LocalService(Arc::clone(&daemon)));
    let incoming = UnixListenerStream::new(local).map(|stream| {
        stream.map(|stream| {
            let caller = LocalCaller::of(&stream);
            Connection::new(stream, caller, None)
        })
    });
    ready();
    tracing::info!(host = daemon.host(), "the lending daemon serves");
    let serving = Server::builder().add_service(service).serve_with_incoming(incoming);
    tokio::spawn(identity::watch(Arc::clone(&daemon)));
    tokio::select! {
        served = serving => {
            served.map_err(|error| LendError::Refused(error.to_string()))
        }
        ended = end_signal() => ended,
        failed = reload_at_signal(&daemon) => failed,
    }?;
    let _ = std::fs::remove_file(home.socket());
    // What it holds is given back; what it lends runs on until it ends, or another daemon renews it.
    daemon.borrowing.give_all_back().await;
    daemon.observed.finish();
    Ok(())
}

async fn end_signal() -> Result<(), LendError> {
    let fail = LendError::system("listening to signals");
    let mut term = signal(SignalKind::terminate()).map_err(&fail)?;
    let mut int = signal(SignalKind::interrupt()).map_err(&fail)?;
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}

/// Reads what the administrators have written anew, at each SIGHUP.
async fn reload_at_signal(daemon: &Arc<Daemon>) -> Result<(), LendError> {
    let mut hup =
        signal(SignalKind::hangup()).map_err(LendError::system("listening to signals"))?;
    while hup.recv().await.is_some() {
        match daemon.reload().await {
            Ok(()) => tracing::info!("the configuration is read anew"),
            Err(error) => tracing::error!(%error, "the configuration stays as it was"),
        }
    }
    Ok(())
}

impl Daemon {
    async fn reload(self: &Arc<Self>) -> Result<(), LendError> {
        let before = self.configured.get();
        // Names of users may be looked up on other machines.
        let configured = Arc::clone(&self.configured);
        let read = spawn_blocking(move || configured.read_again()).await;
        let config = read.map_err(|error| LendError::Refused(error.to_string()))??;
        if config.registry != before.registry {
            tracing::warn!(
                "[registry] is read when the daemon starts: it stays as it was until then"
            );
        }
        if let Err(error) = self.renew_identity(&config) {
            tracing::error!(%error, "the certificate stays as it was");
        }
        self.observed.set(&self.home, &config);
        self.observed.note(Record::of(Act::Configured));
        if let Err(error) = self.serve_metrics().await {
            tracing::error!(%error, "metrics are served where they were");
        }
        Ok(())
    }
}

/// The socket for the users of this host, whom the services tell apart.
fn local_listener(home: &Home) -> Result<UnixListener, LendError> {
    let path = home.socket();
    let made = || -> io::Result<UnixListener> {
        if path.exists() {
            // Of a daemon that was killed: this one has the lock.
            std::fs::remove_file(&path)?;
        }
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
        Ok(listener)
    };
    made().map_err(|error| LendError::file(&path, error))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn requests_go_on_above_all_before_whatever_the_clock_says() {
        let (day, hour) = (Duration::from_secs(86_400), Duration::from_secs(3600));
        let first = requests_above(0, day);
        let second = requests_above(first + REQUESTS_OF_A_RUN, hour);
        assert!(second >= first + REQUESTS_OF_A_RUN, "the clock went back");
        // What was known is lost.
        assert!(requests_above(0, day + hour) > first);
    }

    /// Leases run by CLOCK_BOOTTIME. The wall clock, which people set, says what is written in logs, whether
    /// a certificate has ended, and where numbers begin that must not come again.
    #[test]
    fn the_wall_clock_is_asked_where_nothing_is_decided_about_a_lease() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut asks = Vec::new();
        let mut folders = vec![source.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                let words = [
                    concat!("System", "Time"),
                    concat!("now_", "utc"),
                    concat!("Unix", "Time::now"),
                ];
                if words.iter().any(|word| text.contains(word)) {
                    asks.push(path.strip_prefix(&source).unwrap().display().to_string());
                }
            }
        }
        asks.sort();
        let known = [
            "daemon/audit/record.rs",
            "daemon/identity.rs",
            "daemon/ledger_file.rs",
            "daemon/machine.rs",
            "pki/identity.rs",
        ];
        assert_eq!(asks, known);
    }
}
