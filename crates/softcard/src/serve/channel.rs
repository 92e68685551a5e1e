//! What the supervisor and the processes of a lease tell one another.
//!
//! Each side has an end of its own of a pair of sockets, so neither can make the other wait: both
//! send and receive without blocking, and a message that finds no room is left out.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use farside_card::interface::register::{COUNTER_NAMES, MEMORIES_MAX};
use farside_vfio_user::unix::Peer;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};

/// Counters of a function.
pub(super) const COUNTERS: usize = COUNTER_NAMES.len();

/// Memories of a function's window, at most.
const MEMORIES: usize = MEMORIES_MAX as usize;

/// What is told: words, the first of which says what it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// A client has been accepted: the process at its end, if the system says.
    Begun(Option<u32>),
    /// The supervisor wants a [`Report`].
    Ask,
    /// The answer.
    Report(Box<Report>),
}

/// What a worker does now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Report {
    /// Jobs that run.
    pub(super) jobs: u64,
    /// Threads whose kernels were given up and still run.
    pub(super) hung: u64,
    /// Frames of its window's memories that nobody has, in the order of their numbers.
    pub(super) frames_free: [u64; MEMORIES],
    /// The function's counters, in their order.
    pub(super) counters: [u64; COUNTERS],
}

impl Default for Report {
    fn default() -> Report {
        // Who has told nothing yet, has given nothing of its memories.
        let frames_free = [u64::MAX; MEMORIES];
        Report { jobs: 0, hung: 0, frames_free, counters: [0; COUNTERS] }
    }
}

const BEGUN: u64 = 1;
const ASK: u64 = 2;
const REPORT: u64 = 3;

/// Words of the longest message.
const WORDS_MAX: usize = 3 + MEMORIES + COUNTERS;

impl Message {
    fn words(&self) -> Vec<u64> {
        match self {
            Message::Begun(pid) => vec![BEGUN, pid.map_or(0, u64::from)],
            Message::Ask => vec![ASK],
            Message::Report(report) => {
                let head = [REPORT, report.jobs, report.hung];
                head.into_iter().chain(report.frames_free).chain(report.counters).collect()
            }
        }
    }

    fn from_words(words: &[u64]) -> Option<Message> {
        match *words {
            [BEGUN, pid] => Some(Message::Begun(u32::try_from(pid).ok().filter(|&pid| pid > 0))),
            [ASK] => Some(Message::Ask),
            [REPORT, jobs, hung, ref rest @ ..] => {
                let (frames_free, counters) = rest.split_at_checked(MEMORIES)?;
                let frames_free = frames_free.try_into().ok()?;
                let counters = counters.try_into().ok()?;
                Some(Message::Report(Box::new(Report { jobs, hung, frames_free, counters })))
            }
            _ => None,
        }
    }

    /// That a client is there.
    pub(super) fn begun(peer: Option<Peer>) -> Message {
        Message::Begun(peer.map(|peer| peer.pid))
    }
}

/// One end.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

impl Channel {
    /// Two ends.
    pub(super) fn pair() -> Result<(Channel, Channel), Errno> {
        let flags = SocketFlags::CLOEXEC;
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Channel(a), Channel(b)))
    }

    /// Sends, unless the other end is gone or does not take anything in.
    pub(super) fn send(&self, message: &Message) {
        let bytes: Vec<u8> = message.words().into_iter().flat_map(u64::to_ne_bytes).collect();
        let _ = send(&self.0, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// The next message that makes sense, if there is one.
    pub(super) fn receive(&self) -> Option<Message> {
        let mut bytes = [0; 8 * WORDS_MAX];
        // A message that is too long is cut off, and then makes no sense.
        let (count, _) = recv(&self.0, &mut bytes, RecvFlags::DONTWAIT).ok()?;
        let words: Vec<u64> = bytes[..count]
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
            .collect();
        Message::from_words(&words)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_and_nothing_waits() {
        let (a, b) = Channel::pair().unwrap();
        assert_eq!(b.receive(), None);
        let counters = std::array::from_fn(|index| index as u64 * 3);
        let frames_free = std::array::from_fn(|index| index as u64 * 5);
        let report = Report { jobs: 2, hung: 1, frames_free, counters };
        let report = Message::Report(Box::new(report));
        for message in [Message::Begun(Some(42)), Message::Begun(None), Message::Ask, report] {
            a.send(&message);
            assert_eq!(b.receive(), Some(message));
        }
        // Far more than there is room for, to somebody who does not listen.
        for _ in 0..10_000 {
            a.send(&Message::Ask);
        }
        send(&b.0, &[0; 24], SendFlags::empty()).unwrap();
        assert_eq!(a.receive(), None, "nonsense is nothing");
        drop(b);
        a.send(&Message::Ask);
        assert_eq!(a.receive(), None);
    }
}
