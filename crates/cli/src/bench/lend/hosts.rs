//! Two hosts on this machine, one of which lends a card to the other, and their processes.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farside::CardPlace;
use farside_lend::home::{HOME_VARIABLE, Home, Peer, Settings};
use farside_lend::proto::borrow_for_event::Event;
use farside_lend::proto::device::State;
use farside_lend::proto::{
    AvailableRequest, BorrowForRequest, HostDevices, JoinPeersRequest, Lent, StatusRequest,
    UpReply, UpRequest,
};
use farside_lend::{Borrowing, Client};
use farside_linux::lock::lock;
use farside_live::lease::Ticket;
use rustix::process::{
    Pid, Signal, getppid, kill_process, kill_process_group, set_parent_process_death_signal,
};

use super::super::card_process::ticks_of_family;
use super::super::{BenchError, pin, two_cpus};
use crate::commands::EndSignals;

/// How long a process may take to be there, and a device to be free again.
pub(super) const LIMIT: Duration = Duration::from_secs(20);
/// How often it is looked whether it is.
const LOOK: Duration = Duration::from_millis(2);
/// Memory of each card.
pub(super) const CARD_BYTES: u64 = 96 << 20;

/// Processes that end with the measurement, each with all that it starts, and the folder they work in.
struct Processes {
    /// Nothing once all are ended: no other is started then.
    children: Mutex<Option<Vec<Child>>>,
    folder: PathBuf,
}

fn signal(leader: u32, signal: Signal) {
    // Nobody is left to be told if it fails.
    let _ = Pid::from_raw(leader as i32).map(|pid| kill_process_group(pid, signal));
}

impl Processes {
    fn make_folder(&self) -> Result<(), BenchError> {
        let children = lock(&self.children);
        children.as_ref().ok_or_else(|| failed("it is being ended"))?;
        Ok(std::fs::create_dir_all(&self.folder)?)
    }

    /// Starts this program with these arguments, as the first of a group of its own.
    fn start(&self, home: &str, args: &[&str]) -> Result<u32, BenchError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(args).env_remove(farside::CARDS_VARIABLE);
        command.env(HOME_VARIABLE, self.folder.join(home)).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        end_with_this_thread(&mut command);
        let mut children = lock(&self.children);
        let children = children.as_mut().ok_or_else(|| failed("it is being ended"))?;
        let child = command.spawn()?;
        let leader = child.id();
        children.push(child);
        Ok(leader)
    }

    /// Ends one of them.
    fn kill(&self, leader: u32) {
        let mut children = lock(&self.children);
        // It is forgotten, since its number may be another's from here on.
        children.iter_mut().for_each(|children| {
            children.retain_mut(|child| {
                let is_it = child.id() == leader;
                if is_it {
                    end(child);
                }
                !is_it
            });
        });
    }

    /// Ends them all; `false` if that was done before. Whoever else calls this waits until it is done.
    fn end(&self) -> bool {
        let mut children = lock(&self.children);
        let Some(mut ending) = children.take() else { return false };
        ending.iter_mut().for_each(end);
        let _ = std::fs::remove_dir_all(&self.folder);
        true
    }
}

/// Has a child killed when the thread that starts it ends: also when this program is killed, which then ends
/// nothing itself. That thread is the one that measures.
fn end_with_this_thread(command: &mut Command) {
    let parent = std::process::id();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have ended before that.
        match getppid() {
            Some(now) if now.as_raw_nonzero().get().unsigned_abs() == parent => Ok(()),
            _ => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    };
    // SAFETY: it makes two system calls, and takes no lock and no memory.
    unsafe { command.pre_exec(ask) };
}

fn end(child: &mut Child) {
    signal(child.id(), Signal::KILL);
    // It is gone, or is about to be.
    let _ = child.wait();
}

/// Ends the processes when it is dropped.
struct Guard(Arc<Processes>);

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.0.end() {
            // A signal has come: the thread that got it ends this program, and says nothing of what
            // went wrong meanwhile.
            loop {
                std::thread::park();
            }
        }
    }
}

