//! The whole MMU of readers and writers beside the model of its tables: bursts of both directions go into the netlist of
//! `mmu_top`, and each goes on to where the model finds its page, or is answered with the model's fault and has its
//! record.
//!
//! Words of tables, of the window and of the driver's, runs of flexible length and errors of the memory change while
//! nothing waits, and are invalidated as the driver does; what did not change is invalidated at any time. So the model knows
//! what each burst must find. Memories answer in any order that ids allow.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;

use farside_card::tables::{LEVEL_BITS, Place, Root, SLOTS, TableEntry};
use farside_card::window::{WindowFault, WindowGeometry, WindowNeed, WindowWalk};
use farside_types::{Access, Rights};

use super::netlist::Entity;
use crate::random::Random;

/// What goes into the ports. Laid out as in `rtl/lockstep/mmu_top.cpp`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
struct Inputs {
    s_addr: [u64; 2],
    m_r_data: u64,
    s_w_data: u64,
    line: [u64; 2],
    lite_data: u32,
    rst: u8,
    s_valid: [u8; 2],
    s_id: [u8; 2],
    s_len: [u8; 2],
    m_ready: [u8; 2],
    m_r_valid: u8,
    m_r_id: u8,
    m_r_last: u8,
    s_r_ready: u8,
    s_w_valid: u8,
    s_w_last: u8,
    m_w_ready: u8,
    m_b_valid: u8,
    m_b_id: u8,
    s_b_ready: u8,
    fault_ready: u8,
    lite_valid: u8,
    lite_addr: u8,
    lite_b_ready: u8,
    lite_ar_valid: u8,
    lite_r_ready: u8,
    ar_ready: u8,
    r_valid: u8,
    r_resp: u8,
}

/// What comes out of them.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
struct Outputs {
    m_addr: [u64; 2],
    s_r_data: u64,
    m_w_data: u64,
    fault_addr: u64,
    ar_addr: u64,
    lite_data: u32,
    s_ready: [u8; 2],
    m_valid: [u8; 2],
    m_in: [u8; 2],
    m_memory: [u8; 2],
    m_id: [u8; 2],
    m_len: [u8; 2],
    m_r_ready: u8,
    s_r_valid: u8,
    s_r_id: u8,
    s_r_resp: u8,
    s_r_last: u8,
    s_w_ready: u8,
    m_w_valid: u8,
    m_w_last: u8,
    m_b_ready: u8,
    s_b_valid: u8,
    s_b_id: u8,
    s_b_resp: u8,
    fault_valid: u8,
    fault_write: u8,
    fault_id: u8,
    fault_status: u8,
    lite_ready: u8,
    lite_b_valid: u8,
    lite_b_resp: u8,
    lite_ar_ready: u8,
    lite_r_valid: u8,
    ar_valid: u8,
}

/// Bits of a page, of the space's pages, of a line of the memory; ids.
const PAGE_BITS: u32 = 12;
const SPACE_BITS: u32 = 20;
const LINE_BYTES: u64 = 16;
const IDS: u64 = 8;
/// Where the space begins, and the window in it, in pages of the space.
const SPACE: u64 = 0x23_0000_0000;
const WINDOW: u64 = 96;
const WINDOW_PAGES: u64 = 32;
/// Bits of a frame's number.
const FRAME_BITS: u32 = 12;
/// The memory that stands for the bus.
const BUS: u8 = 15;
/// Tables of the driver's that there are, from number 1 on; those of the window lie before them.
const TABLES: u64 = 8;
/// Which aligned 512 pages of the space are asked for.
const GROUPS: [u64; 4] = [0, 4, 5, 2047];
/// Where runs of flexible length are: pages of which the tables say nothing, as what both say must be the same.
const RUNS: u64 = 3 << LEVEL_BITS;
/// Cycles without any progress that are an error.
const PATIENCE: u64 = 5000;

/// Registers of mmu_control.vhd.
mod register {
    pub(super) const WINDOW_BASE: u8 = 0;
    pub(super) const ROOT_INDEX: u8 = 8;
    pub(super) const ROOT_WORD: u8 = 12;
    pub(super) const FIRST: u8 = 20;
    pub(super) const LAST: u8 = 24;
    pub(super) const FRAME: u8 = 28;
    pub(super) const COMMAND: u8 = 32;
    pub(super) const SPACE_BASE: u8 = 40;
    pub(super) const SPACE_ROOT: u8 = 48;
}

