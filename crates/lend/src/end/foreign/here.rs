//! A device that is borrowed on its own host: both ends of its lease in one process, with the link between
//! them in memory. Registers are trapped all the same: the memory of a foreign device is not renewed, so
//! nothing of it may stay mapped when the lease is over.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use farside_link::{Config, Endpoint};
use farside_live::far::{Side, now};
use farside_vfio_user::unix::{Connection, Session};
use farside_vfio_user::{Errno, Limits, Server};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Gone;
use super::client_side::ClientSide;
use super::describe::Describing;
use super::device_side::DeviceSide;
use super::lender::{Lent, connect};
use crate::end::tally::Count;

/// How long a device may take to say what it is.
const DESCRIBE_LIMIT: Duration = Duration::from_secs(5);
/// How long a client may take to hear that another has the device.
const REFUSE_LIMIT: Duration = Duration::from_secs(1);
/// Longer than any lease.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// Clients that are told so at a time.
const REFUSED_MAX: u32 = 8;

/// A device has one client at a time.
#[derive(Default)]
pub(super) struct OneClient {
    is_taken: Arc<AtomicBool>,
    refused: Arc<AtomicU32>,
}

impl OneClient {
    /// Has a client served in a thread of its own, or tells it that another has the device.
    pub(super) fn take(
        &self,
        client: UnixStream,
        serve: impl FnOnce(UnixStream) + Send + 'static,
    ) -> io::Result<()> {
        let builder = std::thread::Builder::new().name("farside-client".into());
        if !self.is_taken.swap(true, Ordering::SeqCst) {
            let is_taken = Arc::clone(&self.is_taken);
            let serve = move || {
                serve(client);
                is_taken.store(false, Ordering::SeqCst);
            };
            builder.spawn(serve)?;
            return Ok(());
        }
        if self.refused.fetch_add(1, Ordering::SeqCst) >= REFUSED_MAX {
            self.refused.fetch_sub(1, Ordering::SeqCst);
            // It sees that it is hung up on.
            return Ok(());
        }
        let refused = Arc::clone(&self.refused);
        let refuse = move || {
            refuse(client);
            refused.fetch_sub(1, Ordering::SeqCst);
        };
        builder.spawn(refuse)?;
        Ok(())
    }
}

/// Tells a client that another has the device.
pub(super) fn refuse(client: UnixStream) {
    let connection = Connection::new(client);
    if connection.set_time_limit(Some(REFUSE_LIMIT)).is_ok() {
        let server = Server::refusing(Errno::BUSY, Limits::default());
        // It ends with the refusal, which the client is told.
        let _ = Session::new(connection, server).run(&mut NoDevice);
    }
}

/// The device of a client that is refused: it never gets as far as to use one.
struct NoDevice;

impl farside_vfio_user::Device for NoDevice {
    fn region_read(&mut self, _: u32, _: u64, _: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::NODEV)
    }

    fn region_write(
        &mut self,
        _: &mut farside_vfio_user::Bus<'_>,
        _: u32,
        _: u64,
        _: &[u8],
    ) -> Result<(), Errno> {
        Err(Errno::NODEV)
    }
}

/// Serves the clients that come, for ever.
pub(super) fn serve(lent: &Arc<Lent>, listener: &UnixListener) {
    let clients = OneClient::default();
    let is_clean = Arc::new(AtomicBool::new(true));
    loop {
        let client = match listener.accept() {
            Ok((client, _)) => client,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return tracing::error!(%error, "no client can come to the device"),
        };
        let (lent, is_clean) = (Arc::clone(lent), Arc::clone(&is_clean));
        let taken = clients.take(client, move |client| {
            let served = serve_one(&lent, client, is_clean.swap(false, Ordering::SeqCst));
            if let Err(why) = served {
                tracing::warn!(lease = lent.name, why, "a client's connection has ended");
            }
        });
        if let Err(error) = taken {
            tracing::error!(%error, "no thread for a client");
        }
    }
}

