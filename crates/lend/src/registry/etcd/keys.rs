//! The names and values of keys: pure. What others have written is parsed strictly.

use std::collections::BTreeSet;

use farside_lease::{DeviceName, HostName};
use prost::Message;

use super::super::record::is_sound;
use super::super::{Claim, Published};
use crate::proto::{HostRecord, HostVersion};

/// Bytes of a value, at most.
pub(super) const VALUE_MAX: usize = 256 << 10;
/// Bytes that are left of each text for people, where a host says too much.
const SHORT_TEXT: usize = 32;
/// Devices of a claim, at most: etcd takes 128 parts of a transaction unless told otherwise.
pub(super) const CLAIMED_MAX: usize = 120;
/// Bytes of the name of a claim, at most: a host, and two numbers.
const CLAIM_NAME_MAX: usize = 128;

/// Where the keys of a cluster are.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    root: String,
}

impl Keys {
    /// `prefix` as it was configured: `/farside`.
    pub(super) fn new(prefix: &str, cluster: &str) -> Keys {
        Keys { root: format!("{prefix}/{cluster}/1/") }
    }

    /// Before all keys of the cluster.
    pub(super) fn root(&self) -> &str {
        &self.root
    }

    /// Before the keys of all hosts.
    pub(super) fn hosts(&self) -> String {
        format!("{}hosts/", self.root)
    }

    /// Where a host says what it lends.
    pub(super) fn host(&self, host: &str) -> String {
        format!("{}hosts/{host}", self.root)
    }

    /// Whose key it is, if it is one of a host.
    pub(super) fn host_of(&self, key: &[u8]) -> Option<String> {
        let key = std::str::from_utf8(key).ok()?;
        let host = key.strip_prefix(&self.root)?.strip_prefix("hosts/")?;
        HostName::new(host).is_ok().then(|| host.to_owned())
    }

    /// Before the keys of all claims.
    pub(super) fn claims(&self) -> String {
        format!("{}claims/", self.root)
    }

    /// Where a claim waits.
    pub(super) fn claim(&self, name: &str) -> String {
        format!("{}claims/{name}", self.root)
    }

    /// Whether the order of claims depends on a key.
    pub(super) fn is_of_claims(&self, key: &[u8]) -> bool {
        let key = key.strip_prefix(self.root.as_bytes());
        key.is_some_and(|key| key.starts_with(b"claims/") || key.starts_with(b"turns/"))
    }

    /// Which claim a key is of.
    pub(super) fn claim_of<'k>(&self, key: &'k [u8]) -> Option<&'k str> {
        let key = std::str::from_utf8(key).ok()?;
        let name = key.strip_prefix(&self.root)?.strip_prefix("claims/")?;
        (!name.is_empty() && name.len() <= CLAIM_NAME_MAX).then_some(name)
    }

    /// Where it stands whose turn a device is; the device as [`devices`] names it.
    pub(super) fn turn(&self, device: &str) -> String {
        format!("{}turns/{device}", self.root)
    }
}

/// The first key that does not begin with `prefix`, which ends with a slash.
pub(super) fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// What a host says of itself, as it stands in its key. Texts for people are cut where it is too much.
pub(super) fn said(host: &str, said: &Published) -> Vec<u8> {
    let at = HostVersion { host: host.to_owned(), ..HostVersion::default() };
    let mut record =
        HostRecord { at: Some(at), address: said.address.clone(), devices: said.devices.clone() };
    if record.encoded_len() > VALUE_MAX {
        for device in &mut record.devices {
            [&mut device.description, &mut device.why].into_iter().for_each(shorten);
        }
    }
    record.encode_to_vec()
}

/// The same, read. `None` if it is not what `host` can have said.
pub(super) fn read_said(host: &str, value: &[u8]) -> Option<Published> {
    if value.len() > VALUE_MAX {
        return None;
    }
    let record = HostRecord::decode(value).ok()?;
    let is_its = record.at.as_ref().is_some_and(|at| at.host == host);
    (is_its && is_sound(&record))
        .then_some(Published { address: record.address, devices: record.devices })
}