/// Commands: entries of flexible length go, or come; an invalidation.
const REMOVE: u32 = 0;
const INSERT: u32 = 2;
const INVALIDATE: u32 = 3;

/// Where a burst goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// On, as it came.
    Untranslated,
    At {
        memory: u8,
        frame: u32,
    },
    Fails(WindowFault),
}

#[derive(Clone, Copy, Debug)]
struct Burst {
    number: u64,
    address: u64,
    id: u8,
    len: u8,
    fate: Fate,
    /// Beats that the memory has given or got, and that were seen of it.
    given: u8,
    seen: u8,
}

impl Burst {
    fn fails(&self) -> bool {
        matches!(self.fate, Fate::Fails(_))
    }

    fn beat(&self, beat: u8) -> u64 {
        self.number << 8 | u64::from(beat)
    }
}

/// The bursts of a direction, oldest first: that leave, that have no record, that are not over, and in the memory.
#[derive(Default)]
struct Bursts {
    made: u64,
    leaving: VecDeque<Burst>,
    records: VecDeque<Burst>,
    open: VecDeque<Burst>,
    inside: VecDeque<Burst>,
}

impl Bursts {
    fn is_idle(&self) -> bool {
        self.leaving.is_empty()
            && self.records.is_empty()
            && self.open.is_empty()
            && self.inside.is_empty()
    }
}

/// A run of flexible length.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u64,
    pages: u64,
    frame: u32,
    writable: bool,
}

/// What was seen.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Seen {
    pub(crate) cycles: u64,
    pub(crate) bursts: u64,
    pub(crate) found: u64,
    pub(crate) faults: [u64; 5],
    pub(crate) of_runs: u64,
    pub(crate) untranslated: u64,
    pub(crate) reads: u64,
    pub(crate) changes: u64,
}

pub(crate) struct Whole {
    netlist: Entity<Inputs, Outputs>,
    geometry: WindowGeometry,
    random: Random,
    inputs: Inputs,
    /// Words of tables by their address; lines that cannot be read; the window's root; the driver's root word.
    words: HashMap<u64, u64>,
    spoilt: HashSet<u64>,
    root: [u64; 4],
    driver: Root,
    run: Option<Run>,
    /// Reads of the walker under way: when they are due, and the line.
    lines: VecDeque<(u64, u64)>,
    sides: [Bursts; 2],
    /// Data of writes that the writer has still to send, and that the memory has still to get: burst by burst.
    sending: VecDeque<Burst>,
    getting: VecDeque<Burst>,
    stall: u64,
    latency: u64,
    progress: u64,
    seen: Seen,
}

const READER: usize = 0;
const WRITER: usize = 1;

impl Whole {
    pub(crate) fn new(folder: &Path, seed: u64) -> Whole {
        let mut whole = Whole {
            // SAFETY: `Inputs` and `Outputs` are laid out as in rtl/lockstep/mmu_top.cpp.
            netlist: unsafe { Entity::open(&folder.join("mmu.so"), "mmu_top") },
            geometry: WindowGeometry::new(PAGE_BITS, &[2, 3], PAGE_BITS + FRAME_BITS)
                .expect("sizes"),
            random: Random::new(seed),
            inputs: Inputs::default(),
            words: HashMap::new(),
            spoilt: HashSet::new(),
            root: [0; 4],
            driver: Root(0),
            run: None,
            lines: VecDeque::new(),
            sides: [Bursts::default(), Bursts::default()],
            sending: VecDeque::new(),
            getting: VecDeque::new(),
            stall: [0, 20, 60, 5][seed as usize % 4],
            latency: [71, 30, 3, 12][seed as usize % 4],
            progress: 0,
            seen: Seen::default(),
        };
        whole.begin();
        whole
    }

    /// So many cycles at least: bursts, and between them changes.
    pub(crate) fn run(&mut self, cycles: u64) -> Seen {
        while self.seen.cycles < cycles {
            for _ in 0..20 + self.random.below(400) {
                self.offer();
                self.step();
                if self.random.below(200) == 0 {
                    self.invalidate_some();
                }
            }
            self.settle();
            self.change();
        }
        self.settle();
        self.seen
    }

