//! Vfio-user devices of whoever's making, borrowed: from another host over the link, and on their own host.
//! The device is a thread of this test, the client too; between them are the processes of the lease.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farside_linux::lock::lock;
use farside_linux::shared::SharedMemory;
use farside_vfio_user::client::MapRequest;
use farside_vfio_user::device::{irq, region};
use farside_vfio_user::unix::{CallError, Interrupts, UnixClient};
use farside_vfio_user::{
    Bus, Device, DeviceInfo, DmaUnmap, Errno, Irq, IrqAction, Region, RequestError, RequestId,
    SetIrqs, SharedFd,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::Signal;

use super::common::serve_device;
use super::relay::Relay;
use super::*;

/// A word to keep.
const VALUE: u64 = 0;
/// Where its DMA is.
const ADDRESS: u64 = 8;
/// Writes a page of bytes of this value, then raises its first vector.
const WRITE: u64 = 16;
/// Reads so many bytes.
const READ: u64 = 20;
/// Raises its pin.
const PIN: u64 = 24;

const BUS: u64 = 0x4000_0000;
const PAGE: u64 = 4096;

/// What the device has seen.
#[derive(Default)]
pub(super) struct Seen {
    writes: Vec<u32>,
    read: Vec<Result<Vec<u8>, Errno>>,
    resets: usize,
    refused: usize,
}

/// A device that does what its registers say, by messages: it maps nothing.
struct Witness {
    words: HashMap<(u32, u64), u32>,
    interrupts: Interrupts,
    seen: Arc<Mutex<Seen>>,
    writing: Vec<RequestId>,
    resets: bool,
}

impl Witness {
    fn asked(&mut self, asked: Result<RequestId, RequestError>) -> Option<RequestId> {
        lock(&self.seen).refused += usize::from(asked.is_err());
        asked.ok()
    }

    fn address(&self) -> u64 {
        let word = |at| u64::from(self.words.get(&(region::BAR0, at)).copied().unwrap_or(0));
        word(ADDRESS) | word(ADDRESS + 4) << 32
    }
}

impl Device for Witness {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        let word = self.words.get(&(region, offset)).copied().unwrap_or(0).to_le_bytes();
        data.iter_mut().zip(word).for_each(|(to, byte)| *to = byte);
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
            (region::BAR0, WRITE) => {
                let asked = bus.dma_write(self.address(), &[word as u8; PAGE as usize]);
                let asked = self.asked(asked);
                self.writing.extend(asked);
            }
            (region::BAR0, READ) => {
                let asked = bus.dma_read(self.address(), word);
                self.asked(asked);
            }
            (region::BAR0, PIN) => drop(self.interrupts.raise(irq::INTX, 0)),
            _ => {
                self.words.insert((region, offset), word);
                if (region, offset) == (region::BAR0, VALUE) {
                    lock(&self.seen).writes.push(word);
                }
            }
        }
        Ok(())
    }

    fn set_irqs(&mut self, set: SetIrqs<'_>) -> Result<(), Errno> {
        self.interrupts.apply(set)
    }

    fn reset(&mut self, _: &mut Bus<'_>) -> Result<(), Errno> {
        if !self.resets {
            return Err(Errno::IO);
        }
        self.words.clear();
        lock(&self.seen).resets += 1;
        Ok(())
    }

    fn dma_done(&mut self, _: &mut Bus<'_>, request: RequestId, result: Result<&[u8], Errno>) {
        if let Some(at) = self.writing.iter().position(|known| *known == request) {
            self.writing.remove(at);
            let _ = self.interrupts.raise(irq::MSIX, 0);
        } else {
            lock(&self.seen).read.push(result.map(<[u8]>::to_vec));
        }
    }
}

fn info() -> DeviceInfo {
    let pin = Irq { maskable: true, automasked: true, ..Irq::messages(1) };
    DeviceInfo::pci()
        .region(region::BAR0, Region::read_write(PAGE))
        .region(region::CONFIG, Region::read_write(256))
        .irq(irq::INTX, pin)
        .irq(irq::MSIX, Irq::messages(4))
}