/// Serves one client, with the device as it is after a reset.
pub(super) fn serve_one(lent: &Lent, client: UnixStream, is_clean: bool) -> Result<(), String> {
    let mut pair = Pair::new(connect(lent, is_clean)?, lent);
    let mut describing = Describing::default();
    let until = Instant::now() + DESCRIBE_LIMIT;
    let device = |gone: Gone| format!("the device is lost: {gone}");
    while !describing.is_done() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("the device does not say what it is".to_owned());
        }
        pair.turn(&mut describing, Some(left)).map_err(device)?;
    }
    let described = describing.description().ok_or("the device says nonsense of itself")?;
    let side = ClientSide::new(client, &described, lent.epoch, None);
    let mut side = side.map_err(|error| error.to_string())?;
    lent.tally.add(Count::Programs, 1);
    let gone = loop {
        if let Err(gone) = pair.turn(&mut side, None) {
            break gone;
        }
    };
    side.end(&pair.near, &lent.name);
    pair.device.finish(&pair.far, &lent.name);
    match gone {
        Gone::Closed => Ok(()),
        gone => Err(gone.to_string()),
    }
}

/// A device, and both ends of a link in memory.
struct Pair {
    device: DeviceSide,
    near: Endpoint,
    far: Endpoint,
    /// What may have something to read: the client's side, the device's.
    ready: [bool; 2],
}

impl Pair {
    fn new(device: DeviceSide, lent: &Lent) -> Pair {
        // Nobody else can fall silent: a process that was stopped goes on where it was.
        let config = || Config { heartbeat: NEVER, silence: NEVER, ..lent.config() };
        let mut near = Endpoint::borrower(config(), 1);
        let mut far = Endpoint::lender(config());
        near.connected(now());
        far.connected(now());
        Pair { device, near, far, ready: [true; 2] }
    }

    /// Does all that can be done, then sleeps until there is more, for `limit` at most.
    fn turn(
        &mut self,
        side: &mut impl Side<Gone = Gone>,
        limit: Option<Duration>,
    ) -> Result<(), Gone> {
        loop {
            let [near, far] = std::mem::take(&mut self.ready);
            side.turn(&mut self.near, near)?;
            self.device.turn(&mut self.far, far)?;
            let there = cross(&mut self.near, &mut self.far, &mut self.device);
            let back = cross(&mut self.far, &mut self.near, side);
            if !there && !back {
                break;
            }
        }
        if side.is_done() {
            return Ok(());
        }
        let now = now();
        self.near.handle_timeout(now);
        self.far.handle_timeout(now);
        let beat = [self.near.poll_timeout(), self.far.poll_timeout()].into_iter().flatten().min();
        let left = beat.map(|at| at.saturating_sub(now)).into_iter().chain(limit).min();
        self.ready = sleep(side, &mut self.device, left);
        Ok(())
    }
}

/// Sleeps until a side has something to do. Says which.
fn sleep(near: &mut impl Side, far: &mut DeviceSide, left: Option<Duration>) -> [bool; 2] {
    let (near, far) = (near.polled(), far.polled());
    let all = near.iter().chain(&far);
    let mut polled: Vec<PollFd<'_>> = all
        .map(|(fd, flags): &(BorrowedFd<'_>, PollFlags)| PollFd::from_borrowed_fd(*fd, *flags))
        .collect();
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    // Every outcome means: look.
    let _ = poll(&mut polled, left.as_ref());
    let (near, far) = polled.split_at(near.len());
    [near, far].map(|polled| polled.iter().any(|polled| !polled.revents().is_empty()))
}

/// Takes what one end wants to send to the other, and gives the side there what has come. Says whether
/// there was anything.
fn cross(from: &mut Endpoint, to: &mut Endpoint, side: &mut impl Side) -> bool {
    let now = now();
    let mut count = 0;
    {
        let transmit = from.transmit(now);
        let mut space = to.space();
        for slice in transmit.slices() {
            let taken = slice.len().min(space.len());
            space[..taken].copy_from_slice(&slice[..taken]);
            space = &mut space[taken..];
            count += taken;
        }
    }
    from.transmitted(now, count);
    to.filled(now, count);
    loop {
        let load = match to.poll_event(now) {
            None => break,
            Some(event) => side.frame(event),
        };
        if let Some(load) = load {
            to.done(load);
        }
    }
    count > 0
}
