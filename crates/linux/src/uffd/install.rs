//! Mapping pages of the file, over ranges in which some are mapped already or not there yet.
//!
//! One pass over the range. Three things can be true of a page, and the kernel says which by its
//! answer: it is in the file (CONTINUE maps it), it is a hole (CONTINUE says EFAULT, a zero fill
//! maps it), or it is mapped (EEXIST). Runs of the same kind go in one ioctl. Which is tried first is
//! what the last page was: programs touch pages that came back from a card one after the other, and
//! fresh ones too.

use std::sync::atomic::Ordering;

use farside_types::{PAGE_SIZE, PageRange};
use rustix::io::Errno;

use super::{UffdError, Userfaultfd, abi, attempt, bytes, failure};

/// Source of zero fills that must be write-protected from the start, which ZEROPAGE cannot do.
static ZEROS: [u8; 16 * PAGE_SIZE] = [0; 16 * PAGE_SIZE];

/// Most changes between file and zeros on one page. One is the rule; more mean that somebody
/// fills and punches the file at the same time.
const SWITCHES_MAX: u32 = 4;

/// What [`Userfaultfd::continue_pages`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Installed {
    /// Pages it mapped.
    pub mapped: u64,
    /// Pages that were mapped already.
    pub present: u64,
}

/// What to do about a page that is not in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holes {
    /// Stop with EFAULT.
    Refuse,
    /// Fill it with zeros.
    Zero {
        /// Whether the range takes ZEROPAGE.
        zeropage: bool,
    },
}

/// What to do about a page that is mapped already, besides waking who waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Present {
    /// Leave its protection as it is.
    Keep,
    /// Give it the protection asked for.
    Protect,
}

/// How a range is to be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Install {
    /// For the error message.
    pub operation: &'static str,
    /// Whether writes to the pages fault.
    pub write_protect: bool,
    /// What becomes of pages that are not in the file.
    pub holes: Holes,
    /// What becomes of pages that are mapped already.
    pub present: Present,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    File,
    Zeros,
}

impl Source {
    const fn other(self) -> Source {
        match self {
            Source::File => Source::Zeros,
            Source::Zeros => Source::File,
        }
    }
}

impl Userfaultfd {
    /// Maps the pages of `range` that are in the file, write-protected or not, and wakes the
    /// threads that wait for any page of it. Pages mapped already keep their protection.
    ///
    /// # Errors
    /// [`UffdError::Range`]; EFAULT at the first page that is not in the file. EINVAL for
    /// `write_protect` before Linux 6.4.
    pub fn continue_pages(
        &self,
        range: PageRange,
        write_protect: bool,
    ) -> Result<Installed, UffdError> {
        self.install(
            range,
            Install {
                operation: "continue",
                write_protect,
                holes: Holes::Refuse,
                present: Present::Keep,
            },
        )
    }

    /// Maps `range` as `how` says. On an error the pages before are mapped and woken.
    pub fn install(&self, range: PageRange, how: Install) -> Result<Installed, UffdError> {
        let mut pass =
            Pass { uffd: self, how, present: PageRange::default(), sum: Installed::default() };
        let outcome = pass.run(range);
        // Also after an error: a thread must not sleep for ever on a page that is mapped.
        pass.settle_present()?;
        outcome.map(|()| pass.sum)
    }

    fn continue_once(&self, range: PageRange, write_protect: bool) -> Result<u64, Errno> {
        attempt(range, || {
            let mode = if write_protect { abi::MODE_WP } else { 0 };
            let mut arg = abi::Continue { range: bytes(range), mode, mapped: 0 };
            (self.call(abi::request::CONTINUE, &mut arg), arg.mapped)
        })
    }

    pub(super) fn zero_once(&self, range: PageRange) -> Result<u64, Errno> {
        attempt(range, || {
            let mut arg = abi::Zeropage { range: bytes(range), mode: 0, filled: 0 };
            (self.call(abi::request::ZEROPAGE, &mut arg), arg.filled)
        })
    }

