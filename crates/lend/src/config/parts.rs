//! The smaller parts of the configuration: who governs, the audit log, hooks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{Group, User};
use serde::Deserialize;

use super::{Word, Wrong};

/// Names in a list, at most.
const NAMES_MAX: usize = 64;

/// Who governs as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenGovern {
    #[serde(default)]
    users: Vec<Word>,
    #[serde(default)]
    groups: Vec<Word>,
}

/// The users of this host who change what it lends, beside root and the daemon's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Govern {
    users: Vec<u32>,
    groups: Vec<u32>,
}

impl Govern {
    /// Looks the names up in the system; numbers are taken as they are.
    pub(super) fn parse(written: &WrittenGovern) -> Result<Govern, Wrong> {
        let user =
            |name: &str| User::from_name(name).map(|user| user.map(|user| user.uid.as_raw()));
        let group =
            |name: &str| Group::from_name(name).map(|group| group.map(|group| group.gid.as_raw()));
        Ok(Govern {
            users: looked_up(&written.users, "user", user)?,
            groups: looked_up(&written.groups, "group", group)?,
        })
    }

    /// Whether a user with these groups is one of them.
    #[must_use]
    pub fn has(&self, user: u32, groups: &[u32]) -> bool {
        self.users.contains(&user) || groups.iter().any(|group| self.groups.contains(group))
    }
}

fn looked_up(
    names: &[Word],
    what: &str,
    find: impl Fn(&str) -> nix::Result<Option<u32>>,
) -> Result<Vec<u32>, Wrong> {
    if let Some(more) = names.get(NAMES_MAX) {
        return Err(Wrong::at(more, format!("at most {NAMES_MAX} names are in a list")));
    }
    let number = |word: &Word| {
        let name = word.get_ref();
        if let Ok(number) = name.parse() {
            return Ok(number);
        }
        match find(name) {
            Ok(Some(number)) => Ok(number),
            Ok(None) => Err(Wrong::at(word, format!("this system has no {what} `{name}`"))),
            Err(error) => {
                Err(Wrong::at(word, format!("{what} `{name}` cannot be looked up: {error}")))
            }
        }
    };
    names.iter().map(number).collect()
}

/// The audit log as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WrittenAudit {
    folder: Option<Word>,
    file_bytes_max: Option<toml::Spanned<u64>>,
    files_max: Option<toml::Spanned<u32>>,
}

/// Where the audit log is, and how much of it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditSettings {
    /// Its folder; the daemon's own unless given.
    pub folder: Option<PathBuf>,
    /// Bytes of a file before another is begun.
    pub file_bytes_max: u64,
    /// Files that are kept, the one that is written among them.
    pub files_max: u32,
}

impl Default for AuditSettings {
    fn default() -> AuditSettings {
        AuditSettings { folder: None, file_bytes_max: 16 << 20, files_max: 8 }
    }
}

impl AuditSettings {
    pub(super) fn parse(written: &WrittenAudit) -> Result<AuditSettings, Wrong> {
        let default = AuditSettings::default();
        let folder = written.folder.as_ref().map(absolute).transpose()?;
        let file_bytes_max =
            within(written.file_bytes_max.as_ref(), 4 << 10..=1 << 40, default.file_bytes_max)?;
        let files_max = within(written.files_max.as_ref(), 1..=1000, default.files_max)?;
        Ok(AuditSettings { folder, file_bytes_max, files_max })
    }
}

pub(super) fn absolute(word: &Word) -> Result<PathBuf, Wrong> {
    let path = Path::new(word.get_ref());
    if path.is_absolute() {
        return Ok(path.to_owned());
    }
    Err(Wrong::at(word, format!("`{}` is no absolute path", path.display())))
}

fn within<N: Copy + PartialOrd + std::fmt::Display>(
    written: Option<&toml::Spanned<N>>,
    allowed: std::ops::RangeInclusive<N>,
    default: N,
) -> Result<N, Wrong> {
    let Some(number) = written else { return Ok(default) };
    if allowed.contains(number.get_ref()) {
        return Ok(*number.get_ref());
    }
    let (number, least, most) = (number, allowed.start(), allowed.end());
    Err(Wrong::at(number, format!("{} is not from {least} to {most}", number.get_ref())))
}

/// Certificates as they are written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenCertificates {
    authority: Word,
    certificate: Word,
    key: Word,
}

