//! The far side of a port: a card's model with its register-and-ring front.

use std::collections::BTreeSet;
use std::sync::Arc;

use farside_card::interface::{Status, register};
use farside_card::{
    Action, Card as Model, CounterGroup, Function, FunctionConfig, Geometry, JobEnd, TransferFailed,
};
use farside_linux::shared::SharedMemory;
use farside_live::harness::Far;
use farside_types::{CardId, CommandId, JobId};

use super::bus::{FarBus, Taken};
use super::mutation::{Broken, RingMutation};

/// The number of a card in its own eyes.
const OWN: CardId = CardId(0);
/// The one kernel: what it does is the job's script.
pub(super) const KERNEL: &str = "harness.script";

/// A card so small that its tables, queues and rings are full now and then.
const GEOMETRY: Geometry = Geometry {
    pes: 8,
    l1_shared: false,
    l1_entries: 2,
    l2_entries: 16,
    l2_ways: 2,
    flexible_entries: 2,
    flexible_pages_max: 1 << 10,
    flexible_pages_min: 4,
    fault_entries: 6,
    group_ranges_max: 8,
    counter_group: CounterGroup::Kib64,
    counter_threshold: 8,
    counter_groups_max: 16,
    dma_commands_max: 2,
    dma_pages_max: 8,
    table_pages: 0,
};

/// See the module.
#[derive(Debug)]
pub(super) struct FarSide {
    pub(super) model: Model,
    pub(super) function: Function,
    pub(super) bus: FarBus,
    pub(super) doorbell: bool,
    /// Jobs that were started and have not ended.
    pub(super) running: BTreeSet<JobId>,
    /// Copies and fills that were begun and have not ended.
    pub(super) copying: BTreeSet<CommandId>,
    /// The driver is one of before there were tables: it does not know of them.
    old_driver: bool,
}

impl FarSide {
    /// A function in its known state. By its generation it has no translation tables, as cards of
    /// before, some with room for nothing or for half of the arena, or more; and now and then its driver does
    /// not know what tables are.
    pub(super) fn new(frames: u32, generation: u64, broken: Broken) -> FarSide {
        let table_pages = [0, 1, 2, 16][(generation % 4) as usize];
        let bus = FarBus::new(broken);
        let function = Function::new(FunctionConfig {
            card: 0,
            function: 0,
            generation,
            asids: 1,
            jobs_max: 64,
            kernels: Arc::from([KERNEL.to_owned()]),
            capabilities: register::CAP_DMA_BUS_TO_BUS,
        });
        let mut model = Model::new(OWN, frames, Geometry { table_pages, ..GEOMETRY })
            .expect("these sizes make a card");
        if let Some(mutation) = broken.tables() {
            model.mutate(mutation);
        }
        FarSide {
            model,
            function,
            bus,
            doorbell: false,
            running: BTreeSet::new(),
            copying: BTreeSet::new(),
            old_driver: generation / 4 % 4 == 3,
        }
    }

    /// The function does something.
    pub(super) fn with<T>(
        &mut self,
        work: impl FnOnce(&mut Function, &mut Model, &mut FarBus) -> T,
    ) -> T {
        self.bus.write_held();
        work(&mut self.function, &mut self.model, &mut self.bus)
    }

    /// What it has taken and what it wants done, in order.
    pub(super) fn news(&mut self) -> (Vec<Taken>, Vec<Action>) {
        let actions = std::iter::from_fn(|| self.function.poll_action()).collect();
        (std::mem::take(&mut self.bus.taken), actions)
    }

    /// A register of 32 bits.
    pub(super) fn read32(&self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.function.read_register(&self.model, offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// A register of 64 bits.
    pub(super) fn read64(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.function.read_register(&self.model, offset, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A counter, by name.
    pub(super) fn counter(&self, name: &str) -> u64 {
        let index = register::COUNTER_NAMES.iter().position(|&known| known == name);
        self.read64(register::counter(index.expect("the counter has this name")))
    }

    /// Ends whatever a reset waits for.
    fn finish_reset(&mut self) {
        let stopped = JobEnd::failed(Status::Aborted, String::new());
        for job in std::mem::take(&mut self.running) {
            self.with(|function, model, bus| function.job_ended(model, bus, job, &stopped));
        }
        for id in std::mem::take(&mut self.copying) {
            let failed = Err(TransferFailed { pages_done: 0 });
            self.with(|function, model, bus| function.copied(model, bus, id, failed));
        }
        while let Some(action) = self.function.poll_action() {
            if action == Action::Reset {
                self.function.reset_done(&mut self.model);
            }
        }
        self.bus.taken.clear();
        (self.doorbell, self.bus.interrupt) = (false, false);
    }
}

impl Far for FarSide {
    fn read(&mut self, offset: u64, into: &mut [u8]) {
        self.function.read_register(&self.model, offset, into);
        if self.old_driver && offset == register::CAPABILITIES {
            let without = register::CAP_TABLES.to_le_bytes().map(|byte| !byte);
            into.iter_mut().zip(without).for_each(|(byte, mask)| *byte &= mask);
        }
    }

    fn write(&mut self, offset: u64, from: &[u8]) {
        self.bus.note_register(offset, from);
        self.with(|function, model, bus| function.write_register(model, bus, offset, from));
        if self.read32(register::STATUS) & register::STATUS_RESETTING != 0 {
            self.finish_reset();
        }
    }

    fn doorbell(&mut self) {
        if !self.bus.broken.now(RingMutation::ForgetDoorbell) {
            self.doorbell = true;
        }
    }

    fn map(&mut self, bus: u64, memory: SharedMemory) {
        self.bus.share(bus, memory);
    }
}
