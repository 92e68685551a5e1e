//! Where a card is: words of the command line and of configuration files.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_types::CardId;
use thiserror::Error;

use super::link::{Identity, identify};
use super::transport::Transport;
use super::vfio_user;
use crate::error::LiveError;

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
    /// A device of the kernel's VFIO, by its PCI address (`0000:00:04.0`).
    Vfio(String),
}

/// A place that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{text}` names no card: give the folder or the socket of a card that `farside card serve` \
     serves, or vfio:0000:00:04.0"
)]
pub struct PlaceError {
    /// What was given.
    pub text: String,
}

impl FromStr for CardPlace {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<CardPlace, PlaceError> {
        if let Some(address) = text.strip_prefix("vfio:").filter(|address| !address.is_empty()) {
            return Ok(CardPlace::Vfio(address.to_owned()));
        }
        if text.contains('/') {
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
        CardPlace::Socket(path) => Arc::new(free_function(card, path)?),
        CardPlace::Vfio(address) => {
            Arc::new(super::vfio::open(address).map_err(|error| LiveError::Vfio { card, error })?)
        }
        CardPlace::InProgram { .. } => unreachable!("nothing connects to a card in the program"),
    };
    transport.limit(Some(Instant::now() + SETUP_LIMIT));
    let identity = identify(transport.as_ref()).map_err(|error| LiveError::Card { card, error })?;
    transport.limit(None);
    Ok((transport, identity))
}

fn free_function(card: CardId, path: &Path) -> Result<vfio_user::VfioUser, LiveError> {
    let place = || path.display().to_string();
    let sockets = sockets(path);
    let mut busy = 0;
    let mut absent = None;
    for socket in &sockets {
        match vfio_user::VfioUser::connect(socket) {
            Ok(found) => return Ok(found),
            Err(vfio_user::ConnectError::Busy) => busy += 1,
            Err(vfio_user::ConnectError::Absent(error)) => absent = Some(error),
            Err(vfio_user::ConnectError::Socket(errno)) => {
                let place = socket.display().to_string();
                return Err(LiveError::Socket { card, place, errno });
            }
            Err(vfio_user::ConnectError::Failed(error)) => {
                return Err(LiveError::Card { card, error });
            }
        }
    }
    if busy > 0 {
        return Err(LiveError::CardsBusy { card, place: place(), functions: busy });
    }
    let why = absent.map_or_else(|| "the folder has no socket".to_owned(), |e| e.to_string());
    Err(LiveError::CardAbsent { card, place: place(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_written() {
        let socket = CardPlace::Socket(PathBuf::from("/run/farside/card0"));
        assert_eq!("/run/farside/card0".parse(), Ok(socket.clone()));
        assert_eq!(socket.to_string().parse(), Ok(socket));
        let device = CardPlace::Vfio("0000:00:04.0".to_owned());
        assert_eq!("vfio:0000:00:04.0".parse(), Ok(device.clone()));
        assert_eq!(device.to_string().parse(), Ok(device));
        for wrong in ["", "card0", "vfio:"] {
            let error = wrong.parse::<CardPlace>().unwrap_err();
            assert!(error.to_string().contains("farside card serve"), "{error}");
        }
    }
}
