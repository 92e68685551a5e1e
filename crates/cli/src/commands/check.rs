//! `farside card check`: whether a card keeps to the specification.

use clap::Args;
use farside::CardPlace;
use farside_conformance::live::{CardUnderTest, Finding};
use farside_conformance::{Check as Case, Verdict};
use farside_live::LiveError;
use serde::Serialize;

use super::Failure;
use super::output::{print, print_json};
use super::text::paragraph;

/// Check that a card keeps to the card interface, docs/card-interface.md
///
/// Takes a function of the card that nobody uses, and tries everything that the specification says
/// of registers, rings, commands, faults, copies and jobs, by register and ring alone: the card may
/// be a process or a device, and whoever has built it. Programs that use other functions are not
/// disturbed. Exits with 0 if nothing is wrong, with 1 if something is.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Check {
    /// The folder of a served card, the socket of a function (messages: in front of either shares no
    /// memory with the card), or a device: vfio:0000:00:04.0
    #[arg(value_name = "PLACE")]
    place: CardPlace,

    /// Print one JSON object instead of a line per check
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  farside card check /run/farside/card0
  farside card check messages:/run/farside/card0
  farside card check vfio:0000:00:04.0";

/// How a check ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum End {
    Passed,
    NotRun,
    Failed,
}

/// A check, and what came of it.
#[derive(PartialEq, Eq, Debug, Serialize)]
struct Line {
    name: String,
    end: End,
    /// What is wrong, or why it was not run.
    why: Option<String>,
}

#[derive(Serialize)]
struct Json {
    conforms: bool,
    checks: Vec<Line>,
}

impl Check {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let mut card = CardUnderTest::open(&self.place).map_err(farside::Error::from)?;
        let mut lines: Vec<Line> = Vec::new();
        let mut written = Ok(());
        let ended = card.run(|case, finding| {
            let line = Line::of(case, finding);
            if !self.json && written.is_ok() {
                written = print(&line.to_string());
            }
            lines.push(line);
        });
        written?;
        let conforms = ended.is_ok() && lines.iter().all(|line| line.end != End::Failed);
        if self.json {
            print_json(&Json { conforms, checks: lines })?;
        } else {
            print(&sum(&lines))?;
        }
        let card = farside::CardId(0);
        ended.map_err(|error| farside::Error::from(LiveError::Card { card, error }))?;
        if conforms { Ok(()) } else { Err(Failure::Told) }
    }
}

impl Line {
    fn of(case: &Case, finding: &Finding) -> Line {
        let (end, why) = match finding {
            Ok(Verdict::Passed) => (End::Passed, None),
            Ok(Verdict::NotRun(lack)) => (End::NotRun, Some(lack.to_string())),
            Err(why) => (End::Failed, Some(why.clone())),
        };
        Line { name: case.name.replace('_', " "), end, why }
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let end = match self.end {
            End::Passed => "ok",
            End::NotRun => "not run",
            End::Failed => "FAILED",
        };
        let why = self.why.as_ref().map_or(String::new(), |why| format!(": {why}"));
        let end = format!("{end:<8}");
        f.write_str(&paragraph(&end, &format!("{}{why}", self.name)))
    }
}

fn sum(lines: &[Line]) -> String {
    let count = |end| lines.iter().filter(|line| line.end == end).count();
    let (passed, failed) = (count(End::Passed), count(End::Failed));
    let not_run = count(End::NotRun);
    format!("\n{passed} checks passed, {failed} failed, {not_run} not run\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_its_line() {
        let case = Case { name: "copies_move_pages", run: |_| Ok(Verdict::Passed) };
        let findings: [Finding; 3] =
            [Ok(Verdict::Passed), Ok(Verdict::NotRun("no DMA".into())), Err("page 3".into())];
        let lines: Vec<Line> = findings.iter().map(|finding| Line::of(&case, finding)).collect();
        let text: String = lines.iter().map(Line::to_string).collect();
        let wanted = "ok      copies move pages\nnot run copies move pages: no DMA\n\
                      FAILED  copies move pages: page 3\n";
        assert_eq!(text, wanted);
        assert_eq!(sum(&lines), "\n1 checks passed, 1 failed, 1 not run\n");
    }
}
