//! `farside lend` and `farside join`: the daemon of this host, what it lends, and to whom.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use farside_lend::config::Config;
use farside_lend::home::Home;
use farside_lend::proto::{
    DownRequest, InviteRequest, JoinPeersRequest, Lent, RecallRequest, ReleaseRequest, Rule,
    RulesReply, RulesRequest, UpRequest,
};
use farside_lend::{Client, daemon, end};

use super::Failure;
use super::cards;
use super::output::{print, print_json};
use super::service::notify_ready;
use super::text::{paragraph, row, table};

/// Lend cards of this machine to others
///
/// A daemon in the background keeps the leases; the commands start it. Only this machine reaches it
/// until `lend up`. Hosts that have joined borrow whole cards, one at a time; a lease that is not
/// renewed ends, and the card is reset, scrubbed and free again.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Lend {
    #[command(subcommand)]
    command: LendCommand,
}

#[derive(Subcommand, Debug)]
enum LendCommand {
    Up(Up),
    Down(Down),
    Invite(Invite),
    Release(Release),
    Rules(Rules),
    /// Keep this host's leases, in the foreground, until SIGTERM: what systemd starts
    Daemon,
    /// The lender's end of a lease, which the daemon starts
    #[command(hide = true)]
    End,
    /// The borrower's end of a lease, which the daemon starts
    #[command(hide = true)]
    NearEnd,
}

const EXAMPLES: &str = "\
Examples:
  farside card serve /run/farside/card0 &
  farside lend up                       opens this machine, prints how to join
  farside lend up --device fpga=/run/farside/card0 --listen 10.0.0.1:7301
  farside lend invite                   one more host may join
  farside who                           who has what
  farside recall card0 --within 30      asks for it back
  farside lend rules --check lend.toml  is the configuration one?
  farside lend down                     nothing is lent any more";

/// Open this machine to others and lend its cards
///
/// Prints the command by which one other host joins. Without --device the cards that `farside cards`
/// finds are lent, beside those that were lent before.
#[derive(Args, Debug)]
struct Up {
    /// Where to listen, ADDRESS:PORT; 0.0.0.0:7301 unless given, or what it was
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,

    /// A card's folder, or the socket of a vfio-user device, under this name or the folder's; may be
    /// given several times
    #[arg(long, value_name = "[NAME=]PATH")]
    device: Vec<String>,

    /// How long a lease runs unless it is renewed, in seconds; 10 unless given, or what it was
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    lease: Option<u64>,

    /// Serve metrics for Prometheus there, at /metrics; nowhere unless given, here or in lend.toml
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,

    /// The name by which this host is to be known, until others know it; that of the system unless given
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Close this machine to others again; leases run on until they end
#[derive(Args, Debug)]
struct Down {}

/// Print a command by which one more host joins, within an hour
#[derive(Args, Debug)]
struct Invite {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Lend a quarantined device again: you have seen to it that it is clean
#[derive(Args, Debug)]
struct Release {
    /// Its name
    #[arg(value_name = "DEVICE")]
    device: String,
}

/// List the rules by which this host lends, or check those of a file
///
/// The first rule that is about a host, its user and a card decides. Without rules every host that has joined
/// may borrow everything.
#[derive(Args, Debug)]
struct Rules {
    /// Check this file as lend.toml, without a daemon
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Join the hosts that a lender lends to
///
/// From then on this host borrows from them, and lends to them once it is up itself.
#[derive(Args, Debug)]
pub(crate) struct Join {
    /// Where the inviting host listens; HOST@ADDRESS:PORT where both have certificates of their
    /// organisation, and no token
    #[arg(value_name = "[HOST@]ADDRESS:PORT")]
    address: String,

    /// What `farside lend up` or `farside lend invite` printed there
    #[arg(value_name = "TOKEN")]
    token: Option<String>,

    /// The name by which this host wants to be known; that of the system unless given
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Ask for a device back that this host lends
#[derive(Args, Debug)]
pub(crate) struct Recall {
    /// Its name
    #[arg(value_name = "DEVICE")]
    device: String,

