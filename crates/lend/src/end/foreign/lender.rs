//! The device's end of a lease, in its process: one client after the other, each with the device as it is
//! after a reset.

use std::io;
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_link::endpoint::Load;
use farside_link::{Config, Endpoint, Event, Lease};
use farside_linux::lock::lock;
use farside_live::far::{Carried, Lines, NewLines, Over, Side, greeted, lines};
use rustix::event::PollFlags;
use rustls::Connection;

use super::device_side::DeviceSide;
use super::{Gone, await_served, here, is_absent, reset};
use crate::end::secured;
use crate::end::serve::STRANGERS_MAX;
use crate::end::tally::{Count, Refused, Tally};

/// How long a device may take to be as new for the next client of a lease.
const RESET_LIMIT: Duration = Duration::from_secs(2);
/// How long both ends may take to show who they are.
const AGREE_LIMIT: Duration = Duration::from_secs(5);

/// A lease's device.
pub(super) struct Lent {
    /// For people.
    pub(super) name: String,
    /// The lease's.
    pub(super) epoch: u64,
    /// Its name.
    pub(super) device: String,
    /// Its socket.
    pub(super) socket: PathBuf,
    pub(super) tally: Arc<Tally>,
}

impl Lent {
    /// What both ends of its link have to agree on.
    pub(super) fn config(&self) -> Config {
        Config::new(Lease { device: self.device.clone(), epoch: self.epoch })
    }
}

/// See the module. Nothing of it runs before the first client comes.
pub(in crate::end) struct Lender {
    lent: Arc<Lent>,
    /// Of the thread that has the device.
    lines: Mutex<Option<NewLines>>,
    strangers: Arc<AtomicU32>,
}

impl Lender {
    /// For the device at a socket.
    pub(in crate::end) fn new(
        name: String,
        epoch: u64,
        device: String,
        socket: PathBuf,
        tally: Arc<Tally>,
    ) -> Lender {
        let lent = Arc::new(Lent { name, epoch, device, socket, tally });
        Lender { lent, lines: Mutex::new(None), strangers: Arc::default() }
    }

    /// Takes a connection, once `admit` says that it is the borrower's, and with which TLS.
    ///
    /// # Errors
    /// No thread.
    pub(in crate::end) fn connect(
        &self,
        socket: TcpStream,
        admit: impl FnOnce(&TcpStream) -> io::Result<Option<Connection>> + Send + 'static,
    ) -> io::Result<()> {
        let lines = self.lines()?;
        if self.strangers.fetch_add(1, Ordering::SeqCst) >= STRANGERS_MAX {
            self.strangers.fetch_sub(1, Ordering::SeqCst);
            self.lent.tally.add(Count::Refused(Refused::Stranger), 1);
            tracing::warn!(lease = self.lent.name, "a connection too many is refused");
            return Ok(());
        }
        let (lent, strangers) = (Arc::clone(&self.lent), Arc::clone(&self.strangers));
        let admit = move || {
            let admitted = admit(&socket)
                .and_then(|tls| secured::stream(socket, tls, AGREE_LIMIT))
                .and_then(|stream| greeted(stream, lent.config(), AGREE_LIMIT));
            match admitted {
                Ok((_, line)) => drop(lines.give(line)),
                Err(error) => {
                    lent.tally.add(Count::Refused(Refused::Stranger), 1);
                    tracing::warn!(lease = lent.name, %error, "a connection is refused");
                }
            }
            strangers.fetch_sub(1, Ordering::SeqCst);
        };
        std::thread::Builder::new().name("farside-agree".into()).spawn(admit)?;
        Ok(())
    }

    /// Serves clients of this host.
    ///
    /// # Errors
    /// No thread.
    pub(in crate::end) fn serve_programs(&self, listener: UnixListener) -> io::Result<()> {
        let lent = Arc::clone(&self.lent);
        let serve = move || here::serve(&lent, &listener);
        std::thread::Builder::new().name("farside-here".into()).spawn(serve)?;
        Ok(())
    }

    fn lines(&self) -> io::Result<NewLines> {
        let mut known = lock(&self.lines);
        if let Some(lines) = known.as_ref() {
            return Ok(lines.clone());
        }
        let (new, lines) = lines()?;
        let lent = Arc::clone(&self.lent);
        let serve = move || serve(&lent, &lines);
        std::thread::Builder::new().name("farside-device".into()).spawn(serve)?;
        *known = Some(new.clone());
        Ok(new)
    }
}

/// Serves the borrower's clients, for ever.
fn serve(lent: &Lent, lines: &Lines) {
    let mut is_clean = true;
    while let Some(line) = lines.wait() {
        let end = Endpoint::lender(lent.config());
        let mut carried = Carried::new(end, line, lines, &|| true);
        let over = match connect(lent, is_clean) {
            Ok(mut device) => {
                lent.tally.add(Count::Programs, 1);
                let over = carried.carry(&mut device);
                device.finish(carried.end(), &lent.name);
                over
            }
            Err(why) => {
                tracing::error!(lease = lent.name, why, "the device cannot be used");
                carried.carry(&mut Absent)
            }
        };
        is_clean = false;
        match over {
            Over::Side(gone) => {
                tracing::error!(lease = lent.name, why = %gone, "the device is lost");
            }
            over => tracing::info!(lease = lent.name, %over, "a client has gone"),
        }
    }
}

/// Connects to a device, as it is after a reset: whoever lends it has seen to that for the first time.
pub(super) fn connect(lent: &Lent, is_clean: bool) -> Result<DeviceSide, String> {
    if !is_clean {
        reset(&lent.socket, RESET_LIMIT)?;
    }
    let connect = || DeviceSide::connect(&lent.socket, lent.epoch, &lent.tally);
    await_served(RESET_LIMIT, is_absent, connect)
        .map_err(|error| format!("{}: {error}", lent.socket.display()))
}

/// No device: the other end is told so as soon as it is known who that is.
struct Absent;

impl Side for Absent {
    type Gone = Gone;

    fn frame(&mut self, event: Event<'_>) -> Option<Load> {
        if let Event::Posted { load, .. } = event { Some(load) } else { None }
    }

    fn turn(&mut self, link: &mut Endpoint, _: bool) -> Result<(), Gone> {
        if link.is_up() { Err(Gone::Closed) } else { Ok(()) }
    }

    fn has_waiting(&self) -> bool {
        false
    }

    fn polled(&mut self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        Vec::new()
    }
}
