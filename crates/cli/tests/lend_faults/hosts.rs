//! Hosts in their namespaces: a daemon each, commands, and whatever these start.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use farside_lend::steps::Step;
use farside_lend::steps::held::{self, HELD, HOLD};
use farside_linux::shared::SharedMemory;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{self, HOME, Held};

/// How long a command may take that waits for nobody.
const COMMAND_LIMIT: Duration = Duration::from_secs(20);

pub(crate) struct Host {
    pub(crate) home: String,
    namespace: String,
    /// Where its processes are held.
    steps: SharedMemory,
}

impl Host {
    pub(crate) fn new(folder: &Path, namespace: String, name: &str) -> Host {
        let home = folder.join(name);
        std::fs::create_dir_all(&home).expect("a folder");
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(home.join(held::FILE))
            .expect("a file");
        file.set_len(held::BYTES).expect("a page");
        let steps = held::page(&home).expect("a page");
        Host { home: home.display().to_string(), namespace, steps }
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace, env!("CARGO_BIN_EXE_farside")]).args(args);
        command.env_remove("FARSIDE_CARDS").env(HOME, &self.home).stdin(Stdio::null());
        command
    }

    /// What a command says, within a limit.
    pub(crate) fn output(&self, args: &[&str], limit: Duration) -> Result<Output, String> {
        let mut command = self.command(args);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        if await_end(&mut child, limit).is_none() {
            let _ = child.kill();
            let output = child.wait_with_output().map_err(|error| error.to_string())?;
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{args:?} takes longer than {limit:?}: {said}"));
        }
        child.wait_with_output().map_err(|error| error.to_string())
    }

    pub(crate) fn run(&self, args: &[&str]) -> Result<String, String> {
        self.run_within(args, COMMAND_LIMIT)
    }

    /// What a command prints that has to do well, within a limit.
    pub(crate) fn run_within(&self, args: &[&str], limit: Duration) -> Result<String, String> {
        let output = self.output(args, limit)?;
        if !output.status.success() {
            return Err(format!("{args:?}: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    pub(crate) fn json(&self, args: &[&str]) -> Result<Value, String> {
        let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.run(&args)?).map_err(|error| format!("{args:?}: {error}"))
    }

    /// Borrows a device, whoever has it now.
    pub(crate) fn borrow(&self, device: &str) -> Result<Held, String> {
        let mut command = self.command(&["borrow", device, "--wait", "20"]);
        command.stderr(Stdio::null());
        Held::by(command)
    }

    /// What one of its devices is doing.
    pub(crate) fn device(&self, name: &str) -> Result<Value, String> {
        let who = self.json(&["who"])?;
        let devices = who["devices"].as_array().cloned().unwrap_or_default();
        let found = devices.into_iter().find(|device| device["name"] == name);
        found.ok_or_else(|| format!("{name} is not lent: {who}"))
    }

    /// Its processes whose command line has this word; all, if it is empty.
    pub(crate) fn processes(&self, word: &str) -> Vec<Pid> {
        common::processes(&self.home, word)
    }

    /// Whoever comes to a step waits there.
    pub(crate) fn hold(&self, step: Step) {
        self.steps.store(step as u64 * 4, HOLD);
    }

    pub(crate) fn is_held(&self, step: Step) -> bool {
        self.steps.load(step as u64 * 4) == Some(HELD)
    }

    /// Nobody waits anywhere.
    pub(crate) fn let_go(&self) {
        for step in Step::ALL {
            self.steps.store(*step as u64 * 4, 0);
        }
    }

    /// The files that are there for leases only.
    pub(crate) fn lease_files(&self) -> Vec<PathBuf> {
        let run = Path::new(&self.home).join("run");
        let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
        let sockets = entries(&run).filter(|entry| {
            let name = entry.file_name();
            name.to_str().is_some_and(|name| name.starts_with("end-"))
        });
        sockets.chain(entries(&run.join("leases"))).map(|entry| entry.path()).collect()
    }

    pub(crate) fn log_end(&self) -> String {
        let log = std::fs::read_to_string(Path::new(&self.home).join("run/lend.log"));
        let log = log.unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.let_go();
        signal(&self.processes(""), Signal::KILL);
    }
}

/// Waits for a process until a limit.
pub(crate) fn await_end(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().expect("a child of this process") {
            return Some(status);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn signal(pids: &[Pid], signal: Signal) {
    for &pid in pids {
        // One that has ended meanwhile is no matter.
        let _ = kill_process(pid, signal);
    }
}

/// A card, and the process that serves it.
pub(crate) struct Card {
    folder: PathBuf,
    child: Child,
}

fn serve(folder: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_farside"))
        .args(["card", "serve", &folder.display().to_string(), "--memory", "16M"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the card's server starts")
}

impl Card {
    pub(crate) fn serve(folder: PathBuf) -> Card {
        let card = Card { child: serve(&folder), folder };
        card.await_it();
        card
    }

    pub(crate) fn folder(&self) -> String {
        self.folder.display().to_string()
    }

    fn await_it(&self) {
        let end = Instant::now() + COMMAND_LIMIT;
        while std::os::unix::net::UnixStream::connect(self.folder.join("status.sock")).is_err() {
            assert!(Instant::now() < end, "the card is not served");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// It, and the processes that it started.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        let mut found = vec![Pid::from_child(&self.child)];
        let mut at = 0;
        while let Some(&parent) = found.get(at) {
            let parent = parent.as_raw_nonzero();
            let children =
                std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
            let children = children.unwrap_or_default();
            found.extend(
                children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)),
            );
            at += 1;
        }
        found
    }

    /// Serves it again, after it was killed.
    pub(crate) fn restart(&mut self) {
        self.child.wait().expect("a child of this process");
        self.child = serve(&self.folder);
        self.await_it();
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        let all = self.processes();
        signal(&all, Signal::CONT);
        signal(&all, Signal::KILL);
        let _ = self.child.wait();
    }
}
