//! Devices, and lender's ends, that reach for what a borrower has not shared: each end refuses it, counts it and
//! says so, and nothing lands.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender, channel};

use farside_link::description::{Description, Irq, Region};
use farside_link::{Config, Endpoint, Event, Frame, Lease, Tag};
use farside_linux::lock::lock;
use farside_linux::shared::SharedMemory;
use farside_live::far::{Line, now};
use farside_vfio_user::client::MapRequest;
use farside_vfio_user::device::{irq, region};
use farside_vfio_user::unix::{Plain, UnixClient};
use farside_vfio_user::{Errno, IrqAction};
use rustix::event::{PollFd, Timespec, poll};

use super::counted::refused;
use super::foreign::{await_event, borrowed_by, connect, event, serve};
use super::govern::{PLAIN, scraped};
use super::hostile_device::{
    self, Attack, FORBIDDEN, How, PAGE, READ_AND_WRITE, READ_ONLY, WRITE_ONLY, WRITTEN, forbidden,
};
use super::*;

/// What is in memory that only the client may read.
const SECRET: u8 = 0x5a;
/// What windows refuse, of which there is some here.
const KINDS: [&str; 3] = ["dma-outside", "dma-beyond-end", "dma-rights"];

/// A client's memory, a page of each kind of rights, and a page between them that is not shared.
fn share(client: &mut UnixClient) -> SharedMemory {
    let memory = SharedMemory::new(5 * PAGE).unwrap();
    memory.write(4 * PAGE, &[SECRET; PAGE as usize]).unwrap();
    for (address, readable, writable) in
        [(READ_AND_WRITE, true, true), (READ_ONLY, true, false), (WRITE_ONLY, false, true)]
    {
        let offset = address - READ_AND_WRITE;
        let map = MapRequest { address, size: PAGE, readable, writable, offset };
        client.dma_map(&map, Some(memory.file().as_fd())).expect("it is shared");
    }
    memory
}

fn page(memory: &SharedMemory, at: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE as usize];
    memory.read(at - READ_AND_WRITE, &mut bytes).unwrap();
    bytes
}

/// Nothing has come into the client's memory.
fn is_untouched(memory: &SharedMemory) -> bool {
    let zeros = (READ_AND_WRITE..WRITE_ONLY).step_by(PAGE as usize);
    zeros.flat_map(|at| page(memory, at)).all(|byte| byte == 0)
        && page(memory, WRITE_ONLY).iter().all(|byte| *byte == SECRET)
}

/// What a host's metrics say was refused of one kind, under a name.
fn scraped_refused(address: &str, name: &str, kind: &str) -> f64 {
    scraped(address)[&format!("farside_lend_{name}_refused_total{{kind=\"{kind}\"}}")]
}

#[test]
fn a_device_that_reaches_for_what_is_not_shared_gets_nothing_and_is_counted() {
    let folder = Folder::new();
    let socket = folder.0.join("nic.sock");
    let answers = hostile_device::serve(&socket);
    let [a, b] = ["a", "b"].map(|name| Host::new(&folder, name));
    let (address, _) = a.up(&format!("nic0={}", socket.display()), "10");
    b.join(&a, &address, "b");
    let metrics = a.json(&["lend", "up", "--metrics", "127.0.0.1:0"])["metrics"].clone();
    let metrics = metrics.as_str().unwrap();
    for (turn, host) in [(1.0, &b), (2.0, &a)] {
        a.await_state("free", LIMIT);
        let borrowed = borrowed_by(host);
        let mut client = connect(&borrowed);
        let memory = share(&mut client);
        let mut attack = |attack: Attack| {
            client.region_write(region::BAR0, 0, &attack.words()).unwrap();
            if attack.how == How::Post {
                return Ok(Vec::new());
            }
            await_that(LIMIT, "it is answered", || !lock(&answers).is_empty());
            lock(&answers).remove(0)
        };
        for (forbidden, _) in FORBIDDEN {
            let answer = attack(forbidden);
            assert!(forbidden.how == How::Post || answer == Err(Errno::FAULT), "{forbidden:x?}");
        }
        // What makes no sense is refused before anybody looks where it is to go.
        assert_eq!(attack(Attack::new(How::Short, READ_AND_WRITE, 64)), Err(Errno::INVAL));
        let traffic = || a.json(&["who"])["traffic"][0].clone();
        for kind in KINDS {
            await_that(LIMIT, kind, || refused(&traffic(), kind) >= forbidden(kind));
        }
        let counted = traffic();
        let kinds = counted["refused"].as_array().unwrap();
        assert_eq!(kinds.len(), KINDS.len(), "nothing of it came to the borrower's end: {counted}");
        assert!(KINDS.iter().all(|kind| refused(&counted, kind) == forbidden(kind)), "{counted}");
        assert!(a.run(&["who"]).contains(&format!("dma-rights {}", forbidden("dma-rights"))));
        assert!(is_untouched(&memory));

        // The control: by the same way comes what is allowed.
        assert_eq!(attack(Attack::new(How::Write, READ_AND_WRITE, PAGE)), Ok(Vec::new()));
        await_that(LIMIT, "it lands", || {
            page(&memory, READ_AND_WRITE).iter().all(|byte| *byte == WRITTEN)
        });
        assert_eq!(attack(Attack::new(How::Read, READ_ONLY, 64)), Ok(vec![0; 64]));
        drop(borrowed);
        a.await_state("free", LIMIT);
        for kind in KINDS {
            let so_far = turn * forbidden(kind) as f64;
            assert_eq!(scraped_refused(metrics, "accesses", kind), so_far, "{kind}");
        }
    }
    assert!(a.log().contains("dma-rights"), "{}", a.log());
}

