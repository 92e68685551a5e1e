//! How the simulator itself works.

use serde::{Deserialize, Serialize};

/// `[engine]`: how the simulator itself works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSpec {
    /// How a line's way is timed. Default `reservation`: the faster one; assumed. See [`EngineMode`].
    pub mode: EngineMode,
    /// Cycles that a wavefront may run ahead of the others between two looks at the clock: fewer
    /// events, a slightly different order. Default 64: about the latency of two hits; assumed.
    pub run_ahead_cycles: u64,
}

impl Default for EngineSpec {
    fn default() -> EngineSpec {
        EngineSpec { mode: EngineMode::default(), run_ahead_cycles: 64 }
    }
}

/// How a line's way through banks, channels and links is timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineMode {
    /// All of it is reserved when the line is issued: no event on the way.
    #[default]
    Reservation,
    /// Every hop is an event, and whoever comes to a resource first is served first: slower, and
    /// what the other mode is checked against.
    Events,
}
