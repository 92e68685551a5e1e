//! Why a file cannot be shared memory, or was not written.

use std::path::PathBuf;

use farside_linux::mapping::MemoryError;
use farside_types::PageRange;
use thiserror::Error;

/// A file cannot be shared memory, or was not read or written.
#[derive(Debug, Error)]
pub enum FileError {
    /// It cannot be opened for reading and writing.
    #[error("{} cannot be mapped: it cannot be opened for reading and writing ({source})", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It is a folder, a device, a pipe.
    #[error("{} cannot be mapped: it is no regular file", .path.display())]
    NotRegular {
        /// What is there.
        path: PathBuf,
    },
    /// It has no whole number of values, or none.
    #[error(
        "{} cannot be mapped: it has {bytes} bytes, which is no positive number of values of {value} bytes; give it a \
         size (File::set_len) or map it as values of another type",
        .path.display()
    )]
    Size {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// Bytes of a value.
        value: usize,
    },
    /// It is larger than can be.
    #[error(
        "{} cannot be mapped: it has {bytes} bytes, and 274877906944 (256 GiB) are the most; map parts of it as files of their own",
        .path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// Another space, or another program, has it mapped.
    #[error("{} cannot be mapped: it is locked by whoever has it mapped already, here or in another program", .path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// Too little memory for it.
    #[error(
        "{} cannot be mapped with {memory} bytes of memory: 4194304 are the least",
        .path.display()
    )]
    TooLittleMemory {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        memory: u64,
    },
    /// No address space for it.
    #[error("the file cannot be mapped: {0}")]
    Memory(#[from] MemoryError),
    /// A page cannot be read.
    #[error("{} cannot be read at byte {offset} ({source})", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// Why not.
        source: std::io::Error,
    },
    /// Somebody has made it shorter.
    #[error(
        "{} was cut short: it had {bytes} bytes when it was mapped, and has {now}; what is behind that is in memory alone, \
         as far as it was used (give it its size back, and sync)",
        .path.display()
    )]
    Cut {
        /// The file.
        path: PathBuf,
        /// What it had.
        bytes: u64,
        /// What it has.
        now: u64,
    },
    /// What was changed cannot be written.
    #[error(
        "{} cannot be written at byte {offset} ({source}): what was changed is still in memory; make room, and sync again",
        .path.display()
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// Why not.
        source: std::io::Error,
    },
    /// What was written is not on the disk.
    #[error("{} was written and is not on the disk ({source}): sync again", .path.display())]
    Settle {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Bytes that were on a card alone are gone with it.
    #[error(
        "{} has older bytes in {pages} of its pages, first of {first}: what was changed there was lost with a card",
        .path.display()
    )]
    Lost {
        /// The file.
        path: PathBuf,
        /// How many.
        pages: u64,
        /// The first of them.
        first: PageRange,
    },
}

impl FileError {
    /// Whether what was asked for cannot be, whatever the machine has.
    pub fn is_of_the_argument(&self) -> bool {
        matches!(
            self,
            FileError::NotRegular { .. }
                | FileError::Size { .. }
                | FileError::TooLarge { .. }
                | FileError::TooLittleMemory { .. }
        )
    }
}
