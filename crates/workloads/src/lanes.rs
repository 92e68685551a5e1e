//! What the generated workloads share: where their buffers are, and the coalescing of the lanes of
//! a wavefront into lines. It knows no kernel.

use super::{Buffer, BufferKind, LINE_BYTES, Line, Lines, first_lines};

/// Lanes of a wavefront (AMD GCN3 instruction set architecture, section 1.1).
pub const LANES: u32 = 64;

/// Elements of 4 bytes in a line.
pub const WORDS_PER_LINE: u32 = (LINE_BYTES / 4) as u32;

/// Cycles of `count` instructions of one wavefront that are not memory accesses: a GCN3 wavefront
/// issues at most one instruction in four cycles, because a SIMD unit has 16 lanes.
pub const fn cycles(count: u32) -> u32 {
    4 * count
}

/// The buffers of a workload and their places.
#[derive(Clone, Debug)]
pub struct Memory {
    buffers: Vec<Buffer>,
    first: Vec<Line>,
}

impl Memory {
    /// Buffers with these names and sizes in bytes, in this order.
    pub fn new(buffers: &[(&str, u64)]) -> Memory {
        let buffer = |&(name, bytes): &(&str, u64)| {
            let launch = [Kernel::CODE, Kernel::ARGUMENTS, Kernel::PACKET].contains(&name);
            let kind = if launch { BufferKind::Launch } else { BufferKind::Data };
            Buffer { name: name.to_owned(), bytes, kind }
        };
        let buffers: Vec<Buffer> = buffers.iter().map(buffer).collect();
        let first = first_lines(&buffers);
        Memory { buffers, first }
    }

    /// The same, with these buffers as constants.
    #[must_use]
    pub fn with_constants(mut self, names: &[&str]) -> Memory {
        let constant = |buffer: &&mut Buffer| names.contains(&buffer.name.as_str());
        self.buffers.iter_mut().filter(constant).for_each(|it| it.kind = BufferKind::Constant);
        self
    }

    /// The buffers, for [`super::Workload::buffers`].
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// The first line of buffer number `index`.
    pub fn first(&self, index: usize) -> Line {
        self.first[index]
    }
}

/// The code, the arguments and the queue packet of a kernel: small buffers that are read through
/// the instruction cache and the scalar cache.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    code: Line,
    code_lines: u32,
    /// The line of the queue packet, which has the sizes of the grid and of a work-group.
    pub packet: Line,
    /// The first line of the arguments.
    pub arguments: Line,
}

impl Kernel {
    /// Name of the buffer with the code.
    pub const CODE: &'static str = "code";
    /// Name of the buffer with the arguments.
    pub const ARGUMENTS: &'static str = "arguments";
    /// Name of the buffer with the queue packet.
    pub const PACKET: &'static str = "packet";

    /// Bytes of a queue packet (HSA Platform System Architecture Specification, section 2.9.6).
    const PACKET_BYTES: u64 = 64;

    /// The three buffers, to be added last to the data of a workload.
    pub fn buffers(code_bytes: u64, argument_bytes: u64) -> [(&'static str, u64); 3] {
        [
            (Kernel::CODE, code_bytes),
            (Kernel::ARGUMENTS, argument_bytes),
            (Kernel::PACKET, Kernel::PACKET_BYTES),
        ]
    }

    /// The kernel whose three buffers begin at number `index` of `memory`.
    pub fn at(memory: &Memory, index: usize) -> Kernel {
        let code_lines = memory.buffers[index].bytes.div_ceil(LINE_BYTES) as u32;
        let [code, arguments, packet] = [0, 1, 2].map(|which| memory.first(index + which));
        Kernel { code, code_lines, packet, arguments }
    }

    /// Whether a buffer is one of the three.
    pub fn owns(buffer: &Buffer) -> bool {
        [Kernel::CODE, Kernel::ARGUMENTS, Kernel::PACKET].contains(&buffer.name.as_str())
    }

    /// For [`super::Launch::code`].
    pub fn code(&self) -> Option<(Line, u32)> {
        Some((self.code, self.code_lines))
    }
}

/// Adds the lines of consecutive words of 4 bytes: `count` of them from word `word` of the buffer
/// that begins at `first`.
#[inline]
pub fn consecutive(lines: &mut Lines, first: Line, word: u32, count: u32) {
    let last = (word + count - 1) / WORDS_PER_LINE;
    (word / WORDS_PER_LINE..=last).for_each(|line| lines.push(Line(first.0 + line)));
}

/// Coalesces lanes that access lines in any order: each line counts once, where its first lane is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coalescer {
    /// Bit `line mod 256` is set if such a line was added: most lines are new, and are known to be
    /// so without a search.
    seen: [u64; 4],
}

impl Coalescer {
    /// The next lane's line.
    #[inline]
    pub fn lane(&mut self, lines: &mut Lines, line: Line) {
        let (word, bit) = ((line.0 / 64 % 4) as usize, 1 << (line.0 % 64));
        if self.seen[word] & bit == 0 || !lines.contains(&line) {
            lines.push(line);
        }
        self.seen[word] |= bit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_words_are_their_lines() {
        let mut lines = Lines::new();
        consecutive(&mut lines, Line(100), 15, 64);
        assert_eq!(*lines, [100, 101, 102, 103, 104].map(Line));
        lines.clear();
        consecutive(&mut lines, Line(100), 16, 64);
        assert_eq!(*lines, [101, 102, 103, 104].map(Line));
    }

    #[test]
    fn lanes_that_meet_in_a_line_are_one_access() {
        let mut lines = Lines::new();
        let mut lanes = Coalescer::default();
        for line in [70, 6, 70, 6, 262, 7, 6] {
            lanes.lane(&mut lines, Line(line));
        }
        assert_eq!(*lines, [70, 6, 262, 7].map(Line));
    }

    #[test]
    fn a_kernel_finds_its_buffers() {
        let mut buffers = vec![("data", 5 << 20)];
        buffers.extend(Kernel::buffers(228, 64));
        let memory = Memory::new(&buffers);
        let kernel = Kernel::at(&memory, 1);
        assert_eq!(kernel.code(), Some((memory.first(1), 4)));
        assert_eq!([kernel.arguments, kernel.packet], [memory.first(2), memory.first(3)]);
    }
}
