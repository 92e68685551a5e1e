//! What goes into a lender and what comes out: events, actions, and the leases in them.

use std::time::Duration;

use crate::ids::{BorrowerId, DeviceName, DeviceSet, Epoch, HostName, LeaseId, RequestId};
use crate::refusal::{EndReason, Refusal};
use crate::text::Text;
use crate::time::BootTime;

/// One write of the ledger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct WriteId(pub u64);

/// One fence of one device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FenceId(pub u64);

/// How a write of the ledger is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WriteKind {
    /// Append the bytes to the file.
    Append,
    /// Replace the file by the bytes: write another, make it durable, rename it.
    Replace,
}

/// How a fence went.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum FenceOutcome {
    /// Nothing of earlier leases reaches the device, which was reset and has new, empty memory.
    Clean {
        /// Of its memory.
        generation: u64,
    },
    /// It could not be brought there.
    DoesNotReset {
        /// What happened.
        why: Text,
    },
    /// It is gone, and with it all that a lease had of it. [`Event::DeviceAdded`] says when it is back.
    NotThere {
        /// What happened.
        why: Text,
    },
}

/// Why a device is fenced.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum FenceReason {
    /// It is to be lent from now on; nobody knows who used it before.
    Added,
    /// Its lease has ended.
    Ended(EndReason),
    /// It died while nobody had it.
    Lost(Text),
}

/// A lease as its lender has it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lease {
    /// Which.
    pub id: LeaseId,
    /// Who has it.
    pub borrower: BorrowerId,
    /// For which request it was granted.
    pub request: RequestId,
    /// For how long, each time.
    pub duration: Duration,
    /// Since when.
    pub since: BootTime,
    /// When it ends unless it is renewed, by the lender's count.
    pub end: BootTime,
}

/// What happens to a lender.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// A device is to be lent. It is fenced first, unless it has a lease that goes on.
    DeviceAdded {
        /// Which.
        device: DeviceName,
    },
    /// A device is to be lent no more; who has it is asked for it back.
    DeviceRemoved {
        /// Which.
        device: DeviceName,
        /// How long the holder has.
        within: Duration,
    },
    /// A device died: its lease ends now, and it is fenced.
    DeviceLost {
        /// Which.
        device: DeviceName,
        /// What happened.
        why: Text,
    },
    /// Somebody wants devices, all or none.
    Borrow {
        /// Names the reply.
        request: RequestId,
        /// Who.
        borrower: BorrowerId,
        /// Which.
        devices: DeviceSet,
        /// For how long each time; `None` is what the lender gives.
        duration: Option<Duration>,
        /// How long to wait for them; zero is not at all.
        wait: Duration,
    },
    /// A request is no longer waited for: its borrower said so, or its connection broke. Ends no lease
    /// that was told.
    Withdraw {
        /// Whose.
        host: HostName,
        /// Which.
        request: RequestId,
    },
    /// A host keeps leases for another duration.
    Renew {
        /// Names the reply.
        request: RequestId,
        /// Who.
        host: HostName,
        /// Which.
        leases: Vec<LeaseId>,
    },
    /// A host gives leases back and uses them no more.
    Return {
        /// Who.
        host: HostName,
        /// Which.
        leases: Vec<LeaseId>,
    },
    /// The borrower's end of a lease's link said that it is done. Not: that its connection broke.
    HungUp {
        /// Which.
        lease: LeaseId,
    },
    /// Somebody of this host wants a device back.
    Recall {
        /// Which.
        device: DeviceName,
        /// How long the holder has; never less than it was promised already.
        within: Duration,
        /// Who wants it, for the holder and the log.
        by: Text,
    },
    /// A write of the ledger is durable.
    Stored {
        /// Which.
        write: WriteId,
    },
    /// A write of the ledger failed; nothing is known of what it left in the file.
    StoreFailed {
        /// Which.
        write: WriteId,
        /// What happened.
        why: Text,
    },
    /// A fence is over.
    Fenced {
        /// Which.
        fence: FenceId,
        /// Of which device.
        device: DeviceName,
        /// How it went.
        outcome: FenceOutcome,
    },
    /// A quarantined device is lent again, on somebody's word that it is clean.
    Release {
        /// Which.
        device: DeviceName,
        /// Whose word.
        by: Text,
    },
    /// Time has passed.
    Tick,
}

