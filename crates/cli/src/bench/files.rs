//! A file as shared memory against the same file by `mmap`: read by the host, changed by it and written, and read by a card.
//!
//! The file has four times the memory that it may take of the host and eight times a card's. Cold: the kernel's page cache has none of it
//! (`POSIX_FADV_DONTNEED`); warm: all of it, which `mmap` shows as it is, and which is copied here.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use farside::{KernelContext, MappedFile, Read, ReadSpan, ReadView, Space};
use rustix::fs::Advice;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

use super::{BenchError, Effort, Row, Target, median};

const BYTES: usize = 256 << 20;
const MEMORY: u64 = 64 << 20;
const CARD_MEMORY: u64 = 32 << 20;
/// Words of a page.
const PAGE: usize = 512;
/// Words that a kernel takes at once.
const PIECE: usize = 256 * PAGE;

// Nobody has promised these: they are what a busy machine keeps, so that a change for the worse is seen. `mmap` shows the page cache as it
// is, in large folios; here each page is copied, and compared when it leaves.
const COLD: Target = Target::AtMost(6.0);
const WARM: Target = Target::AtMost(90.0);
const WRITTEN: Target = Target::AtMost(16.0);
const CARD: Target = Target::AtMost(110.0);

pub(super) fn run(effort: Effort) -> Result<Vec<Row>, BenchError> {
    let scratch = Scratch::new()?;
    let space = Space::builder().cards(1).card_memory(CARD_MEMORY).build()?;
    let samples = effort.samples.clamp(3, 9);
    let both = |name: &'static str, target, cold: bool, ours: &Work, theirs: &Work| {
        let (mut mapped, mut shared) = (Vec::new(), Vec::new());
        for _ in 0..samples {
            mapped.push(scratch.timed(cold, theirs)?);
            shared.push(scratch.timed(cold, ours)?);
        }
        let (mapped, shared) = (median(mapped), median(shared));
        let rate = |seconds: f64| BYTES as f64 / seconds / 1e6;
        let detail = format!("{:.0} MB/s against {:.0} MB/s by mmap", rate(shared), rate(mapped));
        Ok::<Row, BenchError>(Row::new(name, shared / mapped, target, "x", detail))
    };
    let open = || -> Result<MappedFile<u64>, BenchError> {
        Ok(space.map_file_in::<u64>(&scratch.0, MEMORY)?)
    };
    let read = || {
        let data = open()?;
        check(data.iter().sum())?;
        Ok(data.close().map_err(farside::Error::from)?)
    };
    let change = || {
        let mut data = open()?;
        data.iter_mut().step_by(PAGE).for_each(|word| *word ^= 1);
        data.sync()?;
        data.iter_mut().step_by(PAGE).for_each(|word| *word ^= 1);
        Ok(data.close().map_err(farside::Error::from)?)
    };
    let by_card = || {
        let data = open()?;
        check(space.kernel("sum").run(Read(&data), sum)?)?;
        Ok(data.close().map_err(farside::Error::from)?)
    };
    let theirs = || check(Mapped::of(&scratch.open()?)?.words().iter().sum());
    let theirs_changed = || {
        let mut mapped = Mapped::of(&scratch.open()?)?;
        for _ in 0..2 {
            mapped.words_mut().iter_mut().step_by(PAGE).for_each(|word| *word ^= 1);
            mapped.sync()?;
        }
        Ok(())
    };
    Ok(vec![
        both(
            "a file that is not in the page cache, summed by the host",
            COLD,
            true,
            &read,
            &theirs,
        )?,
        both("a file that is in the page cache, summed by the host", WARM, false, &read, &theirs)?,
        both(
            "a word of each page changed and written, twice",
            WRITTEN,
            false,
            &change,
            &theirs_changed,
        )?,
        both("a file that is in the page cache, summed by a card", CARD, false, &by_card, &theirs)?,
    ])
}

type Work<'a> = dyn Fn() -> Result<(), BenchError> + 'a;

fn sum(k: &mut KernelContext, data: ReadSpan<u64>) -> Result<u64, farside::KernelError> {
    let mut sum = 0;
    for start in (0..data.len()).step_by(PIECE) {
        let piece = data.slice(start..(start + PIECE).min(data.len()));
        sum += k.with(piece, |words: ReadView<u64>| words.iter().sum::<u64>())?;
    }
    Ok(sum)
}

fn check(sum: u64) -> Result<(), BenchError> {
    let words = (BYTES / 8) as u64;
    match sum == words * (words - 1) / 2 {
        true => Ok(()),
        false => Err(BenchError::Failed(format!("a file's sum is {sum}"))),
    }
}

/// The file.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, BenchError> {
        let name = format!("farside-bench-files-{}", std::process::id());
        let scratch = Scratch(std::env::temp_dir().join(name));
        let mut file = std::io::BufWriter::new(File::create(&scratch.0)?);
        for word in 0..(BYTES / 8) as u64 {
            file.write_all(&word.to_ne_bytes())?;
        }
        file.into_inner().map_err(|error| error.into_error())?.sync_all()?;
        Ok(scratch)
    }

    fn open(&self) -> Result<File, BenchError> {
        Ok(File::options().read(true).write(true).open(&self.0)?)
    }

    /// Seconds that `work` takes.
    fn timed(&self, cold: bool, work: &Work) -> Result<f64, BenchError> {
        let file = self.open()?;
        file.sync_all()?;
        match cold {
            true => rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)
                .map_err(std::io::Error::from)?,
            false => _ = std::io::copy(&mut &file, &mut std::io::sink())?,
        }
        let started = Instant::now();
        work()?;
        Ok(started.elapsed().as_secs_f64())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The file by `mmap`.
struct Mapped(*mut u64);

impl Mapped {
    fn of(file: &File) -> Result<Mapped, BenchError> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping of a file of so many bytes, which nobody cuts.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), BYTES, rights, MapFlags::SHARED, file, 0)
        };
        Ok(Mapped(start.map_err(std::io::Error::from)?.cast()))
    }

    fn words(&self) -> &[u64] {
        // SAFETY: mapped for so many words, which nobody else changes.
        unsafe { std::slice::from_raw_parts(self.0, BYTES / 8) }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above, borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.0, BYTES / 8) }
    }

    fn sync(&self) -> Result<(), BenchError> {
        // SAFETY: the mapping.
        let synced = unsafe { rustix::mm::msync(self.0.cast(), BYTES, MsyncFlags::SYNC) };
        Ok(synced.map_err(std::io::Error::from)?)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping, of which no reference is left.
        let _ = unsafe { rustix::mm::munmap(self.0.cast(), BYTES) };
    }
}
