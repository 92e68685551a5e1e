//! The local client's side: its connection, its memory and eventfds, and the borrower's end of the link.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use farside_link::description::Description;
use farside_link::endpoint::Load;
use farside_link::{Endpoint, Event};
use farside_live::far::Side;
use farside_vfio_user::unix::Connection;
use rustix::event::PollFlags;

use super::device_side::is_later;
use super::{Gone, READS_MAX};
use crate::end::tally::{Count, Counted, OfLink, Refused, Tally};
use crate::ends::borrower::BorrowerEnd;
use crate::ends::local::ByDescriptors;

/// See the module.
pub(super) struct ClientSide {
    socket: Connection,
    end: BorrowerEnd<ByDescriptors>,
    /// Where it counts, if it is alone there: on the lender's host the other end counts in the same place.
    counted: Option<OfLink>,
}

impl ClientSide {
    /// For a client that has just come.
    ///
    /// # Errors
    /// The device's description contradicts itself, or the system fails.
    pub(super) fn new(
        client: UnixStream,
        described: &Description,
        epoch: u64,
        tally: Option<&Arc<Tally>>,
    ) -> io::Result<ClientSide> {
        let end = BorrowerEnd::new(described, epoch, ByDescriptors::new);
        let end = end.map_err(io::Error::other)?;
        let socket = Connection::new(client);
        socket.set_nonblocking(true)?;
        let counted = tally.map(|tally| OfLink::new(Arc::clone(tally)));
        Ok(ClientSide { socket, end, counted })
    }

    fn read(&mut self, link: &mut Endpoint) -> Result<(), Gone> {
        for _ in 0..READS_MAX {
            let server = self.end.server();
            if !server.wants_input() {
                return Ok(());
            }
            let mut fds = Vec::new();
            let space = server.space();
            let room = space.len();
            let count = match self.socket.receive(space, &mut fds) {
                Ok(0) => return Err(Gone::Closed),
                Ok(count) => count,
                Err(error) if is_later(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            server.received(count, fds)?;
            self.drive(link)?;
            if count < room {
                return Ok(());
            }
        }
        Ok(())
    }

    fn drive(&mut self, link: &mut Endpoint) -> Result<(), Gone> {
        let driven = self.end.drive(link);
        // One who speaks nonsense is told so first.
        self.flush()?;
        Ok(driven?)
    }

    fn flush(&mut self) -> Result<(), Gone> {
        let server = self.end.server();
        while let Some(transmit) = server.transmit() {
            match self.socket.send(transmit) {
                Ok(count) => server.sent(count),
                Err(error) if is_later(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn count(&mut self, link: &Endpoint) {
        let Some(counted) = &mut self.counted else { return };
        let own = self.end.counters();
        let now = Counted::of_link(&link.counters(), &self.end.refusals())
            .with(Count::Refused(Refused::Misplaced), own.misplaced)
            .with(Count::Refused(Refused::Device), own.failed);
        counted.is_at(now);
    }

    /// The lease is over for it: its commands fail, then its connection ends.
    pub(super) fn end(mut self, link: &Endpoint, lease: &str) {
        self.count(link);
        self.end.end();
        // It may be gone already.
        let _ = self.flush();
        let _ = self.socket.shutdown();
        let (refusals, counters) = (self.end.refusals(), self.end.counters());
        if refusals.total() > 0 || counters.refused > 0 || counters.misplaced > 0 {
            tracing::warn!(lease, ?refusals, ?counters, "accesses of a lease were refused");
        }
    }
}

impl Side for ClientSide {
    type Gone = Gone;

    fn frame(&mut self, event: Event<'_>) -> Option<Load> {
        self.end.frame(&event)
    }

    fn turn(&mut self, link: &mut Endpoint, is_ready: bool) -> Result<(), Gone> {
        if is_ready {
            self.read(link)?;
        }
        self.drive(link)?;
        self.count(link);
        Ok(())
    }

    fn has_waiting(&self) -> bool {
        self.end.has_waiting()
    }

    fn polled(&mut self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let server = self.end.server();
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, server.wants_input());
        wanted.set(PollFlags::OUT, server.queued_bytes() > 0);
        vec![(self.socket.as_fd(), wanted)]
    }
}
