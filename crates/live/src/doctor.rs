//! What a machine's features mean for Farside, and what to do about those that are missing.
//!
//! Owns the words. The facts come from [`crate::features`]; nothing is probed here.

use core::fmt;

use serde::Serialize;

use crate::arena::DEFAULT_ARENA_BYTES;
use crate::features::{DeviceAccess, Features, KernelVersion};
use farside_linux::uffd::OpenedBy;
use farside_linux::uffd::abi::feature;

/// Said of what only an arena could tell.
const NOT_TRIED: &str = "unknown, because no arena could be made to try it";

/// The result of one check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Farside runs, with less.
    Degraded,
    /// Farside does not run.
    Missing,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Status::Ok => "ok",
            Status::Degraded => "degraded",
            Status::Missing => "missing",
        })
    }
}

/// One line of the report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Check {
    /// What was checked.
    pub name: &'static str,
    /// The result.
    pub status: Status,
    /// What was found and what it means.
    pub meaning: String,
    /// What to do; empty if nothing needs to be done.
    pub remedy: &'static str,
}

/// All checks. Displays as a table in plain text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// In the order in which they are shown.
    pub checks: Vec<Check>,
}

/// Farside cannot run on this machine as it is.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Farside cannot run here: {name}: {meaning}. {remedy}")]
pub struct DoctorError {
    /// The first check that failed.
    pub name: &'static str,
    /// What was found.
    pub meaning: String,
    /// What to do.
    pub remedy: &'static str,
}

impl Report {
    /// Judges `features`.
    pub fn new(features: &Features) -> Report {
        let checks = vec![
            kernel(features),
            userfaultfd(features),
            system_calls(features),
            arena(features),
            read_only(features),
            poison(features),
            adopted_memory(features),
            memfd(features),
            cpus(features),
            memory(features),
            limits(features),
            large_pages(features),
        ];
        Report { checks }
    }

    /// Whether programs can run, also where something is degraded.
    ///
    /// # Errors
    /// [`DoctorError`] with the first check that is [`Status::Missing`].
    pub fn usable(&self) -> Result<(), DoctorError> {
        match self.checks.iter().find(|check| check.status == Status::Missing) {
            None => Ok(()),
            Some(check) => Err(DoctorError {
                name: check.name,
                meaning: check.meaning.clone(),
                remedy: check.remedy,
            }),
        }
    }

    /// The worst result.
    pub fn worst(&self) -> Status {
        self.checks.iter().map(|check| check.status).max().unwrap_or(Status::Ok)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAME: &str = "check";
        let name = self.checks.iter().map(|check| check.name.len()).fold(NAME.len(), usize::max);
        writeln!(f, "{NAME:name$}  {:8}  meaning", "status")?;
        for check in &self.checks {
            writeln!(f, "{:name$}  {:8}  {}", check.name, check.status, check.meaning)?;
            if !check.remedy.is_empty() {
                writeln!(f, "{:name$}  {:8}  -> {}", "", "", check.remedy)?;
            }
        }
        match self.usable() {
            Err(error) => write!(f, "Farside cannot run here: see \"{}\".", error.name),
            Ok(()) if self.worst() == Status::Ok => write!(f, "Everything Farside uses is there."),
            Ok(()) => write!(f, "Farside runs here, with less than it could have."),
        }
    }
}

fn ok(name: &'static str, meaning: impl Into<String>) -> Check {
    Check { name, status: Status::Ok, meaning: meaning.into(), remedy: "" }
}

fn degraded(name: &'static str, meaning: impl Into<String>, remedy: &'static str) -> Check {
    Check { name, status: Status::Degraded, meaning: meaning.into(), remedy }
}

fn missing(name: &'static str, meaning: impl Into<String>, remedy: &'static str) -> Check {
    Check { name, status: Status::Missing, meaning: meaning.into(), remedy }
}

fn kernel(features: &Features) -> Check {
    const NAME: &str = "kernel";
    const COMPLETE: KernelVersion = KernelVersion { major: 6, minor: 8 };
    match features.kernel {
        Some(version) if version >= COMPLETE => ok(NAME, format!("Linux {version}")),
        // What an older one lacks is found by the checks below, each by trying.
        Some(version) => ok(NAME, format!("Linux {version}; what it lacks is listed below")),
        None => degraded(
            NAME,
            "the version cannot be read; everything below was tried instead",
            "Mount /proc in this container.",
        ),
    }
}

fn userfaultfd(features: &Features) -> Check {
    const NAME: &str = "userfaultfd";
    match &features.userfaultfd {
        Ok(support) => ok(NAME, format!("opened by {}", support.opened_by)),
        Err(why) => missing(
            NAME,
            format!("page faults cannot be handled in user space: {why}"),
            "Run a kernel with CONFIG_USERFAULTFD and allow the system call in the container or \
             sandbox, or give this user access to /dev/userfaultfd.",
        ),
    }
}

