//! Faults at every named step of a lease (`farside_lend::steps`): each process is killed, stopped past
//! the lease, started again; the cable is cut, one way and both, or slow. After each: the card can be lent
//! again in time, or is quarantined and says why; nothing is left over; another borrower of the same
//! lender goes on; whoever borrows next has an exact result; errors say what happened.
//!
//! In network namespaces, so the tests are left to `scripts/lend/faults.sh`, which says NOT RUN where there
//! can be none. `FARSIDE_SEED` chooses the sample.

mod cases;
#[path = "../lend_common/mod.rs"]
mod common;
mod granting;
mod hostile;
mod hosts;
mod network;
mod relay;
mod sessions;
mod weather;
mod witness;
mod world;

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use cases::{Case, Fault, Moment, Target};
use farside_lend::steps::Step;
use hosts::{Host, await_end, signal};
use rustix::process::{Pid, Signal};
use world::{World, program};

/// How long it may take until a step is reached.
const REACH_LIMIT: Duration = Duration::from_secs(20);
/// How long B's command may take to end once all is well again.
const END_LIMIT: Duration = Duration::from_secs(60);
/// Cases that run at a time, on hosts of their own.
const PARTS: usize = 3;
/// Longer than a lease as anybody counts it.
const PAST_LEASE: Duration = Duration::from_millis(2500);

/// What B's user runs.
struct Victim {
    child: Child,
    said: std::path::PathBuf,
}

impl World {
    fn start_victim(&self, iterations: u32) -> Victim {
        let said = std::path::Path::new(&self.b.home).join("said");
        let words = program(iterations);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let file = std::fs::File::create(&said).expect("a file");
        let mut command = self.b.command(&words);
        let child = command.stdout(Stdio::null()).stderr(file).spawn().expect("it starts");
        Victim { child, said }
    }

    /// Which host's process is held at a step.
    fn host_of(&self, step: Step) -> &Host {
        match step {
            Step::GrantHeard
            | Step::NearEndStarted
            | Step::NearEndReady
            | Step::ProgramConnects
            | Step::RenewalAsked => &self.b,
            _ => &self.a,
        }
    }

    fn target(&self, target: Target) -> Vec<Pid> {
        match target {
            Target::LendersDaemon => self.a.processes("daemon"),
            Target::LendersEnd => self.ends(),
            Target::Card => self.card.processes(),
            Target::BorrowersDaemon => self.b.processes("daemon"),
            Target::NearEnd => self.b.processes("near-end"),
            Target::Program => {
                let mut all = self.b.processes("borrow");
                all.extend(self.b.processes("demo"));
                all
            }
        }
    }

    /// Starts what goes wrong, and brings it to its step. Gives what B runs, and what else was asked.
    fn bring(&self, moment: Moment) -> Result<(Victim, Option<Child>), String> {
        let Moment::Held(step) = moment else {
            let victim = self.start_victim(400);
            self.await_use()?;
            return Ok((victim, None));
        };
        let long = matches!(step, Step::RenewalAsked | Step::RenewalHeard | Step::Recalled);
        if step == Step::Recalled {
            let victim = self.start_victim(400);
            self.await_use()?;
            self.host_of(step).hold(step);
            let mut recall = self.a.command(&["recall", "card0", "--within", "1"]);
            let recall = recall.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            let recall = recall.map_err(|error| error.to_string())?;
            self.await_step(step)?;
            return Ok((victim, Some(recall)));
        }
        self.host_of(step).hold(step);
        let victim = if step == Step::Joining {
            self.start_join()?
        } else {
            self.start_victim(if long { 400 } else { 2 })
        };
        self.await_step(step)?;
        Ok((victim, None))
    }

    /// B joins once more.
    fn start_join(&self) -> Result<Victim, String> {
        let invited = self.a.json(&["lend", "invite"])?;
        let token = invited["token"].as_str().ok_or("no token")?;
        let address = format!("{}:7301", network::ADDRESS);
        let said = std::path::Path::new(&self.b.home).join("said");
        let file = std::fs::File::create(&said).map_err(|error| error.to_string())?;
        let mut command = self.b.command(&["join", &address, token, "--name", "b"]);
        let child = command.stdout(Stdio::null()).stderr(file).spawn();
        Ok(Victim { child: child.map_err(|error| error.to_string())?, said })
    }

