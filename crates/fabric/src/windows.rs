//! The window table: ranges of bus addresses, where each leads, and what may be done through it.
//!
//! Both ends of a lease have one. The lender's refuses what the device may not reach, the borrower's what
//! the lender may not: neither trusts the other's. An access lies in one window as a whole or it is
//! refused, and what is refused is counted by its reason.

use thiserror::Error;

/// Most windows of one table.
pub const WINDOWS_MAX: usize = 65_536;

/// What may be done through a window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Rights {
    /// Reads.
    pub read: bool,
    /// Writes.
    pub write: bool,
}

impl Rights {
    /// Reads and writes.
    pub const BOTH: Rights = Rights { read: true, write: true };
    /// Reads alone.
    pub const READ: Rights = Rights { read: true, write: false };

    /// Whether an access is allowed.
    #[must_use]
    pub const fn allows(self, access: Access) -> bool {
        match access {
            Access::Read => self.read,
            Access::Write => self.write,
        }
    }
}

/// What somebody wants to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// To read.
    Read,
    /// To write.
    Write,
}

/// Why an access is refused. Nothing of it is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum Refusal {
    /// The lease is over.
    #[error("the lease is over, and all its windows are closed")]
    Closed,
    /// It was meant for a lease before or after.
    #[error("the access belongs to another epoch of the lease")]
    Epoch,
    /// No window is there.
    #[error("no window is open at this address")]
    Outside,
    /// The window ends before it does.
    #[error("the access goes beyond the end of its window")]
    BeyondEnd,
    /// The window is not for that.
    #[error("the window does not allow this access")]
    Rights,
}

impl Refusal {
    /// All of them, in the order of [`Refusals::by_reason`].
    pub const ALL: [Refusal; 5] =
        [Refusal::Closed, Refusal::Epoch, Refusal::Outside, Refusal::BeyondEnd, Refusal::Rights];
}

/// How often accesses were refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refusals {
    counts: [u64; Refusal::ALL.len()],
}

impl Refusals {
    /// For one reason.
    #[must_use]
    pub const fn of(&self, reason: Refusal) -> u64 {
        self.counts[reason as usize]
    }

    /// For whatever reason.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Each reason with its count.
    pub fn by_reason(&self) -> impl Iterator<Item = (Refusal, u64)> + '_ {
        Refusal::ALL.into_iter().map(|reason| (reason, self.of(reason)))
    }
}

/// Why a window is not opened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum InsertError {
    /// The lease is over.
    #[error("the lease is over, so no window opens any more")]
    Closed,
    /// It has no bytes.
    #[error("a window of no bytes leads nowhere")]
    Empty,
    /// It goes beyond the last address.
    #[error("the window goes beyond the last address of the bus")]
    Wraps,
    /// Another is there.
    #[error("the window overlaps another; close that first")]
    Overlaps,
    /// There are enough.
    #[error("the table is full with {WINDOWS_MAX} windows; close some first")]
    Full,
}

#[derive(Clone, Debug)]
struct Window<P> {
    start: u64,
    bytes: u64,
    rights: Rights,
    place: P,
}

impl<P> Window<P> {
    fn last(&self) -> u64 {
        self.start + (self.bytes - 1)
    }
}

/// Where an access leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found<'a, P> {
    /// Where the window leads.
    pub place: &'a P,
    /// How far into the window the access begins, in bytes.
    pub offset: u64,
    /// How much of the window there is from there on, in bytes: at least the access.
    pub room: u64,
}

/// The windows of one lease; `P` is a place at the far side, whatever that is.
#[derive(Clone, Debug)]
pub struct Windows<P> {
    epoch: u64,
    is_closed: bool,
    /// By address, not overlapping.
    windows: Vec<Window<P>>,
    /// The one that was found last: accesses come in runs.
    last: usize,
    refusals: Refusals,
}

impl<P> Windows<P> {
    /// A table without windows, for an epoch of a lease.
    #[must_use]
    pub fn new(epoch: u64) -> Windows<P> {
        let refusals = Refusals::default();
        Windows { epoch, is_closed: false, windows: Vec::new(), last: 0, refusals }
    }

