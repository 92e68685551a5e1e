//! `farside schemes`: the placement schemes.

use std::fmt::Write;

use clap::Args;
use farside::placement;
use farside_sim::scheme;

use super::Failure;
use super::output::print;

/// List the placement schemes: what is done about a page that somebody wants and does not have
///
/// `farside demo --placement NAME` runs one on cards in this program, `farside sim --scheme NAME`
/// in simulated time. There a scheme may have parameters and modifiers: `grit:threshold=8+acud`.
/// A parameter that does not exist is answered with those that do.
#[derive(Args, Debug)]
pub(crate) struct Schemes {}

impl Schemes {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let mut text = String::new();
        for name in placement::NAMES {
            // Writing to a string has no way to fail.
            let _ = writeln!(text, "{name:<16} {}", describe(name));
        }
        text += "\nIn simulated time also:\n";
        for (name, about) in scheme::glossary() {
            let _ = writeln!(text, "{name:<16} {about}");
        }
        print(&text)
    }
}

/// One line on a scheme.
fn describe(name: &str) -> &'static str {
    match name {
        "on-touch" => "a page moves to whoever touches it",
        "first-touch" => "a page moves to who touches it first and stays; others map it remotely",
        "access-counter" => "a page is mapped remotely and moves after many remote accesses",
        "duplication" => "readers get copies; a write takes the other copies away",
        "grit" => "each page has one of these schemes, by its faults and those around it (GRIT)",
        "farside" => "learns from faults what allocations and ranges need, and moves them whole",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_is_described() {
        assert!(placement::NAMES.iter().all(|name| !describe(name).is_empty()));
    }
}
