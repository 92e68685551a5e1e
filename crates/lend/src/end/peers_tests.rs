//! Other lenders' ends at this one: who may come, and that it gets no further than to what it is lent.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use farside_link::{Config, Endpoint, Lease as LinkLease};
use farside_live::far::{Line, PeerAdmission, PeerPlace, PeerWay, PeerWays, now};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::control::{Begin, Kind, Order, Said, receive, send};
use super::peers::Ways;
use super::plain::Greeting;
use super::secured::stream;
use super::serve::Lease;
use super::tally::Tally;
use crate::tls::{self, Credentials};

const LIMIT: Duration = Duration::from_secs(20);
const EPOCH: u64 = 7;
const SESSION: u64 = 5;

fn credentials() -> Credentials {
    let made = rcgen::generate_simple_self_signed(vec!["lease".to_owned()]).unwrap();
    Credentials { certificate: made.cert.der().to_vec(), key: made.signing_key.serialize_der() }
}

/// A lease whose card is not there, and where its end is reached.
struct Lender {
    lease: Arc<Lease>,
    own: Credentials,
    borrower: Credentials,
    address: SocketAddr,
}

impl Lender {
    fn start(plain: Option<Greeting>) -> Lender {
        let [own, borrower] = [credentials(), credentials()];
        let begin = Begin {
            name: "lease".to_owned(),
            epoch: EPOCH,
            device: "card0".to_owned(),
            kind: Kind::Card,
            path: PathBuf::from("/nowhere"),
            certificate: own.certificate.clone(),
            key: own.key.clone(),
            peer: borrower.certificate.clone(),
            plain,
            until: u64::MAX,
        };
        let lease = Arc::new(Lease::of(begin, Tally::unseen()).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Arc::clone(&lease);
        std::thread::spawn(move || {
            for far in listener.incoming().flatten() {
                serving.connect(far).unwrap();
            }
        });
        Lender { lease, own, borrower, address }
    }

    /// Lets a guest come; each that has is told of.
    fn admit(&self, guest: &Credentials) -> (Box<dyn Send>, Receiver<()>) {
        let (told, came) = channel();
        let come = move |line: Line| {
            drop(line);
            told.send(()).unwrap();
        };
        let certificate = guest.certificate.clone();
        let admission = PeerAdmission { session: SESSION, certificate };
        (Ways(Arc::clone(&self.lease)).admit(admission, Box::new(come)), came)
    }

    /// Comes with a certificate, and says a number; whether it was let in so far.
    fn come(&self, shown: &Credentials, session: u64) -> bool {
        let socket = TcpStream::connect(self.address).unwrap();
        let config = tls::client(shown, &self.own.certificate).unwrap();
        let name = ServerName::try_from("lease").unwrap();
        let tls = ClientConnection::new(config, name).unwrap().into();
        let Ok(stream) = stream(socket, Some(tls), LIMIT) else { return false };
        let mut line = Line::new(stream).unwrap();
        let config = Config::new(LinkLease { device: "card0".to_owned(), epoch: EPOCH });
        let mut end = Endpoint::borrower(config, session);
        end.connected(now());
        let until = Instant::now() + LIMIT;
        // Until it is hung up on, whatever it hears before.
        while line.send(now(), &mut end).is_ok()
            && line.receive(now(), &mut end, |_| None).is_ok()
            && !end.is_up()
        {
            assert!(Instant::now() < until, "it is neither let in nor hung up on");
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }
}

const SOON: Duration = Duration::from_millis(300);

#[test]
fn whoever_the_borrower_names_comes_to_what_it_is_lent_and_nobody_else() {
    let lender = Lender::start(None);
    let (guest, other) = (credentials(), credentials());
    assert!(!lender.come(&guest, SESSION) || cannot_come(&lender, &guest));
    let (admission, came) = lender.admit(&guest);
    lender.come(&guest, SESSION);
    came.recv_timeout(LIMIT).unwrap();
    // By another number, with another certificate, or as the borrower itself: not to what is lent to it.
    lender.come(&guest, SESSION + 1);
    lender.come(&other, SESSION);
    lender.come(&lender.borrower, SESSION);
    assert!(came.recv_timeout(SOON).is_err());
    drop(admission);
    lender.come(&guest, SESSION);
    assert!(came.recv_timeout(SOON).is_err(), "it came by what was taken back");
}

/// A client of TLS 1.3 hears late that its certificate is refused.
fn cannot_come(lender: &Lender, guest: &Credentials) -> bool {
    let (_admission, came) = lender.admit(&credentials());
    lender.come(guest, SESSION);
    came.recv_timeout(SOON).is_err()
}

#[test]
fn a_guest_is_no_program_whatever_number_it_says() {
    let lender = Lender::start(None);
    let guest = credentials();
    let (_admission, came) = lender.admit(&guest);
    for session in [0, 1, SESSION - 1, u64::MAX] {
        lender.come(&guest, session);
    }
    assert!(came.recv_timeout(SOON).is_err());
    // A program is told that there is no card; a guest was told nothing, and took no place.
    assert!(lender.come(&lender.borrower, 77), "the borrower comes all the same");
}

#[test]
fn guests_of_a_lease_without_tls_come_with_it() {
    let lender = Lender::start(Some(Greeting { epoch: EPOCH, secret: [3; 32] }));
    let guest = credentials();
    let (_admission, came) = lender.admit(&guest);
    lender.come(&guest, SESSION);
    came.recv_timeout(LIMIT).unwrap();
    lender.come(&credentials(), SESSION);
    assert!(came.recv_timeout(SOON).is_err());
}

/// Its daemon connects, or says why not; one that is gone is not waited for.
#[test]
fn another_lenders_end_is_reached_by_the_daemon() {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    let [here, there] = [Lender::start(None), Lender::start(None)];
    let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (daemon, end) = socketpair(kind.0, kind.1, kind.2, None).unwrap();
    let way = |host: &str, certificate: &[u8]| {
        let (host, device) = (host.to_owned(), "card0".to_owned());
        let place = PeerPlace { host, device, epoch: EPOCH, certificate: certificate.to_vec() };
        PeerWay { session: SESSION, place }
    };
    let reach = |way: &PeerWay| Ways(Arc::clone(&here.lease)).reach(way);
    let refused = reach(&way("there", &there.own.certificate)).err().unwrap().to_string();
    assert!(refused.contains("daemon is not there"), "{refused}");

    here.lease.reaching.is_with(Some(&end));
    let (own, address) = (here.lease.own.clone(), there.address);
    let (_admission, came) = there.admit(&own);
    let lease = Arc::clone(&here.lease);
    // What the daemon does, and what the end does with its answers.
    std::thread::spawn(move || {
        while let Ok(Some((Said::Reach { number, host }, _))) = receive::<Said>(&daemon) {
            let far = TcpStream::connect(address).unwrap();
            let is_known = host == "there";
            let why = (!is_known).then(|| format!("nothing is known of host {host}"));
            let order = Order::Reached { number, why };
            let beside = is_known.then(|| std::os::fd::AsFd::as_fd(&far));
            send(std::os::fd::AsFd::as_fd(&daemon), &order, beside).unwrap();
        }
    });
    let answers = end.try_clone().unwrap();
    std::thread::spawn(move || {
        while let Ok(Some((order, beside))) = receive::<Order>(&answers) {
            lease.obey(order, beside).unwrap();
        }
    });
    let mut line = reach(&way("there", &there.own.certificate)).unwrap();
    let config = Config::new(LinkLease { device: "card0".to_owned(), epoch: EPOCH });
    let mut link = Endpoint::borrower(config, SESSION);
    link.connected(now());
    line.send(now(), &mut link).unwrap();
    came.recv_timeout(LIMIT).unwrap();
    let refused = reach(&way("nowhere", &there.own.certificate)).err().unwrap().to_string();
    assert_eq!(refused, "nothing is known of host nowhere");
    // It is not who it has to be.
    assert!(reach(&way("there", &credentials().certificate)).is_err());
}
