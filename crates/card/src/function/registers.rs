//! BAR0: each register is read and written whole, at its own width.

use super::{Bus, Function, Phase, pci};
use crate::Card;
use crate::interface::register::{self, COUNTER_NAMES};
use crate::interface::{RING_COUNT, RingKind, VERSION};

/// A register of 4 or 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word {
    Narrow(u32),
    Wide(u64),
}

impl Word {
    /// The word of these bytes, if they are as many as a register has.
    fn from_bytes(bytes: &[u8]) -> Option<Word> {
        if let Ok(bytes) = bytes.try_into() {
            return Some(Word::Narrow(u32::from_le_bytes(bytes)));
        }
        Some(Word::Wide(u64::from_le_bytes(bytes.try_into().ok()?)))
    }

    fn write_to(self, into: &mut [u8]) {
        let (wide, narrow);
        let bytes: &[u8] = match self {
            Word::Narrow(value) => {
                narrow = value.to_le_bytes();
                &narrow
            }
            Word::Wide(value) => {
                wide = value.to_le_bytes();
                &wide
            }
        };
        if bytes.len() == into.len() {
            into.copy_from_slice(bytes);
        } else {
            into.fill(0xff);
        }
    }
}

/// Ring and register of an offset among the ring registers.
fn ring_register(offset: u64) -> Option<(RingKind, u64)> {
    let within = offset.checked_sub(register::RINGS)?;
    let kind = RingKind::ALL.into_iter().nth((within / register::RING_STRIDE) as usize)?;
    Some((kind, within % register::RING_STRIDE))
}

impl Function {
    /// Reads BAR0. Where no register begins, or at another width than the register's, every byte is
    /// 0xff. Changes nothing.
    pub fn read_register(&self, card: &Card, offset: u64, into: &mut [u8]) {
        let word = match offset {
            register::RINGS..register::MEMORIES => self.ring_word(offset),
            register::MEMORIES..register::COUNTERS => self.memory_word(offset),
            register::COUNTERS.. => self.counter_word(card, offset),
            _ => self.constant(card, offset).or_else(|| self.state_word(card, offset)),
        };
        match word {
            Some(word) => word.write_to(into),
            None => into.fill(0xff),
        }
    }

    fn constant(&self, card: &Card, offset: u64) -> Option<Word> {
        let geometry = card.geometry();
        Some(match offset {
            register::MAGIC => Word::Narrow(register::MAGIC_VALUE),
            register::VERSION => Word::Narrow(VERSION),
            register::CAPABILITIES => Word::Wide(self.capability_bits(card)),
            register::GENERATION => Word::Wide(self.config.generation),
            register::FRAMES => Word::Narrow(self.driver_frames(card)),
            register::PES => Word::Narrow(geometry.pes.into()),
            register::ASIDS => Word::Narrow(self.config.asids.into()),
            register::FAULT_ENTRIES => Word::Narrow(geometry.fault_entries),
            register::GROUP_RANGES => Word::Narrow(geometry.group_ranges_max),
            register::COUNTER_GROUP_PAGES => Word::Narrow(geometry.counter_group.pages() as u32),
            register::DMA_PAGES => Word::Narrow(geometry.dma_pages_max),
            register::DMA_COMMANDS => Word::Narrow(geometry.dma_commands_max),
            register::JOBS => Word::Narrow(self.config.jobs_max),
            register::CARD => Word::Narrow(self.config.card),
            register::FUNCTION => Word::Narrow(self.config.function),
            register::PAGE_SIZES => Word::Narrow(page_sizes(card)),
            register::TABLE_PAGES if card.tables().is_some() => Word::Narrow(geometry.table_pages),
            register::WINDOW_BYTES => {
                Word::Wide(1 << self.window.as_ref()?.config().geometry.window_bits())
            }
            register::WINDOW_FRAMES => {
                let memories = self.window.as_ref()?.memories();
                Word::Wide(memories.iter().map(|&frames| u64::from(frames)).sum())
            }
            register::WINDOW_PAGE => {
                Word::Narrow(self.window.as_ref()?.config().geometry.page_bits())
            }
            register::WINDOW_MEMORIES => {
                Word::Narrow(self.window.as_ref()?.memories().len() as u32)
            }
            register::WINDOW_FIRST => Word::Narrow(self.window.as_ref()?.first_page().unwrap_or(0)),
            register::KERNELS => Word::Narrow(self.config.kernels.len() as u32),
            _ => return None,
        })
    }

    /// What the function is configured to carry out, and what its card has.
    fn capability_bits(&self, card: &Card) -> u64 {
        let tables = if card.tables().is_some() { register::CAP_TABLES } else { 0 };
        let window = if self.window.is_some() { register::CAP_ALLOC } else { 0 };
        self.config.capability_bits() | tables | window
    }

    fn state_word(&self, card: &Card, offset: u64) -> Option<Word> {
        Some(match offset {
            register::COUNTER_THRESHOLD => Word::Narrow(card.counter_threshold()),
            register::CONTROL => Word::Narrow(match self.phase {
                Phase::Enabled => register::CONTROL_ENABLE,
                _ => 0,
            }),
            register::STATUS => Word::Narrow(self.status(card)),
            register::ERRORS => Word::Wide(self.errors.bits()),
            register::TABLE_PAGES_USED => Word::Narrow(card.tables()?.used()),
            register::WINDOW_BASE => Word::Wide(self.window.as_ref()?.base()),
            register::WINDOW_FRAMES_FREE => Word::Wide(self.window.as_ref()?.frames_free()),
            register::ERROR_DETAIL => Word::Wide(self.errors.detail()),
            _ => return None,
        })
    }

