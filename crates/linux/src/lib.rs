//! What Farside needs of Linux, without any decision: page faults in user space ([`uffd`]), memory
//! files and their mappings ([`mapping`], [`card_memory`], [`shared`]), devices ([`vfio`]), waiting
//! ([`wait`], [`ending`], [`elsewhere`]), signalling without waiting ([`event_signal`]), [`clock`], [`signals`] and [`affinity`].
//!
//! The one home of unsafe paging calls. It knows neither the driver nor cards.

#![cfg(target_os = "linux")]

pub mod affinity;
pub mod card_memory;
pub mod clock;
pub mod elsewhere;
pub mod ending;
pub mod event_signal;
pub mod lock;
pub mod mapping;
pub mod sandbox;
pub mod shared;
pub mod signals;
pub mod uffd;
pub mod vfio;
pub mod wait;
