//! The order of a functional replay: one access at a time, without time.
//!
//! 1. Launches follow each other.
//! 2. In a launch every compute unit runs one work-group at a time. Work-groups that have a place
//!    ([`Workload::place`]) run there, in the order of their numbers. Of the others each GPU has a
//!    share of neighbours, of the same size but for the last, GPU 0 the first one; of its share a
//!    compute unit runs every so-manieth, beginning with its own number (MGPUSim's order).
//! 3. Of a work-group one wavefront runs at a time, to its next barrier or to its end; then the
//!    next one by number. When all have come to the barrier or ended, the first goes on.
//! 4. The compute units take turns, one line a turn: compute unit 0 of GPU 0, of GPU 1 and so on,
//!    then compute unit 1 of GPU 0. One that has nothing left is passed over. An instruction with
//!    several lines takes as many turns, in the order of its lines.
//!
//! Code that an instruction cache would fetch is not accessed.

use crate::{BufferKind, Cursor, Instruction, Line, Lines, Place, Workload, first_lines};

/// One line that is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The launch, from 0.
    pub launch: u32,
    /// Who accesses it.
    pub place: Place,
    /// The line.
    pub line: Line,
    /// Whether it is written.
    pub write: bool,
    /// Whether it goes through the scalar cache.
    pub scalar: bool,
}

/// Every access of a workload on `gpus` GPUs of `units` compute units each, in the order of a
/// functional replay: see the module. A workload whose work-groups have places uses those, and has
/// no accesses on GPUs or compute units that there are not.
pub fn accesses(workload: &dyn Workload, gpus: u32, units: u32) -> Accesses<'_> {
    let mut accesses = Accesses {
        workload,
        gpus: gpus.clamp(1, 256),
        units: units.clamp(1, 256),
        launch: 0,
        turns: Vec::new(),
        turn: 0,
    };
    accesses.begin_launch();
    accesses
}

/// [`accesses`] without those to buffers of which every GPU has its own copy
/// ([`BufferKind::Launch`]): no GPU shares these, and nothing is ever
/// decided about them.
pub fn shared_accesses(
    workload: &dyn Workload,
    gpus: u32,
    units: u32,
) -> impl Iterator<Item = Access> + '_ {
    let buffers = workload.buffers();
    let firsts = first_lines(buffers);
    let is_shared = move |access: &Access| {
        let buffer = firsts.partition_point(|first| *first <= access.line).checked_sub(1);
        !buffer.is_some_and(|buffer| buffers[buffer].kind == BufferKind::Launch)
    };
    accesses(workload, gpus, units).filter(is_shared)
}

/// See [`accesses`].
#[derive(Debug)]
pub struct Accesses<'a> {
    workload: &'a dyn Workload,
    gpus: u32,
    units: u32,
    launch: u32,
    /// The compute units that have something left, in the order of their turns.
    turns: Vec<Unit>,
    turn: usize,
}

/// A compute unit of the running launch.
#[derive(Debug)]
struct Unit {
    place: Place,
    groups: Groups,
    /// Wavefronts of the running work-group; `None` for one that has ended.
    waves: Vec<Option<Cursor>>,
    wave: usize,
    what: Instruction,
    lines: Lines,
    /// The next of the lines.
    next: usize,
}

/// The work-groups that a compute unit has yet to run.
#[derive(Debug)]
enum Groups {
    Listed(std::vec::IntoIter<u32>),
    Every(std::iter::StepBy<std::ops::Range<u32>>),
}

