//! Long random schedules over many devices and hosts: what holds whatever happens, that the queue is
//! fair, and that nothing is left behind.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::world::{HOUR, NOT, Said, World};
use common::{BOOT, device, seconds};
use farside_lease::borrower;
use farside_lease::lender::{Action, Event, Status};
use farside_lease::{Limits, Text};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

const DEVICES: [&str; 5] = ["card0", "card1", "card2", "card3", "card4"];
const HOSTS: [&str; 4] = ["a", "b", "c", "d"];

/// What happens next.
#[derive(Clone, Debug)]
enum Step {
    Borrow { host: usize, devices: BTreeSet<usize>, wait: u64 },
    GiveBackAll { host: usize },
    Withdraw { host: usize },
    Pass { millis: u64 },
    Cut { host: usize },
    Mend,
    CrashHost { host: usize },
    RestartLender,
    Recall { device: usize, within: u64 },
    Lose { device: usize },
    DiskFull { full: bool },
    Stick { device: usize },
    Release { device: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let host = 0..HOSTS.len();
    let device = 0..DEVICES.len();
    prop_oneof![
        8 => (host.clone(), btree_set(device.clone(), 1..4), 0..100u64)
            .prop_map(|(host, devices, wait)| Step::Borrow { host, devices, wait }),
        5 => host.clone().prop_map(|host| Step::GiveBackAll { host }),
        1 => host.clone().prop_map(|host| Step::Withdraw { host }),
        6 => (0..15_000u64).prop_map(|millis| Step::Pass { millis }),
        1 => host.clone().prop_map(|host| Step::Cut { host }),
        2 => Just(Step::Mend),
        1 => host.prop_map(|host| Step::CrashHost { host }),
        1 => Just(Step::RestartLender),
        1 => (device.clone(), 0..60u64).prop_map(|(device, within)| Step::Recall { device, within }),
        1 => device.clone().prop_map(|device| Step::Lose { device }),
        1 => any::<bool>().prop_map(|full| Step::DiskFull { full }),
        1 => device.clone().prop_map(|device| Step::Stick { device }),
        2 => device.prop_map(|device| Step::Release { device }),
    ]
}

/// A world, and what was asked for in it.
struct Run {
    world: World,
    asked: BTreeMap<(String, u64), BTreeSet<String>>,
    starts: u64,
}

impl Run {
    fn new(limits: Limits) -> Self {
        Self { world: World::new(limits, &DEVICES, &HOSTS), asked: BTreeMap::new(), starts: 0 }
    }

    fn apply(&mut self, step: Step) {
        let world = &mut self.world;
        match step {
            Step::Borrow { host, devices, wait } => {
                let names: Vec<&str> = devices.iter().map(|index| DEVICES[*index]).collect();
                // A program asks for what it does not have.
                if names.iter().any(|name| world.has(HOSTS[host], name).is_some()) {
                    return;
                }
                let request = world.borrow(HOSTS[host], &names, seconds(wait));
                let names = names.into_iter().map(str::to_owned).collect();
                self.asked.insert((HOSTS[host].into(), request.0), names);
            }
            Step::GiveBackAll { host } => {
                for name in DEVICES {
                    if world.has(HOSTS[host], name).is_some() {
                        world.give_back(HOSTS[host], name);
                    }
                }
            }
            Step::Withdraw { host } => {
                let last = self.asked.keys().rev().find(|(name, _)| name == HOSTS[host]).cloned();
                if let Some((_, request)) = last {
                    let now = world.now;
                    let request = farside_lease::RequestId(request);
                    world.borrower(HOSTS[host]).withdraw(now, request);
                    world.settle();
                }
            }
            Step::Pass { millis } => world.pass(Duration::from_millis(millis)),
            Step::Cut { host } => {
                world.cut.insert(HOSTS[host].into());
            }
            Step::Mend => world.cut.clear(),
            Step::CrashHost { host } => {
                self.starts += 1;
                world.start_borrower(HOSTS[host], self.starts * 1_000_000);
            }
            Step::RestartLender => world.restart_lender(BOOT, &DEVICES),
            Step::Recall { device: index, within } => {
                let (device, within) = (device(DEVICES[index]), seconds(within));
                world.lender(Event::Recall { device, within, by: Text::from("me") });
            }
            Step::Lose { device: index } => {
                let (device, why) = (device(DEVICES[index]), Text::from("died"));
                world.lender(Event::DeviceLost { device, why });
            }
            Step::DiskFull { full } => world.disk_is_full = full,
            Step::Stick { device } => {
                world.stuck.insert(DEVICES[device].into());
            }
            Step::Release { device: index } => {
                world.stuck.remove(DEVICES[index]);
                let (device, by) = (device(DEVICES[index]), Text::from("me"));
                world.lender(Event::Release { device, by });
            }
        }
    }

