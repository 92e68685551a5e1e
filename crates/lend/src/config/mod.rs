//! What the administrators of a host have written for its daemon: `lend.toml`.
//!
//! A file that cannot be used is refused as a whole, with the line and what is wrong there: nothing of it
//! is guessed. No file is an empty one. The daemon reads it when it starts and at SIGHUP; what it does with
//! each part is the business of the daemon.

mod networks;
mod parts;
mod pattern;
mod registry;
mod rules;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

pub use networks::{Networks, Way};
pub(crate) use parts::GRANT_LIMIT_S;
pub use parts::{AuditSettings, CertificateFiles, Govern, Hook, On};
pub use registry::{EtcdEndpoint, EtcdFiles, EtcdSettings, RegistrySettings};
pub use rules::{Allowed, Asked, NotAllowed, Per, Rules};

/// The version of the file that this program reads.
pub const VERSION: u32 = 1;
/// Bytes of the file, at most.
const BYTES_MAX: u64 = 1 << 20;

/// What a host's administrators have said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Where encryption is left out.
    pub plain: Networks,
    /// Who may borrow what.
    pub rules: Rules,
    /// Who may change what is lent.
    pub govern: Govern,
    /// What is written down.
    pub audit: AuditSettings,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
    /// What is run when a lease begins or has ended.
    pub hooks: Vec<Hook>,
    /// By which this host is known, unless it is by those of its group.
    pub certificates: Option<CertificateFiles>,
    /// How hosts find each other.
    pub registry: RegistrySettings,
}

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Written {
    version: toml::Spanned<u32>,
    #[serde(default)]
    plain_networks: Vec<Word>,
    metrics: Option<SocketAddr>,
    #[serde(default)]
    govern: parts::WrittenGovern,
    #[serde(default)]
    audit: parts::WrittenAudit,
    #[serde(default, rename = "rule")]
    rules: Vec<rules::Written>,
    #[serde(default, rename = "hook")]
    hooks: Vec<parts::WrittenHook>,
    certificates: Option<parts::WrittenCertificates>,
    registry: Option<registry::Written>,
}

/// A text, and where it is.
type Word = toml::Spanned<String>;

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("{path}: {why}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// Something in it.
    #[error("{path}, line {line}: {why}", path = .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong, and what to do.
        why: String,
    },
}

/// Something that is wrong at a place of the text, in bytes from its beginning.
#[derive(Debug, PartialEq, Eq)]
struct Wrong {
    at: usize,
    why: String,
}

impl Wrong {
    fn at<T>(place: &toml::Spanned<T>, why: impl Into<String>) -> Wrong {
        Wrong { at: place.span().start, why: why.into() }
    }
}

impl Config {
    /// Reads the file; where there is none, it is as if it were empty.
    ///
    /// # Errors
    /// It cannot be read, or says what makes no sense.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let file =
            |error: io::Error| ConfigError::File { path: path.to_owned(), why: error.to_string() };
        let length = match std::fs::metadata(path) {
            Ok(about) => about.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Config::default()),
            Err(error) => return Err(file(error)),
        };
        if length > BYTES_MAX {
            let why = format!("it has {length} bytes, and {BYTES_MAX} are allowed");
            return Err(ConfigError::File { path: path.to_owned(), why });
        }
        let text = std::fs::read_to_string(path).map_err(file)?;
        Config::parse(&text).map_err(|Wrong { at, why }| {
            let before = text.as_bytes().iter().take(at).filter(|&&byte| byte == b'\n').count();
            ConfigError::Line { path: path.to_owned(), line: before + 1, why }
        })
    }

    fn parse(text: &str) -> Result<Config, Wrong> {
        let written: Written = toml::from_str(text).map_err(|error| Wrong {
            at: error.span().map_or(0, |span| span.start),
            why: error.message().trim().replace('\n', "; "),
        })?;
        let version = *written.version.get_ref();
        if version != VERSION {
            let why = format!("version {version} is not known here; this program reads {VERSION}");
            return Err(Wrong::at(&written.version, why));
        }
        let plain = Networks::parse(&written.plain_networks)?;
        let registry =
            written.registry.as_ref().map(|written| RegistrySettings::parse(written, &plain));
        Ok(Config {
            registry: registry.transpose()?.unwrap_or_default(),
            plain,
            rules: Rules::parse(written.rules)?,
            govern: Govern::parse(&written.govern)?,
            audit: AuditSettings::parse(&written.audit)?,
            metrics: written.metrics,
            hooks: Hook::parse_all(&written.hooks)?,
            certificates: written.certificates.as_ref().map(CertificateFiles::parse).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn wrong(text: &str) -> (usize, String) {
        let Wrong { at, why } = Config::parse(text).expect_err(text);
        (text[..at].matches('\n').count() + 1, why)
    }

    #[test]
    fn a_file_that_is_not_there_is_an_empty_one() {
        let config = Config::read(Path::new("/nowhere/lend.toml")).unwrap();
        assert_eq!(config, Config::default());
        assert_eq!(Config::parse("version = 1").unwrap(), Config::default());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_line() {
        for (text, line, word) in [
            ("", 1, "version"),
            ("version = 2", 1, "version 2"),
            ("\n# x\nversion = 1\nplain-network = []", 4, "plain-network"),
            ("version = 1\nplain-networks = [\n\"10.0.0.0/33\"]", 3, "10.0.0.0/33"),
            ("version = 1\nplain-networks = \"10.0.0.0/8\"", 2, "sequence"),
            ("version = 1\n[[[", 2, ""),
        ] {
            let (found, why) = wrong(text);
            assert!(found == line && why.contains(word), "{text:?}: line {found}: {why}");
        }
    }

    #[test]
    fn a_file_that_is_refused_is_named() {
        let path = std::env::temp_dir().join(format!("farside-config-{}", std::process::id()));
        std::fs::write(&path, "version = 1\nversoin = 2\n").unwrap();
        let error = Config::read(&path).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert!(error.contains("farside-config") && error.contains("line 2"), "{error}");
        assert!(error.contains("versoin"), "{error}");
    }
}
