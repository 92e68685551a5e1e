//! The borrower's end of a lease: a process between the programs of this host and the lender's end. It
//! has the key of this one lease, and sends nothing once the lease may not be used any more, by the
//! page that the daemon writes. It ends with the lease, also if its daemon is gone.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use farside_live::far::Line;
use farside_live::lease::{BootTime, Term, Ticket, hand};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};

use super::control::{Kind, receive, send};
use super::plain::Greeting;
use super::pump::{Ended, Pump};
use super::secured::{UNSENT_STRAIGHT_BYTES_MAX, limit_unsent};
use super::tally::{Count, Counted, Refused, Tally, TallyReader};
use super::{foreign, sandbox, secured};
use crate::steps::{self, Step};
use crate::tls::{self, Credentials};

/// The arguments by which this program becomes the borrower's end of a lease.
const ARGUMENTS: [&str; 2] = ["lend", "near-end"];
/// How long the lender's host may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// The term is looked at so often while nothing happens: it may end early.
const LOOK: Duration = Duration::from_millis(20);
/// Connections of the programs at a time, at most.
const CONNECTIONS_MAX: u32 = farside_softcard::serve::FUNCTIONS_MAX as u32;

/// A lease that was granted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NearBegin {
    /// Its folder.
    pub(crate) folder: PathBuf,
    /// The device's name at its lender, what it is, and the lease's epoch.
    pub(crate) device: String,
    pub(crate) kind: Kind,
    pub(crate) epoch: u64,
    /// Where the lender listens.
    pub(crate) address: SocketAddr,
    /// The name by which it leads a connection to the end of this lease.
    pub(crate) link: String,
    /// The certificate that the lender's end shows, DER.
    pub(crate) peer: Vec<u8>,
    /// What this end shows, DER, and its key.
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
    /// What it says instead, in a lease whose data goes without TLS.
    pub(crate) plain: Option<Greeting>,
}

/// The descriptor beside this is where the end counts: the packet behind its [`NearBegin`].
#[derive(Serialize, Deserialize)]
struct CountThere;

/// The process of a borrower's end; ends when dropped.
#[derive(Debug)]
pub(crate) struct NearEnd {
    process: Child,
    tally: TallyReader,
}

impl NearEnd {
    /// Starts it. Programs find it in the folder of the lease.
    pub(crate) fn start(begin: &NearBegin) -> io::Result<NearEnd> {
        let name = match (begin.kind, &begin.plain) {
            (Kind::Foreign, _) => Ticket::DEVICE,
            (Kind::Card, None) => Ticket::LINK,
            (Kind::Card, Some(_)) => Ticket::PLAIN,
        };
        let listener = UnixListener::bind(begin.folder.join(name))?;
        let kind = SocketType::SEQPACKET;
        let (own, its) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        let tally = TallyReader::new().map_err(io::Error::other)?;
        let process = Command::new("/proc/self/exe")
            .args(ARGUMENTS)
            .stdin(Stdio::from(its))
            .stdout(Stdio::null())
            .spawn()?;
        let end = NearEnd { process, tally };
        send(own.as_fd(), begin, Some(listener.as_fd()))?;
        send(own.as_fd(), &CountThere, Some(end.tally.file()))?;
        Ok(end)
    }

    /// What it has counted so far, also when it is gone.
    pub(crate) fn counted(&self) -> Counted {
        self.tally.read()
    }

    /// Kills it, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for NearEnd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Serves the programs of one lease. Standard input is the socket on which the daemon says which.
pub fn run() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the borrower's end of a lease fails");
            ExitCode::FAILURE
        }
    }
}

struct Lease {
    begin: NearBegin,
    term: Term,
    config: Arc<rustls::ClientConfig>,
    open: AtomicU32,
    tally: Arc<Tally>,
}

