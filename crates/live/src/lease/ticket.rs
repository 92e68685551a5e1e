//! Whose device a lease is about.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::far::PeerPlace;

const FILE: &str = "ticket.json";

/// See the module. Whoever reaches its folder can use the lease, so that is the borrower's alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// The host that lends.
    pub lender: String,
    /// Its name for the device.
    pub device: String,
    /// Which lease of it this is.
    pub epoch: u64,
    /// The certificate that the lender's end shows, DER. None is known where the lender's daemon was another
    /// when the lease began.
    #[serde(default)]
    pub certificate: Vec<u8>,
}

/// A folder that is no lease's.
#[derive(Debug, Error)]
#[error(
    "{path} is no lease: {why}; `farside borrow` makes one, and it ends with the program that \
     `farside borrow` runs", path = .path.display()
)]
pub struct TicketError {
    /// The folder.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

impl Ticket {
    /// The socket of the borrower's end, in the folder of a lease.
    pub const LINK: &'static str = "link.sock";
    /// The socket that hands connections to the lender's end on, in its place: where data goes without TLS.
    pub const PLAIN: &'static str = "plain.sock";
    /// The socket that hands connections to a card of this machine on, in its place.
    pub const CARD: &'static str = "card.sock";
    /// The socket at which a vfio-user device is served that is no card, in its place.
    pub const DEVICE: &'static str = "device.sock";

    /// Of the lease in a folder.
    ///
    /// # Errors
    /// [`TicketError`].
    pub fn read(folder: &Path) -> Result<Ticket, TicketError> {
        let fail = |why: String| TicketError { path: folder.to_owned(), why };
        let text = std::fs::read(folder.join(FILE)).map_err(|error| fail(error.to_string()))?;
        serde_json::from_slice(&text).map_err(|error| fail(error.to_string()))
    }

    /// Puts it into a folder, for this user alone.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, folder: &Path) -> std::io::Result<()> {
        let mut options = std::fs::File::options();
        let file = options.write(true).create_new(true).mode(0o600).open(folder.join(FILE))?;
        Ok(serde_json::to_writer(file, self)?)
    }

    /// Where other lenders' ends find the lender's, if they can.
    pub(crate) fn place(&self) -> Option<PeerPlace> {
        let Ticket { lender, device, epoch, certificate } = self.clone();
        (!certificate.is_empty()).then_some(PeerPlace { host: lender, device, epoch, certificate })
    }

    /// The lease, for people.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} of host {} (lease {})", self.device, self.lender, self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket() -> Ticket {
        Ticket {
            lender: "a".to_owned(),
            device: "card0".to_owned(),
            epoch: 7,
            certificate: vec![1],
        }
    }

    #[test]
    fn a_ticket_is_read_as_it_was_written_and_is_nobody_elses() {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("farside-ticket-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        ticket().write(&folder).unwrap();
        let read = Ticket::read(&folder);
        let mode = std::fs::metadata(folder.join(FILE)).unwrap().permissions().mode();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read.unwrap(), ticket());
        assert_eq!(mode & 0o777, 0o600);
        let gone = Ticket::read(&folder).unwrap_err().to_string();
        assert!(gone.contains("farside borrow"), "{gone}");
    }
}
