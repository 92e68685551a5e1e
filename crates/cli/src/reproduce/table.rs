//! What a reproduction says: rows of *paper value | ours | deviation*, figures, and notes.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Figure;
use crate::csv_text::csv_text;

/// A number of a paper beside ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What is measured, in words.
    pub what: String,
    /// Its unit. A row in `%` deviates in percentage points, any other in percent of the paper's.
    pub unit: String,
    /// What the paper prints; `None` where it prints no number.
    pub paper: Option<f64>,
    /// What Farside gives.
    pub ours: f64,
    /// Where the paper says it: `Figure 17, section VI-A`.
    pub source: String,
}

impl Row {
    /// How far ours is from the paper's: percentage points for rows in `%`, percent otherwise.
    pub fn deviation(&self) -> Option<f64> {
        let paper = self.paper?;
        if self.unit == "%" {
            return Some(self.ours - paper);
        }
        (paper != 0.0).then(|| 100.0 * (self.ours - paper) / paper)
    }

    /// The deviation with its unit; empty where the paper prints no number.
    pub fn deviation_text(&self) -> String {
        let unit = if self.unit == "%" { "points" } else { "%" };
        self.deviation().map_or(String::new(), |deviation| format!("{deviation:+.1} {unit}"))
    }
}

/// What draws the figures of a report, with its folder behind it.
pub const DRAW: &str = "python -m farside.plot";

/// A whole reproduction.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Its title.
    pub title: String,
    /// The numbers, in the order of the paper.
    pub rows: Vec<Row>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// What a reader must know about them: paragraphs of Markdown.
    pub notes: Vec<String>,
}

/// Why a report cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file or folder.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A figure.
    #[error("figure {name} cannot be drawn: {why}")]
    Draw {
        /// Which.
        name: String,
        /// Why.
        why: String,
    },
}

impl Report {
    /// Writes `report.md`, `report.csv` and `report.json` into `folder`, which is made if it is not there. Gives the
    /// Markdown file's path.
    ///
    /// # Errors
    /// [`ReportError`] names the file or the figure.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, ReportError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ReportError::Write { path, source }
        };
        std::fs::create_dir_all(folder).map_err(failed(folder))?;
        for figure in &self.figures {
            let draw = |why| ReportError::Draw { name: figure.name.clone(), why };
            figure.check().map_err(draw)?;
        }
        let texts = [("csv", self.to_csv()), ("json", self.to_json()), ("md", self.to_markdown())];
        for (kind, text) in texts {
            let path = folder.join(format!("report.{kind}"));
            std::fs::write(&path, text).map_err(failed(&path))?;
        }
        Ok(folder.join("report.md"))
    }

    /// The rows as a table, the figures, and the notes.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("# {}\n\n", self.title);
        for note in &self.notes {
            let _ = writeln!(text, "{note}\n");
        }
        text += "| what | paper | ours | deviation | source |\n|---|---:|---:|---:|---|\n";
        for row in &self.rows {
            let paper = row.paper.map_or("-".to_owned(), |paper| number(paper, &row.unit));
            let _ = writeln!(
                text,
                "| {} | {paper} | {} | {} | {} |",
                row.what,
                number(row.ours, &row.unit),
                row.deviation_text(),
                row.source
            );
        }
        if !self.figures.is_empty() {
            let _ = write!(
                text,
                "\nThe figures below are there once `{DRAW} FOLDER` has drawn them into this folder.\n"
            );
        }
        for figure in &self.figures {
            let _ = write!(text, "\n## {0}\n\n![{0}]({1}.png)\n", figure.title, figure.name);
            for line in figure.note.iter() {
                let _ = write!(text, "\n{line}\n");
            }
        }
        text
    }

    /// The rows as CSV with a header.
    pub fn to_csv(&self) -> String {
        let header = ["what", "unit", "paper", "ours", "deviation", "source"];
        let or_empty = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
        let row = |row: &Row| {
            vec![
                row.what.clone(),
                row.unit.clone(),
                or_empty(row.paper),
                row.ours.to_string(),
                or_empty(row.deviation()),
                row.source.clone(),
            ]
        };
        let header = header.map(String::from).to_vec();
        csv_text(std::iter::once(header).chain(self.rows.iter().map(row)))
    }

    /// Rows, figures with their data, and notes.
    pub fn to_json(&self) -> String {
        // Strings, numbers and lists: writing them has no way to fail.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

/// A number with its unit, with as many digits as a reader wants.
fn number(value: f64, unit: &str) -> String {
    let digits = match value.abs() {
        big if big >= 100.0 => 0,
        some if some >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$} {unit}");
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(unit: &str, paper: Option<f64>, ours: f64) -> Row {
        let (what, source) = ("GRIT over on-touch, mean".to_owned(), "Figure 17".to_owned());
        Row { what, unit: unit.to_owned(), paper, ours, source }
    }

    #[test]
    fn percentages_deviate_in_points_and_others_in_percent() {
        assert_eq!(row("%", Some(60.0), 55.0).deviation(), Some(-5.0));
        assert_eq!(row("ms", Some(2.0), 3.0).deviation(), Some(50.0));
        assert_eq!(row("ms", None, 3.0).deviation(), None);
        assert_eq!(row("x", Some(0.0), 3.0).deviation(), None);
    }

    #[test]
    fn a_report_has_the_same_rows_in_every_form() {
        let rows = vec![row("%", Some(60.0), 55.5), row("", None, 3.0)];
        let report = Report { title: "GRIT".to_owned(), rows, ..Report::default() };
        let markdown = report.to_markdown();
        assert!(markdown.contains("| 60.0 % | 55.5 % | -4.5 points |"), "{markdown}");
        assert!(markdown.contains("| - | 3.00 |  |"), "{markdown}");
        let csv = report.to_csv();
        assert!(csv.contains("\"GRIT over on-touch, mean\",%,60,55.5,-4.5,Figure 17\n"), "{csv}");
        assert!(report.to_json().contains("\"ours\": 55.5"));
    }
}
