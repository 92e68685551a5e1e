//! Many daemons in one process: their own code, by a clock, a network and devices that are simulated.
//!
//! Simulated: time (it passes as fast as the daemons allow), each machine's clock (it drifts as far as is
//! allowed), what is between daemons (calls and their messages take a while, are lost, and are cut off, also
//! one way), the processes at the ends of leases, and devices. Everything else is what runs for users: the
//! leases, the ledgers and settings in files, the registry, the calls' code and their messages as bytes.
//! Left out is what is below calls: TCP, TLS and HTTP/2. Daemons and machines crash, and start again.
//!
//! A checker then reads the history of all ends of leases, by the true time. The seed decides what is done
//! to whom; which of two things that are ready at the same instant comes first, the threads that write
//! files decide.

mod carrier;
mod clock;
mod faults;
mod history;
mod host;
mod machine;
mod random;
mod run;
mod users;
mod world;

pub use run::{Outcome, Plan, run};

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use std::sync::Arc;

    use farside_linux::lock::lock;
    use tokio::time::{Instant, sleep};

    use super::host::{Host, device_name, name_of};
    use super::machine::Alive;
    use super::run::simulate;
    use super::world::World;
    use super::{Outcome, Plan, run, users};
    use crate::proto::BorrowForRequest;
    use crate::proto::borrow_for_event::Event;
    use crate::registry::tests::etcd::server::{Seen, Shared};
    use crate::registry::tests::in_simulated_time;

    /// Where the hosts have their files: in memory, where there is such a place.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let memory = Path::new("/dev/shm");
            let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
            Folder(base.join(format!("farside-simulation-{}-{name}", std::process::id())))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Hosts that find each other by an etcd that is simulated as well, as its script says.
    #[test]
    fn hosts_that_find_each_other_by_etcd_lend_and_none_is_held_twice() {
        let folder = Folder::new("etcd");
        in_simulated_time(async {
            let (world, _shared) = by_etcd(7);
            let outcome = simulate(&small(7), &folder.0, world).await.expect("a simulation");
            assert_eq!(outcome.held_twice.first(), None);
            assert_eq!(outcome.not_lendable.first(), None);
            assert!(
                outcome.borrows >= 600 && outcome.crashes > 0 && outcome.cuts > 0,
                "{outcome:?}"
            );
            assert!(outcome.converged <= Duration::from_secs(2), "{outcome:?}");
        });
    }

    /// Somebody waits for cards of two lenders which others have, and etcd is gone meanwhile.
    #[test]
    fn who_waits_for_cards_of_several_lenders_without_etcd_is_told_in_time_and_holds_nothing() {
        let folder = Folder::new("gone");
        in_simulated_time(async {
            let (world, shared) = by_etcd(3);
            let plan = Plan { hosts: 4, devices: 1, ..small(3) };
            let hosts = (0..plan.hosts).map(|host| Host::new(&world, &folder.0, host, &plan));
            let hosts: Vec<Host> = hosts.collect::<Result<_, _>>().expect("hosts");
            hosts.iter().try_for_each(Host::start).expect("daemons");
            sleep(Duration::from_secs(5)).await;
            let wish = |wait: u64| {
                let devices = [1, 2].map(|host| format!("{}@{}", device_name(0), name_of(host)));
                BorrowForRequest { devices: devices.into(), wait_ns: wait * 1_000_000_000, any: 0 }
            };
            let mut first = users::ask(&world, 3, wish(0)).await.expect("a daemon");
            users::await_grant(&mut first).await.expect("they are free");
            let mut waiting = users::ask(&world, 0, wish(10)).await.expect("a daemon");
            let began = Instant::now();
            sleep(Duration::from_secs(2)).await;
            shared.be_silent();
            let why = loop {
                match waiting.recv().await.expect("it is told") {
                    Ok(event) => assert!(!matches!(event.event, Some(Event::Borrowed(_)))),
                    Err(status) => break status,
                }
            };
            let took = began.elapsed();
            assert!(took < Duration::from_secs(12), "told after {took:?}");
            assert!(why.message().contains("was not served within the time"), "{why:?}");
            let held = |host: usize| {
                world.running(&name_of(host)).map(|running| running.daemon.borrowing.held().len())
            };
            assert_eq!((held(0), held(3)), (Some(0), Some(2)), "whoever waited has something");
            // And the lenders have no more to do with it: the next one is served without etcd.
            drop(first);
            sleep(Duration::from_secs(1)).await;
            let mut next = users::ask(&world, 0, wish(30)).await.expect("a daemon");
            users::await_grant(&mut next).await.expect("they are free again");
            assert_eq!(lock(&world.history).held_twice().first(), None);
            assert!(hosts.iter().all(|host| host.crash(Alive::NoMachine)));
        });
    }

    fn by_etcd(seed: u64) -> (Arc<World>, Arc<Shared>) {
        let (world, shared) = (World::new(seed), Shared::new());
        let seen = Arc::clone(&shared);
        world.set_etcd(move |_| vec![Seen::member(&seen)]);
        (world, shared)
    }

    fn simulated(name: &str, plan: &Plan) -> Outcome {
        run(plan, &Folder::new(name).0).expect("a simulation")
    }

    fn small(seed: u64) -> Plan {
        Plan { hosts: 10, devices: 10, borrows: 600, seed, forgets_ledgers: false }
    }

    #[test]
    fn ten_hosts_lend_a_hundred_devices_and_none_is_held_twice() {
        let outcome = simulated("small", &small(1));
        assert_eq!(outcome.held_twice.first(), None);
        assert_eq!(outcome.not_lendable.first(), None);
        assert!(outcome.borrows >= 600 && outcome.crashes > 0 && outcome.cuts > 0, "{outcome:?}");
        assert!(outcome.converged <= Duration::from_secs(2), "{outcome:?}");
    }

    /// A negative control. That one does it can go unseen: its device has to be asked for by another while
    /// it is held still, and the threads that write files decide that together with the seed.
    #[test]
    fn daemons_that_forget_their_ledgers_are_caught() {
        let caught = |seed: u64| {
            let outcome = simulated("control", &Plan { forgets_ledgers: true, ..small(seed) });
            !outcome.held_twice.is_empty()
        };
        assert!(
            (1..=24).any(caught),
            "24 simulations without ledgers, and no device was held twice"
        );
    }
}
