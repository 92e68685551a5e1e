//! Faults and notices on their way from the card into their rings.

use farside_types::{Access, CancelReason, FaultId, PageRange};

use super::ring::{Producer, RingError};
use super::{Bus, Function};
use crate::interface::{
    FaultHead, FaultRecord, FaultWants, NoticeRecord, PAGE_NUMBERS, RANGES_PER_RECORD,
};
use crate::{Card, Need};

/// What becomes of the next fault.
enum Next {
    /// These records, all or none of them.
    Records(Vec<FaultRecord>),
    /// It can never be told to a driver, and ends with this.
    Hopeless(FaultId, CancelReason),
}

fn continuation(id: FaultId, some: &[(PageRange, Access)]) -> FaultRecord {
    let mut ranges = [None; RANGES_PER_RECORD];
    for (place, &range) in ranges.iter_mut().zip(some) {
        *place = Some(range);
    }
    FaultRecord::Ranges(id, ranges)
}

impl Function {
    /// The next fault that the driver was not told of.
    fn next_fault(&self, card: &Card, entries: u32) -> Option<Next> {
        let (fault, waiter) = card.first_fault()?;
        let head = |wants| {
            FaultRecord::Head(FaultHead {
                id: fault.id,
                asid: fault.asid,
                pe: waiter.pe,
                job: waiter.job,
                wants,
            })
        };
        let beyond = |range: PageRange| range.start.0.saturating_add(range.count) > PAGE_NUMBERS;
        if fault.need.ranges().any(|(range, _)| beyond(range)) {
            return Some(Next::Hopeless(fault.id, CancelReason::Unallocated));
        }
        let records = match &fault.need {
            &Need::Page(page, access) => vec![head(FaultWants::Page(page, access))],
            Need::Group(ranges) => {
                // Pages of the window are there already.
                let is_drivers = |(range, _): &(PageRange, Access)| !self.is_of_window(range.start);
                let ranges: Vec<_> = ranges.iter().copied().filter(is_drivers).collect();
                let too_long = ranges.iter().any(|(range, _)| range.count > u64::from(u32::MAX));
                let needed = 1 + ranges.len().div_ceil(RANGES_PER_RECORD);
                if too_long || needed > entries as usize {
                    return Some(Next::Hopeless(fault.id, CancelReason::GroupTooLarge));
                }
                let first = head(FaultWants::Group { ranges: ranges.len() as u32 });
                let rest =
                    ranges.chunks(RANGES_PER_RECORD).map(|some| continuation(fault.id, some));
                std::iter::once(first).chain(rest).collect()
            }
        };
        Some(Next::Records(records))
    }

    /// Writes faults while all records of the next one fit.
    pub(super) fn write_faults(
        &mut self,
        ring: &mut Producer,
        card: &mut Card,
        bus: &mut impl Bus,
    ) -> Result<(), RingError> {
        loop {
            // Of each that comes to the head: no record names a page of the window.
            self.serve_window_faults(card);
            let Some(next) = self.next_fault(card, ring.entries()) else { break };
            match next {
                Next::Hopeless(id, reason) => {
                    let answers = card.cancel(id, reason);
                    self.hand_over(answers);
                }
                Next::Records(records) => {
                    if !ring.has_room(records.len() as u32, bus)? {
                        break;
                    }
                    for record in &records {
                        ring.put(&record.to_entry(), bus)?;
                    }
                    card.take_faults(1);
                    self.counts.faults_written += 1;
                }
            }
        }
        self.show(ring, bus)
    }

    /// Places that the next fault needs; 0 if there is none.
    pub(super) fn fault_places(&self, card: &Card, entries: u32) -> u32 {
        match self.next_fault(card, entries) {
            Some(Next::Records(records)) => records.len() as u32,
            Some(Next::Hopeless(..)) | None => 0,
        }
    }

    /// Writes notices while there is room. Those that find none stay with the card, where clearing
    /// their counters takes them back.
    pub(super) fn write_notices(
        &mut self,
        ring: &mut Producer,
        card: &mut Card,
        bus: &mut impl Bus,
    ) -> Result<(), RingError> {
        while card.has_notices() && ring.has_room(1, bus)? {
            for notice in card.take_some_notices(1) {
                let (asid, pages, count) = (notice.asid, notice.pages, notice.count);
                ring.put(&NoticeRecord { asid, pages, count }.to_entry(), bus)?;
                self.counts.notices_written += 1;
            }
        }
        self.show(ring, bus)
    }
}
