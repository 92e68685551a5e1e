//! What makes the stimuli, and compares.

pub(crate) mod chapter6;
mod memory;
pub(crate) mod netlist;
pub(crate) mod throughput;
pub(crate) mod whole;

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::path::Path;

use farside_card::window::{
    WindowAnswer, WindowFault, WindowGeometry, WindowL2, WindowLook, WindowMapping,
    WindowTranslator, WindowWalker,
};
use farside_types::Access;

use crate::random::Random;
use memory::{Memory, root_word};
use netlist::{Inputs, Netlist, Outputs};

/// A netlist's name and sizes.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) geometry: WindowGeometry,
    /// Bits of an address as it comes in.
    pub(crate) address_bits: u64,
    pub(crate) root_bits: u64,
    pub(crate) tag_bits: u64,
    /// Sets of the L2 TLB, as a power of two, and translations of a set; of none there is no L2 TLB.
    pub(crate) set_bits: u32,
    pub(crate) ways: usize,
    /// Invalidations up to the one that drops all of it, as a power of two.
    pub(crate) epoch_bits: u32,
    /// Words of a line, as a power of two.
    pub(crate) line_bits: u32,
    pub(crate) lines: usize,
    pub(crate) ahead_from: u64,
    /// Translations that are held.
    pub(crate) entries: NonZeroUsize,
    /// Most requests that wait in the netlist: its queue, and the one at the output.
    pub(crate) requests: usize,
}

impl Shape {
    /// Bits of a page's number.
    pub(crate) fn window_page_bits(&self) -> u64 {
        u64::from(self.geometry.window_bits() - self.geometry.page_bits())
    }

    /// Bits of a frame's number.
    pub(crate) fn frame_bits(&self) -> u64 {
        u64::from(self.geometry.physical_bits() - self.geometry.page_bits())
    }

    /// The model of the translator, as it is after a reset.
    fn translator(&self, base: u64) -> WindowTranslator {
        WindowTranslator::new(&self.geometry, base, self.entries)
    }

    /// The model of the L2 TLB, as it is after a reset.
    fn l2(&self) -> WindowL2 {
        WindowL2::new(self.set_bits, self.ways, self.epoch_bits)
    }

    /// The model of the walker, as it is after a reset.
    fn walker(&self) -> WindowWalker {
        WindowWalker::new(&self.geometry, self.line_bits, self.lines, self.ahead_from)
            .expect("sizes of a walker")
    }
}

impl Random {
    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What a run has seen.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    pub(crate) cycles: u64,
    pub(crate) answers: u64,
    pub(crate) faults: u64,
    /// Pages that the translator asked for, and those that the L2 TLB had.
    pub(crate) asked: u64,
    pub(crate) held: u64,
    /// Walks that needed no read of their own.
    pub(crate) found: u64,
    /// Lines that were read ahead.
    pub(crate) ahead: u64,
    pub(crate) drains: u64,
}

