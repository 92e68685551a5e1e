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
struct Trigger(OwnedFd);

impl Trigger {
    /// Takes an eventfd and nothing else: writing to whatever a client sends would be doing what it
    /// likes, and holding it (the client's own end of the connection, say) would hide its end.
    ///
    /// Adding nothing to an eventfd is possible whatever its count is, and never waits.
    fn new(fd: OwnedFd) -> Result<Trigger, Errno> {
        let stat = rustix::fs::fstat(&fd).map_err(|_| Errno::INVAL)?;
        // Pipes, sockets, files and devices have a type; what the kernel makes for itself has none.
        let has_type = rustix::fs::RawMode::from(stat.st_mode) & 0o170_000 != 0;
        if has_type || rustix::io::write(&fd, &0u64.to_ne_bytes()) != Ok(8) {
            return Err(Errno::INVAL);
        }
        Ok(Trigger(fd))
    }

    /// Whether a write returns at once. Who has sent the eventfd can change that at any time.
    fn never_blocks(&self) -> bool {
        rustix::fs::fcntl_getfl(&self.0).is_ok_and(|f| f.contains(rustix::fs::OFlags::NONBLOCK))
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

/// Tells the client of an interrupt by its type and vector, and waits for nobody.
type Tell = Box<dyn Fn(u32, u32) -> Result<(), Errno> + Send>;

/// All interrupts of a device: which eventfd raises each, which are masked, which wait.
#[derive(Default)]
pub struct Interrupts {
    types: Vec<(Irq, Vec<Vector>)>,
    /// The way to a client whose stream carries no eventfds.
    tell: Option<Tell>,
}

impl std::fmt::Debug for Interrupts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupts").field("types", &self.types).finish_non_exhaustive()
    }
}

impl Interrupts {
    /// The interrupts of a device, none set up.
    #[must_use]
    pub fn new(info: &DeviceInfo) -> Interrupts {
        let types = info.irqs.iter().map(|irq| {
            let vectors = (0..irq.count).map(|_| Vector::default()).collect();
            (*irq, vectors)
        });
        Interrupts { types: types.collect(), tell: None }
    }

    /// Has `tell` be called, with the type and the vector, for each interrupt that is raised and has no
    /// eventfd: for a client that takes none, and that has agreed with this side how else it is told.
    /// Masks hold for these too.
    pub fn otherwise(&mut self, tell: impl Fn(u32, u32) -> Result<(), Errno> + Send + 'static) {
        self.tell = Some(Box::new(tell));
    }

