//! Commands that tell bits of pages: which were written, which were used.

use farside_types::{Asid, CommandId};

use super::commands::{Outcome, pages_of};
use super::extents::Roles;
use super::refusal::Refusal;
use super::{Bus, Function};
use crate::interface::{BITS_PAGES, BitsBuffer, CompletionEntry, ExtentArg, Status, register};
use crate::tables::PageBits;
use crate::{Card, Drained};

/// Bits that are about as much work as a record of a list.
const BITS_PER_WORK: u64 = 1024;

/// Bits for as many pages as can be told.
fn bits_for(pages: u64, buffer: Option<BitsBuffer>) -> PageBits {
    let most = buffer.map_or(0, |buffer| u64::from(buffer.bytes) * 8);
    PageBits::new(pages, most.max(BITS_PAGES))
}

fn check_buffer(buffer: Option<BitsBuffer>, bus: &mut impl Bus) -> Result<(), Refusal> {
    match buffer {
        Some(BitsBuffer { address, bytes }) if !bus.reaches(address, bytes.into(), true) => {
            Err(Refusal::mistake(Status::BadAddress, address))
        }
        _ => Ok(()),
    }
}

impl Function {
    pub(super) fn unmap(
        &mut self,
        id: CommandId,
        asid: Asid,
        pages: ExtentArg,
        buffer: Option<BitsBuffer>,
        card: &mut Card,
        bus: &mut impl Bus,
    ) -> Outcome {
        let extents = self.spaced(asid, pages, Roles::PAGES, card, bus)?;
        check_buffer(buffer, bus)?;
        let ranges = extents.iter().map(pages_of);
        let (drained, completion) = if card.tables().is_some() {
            let mut written = bits_for(extents.pages(), buffer);
            let drained = card.unmap_telling(id, asid, ranges, &mut written);
            (drained, self.told(id, &written, buffer, bus))
        } else {
            (card.unmap(id, asid, ranges), CompletionEntry::plain(0, Status::Ok))
        };
        match drained {
            Drained::Now => Ok(Some(completion)),
            Drained::Waiting(_) => {
                self.ledger.promise(id, completion);
                Ok(None)
            }
        }
    }

    pub(super) fn accessed(
        &mut self,
        id: CommandId,
        asid: Asid,
        pages: ExtentArg,
        buffer: Option<BitsBuffer>,
        card: &mut Card,
        bus: &mut impl Bus,
    ) -> Outcome {
        let extents = self.spaced(asid, pages, Roles::PAGES, card, bus)?;
        check_buffer(buffer, bus)?;
        let mut used = bits_for(extents.pages(), buffer);
        card.take_accessed(asid, extents.iter().map(pages_of), &mut used);
        let told = self.told(id, &used, buffer, bus);
        Ok(Some(CompletionEntry { pages: extents.pages(), ..told }))
    }

    /// Writes bits where they go. A buffer that cannot be written after all is an error of the bus;
    /// then only the bits in the completion are told.
    fn told(
        &mut self,
        id: CommandId,
        bits: &PageBits,
        buffer: Option<BitsBuffer>,
        bus: &mut impl Bus,
    ) -> CompletionEntry {
        self.work += bits.told() / BITS_PER_WORK;
        let mut told = bits.told();
        if let Some(buffer) = buffer {
            let words = bits.words().iter().take(buffer.bytes as usize / 8);
            let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
            if bus.write(buffer.address, &bytes).is_err() {
                self.report(register::ERROR_BUS, self.ledger.tag(id).unwrap_or(0), bus);
                told = told.min(BITS_PAGES);
            }
        }
        let mut completion =
            CompletionEntry { value: told, ..CompletionEntry::plain(0, Status::Ok) };
        for (word, bits) in completion.bits.iter_mut().zip(bits.words()) {
            *word = *bits;
        }
        completion
    }
}
