//! Which devices are there: those of the settings are lent as soon as they are, one that dies is lent to
//! nobody until it is back.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use farside_lease::lender::Event;
use farside_lease::{DeviceName, Text};
use farside_linux::lock::lock;
use tokio::task::spawn_blocking;

use super::Lending;
use crate::home::Lent;

/// How often devices are looked for.
const LOOK: Duration = Duration::from_secs(2);

impl Lending {
    /// Looks for devices, for ever. `missing` are to be lent once they are there.
    pub(super) async fn watch_devices(self: Arc<Self>, mut missing: Vec<Lent>) {
        let mut told = false;
        loop {
            missing.retain(|lent| match self.lend(&lent.name, &lent.path) {
                Ok(()) => false,
                Err(why) => {
                    if !told {
                        let (device, why) = (&lent.name, why.message());
                        tracing::warn!(device, why, "a device is not there yet");
                    }
                    true
                }
            });
            told = true;
            tokio::time::sleep(LOOK).await;
            let lending = Arc::clone(&self);
            // A device that stands still may make whoever looks for it wait.
            let _ = spawn_blocking(move || lending.look_for_devices()).await;
        }
    }

    /// Tells of those that have gone, or are back.
    fn look_for_devices(&self) {
        let (known, lent) = {
            let core = lock(&self.core);
            let paths = core.devices.iter().map(|(name, known)| (name.clone(), known.path.clone()));
            let lent: HashSet<DeviceName> =
                core.lender.devices().map(|view| view.name.clone()).collect();
            (paths.collect::<Vec<(DeviceName, PathBuf)>>(), lent)
        };
        for (device, path) in known {
            match self.machine.device_at(&path) {
                Ok(_) if lent.contains(&device) => {}
                Ok(_) => {
                    // It may be another card than before.
                    if let Err(why) = self.lend(device.as_str(), &path) {
                        tracing::warn!(%device, why = why.message(), "a device cannot be lent");
                    }
                }
                Err(why) if lent.contains(&device) => {
                    self.tell(Event::DeviceLost { device, why: Text::from(why) });
                }
                Err(_) => {}
            }
        }
    }
}
