//! What a scheme has learnt, to be stored beside the driver's state.

use serde::{Deserialize, Serialize};

use super::{Farside, Grit};

/// What a scheme has learnt.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SchemeState(pub(super) Learnt);

/// Whose it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Learnt {
    /// The scheme has no memory.
    Nothing,
    Grit(Grit),
    Farside(Farside),
    /// Of a scheme outside this crate.
    Bytes {
        /// Its name.
        scheme: String,
        bytes: Vec<u8>,
    },
}

impl SchemeState {
    /// Of a scheme without a memory.
    pub fn nothing() -> SchemeState {
        SchemeState(Learnt::Nothing)
    }

    /// Of a scheme of your own, by its name: bytes that only it understands.
    pub fn from_bytes(scheme: &str, bytes: Vec<u8>) -> SchemeState {
        SchemeState(Learnt::Bytes { scheme: scheme.to_owned(), bytes })
    }

    /// The bytes that a scheme of your own gave.
    ///
    /// # Errors
    /// The state is of another scheme.
    pub fn bytes_of(&self, scheme: &str) -> Result<&[u8], String> {
        match &self.0 {
            Learnt::Bytes { scheme: whose, bytes } if whose == scheme => Ok(bytes),
            _ => Err(self.is_not_of(scheme)),
        }
    }

    /// Whether it is of a scheme without a memory.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self.0, Learnt::Nothing)
    }

    /// The message for a state of another scheme.
    pub(super) fn is_not_of(&self, scheme: &str) -> String {
        let whose = match &self.0 {
            Learnt::Nothing => "a scheme without a memory",
            Learnt::Grit(_) => "grit",
            Learnt::Farside(_) => "farside",
            Learnt::Bytes { scheme, .. } => scheme,
        };
        format!("the state is of {whose} and cannot be restored for {scheme}")
    }
}
