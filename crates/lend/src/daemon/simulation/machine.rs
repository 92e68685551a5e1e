//! A machine that is simulated, as one run of a daemon sees it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_lease::{BootId, BootTime, Epoch};
use farside_linux::lock::lock;
use farside_live::lease::Term;
use futures_util::future::BoxFuture;
use rustls::ClientConfig;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::super::device::Device;
use super::super::dial::PeerClient;
use super::super::machine::{BorrowersEnd, LendersEnd, Machine};
use super::carrier;
use super::clock::{Clock, TrueTime};
use super::history::{Held, Side};
use super::world::World;
use crate::LendError;
use crate::config::EtcdSettings;
use crate::end::{Begin, Counted, Hello, Kind, NearBegin};
use crate::registry::etcd::Member;

/// How a daemon came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alive {
    Yes,
    /// It was killed; its machine, and the processes on it, go on.
    NoDaemon,
    /// So was all else.
    NoMachine,
}

/// What outlives a daemon.
pub(super) struct Hardware {
    pub(super) host: String,
    pub(super) clock: Clock,
    pub(super) boot: BootId,
    /// The lender's ends, by their epochs.
    ends: Mutex<BTreeMap<u64, Arc<End>>>,
}

impl Hardware {
    pub(super) fn starting(host: &str, world: &World, drift: i32) -> Arc<Hardware> {
        let boot =
            world.random(|random| u128::from(random.next()) << 64 | u128::from(random.next()));
        let clock = Clock::starting(world.now(), drift);
        let boot = BootId(boot.to_be_bytes());
        Arc::new(Hardware { host: host.to_owned(), clock, boot, ends: Mutex::default() })
    }

    /// Everything on it ends.
    pub(super) fn crash(&self) {
        for end in std::mem::take(&mut *lock(&self.ends)).into_values() {
            end.end();
        }
    }
}

/// See the module.
pub(super) struct SimulatedMachine {
    world: Arc<World>,
    hardware: Arc<Hardware>,
    alive: watch::Sender<Alive>,
}

impl SimulatedMachine {
    pub(super) fn new(world: &Arc<World>, hardware: &Arc<Hardware>) -> Arc<SimulatedMachine> {
        let (world, hardware) = (Arc::clone(world), Arc::clone(hardware));
        Arc::new(SimulatedMachine { world, hardware, alive: watch::Sender::new(Alive::Yes) })
    }

    /// Ends the daemon, and all that it does: nothing of it runs on when this returns and its tasks have
    /// had their turn.
    pub(super) fn kill(&self, how: Alive) {
        self.alive.send_replace(how);
        if how == Alive::NoMachine {
            self.hardware.crash();
        }
    }
}

/// The process of a lender's end: it ends by itself when its lease does.
struct End {
    device: PathBuf,
    kind: Kind,
    world: Arc<World>,
    clock: Clock,
    number: usize,
    until: Mutex<TrueTime>,
    killed: Mutex<bool>,
}

impl End {
    fn run_until(&self, shows: u64) {
        *lock(&self.until) = self.clock.when(BootTime(shows));
    }

    fn runs(&self) -> bool {
        !*lock(&self.killed) && self.world.now() < *lock(&self.until)
    }

    fn end(&self) {
        if !std::mem::replace(&mut *lock(&self.killed), true) {
            let at = self.world.now().min(*lock(&self.until));
            lock(&self.world.history).end(self.number, at);
        }
    }
}

impl LendersEnd for Arc<End> {
    fn pid(&self) -> u32 {
        u32::try_from(self.number).unwrap_or(u32::MAX)
    }

    fn socket(&self) -> Option<OwnedFd> {
        None
    }

    fn set_until(&self, until: u64) -> io::Result<()> {
        if !self.runs() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.run_until(until);
        Ok(())
    }