fn serve() -> io::Result<()> {
    let Some((begin, Some(listener))) = receive::<NearBegin>(io::stdin())? else {
        return Err(io::Error::other("the daemon does not say for which lease this is"));
    };
    let Some((CountThere, Some(tally))) = receive(io::stdin())? else {
        return Err(io::Error::other("the daemon does not say where this counts"));
    };
    let tally = Tally::of(tally).map_err(io::Error::other)?;
    let lease = Arc::new(Lease::of(begin, tally)?);
    let listener = UnixListener::from(listener);
    listener.set_nonblocking(true)?;
    steps::begin();
    sandbox::of_borrower()?;
    let foreign = (lease.begin.kind == Kind::Foreign).then(|| lease.foreign());
    steps::at(Step::NearEndReady);
    while let Some(left) = lease.left() {
        let mut polled = [PollFd::new(&listener, PollFlags::IN)];
        let pause = Timespec::try_from(left).ok();
        // Every outcome means: look.
        let _ = poll(&mut polled, pause.as_ref());
        match listener.accept() {
            Ok((near, _)) => match &foreign {
                Some(device) => device.take(near)?,
                None => lease.connect(near)?,
            },
            Err(error) if is_later(&error) => {}
            Err(error) => return Err(error),
        }
    }
    // Its connections end with this process.
    Ok(())
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl Lease {
    fn of(begin: NearBegin, tally: Tally) -> io::Result<Lease> {
        let own = Credentials { certificate: begin.certificate.clone(), key: begin.key.clone() };
        let config = tls::client(&own, &begin.peer).map_err(io::Error::other)?;
        let term = Term::open(&begin.folder.join(Term::FILE))?;
        Ok(Lease { begin, term, config, open: AtomicU32::new(0), tally: Arc::new(tally) })
    }

    fn left(&self) -> Option<Duration> {
        self.term.left(BootTime::now()).map(|left| left.min(LOOK))
    }

    /// Carries what a program says to the lender's end, in a thread of its own.
    fn connect(self: &Arc<Self>, near: UnixStream) -> io::Result<()> {
        if self.open.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX {
            self.open.fetch_sub(1, Ordering::SeqCst);
            self.tally.add(Count::Refused(Refused::Program), 1);
            // It sees that it is hung up on.
            return Ok(());
        }
        let lease = Arc::clone(self);
        let carry = move || {
            steps::at(Step::ProgramConnects);
            let folder = lease.begin.folder.display();
            match lease.carry(&near) {
                Ok(Ended::HungUp | Ended::PeerHungUp | Ended::Over) => {}
                Ok(how) => tracing::warn!(lease = %folder, "a connection has ended: {how}"),
                Err(error) => tracing::warn!(lease = %folder, %error, "no connection"),
            }
            lease.open.fetch_sub(1, Ordering::SeqCst);
        };
        std::thread::Builder::new().name("farside-link".into()).spawn(carry)?;
        Ok(())
    }

    fn carry(&self, near: &UnixStream) -> io::Result<Ended> {
        let (far, tls) = match self.dial() {
            Ok(dialled) => dialled,
            Err(error) if self.begin.plain.is_some() => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                hand(near.as_fd(), Err(errno))?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        let Some(tls) = tls else {
            // There is nothing to be done to what a program says: it gets the connection itself.
            limit_unsent(&far, UNSENT_STRAIGHT_BYTES_MAX)?;
            hand(near.as_fd(), Ok(far.into()))?;
            return Ok(Ended::HungUp);
        };
        Ok(Pump::new(tls, &far, near)?.run(|| self.left()))
    }

    /// What clients of a device that is no card are served by.
    fn foreign(self: &Arc<Self>) -> Arc<foreign::Near> {
        let NearBegin { device, epoch, .. } = &self.begin;
        let lease = Arc::clone(self);
        let dial = move || {
            let (far, tls) = lease.dial()?;
            Ok(Line::new(secured::stream(far, tls, CONNECT_LIMIT)?)?)
        };
        let tally = Arc::clone(&self.tally);
        Arc::new(foreign::Near::new(device.clone(), *epoch, Arc::new(dial), tally))
    }

    /// Connects to the lender's end; TLS is not agreed on yet.
    fn dial(&self) -> io::Result<(TcpStream, Option<rustls::Connection>)> {
        let far = TcpStream::connect_timeout(&self.begin.address, CONNECT_LIMIT)?;
        if let Some(greeting) = &self.begin.plain {
            greeting.say(&far)?;
            return Ok((far, None));
        }
        let tls = self.tls()?.into();
        Ok((far, Some(tls)))
    }

    fn tls(&self) -> io::Result<ClientConnection> {
        let name = ServerName::try_from(self.begin.link.clone()).map_err(io::Error::other)?;
        let client = ClientConnection::new(Arc::clone(&self.config), name);
        client.map_err(io::Error::other)
    }
}
