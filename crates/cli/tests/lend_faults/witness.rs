//! A device that writes down each access, behind daemons, over a network on which everything goes wrong: in the
//! data of each access is the epoch of the lease that it was made for. A checker reads what the device has seen
//! and what its borrowers have.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use farside_linux::lock::lock;
use farside_linux::shared::SharedMemory;
use farside_vfio_user::client::MapRequest;
use farside_vfio_user::device::region;
use farside_vfio_user::unix::{CallError, UnixClient};
use farside_vfio_user::{Bus, Device, DeviceInfo, Errno, Region};

use crate::cases::{Fault, Target};
use crate::common::{Held, await_that, serve_device};
use crate::hosts::Host;
use crate::network::Way;
use crate::world::World;

/// An access: the epoch of its lease, and its number in it.
const VALUE: u64 = 0;
/// Writes a page of bytes to this bus address, each the epoch's lowest.
const WRITE: u64 = 8;
const BUS: u64 = 0x4000_0000;
const PAGE: usize = 4096;
/// Accesses that were confirmed, after which the device counts as used.
const CONFIRMED_MIN: u32 = 50;
/// How long a call of a client may take: longer than a lease.
const CALL_LIMIT: Duration = Duration::from_secs(8);
/// How long it may take until something is so.
const LIMIT: Duration = Duration::from_secs(40);

/// What the device has seen, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Access {
    epoch: u32,
    number: u32,
}

fn word(access: Access) -> u32 {
    access.epoch << 16 | access.number
}

/// What a borrower knows: its epoch, and how many of its accesses were confirmed.
#[derive(Clone, Copy, Debug)]
struct Knows {
    epoch: u32,
    confirmed: u32,
}

/// Says what must not be: an access of an old lease behind one of a newer, an access twice, out of order or
/// left out, one that was confirmed and was not seen.
fn check(seen: &[Access], borrowers: &[Knows]) -> Result<(), String> {
    let mut counts = BTreeMap::new();
    let mut newest = 0;
    for &Access { epoch, number } in seen {
        if epoch < newest {
            return Err(format!("an access of lease {epoch} behind one of lease {newest}"));
        }
        newest = epoch;
        let next = counts.entry(epoch).or_insert(0);
        if number != *next {
            return Err(format!("lease {epoch}: access {number}, and {next} was to come"));
        }
        *next += 1;
    }
    for Knows { epoch, confirmed } in borrowers {
        let count = counts.remove(epoch).unwrap_or(0);
        if count < *confirmed {
            return Err(format!("lease {epoch}: {confirmed} accesses confirmed, {count} seen"));
        }
    }
    match counts.keys().next() {
        Some(epoch) => Err(format!("accesses of lease {epoch}, which nobody had")),
        None => Ok(()),
    }
}

/// See the module. It does its DMA by messages.
struct Witness {
    seen: Arc<Mutex<Vec<Access>>>,
    last: u32,
}

impl Device for Witness {
    fn region_read(&mut self, _: u32, _: u64, data: &mut [u8]) -> Result<(), Errno> {
        data.iter_mut().zip(self.last.to_le_bytes()).for_each(|(to, byte)| *to = byte);
        Ok(())
    }

