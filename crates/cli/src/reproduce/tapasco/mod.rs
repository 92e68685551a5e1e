//! The multi-FPGA SVM paper (Kalkhof and Koch): Tables I to III, Figures 4 to 7, every number
//! printed in its tables and its text, and what this project's driver gives on the same hardware.
//!
//! Everything runs on [`farside_sim::cards`]: the driver of the live runtime on a simulated machine
//! whose constants are fitted to Table II and to the user-managed rows of Table I.

mod beyond;
pub mod figures;
mod measured;
pub mod tables;
mod times;

use farside_sim::cards::CardsError;

use super::Report;
use measured::Measured;
pub use times::{Times, Way};

/// Runs all experiments and compares them with the paper. Takes some seconds.
///
/// # Errors
/// [`CardsError`]: the simulated machine is wrong, which is a bug.
pub fn report() -> Result<Report, CardsError> {
    let measured = Measured::new("as-published")?;
    let ours = Measured::new("farside")?;
    let mut rows = tables::rows(&measured);
    let mut figures = measured.figures();
    let beyond = beyond::run(&measured, &ours)?;
    rows.extend(beyond.rows);
    figures.extend(beyond.figures);
    let title = "Direct device-to-device page migrations between FPGAs (Kalkhof and Koch)".into();
    Ok(Report { title, rows, figures, notes: notes(&measured) })
}

fn notes(measured: &Measured) -> Vec<String> {
    let errors = measured.mean_errors();
    vec![
        format!(
            "Mean error of Table II {:.1} % and of the user-managed rows of Table I {:.1} % (both \
             fitted), of the on-demand rows of Table I {:.1} % (predicted).",
            errors.migration, errors.user_managed, errors.on_demand
        ),
        "Table III divides a migration into setup, allocate, DMA and finalize. Every command of the \
         driver says which of them it counts to; allocation takes no time here."
            .to_owned(),
        "The paper prints no numbers for migrations from and to the host: their constants are \
         assumed so that section V-D holds, and are no test of anything else."
            .to_owned(),
        "Scattered sources cost nothing here: writing a command takes less time than moving a page, \
         and up to 64 of them wait. The paper sees slightly more below 128 kB."
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_the_tables_is_there_and_can_be_drawn() {
        let report = report().unwrap();
        let of = |table: &str| report.rows.iter().filter(|row| row.source == table).count();
        assert_eq!((of("Table I"), of("Table II")), (36, 18));
        for row in &report.rows {
            assert!(row.ours.is_finite() && row.ours >= 0.0, "{row:?}");
        }
        let names: Vec<_> = report.figures.iter().map(|figure| figure.name.as_str()).collect();
        for name in ["figure-4", "figure-5", "figure-6a", "figure-6b", "figure-6c", "figure-7"] {
            assert!(names.contains(&name), "{names:?}");
        }
        for figure in &report.figures {
            assert_eq!(figure.check(), Ok(()), "{}", figure.name);
        }
    }

    #[test]
    fn the_best_transport_is_the_papers_for_every_size() {
        let measured = Measured::new("as-published").unwrap();
        use farside_sim::cards::{Transport, paper};
        for size in 0..paper::SIZES.len() {
            let best = |time: &dyn Fn(Transport) -> f64| {
                Transport::ALL.into_iter().min_by(|a, b| time(*a).total_cmp(&time(*b)))
            };
            let theirs = best(&|transport| paper::migration(transport)[size]);
            let ours = best(&|transport| measured.migration(transport, size));
            assert_eq!(theirs, ours, "{}", paper::SIZES[size].name);
        }
    }
}
