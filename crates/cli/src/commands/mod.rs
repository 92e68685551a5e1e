//! The command line: one file per subcommand.
//!
//! This module owns words, options, progress bars and exit codes. What the commands do is done by
//! the library, by the workloads and by the simulator.

mod account;
mod apart;
mod available;
mod bench;
mod borrow;
mod card;
mod cards;
mod check;
mod demo;
mod doctor;
mod events;
mod failure;
mod input;
mod lend;
mod log;
mod new;
mod output;
mod probe;
mod progress;
mod rates;
mod replay;
mod report;
mod reproduce;
mod schemes;
mod service;
mod sim;
mod size;
mod sweep;
mod text;
mod watch;
mod which_cards;
mod window;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Failure;
pub(crate) use new::scheme_in_c;
pub(crate) use progress::bar;
pub(crate) use service::EndSignals;
pub(crate) use text::{paragraph, table};

/// One virtual address space over host memory and accelerators.
///
/// A pointer is valid everywhere; a page lives where it is used. Stock Linux, no kernel module.
#[derive(Parser, Debug)]
#[command(name = "farside", version, max_term_width = 80, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  farside doctor                what this machine has, and what to do
  farside demo                  graph searches and a pointer chase on two cards
  farside demo --cards 4 --input roads.mtx
  farside bench                 the promised numbers, measured here
  farside card serve /tmp/card0 serve a card to other programs, as a process
  farside cards                 which cards are served, and who uses them
  farside lend up               lend them to other machines, that have joined
  farside borrow card0 -- ./program         use one of another machine
  farside sim                   compare placement schemes on a recorded trace
  farside sim --workload mm --bytes 8M      the same on a generated workload
  farside replay --functional   the same without time: what a scheme does
  farside report log.parquet -o page.html   one page that says why it was slow
  farside probe                 the simulated machine against theory
  farside sweep grid.toml       a grid of simulations, none of them twice
  farside reproduce grit        a paper's experiments, its numbers beside ours
  farside schemes               placement schemes, their parameters, modifiers
  farside new scheme mine       a placement scheme of your own, to begin with

Exit codes: 0 done, 1 it did not work, 2 the command line or an input cannot
be used, 3 a result differs from the plain host run.";

#[derive(Subcommand, Debug)]
enum Command {
    Available(available::Available),
    Bench(bench::Bench),
    Borrow(borrow::Borrow),
    Card(card::Card),
    Cards(cards::Cards),
    Demo(demo::Demo),
    Doctor(doctor::Doctor),
    Join(lend::Join),
    Lend(lend::Lend),
    New(new::New),
    Probe(probe::Probe),
    Recall(lend::Recall),
    Replay(replay::Replay),
    Report(report::Report),
    Reproduce(reproduce::Reproduce),
    Return(borrow::Return),
    Schemes(schemes::Schemes),
    Sim(Box<sim::Sim>),
    Sweep(sweep::Sweep),
    Who(available::Who),
}

/// Does what the command line says.
pub(crate) fn run() -> ExitCode {
    let command = Cli::try_parse().unwrap_or_else(|error| refuse(&error)).command;
    // Who comes and goes is the business of a process that serves.
    let serves = match &command {
        Command::Card(_) => true,
        Command::Lend(lend) => lend.serves(),
        _ => false,
    };
    log::init(if serves { tracing::Level::INFO } else { tracing::Level::WARN });
    farside::warn_of_unknown_variables();
    let done = match command {
        // These end as what they run does.
        Command::Borrow(borrow) => return ended(borrow.run()),
        Command::Lend(lend) => return ended(lend.run()),
        Command::Available(available) => available.run(),
        Command::Bench(bench) => bench.run(),
        Command::Card(card) => card.run(),
        Command::Cards(cards) => cards.run(),
        Command::Demo(demo) => demo.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::New(new) => new.run(),
        Command::Probe(probe) => probe.run(),
        Command::Join(join) => join.run(),
        Command::Recall(recall) => recall.run(),
        Command::Replay(replay) => replay.run(),
        Command::Report(report) => report.run(),
        Command::Return(back) => back.run(),
        Command::Sim(sim) => sim.run(),
        Command::Reproduce(reproduce) => reproduce.run(),
        Command::Schemes(schemes) => schemes.run(),
        Command::Sweep(sweep) => sweep.run(),
        Command::Who(who) => who.run(),
    };
    ended(done.map(|()| ExitCode::SUCCESS))
}

/// Says what failed, if something did.
fn ended(done: Result<ExitCode, Failure>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(failure) => {
            failure.print();
            failure.exit_code()
        }
    }
}

/// Ends with what is wrong with the command line, or with the help that was asked for.
fn refuse(error: &clap::Error) -> ! {
    if !(error.use_stderr() && std::io::stderr().is_terminal()) {
        error.exit();
    }
    let Some(text) = fitted(&error.render().to_string()) else { error.exit() };
    eprint!("{text}");
    std::process::exit(error.exit_code());
}

/// Text in lines that fit a screen, if it has others: clap leaves those of an error as they come.
fn fitted(text: &str) -> Option<String> {
    let is_long = text.lines().any(|line| line.chars().count() > text::WIDTH);
    is_long.then(|| text.lines().map(|line| text::paragraph("", line)).collect())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn errors_of_the_command_line_fit_a_screen() {
        let command = super::Cli::command();
        let long = ["farside", "demo", "--cards", "/a-folder/that/is/not/there/cards.list"];
        let text = command.clone().try_get_matches_from(long).unwrap_err().render().to_string();
        let fitted = super::fitted(&text).expect("a line of it is too long");
        assert!(fitted.lines().all(|line| line.chars().count() <= 80), "{fitted}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&fitted), words(&text));
        let short = command.try_get_matches_from(["farside", "dmo"]).unwrap_err();
        assert_eq!(super::fitted(&short.render().to_string()), None);
    }

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
