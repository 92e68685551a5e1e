//! `farside card`: a software card as a process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use farside_softcard::Kernels;
use farside_softcard::serve::{CardConfig, CardServer, LeaseLimits, ServeError, read_status};
use farside_types::PAGE_SIZE;

use super::Failure;
use super::check::Check;
use super::log::say;
use super::output::print;
use super::service::{self, EndSignals};
use super::size::{parse_size, size};
use super::window::{Window, parse_window};
use crate::workloads::kernels;

/// Serve a card to other programs, or check one
///
/// A served card is a folder with one socket per function. A function is what one program uses: it
/// has memory, rings and address spaces of its own, and is wiped between programs. Programs name
/// the folder as the place of a card, and take the first function that is free.
#[derive(Args, Debug)]
pub(crate) struct Card {
    #[command(subcommand)]
    command: CardCommand,
}

#[derive(Subcommand, Debug)]
enum CardCommand {
    Serve(Serve),
    Check(Check),
}

/// Serve a software card in a folder until SIGTERM or SIGINT
///
/// Says on standard error when it is ready, and tells systemd (`Type=notify`). At the end jobs are
/// stopped and the sockets removed; the programs that use the card go on, and use the card again
/// when it is served again. Sockets that a killed server left behind are replaced. Who may connect
/// is what the umask says: 0077 for this user alone, 0007 for its group.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
struct Serve {
    /// The folder of the card's sockets; made if it is not there
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    /// Memory of each function
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse_size)]
    memory: u64,

    /// Memory of each function, beside the other, that kernels allocate in, and programs by
    /// `Space::alloc_on`; none unless given. Several memories, of which each allocation chooses
    /// one: ddr=64M,ddr=64M,hbm=16M; there are memory, ddr, hbm, bram and host
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_window)]
    window: Window,

    /// Functions: programs that may use the card at a time, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 8)]
    functions: u16,

    /// Processing elements of each function: kernels that run at a time, 1 to 1024
    #[arg(long, value_name = "N", default_value_t = 2)]
    pes: u16,

    /// The card's number in `farside cards`; unless given, the digits that the folder's name ends in
    #[arg(long, value_name = "N")]
    card: Option<u32>,

    /// A shared library of kernels, written to farside-kernel.h, beside the built-in ones; may be
    /// given several times. It is loaded by this process: give only what you trust
    #[arg(long, value_name = "LIBRARY")]
    kernels: Vec<PathBuf>,

    /// How long a kernel that was told to stop may go on before it counts as hung, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 200,
          value_parser = clap::value_parser!(u64).range(1..=600_000))]
    grace: u64,

    /// Memory that there may be in what a program shares with the card; a program that has the card
    /// make more of it loses the card. As much as the machine has, unless given
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    shared_memory: Option<u64>,

    /// Memory that the process of a program may have of its own, for its kernels
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size)]
    own_memory: u64,

    /// When ready, print one line of JSON on standard output (`farside cards --json` tells more)
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  farside card serve /run/farside/card0
  farside card serve /run/farside/card1 --memory 1G --kernels ./kernels.so
  farside card serve /run/farside/card2 --window ddr=64M,hbm=16M
  farside demo --cards /run/farside/card0,/run/farside/card1
  farside cards                         who uses them, from another shell";

impl Card {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match &self.command {
            CardCommand::Serve(serve) => serve.run(),
            CardCommand::Check(check) => check.run(),
        }
    }
}

impl Serve {
    fn run(&self) -> Result<(), Failure> {
        // Before there are threads, so that none of them is ended by a signal.
        let end = EndSignals::block();
        let server = CardServer::start(self.config()?).map_err(|error| self.refused(error))?;
        self.tell_ready(&server)?;
        service::notify_ready();
        let signal = end.wait(|| server.is_served());
        drop(server);
        let folder = self.folder.display();
        let Some(signal) = signal else {
            say(&format!("farside: {folder} is no longer served: its process was ended"));
            return Err(Failure::Told);
        };
        say(&format!("farside: {folder} is no longer served ({signal})"));
        Ok(())
    }

    fn config(&self) -> Result<CardConfig, Failure> {
        let frames = self.memory / PAGE_SIZE as u64;
        let whole = self.memory % PAGE_SIZE as u64 == 0;
        let frames = u32::try_from(frames).ok().filter(|&frames| whole && frames > 0);
        let frames = frames.ok_or_else(|| {
            let why = "it is a multiple of 4096 bytes, at least one page, at most 8 TiB";
            let (what, value) = ("memory of a function", self.memory.to_string());
            farside::Error::Setting { what, value, why }
        })?;
        let limits = LeaseLimits { own_bytes: self.own_memory, ..LeaseLimits::default() };
        let shared_bytes = self.shared_memory.unwrap_or(limits.shared_bytes);
        Ok(CardConfig {
            limits: LeaseLimits { shared_bytes, ..limits },
            card: self.card.unwrap_or_else(|| number_of(&self.folder)),
            functions: self.functions,
            frames,
            window: self.window.0.clone(),
            pes: self.pes,
            grace: Duration::from_millis(self.grace),
            kernels: Arc::new(self.table()?),
            ..CardConfig::new(&self.folder)
        })
    }

    /// The kernels that programs may call.
    fn table(&self) -> Result<Kernels, Failure> {
        let load = |table: Kernels, path: &PathBuf| {
            // SAFETY: whoever starts this process names the library, and is told that its code
            // runs in it.
            unsafe { table.load_library(path) }
        };
        let table = self.kernels.iter().try_fold(kernels(), load);
        Ok(table.map_err(farside::Error::from)?)
    }

    fn tell_ready(&self, server: &CardServer) -> Result<(), Failure> {
        let status =
            server.status().map_err(farside::LiveError::Thread).map_err(farside::Error::from)?;
        say(&format!(
            "farside: card {} is served at {}: {} functions of {}, {} processing elements each, \
             {} kernels",
            status.card,
            self.folder.display(),
            status.functions.len(),
            size(status.memory_bytes),
            status.processing_elements,
            status.kernels.len()
        ));
        if !self.json {
            return Ok(());
        }
        let line = serde_json::json!({
            "ready": true,
            "folder": self.folder,
            "status": status,
        });
        print(&format!("{line}\n"))
    }

    /// What to say where a card cannot be served.
    fn refused(&self, error: ServeError) -> Failure {
        match (&error, read_status(&self.folder)) {
            (ServeError::Path { .. }, Ok(other)) => {
                Failure::InUse { folder: self.folder.clone(), card: other.card, pid: other.pid }
            }
            _ => error.into(),
        }
    }
}

/// The number that the name of a card's folder ends in: 3 for `/run/farside/card3`; else 0.
fn number_of(folder: &Path) -> u32 {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    name[name.len() - digits..].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_numbers_its_card() {
        for (folder, number) in [
            ("/run/farside/card3", 3),
            ("card012/", 12),
            ("/x/kärt", 0),
            ("/", 0),
            ("99999999999", 0),
        ] {
            assert_eq!(number_of(Path::new(folder)), number, "{folder}");
        }
    }
}
