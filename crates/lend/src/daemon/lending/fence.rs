//! Cutting a lease off its device: the lender's end is killed, then the device made clean.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farside_lease::lender::{Event, FenceId, FenceOutcome};
use farside_lease::{DeviceName, Epoch, LeaseId, Ledger, Text};
use farside_linux::lock::lock;
use futures_util::FutureExt;
use tokio::task::spawn_blocking;

use super::super::device::Device;
use super::super::machine::Machine;
use super::{End, Lending};
use crate::end::{Counted, EndProcess};
use crate::steps::{Step, at};

/// How long the process of a lender's end may take to die.
pub(super) const KILL_LIMIT: Duration = Duration::from_secs(3);

impl Lending {
    pub(super) fn fence(self: &Arc<Self>, fence: FenceId, device: DeviceName, epoch: Epoch) {
        let (end, known, before) = {
            let mut core = lock(&self.core);
            let known = core.ends.remove(&device).map(LastEnd::Known);
            let unheard = core.unheard.remove(&device).map(LastEnd::Unheard);
            let end = known.or(unheard);
            // It is no more among those that run, and is counted all the same.
            let before = end.as_ref().map(LastEnd::counted).unwrap_or_default();
            core.carried = core.carried.plus(before);
            let device = core.devices.get(&device);
            (end, device.map(|known| (known.device.clone(), known.path.clone())), before)
        };
        let lending = Arc::clone(self);
        let folder = self.folder.clone();
        let machine = Arc::clone(&self.machine);
        let fencing = async move {
            let cleaner = Arc::clone(&lending);
            let fenced = spawn_blocking(move || {
                let kind = known.as_ref().map(|(kind, _)| kind);
                let cleaned = clean(&*machine, end.as_ref(), kind, epoch, &folder);
                if let Some(LastEnd::Known(end)) = &end {
                    cleaner.count_last(&end.lease, before, end.process.counted());
                }
                cleaned?;
                Ok(known.and_then(|(_, path)| machine.device_at(&path).err()))
            });
            let outcome = match fenced.await.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(None) => FenceOutcome::Clean { generation: epoch.0 },
                Ok(Some(why)) => FenceOutcome::NotThere { why: Text::from(why) },
                Err(why) => FenceOutcome::DoesNotReset { why: Text::from(why) },
            };
            lending.tell(Event::Fenced { fence, device, outcome });
        };
        self.machine.spawn(fencing.boxed());
    }

    /// Counts what the end of a lease did until it was gone, and says what it refused.
    fn count_last(&self, lease: &LeaseId, before: Counted, last: Counted) {
        let mut core = lock(&self.core);
        core.carried = core.carried.plus(last.since(before));
        drop(core);
        if let Some(refused) = last.refused_words() {
            tracing::warn!(%lease, refused, "accesses of a lease were refused");
        }
    }
}

/// Kills ends of leases that have ended, which a daemon that was killed has left.
pub(super) fn kill_strays(folder: &Path, ledger: &Ledger) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let epochs = entries.filter_map(|entry| EndProcess::epoch_of(&entry.file_name()));
    for epoch in epochs.filter(|&epoch| !ledger.leases().any(|(_, kept)| kept.epoch.0 == epoch)) {
        if let Some((end, _)) = EndProcess::find(folder, epoch) {
            tracing::warn!(epoch, "the end of a former lease is killed");
            end.kill(KILL_LIMIT);
        }
        EndProcess::kill_unheard(folder, epoch, KILL_LIMIT);
        EndProcess::forget(folder, epoch);
    }
}

/// Makes sure that nothing of a lease reaches its device, and that nothing of it is left there.
fn clean(
    machine: &dyn Machine,
    end: Option<&LastEnd>,
    device: Option<&Device>,
    epoch: Epoch,
    folder: &Path,
) -> Result<(), String> {
    at(Step::Fencing);
    if let Some(end) = end {
        end.cut(folder)?;
    }
    at(Step::LinkCut);
    let device = device.ok_or("it is not there")?;
    let holder = match end {
        Some(LastEnd::Known(end)) => Some(end.process.pid()),
        Some(LastEnd::Unheard(_)) | None => None,
    };
    machine.clean(device, epoch, holder)?;
    at(Step::DeviceClean);
    Ok(())
}

/// The lender's end of the lease that is over.
enum LastEnd {
    Known(End),
    /// Of a former daemon. One that did not answer this one may be stopped, and wake.
    Unheard(Epoch),
}

impl LastEnd {
    fn counted(&self) -> Counted {
        match self {
            LastEnd::Known(end) => end.process.counted(),
            LastEnd::Unheard(_) => Counted::default(),
        }
    }

    /// Nothing of it is left when this returns.
    fn cut(&self, folder: &Path) -> Result<(), String> {
        let (is_gone, epoch) = match self {
            LastEnd::Known(end) => (end.process.kill(KILL_LIMIT), end.lease.epoch),
            LastEnd::Unheard(epoch) => {
                (EndProcess::kill_unheard(folder, epoch.0, KILL_LIMIT), *epoch)
            }
        };
        if !is_gone {
            return Err(format!("the process of lease {epoch} does not end"));
        }
        EndProcess::forget(folder, epoch.0);
        Ok(())
    }
}
