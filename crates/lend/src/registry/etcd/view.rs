//! What is known of the hosts of a cluster by what etcd has told: pure.
//!
//! etcd may answer late, twice, or from a member that has fallen behind, and whoever may write there may
//! write anything. So each key's own revision decides what is newer, an answer that is older than one that
//! was taken is not taken, and what makes no sense is counted and changes nothing. How old something is says
//! when etcd last confirmed it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use farside_lease::BootTime;

use super::super::record::weight;
use super::super::{HOSTS_MAX, HostView, PRESENCE, Published, unknown};
use super::keys::{Keys, read_said};

/// Bytes of memory for what hosts say, about and at most.
const BYTES_MAX: usize = 24 << 20;
/// Answers that are older than the last one are not taken for so long: from then on etcd has been restored
/// from a copy, or begun anew.
const STALE_FOR: Duration = Duration::from_secs(15);

/// A key, and when it was written last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) key: Vec<u8>,
    pub(super) revision: i64,
}

/// Whether a host is there.
#[derive(Clone, Copy, Debug)]
enum Presence {
    /// As far as etcd has said last.
    There,
    /// No; and it was heard then, at the latest.
    Gone(BootTime),
}

#[derive(Clone, Debug)]
struct Known {
    revision: i64,
    presence: Presence,
    said: Published,
}

/// See the module.
#[derive(Debug)]
pub(super) struct View {
    own: String,
    keys: Keys,
    own_said: Published,
    /// What stands in this host's key is not what it says.
    own_is_wrong: bool,
    hosts: BTreeMap<String, Known>,
    /// What was refused, with its revision: it is not asked for again.
    bad: BTreeMap<String, i64>,
    /// Of the newest answer that was taken, and when that was.
    revision: i64,
    confirmed: Option<BootTime>,
    bytes: usize,
    changes: u64,
    refused: u64,
    stale: u64,
}

impl View {
    /// A host that knows itself alone.
    pub(super) fn new(own: &str, keys: Keys) -> View {
        View {
            own: own.to_owned(),
            keys,
            own_said: Published::default(),
            own_is_wrong: true,
            hosts: BTreeMap::new(),
            bad: BTreeMap::new(),
            revision: 0,
            confirmed: None,
            bytes: 0,
            changes: 0,
            refused: 0,
            stale: 0,
        }
    }

    /// This host's name.
    pub(super) fn own(&self) -> &str {
        &self.own
    }

    /// This host has another name from now on.
    pub(super) fn rename(&mut self, own: &str) {
        if self.own != own {
            self.forget(own);
            own.clone_into(&mut self.own);
            self.own_is_wrong = true;
        }
    }

    /// This host says something. `false`: it did already.
    pub(super) fn publish(&mut self, said: Published) -> bool {
        if self.own_said == said {
            return false;
        }
        self.own_said = said;
        self.own_is_wrong = true;
        self.changes += 1;
        true
    }

    /// What is to be written into this host's key: its name, and what it says; `None` if that stands there.
    /// From here on it counts as written, until etcd says otherwise.
    pub(super) fn take_news(&mut self) -> Option<(String, Published)> {
        std::mem::take(&mut self.own_is_wrong).then(|| (self.own.clone(), self.own_said.clone()))
    }

    /// It could not be written, or its etcd lease is gone.
    pub(super) fn write_again(&mut self) {
        self.own_is_wrong = true;
    }

    /// Whether there is something to write.
    pub(super) fn is_to_write(&self) -> bool {
        self.own_is_wrong
    }

    /// Takes a list of all hosts' keys; gives those whose values are not known yet. `None`: it is older than
    /// what is known.
    pub(super) fn list(
        &mut self,
        now: BootTime,
        revision: i64,
        listed: &[Listed],
    ) -> Option<Vec<Listed>> {
        if revision < self.revision {
            let held = self.confirmed.is_some_and(|at| at.until(now) < STALE_FOR);
            self.stale += 1;
            if held {
                return None;
            }
            // Numbers begin anew: nothing that is known can be compared.
            self.hosts.values_mut().for_each(|known| known.revision = 0);
            self.bad.clear();
        }
        self.revision = revision;
        self.confirmed = Some(now);
        let mut there = BTreeSet::new();
        let mut wanted = Vec::new();
        for found in listed.iter().take(HOSTS_MAX) {
            let Some(host) = self.keys.host_of(&found.key) else {
                self.refuse(&String::from_utf8_lossy(&found.key), found.revision);
                continue;
            };
            let is_known = match self.hosts.get_mut(&host) {
                Some(known) if known.revision == found.revision => {
                    known.presence = Presence::There;
                    true
                }
                _ => host != self.own && self.bad.get(&host) == Some(&found.revision),
            };
            if !is_known {
                wanted.push(found.clone());
            }
            there.insert(host);
        }
        let gone: Vec<String> =
            self.hosts.keys().filter(|host| !there.contains(*host)).cloned().collect();
        gone.iter().for_each(|host| self.leave(now, host));
        self.bad.retain(|name, _| there.contains(name) || name.contains('/'));
        self.own_is_wrong |= !there.contains(&self.own);
        Some(wanted)
    }

