//! What goes wrong: daemons and machines crash, and hosts are cut off, both ways or one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::host::Host;
use super::machine::Alive;
use super::users::Counts;
use super::world::World;

/// How often each kind was.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) crashes: AtomicUsize,
    pub(super) machines: AtomicUsize,
    pub(super) cuts: AtomicUsize,
}

/// Messages of a hundred that are lost.
pub(super) const LOST_PERCENT: usize = 1;

/// Does it, until there were enough borrows; all is whole again when this returns.
pub(super) async fn go_wrong(
    world: Arc<World>,
    hosts: Arc<Vec<Host>>,
    counts: Arc<Counts>,
    faults: Arc<Faults>,
) {
    world.set_lost(LOST_PERCENT);
    let mut under_way = JoinSet::new();
    // Larger clusters have more of it.
    let (least, most) = if hosts.len() > 50 { (200, 800) } else { (700, 2_500) };
    while !counts.enough.load(Ordering::Relaxed) {
        sleep(world.random(|random| random.millis(least, most))).await;
        let fault = one(Arc::clone(&world), Arc::clone(&hosts), Arc::clone(&faults));
        under_way.spawn(fault);
        while under_way.try_join_next().is_some() {}
    }
    while under_way.join_next().await.is_some() {}
}

async fn one(world: Arc<World>, hosts: Arc<Vec<Host>>, faults: Arc<Faults>) {
    let (kind, host, other, pause) = world.random(|random| {
        let (host, other) = (random.below(hosts.len()), random.below(hosts.len()));
        (random.below(6), host, other, random.millis(300, 15_000))
    });
    let host = &hosts[host];
    match kind {
        0..=2 => {
            let how = if kind == 0 { Alive::NoMachine } else { Alive::NoDaemon };
            if !host.crash(how) {
                return;
            }
            let counted = if kind == 0 { &faults.machines } else { &faults.crashes };
            counted.fetch_add(1, Ordering::Relaxed);
            sleep(pause).await;
            host.start().expect("a daemon starts with the files of the one before it");
        }
        _ => {
            faults.cuts.fetch_add(1, Ordering::Relaxed);
            let cut: Vec<(String, String)> = match kind {
                // Everybody, both ways; one other, both ways; one other, one way.
                3 => hosts.iter().flat_map(|other| both(&host.name, &other.name)).collect(),
                4 => both(&host.name, &hosts[other].name).to_vec(),
                _ => vec![(host.name.clone(), hosts[other].name.clone())],
            };
            world.set_cut(|all| all.extend(cut.iter().cloned()));
            sleep(pause).await;
            world.set_cut(|all| all.retain(|way| !cut.contains(way)));
        }
    }
}

fn both(one: &str, other: &str) -> [(String, String); 2] {
    [(one.to_owned(), other.to_owned()), (other.to_owned(), one.to_owned())]
}