/// See the module. Everything ends when this is dropped, or at SIGINT and SIGTERM.
pub(super) struct Hosts {
    processes: Guard,
    lender: u32,
    borrower: u32,
    server: usize,
}

impl Hosts {
    /// The lender, with one card, and the borrower, which has joined it.
    pub(super) fn start() -> Result<Hosts, BenchError> {
        let folder = std::env::temp_dir().join(format!("fsl{}", std::process::id()));
        let children = Mutex::new(Some(Vec::new()));
        let processes = Guard(Arc::new(Processes { children, folder }));
        end_at_signals(&processes.0)?;
        processes.0.make_folder()?;
        let (program, server) = two_cpus();
        let on_its_own = |cpu, host| {
            let _pinned = pin(cpu);
            processes.0.start(host, &["lend", "daemon"])
        };
        let lender = on_its_own(server, "a")?;
        let borrower = on_its_own(program, "b")?;
        let hosts = Hosts { processes, lender, borrower, server };
        {
            let _pinned = pin(server);
            hosts.serve_card("card0")?;
        }
        hosts.join()?;
        Ok(hosts)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.processes.0.folder.join(name)
    }

    /// The processor of the lender's side.
    pub(super) fn server_cpu(&self) -> usize {
        self.server
    }

    /// The processes of the lender's and the borrower's daemon.
    pub(super) fn daemons(&self) -> [u32; 2] {
        [self.lender, self.borrower]
    }

    /// Starts a daemon of another host, which knows so many others that do not answer. Gives its process.
    pub(super) fn start_daemon(&self, host: &str, peers: usize) -> Result<u32, BenchError> {
        let home = Home::at(&self.path(host));
        home.make()?;
        // Nobody listens at such a port.
        let peer =
            |number| Peer { host: format!("peer{number}"), address: "127.0.0.1:1".to_owned() };
        let peers = (0..peers).map(peer).collect();
        home.keep(&Settings { peers, ..Settings::default() })?;
        let pid = self.processes.0.start(host, &["lend", "daemon"])?;
        self.client(host)?;
        Ok(pid)
    }

    /// Where they work.
    pub(super) fn folder(&self) -> &Path {
        &self.processes.0.folder
    }

    /// Serves a card beside the lender's, on this thread's processor.
    pub(super) fn serve_card(&self, name: &str) -> Result<CardPlace, BenchError> {
        let folder = self.path(name);
        let text = folder.to_str().ok_or_else(|| failed("the temporary folder is no text"))?;
        let memory = format!("{}KiB", CARD_BYTES >> 10);
        let args = ["card", "serve", text, "--functions", "1", "--memory", &memory];
        self.processes.0.start(name, &args)?;
        until("the card is not served", || {
            Ok(farside_softcard::serve::read_status(&folder).ok().map(drop))
        })?;
        Ok(CardPlace::Socket(folder))
    }

    /// The daemon of a host.
    fn client(&self, host: &str) -> Result<Client, BenchError> {
        let home = Home::at(&self.path(host));
        until("a lending daemon does not start", || Ok(Client::find(&home)?))
    }

    fn up(&self, request: UpRequest) -> Result<UpReply, BenchError> {
        self.up_at("a", request)
    }

    fn up_at(&self, host: &str, request: UpRequest) -> Result<UpReply, BenchError> {
        let mut client = self.client(host)?;
        Ok(client.call(request, |mut local, request| async move { local.up(request).await })?)
    }

    /// The lender's leases run so long from now on.
    pub(super) fn set_lease(&self, lease: Duration) -> Result<(), BenchError> {
        let duration_ns = lease.as_nanos() as u64;
        self.up(UpRequest { duration_ns, ..UpRequest::default() }).map(drop)
    }

    /// The lender lends its card, and the borrower joins it.
    fn join(&self) -> Result<(), BenchError> {
        let path = self.path("card0").to_str().unwrap_or_default().to_owned();
        let up = self.up(UpRequest {
            listen: "127.0.0.1:0".to_owned(),
            devices: vec![Lent { name: "card0".to_owned(), path }],
            name: "a".to_owned(),
            ..UpRequest::default()
        })?;
        self.join_as("b", up)
    }

