//! Grids: cells from a TOML file, every combination of its lists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use farside_sim::Spec;
use serde::Deserialize;

use super::{Cell, Program, SweepError};
use crate::own_scheme;

/// The cells of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// In the order of the file, each once.
    pub cells: Vec<Cell>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    grid: Vec<Section>,
}

/// A `[[grid]]`: what is swept.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    #[serde(default)]
    workloads: Vec<String>,
    /// Sizes for each workload; none: that of the paper.
    #[serde(default)]
    bytes: Vec<Size>,
    #[serde(default)]
    traces: Vec<PathBuf>,
    schemes: Vec<String>,
    #[serde(default)]
    presets: Vec<String>,
    /// Keys of the machine, each with a value or a list of them.
    #[serde(default)]
    set: BTreeMap<String, Values>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Size {
    Bytes(u64),
    Text(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Values {
    Many(Vec<toml::Value>),
    One(toml::Value),
}

impl Grid {
    /// Reads a file. Traces and schemes' libraries are found from the folder that it is in.
    ///
    /// # Errors
    /// [`SweepError`] names the file and the key, or the cell that cannot run: its machine, its
    /// scheme or its workload cannot be, or its trace is not there.
    pub fn open(path: &Path) -> Result<Grid, SweepError> {
        let text = std::fs::read_to_string(path).map_err(SweepError::input(path))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let wrong = |why| SweepError::Grid { path: path.to_owned(), why };
        let cells = read(&text, folder).map_err(wrong)?;
        cells.iter().try_for_each(Cell::check)?;
        Ok(Grid { cells })
    }
}

fn read(text: &str, folder: &Path) -> Result<Vec<Cell>, String> {
    let document: Document = toml::from_str(text).map_err(|error| error.to_string())?;
    let (mut cells, mut seen) = (Vec::new(), BTreeSet::new());
    for (index, section) in document.grid.iter().enumerate() {
        let place = |why| format!("[[grid]] number {}: {why}", index + 1);
        for cell in section.cells(folder).map_err(place)? {
            if seen.insert(cell.clone()) {
                cells.push(cell);
            }
        }
    }
    Ok(cells)
}

impl Section {
    fn cells(&self, folder: &Path) -> Result<Vec<Cell>, String> {
        let programs = self.programs(folder)?;
        if programs.is_empty() || self.schemes.is_empty() {
            return Err("it needs `workloads` or `traces`, and `schemes`".to_owned());
        }
        let presets = match &self.presets[..] {
            [] => vec![Spec::PRESETS[0].to_owned()],
            presets => presets.to_vec(),
        };
        let machines = combinations(&self.set)?;
        let mut cells = Vec::new();
        for program in &programs {
            for preset in &presets {
                for set in &machines {
                    cells.extend(self.schemes.iter().map(|scheme| Cell {
                        program: program.clone(),
                        scheme: own_scheme::found_from(folder, scheme),
                        preset: preset.clone(),
                        set: set.clone(),
                    }));
                }
            }
        }
        Ok(cells)
    }

    fn programs(&self, folder: &Path) -> Result<Vec<Program>, String> {
        let mut sizes = Vec::new();
        for size in &self.bytes {
            sizes.push(Some(match size {
                Size::Bytes(bytes) => *bytes,
                Size::Text(text) => {
                    parse_size(text).map_err(|why| format!("bytes {text:?}: {why}"))?
                }
            }));
        }
        if sizes.is_empty() {
            sizes.push(None);
        }
        let sized = |name: &String| {
            let name = name.clone();
            sizes.iter().map(move |bytes| Program::Workload { name: name.clone(), bytes: *bytes })
        };
        let traces = self.traces.iter().map(|path| Program::Trace(folder.join(path)));
        Ok(self.workloads.iter().flat_map(sized).chain(traces).collect())
    }
}

/// As `--set` has it: words without quotes.
fn plain(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Every choice of one value per key.
fn combinations(set: &BTreeMap<String, Values>) -> Result<Vec<BTreeMap<String, String>>, String> {
    let mut all = vec![BTreeMap::new()];
    for (key, values) in set {
        let values = match values {
            Values::Many(values) => &values[..],
            Values::One(value) => std::slice::from_ref(value),
        };
        if values.is_empty() {
            return Err(format!("{key} has an empty list"));
        }
        let with = |chosen: &BTreeMap<String, String>| {
            let chosen = chosen.clone();
            values.iter().map(move |value| {
                let mut chosen = chosen.clone();
                chosen.insert(key.clone(), plain(value));
                chosen
            })
        };
        all = all.iter().flat_map(with).collect();
    }
    Ok(all)
}

/// Reads a size: `4096`, `64M`, `64MB` or `64 MiB`. K, M, G and T are powers of 1024.
///
/// # Errors
/// What was expected.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let expected = || "expected a size such as 64M or 1G".to_owned();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    // `64M` is what a user of computers means by it, not what the SI does.
    let unit = match unit.trim().to_ascii_uppercase().trim_end_matches('B') {
        "" => "B".to_owned(),
        unit => format!("{}iB", unit.trim_end_matches('I')),
    };
    let number: u64 = number.parse().map_err(|_| expected())?;
    let unit: ByteSize = format!("1 {unit}").parse().map_err(|_| expected())?;
    number
        .checked_mul(unit.as_u64())
        .ok_or_else(|| "that is more than 64 bits can count".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(text: &str) -> Vec<String> {
        let cells = read(text, Path::new("folder")).unwrap();
        cells.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn sizes_are_read() {
        let sizes = [("4096", 4096), ("64M", 64 << 20), ("1 GiB", 1 << 30), ("2k", 2048), ("0", 0)];
        for (text, bytes) in
            sizes.into_iter().chain([("7B", 7), ("1tb", 1 << 40), ("3 MB", 3 << 20)])
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in
            ["", "M", "-1", "1.5G", "64 moons", "99999999999999999999", "99999999999T", "1i", "1Z"]
        {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_cannot_run_is_refused_with_its_cell() {
        let folder = std::env::temp_dir().join(format!("farside-grid-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("grid.toml");
        for (cell, named) in [
            ("workloads = ['fir']\nschemes = ['on-touch', 'girt']", "girt"),
            ("workloads = ['fri']\nschemes = ['on-touch']", "fri"),
            ("workloads = ['fir']\nbytes = [1]\nschemes = ['on-touch']", "fir"),
            ("workloads = ['fir']\nschemes = ['grit']\nset = { 'gpu.cuont' = 2 }", "gpu.cuont"),
            ("traces = ['none.bin.zst']\nschemes = ['grit']", "none.bin.zst"),
        ] {
            std::fs::write(&path, format!("[[grid]]\n{cell}\n")).unwrap();
            let error = Grid::open(&path).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn every_combination_is_a_cell_once() {
        let text = r#"
            [[grid]]
            workloads = ["fir", "mm"]
            bytes = ["1M", 2097152]
            schemes = ["on-touch", "grit:threshold=2"]
            [grid.set]
            "gpu.count" = [2, 4]
            "driver.keep_clean_copies" = "true"

            [[grid]]
            workloads = ["fir"]
            bytes = ["1M"]
            schemes = ["on-touch"]
            set = { "gpu.count" = 2, "driver.keep_clean_copies" = true }
            [[grid]]
            traces = ["mm.bin.zst"]
            schemes = ["on-touch"]
        "#;
        let cells = cells(text);
        assert_eq!(cells.len(), 2 * 2 * 2 * 2 + 1);
        assert!(cells.contains(
            &"mm 2.0 MiB, grit:threshold=2, driver.keep_clean_copies=true, gpu.count=4".to_owned()
        ));
        assert_eq!(cells.last().unwrap(), "folder/mm.bin.zst, on-touch");
    }

    #[test]
    fn a_workload_without_a_size_has_that_of_the_paper() {
        let cells = cells("[[grid]]\nworkloads = ['fir']\nschemes = ['grit']");
        assert_eq!(cells, ["fir, grit"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            ("[[grid]]\nworkload = ['fir']\nschemes = ['grit']", "workload"),
            ("[[grid]]\nschemes = ['grit']", "number 1"),
            ("[[grid]]\nworkloads = ['fir']\nschemes = []", "schemes"),
            ("[[grid]]\nworkloads = ['fir']", "schemes"),
            ("[[grid]]\nworkloads = ['fir']\nschemes = ['a']\nbytes = ['x']", "\"x\""),
            (
                "[[grid]]\nworkloads = ['f']\nschemes = ['a']\nset = { 'gpu.count' = [] }",
                "gpu.count",
            ),
        ] {
            let error = read(text, Path::new("")).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
