//! An end of a link in a process: carries frames between a side and the connection there is, for as long
//! as the link goes on. Whoever makes connections gives them; the one that comes last counts.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use farside_link::endpoint::Load;
use farside_link::error::{End, Lost};
use farside_link::{Endpoint, Event};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::line::{Broken, Line, events};
use crate::lease::BootTime;

/// What a link that its own side has ended may still take until the other end knows.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);
/// Turns before it is slept: as much bulk as a link has credit for leaves in these.
const TURNS_MAX: usize = 16;

/// The time for a link.
#[must_use]
pub fn now() -> Duration {
    Duration::from_nanos(BootTime::now().0)
}

/// What is at one end of a link.
pub trait Side {
    /// Why there is nobody any more.
    type Gone: std::error::Error;

    /// The link has brought something. Gives the load of a posted frame that is done.
    fn frame(&mut self, event: Event<'_>) -> Option<Load>;

    /// Does what can be done. `is_ready` says that there may be something to read.
    ///
    /// # Errors
    /// There is nobody any more.
    fn turn(&mut self, link: &mut Endpoint, is_ready: bool) -> Result<(), Self::Gone>;

    /// Whether frames wait for the link.
    fn has_waiting(&self) -> bool;

    /// What wakes it, and by what.
    fn polled(&mut self) -> Vec<(BorrowedFd<'_>, PollFlags)>;

    /// Asked before it is slept, and told to whoever would wake this otherwise.
    fn rest(&mut self) -> Rest {
        Rest::Sleep
    }

    /// Whether it has what it wanted.
    fn is_done(&self) -> bool {
        false
    }

    /// Whether a link whose other end has closed its connection in order is over. Otherwise it may go on
    /// over another.
    fn ends_with_connection(&self) -> bool {
        false
    }

    /// How long the other end may take to hang up when there is nobody any more at this one.
    fn farewell_limit(&self) -> Duration {
        FAREWELL_LIMIT
    }

    /// By which number the other end is told why there is nobody any more.
    fn code(&self, _gone: &Self::Gone) -> u32 {
        0
    }
}

/// How long may be slept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Not at all: there is something to do.
    Work,
    /// For so long at most.
    Nap(Duration),
    /// Until something happens.
    Sleep,
}

/// Where connections come from.
#[derive(Debug)]
pub struct Lines {
    lines: Receiver<Line>,
    wake: Arc<OwnedFd>,
}

/// Gives connections.
#[derive(Clone, Debug)]
pub struct NewLines {
    /// Until it is dropped.
    lines: Option<Sender<Line>>,
    wake: Arc<OwnedFd>,
}

impl NewLines {
    /// Gives one; whether anybody wants it.
    pub fn give(&self, line: Line) -> bool {
        let wanted = self.lines.as_ref().is_some_and(|lines| lines.send(line).is_ok());
        self.wake();
        wanted
    }

    fn wake(&self) {
        // Full means that it is going to look.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for NewLines {
    /// Nothing may come any more, which whoever waits has to see: when it is woken, and not just behind that.
    fn drop(&mut self) {
        drop(self.lines.take());
        self.wake();
    }
}

/// A way for connections.
///
/// # Errors
/// Those of `eventfd`.
pub fn lines() -> io::Result<(NewLines, Lines)> {
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let wake = Arc::new(wake);
    let (sender, lines) = channel();
    Ok((NewLines { lines: Some(sender), wake: Arc::clone(&wake) }, Lines { lines, wake }))
}

impl Lines {
    /// Waits for one; `None` if none will ever come.
    #[must_use]
    pub fn wait(&self) -> Option<Line> {
        self.lines.recv().ok()
    }
}

/// Why a link is carried no more.
#[derive(Debug, thiserror::Error)]
pub enum Over<G: std::error::Error> {
    /// The side has what it wanted; the link goes on.
    #[error("it is done")]
    Done,
    /// The other end has closed the connection, and that was all.
    #[error("the other end has hung up")]
    HungUp,
    /// The link is over.
    #[error(transparent)]
    Link(#[from] End),
    /// There is nobody at this end any more, and the other end was told.
    #[error("{0}")]
    Side(G),
}

/// See the module.
pub struct Carried<'a> {
    end: Endpoint,
    line: Option<Line>,
    /// Connections that were given up because nothing came, until there is another. Their ends would travel, late, to
    /// who has heard of no other yet, and takes the end of its connection for that of the program.
    silent: Vec<Line>,
    is_all_sent: bool,
    lines: &'a Lines,
    /// There may be another connection.
    is_woken: bool,
    /// Has another connection made; whether there may be one.
    ask: &'a dyn Fn() -> bool,
    ended: Option<End>,
    has_hung_up: bool,
    /// Nothing can be sent over the connection any more.
    is_broken: bool,
}

impl<'a> Carried<'a> {
    /// A link with its first connection. `ask` is called when another is wanted, and says whether one may
    /// come.
    #[must_use]
    pub fn new(
        mut end: Endpoint,
        line: Line,
        lines: &'a Lines,
        ask: &'a dyn Fn() -> bool,
    ) -> Carried<'a> {
        end.connected(now());
        Carried {
            end,
            line: Some(line),
            silent: Vec::new(),
            is_all_sent: false,
            lines,
            is_woken: true,
            ask,
            ended: None,
            has_hung_up: false,
            is_broken: false,
        }
    }