    fn region_write(
        &mut self,
        bus: &mut Bus<'_>,
        region: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Errno> {
        let word = u32::from_le_bytes(data.try_into().map_err(|_| Errno::INVAL)?);
        match (region, offset) {
            (region::BAR0, VALUE) => {
                let access = Access { epoch: word >> 16, number: word & 0xffff };
                lock(&self.seen).push(access);
                self.last = word;
            }
            (region::BAR0, WRITE) => {
                // It may be refused: who shares nothing gets nothing.
                let _ = bus.dma_write(u64::from(word), &[(self.last >> 16) as u8; PAGE]);
            }
            _ => {}
        }
        Ok(())
    }

    fn reset(&mut self, _: &mut Bus<'_>) -> Result<(), Errno> {
        self.last = 0;
        Ok(())
    }
}

/// Serves it until the test ends.
fn serve(socket: &Path) -> Arc<Mutex<Vec<Access>>> {
    let info = || {
        let info = DeviceInfo::pci().region(region::BAR0, Region::read_write(PAGE as u64));
        info.region(region::CONFIG, Region::read_write(256))
    };
    let seen = Arc::new(Mutex::new(Vec::new()));
    let known = Arc::clone(&seen);
    serve_device(socket, info, move |mut session| {
        let mut device = Witness { seen: Arc::clone(&known), last: 0 };
        let _ = session.run(&mut device);
    });
    seen
}

/// A lease of the device, which ends with this.
struct Lease {
    held: Held,
    epoch: u32,
}

impl Lease {
    fn of(host: &Host) -> Result<Lease, String> {
        let held = host.borrow("nic0@a")?;
        let folder = held.place.strip_suffix("/device.sock");
        let epoch = folder.and_then(|folder| folder.rsplit_once('-')?.1.parse().ok());
        let epoch: u64 = epoch.ok_or_else(|| format!("its epoch? {:?}", held.place))?;
        // Counted from the first one, so that it fits beside a number.
        static FIRST: OnceLock<u64> = OnceLock::new();
        let epoch = 1 + epoch.saturating_sub(*FIRST.get_or_init(|| epoch)) as u32;
        Ok(Lease { held, epoch })
    }
}

/// How a borrower uses the device.
#[derive(Default)]
struct Use {
    /// It is to stop.
    over: AtomicBool,
    /// Accesses that were confirmed.
    confirmed: AtomicU32,
}

impl Use {
    /// Waits until the device was used well.
    fn await_some(&self, who: &str) -> Result<(), String> {
        let end = Instant::now() + LIMIT;
        while self.confirmed.load(Ordering::SeqCst) < CONFIRMED_MIN {
            if Instant::now() > end {
                return Err(format!("{who} had little of it: {:?}", self.confirmed));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// Uses the device until `over` or it fails. Whatever the device writes has to be this lease's.
fn use_it(socket: &str, epoch: u32, how: &Use) -> Knows {
    let mut number = 0;
    let memory = SharedMemory::new(2 * PAGE as u64).expect("memory");
    let mut use_it = || -> Result<(), CallError> {
        let mut client = UnixClient::connect(socket, CALL_LIMIT)?;
        let map = MapRequest {
            address: BUS,
            size: PAGE as u64,
            readable: true,
            writable: true,
            offset: 0,
        };
        client.dma_map(&map, Some(memory.file().as_fd()))?;
        while !how.over.load(Ordering::SeqCst) && number < 0xffff {
            let value = word(Access { epoch, number });
            client.region_write(region::BAR0, VALUE, &value.to_le_bytes())?;
            number += 1;
            if number % 8 == 0 {
                // The page that it may write, and the one behind, which it may not.
                let at = BUS as u32 + PAGE as u32 * (number / 8 % 2);
                client.region_write(region::BAR0, WRITE, &at.to_le_bytes())?;
            }
            if number % 5 == 0 {
                let mut last = [0; 4];
                client.region_read(region::BAR0, VALUE, &mut last)?;
                assert_eq!(u32::from_le_bytes(last), value, "another's access is between");
                how.confirmed.store(number, Ordering::SeqCst);
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(())
    };
    // How it ends is what the checker is about.
    let _ = use_it();
    let mut bytes = vec![0; 2 * PAGE];
    memory.read(0, &mut bytes).expect("its memory");
    let (own, behind) = bytes.split_at(PAGE);
    assert!(own.iter().all(|&byte| byte == 0 || byte == epoch as u8), "data of another lease");
    assert!(behind.iter().all(|&byte| byte == 0), "what was not shared was written");
    Knows { epoch, confirmed: how.confirmed.load(Ordering::SeqCst) }
}

/// What happens while B has the device.
const FAULTS: [Fault; 10] = [
    Fault::Slow,
    Fault::Cut(Way::Both),
    Fault::Cut(Way::ToLender),
    Fault::Cut(Way::ToBorrower),
    Fault::Pause(Target::NearEnd),
    Fault::Pause(Target::LendersEnd),
    Fault::Pause(Target::BorrowersDaemon),
    Fault::Kill(Target::LendersEnd),
    Fault::Restart(Target::LendersDaemon),
    Fault::Kill(Target::BorrowersDaemon),
];

/// B uses the device while this happens, and does not stop; then C has it.
fn round(world: &mut World, fault: Fault, borrowers: &mut Vec<Knows>) -> Result<(), String> {
    let (by_b, by_c) = (Use::default(), Use::default());
    let Lease { held, epoch } = Lease::of(&world.b)?;
    let socket = held.place.clone();
    std::thread::scope(|scope| {
        let b = scope.spawn(|| use_it(&socket, epoch, &by_b));
        let done = by_b.await_some("B").and_then(|()| world.happen(fault));
        drop(held);
        let after = done.and_then(|()| Lease::of(&world.c)).and_then(|lease| {
            std::thread::scope(|scope| {
                let c = scope.spawn(|| use_it(&lease.held.place, lease.epoch, &by_c));
                let enough = by_c.await_some("C");
                by_c.over.store(true, Ordering::SeqCst);
                let knows = c.join().expect("C sees what it wrote");
                enough.map(|()| knows)
            })
        });
        by_b.over.store(true, Ordering::SeqCst);
        borrowers.push(b.join().expect("B sees what it wrote"));
        borrowers.push(after?);
        Ok(())
    })
}

#[test]
#[ignore = "scripts/lend/faults.sh runs it where there are network namespaces"]
fn a_device_sees_each_access_once_and_none_of_an_old_lease_whatever_goes_wrong() {
    let mut world = World::new().unwrap_or_else(|why| panic!("there are no namespaces: {why}"));
    let socket = PathBuf::from(&world.a.home).join("nic.sock");
    let seen = serve(&socket);
    let device = format!("nic0={}", socket.display());
    world.a.run(&["lend", "up", "--device", &device]).expect("it is lent");
    await_that(LIMIT, "it is free", || {
        world.a.device("nic0").is_ok_and(|device| device["state"] == "free")
    });
    let mut borrowers = Vec::new();
    for fault in FAULTS {
        let done = round(&mut world, fault, &mut borrowers);
        done.unwrap_or_else(|why| panic!("{fault:?}: {why}\n{}", world.logs()));
        let history = lock(&seen).clone();
        check(&history, &borrowers)
            .unwrap_or_else(|why| panic!("{fault:?}: {why}\n{}", world.logs()));
    }
    let used = borrowers.iter().filter(|knows| knows.confirmed >= CONFIRMED_MIN).count();
    assert_eq!(used, 2 * FAULTS.len(), "{borrowers:?}");
    // The control: whoever comes to the device beside the daemons, with an old epoch, is seen.
    let old = borrowers.first().copied().expect("there was one");
    let mut client = UnixClient::connect(&socket, CALL_LIMIT).expect("nobody has it");
    let value = word(Access { epoch: old.epoch, number: 0 });
    client.region_write(region::BAR0, VALUE, &value.to_le_bytes()).expect("it is written");
    assert!(check(&lock(&seen), &borrowers).is_err(), "the checker is blind");
}

#[test]
fn the_checker_sees_what_must_not_be() {
    let access = |epoch, number| Access { epoch, number };
    let knows = |epoch, confirmed| Knows { epoch, confirmed };
    let good = [access(1, 0), access(1, 1), access(3, 0)];
    check(&good, &[knows(1, 2), knows(2, 0), knows(3, 0)]).unwrap();
    let wrong: [(&[Access], &[Knows]); 5] = [
        (&[access(3, 0), access(1, 0)], &[knows(1, 0), knows(3, 0)]),
        (&[access(1, 0), access(1, 0)], &[knows(1, 0)]),
        (&[access(1, 1)], &[knows(1, 0)]),
        (&[access(1, 0)], &[knows(1, 2)]),
        (&[access(1, 0)], &[]),
    ];
    for (seen, borrowers) in wrong {
        assert!(check(seen, borrowers).is_err(), "{seen:?} {borrowers:?}");
    }
}
