//! Three machines as network namespaces: A, and a cable from it to B and one to C. The cable to B can be
//! cut, one way or both, or be made slow.

use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::relay::Relay;

/// Where A listens: an address of its own, which both cables lead to.
pub(crate) const ADDRESS: &str = "10.77.0.1";
/// B, as A sees it.
const B: &str = "10.77.1.2";
const WAY_OF_B: &str = "10.77.1.1";

/// Which way a cable is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Both,
    /// What the borrower sends is lost.
    ToLender,
    /// What the lender sends is lost.
    ToBorrower,
}

/// The namespaces; removed when dropped.
pub(crate) struct Network {
    tag: String,
}

/// Runs `ip`, and gives what it says when it fails.
fn ip(args: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(args).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}

impl Network {
    /// # Errors
    /// Why there can be none here.
    pub(crate) fn new() -> Result<Network, String> {
        let network = Network::without_b()?;
        network.cable("b", "10.77.1.1", B)?;
        Ok(network)
    }

    /// The same with a cable to B that is a relay, whose weather is anybody's.
    ///
    /// # Errors
    /// As [`Network::new`], or there are no TUN devices here.
    pub(crate) fn with_relay(seed: u64) -> Result<(Network, Relay), String> {
        let network = Network::without_b()?;
        let relay = Relay::between(&network, seed).map_err(|error| format!("a TUN: {error}"))?;
        network.address("a", "tob", "10.77.1.1")?;
        network.address("b", "eth0", B)?;
        ip(&["-n", &network.name("b"), "route", "add", ADDRESS, "via", WAY_OF_B])?;
        Ok((network, relay))
    }

    fn without_b() -> Result<Network, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let network = Network { tag: format!("{}x{next}", std::process::id()) };
        for host in ["a", "b", "c"] {
            ip(&["netns", "add", &network.name(host)])?;
            ip(&["-n", &network.name(host), "link", "set", "lo", "up"])?;
        }
        let a = network.name("a");
        ip(&["-n", &a, "address", "add", &format!("{ADDRESS}/32"), "dev", "lo"])?;
        network.cable("c", "10.77.2.1", "10.77.2.2")?;
        Ok(network)
    }

    fn cable(&self, host: &str, near: &str, far: &str) -> Result<(), String> {
        let (a, other) = (self.name("a"), self.name(host));
        let (at_a, at_other) = (format!("to{host}"), "eth0");
        ip(&[
            "link", "add", &at_a, "netns", &a, "type", "veth", "peer", "name", at_other, "netns",
            &other,
        ])?;
        self.address("a", &at_a, near)?;
        self.address(host, at_other, far)?;
        ip(&["-n", &other, "route", "add", ADDRESS, "via", near])
    }

    fn address(&self, host: &str, device: &str, address: &str) -> Result<(), String> {
        let netns = self.name(host);
        ip(&["-n", &netns, "address", "add", &format!("{address}/24"), "dev", device])?;
        ip(&["-n", &netns, "link", "set", device, "up"])
    }

    /// Does something in the namespace of a host.
    pub(crate) fn inside<T: Send>(
        &self,
        host: &str,
        work: impl FnOnce() -> std::io::Result<T> + Send,
    ) -> std::io::Result<T> {
        let path = format!("/run/netns/{}", self.name(host));
        std::thread::scope(|scope| {
            // A thread moves by itself, and comes back to nowhere.
            let moved = scope.spawn(move || {
                let namespace = std::fs::File::open(path)?;
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(namespace.as_fd(), kind)?;
                work()
            });
            moved.join().expect("it does its work")
        })
    }

    pub(crate) fn name(&self, host: &str) -> String {
        format!("fsf{}{host}", self.tag)
    }

    /// From now on packets are lost.
    pub(crate) fn cut(&self, way: Way) {
        if way != Way::ToBorrower {
            ip(&["-n", &self.name("b"), "route", "replace", "blackhole", ADDRESS]).expect("a cut");
            ip(&["-n", &self.name("b"), "route", "del", ADDRESS, "via", WAY_OF_B]).ok();
        }
        if way != Way::ToLender {
            ip(&["-n", &self.name("a"), "route", "add", "blackhole", B]).expect("a cut");
        }
    }

    /// They arrive again.
    pub(crate) fn mend(&self, way: Way) {
        if way != Way::ToBorrower {
            ip(&["-n", &self.name("b"), "route", "del", "blackhole", ADDRESS]).expect("a cut");
            ip(&["-n", &self.name("b"), "route", "replace", ADDRESS, "via", WAY_OF_B])
                .expect("mended");
        }
        if way != Way::ToLender {
            ip(&["-n", &self.name("a"), "route", "del", "blackhole", B]).expect("a cut");
        }
    }

    /// So slow that little arrives, or as before.
    pub(crate) fn slow(&self, is_slow: bool) {
        for (host, device) in [("a", "tob"), ("b", "eth0")] {
            let rate = ["rate", "2mbit", "burst", "8kb", "latency", "300ms"];
            let netns = self.name(host);
            let mut args = vec!["-n", &netns, "qdisc"];
            args.extend(if is_slow { ["add", "dev"] } else { ["del", "dev"] });
            args.extend([device, "root"]);
            if is_slow {
                args.push("tbf");
                args.extend(rate);
            }
            let done = Command::new("tc").args(&args).status().expect("tc starts");
            assert!(done.success(), "tc {args:?}");
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in ["a", "b", "c"] {
            let _ = ip(&["netns", "delete", &self.name(host)]);
        }
    }
}