    /// After a reset: registers, and tables of both.
    fn begin(&mut self) {
        self.inputs.rst = 1;
        self.netlist.look(&self.inputs);
        self.netlist.clock();
        self.inputs.rst = 0;
        let window = SPACE + (WINDOW << PAGE_BITS);
        self.write_pair(register::WINDOW_BASE, window);
        self.write_pair(register::SPACE_BASE, SPACE);
        for index in 0..4 {
            self.change_root(index);
        }
        for page in 0..WINDOW_PAGES {
            self.change_window_word(page);
        }
        self.change_driver_root();
        for group in 0..GROUPS.len() {
            self.link(group);
            for slot in 0..SLOTS as u64 {
                self.change_driver_word(group, slot);
            }
        }
        self.invalidate(0, (1 << SPACE_BITS) - 1);
    }

    // ---- what the model finds

    fn word(&self, address: u64) -> Option<u64> {
        (!self.spoilt.contains(&(address / LINE_BYTES)))
            .then(|| self.words.get(&address).copied().unwrap_or(0))
    }

    fn fate(&self, address: u64, access: Access) -> Fate {
        let within = address.wrapping_sub(SPACE) >> PAGE_BITS;
        if within >> SPACE_BITS != 0 {
            return Fate::Untranslated;
        }
        let found = match self.run.filter(|run| within.wrapping_sub(run.first) < run.pages) {
            Some(run) => {
                let rights = if run.writable { Rights::ReadWrite } else { Rights::Read };
                Ok((5, run.frame + (within - run.first) as u32, rights))
            }
            None if within.wrapping_sub(WINDOW) < WINDOW_PAGES => self.walk_window(within - WINDOW),
            None => self.walk_driver(address >> PAGE_BITS),
        };
        match found {
            Err(fault) => Fate::Fails(fault),
            Ok((_, _, rights)) if !rights.allows(access) => Fate::Fails(WindowFault::ReadOnly),
            Ok((memory, frame, _)) => Fate::At { memory, frame },
        }
    }

    fn walk_window(&self, page: u64) -> Result<(u8, u32, Rights), WindowFault> {
        let mut walk = WindowWalk::new(&self.geometry, 0, page);
        loop {
            match walk.need() {
                WindowNeed::Nothing(found) => {
                    return found.map(|at| (at.memory, at.frame, at.rights));
                }
                WindowNeed::Word { address, level: 0 } => {
                    walk.take(Some(self.root[address as usize / 8]));
                }
                WindowNeed::Word { address, .. } => walk.take(self.word(address)),
            }
        }
    }

    /// By section 8 of docs/card-interface.md; an entry whose bits are not set is not used.
    fn walk_driver(&self, page: u64) -> Result<(u8, u32, Rights), WindowFault> {
        let (mut table, levels) = self.driver.top().ok_or(WindowFault::NotMapped)?;
        if page >> (LEVEL_BITS * levels) != 0 {
            return Err(WindowFault::NotMapped);
        }
        for level in (0..levels).rev() {
            let slot = page >> (LEVEL_BITS * level) & (SLOTS as u64 - 1);
            let word = self.word(u64::from(table) << PAGE_BITS | slot << 3);
            let entry = TableEntry(word.ok_or(WindowFault::BusError)?);
            if !entry.is_valid() {
                return Err(WindowFault::NotMapped);
            }
            match entry.table() {
                Some(next) if level > 0 && next >> FRAME_BITS == 0 => table = next,
                Some(_) => return Err(WindowFault::BadEntry),
                None => return Self::take(entry, level, page),
            }
        }
        unreachable!("the leaf level has no directory")
    }

    fn take(entry: TableEntry, level: u32, page: u64) -> Result<(u8, u32, Rights), WindowFault> {
        let (number, bits) = (entry.place().number(), LEVEL_BITS * level);
        let is_run = level == 1 && entry.size() == LEVEL_BITS && number % SLOTS as u32 == 0;
        if number >> FRAME_BITS != 0 || entry.size() > LEVEL_BITS || (level > 0 && !is_run) {
            return Err(WindowFault::BadEntry);
        }
        if !entry.is_accessed() {
            return Err(WindowFault::NotMapped);
        }
        let memory = if matches!(entry.place(), Place::Own(_)) { 0 } else { BUS };
        let frame = number + (page & ((1 << bits) - 1)) as u32;
        Ok((memory, frame, entry.rights_to_cache()))
    }

