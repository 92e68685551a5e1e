//! What the ends of a lease may ask of the system. Both serve a stranger, so that they can open no file
//! and start no process; each makes the connections that it is there for.

use std::io;

use farside_linux::sandbox::{More, enter};
use farside_live::lease::BootTime;

/// What both need: connections to come, and how they are.
const BOTH: &[More] = &[
    More::Call(libc::SYS_accept4),
    More::Call(libc::SYS_connect),
    More::Call(libc::SYS_setsockopt),
    More::Call(libc::SYS_getsockname),
    // Whether a socket blocks.
    More::With(libc::SYS_ioctl, 1, libc::FIONBIO),
    // Memory that is mapped is not to be locked, whatever the program's own is.
    More::Call(libc::SYS_munlock),
    // What threads wake each other by.
    More::Call(libc::SYS_eventfd2),
];

/// What the lender's end needs for its card, a local process: a socket, and memory for rings.
const LENDER: &[More] = &[
    More::With(libc::SYS_socket, 0, libc::AF_UNIX as u64),
    More::With(libc::SYS_socketpair, 0, libc::AF_UNIX as u64),
    More::Call(libc::SYS_memfd_create),
    More::Call(libc::SYS_ftruncate),
    More::Call(libc::SYS_fallocate),
    // Limits are read and not changed.
    More::With(libc::SYS_prlimit64, 2, 0),
    More::With(libc::SYS_fcntl, 1, libc::F_ADD_SEALS as u64),
    // Which functions a card has, and of what kind the file of its memory is.
    More::Call(libc::SYS_statx),
    More::Call(libc::SYS_readlinkat),
    // Interrupts of a device that is no card.
    More::Call(libc::SYS_epoll_create1),
];

/// What the borrower's end needs: connections to the lender's host.
const BORROWER: &[More] = &[
    More::With(libc::SYS_socket, 0, libc::AF_INET as u64),
    More::With(libc::SYS_socket, 0, libc::AF_INET6 as u64),
];

/// For the lender's end, before it hears the borrower.
pub(super) fn of_lender() -> io::Result<()> {
    confine(&[BOTH, LENDER].concat())
}

/// For the borrower's end, before it hears the lender.
pub(super) fn of_borrower() -> io::Result<()> {
    confine(&[BOTH, BORROWER].concat())
}

fn confine(more: &[More]) -> io::Result<()> {
    // What tells the time without a call of the system is looked for once, in what cannot be read later.
    let _ = BootTime::now();
    enter(more).map_err(|error| io::Error::other(format!("it cannot be confined: {error}")))
}