/// Serves a device, one client after the other, until the test ends. It keeps what it has been told until
/// somebody resets it.
pub(super) fn serve(socket: &Path, resets: bool) -> Arc<Mutex<Seen>> {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let known = Arc::clone(&seen);
    let mut words = HashMap::new();
    serve_device(socket, info, move |mut session| {
        let interrupts = Interrupts::new(&info());
        let (seen, writing) = (Arc::clone(&known), Vec::new());
        let words_before = std::mem::take(&mut words);
        let mut device = Witness { words: words_before, interrupts, seen, writing, resets };
        let _ = session.run(&mut device);
        words = device.words;
    });
    seen
}

/// A lends a device; B has joined it.
struct Two {
    a: Host,
    b: Host,
    relay: Relay,
    seen: Arc<Mutex<Seen>>,
    _folder: Folder,
}

impl Two {
    fn start(lease: &str) -> Two {
        Two::of(lease, true)
    }

    fn of(lease: &str, resets: bool) -> Two {
        let folder = Folder::new();
        let socket = folder.0.join("nic.sock");
        let seen = serve(&socket, resets);
        let [a, b] = ["a", "b"].map(|name| Host::new(&folder, name));
        let device = format!("nic0={}", socket.display());
        let (address, _) = a.up(&device, lease);
        let relay = Relay::to(address.parse().unwrap());
        b.join(&a, &relay.address, "b");
        if resets {
            a.await_state("free", LIMIT);
        }
        Two { a, b, relay, seen, _folder: folder }
    }

    fn borrower(&self, is_here: bool) -> &Host {
        if is_here { &self.a } else { &self.b }
    }
}

/// Has a host borrow the device.
pub(super) fn borrowed_by(host: &Host) -> Held {
    host.hold(&["nic0@a", "--wait", "20"])
}

/// Connects to a device that is borrowed.
pub(super) fn connect(borrowed: &Held) -> UnixClient {
    UnixClient::connect(&borrowed.place, LIMIT).expect("the device is served")
}