    // ---- changes, while nothing waits

    fn change(&mut self) {
        self.seen.changes += 1;
        let everything = (0, (1 << SPACE_BITS) - 1);
        let (first, last) = match self.random.below(10) {
            0 => {
                let index = self.random.below(4);
                self.change_root(index);
                (WINDOW + 8 * index, WINDOW + 8 * index + 7)
            }
            1 | 2 => {
                let page = self.random.below(WINDOW_PAGES);
                self.change_window_word(page);
                // Several words of the root may lead to its table.
                (WINDOW, WINDOW + WINDOW_PAGES - 1)
            }
            3..=5 => {
                let (group, slot) = self.some_slot();
                self.change_driver_word(group, slot);
                (GROUPS[group] << LEVEL_BITS | slot, GROUPS[group] << LEVEL_BITS | slot)
            }
            6 => {
                let group = self.random.below(GROUPS.len() as u64) as usize;
                self.link(group);
                (GROUPS[group] << LEVEL_BITS, GROUPS[group] << LEVEL_BITS | (SLOTS as u64 - 1))
            }
            7 => {
                self.change_driver_root();
                everything
            }
            8 => {
                self.change_run();
                everything
            }
            _ => {
                self.spoil();
                everything
            }
        };
        self.invalidate(first, last);
    }

    /// A word of a leaf table of the driver's: in the first words, the last ones, or those beside the window.
    fn some_slot(&mut self) -> (usize, u64) {
        let group = self.random.below(GROUPS.len() as u64) as usize;
        let slot = match self.random.below(3) {
            0 => self.random.below(8),
            1 => SLOTS as u64 - 1 - self.random.below(8),
            _ => 90 + self.random.below(44),
        };
        (group, slot)
    }

    fn some_rights(&mut self) -> Rights {
        if self.random.below(3) == 0 { Rights::Read } else { Rights::ReadWrite }
    }

    fn change_root(&mut self, index: u64) {
        let number = self.random.below(1 << FRAME_BITS) as u32 & !7;
        let rights = self.some_rights();
        let word = match self.random.below(8) {
            0 => TableEntry::INVALID,
            1 => TableEntry::leaf(Place::Own(number), rights, false, 3).in_memory(3),
            2 => TableEntry::leaf(Place::Own(number | 1), rights, false, 3),
            _ => TableEntry::directory(1 + self.random.below(4) as u32),
        };
        self.root[index as usize] = word.0;
        self.write(register::ROOT_INDEX, index as u32);
        self.write_pair(register::ROOT_WORD, word.0);
    }

    fn change_window_word(&mut self, page: u64) {
        let place = Place::Own(self.random.below(1 << FRAME_BITS) as u32);
        let rights = self.some_rights();
        let word = match self.random.below(10) {
            0 => TableEntry::INVALID,
            1 => TableEntry::directory(1),
            _ => TableEntry::leaf(place, rights, false, 0).in_memory(self.random.below(5) as u8),
        };
        // Tables 1 to 4 of eight words each.
        self.words.insert(64 + 8 * page, word.0);
    }

    fn leaf_table(group: usize) -> u64 {
        3 + group as u64
    }

    fn change_driver_word(&mut self, group: usize, slot: u64) {
        let number = self.random.below(1 << FRAME_BITS) as u32;
        let place = if self.random.below(4) == 0 { Place::Bus(number) } else { Place::Own(number) };
        let rights = self.some_rights();
        let entry = TableEntry::leaf(place, rights, self.random.below(3) != 0, 0);
        let word = match self.random.below(12) {
            0 => TableEntry::INVALID,
            1 => TableEntry::directory(3),
            2 => entry,
            3 => entry.used(false).at(Place::Own(number | 1 << FRAME_BITS)),
            _ => entry.used(false),
        };
        self.words.insert(Self::leaf_table(group) << PAGE_BITS | slot << 3, word.0);
    }

    /// Of the word above the leaf level that says where a table is.
    fn link_address(group: usize) -> u64 {
        2 << PAGE_BITS | (GROUPS[group] % SLOTS as u64) << 3
    }

