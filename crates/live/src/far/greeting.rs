//! How a link to a card begins and ends beside the card: which program it is that comes, and what a program is
//! told that is turned away.

use std::io;
use std::time::{Duration, Instant};

use farside_link::control::{HELLO_BYTES_MAX, session_of};
use farside_link::{Config, Endpoint, Event};
use farside_vfio_user::unix::Ready;

use super::CARD_BY_RINGS;
use super::carry::now;
use super::line::Line;
use crate::ring_card::CardStream;

/// Why a link ended, as one end tells the other: numbers of `Close` from 256 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u32)]
pub enum Farewell {
    /// The program did what it may not.
    #[error("the lender's end has refused what this program asked of the card")]
    Refused = 256,
    /// The card is gone, or makes no sense.
    #[error(
        "the card is gone from its lender's host, or cannot be used there; look with `farside cards` on \
         that host, or borrow another"
    )]
    NoCard = 257,
    /// As many programs use the card as it can serve.
    #[error("as many programs use the card as it can serve; end one, or borrow another card")]
    Busy = 258,
}

impl Farewell {
    /// The one with this number.
    pub(crate) fn of(code: u32) -> Option<Farewell> {
        let all = [Farewell::Refused, Farewell::NoCard, Farewell::Busy];
        all.into_iter().find(|&farewell| farewell as u32 == code)
    }
}

/// Reads what a connection begins with, and says which program's link it is about: the number that this has
/// drawn. Gives the line, from which nothing is lost. One that is of another lease is told so.
///
/// # Errors
/// It is no link, of another lease, or does not say so until `limit` is over.
pub fn greeted(
    mut stream: Box<dyn CardStream>,
    config: Config,
    limit: Duration,
) -> io::Result<(u64, Line)> {
    let end = Instant::now() + limit;
    let mut early = Vec::new();
    let mut space = [0; EARLY_BYTES];
    loop {
        match session_of(&early, &config) {
            Ok(None) => {}
            Ok(Some(session)) => return Ok((session, Line::after(stream, early)?)),
            Err(violation) => {
                // The end says what is wrong, before there is anything to take leave of.
                turn_away(config, Line::after(stream, early)?, Farewell::NoCard);
                return Err(io::Error::other(violation));
            }
        }
        if early.len() > HELLO_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let wanted = Ready { readable: true, writable: false };
        if stream.wait(wanted, Some(end))?.is_none() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match stream.receive_bytes(&mut space) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => early.extend_from_slice(&space[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// More than a record of TLS has.
const EARLY_BYTES: usize = 32 << 10;

/// How long somebody may take to hear that there is nothing for him.
const TURN_AWAY_LIMIT: Duration = Duration::from_secs(2);

/// Tells a program why it is not served.
pub fn turn_away(config: Config, mut line: Line, why: Farewell) {
    let mut end = Endpoint::lender(Config { capabilities: CARD_BY_RINGS, ..config });
    end.connected(now());
    let until = Instant::now() + TURN_AWAY_LIMIT;
    let (mut is_told, mut is_all_sent) = (false, true);
    while Instant::now() < until && !line_is_over(&mut line, &mut end, is_all_sent) {
        if end.is_up() && !is_told {
            end.close(why as u32);
            is_told = true;
        }
        match line.send(now(), &mut end) {
            Ok(is_all) => is_all_sent = is_all,
            Err(_) => return,
        }
    }
    line.hang_up();
}

/// Waits a moment for something to come, and takes it.
fn line_is_over(line: &mut Line, end: &mut Endpoint, is_all_sent: bool) -> bool {
    let pause = rustix::event::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    let is_new = !end.is_up();
    if line.receive(now(), end, load).is_err() {
        return true;
    }
    if is_new && end.is_up() {
        return false;
    }
    let mut polled = [rustix::event::PollFd::new(&*line, line.wanted(is_all_sent))];
    // Every outcome means: look.
    let _ = rustix::event::poll(&mut polled, Some(&pause));
    false
}

fn load(event: Event<'_>) -> Option<farside_link::endpoint::Load> {
    if let Event::Posted { load, .. } = event { Some(load) } else { None }
}
