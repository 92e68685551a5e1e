//! Commands that outlive the input they came in.

use std::os::fd::OwnedFd;

use crate::errno::Errno;
use crate::irqs::{IrqAction, IrqData, SetIrqs};
use crate::maps::{DmaMap, DmaUnmap};
use crate::server::{Bus, Device, Event, OtherReply, RegionAccess, Server, Token};
use crate::version::Negotiated;
use crate::wire::Command;

/// A command with all that belongs to it.
pub(super) enum Owned {
    Negotiated(Negotiated),
    Read { token: Token, access: RegionAccess },
    Write { token: Token, access: RegionAccess, data: Vec<u8> },
    Multi { token: Token, writes: Vec<(RegionAccess, Vec<u8>)> },
    Map { token: Token, map: DmaMap },
    Unmap { token: Token, unmap: DmaUnmap },
    Irqs { token: Token, set: OwnedIrqs },
    Reset { token: Token },
    FeatureGet { token: Token, feature: u16 },
    FeatureSet { token: Token, feature: u16, data: Vec<u8> },
    Other { token: Token, command: Command, data: Vec<u8>, fds: Vec<OwnedFd> },
}

/// A SET_IRQS with its data.
pub(super) struct OwnedIrqs {
    index: u32,
    start: u32,
    count: u32,
    action: IrqAction,
    flags: Option<Vec<u8>>,
    data: Option<IrqData<'static>>,
}

impl OwnedIrqs {
    fn of(set: SetIrqs<'_>) -> OwnedIrqs {
        let SetIrqs { index, start, count, action, data } = set;
        let (flags, data) = match data {
            IrqData::NowIf(flags) => (Some(flags.to_vec()), None),
            IrqData::Now => (None, Some(IrqData::Now)),
            IrqData::EventFds(fds) => (None, Some(IrqData::EventFds(fds))),
            IrqData::Unassign => (None, Some(IrqData::Unassign)),
        };
        OwnedIrqs { index, start, count, action, flags, data }
    }

    fn give(self, device: &mut impl Device) -> Result<(), Errno> {
        let OwnedIrqs { index, start, count, action, flags, data } = self;
        let flags = flags.unwrap_or_default();
        let data = data.unwrap_or(IrqData::NowIf(&flags));
        device.set_irqs(SetIrqs { index, start, count, action, data })
    }
}

/// What a device has said to a command.
pub(super) enum Answer {
    Nothing,
    Done(Token, Result<(), Errno>),
    Data(Token, Result<Vec<u8>, Errno>),
    With(Token, OtherReply),
}

impl Answer {
    pub(super) fn complete(self, server: &mut Server) {
        match self {
            Answer::Nothing => {}
            Answer::Done(token, result) => server.complete(token, result),
            Answer::Data(token, result) => server.complete_read(token, |into| {
                into.copy_from_slice(&result?);
                Ok(())
            }),
            Answer::With(token, reply) => server.complete_with(token, &reply.data, reply.fds),
        }
    }
}

impl Owned {
    /// The command of an event; nothing of one that is an answer.
    pub(super) fn of(event: Event<'_>) -> Option<Owned> {
        Some(match event {
            Event::Negotiated(negotiated) => Owned::Negotiated(negotiated),
            Event::RegionRead { token, access } => Owned::Read { token, access },
            Event::RegionWrite { token, access, data } => {
                Owned::Write { token, access, data: data.to_vec() }
            }
            Event::RegionWriteMulti { token, writes } => {
                let writes = writes.map(|write| (write.access, write.data().to_vec()));
                Owned::Multi { token, writes: writes.collect() }
            }
            Event::DmaMap { token, map } => Owned::Map { token, map },
            Event::DmaUnmap { token, unmap } => Owned::Unmap { token, unmap },
            Event::SetIrqs { token, set } => Owned::Irqs { token, set: OwnedIrqs::of(set) },
            Event::Reset { token } => Owned::Reset { token },
            Event::FeatureGet { token, feature, .. } => Owned::FeatureGet { token, feature },
            Event::FeatureSet { token, feature, data } => {
                Owned::FeatureSet { token, feature, data: data.to_vec() }
            }
            Event::Other { token, command, data, fds } => {
                Owned::Other { token, command, data: data.to_vec(), fds }
            }
            Event::Answered { .. } | Event::DmaDone { .. } => return None,
        })
    }

    /// Bytes that it takes, roughly.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Owned>()
            + match self {
                Owned::Write { data, .. }
                | Owned::FeatureSet { data, .. }
                | Owned::Other { data, .. } => data.len(),
                Owned::Multi { writes, .. } => writes.len() * 64,
                _ => 0,
            }
    }

    /// Gives it to a device.
    pub(super) fn give(self, device: &mut impl Device, bus: &mut Bus<'_>) -> Answer {
        match self {
            Owned::Negotiated(negotiated) => {
                device.negotiated(&negotiated);
                Answer::Nothing
            }
            Owned::Read { token, access } => {
                let mut data = vec![0; access.count as usize];
                let result = device.region_read(access.region, access.offset, &mut data);
                Answer::Data(token, result.map(|()| data))
            }
            Owned::Write { token, access, data } => {
                Answer::Done(token, device.region_write(bus, access.region, access.offset, &data))
            }
            Owned::Multi { token, writes } => {
                let mut writes = writes.iter();
                let done = writes.try_for_each(|(access, data)| {
                    device.region_write(bus, access.region, access.offset, data)
                });
                Answer::Done(token, done)
            }
            Owned::Map { token, map } => Answer::Done(token, device.dma_map(map)),
            Owned::Unmap { token, unmap } => Answer::Done(token, device.dma_unmap(unmap)),
            Owned::Irqs { token, set } => Answer::Done(token, set.give(device)),
            Owned::Reset { token } => Answer::Done(token, device.reset(bus)),
            Owned::FeatureGet { token, feature } => {
                let mut reply = OtherReply::default();
                match device.feature_get(feature, &mut reply.data) {
                    Ok(()) => Answer::With(token, reply),
                    Err(errno) => Answer::Done(token, Err(errno)),
                }
            }
            Owned::FeatureSet { token, feature, data } => {
                Answer::Done(token, device.feature_set(feature, &data))
            }
            Owned::Other { token, command, data, fds } => {
                let mut reply = OtherReply::default();
                match device.other(bus, command, &data, fds, &mut reply) {
                    Ok(()) => Answer::With(token, reply),
                    Err(errno) => Answer::Done(token, Err(errno)),
                }
            }
        }
    }
}
