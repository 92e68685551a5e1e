//! Choosing cards for somebody to whom one is as good as another: pure.

use std::collections::{BTreeMap, BTreeSet};

use farside_lease::{DeviceName, DeviceSet};

use crate::proto::device::State;
use crate::proto::{Device, HostDevices};
use crate::registry::Claim;

/// Cards that were chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// By their lenders.
    pub(super) wanted: Claim,
    /// None of them is lent, as far as anybody knows.
    pub(super) all_free: bool,
}

/// Chooses `count` cards: free ones first, this host's before others', then those for which the fewest
/// wait. Cards in `busy` were refused just now, and count as lent. `None` if there are not so many.
pub(super) fn choose(
    hosts: &[HostDevices],
    own: &str,
    count: usize,
    busy: &BTreeSet<(String, String)>,
) -> Option<Choice> {
    let mut ranked = ranked(hosts, own, busy);
    ranked.truncate(count);
    let all_free = ranked.iter().all(|((taken, ..), _)| !taken);
    if count == 0 || ranked.len() < count {
        return None;
    }
    let mut wanted: BTreeMap<String, Vec<DeviceName>> = BTreeMap::new();
    for (_, (host, device)) in ranked {
        wanted.entry(host).or_default().push(DeviceName::new(&device).ok()?);
    }
    let sets =
        wanted.into_iter().map(|(host, devices)| Some((host, DeviceSet::new(devices).ok()?)));
    Some(Choice { wanted: sets.collect::<Option<Claim>>()?, all_free })
}

/// Where somebody waits to whom any card will do: for one card of each lender, that which [`choose`] would
/// choose of it. The best lenders first, `most` at most.
pub(super) fn queues(hosts: &[HostDevices], own: &str, most: usize) -> Vec<(String, DeviceSet)> {
    let mut seen = BTreeSet::new();
    let ranked = ranked(hosts, own, &BTreeSet::new()).into_iter();
    let best = ranked.filter(|(_, (host, _))| seen.insert(host.clone()));
    let queue = |(_, (host, device)): (Rank, (String, String))| {
        Some((host, DeviceSet::new([DeviceName::new(&device).ok()?]).ok()?))
    };
    best.filter_map(queue).take(most).collect()
}

/// Lent or refused, how many wait, lent, of another host, and what tells equals apart: less is better.
type Rank = (bool, u32, bool, bool, u64);

/// The cards that there are, the best first.
fn ranked(
    hosts: &[HostDevices],
    own: &str,
    busy: &BTreeSet<(String, String)>,
) -> Vec<(Rank, (String, String))> {
    let mut ranked = Vec::new();
    for host in hosts.iter().filter(|host| host.error.is_empty()) {
        for device in host.devices.iter().filter(|device| is_card(device)) {
            let key = (host.host.clone(), device.name.clone());
            let free = device.state() == State::Free && !busy.contains(&key);
            let lent = !matches!(device.state(), State::Free | State::Cleaning);
            // Hosts begin with different ones, so that they do not all ask for the same.
            let spread = spread(own, &key);
            ranked.push(((!free, device.waiting, lent, host.host != own, spread), key));
        }
    }
    ranked.sort();
    ranked
}

/// Whether a device is a card of ours that works, by what its lender says.
fn is_card(device: &Device) -> bool {
    let works = !matches!(device.state(), State::Quarantined | State::Unspecified);
    works && device.description.starts_with("card of ")
}

fn spread(own: &str, key: &(String, String)) -> u64 {
    let bytes = own.bytes().chain(key.0.bytes()).chain(key.1.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, devices: &[(&str, State, u32)]) -> HostDevices {
        let device = |&(name, state, waiting): &(&str, State, u32)| Device {
            name: name.to_owned(),
            description: "card of 4 functions".to_owned(),
            state: state.into(),
            waiting,
            ..Device::default()
        };
        let devices = devices.iter().map(device).collect();
        HostDevices { host: name.to_owned(), devices, ..HostDevices::default() }
    }

    fn chosen(
        hosts: &[HostDevices],
        count: usize,
        busy: &[(&str, &str)],
    ) -> Option<(String, bool)> {
        let busy = busy.iter().map(|(h, d)| ((*h).to_owned(), (*d).to_owned())).collect();
        let choice = choose(hosts, "b", count, &busy)?;
        let named = choice
            .wanted
            .iter()
            .flat_map(|(host, set)| set.iter().map(move |device| format!("{device}@{host}")));
        Some((named.collect::<Vec<_>>().join(" "), choice.all_free))
    }

    #[test]
    fn free_cards_come_first_then_those_for_which_the_fewest_wait() {
        let hosts = [
            host("a", &[("x", State::Lent, 2), ("y", State::Free, 0)]),
            host("b", &[("x", State::Lent, 1), ("q", State::Quarantined, 0)]),
        ];
        assert_eq!(chosen(&hosts, 1, &[]), Some(("y@a".to_owned(), true)));
        assert_eq!(chosen(&hosts, 2, &[]), Some(("y@a x@b".to_owned(), false)));
        assert_eq!(chosen(&hosts, 1, &[("a", "y")]), Some(("y@a".to_owned(), false)));
        assert_eq!(chosen(&hosts, 3, &[]), Some(("x@a y@a x@b".to_owned(), false)));
        assert_eq!(chosen(&hosts, 4, &[]), None);
        assert_eq!(chosen(&hosts, 0, &[]), None);
    }

    #[test]
    fn who_waits_for_any_card_waits_at_each_lender_for_its_best() {
        let hosts = [
            host("a", &[("x", State::Lent, 2), ("y", State::Lent, 1)]),
            host("b", &[("q", State::Quarantined, 0)]),
            host("c", &[("z", State::Lent, 0), ("w", State::Lent, 4)]),
        ];
        let named = |most| {
            let queues = queues(&hosts, "b", most).into_iter();
            let named = queues.map(|(host, set)| {
                format!("{}@{host}", set.iter().map(DeviceName::as_str).collect::<String>())
            });
            named.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(named(9), "z@c y@a");
        assert_eq!(named(1), "z@c");
        assert!(queues(&[], "b", 9).is_empty());
    }

    #[test]
    fn what_is_no_card_or_does_not_answer_is_not_chosen() {
        let mut hosts = [host("a", &[("x", State::Free, 0)]), host("c", &[("y", State::Free, 0)])];
        hosts[0].devices[0].description = "vfio-user device".to_owned();
        assert_eq!(chosen(&hosts, 1, &[]), Some(("y@c".to_owned(), true)));
        hosts[1].error = "no answer".to_owned();
        assert_eq!(chosen(&hosts, 1, &[]), None);
    }
}
