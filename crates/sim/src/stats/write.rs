//! Statistics of runs as files: text for people, JSON and Parquet for programs.
//!
//! Every row says which run it belongs to (trace, scheme, configuration), so files of many runs
//! can be put on top of each other. The configuration is a hash; the machine that it stands for
//! is stored in the same file, as TOML.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Serialize;

use super::table::{Cells, write_parquet};
use super::{Outcome, Statistic, StatsError};

/// How statistics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Aligned columns: name, value, unit, meaning.
    Text,
    /// One object with a list of runs.
    Json,
    /// A row for each statistic of each run: `trace`, `scheme`, `configuration`, `name`, `unit`,
    /// `value`, `text`. The machines are beside the rows, under `farside.machine.CONFIGURATION`.
    Parquet,
}

impl Format {
    /// The format that a file's name ends with: `.txt`, `.json` or `.parquet`.
    ///
    /// # Errors
    /// [`StatsError::Format`].
    pub fn of(path: &Path) -> Result<Format, StatsError> {
        match path.extension().and_then(|end| end.to_str()) {
            Some("txt") => Ok(Format::Text),
            Some("json") => Ok(Format::Json),
            Some("parquet") => Ok(Format::Parquet),
            _ => Err(StatsError::format(path, ".txt, .json or .parquet")),
        }
    }
}

/// Writes the statistics of some runs, and the machines that they ran on.
///
/// # Errors
/// [`StatsError`]: the file cannot be written.
pub fn write(path: &Path, format: Format, outcomes: &[Outcome]) -> Result<(), StatsError> {
    let text = match format {
        Format::Text => outcomes.iter().map(Outcome::to_text).collect::<Vec<_>>().join("\n"),
        Format::Json => json(outcomes),
        Format::Parquet => return parquet(path, outcomes),
    };
    fs::write(path, text).map_err(|source| StatsError::write(path, source))
}

#[derive(Serialize)]
struct Run<'a> {
    trace: &'a str,
    scheme: &'a str,
    configuration: String,
    machine: String,
    statistics: Vec<Statistic>,
}

fn json(outcomes: &[Outcome]) -> String {
    let run = |outcome: &Outcome| {
        serde_json::json!(Run {
            trace: &outcome.trace,
            scheme: &outcome.placement,
            configuration: outcome.configuration(),
            machine: outcome.spec.to_toml(),
            statistics: outcome.statistics(),
        })
    };
    let runs: Vec<_> = outcomes.iter().map(run).collect();
    let version = env!("CARGO_PKG_VERSION");
    format!("{:#}\n", serde_json::json!({ "version": version, "runs": runs }))
}

fn parquet(path: &Path, outcomes: &[Outcome]) -> Result<(), StatsError> {
    let rows: Vec<Row> = outcomes.iter().flat_map(rows).collect();
    let columns = [
        ("trace", words(&rows, |row| &row.outcome.trace)),
        ("scheme", words(&rows, |row| &row.outcome.placement)),
        ("configuration", words(&rows, |row| &row.configuration)),
        ("name", words(&rows, |row| &row.statistic.name)),
        ("unit", words(&rows, |row| row.statistic.unit)),
        ("value", Cells::Numbers(rows.iter().map(|row| row.statistic.value).collect())),
        ("text", words(&rows, |row| row.statistic.text)),
    ];
    let machines: BTreeMap<String, String> = outcomes
        .iter()
        .map(|outcome| {
            let key = format!("farside.machine.{}", outcome.configuration());
            (key, outcome.spec.to_toml())
        })
        .collect();
    write_parquet(path, &columns, machines.into_iter().collect())
}

struct Row<'a> {
    outcome: &'a Outcome,
    configuration: String,
    statistic: Statistic,
}

fn rows(outcome: &Outcome) -> Vec<Row<'_>> {
    let configuration = outcome.configuration();
    let row = |statistic| Row { outcome, configuration: configuration.clone(), statistic };
    outcome.statistics().into_iter().map(row).collect()
}

fn words(rows: &[Row], read: for<'a> fn(&'a Row) -> &'a str) -> Cells {
    Cells::Words(rows.iter().map(|row| read(row).to_owned()).collect())
}

impl Outcome {
    /// The machine, every value of it, in 16 hexadecimal digits: the 64-bit FNV-1a hash of its
    /// TOML.
    #[must_use]
    pub fn configuration(&self) -> String {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let hash = self.spec.to_toml().bytes().fold(0xcbf2_9ce4_8422_2325, step);
        format!("{hash:016x}")
    }

