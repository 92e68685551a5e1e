//! What a lender must not forget: the epochs it used, the leases it granted, what it quarantined.
//!
//! Owns the meaning of the records and their bytes; the daemon owns the file. A file begins with a
//! record of the whole state so far and grows by records that are appended; a replaced file says the
//! same as the old one. What cannot be read is refused by name, never guessed: a lender that forgot an
//! epoch might give it twice.

mod frame;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{BorrowerId, DeviceName, Epoch, HostName, LeaseId, RequestId};
use crate::text::Text;

pub use frame::LedgerError;

/// Which run of the machine it was, as `/proc/sys/kernel/random/boot_id` has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct BootId(pub [u8; 16]);

/// How far epochs go on above the last one that is known when the end of a ledger is damaged: more
/// than one write can have used.
pub const EPOCHS_SKIPPED: u64 = 1 << 20;

/// One fact.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Record {
    /// First in every file: the machine runs since `boot`, epochs to `last_epoch` were used. `torn`
    /// says that the file before was damaged at its end, and the time that this costs is not over.
    Begun { boot: BootId, last_epoch: Epoch, torn: bool },
    /// Devices were granted, together.
    Granted { request: RequestId, borrower: BorrowerId, duration_ns: u64, leases: Vec<LeaseId> },
    /// The lender ended a lease whose borrower may still believe in it.
    Cut { lease: LeaseId },
    /// A lease has ended, and nobody believes in it.
    Ended { lease: LeaseId },
    /// A device did not reset.
    Quarantined { device: DeviceName, why: Text },
    /// A person said that it is clean.
    Released { device: DeviceName },
    /// Requests of a host to this one were answered.
    Answered { host: HostName, request: RequestId },
}

/// A lease that had not ended when the ledger was written.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Kept {
    /// Which lease of the device.
    pub epoch: Epoch,
    /// Who has it.
    pub borrower: BorrowerId,
    /// For which request it was granted.
    pub request: RequestId,
    /// For how long, each time, in nanoseconds.
    pub duration_ns: u64,
    /// The lender ended it; its borrower may not know.
    pub cut: bool,
}

/// The state that the records of a ledger tell.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ledger {
    pub(crate) boot: BootId,
    pub(crate) last_epoch: Epoch,
    pub(crate) leases: BTreeMap<DeviceName, Kept>,
    pub(crate) quarantined: BTreeMap<DeviceName, Text>,
    pub(crate) answered: BTreeMap<HostName, RequestId>,
    /// The last write was not complete: what it said is not known.
    pub(crate) torn: bool,
}

impl Ledger {
    /// The ledger of a lender that never granted anything: epochs begin above `last_epoch`.
    ///
    /// Only where there is no file. To be safe if somebody deletes the file, begin above something
    /// that grows by itself, such as the seconds since 1970 times 2^20.
    #[must_use]
    pub fn fresh(boot: BootId, last_epoch: Epoch) -> Self {
        Self {
            boot,
            last_epoch,
            leases: BTreeMap::new(),
            quarantined: BTreeMap::new(),
            answered: BTreeMap::new(),
            torn: false,
        }
    }

    /// Reads a file.
    ///
    /// An incomplete last record is ignored, as a write that the crash cut off: nothing was granted
    /// on its word. Epochs then go on [`EPOCHS_SKIPPED`] above, and the lender grants nothing until the
    /// longest lease would be over.
    ///
    /// # Errors
    /// If the file does not begin as a ledger does, or is damaged before its end.
    pub fn read(bytes: &[u8]) -> Result<Self, LedgerError> {
        let (records, torn) = frame::decode(bytes)?;
        let mut ledger: Option<Ledger> = None;
        for (offset, record) in records {
            match (&mut ledger, record) {
                (None, Record::Begun { boot, last_epoch, torn }) => {
                    ledger = Some(Self { torn, ..Self::fresh(boot, last_epoch) });
                }
                (Some(ledger), record) => ledger.apply(&record),
                (None, _) => return Err(LedgerError::NoBeginning { offset }),
            }
        }
        let mut ledger = ledger.ok_or(LedgerError::NoBeginning { offset: 0 })?;
        if torn {
            ledger.torn = true;
            ledger.last_epoch.0 = ledger.last_epoch.0.saturating_add(EPOCHS_SKIPPED);
        }
        Ok(ledger)
    }

