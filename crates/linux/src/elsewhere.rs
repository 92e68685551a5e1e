//! Whether every thread that might have been in a certain system call has left it since.
//!
//! The kernel does not tell who is in a call. But a thread that sleeps says in which call it does, and one that has
//! had a processor for long enough since is through with what it was at. What cannot be told apart is a thread that runs:
//! it counts as being in the call until it has had that much time.

use std::time::Duration;

/// Threads of this process, but for the calling one, that have not been seen elsewhere yet.
#[derive(Debug)]
pub struct Elsewhere {
    calls: &'static [libc::c_long],
    enough: Duration,
    left: Vec<Suspect>,
}

#[derive(Debug)]
struct Suspect {
    thread: i32,
    /// Of processor time, when it was seen first.
    had: Duration,
}

impl Elsewhere {
    /// Looks at all threads. Who has had a processor for `enough` time from now on has left `calls`.
    pub fn begin(calls: &'static [libc::c_long], enough: Duration) -> Elsewhere {
        // SAFETY: the call has no conditions.
        let own = unsafe { libc::gettid() };
        let all = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let threads = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let suspect = |thread| Some(Suspect { thread, had: processor_time(thread)? });
        let left = threads.filter(|&thread: &i32| thread != own).filter_map(suspect).collect();
        let mut this = Elsewhere { calls, enough, left };
        this.is_over();
        this
    }

    /// Whether all have left.
    pub fn is_over(&mut self) -> bool {
        let (calls, enough) = (self.calls, self.enough);
        self.left.retain(|suspect| suspect.may_be_in(calls, enough));
        self.left.is_empty()
    }
}

impl Suspect {
    fn may_be_in(&self, calls: &[libc::c_long], enough: Duration) -> bool {
        // One that has ended has none.
        let Some(had) = processor_time(self.thread) else { return false };
        if had >= self.had + enough {
            return false;
        }
        let path = format!("/proc/self/task/{}/syscall", self.thread);
        let Ok(text) = std::fs::read_to_string(path) else { return true };
        // "running", or the number of the call that it sleeps in, or -1 where it sleeps in none.
        let call = text.split(' ').next().and_then(|word| word.trim().parse::<libc::c_long>().ok());
        call.is_none_or(|call| calls.contains(&call))
    }
}

/// What a thread of this process has had of processors; nothing if there is no such thread any more.
fn processor_time(thread: i32) -> Option<Duration> {
    // As the kernel's ABI has it (`MAKE_THREAD_CPUCLOCK`, `CPUCLOCK_SCHED`).
    let clock = (!thread << 3) | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure, or fails.
    let done = unsafe { libc::clock_gettime(clock, &mut time) };
    (done == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::*;

    const ENOUGH: Duration = Duration::from_millis(20);

    fn ends(what: &mut Elsewhere) -> bool {
        let end = Instant::now() + Duration::from_secs(20);
        while !what.is_over() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        what.is_over()
    }

    #[test]
    fn who_sleeps_in_the_call_is_in_it_and_who_sleeps_elsewhere_runs_on_or_has_ended_is_not() {
        const SLEEP: &[libc::c_long] = &[libc::SYS_clock_nanosleep];
        let (stop, wakes) = (AtomicBool::new(false), AtomicBool::new(false));
        let (give, take) = channel::<()>();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !stop.load(SeqCst) {
                    std::hint::spin_loop();
                }
            });
            threads.spawn(move || take.recv());
            let sleeper = threads.spawn(|| {
                while !wakes.load(SeqCst) {
                    std::thread::sleep(Duration::from_millis(200));
                }
            });
            std::thread::sleep(Duration::from_millis(50));
            let mut all = Elsewhere::begin(SLEEP, ENOUGH);
            let until = Instant::now() + Duration::from_millis(500);
            while Instant::now() < until {
                assert!(!all.is_over(), "one of them sleeps");
                // This thread is not looked at.
                std::thread::sleep(Duration::from_millis(5));
            }
            wakes.store(true, SeqCst);
            sleeper.join().unwrap();
            assert!(ends(&mut all), "{all:?}");
            stop.store(true, SeqCst);
            drop(give);
        });
    }
}
