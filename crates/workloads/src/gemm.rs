//! GEMM: general multiplication of square matrices, `D = alpha A B + beta C`.
//!
//! MGPUSim's kernel with tiles of 16 by 16 in local memory, or the one without; one launch. See
//! `dnn/matmul.rs`.

use super::dnn::matmul::{Matmul, Matrix, Tiles};
use super::dnn::{GROUPS_PER_UNIT, Part, next_of};
use super::lanes::{Kernel, Memory};
use super::{Buffer, Cursor, Instruction, Launch, Lines, Workload};

/// Bytes of the code: about 120 instructions of 8 bytes; the recorded `mm` kernel, which does more
/// per work-item, has 1688.
const CODE_BYTES: u64 = 1_024;
/// Three sizes, two factors, four pointers, and the hidden offsets (MGPUSim's host code).
const ARGUMENT_BYTES: u64 = 68;
/// The side is a multiple of so many elements: whole tiles, whole lines, rows of equal alignment.
const STEP: u32 = 64;

/// General matrix multiplication.
#[derive(Clone, Debug)]
pub struct Gemm {
    memory: Memory,
    kernel: Kernel,
    part: Matmul,
}

impl Gemm {
    /// The smallest data footprint.
    pub const BYTES_MIN: u64 = 4 * 4 * (STEP as u64) * (STEP as u64);

    /// Four square matrices of 32-bit numbers of about `bytes` together; the side is a multiple
    /// of 64.
    pub fn new(bytes: u64) -> Gemm {
        Gemm::with(bytes, Tiles::Local)
    }

    /// The same with the kernel that has no tiles.
    pub fn untiled(bytes: u64) -> Gemm {
        Gemm::with(bytes, Tiles::None)
    }

    fn with(bytes: u64, tiles: Tiles) -> Gemm {
        let side = ((bytes.max(Gemm::BYTES_MIN) / 16) as f64).sqrt();
        let side = (side / f64::from(STEP)).round() as u32 * STEP;
        let matrix = u64::from(side) * u64::from(side) * 4;
        let mut buffers = ["a", "b", "c", "d"].map(|name| (name, matrix)).to_vec();
        buffers.extend(Kernel::buffers(CODE_BYTES, ARGUMENT_BYTES));
        let memory = Memory::new(&buffers);
        let [a, b, c, d] = [0, 1, 2, 3].map(|index| Matrix::new(memory.first(index), side));
        let part = Matmul { a, b, c: Some(c), d, rows: side, columns: side, depth: side, tiles };
        Gemm { kernel: Kernel::at(&memory, 4), memory, part }
    }
}

impl Workload for Gemm {
    fn name(&self) -> &str {
        match self.part.tiles {
            Tiles::Local => "gemm",
            Tiles::None => "gemm-untiled",
        }
    }

    fn buffers(&self) -> &[Buffer] {
        self.memory.buffers()
    }

    fn launches(&self) -> u32 {
        1
    }

    fn launch(&self, _launch: u32) -> Launch {
        Launch {
            groups: self.part.groups(),
            waves: self.part.waves(),
            groups_per_unit: GROUPS_PER_UNIT,
            code: self.kernel.code(),
        }
    }

    fn next(&self, at: &mut Cursor, lines: &mut Lines) -> Instruction {
        let scalars = (self.kernel.packet, self.kernel.arguments);
        next_of(&self.part, scalars, at.group, at, lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrices_of_table_2_have_a_side_of_1024() {
        let gemm = Gemm::new(16 << 20);
        assert!(gemm.buffers()[..4].iter().all(|buffer| buffer.bytes == 4 << 20));
        assert_eq!(gemm.launch(0).groups, 64 * 64);
        assert_eq!(Gemm::new(Gemm::BYTES_MIN).launch(0).groups, 16);
    }
}
