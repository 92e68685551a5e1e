//! The device's side: its connection, its interrupts, and the lender's end of the link.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farside_link::endpoint::Load;
use farside_link::{Endpoint, Event};
use farside_live::far::Side;
use farside_vfio_user::Errno;
use farside_vfio_user::unix::Connection;
use rustix::event::PollFlags;

use super::raises::Raises;
use super::{Gone, READS_MAX};
use crate::end::tally::{Count, Counted, OfLink, Refused, Tally};
use crate::ends::lender::LenderEnd;

/// How long the device may take to agree on a version.
const AGREE_LIMIT: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct DeviceSide {
    socket: Connection,
    end: LenderEnd<Arc<Raises>>,
    raises: Arc<Raises>,
    /// Interrupts behind data that has not been read yet.
    noted: Vec<(u32, u32)>,
    counted: OfLink,
}

impl DeviceSide {
    /// Connects to a device, and agrees on a version with it, for a lease with this epoch.
    ///
    /// # Errors
    /// It is not there, another has it, or there are no descriptors for it.
    pub(super) fn connect(device: &Path, epoch: u64, tally: &Arc<Tally>) -> io::Result<DeviceSide> {
        let socket = Connection::new(UnixStream::connect(device)?);
        let raises = Raises::new()?;
        let mut end = LenderEnd::new(epoch, Arc::clone(&raises)).map_err(io::Error::other)?;
        socket.set_time_limit(Some(AGREE_LIMIT))?;
        agree(&socket, &mut end)?;
        socket.set_nonblocking(true)?;
        let counted = OfLink::new(Arc::clone(tally));
        Ok(DeviceSide { socket, end, raises, noted: Vec::new(), counted })
    }

    /// Reads what has come. Says whether that is all there was at some moment during this.
    fn read(&mut self, link: &mut Endpoint) -> Result<bool, Gone> {
        let mut fds = Vec::new();
        for _ in 0..READS_MAX {
            let client = self.end.client();
            if !client.wants_input() {
                return Ok(false);
            }
            let takes_fds = client.expects_fds();
            let space = client.space();
            let room = space.len();
            let received = if takes_fds {
                self.socket.receive(space, &mut fds)
            } else {
                self.socket.receive_bytes(space)
            };
            let count = match received {
                Ok(0) => return Err(Gone::Closed),
                Ok(count) => count,
                Err(error) if is_later(&error) => return Ok(true),
                Err(error) => return Err(error.into()),
            };
            client.received(count, std::mem::take(&mut fds))?;
            self.end.drive(link)?;
            if count < room && self.noted.is_empty() {
                // Most likely all; for who waits for it that is enough.
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn flush(&mut self) -> Result<(), Gone> {
        let client = self.end.client();
        while let Some(transmit) = client.transmit() {
            match self.socket.send(transmit) {
                Ok(count) => client.sent(count),
                Err(error) if is_later(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn count(&mut self, link: &Endpoint) {
        let own = self.end.counters();
        let now = Counted::of_link(&link.counters(), &self.end.refusals())
            .with(Count::Refused(Refused::Misplaced), own.misplaced)
            .with(Count::Refused(Refused::Device), own.refused)
            .with(Count::Refused(Refused::Borrower), own.refused_there);
        self.counted.is_at(now);
    }

    /// The link is over: says what its windows refused, and what was refused besides.
    pub(super) fn finish(&mut self, link: &Endpoint, lease: &str) {
        self.count(link);
        let (refusals, counters) = (self.end.refusals(), self.end.counters());
        if refusals.total() > 0 || counters.refused > 0 || counters.misplaced > 0 {
            tracing::warn!(lease, ?refusals, ?counters, "accesses of a lease were refused");
        }
    }
}

/// Waits until the device has agreed on a version.
fn agree(socket: &Connection, end: &mut LenderEnd<Arc<Raises>>) -> io::Result<()> {
    let refused = |errno: Errno| io::Error::from_raw_os_error(errno.code() as i32);
    loop {
        while let Some(transmit) = end.client().transmit() {
            let count = socket.send(transmit)?;
            end.client().sent(count);
        }
        if end.agreed().map_err(refused)? {
            return Ok(());
        }
        let client = end.client();
        match socket.receive_bytes(client.space()) {
            Ok(0) => return Err(io::ErrorKind::ConnectionAborted.into()),
            Ok(count) => client.received(count, Vec::new()).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether there is nothing now.
pub(super) fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl Side for DeviceSide {
    type Gone = Gone;

    fn frame(&mut self, event: Event<'_>) -> Option<Load> {
        self.end.frame(event);
        // It gives them back itself, when the device has done what they say.
        None
    }

    fn turn(&mut self, link: &mut Endpoint, is_ready: bool) -> Result<(), Gone> {
        let mut was_empty = false;
        if is_ready {
            // What the device has written before it raised these is there to be read by now.
            self.noted.extend(self.raises.take());
        }
        if is_ready || !self.noted.is_empty() {
            was_empty = self.read(link)?;
        }
        if was_empty {
            for (index, vector) in self.noted.drain(..) {
                self.end.raised(index, vector);
            }
        }
        self.end.drive(link)?;
        self.count(link);
        self.flush()
    }

    fn has_waiting(&self) -> bool {
        self.end.has_waiting()
    }

    fn polled(&mut self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let client = self.end.client();
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, client.wants_input());
        wanted.set(PollFlags::OUT, client.queued_bytes() > 0);
        vec![(self.socket.as_fd(), wanted), (self.raises.as_fd(), PollFlags::IN)]
    }
}
