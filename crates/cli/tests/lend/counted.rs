//! What goes through a lease, and what is refused there, is counted by its lender, and shown: while it runs by
//! `farside who`, for ever by the metrics.

use std::os::unix::net::UnixStream;

use farside_link::error::End;
use farside_link::{Config, Endpoint, Event, Frame, Lease, Tag};
use farside_live::far::{Farewell, Line, now};
use farside_vfio_user::unix::Plain;
use rustix::event::{PollFd, Timespec, poll};

use super::govern::scraped;
use super::*;

/// How often one kind was refused, as `who` says of a lease.
pub(super) fn refused(lease: &Value, kind: &str) -> u64 {
    let kinds = lease["refused"].as_array().cloned().unwrap_or_default();
    let found = kinds.iter().find(|refused| refused["kind"] == kind);
    found.map_or(0, |refused| refused["count"].as_u64().expect("a number"))
}

/// Waits until something was refused so often in the lease that runs: an end says so to the program first, and
/// counts then.
fn await_refused(host: &Host, kind: &str, count: u64) {
    let traffic = || host.json(&["who"])["traffic"][0].clone();
    await_that(LIMIT, kind, || refused(&traffic(), kind) >= count);
    assert_eq!(refused(&traffic(), kind), count, "{kind}");
}

/// The end of a link that its user drives by hand: it says what no program of ours does.
struct Hostile {
    line: Line,
    end: Endpoint,
}

impl Hostile {
    /// By the socket that programs of a lease use.
    fn come(held: &Held, epoch: u64) -> Hostile {
        let folder = held.place.strip_prefix("lease:").expect("a lease");
        let stream = UnixStream::connect(format!("{folder}/link.sock")).unwrap();
        let config = Config::new(Lease { device: "card0".to_owned(), epoch });
        let mut end = Endpoint::borrower(config, 77);
        end.connected(now());
        Hostile { line: Line::new(Box::new(Plain::new(stream))).unwrap(), end }
    }

    /// Sends this as soon as both ends know one another; how the link ends then.
    fn say(mut self, frame: Frame<Vec<u8>>) -> Option<End> {
        let (mut frame, mut ended) = (Some(frame), None);
        let limit = Instant::now() + LIMIT;
        while ended.is_none() {
            assert!(Instant::now() < limit, "it is neither served nor refused");
            if self.end.is_up() {
                if let Some(frame) = frame.take() {
                    self.end.send(Tag::NONE, frame).expect("it is taken");
                }
            }
            let is_all_sent = self.line.send(now(), &mut self.end).unwrap_or(true);
            let mut polled = [PollFd::new(&self.line, self.line.wanted(is_all_sent))];
            poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 })).unwrap();
            let received = self.line.receive(now(), &mut self.end, |event| {
                match event {
                    Event::Ended(end) => ended = Some(end),
                    Event::Posted { load, .. } => return Some(load),
                    _ => {}
                }
                None
            });
            if received.is_err() {
                break;
            }
        }
        ended
    }
}

#[test]
fn what_a_hostile_borrower_is_refused_is_counted_and_shown() {
    let Three { a, b, card: _card, folder: _folder, .. } = Three::start("10");
    let metrics = a.json(&["lend", "up", "--metrics", "127.0.0.1:0"])["metrics"].clone();
    let metrics = metrics.as_str().unwrap();
    let held = b.hold(&["card0"]);
    // The control: a program that behaves has its bytes counted, and nothing refused.
    let mut program = b.command(&["demo", "--bundled", "--quiet", "--iterations", "2"]);
    let program = program.env("FARSIDE_CARDS", &held.place).output().unwrap();
    assert!(program.status.success(), "{}", text(&program.stderr));
    let traffic = || a.json(&["who"])["traffic"][0].clone();
    let good = traffic();
    for what in ["bytes_in", "bytes_out", "programs", "connections"] {
        assert!(good[what].as_u64().unwrap() > 0, "{what}: {good}");
    }
    assert!(good["refused"].as_array().unwrap().is_empty(), "{good}");
    let bytes = "farside_lend_link_bytes_total{direction=\"in\"}";
    assert!(scraped(metrics)[bytes] >= good["bytes_in"].as_f64().unwrap());

    let epoch = a.device()["epoch"].as_u64().unwrap();
    assert_eq!(good["epoch"], epoch);
    // Memory that is not the card's.
    let beyond = Frame::MemoryWrite { offset: 1 << 40, data: vec![1; 64] };
    let ended = Hostile::come(&held, epoch).say(beyond);
    assert_eq!(ended, Some(End::PeerClosed(Farewell::Refused as u32)));
    // A register that is no word.
    let odd = Frame::RegionWrite { region: 0, offset: 0, data: vec![1; 3] };
    let ended = Hostile::come(&held, epoch).say(odd);
    assert_eq!(ended, Some(End::PeerClosed(Farewell::Refused as u32)));
    // A lease before this one.
    assert!(matches!(Hostile::come(&held, epoch - 1).say(Frame::Return), Some(End::Refused(_))));
    let kinds = ["memory", "command", "stranger"];
    for kind in kinds {
        await_refused(&a, kind, 1);
    }
    assert!(a.run(&["who"]).contains("memory 1"), "people see it too");
    let bytes_in = traffic()["bytes_in"].as_f64().unwrap();

    // It is not forgotten with the lease, whose end is killed.
    drop(held);
    a.await_state("free", LIMIT);
    assert!(a.json(&["who"])["traffic"].as_array().unwrap().is_empty());
    let samples = scraped(metrics);
    for kind in kinds {
        let name = format!("farside_lend_accesses_refused_total{{kind=\"{kind}\"}}");
        assert_eq!(samples[&name], 1.0, "{kind}");
    }
    assert!(samples[bytes] >= bytes_in, "{samples:?}");
    assert!(samples["farside_lend_programs_total"] >= 3.0, "{samples:?}");
}

/// What an end has counted is known to the daemon that is started after the one which started the end.
#[test]
fn a_daemon_that_is_started_anew_knows_what_was_counted() {
    let Three { a, b, card: _card, folder: _folder, .. } = Three::start("10");
    let held = b.hold(&["card0"]);
    let epoch = a.device()["epoch"].as_u64().unwrap();
    let beyond = || Frame::MemoryFill { offset: u64::MAX, bytes: 4096, value: 1 };
    Hostile::come(&held, epoch).say(beyond());
    await_refused(&a, "memory", 1);
    a.signal("daemon", Signal::KILL);
    // The next one.
    await_refused(&a, "memory", 1);
    Hostile::come(&held, epoch).say(beyond());
    await_refused(&a, "memory", 2);
}