fn system_calls(features: &Features) -> Check {
    const NAME: &str = "system calls on shared memory";
    match &features.userfaultfd {
        Ok(support) if support.opened_by != OpenedBy::UserModeOnly => {
            ok(NAME, "read(2), write(2) and the like work on pages that are on a card")
        }
        Ok(_) => degraded(
            NAME,
            "read(2), write(2) and the like fail with EFAULT on pages that are on a card, because \
             this process has no privilege; touch or migrate the pages first",
            match features.device {
                DeviceAccess::Absent => {
                    "Run as root or with CAP_SYS_PTRACE, or set vm.unprivileged_userfaultfd=1."
                }
                _ => {
                    "As root, give this user read and write access to /dev/userfaultfd \
                     (setfacl -m u:USER:rw /dev/userfaultfd), or set vm.unprivileged_userfaultfd=1."
                }
            },
        ),
        Err(_) => missing(NAME, "no userfaultfd, so nothing is served", "See userfaultfd."),
    }
}

fn arena(features: &Features) -> Check {
    const NAME: &str = "arena";
    match &features.arena {
        Ok(_) => ok(NAME, "shared memory can be allocated"),
        Err(why) => missing(
            NAME,
            format!("shared memory cannot be allocated: {why}"),
            "Do what the message says. The kernel must be Linux 5.14 or newer; 6.8 has everything.",
        ),
    }
}

fn read_only(features: &Features) -> Check {
    const NAME: &str = "read-only host pages";
    match &features.arena {
        Ok(trial) if trial.host_read_only => {
            ok(NAME, "pages can be on the host and on cards at once, for reading")
        }
        Err(_) => degraded(NAME, NOT_TRIED, "See arena."),
        Ok(_) => degraded(
            NAME,
            "no copy of a page stays on the host while cards read it: more pages move",
            "Use Linux 6.4 or newer.",
        ),
    }
}

fn poison(features: &Features) -> Check {
    const NAME: &str = "lost pages";
    match &features.arena {
        Ok(trial) if trial.poison => {
            ok(NAME, "an access to a page that was lost with its card raises SIGBUS")
        }
        Err(_) => degraded(NAME, NOT_TRIED, "See arena."),
        Ok(_) => degraded(
            NAME,
            "pages lost with their card cannot be marked: accesses to them wait until the space \
             is closed",
            "Use Linux 6.6 or newer.",
        ),
    }
}

fn adopted_memory(features: &Features) -> Check {
    const NAME: &str = "page moves";
    match &features.userfaultfd {
        Ok(support) if support.features.contains(feature::MOVE) => {
            ok(NAME, "pages of ordinary memory can be moved without a copy")
        }
        _ => degraded(
            NAME,
            "pages of ordinary memory cannot be moved without a copy; memory from the arena is \
             not affected",
            "Use Linux 6.8 or newer.",
        ),
    }
}

fn memfd(features: &Features) -> Check {
    const NAME: &str = "memory files";
    if features.memfd {
        return ok(NAME, "memfd_create works");
    }
    missing(
        NAME,
        "memfd_create fails, so neither arena nor card memory can be made",
        "Allow the system call in the container or sandbox, and raise the limit of open files.",
    )
}

fn cpus(features: &Features) -> Check {
    const NAME: &str = "processors";
    match features.cpus {
        0 | 1 => degraded(
            NAME,
            "one processor: cards in the program take turns with it, and every wait sleeps",
            "Give the process more processors (taskset, the container's CPU set).",
        ),
        cpus => ok(NAME, format!("{cpus} processors")),
    }
}

fn memory(features: &Features) -> Check {
    const NAME: &str = "memory";
    const COMFORTABLE: u64 = 1 << 30;
    let known = [features.memory_available_bytes, features.memory_limit_bytes];
    match known.into_iter().flatten().min() {
        None => degraded(
            NAME,
            "the memory of this machine cannot be read",
            "Mount /proc in this container.",
        ),
        Some(bytes) if bytes < COMFORTABLE => degraded(
            NAME,
            format!("{} can be used; cards in the program live in it", mebibytes(bytes)),
            "Give each card less memory, or raise the container's limit.",
        ),
        Some(bytes) => ok(NAME, format!("{} can be used", mebibytes(bytes))),
    }
}

fn limits(features: &Features) -> Check {
    const NAME: &str = "limits";
    // The arena is mapped twice.
    let address_space = features.address_space_limit_bytes.map(|limit| limit / 2);
    let file_size = features.file_size_limit_bytes;
    match [address_space, file_size].into_iter().flatten().min() {
        Some(limit) if limit < DEFAULT_ARENA_BYTES => degraded(
            NAME,
            format!(
                "an arena can have {} at most; {} is the default",
                mebibytes(limit),
                mebibytes(DEFAULT_ARENA_BYTES)
            ),
            "Raise the limits (ulimit -v unlimited, ulimit -f unlimited) or ask for a smaller \
             arena.",
        ),
        _ => ok(NAME, "none that matters"),
    }
}

