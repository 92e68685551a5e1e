//! Test helpers: dice, damage to good text, and a directory that goes away.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

use super::reference::SplitMix64;

/// Dice with a seed.
pub(super) struct Dice(SplitMix64);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(SplitMix64::new(seed))
    }

    /// A number below `limit`; 0 if that is 0.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0.below(limit)
    }
}

/// `good` after a few random changes: bytes replaced, cut off, removed, doubled, moved.
pub(super) fn damage(good: &[u8], dice: &mut Dice) -> Vec<u8> {
    const TOKENS: [&[u8]; 12] = [
        b"\n",
        b" ",
        b",",
        b"-",
        b"(",
        b":",
        b"\xff",
        b"\0",
        b"%",
        b"\r\n",
        b"4294967296",
        b"99999999999999999999999",
    ];
    let mut text = good.to_vec();
    for _ in 0..=dice.below(6) {
        let at = dice.below(text.len() as u64 + 1) as usize;
        let end = (at + dice.below(8) as usize).min(text.len());
        match dice.below(6) {
            0 => text.truncate(at),
            1 => drop(text.drain(at..end)),
            2 => {
                let piece = text[at..end].to_vec();
                text.splice(at..at, piece);
            }
            3 => text[at..end].fill(dice.below(256) as u8),
            4 => text.rotate_left(at),
            _ => {
                let token = TOKENS[dice.below(TOKENS.len() as u64) as usize];
                text.splice(at..end, token.iter().copied());
            }
        }
    }
    text
}

/// A directory of one test's own, removed at its end.
pub(super) struct TestDirectory(PathBuf);

impl TestDirectory {
    pub(super) fn new(test: &str) -> TestDirectory {
        let path = env::temp_dir().join(format!("farside-graph-{test}-{}", process::id()));
        fs::create_dir_all(&path).expect("a directory for temporary files can be made");
        TestDirectory(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        // What is left behind disturbs nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}
