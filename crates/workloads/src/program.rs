//! Kernels without data-dependent branches, written down as a list of operations with loops.
//!
//! The list is the compiled kernel with everything left out that neither takes time nor accesses
//! memory; a cursor's step is its program counter. What an access means is the workload's.

use super::lanes::{Kernel, cycles};
use super::{Cursor, Instruction, Lines};

/// An operation. `A` names the accesses of the kernel's own data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<A> {
    /// So many instructions that are not memory accesses.
    Compute(u32),
    /// Waits for all loads.
    Wait,
    /// Waits for the other wavefronts of the work-group.
    Barrier,
    /// A scalar load of the arguments.
    Arguments,
    /// A scalar load of the queue packet.
    Packet,
    /// A vector load of the queue packet, with the same address in all lanes: how the compiler
    /// reads the 16-bit size of a work-group.
    PacketByLanes,
    /// An access to data.
    Access(A),
    /// Goes back to operation `to` until the loop has run as often as the workload says.
    Again(Loop, u32),
}

/// A loop of a program. Its count is kept in [`Cursor::notes`]; notes 0 and 1 are the workload's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// Note 2.
    Outer = 2,
    /// Note 3.
    Inner = 3,
}

impl Loop {
    /// How often the loop has run to its end, in the current run of the loop around it.
    #[inline]
    pub fn count(self, at: &Cursor) -> u32 {
        at.notes[self as usize]
    }
}

/// The next instruction of a wavefront that runs `program`: `times` says how often a loop runs,
/// `access` carries out an access to data.
#[inline(always)]
pub fn next<A: Copy>(
    program: &[Op<A>],
    kernel: &Kernel,
    at: &mut Cursor,
    lines: &mut Lines,
    times: impl Fn(Loop) -> u32,
    access: impl FnOnce(A, &Cursor, &mut Lines) -> Instruction,
) -> Instruction {
    loop {
        let Some(&operation) = program.get(at.step as usize) else {
            return Instruction::End;
        };
        at.step += 1;
        let (line, instruction) = match operation {
            Op::Compute(count) => return Instruction::Compute(cycles(count)),
            Op::Wait => return Instruction::Wait,
            Op::Barrier => return Instruction::Barrier,
            Op::Access(which) => return access(which, at, lines),
            Op::Arguments => (kernel.arguments, Instruction::LoadScalar),
            Op::Packet => (kernel.packet, Instruction::LoadScalar),
            Op::PacketByLanes => (kernel.packet, Instruction::Load),
            Op::Again(which, to) => {
                let count = &mut at.notes[which as usize];
                *count += 1;
                if *count < times(which) {
                    at.step = to;
                } else {
                    *count = 0;
                }
                continue;
            }
        };
        lines.push(line);
        return instruction;
    }
}

#[cfg(test)]
mod tests {
    use super::super::lanes::Memory;
    use super::*;

    #[test]
    fn loops_run_as_often_as_they_are_told_each_time() {
        let program = [
            Op::Arguments,
            Op::Access('a'),
            Op::Access('b'),
            Op::Again(Loop::Inner, 2),
            Op::Again(Loop::Outer, 1),
            Op::Barrier,
        ];
        let memory = Memory::new(&Kernel::buffers(64, 64));
        let kernel = Kernel::at(&memory, 0);
        let times = |which| if which == Loop::Inner { 3 } else { 2 };
        let mut at = Cursor::default();
        let mut seen = String::new();
        loop {
            let mut lines = Lines::new();
            let instruction = next(&program, &kernel, &mut at, &mut lines, times, |name, at, _| {
                seen.push(name);
                seen += &Loop::Inner.count(at).to_string();
                Instruction::Load
            });
            match instruction {
                Instruction::LoadScalar => assert_eq!(*lines, [kernel.arguments]),
                Instruction::Barrier => seen.push('|'),
                Instruction::End => break,
                _ => {}
            }
        }
        assert_eq!(seen, "a0b0b1b2a0b0b1b2|");
    }
}
