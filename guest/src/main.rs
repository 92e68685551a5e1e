//! Checks a Farside card from inside a virtual machine.
//!
//! `farside-guest MODE`, as root, in a guest that `scripts/qemu/boot.sh` has made:
//! - `pci`: the card through sysfs alone, without an IOMMU and without a driver of the kernel's;
//! - `vfio`: the card through VFIO behind an IOMMU, by the code that drives silicon;
//! - `program`: a whole Farside program on the card, by VFIO behind an IOMMU;
//! - `conformance`: the suite that every card must pass, by VFIO behind an IOMMU;
//! - `gpio`: an example of a device of somebody else's, which its host has borrowed;
//! - `edu`: that code on QEMU's own teaching device, so that a fault of ours is told from one of the
//!   card's.
//!
//! Prints a line per check and "FARSIDE-GUEST done" at the end; see [`report`].

mod card;
mod checks;
mod conformance;
mod edu;
mod gpio;
mod memory;
mod msix;
mod pci;
mod physical;
mod program;
mod registers;
mod report;
mod rings;
mod sysfs;
mod vfio;
mod wait;

use std::process::ExitCode;

use report::Report;

/// What goes wrong in a check: a text for the report.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let mode = std::env::args().nth(1).unwrap_or_default();
    let mut report = Report::default();
    match mode.as_str() {
        "pci" => pci::run(&mut report),
        "vfio" => vfio::run(&mut report),
        "edu" => edu::run(&mut report),
        "gpio" => gpio::run(&mut report),
        "program" => program::run(&mut report),
        "conformance" => conformance::run(&mut report),
        _ => {
            eprintln!(
                "farside-guest: give a mode, pci, vfio, edu, gpio, program or conformance, not \
                 '{mode}'"
            );
            return ExitCode::from(2);
        }
    }
    report.end()
}
