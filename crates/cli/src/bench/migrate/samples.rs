//! What was measured, and its medians.

use farside_cli::reproduce::tapasco::{Times, Way};
use farside_sim::cards::Transport;
use farside_sim::cards::paper::{Micros, SIZES};

use super::super::counts::Counts;
use super::super::median;

/// Where the time of a migration went, by the runtime's own account, in µs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Steps {
    /// Deciding what goes where, finding frames, making chains.
    pub(super) plan: f64,
    /// Handing commands to cards, which carry them out meanwhile.
    pub(super) commands: f64,
    /// Taking pages out of the program's mappings.
    pub(super) setup: f64,
    /// Moving bytes.
    pub(super) copy: f64,
    /// Mapping pages for the program.
    pub(super) finalize: f64,
}

impl Steps {
    /// All but the copy.
    pub(super) fn software(&self) -> f64 {
        self.plan + self.commands + self.setup + self.finalize
    }
}

/// A migration that the program asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Migration {
    /// From the call to its return, in µs.
    pub(super) time: f64,
    pub(super) steps: Steps,
}

impl Migration {
    /// What no step accounts for: the call, locks, looks at the clock.
    pub(super) fn rest(&self) -> f64 {
        (self.time - self.steps.software() - self.steps.copy).max(0.0)
    }
}

/// The experiments on one array by one transport: a sample for each round.
#[derive(Debug, Default)]
pub(super) struct Samples {
    pub(super) on_demand: Vec<f64>,
    /// On demand, 16 pages at a time.
    pub(super) by_sixteen: Vec<f64>,
    pub(super) user_managed: Vec<f64>,
    /// Half of the pages migrated before.
    pub(super) mixed: Vec<f64>,
    pub(super) contiguous: Vec<Migration>,
    pub(super) scattered: Vec<Migration>,
    pub(super) from_host: Vec<Migration>,
    pub(super) to_host: Vec<Migration>,
    /// What the driver counted in the last run on demand.
    pub(super) counts: Counts,
}

/// Their medians; of a migration the one with the median time, so that its steps belong together.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub(super) on_demand: f64,
    /// On demand, 16 pages at a time.
    pub(super) by_sixteen: f64,
    pub(super) user_managed: f64,
    /// Nothing where there is no half.
    pub(super) mixed: Option<f64>,
    pub(super) contiguous: Migration,
    pub(super) scattered: Migration,
    pub(super) from_host: Migration,
    pub(super) to_host: Migration,
    pub(super) counts: Counts,
}

fn middle(mut samples: Vec<Migration>) -> Migration {
    samples.sort_by(|a, b| a.time.total_cmp(&b.time));
    samples.get(samples.len() / 2).copied().unwrap_or_default()
}

impl Samples {
    pub(super) fn medians(self) -> Cell {
        Cell {
            on_demand: median(self.on_demand),
            by_sixteen: median(self.by_sixteen),
            user_managed: median(self.user_managed),
            mixed: (!self.mixed.is_empty()).then(|| median(self.mixed)),
            contiguous: middle(self.contiguous),
            scattered: middle(self.scattered),
            from_host: middle(self.from_host),
            to_host: middle(self.to_host),
            counts: self.counts,
        }
    }
}

/// Everything by one transport.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) transport: Transport,
    /// By the sizes of [`SIZES`].
    pub(super) cells: [Cell; SIZES.len()],
    /// 4 kB across the border of two pages.
    pub(super) border: Cell,
}

impl Measured {
    /// Nothing yet.
    pub(super) fn new(transport: Transport) -> Measured {
        Measured { transport, cells: Default::default(), border: Cell::default() }
    }

    /// Scattered pages: of 4 kB those across a border, as a single page is never scattered (section V-B).
    pub(super) fn scattered(&self, size: usize) -> &Migration {
        if size == 0 { &self.border.scattered } else { &self.cells[size].scattered }
    }

    fn way(&self) -> Way {
        let micros = |time: fn(&Cell) -> f64| -> Micros {
            std::array::from_fn(|size| time(&self.cells[size]))
        };
        Way {
            transport: self.transport,
            on_demand: micros(|cell| cell.on_demand),
            user_managed: micros(|cell| cell.user_managed),
            contiguous: micros(|cell| cell.contiguous.time),
            scattered: std::array::from_fn(|size| self.scattered(size).time),
        }
    }
}

/// What the paper's tables and figures show. Moves from and to the host are those of `peer`; they are the same
/// by any transport.
pub(super) fn times(bounce: &Measured, peer: &Measured) -> Times {
    let host =
        |time: fn(&Cell) -> f64| -> Micros { std::array::from_fn(|size| time(&peer.cells[size])) };
    Times {
        bounce: bounce.way(),
        direct: vec![peer.way()],
        to_card: host(|cell| cell.from_host.time),
        from_card: host(|cell| cell.to_host.time),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// As many tenths of a µs for each page as a step has weight: 10 in all, once for `factor` 1.
    fn migration(pages: f64, factor: f64) -> Migration {
        let part = |weight: f64| 0.1 * weight * pages * factor;
        let steps = Steps {
            plan: part(1.5),
            commands: part(0.5),
            setup: 0.0,
            copy: part(1.0),
            finalize: 0.0,
        };
        Migration { time: part(4.0), steps }
    }

    /// Something with easy numbers: on demand a µs a page, by 16 pages 2, by half 0.6, user managed 0.5, a migration 0.4, of
    /// scattered pages 0.6, from the host 0.5, to it 0.4; all of it times `factor`.
    pub(in super::super) fn measured(transport: Transport, factor: f64) -> Measured {
        let cell = |pages: f64| Cell {
            on_demand: pages * factor,
            by_sixteen: 2.0 * pages * factor,
            user_managed: 0.5 * pages * factor,
            mixed: (pages > 1.0).then_some(0.6 * pages * factor),
            contiguous: migration(pages, factor),
            scattered: migration(pages, 1.5 * factor),
            from_host: migration(pages, 1.25 * factor),
            to_host: migration(pages, factor),
            counts: Counts::default(),
        };
        Measured { transport, cells: SIZES.map(|size| cell(size.pages as f64)), border: cell(2.0) }
    }

    #[test]
    fn a_median_migration_is_one_that_was_measured() {
        let of = |time: f64| Migration { time, ..migration(time, 1.0) };
        let samples = Samples {
            on_demand: vec![3.0, 1.0, 2.0],
            by_sixteen: vec![4.0],
            user_managed: vec![5.0],
            contiguous: [9.0, 7.0, 8.0].map(of).to_vec(),
            ..Samples::default()
        };
        let cell = samples.medians();
        assert_eq!((cell.on_demand, cell.user_managed, cell.mixed), (2.0, 5.0, None));
        assert_eq!(cell.contiguous, of(8.0));
    }

    #[test]
    fn what_no_step_accounts_for_is_the_rest_and_never_less_than_nothing() {
        let whole = migration(10.0, 1.0);
        assert!((whole.rest() - 1.0).abs() < 1e-9, "{}", whole.rest());
        assert_eq!(Migration { time: 0.0, ..whole }.rest(), 0.0);
    }

    #[test]
    fn scattered_pages_of_4_kb_are_those_across_a_border() {
        let measured = measured(Transport::Peer, 1.0);
        assert_eq!(measured.scattered(0), &measured.border.scattered);
        assert_eq!(measured.scattered(1), &measured.cells[1].scattered);
        let times = times(&measured, &measured);
        assert_eq!(times.direct[0].scattered[0], measured.border.scattered.time);
        assert_eq!(times.to_card[1], 0.5 * 8.0);
    }
}
