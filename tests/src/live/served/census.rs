//! What a process has open, and whether it does anything.

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Counts of what a process has: a leak lets one of them grow with every round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Census {
    /// Open descriptors.
    pub files: usize,
    /// Threads.
    pub threads: usize,
    /// Mappings of memory files of this project.
    pub mappings: usize,
}

fn of(pid: u32, what: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{what}"))
}

fn entries(path: PathBuf) -> usize {
    // A process that ends meanwhile has none.
    std::fs::read_dir(path).map_or(0, Iterator::count)
}

impl Census {
    /// Counts now.
    ///
    /// Of mappings only those of shared memory count: heap, stacks and arenas of the allocator come
    /// and go as they like.
    pub fn of(pid: u32) -> Census {
        let maps = std::fs::read_to_string(of(pid, "maps")).unwrap_or_default();
        Census {
            files: entries(of(pid, "fd")),
            threads: entries(of(pid, "task")),
            mappings: maps.lines().filter(|line| line.contains("memfd:")).count(),
        }
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
            let within = now.files <= self.files
                && now.threads <= self.threads
                && now.mappings <= self.mappings;
            if within {
                return;
            }
            assert!(Instant::now() < end, "{what}: {now:?} instead of {self:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// How often the threads of a process, but those whose names `ignored` tells, have been put on a
/// processor within `time`. One that sleeps is not.
pub fn ticks_asleep(pid: u32, time: Duration, ignored: impl Fn(&str) -> bool) -> u64 {
    let before = switches(pid, &ignored);
    std::thread::sleep(time);
    switches(pid, &ignored).saturating_sub(before)
}

/// Voluntary and involuntary changes of context of all threads.
fn switches(pid: u32, ignored: &impl Fn(&str) -> bool) -> u64 {
    let tasks = std::fs::read_dir(of(pid, "task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok())
        .filter(|status| !ignored(field(status, "Name:").unwrap_or_default()))
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
