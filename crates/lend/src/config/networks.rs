//! Networks in which the data of a lease goes without TLS.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{Word, Wrong};

/// Networks that are named, at most.
const NETWORKS_MAX: usize = 256;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Vec<IpNet>);

/// Where a connection goes: the addresses of its two ends, as one of them sees both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Of this host.
    pub own: IpAddr,
    /// Of the other.
    pub other: IpAddr,
}

impl Networks {
    /// Whether both ends of a way are in one of the networks.
    #[must_use]
    pub fn contain(&self, way: Way) -> bool {
        // One of version 4 on a socket of version 6 is what it is.
        let [own, other] = [way.own, way.other].map(|address| address.to_canonical());
        self.0.iter().any(|network| network.contains(&own) && network.contains(&other))
    }
}

impl Networks {
    /// As they are written: `10.0.0.0/24`.
    pub(super) fn parse(written: &[Word]) -> Result<Networks, Wrong> {
        if let Some(more) = written.get(NETWORKS_MAX) {
            return Err(Wrong::at(more, format!("at most {NETWORKS_MAX} networks are named")));
        }
        let network = |word: &Word| {
            let text = word.get_ref();
            text.parse().map_err(|_| {
                let why = format!("`{text}` is no network; write it as in 10.0.0.0/24");
                Wrong::at(word, why)
            })
        };
        written.iter().map(network).collect::<Result<_, _>>().map(Networks)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn networks(named: &[&str]) -> Networks {
        Networks(named.iter().map(|text| text.parse().unwrap()).collect())
    }

    fn way(own: &str, other: &str) -> Way {
        Way { own: own.parse().unwrap(), other: other.parse().unwrap() }
    }

    #[test]
    fn both_ends_are_in_one_of_them_or_it_is_no_such_way() {
        let named = networks(&["10.0.0.0/24", "192.168.7.0/30", "fd00::/8"]);
        for (own, other, is) in [
            ("10.0.0.1", "10.0.0.200", true),
            ("10.0.0.1", "10.0.1.1", false),
            ("10.0.0.1", "192.168.7.1", false),
            ("192.168.7.1", "192.168.7.2", true),
            ("192.168.7.1", "192.168.7.4", false),
            ("::ffff:10.0.0.1", "10.0.0.2", true),
            ("fd00::1", "fdff::2", true),
            ("fd00::1", "fe80::2", false),
            ("127.0.0.1", "127.0.0.1", false),
        ] {
            assert_eq!(named.contain(way(own, other)), is, "{own} {other}");
        }
        assert!(!Networks::default().contain(way("127.0.0.1", "127.0.0.1")));
    }

    proptest! {
        /// By the bits of addresses, one after the other.
        #[test]
        fn a_network_has_the_addresses_that_begin_as_it_does(
            network: u32, length in 0u8..=32, own: u32, other: u32,
        ) {
            let begins = |address: u32| {
                (0..length).all(|bit| (address ^ network) >> (31 - bit) & 1 == 0)
            };
            let text = format!("{}/{length}", std::net::Ipv4Addr::from_bits(network));
            let [own_ip, other_ip] = [own, other].map(|bits| IpAddr::V4(std::net::Ipv4Addr::from_bits(bits)));
            prop_assert_eq!(
                networks(&[&text]).contain(Way { own: own_ip, other: other_ip }),
                begins(own) && begins(other)
            );
        }
    }
}
