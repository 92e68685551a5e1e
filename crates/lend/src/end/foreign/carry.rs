//! An end of a link in a process: carries frames between a side and the connection there is, for as long
//! as the link goes on. Whoever makes connections gives them; the one that comes last counts.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use farside_link::error::End;
use farside_link::line::Line;
use farside_link::{Endpoint, Event};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::{Gone, Side, now};

/// What a link that its own side has ended may still take until the other end knows.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);
/// Turns before it is slept: more room than a link has credit for has come free in these.
const TURNS_MAX: usize = 8;
/// What a side's end is said by.
const SIDE_GONE: u32 = 0;

/// Where connections come from.
pub(super) struct Lines {
    lines: Receiver<Line>,
    wake: Arc<OwnedFd>,
}

/// Gives connections.
#[derive(Clone)]
pub(super) struct NewLines {
    lines: Sender<Line>,
    wake: Arc<OwnedFd>,
}

impl NewLines {
    /// Gives one; whether anybody wants it.
    pub(super) fn give(&self, line: Line) -> bool {
        let wanted = self.lines.send(line).is_ok();
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        wanted
    }
}

/// A way for connections.
pub(super) fn lines() -> io::Result<(NewLines, Lines)> {
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let wake = Arc::new(wake);
    let (sender, lines) = channel();
    Ok((NewLines { lines: sender, wake: Arc::clone(&wake) }, Lines { lines, wake }))
}

impl Lines {
    /// Waits for one; `None` if none will ever come.
    pub(super) fn wait(&self) -> Option<Line> {
        let line = self.lines.recv().ok()?;
        self.is_woken();
        Some(line)
    }

    fn is_woken(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }
}

/// Why a link is carried no more.
#[derive(Debug, thiserror::Error)]
pub(super) enum Over {
    /// The side has what it wanted; the link goes on.
    #[error("it is done")]
    Done,
    /// The link is over.
    #[error(transparent)]
    Link(#[from] End),
    /// There is nobody at this end any more, and the other end was told.
    #[error(transparent)]
    Side(#[from] Gone),
}

/// See the module.
pub(super) struct Carried<'a> {
    end: Endpoint,
    line: Option<Line>,
    is_all_sent: bool,
    lines: &'a Lines,
    /// Has another connection made.
    ask: &'a dyn Fn(),
    ended: Option<End>,
}

impl<'a> Carried<'a> {
    /// A link with its first connection. `ask` is called when another is wanted.
    pub(super) fn new(
        mut end: Endpoint,
        line: Line,
        lines: &'a Lines,
        ask: &'a dyn Fn(),
    ) -> Carried<'a> {
        end.connected(now());
        Carried { end, line: Some(line), is_all_sent: false, lines, ask, ended: None }
    }

    /// Carries until something is over.
    pub(super) fn carry(&mut self, side: &mut impl Side) -> Over {
        let mut is_ready = true;
        loop {
            self.take_line();
            self.end.handle_timeout(now());
            self.take_events(side);
            if let Err(gone) = self.turns(side, is_ready) {
                self.say_farewell();
                return Over::Side(gone);
            }
            if let Some(end) = self.ended {
                // What it has to say of that is for it to hear, if it still listens.
                self.flush();
                return Over::Link(end);
            }
            if side.is_done() {
                return Over::Done;
            }
            is_ready = self.wait(side);
        }
    }

