//! What a scheme has learnt, to be stored beside the driver's state.

use serde::{Deserialize, Serialize};

use super::{Farside, GriffinDpc, Grit};

/// What a scheme has learnt.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SchemeState(pub(super) Kind);

/// Whose it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Kind {
    /// The scheme has no memory.
    Nothing,
    Grit(Grit),
    GriffinDpc(GriffinDpc),
    Farside(Farside),
    /// Of a scheme outside this crate.
    Bytes(Vec<u8>),
}

impl SchemeState {
    /// Of a scheme without a memory.
    pub fn nothing() -> SchemeState {
        SchemeState(Kind::Nothing)
    }

    /// Of a scheme of your own: bytes that only it understands.
    pub fn from_bytes(bytes: Vec<u8>) -> SchemeState {
        SchemeState(Kind::Bytes(bytes))
    }

    /// The bytes that a scheme of your own gave.
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.0 {
            Kind::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Whether it is of a scheme without a memory.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self.0, Kind::Nothing)
    }

    /// The message for a state of another scheme.
    pub(super) fn is_not_of(&self, scheme: &str) -> String {
        let whose = match self.0 {
            Kind::Nothing => "a scheme without a memory",
            Kind::Grit(_) => "grit",
            Kind::GriffinDpc(_) => "griffin-dpc",
            Kind::Farside(_) => "farside",
            Kind::Bytes(_) => "a scheme of the program",
        };
        format!("the state is of {whose} and cannot be restored for {scheme}")
    }
}
