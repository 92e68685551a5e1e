//! Who this host is, and who its users are.

use std::io;
use std::os::fd::AsRawFd;

use farside_lease::{NAME_BYTES_MAX, UserName};
use nix::unistd::Uid;
use tokio::net::UnixStream;
use tokio::task::spawn_blocking;
use tonic::Status;

use crate::config::Config;

/// A user of this host, as the system says (SO_PEERCRED, SO_PEERGROUPS).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) pid: u32,
    groups: Vec<u32>,
    name: String,
}

/// Whoever has connected; unknown if the system does not say.
#[derive(Clone, Debug)]
pub(super) struct LocalCaller(Option<User>);

impl LocalCaller {
    /// As the system said when it connected.
    pub(super) fn of(stream: &UnixStream) -> LocalCaller {
        let known = stream.peer_cred().and_then(|peer| {
            let mut groups = groups_of(stream)?;
            groups.push(peer.gid());
            let (uid, pid) = (peer.uid(), peer.pid().unwrap_or(0).unsigned_abs());
            Ok(User { uid, pid, groups, name: format!("uid{uid}") })
        });
        let unknown = |error: &io::Error| tracing::warn!(%error, "a local caller is not known");
        LocalCaller(known.inspect_err(unknown).ok())
    }
}

/// Groups that a process has, at most (NGROUPS_MAX of the kernel).
const GROUPS_MAX: usize = 65_536;

/// The groups that whoever has connected had then, beside its first.
fn groups_of(stream: &UnixStream) -> io::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut bytes = (groups.len() * size_of::<libc::gid_t>()) as libc::socklen_t;
        // SAFETY: the socket is open; `groups` has room for `bytes` bytes, and both live until the call is
        // over.
        let result = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &mut bytes,
            )
        };
        let count = bytes as usize / size_of::<libc::gid_t>();
        if result == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        // There are more; the system has said how many.
        if error.raw_os_error() != Some(libc::ERANGE) || groups.len() >= GROUPS_MAX {
            return Err(error);
        }
        groups.resize(count.clamp(groups.len() + 1, GROUPS_MAX), 0);
    }
}

impl User {
    /// A user of a host that is simulated.
    pub(super) fn simulated() -> User {
        User { uid: 0, pid: 0, groups: Vec::new(), name: "uid0".to_owned() }
    }

    /// Whoever has made a request over the local socket.
    pub(super) fn of<T>(request: &tonic::Request<T>) -> Result<User, Status> {
        let caller = request.extensions().get::<LocalCaller>();
        let user = caller.and_then(|caller| caller.0.clone());
        user.ok_or_else(|| Status::permission_denied("the system does not say who asks"))
    }

    /// Whether it may change what this host lends: the daemon's own user, root, and those whom the
    /// configuration names.
    pub(super) fn governs(&self, config: &Config) -> Result<(), Status> {
        let own = rustix::process::geteuid().as_raw();
        if [0, own].contains(&self.uid) || config.govern.has(self.uid, &self.groups) {
            return Ok(());
        }
        Err(Status::permission_denied(format!(
            "user {} may not do that: root does, user {own}, whose daemon it is, and whom [govern] in \
             its lend.toml names",
            self.uid
        )))
    }

    /// With the name that the system has for it, if that can be one in rules and logs.
    pub(super) async fn named(self) -> User {
        let uid = Uid::from_raw(self.uid);
        // It may ask other machines.
        let found = spawn_blocking(move || nix::unistd::User::from_uid(uid)).await;
        let name = match found {
            Ok(Ok(Some(user))) => UserName::new(&user.name).ok().map(|name| name.to_string()),
            _ => None,
        };
        User { name: name.unwrap_or(self.name), ..self }
    }

    /// Its name in rules and logs.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// The name by which this host wants to be known: the first part of the system's, with what is allowed
/// in names of hosts.
pub(super) fn host_name() -> String {
    let system = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let first = system.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let name: String = first.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    let name = name.trim_matches('-');
    let name = &name[..name.len().min(HOST_NAME_MAX)];
    if name.is_empty() { "host".to_owned() } else { name.to_owned() }
}

/// Bytes of a host's name, at most.
pub(super) const HOST_NAME_MAX: usize = 40;

/// Whether a name is one of a host: parts with dots between them.
pub(super) fn is_host_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(allowed)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    name.len() <= NAME_BYTES_MAX && name.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_system_says_who_has_connected_and_its_groups() {
        let (near, _far) = UnixStream::pair().unwrap();
        let user = LocalCaller::of(&near).0.unwrap();
        assert_eq!(user.uid, rustix::process::geteuid().as_raw());
        assert_eq!(user.pid, std::process::id());
        let mut own = nix::unistd::getgroups().unwrap();
        own.push(nix::unistd::getegid());
        let own: Vec<u32> = own.into_iter().map(nix::unistd::Gid::as_raw).collect();
        assert_eq!(user.groups, own);
        let named = user.named().await;
        assert!(UserName::new(named.name()).is_ok(), "{}", named.name());
    }

    #[test]
    fn those_whom_the_configuration_names_govern_and_others_do_not() {
        let path = std::env::temp_dir().join(format!("farside-govern-{}", std::process::id()));
        let text = "version = 1\n[govern]\nusers = [\"4711\"]\ngroups = [\"4712\"]\n";
        std::fs::write(&path, text).unwrap();
        let config = Config::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let user = |uid, groups: &[u32]| User {
            uid,
            pid: 1,
            groups: groups.to_vec(),
            name: String::new(),
        };
        for (user, may) in [
            (user(0, &[]), true),
            (user(rustix::process::geteuid().as_raw(), &[]), true),
            (user(4711, &[]), true),
            (user(4713, &[1, 4712]), true),
            (user(4713, &[1]), false),
            (user(4712, &[4711]), false),
        ] {
            assert_eq!(user.governs(&config).is_ok(), may, "{user:?}");
        }
        let why = user(4713, &[]).governs(&Config::default()).unwrap_err();
        assert!(why.message().contains("4713"), "{why}");
    }

    #[test]
    fn this_host_has_a_name_that_is_one() {
        assert!(is_host_name(&host_name()), "{}", host_name());
        assert!(is_host_name("node-1.example.org"));
        for wrong in ["", "-a", "a-", "A", "a.", "a..b", "a.-b", "a b", &"a".repeat(100)] {
            assert!(!is_host_name(wrong), "{wrong}");
        }
    }
}
