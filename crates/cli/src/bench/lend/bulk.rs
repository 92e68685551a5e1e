//! Much data into a borrowed card and out of it.

use farside::{Error, MemoryId, Space};

use super::super::{BenchError, Effort, Row, Target, median, processor_time, timed};
use super::hosts::{Hosts, failed};
use super::peers;

/// Bytes that are moved.
const BYTES: usize = 64 << 20;

/// The rows, and what bare rustls carries, in bytes a second.
pub(super) fn run(effort: Effort, hosts: &Hosts) -> Result<(Vec<Row>, f64), BenchError> {
    hosts.name_networks_without_tls(true)?;
    let mut tcp = peers::tcp(BYTES, hosts.server_cpu())?;
    let plain = beside(effort, hosts, true, || Ok(tcp.round()?))?;
    hosts.name_networks_without_tls(false)?;
    let mut tls = peers::tls(BYTES, hosts.server_cpu())?;
    let sealed = beside(effort, hosts, false, || Ok(tls.round()?))?;
    let rows = vec![
        plain.row(
            effort,
            "64 MiB to a borrowed card and back, without TLS, against TCP",
            "TCP with a copy at each end",
        ),
        sealed.row(effort, "64 MiB to a borrowed card and back, against rustls", "bare rustls"),
    ];
    Ok((rows, 2.0 * BYTES as f64 / sealed.theirs))
}

/// Seconds of each there and back, in medians, and processor seconds of all.
struct Beside {
    ours: f64,
    theirs: f64,
    our_work: f64,
    their_work: f64,
}

impl Beside {
    fn row(&self, effort: Effort, name: &'static str, what: &str) -> Row {
        let rate = |seconds: f64| 2.0 * BYTES as f64 / seconds / 1e6;
        let each = |work: f64| work / effort.samples as f64;
        let detail = format!(
            "{:.0} MB/s and {:.2} processor seconds each time; {what} {:.0} MB/s and {:.2}",
            rate(self.ours),
            each(self.our_work),
            rate(self.theirs),
            each(self.their_work),
        );
        Row::new(name, self.theirs / self.ours, Target::AtLeast(0.8), "x", detail)
    }
}

/// Moves the data by a lease of the card, with TLS or without, and in turns by a peer.
fn beside(
    effort: Effort,
    hosts: &Hosts,
    is_plain: bool,
    mut peer: impl FnMut() -> Result<f64, BenchError>,
) -> Result<Beside, BenchError> {
    let (_borrowing, place) = hosts.borrow_by("b", is_plain)?;
    let tune = |config: &mut farside_svm::Config| config.keep_clean_copies = false;
    let space = Space::builder().cards_at(vec![place]).tune(tune).build()?;
    let mut buffer = space.alloc::<u64>(BYTES / 8)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let (mut our_work, mut their_work) = (0.0, 0.0);
    for round in 0..=effort.samples as u64 {
        buffer.fill(round);
        let elsewhere = hosts.processor_time();
        let mut outcome = Ok(0.0);
        let own = processor_time(|| outcome = there_and_back(&space, &buffer));
        let seconds = outcome?;
        let elsewhere = hosts.processor_time() - elsewhere;
        if buffer.iter().any(|&word| word != round) {
            return Err(failed("what came back from the card is not what went there"));
        }
        let mut by_peer = Ok(0.0);
        let peer_work = processor_time(|| by_peer = peer());
        let by_peer = by_peer?;
        // The first makes everything warm.
        if round > 0 {
            ours.push(seconds);
            theirs.push(by_peer);
            our_work += own + elsewhere;
            their_work += peer_work;
        }
    }
    Ok(Beside { ours: median(ours), theirs: median(theirs), our_work, their_work })
}

/// Seconds that it takes.
pub(super) fn there_and_back(space: &Space, buffer: &farside::Buffer<u64>) -> Result<f64, Error> {
    let card = space.card(0)?;
    let mut outcome = Ok(());
    let seconds = timed(|| {
        outcome = space
            .migrate(buffer, card)
            .and_then(|_| space.migrate(buffer, MemoryId::HOST))
            .map(drop);
    });
    outcome.map(|()| seconds)
}
