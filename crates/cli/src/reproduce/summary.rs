//! A report in a few lines: how many of the paper's numbers come out, place by place.

use super::{Report, Row};

/// How a reproduction came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Tables, figures and sections of the paper, in its order. Beyond so many as a screen has
    /// lines for, those with the fewest numbers are one place.
    pub places: Vec<Place>,
    /// All of them together.
    pub all: Place,
    /// Rows of which the paper prints no number.
    pub without: usize,
}

/// The numbers that the paper prints at one place.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// `Table I`, `Figure 17`.
    pub name: String,
    /// How many there are.
    pub numbers: usize,
    /// Those that ours is near to, by 10 % or 10 points.
    pub near: usize,
    /// How far ours are from them on average, in percent or points.
    pub mean: f64,
    /// The row that is farthest.
    pub farthest: Row,
}

/// Percent, or percentage points, within which a number comes out.
pub(super) const NEAR: f64 = 10.0;

/// Places that fit a screen of 24 lines with what is around them.
const PLACES_MAX: usize = 15;

impl Summary {
    /// Of this report; `None` if it has no number of the paper.
    pub fn of(report: &Report) -> Option<Summary> {
        let compared: Vec<&Row> =
            report.rows.iter().filter(|row| row.deviation().is_some()).collect();
        let mut groups: Vec<(String, Vec<&Row>)> = Vec::new();
        for row in &compared {
            let name = place_of(&row.source);
            match groups.iter_mut().find(|(known, _)| known == name) {
                Some((_, rows)) => rows.push(row),
                None => groups.push((name.to_owned(), vec![row])),
            }
        }
        merge_small(&mut groups);
        let places = groups.iter().filter_map(|(name, rows)| Place::new(name, rows)).collect();
        let without = report.rows.len() - compared.len();
        Some(Summary { places, all: Place::new("all", &compared)?, without })
    }
}

/// Puts the groups with the fewest numbers into one at the end until there are few enough.
fn merge_small(groups: &mut Vec<(String, Vec<&Row>)>) {
    let mut others: Vec<&Row> = Vec::new();
    let mut merged = 0;
    while groups.len() + usize::from(merged > 0) > PLACES_MAX {
        let sizes = groups.iter().enumerate().rev();
        let Some((least, _)) = sizes.min_by_key(|(_, (_, rows))| rows.len()) else { break };
        others.extend(groups.remove(least).1);
        merged += 1;
    }
    if merged > 0 {
        groups.push((format!("{merged} others"), others));
    }
}

impl Place {
    fn new(name: &str, rows: &[&Row]) -> Option<Place> {
        let off = |row: &Row| row.deviation().unwrap_or(0.0).abs();
        let farthest = rows.iter().max_by(|a, b| off(a).total_cmp(&off(b)))?;
        Some(Place {
            name: name.to_owned(),
            numbers: rows.len(),
            near: rows.iter().filter(|row| off(row) <= NEAR).count(),
            mean: rows.iter().map(|row| off(row)).sum::<f64>() / rows.len() as f64,
            farthest: (**farthest).clone(),
        })
    }
}

/// The place of the paper that a source begins with.
fn place_of(source: &str) -> &str {
    let end = source.find([',', ';', ':', '(']).unwrap_or(source.len());
    source[..end].trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(source: &str, paper: Option<f64>, ours: f64) -> Row {
        Row { what: "w".into(), unit: "%".into(), paper, ours, source: source.into() }
    }

    #[test]
    fn numbers_are_counted_by_place() {
        let rows = vec![
            row("Figure 17, section VI-A", Some(60.0), 65.0),
            row("Figure 17 (geometric mean of ours: 1 %)", Some(49.0), 3.0),
            row("Table I", Some(1.0), 1.0),
            row("ours alone", None, 1.0),
        ];
        let summary = Summary::of(&Report { rows, ..Report::default() }).unwrap();
        let counts = |place: &Place| (place.name.clone(), place.numbers, place.near);
        let places: Vec<_> = summary.places.iter().map(counts).collect();
        assert_eq!(places, [("Figure 17".to_owned(), 2, 1), ("Table I".to_owned(), 1, 1)]);
        assert_eq!((summary.all.numbers, summary.without), (3, 1));
        assert_eq!(summary.places[0].farthest.ours, 3.0);
        assert_eq!(summary.places[0].mean, 25.5);
        assert!(Summary::of(&Report::default()).is_none());
    }

    #[test]
    fn there_are_never_more_places_than_a_screen_has_lines() {
        let rows = (0..40).map(|n| row(&format!("Figure {n}"), Some(1.0), 1.0)).collect();
        let summary = Summary::of(&Report { rows, ..Report::default() }).unwrap();
        assert_eq!(summary.places.len(), PLACES_MAX);
        assert_eq!(summary.places.iter().map(|place| place.numbers).sum::<usize>(), 40);
    }
}
