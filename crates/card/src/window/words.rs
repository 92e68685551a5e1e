//! The tables' memory of a card in software, which nobody but its allocator sees.

use std::collections::BTreeMap;

use super::{TableBus, TableBusError, WindowPages};

/// Words that are kept together.
const CHUNK: usize = 512;

/// Words that read as zero until they are written, and the pages that were made valid since somebody asked.
#[derive(Clone, Default, Debug)]
pub struct TableWords {
    chunks: BTreeMap<u64, Box<[u64; CHUNK]>>,
    /// One that is not there: tables are zeroed word by word, and most of their words are zero.
    absent: Option<u64>,
    made_valid: Vec<WindowPages>,
}

impl TableWords {
    /// The pages that were made valid since the last call.
    pub fn take_made_valid(&mut self) -> Vec<WindowPages> {
        std::mem::take(&mut self.made_valid)
    }
}

fn place(address: u64) -> (u64, usize) {
    let word = address / 8;
    (word / CHUNK as u64, (word % CHUNK as u64) as usize)
}

impl TableBus for TableWords {
    fn read(&mut self, address: u64) -> Result<u64, TableBusError> {
        let (chunk, word) = place(address);
        Ok(self.chunks.get(&chunk).map_or(0, |chunk| chunk[word]))
    }

    fn write(&mut self, address: u64, value: u64) {
        let (chunk, word) = place(address);
        if value == 0 && self.absent == Some(chunk) {
            return;
        }
        match self.chunks.get_mut(&chunk) {
            Some(words) => words[word] = value,
            None if value == 0 => self.absent = Some(chunk),
            None => {
                let mut words = Box::new([0; CHUNK]);
                words[word] = value;
                self.chunks.insert(chunk, words);
                self.absent = None;
            }
        }
    }

    fn wait(&mut self) -> Result<(), TableBusError> {
        Ok(())
    }

    fn made_valid(&mut self, pages: WindowPages) {
        self.made_valid.push(pages);
    }
}
