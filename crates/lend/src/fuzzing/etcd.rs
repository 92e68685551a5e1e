//! What anybody has written into etcd.

use std::time::Duration;

use super::input::Input;
use crate::proto::Device;
use crate::registry::etcd::attacked::Victim;

const HOSTS: [&str; 5] = ["a", "b", "own", "host-7", "x/y"];

/// Keys and values in any order, of any revision, nearly right mostly. Gives how many were believed.
pub fn etcd(input: &[u8]) -> usize {
    let (mut input, mut victim, mut good) = (Input(input), Victim::new(), 0);
    while !input.is_empty() {
        match input.byte() % 8 {
            0..=4 => {
                let host = input.name(&HOSTS);
                let (key, value) = (key(&mut input, &victim, &host), value(&mut input, &host));
                good += usize::from(victim.take(&key, &value, revision(&mut input)));
            }
            5 => {
                let keys = input.several(|input| {
                    let host = input.name(&HOSTS);
                    (key(input, &victim, &host), revision(input))
                });
                victim.list(revision(&mut input), keys);
            }
            6 => {
                let host = input.name(&HOSTS);
                let key = key(&mut input, &victim, &host);
                victim.take_away(&key, revision(&mut input));
            }
            _ => victim.wait(Duration::from_millis(input.number().min(1 << 30))),
        }
    }
    good
}

fn revision(input: &mut Input<'_>) -> i64 {
    input.number() as i64
}

fn key(input: &mut Input<'_>, victim: &Victim, host: &str) -> Vec<u8> {
    match input.byte() {
        0..=229 => victim.key(host),
        _ => input.bytes(),
    }
}

/// What the host, or another, may have said; some bytes of it may be others.
fn value(input: &mut Input<'_>, host: &str) -> Vec<u8> {
    let says = match input.byte() {
        0..=239 => host.to_owned(),
        _ => input.name(&HOSTS),
    };
    let devices = input.several(|input| Device {
        name: input.name(&["card0", "card1", "nic0"]),
        state: input.number() as i32,
        waiting: input.number() as u32,
        epoch: input.number(),
        holder: input.name(&["", "b", "root on c"]),
        why: input.name(&["", "it does not reset"]),
        ..Device::default()
    });
    let mut value = Victim::value(&says, input.name(&["", "10.0.0.2:7301"]), devices);
    match input.byte() {
        0..=199 => {}
        200..=239 if !value.is_empty() => {
            let at = usize::from(input.byte()) % value.len();
            value[at] ^= input.byte();
        }
        _ => value = input.bytes(),
    }
    value
}