    /// What the word above says of 512 pages: their table, a run, nothing, or what it may not.
    fn link(&mut self, group: usize) {
        let number = (self.random.below(8) as u32) << LEVEL_BITS;
        let rights = self.some_rights();
        let run = TableEntry::leaf(Place::Own(number), rights, true, LEVEL_BITS);
        let word = match self.random.below(8) {
            0 => TableEntry::INVALID,
            1 => run.used(false),
            2 => run.used(false).at(Place::Own(number | 8)),
            3 => run,
            _ => TableEntry::directory(Self::leaf_table(group) as u32),
        };
        self.words.insert(Self::link_address(group), word.0);
    }

    /// Three levels, or four, or none; the last group's number has a bit of the third level.
    fn change_driver_root(&mut self) {
        let top = SPACE >> PAGE_BITS >> (2 * LEVEL_BITS);
        for word in [top, top + GROUPS[3] / SLOTS as u64] {
            self.words.insert(1 << PAGE_BITS | word << 3, TableEntry::directory(2).0);
        }
        self.words.insert(TABLES << PAGE_BITS, TableEntry::directory(1).0);
        self.driver = match self.random.below(8) {
            0 => Root(0),
            1 => Root::new(2, 2),
            2 | 3 => Root::new(TABLES as u32, 4),
            _ => Root::new(1, 3),
        };
        self.write_pair(register::SPACE_ROOT, self.driver.0);
    }

    /// One run of flexible length goes, and another comes.
    fn change_run(&mut self) {
        if let Some(Run { first, pages, .. }) = self.run.take() {
            self.command(first, first + pages - 1, REMOVE);
        } else {
            let first = RUNS + self.random.below(12);
            let (pages, frame) = (1 + self.random.below(16), self.random.below(1 << 11) as u32);
            let writable = self.random.below(3) != 0;
            self.write(register::FRAME, frame);
            let rights = u32::from(writable) << 4;
            self.command(first, first + pages - 1, INSERT | rights | 5 << 8);
            self.run = Some(Run { first, pages, frame, writable });
        }
    }

    /// Some lines of tables cannot be read, or all can again.
    fn spoil(&mut self) {
        self.spoilt.clear();
        for _ in 0..self.random.below(4) {
            let (group, slot) = self.some_slot();
            let address = match self.random.below(4) {
                0 => 64 + 8 * self.random.below(WINDOW_PAGES),
                1 => Self::link_address(group),
                _ => Self::leaf_table(group) << PAGE_BITS | slot << 3,
            };
            self.spoilt.insert(address / LINE_BYTES);
        }
    }

    // ---- registers

    /// A write of a register, with bursts under way.
    fn write(&mut self, register: u8, value: u32) {
        self.inputs.lite_valid = 1;
        self.inputs.lite_addr = register;
        self.inputs.lite_data = value;
        self.inputs.lite_b_ready = 1;
        loop {
            let outputs = self.step();
            if outputs.lite_ready == 1 {
                self.inputs.lite_valid = 0;
            }
            if outputs.lite_b_valid == 1 {
                assert_eq!(outputs.lite_b_resp, 0, "register {register}");
                self.inputs.lite_b_ready = 0;
                return;
            }
        }
    }

    fn write_pair(&mut self, register: u8, value: u64) {
        self.write(register, value as u32);
        self.write(register + 4, (value >> 32) as u32);
    }

    fn command(&mut self, first: u64, last: u64, command: u32) {
        self.write(register::FIRST, first as u32);
        self.write(register::LAST, last as u32);
        self.write(register::COMMAND, command);
    }

    fn invalidate(&mut self, first: u64, last: u64) {
        self.command(first, last, INVALIDATE);
    }

    /// An invalidation of what has not changed, while bursts are under way; sometimes it is waited for.
    fn invalidate_some(&mut self) {
        let before: Vec<u64> = self.sides.iter().map(|side| side.made).collect();
        let first = self.some_page();
        let last = first + self.random.below(20);
        self.invalidate(first, last.min((1 << SPACE_BITS) - 1));
        if self.random.below(2) == 0 {
            self.inputs.lite_ar_valid = 1;
            self.inputs.lite_addr = register::COMMAND;
            self.inputs.lite_r_ready = 1;
            loop {
                let outputs = self.step();
                if outputs.lite_r_valid == 1 && outputs.lite_data & 1 == 0 {
                    break;
                }
            }
            self.inputs.lite_ar_valid = 0;
            for (side, before) in self.sides.iter().zip(before) {
                let is_old = |burst: &Burst| burst.number < before && !burst.fails();
                assert!(
                    !side.open.iter().any(is_old),
                    "a burst of before an invalidation that is done"
                );
            }
        }
    }

