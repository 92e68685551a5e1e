//! What can go wrong with simulated cards, each with what to do about it.

use std::path::PathBuf;

use farside_svm::{ConfigError, RequestError};
use farside_types::{CancelReason, CardId, PageNo, Time};
use thiserror::Error;

/// Why a machine of cards cannot be made, or stopped.
#[derive(Debug, Error)]
pub enum CardsError {
    /// Not TOML, an unknown key, or a value of the wrong type.
    #[error("the specification of the cards cannot be read: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A value outside of its bounds.
    #[error("{key} is {value}, which cannot work: it must be {least} to {most}")]
    Value {
        /// The key, as `section.name`.
        key: &'static str,
        /// The value given.
        value: u64,
        /// The least it can be.
        least: u64,
        /// The most it can be.
        most: u64,
    },
    /// A value that does not go with the others.
    #[error("{key} is {value}, which cannot work: {why}")]
    Inconsistent {
        /// The key, as `section.name`.
        key: &'static str,
        /// The value given.
        value: u64,
        /// What it must be.
        why: &'static str,
    },
    /// No key has this name.
    #[error("there is no key {key:?}; keys are: {}", super::CardsSpec::keys().join(", "))]
    NoSuchKey {
        /// The name given.
        key: String,
    },
    /// A replaced value is not of the key's type.
    #[error("{key} cannot be {value:?}: {why}")]
    Override {
        /// The key, as `section.name`.
        key: String,
        /// The value given.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// No preset has this name.
    #[error(
        "there is no machine of cards named {name:?}; presets are: {}",
        super::CardsSpec::PRESETS.join(", ")
    )]
    NoSuchPreset {
        /// The name given.
        name: String,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {source}; check that the file is there and readable")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// There is no such card.
    #[error("there is no {card}; the machine has {cards} cards")]
    NoSuchCard {
        /// The card asked for.
        card: CardId,
        /// The cards there are.
        cards: u32,
    },
    /// The sizes make no MMU.
    #[error("the MMU cannot be made: {0}")]
    Mmu(#[from] farside_card::GeometryError),
    /// The driver refused the configuration.
    #[error("the driver refuses the machine: {0}")]
    Config(#[from] ConfigError),
    /// The driver refused a request.
    #[error("the driver refuses a request: {0}")]
    Request(#[from] RequestError),
    /// The driver cancelled a fault.
    #[error("at {at:?}: {card} cannot access {page}: {reason}")]
    Cancelled {
        /// When.
        at: Time,
        /// Which card.
        card: CardId,
        /// The page.
        page: PageNo,
        /// Why.
        reason: CancelReason,
    },
    /// Nothing more happens, and what was asked for is not done.
    #[error("at {at:?}: nothing is left to happen, and {what}\n{waiting}")]
    Stuck {
        /// When.
        at: Time,
        /// What was waited for.
        what: &'static str,
        /// Who waits for what, a line each.
        waiting: String,
    },
    /// The driver or the machine broke a rule: a bug.
    #[error("at {at:?}: {what}; this is a bug in the driver or in the machine, please report it")]
    Broken {
        /// When.
        at: Time,
        /// Which rule, and where.
        what: String,
    },
}
