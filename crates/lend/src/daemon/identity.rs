//! Who this host is: by the group's certificates or its organisation's, from its start on and when files are
//! replaced.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use farside_linux::lock::lock;
use tokio::time::sleep;

use super::{Daemon, network, users};
use crate::LendError;
use crate::config::Config;
use crate::home::Home;
use crate::pki::{self, HostIdentity};

/// How often it is looked whether a certificate is about to end.
const LOOK: Duration = Duration::from_secs(3600);
/// How often that is said.
const SAY: u32 = 24;

/// Seconds since 1970, by the wall clock, which certificates go by.
pub(super) fn seconds_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// The identity that files give this host: none if there are none, and it is the first of a group.
pub(super) fn of_files(home: &Home, config: &Config) -> Result<Option<HostIdentity>, LendError> {
    let Some(files) = &config.certificates else { return home.identity() };
    let identity = pki::organisation::read(files)?;
    let host = identity.host().filter(|host| users::is_host_name(host)).ok_or_else(|| {
        let why = "its first DNS name (subjectAltName) is none of a host: a-z, 0-9, `-` and `.`";
        pki::unusable(files, why)
    })?;
    // Its key is its own, its authority the one that is named: peers would find out too late.
    identity.server()?;
    match identity.check(&host) {
        // They are told, and so is whoever looks.
        Ok(()) | Err(pki::Unsound::Expired) => Ok(Some(identity)),
        Err(pki::Unsound::Wrong(why)) => Err(pki::unusable(files, why).into()),
    }
}

impl Daemon {
    /// Takes other certificates from here on, if files have others. What goes on goes on.
    pub(super) fn renew_identity(&self, config: &Config) -> Result<(), LendError> {
        let Some(identity) = of_files(&self.home, config)? else { return Ok(()) };
        if identity == self.identity() {
            return Ok(());
        }
        let (known, named) = (self.host(), identity.host().unwrap_or_default());
        if known != named {
            let why = format!(
                "the new certificate names {named}, and this host is known as {known}; start its \
                 daemon anew to be {named}"
            );
            return Err(LendError::Refused(why));
        }
        if let Some(why) = identity.warning(seconds_now()) {
            tracing::warn!(why, "the new certificate will not do for long");
        }
        network::show(self, &identity)?;
        lock(&self.state).identity = identity;
        // Ways to others that were made before show the old one.
        self.identities.fetch_add(1, Ordering::SeqCst);
        tracing::info!(host = known, "this host shows another certificate");
        Ok(())
    }

    /// What whoever looks after this host should know.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.identity().warning(seconds_now()).into_iter().collect()
    }
}

/// Says in the log that a certificate is about to end, every day.
pub(super) async fn watch(daemon: Arc<Daemon>) {
    for look in 0u32.. {
        let warnings = daemon.warnings();
        if look % SAY == 0 {
            warnings.iter().for_each(|why| tracing::warn!("{why}"));
        }
        sleep(LOOK).await;
    }
}