    fn await_step(&self, step: Step) -> Result<(), String> {
        let end = Instant::now() + REACH_LIMIT;
        while !self.host_of(step).is_held(step) {
            if Instant::now() > end {
                return Err(format!("the step `{}` is not reached", step.name()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Waits until B's program is at work on the card.
    fn await_use(&self) -> Result<(), String> {
        let end = Instant::now() + REACH_LIMIT;
        while self.b.processes("demo").is_empty() || self.ends().is_empty() {
            if Instant::now() > end {
                return Err("B's program does not begin".to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(700));
        Ok(())
    }

    fn let_go(&self) {
        self.a.let_go();
        self.b.let_go();
    }

    /// What happens; when this returns nothing is wrong any more from outside.
    fn happen(&mut self, fault: Fault) -> Result<(), String> {
        match fault {
            Fault::Kill(target) => {
                signal(&self.target(target), Signal::KILL);
                self.let_go();
                std::thread::sleep(PAST_LEASE);
            }
            Fault::Restart(target) => {
                signal(&self.target(target), Signal::KILL);
                self.let_go();
            }
            Fault::Pause(target) => {
                let stopped = self.target(target);
                signal(&stopped, Signal::STOP);
                self.let_go();
                std::thread::sleep(PAST_LEASE);
                signal(&stopped, Signal::CONT);
            }
            Fault::Cut(way) => {
                self.network.cut(way);
                self.let_go();
                std::thread::sleep(PAST_LEASE);
                self.network.mend(way);
            }
            Fault::Slow => {
                self.network.slow(true);
                self.let_go();
                std::thread::sleep(Duration::from_millis(1500));
                self.network.slow(false);
            }
        }
        if matches!(fault, Fault::Kill(Target::Card) | Fault::Restart(Target::Card)) {
            self.card.restart();
        }
        // Any command starts a daemon that is not there.
        self.a.run(&["who"])?;
        self.b.run(&["who"]).map(drop)
    }

    /// One case, on hosts of which nobody has the card. Gives what B's user was told.
    fn run(&mut self, case: Case) -> Result<String, String> {
        let (mut victim, other) = self.bring(case.moment)?;
        self.happen(case.fault)?;
        if matches!(case.moment, Moment::InUse | Moment::Held(_)) {
            // A program that has nothing to complain of is ended here.
            if await_end(&mut victim.child, Duration::from_secs(3)).is_none() {
                signal(&self.b.processes("demo"), Signal::TERM);
            }
        }
        let Some(status) = await_end(&mut victim.child, END_LIMIT) else {
            return Err(format!("B's command is still there after {END_LIMIT:?}"));
        };
        if let Some(mut other) = other {
            await_end(&mut other, END_LIMIT).ok_or("`recall` hangs")?;
        }
        let said = std::fs::read_to_string(&victim.said).unwrap_or_default();
        if said.contains("panicked") || said.contains("this is a bug") {
            return Err(format!("B was told: {said}"));
        }
        let killed = matches!(case.fault, Fault::Kill(Target::Program));
        if !status.success() && !killed && said.trim().is_empty() {
            let by_signal = std::os::unix::process::ExitStatusExt::signal(&status).is_some();
            if !by_signal && status.code() != Some(128 + 15) {
                return Err(format!("B's command ended with {status} and said nothing"));
            }
        }
        let on_card = |fault| matches!(fault, Fault::Kill(t) | Fault::Pause(t) | Fault::Restart(t) if t == Target::Card);
        let took = self.await_lendable(on_card(case.fault))?;
        self.nothing_is_left()?;
        if case.moment == Moment::Held(Step::Joining) {
            self.join_again()?;
        }
        self.next_borrows()?;
        if !self.neighbour_goes_on()? && case.spares_others() {
            return Err("C has lost the lease of the other card".to_owned());
        }
        let said = said.lines().last().unwrap_or_default();
        Ok(format!("{status}, lendable after {} ms: {said}", took.as_millis()))
    }

    /// However the last try has ended, B joins.
    fn join_again(&self) -> Result<(), String> {
        self.join(&self.b, "b")
    }
}

/// Runs cases one after the other, and gives those that failed.
fn run(cases: impl Iterator<Item = Case>) -> Vec<String> {
    let mut failed = Vec::new();
    let mut world = new_world();
    for case in cases {
        let started = Instant::now();
        match world.run(case) {
            Ok(told) => {
                eprintln!("ok     {case:?}: {told} [{:.1} s]", started.elapsed().as_secs_f64());
            }
            Err(why) => {
                eprintln!("FAILED {case:?}: {why}\n{}", world.logs());
                failed.push(format!("{case:?}: {why}"));
                // What is left of it is no other case's matter.
                drop(world);
                world = new_world();
            }
        }
    }
    failed
}

fn new_world() -> World {
    World::new().unwrap_or_else(|why| panic!("there are no network namespaces here: {why}"))
}

/// The next of a sequence of numbers (SplitMix64).
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// All cases in an order that the seed says.
fn shuffled() -> (u64, Vec<Case>) {
    let seed = std::env::var("FARSIDE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let (mut state, mut cases) = (seed, Case::all());
    for at in (1..cases.len()).rev() {
        cases.swap(at, (random(&mut state) % (at as u64 + 1)) as usize);
    }
    (seed, cases)
}

/// As many as begin within `FARSIDE_SECONDS`, a minute if that is not set.
#[test]
#[ignore = "scripts/lend/faults.sh runs it where there are network namespaces"]
fn a_sample_of_the_faults_at_the_steps_of_a_lease() {
    let seconds = std::env::var("FARSIDE_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(60));
    let (seed, cases) = shuffled();
    let failed = run(cases.into_iter().take_while(|_| Instant::now() < end));
    assert!(failed.is_empty(), "seed {seed}:\n{}", failed.join("\n"));
}

#[test]
#[ignore = "scripts/lend/faults.sh --all runs it, as make soak does"]
fn every_fault_at_every_step_of_a_lease() {
    let cases = Case::all();
    eprintln!("{} cases", cases.len());
    // Most of the time is waiting.
    let failed = std::thread::scope(|scope| {
        let part = |at: usize| cases.iter().copied().skip(at).step_by(PARTS);
        let parts = std::array::from_fn::<_, PARTS, _>(|at| scope.spawn(move || run(part(at))));
        parts.map(|part| part.join().expect("it runs to its end")).concat()
    });
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}
