//! A lends two cards. C has one of them throughout; B borrows the other, and faults happen to that.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::common::Held;
use crate::hosts::{Card, Host, signal};
use crate::network::{ADDRESS, Network};

/// Of a lease.
const LEASE: Duration = Duration::from_secs(2);
/// How long the machine may be busy with other things.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long a command may take that has to wait for a lease's end.
const LIMIT: Duration = Duration::from_secs(40);

pub(crate) struct World {
    pub(crate) a: Host,
    pub(crate) b: Host,
    pub(crate) c: Host,
    pub(crate) card: Card,
    /// The other card.
    other: Card,
    holder: Option<Held>,
    pub(crate) network: Network,
    folder: PathBuf,
    /// The lender's end of C's lease.
    neighbour: Vec<Pid>,
    epoch: u64,
}

/// A program that searches a graph on a card of its own and the borrowed one, so many times, and checks
/// its results itself.
pub(crate) fn program(iterations: u32) -> Vec<String> {
    let words = [
        "borrow",
        "card0",
        "--wait",
        "20",
        "--with",
        "program:16777216",
        "--",
        env!("CARGO_BIN_EXE_farside"),
        "demo",
        "--bundled",
        "--on-demand",
        "--quiet",
    ];
    let iterations = format!("--iterations={iterations}");
    words.iter().map(|&word| word.to_owned()).chain([iterations]).collect()
}

impl World {
    /// # Errors
    /// There can be no namespaces here.
    pub(crate) fn new() -> Result<World, String> {
        Ok(World::on(Network::new()?, LEASE))
    }

    /// On a network, with leases of so long.
    pub(crate) fn on(network: Network, lease: Duration) -> World {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fsf{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let card = Card::serve(folder.join("card0"));
        let other = Card::serve(folder.join("card1"));
        let [a, b, c] = ["a", "b", "c"].map(|host| Host::new(&folder, network.name(host), host));
        let mut world = World {
            a,
            b,
            c,
            card,
            other,
            holder: None,
            network,
            folder,
            neighbour: Vec::new(),
            epoch: 0,
        };
        world.begin(lease).expect("hosts that join and borrow");
        world
    }

    fn begin(&mut self, lease: Duration) -> Result<(), String> {
        let lent =
            [format!("card0={}", self.card.folder()), format!("card1={}", self.other.folder())];
        let listen = format!("{ADDRESS}:7301");
        let seconds = lease.as_secs().to_string();
        let up = [
            "lend", "up", "--listen", &listen, "--device", &lent[0], "--device", &lent[1],
            "--lease", &seconds, "--name", "a",
        ];
        self.a.run(&up)?;
        for (host, name) in [(&self.b, "b"), (&self.c, "c")] {
            self.join(host, name)?;
        }
        self.neighbour_borrows()
    }

    pub(crate) fn join(&self, host: &Host, name: &str) -> Result<(), String> {
        let invited = self.a.json(&["lend", "invite"])?;
        let token = invited["token"].as_str().ok_or("no token")?;
        host.run(&["join", &format!("{ADDRESS}:7301"), token, "--name", name]).map(drop)
    }

    /// C borrows the other card, for as long as this lasts.
    fn neighbour_borrows(&mut self) -> Result<(), String> {
        self.holder = Some(self.c.borrow("card1").map_err(|why| format!("C: {why}"))?);
        self.neighbour = self.a.processes("end");
        self.epoch = self.a.device("card1")?["epoch"].as_u64().ok_or("an epoch")?;
        Ok(())
    }

    /// The lender's ends that are not of C's lease.
    pub(crate) fn ends(&self) -> Vec<Pid> {
        let ends = self.a.processes("end").into_iter();
        ends.filter(|end| !self.neighbour.contains(end)).collect()
    }

    /// Whether C has had its lease all the time; if not, it borrows again.
    pub(crate) fn neighbour_goes_on(&mut self) -> Result<bool, String> {
        let device = self.a.device("card1")?;
        if device["state"] == "lent" && device["epoch"].as_u64() == Some(self.epoch) {
            return Ok(true);
        }
        self.holder = None;
        self.neighbour_borrows()?;
        Ok(false)
    }

    /// Waits until the card can be lent again. Gives how long that took; a quarantined one is released.
    pub(crate) fn await_lendable(&self, may_be_quarantined: bool) -> Result<Duration, String> {
        let started = Instant::now();
        loop {
            // A card that died is not listed until it has been found again.
            let device = self.a.device("card0").unwrap_or_default();
            if device["state"] == "free" {
                break;
            }
            if device["state"] == "quarantined" && may_be_quarantined {
                if device["why"].as_str().is_none_or(str::is_empty) {
                    return Err("a card is quarantined, and nobody says why".to_owned());
                }
                self.a.run(&["lend", "release", "card0"])?;
            }
            if started.elapsed() > LEASE.mul_f64(1.01) + Duration::from_secs(1) + PATIENCE {
                return Err(format!("after {:?}, still {device}", started.elapsed()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(started.elapsed())
    }

    /// C borrows the card that B had: its result is exact.
    pub(crate) fn next_borrows(&self) -> Result<(), String> {
        let words = program(1);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.c.run_within(&words, LIMIT).map(drop).map_err(|error| format!("the next: {error}"))
    }

    /// Nothing is left of a lease, at A or B: no process, no file.
    pub(crate) fn nothing_is_left(&self) -> Result<(), String> {
        let end = Instant::now() + LEASE + PATIENCE;
        loop {
            let processes = [self.ends(), self.b.processes("near-end"), self.b.processes("borrow")];
            let mut files = self.b.lease_files();
            files.extend(self.a.lease_files());
            // What C's lease has at A.
            let of_c = format!("end-{}", self.epoch);
            files.retain(|file| file.file_stem().is_none_or(|stem| stem != &*of_c));
            if processes.iter().all(Vec::is_empty) && files.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("left over: processes {processes:?}, files {files:?}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn logs(&self) -> String {
        format!("A:\n{}\nB:\n{}", self.a.log_end(), self.b.log_end())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for host in [&self.a, &self.b, &self.c] {
            host.let_go();
            signal(&host.processes(""), Signal::KILL);
        }
        self.holder = None;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
