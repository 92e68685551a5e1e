//! The results of a sweep as one table: a row per cell, a column per statistic.

use std::collections::BTreeSet;
use std::path::Path;

use farside_sim::stats::{Cells, write_parquet};
use serde_json::{Map, Value, json};

use super::{Finished, Program, SweepError};
use crate::csv_text::csv_text;

/// Rows of words and numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Names of the columns that say which cell it is: words.
    words: Vec<String>,
    /// Names of the columns that say what came out: numbers.
    numbers: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    words: Vec<String>,
    /// None in a cell that failed.
    numbers: Vec<Option<u64>>,
}

/// Columns that are there in every sweep, before the swept keys; `error` is after them.
const COORDINATES: [&str; 4] = ["program", "bytes", "scheme", "preset"];

/// Columns that have names or sentences, never numbers.
const NAMES: [&str; 4] = ["program", "scheme", "preset", "error"];

impl Table {
    /// Of these cells, in their order. Statistics of single GPUs and launches are left out, for
    /// their number depends on the cell; the cache has them.
    pub fn new(cells: &[Finished]) -> Table {
        let keys: BTreeSet<&String> = cells.iter().flat_map(|done| done.cell.set.keys()).collect();
        let mut words: Vec<String> = COORDINATES.map(String::from).into();
        words.extend(keys.iter().map(|key| (*key).clone()));
        words.push("error".to_owned());
        let numbers: Vec<String> = cells
            .iter()
            .find_map(|done| done.outcome.as_ref().ok())
            .map(|outcome| outcome.statistics().into_iter().map(|s| s.name).collect())
            .unwrap_or_default();
        let numbers: Vec<String> = numbers.into_iter().filter(|name| is_common(name)).collect();
        let rows = cells.iter().map(|done| row(done, &keys, &numbers)).collect();
        Table { words, numbers, rows }
    }

    /// Writes `.json`, `.csv` or `.parquet`, after the end of the name.
    ///
    /// # Errors
    /// [`SweepError`]: another end, or a file that cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), SweepError> {
        let text = match path.extension().and_then(|end| end.to_str()) {
            Some("json") => self.to_json(),
            Some("csv") => self.to_csv(),
            Some("parquet") => return Ok(write_parquet(path, &self.columns(), Vec::new())?),
            _ => return Err(SweepError::Format { path: path.to_owned() }),
        };
        std::fs::write(path, text).map_err(SweepError::file(path))
    }

    /// A list of objects; a cell that failed has no results. Swept values are numbers if they are.
    pub fn to_json(&self) -> String {
        let object = |row: &Row| {
            let words = self.words.iter().zip(&row.words);
            let mut object: Map<String, Value> = words
                .filter(|(_, word)| !word.is_empty())
                .map(|(name, word)| (name.clone(), self.value(name, word)))
                .collect();
            let numbers = self.numbers.iter().zip(&row.numbers);
            object.extend(
                numbers.filter_map(|(name, number)| Some((name.clone(), json!((*number)?)))),
            );
            Value::Object(object)
        };
        let rows: Vec<Value> = self.rows.iter().map(object).collect();
        // Words and numbers: writing them has no way to fail.
        serde_json::to_string_pretty(&rows).unwrap_or_default() + "\n"
    }

    /// A coordinate as JSON: a number, `true` or `false` where the machine has one. Names of
    /// programs, schemes and presets are words even if they are digits.
    fn value(&self, name: &str, word: &str) -> Value {
        if NAMES.contains(&name) {
            return word.into();
        }
        let value = serde_json::from_str::<Value>(word).ok();
        value.filter(|value| value.is_number() || value.is_boolean()).unwrap_or_else(|| word.into())
    }

    /// CSV with a header; a cell that failed has empty numbers.
    pub fn to_csv(&self) -> String {
        let header = self.words.iter().chain(&self.numbers).cloned().collect();
        let row = |row: &Row| {
            let number = |number: &Option<u64>| number.map_or(String::new(), |n| n.to_string());
            row.words.iter().cloned().chain(row.numbers.iter().map(number)).collect()
        };
        csv_text(std::iter::once(header).chain(self.rows.iter().map(row)))
    }

    /// Parquet has no value where a cell has none: no size, no such key, or it failed.
    fn columns(&self) -> Vec<(&str, Cells)> {
        let words = self.words.iter().enumerate().map(|(index, name)| {
            let cells = || self.rows.iter().map(|row| row.words[index].as_str());
            let numbers = cells().map(|word| match word {
                "" => Ok(None),
                word => word.parse().map(Some),
            });
            let numbers: Result<Vec<Option<u64>>, _> = numbers.collect();
            let all = !NAMES.contains(&name.as_str()) && cells().any(|word| !word.is_empty());
            match numbers {
                Ok(numbers) if all => (name.as_str(), Cells::Known(numbers)),
                _ => (name.as_str(), Cells::Words(cells().map(str::to_owned).collect())),
            }
        });
        let numbers = self.numbers.iter().enumerate().map(|(index, name)| {
            let cells = self.rows.iter().map(|row| row.numbers[index]).collect();
            (name.as_str(), Cells::Known(cells))
        });
        words.chain(numbers).collect()
    }
}