    /// `source` is at least as long as the range.
    pub(super) fn copy_once(
        &self,
        range: PageRange,
        source: &[u8],
        write_protect: bool,
    ) -> Result<u64, Errno> {
        attempt(range, || {
            let to = bytes(range);
            let mut arg = abi::Copy {
                dst: to.start,
                src: source.as_ptr() as u64,
                len: to.len,
                mode: if write_protect { abi::MODE_WP } else { 0 },
                copied: 0,
            };
            (self.call(abi::request::COPY, &mut arg), arg.copied)
        })
    }
}

struct Pass<'a> {
    uffd: &'a Userfaultfd,
    how: Install,
    /// The current run of pages that are mapped already, not settled yet.
    present: PageRange,
    sum: Installed,
}

impl Pass<'_> {
    fn run(&mut self, range: PageRange) -> Result<(), UffdError> {
        let mut done = 0;
        let mut source = match self.how.holes {
            Holes::Refuse => Source::File,
            Holes::Zero { .. } => self.likely(),
        };
        let (mut switches, mut found) = (0, None);
        while done < range.count {
            let left = PageRange::new(range.start.offset(done), range.count - done);
            match self.step(source, left) {
                Ok(pages) => {
                    self.sum.mapped += pages;
                    done += pages;
                    switches = 0;
                    found = Some(source);
                }
                // In the file already, or not in the file: the other source has it.
                Err(errno) if switches < SWITCHES_MAX && self.switches(source, errno) => {
                    source = source.other();
                    switches += 1;
                }
                Err(Errno::EXIST) if source == Source::File => {
                    self.note_present(left)?;
                    done += 1;
                    switches = 0;
                }
                Err(errno) => return Err(failure(self.how.operation, range, done, errno)),
            }
        }
        if let Some(found) = found {
            self.note_found(found);
        }
        Ok(())
    }

    /// Where the next page probably is.
    fn likely(&self) -> Source {
        match self.uffd.was_in_file.load(Ordering::Relaxed) {
            true => Source::File,
            false => Source::Zeros,
        }
    }

    /// Pages were mapped from there. The word is written only where it changes: threads share it.
    fn note_found(&self, source: Source) {
        if self.likely() != source {
            self.uffd.was_in_file.store(source == Source::File, Ordering::Relaxed);
        }
    }

    fn switches(&self, source: Source, errno: Errno) -> bool {
        match source {
            Source::File => errno == Errno::FAULT && self.how.holes != Holes::Refuse,
            Source::Zeros => errno == Errno::EXIST,
        }
    }

    fn step(&self, source: Source, left: PageRange) -> Result<u64, Errno> {
        let write_protect = self.how.write_protect;
        match (source, self.how.holes) {
            (Source::File, _) => self.uffd.continue_once(left, write_protect),
            (Source::Zeros, Holes::Zero { zeropage: true }) if !write_protect => {
                self.uffd.zero_once(left)
            }
            (Source::Zeros, _) => {
                let pages = left.count.min((ZEROS.len() / PAGE_SIZE) as u64);
                self.uffd.copy_once(PageRange::new(left.start, pages), &ZEROS, write_protect)
            }
        }
    }

    fn note_present(&mut self, left: PageRange) -> Result<(), UffdError> {
        if !self.present.is_empty() && self.present.end() == left.start {
            self.present.count += 1;
        } else {
            self.settle_present()?;
            self.present = PageRange::page(left.start);
        }
        self.sum.present += 1;
        Ok(())
    }

    fn settle_present(&mut self) -> Result<(), UffdError> {
        let run = core::mem::take(&mut self.present);
        match self.how.present {
            Present::Keep => self.uffd.wake(run),
            Present::Protect => {
                self.uffd.write_protect(run, self.how.write_protect)?;
                // Lifting the protection wakes by itself, setting it does not.
                if self.how.write_protect { self.uffd.wake(run) } else { Ok(()) }
            }
        }
    }
}
