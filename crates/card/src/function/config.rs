//! What distinguishes a function from another of the same card.

use std::sync::Arc;

use crate::interface::register;

/// What a function is made of, beside its [`crate::Card`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionConfig {
    /// Number of the card at its server.
    pub card: u32,
    /// Number of this function on the card.
    pub function: u32,
    /// Lease generation: never twice the same on one card.
    pub generation: u64,
    /// Address-space ids 0 to n-1 may be used.
    pub asids: u16,
    /// Jobs that may wait for a processing element.
    pub jobs_max: u32,
    /// Names of the kernels; a kernel's id is its place.
    pub kernels: Arc<[String]>,
    /// `CAP_*` bits of [`register`]: what the embedder carries out. [`register::CAP_DMA`],
    /// [`register::CAP_COUNTERS`], [`register::CAP_GROUPS`] and [`register::CAP_NUMBERS`] are always there.
    pub capabilities: u64,
}

impl FunctionConfig {
    /// The capability bits that the driver reads.
    pub(super) fn capability_bits(&self) -> u64 {
        let always = register::CAP_COUNTERS | register::CAP_GROUPS | register::CAP_NUMBERS;
        self.capabilities | register::CAP_DMA | always
    }

    pub(super) fn can(&self, capability: u64) -> bool {
        self.capability_bits() & capability != 0
    }
}
