//! The machine's state: written, and taken over by a fresh machine.
//!
//! The driver comes first, then the pages that it has given to the program's buffers, then
//! everything else. Observers are not part of it.

use std::sync::Arc;

use farside_svm::placement::Placement;
use farside_svm::{Config, Driver};
use farside_types::PageRange;
use serde::{Serialize, Serializer};

use super::setup::pages;
use super::{Happening, Machine};
use crate::error::StateError;
use crate::state::{Reader, Refused, State, Writer, state};
use crate::workload::{Workload, first_lines};
use crate::{SimError, Spec};

state!(Machine {
    values: transfers, faults, open, next_fault, travels, before, launches, timer, accesses,
        groups_done, events, idle_events;
    parts: queue, gpus, rings, links, host, walks, pool, coherence, running;
    made: spec, times, workload, lines, driver, observers, samplings, arena, arena_pages, used,
        blocks, first_lines, page_shift, per_gpu, groups, start;
});

/// The driver, as a value.
struct Whole<'a>(&'a Driver);

impl Serialize for Whole<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.save(serializer)
    }
}

impl Machine {
    /// Whether the coherence checker is on.
    pub(crate) fn is_checked(&self) -> bool {
        self.coherence.is_some()
    }

    /// Its specification.
    pub(crate) fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Its program.
    pub(crate) fn workload(&self) -> &dyn Workload {
        &*self.workload
    }

    /// Writes the state. Between two events, at any time.
    pub(crate) fn write_state(&self, to: &mut Writer) -> Result<(), Refused> {
        to.value(&Whole(&self.driver)).map_err(|it| it.within("driver"))?;
        to.value(&self.used).map_err(|it| it.within("buffers"))?;
        self.save(to)
    }

    /// A machine that goes on where the saved one stood.
    pub(crate) fn restore(
        spec: Spec,
        workload: Arc<dyn Workload>,
        placement: Box<dyn Placement>,
        check: bool,
        from: &mut Reader<'_>,
    ) -> Result<Machine, SimError> {
        let driver = |config: Config| {
            let state = from.value();
            let driver = state
                .and_then(|state| Driver::go_on(config, placement, state).map_err(Refused::new));
            driver.map_err(|it| refused(it.within("driver")))
        };
        let mut machine = Machine::empty(spec, Arc::clone(&workload), check, driver)?;
        machine.take_buffers(from).map_err(|it| refused(it.within("buffers")))?;
        machine.load(from).map_err(refused)?;
        machine.must_be_sound().map_err(refused)?;
        Ok(machine)
    }

    /// Where the driver has put the program's buffers.
    fn take_buffers(&mut self, from: &mut Reader<'_>) -> Result<(), Refused> {
        let ranges: Vec<PageRange> = from.value()?;
        let workload = Arc::clone(&self.workload);
        let buffers = workload.buffers();
        let fits = |(range, buffer): (&PageRange, _)| range.count == pages(&self.spec, buffer);
        if ranges.len() != buffers.len() || !ranges.iter().zip(buffers).all(fits) {
            return Err(Refused::new(format!("{ranges:?} are not the pages of the program")));
        }
        let firsts = first_lines(buffers);
        for ((range, buffer), first) in ranges.into_iter().zip(buffers).zip(firsts) {
            let last = range.start.0.checked_add(range.count.saturating_sub(1));
            let end = self.arena.0 + self.arena_pages;
            if range.start < self.arena || last.is_none_or(|last| last >= end) {
                return Err(Refused::new(format!("{range:?} is not in the arena")));
            }
            self.place(buffer, range, first).map_err(Refused::new)?;
        }
        Ok(())
    }

    /// What waits to happen is about things that the machine has.
    fn must_be_sound(&self) -> Result<(), Refused> {
        let sound = self.queue.iter().all(|what| self.has(what));
        sound
            .then_some(())
            .ok_or_else(|| Refused::new("an event of a part that is not there").within("queue"))
    }

    fn has(&self, what: &Happening) -> bool {
        let gpu = |gpu: u8| usize::from(gpu) < self.gpus.len();
        let wave = |id: u8, unit: u8, slot: u8| {
            let unit =
                self.gpus.get(usize::from(id)).and_then(|it| it.units.get(usize::from(unit)));
            unit.is_some_and(|unit| usize::from(slot) < unit.waves.len())
        };
        let page = |page: u32| u64::from(page) < self.arena_pages;
        match *what {
            Happening::Wave { gpu, unit, slot } | Happening::WaveEnd { gpu, unit, slot } => {
                wave(gpu, unit, slot)
            }
            Happening::Walked { gpu: id, page: at } => gpu(id) && page(at),
            Happening::Hop { travel } => (travel as usize) < self.travels.len(),
            Happening::Check { page: at, .. } => page(at),
            Happening::Interrupt { gpu: id }
            | Happening::RingStart { gpu: id }
            | Happening::RingEnd { gpu: id } => gpu(id),
            Happening::HostDone { .. }
            | Happening::TransferEnd { .. }
            | Happening::Done { .. }
            | Happening::JobDone { .. }
            | Happening::Timer => true,
        }
    }
}

fn refused(refused: Refused) -> SimError {
    StateError::from(refused).into()
}