    /// A host joins the lender, by what that has said.
    fn join_as(&self, host: &str, up: UpReply) -> Result<(), BenchError> {
        let UpReply { address, token, .. } = up;
        let request = JoinPeersRequest { address, token, name: host.to_owned() };
        self.client(host)?
            .call(request, |mut local, request| async move { local.join_peers(request).await })?;
        Ok(())
    }

    /// Another lender, with a card, on the processor of the first; the borrower knows it when this returns.
    pub(super) fn start_lender(&self, host: &str, card: &str) -> Result<(), BenchError> {
        let _pinned = pin(self.server);
        self.processes.0.start(host, &["lend", "daemon"])?;
        self.serve_card(card)?;
        self.join_as(host, self.up(UpRequest::default())?)?;
        let path = self.path(card).to_str().unwrap_or_default().to_owned();
        let devices = vec![Lent { name: card.to_owned(), path }];
        let listen = "127.0.0.1:0".to_owned();
        self.up_at(host, UpRequest { listen, devices, ..UpRequest::default() })?;
        let mut client = self.client("b")?;
        until("the borrower does not hear of the other lender", || {
            let request = AvailableRequest {};
            let known = client.call(request, |mut local, request| async move {
                local.available(request).await
            })?;
            let is_it = |known: &HostDevices| known.host == host && !known.devices.is_empty();
            Ok(known.hosts.iter().any(is_it).then_some(()))
        })
    }

    /// Lends one more device of the lender's, and waits until it is free.
    pub(super) fn lend(&self, name: &str, path: &Path) -> Result<(), BenchError> {
        let path = path.to_str().unwrap_or_default().to_owned();
        let devices = vec![Lent { name: name.to_owned(), path }];
        self.up(UpRequest { devices, ..UpRequest::default() }).map(drop)
    }

    /// Borrows the card for somebody of `host`, once it is free. Gives its place; it is given back when
    /// what is beside it is dropped.
    pub(super) fn borrow(&self, host: &str) -> Result<(Borrowing, CardPlace), BenchError> {
        self.borrow_card(host, "card0@a")
    }

    /// The same of any card of any lender.
    pub(super) fn borrow_card(
        &self,
        host: &str,
        card: &str,
    ) -> Result<(Borrowing, CardPlace), BenchError> {
        let (borrowing, place) = self.borrow_place(host, card)?;
        let place = place.parse().map_err(|error| failed(&format!("{error}")))?;
        Ok((borrowing, place))
    }

    /// Has both hosts name this machine's own network as one whose data goes without TLS, or none.
    pub(super) fn name_networks_without_tls(&self, named: bool) -> Result<(), BenchError> {
        let networks = if named { "\"127.0.0.0/8\"" } else { "" };
        let text = format!("version = 1\nplain-networks = [{networks}]\n");
        for (host, daemon) in [("a", self.lender), ("b", self.borrower)] {
            std::fs::write(self.path(host).join("lend.toml"), &text)?;
            // The daemon alone: what it has started knows no such signal.
            let daemon = Pid::from_raw(daemon as i32).ok_or_else(|| failed("a daemon is gone"))?;
            kill_process(daemon, Signal::HUP).map_err(io::Error::from)?;
        }
        Ok(())
    }

    /// Borrows the card as soon as both hosts agree on whether its data goes without TLS.
    pub(super) fn borrow_by(
        &self,
        host: &str,
        is_plain: bool,
    ) -> Result<(Borrowing, CardPlace), BenchError> {
        until("the hosts do not read what was written anew", || {
            let (borrowing, place) = self.borrow(host)?;
            let CardPlace::Lease(folder) = &place else { return Err(failed("it is no lease")) };
            let is_so = folder.join(Ticket::PLAIN).exists() == is_plain;
            Ok(is_so.then_some((borrowing, place)))
        })
    }

    /// The same with a device that is no card: gives its socket.
    pub(super) fn borrow_device(
        &self,
        host: &str,
        device: &str,
    ) -> Result<(Borrowing, PathBuf), BenchError> {
        let (borrowing, socket) = self.borrow_place(host, &format!("{device}@a"))?;
        Ok((borrowing, socket.into()))
    }

