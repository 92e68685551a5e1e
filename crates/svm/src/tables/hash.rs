//! A hasher for small dense numbers: one multiplication. The keys are page indices of the driver's
//! own, not a program's input, so nobody can aim for collisions.

use std::hash::{BuildHasherDefault, Hasher};

pub(crate) type IndexHash = BuildHasherDefault<IndexHasher>;

#[derive(Default)]
pub(crate) struct IndexHasher(u64);

impl Hasher for IndexHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }
}
