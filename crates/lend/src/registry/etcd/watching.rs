//! Learning of others: lists of all keys, and a watch that tells of changes between them.

use std::sync::Arc;
use std::time::Duration;

use farside_linux::lock::lock;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tonic::{Status, Streaming};

use super::super::HOSTS_MAX;
use super::client::Found;
use super::proto::event::EventType;
use super::proto::{RangeRequest, WatchResponse};
use super::view::Listed;
use super::{Etcd, RETRY, keys};

/// How often all is listed.
const LIST: Duration = Duration::from_secs(3);
/// Keys of one answer, at most.
const PAGE: i64 = 512;
/// Values that are read at a time.
const VALUES: usize = 16;
/// A watch that has missed something in so many lists, one after the other, is behind.
const MISSED_MAX: u32 = 2;
/// How long a watch may take to begin.
const WATCH_LIMIT: Duration = Duration::from_secs(2);

impl Etcd {
    /// For ever.
    pub(super) async fn keep_watching(self: Arc<Self>) {
        loop {
            if let Err(status) = self.watch().await {
                tracing::debug!(why = status.message(), "etcd is watched anew");
                // What the turns of claims depend on may have changed unseen.
                self.turns.send_replace(());
            }
            sleep(RETRY).await;
        }
    }

    async fn watch(&self) -> Result<(), Status> {
        let (revision, _) = self.list().await?;
        let root = self.keys.root();
        let (key, end) = (root.as_bytes().to_vec(), keys::end_of(root));
        let begun = timeout(WATCH_LIMIT, self.client.watch(key, end, revision + 1)).await;
        let begun = begun.map_err(|_| {
            self.client.move_on();
            Status::deadline_exceeded("the watch does not begin")
        });
        let watched = self.take_all(begun??).await;
        // Lists go to whoever answers; a watch shall not begin again where it failed.
        self.client.move_on();
        watched
    }

    /// Takes what a watch tells, until it breaks.
    async fn take_all(&self, mut watch: Streaming<WatchResponse>) -> Result<(), Status> {
        let mut missed = 0;
        let mut next = Instant::now() + LIST;
        loop {
            tokio::select! {
                told = watch.message() => {
                    let told = told?.ok_or_else(|| Status::unavailable("the watch has ended"))?;
                    self.take_told(&told)?;
                }
                () = sleep_until(next) => {
                    next = Instant::now() + LIST;
                    let (_, news) = self.list().await?;
                    missed = if news { missed + 1 } else { 0 };
                    if missed >= MISSED_MAX {
                        return Err(Status::unavailable("the watch is behind"));
                    }
                }
            }
        }
    }

    fn take_told(&self, told: &WatchResponse) -> Result<(), Status> {
        if told.canceled || told.compact_revision != 0 {
            let why = format!("the watch was ended: {}", told.cancel_reason);
            return Err(Status::unavailable(why));
        }
        let (now, _) = self.own.now();
        let mut turns = false;
        self.tell(|view| {
            for event in &told.events {
                let Some(kv) = &event.kv else { continue };
                view.reach(kv.mod_revision);
                if self.keys.is_of_claims(&kv.key) {
                    turns = true;
                } else if event.r#type() == EventType::Delete {
                    view.take_away(now, &kv.key, kv.mod_revision);
                } else {
                    view.take(&kv.key, &kv.value, kv.mod_revision);
                }
            }
        });
        if turns {
            self.turns.send_replace(());
        }
        Ok(())
    }

    /// Lists all hosts, and reads what is not known of them. Gives the revision from which on a watch tells of
    /// what is missing, and whether there was something new.
    async fn list(&self) -> Result<(i64, bool), Status> {
        let (revision, listed) = self.listed().await?;
        let (now, _) = self.own.now();
        let wanted = self.tell(|view| view.list(now, revision, &listed));
        let wanted = wanted.ok_or_else(|| {
            self.client.move_on();
            Status::unavailable("a member of etcd is behind the others")
        })?;
        for some in wanted.chunks(VALUES) {
            let read = join_all(some.iter().map(|listed| self.read(&listed.key))).await;
            for (listed, found) in some.iter().zip(read) {
                match found {
                    Ok(found) => self.tell(|view| {
                        for kv in found.keys.iter().filter(|kv| kv.key == listed.key) {
                            view.take(&kv.key, &kv.value, kv.mod_revision);
                        }
                    }),
                    // Larger than any answer may be.
                    Err(status) if status.code() == tonic::Code::OutOfRange => {
                        self.tell(|view| view.take(&listed.key, &[0xff], listed.revision));
                    }
                    Err(status) => return Err(status),
                }
            }
        }
        let own = lock(&self.view).is_to_write();
        Ok((revision, !wanted.is_empty() && !own))
    }

    async fn read(&self, key: &[u8]) -> Result<Found, Status> {
        self.client
            .range(RangeRequest { key: key.to_vec(), limit: 1, ..RangeRequest::default() })
            .await
    }

    /// The keys of all hosts, page by page as of one revision.
    async fn listed(&self) -> Result<(i64, Vec<Listed>), Status> {
        let hosts = self.keys.hosts();
        let range_end = keys::end_of(&hosts);
        let (mut key, mut revision, mut listed) = (hosts.into_bytes(), 0, Vec::new());
        loop {
            let request = RangeRequest {
                key: key.clone(),
                range_end: range_end.clone(),
                limit: PAGE,
                revision,
                keys_only: true,
                ..RangeRequest::default()
            };
            let found = self.client.range(request).await?;
            if revision == 0 {
                revision = found.revision;
            }
            let Some(last) = found.keys.last() else { break };
            let next = [&last.key[..], &[0]].concat();
            // A server that lies does not keep us here.
            let goes_on = found.more && next > key && listed.len() < HOSTS_MAX;
            key = next;
            let keys = found.keys.into_iter();
            listed.extend(keys.map(|kv| Listed { key: kv.key, revision: kv.mod_revision }));
            if !goes_on {
                break;
            }
        }
        Ok((revision, listed))
    }
}
