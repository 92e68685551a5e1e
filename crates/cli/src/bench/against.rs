//! `farside bench --against`: this program and another one, usually an older build, measure the same rows by
//! turns, and each row is compared pair by pair.
//!
//! A single run of either says little on a machine whose speed drifts. In a pair the two runs follow each other,
//! and which goes first changes from pair to pair, so a drift falls on both. What is left to chance is asked of
//! a sign test: if the programs were alike, each would be the slower one in half of the pairs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::{BenchError, Target, median};

/// Who is measured in one pair: this program and the other.
pub(crate) type Pair = [Vec<Reading>; 2];

/// What a run said of a row.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Reading {
    name: String,
    reached: Option<f64>,
    target: Target,
    unit: String,
    #[serde(default)]
    counts: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Run {
    rows: Vec<Reading>,
}

/// One row of both programs.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Compared {
    /// What is measured.
    pub(crate) name: String,
    /// How many times as much as the other program's this program's cost is, pair by pair, in ascending order: more than 1 is
    /// worse.
    pub(crate) factors: Vec<f64>,
    /// The median of these.
    pub(crate) factor: f64,
    /// In how many pairs this program was worse.
    pub(crate) worse_in: usize,
    /// What both together say.
    pub(crate) verdict: Verdict,
    /// Counts that are more, or fewer, in every run than in any of the other program.
    pub(crate) counts: Vec<CountChange>,
}

/// Whether the difference of a row can be told from chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// It cannot.
    Alike,
    /// This program is better.
    Better,
    /// This program is worse.
    Worse,
}

/// A count that has changed; medians.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CountChange {
    /// Its name.
    pub(crate) name: String,
    /// This program's.
    pub(crate) ours: u64,
    /// The other's.
    pub(crate) theirs: u64,
}

/// All rows of both programs.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Comparison {
    /// Those that both have, with the same unit.
    pub(crate) rows: Vec<Compared>,
    /// Those that only one of them has, or has in this unit.
    pub(crate) not_compared: Vec<String>,
}

/// Chance that is taken for none: of rows that are alike, so many are called better or worse.
pub(crate) const CHANCE: f64 = 0.05;

/// Runs groups of `bench` once with each of the programs, the second one first if `turned`.
///
/// # Errors
/// [`BenchError`] if one cannot be started, fails, or prints something else.
pub(crate) fn pair(
    programs: [&Path; 2],
    args: &[String],
    turned: bool,
) -> Result<Pair, BenchError> {
    let mut pair = Pair::default();
    let order = if turned { [1, 0] } else { [0, 1] };
    for who in order {
        pair[who] = run(programs[who], args)?;
    }
    Ok(pair)
}

fn run(program: &Path, args: &[String]) -> Result<Vec<Reading>, BenchError> {
    let failed = |why: String| BenchError::Failed(format!("{}: {why}", program.display()));
    let output = Command::new(program).arg("bench").args(args).arg("--json").output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("`bench {}`: {}", args.join(" "), said.trim())));
    }
    let run = serde_json::from_slice::<Run>(&output.stdout);
    run.map(|run| run.rows).map_err(|error| failed(format!("what `bench --json` printed: {error}")))
}

/// Compares the rows of pairs.
pub(crate) fn compare(pairs: &[Pair]) -> Comparison {
    let mut comparison = Comparison::default();
    let Some(first) = pairs.first() else { return comparison };
    for row in &first[0] {
        match compare_row(row, pairs) {
            Some(compared) => comparison.rows.push(compared),
            None => comparison.not_compared.push(row.name.clone()),
        }
    }
    let known = |name: &String| first[0].iter().any(|row| row.name == *name);
    let theirs = first[1].iter().map(|row| row.name.clone());
    comparison.not_compared.extend(theirs.filter(|name| !known(name)));
    comparison
}

/// A row by its first reading; nothing if the other program, or a run, does not have it.
fn compare_row(row: &Reading, pairs: &[Pair]) -> Option<Compared> {
    let of = |readings: &[Reading]| -> Option<Reading> {
        let same = |other: &&Reading| other.name == row.name && other.unit == row.unit;
        readings.iter().find(same).cloned()
    };
    let mut readings = Vec::new();
    for [ours, theirs] in pairs {
        readings.push([of(ours)?, of(theirs)?]);
    }
    let factor = |[ours, theirs]: &[Reading; 2]| {
        let (ours, theirs) = (ours.reached?, theirs.reached?);
        Some(match row.target {
            // Two counts of nothing, too.
            _ if ours == theirs => 1.0,
            Target::AtMost(_) => ours / theirs,
            Target::AtLeast(_) => theirs / ours,
        })
    };
    let mut factors: Vec<f64> = readings.iter().map(factor).collect::<Option<_>>()?;
    factors.sort_by(f64::total_cmp);
    let worse_in = factors.iter().filter(|&&factor| factor > 1.0).count();
    let better_in = factors.iter().filter(|&&factor| factor < 1.0).count();
    Some(Compared {
        name: row.name.clone(),
        factor: median(factors.clone()),
        verdict: verdict(worse_in, better_in),
        worse_in,
        factors,
        counts: counts(&readings),
    })
}

/// A sign test, each side by itself.
fn verdict(worse_in: usize, better_in: usize) -> Verdict {
    let told = worse_in + better_in;
    if chance_of(worse_in, told) <= CHANCE {
        Verdict::Worse
    } else if chance_of(better_in, told) <= CHANCE {
        Verdict::Better
    } else {
        Verdict::Alike
    }
}

