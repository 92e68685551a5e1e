//! The file behind a range: read when a page is wanted, written with what has changed.
//!
//! Which pages are in memory is the region's to know (`region.rs`, `paging.rs`); this does the reading and writing, and
//! keeps in which order pages came. Whether a page has changed is told by comparing it with the file, so nothing is
//! written that has not.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use farside_linux::lock::lock;
use farside_linux::mapping::Mapping;
use farside_types::{BLOCK_SIZE, PAGE_SHIFT, PAGE_SIZE, PageNo, PageRange, VirtAddr};
use rustix::io::Errno;

use super::FileError;

/// Pages that are read or written at once.
pub(super) const AT_ONCE: u64 = (BLOCK_SIZE / 2 / PAGE_SIZE) as u64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Backing {
    file: File,
    path: PathBuf,
    bytes: u64,
    /// Pages in memory from which on some leave.
    pages_max: u64,
    state: Mutex<State>,
    #[cfg(feature = "mutations")]
    pub(crate) faults: super::faulty::Faults,
}

/// What of the file is in memory, and where it is read to.
#[derive(Debug)]
pub(super) struct State {
    /// In the order in which they came, counted from the first of the range. Each page that is in memory is once in it.
    came: VecDeque<PageRange>,
    pages: u64,
    /// Twice [`AT_ONCE`] pages: what the range has, and what the file has.
    buffer: Mapping,
    /// That what was changed cannot be written was said, and nothing has been written since.
    is_stuck: bool,
}

impl Backing {
    /// `file` is what is at `path`, open for both, of `bytes` bytes.
    pub(crate) fn new(
        file: File,
        path: PathBuf,
        bytes: u64,
        memory: u64,
    ) -> Result<Backing, FileError> {
        const WHAT: &str = "farside-file-buffer";
        let buffer = Mapping::reserve_aligned(WHAT, BLOCK_SIZE, BLOCK_SIZE)?;
        buffer.allow(WHAT, 0, BLOCK_SIZE)?;
        buffer.keep_from_children(WHAT)?;
        let (came, pages_max) = (VecDeque::new(), memory >> PAGE_SHIFT);
        let state = Mutex::new(State { came, pages: 0, buffer, is_stuck: false });
        Ok(Backing {
            file,
            path,
            bytes,
            pages_max,
            state,
            #[cfg(feature = "mutations")]
            faults: super::faulty::Faults::default(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Reads pages, counted from the file's first. Behind the file's end they are zero.
    pub(super) fn read(&self, first: u64, into: &mut [u8]) -> Result<(), FileError> {
        let offset = first << PAGE_SHIFT;
        let bytes = (self.bytes.saturating_sub(offset)).min(into.len() as u64) as usize;
        let (there, behind) = into.split_at_mut(bytes);
        behind.fill(0);
        let read = self.strikes(false).and_then(|()| self.file.read_exact_at(there, offset));
        read.map_err(|source| match source.kind() {
            std::io::ErrorKind::UnexpectedEof => FileError::Cut {
                path: self.path.clone(),
                bytes: self.bytes,
                now: self.file.metadata().map_or(0, |about| about.len()),
            },
            _ => FileError::Read { path: self.path.clone(), offset, source },
        })
    }

    /// Writes those pages of `new` that the file has otherwise; `old` is room for them.
    pub(super) fn write_changed(
        &self,
        first: u64,
        new: &[u8],
        old: &mut [u8],
    ) -> Result<(), FileError> {
        let old = &mut old[..new.len()];
        self.read(first, old)?;
        let differs = |at: &usize| {
            let page = at * PAGE_SIZE..(at + 1) * PAGE_SIZE;
            new[page.clone()] != old[page]
        };
        let count = new.len() / PAGE_SIZE;
        let mut at = 0;
        while let Some(start) = (at..count).find(differs) {
            let end = (start..count).find(|page| !differs(page)).unwrap_or(count);
            self.write(first + start as u64, &new[start * PAGE_SIZE..end * PAGE_SIZE])?;
            at = end;
        }
        Ok(())
    }

    /// Nothing is written behind the file's end.
    fn write(&self, first: u64, pages: &[u8]) -> Result<(), FileError> {
        let offset = first << PAGE_SHIFT;
        let bytes = (self.bytes.saturating_sub(offset)).min(pages.len() as u64) as usize;
        self.strikes(true)
            .and_then(|()| self.file.write_all_at(&pages[..bytes], offset))
            .map_err(|source| FileError::Write { path: self.path.clone(), offset, source })
    }

    /// Has all that was written on the disk.
    pub(crate) fn settle(&self) -> Result<(), FileError> {
        self.strikes(true)
            .and_then(|()| self.file.sync_data())
            .map_err(|source| FileError::Settle { path: self.path.clone(), source })
    }

    /// Fails where a test says so.
    #[cfg(feature = "mutations")]
    fn strikes(&self, writes: bool) -> std::io::Result<()> {
        self.faults.next(writes)
    }

    #[cfg(not(feature = "mutations"))]
    #[allow(clippy::unnecessary_wraps, clippy::unused_self)] // it has an error with the feature
    fn strikes(&self, _writes: bool) -> std::io::Result<()> {
        Ok(())
    }
}

impl State {
    /// Pages have come into memory.
    pub(super) fn came(&mut self, pages: PageRange) {
        self.pages += pages.count;
        match self.came.back_mut() {
            Some(last) if last.end() == pages.start => last.count += pages.count,
            _ => self.came.push_back(pages),
        }
    }

    /// Those that came first, if there are more than there should be.
    pub(super) fn next_to_leave(&mut self, backing: &Backing) -> Option<PageRange> {
        let over = self.pages.saturating_sub(backing.pages_max);
        if over == 0 {
            return None;
        }
        let first = self.came.front_mut()?;
        let leaving = PageRange::new(first.start, first.count.min(AT_ONCE));
        *first = PageRange::new(leaving.end(), first.count - leaving.count);
        if first.is_empty() {
            self.came.pop_front();
        }
        self.pages -= leaving.count;
        Some(leaving)
    }

    /// Says once that pages cannot leave; whether this is the first time.
    pub(super) fn gets_stuck(&mut self, is_stuck: bool) -> bool {
        !std::mem::replace(&mut self.is_stuck, is_stuck) && is_stuck
    }

    /// Room for what the range has, and for what the file has.
    pub(super) fn buffers(&mut self) -> (&mut [u8], &mut [u8]) {
        // SAFETY: the mapping has these bytes, readable and writable, is borrowed as long as they are, and nobody else
        // knows it.
        let all = unsafe { std::slice::from_raw_parts_mut(self.buffer.base(), BLOCK_SIZE) };
        all.split_at_mut(BLOCK_SIZE / 2)
    }

    /// The first page of the first of these.
    pub(super) fn buffer_page(&self) -> PageNo {
        VirtAddr(self.buffer.base() as u64).page()
    }
}

/// What the kernel is told of an error that the log has in full.
pub(super) fn told(error: &FileError) -> Errno {
    tracing::error!(%error, "a page of a file cannot be had");
    Errno::IO
}