fn large_pages(features: &Features) -> Check {
    const NAME: &str = "large pages";
    match &features.arena {
        Ok(trial) if !trial.large_pages => degraded(
            NAME,
            "blocks of 2 MiB that are asked for have pages of 4 KiB",
            "Linux 6.1 and later make large pages of a memory file (MADV_COLLAPSE), where memory is not in \
             too small pieces (/proc/buddyinfo).",
        ),
        _ => ok(NAME, "of memory like any other, for those who ask for them"),
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::ArenaTrial;
    use farside_linux::uffd::{FeatureSet, Support};

    const TRIAL: ArenaTrial = ArenaTrial { host_read_only: true, poison: true, large_pages: true };

    fn complete() -> Features {
        Features {
            kernel: KernelVersion::parse("6.18.0"),
            userfaultfd: Ok(Support {
                opened_by: OpenedBy::Syscall,
                features: FeatureSet((1 << 17) - 1),
            }),
            arena: Ok(TRIAL),
            root: true,
            cap_sys_ptrace: true,
            unprivileged_userfaultfd: Some(false),
            device: DeviceAccess::Granted,
            memfd: true,
            cpus: 2,
            memory_available_bytes: Some(8 << 30),
            memory_limit_bytes: None,
            address_space_limit_bytes: None,
            file_size_limit_bytes: None,
        }
    }

    fn status(features: &Features, name: &str) -> Status {
        let report = Report::new(features);
        report.checks.iter().find(|check| check.name == name).unwrap().status
    }

    #[test]
    fn a_complete_machine_has_nothing_to_do() {
        let report = Report::new(&complete());
        assert_eq!(report.worst(), Status::Ok, "{report}");
        assert!(report.usable().is_ok());
        assert!(report.to_string().ends_with("Everything Farside uses is there."));
    }

    #[test]
    fn each_missing_feature_degrades_its_own_check_only() {
        type Spoil = fn(&mut Features);
        let cases: [(&str, Spoil); 8] = [
            ("lost pages", |f| f.arena = Ok(ArenaTrial { poison: false, ..TRIAL })),
            ("read-only host pages", |f| {
                f.arena = Ok(ArenaTrial { host_read_only: false, ..TRIAL });
            }),
            ("large pages", |f| f.arena = Ok(ArenaTrial { large_pages: false, ..TRIAL })),
            ("system calls on shared memory", |f| {
                f.userfaultfd = Ok(Support {
                    opened_by: OpenedBy::UserModeOnly,
                    features: FeatureSet((1 << 17) - 1),
                });
            }),
            ("page moves", |f| {
                f.userfaultfd =
                    Ok(Support { opened_by: OpenedBy::Syscall, features: FeatureSet(0xffff) });
            }),
            ("processors", |f| f.cpus = 1),
            ("memory", |f| f.memory_limit_bytes = Some(100 << 20)),
            ("limits", |f| f.address_space_limit_bytes = Some(64 << 30)),
        ];
        for (name, spoil) in cases {
            let mut features = complete();
            spoil(&mut features);
            let report = Report::new(&features);
            let affected: Vec<_> =
                report.checks.iter().filter(|check| check.status != Status::Ok).collect();
            assert_eq!(affected.len(), 1, "{report}");
            assert_eq!((affected[0].name, affected[0].status), (name, Status::Degraded));
            assert!(!affected[0].remedy.is_empty());
            assert!(report.usable().is_ok());
        }
    }

    #[test]
    fn without_userfaultfd_or_memory_files_nothing_runs_and_the_report_says_so() {
        let mut features = complete();
        features.userfaultfd = Err("forbidden".to_owned());
        features.arena = Err("forbidden".to_owned());
        let report = Report::new(&features);
        let error = report.usable().unwrap_err();
        assert_eq!(error.name, "userfaultfd");
        assert!(error.to_string().contains("/dev/userfaultfd"), "{error}");
        assert!(report.to_string().contains("cannot run here"));
        let mut features = complete();
        features.memfd = false;
        assert_eq!(status(&features, "memory files"), Status::Missing);
    }

    #[test]
    fn columns_line_up() {
        let text = Report::new(&complete()).to_string();
        let mut lines = text.lines();
        let column = lines.next().unwrap().find("meaning").unwrap();
        for line in lines.take_while(|line| !line.starts_with("Everything")) {
            assert_eq!(line.as_bytes()[column - 1], b' ', "{line}");
            assert_ne!(line.as_bytes()[column], b' ', "{line}");
        }
    }
}