pub(super) fn read(client: &mut UnixClient, region: u32, offset: u64) -> Result<u32, CallError> {
    let mut bytes = [0; 4];
    client.region_read(region, offset, &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn write(client: &mut UnixClient, region: u32, offset: u64, word: u32) {
    client.region_write(region, offset, &word.to_le_bytes()).expect("it is written");
}

pub(super) fn event() -> SharedFd {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    Arc::new(eventfd(0, flags).unwrap())
}

/// Waits until an eventfd is raised; how often it was.
pub(super) fn await_event(event: &SharedFd, limit: Duration) -> u64 {
    let limit = Timespec::try_from(limit).unwrap();
    let mut polled = [PollFd::new(event, PollFlags::IN)];
    let _ = poll(&mut polled, Some(&limit));
    let mut count = [0; 8];
    rustix::io::read(event, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}

fn map(client: &mut UnixClient, memory: &SharedMemory, readable: bool, writable: bool) {
    let map = MapRequest { address: BUS, size: memory.bytes(), readable, writable, offset: 0 };
    client.dma_map(&map, Some(memory.file().as_fd())).expect("it is shared");
}

/// Waits until the device has seen it.
fn await_seen(seen: &Mutex<Seen>, has: impl Fn(&Seen) -> bool) {
    await_that(LIMIT, "the device sees it", || has(&lock(seen)));
}

#[test]
fn a_foreign_device_works_as_if_it_were_local() {
    let two = Two::start("10");
    for is_here in [false, true] {
        let borrowed = borrowed_by(two.borrower(is_here));
        let mut client = connect(&borrowed);
        // Nothing of it is mapped; every access is trapped.
        let info = client.region_info(region::BAR0).unwrap();
        assert!(info.size == PAGE && info.fd.is_none());
        assert_eq!(read(&mut client, region::BAR0, VALUE).unwrap(), 0, "it was not reset");
        lock(&two.seen).writes.clear();
        write(&mut client, region::CONFIG, 4, 0x0400_0102);
        assert_eq!(read(&mut client, region::CONFIG, 4).unwrap(), 0x0400_0102);
        for word in 0..100 {
            write(&mut client, region::BAR0, VALUE, word);
        }
        assert_eq!(read(&mut client, region::BAR0, VALUE).unwrap(), 99);
        assert_eq!(std::mem::take(&mut lock(&two.seen).writes), (0..100).collect::<Vec<_>>());

        // Its DMA, both ways; an interrupt behind the data.
        let memory = SharedMemory::new(4 * PAGE).unwrap();
        map(&mut client, &memory, true, true);
        let message = event();
        let events = [Arc::clone(&message)];
        client.irqs_assign(irq::MSIX, 0, &events, IrqAction::Trigger).unwrap();
        for turn in 1..=20u32 {
            write(&mut client, region::BAR0, ADDRESS, (BUS + PAGE) as u32);
            write(&mut client, region::BAR0, WRITE, turn);
            assert_eq!(await_event(&message, LIMIT), 1, "in turn {turn}");
            let mut page = vec![0; 3 * PAGE as usize];
            memory.read(0, &mut page).unwrap();
            let (before, rest) = page.split_at(PAGE as usize);
            let (written, behind) = rest.split_at(PAGE as usize);
            assert!(written.iter().all(|byte| *byte == turn as u8), "the interrupt came first");
            assert!(before.iter().chain(behind).all(|byte| *byte == 0));
        }
        let text: Vec<u8> = (0..2 * PAGE as u32).map(|at| (at * 7) as u8).collect();
        memory.write(2 * PAGE, &text).unwrap();
        write(&mut client, region::BAR0, ADDRESS, (BUS + 2 * PAGE) as u32);
        write(&mut client, region::BAR0, READ, 2 * PAGE as u32);
        await_seen(&two.seen, |seen| seen.read.len() == 1);
        assert_eq!(lock(&two.seen).read.pop().unwrap().as_ref(), Ok(&text));

        // A pin is masked by itself when it was raised, and comes again when it is unmasked.
        let pin = event();
        client.irqs_assign(irq::INTX, 0, &[Arc::clone(&pin)], IrqAction::Trigger).unwrap();
        for _ in 0..2 {
            write(&mut client, region::BAR0, PIN, 1);
            assert_eq!(await_event(&pin, LIMIT), 1);
            write(&mut client, region::BAR0, PIN, 1);
            assert_eq!(await_event(&pin, Duration::from_millis(100)), 0, "it is masked");
            client.irqs_now(irq::INTX, 0, 1, IrqAction::Unmask).unwrap();
            assert_eq!(await_event(&pin, LIMIT), 1, "what waited is lost");
            client.irqs_now(irq::INTX, 0, 1, IrqAction::Unmask).unwrap();
        }

        // What is not shared, or not any more, is not reached.
        write(&mut client, region::BAR0, ADDRESS, (BUS + 4 * PAGE) as u32);
        write(&mut client, region::BAR0, WRITE, 9);
        client.dma_unmap(DmaUnmap::Range { address: BUS, size: 4 * PAGE }).unwrap();
        write(&mut client, region::BAR0, ADDRESS, BUS as u32);
        write(&mut client, region::BAR0, READ, 16);
        assert_eq!(read(&mut client, region::BAR0, VALUE).unwrap(), 99);
        await_seen(&two.seen, |seen| seen.refused + seen.read.len() == 2);
        assert!(std::mem::take(&mut lock(&two.seen).read).iter().all(Result::is_err));
        lock(&two.seen).refused = 0;
        // One client at a time; the next of the same lease finds it as new.
        let busy = UnixClient::connect(&borrowed.place, LIMIT).err().expect("it is taken");
        assert!(matches!(busy, CallError::Refused(Errno::BUSY)), "{busy}");
        drop(client);
        let mut next = loop {
            match UnixClient::connect(&borrowed.place, LIMIT) {
                Ok(next) => break next,
                Err(CallError::Refused(Errno::BUSY)) => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(read(&mut next, region::BAR0, VALUE).unwrap(), 0);
        write(&mut next, region::BAR0, VALUE, 7);
        drop(borrowed);
        two.a.await_state("free", LIMIT);
        assert!(read(&mut next, region::BAR0, VALUE).is_err(), "it is reached after the lease");
    }
}

#[test]
fn a_lease_of_a_foreign_device_goes_on_over_connections_that_break() {
    let two = Two::start("10");
    let borrowed = borrowed_by(&two.b);
    let mut client = connect(&borrowed);
    let memory = SharedMemory::new(PAGE).unwrap();
    map(&mut client, &memory, true, true);
    let message = event();
    client.irqs_assign(irq::MSIX, 0, &[Arc::clone(&message)], IrqAction::Trigger).unwrap();
    write(&mut client, region::BAR0, ADDRESS, BUS as u32);
    for turn in 0..5 {
        for word in 0..20 {
            write(&mut client, region::BAR0, VALUE, turn * 20 + word);
            if word == 10 {
                assert!(two.relay.cut() > 0, "nothing is cut");
            }
        }
        write(&mut client, region::BAR0, WRITE, turn);
        assert_eq!(read(&mut client, region::BAR0, VALUE).unwrap(), turn * 20 + 19);
        assert_eq!(await_event(&message, LIMIT), 1);
        let mut page = [0; PAGE as usize];
        memory.read(0, &mut page).unwrap();
        assert!(page.iter().all(|byte| *byte == turn as u8));
    }
    let traffic = two.a.json(&["who"])["traffic"][0].clone();
    assert!(traffic["resumed"].as_u64().unwrap() > 0 && traffic["programs"] == 1, "{traffic}");
    // Each write was done once, and in order.
    assert_eq!(lock(&two.seen).writes, (0..100).collect::<Vec<_>>());
}

#[test]
fn a_recall_silence_and_the_death_of_an_end_end_the_lease_of_a_foreign_device() {
    let two = Two::start("3");
    for (is_here, how) in [(false, "recall"), (true, "recall"), (false, "silence"), (false, "end")]
    {
        let borrowed = borrowed_by(two.borrower(is_here));
        let mut client = connect(&borrowed);
        write(&mut client, region::BAR0, VALUE, 5);
        let resets = lock(&two.seen).resets;
        match how {
            "recall" => drop(two.a.run(&["recall", "nic0", "--within", "1"])),
            "silence" => two.b.signal("daemon", Signal::STOP),
            _ => two.a.signal("end", Signal::KILL),
        }
        let end = Instant::now() + LIMIT;
        while read(&mut client, region::BAR0, VALUE).is_ok() {
            assert!(Instant::now() < end, "{how}: it is still reached");
            std::thread::sleep(Duration::from_millis(10));
        }
        two.b.signal("daemon", Signal::CONT);
        drop(borrowed);
        two.a.await_state("free", LIMIT);
        assert!(lock(&two.seen).resets > resets, "{how}: it was not reset");
        let mut next = borrowed_by(&two.a);
        let mut client = connect(&next);
        assert_eq!(read(&mut client, region::BAR0, VALUE).unwrap(), 0, "{how}");
        next.child.kill().unwrap();
        drop((client, next));
        two.a.await_state("free", LIMIT);
    }
}

#[test]
fn a_foreign_device_that_does_not_reset_is_quarantined_and_named() {
    let two = Two::of("10", false);
    two.a.await_state("quarantined", LIMIT);
    let device = two.a.device();
    assert!(device["why"].as_str().unwrap().contains("does not reset"), "{device}");
    let why = two.b.refused(&["borrow", "nic0", "--", "true"]);
    assert!(why.contains("nic0") && why.contains("quarantined"), "{why}");
}

#[test]
fn a_program_finds_the_sockets_of_what_it_has_borrowed() {
    let two = Two::start("10");
    let command =
        ["borrow", "nic0", "--", "sh", "-c", "test -S $FARSIDE_DEVICES && echo it is there"];
    for is_here in [false, true] {
        assert_eq!(two.borrower(is_here).run(&command), "it is there\n");
        two.a.await_state("free", LIMIT);
    }
}