    fn connect(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    fn serve_programs(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    fn counted(&self) -> Counted {
        Counted::default()
    }

    fn kill(&self, _: Duration) -> bool {
        self.end();
        true
    }
}

/// The process of a borrower's end, with the programs that use it: they stop when their page says so.
struct NearEnd {
    world: Arc<World>,
    clock: Clock,
    alive: watch::Receiver<Alive>,
    number: usize,
    term: Term,
}

impl BorrowersEnd for NearEnd {
    fn counted(&self) -> Counted {
        Counted::default()
    }

    fn end(self: Box<Self>) -> Counted {
        Counted::default()
    }
}

impl Drop for NearEnd {
    fn drop(&mut self) {
        let now = self.world.now();
        let at = match *self.alive.borrow() {
            Alive::Yes | Alive::NoMachine => now,
            // Without their daemon programs go on for as long as the page says.
            Alive::NoDaemon => {
                let shows = self.clock.at(now);
                let left = self.term.left(farside_live::lease::BootTime(shows.0));
                now + self.clock.takes(left.unwrap_or_default()).as_nanos() as u64
            }
        };
        lock(&self.world.history).end(self.number, at);
    }
}

impl Machine for SimulatedMachine {
    fn now(&self) -> BootTime {
        self.hardware.clock.at(self.world.now())
    }

    fn since_1970(&self) -> Duration {
        self.world.since_1970()
    }

    fn boot(&self) -> Result<BootId, LendError> {
        Ok(self.hardware.boot)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) -> JoinHandle<()> {
        let mut alive = self.alive.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = alive.wait_for(|alive| *alive != Alive::Yes) => {}
                () = task => {}
            }
        })
    }

    fn start_end(&self, _: &Path, epoch: u64, begin: Begin) -> io::Result<Box<dyn LendersEnd>> {
        let host = &self.hardware.host;
        let device = begin.path.file_name().unwrap_or_default().to_string_lossy();
        let held = Held {
            side: Side::Lender,
            device: format!("{device}@{host}"),
            epoch,
            by: host.clone(),
            from: self.world.now(),
            until: None,
        };
        let end = Arc::new(End {
            device: begin.path.clone(),
            kind: begin.kind,
            world: Arc::clone(&self.world),
            clock: self.hardware.clock,
            number: lock(&self.world.history).begin(held),
            until: Mutex::default(),
            killed: Mutex::default(),
        });
        end.run_until(begin.until);
        lock(&self.hardware.ends).insert(epoch, Arc::clone(&end));
        Ok(Box::new(end))
    }

    fn find_end(&self, _: &Path, epoch: u64) -> Option<(Box<dyn LendersEnd>, Hello)> {
        let end = lock(&self.hardware.ends).get(&epoch).cloned().filter(|end| end.runs())?;
        let hello = Hello { pid: LendersEnd::pid(&end), plain: false, kind: end.kind };
        Some((Box::new(end), hello))
    }

    fn start_near_end(&self, begin: &NearBegin) -> io::Result<Box<dyn BorrowersEnd>> {
        let name = begin.folder.file_name().unwrap_or_default().to_string_lossy();
        let (device, epoch) = name.rsplit_once('-').ok_or(io::ErrorKind::InvalidInput)?;
        let held = Held {
            side: Side::Borrower,
            device: device.to_owned(),
            epoch: epoch.parse().map_err(io::Error::other)?,
            by: self.hardware.host.clone(),
            from: self.world.now(),
            until: None,
        };
        let term = Term::open(&begin.folder.join(Term::FILE))?;
        Ok(Box::new(NearEnd {
            world: Arc::clone(&self.world),
            clock: self.hardware.clock,
            alive: self.alive.subscribe(),
            number: lock(&self.world.history).begin(held),
            term,
        }))
    }

    fn device_at(&self, path: &Path) -> Result<Device, String> {
        Ok(Device::Foreign(path.to_owned()))
    }

    fn clean(&self, device: &Device, epoch: Epoch, _: Option<u32>) -> Result<(), String> {
        let Device::Foreign(path) = device else { return Err("it is no simulated one".to_owned()) };
        let mut ends = lock(&self.hardware.ends);
        let runs = ends.range(..=epoch.0).any(|(_, end)| end.device == *path && end.runs());
        // Those that have ended by themselves are noted, and forgotten.
        ends.values().filter(|end| !end.runs()).for_each(|end| end.end());
        ends.retain(|_, end| end.runs());
        if runs { Err("the end of a lease of it still runs".to_owned()) } else { Ok(()) }
    }

    fn dial(&self, _: &str, host: &str, _: Arc<ClientConfig>) -> io::Result<PeerClient> {
        Ok(carrier::to(&self.world, &self.hardware.host, host))
    }

    fn etcd(&self, _: &EtcdSettings) -> Result<Vec<Member>, LendError> {
        Ok(self.world.etcd(&self.hardware.host))
    }
}
