//! Pages: the model of the card's allocator, with the thesis's two levels.

use std::collections::HashMap;

use farside_card::interface::AllocRequest;
use farside_card::window::{
    AllocStep, Allocator, AllocatorConfig, SweepStep, TableBus, TableBusError, WindowGeometry,
    WindowPages,
};
use farside_types::Rights;

use crate::{Buffer, Refused, Technique};

/// Pages of 4 MiB.
const PAGE_BITS: u32 = 22;
/// Words that a walk reads where nothing of it is held.
const LEVELS: u64 = 2;

/// The tables' memory.
#[derive(Default)]
struct Words(HashMap<u64, u64>);

impl TableBus for Words {
    fn read(&mut self, address: u64) -> Result<u64, TableBusError> {
        Ok(self.0.get(&address).copied().unwrap_or(0))
    }

    fn write(&mut self, address: u64, word: u64) {
        self.0.insert(address, word);
    }

    fn wait(&mut self) -> Result<(), TableBusError> {
        Ok(())
    }

    fn made_valid(&mut self, _: WindowPages) {}
}

pub(crate) struct Paged {
    memory: u64,
    allocator: Allocator,
    words: Words,
    buffers: HashMap<Buffer, u64>,
}

impl Paged {
    pub(crate) fn new(memory: u64) -> Paged {
        let geometry = WindowGeometry::new(PAGE_BITS, &[13, 10], 40).expect("sizes of a window");
        let frames = (memory >> PAGE_BITS) as u32;
        let config = AllocatorConfig {
            geometry,
            base: 0,
            memories: vec![frames],
            tables: 0,
            ready_tables: 2,
        };
        let mut words = Words::default();
        let mut allocator = Allocator::new(&config).expect("an allocator");
        allocator.initialise(&mut words).expect("the memory answers");
        Paged { memory, allocator, words, buffers: HashMap::new() }
    }

    /// A command, its invalidations, and all that is left to do behind it.
    fn command(&mut self, request: AllocRequest) -> Result<u64, Refused> {
        let mut step = self.allocator.handle(&mut self.words, request);
        let answer = loop {
            match step {
                AllocStep::Answer(answer) => break answer,
                AllocStep::Invalidate(_) => step = self.allocator.invalidated(&mut self.words),
            }
        };
        loop {
            match self.allocator.sweep(&mut self.words) {
                SweepStep::Idle => break,
                SweepStep::More => {}
                SweepStep::Invalidate(_) => self.allocator.swept(&mut self.words),
            }
        }
        answer.map_err(|_| Refused)
    }
}

impl Technique for Paged {
    fn grow(&mut self, buffer: Buffer, bytes: u64) -> Result<u64, Refused> {
        let request = match self.buffers.get(&buffer) {
            None => {
                AllocRequest::Malloc { bytes, memory: 0, rights: Rights::ReadWrite, lazy: false }
            }
            Some(&address) => AllocRequest::Realloc { address, bytes, lazy: false },
        };
        let address = self.command(request)?;
        self.buffers.insert(buffer, address);
        // Where there is no place behind it, words of its tables go elsewhere, and no data.
        Ok(0)
    }

    fn free(&mut self, buffer: Buffer) {
        if let Some(address) = self.buffers.remove(&buffer) {
            self.command(AllocRequest::Free { address }).expect("it was allocated");
        }
    }

    fn taken(&self) -> u64 {
        self.memory - (self.allocator.free_frames(0) << PAGE_BITS)
    }

    fn steps(&self, _: Buffer) -> u64 {
        LEVELS
    }
}
