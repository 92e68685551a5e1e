//! What a daemon tells the end of a lease, over a socket of packets: a packet each, with at most one
//! descriptor.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use farside_live::lease::BootTime;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::plain::Greeting;

/// A packet, at most.
const PACKET_MAX: usize = 64 << 10;

/// What an end of a lease is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// What it is there for: the first packet.
    Begin(Box<Begin>),
    /// The lease runs until then, in nanoseconds of CLOCK_BOOTTIME.
    Until(u64),
    /// The descriptor beside this is a connection that the borrower made.
    Connection,
    /// The descriptor beside this is where programs of this host come, which has borrowed from itself.
    Programs,
    /// A host was reached, by the descriptor beside this, or why not.
    Reached { number: u64, why: Option<String> },
}

/// What an end of a lease says to its daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Said {
    /// To one that comes.
    Hello(Hello),
    /// A connection to a host is wanted.
    Reach { number: u64, host: String },
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// A card of ours: a folder of functions.
    Card,
    /// One vfio-user device of whoever's making: a socket.
    Foreign,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Begin {
    /// For people: device, epoch, borrower.
    pub(crate) name: String,
    /// The lease's.
    pub(crate) epoch: u64,
    /// The device: its name, what it is, and where.
    pub(crate) device: String,
    pub(crate) kind: Kind,
    pub(crate) path: PathBuf,
    /// What this end shows, DER, and its key.
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
    /// What the borrower's end shows.
    pub(crate) peer: Vec<u8>,
    /// By which it is known instead, in a lease whose data goes without TLS.
    pub(crate) plain: Option<Greeting>,
    /// As in [`Order::Until`].
    pub(crate) until: u64,
}

/// What an end says to a daemon that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The process.
    pub(crate) pid: u32,
    /// The data of its lease goes without TLS.
    pub(crate) plain: bool,
    /// What its device is.
    pub(crate) kind: Kind,
}

/// Sends an order, and never waits.
///
/// # Errors
/// Those of `sendmsg`: the end is gone, or reads nothing.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    order: &impl Serialize,
    beside: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let text = serde_json::to_vec(order)?;
    let fds: Vec<BorrowedFd<'_>> = beside.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(&text)], &mut ancillary, flags)?;
    Ok(())
}

/// Takes an order; `None` at the end.
///
/// # Errors
/// Those of `recvmsg`, or it makes no sense.
pub(super) fn receive<O: DeserializeOwned>(
    socket: impl AsFd,
) -> io::Result<Option<(O, Option<OwnedFd>)>> {
    receive_with(socket, RecvFlags::empty())
}

/// The same, of what is there.
///
/// # Errors
/// As above, or nothing is.
pub(crate) fn receive_now<O: DeserializeOwned>(
    socket: impl AsFd,
) -> io::Result<Option<(O, Option<OwnedFd>)>> {
    receive_with(socket, RecvFlags::DONTWAIT)
}

fn receive_with<O: DeserializeOwned>(
    socket: impl AsFd,
    flags: RecvFlags,
) -> io::Result<Option<(O, Option<OwnedFd>)>> {
    let mut text = vec![0; PACKET_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut text)];
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut into, &mut ancillary, flags)?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let beside = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let order = serde_json::from_slice(&text[..received.bytes])?;
    Ok(Some((order, beside)))
}

/// How much longer a lease runs that runs until then.
pub(super) fn left(until: u64) -> Option<std::time::Duration> {
    let left = until.checked_sub(BootTime::now().0).filter(|&left| left > 0);
    left.map(std::time::Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn orders_come_as_they_went_each_with_its_descriptor() {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (a, b) = socketpair(kind.0, kind.1, kind.2, None).unwrap();
        let begin = Begin {
            name: "card0".to_owned(),
            epoch: 1,
            device: "card0".to_owned(),
            kind: Kind::Card,
            path: "/run/card0".into(),
            certificate: vec![1; 2000],
            key: vec![2; 300],
            peer: vec![3; 2000],
            plain: Some(Greeting { epoch: 7, secret: [4; 32] }),
            until: 7,
        };
        let orders =
            [Order::Begin(Box::new(begin)), Order::Until(9), Order::Connection, Order::Programs];
        assert_eq!(receive_now::<Order>(&b).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        for order in &orders {
            let has = matches!(order, Order::Connection | Order::Programs);
            let beside = has.then(|| b.as_fd());
            send(a.as_fd(), order, beside).unwrap();
        }
        for order in orders {
            let (received, beside) = receive::<Order>(&b).unwrap().unwrap();
            let has = matches!(order, Order::Connection | Order::Programs);
            assert_eq!(beside.is_some(), has);
            assert_eq!(received, order);
        }
        rustix::net::send(&a, b"nonsense", SendFlags::empty()).unwrap();
        assert!(receive::<Order>(&b).is_err());
        drop(a);
        assert!(receive::<Order>(&b).unwrap().is_none());
    }
}
