//! Bounds on everything that others can make a lender keep, and counts of what it refused.

use std::time::Duration;

use crate::time::Drift;

/// What a lender keeps at most, and how long it waits. The defaults are for a host of a cluster.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// How long a lease runs unless the borrower wishes otherwise; renewed at a third of it.
    pub duration: Duration,
    /// The shortest lease that can be wished for.
    pub duration_min: Duration,
    /// The longest.
    pub duration_max: Duration,
    /// How far the clocks of two hosts may run away from true time, each.
    pub drift: Drift,
    /// The longest time in the queue; who wishes more waits this long.
    pub wait_max: Duration,
    /// How long a fence may take before the device is quarantined.
    pub fence_max: Duration,
    /// How long a write of the ledger may take before it counts as failed.
    pub store_max: Duration,
    /// A step of the clock between two events that is longer than this makes every lease count anew:
    /// nobody can say whether the time has really passed.
    pub gap_max: Duration,
    /// Time-sharing: a device that somebody has waited for this long, and that its holder has had
    /// this long, is recalled; `None` leaves it with the holder.
    pub share_after: Option<Duration>,
    /// How long a holder has then to give it back.
    pub share_notice: Duration,
    /// How often requests that came later may overtake one that cannot be granted yet; from then on
    /// the devices that it waits for are kept for it.
    pub overtakes_max: u32,
    /// Devices of a lender.
    pub devices_max: usize,
    /// Requests that wait, of all hosts.
    pub queue_max: usize,
    /// Requests of one host that wait.
    pub queue_per_host_max: usize,
    /// Devices that one host has or waits for.
    pub devices_per_host_max: usize,
    /// Hosts whose requests are remembered.
    pub hosts_max: usize,
    /// Leases that one renewal or return may name.
    pub leases_per_message_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(10),
            duration_min: Duration::from_secs(1),
            duration_max: Duration::from_secs(60),
            drift: Drift::ALLOWED,
            wait_max: Duration::from_secs(24 * 3600),
            fence_max: Duration::from_secs(10),
            store_max: Duration::from_secs(5),
            gap_max: Duration::from_secs(3),
            share_after: None,
            share_notice: Duration::from_secs(30),
            overtakes_max: 8,
            devices_max: 1024,
            queue_max: 1024,
            queue_per_host_max: 64,
            devices_per_host_max: 256,
            hosts_max: 1024,
            leases_per_message_max: 256,
        }
    }
}

/// What a lender has counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Stats {
    /// Leases that were granted.
    pub granted: u64,
    /// Leases that were renewed, each time.
    pub renewed: u64,
    /// Leases that their borrower gave back or hung up.
    pub returned: u64,
    /// Leases that ended because their borrower was silent.
    pub silent: u64,
    /// Leases that ended in any other way.
    pub cut: u64,
    /// Devices that were recalled.
    pub recalled: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Renewals that were refused: of leases that have ended, or of others.
    pub renewals_refused: u64,
    /// Returns and hang-ups of leases that are not there, or are another host's.
    pub strays: u64,
    /// Requests that came again.
    pub repeated: u64,
    /// Devices that were quarantined.
    pub quarantined: u64,
    /// Writes of the ledger that failed.
    pub stores_failed: u64,
    /// Readings of the clock that lay before an earlier one.
    pub clock_back: u64,
    /// Steps of the clock past [`Limits::gap_max`].
    pub clock_gaps: u64,
}

impl std::ops::Add for Stats {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            granted: self.granted + more.granted,
            renewed: self.renewed + more.renewed,
            returned: self.returned + more.returned,
            silent: self.silent + more.silent,
            cut: self.cut + more.cut,
            recalled: self.recalled + more.recalled,
            refused: self.refused + more.refused,
            renewals_refused: self.renewals_refused + more.renewals_refused,
            strays: self.strays + more.strays,
            repeated: self.repeated + more.repeated,
            quarantined: self.quarantined + more.quarantined,
            stores_failed: self.stores_failed + more.stores_failed,
            clock_back: self.clock_back + more.clock_back,
            clock_gaps: self.clock_gaps + more.clock_gaps,
        }
    }
}
