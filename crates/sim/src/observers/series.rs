//! Statistics over time: how much each counter grew in each interval.

use std::fs;
use std::path::Path;

use farside_svm::Stats;
use farside_types::{Span, Time};
use serde_json::json;

use crate::observe::{Observation, Observer, Sample};
use crate::stats::{
    Cells, Statistic, StatsError, driver_statistics, gpu_statistics, write_parquet,
};
use crate::{GpuCounts, Spec};

/// Most intervals kept. When more come, every two become one, and intervals are twice as long from
/// then on.
pub const INTERVALS_MAX: usize = 1 << 14;

/// What was counted in one interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Its end. It begins where the one before ended, the first at 0.
    pub end: Time,
    /// By how much each statistic grew, in the order of [`Series::names`].
    pub grown: Vec<u64>,
}

/// Counts statistics per interval of simulated time.
#[derive(Clone, Debug)]
pub struct Series {
    every: Span,
    gpus: usize,
    /// Name and unit of each column, and where it is in the list of all.
    columns: Vec<(String, &'static str, usize)>,
    last: Vec<u64>,
    intervals: Vec<Interval>,
    /// Samples that make an interval; and those of the one that is being made.
    samples_each: u32,
    samples: u32,
}

impl Series {
    /// What most people want to see over time.
    pub const USUAL: &'static [&'static str] = &[
        "total.faults.reported",
        "total.local",
        "total.remote",
        "driver.migrations",
        "driver.duplications",
        "driver.collapses",
        "driver.evictions",
    ];

    /// Statistics of these names (docs/statistics.md: those of GPUs, `total` and `driver`) on this
    /// machine, per interval of this length.
    ///
    /// # Errors
    /// [`StatsError::NoSuchName`].
    pub fn new(spec: &Spec, every: Span, names: &[&str]) -> Result<Series, StatsError> {
        let gpus = spec.gpus();
        let list = statistics(&vec![GpuCounts::default(); gpus], &Stats::default(), gpus);
        let column = |name: &&str| {
            let unknown = || StatsError::NoSuchName { name: (*name).to_owned() };
            let index = list.iter().position(|known| known.name == **name).ok_or_else(unknown)?;
            Ok(((*name).to_owned(), list[index].unit, index))
        };
        let columns = names.iter().map(column).collect::<Result<Vec<_>, StatsError>>()?;
        Ok(Series {
            every,
            gpus,
            last: vec![0; columns.len()],
            columns,
            intervals: Vec::new(),
            samples_each: 1,
            samples: 0,
        })
    }

    /// The names of the statistics.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|(name, ..)| name.as_str())
    }

    /// What was counted, interval by interval.
    #[must_use]
    pub fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    /// As CSV: `start` and `end` in picoseconds, then a column for each statistic.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let names = self.names().map(|name| format!(",{name}")).collect::<String>();
        let mut text = format!("start,end{names}\n");
        for (start, interval) in self.starts().zip(&self.intervals) {
            let grown: String = interval.grown.iter().map(|n| format!(",{n}")).collect();
            text += &format!("{start},{}{grown}\n", interval.end.0);
        }
        text
    }

    /// As JSON: `columns` with name and unit, and `rows` of `start`, `end` and the values.
    #[must_use]
    pub fn to_json(&self) -> String {
        let columns: Vec<_> = self
            .columns
            .iter()
            .map(|(name, unit, _)| json!({ "name": name, "unit": unit }))
            .collect();
        let rows: Vec<_> = self
            .starts()
            .zip(&self.intervals)
            .map(|(start, row)| json!({ "start": start, "end": row.end.0, "grown": row.grown }))
            .collect();
        format!("{:#}\n", json!({ "columns": columns, "rows": rows }))
    }

    /// Writes it as the file's name says: `.csv`, `.json` or `.parquet`.
    ///
    /// # Errors
    /// [`StatsError`]: another name, or the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), StatsError> {
        let text = match path.extension().and_then(|end| end.to_str()) {
            Some("csv") => self.to_csv(),
            Some("json") => self.to_json(),
            Some("parquet") => return self.write_parquet(path),
            _ => return Err(StatsError::format(path, ".csv, .json or .parquet")),
        };
        fs::write(path, text).map_err(|source| StatsError::write(path, source))
    }

    fn write_parquet(&self, path: &Path) -> Result<(), StatsError> {
        let ends = self.intervals.iter().map(|row| row.end.0).collect();
        let mut columns =
            vec![("start", Cells::Numbers(self.starts().collect())), ("end", Cells::Numbers(ends))];
        for (index, (name, ..)) in self.columns.iter().enumerate() {
            let grown = self.intervals.iter().map(|row| row.grown[index]).collect();
            columns.push((name.as_str(), Cells::Numbers(grown)));
        }
        write_parquet(path, &columns, Vec::new())
    }

    fn starts(&self) -> impl Iterator<Item = u64> {
        let ends = self.intervals.iter().map(|row| row.end.0);
        std::iter::once(0).chain(ends).take(self.intervals.len())
    }

    /// Makes one interval of every two.
    fn halve(&mut self) {
        let pairs = self.intervals.chunks(2).map(|pair| {
            let mut sum = pair[0].clone();
            for later in &pair[1..] {
                sum.end = later.end;
                sum.grown.iter_mut().zip(&later.grown).for_each(|(all, more)| *all += more);
            }
            sum
        });
        self.intervals = pairs.collect();
        self.samples_each *= 2;
    }
}

