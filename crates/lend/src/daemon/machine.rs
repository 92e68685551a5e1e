//! What a daemon stands on: its machine's clocks, the processes at the ends of leases, devices, and the way
//! to other daemons. Behind a trait, so that many daemons can be run in one process, with time, networks
//! and devices that are simulated: everything else of them is what runs for users.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use farside_lease::{BootId, BootTime, Epoch};
use futures_util::future::BoxFuture;
use rustls::ClientConfig;
use tokio::task::JoinHandle;

use super::device::Device;
use super::dial::{self, PeerClient};
use super::ledger_file;
use crate::LendError;
use crate::config::EtcdSettings;
use crate::end::{Begin, Counted, EndProcess, Hello, NearBegin, NearEnd};
use crate::registry::etcd::{self, Member};

/// See the module.
pub(crate) trait Machine: Send + Sync {
    /// CLOCK_BOOTTIME.
    fn now(&self) -> BootTime;

    /// The time since 1970, for numbers that shall not come again.
    fn since_1970(&self) -> Duration;

    /// Which run of the machine it is.
    ///
    /// # Errors
    /// The system does not say.
    fn boot(&self) -> Result<BootId, LendError>;

    /// Runs beside the caller, until it is done or the daemon is gone.
    fn spawn(&self, task: BoxFuture<'static, ()>) -> JoinHandle<()>;

    /// Starts the lender's end of a lease.
    ///
    /// # Errors
    /// Those of the system.
    fn start_end(&self, folder: &Path, epoch: u64, begin: Begin)
    -> io::Result<Box<dyn LendersEnd>>;

    /// Finds the lender's end of a lease that a former daemon has started.
    fn find_end(&self, folder: &Path, epoch: u64) -> Option<(Box<dyn LendersEnd>, Hello)>;

    /// Starts the borrower's end of a lease; it ends when it is dropped.
    ///
    /// # Errors
    /// Those of the system.
    fn start_near_end(&self, begin: &NearBegin) -> io::Result<Box<dyn BorrowersEnd>>;

    /// What can be lent at a path.
    ///
    /// # Errors
    /// Why nothing can.
    fn device_at(&self, path: &Path) -> Result<Device, String>;

    /// Makes a device clean of a lease whose end has been killed. It may wait.
    ///
    /// # Errors
    /// Why it is not clean.
    fn clean(&self, device: &Device, epoch: Epoch, end: Option<u32>) -> Result<(), String>;

    /// A way to the daemon of a host.
    ///
    /// # Errors
    /// The host's name is none.
    fn dial(&self, address: &str, host: &str, config: Arc<ClientConfig>) -> io::Result<PeerClient>;

    /// The ways to the members of the etcd that is configured.
    ///
    /// # Errors
    /// A file for TLS cannot be used.
    fn etcd(&self, settings: &EtcdSettings) -> Result<Vec<Member>, LendError>;
}

/// The lender's end of a lease, as its daemon sees it.
pub(crate) trait LendersEnd: Send + Sync {
    /// Its process.
    fn pid(&self) -> u32;

    /// Where it says what it wants; nowhere, if it wants nothing.
    fn socket(&self) -> Option<OwnedFd>;

    /// The lease runs until then, in nanoseconds of CLOCK_BOOTTIME.
    ///
    /// # Errors
    /// It is gone.
    fn set_until(&self, until: u64) -> io::Result<()>;

    /// Hands a connection of the borrower over.
    ///
    /// # Errors
    /// It is gone.
    fn connect(&self, connection: BorrowedFd<'_>) -> io::Result<()>;

    /// Hands over where the programs of this host come.
    ///
    /// # Errors
    /// It is gone.
    fn serve_programs(&self, listener: BorrowedFd<'_>) -> io::Result<()>;

    /// What it has counted so far, also when it is gone.
    fn counted(&self) -> Counted;

    /// Kills it, and waits until it is gone. `false` if it is still there after `limit`.
    fn kill(&self, limit: Duration) -> bool;
}

impl LendersEnd for EndProcess {
    fn pid(&self) -> u32 {
        EndProcess::pid(self)
    }

    fn socket(&self) -> Option<OwnedFd> {
        EndProcess::socket(self)
    }

    fn set_until(&self, until: u64) -> io::Result<()> {
        EndProcess::set_until(self, until)
    }

    fn connect(&self, connection: BorrowedFd<'_>) -> io::Result<()> {
        EndProcess::connect(self, connection)
    }

    fn serve_programs(&self, listener: BorrowedFd<'_>) -> io::Result<()> {
        EndProcess::serve_programs(self, listener)
    }

    fn counted(&self) -> Counted {
        EndProcess::counted(self)
    }

    fn kill(&self, limit: Duration) -> bool {
        EndProcess::kill(self, limit)
    }
}

/// The borrower's end of a lease, as its daemon sees it. It is gone when this is dropped.
pub(crate) trait BorrowersEnd: Send {
    /// What it has counted so far.
    fn counted(&self) -> Counted;

    /// Kills it, and waits until it is gone. Gives what it has counted.
    fn end(self: Box<Self>) -> Counted;
}

impl BorrowersEnd for NearEnd {
    fn counted(&self) -> Counted {
        NearEnd::counted(self)
    }

    fn end(mut self: Box<Self>) -> Counted {
        self.kill();
        NearEnd::counted(&self)
    }
}

/// The machine that this program runs on.
#[derive(Debug)]
pub(super) struct ThisMachine;

impl Machine for ThisMachine {
    fn now(&self) -> BootTime {
        BootTime(farside_live::lease::BootTime::now().0)
    }

    fn since_1970(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn boot(&self) -> Result<BootId, LendError> {
        ledger_file::boot_id()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) -> JoinHandle<()> {
        tokio::spawn(task)
    }

    fn start_end(
        &self,
        folder: &Path,
        epoch: u64,
        begin: Begin,
    ) -> io::Result<Box<dyn LendersEnd>> {
        Ok(Box::new(EndProcess::start(folder, epoch, begin)?))
    }

    fn find_end(&self, folder: &Path, epoch: u64) -> Option<(Box<dyn LendersEnd>, Hello)> {
        let (end, hello) = EndProcess::find(folder, epoch)?;
        Some((Box::new(end), hello))
    }

    fn start_near_end(&self, begin: &NearBegin) -> io::Result<Box<dyn BorrowersEnd>> {
        Ok(Box::new(NearEnd::start(begin)?))
    }

    fn device_at(&self, path: &Path) -> Result<Device, String> {
        Device::at(path)
    }

    fn clean(&self, device: &Device, epoch: Epoch, end: Option<u32>) -> Result<(), String> {
        device.clean(epoch, end)
    }

    fn dial(&self, address: &str, host: &str, config: Arc<ClientConfig>) -> io::Result<PeerClient> {
        dial::peer(address, host, config)
    }

    fn etcd(&self, settings: &EtcdSettings) -> Result<Vec<Member>, LendError> {
        etcd::members(settings)
    }
}
