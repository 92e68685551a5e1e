//! What a host knows by etcd, where anybody writes anything: a view that is told keys and values, and looked at
//! after each.

use std::collections::BTreeMap;
use std::time::Duration;

use farside_lease::BootTime;

use super::super::{HOSTS_MAX, Published};
use super::keys::{Keys, read_said, said};
use super::view::{Listed, View};
use crate::proto::Device;

const OWN: &str = "own";

/// See the module.
pub(crate) struct Victim {
    keys: Keys,
    view: View,
    said: Published,
    now: BootTime,
}

impl Victim {
    pub(crate) fn new() -> Victim {
        let keys = Keys::new("/farside", "test");
        let mut view = View::new(OWN, keys.clone());
        let own = Published { address: "10.0.0.1:7301".to_owned(), devices: Vec::new() };
        view.publish(own.clone());
        Victim { keys, view, said: own, now: BootTime(1 << 40) }
    }

    /// The key of a host, or of what is called one.
    pub(crate) fn key(&self, host: &str) -> Vec<u8> {
        self.keys.host(host).into_bytes()
    }

    /// What a host writes that says this.
    pub(crate) fn value(host: &str, address: String, devices: Vec<Device>) -> Vec<u8> {
        said(host, &Published { address, devices })
    }

    pub(crate) fn wait(&mut self, time: Duration) {
        self.now = BootTime(self.now.0.saturating_add(time.as_nanos() as u64));
    }

    /// A list of keys is told. Gives how many values are asked for.
    pub(crate) fn list(&mut self, revision: i64, keys: Vec<(Vec<u8>, i64)>) -> usize {
        let listed = keys.into_iter().map(|(key, revision)| Listed { key, revision });
        let listed: Vec<Listed> = listed.collect();
        let wanted = self.view.list(self.now, revision, &listed);
        self.check();
        wanted.map_or(0, |wanted| wanted.len())
    }

    /// A value is told. Says whether somebody is believed to have said it.
    pub(crate) fn take(&mut self, key: &[u8], value: &[u8], revision: i64) -> bool {
        let before = self.view.changes();
        self.view.reach(revision);
        self.view.take(key, value, revision);
        self.check();
        self.view.changes() != before
    }

    pub(crate) fn take_away(&mut self, key: &[u8], revision: i64) {
        self.view.take_away(self.now, key, revision);
        self.check();
    }

    /// Nobody speaks for this host, others have said what is known of them, and there is an end to it.
    fn check(&self) {
        let view = self.view.view(self.now);
        assert!(view.len() <= HOSTS_MAX + 1, "{} hosts", view.len());
        assert!(view.windows(2).all(|two| two[0].host < two[1].host), "a host is there twice");
        for seen in &view {
            if seen.host == OWN {
                assert_eq!(seen.said, self.said, "somebody spoke for this host");
                continue;
            }
            let again = read_said(&seen.host, &said(&seen.host, &seen.said));
            assert_eq!(again.as_ref(), Some(&seen.said), "no host can have said it");
        }
        let own = view.iter().filter(|seen| seen.host == OWN).count();
        assert_eq!(own, 1);
        let _ = self.view.addresses(&BTreeMap::new());
    }
}