impl Accesses<'_> {
    /// Deals the work-groups of the launch out, if there is one.
    fn begin_launch(&mut self) {
        self.turn = 0;
        if self.launch >= self.workload.launches() {
            return;
        }
        let groups = self.workload.launch(self.launch).groups;
        let placed = groups > 0 && self.workload.place(self.launch, 0).is_some();
        let dealt = if placed { self.by_place(groups) } else { self.by_share(groups) };
        self.turns = dealt
            .into_iter()
            .map(|(place, groups)| Unit {
                place,
                groups,
                waves: Vec::new(),
                wave: 0,
                what: Instruction::End,
                lines: Lines::new(),
                next: 0,
            })
            .collect();
    }

    fn by_place(&self, groups: u32) -> Vec<(Place, Groups)> {
        let mut lists = vec![Vec::new(); (self.gpus * self.units) as usize];
        for group in 0..groups {
            let Some(place) = self.workload.place(self.launch, group) else {
                continue;
            };
            let (gpu, unit) = (u32::from(place.gpu), u32::from(place.unit));
            if gpu < self.gpus && unit < self.units {
                lists[(unit * self.gpus + gpu) as usize].push(group);
            }
        }
        let places = self.places();
        places.zip(lists).map(|(place, list)| (place, Groups::Listed(list.into_iter()))).collect()
    }

    fn by_share(&self, groups: u32) -> Vec<(Place, Groups)> {
        let share = groups.div_ceil(self.gpus);
        let part = |place: Place| {
            let first = share.saturating_mul(u32::from(place.gpu)).min(groups);
            let end = first.saturating_add(share).min(groups);
            let first = first.saturating_add(u32::from(place.unit)).min(end);
            Groups::Every((first..end).step_by(self.units as usize))
        };
        self.places().map(|place| (place, part(place))).collect()
    }

    /// The compute units in the order of their turns.
    fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let gpus = self.gpus;
        (0..self.units).flat_map(move |unit| {
            (0..gpus).map(move |gpu| Place { gpu: gpu as u8, unit: unit as u8 })
        })
    }
}

impl Iterator for Accesses<'_> {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        loop {
            if self.turn >= self.turns.len() {
                self.turn = 0;
            }
            let Some(unit) = self.turns.get_mut(self.turn) else {
                self.launch = self.launch.saturating_add(1);
                if self.launch >= self.workload.launches() {
                    return None;
                }
                self.begin_launch();
                continue;
            };
            match unit.access(self.workload, self.launch) {
                Some(access) => {
                    self.turn += 1;
                    return Some(access);
                }
                // The one behind it has its turn now.
                None => drop(self.turns.remove(self.turn)),
            }
        }
    }
}

impl Unit {
    /// Its next line; `None` at its end.
    fn access(&mut self, workload: &dyn Workload, launch: u32) -> Option<Access> {
        while self.next == self.lines.len() {
            if !self.advance(workload, launch) {
                return None;
            }
        }
        let line = self.lines[self.next];
        self.next += 1;
        let (write, scalar) =
            (self.what == Instruction::Store, self.what == Instruction::LoadScalar);
        Some(Access { launch, place: self.place, line, write, scalar })
    }

    /// Takes the next instruction that accesses something; `false` if there is none.
    fn advance(&mut self, workload: &dyn Workload, launch: u32) -> bool {
        self.next = 0;
        loop {
            let Some(cursor) = self.waves.get_mut(self.wave) else {
                if !self.go_round(workload, launch) {
                    return false;
                }
                continue;
            };
            let Some(at) = cursor else {
                self.wave += 1;
                continue;
            };
            self.lines.clear();
            self.what = workload.next(at, &mut self.lines);
            match self.what {
                Instruction::Load | Instruction::Store | Instruction::LoadScalar => return true,
                Instruction::Compute(_) | Instruction::Wait => {}
                Instruction::Barrier => self.wave += 1,
                Instruction::End => *cursor = None,
            }
        }
    }

    /// All wavefronts stand at the barrier or have ended: from the first on again, or the next
    /// work-group. `false` if there is none.
    fn go_round(&mut self, workload: &dyn Workload, launch: u32) -> bool {
        self.wave = 0;
        if self.waves.iter().any(Option::is_some) {
            return true;
        }
        let group = match &mut self.groups {
            Groups::Listed(list) => list.next(),
            Groups::Every(range) => range.next(),
        };
        let Some(group) = group else {
            self.lines.clear();
            return false;
        };
        self.waves.clear();
        for wave in 0..workload.launch(launch).waves {
            self.waves.push(Some(Cursor { launch, group, wave, ..Cursor::default() }));
        }
        true
    }
}
