//! What this host says, kept in its key for as long as it is there.

use std::sync::Arc;
use std::time::Duration;

use farside_lease::BootTime;
use farside_linux::lock::lock;
use tokio::time::{sleep, timeout};
use tonic::{Code, Status};

use super::proto::PutRequest;
use super::{Etcd, LEASE, RENEWAL, RETRY, keys};

/// Changes of this host within so long are written together.
const SETTLE: Duration = Duration::from_millis(20);

/// The etcd lease under which this host's key is.
struct Kept {
    id: i64,
    renewed: BootTime,
}

impl Etcd {
    /// For ever.
    pub(super) async fn be_present(self: Arc<Self>) {
        let mut kept = None;
        loop {
            match self.present(&mut kept).await {
                Ok(()) => {
                    // Woken by news, or it is time to renew.
                    if timeout(RENEWAL, self.news.notified()).await.is_ok() {
                        sleep(SETTLE).await;
                    }
                }
                Err(status) => {
                    tracing::debug!(why = status.message(), "this host cannot be said to be there");
                    sleep(RETRY).await;
                }
            }
        }
    }

    async fn present(&self, kept: &mut Option<Kept>) -> Result<(), Status> {
        let now = || self.own.now().0;
        if let Some(lease) = kept {
            if lease.renewed.until(now()) >= RENEWAL {
                let asked = now();
                if self.client.keep_alive(lease.id).await? {
                    lease.renewed = asked;
                } else {
                    *kept = None;
                }
            }
        }
        let lease = match kept {
            Some(lease) => lease.id,
            None => {
                let renewed = now();
                let id = self.client.grant(LEASE).await?;
                *kept = Some(Kept { id, renewed });
                // What stood under the one before is gone, or will be.
                lock(&self.view).write_again();
                id
            }
        };
        let Some((host, said)) = lock(&self.view).take_news() else { return Ok(()) };
        let (key, value) = (self.keys.host(&host).into_bytes(), keys::said(&host, &said));
        let written = self.client.put(PutRequest { key, value, lease }).await;
        if let Err(status) = &written {
            lock(&self.view).write_again();
            if status.code() == Code::NotFound {
                *kept = None;
            }
        }
        written
    }
}