    // ---- a cycle

    fn some_page(&mut self) -> u64 {
        let (group, slot) = self.some_slot();
        match self.random.below(8) {
            0 | 1 => WINDOW + self.random.below(WINDOW_PAGES),
            2 | 3 => WINDOW + self.random.below(4),
            4 => RUNS + self.random.below(28),
            _ => GROUPS[group] << LEVEL_BITS | slot,
        }
    }

    /// New bursts where none is shown.
    fn offer(&mut self) {
        for side in [READER, WRITER] {
            if self.inputs.s_valid[side] == 1
                || self.sides[side].open.len() > 40
                || self.random.below(4) == 0
            {
                continue;
            }
            let page = self.some_page();
            let mut address = SPACE + (page << PAGE_BITS) + self.random.below(256) * 16;
            if self.random.below(12) == 0 {
                address ^= 1 << (PAGE_BITS + SPACE_BITS + self.random.below(8) as u32);
            }
            self.inputs.s_valid[side] = 1;
            self.inputs.s_addr[side] = address;
            self.inputs.s_id[side] = self.random.below(IDS) as u8;
            self.inputs.s_len[side] = self.random.below(4) as u8;
            if side == WRITER {
                let burst = self.shown(WRITER);
                self.sending.push_back(burst);
            }
        }
    }

    /// The burst that is shown at a port.
    fn shown(&self, side: usize) -> Burst {
        let access = if side == WRITER { Access::Write } else { Access::Read };
        let address = self.inputs.s_addr[side];
        Burst {
            number: self.sides[side].made,
            address,
            id: self.inputs.s_id[side],
            len: self.inputs.s_len[side],
            fate: self.fate(address, access),
            given: 0,
            seen: 0,
        }
    }

    /// Until nothing waits anywhere: everything that was asked for is answered, and nothing else is.
    fn settle(&mut self) {
        while self.inputs.s_valid != [0, 0]
            || !self.sides.iter().all(Bursts::is_idle)
            || !(self.sending.is_empty() && self.getting.is_empty() && self.lines.is_empty())
        {
            self.step();
        }
        for _ in 0..self.latency + 20 {
            self.step();
        }
        assert!(self.sides.iter().all(Bursts::is_idle), "an answer to nobody");
    }

    fn stalls(&mut self) -> u8 {
        u8::from(self.random.below(100) >= self.stall)
    }

    fn step(&mut self) -> Outputs {
        let now = self.seen.cycles;
        for side in [READER, WRITER] {
            self.inputs.m_ready[side] = self.stalls();
        }
        self.inputs.s_r_ready = self.stalls();
        self.inputs.s_b_ready = self.stalls();
        self.inputs.m_w_ready = self.stalls();
        self.inputs.fault_ready = self.stalls();
        self.inputs.ar_ready = self.stalls();
        self.show_line(now);
        self.show_answers();
        let outputs = self.netlist.look(&self.inputs);
        self.answered(&outputs);
        self.leave(&outputs);
        self.record(&outputs);
        self.accept(&outputs);
        self.send(&outputs);
        self.read(&outputs, now);
        self.netlist.clock();
        self.seen.cycles += 1;
        let limit = self.progress + PATIENCE;
        assert!(
            now < limit || self.sides.iter().all(|side| side.open.is_empty()),
            "nothing goes on"
        );
        outputs
    }

    /// The line of the walker's oldest read, if it is due.
    fn show_line(&mut self, now: u64) {
        let due = self.lines.front().filter(|&&(due, _)| due <= now).map(|&(_, line)| line);
        self.inputs.r_valid = u8::from(due.is_some()) & self.stalls();
        if let Some(line) = due {
            let words = [0, 8].map(|offset| self.word(line * LINE_BYTES + offset));
            self.inputs.line = words.map(Option::unwrap_or_default);
            self.inputs.r_resp = if words[0].is_some() { 0 } else { 2 };
        }
    }

