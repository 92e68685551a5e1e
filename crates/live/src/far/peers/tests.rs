//! Two ends in this process, with a direct link between them.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use farside_linux::lock::lock;
use farside_vfio_user::unix::Plain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

const PAGE: u64 = 4096;
const BYTES: u64 = 1 << 20;
const LIMIT: Duration = Duration::from_secs(20);

/// Leads whoever reaches to whoever was admitted.
#[derive(Default)]
struct World {
    admitted: Mutex<HashMap<u64, Arc<Come>>>,
    /// Nobody is reached.
    is_cut: AtomicBool,
    /// Connections that were made, to cut them.
    made: Mutex<Vec<UnixStream>>,
    left: AtomicU32,
}

struct Ways(Arc<World>);

struct Admitted(Arc<World>, u64);

impl Drop for Admitted {
    fn drop(&mut self) {
        lock(&self.0.admitted).remove(&self.1);
        self.0.left.fetch_add(1, Ordering::SeqCst);
    }
}

impl PeerWays for Ways {
    fn reach(&self, way: &PeerWay) -> io::Result<Line> {
        if self.0.is_cut.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::HostUnreachable.into());
        }
        let come = lock(&self.0.admitted).get(&way.session).cloned();
        let come = come.ok_or(io::ErrorKind::ConnectionRefused)?;
        let (near, far) = UnixStream::pair()?;
        lock(&self.0.made).push(near.try_clone()?);
        let far = Line::new(Box::new(Plain::new(far)))?;
        std::thread::spawn(move || come(far));
        Line::new(Box::new(Plain::new(near)))
    }

    fn admit(&self, admission: PeerAdmission, come: Come) -> Box<dyn Send> {
        lock(&self.0.admitted).insert(admission.session, Arc::new(come));
        Box::new(Admitted(Arc::clone(&self.0), admission.session))
    }
}

/// An end, and the frames that its borrower gets.
struct End {
    peers: Peers,
    memory: Arc<SharedMemory>,
}

impl End {
    fn new(world: &Arc<World>, device: &str, fill: u8) -> End {
        let memory = Arc::new(SharedMemory::new(BYTES).unwrap());
        memory.write(0, &vec![fill; BYTES as usize]).unwrap();
        let ways = Arc::new(Ways(Arc::clone(world)));
        let lease = Lease { device: device.to_owned(), epoch: 7 };
        End { peers: Peers::new(ways, lease, Arc::clone(&memory)).unwrap(), memory }
    }

    fn post(&mut self, frame: Frame<&[u8]>) -> Result<(), Refusal> {
        self.peers.posted(&frame).map(|is_ours| assert!(is_ours))
    }

    fn ask(&mut self, tag: u64, frame: Frame<&[u8]>) {
        assert!(self.peers.request(Tag(tag), &frame).unwrap());
    }

    /// Waits for the answer to a request: the only one that is open.
    fn answer(&mut self) -> Frame<Vec<u8>> {
        let end = Instant::now() + LIMIT;
        loop {
            let mut answers = self.peers.answers();
            if let Some((_, answer)) = answers.next() {
                assert!(answers.next().is_none(), "two answers to one request");
                return answer;
            }
            drop(answers);
            assert!(Instant::now() < end, "no answer");
            let pause = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            let _ = poll(&mut [PollFd::new(&self.peers.bell(), PollFlags::IN)], Some(&pause));
        }
    }

    fn bytes(&self, offset: u64, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.memory.read(offset, &mut bytes).unwrap();
        bytes
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap()
}

/// Card a's end, from which card b's reads, with a direct link.
fn pair() -> (Arc<World>, End, End) {
    let world = Arc::new(World::default());
    let (mut a, mut b) = (End::new(&world, "a", 0xaa), End::new(&world, "b", 0xbb));
    introduce(&mut a, &mut b, 11);
    assert_eq!(b.answer(), Frame::Done);
    (world, a, b)
}

fn introduce(a: &mut End, b: &mut End, session: u64) {
    let admission = json(&PeerAdmission { session, certificate: vec![1] });
    a.post(Frame::PeerAdmit { peer: 3, data: &admission }).unwrap();
    let (host, device) = ("host".to_owned(), "a".to_owned());
    let place = PeerPlace { host, device, epoch: 7, certificate: vec![2] };
    let way = json(&PeerWay { session, place });
    b.post(Frame::PeerReach { peer: 5, data: &way }).unwrap();
    b.ask(1, Frame::PeerReady { peer: 5 });
}

fn lend(transfer: u64, offset: u64, bytes: u32) -> Frame<&'static [u8]> {
    Frame::PeerLend { peer: 3, transfer, offset, bytes }
}

fn fetch(transfer: u64, offset: u64, bytes: u32) -> Frame<&'static [u8]> {
    Frame::PeerFetch { peer: 5, transfer, offset, bytes }
}

fn failed(errno: Errno) -> Frame<Vec<u8>> {
    Frame::Failed { errno: errno.raw_os_error() as u32 }
}

