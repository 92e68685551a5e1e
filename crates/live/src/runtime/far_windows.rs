//! Windows of cards behind rings: what they are asked, and what such cards reach of other cards' windows.

use std::sync::Arc;
use std::time::Instant;

use farside_card::interface::{AllocRequest, CompletionEntry, Operation, Status, register};
use farside_linux::lock::lock;
use farside_softcard::{OwnMemory, WindowError};
use farside_svm::{CardFault, Header, Phase, RingOp, Run, Step, Wait};
use farside_types::{
    CancelReason, CardId, CommandId, Epoch, FaultId, FrameNo, MemoryId, PageRange, Reason, VirtAddr,
};

use super::{Port, Runtime};
use crate::ring_card::{Link, RingCard, read_u32, read_u64};
use crate::window::{FarCard, FarWindow, Found, Surroundings};

/// A command that a card was given for its window.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    card: CardId,
    /// What it allocates or frees.
    request: Option<AllocRequest>,
    answer: Option<CompletionEntry>,
    /// Somebody waits for it.
    is_awaited: bool,
}

/// The way to the card of a window.
pub(super) struct Asking<'a> {
    runtime: &'a Runtime,
    window: &'a FarWindow,
}

fn step(id: CommandId, op: RingOp) -> Step<RingOp> {
    let (epoch, wait) = (Epoch::default(), Wait::Awaited);
    Step { header: Header { id, epoch, wait, phase: Phase::Setup, reason: Reason::User }, op }
}

/// A command that takes pages from a card.
pub(super) fn unmap(id: CommandId, pages: PageRange) -> Step<RingOp> {
    let none = FrameNo(0);
    let run = Run { page: pages.start, count: pages.count as u32, src: none, dst: none };
    step(id, RingOp::Unmap { runs: std::iter::once(run).collect(), tells: false })
}

impl<'a> Asking<'a> {
    pub(super) fn new(runtime: &'a Runtime, window: &'a FarWindow) -> Asking<'a> {
        Asking { runtime, window }
    }

    fn gone(&self) -> WindowError {
        WindowError::Gone { card: self.window.card() }
    }

    fn ring(&self) -> Result<&'a Arc<RingCard>, WindowError> {
        match self.runtime.ports.get(usize::from(self.window.card().0)) {
            Some(Port::Ring(ring)) if !self.window.is_gone() => Ok(ring),
            _ => Err(self.gone()),
        }
    }

    /// The answer to a command, if it is there; else nobody waits for it any more.
    fn give_up_waiting(&self, id: CommandId) -> Option<CompletionEntry> {
        let mut all = lock(&self.runtime.windows.asked);
        let asked = all.get_mut(&id)?;
        asked.is_awaited = false;
        if asked.request.is_some() && asked.answer.is_none() {
            // It may still end.
            return None;
        }
        all.remove(&id)?.answer
    }
}

impl FarCard for Asking<'_> {
    fn ask(&self, at: VirtAddr, operation: Operation) -> Result<CompletionEntry, WindowError> {
        let (windows, ring) = (&self.runtime.windows, self.ring()?);
        let id = self.runtime.window_command();
        let card = self.window.card();
        let request = match operation {
            Operation::Allocate(request) => Some(request),
            _ => None,
        };
        let asked = Asked { card, request, answer: None, is_awaited: true };
        lock(&windows.asked).insert(id, asked);
        if !self.runtime.put_into_ring(ring, |link| link.ask_of_window(id, operation)) {
            self.window.lose();
        }
        let deadline = Instant::now() + windows.limit;
        windows.gate.wait(Some(deadline), || {
            let is_answered = lock(&windows.asked).get(&id).is_some_and(|it| it.answer.is_some());
            (is_answered || self.window.is_gone()).then_some(())
        });
        if let Some(done) = self.give_up_waiting(id) {
            return Ok(done);
        }
        if self.window.is_gone() {
            return Err(self.gone());
        }
        let may_wait = match request {
            Some(AllocRequest::Free { .. }) => true,
            Some(_) => self.window.awaits_free(),
            None => false,
        };
        if may_wait {
            // For a kernel that does not let go; if it answers nothing else either, it stands still.
            self.runtime.doubt(card);
        } else {
            self.window.lose();
            self.give_up("it does not answer a command of its window");
        }
        Err(WindowError::Silent { card, addr: at })
    }

    fn memories(&self) -> Result<Vec<OwnMemory>, WindowError> {
        let transport = self.ring()?.transport().ok_or_else(|| self.gone())?;
        let bus = transport.as_ref();
        let read = |number| {
            let free = register::memory(number) + register::MEMORY_FRAMES_FREE;
            read_u32(bus, free).map_err(|_| self.gone())
        };
        let free = match self.window.memory_count() {
            // A card of before says how much is free in all, which is this.
            1 => {
                let free = read_u64(bus, register::WINDOW_FRAMES_FREE).map_err(|_| self.gone())?;
                vec![u32::try_from(free).unwrap_or(u32::MAX)]
            }
            count => (0..count).map(read).collect::<Result<Vec<_>, _>>()?,
        };
        Ok(self.window.memories(free.into_iter()))
    }

    fn take_away(&self, pages: PageRange) -> bool {
        Surroundings::take_away(self.runtime, pages)
    }

    fn give_up(&self, why: &str) {
        if let Some(Port::Ring(ring)) = self.runtime.ports.get(usize::from(self.window.card().0)) {
            self.runtime.suspect(ring, why);
        }
    }
}

