//! The end of a direct link that has the pieces: another lender's end reads what the borrower lends it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use farside_link::endpoint::Load;
use farside_link::frame::DATA_BYTES_MAX;
use farside_link::{Class, Config, Endpoint, Event, Frame, Outgoing, Tag};
use farside_linux::lock::lock;
use farside_linux::shared::SharedMemory;
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::io::Errno;
use thiserror::Error;

use super::super::carry::{Carried, Side, lines};
use super::super::line::Line;
use super::lent::{Lent, Wish};

/// What the borrower's link and the direct one share.
#[derive(Debug)]
pub(super) struct Lending {
    lent: Mutex<Lent>,
    /// Has the direct link look.
    bell: OwnedFd,
}

impl Lending {
    pub(super) fn new() -> io::Result<Lending> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Lending { lent: Mutex::default(), bell })
    }

    /// Bytes of pieces that were read whole.
    pub(super) fn bytes_read(&self) -> u64 {
        lock(&self.lent).bytes_read()
    }

    /// Changes what is lent. When this returns the direct link goes by it.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Lent) -> R) -> R {
        let result = change(&mut lock(&self.lent));
        // Full means that it is going to look.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        result
    }
}

/// Why a direct link is served no more.
#[derive(Debug, Error)]
enum Gone {
    #[error("its borrower lends nothing any more")]
    Over,
    #[error("the other lender's end sent what it may not")]
    Nonsense,
}

/// A piece that is being sent.
#[derive(Debug)]
struct Reading {
    tag: Tag,
    transfer: u64,
    done: u32,
}

/// See the module.
struct Source {
    lending: Arc<Lending>,
    memory: Arc<SharedMemory>,
    /// Wishes for what may be lent yet: as many as the link has credit for.
    early: VecDeque<(Tag, u64, u32)>,
    reading: VecDeque<Reading>,
    out: Outgoing,
    failed: Option<Gone>,
}

/// Serves another lender's end over its one connection, until either has had enough.
pub(super) fn serve(config: Config, line: Line, lending: Arc<Lending>, memory: Arc<SharedMemory>) {
    let Ok((new, lines)) = lines() else { return };
    let mut source = Source {
        lending,
        memory,
        early: VecDeque::new(),
        reading: VecDeque::new(),
        out: Outgoing::default(),
        failed: None,
    };
    // One that breaks is not replaced: whoever fetches begins anew, by another admission.
    let mut carried = Carried::new(Endpoint::lender(config), line, &lines, &|| false);
    let over = carried.carry(&mut source);
    tracing::debug!(%over, "a direct link of another lender's end has ended");
    drop(new);
}

impl Side for Source {
    type Gone = Gone;

    fn frame(&mut self, event: Event<'_>) -> Option<Load> {
        match event {
            Event::Request { tag, frame: Frame::PeerRead { transfer, bytes } } => {
                self.wish(tag, transfer, bytes);
                None
            }
            Event::Request { .. } => {
                self.failed = Some(Gone::Nonsense);
                None
            }
            Event::Posted { load, .. } => {
                self.failed = Some(Gone::Nonsense);
                Some(load)
            }
            _ => None,
        }
    }

    fn turn(&mut self, link: &mut Endpoint, is_ready: bool) -> Result<(), Gone> {
        if is_ready {
            // It does not block.
            let _ = rustix::io::read(&self.lending.bell, &mut [0; 8]);
            for (tag, transfer, bytes) in std::mem::take(&mut self.early) {
                self.wish(tag, transfer, bytes);
            }
        }
        if lock(&self.lending.lent).is_over() {
            return Err(Gone::Over);
        }
        self.out.flush(link);
        self.send(link);
        self.failed.take().map_or(Ok(()), Err)
    }

    fn has_waiting(&self) -> bool {
        !self.out.is_empty() || !self.reading.is_empty()
    }

    fn polled(&mut self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        vec![(self.lending.bell.as_fd(), PollFlags::IN)]
    }

    fn ends_with_connection(&self) -> bool {
        true
    }
}

impl Source {
    fn wish(&mut self, tag: Tag, transfer: u64, bytes: u32) {
        match lock(&self.lending.lent).ask(transfer, bytes) {
            Wish::Granted => self.reading.push_back(Reading { tag, transfer, done: 0 }),
            Wish::Later => self.early.push_back((tag, transfer, bytes)),
            Wish::Refused => self.out.push(tag, refused()),
        }
    }

    /// Sends what is being read, as long as little is ahead.
    fn send(&mut self, link: &mut Endpoint) {
        while let Some(mut reading) = self.reading.pop_front() {
            if self.send_piece(link, &mut reading) {
                self.reading.push_front(reading);
                break;
            }
        }
    }

    /// Sends more of a piece; whether there is more of it, for which there is no room now. What the borrower
    /// ends meanwhile is not read any more: it does so under the lock.
    fn send_piece(&mut self, link: &mut Endpoint, reading: &mut Reading) -> bool {
        let &mut Reading { tag, transfer, ref mut done } = reading;
        loop {
            let mut lent = lock(&self.lending.lent);
            let Some(piece) = lent.piece(transfer) else {
                self.out.push(tag, refused());
                return false;
            };
            let bytes = (piece.bytes - *done).min(DATA_BYTES_MAX as u32);
            if link.may_send(Class::Reply, bytes as usize).is_err() {
                return true;
            }
            let mut data = link.room(bytes as usize);
            let last = *done + bytes == piece.bytes;
            if self.memory.read(piece.offset + u64::from(*done), &mut data).is_none() {
                lent.end(transfer);
                continue;
            }
            if last {
                lent.read(transfer);
            }
            drop(lent);
            // If the link is over, that is seen by whoever drives it.
            let sent = link.send(tag, Frame::Data { offset: *done, last, data });
            if last || sent.is_err() {
                return false;
            }
            *done += bytes;
        }
    }
}

fn refused() -> Frame<Vec<u8>> {
    Frame::Failed { errno: Errno::PERM.raw_os_error() as u32 }
}
