//! Names of what the protocol has as numbers.

use serde::Serializer;

use crate::end::Counted;
use crate::proto::RefusedAccesses;
use crate::proto::device::State;

/// The state of a device, for people and for programs.
#[must_use]
pub fn state_name(state: i32) -> &'static str {
    match State::try_from(state) {
        Ok(State::Free) => "free",
        Ok(State::Granting) => "granting",
        Ok(State::Lent) => "lent",
        Ok(State::Cleaning) => "cleaning",
        Ok(State::Quarantined) => "quarantined",
        Ok(State::Unspecified) | Err(_) => "unknown",
    }
}

/// What an end has refused, each kind by its name.
pub(crate) fn refused_accesses(counted: &Counted) -> Vec<RefusedAccesses> {
    let refused = |(kind, count): (&str, u64)| RefusedAccesses { kind: kind.to_owned(), count };
    counted.refused().map(refused).collect()
}

pub(crate) fn state<S: Serializer>(state: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(state_name(*state))
}