    /// All statistics as aligned text, and the machine below them.
    #[must_use]
    pub fn to_text(&self) -> String {
        let list = self.statistics();
        let name = list.iter().map(|statistic| statistic.name.len()).max().unwrap_or(0);
        let value = list.iter().map(|statistic| statistic.value.to_string().len()).max();
        let value = value.unwrap_or(0);
        let mut text = format!(
            "# trace {}, scheme {}, configuration {}\n",
            self.trace,
            self.placement,
            self.configuration()
        );
        for statistic in &list {
            let Statistic { name: n, unit, text: what, value: v } = statistic;
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{n:<name$} {v:>value$} {unit:<6} {what}");
        }
        text += "# the machine\n";
        for line in self.spec.to_toml().lines() {
            let _ = writeln!(text, "# {line}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::outcome;
    use super::*;
    use crate::Spec;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    /// Two runs on two machines.
    fn runs() -> [Outcome; 2] {
        let mut other = outcome("duplication", 1_500_000);
        other.spec.link.nvlink_ns = 777;
        other.driver.migrations = u64::MAX;
        [outcome("on-touch", 3_000_000), other]
    }

    /// Where a test writes.
    fn file(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("farside-stats-{}-{name}", std::process::id()))
    }

    #[test]
    fn parquet_has_a_row_for_each_statistic_of_each_run_and_the_machines() {
        let (runs, path) = (runs(), file("rows.parquet"));
        write(&path, Format::of(&path).unwrap(), &runs).unwrap();
        let reader = SerializedFileReader::new(fs::File::open(&path).unwrap()).unwrap();
        let mut rows = reader.get_row_iter(None).unwrap();
        for run in &runs {
            for statistic in run.statistics() {
                let row = rows.next().unwrap().unwrap();
                let word = |column| row.get_string(column).unwrap().as_str();
                assert_eq!((word(0), word(1)), ("mm", run.placement.as_str()));
                assert_eq!((word(2), word(3)), (&*run.configuration(), &*statistic.name));
                assert_eq!((word(4), word(6)), (statistic.unit, statistic.text));
                assert_eq!(row.get_ulong(5).unwrap(), statistic.value, "{}", statistic.name);
            }
        }
        assert!(rows.next().is_none());
        let beside = reader.metadata().file_metadata().key_value_metadata().unwrap();
        for run in &runs {
            let key = format!("farside.machine.{}", run.configuration());
            let found = beside.iter().find(|entry| entry.key == key).unwrap();
            assert_eq!(Spec::from_toml(found.value.as_ref().unwrap()).unwrap(), run.spec);
        }
        assert_ne!(runs[0].configuration(), runs[1].configuration());
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn json_has_the_runs_with_their_machines() {
        let (runs, path) = (runs(), file("runs.json"));
        write(&path, Format::of(&path).unwrap(), &runs).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let second = &json["runs"][1];
        assert_eq!(second["scheme"], "duplication");
        assert_eq!(Spec::from_toml(second["machine"].as_str().unwrap()).unwrap(), runs[1].spec);
        let statistics = second["statistics"].as_array().unwrap();
        let migrations = statistics.iter().find(|s| s["name"] == "driver.migrations").unwrap();
        assert_eq!(migrations["value"], u64::MAX);
        assert_eq!(migrations["unit"], "pages");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn text_is_aligned_and_ends_with_the_machine() {
        let [run, _] = runs();
        let text = run.to_text();
        let rows: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(rows.len(), run.statistics().len());
        let end_of_value = |row: &str| {
            let value = row.split_whitespace().nth(1).unwrap().to_owned();
            row.find(&format!(" {value} ")).unwrap() + value.len()
        };
        assert!(rows.iter().all(|row| end_of_value(row) == end_of_value(rows[0])), "{text}");
        let machine = text.split_once("# the machine\n").unwrap().1.replace("# ", "");
        assert_eq!(Spec::from_toml(&machine).unwrap(), run.spec);
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let error = Format::of(Path::new("run.xml")).unwrap_err().to_string();
        assert!(error.contains("run.xml") && error.contains(".parquet"), "{error}");
        for name in ["no/such/folder/a.json", "no/such/folder/a.parquet"] {
            let path = Path::new(name);
            let error = write(path, Format::of(path).unwrap(), &runs()).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