    fn read(&mut self, outputs: &Outputs, now: u64) {
        if self.inputs.r_valid == 1 {
            self.lines.pop_front();
        }
        if outputs.ar_valid == 1 && self.inputs.ar_ready == 1 {
            self.seen.reads += 1;
            self.lines.push_back((now + self.latency, outputs.ar_addr / LINE_BYTES));
        }
    }

    /// What the memories answer: beats of any id's oldest read, responses of writes whose data are there.
    fn show_answers(&mut self) {
        if self.inputs.m_r_valid == 0 && self.stalls() == 1 {
            let reads = &self.sides[READER].inside;
            let oldest: Vec<Burst> = oldest_of_ids(reads).collect();
            if !oldest.is_empty() {
                let burst = oldest[self.random.below(oldest.len() as u64) as usize];
                self.inputs.m_r_valid = 1;
                self.inputs.m_r_id = burst.id;
                self.inputs.m_r_data = burst.beat(burst.given);
                self.inputs.m_r_last = u8::from(burst.given == burst.len);
            }
        }
        if self.inputs.m_b_valid == 0 && self.stalls() == 1 {
            let whole = |burst: &Burst| burst.given > burst.len;
            let oldest: Vec<Burst> =
                oldest_of_ids(&self.sides[WRITER].inside).filter(whole).collect();
            if !oldest.is_empty() {
                self.inputs.m_b_valid = 1;
                self.inputs.m_b_id = oldest[self.random.below(oldest.len() as u64) as usize].id;
            }
        }
    }

    /// What memories have given, and what readers and writers get.
    fn answered(&mut self, outputs: &Outputs) {
        if self.inputs.m_r_valid == 1 && outputs.m_r_ready == 1 {
            self.inputs.m_r_valid = 0;
            let inside = &mut self.sides[READER].inside;
            let at = inside
                .iter()
                .position(|burst| burst.id == self.inputs.m_r_id)
                .expect("it is there");
            inside[at].given += 1;
            if self.inputs.m_r_last == 1 {
                inside.remove(at);
            }
        }
        if self.inputs.m_b_valid == 1 && outputs.m_b_ready == 1 {
            self.inputs.m_b_valid = 0;
            let inside = &mut self.sides[WRITER].inside;
            let at = inside
                .iter()
                .position(|burst| burst.id == self.inputs.m_b_id)
                .expect("it is there");
            inside.remove(at);
        }
        if outputs.s_r_valid == 1 && self.inputs.s_r_ready == 1 {
            let open = &mut self.sides[READER].open;
            let at = open
                .iter()
                .position(|burst| burst.id == outputs.s_r_id)
                .expect("a beat for nobody");
            let burst = &mut open[at];
            let (resp, data) = if burst.fails() { (2, 0) } else { (0, burst.beat(burst.seen)) };
            assert_eq!((outputs.s_r_resp, outputs.s_r_data), (resp, data), "{burst:x?}");
            assert_eq!(outputs.s_r_last == 1, burst.seen == burst.len, "{burst:x?}");
            burst.seen += 1;
            if outputs.s_r_last == 1 {
                open.remove(at);
            }
            self.progress = self.seen.cycles;
        }
        if outputs.s_b_valid == 1 && self.inputs.s_b_ready == 1 {
            let open = &mut self.sides[WRITER].open;
            let at = open
                .iter()
                .position(|burst| burst.id == outputs.s_b_id)
                .expect("a response for nobody");
            let burst = open.remove(at).expect("it is there");
            assert_eq!(outputs.s_b_resp, if burst.fails() { 2 } else { 0 }, "{burst:x?}");
            self.progress = self.seen.cycles;
        }
    }

    /// Bursts that go on: those that the model finds, in order, each to where it finds it.
    fn leave(&mut self, outputs: &Outputs) {
        for side in [READER, WRITER] {
            if outputs.m_valid[side] == 0 || self.inputs.m_ready[side] == 0 {
                continue;
            }
            let burst = self.sides[side].leaving.pop_front().expect("a burst that may not go on");
            let (is_in, memory, address) = match burst.fate {
                Fate::At { memory, frame } => (
                    1,
                    memory,
                    u64::from(frame) << PAGE_BITS | burst.address & ((1 << PAGE_BITS) - 1),
                ),
                _ => (0, 0, burst.address),
            };
            let given = (outputs.m_in[side], outputs.m_memory[side], outputs.m_addr[side]);
            assert_eq!(given, (is_in, memory, address), "{burst:x?} in cycle {}", self.seen.cycles);
            assert_eq!(
                (outputs.m_id[side], outputs.m_len[side]),
                (burst.id, burst.len),
                "{burst:x?}"
            );
            let given = if side == WRITER { self.got(&burst) } else { 0 };
            self.sides[side].inside.push_back(Burst { given, ..burst });
            self.seen.found += 1;
        }
    }

