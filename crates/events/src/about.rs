//! What a log is about: kept beside the columns, as JSON in the file's metadata.

use serde::{Deserialize, Serialize};

/// The run that a log is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// What ran: a program, or a workload.
    pub program: String,
    /// `live`, or what was simulated.
    pub machine: String,
    /// The placement scheme.
    pub scheme: String,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// The host's memory first, then those of the cards in their order.
    pub memories: Vec<Memory>,
}

/// A memory of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// `host`, `card 0` and so on.
    pub name: String,
    /// Bytes of it that pages can have; none where nothing limits them.
    pub bytes: Option<u64>,
}

impl About {
    /// The host and so many cards (`word`: what they are called) with so many bytes each.
    pub fn memories(word: &str, bytes: impl IntoIterator<Item = Option<u64>>) -> Vec<Memory> {
        let host = Memory { name: "host".to_owned(), bytes: None };
        let card = |(number, bytes)| Memory { name: format!("{word} {number}"), bytes };
        std::iter::once(host).chain(bytes.into_iter().enumerate().map(card)).collect()
    }
}
