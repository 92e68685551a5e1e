//! A device while it is being granted: promised to somebody, and with nobody yet.

use std::time::Duration;

use farside_lend::steps::Step;

use crate::hosts::await_end;
use crate::network::Network;
use crate::world::World;
use crate::{END_LIMIT, Victim};

#[test]
#[ignore = "scripts/lend/faults.sh runs it where there are network namespaces"]
fn a_device_that_is_being_granted_says_so_and_has_no_epoch_yet() {
    let network = Network::new().unwrap_or_else(|why| panic!("no network namespaces here: {why}"));
    let world = World::on(network, Duration::from_secs(10));
    // The ledger has the lease, and its daemon does not know that it has.
    world.a.hold(Step::LedgerWritten);
    let Victim { mut child, .. } = world.start_victim(2);
    world.await_step(Step::LedgerWritten).expect("it is granted");
    let device = world.a.device("card0").expect("it is listed");
    assert_eq!((device["state"].as_str(), device["epoch"].as_u64()), (Some("granting"), Some(0)));
    assert_eq!(device["holder"], "", "{device}");
    let refused = world.c.run(&["borrow", "card0", "--", "true"]);
    assert!(refused.is_err_and(|why| why.contains("card0")), "nobody else gets it");
    world.let_go();
    assert!(await_end(&mut child, END_LIMIT).is_some_and(|status| status.success()));
}
