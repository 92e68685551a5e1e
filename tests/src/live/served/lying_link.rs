//! A way to a [`FarHost`](super::FarHost) that lies: one of the frames to the program is not what it
//! should be.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use farside::{CardPlace, Dialled};
use farside_link::Kind;
use farside_link::wire::{HEADER_BYTES, Header};
use farside_vfio_user::unix::Plain;

/// What becomes of a frame to the program.
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
    /// One of its bytes is another, at this place (as far as it goes).
    Garbled(usize),
    /// Frames without entries follow it without end.
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
    /// Frames that pass before the lie.
    after: u32,
    lies: AtomicU32,
    over: AtomicBool,
}

impl LyingLink {
    /// A way to the host in a folder that tells the truth in so many frames, and then this.
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

/// Passes frames to the program until one side ends.
fn pass(mut host: &UnixStream, mut program: &UnixStream, state: &State) -> std::io::Result<()> {
    let (mut passed, mut sequence) = (0, 0);
    loop {
        let mut frame = vec![0; HEADER_BYTES];
        host.read_exact(&mut frame)?;
        let header = frame.first_chunk().and_then(Header::decode).expect("the host speaks sense");
        frame.resize(HEADER_BYTES + header.length as usize, 0);
        host.read_exact(&mut frame[HEADER_BYTES..])?;
        passed += 1;
        sequence = sequence.max(header.sequence);
        if passed != state.after {
            program.write_all(&frame)?;
            continue;
        }
        state.lies.fetch_add(1, SeqCst);
        match state.lie {
            LinkLie::End => return Ok(()),
            LinkLie::Silence => return silence(host),
            LinkLie::Half => {
                program.write_all(&frame[..frame.len() / 2])?;
                return silence(host);
            }
            LinkLie::Long(length) => {
                frame[4..8].copy_from_slice(&length.to_le_bytes());
                program.write_all(&frame)?;
            }
            LinkLie::Twice => program.write_all(&[&frame[..], &frame].concat())?,
            LinkLie::Garbled(at) => {
                let at = at.min(frame.len() - 1);
                frame[at] ^= 0x55;
                program.write_all(&frame)?;
            }
            LinkLie::Flood => {
                program.write_all(&frame)?;
                let fields = [0u32.to_le_bytes(), 0u32.to_le_bytes()].concat();
                loop {
                    sequence += 1;
                    program.write_all(&posted(Kind::RingConsumed, sequence, &fields))?;
                }
            }
            LinkLie::Unasked => {
                program.write_all(&frame)?;
                program.write_all(&posted(Kind::Data, sequence + 1, &[1; 13]))?;
            }
            LinkLie::Entries => {
                program.write_all(&frame)?;
                let entries = [&[1, 0, 0, 0, 0, 0, 0, 0][..], &[9; 64_000]].concat();
                for _ in 0..3 {
                    sequence += 1;
                    program.write_all(&posted(Kind::RingEntries, sequence, &entries))?;
                }
            }
        }
    }
}

/// A frame that nobody has sent.
fn posted(kind: Kind, sequence: u64, payload: &[u8]) -> Vec<u8> {
    let (kind, length) = (kind.number(), payload.len() as u32);
    let header = Header { kind, length, sequence, acknowledged: 0, tag: 0 };
    [&header.encode()[..], payload].concat()
}

/// Takes what comes, and passes nothing on.
fn silence(mut host: &UnixStream) -> std::io::Result<()> {
    let mut bytes = vec![0; 1 << 16];
    while host.read(&mut bytes)? > 0 {}
    Ok(())
}
