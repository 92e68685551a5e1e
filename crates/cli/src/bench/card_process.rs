//! A card's process for a measurement, and a peer that answers event descriptors.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use farside::{CardPlace, Error, LiveError};
use rustix::event::EventfdFlags;

use super::pin;

/// A served card; its process ends when this is dropped.
pub(crate) struct CardProcess {
    child: Child,
    folder: PathBuf,
}

impl CardProcess {
    /// Serves a card from another process of this program, pinned to `cpu`.
    pub(crate) fn start(name: &str, memory: u64, cpu: usize) -> Result<CardProcess, Error> {
        let folder = std::env::temp_dir().join(format!("fsb{}-{name}", std::process::id()));
        let program = std::env::current_exe().map_err(LiveError::Thread)?;
        // A child inherits the processor of the thread that starts it.
        let _pinned = pin(cpu);
        let child = Command::new(program)
            .args(["card", "serve"])
            .arg(&folder)
            .args(["--functions", "1", "--memory", &format!("{}KiB", memory >> 10)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(LiveError::Thread)?;
        let card = CardProcess { child, folder };
        card.await_socket();
        Ok(card)
    }

    fn await_socket(&self) {
        let end = Instant::now() + Duration::from_secs(5);
        while farside_softcard::serve::read_status(&self.folder).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Where its card is.
    pub(crate) fn place(&self) -> CardPlace {
        CardPlace::Socket(self.folder.clone())
    }

    /// Its process, those that it has made, and so on.
    pub(crate) fn family(&self) -> Vec<u32> {
        family_of(self.child.id())
    }

    /// Processor time that its threads, and those of the processes that it has made, have taken, in
    /// clock ticks of the kernel.
    pub(crate) fn ticks(&self) -> u64 {
        ticks_of_family(self.child.id())
    }
}

/// The same of any process.
pub(crate) fn ticks_of_family(pid: u32) -> u64 {
    let stat = |pid: u32| PathBuf::from(format!("/proc/{pid}/stat"));
    family_of(pid).into_iter().map(|pid| ticks_of(&stat(pid))).sum()
}

impl Drop for CardProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A process, those that it has made, those that these have made, and so on.
fn family_of(pid: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let parents: Vec<(u32, u32)> = entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // State and parent follow the name in parentheses.
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect();
    let mut family = vec![pid];
    let mut next = 0;
    while let Some(&of) = family.get(next) {
        family.extend(parents.iter().filter(|(_, parent)| *parent == of).map(|(pid, _)| *pid));
        next += 1;
    }
    family
}

/// Processor time in clock ticks, from a process's `stat` file; 0 if it cannot be read.
pub(crate) fn ticks_of(stat: &Path) -> u64 {
    let text = std::fs::read_to_string(stat).unwrap_or_default();
    // The name in parentheses may contain anything; user and system time are fields 14 and 15.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<u64> = rest.split_whitespace().skip(11).take(2).flat_map(str::parse).collect();
    fields.iter().sum()
}

/// A process that answers each event on one descriptor by an event on another.
pub(crate) struct Echo {
    child: libc::pid_t,
    there: OwnedFd,
    back: OwnedFd,
}

impl Echo {
    /// Starts it on `cpu`.
    pub(crate) fn start(cpu: usize) -> Result<Echo, Error> {
        let event = || rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(LiveError::Bell);
        let (there, back) = (event()?, event()?);
        let _pinned = pin(cpu);
        // SAFETY: the child calls nothing but read, write and _exit, which are allowed in the child
        // of a process with threads.
        let child = unsafe { libc::fork() };
        if child == 0 {
            echo(there.as_raw_fd(), back.as_raw_fd());
        }
        if child < 0 {
            return Err(LiveError::Thread(std::io::Error::last_os_error()).into());
        }
        Ok(Echo { child, there, back })
    }

    /// One event there, and one back.
    pub(crate) fn round_trip(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::write(&self.there, &1u64.to_ne_bytes());
        let _ = rustix::io::read(&self.back, &mut count);
    }
}

fn echo(there: i32, back: i32) -> ! {
    let mut count = [0u8; 8];
    let one = 1u64.to_ne_bytes();
    loop {
        // SAFETY: both buffers have eight bytes, as event descriptors want; the descriptors were
        // open when this process was made and are its own.
        unsafe {
            if libc::read(there, count.as_mut_ptr().cast(), 8) != 8 {
                libc::_exit(0);
            }
            libc::write(back, one.as_ptr().cast(), 8);
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // SAFETY: the child is this process's own and was not waited for.
        unsafe {
            libc::kill(self.child, libc::SIGKILL);
            libc::waitpid(self.child, std::ptr::null_mut(), 0);
        }
    }
}
