//! Core dumps: one of a program with 64 GiB of shared address space holds none of it unless it is
//! asked for, and allocates nothing.

use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use farside::{Space, SpaceBuilder};
use harness::live::served::TempDir;
use harness::live::{role, within};

const LIMIT: Duration = Duration::from_secs(60);
/// What a dump may take on disk: much more than the program without its shared memory.
const DUMP_BYTES_MAX: u64 = 256 << 20;

/// Mappings of shared memory: for each, its name and whether dumps leave it out.
fn mappings() -> Vec<(String, bool)> {
    let text = std::fs::read_to_string("/proc/self/smaps").expect("/proc");
    let mut found: Vec<(String, bool)> = Vec::new();
    let mut current = None;
    for line in text.lines() {
        if let Some((_, name)) = line.split_once("/memfd:") {
            current = Some(name.trim_end_matches(" (deleted)").to_owned());
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            let left_out = flags.split_whitespace().any(|flag| flag == "dd");
            found.extend(current.take().map(|name| (name, left_out)));
        } else if line.contains('-') && !line.contains(':') {
            current = None;
        }
    }
    found
}

fn small() -> SpaceBuilder {
    Space::builder().address_space(64 << 20).card_memory(4 << 20)
}

#[test]
fn shared_memory_is_in_no_core_dump_unless_it_is_asked_for() {
    within(LIMIT, "what is dumped", || {
        let space = small().build().unwrap();
        let all = mappings();
        let count = |wanted| all.iter().filter(|(name, _)| name == wanted).count();
        assert_eq!(count("farside-arena"), 2, "the arena and its alias: {all:?}");
        assert!(count("farside-card-memory") >= 2, "two cards: {all:?}");
        assert!(all.iter().all(|(_, left_out)| *left_out), "{all:?}");
        drop(space);
        let _space = small().core_dumps(true).build().unwrap();
        let all = mappings();
        let dumped = |wanted| all.iter().filter(|(name, out)| name == wanted && !out).count();
        assert_eq!(dumped("farside-arena"), 1, "the alias would allocate all of it: {all:?}");
        assert_eq!(dumped("farside-card-memory"), 2, "{all:?}");
    });
}

/// Ends as a crash would, with 64 GiB of address space of which little is used.
fn crash() {
    let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the structure is initialised. A limit that may not be raised stays, and no core comes.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &limit) };
    let space = Space::builder().core_dumps(role().as_deref() == Some("asks")).build().unwrap();
    let mut data = space.alloc::<u64>(1 << 20).unwrap();
    data.fill(3);
    space.migrate(&data[..1 << 19], space.card(0).unwrap()).unwrap();
    std::process::abort();
}

/// Needs a machine that writes core files into the current folder; elsewhere it says so, and the test
/// above is all there is.
#[test]
fn a_crash_does_not_allocate_the_arena() {
    const TEST: &str = "a_crash_does_not_allocate_the_arena";
    if role().is_some() {
        return crash();
    }
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").expect("/proc");
    if pattern.starts_with('|') || pattern.contains('/') {
        eprintln!("NOT RUN: core files go to {}", pattern.trim());
        return;
    }
    within(LIMIT, TEST, || {
        for how in ["does not ask", "asks"] {
            let folder = TempDir::new();
            let program = std::env::current_exe().unwrap();
            let status = Command::new(program)
                .args([TEST, "--exact", "--nocapture", "--test-threads=1"])
                .env("FARSIDE_LIVE_ROLE", how)
                .current_dir(folder.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .unwrap();
            assert!(!status.success());
            let files = std::fs::read_dir(folder.path()).unwrap().flatten();
            let sizes: Vec<u64> =
                files.map(|file| file.metadata().unwrap().blocks() * 512).collect();
            if sizes.is_empty() {
                eprintln!("NOT RUN: no core file was written, though the pattern is {pattern}");
                return;
            }
            assert!(sizes.iter().all(|&bytes| bytes < DUMP_BYTES_MAX), "{how}: {sizes:?} bytes");
        }
    });
}
