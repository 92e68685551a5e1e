//! How a compute unit's access goes: issue, translation, access or fault.
//!
//! An access takes its translation at one instant, when a TLB or a walk answers, and counts as in
//! flight from then until it is over. A drain waits for exactly these.

use farside_svm::{CardFault, Need};
use farside_types::{Access as Kind, FaultId, FrameNo, MemoryId, Span, Time};

use super::{Fault, Happening, Machine, Waiting};
use crate::gpu::{Lookup, Mapping};
use crate::{Access, SimError};

impl Machine {
    /// Has a compute unit issue as soon as it can, if it can.
    pub(super) fn schedule(&mut self, gpu: u8, unit: u8) {
        let now = self.queue.now();
        let cu = &mut self.gpus[usize::from(gpu)].units[usize::from(unit)];
        if cu.scheduled || !cu.ready(self.spec.gpu.outstanding) {
            return;
        }
        cu.scheduled = true;
        self.queue.push(now.max(cu.next_issue), Happening::Issue { gpu, unit });
    }

    pub(super) fn issue(&mut self, gpu: u8, unit: u8) {
        let (g, u) = (usize::from(gpu), usize::from(unit));
        let now = self.queue.now();
        let cu = &mut self.gpus[g].units[u];
        cu.scheduled = false;
        if !cu.ready(self.spec.gpu.outstanding) {
            return;
        }
        let mut access = self.trace.stream(self.launch, g, u)[cu.next];
        access.page = self.pages[access.page as usize];
        cu.next += 1;
        cu.outstanding += 1;
        cu.next_issue = now + self.spec.cycles(1);
        match self.gpus[g].lookup(now, u, access.page) {
            Lookup::Walk(end) => self.queue.push(end, Happening::Walked { gpu, unit, access }),
            Lookup::Hit(delay) => match self.usable(gpu, access) {
                Some(mapping) => self.access(gpu, unit, access, mapping, delay),
                None => self.queue.push(now + delay, Happening::Walked { gpu, unit, access }),
            },
        }
        self.schedule(gpu, unit);
    }

    /// The translation of an access, if there is one with enough rights.
    pub(super) fn usable(&self, gpu: u8, access: Access) -> Option<Mapping> {
        let mapping = self.gpus[usize::from(gpu)].table.get(access.page)?;
        mapping.rights.allows(kind(access)).then_some(mapping)
    }

    pub(super) fn walked(&mut self, gpu: u8, unit: u8, access: Access) {
        match self.usable(gpu, access) {
            Some(mapping) => {
                self.gpus[usize::from(gpu)].fill(usize::from(unit), access.page);
                self.access(gpu, unit, access, mapping, Span::ZERO);
            }
            None => self.raise(gpu, unit, access),
        }
    }

    /// Carries an access out through a translation that it takes now; `delay` is what the lookup
    /// still costs.
    pub(super) fn access(
        &mut self,
        gpu: u8,
        unit: u8,
        access: Access,
        mapping: Mapping,
        delay: Span,
    ) {
        let now = self.queue.now();
        let g = usize::from(gpu);
        let home = self.gpus[g].memory;
        let Mapping { memory, frame, .. } = mapping;
        let end = if memory == home {
            self.gpus[g].counts.local += 1;
            now + delay + Span::from_nanos(self.spec.gpu.local_ns)
        } else {
            self.gpus[g].counts.remote += 1;
            self.count_remote(gpu, access.page);
            self.remote(now, home, memory, access) + delay
        };
        self.gpus[g].table.use_until(access.page, end);
        self.queue.push(end, Happening::Retire { gpu, unit, access, memory, frame });
    }

    /// When an access over a link is over: there, in that memory, and back. The line travels in
    /// one of the two directions; the request or the answer without it has no size.
    fn remote(&mut self, now: Time, home: MemoryId, memory: MemoryId, access: Access) -> Time {
        let (from, to) = if access.write { (home, memory) } else { (memory, home) };
        let carried = self.links.carry(now, from, to, u64::from(access.bytes));
        let there = match memory.is_host() {
            true => self.spec.link.host_memory_ns,
            false => self.spec.gpu.local_ns,
        };
        let way = self.links.latency(home, memory);
        carried + way + Span::from_nanos(there) + way
    }

    fn count_remote(&mut self, gpu: u8, page: u32) {
        let state = &mut self.gpus[usize::from(gpu)];
        if let Some(first) = state.counters.count(page) {
            state.counts.notices += 1;
            state.notices.push(self.arena.offset(u64::from(first)));
            self.send_interrupt(gpu);
        }
    }

    pub(super) fn retire(
        &mut self,
        gpu: u8,
        unit: u8,
        access: Access,
        memory: MemoryId,
        frame: FrameNo,
    ) -> Result<(), SimError> {
        if let Some(checker) = &mut self.coherence {
            let seen = match access.write {
                true => checker.write(access.page, memory, frame),
                false => checker.read(access.page, memory, frame),
            };
            seen.map_err(|what| self.broken(format!("GPU {gpu} CU {unit}: {what}")))?;
        }
        self.retired += 1;
        self.idle_events = 0;
        let state = &mut self.gpus[usize::from(gpu)];
        state.counts.reads += u64::from(!access.write);
        state.counts.writes += u64::from(access.write);
        state.units[usize::from(unit)].outstanding -= 1;
        state.left -= 1;
        if state.left == 0 {
            self.job_ended(gpu);
        }
        self.schedule(gpu, unit);
        Ok(())
    }

    /// Has an access wait in a fault; its compute unit stands still. A GPU has one fault per page
    /// in the buffer, and a second one if a write comes after a read.
    pub(super) fn raise(&mut self, gpu: u8, unit: u8, access: Access) {
        let since = self.queue.now();
        let state = &mut self.gpus[usize::from(gpu)];
        state.counts.faulted_accesses += 1;
        state.units[usize::from(unit)].faults += 1;
        let waiting = Waiting { unit, access, since };
        let serves = |write| self.open.get(&(gpu, access.page, write));
        let open = serves(true).or_else(|| serves(access.write));
        match open.and_then(|id| self.faults.get_mut(id)) {
            Some(fault) => fault.waiting.push(waiting),
            None => self.report(gpu, waiting),
        }
    }

    /// Puts a new fault into the GPU's buffer.
    fn report(&mut self, gpu: u8, waiting: Waiting) {
        let id = FaultId(self.next_fault);
        self.next_fault += 1;
        let Waiting { access: Access { page, write, .. }, since, .. } = waiting;
        let need = Need::Page(self.arena.offset(u64::from(page)), kind(waiting.access));
        let state = &mut self.gpus[usize::from(gpu)];
        state.counts.faults += 1;
        state.counts.protection_faults += u64::from(state.table.get(page).is_some());
        state.faults.push(CardFault { id, need });
        self.open.insert((gpu, page, write), id);
        self.faults.insert(id, Fault { gpu, page, write, since, waiting: vec![waiting] });
        self.send_interrupt(gpu);
    }

    /// An interrupt for what is in the GPU's buffers, unless one is on its way.
    fn send_interrupt(&mut self, gpu: u8) {
        let state = &mut self.gpus[usize::from(gpu)];
        if !state.interrupting {
            state.interrupting = true;
            let at = self.queue.now() + Span::from_nanos(self.spec.host.interrupt_ns);
            self.queue.push(at, Happening::Interrupt { gpu });
        }
    }
}

fn kind(access: Access) -> Kind {
    if access.write { Kind::Write } else { Kind::Read }
}
