//! DEVICE_SET_IRQS: setting up, masking and raising interrupts.

use std::os::fd::OwnedFd;

use crate::device::Irq;
use crate::errno::Errno;
use crate::wire::{self, SET_IRQS_SIZE, u32_at};

/// What is set or done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqAction {
    /// Mask interrupts.
    Mask,
    /// Unmask interrupts.
    Unmask,
    /// Raise interrupts, or say which descriptors raise them.
    Trigger,
}

/// Whom it concerns, and how.
#[derive(Debug)]
pub enum IrqData<'a> {
    /// Do it now to every interrupt of the range. With `Trigger` and a count of 0: switch the whole
    /// type off.
    Now,
    /// Do it now to interrupts whose byte is not 0, one byte for each of the range.
    NowIf(&'a [u8]),
    /// From now on these eventfds stand for the action, one for each interrupt of the range.
    EventFds(Vec<OwnedFd>),
    /// From now on no eventfd stands for the action on the interrupts of the range.
    Unassign,
}

/// A DEVICE_SET_IRQS command. The range has been checked against the device's description.
#[derive(Debug)]
pub struct SetIrqs<'a> {
    /// The interrupt type, such as [`MSIX`](crate::device::irq::MSIX).
    pub index: u32,
    /// First interrupt of the range.
    pub start: u32,
    /// Interrupts in the range.
    pub count: u32,
    /// What is set or done.
    pub action: IrqAction,
    /// Whom it concerns, and how.
    pub data: IrqData<'a>,
}

/// The fixed part of the command, checked.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub(crate) index: u32,
    pub(crate) start: u32,
    pub(crate) count: u32,
    pub(crate) action: IrqAction,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Now,
    NowIf,
    EventFds,
}

impl Fixed {
    pub(crate) fn decode(payload: &[u8], irqs: &[Irq], fds: usize) -> Result<Fixed, Errno> {
        if payload.len() < SET_IRQS_SIZE {
            return Err(Errno::INVAL);
        }
        let flags = u32_at(payload, 4);
        let set = Fixed {
            index: u32_at(payload, 8),
            start: u32_at(payload, 12),
            count: u32_at(payload, 16),
            action: action(flags)?,
            kind: kind(flags)?,
        };
        set.check(irqs)?;
        set.check_data(payload.len() - SET_IRQS_SIZE, fds)?;
        Ok(set)
    }

    fn check(&self, irqs: &[Irq]) -> Result<(), Errno> {
        let irq = irqs.get(self.index as usize).ok_or(Errno::INVAL)?;
        let end = self.start.checked_add(self.count).ok_or(Errno::INVAL)?;
        if end > irq.count {
            return Err(Errno::INVAL);
        }
        let all_off =
            self.start == 0 && self.kind == Kind::Now && self.action == IrqAction::Trigger;
        if self.count == 0 && !all_off {
            return Err(Errno::INVAL);
        }
        if self.action != IrqAction::Trigger && !irq.maskable {
            return Err(Errno::NOTSUP);
        }
        Ok(())
    }

    fn check_data(&self, data: usize, fds: usize) -> Result<(), Errno> {
        let count = self.count as usize;
        let good = match self.kind {
            Kind::Now => fds == 0,
            Kind::NowIf => fds == 0 && data >= count,
            Kind::EventFds => fds == 0 || fds == count,
        };
        if good { Ok(()) } else { Err(Errno::INVAL) }
    }
}

fn action(flags: u32) -> Result<IrqAction, Errno> {
    match flags & (wire::SET_MASK | wire::SET_UNMASK | wire::SET_TRIGGER) {
        wire::SET_MASK => Ok(IrqAction::Mask),
        wire::SET_UNMASK => Ok(IrqAction::Unmask),
        wire::SET_TRIGGER => Ok(IrqAction::Trigger),
        _ => Err(Errno::INVAL),
    }
}

fn kind(flags: u32) -> Result<Kind, Errno> {
    match flags & (wire::SET_NONE | wire::SET_BOOL | wire::SET_EVENTFD) {
        wire::SET_NONE => Ok(Kind::Now),
        wire::SET_BOOL => Ok(Kind::NowIf),
        wire::SET_EVENTFD => Ok(Kind::EventFds),
        _ => Err(Errno::INVAL),
    }
}

pub(crate) fn action_flag(action: IrqAction) -> u32 {
    match action {
        IrqAction::Mask => wire::SET_MASK,
        IrqAction::Unmask => wire::SET_UNMASK,
        IrqAction::Trigger => wire::SET_TRIGGER,
    }
}