/// The chance that of `all` coins at least `heads` show heads.
fn chance_of(heads: usize, all: usize) -> f64 {
    let mut ways = 1.0;
    let mut chance = 0.0;
    for more in 0..=all {
        if more >= heads {
            chance += ways / 2f64.powi(all as i32);
        }
        ways *= (all - more) as f64 / (more + 1) as f64;
    }
    chance
}

fn counts(readings: &[[Reading; 2]]) -> Vec<CountChange> {
    let Some([first, _]) = readings.first() else { return Vec::new() };
    let change = |name: &String| {
        let of = |who: usize| -> Option<Vec<u64>> {
            let mut all: Vec<u64> = readings
                .iter()
                .map(|pair| pair[who].counts.get(name).copied())
                .collect::<Option<_>>()?;
            all.sort_unstable();
            Some(all)
        };
        let (ours, theirs) = (of(0)?, of(1)?);
        let apart = ours[0] > theirs[theirs.len() - 1] || theirs[0] > ours[ours.len() - 1];
        let middle = |all: &[u64]| all[all.len() / 2];
        apart.then(|| CountChange {
            name: name.clone(),
            ours: middle(&ours),
            theirs: middle(&theirs),
        })
    };
    first.counts.keys().filter_map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(name: &str, reached: f64, target: Target, faults: u64) -> Reading {
        let (name, unit) = (name.to_owned(), "x limit".to_owned());
        let counts = [("faults".to_owned(), faults)].into();
        Reading { name, reached: Some(reached), target, unit, counts }
    }

    fn pairs(ours: &[f64], theirs: &[f64], target: Target) -> Vec<Pair> {
        let rows = |&reached: &f64| vec![reading("row", reached, target, 7)];
        ours.iter().map(rows).zip(theirs.iter().map(rows)).map(|(a, b)| [a, b]).collect()
    }

    #[test]
    fn worse_is_more_where_little_is_promised_and_less_where_much_is() {
        let slow = compare(&pairs(&[2.2; 11], &[2.0; 11], Target::AtMost(3.0)));
        assert_eq!((slow.rows[0].verdict, slow.rows[0].worse_in), (Verdict::Worse, 11));
        assert!((slow.rows[0].factor - 1.1).abs() < 1e-9, "{slow:?}");
        let fast = compare(&pairs(&[2.2; 11], &[2.0; 11], Target::AtLeast(1.0)));
        assert_eq!((fast.rows[0].verdict, fast.rows[0].worse_in), (Verdict::Better, 0));
    }

    #[test]
    fn nine_pairs_of_eleven_are_no_chance_and_eight_are() {
        let worse_in = |count: usize| {
            let ours: Vec<f64> = (0..11).map(|pair| if pair < count { 1.1 } else { 0.9 }).collect();
            compare(&pairs(&ours, &[1.0; 11], Target::AtMost(2.0))).rows[0].verdict
        };
        assert_eq!(
            (worse_in(9), worse_in(8), worse_in(2)),
            (Verdict::Worse, Verdict::Alike, Verdict::Better)
        );
        assert!((chance_of(9, 11) - 67.0 / 2048.0).abs() < 1e-12, "55 + 11 + 1 of 2^11");
    }

    #[test]
    fn programs_that_are_alike_to_the_last_digit_are_alike() {
        let same = compare(&pairs(&[1.5; 11], &[1.5; 11], Target::AtMost(2.0)));
        assert_eq!((same.rows[0].verdict, same.rows[0].factor), (Verdict::Alike, 1.0));
        let none = compare(&pairs(&[0.0; 11], &[0.0; 11], Target::AtMost(0.0)));
        assert_eq!((none.rows[0].verdict, none.rows[0].factor), (Verdict::Alike, 1.0));
    }

    #[test]
    fn a_count_has_changed_only_if_every_run_says_so() {
        let mut pairs = pairs(&[1.0; 3], &[1.0; 3], Target::AtMost(2.0));
        assert!(compare(&pairs).rows[0].counts.is_empty());
        for pair in &mut pairs {
            pair[0][0].counts.insert("faults".into(), 9);
        }
        let change = CountChange { name: "faults".into(), ours: 9, theirs: 7 };
        assert_eq!(compare(&pairs).rows[0].counts, [change]);
        pairs[1][1][0].counts.insert("faults".into(), 9);
        assert!(compare(&pairs).rows[0].counts.is_empty());
    }

    #[test]
    fn rows_of_one_program_or_of_another_unit_or_without_a_number_are_named() {
        let mut pairs = pairs(&[1.0], &[1.0], Target::AtMost(2.0));
        let [ours, theirs] = &mut pairs[0];
        ours.push(reading("new", 1.0, Target::AtMost(2.0), 0));
        theirs.push(reading("old", 1.0, Target::AtMost(2.0), 0));
        for rows in [&mut *ours, &mut *theirs] {
            rows.push(reading("unit", 1.0, Target::AtMost(2.0), 0));
            rows.push(reading("none", 1.0, Target::AtMost(2.0), 0));
        }
        theirs[2].unit = "µs".into();
        ours[3].reached = None;
        let comparison = compare(&pairs);
        assert_eq!(comparison.rows.len(), 1);
        assert_eq!(comparison.not_compared, ["new", "unit", "none", "old"]);
    }
}
