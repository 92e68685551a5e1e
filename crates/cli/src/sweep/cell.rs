//! A cell: one run of the simulator, and what its result depends on.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use farside_sim::{Spec, SpecError};
use farside_workloads::{TraceError, catalog, trace_files};
use serde::{Deserialize, Serialize};

use super::SweepError;
use super::cache::{Key, hash_file};
use crate::own_scheme;

/// What runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Program {
    /// A generated workload.
    Workload {
        /// Its name.
        name: String,
        /// Bytes of data; `None`: the size in the paper.
        bytes: Option<u64>,
    },
    /// A recorded trace.
    Trace(PathBuf),
    /// One of those that come with the program.
    Bundled(String),
}

/// One run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cell {
    /// What runs.
    pub program: Program,
    /// Under which placement scheme.
    pub scheme: String,
    /// On which machine.
    pub preset: String,
    /// With which of its values changed.
    pub set: BTreeMap<String, String>,
}

impl Cell {
    /// A workload under a scheme on the machine of Table I of the GRIT paper.
    pub fn workload(name: &str, bytes: Option<u64>, scheme: &str) -> Cell {
        Cell {
            program: Program::Workload { name: name.to_owned(), bytes },
            scheme: scheme.to_owned(),
            preset: Spec::PRESETS[0].to_owned(),
            set: BTreeMap::new(),
        }
    }

    /// The same on the machine of this name.
    #[must_use]
    pub fn on(mut self, preset: &str) -> Cell {
        preset.clone_into(&mut self.preset);
        self
    }

    /// The same with a value of the machine changed.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Cell {
        self.set.insert(key.to_owned(), value.to_string());
        self
    }

    /// The machine with every value spelled out.
    ///
    /// # Errors
    /// [`SweepError::Machine`] names the cell and the key.
    pub fn machine(&self) -> Result<Spec, SweepError> {
        let pairs: Vec<_> = self.set.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let spec = Spec::preset(&self.preset).and_then(|spec| spec.with_overrides(&pairs));
        let told = |source: SpecError| SweepError::Machine { cell: self.to_string(), source };
        spec.map_err(told)
    }

    /// Whether it can run: before the first of many does.
    ///
    /// # Errors
    /// [`SweepError`]: a machine, a scheme or a workload that cannot be, a trace that is not there.
    pub fn check(&self) -> Result<(), SweepError> {
        let wrong = |why: String| SweepError::Cell { cell: self.to_string(), why };
        let machine = self.machine()?;
        own_scheme::check_outside(&self.scheme, &machine).map_err(wrong)?;
        match &self.program {
            Program::Workload { name, bytes } => {
                catalog::by_name(name, *bytes).map_err(|error| wrong(error.to_string()))?;
            }
            Program::Trace(path) => {
                for file in self.files(path)? {
                    std::fs::File::open(&file).map_err(SweepError::input(&file))?;
                }
            }
            Program::Bundled(_) => {}
        }
        Ok(())
    }

    /// The arguments of `farside` that carry it out and print its result as JSON.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> = ["sim", "--json", "--quiet"].map(String::from).into();
        let mut add = |name: &str, value: String| {
            arguments.push(name.to_owned());
            arguments.push(value);
        };
        match &self.program {
            Program::Workload { name, bytes } => {
                add("--workload", name.clone());
                if let Some(bytes) = bytes {
                    add("--bytes", bytes.to_string());
                }
            }
            Program::Trace(path) => add("--trace", path.display().to_string()),
            Program::Bundled(name) => add("--bundled", name.clone()),
        }
        add("--scheme", self.scheme.clone());
        add("--preset", self.preset.clone());
        for (key, value) in &self.set {
            add("--set", format!("{key}={value}"));
        }
        arguments
    }

    /// The files that its trace is read from.
    pub(super) fn files(&self, path: &Path) -> Result<Vec<PathBuf>, SweepError> {
        trace_files(path).map_err(|error| match error {
            TraceError::Read { path, source } => SweepError::Input { path, source },
            error => SweepError::Cell { cell: self.to_string(), why: error.to_string() },
        })
    }

    /// The scheme, if it is one of a library.
    pub(super) fn library(&self) -> Option<&str> {
        own_scheme::library(&self.scheme).map(|_| self.scheme.as_str())
    }

    /// What the result depends on: the binary (its hash), the machine, the scheme with its library, and
    /// the workload or what is in the trace.
    ///
    /// # Errors
    /// A machine that cannot be, a trace that cannot be read.
    pub fn key(&self, binary: &str) -> Result<Key, SweepError> {
        let program = match &self.program {
            Program::Workload { .. } | Program::Bundled(_) => serde_json::json!(self.program),
            Program::Trace(path) => {
                let hashes = self.files(path)?.into_iter().map(|file| hash_file(&file));
                serde_json::json!({ "trace": hashes.collect::<Result<Vec<_>, _>>()? })
            }
        };
        let mut parts = serde_json::json!({
            "binary": binary,
            "machine": self.machine()?.to_toml(),
            "scheme": self.scheme,
            "program": program,
        });
        if let Some((library, _)) = own_scheme::library(&self.scheme) {
            parts["library"] = hash_file(&library)?.into();
        }
        Ok(Key::new(parts))
    }
}

