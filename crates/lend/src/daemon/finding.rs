//! The registry of this host: how it finds the others.

use std::sync::Arc;
use std::time::Duration;

use farside_lease::BootTime;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tonic::Status;

use super::machine::Machine;
use super::neighbours::Ways;
use crate::LendError;
use crate::config::RegistrySettings;
use crate::registry::embedded::Embedded;
use crate::registry::etcd::{Etcd, Member};
use crate::registry::{OwnHost, Registry};

/// What there is of the configured registry before the daemon.
pub(super) enum Configured {
    Embedded,
    Etcd { prefix: String, cluster: String, members: Vec<Member> },
}

impl Configured {
    /// Reads the files that are named.
    pub(super) fn of(
        settings: &RegistrySettings,
        machine: &dyn Machine,
    ) -> Result<Configured, LendError> {
        Ok(match settings {
            RegistrySettings::Embedded => Configured::Embedded,
            RegistrySettings::Etcd(settings) => Configured::Etcd {
                prefix: settings.prefix.clone(),
                cluster: settings.cluster.clone(),
                members: machine.etcd(settings)?,
            },
        })
    }
}

/// See the module.
#[derive(Clone)]
pub(super) enum Finding {
    Embedded(Arc<Embedded>),
    Etcd(Arc<Etcd>),
}

impl Finding {
    pub(super) fn new(
        configured: Configured,
        host: &str,
        ways: &Arc<Ways>,
        machine: &Arc<dyn Machine>,
    ) -> Finding {
        match configured {
            Configured::Embedded => Finding::Embedded(Embedded::new(host, Arc::clone(ways) as _)),
            Configured::Etcd { prefix, cluster, members } => {
                let own = Arc::new(Own(Arc::clone(machine)));
                Finding::Etcd(Etcd::new(host, (&prefix, &cluster), members, own))
            }
        }
    }

    pub(super) fn registry(&self) -> Arc<dyn Registry> {
        match self {
            Finding::Embedded(embedded) => Arc::clone(embedded) as _,
            Finding::Etcd(etcd) => Arc::clone(etcd) as _,
        }
    }

    /// Begins to tell and to learn.
    pub(super) fn begin(&self, machine: &dyn Machine) {
        match self {
            Finding::Embedded(embedded) => {
                machine.spawn(Arc::clone(embedded).run().boxed());
            }
            Finding::Etcd(etcd) => etcd.begin(),
        }
    }

    /// Where other daemons tell what they know, and claims for devices of this host have their places.
    ///
    /// # Errors
    /// This host is told by etcd.
    pub(super) fn told_by_others(&self) -> Result<&Arc<Embedded>, Status> {
        match self {
            Finding::Embedded(embedded) => Ok(embedded),
            Finding::Etcd(_) => Err(Status::failed_precondition(
                "this host finds others by etcd: all hosts of a cluster have the same [registry] in \
                 lend.toml",
            )),
        }
    }
}

/// The machine, as far as a registry is concerned.
struct Own(Arc<dyn Machine>);

impl OwnHost for Own {
    fn now(&self) -> (BootTime, Duration) {
        (self.0.now(), self.0.since_1970())
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }
}