    fn status(&self, card: &Card) -> u32 {
        let phase = match self.phase {
            Phase::Disabled => 0,
            Phase::Enabled => register::STATUS_ENABLED,
            Phase::Failed => register::STATUS_FAILED,
            Phase::Resetting { .. } => register::STATUS_RESETTING,
        };
        let quiet = if self.is_quiet(card) { register::STATUS_QUIET } else { 0 };
        phase | quiet
    }

    fn ring_word(&self, offset: u64) -> Option<Word> {
        let (kind, within) = ring_register(offset)?;
        let ring = self.registers.get(kind);
        Some(match within {
            register::RING_BASE => Word::Wide(ring.base),
            register::RING_ENTRIES => Word::Narrow(ring.entries),
            register::RING_VECTOR => Word::Narrow(ring.vector),
            register::RING_INDEX => {
                Word::Narrow(self.rings.as_ref().map_or(ring.index, |rings| rings.index(kind)))
            }
            _ => return None,
        })
    }

    /// What there is to know of a memory of the window.
    fn memory_word(&self, offset: u64) -> Option<Word> {
        let within = offset - register::MEMORIES;
        let memory = u8::try_from(within / register::MEMORY_STRIDE).ok()?;
        let sizes = self.window.as_ref()?.sizes_of(memory)?;
        Some(Word::Narrow(match within % register::MEMORY_STRIDE {
            register::MEMORY_FRAMES => sizes.frames,
            register::MEMORY_FRAMES_FREE => sizes.frames_free,
            register::MEMORY_KIND => sizes.kind.code(),
            _ => return None,
        }))
    }

    fn counter_word(&self, card: &Card, offset: u64) -> Option<Word> {
        let within = offset - register::COUNTERS;
        let index = usize::try_from(within / 8).ok().filter(|&at| at < COUNTER_NAMES.len())?;
        (within % 8 == 0).then(|| Word::Wide(self.counts.registers(card)[index]))
    }

    /// Writes BAR0. A write that is not allowed changes nothing but the error register.
    pub fn write_register(
        &mut self,
        card: &mut Card,
        bus: &mut impl Bus,
        offset: u64,
        from: &[u8],
    ) {
        let taken = match (offset, Word::from_bytes(from)) {
            (register::DOORBELL, Some(Word::Narrow(_))) => {
                self.counts.doorbells += 1;
                self.process(card, bus);
                true
            }
            (register::CONTROL, Some(Word::Narrow(value))) => self.control(value, card, bus),
            (register::ERRORS, Some(Word::Wide(bits))) => {
                self.errors.clear(bits);
                true
            }
            (register::COUNTER_THRESHOLD, Some(Word::Narrow(value))) if value > 0 => {
                card.set_counter_threshold(value);
                true
            }
            (register::WINDOW_BASE, Some(Word::Wide(base))) if self.phase == Phase::Disabled => {
                self.window.as_mut().is_some_and(|window| window.set_base(base))
            }
            (offset, Some(word)) => self.write_ring(offset, word),
            (_, None) => false,
        };
        if !taken {
            self.report(register::ERROR_REGISTER, offset, bus);
        }
    }

    fn control(&mut self, value: u32, card: &mut Card, bus: &mut impl Bus) -> bool {
        if value & !(register::CONTROL_ENABLE | register::CONTROL_RESET) != 0 {
            return false;
        }
        if value & register::CONTROL_RESET != 0 {
            self.begin_reset(card);
            return true;
        }
        let enable = value & register::CONTROL_ENABLE != 0;
        match (self.phase, enable) {
            (Phase::Disabled, true) => self.enable(card, bus),
            (Phase::Enabled, false) => self.disable(),
            (Phase::Failed | Phase::Resetting { .. }, true) => return false,
            _ => {}
        }
        true
    }

    fn write_ring(&mut self, offset: u64, word: Word) -> bool {
        let Some((kind, within)) = ring_register(offset) else {
            return false;
        };
        if self.phase != Phase::Disabled {
            return false;
        }
        let ring = self.registers.get_mut(kind);
        match (within, word) {
            (register::RING_BASE, Word::Wide(base)) => ring.base = base,
            (register::RING_ENTRIES, Word::Narrow(entries)) => ring.entries = entries,
            (register::RING_VECTOR, Word::Narrow(vector)) if vector < pci::VECTORS.into() => {
                ring.vector = vector;
            }
            _ => return false,
        }
        true
    }
}

/// Sizes of translations that take one entry of a TLB.
fn page_sizes(card: &Card) -> u32 {
    let geometry = card.geometry();
    let flexible = |shift: u32| {
        let pages = 1 << (shift - 12);
        let fits = (geometry.flexible_pages_min..=geometry.flexible_pages_max).contains(&pages);
        if geometry.flexible_entries > 0 && fits { 1 << shift } else { 0 }
    };
    1 << 12 | flexible(16) | flexible(21)
}

const _: () =
    assert!(register::RINGS + RING_COUNT as u64 * register::RING_STRIDE <= register::MEMORIES);
const _: () = assert!(register::memory(register::MEMORIES_MAX as u8) <= register::COUNTERS);
