//! What a process has open, and whether it does anything.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::family_of;

/// Counts of what a process has: a leak lets one of them grow with every round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Census {
    /// Open descriptors.
    pub files: usize,
    /// Threads.
    pub threads: usize,
    /// Mappings of memory files.
    pub mappings: usize,
    /// Mappings that are too large to be the allocator's.
    pub large: usize,
}

/// An allocator reserves this much for a thread, at most.
const ALLOCATOR_BYTES: u64 = 64 << 20;

fn of(pid: u32, what: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{what}"))
}

fn entries(path: PathBuf) -> usize {
    // A process that ends meanwhile has none.
    std::fs::read_dir(path).map_or(0, Iterator::count)
}

/// The length of a mapping, from its line `start-end ...`.
fn bytes_of(line: &str) -> u64 {
    let range = line.split(' ').next().and_then(|range| range.split_once('-'));
    let hex = |text| u64::from_str_radix(text, 16).unwrap_or(0);
    range.map_or(0, |(start, end)| hex(end).saturating_sub(hex(start)))
}

impl Census {
    /// Counts now, in a process and those that it has made.
    ///
    /// Heap, stacks and reservations of the allocator come and go as they like, so small mappings
    /// count only if they are of memory files.
    pub fn of(pid: u32) -> Census {
        let mut all = Census { files: 0, threads: 0, mappings: 0, large: 0 };
        for pid in family_of(pid) {
            let maps = std::fs::read_to_string(of(pid, "maps")).unwrap_or_default();
            all.files += entries(of(pid, "fd"));
            all.threads += entries(of(pid, "task"));
            all.mappings += maps.lines().filter(|line| line.contains("memfd:")).count();
            all.large += maps.lines().filter(|line| bytes_of(line) > ALLOCATOR_BYTES).count();
        }
        all
    }

    /// Counts once a process has come to rest: twice the same, some time apart.
    pub fn at_rest(pid: u32) -> Census {
        let mut last = Census::of(pid);
        loop {
            std::thread::sleep(Duration::from_millis(50));
            let now = Census::of(pid);
            if now == last {
                return now;
            }
            last = now;
        }
    }

    /// Whether there is no more of anything than elsewhere.
    pub fn is_within(self, other: Census) -> bool {
        self.files <= other.files
            && self.threads <= other.threads
            && self.mappings <= other.mappings
            && self.large <= other.large
    }

    /// Waits until a process has no more than this of anything.
    ///
    /// # Panics
    /// If it does not come to that within 10 seconds.
    #[track_caller]
    pub fn await_at_most(self, pid: u32, what: &str) {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            let now = Census::of(pid);
            if now.is_within(self) {
                return;
            }
            assert!(Instant::now() < end, "{what}: {now:?} instead of {self:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// How often the threads of a process, and of those that it has made, have been put on a processor.
/// One that sleeps is not.
pub fn switches_of(pid: u32) -> u64 {
    let family = family_of(pid).into_iter();
    let tasks = family.flat_map(|pid| std::fs::read_dir(of(pid, "task")));
    tasks
        .flatten()
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok())
        .map(|status| {
            let count = |name| field(&status, name).and_then(|n| n.parse::<u64>().ok());
            count("voluntary_ctxt_switches:").unwrap_or(0)
                + count("nonvoluntary_ctxt_switches:").unwrap_or(0)
        })
        .sum()
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}
