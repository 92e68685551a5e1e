//! The randomised harness of the driver: the fixture "host + N cards" on virtual time.
//!
//! It is an independent judge. It knows the driver's interface and rules, not its code: a machine
//! with real bytes in real frames carries the commands out as late and as badly as the knobs
//! allow ([`Hostility`]), a flat memory says what every load must see, an oracle says which errors
//! are legitimate, and at every quiet point driver and machine are compared page by page.
//!
//! - [`World`] is the fixture, [`Setup`] what it is made with, [`run_episode`] a random run.
//! - [`Script`] and [`WordAccess`] are what jobs and threads do in scenarios.
//! - [`log`] has the legend of the log that a failure prints.
//!
//! It does not test live machines; tests of those are beside it under `tests/`.

mod access;
mod accesses;
mod adoption;
mod agenda;
mod agents;
mod campaign;
mod card;
mod checker;
mod cpu;
mod episode;
mod facts;
mod failures;
mod hostility;
mod job;
mod lending;
pub mod live;
pub mod log;
mod losses;
mod machine;
#[cfg(test)]
mod machine_tests;
mod memory;
mod oracle;
mod port;
mod prng;
mod program;
mod reference;
mod rings;
mod seeds;
mod setup;
mod transfers;
mod violation;
mod world;

pub use access::{WordAccess, WordOp};
pub use campaign::{must_be_caught, run_level};
pub use episode::run_episode;
pub use failures::Sabotage;
pub use hostility::Hostility;
pub use job::{Job, JobFailure, JobState, JobStep, Script};
pub use port::RingMutation;
pub use prng::Prng;
pub use reference::WORDS;
pub use seeds::seeds;
pub use setup::{ARENA_PAGES, ARENA_START, Setup};
pub use transfers::Fate;
pub use violation::{Failure, Violation};
pub use world::{Answer, World};
