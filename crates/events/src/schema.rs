//! The columns of the file.

use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, TypePtr};

/// The key of the version in the file's metadata.
pub(crate) const VERSION_KEY: &str = "farside.events";
/// The key of what the log is about.
pub(crate) const ABOUT_KEY: &str = "farside.about";

/// What stands for no agent and no memory.
pub(crate) const NONE: i32 = -1;

/// Names of the columns, in their order in a file that this crate writes.
pub(crate) const COLUMNS: [&str; 14] = [
    "at", "kind", "reason", "agent", "address", "bytes", "from", "to", "before", "after",
    "stopped", "around", "number", "name",
];

/// Positions in [`COLUMNS`].
pub(crate) mod at {
    pub(crate) const AT: usize = 0;
    pub(crate) const KIND: usize = 1;
    pub(crate) const REASON: usize = 2;
    pub(crate) const AGENT: usize = 3;
    pub(crate) const ADDRESS: usize = 4;
    pub(crate) const BYTES: usize = 5;
    pub(crate) const FROM: usize = 6;
    pub(crate) const TO: usize = 7;
    pub(crate) const BEFORE: usize = 8;
    pub(crate) const AFTER: usize = 9;
    pub(crate) const STOPPED: usize = 10;
    pub(crate) const AROUND: usize = 11;
    pub(crate) const NUMBER: usize = 12;
    pub(crate) const NAME: usize = 13;
}

const MESSAGE: &str = "message event {
    required int64 at;
    required byte_array kind (UTF8);
    required byte_array reason (UTF8);
    required int32 agent;
    required int64 address;
    required int64 bytes;
    required int32 from;
    required int32 to;
    required int32 before;
    required int32 after;
    required int32 stopped;
    required int64 around;
    required int64 number;
    required byte_array name (UTF8);
}";

/// The schema of the file.
pub(crate) fn message() -> TypePtr {
    Arc::new(parse_message_type(MESSAGE).expect("the message above is well formed"))
}

/// How it is written: words by dictionaries, numbers as differences in as many bits as they need. A dictionary of numbers
/// would take a look-up for each.
pub(crate) fn properties() -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).unwrap_or_default()))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true);
    let words = [at::KIND, at::REASON, at::NAME];
    for which in (0..COLUMNS.len()).filter(|which| !words.contains(which)) {
        let column = ColumnPath::from(COLUMNS[which]);
        properties = properties
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
    }
    // Readers learn from it how long the run was.
    properties
        .set_column_statistics_enabled(ColumnPath::from("at"), EnabledStatistics::Chunk)
        .build()
}
