//! Where a card is: words of the command line and of configuration files.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_types::CardId;
use thiserror::Error;

use super::by_link::ByLink;
use super::calls::ConnectError;
use super::link::{Identity, identify};
use super::messages::{ByMessages, Dialled};
use super::transport::{Transport, TransportError};
use super::vfio_user::VfioUser;
use crate::error::LiveError;
use crate::lease::is_here;

/// Where a card is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CardPlace {
    /// In the program, with this many frames of memory.
    InProgram {
        /// Frames of 4 KiB.
        frames: u32,
    },
    /// A function of a card that a process serves: its socket, or the card's folder, of which the
    /// first function that is free is taken.
    Socket(PathBuf),
    /// The same without a byte of shared memory, all by messages (`messages:/run/farside/card0`): as a
    /// card is reached by a stream without descriptors. Slow; the results are the same.
    Messages(PathBuf),
    /// A card at the other end of streams that somebody makes, without descriptors, such as TCP.
    Stream(Dialled),
    /// A card that is borrowed: the folder of its lease (`lease:/run/farside/card0@a`), which
    /// `farside borrow` makes.
    Lease(PathBuf),
    /// A card at the other end of a link, beside which a [`FarEnd`](crate::far::FarEnd) serves it: streams
    /// that somebody makes, without descriptors. Rings and pages travel by themselves, so that it is fast.
    Link(Dialled),
    /// A device of the kernel's VFIO, by its PCI address (`0000:00:04.0`).
    Vfio(String),
}

/// A place that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{text}` names no card: give the folder or the socket of a card that `farside card serve` \
     serves, messages: in front of it to share no memory with the card, or vfio:0000:00:04.0"
)]
pub struct PlaceError {
    /// What was given.
    pub text: String,
}

/// What a place that is reached by messages begins with.
const MESSAGES: &str = "messages:";
/// What the place of a borrowed card begins with.
const LEASE: &str = "lease:";

impl FromStr for CardPlace {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<CardPlace, PlaceError> {
        if let Some(address) = text.strip_prefix("vfio:").filter(|address| !address.is_empty()) {
            return Ok(CardPlace::Vfio(address.to_owned()));
        }
        if let Some(path) = text.strip_prefix(MESSAGES).filter(|path| path.contains('/')) {
            return Ok(CardPlace::Messages(PathBuf::from(path)));
        }
        if let Some(path) = text.strip_prefix(LEASE).filter(|path| path.contains('/')) {
            return Ok(CardPlace::Lease(PathBuf::from(path)));
        }
        if text.contains('/') && ![MESSAGES, LEASE].iter().any(|&kind| text.starts_with(kind)) {
            return Ok(CardPlace::Socket(PathBuf::from(text)));
        }
        Err(PlaceError { text: text.to_owned() })
    }
}

impl std::fmt::Display for CardPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CardPlace::InProgram { .. } => f.write_str("in the program"),
            CardPlace::Socket(path) => write!(f, "{}", path.display()),
            CardPlace::Messages(path) => write!(f, "{MESSAGES}{}", path.display()),
            CardPlace::Stream(stream) | CardPlace::Link(stream) => stream.fmt(f),
            CardPlace::Lease(path) => write!(f, "{LEASE}{}", path.display()),
            CardPlace::Vfio(address) => write!(f, "vfio:{address}"),
        }
    }
}

/// The sockets of a card's functions, in order, if `path` is its folder; else the path itself.
pub(crate) fn sockets(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    (0..u32::from(farside_softcard::serve::FUNCTIONS_MAX))
        .map(|function| path.join(farside_softcard::serve::socket_name(function)))
        // What may not be looked at is there: the way to it says what is wrong.
        .take_while(|socket| socket.try_exists().unwrap_or(true))
        .collect()
}

/// How long a card may take for all that is asked of it in one go: what it is, or everything from its
/// reset to its start.
pub(super) const SETUP_LIMIT: Duration = Duration::from_secs(8);

/// Connects to a card and sees what it is. Functions that are in use are passed over; while all
/// are, this tries again until `patience` is over.
///
/// # Errors
/// [`LiveError::CardAbsent`], [`LiveError::CardsBusy`], [`LiveError::Card`].
pub fn connect(
    card: CardId,
    place: &CardPlace,
    patience: Duration,
) -> Result<(Arc<dyn Transport>, Identity), LiveError> {
    let end = Instant::now() + patience;
    loop {
        match connect_once(card, place) {
            Err(error) if error.may_pass() && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return other,
        }
    }
}