impl Runtime {
    /// A command of a window has completed. The driver's lock is held.
    pub(super) fn window_answered(&self, id: CommandId, done: CompletionEntry) {
        let mut all = lock(&self.windows.asked);
        let Some(asked) = all.get_mut(&id) else { return };
        let Asked { card, request, is_awaited, .. } = *asked;
        asked.answer = Some(done);
        if !is_awaited {
            all.remove(&id);
        }
        drop(all);
        let is_done = done.status == Status::Ok;
        match request {
            Some(AllocRequest::Free { address }) => {
                if let Ok(Found::Far(window)) = self.windows.of(card) {
                    // Before the next completion is looked at, which may give its place to another.
                    window.free_answered(VirtAddr(address), is_done);
                }
            }
            Some(AllocRequest::Malloc { .. }) if is_done && !is_awaited => {
                self.free_unwanted(card, done.value);
            }
            Some(_) | None => {}
        }
        self.windows.gate.notify();
    }

    /// Who asked for an allocation waits for it no more, and nobody knows of it.
    fn free_unwanted(&self, card: CardId, address: u64) {
        let Some(Port::Ring(ring)) = self.ports.get(usize::from(card.0)) else { return };
        let (id, request) = (self.window_command(), AllocRequest::Free { address });
        let asked = Asked { card, request: Some(request), answer: None, is_awaited: false };
        lock(&self.windows.asked).insert(id, asked);
        self.put_into_ring(ring, |link| link.ask_of_window(id, Operation::Allocate(request)));
    }

    /// A card may stand still: has somebody ask whether it answers.
    fn doubt(&self, card: CardId) {
        lock(&self.core).to_reset.push(card);
        self.ring_bell();
    }

    /// Serves what a card behind rings needs of other cards' windows, and leaves in `faults` what is the driver's. The
    /// driver's lock is held.
    pub(super) fn serve_windows_of_ring(&self, card: CardId, faults: &mut Vec<CardFault>) {
        let Some(Port::Ring(ring)) = self.ports.get(usize::from(card.0)) else { return };
        faults.retain_mut(|fault| {
            let served = self.serve_window_of(fault, |runs, rights| {
                // Before the card has one.
                self.reads_windows(card);
                let memory = runs.first().map_or(MemoryId::HOST, |run| run.location.memory);
                let runs = runs.iter().map(|run| Run {
                    page: run.page,
                    count: run.count,
                    src: FrameNo(0),
                    dst: run.location.frame,
                });
                self.to_ring(ring, RingOp::Map { runs: runs.collect(), memory, rights });
            });
            match served {
                Ok(Some(rest)) => {
                    fault.need = rest;
                    return true;
                }
                Ok(None) => self.answer_ring(ring, fault.id, None),
                Err(reason) => self.answer_ring(ring, fault.id, Some(reason)),
            }
            false
        });
    }

    fn answer_ring(&self, ring: &RingCard, fault: FaultId, reason: Option<CancelReason>) {
        let faults = std::iter::once(fault).collect();
        self.to_ring(
            ring,
            match reason {
                None => RingOp::Resume { faults },
                Some(reason) => RingOp::Cancel { faults, reason },
            },
        );
    }

    /// Puts something into a card's ring, and publishes it; `false`: the card is away.
    pub(super) fn put_into_ring(&self, ring: &RingCard, put: impl FnOnce(&mut Link)) -> bool {
        let mut link = lock(&ring.link);
        let Some(open) = link.as_mut() else { return false };
        put(open);
        open.flush(false);
        let is_broken = open.is_broken();
        drop(link);
        if is_broken {
            // The fault reader gives the connection up.
            self.ring_bell();
        }
        true
    }

    /// Puts a command into a ring, in its turn; it is published with those of the driver.
    fn to_ring(&self, ring: &RingCard, op: RingOp) {
        let step = step(self.window_command(), op);
        if let Some(link) = lock(&ring.link).as_mut() {
            Link::submit(link, &step, |_| None);
        }
    }
}