    /// What holds after every step.
    fn check(&mut self) {
        for name in DEVICES {
            let holders = HOSTS.iter().filter(|host| self.world.has(host, name).is_some()).count();
            assert!(holders <= 1, "{holders} have {name}");
        }
        let limit = self.world.lender.limits().queue_per_host_max * HOSTS.len();
        assert!(self.world.lender.waiting() <= limit);
        for said in std::mem::take(&mut self.world.log) {
            if let Said::Borrower(host, borrower::Action::Got { request, leases }) = said {
                let got: BTreeSet<String> = leases.iter().map(|l| l.device.to_string()).collect();
                assert_eq!(self.asked.get(&(host, request.0)), Some(&got), "all or nothing");
            }
        }
    }

    /// Everybody goes home: nothing waits and everything is free.
    fn ends_clean(&mut self) {
        self.apply(Step::DiskFull { full: false });
        self.apply(Step::Mend);
        for device in 0..DEVICES.len() {
            self.apply(Step::Release { device });
        }
        for host in 0..HOSTS.len() {
            self.apply(Step::CrashHost { host });
        }
        // Each in turn that still waits gets a lease and lets it end, at worst.
        self.world.pass(seconds(400));
        assert_eq!(self.world.lender.waiting(), 0, "nothing waits any more");
        for device in self.world.lender.devices() {
            assert_eq!(device.status, Status::Free, "{}", device.name);
        }
        self.apply(Step::Borrow { host: 0, devices: (0..DEVICES.len()).collect(), wait: 0 });
        assert!(self.world.has("a", "card4").is_some());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_one_holder_all_or_nothing_and_nothing_left(
        steps in vec(step(), 1..150),
        share in any::<bool>(),
    ) {
        let share_after = share.then(|| seconds(20));
        let mut run = Run::new(Limits { share_after, ..Limits::default() });
        for step in steps {
            run.apply(step);
            run.check();
        }
        run.ends_clean();
    }

    #[test]
    fn a_request_is_overtaken_a_bounded_number_of_times(
        steps in vec((0..HOSTS.len(), btree_set(0..DEVICES.len(), 1..5), any::<bool>()), 20..200),
    ) {
        let limits = Limits { overtakes_max: 3, ..Limits::default() };
        let overtakes_max = limits.overtakes_max as usize;
        let mut world = World::new(limits, &DEVICES, &HOSTS);
        // Of each request that waits: its devices, and how many may still get one of them before it.
        let mut waiting: BTreeMap<(String, u64), (BTreeSet<String>, usize)> = BTreeMap::new();
        for (who, devices, gives_back) in steps {
            let name = HOSTS[who];
            if gives_back {
                for device in DEVICES {
                    if world.has(name, device).is_some() {
                        world.give_back(name, device);
                    }
                }
            } else {
                let names: Vec<&str> = devices.iter().map(|index| DEVICES[*index]).collect();
                let own = waiting.keys().filter(|(host, _)| host == name).count();
                let request = world.borrow(name, &names, HOUR);
                if let Some(place) = world.lender.place(&common::host(name), request) {
                    let bound = overtakes_max + place + HOSTS.len() * own;
                    let names = names.into_iter().map(str::to_owned).collect();
                    waiting.insert((name.into(), request.0), (names, bound));
                }
            }
            for said in std::mem::take(&mut world.log) {
                let Said::Lender(Action::Granted { borrower, request, leases, .. }) = said else {
                    continue;
                };
                let host = borrower.host.to_string();
                waiting.remove(&(host, request.0));
                for ((host, request), (wanted, bound)) in &mut waiting {
                    if leases.iter().any(|lease| wanted.contains(lease.id.device.as_str())) {
                        prop_assert!(*bound > 0, "request {request} of {host} waits for too long");
                        *bound -= 1;
                    }
                }
            }
        }
    }
}

#[test]
fn a_host_that_asks_for_much_does_not_starve_another() {
    let mut world = World::new(Limits::default(), &["card0"], &["a", "b"]);
    world.borrow("a", &["card0"], NOT);
    for _ in 0..50 {
        world.borrow("a", &["card0"], HOUR);
    }
    world.borrow("b", &["card0"], HOUR);
    world.give_back("a", "card0");
    assert!(world.has("a", "card0").is_some(), "the first of a came before");
    world.give_back("a", "card0");
    assert!(world.has("b", "card0").is_some(), "then it is the turn of b, before 49 of a");
}

#[test]
fn a_request_for_much_is_not_starved_by_small_ones() {
    let mut world = World::new(Limits::default(), &["card0", "card1"], &["a", "b", "c"]);
    world.borrow("a", &["card0"], NOT);
    world.borrow("c", &["card0", "card1"], HOUR);
    let mut overtakes = 0;
    loop {
        world.borrow("b", &["card1"], NOT);
        if world.has("b", "card1").is_none() {
            break;
        }
        world.give_back("b", "card1");
        overtakes += 1;
    }
    assert_eq!(overtakes, Limits::default().overtakes_max, "then card1 is kept for c");
    world.give_back("a", "card0");
    assert!(world.has("c", "card0").is_some() && world.has("c", "card1").is_some());
}

#[test]
fn what_one_host_can_make_a_lender_keep_is_bounded() {
    let limits = Limits { queue_per_host_max: 10, hosts_max: 3, ..Limits::default() };
    let mut world = World::new(limits, &["card0"], &["a", "b", "c", "d"]);
    world.borrow("a", &["card0"], NOT);
    for _ in 0..30 {
        world.borrow("b", &["card0"], HOUR);
    }
    assert_eq!(world.lender.waiting(), 10);
    assert_eq!(world.lender.take_stats().refused, 20);
    world.borrow("c", &["card0"], HOUR);
    assert_eq!(world.lender.waiting(), 11, "others go on");
    world.borrow("d", &["card0"], HOUR);
    let (_, _, why) = world.refusals().pop().expect("a fourth host is refused");
    assert_eq!(why, "3 hosts borrow here already; ask again later");
}

#[test]
fn a_lender_keeps_to_its_limits() {
    let limits = Limits::default();
    assert_eq!((limits.devices_max, limits.queue_max, limits.queue_per_host_max), (1024, 1024, 64));
    assert_eq!(farside_lease::DeviceSet::DEVICES_MAX, 16);
    let limits = Limits { devices_max: 2, queue_max: 3, devices_per_host_max: 2, ..limits };
    let mut world = World::new(limits, &["card0", "card1"], &["a", "b", "c"]);
    world.lender(Event::DeviceAdded { device: device("card2") });
    let refused = Action::NotAdded { device: device("card2"), allowed: 2 };
    assert!(world.log.contains(&Said::Lender(refused)));
    world.borrow("a", &["card0"], NOT);
    for host in ["b", "b", "b", "c", "c"] {
        world.borrow(host, &["card0"], HOUR);
    }
    let why: Vec<String> = world.refusals().into_iter().map(|(_, _, why)| why).collect();
    let too_much = "a host may have or wait for 2 devices; give some back";
    assert_eq!(why, [too_much, "3 requests wait already; ask again later"]);
}

#[test]
fn a_hundred_hosts_and_a_thousand_devices_are_served() {
    let names: Vec<String> = (0..1000).map(|n| format!("card{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let hosts: Vec<String> = (0..100).map(|n| format!("host{n}")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let mut world = World::new(Limits::default(), &names, &hosts);
    for round in 0..2 {
        for (n, name) in names.iter().enumerate() {
            world.borrow(hosts[(n + round) % 100], &[name], NOT);
            assert!(world.has(hosts[(n + round) % 100], name).is_some());
        }
        for (n, name) in names.iter().enumerate() {
            world.give_back(hosts[(n + round) % 100], name);
        }
        world.log.clear();
    }
    assert_eq!(world.lender.last_epoch().0, 2000);
    assert_eq!(world.lender.take_stats().returned, 2000);
}
