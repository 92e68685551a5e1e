//! Names and numbers of leases: devices, hosts, users, epochs, requests.
//!
//! Names come from other hosts and from command lines, so each is checked once, here.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Bytes of the longest name.
pub const NAME_BYTES_MAX: usize = 64;

/// What is wrong with a name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// a name has 1 to 64 bytes
    #[error("the name of a {what} has 1 to {NAME_BYTES_MAX} bytes, not {bytes}")]
    Length {
        /// What it was to name.
        what: &'static str,
        /// How many it has.
        bytes: usize,
    },
    /// a name has other characters
    #[error("{name:?} names no {what}: use {allowed}, and a letter or digit first")]
    Character {
        /// What it was to name.
        what: &'static str,
        /// The name as it came.
        name: String,
        /// What it may consist of.
        allowed: &'static str,
    },
}

/// Makes a type of names that consist of some characters.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $allowed:literal, $is_allowed:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks a name.
            ///
            /// # Errors
            /// If it is empty, too long, or has a character that is not allowed.
            pub fn new(name: &str) -> Result<Self, NameError> {
                if name.is_empty() || name.len() > NAME_BYTES_MAX {
                    return Err(NameError::Length { what: $what, bytes: name.len() });
                }
                let allowed: fn(char) -> bool = $is_allowed;
                let first = name.starts_with(|c: char| allowed(c) && c.is_ascii_alphanumeric());
                if !first || !name.chars().all(allowed) {
                    let name = name.to_owned();
                    return Err(NameError::Character { what: $what, name, allowed: $allowed });
                }
                Ok(Self(name.into()))
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = NameError;

            fn from_str(name: &str) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(name: String) -> Result<Self, NameError> {
                Self::new(&name)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// The name of a device at its lender: 1 to 64 of `a-z 0-9 . _ -`.
    DeviceName,
    "device",
    "a-z 0-9 . _ -",
    |c| matches!(c, 'a'..='z' | '0'..='9' | '.' | '_' | '-')
);

name!(
    /// The name of a host, as its certificate has it: 1 to 64 of `A-Z a-z 0-9 . _ -`.
    HostName,
    "host",
    "A-Z a-z 0-9 . _ -",
    |c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
);

name!(
    /// The name of a user on the borrower's host: 1 to 64 of `A-Z a-z 0-9 . _ - @ $`.
    UserName,
    "user",
    "A-Z a-z 0-9 . _ - @ $",
    |c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | '$')
);

/// Who borrows: a host, and the user there if it says so.
///
/// The host is proved by its certificate. The user is the host's word, for rules and the log; leases
/// are renewed and given back by the host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct BorrowerId {
    /// The host.
    pub host: HostName,
    /// The user on that host.
    pub user: Option<UserName>,
}

impl fmt::Display for BorrowerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.user {
            Some(user) => write!(f, "{user} on {}", self.host),
            None => self.host.fmt(f),
        }
    }
}

/// The number of a lease at its lender: never given twice, and higher the later it was granted.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a request, chosen by the borrower's host: never used twice by one host, also not after
/// it was restarted.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One lease of one device.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct LeaseId {
    /// The device.
    pub device: DeviceName,
    /// Which of its leases.
    pub epoch: Epoch,
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease {} of {}", self.epoch, self.device)
    }
}

/// Devices that are borrowed together: at least one, at most [`DeviceSet::DEVICES_MAX`], none twice.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceSet(BTreeSet<DeviceName>);

/// What is wrong with a set of devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeviceSetError {
    /// no device
    #[error("no device is named; name at least one")]
    Empty,
    /// a device twice
    #[error("a device is named twice; name each once")]
    Double,
    /// too many devices
    #[error("at most {} devices can be borrowed together; ask for fewer", DeviceSet::DEVICES_MAX)]
    TooMany,
}

impl DeviceSet {
    /// Most devices of one request.
    pub const DEVICES_MAX: usize = 16;

    /// Checks a set.
    ///
    /// # Errors
    /// If there is none, one twice, or too many.
    pub fn new(devices: impl IntoIterator<Item = DeviceName>) -> Result<Self, DeviceSetError> {
        let mut set = BTreeSet::new();
        for device in devices {
            if set.len() == Self::DEVICES_MAX {
                return Err(DeviceSetError::TooMany);
            }
            if !set.insert(device) {
                return Err(DeviceSetError::Double);
            }
        }
        if set.is_empty() { Err(DeviceSetError::Empty) } else { Ok(Self(set)) }
    }

    /// The devices in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &DeviceName> {
        self.0.iter()
    }

    /// How many there are.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether `device` is one of them.
    #[must_use]
    pub fn contains(&self, device: &DeviceName) -> bool {
        self.0.contains(device)
    }

    /// Whether a device is in both.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        self.iter().any(|device| other.contains(device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_of_few_characters() {
        for name in ["card0", "0", "a.b_c-d", &"x".repeat(64)] {
            assert_eq!(DeviceName::new(name).expect(name).as_str(), name);
        }
        for name in ["", "..", "-a", "a/b", "Card0", "a b", "é", "a\0", &"x".repeat(65)] {
            assert!(DeviceName::new(name).is_err(), "{name:?}");
        }
        assert!(HostName::new("Node-1.example").is_ok());
        assert!(HostName::new("a:1").is_err());
        assert!(UserName::new("svc$").is_ok());
        assert!(UserName::new("a\nb").is_err());
    }

    #[test]
    fn devices_are_borrowed_one_to_sixteen_at_a_time_and_none_twice() {
        let named = |i: usize| DeviceName::new(&format!("card{i}")).expect("a name");
        assert_eq!(DeviceSet::new([]), Err(DeviceSetError::Empty));
        assert_eq!(DeviceSet::new([named(1), named(1)]), Err(DeviceSetError::Double));
        assert_eq!(DeviceSet::new((0..17).map(named)), Err(DeviceSetError::TooMany));
        assert_eq!(DeviceSet::new((0..16).map(named)).expect("sixteen").len(), 16);
    }
}
