//! A way to a [`FarHost`](super::FarHost) that lies: one of the messages to the program is not what it
//! should be.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use farside::{CardPlace, Dialled};
use farside_vfio_user::unix::Plain;

/// What becomes of a message to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLie {
    /// The connection ends in its place.
    End,
    /// Nothing comes from here on.
    Silence,
    /// Half of it comes, and then nothing.
    Half,
    /// It says that it is as long as this.
    Long(u32),
    /// It comes twice.
    Twice,
    /// One of its bytes is another, at this place behind its length (as far as it goes).
    Garbled(usize),
    /// Messages of no entries follow it without end.
    Flood,
    /// Bytes that nobody has asked for follow it.
    Unasked,
    /// More entries than any ring holds follow it: completions of commands that there are not.
    Entries,
}

/// See the module. Lies once in each connection.
#[derive(Debug)]
pub struct LyingLink {
    socket: PathBuf,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    host: PathBuf,
    lie: LinkLie,
    /// Messages that pass before the lie.
    after: u32,
    lies: AtomicU32,
    over: AtomicBool,
}

impl LyingLink {
    /// A way to the host in a folder that tells the truth in so many messages, and then this.
    ///
    /// # Panics
    /// If there can be no socket.
    pub fn start(socket: PathBuf, host: &Path, lie: LinkLie, after: u32) -> LyingLink {
        let listener = UnixListener::bind(&socket).expect("a socket");
        let host = host.join("fn0.sock");
        let (lies, over) = (AtomicU32::new(0), AtomicBool::new(false));
        let state = Arc::new(State { host, lie, after, lies, over });
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
        LyingLink { socket, state }
    }

    /// The card as a program reaches it by this.
    pub fn place(&self) -> CardPlace {
        let socket = self.socket.clone();
        CardPlace::Link(Dialled::new("a lying link", move || {
            Ok(Box::new(Plain::new(UnixStream::connect(&socket)?)) as _)
        }))
    }

    /// How often it has lied.
    pub fn lies(&self) -> u32 {
        self.state.lies.load(SeqCst)
    }
}

impl Drop for LyingLink {
    fn drop(&mut self) {
        self.state.over.store(true, SeqCst);
        // Lets it look.
        let _ = UnixStream::connect(&self.socket);
    }
}

fn relay(program: &UnixStream, state: &State) {
    let Ok(host) = UnixStream::connect(&state.host) else { return };
    let cut = || {
        let _ = program.shutdown(std::net::Shutdown::Both);
        let _ = host.shutdown(std::net::Shutdown::Both);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut from, mut to) = (program, &host);
            let _ = std::io::copy(&mut from, &mut to);
            cut();
        });
        let _ = pass(&host, program, state);
        cut();
    });
}

/// Passes messages to the program until one side ends.
fn pass(mut host: &UnixStream, mut program: &UnixStream, state: &State) -> std::io::Result<()> {
    let mut passed = 0;
    loop {
        let mut message = vec![0; 4];
        host.read_exact(&mut message)?;
        let length = u32::from_le_bytes([message[0], message[1], message[2], message[3]]);
        message.resize(4 + length as usize, 0);
        host.read_exact(&mut message[4..])?;
        passed += 1;
        if passed != state.after {
            program.write_all(&message)?;
            continue;
        }
        state.lies.fetch_add(1, SeqCst);
        match state.lie {
            LinkLie::End => return Ok(()),
            LinkLie::Silence => return silence(host),
            LinkLie::Half => {
                program.write_all(&message[..message.len() / 2])?;
                return silence(host);
            }
            LinkLie::Long(length) => {
                message[..4].copy_from_slice(&length.to_le_bytes());
                program.write_all(&message)?;
            }
            LinkLie::Twice => program.write_all(&[&message[..], &message].concat())?,
            LinkLie::Garbled(at) => {
                let at = 4 + at.min(length as usize - 1);
                message[at] ^= 0x55;
                program.write_all(&message)?;
            }
            LinkLie::Flood => {
                let mut empty = 20u32.to_le_bytes().to_vec();
                empty.extend([ENTRIES]);
                empty.resize(24, 0);
                program.write_all(&message)?;
                loop {
                    program.write_all(&empty)?;
                }
            }
            LinkLie::Unasked => {
                program.write_all(&message)?;
                program.write_all(&[&9u32.to_le_bytes()[..], &[DATA], &[0; 8]].concat())?;
            }
            LinkLie::Entries => {
                program.write_all(&message)?;
                let item = [&[1, 0, 0][..], &[9; 64]].concat();
                let mut entries = vec![ENTRIES];
                entries.resize(18, 0);
                entries.extend(1000u16.to_le_bytes());
                (0..1000).for_each(|_| entries.extend_from_slice(&item));
                let length = (entries.len() as u32).to_le_bytes();
                for _ in 0..3 {
                    program.write_all(&[&length[..], &entries].concat())?;
                }
            }
        }
    }
}

/// Kinds of messages.
const ENTRIES: u8 = 3;
const DATA: u8 = 7;

/// Takes what comes, and passes nothing on.
fn silence(mut host: &UnixStream) -> std::io::Result<()> {
    let mut bytes = vec![0; 1 << 16];
    while host.read(&mut bytes)? > 0 {}
    Ok(())
}
