//! A host that has a card for programs elsewhere: ends of links beside it, one for each program.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farside::{CardId, CardPlace, Dialled, Space, SpaceBuilder};
use farside_link::{Config, Lease};
use farside_live::far::{Came, FarEnd, FarEndReport, PeerPlace, Sessions, greeted};
use farside_live::ring_card::connect;
use farside_softcard::serve::CardServer;
use farside_vfio_user::unix::Plain;

use super::fragile::{Fragile, Fragility};
use super::neighbours::{Neighbourhood, Ways};
use super::{TempDir, config, place, serve as serve_card, test_kernels};

/// Serves a card of this machine over links; ends when dropped. It listens where a card would, at a
/// socket in a folder, so that a relay can be put in front of it.
#[derive(Debug)]
pub struct FarHost {
    folder: PathBuf,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Other hosts, and how this one is known among them.
    neighbours: Option<(Arc<Neighbourhood>, PeerPlace)>,
    over: AtomicBool,
    made: AtomicU64,
    sessions: Sessions,
    fragile: Arc<Fragility>,
    /// A connection that comes anew is a program that comes anew.
    forgets: AtomicBool,
    ended: Mutex<Vec<(FarEndReport, Option<String>)>>,
}

impl FarHost {
    /// Serves the card in the folder `card`, from a socket in the folder `folder`.
    ///
    /// # Panics
    /// If there can be no socket.
    pub fn start(folder: PathBuf, card: &Path) -> FarHost {
        FarHost::serve(folder, card, State::default())
    }

    /// The same, with direct links between the ends of its programs and those of others.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub fn among(neighbours: &Arc<Neighbourhood>, folder: PathBuf, card: &Path) -> FarHost {
        let host = folder.display().to_string();
        let certificate = host.clone().into_bytes();
        let place = PeerPlace { host, device: String::new(), epoch: 0, certificate };
        let neighbours = Some((Arc::clone(neighbours), place));
        FarHost::serve(folder, card, State { neighbours, ..State::default() })
    }

    fn serve(folder: PathBuf, card: &Path, state: State) -> FarHost {
        std::fs::create_dir_all(&folder).expect("a folder for a socket");
        let listener = UnixListener::bind(folder.join(SOCKET)).expect("a socket");
        let state = Arc::new(state);
        let (accepting, card) = (Arc::clone(&state), card.to_owned());
        std::thread::spawn(move || {
            for program in listener.incoming().flatten() {
                if accepting.over.load(SeqCst) {
                    return;
                }
                accepting.made.fetch_add(1, SeqCst);
                let (state, card) = (Arc::clone(&accepting), card.clone());
                std::thread::spawn(move || serve(program, &card, &state));
            }
        });
        FarHost { folder, state }
    }

    /// Where a relay finds it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The card as a program reaches it.
    pub fn place(&self) -> CardPlace {
        let socket = self.folder.join(SOCKET);
        let dialled = Dialled::new(&format!("link {}", socket.display()), move || {
            Ok(Box::new(Plain::new(UnixStream::connect(&socket)?)) as _)
        });
        CardPlace::Link(match &self.state.neighbours {
            Some((_, place)) => dialled.with_end(place.clone()),
            None => dialled,
        })
    }

    /// Cuts the connection that carries the last of so many bytes more, once: neither end hears a word.
    pub fn cut_after(&self, bytes: u64) {
        self.state.fragile.cut_after(bytes);
    }

    /// How often that has come.
    pub fn cuts(&self) -> u64 {
        self.state.fragile.cuts()
    }

    /// Forgets from here on which program a connection is of.
    pub fn forget_programs(&self) {
        self.state.forgets.store(true, SeqCst);
    }

    /// Connections that were made.
    pub fn connections(&self) -> u64 {
        self.state.made.load(SeqCst)
    }

    /// The connections that have ended: what went through, and why if it was for a reason.
    pub fn ended(&self) -> Vec<(FarEndReport, Option<String>)> {
        self.state.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How long a program may take to come again.
const WITHOUT_CONNECTION: Duration = Duration::from_secs(1);

/// What a relay looks for.
const SOCKET: &str = "fn0.sock";

impl Drop for FarHost {
    fn drop(&mut self) {
        self.state.over.store(true, SeqCst);
        // Lets it look.
        let _ = UnixStream::connect(self.folder.join(SOCKET));
    }
}

fn serve(program: UnixStream, card: &Path, state: &State) {
    let stream = Fragile::new(program, &state.fragile);
    let greeted = greeted(Box::new(stream), Config::new(Lease::none()), Duration::from_secs(5));
    let Ok((mut session, line)) = greeted else { return };
    if state.forgets.load(SeqCst) {
        session = u64::MAX - state.made.load(SeqCst);
    }
    let Ok(Came::First(line, lines)) = state.sessions.came(session, line) else { return };
    // Over the life of a lease, one end after the other has the function.
    let place = CardPlace::Socket(card.to_owned());
    let connected = connect(CardId(0), &place, Duration::from_secs(2));
    let end = connected.ok().and_then(|(card, identity)| FarEnd::new(card, &identity).ok());
    let Some(mut end) = end else { return state.sessions.left(session) };
    if let Some((neighbours, place)) = &state.neighbours {
        end = end.with_peers(Arc::new(Ways::new(neighbours, place)));
    }
    // A program that was killed leaves its function soon.
    let config = Config { without_connection: WITHOUT_CONNECTION, ..Config::new(Lease::none()) };
    let why = end.serve(config, line, &lines).err().map(|error| error.to_string());
    state.sessions.left(session);
    let mut ended = state.ended.lock().unwrap_or_else(PoisonError::into_inner);
    ended.push((end.report(), why));
}

/// A card at the other end of a link, and one of this machine.
#[derive(Debug)]
pub struct FarPair {
    /// Where they are served from.
    pub folder: TempDir,
    /// The card behind the link.
    pub far: CardServer,
    /// The card of this machine.
    pub near: CardServer,
    /// What serves the first.
    pub host: FarHost,
}

impl FarPair {
    /// Serves both.
    #[allow(clippy::new_without_default)]
    pub fn new() -> FarPair {
        let folder = TempDir::new();
        let [far, near] = [0, 1].map(|card| serve_card(config(&folder, card)));
        let host = FarHost::start(folder.join("host"), &far.config().folder);
        FarPair { folder, far, near, host }
    }

    /// A space with the card behind the link, and the other.
    pub fn builder(&self) -> SpaceBuilder {
        builder_at([self.host.place(), place(&self.near)])
    }
}

/// A space with cards at these places, of 64 MiB.
pub fn builder_at(places: impl IntoIterator<Item = CardPlace>) -> SpaceBuilder {
    Space::builder()
        .cards_at(places)
        .address_space(64 << 20)
        .grace(Duration::from_millis(50))
        .kernels(test_kernels())
}