    /// Does what the client asks.
    ///
    /// # Errors
    ///
    /// EINVAL outside the device's interrupts, and for a trigger that is no eventfd; the error of an
    /// eventfd. ENOTSUP for eventfds that stand
    /// for masking and unmasking: nobody here would wait for them. QEMU then sends messages instead.
    pub fn apply(&mut self, set: SetIrqs<'_>) -> Result<(), Errno> {
        let SetIrqs { index, start, count, action, data } = set;
        let tell = self.tell.as_ref();
        let (irq, vectors) = self.types.get_mut(index as usize).ok_or(Errno::INVAL)?;
        if matches!(data, IrqData::Now) && count == 0 {
            vectors.iter_mut().for_each(|vector| *vector = Vector::default());
            return Ok(());
        }
        let range = start as usize..(start as usize).saturating_add(count as usize);
        let range = vectors.get_mut(range).ok_or(Errno::INVAL)?;
        let mut act = |(number, vector): (u32, &mut Vector)| {
            act(irq, vector, action, || tell.map(|tell| tell(index, number)))
        };
        match data {
            IrqData::Now => (start..).zip(range).try_for_each(act),
            IrqData::NowIf(which) => {
                let chosen = (start..).zip(range).zip(which).filter(|(_, which)| **which != 0);
                chosen.map(|(vector, _)| vector).try_for_each(&mut act)
            }
            IrqData::EventFds(_) if action != IrqAction::Trigger => Err(Errno::NOTSUP),
            IrqData::Unassign if action != IrqAction::Trigger => Ok(()),
            IrqData::EventFds(fds) => {
                // All of them or none.
                let triggers: Result<Vec<Trigger>, Errno> =
                    fds.into_iter().map(Trigger::new).collect();
                range.iter_mut().zip(triggers?).for_each(|(vector, t)| assign(vector, Some(t)));
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
        let tell = self.tell.as_ref();
        let (irq, vectors) = self.types.get_mut(index as usize).ok_or(Errno::INVAL)?;
        let state = vectors.get_mut(vector as usize).ok_or(Errno::INVAL)?;
        raise(irq, state, || tell.map(|tell| tell(index, vector)))
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

fn act(
    irq: &Irq,
    vector: &mut Vector,
    action: IrqAction,
    tell: impl FnOnce() -> Option<Result<(), Errno>>,
) -> Result<(), Errno> {
    match action {
        IrqAction::Trigger => raise(irq, vector, tell).map(|_| ()),
        IrqAction::Mask => {
            vector.masked = true;
            Ok(())
        }
        IrqAction::Unmask => {
            vector.masked = false;
            if std::mem::take(&mut vector.pending) {
                raise(irq, vector, tell).map(|_| ())
            } else {
                Ok(())
            }
        }
    }
}

/// `tell` is for an interrupt without an eventfd; it gives nothing where nobody listens.
fn raise(
    irq: &Irq,
    vector: &mut Vector,
    tell: impl FnOnce() -> Option<Result<(), Errno>>,
) -> Result<bool, Errno> {
    if vector.masked {
        vector.pending = true;
        return Ok(false);
    }
    match (&vector.trigger, tell) {
        (Some(trigger), _) => signal(trigger)?,
        (None, tell) => match tell() {
            Some(told) => told?,
            None => return Ok(false),
        },
    }
    vector.masked = irq.automasked;
    Ok(true)
}

fn assign(vector: &mut Vector, trigger: Option<Trigger>) {
    *vector = Vector { trigger, masked: false, pending: false };
}

/// Adds one to an eventfd. A full one has been signalled already; a write to one that blocks would
/// take as long as its owner likes, so it is not made.
fn signal(trigger: &Trigger) -> Result<(), Errno> {
    if !trigger.never_blocks() {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&trigger.0, PollFlags::OUT)], Some(&now));
        if ready.map_err(io::Error::from)? == 0 {
            return Ok(());
        }
    }
    match rustix::io::write(&trigger.0, &1u64.to_ne_bytes()) {
        Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
        Err(error) => Err(io::Error::from(error).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::device::irq;

    fn set(action: IrqAction, vector: u32, data: IrqData<'_>) -> SetIrqs<'_> {
        SetIrqs { index: irq::MSIX, start: vector, count: 1, action, data }
    }

    #[test]
    fn a_client_without_eventfds_is_told_otherwise_and_masks_hold() {
        let irqs = vec![Irq::NONE, Irq::NONE, Irq { count: 3, ..Irq::NONE }];
        let info = DeviceInfo { irqs, ..DeviceInfo::default() };
        let mut interrupts = Interrupts::new(&info);
        assert_eq!(interrupts.raise(irq::MSIX, 1), Ok(false), "nobody listens");
        let told = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&told);
        interrupts.otherwise(move |index, vector| {
            into.lock().unwrap().push((index, vector));
            Ok(())
        });
        let take = || std::mem::take(&mut *told.lock().unwrap());
        assert_eq!(interrupts.raise(irq::MSIX, 1), Ok(true));
        assert_eq!(take(), [(irq::MSIX, 1)]);
        assert_eq!(interrupts.raise(irq::MSIX, 3), Err(Errno::INVAL));
        // One that is masked comes when it is unmasked, once.
        interrupts.apply(set(IrqAction::Mask, 2, IrqData::Now)).unwrap();
        assert_eq!(interrupts.raise(irq::MSIX, 2), Ok(false));
        assert_eq!(interrupts.raise(irq::MSIX, 2), Ok(false));
        assert_eq!(take(), []);
        interrupts.apply(set(IrqAction::Unmask, 2, IrqData::Now)).unwrap();
        assert_eq!(take(), [(irq::MSIX, 2)]);
        // A client may raise its own, and say which.
        interrupts.apply(set(IrqAction::Trigger, 0, IrqData::NowIf(&[1]))).unwrap();
        interrupts.apply(set(IrqAction::Trigger, 1, IrqData::NowIf(&[0]))).unwrap();
        assert_eq!(take(), [(irq::MSIX, 0)]);
        // Where there is an eventfd it is that.
        let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let own = vec![event.try_clone().unwrap()];
        interrupts.apply(set(IrqAction::Trigger, 1, IrqData::EventFds(own))).unwrap();
        assert_eq!(interrupts.raise(irq::MSIX, 1), Ok(true));
        assert_eq!(take(), []);
        assert_eq!(rustix::io::read(&event, &mut [0; 8]), Ok(8));
    }
}
