//! The `farside` command: a demonstration, a check of the machine, the simulator.

mod bench;
mod commands;
mod workloads;

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::run()
}
