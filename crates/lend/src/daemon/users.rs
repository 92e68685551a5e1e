//! Who this host is, and who its users are.

use tonic::Status;
use tonic::transport::server::UdsConnectInfo;

/// A user of this host, as the system says (SO_PEERCRED).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) pid: u32,
}

impl User {
    /// Whoever has made a request over the local socket.
    pub(super) fn of<T>(request: &tonic::Request<T>) -> Result<User, Status> {
        let info = request.extensions().get::<UdsConnectInfo>();
        let peer = info.and_then(|info| info.peer_cred);
        let peer =
            peer.ok_or_else(|| Status::permission_denied("the system does not say who asks"))?;
        Ok(User { uid: peer.uid(), pid: peer.pid().unwrap_or(0).unsigned_abs() })
    }

    /// Whether it may change what this host lends: the daemon's own user, and root.
    pub(super) fn governs(&self) -> Result<(), Status> {
        let own = rustix::process::geteuid().as_raw();
        if [0, own].contains(&self.uid) {
            return Ok(());
        }
        Err(Status::permission_denied(format!(
            "user {} may not do that: root does, or user {own}, whose daemon it is",
            self.uid
        )))
    }

    /// Its name in rules and logs.
    pub(super) fn name(&self) -> String {
        format!("uid{}", self.uid)
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

/// Whether a name is one of a host.
pub(super) fn is_host_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=HOST_NAME_MAX + 4).contains(&name.len())
        && name.bytes().all(allowed)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_a_name_that_is_one() {
        assert!(is_host_name(&host_name()), "{}", host_name());
        for wrong in ["", "-a", "a-", "A", "a.b", "a b", &"a".repeat(100)] {
            assert!(!is_host_name(wrong), "{wrong}");
        }
    }
}
