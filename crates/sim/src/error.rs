//! What can go wrong, each with what to do about it.

use std::path::PathBuf;

use farside_svm::{ConfigError, RequestError};
use farside_types::{CancelReason, Time};
use farside_workloads::TraceError;
use thiserror::Error;

use farside_workloads::{LINE_BYTES, Line};

/// Why a specification is refused.
#[derive(Debug, Error)]
pub enum SpecError {
    /// Not TOML, an unknown key, or a value of the wrong type.
    #[error("the specification cannot be read: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A value that cannot work.
    #[error("{key} is {value}, which cannot work: {why}")]
    Value {
        /// The key, as `section.name`.
        key: &'static str,
        /// The value given.
        value: u64,
        /// What it must be.
        why: &'static str,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {source}; check that the file is there and readable")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// No key has this name.
    #[error("there is no key {key:?}; `farside sim --print-machine` lists those there are")]
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
    #[error("there is no preset named {name:?}; presets are: {}", crate::Spec::PRESETS.join(", "))]
    NoSuchPreset {
        /// The name given.
        name: String,
    },
}

/// Why a stored state cannot be restored, or a state not be stored.
#[derive(Debug, Error)]
pub enum StateError {
    /// The bytes do not begin as a state does.
    #[error("this is not a state of a simulation; give a file that was saved by one")]
    Foreign,
    /// The format has changed.
    #[error("the state has format {found}, this release reads {ours}; save it anew")]
    Version {
        /// The format of the state.
        found: u32,
        /// The one that is read.
        ours: u32,
    },
    /// Another release has other parts.
    #[error(
        "the state is of release {found}, this is {ours}; restore it with the release that saved it"
    )]
    Release {
        /// The release that saved it.
        found: String,
        /// This one.
        ours: &'static str,
    },
    /// The checksum is wrong, or bytes are missing.
    #[error("the state is damaged: {what}; save it anew")]
    Damaged {
        /// What was noticed.
        what: String,
    },
    /// A part of the machine cannot take its state over.
    #[error("the state does not fit: {place}: {why}")]
    Part {
        /// The field.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// It is the state of a run of another program.
    #[error("the state is of another program: {what}")]
    OtherProgram {
        /// The first difference.
        what: String,
    },
    /// The scheme was given as an object, which a name does not say enough about.
    #[error(
        "the simulation was made with a scheme of its own ({placement}); restore it with that scheme, by Simulation::restore_with_placement"
    )]
    OwnScheme {
        /// What the scheme calls itself.
        placement: String,
    },
}

/// Why a simulation cannot be set up, or stopped.
#[derive(Debug, Error)]
pub enum SimError {
    /// The specification.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A scheme's name has a `+` and something behind it that is not known.
    #[error("+{name} is not known as a change of the machine; there are: {known}")]
    NoSuchModifier {
        /// What is not known.
        name: String,
        /// What is.
        known: String,
    },
    /// The placement scheme.
    #[error(transparent)]
    Placement(#[from] farside_svm::placement::SchemeError),
    /// The machine is too small for the trace.
    #[error("the trace uses {used} {what}, and {key} is {given}; raise it")]
    TooSmall {
        /// What there is too little of.
        what: &'static str,
        /// The specification's key.
        key: &'static str,
        /// What the trace uses.
        used: u64,
        /// What the specification gives.
        given: u64,
    },
    /// A stored state cannot be restored.
    #[error(transparent)]
    State(#[from] StateError),
    /// The driver refused the configuration.
    #[error("the driver refuses the machine: {0}")]
    Config(#[from] ConfigError),
    /// The driver refused an allocation of the trace.
    #[error("the driver refuses allocation {index} of the trace: {source}")]
    Allocation {
        /// Which, counted from 0.
        index: usize,
        /// Why.
        source: RequestError,
    },
    /// The program accesses what it has not allocated.
    #[error(
        "launch {launch}, work-group {group}, wavefront {wave} of {workload} accesses line {} (at byte {:#x}), which is in none of its buffers; correct the workload",
        .line.0,
        u64::from(.line.0) * LINE_BYTES
    )]
    Line {
        /// The workload.
        workload: String,
        /// Its launch, from 0.
        launch: u32,
        /// The launch's work-group.
        group: u32,
        /// The work-group's wavefront.
        wave: u16,
        /// The line.
        line: Line,
    },
    /// The driver cancelled a fault: no access of a trace may fail.
    #[error("at {at:?}: GPU {gpu} CU {cu} cannot access {page}: {reason}{hint}", hint = cancel_hint(*.reason))]
    Cancelled {
        /// When.
        at: Time,
        /// Which GPU.
        gpu: usize,
        /// Which compute unit.
        cu: usize,
        /// The page.
        page: farside_types::PageNo,
        /// Why.
        reason: CancelReason,
    },
    /// Nothing more happens, or nothing but idle motion, and accesses are left.
    #[error("at {at:?}: {what}, and the trace is not finished\n{waiting}")]
    Stuck {
        /// When.
        at: Time,
        /// What was noticed.
        what: &'static str,
        /// Who waits for what, a line each.
        waiting: String,
    },
    /// The driver broke a rule: a bug.
    #[error("at {at:?}: {what}; this is a bug in the driver or in the machine, please report it")]
    Broken {
        /// When.
        at: Time,
        /// Which rule, and where.
        what: String,
    },
}

fn cancel_hint(reason: CancelReason) -> &'static str {
    match reason {
        CancelReason::OutOfMemory => "; raise gpu.capacity_percent",
        _ => "",
    }
}
