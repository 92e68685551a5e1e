//! Until when a lease may be used: a page that the borrower's daemon writes and its programs read.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use farside_linux::mapping::MemoryError;
use farside_linux::shared::SharedMemory;
use farside_types::PAGE_SIZE;

/// Nanoseconds of CLOCK_BOOTTIME of this machine, which goes on while the machine sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootTime(pub u64);

impl BootTime {
    /// Now.
    #[must_use]
    pub fn now() -> BootTime {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        BootTime(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }
}

/// Where in the page the words are.
const USABLE_UNTIL: u64 = 0;
const WANTED_BACK_BY: u64 = 8;

/// See the module. All words are zero once the lease has ended.
#[derive(Debug)]
pub struct Term(SharedMemory);

impl Term {
    /// Its name in the folder of a lease.
    pub const FILE: &'static str = "term";

    /// A new page, of a lease that may not be used yet.
    ///
    /// # Errors
    /// The file cannot be made or mapped.
    pub fn create(path: &Path) -> std::io::Result<Term> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        file.set_len(PAGE_SIZE as u64)?;
        Term::of(file)
    }

    /// The page of a lease.
    ///
    /// # Errors
    /// It is not there, is no such page, or cannot be mapped.
    pub fn open(path: &Path) -> std::io::Result<Term> {
        let file = File::options().read(true).write(true).open(path)?;
        if file.metadata()?.len() < PAGE_SIZE as u64 {
            return Err(std::io::Error::other("it is shorter than a page"));
        }
        Term::of(file)
    }

    fn of(file: File) -> std::io::Result<Term> {
        let mapped = SharedMemory::of_file(file.into(), 0, PAGE_SIZE as u64);
        mapped.map(Term).map_err(|error: MemoryError| std::io::Error::other(error))
    }

    /// The lease may be used until then, and not at all from then on.
    pub fn set_usable_until(&self, end: BootTime) {
        self.set(USABLE_UNTIL, end.0);
    }

    /// The lender wants it back by then.
    pub fn set_wanted_back_by(&self, by: BootTime) {
        self.set(WANTED_BACK_BY, by.0);
    }

    /// The lease has ended.
    pub fn end(&self) {
        self.set(USABLE_UNTIL, 0);
        self.set(WANTED_BACK_BY, 0);
    }

    /// For how much longer it may be used; `None`: not any more.
    #[must_use]
    pub fn left(&self, now: BootTime) -> Option<Duration> {
        let left = self.get(USABLE_UNTIL).checked_sub(now.0).filter(|&left| left > 0);
        left.map(Duration::from_nanos)
    }

    /// When the lender wants it back, if it does.
    #[must_use]
    pub fn wanted_back_by(&self) -> Option<BootTime> {
        Some(self.get(WANTED_BACK_BY)).filter(|&by| by != 0).map(BootTime)
    }

    fn get(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.read(at, &mut bytes).expect("the page holds it");
        u64::from_ne_bytes(bytes)
    }

    fn set(&self, at: u64, value: u64) {
        self.0.write(at, &value.to_ne_bytes()).expect("the page holds it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_daemon_writes_its_programs_read() {
        let path = std::env::temp_dir().join(format!("farside-term-{}", std::process::id()));
        let written = Term::create(&path).unwrap();
        let read = Term::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read.left(BootTime(0)), None);
        written.set_usable_until(BootTime(100));
        assert_eq!(read.left(BootTime(40)), Some(Duration::from_nanos(60)));
        assert_eq!([read.left(BootTime(100)), read.left(BootTime(101))], [None, None]);
        assert_eq!(read.wanted_back_by(), None);
        written.set_wanted_back_by(BootTime(70));
        assert_eq!(read.wanted_back_by(), Some(BootTime(70)));
        written.end();
        assert_eq!((read.left(BootTime(0)), read.wanted_back_by()), (None, None));
    }

    #[test]
    fn a_file_that_is_too_short_is_no_page() {
        let path = std::env::temp_dir().join(format!("farside-short-{}", std::process::id()));
        std::fs::write(&path, [0; 100]).unwrap();
        let opened = Term::open(&path);
        std::fs::remove_file(&path).unwrap();
        assert!(opened.unwrap_err().to_string().contains("shorter"));
    }
}
