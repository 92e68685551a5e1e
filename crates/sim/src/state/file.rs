//! The file around a state: which machine and program it is of, compressed, with a checksum.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::StateError;
use farside_workloads::{BufferKind, Launch, Workload};

/// What every state begins with.
const MAGIC: &[u8; 8] = b"farside\0";
/// The version of what follows; raised with every change of any part's state.
const VERSION: u32 = 12;
/// The fastest level there is: most of a state are caches with little in them.
const LEVEL: i32 = 1;

/// What a state is of.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// The release that wrote it: another one may have other parts.
    release: String,
    /// The machine's specification, as TOML.
    pub(crate) spec: String,
    /// The placement scheme.
    pub(crate) placement: String,
    /// The scheme can be had by that name.
    pub(crate) named: bool,
    /// The coherence checker is on.
    pub(crate) check: bool,
    program: Program,
}

/// What a program is known by.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Program {
    name: String,
    /// Name, bytes, and what it is for.
    buffers: Vec<(String, u64, BufferKind)>,
    launches: Vec<Launch>,
}

impl Header {
    pub(crate) fn new(
        spec: String,
        placement: String,
        named: bool,
        check: bool,
        workload: &dyn Workload,
    ) -> Header {
        let release = env!("CARGO_PKG_VERSION").to_owned();
        Header { release, spec, placement, named, check, program: Program::of(workload) }
    }

    /// Whether this release wrote it, and whether it is about this program.
    pub(crate) fn must_fit(&self, workload: &Arc<dyn Workload>) -> Result<(), StateError> {
        let ours = env!("CARGO_PKG_VERSION");
        if self.release != ours {
            return Err(StateError::Release { found: self.release.clone(), ours });
        }
        let (saved, given) = (&self.program, Program::of(&**workload));
        match saved.differs(&given) {
            Some(what) => Err(StateError::OtherProgram { what }),
            None => Ok(()),
        }
    }
}

impl Program {
    fn of(workload: &dyn Workload) -> Program {
        let buffers = workload.buffers().iter();
        Program {
            name: workload.name().to_owned(),
            buffers: buffers.map(|it| (it.name.clone(), it.bytes, it.kind)).collect(),
            launches: (0..workload.launches()).map(|launch| workload.launch(launch)).collect(),
        }
    }

    /// The first thing in which the given program is another one.
    fn differs(&self, given: &Program) -> Option<String> {
        let said = |what: &str, saved: &dyn std::fmt::Debug, given: &dyn std::fmt::Debug| {
            Some(format!("its {what} {saved:?}, that of the program given {given:?}"))
        };
        if self.name != given.name {
            return said("name is", &self.name, &given.name);
        }
        let counts = |it: &Program| (it.buffers.len(), it.launches.len());
        if counts(self) != counts(given) {
            return said("numbers of buffers and launches are", &counts(self), &counts(given));
        }
        for (index, (saved, given)) in self.buffers.iter().zip(&given.buffers).enumerate() {
            if saved != given {
                return said(&format!("buffer {index} is"), saved, given);
            }
        }
        for (index, (saved, given)) in self.launches.iter().zip(&given.launches).enumerate() {
            if saved != given {
                return said(&format!("launch {index} is"), saved, given);
            }
        }
        None
    }
}

/// Makes a file of what was written.
pub(crate) fn seal(bytes: &[u8]) -> Result<Vec<u8>, StateError> {
    let packed = zstd::encode_all(bytes, LEVEL);
    let packed = packed.map_err(|source| StateError::Damaged { what: source.to_string() })?;
    let mut file = MAGIC.to_vec();
    file.extend(VERSION.to_le_bytes());
    file.extend(crc32fast::hash(&packed).to_le_bytes());
    file.extend(packed);
    Ok(file)
}

/// Takes a file apart; its checksum must be right. That of the compression would be of the bytes alone: a bit
/// beside them says whether there is one.
pub(crate) fn open(file: &[u8]) -> Result<Vec<u8>, StateError> {
    let rest = file.strip_prefix(MAGIC).ok_or(StateError::Foreign)?;
    let damaged = |what: &str| StateError::Damaged { what: what.to_owned() };
    let short = || damaged("it ends after its first bytes");
    let (version, rest) = rest.split_first_chunk().ok_or_else(short)?;
    let found = u32::from_le_bytes(*version);
    if found != VERSION {
        return Err(StateError::Version { found, ours: VERSION });
    }
    let (sum, packed) = rest.split_first_chunk().ok_or_else(short)?;
    if crc32fast::hash(packed) != u32::from_le_bytes(*sum) {
        return Err(damaged("its checksum is another"));
    }
    zstd::decode_all(packed).map_err(|source| StateError::Damaged { what: source.to_string() })
}
