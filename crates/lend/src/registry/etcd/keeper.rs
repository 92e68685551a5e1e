//! An etcd lease of a claim, which lives while somebody holds it.

use std::convert::Infallible;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tonic::Status;

use super::client::Client;
use super::{Etcd, LEASE, RENEWAL, RETRY};

/// Dropping it ends the etcd lease, and all keys under it.
#[derive(Debug)]
pub(super) struct Keeper {
    /// Its number.
    pub(super) lease: i64,
    kept: mpsc::Receiver<Infallible>,
}

impl Keeper {
    /// Makes a lease, and keeps it alive.
    pub(super) async fn begin(etcd: &Etcd) -> Result<Keeper, Status> {
        let lease = etcd.client.grant(LEASE).await?;
        let (held, kept) = mpsc::channel(1);
        etcd.own.spawn(keep(Arc::clone(&etcd.client), lease, held).boxed());
        Ok(Keeper { lease, kept })
    }

    /// Waits until it is gone, which it may never be.
    pub(super) async fn lost(&mut self) {
        let _ = self.kept.recv().await;
    }
}

async fn keep(client: Arc<Client>, lease: i64, held: mpsc::Sender<Infallible>) {
    let mut renewed = Instant::now();
    let mut pause = RENEWAL;
    loop {
        tokio::select! {
            () = held.closed() => break,
            () = sleep(pause) => {}
        }
        let asked = Instant::now();
        match client.keep_alive(lease).await {
            Ok(true) => (renewed, pause) = (asked, RENEWAL),
            Ok(false) => return,
            Err(_) if renewed.elapsed() >= LEASE => return,
            Err(_) => pause = RETRY,
        }
    }
    // Where etcd does not answer, it ends by itself.
    if let Err(status) = client.revoke(lease).await {
        tracing::debug!(why = status.message(), "a claim is not withdrawn; it runs out");
    }
}