/// What a lender wants done. Carry actions out in their order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Write the ledger, durably, and answer [`Event::Stored`] or [`Event::StoreFailed`]. One write is
    /// under way at a time.
    Store {
        /// Names the answer.
        write: WriteId,
        /// How.
        kind: WriteKind,
        /// What.
        bytes: Vec<u8>,
    },
    /// Tell a borrower that its request waits.
    Queued {
        /// Whose request.
        borrower: BorrowerId,
        /// Which.
        request: RequestId,
        /// How many are before it.
        before: usize,
    },
    /// Let the leases' epochs in, then tell the borrower.
    Granted {
        /// Whose request.
        borrower: BorrowerId,
        /// Which.
        request: RequestId,
        /// All that it asked for.
        leases: Vec<Lease>,
        /// For how long; the borrower counts from before it asked.
        duration: Duration,
    },
    /// Tell a borrower no.
    Refused {
        /// Whose request.
        borrower: BorrowerId,
        /// Which.
        request: RequestId,
        /// Why.
        why: Refusal,
    },
    /// Answer a renewal.
    Renewed {
        /// Who asked.
        host: HostName,
        /// Which request.
        request: RequestId,
        /// What became of each lease.
        renewals: Vec<Renewal>,
    },
    /// Tell a borrower that a device is wanted back.
    Recalled {
        /// Which lease of it.
        lease: LeaseId,
        /// Whose.
        borrower: BorrowerId,
        /// In how long it ends whatever happens.
        within: Duration,
        /// Who wants it.
        by: Text,
    },
    /// A lease has ended: for the log, and for its borrower if the reason is not its own doing.
    Ended {
        /// Which.
        lease: Lease,
        /// Why.
        why: EndReason,
    },
    /// A lease from before this lender was restarted goes on: take its lender's end over.
    Kept {
        /// Which.
        lease: Lease,
    },
    /// Cut the links, close the windows, stop the jobs, reset the device, scrub its memory and replace
    /// it by a new generation; let nothing of epochs up to `epoch` in any more. Answer
    /// [`Event::Fenced`].
    Fence {
        /// Names the answer.
        fence: FenceId,
        /// Which device.
        device: DeviceName,
        /// All epochs up to this one are over.
        epoch: Epoch,
        /// Why.
        why: FenceReason,
    },
    /// A device is clean: for the log. It can be lent when nobody may believe in an earlier lease.
    Cleaned {
        /// Which.
        device: DeviceName,
        /// Of its memory.
        generation: u64,
    },
    /// A device does not reset: name it to its owner. It is lent to nobody until it is released.
    Quarantined {
        /// Which.
        device: DeviceName,
        /// Why.
        why: Text,
    },
    /// A device is gone, and lent to nobody until it is back: for the log. Who waits for it goes on
    /// waiting.
    Absent {
        /// Which.
        device: DeviceName,
        /// Why.
        why: Text,
    },
    /// A quarantined device was released: for the log.
    Released {
        /// Which.
        device: DeviceName,
        /// Whose word.
        by: Text,
    },
    /// A device is lent no more, and nobody has it.
    Removed {
        /// Which.
        device: DeviceName,
    },
    /// A device cannot be lent: there are too many.
    NotAdded {
        /// Which.
        device: DeviceName,
        /// How many there may be.
        allowed: usize,
    },
}

/// What became of one lease of a renewal.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Renewal {
    /// Which.
    pub lease: LeaseId,
    /// For how long it goes on, counted by the borrower from before it asked; or why not.
    pub result: Result<Duration, Refusal>,
    /// It is wanted back, and ends in this time whatever happens.
    pub recalled_within: Option<Duration>,
}
