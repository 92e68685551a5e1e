//! Times of the paper's experiments, whoever measured them: the simulated machine here, or the live one of
//! `farside bench migrate`.

use farside_sim::cards::Transport;
use farside_sim::cards::paper::Micros;

/// Times of the experiments of Tables I and II and of Figures 4, 5 and 7, in µs by the sizes of
/// [`farside_sim::cards::paper::SIZES`].
#[derive(Clone, Debug)]
pub struct Times {
    /// Through a bounce buffer in host memory: what the paper's figures take as their baseline.
    pub bounce: Way,
    /// The direct transports, in the order of the paper's tables.
    pub direct: Vec<Way>,
    /// A migration from the host to a card.
    pub to_card: Micros,
    /// A migration from a card to the host.
    pub from_card: Micros,
}

/// The experiments between two cards by one transport.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// The transport.
    pub transport: Transport,
    /// The synthetic accelerator, its pages migrated on demand (Table I, ODPM).
    pub on_demand: Micros,
    /// The same, its pages migrated before by the program, the migration included (Table I, UMPM).
    pub user_managed: Micros,
    /// One migration, its source pages contiguous (Table II).
    pub contiguous: Micros,
    /// One migration, its source pages scattered (Figure 5).
    pub scattered: Micros,
}

impl Times {
    /// All transports, the baseline first.
    pub fn ways(&self) -> impl Iterator<Item = &Way> {
        std::iter::once(&self.bounce).chain(&self.direct)
    }
}
