//! `farside doctor`: what this machine has.

use clap::Args;
use farside_live::doctor::{Check, Report, Status};
use farside_live::features::Features;
use serde::Serialize;

use super::Failure;
use super::output::{print, print_json};

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
            print(&format!("{report}\n"))?;
        }
        if usable { Ok(()) } else { Err(Failure::Told) }
    }
}
