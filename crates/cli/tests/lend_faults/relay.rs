//! A cable between two namespaces that is a thread of this process: a TUN device at each end, and between
//! them packets that are delayed, lost, doubled, brought out of order, and cut off, as a seed says.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::network::{Network, Way};
use crate::random;

/// The longest packet.
const PACKET_MAX: usize = 2048;
/// The thread looks at least so often whether it is to end.
const LOOK: Duration = Duration::from_millis(20);

/// What happens to packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    /// Each is as late at least.
    pub(crate) delay: Duration,
    /// And by as much more at most: so that they overtake each other.
    pub(crate) more: Duration,
    /// So many of a thousand are lost.
    pub(crate) lost: u64,
    /// So many of a thousand come twice.
    pub(crate) doubled: u64,
    /// None arrives.
    pub(crate) cut: Option<Way>,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) carried: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    /// They came before others that had left before them.
    pub(crate) overtook: u64,
}

struct Shared {
    weather: Mutex<Weather>,
    counted: Mutex<Counted>,
    is_over: AtomicBool,
}

/// See the module; ends when dropped.
pub(crate) struct Relay {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Between A and B of a network, whose devices are made here.
    pub(crate) fn between(network: &Network, seed: u64) -> io::Result<Relay> {
        let a = network.inside("a", || tun("tob"))?;
        let b = network.inside("b", || tun("eth0"))?;
        let shared = Arc::new(Shared {
            weather: Mutex::default(),
            counted: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let carried = Arc::clone(&shared);
        let thread = std::thread::spawn(move || carry(&carried, &[a, b], seed));
        Ok(Relay { shared, thread: Some(thread) })
    }

    pub(crate) fn set(&self, weather: Weather) {
        *self.shared.weather.lock().expect("nobody panics with it") = weather;
    }

    pub(crate) fn counted(&self) -> Counted {
        *self.shared.counted.lock().expect("nobody panics with it")
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A new TUN device of the namespace that this thread is in.
fn tun(name: &str) -> io::Result<OwnedFd> {
    let file = File::options().read(true).write(true).open("/dev/net/tun")?;
    // SAFETY: all zeros are a request without a name and without flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the descriptor is open, and the request lives and is whole until the call returns.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    rustix::io::ioctl_fionbio(&file, true)?;
    Ok(file.into())
}

/// A packet on its way: when it arrives, its number, to which end, its bytes.
type Flying = Reverse<(Instant, u64, usize, Vec<u8>)>;

fn carry(shared: &Shared, ends: &[OwnedFd; 2], mut seed: u64) {
    let mut flying: BinaryHeap<Flying> = BinaryHeap::new();
    let (mut number, mut newest) = (0, [0; 2]);
    while !shared.is_over.load(Ordering::SeqCst) {
        let now = Instant::now();
        let next =
            flying.peek().map_or(LOOK, |Reverse((at, ..))| at.saturating_duration_since(now));
        let mut polled = ends.each_ref().map(|end| PollFd::new(end, PollFlags::IN));
        let pause = Timespec::try_from(next.min(LOOK)).ok();
        // Every outcome means: look.
        let _ = poll(&mut polled, pause.as_ref());
        let weather = *shared.weather.lock().expect("nobody panics with it");
        let mut counted = shared.counted.lock().expect("nobody panics with it");
        for from in [0, 1] {
            let mut packet = [0; PACKET_MAX];
            while let Ok(bytes) = rustix::io::read(ends[from].as_fd(), &mut packet) {
                let cut = match weather.cut {
                    Some(Way::Both) => true,
                    Some(Way::ToBorrower) => from == 0,
                    Some(Way::ToLender) => from == 1,
                    None => false,
                };
                if cut || random(&mut seed) % 1000 < weather.lost {
                    counted.lost += 1;
                    continue;
                }
                let copies = 1 + u64::from(random(&mut seed) % 1000 < weather.doubled);
                counted.doubled += copies - 1;
                for _ in 0..copies {
                    let more = random(&mut seed) % (weather.more.as_nanos() as u64 + 1);
                    let at = Instant::now() + weather.delay + Duration::from_nanos(more);
                    number += 1;
                    flying.push(Reverse((at, number, 1 - from, packet[..bytes].to_vec())));
                }
            }
        }
        while flying.peek().is_some_and(|Reverse((at, ..))| *at <= Instant::now()) {
            let Some(Reverse((_, number, to, packet))) = flying.pop() else { break };
            counted.carried += 1;
            counted.overtook += u64::from(number < newest[to]);
            newest[to] = number.max(newest[to]);
            // What does not fit is lost, as on any cable.
            let _ = rustix::io::write(&ends[to], &packet);
        }
    }
}
