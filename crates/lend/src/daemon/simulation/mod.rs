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

    use super::{Outcome, Plan, run};

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

    #[test]
    fn daemons_that_forget_their_ledgers_are_caught() {
        let outcome = simulated("control", &Plan { forgets_ledgers: true, ..small(1) });
        assert_ne!(outcome.held_twice.first(), None);
    }
}
