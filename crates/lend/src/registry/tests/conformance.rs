//! The promises of a registry. Each check says what was broken, so that one that breaks a promise on
//! purpose can be seen to fail it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_lease::{DeviceName, DeviceSet};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::super::{Claim, PRESENCE, Published, Registry};
use crate::proto::{Device, device::State};

/// Within this time everybody knows of a change.
const CONVERGED: Duration = Duration::from_secs(2);
/// How long all claims of a race may take.
const RACE_LIMIT: Duration = Duration::from_secs(60);

/// Some hosts with one registry; they are called as they are in [`host_name`].
pub(crate) trait Rig: Send + Sync {
    /// What a host sees and says.
    fn host(&self, host: usize) -> Arc<dyn Registry>;
    /// How many there are.
    fn hosts(&self) -> usize;
    /// The host is gone, without a word.
    fn stop(&self, host: usize);
    /// Nothing of it gets through any more.
    fn cut(&self, host: usize);
    /// It does again.
    fn mend(&self, host: usize);
    /// Host `liar` says what host `about` is said to have said later than all it said.
    fn lie(&self, liar: usize, about: usize, said: Published);
}

/// The name of a host.
pub(crate) fn host_name(host: usize) -> String {
    format!("host{host}")
}

/// A card in a state.
pub(crate) fn card(name: &str, state: State) -> Device {
    Device { name: name.to_owned(), state: state.into(), ..Device::default() }
}

fn says(host: usize, epoch: u64) -> Published {
    let card = Device { epoch, ..card("card0", State::Lent) };
    Published { address: format!("10.0.0.{host}:7301"), devices: vec![card] }
}

fn publish_all(rig: &dyn Rig) {
    (0..rig.hosts()).for_each(|host| rig.host(host).publish(says(host, 0)));
}

