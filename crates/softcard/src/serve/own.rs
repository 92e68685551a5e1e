//! Memory that kernels of a served function allocate: its frames lie behind those of the driver, in the same BAR.
//!
//! The function's allocator gives it; a kernel that asks waits here for the answer. What becomes free is made zero before
//! anybody gets it again.

use std::sync::Mutex;

use farside_card::interface::AllocRequest;
use farside_card::window::AllocError;
use farside_card::{Function, WindowAction, WindowConfig};
use farside_linux::card_memory::{CardMemory, zero_pages};
use farside_linux::lock::lock;
use farside_linux::wait::Gate;
use farside_types::{CardId, FrameNo, PAGE_SIZE, PeId};

use super::CardConfig;
use crate::window::WindowError;
use crate::window_plan::WindowPlan;

/// Where a window begins until its driver says where it does.
const FIRST_BASE: u64 = 1 << 44;
/// Frames in a row that are made zero by writing, at most: 2 MiB.
const WRITTEN_ZEROS: u32 = 512;
const NOT_SERVED: &str = "it is served without (`farside card serve --window`)";

/// See the module.
#[derive(Debug)]
pub(super) struct Own {
    /// Its number, for people.
    card: CardId,
    first: u32,
    frames: u32,
    window: Option<WindowConfig>,
    /// By processing element.
    answers: Vec<AnswerSlot>,
}

#[derive(Debug, Default)]
struct AnswerSlot {
    result: Mutex<Option<Result<u64, AllocError>>>,
    gate: Gate,
}

/// Bytes of private memory that the tables of a window may take.
pub(super) fn table_bytes(config: &CardConfig) -> u64 {
    let plan = WindowPlan::new(config.window_frames).filter(|_| config.window_frames > 0);
    plan.map_or(0, |plan| plan.table_bytes())
}

fn window(config: &CardConfig) -> Option<WindowConfig> {
    let plan = WindowPlan::new(config.window_frames).filter(|_| config.window_frames > 0)?;
    let window = WindowConfig::new(plan.allocator(FIRST_BASE).ok()?, config.pes).ok()?;
    Some(window.within(config.frames))
}

impl Own {
    pub(super) fn new(config: &CardConfig) -> Own {
        Own {
            card: CardId(config.card as u8),
            first: config.frames,
            frames: config.window_frames,
            window: window(config),
            answers: (0..config.pes).map(|_| AnswerSlot::default()).collect(),
        }
    }

    /// The function with its window, if it has one.
    pub(super) fn give_window(&self, front: Function) -> Function {
        match &self.window {
            Some(window) => front.with_window(window),
            None => front,
        }
    }

    /// What the function wants done.
    pub(super) fn act(&self, action: WindowAction) {
        // Pages are taken from the card's MMU by the function itself.
        let WindowAction::Allocated { pe, result } = action else { return };
        if let Some(slot) = self.answers.get(usize::from(pe.0)) {
            *lock(&slot.result) = Some(result);
            slot.gate.notify();
        }
    }

    /// A kernel asks for something, by `ask`, and waits for the answer: until those who have what it frees have let go.
    pub(super) fn allocate(
        &self,
        pe: PeId,
        request: AllocRequest,
        ask: impl FnOnce(PeId, AllocRequest) -> bool,
    ) -> Result<u64, WindowError> {
        let no_window = WindowError::NoWindow { card: self.card, why: NOT_SERVED };
        let slot = self.answers.get(usize::from(pe.0)).ok_or(no_window.clone())?;
        if !ask(pe, request) {
            return Err(no_window);
        }
        let result = slot.gate.wait_for(|| lock(&slot.result).take());
        let card = self.card;
        result.map_err(|error| WindowError::Refused { card, request, error, free: None })
    }

    /// Makes frames zero that nobody has.
    pub(super) fn scrub(&self, memory: &CardMemory, first: u32, count: u32) {
        let first = FrameNo(first);
        if count > WRITTEN_ZEROS && memory.remove(first, count).is_ok() {
            return;
        }
        if let Ok(start) = memory.run_ptr(first, count) {
            // SAFETY: frames of pages that no processing element has any more, and that nobody gets before this ends. What the
            // client does with its own memory meanwhile is its own affair.
            unsafe { zero_pages(start.as_ptr(), count as usize) };
        }
    }

    /// Makes all of the window's memory zero: nobody has any of it.
    pub(super) fn scrub_all(&self, memory: &CardMemory) {
        if self.frames > 0 {
            self.scrub(memory, self.first, self.frames);
        }
    }
}

const _: () = assert!(FIRST_BASE % (crate::WINDOW_FRAMES_MAX as u64 * PAGE_SIZE as u64) == 0);
