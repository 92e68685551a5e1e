//! Programs of the administrators, which are run when a lease begins or has ended.
//!
//! A hook gets the lease as JSON on its standard input and in its environment, and has its time: when that
//! is over it is killed with its group. Nothing waits for a hook but the borrower of the lease that it is
//! asked about.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_lease::Text;
use farside_linux::lock::lock;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::config::Hook;

/// The last bytes of what a hook says that are kept.
const SAID_BYTES_MAX: usize = 4 << 10;
/// Lines of it that go into the log.
const SAID_LINES_MAX: usize = 16;
/// What a hook has started may hold its output for so long after it.
const OUTPUT_LIMIT: Duration = Duration::from_millis(100);

/// What a hook is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Occasion {
    /// `grant` or `end`.
    pub(super) event: &'static str,
    /// The borrower's host.
    pub(super) host: String,
    /// The user there, if it says who.
    pub(super) user: String,
    pub(super) device: String,
    pub(super) epoch: u64,
    /// Why the lease has ended; empty at a grant.
    pub(super) why: String,
    /// What became of the device: `clean` or `quarantined`; empty at a grant.
    pub(super) outcome: &'static str,
}

/// Why a hook did not do well.
#[derive(Debug, Error)]
pub(super) enum HookError {
    /// It cannot be run.
    #[error("the hook {path} cannot be run: {error}", path = .path.display())]
    NotRun {
        /// The program.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It says no, or fails.
    #[error("the hook {path} says: {said}", path = .path.display())]
    Failed {
        /// The program.
        path: PathBuf,
        /// The last line of its standard error, or how it ended.
        said: Text,
    },
    /// Its time was over.
    #[error("the hook {path} did not end within {limit:?}, and was killed", path = .path.display())]
    TooSlow {
        /// The program.
        path: PathBuf,
        /// What it had.
        limit: Duration,
    },
}

/// Runs a hook. It ends within its limit, and a moment.
pub(super) async fn run(hook: &Hook, limit: Duration, about: &Occasion) -> Result<(), HookError> {
    let path = || hook.run.clone();
    let limit = limit.min(hook.limit);
    let mut child =
        start(hook, about).map_err(|error| HookError::NotRun { path: path(), error })?;
    let said = Arc::new(Mutex::new(Said::default()));
    let readers = [
        child.stdout.take().map(|out| tokio::spawn(hear(out, None))),
        child.stderr.take().map(|err| tokio::spawn(hear(err, Some(Arc::clone(&said))))),
    ];
    let told = serde_json::to_vec(about).expect("an occasion is text");
    let ended = timeout(limit, async {
        if let Some(mut input) = child.stdin.take() {
            // Whether it wants to know is its own business.
            let _ = input.write_all(&told).await;
        }
        child.wait().await
    });
    let ended = ended.await;
    if ended.is_err() {
        kill(&mut child).await;
    }
    let _ = timeout(OUTPUT_LIMIT, async {
        for reader in readers.into_iter().flatten() {
            let _ = reader.await;
        }
    })
    .await;
    let said = lock(&said).lines();
    for line in &said {
        tracing::info!(hook = %hook.run.display(), event = about.event, "{line}");
    }
    match ended {
        Err(_) => Err(HookError::TooSlow { path: path(), limit }),
        Ok(Err(error)) => Err(HookError::NotRun { path: path(), error }),
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(HookError::Failed { path: path(), said: last(said, status) }),
    }
}

fn last(said: Vec<Text>, status: ExitStatus) -> Text {
    said.into_iter().next_back().unwrap_or_else(|| Text::from(format!("no ({status})")))
}

fn start(hook: &Hook, about: &Occasion) -> io::Result<Child> {
    Command::new(&hook.run)
        .env("LEASE_EVENT", about.event)
        .env("LEASE_HOST", &about.host)
        .env("LEASE_USER", &about.user)
        .env("LEASE_DEVICE", &about.device)
        .env("LEASE_EPOCH", about.epoch.to_string())
        .env("LEASE_WHY", &about.why)
        .env("LEASE_OUTCOME", about.outcome)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// Kills a hook and what it has started, as far as that has stayed in its group.
async fn kill(child: &mut Child) {
    // It is not waited for yet, so its number is its own.
    let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(pid) = pid {
        // It may have ended just now.
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let _ = child.wait().await;
}

/// The last of what a hook has said.
#[derive(Debug, Default)]
struct Said(Vec<u8>);

impl Said {
    fn more(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        let beyond = self.0.len().saturating_sub(SAID_BYTES_MAX);
        self.0.drain(..beyond);
    }

    fn lines(&self) -> Vec<Text> {
        let text = String::from_utf8_lossy(&self.0);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(SAID_LINES_MAX)..].iter().map(|&l| Text::from(l)).collect()
    }
}

/// Reads to the end, however much it is.
async fn hear(mut from: impl AsyncRead + Unpin, to: Option<Arc<Mutex<Said>>>) {
    let mut space = [0; 4 << 10];
    loop {
        match from.read(&mut space).await {
            Ok(0) | Err(_) => return,
            Ok(count) => {
                if let Some(said) = &to {
                    lock(said).more(&space[..count]);
                }
            }
        }
        // One that talks without a pause is not the only one to be heard.
        sleep(Duration::from_millis(1)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Instant;

    use super::*;
    use crate::config::On;

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn folder(name: &str) -> Folder {
        let name = format!("farside-hooks-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn hook(folder: &Folder, script: &str, mode: u32) -> Hook {
        let run = folder.0.join("hook");
        std::fs::write(&run, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&run, std::fs::Permissions::from_mode(mode)).unwrap();
        Hook { on: On::Grant, run, limit: Duration::from_secs(5) }
    }

    fn occasion() -> Occasion {
        Occasion {
            event: "end",
            host: "b".to_owned(),
            user: "alice".to_owned(),
            device: "card0".to_owned(),
            epoch: 7,
            why: "given back".to_owned(),
            outcome: "clean",
        }
    }

    const LIMIT: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn a_hook_is_told_of_the_lease_in_both_ways() {
        let folder = folder("told");
        let out = folder.0.join("out");
        let script = format!(
            "cat >{0}; echo $LEASE_EVENT $LEASE_HOST $LEASE_USER $LEASE_DEVICE $LEASE_EPOCH \
             $LEASE_WHY $LEASE_OUTCOME >>{0}",
            out.display()
        );
        run(&hook(&folder, &script, 0o755), LIMIT, &occasion()).await.unwrap();
        let told = std::fs::read_to_string(out).unwrap();
        let (json, environment) = told.split_once('}').unwrap();
        let json: serde_json::Value = serde_json::from_str(&format!("{json}}}")).unwrap();
        assert_eq!(json["epoch"], 7);
        assert_eq!(json["device"], "card0");
        assert_eq!(environment.trim(), "end b alice card0 7 given back clean");
    }

    #[tokio::test]
    async fn a_hook_that_says_no_is_quoted_with_its_last_line() {
        let folder = folder("no");
        let script = "echo first >&2; echo 'not on Sundays' >&2; echo out; exit 3";
        let why = run(&hook(&folder, script, 0o755), LIMIT, &occasion()).await.unwrap_err();
        assert!(why.to_string().ends_with("says: not on Sundays"), "{why}");
        let why = run(&hook(&folder, "exit 3", 0o755), LIMIT, &occasion()).await.unwrap_err();
        assert!(why.to_string().contains('3'), "{why}");
        // However much it says.
        let script = "yes x | head -c 300000 >&2; yes | head -c 300000; echo end >&2; exit 1";
        let why = run(&hook(&folder, script, 0o755), LIMIT, &occasion()).await.unwrap_err();
        assert!(why.to_string().ends_with("says: end"), "{why}");
    }

    #[tokio::test]
    async fn a_hook_that_hangs_is_killed_with_all_that_it_has_started() {
        let folder = folder("hang");
        let pid = folder.0.join("pid");
        let script = format!("sleep 1000 & echo $! >{}; wait", pid.display());
        let started = Instant::now();
        let limit = Duration::from_millis(500);
        let why = run(&hook(&folder, &script, 0o755), limit, &occasion()).await.unwrap_err();
        assert!(matches!(why, HookError::TooSlow { .. }), "{why}");
        assert!(started.elapsed() < LIMIT);
        let sleeper: i32 = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
        let is_alive = || {
            let stat = std::fs::read_to_string(format!("/proc/{sleeper}/stat"));
            stat.is_ok_and(|stat| !stat.contains(") Z"))
        };
        while is_alive() {
            assert!(started.elapsed() < LIMIT, "what it started is still there");
            sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn a_hook_whose_child_keeps_its_output_holds_nobody_up() {
        let folder = folder("output");
        let started = Instant::now();
        run(&hook(&folder, "sleep 3 & exit 0", 0o755), LIMIT, &occasion()).await.unwrap();
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    }

    #[tokio::test]
    async fn a_hook_that_is_not_there_or_no_program_is_named() {
        let folder = folder("none");
        let none = Hook { run: folder.0.join("none"), ..hook(&folder, "", 0o755) };
        let no_program = hook(&folder, "", 0o644);
        for hook in [none, no_program] {
            let why = run(&hook, LIMIT, &occasion()).await.unwrap_err();
            assert!(matches!(why, HookError::NotRun { .. }), "{why}");
            assert!(why.to_string().contains(&hook.run.display().to_string()), "{why}");
        }
    }
}
