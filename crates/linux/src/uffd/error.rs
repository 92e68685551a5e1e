//! What can go wrong with a userfaultfd, and what to do about it.

use farside_types::PageRange;
use rustix::io::Errno;

/// A userfaultfd operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UffdError {
    /// No descriptor was to be had in any of the three ways.
    #[error("cannot open a userfaultfd: {errno}; {}", open_advice(*.errno))]
    Open {
        /// The error of the last way tried.
        errno: Errno,
    },
    /// The kernel refused the handshake.
    #[error(
        "the userfaultfd handshake failed: {errno}; the kernel's interface is not the known one: \
         run `farside doctor` and report its output"
    )]
    Handshake {
        /// The kernel's answer.
        errno: Errno,
    },
    /// An operation on a range of pages stopped.
    #[error("userfaultfd {operation} of {range} stopped after {done} pages: {errno}; {}", advice(*.errno))]
    Range {
        /// What was tried.
        operation: &'static str,
        /// On which pages.
        range: PageRange,
        /// How many pages from the start of the range on are done.
        done: u64,
        /// The kernel's answer for the next one.
        errno: Errno,
    },
    /// Bytes and pages do not match.
    #[error(
        "userfaultfd copy into {range} was given {bytes} bytes; give exactly {} ",
        .range.bytes()
    )]
    SourceLength {
        /// The destination.
        range: PageRange,
        /// Length of the source.
        bytes: usize,
    },
    /// The descriptor cannot be read.
    #[error("reading userfaultfd events failed: {errno}; {}", advice(*.errno))]
    Read {
        /// The kernel's answer.
        errno: Errno,
    },
}

impl UffdError {
    /// The kernel's error number, where the kernel gave one.
    pub const fn errno(&self) -> Option<Errno> {
        match self {
            UffdError::Open { errno }
            | UffdError::Handshake { errno }
            | UffdError::Range { errno, .. }
            | UffdError::Read { errno } => Some(*errno),
            UffdError::SourceLength { .. } => None,
        }
    }
}

fn open_advice(errno: Errno) -> &'static str {
    match errno {
        Errno::NOSYS => {
            "this kernel is built without CONFIG_USERFAULTFD, or a sandbox hides it: use a \
             distribution kernel of 5.19 or newer, outside the sandbox"
        }
        Errno::PERM | Errno::ACCESS => {
            "a security policy (seccomp, container profile) forbids it: allow the userfaultfd \
             system call, or give this user read and write access to /dev/userfaultfd"
        }
        Errno::MFILE | Errno::NFILE => "too many files are open: raise the limit (ulimit -n)",
        _ => "run `farside doctor` to see what is missing",
    }
}

fn advice(errno: Errno) -> &'static str {
    match errno {
        Errno::AGAIN => {
            "the address space kept changing: read the pending events of this descriptor, then \
             try again"
        }
        Errno::EXIST => "the next page is mapped already: continue it or leave it",
        Errno::FAULT => {
            "the next page is not in the backing file: fill it with zeros or copy it there first"
        }
        Errno::NOENT => "the range is not mapped or not registered: register it first",
        Errno::NOMEM => "memory has run out: free some, or raise the memory limit of this process",
        Errno::SRCH => "the process that owned the memory is gone: close the descriptor",
        Errno::INVAL => {
            "the kernel does not know this operation for this memory: run `farside doctor`"
        }
        Errno::BUSY => "another userfaultfd holds the range: unregister it there first",
        _ => "run `farside doctor` to see what this machine supports",
    }
}
