//! The conformance suite of the card interface, on the card behind VFIO.

use farside::CardPlace;
use farside_card::interface::{pci, register};
use farside_conformance::Verdict;
use farside_conformance::live::CardUnderTest;

use crate::report::Report;
use crate::{Failure, sysfs};

pub(crate) fn run(report: &mut Report) {
    let Some(mut card) = report.note("open", open()) else {
        return;
    };
    let ended = card.run(|check, finding| {
        let result = match finding {
            Ok(Verdict::Passed) => Ok(()),
            // Served cards have no window of their own.
            Ok(Verdict::NotRun(why)) if why.is_capability(register::CAP_ALLOC) => {
                return report.not_run(check.name, &why.to_string());
            }
            Ok(Verdict::NotRun(why)) => Err(format!("not run: {why}").into()),
            Err(why) => Err(why.as_str().into()),
        };
        report.note(check.name, result);
    });
    report.note("the-bus-until-the-end", ended.map_err(Failure::from));
}

fn open() -> Result<CardUnderTest, Failure> {
    let address = sysfs::find(pci::VENDOR, pci::DEVICE)?;
    sysfs::bind_to_vfio(address)?;
    Ok(CardUnderTest::open(&CardPlace::Vfio(address.to_string()))?)
}