/// The model, the netlist, the memory that both read, and what is at the ports.
pub(crate) struct Lockstep<'a> {
    shape: &'a Shape,
    netlist: Netlist,
    translator: WindowTranslator,
    l2: WindowL2,
    walker: WindowWalker,
    /// What the walker knows, and the L2 TLB has not taken.
    results: VecDeque<Result<WindowMapping, WindowFault>>,
    /// What the translator has taken in the cycle before.
    taken: Option<Result<WindowMapping, WindowFault>>,
    /// Pages that the translator asks for, and the L2 TLB has not accepted.
    asked: VecDeque<u64>,
    /// Whether the pages that it has accepted and not looked up are held.
    held: VecDeque<bool>,
    /// Pages that are to be walked for, and have not been looked up.
    walks: VecDeque<u64>,
    /// Lines that the walker asks for, and the netlist has not read.
    reads: VecDeque<u64>,
    /// Words of the root that the netlist has taken, and in which cycle: walks that are looked up two
    /// cycles later see them.
    root: VecDeque<(u64, u64, u64)>,
    memory: Memory,
    random: Random,
    inputs: Inputs,
    base: u64,
    /// Tags and directions of the requests that wait.
    carried: VecDeque<(u64, bool)>,
    draining: bool,
    /// The L2 TLB has taken the invalidation that is shown.
    is_dropped: bool,
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
            translator: shape.translator(base),
            l2: shape.l2(),
            walker: shape.walker(),
            results: VecDeque::new(),
            taken: None,
            asked: VecDeque::new(),
            held: VecDeque::new(),
            walks: VecDeque::new(),
            reads: VecDeque::new(),
            root: VecDeque::new(),
            memory: Memory::new(seed),
            random: Random::new(seed + 1),
            inputs: Inputs::default(),
            base,
            carried: VecDeque::new(),
            draining: false,
            is_dropped: false,
            drained_for: 0,
            stall: [0, 20, 60, 5][seed as usize % 4],
            latency: [71, 71, 3, 12][seed as usize % 4],
            counts: Counts::default(),
        };
        lockstep.reset();
        lockstep
    }

    /// A reset of one cycle, of the memory's port too, whatever is under way. Then the root is filled.
    pub(crate) fn reset(&mut self) {
        self.inputs = Inputs {
            window_base: self.base >> self.shape.geometry.window_bits(),
            rst: 1,
            ..Inputs::default()
        };
        self.netlist.look(&self.inputs);
        self.netlist.clock();
        self.inputs.rst = 0;
        self.translator = self.shape.translator(self.base);
        self.l2 = self.shape.l2();
        self.walker = self.shape.walker();
        self.results.clear();
        self.taken = None;
        self.asked.clear();
        self.held.clear();
        self.walks.clear();
        self.reads.clear();
        self.root.clear();
        self.memory.forget_reads();
        self.carried.clear();
        self.draining = false;
        self.is_dropped = false;
        self.fill_root();
    }

    /// Every word of the root is written, but the last one, which stays as it is after a reset.
    fn fill_root(&mut self) {
        for index in 0..(1 << self.shape.root_bits) - 1 {
            self.change_root(index);
            while self.inputs.root_valid == 1 {
                self.step();
            }
        }
    }

    fn change_root(&mut self, index: u64) {
        self.inputs.root_valid = 1;
        self.inputs.root_index = index;
        self.inputs.root_word = root_word(self.shape, &mut self.random);
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
                assert_eq!(self.walker.under_way(), 0, "a walk that nobody waits for");
                assert_eq!(self.l2.waiting(), 0, "a page that nobody waits for");
                assert!(self.asked.is_empty() && self.walks.is_empty(), "a walk that was not made");
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
            let most = if self.random.chance(70) { 4 } else { pages };
            self.inputs.inval_last = first + self.random.below(most.min(pages - first));
        }
    }

    /// Another word of a table, or of the root: of the page that was asked for last, or of any.
    fn change(&mut self) {
        if self.random.chance(70) {
            self.memory.change(self.shape, &mut self.random);
        } else if self.inputs.root_valid == 0 {
            let leaf_bits = self.shape.window_page_bits() - self.shape.root_bits;
            let page = self.translated_page(self.inputs.in_addr).unwrap_or(0);
            let any = self.random.below(1 << self.shape.root_bits);
            let index = if self.random.chance(60) { page >> leaf_bits } else { any };
            self.change_root(index);
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
        let due = self.memory.due(now).filter(|_| !self.random.chance(self.stall));
        self.inputs.r_valid = due.is_some().into();
        if let Some(words) = due {
            self.inputs.r_data = [u64::MAX; 8];
            self.inputs.r_data[..words.map_or(0, <[u64]>::len)]
                .copy_from_slice(words.unwrap_or_default());
            self.inputs.r_resp = if words.is_some() { 0 } else { 2 };
        }
        let outputs = self.netlist.look(&self.inputs);
        assert_eq!(outputs.r_ready, 1, "whatever the memory answers is taken");
        // Told of answers of earlier cycles; the next invalidation may be taken already.
        self.drain(&outputs);
        self.accept(&outputs);
        self.know();
        self.look_up_in_l2(&outputs);
        // A walk is looked up in what there was before this cycle.
        self.look_up(&outputs, now);
        self.respond(&outputs);
        if self.inputs.r_valid == 1 {
            let words = self.memory.taken();
            self.walker.take(words.as_deref());
        }
        self.read(&outputs, now);
        self.hand_over(&outputs);
        self.invalidate(&outputs);
        self.answer(&outputs);
        if self.inputs.root_valid == 1 && outputs.root_ready == 1 {
            self.inputs.root_valid = 0;
            self.root.push_back((now, self.inputs.root_index, self.inputs.root_word));
        }
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
            self.asked.push_back(page);
            self.counts.asked += 1;
        }
        assert!(self.carried.len() <= self.shape.requests, "more requests than places");
    }

    /// The L2 TLB first, with the lines, then the translator.
    fn invalidate(&mut self, outputs: &Outputs) {
        if outputs.event_drop == 1 {
            assert!(self.inputs.inval_valid == 1 && !self.is_dropped, "dropped for no reason");
            self.is_dropped = true;
            self.l2.invalidate(self.inputs.inval_first, self.inputs.inval_last);
            self.walker.invalidate();
            assert_eq!(outputs.inval_ready, 0, "before the translator");
        }
        if self.inputs.inval_valid == 1 && outputs.inval_ready == 1 {
            assert!(!self.draining, "the invalidation before it is not done");
            self.inputs.inval_valid = 0;
            assert!(self.is_dropped, "the translator drops what the L2 TLB still has");
            self.is_dropped = false;
            self.translator.invalidate(self.inputs.inval_first, self.inputs.inval_last);
            self.draining = true;
            self.drained_for = 0;
        }
    }

    /// A page is held by the L2 TLB of the netlist where it is by that of the model, and only there.
    fn look_up_in_l2(&mut self, outputs: &Outputs) {
        if outputs.event_look == 1 {
            let held = self.held.pop_front().expect("a look for a page that was not accepted");
            assert_eq!(outputs.event_held == 1, held);
            self.counts.held += u64::from(held);
        }
        if outputs.event_accept == 1 {
            let page = self.asked.pop_front().expect("a page that nobody asked for");
            let walk = self.l2.accept(page);
            if self.shape.ways != 0 {
                self.held.push_back(walk.is_none());
            }
            self.walks.extend(walk);
        }
    }

    /// A walk of the netlist finds its line where that of the model does, and only there.
    fn look_up(&mut self, outputs: &Outputs, now: u64) {
        while let Some(&(_, index, word)) = self.root.front().filter(|write| write.0 + 2 <= now) {
            self.walker.write_root(index, word);
            self.root.pop_front();
        }
        if outputs.event_walk == 1 {
            let page = self.walks.pop_front().expect("a walk that nobody asked for");
            let look = self.walker.walk(page);
            let found = outputs.event_found == 1;
            match look {
                WindowLook::Found => assert!(found, "page {page} is at hand, and read again"),
                WindowLook::Reads(address) => {
                    assert!(!found, "page {page} is not at hand");
                    self.reads.push_back(address);
                }
                WindowLook::Waits => panic!("page {page} takes the place of a line in use"),
            }
            self.counts.found += u64::from(found);
        }
        if outputs.event_ahead == 1 {
            let address = self.walker.ahead().expect("a line is read ahead that may be needed");
            self.reads.push_back(address);
            self.counts.ahead += 1;
        }
    }

    fn respond(&mut self, outputs: &Outputs) {
        if outputs.event_resp == 1 {
            let result = self.walker.respond().expect("a response before its line has come");
            self.results.push_back(result);
        }
    }

    /// A read of the netlist is the next one that the walker of the model asks for.
    fn read(&mut self, outputs: &Outputs, now: u64) {
        if outputs.ar_valid == 0 || self.inputs.ar_ready == 0 {
            return;
        }
        let address = self.reads.pop_front().expect("a read that nobody needs");
        assert_eq!(outputs.ar_addr, address);
        assert_eq!(u32::from(outputs.ar_size), self.shape.line_bits + 3);
        self.memory.read(self.shape, address, now + self.latency, &mut self.random);
    }

    /// The translator has the result of the oldest page from the cycle on after it took it.
    fn know(&mut self) {
        if let Some(result) = self.taken.take() {
            self.translator.walked(result);
        }
    }

    /// The L2 TLB responds to the translator, with what it holds or with what the walker knows.
    fn hand_over(&mut self, outputs: &Outputs) {
        if outputs.event_walked == 1 {
            let result = self.l2.respond(|| self.results.pop_front());
            assert!(result.is_some(), "a result of no walk");
            self.taken = result;
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
