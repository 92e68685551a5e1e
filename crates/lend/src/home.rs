//! Where a host's daemon keeps what it knows, and where others find it.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::tls::Credentials;
use serde::{Deserialize, Serialize};

use crate::LendError;
use crate::pki::{Authority, HostIdentity, Keypair};

/// The environment variable that names the folder of this host's daemon, in place of the usual ones.
pub const HOME_VARIABLE: &str = "FARSIDE_LEND_HOME";

/// The name of the file of what the administrators have written.
const CONFIG: &str = "lend.toml";

/// Two folders, of what lasts, and of what ends with the daemon or with the machine; and the file of what
/// the administrators have written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    state: PathBuf,
    run: PathBuf,
    config: PathBuf,
}

/// A device that this host lends, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lent {
    /// Its name for borrowers.
    pub name: String,
    /// A card's folder, or the socket of one vfio-user device.
    pub path: PathBuf,
}

/// A host that is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its name, which its certificate says.
    pub host: String,
    /// Where it listens; empty if it does not.
    pub address: String,
}

/// What a daemon knows from one start to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where it listens for peers; empty until it is opened to them.
    pub listen: String,
    /// How it is reached by them.
    pub address: String,
    /// Of a lease, in nanoseconds.
    pub lease_ns: u64,
    /// What it lends.
    pub devices: Vec<Lent>,
    /// The hosts that it knows.
    pub peers: Vec<Peer>,
    /// Above the numbers of all requests that this host has made.
    pub requests: u64,
    /// Where metrics are served, unless the configuration says; empty is nowhere.
    pub metrics: String,
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

