//! What this machine offers: probed, never assumed.
//!
//! Owns the questions to the kernel. What the answers mean for a user is said by
//! [`crate::doctor`].

use core::fmt;
use std::fs;

use farside_types::BLOCK_SIZE;
use rustix::fs::{Access, MemfdFlags};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use crate::arena::Arena;
use farside_linux::affinity::cpu_count;
use farside_linux::uffd::Support;

/// Bit of CAP_SYS_PTRACE in a capability mask.
const CAP_SYS_PTRACE: u32 = 19;

/// The kernel's version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct KernelVersion {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
}

impl KernelVersion {
    /// Reads a release such as `6.1.0-18-amd64`.
    pub fn parse(release: &str) -> Option<KernelVersion> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        let (major, minor) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some(KernelVersion { major, minor })
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Whether this process can use `/dev/userfaultfd`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceAccess {
    /// There is no such file (before Linux 6.1).
    Absent,
    /// It is there, for others.
    Denied,
    /// This process may open it.
    Granted,
}

/// What an arena made for trial can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct ArenaTrial {
    /// Pages can be mapped read only.
    pub host_read_only: bool,
    /// Lost pages can be poisoned.
    pub poison: bool,
    /// Blocks of 2 MiB can be large pages.
    pub large_pages: bool,
}

/// Everything that was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Features {
    /// The kernel's version, if it can be read.
    pub kernel: Option<KernelVersion>,
    /// How a userfaultfd is opened and what it has, or why there is none.
    pub userfaultfd: Result<Support, String>,
    /// What an arena can do, or why there is none.
    pub arena: Result<ArenaTrial, String>,
    /// The effective user is root.
    pub root: bool,
    /// The process has CAP_SYS_PTRACE.
    pub cap_sys_ptrace: bool,
    /// `vm.unprivileged_userfaultfd`, if there is such a setting.
    pub unprivileged_userfaultfd: Option<bool>,
    /// `/dev/userfaultfd`.
    pub device: DeviceAccess,
    /// Memory files can be made.
    pub memfd: bool,
    /// Processors this process may use.
    pub cpus: usize,
    /// Memory the machine can give, in bytes, if known.
    pub memory_available_bytes: Option<u64>,
    /// The lowest memory limit of this process's control groups, in bytes, if there is one.
    pub memory_limit_bytes: Option<u64>,
    /// Limit of the address space in bytes (RLIMIT_AS), if there is one.
    pub address_space_limit_bytes: Option<u64>,
    /// Limit of a file's size in bytes (RLIMIT_FSIZE), if there is one.
    pub file_size_limit_bytes: Option<u64>,
}

impl Features {
    /// Asks the kernel. Makes a small arena for trial and takes it away again.
    pub fn probe() -> Features {
        Features {
            kernel: read("/proc/sys/kernel/osrelease").and_then(|text| KernelVersion::parse(&text)),
            userfaultfd: Support::probe().map_err(|error| error.to_string()),
            arena: try_arena(),
            root: rustix::process::geteuid().is_root(),
            cap_sys_ptrace: has_capability(CAP_SYS_PTRACE),
            unprivileged_userfaultfd: read("/proc/sys/vm/unprivileged_userfaultfd")
                .map(|text| text.trim() == "1"),
            device: device_access(),
            memfd: rustix::fs::memfd_create("farside-probe", MemfdFlags::CLOEXEC).is_ok(),
            cpus: cpu_count(),
            memory_available_bytes: meminfo("MemAvailable:").map(|kib| kib.saturating_mul(1024)),
            memory_limit_bytes: control_group_limit(),
            address_space_limit_bytes: getrlimit(Resource::As).current,
            file_size_limit_bytes: getrlimit(Resource::Fsize).current,
        }
    }
}

fn try_arena() -> Result<ArenaTrial, String> {
    let arena = Arena::new(BLOCK_SIZE as u64).map_err(|error| error.to_string())?;
    let support = arena.support();
    let large = arena.make_large(arena.pages()).map_err(|error| error.to_string())?;
    Ok(ArenaTrial {
        host_read_only: support.host_read_only,
        poison: support.poison,
        large_pages: large.had == large.wanted,
    })
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn has_capability(bit: u32) -> bool {
    let Some(status) = read("/proc/self/status") else {
        return false;
    };
    field(&status, "CapEff:")
        .and_then(|text| u64::from_str_radix(text, 16).ok())
        .is_some_and(|mask| mask & (1 << bit) != 0)
}

fn device_access() -> DeviceAccess {
    const PATH: &str = "/dev/userfaultfd";
    match rustix::fs::access(PATH, Access::READ_OK | Access::WRITE_OK) {
        Ok(()) => DeviceAccess::Granted,
        Err(rustix::io::Errno::NOENT) => DeviceAccess::Absent,
        Err(_) => DeviceAccess::Denied,
    }
}

fn meminfo(key: &str) -> Option<u64> {
    field(&read("/proc/meminfo")?, key)?.parse().ok()
}

/// The first word after `key` in a text of lines.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next())
}

/// The lowest `memory.max` from this process's control group up to the root.
fn control_group_limit() -> Option<u64> {
    let groups = read("/proc/self/cgroup")?;
    let mut path = groups.lines().find_map(|line| line.strip_prefix("0::"))?.to_owned();
    let mut lowest = None;
    loop {
        let limit = read(&format!("/sys/fs/cgroup{path}/memory.max"))
            .and_then(|text| text.trim().parse::<u64>().ok());
        lowest = [lowest, limit].into_iter().flatten().min();
        match path.rfind('/') {
            Some(at) if path.len() > 1 => path.truncate(at),
            _ => return lowest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_distributions_are_read() {
        let parse = |text| KernelVersion::parse(text).map(|v| (v.major, v.minor));
        assert_eq!(parse("6.1.0-18-amd64\n"), Some((6, 1)));
        assert_eq!(parse("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(parse("5.19-rc3"), Some((5, 19)));
        assert_eq!(parse("linux"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn fields_are_found_at_the_start_of_a_line() {
        let text = "A: 1\nMemAvailable:   12 kB\n";
        assert_eq!(field(text, "MemAvailable:"), Some("12"));
        assert_eq!(field(text, "Available:"), None);
        assert_eq!(field(text, "B:"), None);
    }

    #[test]
    fn this_machine_can_be_asked() {
        let features = Features::probe();
        assert!(features.cpus >= 1);
        assert!(features.kernel.is_some() && features.memory_available_bytes.is_some());
    }
}
