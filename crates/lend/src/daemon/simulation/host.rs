//! A host of the simulation: its files, and the daemons that run on it one after the other.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use farside_linux::lock::lock;

use super::super::Daemon;
use super::machine::{Alive, Hardware, SimulatedMachine};
use super::run::Plan;
use super::world::{Running, World};
use crate::LendError;
use crate::home::{Home, Lent, Peer, Settings};

/// Parts in a million by which clocks are ahead or behind, at most: less than what leases allow, one
/// hundredth.
const DRIFT_MAX: usize = 9_900;

/// The configuration of hosts that find each other by etcd, whose ways are the world's.
const BY_ETCD: &str =
    "version = 1\n[registry]\nkind = \"etcd\"\nendpoints = [\"http://127.0.0.1:2379\"]\n";

/// See the module.
pub(super) struct Host {
    pub(super) name: String,
    world: Arc<World>,
    home: Home,
    forgets_ledger: bool,
    hardware: Mutex<Arc<Hardware>>,
}

/// The name of a host.
pub(super) fn name_of(host: usize) -> String {
    format!("host{host}")
}

/// The name of a device.
pub(super) fn device_name(device: usize) -> String {
    format!("card{device}")
}

fn address_of(host: usize) -> String {
    // Calls do not go there; it has to be an address all the same.
    format!("127.0.0.1:{}", 10_000 + host)
}

impl Host {
    /// A host that has joined all others, and lends its devices.
    pub(super) fn new(
        world: &Arc<World>,
        folder: &Path,
        host: usize,
        plan: &Plan,
    ) -> Result<Host, LendError> {
        let name = name_of(host);
        let home = Home::at(&folder.join(&name));
        home.make()?;
        if world.has_etcd() {
            let written = std::fs::write(home.config(), BY_ETCD);
            written.map_err(|error| LendError::file(home.config(), error))?;
        }
        home.found(&name)?;
        let others = (0..plan.hosts).filter(|&other| other != host);
        let peers = others.map(|other| Peer { host: name_of(other), address: address_of(other) });
        let devices = (0..plan.devices).map(|device| Lent {
            name: device_name(device),
            path: PathBuf::from("/simulated").join(&name).join(device_name(device)),
        });
        home.keep(&Settings {
            listen: address_of(host),
            address: address_of(host),
            devices: devices.collect(),
            peers: peers.collect(),
            ..Settings::default()
        })?;
        let hardware = Mutex::new(hardware(&name, world));
        let (world, forgets_ledger) = (Arc::clone(world), plan.forgets_ledgers);
        Ok(Host { name, world, home, forgets_ledger, hardware })
    }

    /// Starts a daemon.
    pub(super) fn start(&self) -> Result<(), LendError> {
        if self.forgets_ledger {
            let _ = std::fs::remove_file(self.home.ledger());
        }
        let machine = SimulatedMachine::new(&self.world, &lock(&self.hardware));
        let daemon = Daemon::new(&self.home, Arc::clone(&machine) as _)?;
        self.world.set_running(&self.name, Some(Running { daemon, machine }));
        Ok(())
    }

    /// Kills the daemon, or all of its machine. `false` if none runs.
    pub(super) fn crash(&self, how: Alive) -> bool {
        let Some(running) = self.world.running(&self.name) else { return false };
        running.machine.kill(how);
        self.world.set_running(&self.name, None);
        if how == Alive::NoMachine {
            *lock(&self.hardware) = hardware(&self.name, &self.world);
        }
        true
    }
}

fn hardware(host: &str, world: &World) -> Arc<Hardware> {
    let drift = world.random(|random| random.below(2 * DRIFT_MAX + 1));
    let drift = i32::try_from(drift).unwrap_or_default() - DRIFT_MAX as i32;
    Hardware::starting(host, world, drift)
}