/// What the end says, and how it was answered: nothing for what is posted.
type Said = (Frame<Vec<u8>>, Sender<Option<Frame<Vec<u8>>>>);

/// The end of a lease at its lender, which says no matter what. Hosts come to it instead of to the lender with
/// what they have to say without TLS; all else is passed on.
struct HostileLender {
    address: String,
    say: Sender<Said>,
}

impl HostileLender {
    fn before(lender: &str) -> HostileLender {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let lender = lender.to_owned();
        let (say, said) = channel();
        std::thread::spawn(move || {
            let mut said = Some(said);
            for near in listener.incoming().flatten() {
                let mut first = [0; 4];
                if near.peek(&mut first).is_ok_and(|count| count > 0) && first == *b"FSPL" {
                    let said = said.take().expect("its client comes once");
                    std::thread::spawn(move || be_the_end(near, &said));
                } else if let Ok(far) = TcpStream::connect(&lender) {
                    pass(&near, &far);
                }
            }
        });
        HostileLender { address, say }
    }

    /// Says this; what it is answered with.
    fn say(&self, frame: Frame<Vec<u8>>) -> Option<Frame<Vec<u8>>> {
        let (answer, answered) = channel();
        self.say.send((frame, answer)).unwrap();
        answered.recv_timeout(LIMIT).expect("it is answered")
    }
}

fn pass(near: &TcpStream, far: &TcpStream) {
    for (from, to) in [(near, far), (far, near)] {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Both);
        });
    }
}

fn description() -> Vec<u8> {
    let region = |size| Region { size, readable: true, writable: true };
    let mut regions = vec![Region::default(); 9];
    regions[region::BAR0 as usize] = region(PAGE);
    regions[region::CONFIG as usize] = region(256);
    let mut irqs = vec![Irq::default(); 5];
    irqs[irq::MSIX as usize] = Irq { count: 1, ..Irq::default() };
    let described = Description { pci: true, resettable: true, dma_end: 0, regions, irqs };
    described.encode().unwrap()
}

/// Drives a link as its lender's end, until the borrower's hangs up: a device that reads as zeros, and says what it
/// is told.
fn be_the_end(mut near: TcpStream, said: &Receiver<Said>) {
    let mut greeting = [0; 48];
    near.read_exact(&mut greeting).unwrap();
    let epoch = u64::from_le_bytes(greeting[8..16].try_into().unwrap());
    let mut end = Endpoint::lender(Config::new(Lease { device: "nic0".to_owned(), epoch }));
    end.connected(now());
    let mut line = Line::new(Box::new(Plain::tcp(near).unwrap())).unwrap();
    let (mut waits, mut last_tag) = (std::collections::HashMap::new(), 0);
    loop {
        if let Ok((frame, answer)) = said.try_recv() {
            if frame.class() == farside_link::Class::Request {
                last_tag += 1;
                waits.insert(Tag(last_tag), answer);
                end.send(Tag(last_tag), frame).unwrap();
            } else {
                end.send(Tag::NONE, frame).unwrap();
                let _ = answer.send(None);
            }
        }
        let (mut answers, mut over) = (Vec::new(), false);
        let is_all_sent = line.send(now(), &mut end).unwrap_or(true);
        let mut polled = [PollFd::new(&line, line.wanted(is_all_sent))];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 2_000_000 })).unwrap();
        let received = line.receive(now(), &mut end, |event| {
            match event {
                Event::Posted { load, .. } => return Some(load),
                Event::Request { tag, frame: Frame::Describe } => {
                    answers.push((tag, Frame::Data { offset: 0, last: true, data: description() }));
                }
                Event::Request { tag, .. } => answers.push((tag, Frame::Done)),
                Event::Reply { tag, frame, is_last: true } => {
                    if let Some(answer) = waits.remove(&tag) {
                        let _ = answer.send(Some(frame.map(<[u8]>::to_vec)));
                    }
                }
                Event::Ended(_) => over = true,
                _ => {}
            }
            None
        });
        for (tag, frame) in answers {
            end.send(tag, frame).unwrap();
        }
        end.handle_timeout(now());
        if over || received.is_err() {
            return;
        }
    }
}

