//! What makes the stimuli, and compares.

mod memory;
mod netlist;

use std::collections::VecDeque;
use std::path::Path;

use farside_card::window::{
    WindowAnswer, WindowFault, WindowGeometry, WindowNeed, WindowTranslator, WindowWalk,
};
use farside_types::Access;
use memory::Memory;
use netlist::{Inputs, Netlist, Outputs};

/// A netlist's name and sizes.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) geometry: WindowGeometry,
    /// Bits of an address as it comes in.
    pub(crate) address_bits: u64,
    pub(crate) root_bits: u64,
    pub(crate) tag_bits: u64,
    /// Most requests that wait in the netlist: its queue, and the one at the output.
    pub(crate) requests: usize,
}

impl Shape {
    /// Bits of a page's number.
    pub(crate) fn window_page_bits(&self) -> u64 {
        u64::from(self.geometry.window_bits() - self.geometry.page_bits())
    }

    pub(crate) fn physical_bits(&self) -> u64 {
        u64::from(self.geometry.physical_bits())
    }
}

/// A small generator of random numbers (splitmix64); the same seed gives the same run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Less than `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What a run has seen.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    pub(crate) cycles: u64,
    pub(crate) answers: u64,
    pub(crate) faults: u64,
    pub(crate) walks: u64,
    pub(crate) drains: u64,
}

/// A walk of the model, and the reads of it that the netlist has asked for.
struct Walking {
    walk: WindowWalk,
    /// The word that is needed was asked for.
    asked: bool,
}

/// The model, the netlist, the memory that both read, and what is at the ports.
pub(crate) struct Lockstep<'a> {
    shape: &'a Shape,
    netlist: Netlist,
    translator: WindowTranslator,
    walks: VecDeque<Walking>,
    memory: Memory,
    random: Random,
    inputs: Inputs,
    base: u64,
    /// Tags and directions of the requests that wait.
    carried: VecDeque<(u64, bool)>,
    draining: bool,
    /// Cycles since the model was drained while the netlist has not said so.
    drained_for: u64,
    /// Percent of the cycles in which something stalls, and cycles that the memory takes for a read.
    stall: u64,
    latency: u64,
    counts: Counts,
}

