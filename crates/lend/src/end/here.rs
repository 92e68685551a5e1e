//! A card that is borrowed on its own host: its functions are handed on to the programs, and nobody is
//! between the two from then on. What was handed on is taken back by the lease's epoch, by the card.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

use farside_live::lease::hand;
use farside_softcard::serve::{self, HolderId};
use rustix::io::Errno;

/// Gives each program that comes a function of the card in a folder, for ever.
pub(super) fn serve(card: &Path, epoch: u64, listener: &UnixListener) {
    loop {
        let program = match listener.accept() {
            Ok((program, _)) => program,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return tracing::error!(%error, "no program can come to the card"),
        };
        let function = serve::hand_on(card, HolderId(epoch));
        if let Err(error) = &function {
            tracing::warn!(%error, "a program gets no function of the card");
        }
        let function = function.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
        // A program that has gone takes nothing, and its function is free again.
        let _ = hand(program.as_fd(), function);
    }
}

/// Has the card end what was handed on.
pub(super) fn take_back(card: &Path, epoch: u64) {
    match serve::take_back(card, HolderId(epoch)) {
        Ok(0) => {}
        Ok(functions) => tracing::info!(functions, "functions are taken back"),
        // The daemon does it again, and looks whether it is done.
        Err(error) => tracing::warn!(%error, "the card does not take its functions back"),
    }
}
