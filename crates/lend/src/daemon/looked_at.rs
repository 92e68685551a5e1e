//! The metrics of this daemon: what there is to say, and where it is served.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use farside_linux::lock::lock;
use tonic::Status;

use super::Daemon;
use super::metrics::{self, Now, Server};
use crate::LendError;

/// Where metrics are served, if they are: what was wanted, and the server.
#[derive(Default)]
pub(super) struct LookedAt(Mutex<Option<(SocketAddr, Server)>>);

impl Daemon {
    /// Serves metrics where the configuration says, or a command has said.
    ///
    /// # Errors
    /// Nothing can listen there; it stays as it was.
    pub(super) async fn serve_metrics(self: &Arc<Self>) -> Result<(), LendError> {
        let said = lock(&self.state).settings.metrics.clone();
        let wanted = match self.configured.get().metrics {
            Some(address) => Some(address),
            None if said.is_empty() => None,
            None => Some(address(&said)?),
        };
        let is_served = {
            let served = lock(&self.looked_at.0);
            served.as_ref().map(|(address, _)| *address) == wanted
        };
        if is_served {
            return Ok(());
        }
        let server = match wanted {
            None => None,
            Some(address) => {
                let daemon = Arc::downgrade(self);
                let text = move || daemon.upgrade().map_or_else(String::new, |d| d.metrics());
                Some((address, Server::start(address, text).await?))
            }
        };
        *lock(&self.looked_at.0) = server;
        Ok(())
    }

    /// Where metrics are served.
    pub(super) fn metrics_address(&self) -> Option<SocketAddr> {
        lock(&self.looked_at.0).as_ref().map(|(_, server)| server.address())
    }

    fn metrics(&self) -> String {
        let (waiting, stats) = self.lending.counted();
        let now = Now {
            devices: self.lending.devices(),
            waiting,
            held: self.borrowing.held().len(),
            peers: self.peers().len(),
            stats,
            carried: self.lending.carried(),
            borrowed: self.borrowing.carried(),
            audit_lost: self.observed.audit_lost(),
            registry_refused: self.registry.refused(),
            certificate_ends: self.identity().ends().unwrap_or_default(),
        };
        self.observed.count(|counts| metrics::exposition(counts, &now))
    }
}

/// An address as it is written.
fn address(text: &str) -> Result<SocketAddr, LendError> {
    text.parse().map_err(|_| {
        LendError::Refused(format!("`{text}` is no place for metrics; write ADDRESS:PORT"))
    })
}

/// Whether a place for metrics is one.
pub(super) fn check(text: &str) -> Result<(), Status> {
    if text.is_empty() {
        return Ok(());
    }
    address(text).map(drop).map_err(|error| Status::invalid_argument(error.to_string()))
}
