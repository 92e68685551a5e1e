//! What kernels on cards in the program access, as a trace in the compact format.
//!
//! Each range that a kernel takes is a run of lines, each `with` and each word an instruction, each
//! job a work-group of one wavefront on its card's processing element. Jobs that run at the same
//! time are in one launch: a launch begins with the first job after a time without any.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use farside_softcard::{Recorder, Running, Taken};
use farside_types::{JobId, PAGE_SIZE, PageRange, VirtAddr};
use farside_workloads::{LINE_BYTES, Place};
use farside_workloads::{
    TraceAllocation, TraceDescription, TraceRow, TraceWriteError, TraceWriter,
};

use crate::Error;

/// Processing elements that a trace tells apart.
const UNITS: u16 = 64;
/// Launches of a trace, at most; jobs after that are in the last one.
const LAUNCHES: u32 = 1 << 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct Recording {
    path: PathBuf,
    cards: u32,
    state: Mutex<State>,
    /// In a child made by fork the file is its parent's, and the lock may have been held.
    process: u32,
}

#[derive(Default)]
struct State {
    /// Gone when the recording has ended.
    writer: Option<TraceWriter<BufWriter<File>>>,
    failed: Option<TraceWriteError>,
    /// Pages that were allocated at some time, by their first; none overlap.
    allocations: BTreeMap<u64, PageRange>,
    launches: u32,
    running: BTreeSet<JobId>,
    /// The work-group of each running job, and how many this launch has.
    groups: BTreeMap<JobId, u32>,
    next_group: u32,
    sequence: u32,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("launches", &self.launches).finish_non_exhaustive()
    }
}

impl Recording {
    /// Begins a recording of so many cards.
    ///
    /// # Errors
    /// [`Error::Recording`] if there can be no such file.
    pub(crate) fn new(path: PathBuf, cards: usize) -> Result<Recording, Error> {
        let failed = |why: String| Error::Recording { path: path.clone(), why };
        let file = File::create(&path).map_err(|error| failed(error.to_string()))?;
        let writer = TraceWriter::new(BufWriter::new(file));
        let writer = Some(writer.map_err(|error| failed(error.to_string()))?);
        let state = Mutex::new(State { writer, ..State::default() });
        Ok(Recording { path, cards: cards as u32, state, process: std::process::id() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program has allocated these pages. Those of memory that was freed may come again.
    pub(crate) fn allocated(&self, pages: PageRange) {
        let allocations = &mut self.state().allocations;
        let (mut start, mut end) = (pages.start, pages.end());
        let known: Vec<_> = allocations.range(..end.0).rev().map(|(_, range)| *range).collect();
        for range in known.into_iter().take_while(|range| range.end() > pages.start) {
            allocations.remove(&range.start.0);
            (start, end) = (start.min(range.start), end.max(range.end()));
        }
        allocations.insert(start.0, PageRange::new(start, end.0 - start.0));
    }

    /// Completes the file. Harmless when that has been done, and in a child made by fork.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        if self.process != std::process::id() {
            return Ok(());
        }
        let mut state = self.state();
        let Some(writer) = state.writer.take() else {
            return Ok(());
        };
        let allocation = |range: &PageRange| TraceAllocation {
            address: range.start.addr().0,
            bytes: range.bytes(),
            pinned: false,
        };
        let description = TraceDescription {
            name: self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            page_bytes: PAGE_SIZE as u64,
            gpus: self.cards,
            cycles: false,
            allocations: state.allocations.values().map(allocation).collect(),
        };
        let failed = state.failed.take();
        drop(state);
        let finished = writer.finish(&description).map(|_| ());
        failed.map_or(finished, Err).map_err(|error| {
            let (path, why) = (self.path.clone(), error.to_string());
            Error::Recording { path, why }
        })
    }
}

impl Drop for Recording {
    /// What a child made by fork has of the file's buffers goes nowhere.
    fn drop(&mut self) {
        if self.process != std::process::id() {
            let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(state.writer.take());
        }
    }
}

impl Recorder for Recording {
    fn begin(&self, who: Running) {
        let mut state = self.state();
        if state.running.is_empty() && state.launches < LAUNCHES {
            state.launches += 1;
            state.next_group = 0;
        }
        state.running.insert(who.job);
        let group = state.next_group;
        state.next_group += 1;
        state.groups.insert(who.job, group);
    }

    fn take(&self, who: Running, taken: &[Taken]) {
        let mut state = self.state();
        let State { writer, failed, allocations, groups, launches, sequence, .. } = &mut *state;
        let Some(writer) = writer.as_mut().filter(|_| failed.is_none()) else {
            return;
        };
        *sequence = sequence.wrapping_add(1);
        let place = Place { gpu: who.card.0, unit: (who.pe.0 % UNITS) as u8 };
        // A card's own memory is nothing of the space's: no page of it ever moves.
        let is_shared = |at: VirtAddr| {
            let before = allocations.range(..=at.page().0).next_back();
            before.is_some_and(|(_, range)| range.contains(at.page()))
        };
        let of_space = taken.iter().filter(|(at, bytes, _)| *bytes > 0 && is_shared(*at));
        for &(at, bytes, access) in of_space {
            let lines = (at.0 + bytes - 1) / LINE_BYTES - at.0 / LINE_BYTES + 1;
            let pushed = writer.push(TraceRow {
                launch: launches.saturating_sub(1),
                place,
                wave: groups.get(&who.job).map(|&group| (group, 0)),
                sequence: *sequence,
                address: at.0,
                count: u32::try_from(lines).unwrap_or(u32::MAX),
                write: access.is_write(),
                scalar: false,
                time: None,
            });
            if let Err(error) = pushed {
                *failed = Some(error);
                return;
            }
        }
    }

    fn end(&self, who: Running) {
        let mut state = self.state();
        state.running.remove(&who.job);
        state.groups.remove(&who.job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How much longer a file gets when a recording of this process, or of its parent, is dropped unfinished.
    fn written_by_drop(is_parents: bool) -> u64 {
        let name = format!("farside-dropped-{}-{is_parents}.parquet", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut recording = Recording::new(path.clone(), 1).unwrap();
        recording.process += u32::from(is_parents);
        // Its first bytes wait in the file's buffer.
        let length = || std::fs::metadata(&path).unwrap().len();
        let before = length();
        drop(recording);
        let more = length() - before;
        std::fs::remove_file(&path).unwrap();
        more
    }

    #[test]
    fn a_child_that_drops_its_parents_recording_writes_nothing() {
        assert!(written_by_drop(false) > 0, "the buffer was empty");
        assert_eq!(written_by_drop(true), 0);
    }
}
