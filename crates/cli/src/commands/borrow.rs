//! `farside borrow` and `farside return`: a card of another machine, for a program of this one.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

use clap::Args;
use farside_lend::Borrowing;
use farside_lend::proto::borrow_for_event::Event;
use farside_lend::proto::{BorrowForRequest, GiveBackRequest, Held};

use super::Failure;
use super::lend::client;
use super::log::say;
use super::output::print;

/// Borrow cards, run a program with them, and give them back when it ends
///
/// The program finds the cards by the environment variable FARSIDE_CARDS, behind those that it names
/// already, and vfio-user devices that are no cards by FARSIDE_DEVICES: their sockets. Without a program the cards are held until this command ends. It ends as its program
/// does: with its exit code, or 128 and the number of its signal.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Borrow {
    /// Cards to borrow, all or none: NAME, or NAME@HOST where several hosts lend one of that name; `any`
    /// is a card of whoever has one
    #[arg(value_name = "CARD", required = true)]
    cards: Vec<String>,

    /// With `any`: so many cards, of one host or of several
    #[arg(long, value_name = "CARDS", value_parser = clap::value_parser!(u32).range(1..=16))]
    count: Option<u32>,

    /// Wait this many seconds for them at most, if others have them; not at all unless given. Cards that nobody
    /// has, which are being cleaned, are waited for a few seconds in any case
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    wait: u64,

    /// Cards that the program uses before those that are borrowed: `program:67108864` is one in it, of
    /// 64 MiB
    #[arg(long, value_name = "PLACE,...")]
    with: Option<String>,

    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

/// In place of a name: a card of whoever has one.
const ANY: &str = "any";

const EXAMPLES: &str = "\
Examples:
  farside borrow card0 -- ./program
  farside borrow card0@a card0@b --wait 60 -- ./program
  farside borrow any --count 2 --wait 60 -- ./program
  farside borrow card0 --with program:67108864 -- farside demo
  farside borrow card0                  holds it, and says its place
  farside borrow nic0 -- sh -c 'qemu-system-x86_64 … -device
    {\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"'$FARSIDE_DEVICES'\"}}'";

/// Give a lease back that this host has, whoever uses it
#[derive(Args, Debug)]
pub(crate) struct Return {
    /// The card: NAME, or NAME@HOST
    #[arg(value_name = "CARD")]
    card: String,
}

/// What the place of a borrowed card begins with. That of another device is its socket.
const LEASE: &str = "lease:";

/// By which a program finds borrowed devices that are no cards: their sockets, with commas between them.
const DEVICES_VARIABLE: &str = "FARSIDE_DEVICES";

/// How often the daemon and the program are looked after, in turn.
const LOOK: Duration = Duration::from_millis(20);

impl Borrow {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let mut borrowing = client()?.borrow(self.request()?)?;
        let leases = await_grant(&mut borrowing)?;
        let places: Vec<&str> = leases.iter().map(|held| held.place.as_str()).collect();
        let Some((program, arguments)) = self.program.split_first() else {
            print(&(places.join("\n") + "\n"))?;
            while look_after(&mut borrowing, Duration::from_secs(1))? {}
            return Ok(ExitCode::FAILURE);
        };
        let (cards, devices): (Vec<&str>, Vec<&str>) =
            places.into_iter().partition(|place| place.starts_with(LEASE));
        let mut command = Command::new(program);
        command.args(arguments);
        if !cards.is_empty() || self.with.is_some() {
            command.env(farside::CARDS_VARIABLE, self.cards_variable(&cards));
        }
        if !devices.is_empty() {
            command.env(DEVICES_VARIABLE, devices.join(","));
        }
        let child = command
            .spawn()
            .map_err(|error| Failure::Usage(format!("{program} cannot be started: {error}")))?;
        let status = attend(child, &mut borrowing)?;
        Ok(ExitCode::from(code_of(status)))
    }

    fn request(&self) -> Result<BorrowForRequest, Failure> {
        let wait_ns = Duration::from_secs(self.wait).as_nanos() as u64;
        let any = match (self.cards.as_slice(), self.count) {
            ([only], count) if only == ANY => count.unwrap_or(1),
            (_, None) => 0,
            (_, Some(_)) => {
                let why = format!("--count goes with `{ANY}` alone, in place of names of cards");
                return Err(Failure::Usage(why));
            }
        };
        let devices = if any == 0 { self.cards.clone() } else { Vec::new() };
        Ok(BorrowForRequest { devices, wait_ns, any })
    }

    /// What the program's environment names: what it does already, and what is borrowed.
    fn cards_variable(&self, borrowed: &[&str]) -> String {
        let named = std::env::var(farside::CARDS_VARIABLE).ok().filter(|named| !named.is_empty());
        let before = self.with.clone().or(named);
        before
            .iter()
            .map(String::as_str)
            .chain(borrowed.iter().copied())
            .collect::<Vec<_>>()
            .join(",")
    }
}

/// Waits until the cards are there.
fn await_grant(borrowing: &mut Borrowing) -> Result<Vec<Held>, Failure> {
    loop {
        match borrowing.next(Duration::from_secs(3600))?.and_then(|event| event.event) {
            Some(Event::Borrowed(borrowed)) => return Ok(borrowed.leases),
            Some(Event::Queued(queued)) => {
                say(&format!("farside: waiting, {} before this one", queued.before));
            }
            Some(Event::Recalled(_) | Event::Ended(_)) | None => {}
        }
    }
}

/// Says what becomes of the leases; the program finds out by itself.
/// `false` once there is nothing more to be said.
fn look_after(borrowing: &mut Borrowing, limit: Duration) -> Result<bool, Failure> {
    match borrowing.next(limit)?.and_then(|event| event.event) {
        Some(Event::Recalled(recalled)) => {
            let within = Duration::from_nanos(recalled.within_ns).as_secs();
            say(&format!("farside: {} is wanted back within {within} s", recalled.device));
        }
        Some(Event::Ended(ended)) => {
            say(&format!("farside: the lease of {} has ended: {}", ended.device, ended.why));
            return Ok(false);
        }
        Some(Event::Queued(_) | Event::Borrowed(_)) | None => {}
    }
    Ok(true)
}

/// Waits for the end of the program. A daemon that is gone is no reason to end it: the lease runs on
/// for a while, and another daemon may take it over.
fn attend(mut child: Child, borrowing: &mut Borrowing) -> Result<ExitStatus, Failure> {
    let mut listens = true;
    loop {
        let status = child.try_wait().map_err(|error| Failure::Usage(error.to_string()))?;
        if let Some(status) = status {
            return Ok(status);
        }
        if !listens {
            std::thread::sleep(LOOK);
            continue;
        }
        listens = look_after(borrowing, LOOK).unwrap_or_else(|error| {
            say(&format!("farside: {error}"));
            false
        });
    }
}

fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

impl Return {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let request = GiveBackRequest { device: self.card.clone() };
        client()?
            .call(request, |mut local, request| async move { local.give_back(request).await })?;
        Ok(())
    }
}
