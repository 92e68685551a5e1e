//! Stores to pages that others have copies of.

use serde::{Deserialize, Serialize};

/// `[store]`: stores to pages that others have copies of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSpec {
    /// How. Default `exclusive`: GRIT, section II-B3; see [`StoreMode`].
    pub mode: StoreMode,
}

/// What a store to a page does of which the GPU has a copy among others.
///
/// The coherence checker knows the driver's rule only, one writer or many readers, and is off in
/// the other two modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreMode {
    /// It faults: the driver takes the other copies away first.
    #[default]
    Exclusive,
    /// It goes to all GPUs that have a copy (GPS, MICRO 2021): a GPU without one faults as for
    /// reading. The host's copy is not kept up to date.
    Broadcast,
    /// It costs nothing, wherever the page is (GRIT's ideal, section I). A GPU without a copy
    /// faults as for reading.
    Ideal,
}