impl Home {
    /// The folders of this host: those of the variable, else those of the system for root, else the
    /// user's.
    ///
    /// # Errors
    /// The environment names no folder.
    pub fn of_environment() -> Result<Home, LendError> {
        if let Some(folder) = variable(HOME_VARIABLE) {
            return Ok(Home::at(Path::new(&folder)));
        }
        if rustix::process::geteuid().is_root() {
            let [state, run] = ["/var/lib/farside", "/run/farside/lend"].map(PathBuf::from);
            return Ok(Home { state, run, config: Path::new("/etc/farside").join(CONFIG) });
        }
        let home = variable("HOME").map(PathBuf::from);
        let state = variable("XDG_STATE_HOME")
            .map(PathBuf::from)
            .or_else(|| home.as_ref().map(|home| home.join(".local/state")));
        let config = variable("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| home.map(|home| home.join(".config")));
        let run = variable("XDG_RUNTIME_DIR").map(PathBuf::from).or_else(|| state.clone());
        let (Some(state), Some(run), Some(config)) = (state, run, config) else {
            return Err(LendError::NoHome);
        };
        let config = config.join("farside").join(CONFIG);
        Ok(Home { state: state.join("farside"), run: run.join("farside-lend"), config })
    }

    /// All below one folder.
    #[must_use]
    pub fn at(folder: &Path) -> Home {
        let [state, run, config] = ["state", "run", CONFIG].map(|name| folder.join(name));
        Home { state, run, config }
    }

    /// Makes the folders, for this user alone. Where it is root, other users find its socket and the
    /// folders of their own leases.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn make(&self) -> Result<(), LendError> {
        let passed = if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 };
        for (folder, mode) in [(&self.state, 0o700), (&self.run, passed), (&self.leases(), passed)]
        {
            let mut builder = std::fs::DirBuilder::new();
            let made = builder.recursive(true).mode(mode).create(folder);
            made.map_err(|error| LendError::file(folder, error))?;
        }
        Ok(())
    }

    /// What the administrators have written, if they have: see [`crate::config`].
    #[must_use]
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// The daemon's socket for the users of this host.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.run.join("lend.sock")
    }

    /// Whoever holds its lock is the daemon.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.run.join("lend.lock")
    }

    /// What a daemon in the background says.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.run.join("lend.log")
    }

    /// The folder of what ends with the machine.
    #[must_use]
    pub fn run(&self) -> PathBuf {
        self.run.clone()
    }

    /// The folders of the leases that this host has.
    #[must_use]
    pub fn leases(&self) -> PathBuf {
        self.run.join("leases")
    }

    /// The folder of what lasts.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The durable record of the leases that this host gives.
    #[must_use]
    pub fn ledger(&self) -> PathBuf {
        self.state.join("ledger")
    }

    /// What is known from the last time; the defaults at first.
    ///
    /// # Errors
    /// It cannot be read, or makes no sense.
    pub fn settings(&self) -> Result<Settings, LendError> {
        let path = self.state.join("settings.json");
        let Some(text) = read(&path)? else { return Ok(Settings::default()) };
        let read = serde_json::from_slice(&text);
        read.map_err(|error| LendError::file(&path, io::Error::other(error)))
    }

    /// Keeps what is known.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep(&self, settings: &Settings) -> Result<(), LendError> {
        let text = serde_json::to_vec_pretty(settings).expect("settings are text");
        self.replace("settings.json", &text)
    }

    /// This host's name, key and certificate, if it has them.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn identity(&self) -> Result<Option<HostIdentity>, LendError> {
        let part = |name: &str| read(&self.state.join(name));
        let (certificate, key) = (part("host.der")?, part("host.key")?);
        let (Some(certificate), Some(key), Some(authority)) =
            (certificate, key, part("authority.der")?)
        else {
            return Ok(None);
        };
        Ok(Some(HostIdentity::of_group(Credentials { certificate, key }, authority)))
    }

    /// Keeps this host's identity.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep_identity(&self, identity: &HostIdentity) -> Result<(), LendError> {
        self.replace("host.key", &identity.own.key)?;
        self.replace("host.der", &identity.own.certificate)?;
        self.replace("authority.der", &identity.authority)
    }

    /// The authority, if it is this host's.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn authority(&self) -> Result<Option<Authority>, LendError> {
        let certificate = read(&self.state.join("authority.der"))?;
        let key = read(&self.state.join("authority.key"))?;
        let (Some(certificate), Some(key)) = (certificate, key) else { return Ok(None) };
        Ok(Some(Authority::restore(certificate, &key)?))
    }

    /// Makes this host the authority of a group, and a member of it.
    ///
    /// # Errors
    /// The cryptography fails, or it cannot be kept.
    pub fn found(&self, host: &str) -> Result<HostIdentity, LendError> {
        let (authority, keys) = (Authority::create()?, Keypair::create()?);
        let certificate = authority.certify(host, &keys.public())?;
        let own = Credentials { certificate, key: keys.private() };
        let identity = HostIdentity::of_group(own, authority.certificate().to_vec());
        self.replace("authority.key", &authority.key())?;
        self.keep_identity(&identity)?;
        Ok(identity)
    }

    /// Makes this host a member of another's group, from which it has this identity: what authority it
    /// was itself is forgotten.
    ///
    /// # Errors
    /// It cannot be kept.
    pub fn join(&self, identity: &HostIdentity) -> Result<(), LendError> {
        let path = self.state.join("authority.key");
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LendError::file(&path, error))
            }
            _ => self.keep_identity(identity),
        }
    }

    /// Writes a file so that it is there whole or not at all, for this user alone.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), LendError> {
        use io::Write;
        let (path, new) = (self.state.join(name), self.state.join(format!("{name}.new")));
        let written = || -> io::Result<()> {
            let mut options = std::fs::File::options();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            std::fs::rename(&new, &path)?;
            std::fs::File::open(&self.state)?.sync_all()
        };
        written().map_err(|error| LendError::file(&path, error))
    }
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, LendError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LendError::file(path, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn folder(name: &str) -> Folder {
        Folder(std::env::temp_dir().join(format!("farside-home-{name}-{}", std::process::id())))
    }

    #[test]
    fn what_is_kept_is_there_the_next_time_and_for_this_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = folder("kept");
        let home = Home::at(&folder.0);
        home.make().unwrap();
        assert_eq!(home.settings().unwrap(), Settings::default());
        assert!(home.identity().unwrap().is_none() && home.authority().unwrap().is_none());
        let device = Lent { name: "card0".to_owned(), path: "/run/card0".into() };
        let settings =
            Settings { listen: "x".to_owned(), devices: vec![device], ..Settings::default() };
        home.keep(&settings).unwrap();
        assert_eq!(home.settings().unwrap(), settings);
        home.found("a").unwrap();
        assert_eq!(home.identity().unwrap().unwrap().host().as_deref(), Some("a"));
        assert!(home.authority().unwrap().is_some());
        for file in std::fs::read_dir(&home.state).unwrap() {
            let mode = file.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0);
        }
    }

    #[test]
    fn settings_that_make_no_sense_are_named() {
        let folder = folder("wrong");
        let home = Home::at(&folder.0);
        home.make().unwrap();
        std::fs::write(home.state.join("settings.json"), "{\"lisen\": 1}").unwrap();
        let error = home.settings().unwrap_err().to_string();
        assert!(error.contains("settings.json") && error.contains("lisen"), "{error}");
    }
}
