//! `farside available` and `farside who`: what may be borrowed, and who has it.

use std::time::Duration;

use clap::Args;
use farside_lend::proto::{
    AvailableRequest, Device, Held, HostDevices, RefusedAccesses, StatusRequest, Traffic,
};
use farside_lend::words::state_name;

use super::Failure;
use super::lend::client;
use super::output::{print, print_json};
use super::size::size;
use super::text::{paragraph, row, table};

/// List the cards that this host and its peers lend
#[derive(Args, Debug)]
pub(crate) struct Available {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// List who has this host's cards, and whose cards this host has
#[derive(Args, Debug)]
pub(crate) struct Who {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Available {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let found = client()?.ask(AvailableRequest {}, |mut local, request| async move {
            local.available(request).await
        })?;
        if self.json {
            return print_json(&found);
        }
        let silent = found.hosts.iter().filter(|host| !host.error.is_empty());
        let silent: String = silent.map(silent_host).collect();
        print(&(devices(&found.hosts) + &silent + &warnings(&found.warnings)))
    }
}

impl Who {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let status = client()?.ask(StatusRequest {}, |mut local, request| async move {
            local.status(request).await
        })?;
        if self.json {
            return print_json(&status);
        }
        let own =
            HostDevices { host: status.host, devices: status.devices, ..HostDevices::default() };
        let traffic = traffic(&status.traffic);
        print(&(devices(&[own]) + &traffic + &held(&status.held) + &warnings(&status.warnings)))
    }
}

/// Why a host does not answer, and how old what is known of it is.
fn silent_host(host: &HostDevices) -> String {
    let known = if host.heard_ns == 0 {
        String::new()
    } else {
        format!("; what is listed of it was heard {} ago", seconds(host.heard_ns))
    };
    paragraph("", &format!("{}: {}{known}", host.host, host.error))
}

fn seconds(ns: u64) -> String {
    format!("{:.1} s", Duration::from_nanos(ns).as_secs_f64())
}

fn warnings(warnings: &[String]) -> String {
    warnings.iter().map(|warning| paragraph("! ", warning)).collect()
}

fn devices(hosts: &[HostDevices]) -> String {
    let mut rows = vec![row(["card", "state", "borrower", "ends in", "waiting"])];
    for host in hosts {
        rows.extend(host.devices.iter().map(|device| device_row(&host.host, device)));
    }
    if rows.len() == 1 {
        return paragraph("", "Nobody lends a card; `farside lend up` does.");
    }
    table("llllr", rows)
}

fn device_row(host: &str, device: &Device) -> Vec<String> {
    let name = format!("{}@{host}", device.name);
    let left = if device.left_ns == 0 { String::new() } else { seconds(device.left_ns) };
    let plain = if device.plain { ", without TLS" } else { "" };
    let holder = if device.why.is_empty() { &device.holder } else { &device.why };
    let holder = format!("{holder}{plain}");
    row([&name, state_name(device.state), &holder, &left, &device.waiting.to_string()])
}

/// What has gone through the leases of this host's devices, and what was refused there.
fn traffic(leases: &[Traffic]) -> String {
    let mut rows = vec![row(["lent", "in", "out", "programs", "resumed", "refused"])];
    for lease in leases {
        rows.push(row([
            &lease.device,
            &size(lease.bytes_in),
            &size(lease.bytes_out),
            &lease.programs.to_string(),
            &lease.resumed.to_string(),
            &refused(&lease.refused),
        ]));
    }
    if rows.len() == 1 { String::new() } else { format!("\n{}", table("lrrrrl", rows)) }
}

/// How often what kind of access was refused.
fn refused(kinds: &[RefusedAccesses]) -> String {
    let kinds = kinds.iter().map(|refused| format!("{} {}", refused.kind, refused.count));
    kinds.collect::<Vec<_>>().join(", ")
}

fn held(held: &[Held]) -> String {
    if held.is_empty() {
        return String::new();
    }
    let mut rows = vec![row(["borrowed", "user", "process", "ends in", "place", "refused"])];
    for lease in held {
        let plain = if lease.plain { ", without TLS" } else { "" };
        let name = format!("{}@{}{plain}", lease.device, lease.lender);
        let pid = lease.pid.to_string();
        let (left, refused) = (seconds(lease.left_ns), refused(&lease.refused));
        rows.push(row([&name, &lease.user, &pid, &left, &lease.place, &refused]));
    }
    format!("\n{}", table("llrlll", rows))
}
