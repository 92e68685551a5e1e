//! The clients' end of a lease of a device of another machine, in its process: one client at a time, over a
//! link of its own, whose connections are made anew when they break.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farside_link::error::{End, Violation};
use farside_link::line::Line;
use farside_link::{Config, Endpoint, Lease};

use super::carry::{Carried, NewLines, Over, lines};
use super::client_side::ClientSide;
use super::describe::Describing;
use super::here::OneClient;

/// How long the lender's end may take to be there for a client. It may still be busy with the one before
/// whose connection was lost.
const BEGIN_LIMIT: Duration = Duration::from_secs(15);
/// How soon after the first attempt to connect the next is made; then after twice as long each.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Pauses between attempts, at most.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Makes a connection to the lender's end.
pub(in crate::end) type Dial = Arc<dyn Fn() -> io::Result<Line> + Send + Sync>;

/// See the module.
pub(in crate::end) struct Near {
    name: String,
    config: Config,
    dial: Dial,
    clients: OneClient,
}

impl Near {
    /// For the device of a lease.
    pub(in crate::end) fn new(device: String, epoch: u64, dial: Dial) -> Near {
        let name = format!("lease {epoch} of {device}");
        let config = Config::new(Lease { device, epoch });
        Near { name, config, dial, clients: OneClient::default() }
    }

    /// Serves a client in a thread of its own, or tells it that another has the device.
    ///
    /// # Errors
    /// No thread.
    pub(in crate::end) fn take(self: &Arc<Near>, client: UnixStream) -> io::Result<()> {
        let near = Arc::clone(self);
        self.clients.take(client, move |client| {
            if let Err(why) = near.serve(client) {
                tracing::warn!(lease = near.name, why, "a client's connection has ended");
            }
        })
    }

    fn serve(&self, client: UnixStream) -> Result<(), String> {
        let until = Instant::now() + BEGIN_LIMIT;
        let text = |error: io::Error| error.to_string();
        let (new, lines) = lines().map_err(text)?;
        let redial = Redial { dial: Arc::clone(&self.dial), new, state: Arc::default() };
        loop {
            let line = dial(&self.dial, || Instant::now() < until).map_err(text)?;
            let end = Endpoint::borrower(self.config.clone(), session());
            let ask = || redial.start();
            let mut carried = Carried::new(end, line, &lines, &ask);
            let mut describing = Describing::default();
            match carried.carry(&mut describing) {
                Over::Done => {}
                Over::Link(End::Refused(code))
                    if code == Violation::Session.code() && Instant::now() < until =>
                {
                    std::thread::sleep(PAUSE_MAX);
                    continue;
                }
                over => return Err(over.to_string()),
            }
            let described = describing.description().ok_or("the lender does not say what it is")?;
            let side = ClientSide::new(client, &described, self.config.lease.epoch);
            let mut side = side.map_err(text)?;
            let over = carried.carry(&mut side);
            side.end(&self.name);
            return match over {
                Over::Side(super::Gone::Closed) => Ok(()),
                over => Err(over.to_string()),
            };
        }
    }
}

/// A number that no other link of this lease has.
fn session() -> u64 {
    let bytes: [u8; 32] = crate::pki::random();
    u64::from_ne_bytes(bytes[..8].try_into().expect("eight bytes"))
}

/// Connects, again and again, for as long as it is wanted.
fn dial(dial: &Dial, is_wanted: impl Fn() -> bool) -> io::Result<Line> {
    let mut pause = FIRST_PAUSE;
    loop {
        match dial() {
            Ok(line) => return Ok(line),
            Err(error) if !is_wanted() => return Err(error),
            Err(error) => tracing::debug!(%error, "the lender's end is not reached yet"),
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Replaces connections that have broken, beside whoever carries frames.
struct Redial {
    dial: Dial,
    new: NewLines,
    state: Arc<Dialling>,
}

#[derive(Default)]
struct Dialling {
    is_on: AtomicBool,
    is_over: AtomicBool,
}

impl Redial {
    fn start(&self) {
        if self.state.is_on.swap(true, Ordering::SeqCst) {
            return;
        }
        let (dial_by, new, state) =
            (Arc::clone(&self.dial), self.new.clone(), Arc::clone(&self.state));
        let redial = move || {
            let line = dial(&dial_by, || !state.is_over.load(Ordering::SeqCst));
            // From here on another may be asked for.
            state.is_on.store(false, Ordering::SeqCst);
            if let Ok(line) = line {
                new.give(line);
            }
        };
        let started = std::thread::Builder::new().name("farside-dial".into()).spawn(redial);
        if let Err(error) = started {
            // The link is over when it has had no connection for long enough.
            tracing::error!(%error, "no thread to connect to the lender's end");
        }
    }
}

impl Drop for Redial {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
    }
}
