//! Much data into a borrowed card and out of it.

use farside::{Error, MemoryId, Space};

use super::super::{BenchError, Effort, Row, Target, median, processor_time, timed};
use super::hosts::{Hosts, failed};
use super::peers;

/// Bytes that are moved.
const BYTES: usize = 64 << 20;

/// The rows, and what bare rustls carries, in bytes a second.
pub(super) fn run(effort: Effort, hosts: &Hosts) -> Result<(Vec<Row>, f64), BenchError> {
    let (_borrowing, place) = hosts.borrow("b")?;
    let tune = |config: &mut farside_svm::Config| config.keep_clean_copies = false;
    let space = Space::builder().cards_at(vec![place]).tune(tune).build()?;
    let mut buffer = space.alloc::<u64>(BYTES / 8)?;
    let (mut tcp, mut tls) =
        (peers::tcp(BYTES, hosts.server_cpu())?, peers::tls(BYTES, hosts.server_cpu())?);
    let (mut ours, mut plain, mut sealed) = (Vec::new(), Vec::new(), Vec::new());
    let [mut our_work, mut plain_work, mut sealed_work] = [0.0; 3];
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
        let (mut by_tcp, mut by_tls) = (Ok(0.0), Ok(0.0));
        let tcp_work = processor_time(|| by_tcp = tcp.round());
        let tls_work = processor_time(|| by_tls = tls.round());
        let (by_tcp, by_tls) = (by_tcp?, by_tls?);
        // The first makes everything warm.
        if round > 0 {
            ours.push(seconds);
            plain.push(by_tcp);
            sealed.push(by_tls);
            our_work += own + elsewhere;
            plain_work += tcp_work;
            sealed_work += tls_work;
        }
    }
    let (ours, plain, sealed) = (median(ours), median(plain), median(sealed));
    let rate = |seconds: f64| 2.0 * BYTES as f64 / seconds / 1e6;
    let each = |work: f64| work / effort.samples as f64;
    let row = |name, theirs: f64, work: f64, what: &str| {
        let detail = format!(
            "{:.0} MB/s and {:.2} processor seconds each time; {what} {:.0} MB/s and {:.2}",
            rate(ours),
            each(our_work),
            rate(theirs),
            each(work),
        );
        Row::new(name, theirs / ours, Target::AtLeast(0.8), "x", detail)
    };
    let rows = vec![
        row(
            "64 MiB to a borrowed card and back, against TCP",
            plain,
            plain_work,
            "TCP with a copy at each end",
        )
        .noting("; a lease has no way without TLS, which TCP has not"),
        row(
            "64 MiB to a borrowed card and back, against rustls",
            sealed,
            sealed_work,
            "bare rustls",
        ),
    ];
    Ok((rows, 2.0 * BYTES as f64 / sealed))
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