    /// What has gone over it.
    #[must_use]
    pub fn end(&self) -> &Endpoint {
        &self.end
    }

    /// Carries until something is over.
    pub fn carry<S: Side>(&mut self, side: &mut S) -> Over<S::Gone> {
        let mut is_ready = true;
        loop {
            self.take_line(side);
            self.end.handle_timeout(now());
            self.take_events(side);
            if let Err(gone) = self.turns(side, is_ready) {
                self.say_farewell(side.code(&gone), side.farewell_limit());
                return Over::Side(gone);
            }
            if self.is_broken {
                // How the other end has left it is to be read.
                self.receive(side, true);
                self.lose(None);
            }
            if let Some(end) = self.ended {
                // What it has to say of that is for it to hear, if it still listens.
                self.flush();
                self.hang_up();
                return Over::Link(end);
            }
            if self.has_hung_up && side.ends_with_connection() {
                self.hang_up();
                return Over::HungUp;
            }
            if side.is_done() {
                return Over::Done;
            }
            is_ready = self.wait(side);
        }
    }

    /// Sleeps until something has happened, and reads what the connection brings. Says whether the side
    /// may have something to read.
    fn wait<S: Side>(&mut self, side: &mut S) -> bool {
        let most = match side.rest() {
            Rest::Work => Some(Duration::ZERO),
            Rest::Nap(most) => Some(most),
            Rest::Sleep => None,
        };
        let left = self.end.poll_timeout().map(|at| at.saturating_sub(now()));
        let left = left.into_iter().chain(most).min();
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
        self.is_woken |= !polled[0].revents().is_empty();
        let line = wanted.is_some() && !polled[1].revents().is_empty();
        let is_ready = polled[2..].iter().any(|polled| !polled.revents().is_empty());
        drop(polled);
        drop(fds);
        if line {
            self.receive(side, false);
        }
        is_ready
    }

    /// Reads the connection; `is_last` if it is not going to be read again.
    fn receive(&mut self, side: &mut impl Side, is_last: bool) {
        let Some(line) = &mut self.line else { return };
        let mut noted = Noted::default();
        let on = |event: Event<'_>| {
            noted.note(&event);
            side.frame(event)
        };
        let received = if is_last {
            line.receive_last(now(), &mut self.end, on)
        } else {
            line.receive(now(), &mut self.end, on)
        };
        if let Err(broken) = &received {
            tracing::debug!(%broken, "a connection of a lease has ended");
            self.has_hung_up |= matches!(broken, Broken::HungUp);
        }
        let is_over = received.is_err();
        self.take(noted, is_over);
    }

    /// Takes what was noted; the connection may be over besides.
    fn take(&mut self, noted: Noted, is_over: bool) {
        self.ended = noted.ended.or(self.ended);
        if noted.is_up {
            self.silent.clear();
        }
        if noted.lost.is_some() || is_over {
            self.lose(noted.lost);
        }
    }

    /// What has happened without the connection.
    fn take_events(&mut self, side: &mut impl Side) {
        let mut noted = Noted::default();
        events(now(), &mut self.end, &mut |event| {
            noted.note(&event);
            side.frame(event)
        });
        self.take(noted, false);
    }

    fn turns<S: Side>(&mut self, side: &mut S, mut is_ready: bool) -> Result<(), S::Gone> {
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
                tracing::debug!(%broken, "nothing can be sent over a connection of a lease");
                self.is_broken = true;
            }
        }
    }

    /// The connection is over, for a reason if the endpoint gave it up; the link may go on over another.
    fn lose(&mut self, why: Option<Lost>) {
        if self.line.is_none() {
            return;
        }
        // What there is to say to whom it is not with may be tried once.
        self.flush();
        let line = self.line.take();
        if matches!(why, Some(Lost::Silent | Lost::NoGreeting)) {
            self.silent.extend(line);
        }
        self.is_broken = false;
        self.end.disconnected(now());
        if self.ended.is_none() && !(self.ask)() {
            self.ended = Some(End::NoConnection);
        }
    }

    /// Ends the connection in order: the other end is not to think that it was cut.
    fn hang_up(&mut self) {
        if let Some(line) = &mut self.line {
            line.hang_up();
        }
    }

    fn take_line(&mut self, side: &mut impl Side) {
        if !std::mem::take(&mut self.is_woken) {
            return;
        }
        let _ = rustix::io::read(&self.lines.wake, &mut [0; 8]);
        loop {
            match self.lines.lines.try_recv() {
                Ok(line) => {
                    self.line = Some(line);
                    self.has_hung_up = false;
                    self.end.connected(now());
                    self.is_all_sent = false;
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    if self.line.is_none() {
                        self.ended.get_or_insert(End::NoConnection);
                    }
                    break;
                }
            }
        }
        // Something may have come with it already, which nothing polls for.
        self.receive(side, false);
    }

    /// Tells the other end that this one ends, and waits until it has hung up, so that whoever begins
    /// anew does not come before that is known.
    fn say_farewell(&mut self, code: u32, limit: Duration) {
        self.end.close(code);
        let until = Instant::now() + limit;
        self.flush();
        while let Some(line) = &mut self.line {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_broken {
                return;
            }
            let left = Timespec::try_from(left).ok();
            let mut polled = [PollFd::new(line, line.wanted(self.is_all_sent))];
            let _ = poll(&mut polled, left.as_ref());
            // Nothing of it counts any more, but its end.
            if line.receive(now(), &mut self.end, |_| None).is_err() {
                return line.hang_up();
            }
            self.flush();
        }
    }
}

