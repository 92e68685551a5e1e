//! What the administrators have written, as it is in force.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use farside_linux::lock::lock;

use crate::config::{Config, ConfigError};
use crate::home::Home;

/// See the module.
#[derive(Debug)]
pub(super) struct Configured {
    path: PathBuf,
    current: Mutex<Arc<Config>>,
}

impl Configured {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// It cannot be used.
    pub(super) fn read(home: &Home) -> Result<Arc<Configured>, ConfigError> {
        let path = home.config().to_owned();
        let current = Mutex::new(Arc::new(Config::read(&path)?));
        Ok(Arc::new(Configured { path, current }))
    }

    /// What is in force now.
    pub(super) fn get(&self) -> Arc<Config> {
        Arc::clone(&lock(&self.current))
    }

    /// Reads the file anew. One that cannot be used changes nothing.
    ///
    /// # Errors
    /// Why it cannot.
    pub(super) fn read_again(&self) -> Result<Arc<Config>, ConfigError> {
        let read = Arc::new(Config::read(&self.path)?);
        *lock(&self.current) = Arc::clone(&read);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_becomes_bad_changes_nothing() {
        let folder =
            std::env::temp_dir().join(format!("farside-configured-{}", std::process::id()));
        let home = Home::at(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let write = |text: &str| std::fs::write(home.config(), text).unwrap();
        write("version = 1\nplain-networks = [\"10.0.0.0/8\"]");
        let configured = Configured::read(&home).unwrap();
        let first = configured.get();
        assert_ne!(*first, Config::default());
        write("version = 1\nplain-networks = [\"10.0.0.0/99\"]");
        assert!(configured.read_again().unwrap_err().to_string().contains("line 2"));
        assert_eq!(configured.get(), first);
        write("version = 1");
        configured.read_again().unwrap();
        assert_eq!(*configured.get(), Config::default());
        write("nonsense");
        assert!(Configured::read(&home).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
