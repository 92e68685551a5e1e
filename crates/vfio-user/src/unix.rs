//! Either engine on a blocking AF_UNIX stream socket, with descriptors (Linux).
//!
//! Each message costs one `sendmsg` and one `recvmsg`; nothing waits in between.

mod client;
mod connection;
mod interrupts;
mod listener;
mod session;

pub use client::{CallError, DmaMemory, NoMemory, UnixClient};
pub use connection::{Connection, Peer, Ready};
pub use interrupts::Interrupts;
pub use listener::Listener;
pub use session::{Session, SessionError};
