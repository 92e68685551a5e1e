//! The eventfds by which a server raises a device's interrupts.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::device::{DeviceInfo, Irq};
use crate::errno::Errno;
use crate::irqs::{IrqAction, IrqData, SetIrqs};

/// An eventfd.
#[derive(Debug)]
struct Trigger {
    fd: OwnedFd,
    /// Writing to it returns at once, as it was when it was set up.
    never_blocks: bool,
}

impl Trigger {
    fn new(fd: OwnedFd) -> Trigger {
        let flags = rustix::fs::fcntl_getfl(&fd).unwrap_or(rustix::fs::OFlags::empty());
        Trigger { never_blocks: flags.contains(rustix::fs::OFlags::NONBLOCK), fd }
    }
}

/// What is set up for one interrupt.
#[derive(Debug, Default)]
struct Vector {
    trigger: Option<Trigger>,
    masked: bool,
    /// It was raised while it was masked.
    pending: bool,
}

/// All interrupts of a device: which eventfd raises each, which are masked, which wait.
#[derive(Debug, Default)]
pub struct Interrupts {
    types: Vec<(Irq, Vec<Vector>)>,
}

impl Interrupts {
    /// The interrupts of a device, none set up.
    #[must_use]
    pub fn new(info: &DeviceInfo) -> Interrupts {
        let types = info.irqs.iter().map(|irq| {
            let vectors = (0..irq.count).map(|_| Vector::default()).collect();
            (*irq, vectors)
        });
        Interrupts { types: types.collect() }
    }

    /// Does what the client asks.
    ///
    /// # Errors
    ///
    /// EINVAL outside the device's interrupts; the error of an eventfd. ENOTSUP for eventfds that stand
    /// for masking and unmasking: nobody here would wait for them. QEMU then sends messages instead.
    pub fn apply(&mut self, set: SetIrqs<'_>) -> Result<(), Errno> {
        let SetIrqs { index, start, count, action, data } = set;
        let (irq, vectors) = self.types.get_mut(index as usize).ok_or(Errno::INVAL)?;
        if matches!(data, IrqData::Now) && count == 0 {
            vectors.iter_mut().for_each(|vector| *vector = Vector::default());
            return Ok(());
        }
        let range = start as usize..(start as usize).saturating_add(count as usize);
        let range = vectors.get_mut(range).ok_or(Errno::INVAL)?;
        match data {
            IrqData::Now => range.iter_mut().try_for_each(|vector| act(irq, vector, action)),
            IrqData::NowIf(which) => {
                let chosen = range.iter_mut().zip(which).filter(|(_, which)| **which != 0);
                chosen.map(|(vector, _)| vector).try_for_each(|vector| act(irq, vector, action))
            }
            IrqData::EventFds(_) if action != IrqAction::Trigger => Err(Errno::NOTSUP),
            IrqData::Unassign if action != IrqAction::Trigger => Ok(()),
            IrqData::EventFds(fds) => {
                range.iter_mut().zip(fds).for_each(|(vector, fd)| assign(vector, Some(fd)));
                Ok(())
            }
            IrqData::Unassign => {
                range.iter_mut().for_each(|vector| assign(vector, None));
                Ok(())
            }
        }
    }

    /// Raises an interrupt. True if the client was told, false if nobody listens or if it is masked
    /// (then it is raised when it is unmasked).
    ///
    /// # Errors
    ///
    /// EINVAL for an interrupt the device does not have; the error of its eventfd.
    pub fn raise(&mut self, index: u32, vector: u32) -> Result<bool, Errno> {
        let (irq, vectors) = self.types.get_mut(index as usize).ok_or(Errno::INVAL)?;
        let vector = vectors.get_mut(vector as usize).ok_or(Errno::INVAL)?;
        raise(irq, vector)
    }

    /// Takes back an interrupt that waits because it is masked: a level that went low again.
    pub fn lower(&mut self, index: u32, vector: u32) {
        let types = self.types.get_mut(index as usize);
        if let Some(vector) = types.and_then(|(_, vectors)| vectors.get_mut(vector as usize)) {
            vector.pending = false;
        }
    }

    /// Whether the client listens to an interrupt.
    #[must_use]
    pub fn is_set(&self, index: u32, vector: u32) -> bool {
        let vectors = self.types.get(index as usize).map(|(_, vectors)| vectors);
        vectors.and_then(|v| v.get(vector as usize)).is_some_and(|v| v.trigger.is_some())
    }

    /// Forgets everything that the client set up, as when it goes.
    pub fn clear(&mut self) {
        for (_, vectors) in &mut self.types {
            vectors.iter_mut().for_each(|vector| *vector = Vector::default());
        }
    }
}

fn act(irq: &Irq, vector: &mut Vector, action: IrqAction) -> Result<(), Errno> {
    match action {
        IrqAction::Trigger => raise(irq, vector).map(|_| ()),
        IrqAction::Mask => {
            vector.masked = true;
            Ok(())
        }
        IrqAction::Unmask => {
            vector.masked = false;
            if std::mem::take(&mut vector.pending) {
                raise(irq, vector).map(|_| ())
            } else {
                Ok(())
            }
        }
    }
}

fn raise(irq: &Irq, vector: &mut Vector) -> Result<bool, Errno> {
    if vector.masked {
        vector.pending = true;
        return Ok(false);
    }
    let Some(trigger) = &vector.trigger else { return Ok(false) };
    signal(trigger)?;
    vector.masked = irq.automasked;
    Ok(true)
}

fn assign(vector: &mut Vector, trigger: Option<OwnedFd>) {
    let trigger = trigger.map(Trigger::new);
    *vector = Vector { trigger, masked: false, pending: false };
}

/// Adds one to an eventfd. A full one has been signalled already; a write to one that blocks would
/// take as long as its owner likes, so it is not made.
fn signal(trigger: &Trigger) -> Result<(), Errno> {
    if !trigger.never_blocks {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&trigger.fd, PollFlags::OUT)], Some(&now));
        if ready.map_err(io::Error::from)? == 0 {
            return Ok(());
        }
    }
    match rustix::io::write(&trigger.fd, &1u64.to_ne_bytes()) {
        Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
        Err(error) => Err(io::Error::from(error).into()),
    }
}
