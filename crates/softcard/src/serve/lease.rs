//! The process of a lease: it stands between the supervisor and the worker that serves the client.
//!
//! The supervisor must never wait, and whatever comes from a client may make a process wait: closing
//! the last handle of a descriptor that was sent, giving a large memory back, a thread that blocks
//! under a lock. So this process accepts the client, makes the worker, sees when the client hangs up,
//! kills a worker that does not end by itself, gives the lease's memory back and ends. The supervisor
//! sees that, and the function is free.
//!
//! It reads nothing of what the client sends.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use farside_vfio_user::unix::{Connection, Listener};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FallocateFlags;

use super::channel::{Channel, Message};
use super::log::{Allowance, LogPipe};
use super::process::{self, Child, Ended};
use super::{CardConfig, worker};
use farside_linux::card_memory::CardMemory;

/// A worker whose client is gone has this long to end by itself, at most.
const END_LIMIT: Duration = Duration::from_millis(500);

/// What a lease is made of.
pub(super) struct Lease<'a> {
    pub(super) config: &'a CardConfig,
    pub(super) function: u32,
    pub(super) generation: u64,
    pub(super) listener: &'a Listener,
    pub(super) channel: &'a Channel,
    /// The process of the supervisor.
    pub(super) supervisor: u32,
    /// What may be logged.
    pub(super) allowance: Allowance,
}

/// What has come of it: nobody was there, or the exit code.
pub(super) fn run(lease: Lease<'_>) -> i32 {
    let Lease { config, function, listener, channel, supervisor, .. } = lease;
    if !process::die_with(supervisor) {
        return 0;
    }
    process::keep_only(&[listener.as_fd(), channel.as_fd()]);
    process::set_name(&format!("farside-lease{function}"));
    let Ok(connection) = listener.accept() else {
        // It has gone before it was let in.
        return 0;
    };
    match serve(lease, connection) {
        Ok(()) => 0,
        Err(error) => {
            tracing::error!(function, %error, card = config.card, "a client cannot be served");
            1
        }
    }
}

fn serve(lease: Lease<'_>, connection: Connection) -> std::io::Result<()> {
    let Lease { config, function, generation, channel, mut allowance, .. } = lease;
    let peer = connection.peer().ok();
    channel.send(&Message::begun(peer));
    if allowance.take_line() {
        tracing::info!(function, generation, ?peer, "a client has come");
    }
    let memory = CardMemory::file_of(config.frames).map_err(std::io::Error::other)?;
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
    let how = watch(&connection, &child, &mut pipe, config.grace.min(END_LIMIT));
    // It is told at once, if it is still there: nothing reaches its memory any more.
    let _ = connection.shutdown();
    give_back(&memory, config.frames);
    pipe.finish();
    if pipe.allowance().take_line() {
        match how {
            Ended::Code(0) => tracing::info!(function, generation, "a client has gone"),
            how => tracing::warn!(function, generation, %how, "a lease has ended badly"),
        }
    }
    Ok(())
}

/// Waits for the worker's end. When the client has hung up the worker has `limit` to end by itself.
fn watch(connection: &Connection, child: &Child, pipe: &mut LogPipe, limit: Duration) -> Ended {
    let mut kill_at: Option<Instant> = None;
    loop {
        if let Some(ended) = child.reap() {
            return ended;
        }
        if kill_at.is_some_and(|at| at <= Instant::now()) {
            child.kill();
        }
        let hung_up = wait(connection, child, pipe, kill_at);
        if hung_up && kill_at.is_none() {
            kill_at = Some(Instant::now() + limit);
        }
    }
}

/// Sleeps until something has happened. Says whether the client has hung up.
fn wait(
    connection: &Connection,
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
    }
    if talks {
        polled.push(PollFd::new(pipe, PollFlags::IN));
    }
    let until = [kill_at, refill].into_iter().flatten().min();
    let left = until.map(|at| at.saturating_duration_since(Instant::now()));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    // Every outcome means: look.
    let _ = poll(&mut polled, left.as_ref());
    let hung_up = looks && !polled[1].revents().is_empty();
    let has_talked = talks && polled.last().is_some_and(|last| !last.revents().is_empty());
    if has_talked {
        pipe.forward();
    }
    hung_up
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
