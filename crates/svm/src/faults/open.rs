//! The faults of cards that are open.

use farside_types::{CardId, FaultId, List, PageNo, Shelf, Shelved};
use serde::{Deserialize, Serialize};

use crate::api::event::Need;

/// Names an open fault; stale after it was answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug, Serialize, Deserialize)]
pub(crate) struct FaultKey {
    pub(crate) slot: u32,
    pub(crate) life: u32,
}

impl Shelved for FaultKey {
    fn shelf() -> &'static Shelf<FaultKey> {
        static SHELF: Shelf<FaultKey> = Shelf::new();
        &SHELF
    }
}

/// Open faults that are served together.
pub(crate) type FaultKeys = List<FaultKey, 4>;

/// An access of a card that stands still.
#[derive(Serialize, Deserialize)]
pub(crate) struct OpenFault {
    /// Its number in the order in which they came.
    pub(crate) serial: u64,
    pub(crate) card: CardId,
    pub(crate) id: FaultId,
    pub(crate) need: Need,
    /// Chains for it that failed.
    pub(crate) attempts: u8,
    /// Times it was planned and had to wait for pages that others hold.
    pub(crate) passes: u8,
    /// The placement scheme was asked about it.
    pub(crate) decided: bool,
}

impl OpenFault {
    /// Whether it needs `page`.
    pub(crate) fn needs(&self, page: PageNo) -> bool {
        match &self.need {
            Need::Page(own, _) => *own == page,
            Need::Group(ranges) => ranges.iter().any(|(range, _)| range.contains(page)),
        }
    }
}

/// Open faults in slots that are used again.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Faults {
    slots: Vec<(u32, Option<OpenFault>)>,
    free: Vec<u32>,
    opened: u64,
}

impl Faults {
    /// None yet, with room for `faults` of them.
    pub(crate) fn with_room(faults: usize) -> Faults {
        let (slots, free) = (Vec::with_capacity(faults), Vec::with_capacity(faults));
        Faults { slots, free, opened: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// A fault of `card` came.
    pub(crate) fn open(&mut self, card: CardId, id: FaultId, need: Need) -> FaultKey {
        self.opened += 1;
        let serial = self.opened;
        let fault = OpenFault { serial, card, id, need, attempts: 0, passes: 0, decided: false };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let (life, place) = &mut self.slots[slot as usize];
        *place = Some(fault);
        FaultKey { slot, life: *life }
    }

    pub(crate) fn get(&self, key: FaultKey) -> Option<&OpenFault> {
        let (life, fault) = self.slots.get(key.slot as usize)?;
        if *life == key.life { fault.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, key: FaultKey) -> Option<&mut OpenFault> {
        let (life, fault) = self.slots.get_mut(key.slot as usize)?;
        if *life == key.life { fault.as_mut() } else { None }
    }

    /// Takes a fault that is answered out; `None` if it was answered before.
    pub(crate) fn close(&mut self, key: FaultKey) -> Option<OpenFault> {
        let (life, place) = self.slots.get_mut(key.slot as usize)?;
        if *life != key.life {
            return None;
        }
        let fault = place.take()?;
        *life = life.wrapping_add(1);
        self.free.push(key.slot);
        Some(fault)
    }

    /// Takes all faults of `card` out.
    pub(crate) fn close_card(&mut self, card: CardId) -> Vec<OpenFault> {
        let keys: Vec<FaultKey> = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, (_, fault))| fault.as_ref().is_some_and(|f| f.card == card))
            .map(|(slot, (life, _))| FaultKey { slot: slot as u32, life: *life })
            .collect();
        keys.into_iter().filter_map(|key| self.close(key)).collect()
    }
}