/// The devices of a claim, each as HOST/DEVICE.
pub(super) fn devices(claim: &Claim) -> BTreeSet<String> {
    let of = |(host, set): (&String, &farside_lease::DeviceSet)| {
        let host = host.clone();
        let names: Vec<String> = set.iter().map(|device| format!("{host}/{device}")).collect();
        names
    };
    claim.iter().flat_map(of).collect()
}

/// The devices of a claim, as they stand in its key: one a line.
pub(super) fn claimed(devices: &BTreeSet<String>) -> Vec<u8> {
    devices.iter().map(String::as_str).collect::<Vec<_>>().join("\n").into_bytes()
}

/// The same, read. `None` if nobody can have claimed that.
pub(super) fn read_claimed(value: &[u8]) -> Option<BTreeSet<String>> {
    let text = std::str::from_utf8(value).ok()?;
    let mut devices = BTreeSet::new();
    for line in text.split('\n') {
        let (host, device) = line.split_once('/')?;
        HostName::new(host).ok()?;
        DeviceName::new(device).ok()?;
        if devices.len() == CLAIMED_MAX || !devices.insert(line.to_owned()) {
            return None;
        }
    }
    Some(devices)
}

/// Leaves the beginning of a text for people.
fn shorten(text: &mut String) {
    let mut ends = (0..=SHORT_TEXT.min(text.len())).rev();
    let end = ends.find(|&end| text.is_char_boundary(end));
    text.truncate(end.unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::proto::Device;
    use crate::registry::DEVICES_MAX;

    fn published(text: &str) -> Published {
        let device = |number: usize| Device {
            name: format!("card{number}"),
            description: text.to_owned(),
            why: text.to_owned(),
            ..Device::default()
        };
        Published {
            address: "10.0.0.1:7301".to_owned(),
            devices: (0..DEVICES_MAX).map(device).collect(),
        }
    }

    #[test]
    fn what_a_host_says_is_read_as_it_was_written_and_by_nobody_elses_name() {
        let spoken = published("a card");
        let value = said("a", &spoken);
        assert_eq!(read_said("a", &value), Some(spoken));
        assert_eq!(read_said("b", &value), None);
    }

    #[test]
    fn who_says_too_much_says_it_shortly() {
        let value = said("a", &published(&"ä".repeat(250)));
        assert!(value.len() <= VALUE_MAX, "{} bytes", value.len());
        let read = read_said("a", &value).unwrap();
        assert_eq!((read.devices.len(), read.devices[7].why.len()), (DEVICES_MAX, SHORT_TEXT));
    }

    #[test]
    fn keys_of_others_are_not_taken_for_ours() {
        let keys = Keys::new("/farside", "lab");
        assert_eq!(keys.host("a"), "/farside/lab/1/hosts/a");
        assert_eq!(keys.host_of(keys.host("a").as_bytes()).as_deref(), Some("a"));
        for other in
            ["/farside/lab/1/hosts/", "/farside/lab/1/hosts/../x", "/farside/lab2/1/hosts/a"]
        {
            assert_eq!(keys.host_of(other.as_bytes()), None, "{other}");
        }
        assert_eq!(keys.host_of(b"/farside/lab/1/hosts/\xff"), None);
        assert_eq!(keys.claim_of(b"/farside/lab/1/claims/"), None);
        assert!(keys.is_of_claims(keys.turn("a/card0").as_bytes()));
        assert_eq!(end_of("/x/"), b"/x0");
    }

    #[test]
    fn claims_that_nobody_can_have_made_are_refused() {
        let devices: BTreeSet<String> = ["a/card0", "b/card1"].map(str::to_owned).into();
        assert_eq!(read_claimed(&claimed(&devices)), Some(devices));
        let many: Vec<String> = (0..=CLAIMED_MAX).map(|number| format!("a/c{number}")).collect();
        for bad in ["", "a", "a/", "/card0", "a/card0\n", "a/card0\na/card0", &many.join("\n")] {
            assert_eq!(read_claimed(bad.as_bytes()), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn whatever_stands_there_is_read_or_refused(value: Vec<u8>) {
            let _ = (read_said("a", &value), read_claimed(&value));
        }
    }
}
