//! What leads from one bus to another.
//!
//! Owns the windows of a lease, which stand for the mappings of two IOMMUs and of the bridge between
//! (*Device lending in PCI Express networks*, section 4): which addresses lead where, who may do what
//! there, and until when. It moves nothing itself.
#![forbid(unsafe_code)]

mod windows;

pub use windows::{Access, Found, InsertError, Refusal, Refusals, Rights, WINDOWS_MAX, Windows};
