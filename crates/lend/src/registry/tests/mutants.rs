//! Negative controls: registries that break one promise each, which the checks must catch.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tonic::Status;

use super::super::{Claim, HostView, Published, Registry, Turn};
use super::conformance::{self, Rig};
use super::embedded::hosts;
use super::in_simulated_time;

/// What is broken.
#[derive(Clone, Copy)]
enum Broken {
    /// Hosts never expire.
    Expiry,
    /// Everybody has its turn at once.
    Turns,
    /// Nothing is told after the first word.
    News,
}

struct Mutant(Arc<dyn Registry>, Broken);

impl Registry for Mutant {
    fn publish(&self, said: Published) {
        let silent =
            matches!(self.1, Broken::News) && said.devices.iter().any(|device| device.epoch != 0);
        if !silent {
            self.0.publish(said);
        }
    }

    fn view(&self) -> Vec<HostView> {
        let mut view = self.0.view();
        if matches!(self.1, Broken::Expiry) {
            view.iter_mut().for_each(|host| host.heard = Duration::ZERO);
        }
        view
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes()
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Turn, Status>> {
        match self.1 {
            Broken::Turns => async { Ok(Turn::held_by(())) }.boxed(),
            Broken::Expiry | Broken::News => self.0.claim(claim),
        }
    }
}

struct Mutants<R>(R, Broken);

impl<R: Rig> Rig for Mutants<R> {
    fn host(&self, host: usize) -> Arc<dyn Registry> {
        Arc::new(Mutant(self.0.host(host), self.1))
    }

    fn hosts(&self) -> usize {
        self.0.hosts()
    }

    fn stop(&self, host: usize) {
        self.0.stop(host);
    }

    fn cut(&self, host: usize) {
        self.0.cut(host);
    }

    fn mend(&self, host: usize) {
        self.0.mend(host);
    }

    fn lie(&self, liar: usize, about: usize, said: Published) {
        self.0.lie(liar, about, said);
    }
}

#[test]
fn a_registry_that_forgets_expiry_is_caught() {
    in_simulated_time(async {
        let caught = conformance::presence(&Mutants(hosts(3).await, Broken::Expiry)).await;
        assert!(caught.unwrap_err().contains("as present"));
    });
}

#[test]
fn a_registry_that_lets_two_in_is_caught() {
    in_simulated_time(async {
        let caught =
            conformance::claims_are_all_or_none(&Mutants(hosts(3).await, Broken::Turns)).await;
        assert!(caught.unwrap_err().contains("two turns"));
        let caught = conformance::queue_is_fair(&Mutants(hosts(3).await, Broken::Turns)).await;
        assert!(caught.is_err());
    });
}

#[test]
fn a_registry_that_tells_no_news_is_caught() {
    in_simulated_time(async {
        let caught = conformance::view_converges(&Mutants(hosts(3).await, Broken::News)).await;
        assert!(caught.is_err());
    });
}