impl Lockstep<'_> {
    pub(crate) fn new<'a>(folder: &Path, shape: &'a Shape, seed: u64) -> Lockstep<'a> {
        let window_bits = shape.geometry.window_bits();
        let base = 0x5a << window_bits;
        let mut lockstep = Lockstep {
            shape,
            netlist: Netlist::load(&folder.join(format!("{}.so", shape.name))),
            translator: WindowTranslator::new(&shape.geometry, base),
            walks: VecDeque::new(),
            memory: Memory::new(seed),
            random: Random::new(seed + 1),
            inputs: Inputs { window_base: base >> window_bits, rst: 1, ..Inputs::default() },
            base,
            carried: VecDeque::new(),
            draining: false,
            drained_for: 0,
            stall: [0, 20, 60, 5][seed as usize % 4],
            latency: [71, 71, 3, 12][seed as usize % 4],
            counts: Counts::default(),
        };
        lockstep.netlist.look(&lockstep.inputs);
        lockstep.netlist.clock();
        lockstep.inputs.rst = 0;
        lockstep
    }

    /// So many cycles.
    pub(crate) fn run(&mut self, cycles: u64) {
        for _ in 0..cycles {
            self.ask();
            self.step();
        }
    }

    /// Until everything is answered.
    pub(crate) fn finish(&mut self) -> Counts {
        for _ in 0..100_000 {
            if self.inputs.in_valid == 0
                && self.inputs.inval_valid == 0
                && self.translator.waiting() == 0
            {
                assert!(self.walks.is_empty(), "a walk that nobody waits for");
                return self.counts;
            }
            self.step();
        }
        panic!("{} requests without an answer after {:?}", self.translator.waiting(), self.counts);
    }

    /// New requests, invalidations and changes of the tables.
    fn ask(&mut self) {
        if self.inputs.in_valid == 0 && self.random.chance(75) {
            self.inputs.in_valid = 1;
            self.inputs.in_addr = self.some_address();
            self.inputs.in_write = self.random.chance(40).into();
            self.inputs.in_tag = self.random.below(1 << self.shape.tag_bits);
        }
        if self.inputs.inval_valid == 0 && self.random.chance(2) {
            self.change();
            let pages = 1 << self.shape.window_page_bits();
            let page = self.translated_page(self.inputs.in_addr).unwrap_or(0);
            let first = if self.random.chance(50) { page } else { self.random.below(pages) };
            self.inputs.inval_valid = 1;
            self.inputs.inval_first = first;
            self.inputs.inval_last = first + self.random.below(pages - first);
        }
    }

    fn change(&mut self) {
        let of_root = self.random.chance(30);
        let root_bytes = 8 << self.shape.root_bits;
        if let Some(address) = self.memory.some_address(of_root, root_bytes, &mut self.random) {
            self.memory.change(self.shape, of_root, address, &mut self.random);
        }
    }

    fn translated_page(&self, address: u64) -> Option<u64> {
        let within = address.wrapping_sub(self.base);
        (within >> self.shape.geometry.window_bits() == 0)
            .then_some(within >> self.shape.geometry.page_bits())
    }

    /// The page of before or the next, one of a few, any; seldom none of the window.
    fn some_address(&mut self) -> u64 {
        let page_bits = self.shape.geometry.page_bits();
        let pages = 1 << self.shape.window_page_bits();
        let before = self.translated_page(self.inputs.in_addr).unwrap_or(0);
        let page = match self.random.below(4) {
            0 | 1 => (before + self.random.below(2)) % pages,
            2 => self.random.below(pages.min(64)),
            _ => self.random.below(pages),
        };
        let address = self.base | page << page_bits | self.random.below(1 << page_bits);
        if self.random.chance(8) {
            // Of another window: any one of the bits above is another.
            let window_bits = u64::from(self.shape.geometry.window_bits());
            address ^ 1 << (window_bits + self.random.below(self.shape.address_bits - window_bits))
        } else {
            address
        }
    }

    /// A cycle: what is at the ports, and what goes through them at its end.
    fn step(&mut self) {
        let now = self.counts.cycles;
        self.inputs.out_ready = (!self.random.chance(self.stall)).into();
        self.inputs.ar_ready = (!self.random.chance(self.stall)).into();
        let due =
            self.memory.due(now, &mut self.random).filter(|_| !self.random.chance(self.stall));
        self.inputs.r_valid = due.is_some().into();
        if let Some((id, word)) = due {
            self.inputs.r_id = id as u8;
            self.inputs.r_data = word.unwrap_or(u64::MAX);
            self.inputs.r_resp = if word.is_some() { 0 } else { 2 };
        }
        let outputs = self.netlist.look(&self.inputs);
        assert_eq!(outputs.r_ready, 1, "whatever the memory answers is taken");
        // Told of answers of earlier cycles; the next invalidation may be taken already.
        self.drain(&outputs);
        self.accept(&outputs);
        self.invalidate(&outputs);
        self.read(&outputs, now);
        if let Some((id, word)) = due {
            self.take(id, word);
        }
        self.answer(&outputs);
        self.netlist.clock();
        self.counts.cycles += 1;
    }

    fn accept(&mut self, outputs: &Outputs) {
        if self.inputs.in_valid == 0 || outputs.in_ready == 0 {
            return;
        }
        self.inputs.in_valid = 0;
        let write = self.inputs.in_write == 1;
        let access = if write { Access::Write } else { Access::Read };
        self.carried.push_back((self.inputs.in_tag, write));
        if let Some(page) = self.translator.accept(self.inputs.in_addr, access) {
            let walk = WindowWalk::new(&self.shape.geometry, 0, page);
            self.walks.push_back(Walking { walk, asked: false });
            self.counts.walks += 1;
        }
        assert!(self.carried.len() <= self.shape.requests, "more requests than places");
    }

    fn invalidate(&mut self, outputs: &Outputs) {
        if self.inputs.inval_valid == 1 && outputs.inval_ready == 1 {
            assert!(!self.draining, "the invalidation before it is not done");
            self.inputs.inval_valid = 0;
            self.translator.invalidate(self.inputs.inval_first, self.inputs.inval_last);
            self.draining = true;
            self.drained_for = 0;
        }
    }

    /// A read of the netlist is the next one of its level that a walk of the model needs.
    fn read(&mut self, outputs: &Outputs, now: u64) {
        if outputs.ar_valid == 0 || self.inputs.ar_ready == 0 {
            return;
        }
        let id = usize::from(outputs.ar_id);
        let needs = self.walks.iter_mut().find_map(|walking| match walking.walk.need() {
            WindowNeed::Word { address, level } if level == id && !walking.asked => {
                Some((walking, address))
            }
            _ => None,
        });
        let (walking, address) = needs.expect("a read that no walk needs");
        assert_eq!(outputs.ar_addr, address, "level {id}, {:?}", walking.walk);
        walking.asked = true;
        self.memory.read(self.shape, id, address, now, self.latency);
    }

    /// A word is that of the oldest walk that has asked for one of its level.
    fn take(&mut self, id: usize, word: Option<u64>) {
        self.memory.taken(id);
        let waits = |walking: &&mut Walking| {
            walking.asked
                && matches!(walking.walk.need(), WindowNeed::Word { level, .. } if level == id)
        };
        let walking = self.walks.iter_mut().find(waits).expect("the memory answers what was asked");
        walking.walk.take(word);
        walking.asked = false;
        while let Some(WindowNeed::Nothing(result)) =
            self.walks.front().map(|walking| walking.walk.need())
        {
            self.translator.walked(result);
            self.walks.pop_front();
        }
    }

    fn answer(&mut self, outputs: &Outputs) {
        if outputs.out_valid == 0 || self.inputs.out_ready == 0 {
            return;
        }
        let answer = self.translator.answer().expect("an answer that the model does not know yet");
        let memory = outputs.out_memory;
        let address = outputs.out_addr;
        let given = match (outputs.out_inwindow, WindowFault::from_status(outputs.out_status)) {
            (0, None) => WindowAnswer::Untranslated(address),
            (0, Some(fault)) => panic!("a fault outside the window: {fault}"),
            (_, None) => WindowAnswer::At { memory, address },
            (_, Some(fault)) => WindowAnswer::Fault { fault, address },
        };
        assert_eq!(given, answer, "in cycle {}", self.counts.cycles);
        let carried = self.carried.pop_front().expect("as many as the model has");
        assert_eq!((outputs.out_tag, outputs.out_write == 1), carried);
        self.counts.answers += 1;
        self.counts.faults += u64::from(outputs.out_status != 0);
    }

    /// The netlist says that an invalidation is done when the model is drained, and soon.
    fn drain(&mut self, outputs: &Outputs) {
        if outputs.inval_done == 1 {
            assert!(self.draining && self.translator.is_drained(), "done too early");
            self.draining = false;
            self.counts.drains += 1;
        } else if self.draining && self.translator.is_drained() {
            self.drained_for += 1;
            assert!(self.drained_for <= 3, "done, and not said");
        }
    }
}