    /// How long its borrower has to give it back, in seconds; then it is taken
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    within: u64,
}

/// This host's daemon.
pub(super) fn client() -> Result<Client, Failure> {
    Ok(Client::open(&Home::of_environment()?)?)
}

impl Lend {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        match &self.command {
            LendCommand::Up(up) => up.run()?,
            LendCommand::Down(_) => {
                client()?.ask(DownRequest {}, |mut local, request| async move {
                    local.down(request).await
                })?;
            }
            LendCommand::Invite(invite) => invite.run()?,
            LendCommand::Release(release) => release.run()?,
            LendCommand::Rules(rules) => rules.run()?,
            LendCommand::Daemon => daemon::run(&Home::of_environment()?, notify_ready)?,
            LendCommand::End => return Ok(end::run()),
            LendCommand::NearEnd => return Ok(end::run_near()),
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Whether this is a process that serves.
    pub(crate) fn serves(&self) -> bool {
        matches!(self.command, LendCommand::Daemon | LendCommand::End | LendCommand::NearEnd)
    }
}

/// How another host joins, as `lend up` and `lend invite` print it.
fn join_command(address: &str, token: &str) -> String {
    format!("On the other machine, within an hour, once:\n  farside join {address} {token}\n")
}

impl Up {
    fn run(&self) -> Result<(), Failure> {
        let mut devices: Vec<Lent> =
            self.device.iter().map(|text| lent(text)).collect::<Result<_, _>>()?;
        if devices.is_empty() {
            devices = cards::served()
                .iter()
                .map(|folder| named(None, folder))
                .collect::<Result<_, _>>()?;
        }
        let request = UpRequest {
            listen: self.listen.clone().unwrap_or_default(),
            devices,
            duration_ns: self.lease.map_or(0, |s| Duration::from_secs(s).as_nanos() as u64),
            name: self.name.clone().unwrap_or_default(),
            metrics: self.metrics.map(|address| address.to_string()).unwrap_or_default(),
        };
        let up =
            client()?.ask(request, |mut local, request| async move { local.up(request).await })?;
        if self.json {
            return print_json(&up);
        }
        let names: Vec<&str> = up.devices.iter().map(|device| device.name.as_str()).collect();
        let names = if names.is_empty() {
            "nothing yet: serve a card with `farside card serve`, and say this again".to_owned()
        } else {
            names.join(", ")
        };
        let mut told = paragraph("", &format!("{} lends {names}", up.address));
        if !up.metrics.is_empty() {
            told += &format!("metrics are at http://{}/metrics\n", up.metrics);
        }
        if up.token.is_empty() {
            // It belongs to the group of another host, which invites.
            return print(&told);
        }
        print(&(told + &join_command(&up.address, &up.token)))
    }
}

/// A device as the command line names it.
fn lent(text: &str) -> Result<Lent, Failure> {
    match text.split_once('=') {
        Some((name, path)) => named(Some(name), Path::new(path)),
        None => named(None, Path::new(text)),
    }
}

fn named(name: Option<&str>, path: &Path) -> Result<Lent, Failure> {
    let unusable = |why: &dyn std::fmt::Display| {
        Failure::Usage(format!("{} cannot be lent: {why}", path.display()))
    };
    let path: PathBuf = path.canonicalize().map_err(|error| unusable(&error))?;
    let own = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    let text = path.to_str().ok_or_else(|| unusable(&"its path is no text"))?;
    Ok(Lent { name: name.unwrap_or(own).to_owned(), path: text.to_owned() })
}

impl Invite {
    fn run(&self) -> Result<(), Failure> {
        let invited = client()?.ask(InviteRequest {}, |mut local, request| async move {
            local.invite(request).await
        })?;
        if self.json {
            return print_json(&invited);
        }
        print(&join_command(&invited.address, &invited.token))
    }
}

impl Release {
    fn run(&self) -> Result<(), Failure> {
        let request = ReleaseRequest { device: self.device.clone() };
        client()?
            .call(request, |mut local, request| async move { local.release(request).await })?;
        Ok(())
    }
}

impl Rules {
    fn run(&self) -> Result<(), Failure> {
        let reply = match &self.check {
            Some(file) => RulesReply { rules: checked(file)?.rules.described() },
            None => client()?.ask(RulesRequest {}, |mut local, request| async move {
                local.rules(request).await
            })?,
        };
        if self.json {
            return print_json(&reply);
        }
        if reply.rules.is_empty() {
            let text = "There are no rules: every host that has joined may borrow everything.";
            return print(&paragraph("", text));
        }
        let mut rows = vec![row(["rule", "hosts", "users", "cards", "says"])];
        rows.extend(reply.rules.iter().map(|rule| {
            row([&rule.name, &rule.hosts, &rule.users, &rule.devices, &what_it_says(rule)])
        }));
        print(&table("lllll", rows))
    }
}

fn checked(file: &Path) -> Result<Config, Failure> {
    let unusable = |why: &dyn std::fmt::Display| Failure::Usage(why.to_string());
    if !file.exists() {
        return Err(unusable(&format_args!("{}: there is no such file", file.display())));
    }
    Config::read(file).map_err(|error| unusable(&error))
}

fn what_it_says(rule: &Rule) -> String {
    let mut says = if rule.allow { "yes".to_owned() } else { "no".to_owned() };
    if let Some(at_most) = rule.at_most {
        let whom = if rule.per_user { "user" } else { "host" };
        says += &format!(", {at_most} for each {whom}");
    }
    if rule.longest_s != 0 {
        says += &format!(", for {} s", rule.longest_s);
    }
    says
}

impl Join {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let request = JoinPeersRequest {
            address: self.address.clone(),
            token: self.token.clone().unwrap_or_default(),
            name: self.name.clone().unwrap_or_default(),
        };
        let joined = client()?
            .call(request, |mut local, request| async move { local.join_peers(request).await })?;
        if self.json {
            return print_json(&joined);
        }
        let peers: Vec<&str> = joined.peers.iter().map(|peer| peer.host.as_str()).collect();
        print(&format!("This host is {}, and knows {}.\n", joined.host, peers.join(", ")))
    }
}

impl Recall {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let within_ns = Duration::from_secs(self.within).as_nanos() as u64;
        let request = RecallRequest { device: self.device.clone(), within_ns };
        client()?.ask(request, |mut local, request| async move { local.recall(request).await })?;
        Ok(())
    }
}
