//! A command of this host and its daemon: started in the background if it does not run.

use std::future::Future;
use std::io::{self, BufRead};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Response, Status, Streaming};
use tower::service_fn;

use crate::LendError;
use crate::home::Home;
use crate::proto::local_client::LocalClient;
use crate::proto::{BorrowForEvent, BorrowForRequest, borrow_for_event};

/// The arguments by which this program becomes the daemon.
const ARGUMENTS: [&str; 2] = ["lend", "daemon"];
/// How long it may take to answer.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How many daemons, one after the other, are asked the same thing that none answers.
const DAEMONS_MAX: u32 = 3;

/// See the module. Its calls wait for the answer.
#[derive(Debug)]
pub struct Client {
    home: Home,
    runtime: Runtime,
    local: LocalClient<Channel>,
}

impl Client {
    /// The daemon that runs; `None` if none does.
    ///
    /// # Errors
    /// It cannot be spoken to.
    pub fn find(home: &Home) -> Result<Option<Client>, LendError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(LendError::system("starting to talk to the daemon"))?;
        let path = home.socket();
        let connect = service_fn(move |_: Uri| {
            let path = path.clone();
            async move { Ok::<_, io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
        });
        let endpoint = Endpoint::from_static("http://daemon");
        match runtime.block_on(endpoint.connect_with_connector(connect)) {
            Ok(channel) => {
                let local = LocalClient::new(channel);
                Ok(Some(Client { home: home.clone(), runtime, local }))
            }
            Err(error) => match cause(&error).map(io::Error::kind) {
                // The last of them, and an error without one of the system below it: it is ending.
                None
                | Some(
                    io::ErrorKind::NotFound
                    | io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::NotConnected,
                ) => Ok(None),
                Some(io::ErrorKind::PermissionDenied) => Err(LendError::Refused(format!(
                    "this user may not talk to the lending daemon at {}",
                    home.socket().display()
                ))),
                Some(cause) => Err(LendError::Refused(format!(
                    "the lending daemon cannot be reached at {}: {cause}",
                    home.socket().display()
                ))),
            },
        }
    }

    /// The daemon, started if it does not run.
    ///
    /// # Errors
    /// It does not start, or cannot be spoken to.
    pub fn open(home: &Home) -> Result<Client, LendError> {
        if let Some(client) = Client::find(home)? {
            return Ok(client);
        }
        home.make()?;
        start(home)?;
        let end = Instant::now() + START_LIMIT;
        loop {
            if let Some(client) = Client::find(home)? {
                return Ok(client);
            }
            if Instant::now() >= end {
                return Err(not_started(home));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Calls the daemon, once: for what is not to be done twice. A daemon that has just ended may still
    /// be reached, and then does not answer.
    ///
    /// # Errors
    /// What it says, or that it has ended.
    pub fn call<Q, A, F>(
        &mut self,
        request: Q,
        call: impl FnOnce(LocalClient<Channel>, Request<Q>) -> F,
    ) -> Result<A, LendError>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        Ok(self.called(request, call).map_err(|status| said(&status, UNANSWERED))?.into_inner())
    }

    /// Calls the daemon, and one that is started in its place if it ends without an answer: for what may
    /// be done twice.
    ///
    /// # Errors
    /// What it says, or that several have ended.
    pub fn ask<Q: Clone, A, F>(
        &mut self,
        request: Q,
        call: impl Fn(LocalClient<Channel>, Request<Q>) -> F,
    ) -> Result<A, LendError>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let mut daemons = 1;
        loop {
            match self.called(request.clone(), &call) {
                Err(status) if has_ended(&status) && daemons < DAEMONS_MAX => {
                    *self = Client::open(&self.home)?;
                    daemons += 1;
                }
                answer => {
                    return Ok(answer.map_err(|status| said(&status, UNANSWERED))?.into_inner());
                }
            }
        }
    }

    fn called<Q, A, F>(
        &self,
        request: Q,
        call: impl FnOnce(LocalClient<Channel>, Request<Q>) -> F,
    ) -> Result<Response<A>, Status>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        self.runtime.block_on(call(self.local.clone(), Request::new(request)))
    }