    /// Takes what stands in a key since that revision.
    pub(super) fn take(&mut self, key: &[u8], value: &[u8], revision: i64) {
        let Some(host) = self.keys.host_of(key) else {
            return self.refuse(&String::from_utf8_lossy(key), revision);
        };
        if self.hosts.get(&host).is_some_and(|known| known.revision >= revision) {
            return;
        }
        let Some(said) = read_said(&host, value) else {
            self.own_is_wrong |= host == self.own;
            return self.refuse(&host, revision);
        };
        if host == self.own {
            self.own_is_wrong |= said != self.own_said;
            let said = Published::default();
            self.hosts.insert(host, Known { revision, presence: Presence::There, said });
            return;
        }
        let is_new = !self.hosts.contains_key(&host);
        if is_new && self.hosts.len() >= HOSTS_MAX && !self.make_room() {
            return self.refuse(&host, revision);
        }
        let before = self.hosts.get(&host).map_or(0, |known| weight(&known.said));
        let bytes = self.bytes - before + weight(&said);
        if bytes > BYTES_MAX {
            return self.refuse(&host, revision);
        }
        self.bytes = bytes;
        self.hosts.insert(host, Known { revision, presence: Presence::There, said });
        self.changes += 1;
    }

    /// A key was taken away at that revision.
    pub(super) fn take_away(&mut self, now: BootTime, key: &[u8], revision: i64) {
        let Some(host) = self.keys.host_of(key) else { return };
        self.own_is_wrong |= host == self.own;
        self.bad.remove(&host);
        if let Some(known) = self.hosts.get_mut(&host).filter(|known| known.revision < revision) {
            known.revision = revision;
            self.leave(now, &host);
        }
    }

    /// Something was told of that revision.
    pub(super) fn reach(&mut self, revision: i64) {
        self.revision = self.revision.max(revision);
    }

    /// The newest revision that was told of. What is older is no answer to what is asked now.
    pub(super) fn revision(&self) -> i64 {
        self.revision
    }

    /// What is known of all hosts, in the order of their names.
    pub(super) fn view(&self, now: BootTime) -> Vec<HostView> {
        let own =
            HostView { host: self.own.clone(), said: self.own_said.clone(), heard: Duration::ZERO };
        let confirmed = self.confirmed.map_or(Duration::MAX, |at| at.until(now));
        let others = self.hosts.iter().filter(|(host, _)| **host != self.own);
        let mut all: Vec<HostView> = others
            .map(|(host, known)| HostView {
                host: host.clone(),
                said: known.said.clone(),
                heard: match known.presence {
                    Presence::There => confirmed,
                    Presence::Gone(heard) => heard.until(now),
                },
            })
            .collect();
        all.push(own);
        all.sort_by(|one, other| one.host.cmp(&other.host));
        all
    }

    /// Where hosts listen that are not where they are `known` to be.
    pub(super) fn addresses(&self, known: &BTreeMap<String, String>) -> Vec<(String, String)> {
        unknown(self.hosts.iter().map(|(host, known)| (host, &known.said.address)), known)
    }

    /// Counts what changed; hosts that vanish do so without a change.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// What made no sense, since the beginning.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Answers that were older than what was known, since the beginning.
    pub(super) fn stale(&self) -> u64 {
        self.stale
    }

    /// Counts what made no sense, once for each revision of its key.
    pub(super) fn refuse(&mut self, name: &str, revision: i64) {
        // Whoever fills it is counted anew each time.
        if self.bad.len() >= HOSTS_MAX {
            self.bad.clear();
        }
        if self.bad.insert(name.to_owned(), revision) != Some(revision) {
            self.refused += 1;
        }
    }

    /// It was there at least until its etcd lease began to run out.
    fn leave(&mut self, now: BootTime, host: &str) {
        let heard = BootTime(now.0.saturating_sub(PRESENCE.as_nanos() as u64 + 1));
        if let Some(known) = self.hosts.get_mut(host) {
            if matches!(known.presence, Presence::There) {
                known.presence = Presence::Gone(heard);
            }
        }
    }

    /// Forgets a host that is gone, that for longest. `false` if all are there.
    fn make_room(&mut self) -> bool {
        let gone = self.hosts.iter().filter_map(|(host, known)| match known.presence {
            Presence::There => None,
            Presence::Gone(heard) => Some((heard, host.clone())),
        });
        let Some((_, host)) = gone.min() else { return false };
        self.forget(&host);
        true
    }

    fn forget(&mut self, host: &str) {
        let weight = self.hosts.remove(host).map_or(0, |known| weight(&known.said));
        self.bytes -= weight;
    }
}
