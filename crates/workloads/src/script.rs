//! Workloads written out step by step: for tests, and for small experiments of one's own.

use super::{Buffer, BufferKind, Cursor, Instruction, Launch, Line, Lines, Place, Workload};

/// A step of a wavefront.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Loads these lines.
    Load(Vec<Line>),
    /// Stores to these lines.
    Store(Vec<Line>),
    /// Loads these lines through the scalar cache.
    LoadScalar(Vec<Line>),
    /// Occupies the wavefront for so many cycles.
    Compute(u32),
    /// Waits for the loads.
    Wait,
    /// Waits for the others of the work-group.
    Barrier,
}

/// A work-group: where it must run, if anywhere, and the steps of each wavefront.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Where; either all groups of a launch say so or none.
    pub place: Option<Place>,
    /// Each wavefront; one that does nothing is an empty list.
    pub waves: Vec<Vec<Step>>,
}

/// A launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Scripted {
    groups: Vec<Group>,
    groups_per_unit: Option<u16>,
    code: Option<(Line, u32)>,
}

/// A program written out: see [`Script::with_launch`].
///
/// ```
/// use farside_workloads::{Group, Line, Script, Step};
///
/// // One buffer of 8 KiB; one launch in which a wavefront loads a line, waits and stores it.
/// let steps = vec![Step::Load(vec![Line(3)]), Step::Wait, Step::Store(vec![Line(70)])];
/// let script = Script::new("copy", &[8192]).with_launch(vec![Group { place: None, waves: vec![steps] }]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    name: String,
    buffers: Vec<Buffer>,
    launches: Vec<Scripted>,
}

impl Script {
    /// A program without launches that allocates buffers of these sizes in bytes.
    #[must_use]
    pub fn new(name: &str, buffers: &[u64]) -> Script {
        let named = |(index, &bytes)| Buffer {
            name: format!("{name}-{index}"),
            bytes,
            kind: BufferKind::Data,
        };
        let buffers = buffers.iter().enumerate().map(named).collect();
        Script { name: name.to_owned(), buffers, launches: Vec::new() }
    }

    /// Every GPU has its own copy of this buffer, counted from 0: see [`BufferKind::Launch`].
    #[must_use]
    pub fn per_gpu(mut self, buffer: usize) -> Script {
        if let Some(buffer) = self.buffers.get_mut(buffer) {
            buffer.kind = BufferKind::Launch;
        }
        self
    }

    /// Adds a launch of these groups. Groups with fewer wavefronts than the largest are filled up
    /// with some that do nothing.
    #[must_use]
    pub fn with_launch(mut self, groups: Vec<Group>) -> Script {
        self.launches.push(Scripted { groups, ..Scripted::default() });
        self
    }

    /// At most so many groups of the launch added last fit into a compute unit.
    #[must_use]
    pub fn groups_per_unit(mut self, groups: u16) -> Script {
        if let Some(last) = self.launches.last_mut() {
            last.groups_per_unit = Some(groups);
        }
        self
    }

    /// The code of the launch added last: its first line and the number of lines.
    #[must_use]
    pub fn code(mut self, first: Line, lines: u32) -> Script {
        if let Some(last) = self.launches.last_mut() {
            last.code = Some((first, lines));
        }
        self
    }
}

impl Workload for Script {
    fn name(&self) -> &str {
        &self.name
    }

    fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    fn launches(&self) -> u32 {
        self.launches.len() as u32
    }

    fn launch(&self, launch: u32) -> Launch {
        let launch = &self.launches[launch as usize];
        Launch {
            groups: launch.groups.len() as u32,
            waves: launch.groups.iter().map(|group| group.waves.len()).max().unwrap_or(0).max(1)
                as u16,
            groups_per_unit: launch.groups_per_unit.unwrap_or(u16::MAX),
            code: launch.code,
        }
    }

    fn next(&self, at: &mut Cursor, lines: &mut Lines) -> Instruction {
        let group = &self.launches[at.launch as usize].groups[at.group as usize];
        let steps = group.waves.get(usize::from(at.wave));
        let Some(step) = steps.and_then(|steps| steps.get(at.step as usize)) else {
            return Instruction::End;
        };
        at.step += 1;
        let mut fill = |list: &[Line]| list.iter().for_each(|&line| lines.push(line));
        match step {
            Step::Load(list) => {
                fill(list);
                Instruction::Load
            }
            Step::Store(list) => {
                fill(list);
                Instruction::Store
            }
            Step::LoadScalar(list) => {
                fill(list);
                Instruction::LoadScalar
            }
            Step::Compute(cycles) => Instruction::Compute(*cycles),
            Step::Wait => Instruction::Wait,
            Step::Barrier => Instruction::Barrier,
        }
    }

    fn place(&self, launch: u32, group: u32) -> Option<Place> {
        self.launches.get(launch as usize)?.groups.get(group as usize)?.place
    }

    fn gpus(&self) -> u32 {
        let groups = self.launches.iter().flat_map(|launch| &launch.groups);
        groups
            .filter_map(|group| group.place)
            .map(|place| u32::from(place.gpu) + 1)
            .max()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_gives_its_steps_and_ends() {
        let steps = vec![Step::Store(vec![Line(1), Line(2)]), Step::Compute(7)];
        let group = Group { place: Some(Place { gpu: 2, unit: 0 }), waves: vec![vec![], steps] };
        let script = Script::new("s", &[4096]).with_launch(vec![group]);
        assert_eq!((script.launches(), script.launch(0).waves, script.gpus()), (1, 2, 3));
        let mut at = Cursor { wave: 1, ..Cursor::default() };
        let mut lines = Lines::new();
        assert_eq!(script.next(&mut at, &mut lines), Instruction::Store);
        assert_eq!(*lines, [Line(1), Line(2)]);
        assert_eq!(script.next(&mut at, &mut lines), Instruction::Compute(7));
        assert_eq!(script.next(&mut at, &mut lines), Instruction::End);
        assert_eq!(script.next(&mut Cursor::default(), &mut lines), Instruction::End);
    }
}
