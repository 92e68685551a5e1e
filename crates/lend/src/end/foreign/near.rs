//! The clients' end of a lease of a device of another machine, in its process: one client at a time, over a
//! link of its own, whose connections are made anew when they break.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_link::error::{End, Violation};
use farside_link::{Config, Endpoint, Lease};
use farside_live::far::{Carried, DialLine, Over, Redial, dial, lines};

use super::client_side::ClientSide;
use super::describe::Describing;
use super::here::OneClient;
use crate::end::tally::Tally;

/// How long the lender's end may take to be there for a client. It may still be busy with the one before
/// whose connection was lost.
const BEGIN_LIMIT: Duration = Duration::from_secs(15);
/// How soon it is tried again where another program's link is not over yet.
const PAUSE: Duration = Duration::from_millis(500);

/// See the module.
pub(in crate::end) struct Near {
    name: String,
    config: Config,
    dial: DialLine,
    tally: Arc<Tally>,
    clients: OneClient,
}

impl Near {
    /// For the device of a lease.
    pub(in crate::end) fn new(
        device: String,
        epoch: u64,
        dial: DialLine,
        tally: Arc<Tally>,
    ) -> Near {
        let name = format!("lease {epoch} of {device}");
        let config = Config::new(Lease { device, epoch });
        Near { name, config, dial, tally, clients: OneClient::default() }
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
        let redial = Redial::new(Arc::clone(&self.dial), new);
        loop {
            let line = dial(&self.dial, || Instant::now() < until);
            let line = line.map_err(|error| error.to_string())?;
            let end = Endpoint::borrower(self.config.clone(), session());
            let ask = || redial.start();
            let mut carried = Carried::new(end, line, &lines, &ask);
            let mut describing = Describing::default();
            match carried.carry(&mut describing) {
                Over::Done => {}
                Over::Link(End::Refused(code))
                    if code == Violation::Session.code() && Instant::now() < until =>
                {
                    std::thread::sleep(PAUSE);
                    continue;
                }
                over => return Err(over.to_string()),
            }
            let described = describing.description().ok_or("the lender does not say what it is")?;
            let epoch = self.config.lease.epoch;
            let side = ClientSide::new(client, &described, epoch, Some(&self.tally));
            let mut side = side.map_err(text)?;
            let over = carried.carry(&mut side);
            side.end(carried.end(), &self.name);
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
