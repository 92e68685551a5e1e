//! Much data from the card of one lender to that of another.

use std::time::Duration;

use farside::{CardPlace, Space};
use farside_svm::Config;

use super::super::{BenchError, Effort, Row, Target, median, processor_time, timed};
use super::hosts::{Hosts, failed};

/// Bytes that are moved.
const BYTES: usize = 64 << 20;
/// How long two lenders' ends may take until pages go by their direct link.
const LINKED: Duration = Duration::from_millis(500);

fn directly(config: &mut Config) {
    config.keep_clean_copies = false;
}

fn through_the_program(config: &mut Config) {
    directly(config);
    config.capabilities.bounce_between_cards = true;
}

/// Seconds, and processor seconds of all, each time.
#[derive(Default)]
struct Moved {
    seconds: Vec<f64>,
    work: f64,
}

pub(super) fn run(effort: Effort, hosts: &Hosts) -> Result<Vec<Row>, BenchError> {
    hosts.start_lender("c", "card1")?;
    let (_one, first) = hosts.borrow("b")?;
    let (_other, second) = hosts.borrow_card("b", "card1@c")?;
    let (mut direct, mut through) = (Moved::default(), Moved::default());
    for round in 0..=effort.samples as u64 {
        for (tune, moved) in [
            (directly as fn(&mut Config), &mut direct),
            (through_the_program as fn(&mut Config), &mut through),
        ] {
            let places = vec![first.clone(), second.clone()];
            let (seconds, work) = there_and_back(hosts, places, tune, round)?;
            // The first makes everything warm.
            if round > 0 {
                moved.seconds.push(seconds);
                moved.work += work;
            }
        }
    }
    let each = |work: f64| work / effort.samples as f64;
    let rate = |seconds: f64| 2.0 * BYTES as f64 / seconds / 1e6;
    let (ours, theirs) = (median(direct.seconds), median(through.seconds));
    let detail = format!(
        "{:.0} MB/s and {:.2} processor seconds each time; through the program {:.0} MB/s and {:.2}",
        rate(ours),
        each(direct.work),
        rate(theirs),
        each(through.work),
    );
    let name = "64 MiB from lender to lender and back, against through the program";
    Ok(vec![Row::new(name, theirs / ours, Target::AtLeast(1.0), "x", detail)])
}

/// Moves the data from the one card to the other and back: seconds, and processor seconds of all.
fn there_and_back(
    hosts: &Hosts,
    places: Vec<CardPlace>,
    tune: fn(&mut Config),
    round: u64,
) -> Result<(f64, f64), BenchError> {
    let space = Space::builder().cards_at(places).tune(tune).build()?;
    let (first, second) = (space.card(0)?, space.card(1)?);
    let mut buffer = space.alloc::<u64>(BYTES / 8)?;
    buffer.fill(round);
    space.migrate(&buffer, first)?;
    std::thread::sleep(LINKED);
    let elsewhere = hosts.processor_time();
    let (mut outcome, mut seconds) = (Ok(()), 0.0);
    let own = processor_time(|| {
        seconds = timed(|| {
            outcome = space
                .migrate(&buffer, second)
                .and_then(|_| space.migrate(&buffer, first))
                .map(drop);
        });
    });
    outcome?;
    let elsewhere = hosts.processor_time() - elsewhere;
    if buffer.iter().any(|&word| word != round) {
        return Err(failed("what came back from the other card is not what went there"));
    }
    Ok((seconds, own + elsewhere))
}