#[test]
fn a_piece_goes_from_card_to_card_and_nothing_beside_it() {
    let (_, mut a, mut b) = pair();
    let bytes = 37 * PAGE as usize;
    let text: Vec<u8> = (0..bytes).map(|at| (at * 7 / 5) as u8).collect();
    a.memory.write(2 * PAGE, &text).unwrap();
    a.post(lend(1, 2 * PAGE, bytes as u32)).unwrap();
    b.ask(2, fetch(1, 9 * PAGE, bytes as u32));
    assert_eq!(b.answer(), Frame::Done);
    assert!(b.bytes(9 * PAGE, bytes) == text);
    assert!(b.bytes(0, 9 * PAGE as usize).iter().all(|&byte| byte == 0xbb));
    let behind = 9 * PAGE + bytes as u64;
    assert!(b.bytes(behind, (BYTES - behind) as usize).iter().all(|&byte| byte == 0xbb));
    assert_eq!((a.peers.bytes(), b.peers.bytes()), ((bytes as u64, 0), (0, bytes as u64)));
    // Once means once.
    b.ask(3, fetch(1, 0, bytes as u32));
    assert_eq!(b.answer(), failed(Errno::PERM));
}

#[test]
fn who_fetches_before_it_is_lent_waits_for_that() {
    let (_, mut a, mut b) = pair();
    b.ask(2, fetch(4, 0, PAGE as u32));
    std::thread::sleep(Duration::from_millis(50));
    assert!(b.bytes(0, 1) == [0xbb]);
    a.post(lend(4, PAGE, PAGE as u32)).unwrap();
    assert_eq!(b.answer(), Frame::Done);
    assert!(b.bytes(0, PAGE as usize).iter().all(|&byte| byte == 0xaa));
}

#[test]
fn what_was_not_lent_or_is_ended_is_not_read() {
    let (_, mut a, mut b) = pair();
    a.post(lend(2, 0, PAGE as u32)).unwrap();
    for (transfer, bytes) in [(1, PAGE as u32), (2, 2 * PAGE as u32), (2, 1)] {
        b.ask(2, fetch(transfer, 0, bytes));
        assert_eq!(b.answer(), failed(Errno::PERM), "{transfer} {bytes}");
    }
    a.post(Frame::PeerEnd { peer: 3, transfer: 2 }).unwrap();
    b.ask(3, fetch(2, 0, PAGE as u32));
    assert_eq!(b.answer(), failed(Errno::PERM));
    // One that waits at the other end is ended at its own.
    b.ask(4, fetch(9, 0, PAGE as u32));
    b.post(Frame::PeerEnd { peer: 5, transfer: 9 }).unwrap();
    assert_eq!(b.answer(), failed(Errno::CANCELED));
    a.post(lend(9, 0, PAGE as u32)).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(b.bytes(0, PAGE as usize).iter().all(|&byte| byte == 0xbb), "it was ended");
}

#[test]
fn a_borrower_names_no_byte_outside_a_cards_memory_and_no_end_that_it_has_not_introduced() {
    let (_, mut a, mut b) = pair();
    let page = PAGE as u32;
    for (offset, bytes) in [(BYTES, page), (BYTES - PAGE, page + 1), (u64::MAX, 1), (0, 0)] {
        assert_eq!(a.post(lend(1, offset, bytes)), Err(Refusal::Memory));
        let refused = b.peers.request(Tag(9), &fetch(1, offset, bytes));
        assert_eq!(refused, Err(Refusal::Memory));
    }
    assert_eq!(b.post(lend(1, 0, page)), Err(Refusal::Order));
    assert_eq!(a.peers.request(Tag(9), &fetch(1, 0, page)), Err(Refusal::Order));
    for nonsense in [&b""[..], b"{}", b"{\"session\":1}", &[0xff; 300]] {
        let admit = Frame::PeerAdmit { peer: 3, data: nonsense };
        assert_eq!(a.post(admit), Err(Refusal::Malformed));
        let reach = Frame::PeerReach { peer: 3, data: nonsense };
        assert_eq!(a.post(reach), Err(Refusal::Malformed));
    }
}

#[test]
fn a_direct_link_that_is_cut_fails_what_is_under_way_and_another_takes_its_place() {
    let (world, mut a, mut b) = pair();
    b.ask(2, fetch(1, 0, PAGE as u32));
    lock(&world.made).pop().unwrap().shutdown(std::net::Shutdown::Both).unwrap();
    assert_eq!(b.answer(), failed(Errno::CONNRESET));
    b.ask(3, fetch(2, 0, PAGE as u32));
    assert_eq!(b.answer(), failed(Errno::CONNRESET), "it is not there any more");
    world.is_cut.store(true, Ordering::SeqCst);
    introduce(&mut a, &mut b, 12);
    assert!(matches!(b.answer(), Frame::Failed { .. }));
    world.is_cut.store(false, Ordering::SeqCst);
    introduce(&mut a, &mut b, 13);
    assert_eq!(b.answer(), Frame::Done);
    assert_eq!(world.left.load(Ordering::SeqCst), 2, "nobody comes by what was said before");
    a.post(lend(1, 0, PAGE as u32)).unwrap();
    b.ask(4, fetch(1, 0, PAGE as u32));
    assert_eq!(b.answer(), Frame::Done);
}

#[test]
fn an_end_that_goes_takes_its_direct_links_along() {
    let (world, mut a, mut b) = pair();
    a.post(lend(1, 0, PAGE as u32)).unwrap();
    drop(a);
    assert!(lock(&world.admitted).is_empty());
    b.ask(2, fetch(1, 0, PAGE as u32));
    let Frame::Failed { .. } = b.answer() else { panic!("it read what nobody lends any more") };
    assert!(b.bytes(0, PAGE as usize).iter().all(|&byte| byte == 0xbb));
}

#[test]
fn another_lenders_end_that_gives_nothing_is_given_up() {
    let (_, _a, mut b) = pair();
    let begun = Instant::now();
    // It waits for what will never be lent.
    b.ask(2, fetch(1, 0, PAGE as u32));
    assert_eq!(b.answer(), failed(Errno::CONNRESET));
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}
