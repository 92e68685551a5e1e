//! What is measured: the experiments of the paper's tables, run once for each machine.

use farside_sim::cards::measure;
use farside_sim::cards::paper::{self, Micros, SIZES};
use farside_sim::cards::{CardsError, CardsSpec, JobReport, Layout, Migration, Transport};
use farside_types::Span;

use super::figures;
use super::times::{Times, Way};
use crate::reproduce::{Bar, Figure};

/// The experiments on one machine, by transport and size.
pub(super) struct Measured {
    pub(super) spec: CardsSpec,
    transports: Vec<Vec<Cell>>,
    hosts: Vec<Host>,
}

/// One transport, one size.
#[derive(Clone, Copy)]
pub(super) struct Cell {
    pub(super) contiguous: Migration,
    pub(super) scattered: Migration,
    pub(super) on_demand: JobReport,
    pub(super) user_managed: JobReport,
}

/// One size from and to the host.
#[derive(Clone, Copy)]
pub(super) struct Host {
    pub(super) to_card: Migration,
    pub(super) from_card: Migration,
}

/// Mean errors over all transports and sizes, in percent.
pub(super) struct MeanErrors {
    pub(super) migration: f64,
    pub(super) user_managed: f64,
    pub(super) on_demand: f64,
}

impl Measured {
    /// Runs the experiments on the machine of this preset.
    pub(super) fn new(preset: &str) -> Result<Measured, CardsError> {
        let spec = CardsSpec::preset(preset)?;
        let transports: Result<_, _> = Transport::ALL
            .iter()
            .map(|&transport| {
                let spec = spec.with_transport(transport);
                SIZES.iter().map(|size| cell(&spec, size.pages)).collect()
            })
            .collect();
        let hosts: Result<_, CardsError> = SIZES
            .iter()
            .map(|size| {
                let to_card = measure::host_to_card(&spec, size.pages)?;
                Ok(Host { to_card, from_card: measure::card_to_host(&spec, size.pages)? })
            })
            .collect();
        Ok(Measured { transports: transports?, hosts: hosts?, spec })
    }

    pub(super) fn cell(&self, transport: Transport, size: usize) -> &Cell {
        let index = Transport::ALL.iter().position(|&other| other == transport).unwrap_or(0);
        &self.transports[index][size]
    }

    pub(super) fn host(&self, size: usize) -> &Host {
        &self.hosts[size]
    }

    /// A migration from card to card, in µs.
    pub(super) fn migration(&self, transport: Transport, size: usize) -> f64 {
        self.cell(transport, size).contiguous.time.as_micros_f64()
    }

    pub(super) fn on_demand(&self, transport: Transport, size: usize) -> f64 {
        self.cell(transport, size).on_demand.time.as_micros_f64()
    }

    pub(super) fn user_managed(&self, transport: Transport, size: usize) -> f64 {
        self.cell(transport, size).user_managed.time.as_micros_f64()
    }

    /// What the paper's tables and figures show.
    pub(super) fn times(&self) -> Times {
        let [bounce, direct @ ..] = Transport::ALL.map(|transport| self.way(transport));
        let host = |time: fn(&Host) -> Span| {
            std::array::from_fn(|size| time(self.host(size)).as_micros_f64())
        };
        Times {
            bounce,
            direct: direct.to_vec(),
            to_card: host(|host| host.to_card.time),
            from_card: host(|host| host.from_card.time),
        }
    }

    fn way(&self, transport: Transport) -> Way {
        let micros = |time: fn(&Cell) -> Span| -> Micros {
            std::array::from_fn(|size| time(self.cell(transport, size)).as_micros_f64())
        };
        Way {
            transport,
            on_demand: micros(|cell| cell.on_demand.time),
            user_managed: micros(|cell| cell.user_managed.time),
            contiguous: micros(|cell| cell.contiguous.time),
            scattered: micros(|cell| cell.scattered.time),
        }
    }

    /// All figures of the paper.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let times = self.times();
        let note = "Baseline: ODPM over PCIe with a bounce buffer. On-demand bars are predicted.";
        let mut all = vec![figures::figure_4(&times, note), figures::figure_5(&times)];
        let order = [Transport::Ethernet, Transport::Bounce, Transport::Peer];
        all.extend(order.map(|transport| self.figure_6(transport)));
        let note = "Baseline: host to card, whose constants are assumed from the paper's text.";
        all.push(figures::figure_7(&times, note));
        all
    }

    fn figure_6(&self, transport: Transport) -> Figure {
        let bar = |group: usize, label: &str, migration: &Migration| {
            let steps = migration.steps;
            let parts = [steps.setup, steps.allocate, steps.dma, steps.finalize];
            let parts = parts.iter().map(|&step| percent(step, migration)).collect();
            Bar { group, label: label.to_owned(), parts }
        };
        let of_size = |size: usize| {
            let cell = self.cell(transport, size);
            [bar(size, "cont.", &cell.contiguous), bar(size, "scat.", &cell.scattered)]
        };
        let bars = (0..SIZES.len()).flat_map(of_size).collect();
        figures::figure_6(transport, &["setup", "allocate", "DMA", "finalize"], bars)
    }

    pub(super) fn mean_errors(&self) -> MeanErrors {
        let mean = |paper: fn(Transport) -> Micros, ours: &dyn Fn(Transport, usize) -> f64| {
            let cells =
                Transport::ALL.into_iter().flat_map(|t| (0..SIZES.len()).map(move |s| (t, s)));
            let errors: Vec<f64> =
                cells.map(|(t, s)| 100.0 * (ours(t, s) / paper(t)[s] - 1.0).abs()).collect();
            errors.iter().sum::<f64>() / errors.len() as f64
        };
        MeanErrors {
            migration: mean(paper::migration, &|t, s| self.migration(t, s)),
            user_managed: mean(paper::user_managed, &|t, s| self.user_managed(t, s)),
            on_demand: mean(paper::on_demand, &|t, s| self.on_demand(t, s)),
        }
    }
}

fn cell(spec: &CardsSpec, pages: u64) -> Result<Cell, CardsError> {
    Ok(Cell {
        contiguous: measure::card_to_card(spec, pages, Layout::Contiguous)?,
        scattered: measure::card_to_card(spec, pages, Layout::Scattered)?,
        on_demand: measure::update_on_demand(spec, pages)?,
        user_managed: measure::update_user_managed(spec, pages)?,
    })
}

/// The share of a step in a migration, in percent.
pub(super) fn percent(step: Span, migration: &Migration) -> f64 {
    100.0 * step.0 as f64 / migration.time.0 as f64
}
