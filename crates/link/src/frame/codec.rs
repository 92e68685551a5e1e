//! Frames to bytes and back.

use super::{Class, DATA_BYTES_MAX, Frame, IrqAction, Kind, MapRights, READ_BYTES_MAX, Ring};
use crate::wire::Fields;

/// A frame's fields are not those of its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

impl<D> Frame<D> {
    /// Its class.
    #[must_use]
    pub const fn class(&self) -> Class {
        self.kind().class()
    }

    /// Its data, if its kind has any.
    #[must_use]
    pub const fn data(&self) -> Option<&D> {
        match self {
            Frame::RegionWrite { data, .. }
            | Frame::MemoryWrite { data, .. }
            | Frame::DmaWrite { data, .. }
            | Frame::RingEntries { data, .. }
            | Frame::PeerAdmit { data, .. }
            | Frame::PeerReach { data, .. }
            | Frame::Data { data, .. } => Some(data),
            _ => None,
        }
    }

    /// The same with other data.
    pub fn map<E>(self, change: impl FnOnce(D) -> E) -> Frame<E> {
        match self {
            Frame::RegionWrite { region, offset, data } => {
                Frame::RegionWrite { region, offset, data: change(data) }
            }
            Frame::MemoryWrite { offset, data } => {
                Frame::MemoryWrite { offset, data: change(data) }
            }
            Frame::DmaWrite { address, data } => Frame::DmaWrite { address, data: change(data) },
            Frame::RingEntries { ring, first, data } => {
                Frame::RingEntries { ring, first, data: change(data) }
            }
            Frame::Data { offset, last, data } => Frame::Data { offset, last, data: change(data) },
            Frame::MemoryFill { offset, bytes, value } => {
                Frame::MemoryFill { offset, bytes, value }
            }
            Frame::Interrupt { index, vector } => Frame::Interrupt { index, vector },
            Frame::IrqControl { action, index, start, count } => {
                Frame::IrqControl { action, index, start, count }
            }
            Frame::DmaMap { address, bytes, rights } => Frame::DmaMap { address, bytes, rights },
            Frame::RingConsumed { ring, index } => Frame::RingConsumed { ring, index },
            Frame::RingWaits { ring } => Frame::RingWaits { ring },
            Frame::Refused { kind, errno, address, bytes } => {
                Frame::Refused { kind, errno, address, bytes }
            }
            Frame::Return => Frame::Return,
            Frame::PeerAdmit { peer, data } => Frame::PeerAdmit { peer, data: change(data) },
            Frame::PeerReach { peer, data } => Frame::PeerReach { peer, data: change(data) },
            Frame::PeerLend { peer, transfer, offset, bytes } => {
                Frame::PeerLend { peer, transfer, offset, bytes }
            }
            Frame::PeerEnd { peer, transfer } => Frame::PeerEnd { peer, transfer },
            Frame::PeerReady { peer } => Frame::PeerReady { peer },
            Frame::PeerFetch { peer, transfer, offset, bytes } => {
                Frame::PeerFetch { peer, transfer, offset, bytes }
            }
            Frame::PeerRead { transfer, bytes } => Frame::PeerRead { transfer, bytes },
            Frame::MemoryReadBehind { command, offset, bytes } => {
                Frame::MemoryReadBehind { command, offset, bytes }
            }
            Frame::RegionRead { region, offset, bytes } => {
                Frame::RegionRead { region, offset, bytes }
            }
            Frame::MemoryRead { offset, bytes } => Frame::MemoryRead { offset, bytes },
            Frame::DmaRead { address, bytes } => Frame::DmaRead { address, bytes },
            Frame::DmaUnmap { address, bytes } => Frame::DmaUnmap { address, bytes },
            Frame::Reset => Frame::Reset,
            Frame::Barrier => Frame::Barrier,
            Frame::Describe => Frame::Describe,
            Frame::Done => Frame::Done,
            Frame::Failed { errno } => Frame::Failed { errno },
        }
    }

    /// The same with no data in it, and the data.
    pub(crate) fn split(mut self) -> (Frame<D>, D)
    where
        D: Default,
    {
        let data = match &mut self {
            Frame::RegionWrite { data, .. }
            | Frame::MemoryWrite { data, .. }
            | Frame::DmaWrite { data, .. }
            | Frame::RingEntries { data, .. }
            | Frame::PeerAdmit { data, .. }
            | Frame::PeerReach { data, .. }
            | Frame::Data { data, .. } => std::mem::take(data),
            _ => D::default(),
        };
        (self, data)
    }

