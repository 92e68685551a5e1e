//! The same cells as tasks of a Ray cluster: a Python script submits them, and tells of each that
//! is over by a line. Results come into the cache here; the cluster's machines need nothing but
//! Ray, for they get the binary and the traces with the tasks.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::Sender;

use farside_sim::Outcome;
use serde::{Deserialize, Serialize};

use super::child::{Answer, why};
use super::pool::{Done, Options, Task, keep, outcome};
use super::{Program, SweepError};
use crate::own_scheme;

/// Reads a [`Work`] from standard input, prints a [`Line`] per cell.
const SCRIPT: &str = include_str!("ray_cells.py");

/// What the script is told.
#[derive(Serialize)]
struct Work<'a> {
    address: Option<&'a str>,
    /// The command, and its hash: a machine of the cluster that has it does not get it again.
    binary: (&'a Path, &'a str),
    cells: Vec<Job>,
}

#[derive(Serialize)]
struct Job {
    index: usize,
    arguments: Vec<String>,
    /// Files that the cell reads, by the name that its arguments have for them there.
    files: BTreeMap<String, String>,
}

/// What the script tells of a cell.
#[derive(Deserialize)]
struct Line {
    index: usize,
    code: i32,
    stdout: String,
    stderr: String,
}

impl Line {
    fn outcome(self) -> Result<Outcome, String> {
        match self.code {
            0 => outcome(&Answer { printed: self.stdout.into_bytes() }),
            code => Err(why(&self.stderr, &format!("it ended with exit code {code}"))),
        }
    }
}

pub(super) fn run(
    tasks: &[Task],
    options: &Options,
    address: Option<&str>,
    python: &Path,
    binary: &str,
    sender: Sender<Done>,
) -> Result<(), SweepError> {
    if tasks.is_empty() {
        return Ok(());
    }
    let cells = tasks.iter().enumerate().map(|(index, task)| job(index, task));
    let cells = cells.collect::<Result<_, _>>()?;
    let work = Work { address, binary: (&options.binary, binary), cells };
    let mut script = Command::new(python)
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| SweepError::Ray(format!("cannot run {}: {error}", python.display())))?;
    if let Some(mut input) = script.stdin.take() {
        // Strings, numbers and maps with plain keys: writing them has no way to fail.
        let work = serde_json::to_vec(&work).unwrap_or_default();
        // A script that does not listen has ended, and its exit code is looked at below.
        let _ = input.write_all(&work);
    }
    let output = script.stdout.take();
    let result = lines(tasks, options, output.into_iter().flat_map(lines_of), &sender);
    if result.is_err() {
        let _ = script.kill();
    }
    let status = script.wait().map_err(|error| SweepError::Ray(error.to_string()))?;
    let told = result?;
    if told < tasks.len() {
        let why = format!(
            "{} of {} cells came back, then the script ended ({status}); its messages are above",
            told,
            tasks.len()
        );
        return Err(SweepError::Ray(why));
    }
    Ok(())
}

fn lines_of(output: std::process::ChildStdout) -> impl Iterator<Item = String> {
    BufReader::new(output).lines().map_while(Result::ok)
}

/// Takes the answers as they come; gives how many there were.
fn lines(
    tasks: &[Task],
    options: &Options,
    lines: impl Iterator<Item = String>,
    sender: &Sender<Done>,
) -> Result<usize, SweepError> {
    let mut told = 0;
    for line in lines {
        // Ray prints lines of its own.
        let Ok(line) = serde_json::from_str::<Line>(&line) else { continue };
        let Some(task) = tasks.get(line.index) else { continue };
        let (index, outcome) = (line.index, line.outcome());
        keep(task, &outcome, options)?;
        told += 1;
        if sender.send((index, outcome)).is_err() {
            break;
        }
    }
    Ok(told)
}

fn job(index: usize, task: &Task) -> Result<Job, SweepError> {
    let mut cell = task.cell.clone();
    let mut files = BTreeMap::new();
    if let Program::Trace(path) = &mut cell.program {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let stem = name.split('.').next().unwrap_or_default().to_owned();
        let mut there_is = PathBuf::new();
        for file in task.cell.files(path)? {
            if file.extension().is_some_and(|ending| ending == "traceg") && file != *path {
                let why = "a list of kernels does not go to a cluster; convert it first: farside replay convert";
                return Err(SweepError::Cell { cell: task.cell.to_string(), why: why.to_owned() });
            }
            // The name of the key: traces of one name and different content do not meet.
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let ending = name.strip_prefix(&stem).unwrap_or_default();
            let there = format!("{}{ending}", task.key.hash());
            if file == *path {
                there_is = there.clone().into();
            }
            files.insert(there, file.display().to_string());
        }
        *path = there_is;
    }
    if let Some((library, behind)) = own_scheme::library(&cell.scheme) {
        let there = format!("{}.so", task.key.hash());
        files.insert(there.clone(), library.display().to_string());
        cell.scheme = format!("./{there}{behind}");
    }
    Ok(Job { index, arguments: cell.arguments(), files })
}
