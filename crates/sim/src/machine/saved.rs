//! The machine's state: written, and taken over by a fresh machine.
//!
//! The driver comes first, then the pages that it has given to the program's buffers, then
//! everything else. Observers are not part of it.

use std::sync::Arc;

use farside_svm::placement::PlacementScheme;
use farside_svm::{Config, Driver};
use farside_types::PageRange;
use serde::{Serialize, Serializer};

use super::setup::pages;
use super::{Machine, SimEvent};
use crate::error::StateError;
use crate::state::{Reader, Refused, State, Writer, state};
use crate::{SimError, Spec};
use farside_workloads::{Workload, first_lines};

state!(Machine {
    values: transfers, next_fault, travels, before, launches, timer, accesses,
        groups_done, events, idle_events;
    parts: queue, gpus, rings, links, host, moves, faults, open, walks, pool, coherence, copies, running, samples;
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
        placement: Box<dyn PlacementScheme>,
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
        machine.start_sampling();
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

    fn has(&self, what: &SimEvent) -> bool {
        let gpu = |gpu: u8| usize::from(gpu) < self.gpus.len();
        let wave = |id: u8, unit: u8, slot: u8| {
            let unit =
                self.gpus.get(usize::from(id)).and_then(|it| it.units.get(usize::from(unit)));
            unit.is_some_and(|unit| usize::from(slot) < unit.waves.len())
        };
        let page = |page: u32| u64::from(page) < self.arena_pages;
        match *what {
            SimEvent::Wave { gpu, unit, slot } | SimEvent::WaveEnd { gpu, unit, slot } => {
                wave(gpu, unit, slot)
            }
            SimEvent::Walked { gpu: id, page: at } => gpu(id) && page(at),
            SimEvent::Hop { travel } => (travel as usize) < self.travels.len(),
            SimEvent::Check { page: at, .. } => page(at),
            SimEvent::Interrupt { gpu: id }
            | SimEvent::Restart { gpu: id }
            | SimEvent::RingStart { gpu: id }
            | SimEvent::RingEnd { gpu: id } => gpu(id),
            SimEvent::HostDone { .. }
            | SimEvent::TransferEnd { .. }
            | SimEvent::Done { .. }
            | SimEvent::MoveBegins { .. }
            | SimEvent::JobDone { .. }
            | SimEvent::Samples
            | SimEvent::Timer => true,
        }
    }
}

fn refused(refused: Refused) -> SimError {
    StateError::from(refused).into()
}

#[cfg(test)]
mod tests {
    use farside_svm::placement::by_name;
    use farside_types::{FrameNo, MemoryId, Span};
    use proptest::prelude::*;

    use super::*;
    use crate::links::PortKind;
    use crate::time::Queue;
    use crate::{Simulation, Stop, state};
    use farside_workloads::Trace;
    use farside_workloads::{Group, Line, Script, Step};

    type Change = fn(&mut Machine);

    /// The machine in its middle, changed, and run to its end.
    fn changed(program: &Arc<dyn Workload>, change: Change) -> Option<String> {
        let spec = Spec::from_toml("gpu.capacity_percent = 40").unwrap();
        let scheme = || by_name("grit").unwrap();
        let mut first = Machine::new(spec.clone(), Arc::clone(program), scheme(), true).unwrap();
        first.run_until(Stop::Accesses(12_000), &mut |_| ()).unwrap();
        let mut to = Writer::default();
        first.write_state(&mut to).unwrap();
        let bytes = to.into_bytes();
        let mut from = Reader::new(&bytes);
        let mut second =
            Machine::restore(spec, Arc::clone(program), scheme(), true, &mut from).unwrap();
        change(&mut second);
        second.run(&mut |_| ()).ok().map(|outcome| outcome.to_json())
    }

    /// The negative control: any one thing that is not restored shows in the outcome.
    #[test]
    fn a_state_with_one_thing_changed_does_not_go_on_identically() {
        let program: Arc<dyn Workload> = Arc::new(Trace::bundled("mm").unwrap());
        let same = changed(&program, |_| ());
        assert_eq!(same, changed(&program, |_| ()));
        let changes: [(&str, Change); 9] = [
            ("TLBs and caches", |it| {
                it.gpus.iter_mut().for_each(|gpu| {
                    gpu.flush();
                });
            }),
            ("a line under way", |it| {
                let end = it.queue.now() + Span::from_micros(99);
                it.gpus.iter_mut().for_each(|gpu| gpu.use_until(0, end));
            }),
            ("a counter", |it| it.gpus[0].counts.reads += 1),
            ("a link", |it| {
                let (port, now) = (it.links.port(1, PortKind::FromPeers), it.queue.now());
                it.links.reserve(port, now, Span::from_micros(100));
            }),
            ("the clock of a compute unit", |it| {
                it.gpus[2]
                    .units
                    .iter_mut()
                    .for_each(|cu| cu.next_issue = it.queue.now() + Span::from_micros(9));
            }),
            ("what waits to happen", |it| it.queue = Queue::new(it.queue.now())),
            ("a translation", |it| {
                (0..it.arena_pages as u32).for_each(|page| it.gpus[3].table.unmap(page))
            }),
            ("the events so far", |it| it.events += 1),
            ("a frame's bytes", |it| {
                let checker = it.coherence.as_mut().unwrap();
                for page in 0..it.arena_pages as u32 {
                    checker.release(MemoryId::HOST, FrameNo(page)).unwrap();
                }
            }),
        ];
        let unseen = changes.iter().filter(|(_, change)| changed(&program, *change) == same);
        assert_eq!(unseen.map(|(name, _)| *name).collect::<Vec<_>>(), [""; 0]);
    }

    /// A small machine in its middle, as bytes without their checksum.
    fn small() -> (Arc<dyn Workload>, Vec<u8>) {
        let spec = "gpu = { count = 2, compute_units = 2, wavefronts = 4, memory_channels = 2 }
            cache = { vector_bytes = 1024, scalar_bytes = 1024, instruction_bytes = 1024, l2_bytes = 4096, l2_banks = 2 }
            tlb = { l2_entries = 16, l2_ways = 4 }";
        let wave = |page: u32| {
            let step = |line| Step::Store(vec![Line(page * 64 + line)]);
            (0..8).flat_map(|line| [step(line), Step::Wait]).collect::<Vec<_>>()
        };
        let group = |page| Group { place: None, waves: vec![wave(page), wave(page ^ 1)] };
        let script = Script::new("small", &[16 * 4_096]);
        let script = script.with_launch((0..16).map(group).collect());
        let script: Arc<dyn Workload> = Arc::new(script);
        let spec = Spec::from_toml(spec).unwrap();
        let mut simulation = Simulation::new(&spec, &script, "grit").unwrap();
        simulation.run_until(Stop::Accesses(40), |_| ()).unwrap();
        (script, state::open(&simulation.save().unwrap()).unwrap())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        /// Whatever a file with a right checksum holds: it is refused with a reason, or taken.
        #[test]
        fn forged_states_never_panic(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
        ) {
            thread_local!(static SMALL: (Arc<dyn Workload>, Vec<u8>) = small());
            SMALL.with(|(program, bytes)| {
                let mut bytes = bytes.clone();
                for (at, value) in changes {
                    let at = at.index(bytes.len());
                    bytes[at] = value;
                }
                if let Some(at) = cut {
                    bytes.truncate(at.index(bytes.len()));
                }
                let sealed = state::seal(&bytes).unwrap();
                if let Err(error) = Simulation::restore(&sealed, program) {
                    prop_assert!(error.to_string().len() > 10, "{}", error);
                }
                Ok(())
            })?;
        }
    }

    #[test]
    fn a_state_of_another_machine_is_refused_with_the_field() {
        let (program, bytes) = small();
        let text = b"l2_bytes = 4096";
        let at = bytes.windows(text.len()).position(|window| window == text).unwrap();
        let mut forged = bytes.clone();
        forged[at..at + text.len()].copy_from_slice(b"l2_bytes = 8192");
        let refused = Simulation::restore(&state::seal(&forged).unwrap(), &program).err().unwrap();
        assert!(refused.to_string().contains("gpus[0].l2_cache.entries: 64 values"), "{refused}");
    }
}