    /// Beats of a write that the memory has got: they may come before it takes the address.
    fn got(&self, burst: &Burst) -> u8 {
        let is_it = |one: &&Burst| one.number == burst.number;
        match (self.getting.iter().find(is_it), self.sending.iter().find(is_it)) {
            (Some(one), _) => one.given,
            (None, Some(_)) => 0,
            (None, None) => burst.len + 1,
        }
    }

    /// A record: of the oldest burst of its direction that may not go on and has none.
    fn record(&mut self, outputs: &Outputs) {
        if outputs.fault_valid == 0 || self.inputs.fault_ready == 0 {
            return;
        }
        let side = usize::from(outputs.fault_write);
        let burst = self.sides[side].records.pop_front().expect("a record of who may go on");
        let Fate::Fails(fault) = burst.fate else { panic!("{burst:x?}") };
        let record =
            (WindowFault::from_status(outputs.fault_status), outputs.fault_id, outputs.fault_addr);
        assert_eq!(record, (Some(fault), burst.id, burst.address), "{burst:x?}");
        self.seen.faults[fault as usize - 1] += 1;
    }

    fn accept(&mut self, outputs: &Outputs) {
        for side in [READER, WRITER] {
            if self.inputs.s_valid[side] == 0 || outputs.s_ready[side] == 0 {
                continue;
            }
            let burst = self.shown(side);
            self.inputs.s_valid[side] = 0;
            let bursts = &mut self.sides[side];
            bursts.made += 1;
            bursts.open.push_back(burst);
            if burst.fails() {
                bursts.records.push_back(burst);
            } else {
                bursts.leaving.push_back(burst);
            }
            self.seen.bursts += 1;
            self.seen.untranslated += u64::from(burst.fate == Fate::Untranslated);
            self.seen.of_runs += u64::from(matches!(burst.fate, Fate::At { memory: 5, .. }));
            self.progress = self.seen.cycles;
        }
    }

    /// Data of writes: the writer sends them in order, the memory gets those of bursts that go on.
    fn send(&mut self, outputs: &Outputs) {
        if outputs.m_w_valid == 1 && self.inputs.m_w_ready == 1 {
            let burst = self.getting.front_mut().expect("data of a burst that may not go on");
            assert_eq!(outputs.m_w_data, burst.beat(burst.given), "{burst:x?}");
            assert_eq!(outputs.m_w_last == 1, burst.given == burst.len, "{burst:x?}");
            burst.given += 1;
            let (number, given) = (burst.number, burst.given);
            if let Some(one) = self.sides[WRITER].inside.iter_mut().find(|one| one.number == number)
            {
                one.given = given;
            }
            if outputs.m_w_last == 1 {
                self.getting.pop_front();
            }
        }
        if self.inputs.s_w_valid == 1 && outputs.s_w_ready == 1 {
            self.inputs.s_w_valid = 0;
            let burst = self.sending.front_mut().expect("it is sent");
            burst.given += 1;
            if burst.given > burst.len {
                self.sending.pop_front();
            }
        }
        if self.inputs.s_w_valid == 0
            && let Some(burst) = self.sending.front().copied()
        {
            if burst.given == 0 && !burst.fails() {
                self.getting.push_back(burst);
            }
            self.inputs.s_w_valid = 1;
            self.inputs.s_w_data = burst.beat(burst.given);
            self.inputs.s_w_last = u8::from(burst.given == burst.len);
        }
    }
}

/// Of each id the oldest burst.
fn oldest_of_ids(bursts: &VecDeque<Burst>) -> impl Iterator<Item = Burst> {
    let is_oldest = |at: &usize| !bursts.iter().take(*at).any(|one| one.id == bursts[*at].id);
    (0..bursts.len()).filter(is_oldest).map(|at| bursts[at])
}