/// Waits until it is so; says what is not.
async fn within(limit: Duration, mut is: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let end = Instant::now() + limit;
    loop {
        match is() {
            Ok(()) => return Ok(()),
            Err(why) if Instant::now() >= end => return Err(format!("{why}, after {limit:?}")),
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Whether `viewer` knows what all hosts but `without` have said, and has them as present.
fn knows(rig: &dyn Rig, viewer: usize, said: &BTreeMap<usize, Published>) -> Result<(), String> {
    let view = rig.host(viewer).view();
    for (&host, said) in said {
        let found = view.iter().find(|found| found.host == host_name(host));
        match found {
            Some(found) if found.said == *said && found.is_present() => {}
            other => return Err(format!("host {viewer} has {other:?} of host {host}")),
        }
    }
    Ok(())
}

fn all_know(rig: &dyn Rig, said: &BTreeMap<usize, Published>) -> Result<(), String> {
    said.keys().try_for_each(|&viewer| knows(rig, viewer, said))
}

fn said_first(rig: &dyn Rig) -> BTreeMap<usize, Published> {
    (0..rig.hosts()).map(|host| (host, says(host, 0))).collect()
}

/// Hosts appear, stay, and expire when they are silent.
pub(crate) async fn presence(rig: &dyn Rig) -> Result<(), String> {
    publish_all(rig);
    let mut said = said_first(rig);
    within(CONVERGED, || all_know(rig, &said)).await?;
    let gone = rig.hosts() - 1;
    rig.stop(gone);
    said.remove(&gone);
    within(PRESENCE + CONVERGED + CONVERGED, || {
        all_know(rig, &said)?;
        for &viewer in said.keys() {
            let view = rig.host(viewer).view();
            let left = view.iter().find(|found| found.host == host_name(gone));
            if left.is_some_and(super::super::HostView::is_present) {
                return Err(format!("host {viewer} still has host {gone} as present"));
            }
        }
        Ok(())
    })
    .await
}

/// The last of many changes is known everywhere soon, and those who watch are woken.
pub(crate) async fn view_converges(rig: &dyn Rig) -> Result<(), String> {
    publish_all(rig);
    let mut said = said_first(rig);
    within(CONVERGED, || all_know(rig, &said)).await?;
    let watching = rig.host(rig.hosts() - 1);
    let mut changes = watching.changes();
    changes.mark_unchanged();
    for epoch in 1..=20 {
        for host in 0..2 {
            rig.host(host).publish(says(host, epoch));
            said.insert(host, says(host, epoch));
        }
        sleep(Duration::from_millis(7)).await;
    }
    within(CONVERGED, || all_know(rig, &said)).await?;
    let woken = timeout(CONVERGED, changes.changed()).await;
    woken.map_err(|_| "nobody was woken by the changes".to_owned())?.map_err(|e| e.to_string())
}

/// A host that was cut off sees what it missed, and is seen.
pub(crate) async fn watch_resumes(rig: &dyn Rig, cut_for: Duration) -> Result<(), String> {
    publish_all(rig);
    let mut said = said_first(rig);
    within(CONVERGED, || all_know(rig, &said)).await?;
    let away = rig.hosts() - 1;
    rig.cut(away);
    sleep(cut_for).await;
    for host in [0, away] {
        rig.host(host).publish(says(host, 1));
        said.insert(host, says(host, 1));
    }
    sleep(CONVERGED).await;
    if knows(rig, away, &said).is_ok() {
        return Err("a host that is cut off knows what it cannot".to_owned());
    }
    rig.mend(away);
    within(CONVERGED + CONVERGED, || all_know(rig, &said)).await
}

/// What somebody says in another's name is set right by that other.
pub(crate) async fn lies_are_set_right(rig: &dyn Rig) -> Result<(), String> {
    publish_all(rig);
    let said = said_first(rig);
    within(CONVERGED, || all_know(rig, &said)).await?;
    let free = vec![card("card0", State::Free), card("card1", State::Free)];
    rig.lie(1, 0, Published { devices: free, ..says(0, 9) });
    sleep(Duration::from_millis(300)).await;
    within(CONVERGED, || all_know(rig, &said)).await
}

/// Devices of hosts: the same `devices` of each.
pub(crate) fn claim_of(hosts: &[usize], devices: &[&str]) -> Claim {
    let set = || {
        let names = devices.iter().map(|name| DeviceName::new(name).expect("a name"));
        DeviceSet::new(names).expect("a set")
    };
    hosts.iter().map(|&host| (host_name(host), set())).collect()
}

/// Whoever came first is served first, and whoever wants something else does not wait.
pub(crate) async fn queue_is_fair(rig: &dyn Rig) -> Result<(), String> {
    publish_all(rig);
    within(CONVERGED, || all_know(rig, &said_first(rig))).await?;
    let served = Arc::new(Mutex::new(Vec::new()));
    let first =
        rig.host(0).claim(&claim_of(&[0, 1], &["card0"])).await.map_err(|e| e.to_string())?;
    let mut waiting = JoinSet::new();
    for claimant in 1..6_usize {
        let (registry, served) = (rig.host(claimant % rig.hosts()), Arc::clone(&served));
        waiting.spawn(async move {
            let turn = registry.claim(&claim_of(&[0, 1], &["card0"])).await;
            served.lock().expect("no panic").push(claimant);
            sleep(Duration::from_millis(30)).await;
            turn.map(drop)
        });
        // They come one after the other.
        sleep(Duration::from_millis(100)).await;
    }
    let other = timeout(CONVERGED, rig.host(1).claim(&claim_of(&[0, 1], &["card1"]))).await;
    let other = other.map_err(|_| "a claim waits for others that want nothing that it wants")?;
    drop(other.map_err(|error| error.to_string())?);
    if !served.lock().expect("no panic").is_empty() {
        return Err("a claim had its turn while another had".to_owned());
    }
    drop(first);
    let all = async { while waiting.join_next().await.is_some() {} };
    timeout(RACE_LIMIT, all).await.map_err(|_| "claims are never served".to_owned())?;
    let served = served.lock().expect("no panic").clone();
    if served == [1, 2, 3, 4, 5] { Ok(()) } else { Err(format!("served as {served:?}")) }
}

/// Claims over several hosts, many at a time, some of them withdrawn while they wait: never two with a
/// device in common have their turn at a time, and all come to an end.
pub(crate) async fn claims_are_all_or_none(rig: &dyn Rig) -> Result<(), String> {
    const CLAIMANTS: usize = 8;
    const CLAIMS: usize = 6;
    publish_all(rig);
    within(CONVERGED, || all_know(rig, &said_first(rig))).await?;
    let taken: Arc<Mutex<BTreeSet<(String, String)>>> = Arc::default();
    let mut racing = JoinSet::new();
    for claimant in 0..CLAIMANTS {
        let registry = rig.host(claimant % rig.hosts());
        let taken = Arc::clone(&taken);
        racing.spawn(async move {
            let mut turns = 0;
            for round in 0..CLAIMS {
                let pick = claimant * 7 + round * 3;
                let hosts: &[usize] = [&[0, 1][..], &[1, 2], &[0, 2], &[0, 1, 2]][pick % 4];
                let devices: &[&str] = [&["a"][..], &["a", "b"], &["b"]][pick % 3];
                let claim = claim_of(hosts, devices);
                if (claimant + round) % 4 == 0 {
                    // Withdrawn, whatever it has come to.
                    let _ = timeout(Duration::from_millis(15), registry.claim(&claim)).await;
                    continue;
                }
                let turn = registry.claim(&claim).await.map_err(|error| error.to_string())?;
                let all: Vec<(String, String)> = claim
                    .iter()
                    .flat_map(|(host, set)| set.iter().map(|d| (host.clone(), d.to_string())))
                    .collect();
                for device in &all {
                    if !taken.lock().expect("no panic").insert(device.clone()) {
                        return Err(format!("{device:?} is in two turns at a time"));
                    }
                }
                sleep(Duration::from_millis(10)).await;
                taken.lock().expect("no panic").retain(|device| !all.contains(device));
                drop(turn);
                turns += 1;
            }
            Ok(turns)
        });
    }
    let all = async {
        let mut turns = 0;
        while let Some(raced) = racing.join_next().await {
            turns += raced.map_err(|error| error.to_string())??;
        }
        Ok::<usize, String>(turns)
    };
    let turns = timeout(RACE_LIMIT, all).await.map_err(|_| "claims wait for each other")??;
    if turns >= CLAIMANTS * CLAIMS / 2 { Ok(()) } else { Err(format!("only {turns} turns")) }
}

/// Whoever has its turn has nothing yet: its lenders decide, and what they say is what is known.
pub(crate) async fn turns_grant_nothing(rig: &dyn Rig) -> Result<(), String> {
    let free =
        |host: usize| Published { devices: vec![card("card0", State::Free)], ..says(host, 0) };
    (0..rig.hosts()).for_each(|host| rig.host(host).publish(free(host)));
    let said: BTreeMap<usize, Published> = (0..rig.hosts()).map(|h| (h, free(h))).collect();
    within(CONVERGED, || all_know(rig, &said)).await?;
    let turn = rig.host(1).claim(&claim_of(&[0, 2], &["card0"])).await;
    let turn = turn.map_err(|error| error.to_string())?;
    sleep(CONVERGED).await;
    all_know(rig, &said).map_err(|why| format!("a turn counts as lent: {why}"))?;
    drop(turn);
    Ok(())
}

/// All of it, each with hosts of its own.
pub(crate) async fn all<R: Rig, F: Future<Output = R>>(rig: impl Fn() -> F) {
    presence(&rig().await).await.expect("presence");
    view_converges(&rig().await).await.expect("the view converges");
    watch_resumes(&rig().await, Duration::from_secs(1)).await.expect("watching goes on");
    watch_resumes(&rig().await, PRESENCE + CONVERGED).await.expect("watching goes on, later");
    queue_is_fair(&rig().await).await.expect("the queue is fair");
    claims_are_all_or_none(&rig().await).await.expect("all or none");
    turns_grant_nothing(&rig().await).await.expect("nothing is granted");
}