    /// Most bytes that the replies to this request bring; `None` if only `Done` answers it.
    #[must_use]
    pub const fn wanted_bytes(&self) -> Option<u32> {
        match self {
            Frame::RegionRead { bytes, .. }
            | Frame::MemoryRead { bytes, .. }
            | Frame::DmaRead { bytes, .. }
            | Frame::PeerRead { bytes, .. }
            | Frame::MemoryReadBehind { bytes, .. } => Some(*bytes),
            Frame::Describe => Some(crate::description::BYTES_MAX),
            _ => None,
        }
    }

    /// Appends its fields, without the data.
    pub(crate) fn put_fields(&self, to: &mut Vec<u8>) {
        let mut put = |bytes: &[u8]| to.extend_from_slice(bytes);
        match self {
            Frame::RegionWrite { region, offset, .. } => {
                put(&region.to_le_bytes());
                put(&offset.to_le_bytes());
            }
            Frame::MemoryWrite { offset, .. } => put(&offset.to_le_bytes()),
            Frame::MemoryFill { offset, bytes, value } => {
                put(&offset.to_le_bytes());
                put(&bytes.to_le_bytes());
                put(&[*value]);
            }
            Frame::DmaWrite { address, .. } => put(&address.to_le_bytes()),
            Frame::Interrupt { index, vector } => {
                put(&index.to_le_bytes());
                put(&vector.to_le_bytes());
            }
            Frame::IrqControl { action, index, start, count } => {
                put(&(*action as u32).to_le_bytes());
                put(&index.to_le_bytes());
                put(&start.to_le_bytes());
                put(&count.to_le_bytes());
            }
            Frame::DmaMap { address, bytes, rights } => {
                put(&address.to_le_bytes());
                put(&bytes.to_le_bytes());
                put(&rights.encode().to_le_bytes());
            }
            Frame::RingEntries { ring, first: index, .. } | Frame::RingConsumed { ring, index } => {
                put(&(*ring as u32).to_le_bytes());
                put(&index.to_le_bytes());
            }
            Frame::RingWaits { ring } => put(&(*ring as u32).to_le_bytes()),
            Frame::Refused { kind, errno, address, bytes } => {
                put(&kind.to_le_bytes());
                put(&errno.to_le_bytes());
                put(&address.to_le_bytes());
                put(&bytes.to_le_bytes());
            }
            Frame::RegionRead { region, offset, bytes } => {
                put(&region.to_le_bytes());
                put(&offset.to_le_bytes());
                put(&bytes.to_le_bytes());
            }
            Frame::MemoryRead { offset: address, bytes } | Frame::DmaRead { address, bytes } => {
                put(&address.to_le_bytes());
                put(&bytes.to_le_bytes());
            }
            Frame::DmaUnmap { address, bytes } => {
                put(&address.to_le_bytes());
                put(&bytes.to_le_bytes());
            }
            Frame::PeerAdmit { peer, .. }
            | Frame::PeerReach { peer, .. }
            | Frame::PeerReady { peer } => put(&peer.to_le_bytes()),
            Frame::PeerLend { peer, transfer, offset, bytes }
            | Frame::PeerFetch { peer, transfer, offset, bytes } => {
                put(&peer.to_le_bytes());
                put(&transfer.to_le_bytes());
                put(&offset.to_le_bytes());
                put(&bytes.to_le_bytes());
            }
            Frame::PeerEnd { peer, transfer } => {
                put(&peer.to_le_bytes());
                put(&transfer.to_le_bytes());
            }
            Frame::PeerRead { transfer, bytes } => {
                put(&transfer.to_le_bytes());
                put(&bytes.to_le_bytes());
            }
            Frame::MemoryReadBehind { command, offset, bytes } => {
                put(&command.to_le_bytes());
                put(&offset.to_le_bytes());
                put(&bytes.to_le_bytes());
            }
            Frame::Data { offset, last, .. } => {
                put(&offset.to_le_bytes());
                put(&[u8::from(*last)]);
            }
            Frame::Failed { errno } => put(&errno.to_le_bytes()),
            Frame::Return | Frame::Reset | Frame::Barrier | Frame::Describe | Frame::Done => {}
        }
    }
}