/// Short enough for a line: `fir 8 MiB, grit, gpu.count=2`.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.program {
            Program::Workload { name, bytes: Some(bytes) } => {
                write!(f, "{name} {:.1} MiB", *bytes as f64 / f64::from(1 << 20))?;
            }
            Program::Workload { name, bytes: None } => write!(f, "{name}")?,
            Program::Trace(path) => write!(f, "{}", path.display())?,
            Program::Bundled(name) => write!(f, "{name}")?,
        }
        write!(f, ", {}", self.scheme)?;
        if self.preset != Spec::PRESETS[0] {
            write!(f, ", {}", self.preset)?;
        }
        self.set.iter().try_for_each(|(key, value)| write!(f, ", {key}={value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(cell: &Cell) -> String {
        cell.key("b").unwrap().hash().to_owned()
    }

    #[test]
    fn the_key_is_that_of_what_a_result_depends_on() {
        let cell = Cell::workload("fir", Some(1 << 20), "grit");
        let same = cell.clone().with("gpu.count", 4);
        assert_eq!(key(&cell), key(&same), "4 GPUs are the preset's");
        let others = [
            Cell::workload("fir", Some(2 << 20), "grit"),
            Cell::workload("mm", Some(1 << 20), "grit"),
            Cell::workload("fir", None, "grit"),
            Cell::workload("fir", Some(1 << 20), "on-touch"),
            cell.clone().with("gpu.count", 8),
        ];
        for other in &others {
            assert_ne!(key(&cell), key(other), "{other}");
        }
        assert_ne!(cell.key("a").unwrap().hash(), cell.key("b").unwrap().hash());
    }

    #[test]
    fn the_key_of_a_trace_is_that_of_its_content() {
        let folder = std::env::temp_dir().join(format!("farside-cell-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        let cell = |name: &str| Cell {
            program: Program::Trace(folder.join(name)),
            ..Cell::workload("", None, "grit")
        };
        for name in ["a", "b"] {
            write(&format!("{name}.bin.zst"), "records");
            write(&format!("{name}.json"), "{}");
        }
        let (a, b) = (key(&cell("a.bin.zst")), key(&cell("b.bin.zst")));
        assert_eq!(a, b, "the name does not matter");
        write("b.json", "{ }");
        assert_ne!(a, key(&cell("b.bin.zst")));
        write("kernel-1.traceg", "a");
        write("list.g", "kernel-1.traceg\n");
        let before = key(&cell("list.g"));
        write("kernel-1.traceg", "b");
        assert_ne!(before, key(&cell("list.g")), "the kernels are not in the list itself");
        let error = cell("c.bin.zst").key("b").unwrap_err().to_string();
        assert!(error.contains("c.bin.zst"), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_machine_that_cannot_be_is_named_with_its_cell() {
        let cell = Cell::workload("fir", None, "grit").with("gpu.count", 99);
        let error = cell.machine().unwrap_err().to_string();
        assert!(error.contains("fir, grit, gpu.count=99: gpu.count is 99"), "{error}");
    }
}
