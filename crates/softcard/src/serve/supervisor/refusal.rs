//! Clients that are told that their function is in use, each by a process of its own: it may be slow
//! to listen, and what it sends is not the supervisor's to read.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use farside_vfio_user::server::{Bus, Device};
use farside_vfio_user::unix::{Listener, Session};
use farside_vfio_user::{Errno, Limits, Server};

use crate::serve::channel::{Channel, Message};
use crate::serve::process::{self, Child};

/// Clients that are told at the same time.
const REFUSALS_MAX: usize = 8;

/// How long one may take.
const LIMIT: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Refusal {
    function: u32,
    process: Child,
    channel: Channel,
    /// The client has been taken out of its function's queue.
    has_begun: bool,
    until: Instant,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Refusals(Vec<Refusal>);

impl Refusals {
    /// Whether a client of a function can be told: not too many are, and the one before has been
    /// taken in, who would be told twice otherwise.
    pub(super) fn may_begin(&self, function: u32) -> bool {
        self.0.len() < REFUSALS_MAX && !self.waits(function)
    }

    /// Whether the function has a client that is about to be taken in.
    pub(super) fn waits(&self, function: u32) -> bool {
        self.0.iter().any(|refusal| refusal.function == function && !refusal.has_begun)
    }

    /// Tells the next client of a function.
    ///
    /// # Errors
    /// No process, or no descriptors.
    pub(super) fn begin(&mut self, function: u32, listener: &Listener) -> io::Result<()> {
        let supervisor = std::process::id();
        let (channel, theirs) = Channel::pair()?;
        // SAFETY: this process has one thread.
        let process = unsafe { process::fork(|| refuse(listener, &theirs, supervisor)) }?;
        let until = Instant::now() + LIMIT;
        self.0.push(Refusal { function, process, channel, has_begun: false, until });
        Ok(())
    }

    /// Sees who has begun and who has ended, and ends those who take too long.
    pub(super) fn look(&mut self) {
        let now = Instant::now();
        for refusal in &mut self.0 {
            refusal.has_begun |= refusal.channel.receive().is_some();
            if refusal.until <= now {
                refusal.process.kill();
            }
        }
        self.0.retain(|refusal| refusal.process.reap().is_none());
    }

    /// When the next one is late.
    pub(super) fn next_end(&self) -> Option<Instant> {
        let now = Instant::now();
        self.0.iter().map(|refusal| refusal.until).filter(|until| *until > now).min()
    }

    /// What becomes readable when one has begun or ended.
    pub(super) fn handles(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let channels = self.0.iter().filter(|refusal| !refusal.has_begun);
        let channels = channels.map(|refusal| refusal.channel.as_fd());
        self.0.iter().map(|refusal| refusal.process.as_fd()).chain(channels)
    }

    /// The card ends.
    pub(super) fn kill_all(&self) {
        self.0.iter().for_each(|refusal| refusal.process.kill());
    }
}

fn refuse(listener: &Listener, channel: &Channel, supervisor: u32) -> i32 {
    if !process::die_with(supervisor) {
        return 0;
    }
    process::keep_only(&[listener.as_fd(), channel.as_fd()]);
    process::set_name("farside-refuse");
    let accepted = listener.accept();
    channel.send(&Message::Begun(None));
    let Ok(connection) = accepted else { return 0 };
    if connection.set_time_limit(Some(LIMIT)).is_ok() {
        let server = Server::refusing(Errno::BUSY, Limits::default());
        // It ends with the refusal, which the client is told.
        let _ = Session::new(connection, server).run(&mut Nothing);
    }
    0
}

/// The device of a client that is refused: it never gets as far as to use one.
struct Nothing;

impl Device for Nothing {
    fn region_read(&mut self, _: u32, _: u64, _: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::NODEV)
    }

    fn region_write(&mut self, _: &mut Bus<'_>, _: u32, _: u64, _: &[u8]) -> Result<(), Errno> {
        Err(Errno::NODEV)
    }
}
