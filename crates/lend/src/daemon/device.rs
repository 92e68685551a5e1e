//! A device that this host lends: what it is, and how it is made clean after a lease. All of this may
//! wait, so it is done on threads that may.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use farside_lease::Epoch;
use farside_softcard::serve::{self, HolderId, STATUS_SOCKET, UserStatus, read_status};

use crate::end::Kind;
use crate::end::foreign::reset;

/// How long a device may take to be clean.
const CLEAN_LIMIT: Duration = Duration::from_secs(5);
/// How often a card is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(5);

/// What kind of device is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Device {
    /// A card of ours: the folder of its functions. Whoever leaves one has it reset, and its memory
    /// replaced.
    Card(PathBuf),
    /// One vfio-user device, of whoever's making.
    Foreign(PathBuf),
}

impl Device {
    /// What is there.
    ///
    /// # Errors
    /// Nothing that could be lent.
    pub(super) fn at(path: &Path) -> Result<Device, String> {
        let status = path.join(STATUS_SOCKET);
        if status.exists() {
            return match UnixStream::connect(status) {
                Err(error) if is_gone(&error) => {
                    Err(format!("nobody serves the card in {}", path.display()))
                }
                _ => Ok(Device::Card(path.to_owned())),
            };
        }
        let named = |error: io::Error| format!("{}: {error}", path.display());
        let kind = std::fs::metadata(path).map_err(named)?;
        if std::os::unix::fs::FileTypeExt::is_socket(&kind.file_type()) {
            return Ok(Device::Foreign(path.to_owned()));
        }
        Err(format!("{} is no card's folder and no device's socket", path.display()))
    }

    /// For the ends of its leases.
    pub(super) fn kind(&self) -> Kind {
        match self {
            Device::Card(_) => Kind::Card,
            Device::Foreign(_) => Kind::Foreign,
        }
    }

    /// For people.
    pub(super) fn description(&self) -> String {
        match self {
            Device::Card(folder) => match read_status(folder) {
                Ok(card) => format!(
                    "card of {} functions, {} MiB each, {} kernels",
                    card.functions.len(),
                    card.memory_bytes >> 20,
                    card.kernels.len()
                ),
                Err(_) => "card that does not answer".to_owned(),
            },
            Device::Foreign(_) => "vfio-user device".to_owned(),
        }
    }

    /// Ends what a lease had of it, whose end, process `end`, is gone; waits until nothing of that is left.
    ///
    /// # Errors
    /// Why it is not clean.
    pub(super) fn clean(&self, epoch: Epoch, end: Option<u32>) -> Result<(), String> {
        match self {
            Device::Card(folder) => take_back(folder, epoch, end),
            Device::Foreign(socket) => reset(socket, CLEAN_LIMIT),
        }
    }
}

/// Has a card take back what it has handed on for a lease, and waits until no function belongs to that or
/// to the process of its end. The card does the rest itself: a function is free once its jobs have ended
/// and its memory is given back.
fn take_back(folder: &Path, epoch: Epoch, end: Option<u32>) -> Result<(), String> {
    let holder = HolderId(epoch.0);
    let of_it =
        |user: &UserStatus| user.holder == Some(holder) || (end.is_some() && user.pid == end);
    let limit = Instant::now() + CLEAN_LIMIT;
    loop {
        let why = match read_status(folder).and_then(|status| {
            let mut users = status.functions.iter().filter_map(|it| it.user.as_ref());
            let is_used = users.any(of_it);
            if is_used {
                // Said again, it changes nothing.
                ask_back(folder, holder)?;
            }
            Ok(is_used)
        }) {
            Ok(false) => return Ok(()),
            Ok(true) => "its function is still in use".to_owned(),
            // Nobody serves it, so nothing of it is left: whoever serves it again begins anew.
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => format!("the card does not say what it does: {error}"),
        };
        if Instant::now() >= limit {
            return Err(format!("{why}, after {} s", CLEAN_LIMIT.as_secs()));
        }
        std::thread::sleep(LOOK);
    }
}

/// Whether there is anything to be taken back its status says, also where nobody hears its owner.
fn ask_back(folder: &Path, holder: HolderId) -> io::Result<()> {
    match serve::take_back(folder, holder) {
        Err(error) if !is_gone(&error) => Err(error),
        _ => Ok(()),
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use farside_softcard::serve::{CONTROL_SOCKET, CardConfig, CardServer};
    use farside_vfio_user::Limits;
    use farside_vfio_user::unix::{Connection, NoMemory, UnixClient};

    use super::*;

    #[test]
    fn a_card_that_cannot_be_told_to_take_its_function_back_is_not_clean() {
        let folder = std::env::temp_dir().join(format!("farside-clean-{}", std::process::id()));
        let config = CardConfig { functions: 1, frames: 256, ..CardConfig::new(&folder) };
        let card = CardServer::start(config).unwrap();
        let device = Device::at(&folder).unwrap();
        let function = serve::hand_on(&folder, HolderId(7)).unwrap();
        let connection = Connection::new(UnixStream::from(function));
        let memory = Box::new(NoMemory);
        let client = UnixClient::new(connection, Limits::default(), CLEAN_LIMIT, memory).unwrap();
        std::fs::remove_file(folder.join(CONTROL_SOCKET)).unwrap();
        let why = device.clean(Epoch(7), None).unwrap_err();
        assert!(why.contains("in use"), "{why}");
        assert_eq!(device.clean(Epoch(6), None), Ok(()), "it was handed to nobody for this one");
        drop(client);
        assert_eq!(device.clean(Epoch(7), None), Ok(()));
        drop(card);
        assert_eq!(device.clean(Epoch(7), None), Ok(()), "nobody serves it");
        let why = Device::at(&folder).unwrap_err();
        let words = ["nobody serves", "No such file", "no card's folder"];
        assert!(words.iter().any(|word| why.contains(word)), "{why}");
        let _ = std::fs::remove_dir_all(&folder);
    }
}
