//! The process of a lease: it stands between the supervisor and the worker that serves the client.
//!
//! The supervisor must never wait, and whatever comes from a client may make a process wait: closing
//! the last handle of a descriptor that was sent, giving a large memory back, a thread that blocks
//! under a lock. So this process accepts the client, makes the worker, sees when the client hangs up,
//! kills a worker that does not end by itself, gives the lease's memory back and ends. The supervisor
//! sees that, and the function is free.
//!
//! It reads nothing of what the client sends.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use farside_vfio_user::unix::{Connection, Listener};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FallocateFlags;
use rustix::net::{Shutdown, shutdown};

use super::channel::{Channel, Message};
use super::log::{Allowance, LogPipe};
use super::process::{self, Child, Ended};
use super::{CardConfig, mutation, worker};

/// A worker whose client is gone has this long to end by itself, at most.
const END_LIMIT: Duration = Duration::from_millis(500);

/// What a lease is made of.
pub(super) struct Lease<'a> {
    pub(super) config: &'a CardConfig,
    pub(super) function: u32,
    pub(super) generation: u64,
    pub(super) client: Client<'a>,
    pub(super) channel: &'a Channel,
    /// Readable once the function is taken back.
    pub(super) cut: BorrowedFd<'a>,
    /// The process of the supervisor.
    pub(super) supervisor: u32,
    /// What may be logged.
    pub(super) allowance: Allowance,
}

/// Who is to be served.
pub(super) enum Client<'a> {
    /// Whoever comes next.
    Next(&'a Listener),
    /// Whoever has the other end of this.
    Given(Connection),
}

impl AsFd for Client<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Client::Next(listener) => listener.as_fd(),
            Client::Given(connection) => connection.as_fd(),
        }
    }
}

impl Client<'_> {
    /// The connection to it, of which the supervisor is told if it does not know of it.
    fn connection(self, channel: &Channel) -> std::io::Result<Connection> {
        match self {
            Client::Given(connection) => Ok(connection),
            Client::Next(listener) => {
                let connection = listener.accept()?;
                channel.send(&Message::begun(connection.peer().ok()));
                Ok(connection)
            }
        }
    }
}

/// What has come of it: nobody was there, or the exit code.
pub(super) fn run(lease: Lease<'_>) -> i32 {
    let Lease { config, function, supervisor, .. } = lease;
    if !process::die_with(supervisor) {
        return 0;
    }
    process::keep_only(&[lease.client.as_fd(), lease.channel.as_fd(), lease.cut]);
    process::set_name(&format!("farside-lease{function}"));
    match serve(lease) {
        Ok(()) => 0,
        Err(error) => {
            tracing::error!(function, %error, card = config.card, "a client cannot be served");
            1
        }
    }
}

fn serve(lease: Lease<'_>) -> std::io::Result<()> {
    let Lease { config, function, generation, client, channel, cut, mut allowance, .. } = lease;
    let Ok(connection) = client.connection(channel) else {
        // It has gone before it was let in.
        return Ok(());
    };
    if allowance.take_line() {
        let peer = connection.peer().ok();
        tracing::info!(function, generation, ?peer, "a client has come");
    }
    let memory = mutation::memory_of(config.all_frames())?;
    let mut pipe = LogPipe::new(allowance)?;
    let own = std::process::id();
    // SAFETY: this process has one thread.
    let child = unsafe {
        process::fork(|| {
            let begun = worker::Begun { config, function, generation, own };
            worker::run(&begun, &connection, channel, &memory, pipe.writer())
        })
    }?;
    pipe.close_writer();
    let limit = config.grace.min(END_LIMIT);
    let how = watch(&connection, cut, &child, &mut pipe, limit);
    // It is told at once, if it is still there: nothing reaches its memory any more.
    let _ = connection.shutdown();
    if !mutation::keeps_generation() {
        give_back(&memory, config.all_frames());
    }
    pipe.finish();
    if pipe.allowance().take_line() {
        match how {
            Ended::Code(0) => tracing::info!(function, generation, "a client has gone"),
            how => tracing::warn!(function, generation, %how, "a lease has ended badly"),
        }
    }
    Ok(())
}

/// Waits for the worker's end. When the client has hung up, or the function is taken back, the worker has
/// `limit` to end by itself.
fn watch(
    connection: &Connection,
    cut: BorrowedFd<'_>,
    child: &Child,
    pipe: &mut LogPipe,
    limit: Duration,
) -> Ended {
    let mut kill_at: Option<Instant> = None;
    loop {
        if let Some(ended) = child.reap() {
            return ended;
        }
        if kill_at.is_some_and(|at| at <= Instant::now()) {
            child.kill();
        }
        let over = wait(connection, cut, child, pipe, kill_at);
        if over && kill_at.is_none() {
            // The worker hears nothing more, and ends as with a client that hangs up. The client sees
            // the end of the connection after that: when nothing reaches its memory any more.
            let _ = shutdown(connection, Shutdown::Read);
            kill_at = Some(Instant::now() + limit);
        }
    }
}

/// Sleeps until something has happened. Says whether the client has hung up, or the function is taken
/// back.
fn wait(
    connection: &Connection,
    cut: BorrowedFd<'_>,
    child: &Child,
    pipe: &mut LogPipe,
    kill_at: Option<Instant>,
) -> bool {
    let (talks, refill) = (pipe.wants_input(), pipe.next_refill());
    let mut polled = vec![PollFd::new(child, PollFlags::IN)];
    // Whoever hangs up once has hung up for good: it is not looked for again.
    let looks = kill_at.is_none();
    if looks {
        polled.push(PollFd::new(connection, PollFlags::RDHUP));
        polled.push(PollFd::from_borrowed_fd(cut, PollFlags::IN));
    }
    if talks {
        polled.push(PollFd::new(pipe, PollFlags::IN));
    }
    let until = [kill_at, refill].into_iter().flatten().min();
    let left = until.map(|at| at.saturating_duration_since(Instant::now()));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    // Every outcome means: look.
    let _ = poll(&mut polled, left.as_ref());
    let over = looks && polled[1..3].iter().any(|polled| !polled.revents().is_empty());
    let has_talked = talks && polled.last().is_some_and(|last| !last.revents().is_empty());
    if has_talked {
        pipe.forward();
    }
    over
}

/// Gives the memory behind BAR2 back. A former client that still maps it keeps an object that is
/// empty, and pays for what it puts there.
fn give_back(memory: &OwnedFd, frames: u32) {
    let bytes = u64::from(frames) * farside_types::PAGE_SIZE as u64;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if let Err(error) = rustix::fs::fallocate(memory, hole, 0, bytes) {
        tracing::error!(%error, "the memory of a lease cannot be given back");
    }
}
