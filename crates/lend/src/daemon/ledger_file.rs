//! The file of the ledger: written so that it says what it says before anybody relies on it.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use farside_lease::lender::WriteKind;
use farside_lease::{BootId, Epoch, Ledger};

use crate::LendError;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct LedgerFile(PathBuf);

impl LedgerFile {
    pub(super) fn at(path: PathBuf) -> LedgerFile {
        LedgerFile(path)
    }

    /// What it says, or a new one.
    ///
    /// # Errors
    /// It cannot be read, or is damaged: epochs might be given twice.
    pub(super) fn read(&self, boot: BootId) -> Result<Ledger, LendError> {
        match std::fs::read(&self.0) {
            Ok(bytes) => Ledger::read(&bytes).map_err(|error| self.failed(io::Error::other(error))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Above whatever a ledger that somebody has deleted can have said.
                let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Ok(Ledger::fresh(boot, Epoch(seconds.as_secs() << 20)))
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    fn failed(&self, error: io::Error) -> LendError {
        LendError::file(&self.0, error)
    }

    /// Writes, and returns when it lasts.
    pub(super) fn write(&self, kind: WriteKind, bytes: &[u8]) -> io::Result<()> {
        match kind {
            WriteKind::Append => {
                let mut file = File::options().append(true).open(&self.0)?;
                file.write_all(bytes)?;
                file.sync_data()
            }
            WriteKind::Replace => self.replace(bytes),
        }
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let new = self.0.with_extension("new");
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&new, &self.0)?;
        File::open(self.0.parent().unwrap_or(Path::new("/")))?.sync_all()
    }
}

/// Which run of the machine this is.
///
/// # Errors
/// The kernel does not say.
pub(super) fn boot_id() -> Result<BootId, LendError> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = std::fs::read_to_string(path).map_err(|error| LendError::file(path, error))?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16);
    let number = number.map_err(|error| LendError::file(path, io::Error::other(error)))?;
    Ok(BootId(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_damaged_is_named() {
        let path = std::env::temp_dir().join(format!("farside-ledger-{}", std::process::id()));
        let boot = boot_id().unwrap();
        let file = LedgerFile::at(path.clone());
        let fresh = file.read(boot).unwrap();
        assert!(fresh.last_epoch() > Epoch(0));
        file.write(WriteKind::Replace, &fresh.bytes()).unwrap();
        assert_eq!(file.read(boot).unwrap(), fresh);
        // A write that was cut off.
        file.write(WriteKind::Append, &[1]).unwrap();
        assert!(file.read(boot).unwrap().last_epoch() > fresh.last_epoch());
        std::fs::write(&path, b"nonsense that is no ledger").unwrap();
        let error = file.read(boot).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert!(error.contains("farside-ledger"), "{error}");
        assert!(file.write(WriteKind::Append, &[1]).is_err());
    }
}
