//! What the daemon counts, for Prometheus: text over HTTP, at an address that nobody listens at unless it is
//! named. How many lines there are depends on the program alone, never on who calls or what it says.

mod counts;
mod http;
mod text;

use farside_lease::Stats;

use crate::end::{Count, Counted, Refused};
use crate::proto;
use crate::words::state_name;
pub(super) use counts::Counts;
use counts::{ByReason, WAIT_BOUNDS_S};
pub(super) use http::Server;
use text::{Exposition, Kind};

/// What is so at the moment.
pub(super) struct Now {
    pub(super) devices: Vec<proto::Device>,
    pub(super) waiting: usize,
    pub(super) held: usize,
    pub(super) peers: usize,
    pub(super) stats: Stats,
    /// By the lender's ends of all leases.
    pub(super) carried: Counted,
    /// By the borrower's ends of all leases.
    pub(super) borrowed: Counted,
    pub(super) audit_lost: u64,
    pub(super) registry_refused: u64,
    /// Seconds since 1970.
    pub(super) certificate_ends: i64,
}

/// All of it, as text.
pub(super) fn exposition(counts: &Counts, now: &Now) -> String {
    let mut text = Exposition::default();
    let version = env!("CARGO_PKG_VERSION");
    text.family("farside_lend_info", Kind::Gauge, "The program that serves.")
        .sample(&[("version", version)], 1);
    devices(&mut text, now);
    let gauge = Kind::Gauge;
    text.one("farside_lend_requests_waiting", gauge, "Requests in the queue.", now.waiting);
    text.one("farside_lend_leases_held", gauge, "Leases that this host has of others.", now.held);
    text.one("farside_lend_peers", gauge, "Hosts that are known.", now.peers);
    let help = "When the certificate of this host ends, in seconds since 1970.";
    text.one("farside_lend_certificate_end_seconds", gauge, help, now.certificate_ends);
    counted(&mut text, counts, now);
    carried(&mut text, &now.carried);
    let help =
        "What the ends of leases that this host has had of others have refused, of their lenders.";
    refused(&mut text, "farside_lend_borrowed_refused_total", help, &now.borrowed);
    waits(&mut text, counts);
    text.into_text()
}

fn devices(text: &mut Exposition, now: &Now) {
    let help = "Devices that this host lends, by what state they are in.";
    let mut family = text.family("farside_lend_devices", Kind::Gauge, help);
    for state in ["free", "granting", "lent", "cleaning", "quarantined"] {
        let is_in = |device: &&proto::Device| state_name(device.state) == state;
        family.sample(&[("state", state)], now.devices.iter().filter(is_in).count());
    }
}

fn counted(text: &mut Exposition, counts: &Counts, now: &Now) {
    let counter = Kind::Counter;
    text.one("farside_lend_grants_total", counter, "Leases that were granted.", counts.granted);
    let by = |text: &mut Exposition, name, help, label, counts: &ByReason| {
        let mut family = text.family(name, counter, help);
        counts.iter().for_each(|(reason, count)| family.sample(&[(label, reason)], count));
    };
    by(text, "farside_lend_ends_total", "Leases that have ended.", "reason", &counts.ends);
    let help = "Requests that were refused.";
    by(text, "farside_lend_refusals_total", help, "reason", &counts.refusals);
    let help = "Devices that were made clean, or were not.";
    by(text, "farside_lend_cleanings_total", help, "outcome", &counts.cleanings);
    let help = "Hooks that failed, did not end in time, or could not be run.";
    by(text, "farside_lend_hooks_failed_total", help, "on", &counts.hooks_failed);
    let help = "Connections that were refused before anybody was heard.";
    by(text, "farside_lend_callers_refused_total", help, "reason", &counts.callers_refused);
    for (name, help, count) in [
        ("farside_lend_recalls_total", "Leases that were recalled.", counts.recalls),
        ("farside_lend_joined_total", "Hosts that have joined.", counts.joined),
        ("farside_lend_renewals_total", "Leases that were renewed.", now.stats.renewed),
        (
            "farside_lend_renewals_refused_total",
            "Renewals of leases that have ended, or are others'.",
            now.stats.renewals_refused,
        ),
        (
            "farside_lend_strays_total",
            "Returns of leases that are not there, or are others'.",
            now.stats.strays,
        ),
        (
            "farside_lend_ledger_failures_total",
            "Writes of the ledger that failed.",
            now.stats.stores_failed,
        ),
        (
            "farside_lend_clock_gaps_total",
            "Steps of the clock after which every lease counts anew.",
            now.stats.clock_gaps,
        ),
        (
            "farside_lend_audit_lost_total",
            "Records that the audit log could not take.",
            now.audit_lost,
        ),
        (
            "farside_lend_registry_refused_total",
            "What the registry told of other hosts that cannot be, or was older than what is known.",
            now.registry_refused,
        ),
    ] {
        text.one(name, counter, help, count);
    }
}

