//! Those who come to the lender's end of a lease and are not its borrower, or are no more: whoever it is hears
//! at most that he is refused, and the borrower comes all the same.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farside_link::error::{End, Violation};
use farside_link::{Config, Endpoint, Event, Lease as LinkLease};
use farside_linux::lock::lock;
use farside_live::far::{Farewell, Line, now};
use rustix::event::{PollFd, Timespec, poll};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::control::{Begin, Kind};
use super::secured::stream;
use super::serve::{DEVICE_PATIENCE, Lease};
use super::tally::Tally;
use crate::tls::{self, Credentials};

const LIMIT: Duration = Duration::from_secs(20);
const EPOCH: u64 = 7;

fn credentials() -> Credentials {
    let made = rcgen::generate_simple_self_signed(vec!["lease".to_owned()]).unwrap();
    Credentials { certificate: made.cert.der().to_vec(), key: made.signing_key.serialize_der() }
}

/// A lease whose card is not there: whoever is let in is told so.
struct Lender {
    own: Credentials,
    borrower: Credentials,
    address: SocketAddr,
}

impl Lender {
    fn start() -> Lender {
        Lender::of(Kind::Card, PathBuf::from("/nowhere"))
    }

    fn of(kind: Kind, path: PathBuf) -> Lender {
        let [own, borrower] = [credentials(), credentials()];
        let begin = Begin {
            name: "lease".to_owned(),
            epoch: EPOCH,
            device: "card0".to_owned(),
            kind,
            path,
            certificate: own.certificate.clone(),
            key: own.key.clone(),
            peer: borrower.certificate.clone(),
            plain: None,
            until: u64::MAX,
        };
        let lease = Arc::new(Lease::of(begin, Tally::unseen()).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for far in listener.incoming().flatten() {
                lease.connect(far).unwrap();
            }
        });
        Lender { own, borrower, address }
    }

    fn tls(&self, shown: &Credentials) -> rustls::Connection {
        let config = tls::client(shown, &self.own.certificate).unwrap();
        let name = ServerName::try_from("lease").unwrap();
        ClientConnection::new(config, name).unwrap().into()
    }

    /// Comes by an address with a certificate and an epoch; how the link ends, if there is one.
    fn come(&self, by: SocketAddr, shown: &Credentials, epoch: u64) -> Option<End> {
        static SESSIONS: AtomicU64 = AtomicU64::new(1);
        self.begin(by, shown, epoch, SESSIONS.fetch_add(1, Ordering::SeqCst))?.ends()
    }

    /// Begins a link, by which nothing has gone yet.
    fn begin(
        &self,
        by: SocketAddr,
        shown: &Credentials,
        epoch: u64,
        session: u64,
    ) -> Option<Visit> {
        let socket = TcpStream::connect(by).unwrap();
        let line = Line::new(stream(socket, Some(self.tls(shown)), LIMIT).ok()?).unwrap();
        let config = Config::new(LinkLease { device: "card0".to_owned(), epoch });
        let mut end = Endpoint::borrower(config, session);
        end.connected(now());
        Some(Visit { line, end })
    }

    /// The borrower is let in, and hears of the card that is not there.
    fn lets_the_borrower_in(&self) {
        let ended = self.come(self.address, &self.borrower, EPOCH);
        assert_eq!(ended, Some(End::PeerClosed(Farewell::NoCard as u32)));
    }
}

/// Somebody who has come.
struct Visit {
    line: Line,
    end: Endpoint,
}

impl Visit {
    /// How the link ends, if there is one.
    fn ends(self) -> Option<End> {
        let Visit { mut line, mut end } = self;
        let until = Instant::now() + LIMIT;
        let mut ended = None;
        while ended.is_none() {
            assert!(Instant::now() < until, "it neither serves nor refuses");
            // What was said before a connection ended is there to be read.
            let is_all_sent = line.send(now(), &mut end).unwrap_or(true);
            let mut polled = [PollFd::new(&line, line.wanted(is_all_sent))];
            poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 20_000_000 })).unwrap();
            let received = line.receive(now(), &mut end, |event| {
                if let Event::Ended(end) = event {
                    ended = Some(end);
                }
                None
            });
            if received.is_err() {
                return ended;
            }
        }
        ended
    }
}