    /// Borrows devices, for as long as what this gives is held. If the daemon ends before it has
    /// granted them, the next one is asked.
    ///
    /// # Errors
    /// What the daemon says.
    pub fn borrow(mut self, request: BorrowForRequest) -> Result<Borrowing, LendError> {
        let until = Instant::now() + Duration::from_nanos(request.wait_ns);
        let events = self.events(&request)?;
        Ok(Borrowing { client: self, events, request, until, granted: false, daemons: 1 })
    }

    fn events(
        &mut self,
        request: &BorrowForRequest,
    ) -> Result<Streaming<BorrowForEvent>, LendError> {
        let borrow = |mut local: LocalClient<Channel>, request| async move {
            local.borrow_for(request).await
        };
        self.ask(request.clone(), borrow)
    }
}

/// Devices that are being borrowed; given back when this is dropped.
#[derive(Debug)]
pub struct Borrowing {
    client: Client,
    events: Streaming<BorrowForEvent>,
    /// What was asked for.
    request: BorrowForRequest,
    /// How long to wait for it.
    until: Instant,
    granted: bool,
    /// How many were asked.
    daemons: u32,
}

impl Borrowing {
    /// What happens next, within `limit`; `None` if nothing did.
    ///
    /// # Errors
    /// The daemon refuses, or is gone.
    pub fn next(&mut self, limit: Duration) -> Result<Option<BorrowForEvent>, LendError> {
        let Borrowing { client, events, .. } = self;
        let next =
            client.runtime.block_on(async { tokio::time::timeout(limit, events.message()).await });
        let gone = match next {
            Err(_) => return Ok(None),
            Ok(Ok(Some(event))) => {
                self.granted |= matches!(event.event, Some(borrow_for_event::Event::Borrowed(_)));
                return Ok(Some(event));
            }
            Ok(Ok(None)) => LendError::Refused(GONE.to_owned()),
            Ok(Err(status)) if has_ended(&status) => said(&status, GONE),
            Ok(Err(status)) => return Err(said(&status, GONE)),
        };
        // What was borrowed went with the daemon. Where nothing was, another can be asked.
        if self.granted || self.daemons >= DAEMONS_MAX {
            return Err(gone);
        }
        self.daemons += 1;
        self.client = Client::open(&self.client.home)?;
        let left = self.until.saturating_duration_since(Instant::now());
        self.request.wait_ns = left.as_nanos() as u64;
        self.events = self.client.events(&self.request)?;
        Ok(None)
    }
}

/// What becomes of leases whose daemon has ended.
const GONE: &str =
    "the lending daemon of this host has ended, and what it had borrowed with it; borrow again";
/// What becomes of a request.
const UNANSWERED: &str = "the lending daemon of this host has ended before it answered; see with \
                          `farside who` whether it has done this, and say it again if not";

/// Whether a call failed because the daemon is not there any more.
fn has_ended(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

/// Why a call failed: the daemon says so, or has ended.
fn said(status: &Status, ended: &str) -> LendError {
    let why = if has_ended(status) { ended } else { status.message() };
    LendError::Refused(why.to_owned())
}

/// The error of the system below those of libraries.
fn cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        at = error.source();
    }
    None
}

/// Starts the daemon in the background.
fn start(home: &Home) -> Result<(), LendError> {
    let path = home.log();
    let log = std::fs::File::options().create(true).append(true).mode(0o600).open(&path);
    let log = log.map_err(|error| LendError::file(&path, error))?;
    let started = Command::new("/proc/self/exe")
        .args(ARGUMENTS)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        // What ends the command at its terminal is not meant for it.
        .process_group(0)
        .current_dir("/")
        .spawn();
    started.map(drop).map_err(LendError::system("starting the lending daemon"))
}

fn not_started(home: &Home) -> LendError {
    let log = home.log();
    let lines = std::fs::File::open(&log).map(|file| io::BufReader::new(file).lines());
    let last = lines.ok().and_then(|lines| lines.map_while(Result::ok).last());
    LendError::NotStarted { log, why: last.unwrap_or_else(|| "it says nothing".to_owned()) }
}
