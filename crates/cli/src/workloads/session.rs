//! What a workload runs on: a space, its cards, and who moves the pages.

use farside::{CallArgs, CardId, Error, Space};
use serde::Serialize;

use super::Budget;

/// Who moves pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// Nobody but the driver: pages move when they are touched (ODPM).
    OnDemand,
    /// The program: data is migrated before each launch that needs it (UMPM).
    Managed,
}

impl Mode {
    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::OnDemand => "on demand",
            Mode::Managed => "managed",
        }
    }
}

/// A space with cards, and how it is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session<'env> {
    /// The space.
    pub(crate) space: &'env Space,
    /// Who moves pages.
    pub(crate) mode: Mode,
    /// Tell the driver which memory is mostly read.
    pub(crate) advise: bool,
    /// Memory of each card, in bytes.
    pub(crate) card_memory: u64,
}

impl<'env> Session<'env> {
    /// How much a kernel takes at once.
    pub(crate) fn budget(&self) -> Budget {
        Budget::for_card_memory(self.card_memory)
    }

    /// Card number `part`.
    pub(crate) fn card(&self, part: usize) -> Result<CardId, Error> {
        self.space.card(part)
    }

    /// User managed: moves `slice` to a card before a kernel there needs it; what is too large to
    /// be there beside other data only as far as there is room. On demand: nothing.
    pub(crate) fn bring<T>(&self, slice: &[T], part: usize) -> Result<(), Error> {
        if self.mode == Mode::OnDemand || slice.is_empty() {
            return Ok(());
        }
        let card = self.card(part)?.memory();
        if size_of_val(slice) as u64 > self.card_memory / 4 {
            self.space.prefetch(slice, card)?;
        } else {
            self.space.migrate(slice, card)?;
        }
        Ok(())
    }

    /// Calls a kernel on each card, at the same time, with that card's arguments, and waits for all.
    /// Gives their values by card.
    pub(crate) fn on_each<A: CallArgs + 'env>(
        &self,
        kernel: &str,
        args: impl IntoIterator<Item = A>,
    ) -> Result<Vec<u64>, Error> {
        let space = self.space;
        space.scope(|scope| {
            let mut jobs = Vec::new();
            for (part, args) in args.into_iter().enumerate() {
                jobs.push(scope.kernel(kernel).on(space.card(part)?).launch_call(args)?);
            }
            jobs.into_iter().map(farside::Job::wait).collect()
        })
    }
}
