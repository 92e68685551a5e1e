//! `farside sim --stop-after --save` and `--restore`: one run in several pieces.

use std::path::Path;
use std::sync::Arc;

use farside_cli::own_scheme;
use farside_sim::{Comparison, Progress, SimError, Simulation, Spec, Stop};
use farside_workloads::Workload;

use super::{Failure, PERMILLE, Sim};
use crate::commands::output::print;
use crate::commands::progress::bar;

impl Sim {
    /// Runs the one program under the one scheme until `accesses`, and writes the state.
    pub(super) fn save(&self, spec: &Spec, path: &Path, accesses: u64) -> Result<(), Failure> {
        let program = self.only_program()?;
        let schemes = self.schemes(spec)?;
        let [scheme] = schemes.as_slice() else {
            return Err(one("--save", "scheme, by --scheme NAME"));
        };
        if own_scheme::library(scheme).is_some() {
            let why = "--save stores runs of schemes that are built in; that of a library runs in one piece";
            return Err(Failure::Usage(why.to_owned()));
        }
        let mut simulation = Simulation::new(spec, &program, scheme)?;
        let bar = bar(PERMILLE, self.quiet);
        bar.set_message(format!("{}: {scheme}", program.name()));
        let ended = simulation.run_until(Stop::Accesses(accesses), |now: Progress| {
            bar.set_position((now.percent() * 10.0) as u64);
        })?;
        bar.finish_and_clear();
        let bytes = simulation.save()?;
        let unwritable = |source| Failure::Write { path: path.to_owned(), source };
        std::fs::write(path, &bytes).map_err(unwritable)?;
        let (now, size) = (simulation.progress(), bytes.len());
        let ended = if ended { ", the end of the program" } else { "" };
        print(&format!(
            "{}: {size} bytes, at access {} and {:?}{ended}\n",
            path.display(),
            now.accesses,
            now.time,
        ))
    }

    /// Runs the one program on from a state to its end.
    pub(super) fn restore(&self, path: &Path) -> Result<Comparison, Failure> {
        let program = self.only_program()?;
        let bytes = std::fs::read(path).map_err(|error| unusable(path, &error))?;
        let bar = bar(PERMILLE, self.quiet);
        bar.set_message(format!("{}: restored", program.name()));
        let unfit = |error: SimError| match error {
            SimError::State(why) => Failure::Usage(format!("{}: {why}", path.display())),
            other => other.into(),
        };
        let simulation = Simulation::restore(&bytes, &program).map_err(unfit)?;
        let outcome = simulation.run(|now: Progress| {
            bar.set_position((now.percent() * 10.0) as u64);
        })?;
        bar.finish_and_clear();
        Ok(Comparison { outcomes: vec![outcome] })
    }

    fn only_program(&self) -> Result<Arc<dyn Workload>, Failure> {
        let programs = self.programs()?;
        match <[_; 1]>::try_from(programs) {
            Ok([program]) => Ok(program),
            Err(_) => Err(one("a stored state", "program, by --workload or --trace")),
        }
    }
}

fn one(what: &str, of: &str) -> Failure {
    Failure::Usage(format!("{what} is of one {of}"))
}

fn unusable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("{}: {error}", path.display()))
}
