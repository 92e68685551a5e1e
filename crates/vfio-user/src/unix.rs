//! Either engine on a blocking stream: an AF_UNIX socket with descriptors (Linux), or any other
//! [`Stream`], with descriptors or without.
//!
//! On a socket each message costs one `sendmsg` and one `recvmsg`; nothing waits in between.

mod client;
mod connection;
mod interrupts;
mod listener;
mod plain;
mod session;
mod shared;
mod stream;

pub use client::{BlockingClient, CallError, DmaMemory, NoMemory, OpenCall, UnixClient};
pub use connection::{Connection, Peer, Ready};
pub use interrupts::Interrupts;
pub use listener::Listener;
pub use plain::Plain;
pub use session::{Session, SessionError, Wanted};
pub use shared::{DmaError, SharedSession};
pub use stream::Stream;
