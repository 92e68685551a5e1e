//! What an end of a link has to know before it begins.

use std::time::Duration;

use super::{BULK_AHEAD_BYTES, BULK_AHEAD_BYTES_MAX};
use crate::control::{Amount, Amounts, NAME_BYTES_MAX};
use crate::frame::DATA_BYTES_MAX;

/// Which lease a link belongs to. Both ends have to say the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    /// The device's name at its lender, at most 128 bytes.
    pub device: String,
    /// The lease's epoch.
    pub epoch: u64,
}

impl Lease {
    /// Of a device that nobody has lent: both ends are the same user's.
    #[must_use]
    pub fn none() -> Lease {
        Lease { device: String::new(), epoch: 0 }
    }
}

/// See the module. The times hold for both ends if both have the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The lease.
    pub lease: Lease,
    /// What both ends can do beyond this protocol; its bits are theirs. Each hears the other's.
    pub capabilities: u64,
    /// What the other end may send at a time, in the order of [`Class::ALL`](crate::frame::Class):
    /// what came and is not done. At least one frame and one piece of bulk each.
    pub credits: Amounts,
    /// Bytes of bulk that wait to leave, at most: from one piece of bulk to
    /// [`BULK_AHEAD_BYTES_MAX`]. More of them need fewer calls of the system and fewer wake-ups; who sends
    /// something else waits for them.
    pub bulk_ahead_bytes: usize,
    /// Something is said at least so often.
    pub heartbeat: Duration,
    /// A connection on which nothing is heard for so long is lost.
    pub silence: Duration,
    /// A connection on which the other end does not say who it is for so long is lost.
    pub greeting: Duration,
    /// A link that has no connection for so long is over. At most what is left of the lease.
    pub without_connection: Duration,
}

impl Config {
    /// For a lease, with what fits networks of today: 4 MiB each way, a heartbeat a second.
    #[must_use]
    pub fn new(lease: Lease) -> Config {
        let bulk = Amount { frames: 1024, bytes: 4 << 20 };
        Config {
            lease,
            capabilities: 0,
            credits: [bulk, Amount { frames: 128, bytes: 0 }, bulk],
            bulk_ahead_bytes: BULK_AHEAD_BYTES,
            heartbeat: Duration::from_secs(1),
            silence: Duration::from_secs(3),
            greeting: Duration::from_secs(5),
            without_connection: Duration::from_secs(10),
        }
    }

    /// The same for a link whose ends have the socket between their hosts themselves: nobody else on the way
    /// holds bulk, so more of it may wait here.
    #[must_use]
    pub fn straight(self) -> Config {
        Config { bulk_ahead_bytes: BULK_AHEAD_BYTES_MAX, ..self }
    }

    /// The same with values that cannot work replaced by the least that can.
    pub(super) fn sane(mut self) -> Config {
        let mut end = self.lease.device.len().min(NAME_BYTES_MAX);
        while !self.lease.device.is_char_boundary(end) {
            end -= 1;
        }
        self.lease.device.truncate(end);
        self.bulk_ahead_bytes = self.bulk_ahead_bytes.clamp(DATA_BYTES_MAX, BULK_AHEAD_BYTES_MAX);
        for amount in &mut self.credits {
            amount.frames = amount.frames.max(1);
        }
        for at in [0, 2] {
            self.credits[at].bytes = self.credits[at].bytes.max(DATA_BYTES_MAX as u64);
        }
        self
    }
}