fn connect_once(
    card: CardId,
    place: &CardPlace,
) -> Result<(Arc<dyn Transport>, Identity), LiveError> {
    let transport: Arc<dyn Transport> = match place {
        CardPlace::Socket(path) => Arc::new(free_function(card, place, path, VfioUser::connect)?),
        CardPlace::Messages(path) => {
            Arc::new(free_function(card, place, path, ByMessages::connect)?)
        }
        CardPlace::Stream(stream) => {
            let connected = ByMessages::dial(stream);
            Arc::new(connected.map_err(|error| no_connection(card, place, error))?)
        }
        CardPlace::Lease(folder) => {
            borrowed(folder).map_err(|error| no_connection(card, place, error))?
        }
        CardPlace::Link(stream) => {
            let connected = ByLink::dial(stream);
            Arc::new(connected.map_err(|error| no_connection(card, place, error))?)
        }
        CardPlace::Vfio(address) => {
            Arc::new(super::vfio::open(address).map_err(|error| LiveError::Vfio { card, error })?)
        }
        CardPlace::InProgram { .. } => {
            let what = "a card in the program is part of it, and nothing connects to it; give the \
                        place of a card that is served";
            let error = TransportError::Unfit { what: what.to_owned() };
            return Err(LiveError::Card { card, error });
        }
    };
    transport.limit(Some(Instant::now() + SETUP_LIMIT));
    let identity = identify(transport.as_ref()).map_err(|error| LiveError::Card { card, error })?;
    transport.limit(None);
    Ok((transport, identity))
}

/// A borrowed card: of this machine, by memory that is shared with it, or of another, by a link.
fn borrowed(folder: &Path) -> Result<Arc<dyn Transport>, ConnectError> {
    Ok(if is_here(folder) {
        Arc::new(VfioUser::borrow(folder)?)
    } else {
        Arc::new(ByLink::borrow(folder)?)
    })
}

/// The first function that is free, connected to by `connect`.
fn free_function<T>(
    card: CardId,
    place: &CardPlace,
    path: &Path,
    connect: impl Fn(&Path) -> Result<T, ConnectError>,
) -> Result<T, LiveError> {
    let (mut busy, mut absent) = (0, None);
    for socket in &sockets(path) {
        match connect(socket) {
            Ok(found) => return Ok(found),
            Err(ConnectError::Busy) => busy += 1,
            Err(ConnectError::Absent(error)) => absent = Some(error),
            Err(ConnectError::Socket(errno)) => {
                let place = socket.display().to_string();
                return Err(LiveError::Socket { card, place, errno });
            }
            Err(ConnectError::Over(why)) => return Err(LiveError::LeaseOver { card, why }),
            Err(ConnectError::Failed(error)) => return Err(LiveError::Card { card, error }),
        }
    }
    let place = place.to_string();
    if busy > 0 {
        return Err(LiveError::CardsBusy { card, place, functions: busy });
    }
    let why = absent.map_or_else(|| "the folder has no socket".to_owned(), |e| e.to_string());
    Err(LiveError::CardAbsent { card, place, why })
}

/// Why the one function of a place cannot be had.
fn no_connection(card: CardId, place: &CardPlace, error: ConnectError) -> LiveError {
    let place = place.to_string();
    match error {
        ConnectError::Busy => LiveError::CardsBusy { card, place, functions: 1 },
        ConnectError::Absent(error) => {
            LiveError::CardAbsent { card, place, why: error.to_string() }
        }
        ConnectError::Socket(errno) => LiveError::Socket { card, place, errno },
        ConnectError::Over(why) => LiveError::LeaseOver { card, why },
        ConnectError::Failed(error) => LiveError::Card { card, error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_connects_to_a_card_in_the_program() {
        let place = CardPlace::InProgram { frames: 1 };
        let error = connect(CardId(3), &place, Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("card 3") && error.contains("in the program"), "{error}");
    }

    #[test]
    fn places_are_read_as_they_are_written() {
        let socket = CardPlace::Socket(PathBuf::from("/run/farside/card0"));
        assert_eq!("/run/farside/card0".parse(), Ok(socket.clone()));
        assert_eq!(socket.to_string().parse(), Ok(socket));
        let device = CardPlace::Vfio("0000:00:04.0".to_owned());
        assert_eq!("vfio:0000:00:04.0".parse(), Ok(device.clone()));
        assert_eq!(device.to_string().parse(), Ok(device));
        let messages = CardPlace::Messages(PathBuf::from("/run/farside/card0"));
        assert_eq!("messages:/run/farside/card0".parse(), Ok(messages.clone()));
        assert_eq!(messages.to_string().parse(), Ok(messages));
        let lease = CardPlace::Lease(PathBuf::from("/run/farside/card0@a"));
        assert_eq!("lease:/run/farside/card0@a".parse(), Ok(lease.clone()));
        assert_eq!(lease.to_string().parse(), Ok(lease));
        for wrong in ["", "card0", "vfio:", "messages:", "messages:card0", "lease:", "lease:card0"]
        {
            let error = wrong.parse::<CardPlace>().unwrap_err();
            assert!(error.to_string().contains("farside card serve"), "{error}");
        }
    }
}