    fn borrow_place(&self, host: &str, device: &str) -> Result<(Borrowing, String), BenchError> {
        let wait_ns = LIMIT.as_nanos() as u64;
        let request = BorrowForRequest { devices: vec![device.to_owned()], wait_ns, any: 0 };
        let mut borrowing = self.client(host)?.borrow(request)?;
        let end = Instant::now() + LIMIT;
        while Instant::now() < end {
            let event = borrowing.next(LIMIT)?.and_then(|event| event.event);
            if let Some(Event::Borrowed(borrowed)) = event {
                let lease = borrowed.leases.first().ok_or_else(|| failed("no lease was given"))?;
                return Ok((borrowing, lease.place.clone()));
            }
        }
        Err(failed("a device was not granted in time"))
    }

    /// A command of the borrower's host that holds the card. Gives its process.
    pub(super) fn hold(&self) -> Result<u32, BenchError> {
        let leader = self.processes.0.start("b", &["borrow", "card0@a", "--wait", "10"])?;
        let mut client = self.client("a")?;
        until("the card is not borrowed", || {
            Ok((state(&mut client)? == State::Lent).then_some(()))
        })?;
        Ok(leader)
    }

    /// Ends a command without a word.
    pub(super) fn kill(&self, leader: u32) {
        self.processes.0.kill(leader);
    }

    /// Has the borrower's host, and a command of it, stand still or go on.
    pub(super) fn signal_borrower(&self, command: u32, what: Signal) {
        signal(self.borrower, what);
        signal(command, what);
    }

    /// Waits until the card can be borrowed; gives the time since `begun`.
    pub(super) fn await_free(&self, begun: Instant) -> Result<Duration, BenchError> {
        let mut client = self.client("a")?;
        until("the card is not free again", || {
            let is_free = state(&mut client)? == State::Free;
            Ok(is_free.then(|| begun.elapsed()))
        })
    }

    /// Processor time of both hosts and all cards so far, in seconds.
    pub(super) fn processor_time(&self) -> f64 {
        let leaders: Vec<u32> =
            lock(&self.processes.0.children).iter().flatten().map(Child::id).collect();
        let ticks: u64 = leaders.into_iter().map(ticks_of_family).sum();
        // Linux tells programs of hundredths of a second, whatever it counts itself.
        ticks as f64 / 100.0
    }
}

/// Ends everything, and this program, at the signals that people send.
fn end_at_signals(processes: &Arc<Processes>) -> io::Result<()> {
    let signals = EndSignals::block();
    let processes = Arc::downgrade(processes);
    let wait = move || {
        if signals.wait(|| true).is_some() {
            // Whoever touches memory of a card that is ended now gets no further.
            // SAFETY: the handler calls nothing but `pause`, which a handler may.
            unsafe { libc::signal(libc::SIGBUS, stand_still as *const () as libc::sighandler_t) };
            if let Some(processes) = processes.upgrade() {
                processes.end();
            }
            std::process::exit(130);
        }
    };
    std::thread::Builder::new().name("farside-signals".into()).spawn(wait).map(drop)
}

extern "C" fn stand_still(_signal: libc::c_int) {
    loop {
        // SAFETY: it has no conditions.
        unsafe { libc::pause() };
    }
}

fn state(client: &mut Client) -> Result<State, BenchError> {
    let request = StatusRequest {};
    let status =
        client.call(request, |mut local, request| async move { local.status(request).await })?;
    let state = status.devices.first().map(farside_lend::proto::Device::state);
    match state {
        Some(State::Quarantined) => Err(failed("the card did not reset and is quarantined")),
        state => Ok(state.unwrap_or_default()),
    }
}

/// Looks until there is something.
fn until<T>(
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>, BenchError>,
) -> Result<T, BenchError> {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() >= end {
            return Err(failed(what));
        }
        std::thread::sleep(LOOK);
    }
}

pub(super) fn failed(what: &str) -> BenchError {
    BenchError::Failed(what.to_owned())
}
