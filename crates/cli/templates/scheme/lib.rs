//! A placement scheme for Farside: readers get copies and writers the page, until cards have taken a
//! page from each other by writing `after` times. From then on it stays where it is and is mapped.

mod farside_scheme;

use std::ffi::CStr;

use farside_scheme::{export_scheme, Action, Decision, Fault, Mode, Parameter, Reason, Scheme, HOST};

struct Mine {
    after: u64,
}

impl Scheme for Mine {
    const NAME: &'static CStr = c"__name__";
    const ABOUT: &'static CStr = c"reads copy, writes move, pages that cards fight over are mapped";
    /// Given behind the name: `lib__name__.so:after=2`.
    const PARAMETERS: &'static [Parameter] =
        &[Parameter::number(c"after", c"foreign writes after which a page stays", 1, 1, 1000)];
    /// The note of a page counts its foreign writes.
    const NOTES: bool = true;

    fn new(values: &[u32]) -> Result<Mine, &'static CStr> {
        Ok(Mine { after: values[0].into() })
    }

    fn on_fault(&mut self, fault: &Fault, note: &mut u64) -> Decision {
        let others = fault.copies.without(HOST).without(fault.agent);
        if *note >= self.after && fault.copies.len() == 1 && !others.is_empty() {
            return Decision::page(Action::MapRemote, Reason::Demand);
        }
        let write = fault.write == 1;
        if write && !others.is_empty() && fault.again == 0 {
            *note += 1;
        }
        match (write, fault.copies.len()) {
            (false, _) => Decision::page(Action::Duplicate, Reason::Demand),
            (true, 0..=1) => Decision::page(Action::Migrate, Reason::Demand),
            (true, _) => Decision::page(Action::Migrate, Reason::Collapse),
        }
    }

    /// For the statistics of `farside sim`.
    fn mode(&self, _page: u64, note: u64) -> Mode {
        if note >= self.after { Mode::AccessCounter } else { Mode::Duplication }
    }
}

export_scheme!(Mine);