#[test]
fn a_lenders_end_that_reaches_for_what_is_not_shared_gets_nothing_and_the_borrower_counts_it() {
    let folder = Folder::new();
    let socket = folder.0.join("nic.sock");
    let _seen = serve(&socket, true);
    let [a, b] = ["a", "b"].map(|name| Host::new(&folder, name));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    a.configure(PLAIN);
    b.configure(&PLAIN.replace("plain", &format!("metrics = \"{port}\"\nplain")));
    let metrics = port.to_string();
    let (address, _) = a.up(&format!("nic0={}", socket.display()), "10");
    let end = HostileLender::before(&address);
    b.join(&a, &end.address, "b");
    a.await_state("free", LIMIT);
    let borrowed = borrowed_by(&b);
    let mut client = connect(&borrowed);
    let memory = share(&mut client);
    let raised = event();
    let events = [std::sync::Arc::clone(&raised)];
    client.irqs_assign(irq::MSIX, 0, &events, IrqAction::Trigger).unwrap();

    for (Attack { how, address, bytes }, _) in FORBIDDEN {
        if how == How::Read {
            let answer = end.say(Frame::DmaRead { address, bytes: bytes as u32 });
            assert!(matches!(answer, Some(Frame::Failed { .. })), "{address:#x}: {answer:?}");
        } else {
            end.say(Frame::DmaWrite { address, data: vec![WRITTEN; bytes as usize] });
        }
    }
    // What has no place there, and an interrupt that there is not.
    let data = vec![1; 4];
    end.say(Frame::RegionWrite { region: region::BAR0, offset: 0, data });
    assert!(matches!(end.say(Frame::Reset), Some(Frame::Failed { .. })));
    end.say(Frame::Interrupt { index: irq::MSIX, vector: 7 });
    let held = || b.json(&["who"])["held"][0].clone();
    let mut wanted: Vec<(&str, u64)> = KINDS.map(|kind| (kind, forbidden(kind))).to_vec();
    wanted.extend([("misplaced", 2), ("device", 1)]);
    for (kind, count) in &wanted {
        await_that(LIMIT, kind, || refused(&held(), kind) >= *count);
    }
    let counted = held();
    assert_eq!(counted["refused"].as_array().unwrap().len(), wanted.len(), "{counted}");
    assert!(wanted.iter().all(|(kind, count)| refused(&counted, kind) == *count), "{counted}");
    assert!(b.run(&["who"]).contains("misplaced 2"), "people see it too");
    assert!(is_untouched(&memory));
    assert_eq!(await_event(&raised, Duration::ZERO), 0);

    // The control: by the same way comes what is allowed.
    end.say(Frame::DmaWrite { address: READ_AND_WRITE, data: vec![WRITTEN; PAGE as usize] });
    end.say(Frame::Interrupt { index: irq::MSIX, vector: 0 });
    assert_eq!(await_event(&raised, LIMIT), 1);
    assert!(page(&memory, READ_AND_WRITE).iter().all(|byte| *byte == WRITTEN));
    let read = end.say(Frame::DmaRead { address: READ_ONLY, bytes: 64 });
    assert_eq!(read, Some(Frame::Data { offset: 0, last: true, data: vec![0; 64] }));

    // It is not forgotten with the lease, and is the borrower's alone.
    drop((client, borrowed));
    await_that(LIMIT, "the lease is over", || held().is_null());
    b.said("accesses of a lender were refused");
    for (kind, count) in wanted {
        assert_eq!(scraped_refused(&metrics, "borrowed", kind), count as f64, "{kind}");
        assert_eq!(scraped_refused(&metrics, "accesses", kind), 0.0, "{kind}");
    }
}
