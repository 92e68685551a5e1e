//! Connections that this daemon makes for the ends of its leases, which have no network of their own: to the
//! lending daemons of hosts that it knows, one at a time for each end. By the same socket it sees when an end dies.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use farside_lease::lender::Event;
use farside_lease::{HostName, LeaseId, Text};
use farside_linux::lock::lock;
use futures_util::FutureExt;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::Lending;
use crate::end::{Order, Said, receive_now, send};

/// How long a host may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// How long an end may be gone before its lease is over, by right.
const GONE_PAUSE: Duration = Duration::from_millis(250);

/// An end may be in the hands of its borrower: it is not to keep this daemon, or other hosts, busy.
const PAUSE: Duration = Duration::from_millis(100);

/// Where a host listens, if it is known.
pub(in super::super) type FindHost = dyn Fn(&str) -> Option<String> + Send + Sync;

impl Lending {
    /// Other hosts are found by this.
    pub(in super::super) fn find_hosts_by(&self, find: Arc<FindHost>) {
        let _ = self.hosts.set(find);
    }

    /// Connects for the end of a lease, which says at this socket where to, until it is gone. If its lease is
    /// not over then, it ends.
    pub(super) fn connect_for(self: &Arc<Self>, lease: &LeaseId, end: Option<OwnedFd>) {
        let Some(end) = end else { return };
        let (lending, lease) = (Arc::clone(self), lease.clone());
        let connecting = async move {
            let known = Arc::clone(&lending);
            let find = move |host: &str| known.hosts.get()?(host);
            if let Err(error) = serve(end, &find).await {
                tracing::debug!(%error, "nothing is connected for the end of a lease any more");
            }
            // By right it ends by itself when its lease is over, which may be known here a moment later.
            sleep(GONE_PAUSE).await;
            lending.has_lost_end(lease);
        };
        self.machine.spawn(connecting.boxed());
    }

    /// The process of a lease's end is gone.
    fn has_lost_end(&self, lease: LeaseId) {
        let core = lock(&self.core);
        let is_kept = core.ends.get(&lease.device).is_some_and(|end| end.lease == lease);
        let is_current = is_kept && core.lender.is_current(&lease);
        drop(core);
        if is_current {
            tracing::error!(%lease, "the lender's end of a lease has died, so that it ends");
            let why = Text::from("the lender's end of its lease is gone");
            self.tell(Event::DeviceLost { device: lease.device, why });
        }
    }
}

async fn serve(end: OwnedFd, hosts: &FindHost) -> io::Result<()> {
    // SAFETY: an owned descriptor is the same one, and open, for as long as it lives, and it lives in this.
    let end = unsafe { AsyncFd::register_with_interest(end, Interest::READABLE) }?;
    loop {
        let mut ready = end.readable().await?;
        let Ok(received) = ready.try_io(|end| receive_now::<Said>(end.get_ref())) else { continue };
        match received? {
            None => return Ok(()),
            Some((Said::Hello(_), _)) => {}
            Some((Said::Reach { number, host }, _)) => {
                let (why, far) = match connect(hosts, &host).await {
                    Ok(far) => (None, Some(far)),
                    Err(error) => (Some(error.to_string()), None),
                };
                // It may be any text.
                let host =
                    HostName::new(&host).map_or_else(|_| "?".to_owned(), |host| host.to_string());
                tracing::info!(host, why, "the end of a lease goes to that of another lender");
                let beside = far.as_ref().map(AsFd::as_fd);
                send(end.get_ref().as_fd(), &Order::Reached { number, why }, beside)?;
                sleep(PAUSE).await;
            }
        }
    }
}

async fn connect(hosts: &FindHost, host: &str) -> io::Result<std::net::TcpStream> {
    let unknown = || io::Error::other("nothing is known of that host");
    let address = hosts(host).ok_or_else(unknown)?;
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("{address} does not answer"));
    timeout(CONNECT_LIMIT, TcpStream::connect(&address)).await.map_err(late)??.into_std()
}
