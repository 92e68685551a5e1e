//! A device that several borrowers have in turns, over links that break. It writes down each access, in
//! whose data is the epoch of the lease that it belongs to; a checker reads what it and the borrowers saw.

use farside_vfio_user::device::region;

use super::rig::{BUS, DMA_ADDRESS, DMA_WRITE, RAISE, Rig, Seen, VALUE, Witness};

/// What happened, on one clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Happened {
    /// A lease was granted, with this epoch.
    Granted(u32),
    /// The device was written to, for this lease, the so manieth time.
    Access { epoch: u32, number: u32 },
    /// The borrower's memory was written to by the device.
    Data,
    /// The borrower was told of it.
    Interrupt,
}

/// Says what must not be: an old epoch after the next grant, an access twice or out of order, an
/// interrupt before its data.
fn check(history: &[Happened]) -> Result<(), String> {
    let (mut current, mut next) = (0, 0);
    let (mut written, mut told) = (0, 0);
    for &happened in history {
        match happened {
            Happened::Granted(epoch) if epoch > current => (current, next) = (epoch, 0),
            Happened::Granted(epoch) => return Err(format!("epoch {epoch} after {current}")),
            Happened::Access { epoch, .. } if epoch != current => {
                return Err(format!("an access of lease {epoch} during lease {current}"));
            }
            Happened::Access { number, .. } if number != next => {
                return Err(format!("access {number}, and {next} was to come"));
            }
            Happened::Access { .. } => next += 1,
            Happened::Data => written += 1,
            Happened::Interrupt if told == written => {
                return Err("an interrupt before its data".to_owned());
            }
            Happened::Interrupt => told += 1,
        }
    }
    Ok(())
}

/// The next of a sequence of numbers (SplitMix64), below `most`.
fn random(seed: &mut u64, most: u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ (z >> 27)) % most
}

fn value(epoch: u32, number: u32) -> u32 {
    epoch << 16 | number
}

/// What a device has seen since the last time.
fn accesses(device: &mut Witness, history: &mut Vec<Happened>) {
    for (_, _, value) in std::mem::take(&mut device.writes) {
        history.push(Happened::Access { epoch: value >> 16, number: value & 0xffff });
    }
}

/// What a borrower has seen.
fn local(rig: &Rig, history: &mut Vec<Happened>) {
    history.extend(rig.local_log().iter().map(|seen| match seen {
        Seen::Write(_) => Happened::Data,
        Seen::Raise(_) => Happened::Interrupt,
    }));
}

/// One borrower uses the device, over a link that breaks now and then. Gives how often it was written.
fn use_it(rig: &mut Rig, epoch: u32, seed: &mut u64) -> u32 {
    rig.map(BUS, true, true);
    rig.listen();
    rig.write(region::BAR0, DMA_ADDRESS, BUS as u32);
    for number in 0..12 {
        rig.start_write(region::BAR0, VALUE, value(epoch, number));
        rig.steps(random(seed, 4) as usize);
        if random(seed, 3) == 0 {
            rig.reconnect();
        }
        if random(seed, 4) == 0 {
            rig.write(region::BAR0, DMA_WRITE, epoch);
            rig.write(region::BAR0, RAISE, 0);
        }
    }
    rig.settle();
    12
}

/// Four borrowers in turns. The last thing that each does is on its way when its lease is over; `cut` says
/// whether the lender's end hears of that.
fn turns(mut seed: u64, cut: bool) -> Vec<Happened> {
    let mut history = Vec::new();
    let mut device = Witness::default();
    let mut former: Option<Rig> = None;
    for epoch in 1..=4 {
        history.push(Happened::Granted(epoch));
        let mut rig = Rig::new();
        rig.device = device;
        let written = use_it(&mut rig, epoch, &mut seed);
        accesses(&mut rig.device, &mut history);
        local(&rig, &mut history);
        if let Some(mut former) = former.take() {
            // It goes on in the middle of somebody else's lease.
            former.settle();
            accesses(&mut former.device, &mut history);
        }
        rig.start_write(region::BAR0, VALUE, value(epoch, written));
        if cut {
            // The lender's alone: no borrower has to be believed.
            rig.lender.end();
        }
        device = std::mem::take(&mut rig.device);
        former = Some(rig);
    }
    history
}

#[test]
fn no_access_of_an_old_lease_comes_after_the_next_grant_and_each_comes_once() {
    for seed in 0..40 {
        let history = turns(seed, true);
        check(&history).unwrap_or_else(|why| panic!("seed {seed}: {why}: {history:?}"));
        let count = |wanted: fn(&Happened) -> bool| history.iter().filter(|it| wanted(it)).count();
        assert!(count(|it| matches!(it, Happened::Access { .. })) >= 48, "{history:?}");
        let told = count(|it| *it == Happened::Interrupt);
        assert_eq!(told, count(|it| *it == Happened::Data));
    }
}

/// Negative control: ends that do not hear of it bring what was on its way to somebody else's device.
#[test]
fn control_ends_that_are_not_cut_off_reach_the_device_in_the_next_lease() {
    let caught = (0..40).filter(|&seed| check(&turns(seed, false)).is_err()).count();
    assert!(caught > 0);
}

#[test]
fn the_checker_sees_what_must_not_be() {
    use Happened::{Access, Data, Granted, Interrupt};
    let access = |epoch, number| Access { epoch, number };
    check(&[Granted(1), access(1, 0), Data, Interrupt, Granted(2), access(2, 0)]).unwrap();
    let wrong: [&[Happened]; 6] = [
        &[Granted(1), Granted(2), access(1, 0)],
        &[Granted(2), Granted(2)],
        &[Granted(1), access(1, 0), access(1, 0)],
        &[Granted(1), access(1, 1), access(1, 0)],
        &[Granted(1), access(1, 1)],
        &[Granted(1), Interrupt, Data],
    ];
    for history in wrong {
        assert!(check(history).is_err(), "{history:?}");
    }
}