fn is_common(name: &str) -> bool {
    !["gpu.", "launch.", "driver.moves."].iter().any(|start| name.starts_with(start))
}

fn row(done: &Finished, keys: &BTreeSet<&String>, names: &[String]) -> Row {
    let cell = &done.cell;
    let (program, bytes) = match &cell.program {
        Program::Workload { name, bytes } => {
            (name.clone(), bytes.map_or(String::new(), |bytes| bytes.to_string()))
        }
        Program::Trace(path) => (path.display().to_string(), String::new()),
        Program::Bundled(name) => (name.clone(), String::new()),
    };
    let mut words = vec![program, bytes, cell.scheme.clone(), cell.preset.clone()];
    words.extend(keys.iter().map(|key| cell.set.get(*key).cloned().unwrap_or_default()));
    words.push(done.outcome.as_ref().err().cloned().unwrap_or_default());
    let statistics = done.outcome.as_ref().map(|outcome| outcome.statistics());
    let value = |name: &String| {
        let statistics = statistics.as_ref().ok()?;
        statistics.iter().find(|statistic| statistic.name == *name).map(|s| s.value)
    };
    Row { words, numbers: names.iter().map(value).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::Cell;
    use crate::sweep::cache::tests::outcome;

    fn table() -> Table {
        let cell = |scheme: &str| Cell::workload("fir", Some(4096), scheme);
        Table::new(&[
            Finished {
                cell: cell("a,b").with("gpu.count", 2),
                outcome: Ok(outcome()),
                cached: true,
            },
            Finished { cell: cell("b"), outcome: Err("no such scheme".to_owned()), cached: false },
        ])
    }

    #[test]
    fn every_cell_is_a_row_also_one_that_failed() {
        let csv = table().to_csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("program,bytes,scheme,preset,gpu.count,error,time,cycles,"));
        let time = outcome().time.0;
        assert!(
            lines[1].starts_with(&format!("fir,4096,\"a,b\",grit-table-1,2,,{time},")),
            "{csv}"
        );
        assert!(lines[2].starts_with("fir,4096,b,grit-table-1,,no such scheme,,"), "{csv}");
        assert!(lines.iter().all(|line| !line.contains("gpu.0")));
        let json: Vec<Map<String, Value>> = serde_json::from_str(&table().to_json()).unwrap();
        assert_eq!(json[0]["time"], time);
        assert_eq!(json[1]["error"], "no such scheme");
        assert!(!json[1].contains_key("time"));
        assert_eq!((&json[0]["bytes"], &json[0]["gpu.count"]), (&json!(4096), &json!(2)));
        assert!(!json[1].contains_key("gpu.count"));
    }

    #[test]
    fn numbers_are_numbers_in_parquet_too() {
        let table = table();
        let columns = table.columns();
        let column = |name: &str| &columns.iter().find(|(known, _)| *known == name).unwrap().1;
        assert!(matches!(column("bytes"), Cells::Known(n) if n[..] == [Some(4096), Some(4096)]));
        assert!(matches!(column("gpu.count"), Cells::Known(n) if n[..] == [Some(2), None]));
        assert!(matches!(column("scheme"), Cells::Words(_)));
        assert!(matches!(column("time"), Cells::Known(n) if n[0].is_some() && n[1].is_none()));
    }

    #[test]
    fn a_table_is_written_as_its_name_says() {
        let folder = std::env::temp_dir().join(format!("farside-table-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (name, start) in [("t.csv", "program"), ("t.json", "["), ("t.parquet", "PAR1")] {
            table().write(&folder.join(name)).unwrap();
            let bytes = std::fs::read(folder.join(name)).unwrap();
            assert!(bytes.starts_with(start.as_bytes()), "{name}");
        }
        let error = table().write(&folder.join("t.xlsx")).unwrap_err().to_string();
        assert!(error.contains("t.xlsx"), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
