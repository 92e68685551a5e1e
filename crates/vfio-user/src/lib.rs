//! The vfio-user protocol: a PCI device that lives in one process is used by another.
//!
//! The core does no I/O: bytes and descriptors in, bytes and descriptors out. [`Server`] is the
//! device's side of one connection, [`Client`] the user's side. The module `unix` puts either on an
//! AF_UNIX socket, and `pci` builds configuration spaces.
#![cfg_attr(feature = "unix", doc = "")]
#![cfg_attr(feature = "unix", doc = include_str!("../README.md"))]
#![forbid(unsafe_code)]

pub mod client;
pub mod device;
mod errno;
mod error;
mod inbox;
mod irqs;
mod limits;
mod maps;
mod outbox;
#[cfg(feature = "pci")]
pub mod pci;
mod pending;
pub mod server;
#[cfg(feature = "unix")]
pub mod unix;
mod version;
pub mod wire;

pub use client::{Client, ClientEvent, Reply};
pub use device::{DeviceInfo, Feature, IoFd, IoFdKind, Irq, Mapping, Region, SparseArea};
pub use errno::Errno;
pub use error::{ProtocolError, RequestError};
pub use irqs::{IrqAction, IrqData, SetIrqs};
pub use limits::Limits;
pub use maps::{DmaMap, DmaUnmap};
pub use outbox::{SharedFd, Transmit};
pub use pending::RequestId;
pub use server::{Bus, Device, Event, OtherReply, Server, Token};
pub use version::{Capabilities, MAJOR, MINOR, Negotiated};