    /// Sleeps until something has happened, and reads what the connection brings. Says whether the side
    /// may have something to read.
    fn wait(&mut self, side: &mut impl Side) -> bool {
        let left = self.end.poll_timeout().map(|at| at.saturating_sub(now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let wanted = self.line.as_ref().map(|line| line.wanted(self.is_all_sent));
        let nobody = self.lines.wake.as_fd();
        let line = self.line.as_ref().map_or(nobody, |line| line.as_fd());
        let mut polled = vec![
            PollFd::from_borrowed_fd(nobody, PollFlags::IN),
            PollFd::from_borrowed_fd(line, wanted.unwrap_or(PollFlags::IN)),
        ];
        let fds: Vec<(BorrowedFd<'_>, PollFlags)> = side.polled();
        polled.extend(fds.iter().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)));
        // Every outcome means: look.
        let _ = poll(&mut polled, left.as_ref());
        let line = wanted.is_some() && !polled[1].revents().is_empty();
        let is_ready = polled[2..].iter().any(|polled| !polled.revents().is_empty());
        drop(polled);
        drop(fds);
        if line {
            self.receive(side);
        }
        is_ready
    }

    fn receive(&mut self, side: &mut impl Side) {
        let Some(line) = &mut self.line else { return };
        let (mut is_lost, ended) = (false, &mut self.ended);
        let received = line.receive(now(), &mut self.end, |event| {
            note(&event, &mut is_lost, ended);
            side.frame(event)
        });
        if let Err(broken) = &received {
            tracing::debug!(%broken, "a connection of a lease has ended");
        }
        if is_lost || received.is_err() {
            self.lose();
        }
    }

    /// What has happened without the connection.
    fn take_events(&mut self, side: &mut impl Side) {
        let mut is_lost = false;
        loop {
            let load = match self.end.poll_event(now()) {
                None => break,
                Some(event) => {
                    note(&event, &mut is_lost, &mut self.ended);
                    side.frame(event)
                }
            };
            if let Some(load) = load {
                self.end.done(load);
            }
        }
        if is_lost {
            self.lose();
        }
    }

    fn turns(&mut self, side: &mut impl Side, mut is_ready: bool) -> Result<(), Gone> {
        for _ in 0..TURNS_MAX {
            side.turn(&mut self.end, is_ready)?;
            is_ready = false;
            self.flush();
            if !self.is_all_sent || !side.has_waiting() {
                break;
            }
        }
        Ok(())
    }

    fn flush(&mut self) {
        let Some(line) = &mut self.line else { return };
        match line.send(now(), &mut self.end) {
            Ok(is_all) => self.is_all_sent = is_all,
            Err(broken) => {
                tracing::debug!(%broken, "a connection of a lease has ended");
                self.lose();
            }
        }
    }

    /// The connection is over; the link may go on over another.
    fn lose(&mut self) {
        self.flush_last();
        self.line = None;
        self.end.disconnected(now());
        if self.ended.is_none() {
            (self.ask)();
        }
    }

    /// What there is to say to whom it is not with may be tried once.
    fn flush_last(&mut self) {
        if let Some(line) = &mut self.line {
            let _ = line.send(now(), &mut self.end);
        }
    }

    fn take_line(&mut self) {
        self.lines.is_woken();
        loop {
            match self.lines.lines.try_recv() {
                Ok(line) => {
                    self.line = Some(line);
                    self.end.connected(now());
                    self.is_all_sent = false;
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
    }

    /// Tells the other end that this one ends, and waits until it has hung up, so that whoever begins
    /// anew does not come before that is known.
    fn say_farewell(&mut self) {
        self.end.close(SIDE_GONE);
        let until = Instant::now() + FAREWELL_LIMIT;
        self.flush();
        while let Some(line) = &mut self.line {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let left = Timespec::try_from(left).ok();
            let mut polled = [PollFd::new(line, line.wanted(self.is_all_sent))];
            let _ = poll(&mut polled, left.as_ref());
            // Nothing of it counts any more, but its end.
            if line.receive(now(), &mut self.end, |_| None).is_err() {
                return;
            }
            self.flush();
        }
    }
}

fn note(event: &Event<'_>, is_lost: &mut bool, ended: &mut Option<End>) {
    match event {
        Event::Lost(why) => {
            tracing::debug!(%why, "a connection of a lease is lost");
            *is_lost = true;
        }
        Event::Ended(end) => *ended = Some(*end),
        _ => {}
    }
}
