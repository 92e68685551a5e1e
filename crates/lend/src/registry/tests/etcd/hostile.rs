//! Whoever may write to etcd writes what it likes.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{hosts, key, value};
use crate::proto::Device;
use crate::proto::device::State;
use crate::registry::tests::conformance::{Rig, card, claim_of};
use crate::registry::tests::in_simulated_time;
use crate::registry::{DEVICES_MAX, Published};

/// By then everybody has looked.
const LOOKED: Duration = Duration::from_secs(4);

#[test]
fn what_no_host_says_is_ignored_and_counted_once() {
    in_simulated_time(async {
        let rig = hosts(1).await;
        sleep(LOOKED).await;
        let before = (rig.host(0).view(), rig.host(0).refused());
        let long = Device { why: "x".repeat(513), ..card("card0", State::Free) };
        let many = vec![card("card0", State::Free); DEVICES_MAX + 1];
        let with = |devices| value("x", Published { devices, ..Published::default() });
        let bad = [
            (key("a"), vec![0xff; 64]),
            (key("b"), Vec::new()),
            // In the name of another.
            (key("c"), value("d", Published::default())),
            (key("../e"), value("../e", Published::default())),
            (key("x"), with(vec![long])),
            (key("f"), vec![0; 300 << 10]),
            (key("g"), vec![0; 5 << 20]),
            (key("h"), with(many)),
            (key("i/j"), Vec::new()),
        ];
        let count = bad.len() as u64;
        bad.into_iter().for_each(|(key, value)| rig.write(key, value));
        sleep(4 * LOOKED).await;
        let after = (rig.host(0).view(), rig.host(0).refused());
        assert_eq!(after.0, before.0);
        assert_eq!(after.1 - before.1, count);
    });
}

#[test]
fn a_host_whose_entry_is_spoiled_or_taken_away_says_it_again() {
    in_simulated_time(async {
        let rig = hosts(2).await;
        let said = Published { address: "10.0.0.1:1".to_owned(), ..Published::default() };
        rig.host(0).publish(said.clone());
        sleep(LOOKED).await;
        for spoil in [Some(Vec::new()), Some(value("host0", Published::default())), None] {
            match spoil {
                Some(value) => rig.write(key("host0"), value),
                None => rig.shared.change(|store| store.delete(&key("host0"))),
            }
            sleep(LOOKED).await;
            let view = rig.host(1).view();
            assert!(view[0].said == said && view[0].is_present(), "{view:?}");
        }
    });
}

#[test]
fn claims_that_nobody_can_have_made_hold_nobody_up() {
    in_simulated_time(async {
        let rig = hosts(1).await;
        let claims = "/farside/test/1/claims/";
        for (name, value) in [
            // No etcd lease: it would stay for ever.
            ("stays", "host0/a".to_owned()),
            ("empty", String::new()),
            ("x", "host0/a\nhost0/a".to_owned()),
            ("y", "a".repeat(1 << 20)),
            (&*"n".repeat(200), "host0/a".to_owned()),
        ] {
            rig.write(format!("{claims}{name}"), value.into_bytes());
        }
        rig.write([claims.as_bytes(), &[0xff]].concat(), b"host0/a".to_vec());
        let claim = claim_of(&[0], &["a"]);
        timeout(LOOKED, rig.host(0).claim(&claim)).await.unwrap().unwrap();
        assert!(rig.host(0).refused() >= 6);
    });
}

#[test]
fn more_hosts_than_anybody_has_take_no_more_memory() {
    in_simulated_time(async {
        let rig = hosts(1).await;
        let big: Vec<Device> = (0..400)
            .map(|n| Device { why: "x".repeat(500), ..card(&format!("c{n}"), State::Free) })
            .collect();
        for host in 0..300 {
            let host = format!("h{host}");
            let said = Published { devices: big.clone(), ..Published::default() };
            rig.write(key(&host), value(&host, said));
        }
        sleep(4 * LOOKED).await;
        let view = rig.host(0).view();
        let bytes: usize = view.iter().map(|found| found.said.devices.len() * 650).sum();
        assert!((8 << 20..25 << 20).contains(&bytes), "{bytes} bytes");
        assert!(rig.host(0).refused() > 100);
    });
}
