//! A network that is far away: the way into a lease, on which every byte takes a time.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use farside::CardPlace;
use farside_live::lease::{Term, Ticket};

use super::super::BenchError;
use super::hosts::failed;

/// Pieces that may be on their way.
const PIECES_MAX: usize = 1 << 10;
/// Bytes of a piece.
const PIECE: usize = 64 << 10;

/// A lease whose end on this host is as far away as the lender is to be. `folder` is a new one.
pub(super) fn delayed(
    place: &CardPlace,
    folder: &Path,
    delay: Duration,
) -> Result<CardPlace, BenchError> {
    let CardPlace::Lease(lease) = place else { return Err(failed("the card is not borrowed")) };
    std::fs::create_dir_all(folder)?;
    symlink(lease.join(Term::FILE), folder.join(Term::FILE))?;
    Ticket::read(lease).map_err(|error| failed(&error.to_string()))?.write(folder)?;
    relay(&folder.join(Ticket::LINK), lease.join(Ticket::LINK), delay)?;
    Ok(CardPlace::Lease(folder.to_owned()))
}

/// Passes connections from a socket to another, until this program ends.
pub(super) fn relay(from: &Path, to: PathBuf, delay: Duration) -> std::io::Result<()> {
    let listener = UnixListener::bind(from)?;
    let accept = move || {
        for near in listener.incoming().flatten() {
            // Who does not get through sees that it is hung up on.
            let _ = UnixStream::connect(&to).and_then(|far| join(near, far, delay));
        }
    };
    std::thread::Builder::new().name("farside-relay".into()).spawn(accept).map(drop)
}

fn join(near: UnixStream, far: UnixStream, delay: Duration) -> std::io::Result<()> {
    let (back_from, back_to) = (far.try_clone()?, near.try_clone()?);
    pass(near, far, delay)?;
    pass(back_from, back_to, delay)
}

/// Passes bytes one way. They leave the sender at once, and one thread lets them wait.
fn pass(mut from: UnixStream, to: UnixStream, delay: Duration) -> std::io::Result<()> {
    let (send, receive) = sync_channel(PIECES_MAX);
    let take = move || {
        let mut bytes = vec![0; PIECE];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if send.send((Instant::now() + delay, bytes[..count].to_vec())).is_err() {
                break;
            }
        }
    };
    let hand_on = move || hand_on(&receive, to);
    std::thread::Builder::new().name("farside-relay".into()).spawn(take)?;
    std::thread::Builder::new().name("farside-relay".into()).spawn(hand_on).map(drop)
}

fn hand_on(pieces: &Receiver<(Instant, Vec<u8>)>, mut to: UnixStream) {
    for (due, bytes) in pieces {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