impl<'a> Frame<&'a [u8]> {
    /// Reads what stands behind the header of a frame of this kind.
    pub(crate) fn decode(kind: Kind, payload: &'a [u8]) -> Result<Frame<&'a [u8]>, Malformed> {
        let mut fields = Fields(payload);
        let frame = Frame::take(kind, &mut fields).and_then(|frame| fields.end(frame));
        let frame = frame.ok_or(Malformed)?;
        let data = frame.data().map_or(0, |data| data.len());
        let wanted = match frame {
            Frame::PeerLend { bytes, .. } | Frame::PeerFetch { bytes, .. } => bytes,
            _ => frame.wanted_bytes().unwrap_or(0),
        };
        if data > DATA_BYTES_MAX || wanted > READ_BYTES_MAX {
            return Err(Malformed);
        }
        Ok(frame)
    }

    fn take(kind: Kind, from: &mut Fields<'a>) -> Option<Frame<&'a [u8]>> {
        Some(match kind {
            Kind::RegionWrite => {
                Frame::RegionWrite { region: from.u32()?, offset: from.u64()?, data: from.rest() }
            }
            Kind::MemoryWrite => Frame::MemoryWrite { offset: from.u64()?, data: from.rest() },
            Kind::MemoryFill => Frame::MemoryFill {
                offset: from.u64()?,
                bytes: from.u64()?,
                value: from.bytes(1)?[0],
            },
            Kind::DmaWrite => Frame::DmaWrite { address: from.u64()?, data: from.rest() },
            Kind::Interrupt => Frame::Interrupt { index: from.u32()?, vector: from.u32()? },
            Kind::IrqControl => Frame::IrqControl {
                action: IrqAction::decode(from.u32()?)?,
                index: from.u32()?,
                start: from.u32()?,
                count: from.u32()?,
            },
            Kind::DmaMap => Frame::DmaMap {
                address: from.u64()?,
                bytes: from.u64()?,
                rights: MapRights::decode(from.u32()?)?,
            },
            Kind::RingEntries => Frame::RingEntries {
                ring: Ring::decode(from.u32()?)?,
                first: from.u32()?,
                data: from.rest(),
            },
            Kind::RingConsumed => {
                Frame::RingConsumed { ring: Ring::decode(from.u32()?)?, index: from.u32()? }
            }
            Kind::RingWaits => Frame::RingWaits { ring: Ring::decode(from.u32()?)? },
            Kind::Refused => Frame::Refused {
                kind: from.u16()?,
                errno: from.u32()?,
                address: from.u64()?,
                bytes: from.u64()?,
            },
            Kind::Return => Frame::Return,
            Kind::PeerAdmit => Frame::PeerAdmit { peer: from.u32()?, data: from.rest() },
            Kind::PeerReach => Frame::PeerReach { peer: from.u32()?, data: from.rest() },
            Kind::PeerLend => Frame::PeerLend {
                peer: from.u32()?,
                transfer: from.u64()?,
                offset: from.u64()?,
                bytes: from.u32()?,
            },
            Kind::PeerEnd => Frame::PeerEnd { peer: from.u32()?, transfer: from.u64()? },
            Kind::PeerReady => Frame::PeerReady { peer: from.u32()? },
            Kind::PeerFetch => Frame::PeerFetch {
                peer: from.u32()?,
                transfer: from.u64()?,
                offset: from.u64()?,
                bytes: from.u32()?,
            },
            Kind::PeerRead => Frame::PeerRead { transfer: from.u64()?, bytes: from.u32()? },
            Kind::MemoryReadBehind => Frame::MemoryReadBehind {
                command: from.u64()?,
                offset: from.u64()?,
                bytes: from.u32()?,
            },
            Kind::RegionRead => {
                Frame::RegionRead { region: from.u32()?, offset: from.u64()?, bytes: from.u32()? }
            }
            Kind::MemoryRead => Frame::MemoryRead { offset: from.u64()?, bytes: from.u32()? },
            Kind::DmaRead => Frame::DmaRead { address: from.u64()?, bytes: from.u32()? },
            Kind::DmaUnmap => Frame::DmaUnmap { address: from.u64()?, bytes: from.u64()? },
            Kind::Reset => Frame::Reset,
            Kind::Barrier => Frame::Barrier,
            Kind::Describe => Frame::Describe,
            Kind::Data => Frame::Data {
                offset: from.u32()?,
                last: match from.bytes(1)?[0] {
                    0 => false,
                    1 => true,
                    _ => return None,
                },
                data: from.rest(),
            },
            Kind::Done => Frame::Done,
            Kind::Failed => Frame::Failed { errno: from.u32()? },
        })
    }
}
