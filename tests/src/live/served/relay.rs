//! A way to a served card by TCP: bytes and nothing else, as between two machines.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use farside::{CardPlace, Dialled};
use farside_vfio_user::unix::Plain;

/// Passes bytes between TCP connections and the socket of a function; ends when dropped.
#[derive(Debug)]
pub struct TcpRelay {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    socket: PathBuf,
    /// How long each byte is on its way, both ways.
    delay: Duration,
    /// Bytes after which every connection is cut; as often as this is set.
    left: AtomicI64,
    /// Connections that were made.
    made: AtomicU64,
    over: AtomicBool,
}

impl TcpRelay {
    /// Relays to the first function of the card in a folder.
    ///
    /// # Panics
    /// If there is no port.
    pub fn start(folder: &Path) -> TcpRelay {
        TcpRelay::start_slow(folder, Duration::ZERO)
    }

    /// The same, and every byte is on its way for so long.
    ///
    /// # Panics
    /// If there is no port.
    pub fn start_slow(folder: &Path, delay: Duration) -> TcpRelay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of this machine");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(State {
            socket: folder.join("fn0.sock"),
            delay,
            left: AtomicI64::new(i64::MAX),
            made: AtomicU64::new(0),
            over: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&state);
        std::thread::spawn(move || {
            for program in listener.incoming().flatten() {
                if accepting.over.load(SeqCst) {
                    return;
                }
                let state = Arc::clone(&accepting);
                std::thread::spawn(move || relay(&program, &state));
            }
        });
        TcpRelay { address, state }
    }

    /// The card as a program reaches it by this.
    pub fn place(&self) -> CardPlace {
        CardPlace::Stream(self.dialled())
    }

    /// The same where an end of a link is in front of the card.
    pub fn place_by_link(&self) -> CardPlace {
        CardPlace::Link(self.dialled())
    }

    fn dialled(&self) -> Dialled {
        let address = self.address;
        Dialled::new(&format!("tcp {address}"), move || {
            let stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
            Ok(Box::new(Plain::tcp(stream)?) as _)
        })
    }

    /// Cuts the connection when so many bytes more have gone through, in the middle of whatever it is.
    pub fn cut_after(&self, bytes: u64) {
        self.state.left.store(bytes as i64, SeqCst);
    }

    /// Whether that has come.
    pub fn was_cut(&self) -> bool {
        self.state.left.load(SeqCst) < 0
    }

    /// Lets bytes pass again.
    pub fn mend(&self) {
        self.state.left.store(i64::MAX, SeqCst);
    }

    /// Connections that were made.
    pub fn connections(&self) -> u64 {
        self.state.made.load(SeqCst)
    }
}

impl Drop for TcpRelay {
    fn drop(&mut self) {
        self.state.over.store(true, SeqCst);
        // Lets it look.
        let _ = TcpStream::connect(self.address);
    }
}

/// Passes bytes both ways until one side ends.
fn relay(program: &TcpStream, state: &State) {
    let Ok(card) = UnixStream::connect(&state.socket) else { return };
    let _ = program.set_nodelay(true);
    state.made.fetch_add(1, SeqCst);
    let cut = || {
        let _ = program.shutdown(Shutdown::Both);
        let _ = card.shutdown(Shutdown::Both);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pass(program, &card, state, &cut);
            let _ = card.shutdown(Shutdown::Write);
        });
        pass(&card, program, state, &cut);
        // The card ends its side last, when nothing of it touches memory any more.
        cut();
    });
}

fn pass(mut from: impl Read, to: impl Write + Send, state: &State, cut: &(impl Fn() + Sync)) {
    // Bounded: who is not read waits.
    let (send, receive) = mpsc::sync_channel(1 << 10);
    std::thread::scope(|scope| {
        if state.delay.is_zero() {
            return pass_now(from, to, state, cut);
        }
        scope.spawn(|| pass_now(Late(receive, Vec::new()), to, state, cut));
        let mut bytes = vec![0; 1 << 14];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if send.send((Instant::now() + state.delay, bytes[..count].to_vec())).is_err() {
                break;
            }
        }
        drop(send);
    });
}

/// Bytes that may be read from a time on.
struct Late(Receiver<(Instant, Vec<u8>)>, Vec<u8>);

impl Read for Late {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.1.is_empty() {
            let Ok((due, bytes)) = self.0.recv() else { return Ok(0) };
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            self.1 = bytes;
        }
        let count = self.1.len().min(into.len());
        into[..count].copy_from_slice(&self.1[..count]);
        self.1.drain(..count);
        Ok(count)
    }
}

fn pass_now(mut from: impl Read, mut to: impl Write, state: &State, cut: &impl Fn()) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let left = state.left.fetch_sub(count as i64, SeqCst);
        let passed = (left.max(0) as usize).min(count);
        if to.write_all(&bytes[..passed]).is_err() {
            return;
        }
        if passed < count {
            return cut();
        }
    }
}