    /// The highest epoch that may have been used.
    #[must_use]
    pub fn last_epoch(&self) -> Epoch {
        self.last_epoch
    }

    /// The leases that had not ended.
    pub fn leases(&self) -> impl Iterator<Item = (&DeviceName, &Kept)> {
        self.leases.iter()
    }

    /// The devices that are quarantined, and why.
    pub fn quarantined(&self) -> impl Iterator<Item = (&DeviceName, &Text)> {
        self.quarantined.iter()
    }

    /// The file that says all this and nothing else.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        frame::encode(&self.records())
    }

    /// Takes a fact in. The same one again changes nothing.
    pub(crate) fn apply(&mut self, record: &Record) {
        match record {
            Record::Begun { boot, last_epoch, torn } => {
                self.boot = *boot;
                self.last_epoch = self.last_epoch.max(*last_epoch);
                self.torn |= torn;
            }
            Record::Granted { request, borrower, duration_ns, leases } => {
                for lease in leases {
                    self.last_epoch = self.last_epoch.max(lease.epoch);
                    let kept = Kept {
                        epoch: lease.epoch,
                        borrower: borrower.clone(),
                        request: *request,
                        duration_ns: *duration_ns,
                        cut: false,
                    };
                    self.leases.insert(lease.device.clone(), kept);
                }
                self.answer(&borrower.host, *request);
            }
            Record::Cut { lease } => {
                let kept = self.leases.get_mut(&lease.device);
                if let Some(kept) = kept.filter(|kept| kept.epoch == lease.epoch) {
                    kept.cut = true;
                }
            }
            Record::Ended { lease } => {
                if self.leases.get(&lease.device).is_some_and(|kept| kept.epoch == lease.epoch) {
                    self.leases.remove(&lease.device);
                }
            }
            Record::Quarantined { device, why } => {
                self.quarantined.insert(device.clone(), why.clone());
            }
            Record::Released { device } => {
                self.quarantined.remove(device);
            }
            Record::Answered { host, request } => self.answer(host, *request),
        }
    }

    fn answer(&mut self, host: &HostName, request: RequestId) {
        let highest = self.answered.entry(host.clone()).or_insert(request);
        *highest = request.max(*highest);
    }

    /// The shortest list of records that says all this.
    fn records(&self) -> Vec<Record> {
        let (boot, last_epoch, torn) = (self.boot, self.last_epoch, self.torn);
        let begun = Record::Begun { boot, last_epoch, torn };
        let leases = self.leases.iter().flat_map(|(device, kept)| {
            let lease = LeaseId { device: device.clone(), epoch: kept.epoch };
            let granted = Record::Granted {
                request: kept.request,
                borrower: kept.borrower.clone(),
                duration_ns: kept.duration_ns,
                leases: vec![lease.clone()],
            };
            std::iter::once(granted).chain(kept.cut.then_some(Record::Cut { lease }))
        });
        let quarantined = self
            .quarantined
            .iter()
            .map(|(device, why)| Record::Quarantined { device: device.clone(), why: why.clone() });
        let answered = self
            .answered
            .iter()
            .map(|(host, request)| Record::Answered { host: host.clone(), request: *request });
        std::iter::once(begun).chain(leases).chain(quarantined).chain(answered).collect()
    }
}

/// Records as bytes to append.
pub(crate) fn encode(records: &[Record]) -> Vec<u8> {
    frame::encode(records)
}