impl Observer for Series {
    fn observe(&mut self, _: Time, _: &Observation) {}

    fn sample_every(&self) -> Option<Span> {
        Some(self.every)
    }

    fn sample(&mut self, now: Time, counted: &Sample<'_>) {
        let list = statistics(counted.gpus, counted.driver, self.gpus);
        let now_at: Vec<u64> = self
            .columns
            .iter()
            .map(|&(.., index)| list.get(index).map_or(0, |s| s.value))
            .collect();
        let grown = now_at.iter().zip(&self.last).map(|(now, last)| now.saturating_sub(*last));
        let grown: Vec<u64> = grown.collect();
        self.last = now_at;
        match self.intervals.last_mut().filter(|_| self.samples > 0) {
            Some(open) => {
                open.end = now;
                open.grown.iter_mut().zip(&grown).for_each(|(all, more)| *all += more);
            }
            None => self.intervals.push(Interval { end: now, grown }),
        }
        self.samples = (self.samples + 1) % self.samples_each;
        if self.samples == 0 && self.intervals.len() == INTERVALS_MAX {
            self.halve();
        }
    }
}

/// All statistics that a sample has.
fn statistics(gpus: &[GpuCounts], driver: &Stats, count: usize) -> Vec<Statistic> {
    let mut list = Vec::new();
    let total = gpus.iter().fold(GpuCounts::default(), |sum, gpu| sum.plus(gpu));
    gpu_statistics("total.", &total, &mut list);
    driver_statistics(driver, count, &mut list);
    for (gpu, counts) in gpus.iter().enumerate() {
        gpu_statistics(&format!("gpu.{gpu}."), counts, &mut list);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    const NAMES: [&str; 3] = ["total.remote", "gpu.1.remote", "driver.migrations"];

    /// A series of samples: remote accesses of two GPUs, and migrations.
    fn told(samples: &[(u64, [u64; 3])]) -> Series {
        let spec = Spec::default().with_overrides(&[("gpu.count", "2")]).unwrap();
        let mut series = Series::new(&spec, Span(100), &NAMES).unwrap();
        for &(now, [first, second, migrations]) in samples {
            let gpus = [first, second].map(|remote| GpuCounts { remote, ..GpuCounts::default() });
            let driver = Stats { migrations, ..Stats::default() };
            series.sample(Time(now), &Sample { gpus: &gpus, driver: &driver });
        }
        series
    }

    #[test]
    fn an_interval_has_what_came_since_the_one_before() {
        let series = told(&[(100, [1, 2, 0]), (200, [1, 2, 0]), (250, [4, 3, 9])]);
        assert_eq!(series.sample_every(), Some(Span(100)));
        let expected = "\
start,end,total.remote,gpu.1.remote,driver.migrations
0,100,3,2,0
100,200,0,0,0
200,250,4,1,9
";
        assert_eq!(series.to_csv(), expected);
        let json: serde_json::Value = serde_json::from_str(&series.to_json()).unwrap();
        assert_eq!(json["columns"][2], json!({ "name": "driver.migrations", "unit": "pages" }));
        assert_eq!(json["rows"][2], json!({ "start": 200, "end": 250, "grown": [4, 1, 9] }));
    }

    #[test]
    fn parquet_has_the_same_rows() {
        let series = told(&[(100, [1, 2, 0]), (250, [4, 3, 9])]);
        let name = format!("farside-series-{}.parquet", std::process::id());
        let path = std::env::temp_dir().join(name);
        series.write(&path).unwrap();
        let reader = SerializedFileReader::new(fs::File::open(&path).unwrap()).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        let row = |row: usize| [0, 1, 2, 3, 4].map(|c| rows[row].get_ulong(c).unwrap());
        assert_eq!((row(0), row(1)), ([0, 100, 3, 2, 0], [100, 250, 4, 1, 9]));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn too_many_intervals_become_longer_ones_and_nothing_is_lost() {
        let count = 3 * INTERVALS_MAX as u64 + 1;
        let samples: Vec<_> = (1..=count).map(|i| (100 * i, [i, 0, i * i])).collect();
        let series = told(&samples);
        let rows = series.intervals();
        assert!(rows.len() <= INTERVALS_MAX, "{}", rows.len());
        assert_eq!(rows.iter().map(|row| row.grown[0]).sum::<u64>(), count);
        assert_eq!(rows.iter().map(|row| row.grown[2]).sum::<u64>(), count * count);
        assert!(rows.windows(2).all(|pair| pair[0].end < pair[1].end));
        assert_eq!(rows[0].end, Time(400));
        assert_eq!(rows.last().unwrap().end, Time(100 * count));
    }

    #[test]
    fn an_unknown_name_is_refused() {
        for name in ["total.remotes", "gpu.4.remote", ""] {
            let error = Series::new(&Spec::default(), Span(1), &[name]).unwrap_err().to_string();
            assert!(error.contains(&format!("{name:?}")), "{error}");
        }
        assert!(Series::new(&Spec::default(), Span(1), Series::USUAL).is_ok());
        let error = told(&[]).write(Path::new("x.txt")).unwrap_err().to_string();
        assert!(error.contains("x.txt") && error.contains(".csv"), "{error}");
    }
}
