//! Negative controls: registries that break one promise each, which the checks must catch.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tonic::Status;

use crate::proto::device::State;

use super::super::{Claim, HostView, Published, Registry, Turn};
use super::conformance::{self, Rig};
use super::in_simulated_time;
use super::{embedded, etcd};

/// What is broken.
#[derive(Clone, Copy)]
enum Broken {
    /// Hosts never expire.
    Expiry,
    /// Everybody has its turn at once.
    Turns,
    /// Nothing is told after the first word.
    News,
    /// Whoever has its turn has the devices, for all that it says of them.
    Granting,
}

struct Mutant(Arc<dyn Registry>, Broken, Arc<Mutex<Claim>>);

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
        let granted = self.2.lock().expect("no panic").clone();
        let is_granted = |host: &str, device: &str| {
            granted.get(host).is_some_and(|set| set.iter().any(|name| name.as_str() == device))
        };
        for HostView { host, said, .. } in &mut view {
            for device in said.devices.iter_mut().filter(|device| is_granted(host, &device.name)) {
                device.state = State::Lent.into();
            }
        }
        view
    }

    fn addresses(&self, known: &BTreeMap<String, String>) -> Vec<(String, String)> {
        self.0.addresses(known)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes()
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Turn, Status>> {
        match self.1 {
            Broken::Turns => async { Ok(Turn::held_by(())) }.boxed(),
            Broken::Granting => async {
                let turn = self.0.claim(claim).await?;
                self.2.lock().expect("no panic").extend(claim.clone());
                Ok(turn)
            }
            .boxed(),
            Broken::Expiry | Broken::News => self.0.claim(claim),
        }
    }

    fn introduce(&self, host: &str, address: &str) {
        self.0.introduce(host, address);
    }

    fn rename(&self, own: &str) {
        self.0.rename(own);
    }

    fn trouble(&self) -> Option<String> {
        self.0.trouble()
    }

    fn refused(&self) -> u64 {
        self.0.refused()
    }
}

struct Mutants<R>(R, Broken, Arc<Mutex<Claim>>);

fn broken<R: Rig>(rig: R, broken: Broken) -> Mutants<R> {
    Mutants(rig, broken, Arc::default())
}

impl<R: Rig> Rig for Mutants<R> {
    fn host(&self, host: usize) -> Arc<dyn Registry> {
        Arc::new(Mutant(self.0.host(host), self.1, Arc::clone(&self.2)))
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

/// Whether a check fails, with both kinds of registry.
fn caught(kind: Broken, check: impl AsyncFn(&dyn Rig) -> Result<(), String>, word: &str) {
    in_simulated_time(async {
        let why = check(&broken(embedded::hosts(3).await, kind)).await.expect_err("embedded");
        assert!(why.contains(word), "{why}");
        let why = check(&broken(etcd::hosts(3).await, kind)).await.expect_err("etcd");
        assert!(why.contains(word), "{why}");
    });
}

#[test]
fn a_registry_that_forgets_expiry_is_caught() {
    caught(Broken::Expiry, conformance::presence, "as present");
}

#[test]
fn a_registry_that_lets_two_in_is_caught() {
    caught(Broken::Turns, conformance::claims_are_all_or_none, "two turns");
    caught(Broken::Turns, conformance::queue_is_fair, "");
}

#[test]
fn a_registry_that_tells_no_news_is_caught() {
    caught(Broken::News, conformance::view_converges, "has");
}

#[test]
fn a_registry_that_grants_is_caught() {
    caught(Broken::Granting, conformance::turns_grant_nothing, "counts as lent");
}
