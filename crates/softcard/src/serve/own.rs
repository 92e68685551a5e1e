//! Memory that kernels of a served function allocate: its frames lie behind those of the driver, in the same BAR.
//!
//! The function's allocator gives it; a kernel that asks waits here for the answer. What becomes free is made zero before
//! anybody gets it again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use farside_card::interface::AllocRequest;
use farside_card::window::AllocError;
use farside_card::{Function, WindowAction, WindowConfig};
use farside_linux::card_memory::CardMemory;
use farside_linux::lock::lock;
use farside_linux::wait::Gate;
use farside_types::{CardId, FrameNo, JobId, PAGE_SIZE};

use super::CardConfig;
use crate::job::Job;
use crate::window::WindowError;

/// Where a window begins until its driver says where it does.
const FIRST_BASE: u64 = 1 << 44;
const NOT_SERVED: &str = "it is served without (`farside card serve --window`)";

/// See the module.
#[derive(Debug)]
pub(super) struct Own {
    /// Its number, for people.
    card: CardId,
    first: u32,
    frames: u32,
    window: Option<WindowConfig>,
    /// Those whose answers are to come.
    waiting: Mutex<BTreeMap<JobId, Arc<AnswerSlot>>>,
}

/// Where a kernel waits for the answer to one request.
#[derive(Debug, Default)]
pub(super) struct AnswerSlot {
    result: Mutex<Option<Result<u64, AllocError>>>,
    gate: Gate,
}

/// Bytes of private memory that the tables of a window may take.
pub(super) fn table_bytes(config: &CardConfig) -> u64 {
    config.plan().ok().flatten().map_or(0, |plan| plan.table_bytes())
}

fn window(config: &CardConfig) -> Option<WindowConfig> {
    let plan = config.plan().ok()??;
    let window = WindowConfig::new(plan.allocator(FIRST_BASE).ok()?, config.pes).ok()?;
    let kinds = plan.memories().iter().map(|memory| memory.kind).collect();
    Some(window.within(config.frames).of_kinds(kinds))
}

impl Own {
    pub(super) fn new(config: &CardConfig) -> Own {
        Own {
            card: CardId(config.card as u8),
            first: config.frames,
            frames: config.all_frames() - config.frames,
            window: window(config),
            waiting: Mutex::default(),
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
        let WindowAction::Allocated { job, result } = action else { return };
        if let Some(slot) = lock(&self.waiting).remove(&job) {
            *lock(&slot.result) = Some(result);
            slot.gate.notify();
        }
    }

    /// There is no window.
    pub(super) fn without(&self) -> WindowError {
        WindowError::NoWindow { card: self.card, why: NOT_SERVED }
    }

    /// A kernel asks for something, by `ask`, which says whether it was taken, and waits for the answer: until those who have
    /// what it frees have let go, or it has to stop. What comes of it then is the function's affair.
    pub(super) fn allocate(
        &self,
        job: &Job,
        request: AllocRequest,
        ask: impl FnOnce(&Arc<AnswerSlot>) -> bool,
    ) -> Result<u64, WindowError> {
        let card = self.card;
        if self.window.is_none() {
            return Err(self.without());
        }
        let slot = Arc::new(AnswerSlot::default());
        let stopped = Err(AllocError::Stopped);
        let result = match ask(&slot) {
            true => slot.gate.wait_for(|| {
                let result = lock(&slot.result).take();
                result.or_else(|| job.stopped().map(|_| stopped))
            }),
            // It was given up, or has stopped to wait for what it has asked before.
            false => stopped,
        };
        let memories = Vec::new();
        result.map_err(|error| WindowError::Refused { card, request, error, memories })
    }

    /// The answer to what a job has asked goes here. The function's lock is held since it was asked.
    pub(super) fn expect(&self, job: JobId, slot: &Arc<AnswerSlot>) {
        lock(&self.waiting).insert(job, Arc::clone(slot));
    }

    /// A job has to stop.
    pub(super) fn wake(&self, job: JobId) {
        if let Some(slot) = lock(&self.waiting).get(&job) {
            slot.gate.notify();
        }
    }

    /// Makes frames zero that nobody has.
    pub(super) fn scrub(&self, memory: &CardMemory, first: u32, count: u32) {
        // SAFETY: frames of pages that no processing element has any more, and that nobody gets before this ends. What the
        // client does with its own memory meanwhile is its own affair.
        let zeroed = unsafe { memory.zero(FrameNo(first), count) };
        debug_assert!(zeroed.is_ok(), "they are the window's");
    }

    /// Makes all of the window's memory zero: nobody has any of it.
    pub(super) fn scrub_all(&self, memory: &CardMemory) {
        if self.frames > 0 {
            self.scrub(memory, self.first, self.frames);
        }
    }
}

const _: () = assert!(FIRST_BASE % (crate::WINDOW_FRAMES_MAX as u64 * PAGE_SIZE as u64) == 0);