#[test]
fn the_certificate_of_another_lease_opens_nothing() {
    let lender = Lender::start();
    assert_eq!(lender.come(lender.address, &credentials(), EPOCH), None);
    // Nor does the lender's own.
    assert_eq!(lender.come(lender.address, &lender.own, EPOCH), None);
    lender.lets_the_borrower_in();
}

#[test]
fn an_old_epoch_is_refused_whoever_shows_it() {
    let lender = Lender::start();
    for epoch in [EPOCH - 1, u64::MAX] {
        let code = Violation::Epoch { theirs: epoch, ours: EPOCH }.code();
        let ended = lender.come(lender.address, &lender.borrower, epoch);
        assert_eq!(ended, Some(End::Refused(code)), "{epoch}");
    }
    lender.lets_the_borrower_in();
}

/// Whoever names another epoch, with whatever certificate, costs nothing of the device.
#[test]
fn a_device_is_not_asked_for_anything_by_who_names_another_epoch() {
    let folder = std::env::temp_dir().join(format!("farside-epoch-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let socket = folder.join("fn0.sock");
    for (kind, path) in [(Kind::Card, &folder), (Kind::Foreign, &socket)] {
        let device = UnixListener::bind(&socket).unwrap();
        device.set_nonblocking(true).unwrap();
        let lender = Lender::of(kind, path.clone());
        let ended = lender.come(lender.address, &lender.borrower, EPOCH - 1);
        let code = Violation::Epoch { theirs: EPOCH - 1, ours: EPOCH }.code();
        assert_eq!(ended, Some(End::Refused(code)), "{kind:?}");
        let asked = device.accept().map(drop).map_err(|error| error.kind());
        assert_eq!(asked, Err(ErrorKind::WouldBlock), "{kind:?}");
        // The control: its borrower has the device asked.
        let session = u64::MAX;
        let visit = lender.begin(lender.address, &lender.borrower, EPOCH, session).unwrap();
        let link = std::thread::spawn(|| visit.ends());
        let until = Instant::now() + LIMIT;
        while device.accept().is_err() {
            assert!(Instant::now() < until, "{kind:?}: nobody asks");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(device);
        std::fs::remove_file(&socket).unwrap();
        assert!(link.join().unwrap().is_some(), "{kind:?}: the link ends with the device");
    }
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn a_program_without_a_card_hears_so_by_the_connection_that_it_has_made_last() {
    let lender = Lender::start();
    let begin = || lender.begin(lender.address, &lender.borrower, EPOCH, 9).unwrap();
    // It says who it is, and listens to nothing: it costs who comes later no time.
    let Visit { mut line, mut end } = begin();
    line.send(now(), &mut end).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let came = Instant::now();
    assert_eq!(begin().ends(), Some(End::PeerClosed(Farewell::NoCard as u32)));
    assert!(came.elapsed() < DEVICE_PATIENCE + Duration::from_secs(1), "{:?}", came.elapsed());
    drop((line, end));
}

/// Whoever has recorded what the borrower sent, and sends it again, is not the borrower: what the lender
/// has drawn for the connection is another.
#[test]
fn a_connection_that_was_recorded_is_refused_when_it_is_played_again() {
    let lender = Lender::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (by, host) = (listener.local_addr().unwrap(), lender.address);
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&recorded);
    let relay = std::thread::spawn(move || {
        let (mut near, mut far) = (listener.accept().unwrap().0, TcpStream::connect(host).unwrap());
        let (mut back, mut to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut back, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Both);
        });
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = near.read(&mut bytes) {
            lock(&record).extend_from_slice(&bytes[..count]);
            if far.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
    });
    let ended = lender.come(by, &lender.borrower, EPOCH);
    // The control: the same bytes, the first time, let the borrower in.
    assert_eq!(ended, Some(End::PeerClosed(Farewell::NoCard as u32)));
    relay.join().unwrap();

    let recorded = std::mem::take(&mut *lock(&recorded));
    assert!(recorded.len() > 500, "{}", recorded.len());
    let mut again = TcpStream::connect(lender.address).unwrap();
    again.set_read_timeout(Some(LIMIT)).unwrap();
    // It may end while this is written.
    let _ = again.write_all(&recorded);
    let mut answer = Vec::new();
    let _ = again.read_to_end(&mut answer);
    // Its side of the greeting and an alert; no Welcome, which the borrower had beside more.
    assert!(answer.len() < 2000, "{} bytes were answered", answer.len());
    assert!(!answer.windows(4).any(|bytes| bytes == b"FSLK"));
    lender.lets_the_borrower_in();
}