/// Files of an organisation's certificates, PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// Those whose hosts are accepted.
    pub authority: PathBuf,
    /// This host's, and those between it and its authority.
    pub certificate: PathBuf,
    /// Of this host, PKCS #8.
    pub key: PathBuf,
}

impl CertificateFiles {
    pub(super) fn parse(written: &WrittenCertificates) -> Result<CertificateFiles, Wrong> {
        Ok(CertificateFiles {
            authority: absolute(&written.authority)?,
            certificate: absolute(&written.certificate)?,
            key: absolute(&written.key)?,
        })
    }
}

/// When a hook is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum On {
    /// Before a borrower is told of its lease.
    Grant,
    /// After a lease, when its device is clean or quarantined.
    End,
}

/// A hook as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WrittenHook {
    on: On,
    run: Word,
    limit_s: Option<toml::Spanned<u64>>,
}

/// A program of the administrators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// When it is run.
    pub on: On,
    /// The program.
    pub run: PathBuf,
    /// How long it may take.
    pub limit: Duration,
}

/// Hooks, at most.
const HOOKS_MAX: usize = 16;
/// Seconds that all hooks at a grant may take together.
pub(crate) const GRANT_LIMIT_S: u64 = 5;
/// Seconds that a hook at an end may take.
const END_LIMIT_S: u64 = 300;

impl Hook {
    pub(super) fn parse_all(written: &[WrittenHook]) -> Result<Vec<Hook>, Wrong> {
        if let Some(more) = written.get(HOOKS_MAX) {
            return Err(Wrong::at(&more.run, format!("there are more than {HOOKS_MAX} hooks")));
        }
        let hook = |hook: &WrittenHook| {
            let (most, default) = match hook.on {
                On::Grant => (GRANT_LIMIT_S, GRANT_LIMIT_S),
                On::End => (END_LIMIT_S, 30),
            };
            let limit = within(hook.limit_s.as_ref(), 1..=most, default)?;
            Ok(Hook { on: hook.on, run: absolute(&hook.run)?, limit: Duration::from_secs(limit) })
        };
        written.iter().map(hook).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, tests::wrong};
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(&format!("version = 1\n{text}")).unwrap()
    }

    #[test]
    fn who_governs_is_looked_up_by_name_and_taken_by_number() {
        let govern = config("[govern]\nusers = [\"root\", \"4711\"]\ngroups = [\"17\"]").govern;
        assert!(govern.has(0, &[]) && govern.has(4711, &[]) && govern.has(5, &[1, 17]));
        assert!(!govern.has(5, &[1]) && !Govern::default().has(0, &[0]));
        let (line, why) = wrong("version = 1\n[govern]\nusers = [\n\"no-such-user-here\"]");
        assert!(line == 4 && why.contains("no-such-user-here"), "{line} {why}");
    }

    #[test]
    fn hooks_have_limits_and_absolute_paths() {
        let hooks = config("[[hook]]\non = \"grant\"\nrun = \"/a\"\n[[hook]]\non = \"end\"\nrun = \"/b\"\nlimit-s = 7").hooks;
        assert_eq!(hooks[0].limit, Duration::from_secs(GRANT_LIMIT_S));
        assert_eq!((hooks[1].on, hooks[1].limit), (On::End, Duration::from_secs(7)));
        for (text, line, word) in [
            ("on = \"grant\"\nrun = \"a\"", 4, "absolute"),
            ("on = \"grant\"\nrun = \"/a\"\nlimit-s = 6", 5, "1 to 5"),
            ("on = \"noon\"\nrun = \"/a\"", 3, "noon"),
            ("on = \"end\"", 2, "run"),
        ] {
            let (found, why) = wrong(&format!("version = 1\n[[hook]]\n{text}\n"));
            assert!(found == line && why.contains(word), "{text}: line {found}: {why}");
        }
    }

    #[test]
    fn the_audit_log_is_bounded() {
        let text = "[audit]\nfolder = \"/var/log/farside\"\nfile-bytes-max = 8192\nfiles-max = 2";
        let audit = config(text).audit;
        assert_eq!((audit.file_bytes_max, audit.files_max), (8192, 2));
        assert_eq!(audit.folder.as_deref(), Some(Path::new("/var/log/farside")));
        let (line, why) = wrong("version = 1\n[audit]\nfiles-max = 0");
        assert!(line == 3 && why.contains("1 to 1000"), "{line} {why}");
    }
}