    /// The epoch that it holds for.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Opens a window.
    ///
    /// # Errors
    /// It cannot be, and nothing has changed.
    pub fn insert(
        &mut self,
        start: u64,
        bytes: u64,
        rights: Rights,
        place: P,
    ) -> Result<(), InsertError> {
        if self.is_closed {
            return Err(InsertError::Closed);
        }
        let length = bytes.checked_sub(1).ok_or(InsertError::Empty)?;
        let last = start.checked_add(length).ok_or(InsertError::Wraps)?;
        let at = self.windows.partition_point(|window| window.start <= start);
        let before = at.checked_sub(1).and_then(|before| self.windows.get(before));
        let is_free = before.is_none_or(|window| window.last() < start)
            && self.windows.get(at).is_none_or(|window| window.start > last);
        if !is_free {
            return Err(InsertError::Overlaps);
        }
        if self.windows.len() >= WINDOWS_MAX {
            return Err(InsertError::Full);
        }
        self.windows.insert(at, Window { start, bytes, rights, place });
        Ok(())
    }

    /// Closes the windows that lie in a range as a whole, and gives where they led. One that lies in it
    /// only in part stays as it is.
    pub fn remove(&mut self, start: u64, bytes: u64) -> Vec<P> {
        let Some(last) = bytes.checked_sub(1).map(|length| start.saturating_add(length)) else {
            return Vec::new();
        };
        let from = self.windows.partition_point(|window| window.start < start);
        let to = self.windows.partition_point(|window| window.last() <= last).max(from);
        self.windows.drain(from..to).map(|window| window.place).collect()
    }

    /// Where an access leads that lies in one window as a whole; one of no bytes leads nowhere.
    ///
    /// # Errors
    /// It is refused, and that is counted.
    pub fn look_up(
        &mut self,
        epoch: u64,
        access: Access,
        address: u64,
        bytes: u64,
    ) -> Result<Found<'_, P>, Refusal> {
        match self.find(epoch, access, address, bytes) {
            Ok(at) => {
                self.last = at;
                let window = &self.windows[at];
                let offset = address - window.start;
                Ok(Found { place: &window.place, offset, room: window.bytes - offset })
            }
            Err(refusal) => {
                self.refusals.counts[refusal as usize] += 1;
                Err(refusal)
            }
        }
    }

    fn find(&self, epoch: u64, access: Access, address: u64, bytes: u64) -> Result<usize, Refusal> {
        if self.is_closed {
            return Err(Refusal::Closed);
        }
        if epoch != self.epoch {
            return Err(Refusal::Epoch);
        }
        let at = self.window_of(address).ok_or(Refusal::Outside)?;
        let window = &self.windows[at];
        let room = window.bytes - (address - window.start);
        if bytes == 0 || bytes > room {
            return Err(if bytes == 0 { Refusal::Outside } else { Refusal::BeyondEnd });
        }
        if !window.rights.allows(access) {
            return Err(Refusal::Rights);
        }
        Ok(at)
    }

    /// The window with an address in it.
    fn window_of(&self, address: u64) -> Option<usize> {
        let has = |window: &Window<P>| (window.start..=window.last()).contains(&address);
        if self.windows.get(self.last).is_some_and(has) {
            return Some(self.last);
        }
        let after = self.windows.partition_point(|window| window.start <= address);
        after.checked_sub(1).filter(|&at| has(&self.windows[at]))
    }

    /// Closes all of them for good, and gives where they led.
    pub fn close(&mut self) -> Vec<P> {
        self.is_closed = true;
        self.windows.drain(..).map(|window| window.place).collect()
    }

    /// Whether [`close`](Self::close) was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// How many are open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.windows.len()
    }

    /// Whether none is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// Those that are open, by address: start, bytes, rights, place.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, Rights, &P)> {
        self.windows.iter().map(|window| (window.start, window.bytes, window.rights, &window.place))
    }

    /// What was refused so far.
    #[must_use]
    pub fn refusals(&self) -> Refusals {
        self.refusals
    }
}