/// What events have said of the connection and of the link.
#[derive(Default)]
struct Noted {
    is_up: bool,
    lost: Option<Lost>,
    ended: Option<End>,
}

impl Noted {
    fn note(&mut self, event: &Event<'_>) {
        match event {
            Event::Up { .. } => self.is_up = true,
            Event::Lost(why) => {
                tracing::debug!(%why, "a connection of a lease is lost");
                self.lost = Some(*why);
            }
            Event::Ended(end) => self.ended = Some(*end),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, Ordering};

    use farside_link::endpoint::{Config, Lease};
    use farside_vfio_user::unix::Plain;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    /// Has what it wanted once the link has been up twice.
    #[derive(Default)]
    struct UpTwice(u32);

    impl Side for UpTwice {
        type Gone = Infallible;

        fn frame(&mut self, event: Event<'_>) -> Option<Load> {
            self.0 += u32::from(matches!(event, Event::Up { .. }));
            None
        }

        fn turn(&mut self, _link: &mut Endpoint, _is_ready: bool) -> Result<(), Infallible> {
            Ok(())
        }

        fn has_waiting(&self) -> bool {
            false
        }

        fn polled(&mut self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
            Vec::new()
        }

        fn is_done(&self) -> bool {
            self.0 == 2
        }
    }

    fn pair() -> [Line; 2] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        [ours, theirs].map(|stream| Line::new(Box::new(Plain::new(stream))).unwrap())
    }

    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + LIMIT;
        while !is_so() {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The other end says who it is over a connection.
    fn greet(end: &mut Endpoint, line: &mut Line) {
        end.connected(now());
        until("it does not come up", || {
            line.receive(now(), end, |_| None).unwrap();
            let is_all_sent = line.send(now(), end).unwrap();
            end.is_up() && is_all_sent
        });
    }

    /// Who hears of its end would take the program for gone: the end of the connection travels as well as the
    /// next one does, and may come first.
    #[test]
    fn a_connection_that_is_given_up_for_its_silence_ends_when_there_is_another() {
        let silence = Duration::from_millis(200);
        let config = Config { silence, ..Config::new(Lease { device: "card0".into(), epoch: 1 }) };
        let ([first, mut theirs], [second, mut theirs_again]) = (pair(), pair());
        let (new, lines) = lines().unwrap();
        let asked = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (borrower, asked) = (Endpoint::borrower(config.clone(), 9), &asked);
            let ours = scope.spawn(move || {
                let ask = || {
                    asked.store(true, Ordering::SeqCst);
                    true
                };
                let mut carried = Carried::new(borrower, first, &lines, &ask);
                assert!(matches!(carried.carry(&mut UpTwice::default()), Over::Done));
            });
            let mut end = Endpoint::lender(config);
            greet(&mut end, &mut theirs);
            // From here on it is silent.
            until("it asks for no other", || asked.load(Ordering::SeqCst));
            for _ in 0..20 {
                theirs.receive(now(), &mut end, |_| None).expect("it has not ended");
                std::thread::sleep(Duration::from_millis(5));
            }
            end.disconnected(now());
            assert!(new.give(second));
            greet(&mut end, &mut theirs_again);
            ours.join().unwrap();
            until("it does not end", || theirs.receive(now(), &mut end, |_| None).is_err());
        });
    }

    #[test]
    fn whoever_is_woken_because_no_connection_will_come_finds_that_none_will() {
        for _ in 0..5_000 {
            let (new, lines) = lines().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| drop(new));
                let mut polled = [PollFd::new(&*lines.wake, PollFlags::IN)];
                poll(&mut polled, None).unwrap();
                assert!(matches!(lines.lines.try_recv(), Err(TryRecvError::Disconnected)));
            });
        }
    }
}
