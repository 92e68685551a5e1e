//! `farside sweep`, as a user runs it: nothing is done twice, nothing that is finished gets lost.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(60);

/// A folder of a test's own.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("farside-sweep-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder for a test");
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a file for a test");
        path.display().to_string()
    }

    /// Results in the cache.
    fn kept(&self) -> usize {
        let folders = std::fs::read_dir(self.0.join("cache")).into_iter().flatten().flatten();
        let results = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().count();
        folders
            .filter(|folder| folder.file_name() != "unfinished")
            .map(|folder| results(&folder.path()))
            .sum()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn sweep(folder: &Folder, grid: &str, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farside"));
    let cache = folder.0.join("cache");
    command.args(["sweep", grid, "--cache"]).arg(cache).args(more).stdin(Stdio::null());
    command
}

fn output(mut command: Command) -> Output {
    command.output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn fixtures() -> String {
    format!("{}/../workloads/fixtures", env!("CARGO_MANIFEST_DIR"))
}

/// Two traces under three schemes on machines with 4 and 8 GPUs.
fn grid() -> String {
    let fixtures = fixtures();
    format!(
        "[[grid]]\n\
         traces = [\"{fixtures}/mm.bin.zst\", \"{fixtures}/st.bin.zst\"]\n\
         schemes = [\"on-touch\", \"access-counter\", \"duplication\"]\n\
         set = {{ \"gpu.count\" = [4, 8] }}\n"
    )
}

const CELLS: usize = 2 * 3 * 2;

#[test]
fn a_cell_gives_what_farside_sim_gives() {
    let folder = Folder::new();
    let grid = folder.write("grid.toml", &grid());
    let table = folder.0.join("table.json");
    let done = output(sweep(&folder, &grid, &["--out", &table.display().to_string()]));
    assert!(done.status.success(), "{}", text(&done.stderr));
    let rows: Vec<Value> = serde_json::from_slice(&std::fs::read(&table).unwrap()).unwrap();
    assert_eq!(rows.len(), CELLS);
    assert_eq!(folder.kept(), CELLS);

    let trace = format!("{}/mm.bin.zst", fixtures());
    let alone = Command::new(env!("CARGO_BIN_EXE_farside"))
        .args(["sim", "--json", "--trace", &trace, "--set", "gpu.count=8"])
        .args(["--scheme", "duplication"])
        .output()
        .unwrap();
    let alone: Value = serde_json::from_slice(&alone.stdout).unwrap();
    let row = rows.iter().find(|row| {
        row["program"] == *trace && row["scheme"] == "duplication" && row["gpu.count"] == 8
    });
    assert_eq!(row.unwrap()["time"], alone["traces"][0]["outcomes"][0]["time"]);
}

#[test]
fn a_sweep_that_was_killed_goes_on_where_it_was() {
    let folder = Folder::new();
    let grid = folder.write("grid.toml", &grid());
    let one_job = || sweep(&folder, &grid, &["--jobs", "1"]);
    let mut killed = one_job().stdout(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while folder.kept() < 2 {
        assert!(begun.elapsed() < LIMIT, "no cell is finished");
        assert!(killed.try_wait().unwrap().is_none(), "it ended before it was killed");
        std::thread::sleep(Duration::from_millis(2));
    }
    let running = children(&killed);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let kept = folder.kept();
    assert!((2..CELLS).contains(&kept), "{kept} of {CELLS} cells were finished");
    // The cells that were running go with the sweep.
    let gone = |child: &u32| !is_running(*child);
    while !running.iter().all(gone) {
        assert!(begun.elapsed() < LIMIT, "the cell that ran goes on without the sweep");
        std::thread::sleep(Duration::from_millis(2));
    }

    let stamps = stamps(&folder);
    let done = output(one_job());
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(folder.kept(), CELLS);
    for (path, written) in stamps {
        let now = std::fs::metadata(&path).unwrap().modified().unwrap();
        assert_eq!(now, written, "{} was computed again", path.display());
    }
    assert_eq!(text(&done.stdout).lines().count(), CELLS + 1);

    // And the same from the beginning gives the same.
    let fresh = Folder::new();
    let again = output(sweep(&fresh, &grid, &[]));
    assert_eq!(text(&done.stdout), text(&again.stdout));
}

/// When each result was written.
fn stamps(folder: &Folder) -> Vec<(PathBuf, std::time::SystemTime)> {
    let folders = std::fs::read_dir(folder.0.join("cache")).unwrap().flatten();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.path()).unwrap().flatten());
    files.map(|file| (file.path(), file.metadata().unwrap().modified().unwrap())).collect()
}

/// The processes that a process has started and that still run.
fn children(process: &Child) -> Vec<u32> {
    let tasks = format!("/proc/{}/task", process.id());
    let of = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children"));
    let lists = std::fs::read_dir(tasks).unwrap().flatten().filter_map(|task| of(task).ok());
    lists
        .flat_map(|list| list.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}

/// Whether the process is there and no zombie.
fn is_running(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    !state.is_empty() && !state.starts_with('Z')
}

#[test]
fn a_cell_that_fails_is_told_of_and_the_others_are_done() {
    let folder = Folder::new();
    let fixtures = fixtures();
    let grid = folder.write(
        "grid.toml",
        &format!(
            "[[grid]]\ntraces = [\"{fixtures}/mm.bin.zst\"]\nschemes = [\"on-touch\"]\n\
             set = {{ \"gpu.count\" = [4, 2] }}"
        ),
    );
    let done = output(sweep(&folder, &grid, &[]));
    assert_eq!(done.status.code(), Some(1));
    assert!(
        text(&done.stderr).contains("mm.bin.zst, on-touch, gpu.count=2: "),
        "{}",
        text(&done.stderr)
    );
    let csv = text(&done.stdout);
    assert_eq!(csv.lines().count(), 3);
    assert!(csv.contains("the trace uses 4"), "{csv}");
    assert_eq!(folder.kept(), 1);
}

#[test]
fn a_grid_that_cannot_be_used_is_told_of_before_anything_runs() {
    let folder = Folder::new();
    for (text_of_grid, named) in [
        (
            "[[grid]]\nworkloads = [\"fir\"]\nschemes = [\"grit\"]\nset = { \"gpu.cuont\" = 2 }",
            "cuont",
        ),
        ("[[grid]]\nworkloads = [\"fir\"]\nscheme = [\"grit\"]", "scheme"),
        ("[[grid]]\nworkloads = [\"fir\"]\nschemes = [\"grit\", \"girt\"]", "girt"),
        ("[[grid]]\nworkloads = [\"fir\", \"fri\"]\nschemes = [\"grit\"]", "fri"),
        ("[[grid]]\ntraces = [\"nowhere.bin.zst\"]\nschemes = [\"on-touch\"]", "nowhere"),
    ] {
        let grid = folder.write("grid.toml", text_of_grid);
        let done = output(sweep(&folder, &grid, &[]));
        assert_eq!(done.status.code(), Some(2), "{named}");
        assert!(text(&done.stderr).contains(named), "{}", text(&done.stderr));
    }
    assert_eq!(folder.kept(), 0);
}
