//! `farside doctor`: what this machine has.

use clap::Args;
use farside_live::doctor::{Check, Report, Status};
use farside_live::features::Features;
use serde::Serialize;

use super::Failure;
use super::output::{print, print_json};
use super::text::{paragraph, row, table};

/// Check what this machine has for Farside, and say what to do about what is missing
///
/// Everything is tried, nothing is assumed, and nothing is changed. Exits with 0 if programs can
/// run here (also where something is degraded), with 1 if not.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Json<'a> {
    usable: bool,
    worst: Status,
    checks: &'a [Check],
}

impl Doctor {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let report = Report::new(&Features::probe());
        let usable = report.usable().is_ok();
        if self.json {
            print_json(&Json { usable, worst: report.worst(), checks: &report.checks })?;
        } else {
            print(&text(&report))?;
        }
        if usable { Ok(()) } else { Err(Failure::Told) }
    }
}

/// A row per check, what to do about it below.
fn text(report: &Report) -> String {
    let mut rows = vec![row(["check", "status", "meaning"])];
    for check in &report.checks {
        rows.push(vec![check.name.to_owned(), check.status.to_string(), check.meaning.clone()]);
        if !check.remedy.is_empty() {
            rows.push(vec![String::new(), String::new(), format!("-> {}", check.remedy)]);
        }
    }
    let sum = match report.usable() {
        Err(error) => format!("Farside cannot run here: see \"{}\".", error.name),
        Ok(()) if report.worst() == Status::Ok => "Everything Farside uses is there.".to_owned(),
        Ok(()) => "Farside runs here, with less than it could have.".to_owned(),
    };
    table("lll", rows) + &paragraph("", &sum)
}
