//! Who uses a card, as its status socket tells.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::own_memory::OwnMemory;

/// Whom the owner of a card hands a function to: a number of the owner's own, such as a lease's epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HolderId(pub u64);

/// What a card does now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardStatus {
    /// Its number.
    pub card: u32,
    /// The process that it ends with.
    pub pid: u32,
    /// Bytes of memory of each function, as its client sees it.
    pub memory_bytes: u64,
    /// Bytes that are set apart for the translation tables of each function, beside that.
    #[serde(default)]
    pub table_bytes: u64,
    /// Memories that each function has for its own window, beside that of its driver; all free.
    #[serde(default)]
    pub own_memories: Vec<OwnMemory>,
    /// Processing elements of each function.
    pub processing_elements: u16,
    /// Names of its kernels.
    pub kernels: Vec<String>,
    /// Its functions.
    pub functions: Vec<FunctionStatus>,
}

/// What a function does now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionStatus {
    /// Its number.
    pub function: u32,
    /// Its socket.
    pub socket: String,
    /// Who uses it.
    pub user: Option<UserStatus>,
    /// Threads whose kernels were given up and still run. They end with the lease.
    pub hung_threads: usize,
}

/// Who uses a function, and what for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserStatus {
    /// The program's process, if the system says.
    pub pid: Option<u32>,
    /// Its name, if it can be seen.
    pub program: Option<String>,
    /// The function's life.
    pub generation: u64,
    /// Whom the card's owner has handed it to, if it has.
    #[serde(default)]
    pub holder: Option<HolderId>,
    /// The process of its lease, whose child serves it.
    pub worker: u32,
    /// Whether its worker has just said what follows. Else it is what it has said last.
    pub answers: bool,
    /// Jobs that run.
    pub jobs: usize,
    /// The memories of its window, with what is free in them.
    #[serde(default)]
    pub own_memories: Vec<OwnMemory>,
    /// The function's counters by name.
    pub counters: BTreeMap<String, u64>,
}
