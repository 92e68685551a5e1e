//! What a host knows of the others: who is there, what each lends, and whose turn it is where devices of
//! several lenders are wanted together.
//!
//! Owns finding and ordering, and nothing else: a registry **grants nothing**. The lender of a device
//! decides about it alone, so an entry that is old, or a lie, costs a request that is refused. Without its
//! registry a host keeps its leases, renews them and borrows by name; what it knows of others grows old, and
//! it says how old that is.
//!
//! There are two kinds: [`embedded`], in which the daemons tell each other, and [`etcd`], a server that they
//! share. `tests::conformance` holds the promises against both.

mod claims;
pub(crate) mod embedded;
pub(crate) mod etcd;
mod record;
#[cfg(test)]
pub(crate) mod tests;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use farside_lease::{BootTime, DeviceSet};
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tonic::Status;

use crate::proto::Device;

/// A host that was not heard for so long is not there.
pub(crate) const PRESENCE: Duration = Duration::from_secs(10);
/// Hosts that are known, at most: the versions of all fit into one message.
pub(crate) const HOSTS_MAX: usize = 2048;
/// Devices of a host, at most: as many as a lender has.
pub(crate) const DEVICES_MAX: usize = 1024;

/// What a host says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Published {
    /// Where it listens, empty if it does not.
    pub(crate) address: String,
    /// What it lends, and to whom.
    pub(crate) devices: Vec<Device>,
}

/// What is known of a host.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HostView {
    /// Which.
    pub(crate) host: String,
    /// What it said last.
    pub(crate) said: Published,
    /// How long ago it was heard.
    pub(crate) heard: Duration,
}

impl HostView {
    #[cfg(test)]
    /// Whether the host is there, as far as anybody knows.
    pub(crate) fn is_present(&self) -> bool {
        self.heard <= PRESENCE
    }
}

/// Hosts that listen somewhere else than is known.
fn unknown<'a>(
    hosts: impl Iterator<Item = (&'a String, &'a String)>,
    known: &BTreeMap<String, String>,
) -> Vec<(String, String)> {
    let new =
        hosts.filter(|(host, address)| !address.is_empty() && known.get(*host) != Some(address));
    new.map(|(host, address)| (host.clone(), address.clone())).collect()
}

/// Devices that are wanted together, by the hosts that lend them.
pub(crate) type Claim = BTreeMap<String, DeviceSet>;

/// The turn of a claim; dropping it lets those behind go on.
pub(crate) struct Turn(#[expect(dead_code, reason = "it is held, not used")] Box<dyn Any + Send>);

impl Turn {
    fn held_by(place: impl Any + Send) -> Turn {
        Turn(Box::new(place))
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Turn")
    }
}

/// What a registry stands on: its host's clocks, and tasks.
pub(crate) trait OwnHost: Send + Sync {
    /// This host's clock, and the time since 1970.
    fn now(&self) -> (BootTime, Duration);

    /// Runs beside the caller.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

impl fmt::Debug for dyn OwnHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnHost")
    }
}

/// See the module.
pub(crate) trait Registry: Send + Sync {
    /// Says this of the own host from now on, until something else is said.
    fn publish(&self, said: Published);

    /// What is known of all hosts, the own one among them, in the order of their names.
    fn view(&self) -> Vec<HostView>;

    /// Where other hosts listen, as far as that is not among what is `known`, by their names.
    fn addresses(&self, known: &BTreeMap<String, String>) -> Vec<(String, String)>;

    /// Counts what changed in the view; hosts that vanish do so without a change.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Waits for the turn of a claim. First come, first served, among claims that have a device in common;
    /// others do not wait for each other. Dropping the future, or the turn, withdraws the whole of it.
    ///
    /// # Errors
    /// The registry, or a host of the claim, cannot be reached, or has too many claims.
    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Turn, Status>>;

    /// A host that is known by other ways, and where it listens.
    fn introduce(&self, host: &str, address: &str);

    /// This host has another name from now on.
    fn rename(&self, own: &str);

    /// What is wrong with the registry itself, for people.
    fn trouble(&self) -> Option<String>;

    /// What others have said that made no sense, since the beginning.
    fn refused(&self) -> u64;
}