/// What has gone through the lender's ends, and what they refused.
fn carried(text: &mut Exposition, carried: &Counted) {
    let counter = Kind::Counter;
    let help =
        "Bytes of data that borrowers have sent, and were sent, by the ends of their leases.";
    let mut family = text.family("farside_lend_link_bytes_total", counter, help);
    family.sample(&[("direction", "in")], carried.of(Count::BytesIn));
    family.sample(&[("direction", "out")], carried.of(Count::BytesOut));
    let help = "Bytes of cards' memories that came from, and went to, other lenders directly.";
    let mut family = text.family("farside_lend_direct_bytes_total", counter, help);
    family.sample(&[("direction", "in")], carried.of(Count::FromPeers));
    family.sample(&[("direction", "out")], carried.of(Count::ToPeers));
    for (name, help, count) in [
        ("farside_lend_programs_total", "Programs that borrowers have run.", Count::Programs),
        ("farside_lend_connections_total", "Connections of them.", Count::Connections),
        (
            "farside_lend_resumed_total",
            "Connections by which a program went on whose connection had broken.",
            Count::Resumed,
        ),
    ] {
        text.one(name, counter, help, carried.of(count));
    }
    let help = "What the ends of leases have refused, of borrowers and of devices.";
    refused(text, "farside_lend_accesses_refused_total", help, carried);
}

fn refused(text: &mut Exposition, name: &'static str, help: &'static str, counted: &Counted) {
    let mut family = text.family(name, Kind::Counter, help);
    for (what, kind) in Refused::ALL {
        family.sample(&[("kind", kind)], counted.of(Count::Refused(what)));
    }
}

fn waits(text: &mut Exposition, counts: &Counts) {
    let help = "How long requests waited that were granted.";
    let mut family = text.family("farside_lend_wait_seconds", Kind::Histogram, help);
    let mut within = 0;
    for (bound, count) in WAIT_BOUNDS_S.iter().zip(counts.waits.within) {
        within += count;
        family.named("_bucket", &[("le", &bound.to_string())], within);
    }
    family.named("_bucket", &[("le", "+Inf")], counts.waits.count);
    family.named("_sum", &[], counts.waits.sum.as_secs_f64());
    family.named("_count", &[], counts.waits.count);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn now() -> Now {
        Now {
            devices: vec![proto::Device { state: 1, ..proto::Device::default() }],
            waiting: 2,
            held: 3,
            peers: 4,
            stats: Stats::default(),
            carried: Counted::default(),
            borrowed: Counted::default(),
            audit_lost: 5,
            registry_refused: 7,
            certificate_ends: 6,
        }
    }

    #[test]
    fn what_is_counted_is_said_and_a_histogram_adds_up() {
        let mut counts = Counts::default();
        for (leases, waited) in [(1, 0.005), (2, 0.5), (1, 1e9)] {
            counts.granted(leases, Duration::from_secs_f64(waited));
        }
        counts.ended("returned");
        counts.ended("returned");
        counts.refused("rule");
        let text = exposition(&counts, &now());
        for line in [
            "farside_lend_grants_total 4",
            "farside_lend_ends_total{reason=\"returned\"} 2",
            "farside_lend_refusals_total{reason=\"rule\"} 1",
            "farside_lend_devices{state=\"free\"} 1",
            "farside_lend_wait_seconds_bucket{le=\"0.01\"} 1",
            "farside_lend_wait_seconds_bucket{le=\"1\"} 2",
            "farside_lend_wait_seconds_bucket{le=\"86400\"} 2",
            "farside_lend_wait_seconds_bucket{le=\"+Inf\"} 3",
            "farside_lend_wait_seconds_count 3",
            "farside_lend_audit_lost_total 5",
            "farside_lend_registry_refused_total 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
