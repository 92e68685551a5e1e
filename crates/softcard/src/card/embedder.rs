//! What a software card is plugged into.

use std::ptr::NonNull;
use std::sync::Arc;

use farside_card::Location;
use farside_card::interface::AllocRequest;
use farside_types::{Access, CardId, CommandId, VirtAddr};

use super::SoftCard;
use crate::job::Job;
use crate::own_memory::OwnMemory;
use crate::record::Recorder;
use crate::window::WindowError;

/// Of whatever has no windows for its cards.
const NO_WINDOW: &str = "whatever it is plugged into has none for it";

/// What a software card is plugged into: the runtime of the program, or the process that serves the
/// card to others. The card's processing elements call it, without holding the card's lock.
pub trait Embedder: Send + Sync + std::fmt::Debug {
    /// Faults, or notices of the access counters, have been queued: somebody has to take them.
    fn raised(&self, card: &SoftCard);

    /// These drains have completed, because an access ended.
    fn drained(&self, card: &SoftCard, commands: &[CommandId]);

    /// A job has ended, or was given up holding nothing: it touches memory no more. Called before
    /// those who wait for the job are told.
    fn job_over(&self, card: &SoftCard, job: &Job);

    /// A job that did not stop was given up; `holds`: it still holds memory. One that holds nothing
    /// will get nothing: it has ended. One that holds memory has not, so that drains of that memory
    /// are waited for.
    fn job_given_up(&self, card: &SoftCard, job: &Job, holds: bool) {
        if !holds {
            self.job_over(card, job);
        }
    }

    /// Where `count` pages from `location` on are. They follow one another in memory.
    fn pointer(&self, location: Location, count: u32) -> NonNull<u8>;

    /// Where a stretch of [`farside_card::tables::STRETCH_PAGES`] bus pages begins, if what a card maps
    /// of it may be accessed there without asking for it by [`Embedder::pointer`]. The pages follow one
    /// another, as far as they are mapped. Holds until the card's words were disturbed and drained.
    ///
    /// It is asked for by words that are under way, for which others wait: it takes no lock.
    fn bus_stretch(&self, number: u8) -> Option<NonNull<u8>> {
        let _ = number;
        None
    }

    /// What to say of an address that a kernel was not given.
    fn hint(&self, addr: VirtAddr) -> String;

    /// Memory of a card's own is asked for, by one of its kernels or by the program: the address, 0 of a free. Waits
    /// for those who have what is freed or moves.
    ///
    /// # Errors
    /// [`WindowError`]; nothing has changed then.
    fn allocate(&self, card: CardId, request: AllocRequest) -> Result<u64, WindowError> {
        let _ = request;
        Err(WindowError::NoWindow { card, why: NO_WINDOW })
    }

    /// The same for a kernel.
    ///
    /// # Errors
    /// As [`Embedder::allocate`].
    fn allocate_for(
        &self,
        card: CardId,
        job: &Job,
        request: AllocRequest,
    ) -> Result<u64, WindowError> {
        let _ = job;
        self.allocate(card, request)
    }

    /// What a kernel has allocated, of so many bytes, belongs to the program from now on, which is told where it is in whatever
    /// way the kernel likes.
    ///
    /// # Errors
    /// [`WindowError`].
    fn hand_over(
        &self,
        card: CardId,
        job: &Job,
        addr: VirtAddr,
        bytes: u64,
    ) -> Result<(), WindowError> {
        let _ = (job, addr, bytes);
        Err(WindowError::NoWindow { card, why: NO_WINDOW })
    }

    /// What a kernel has handed over is the caller's from now on, of so many bytes.
    ///
    /// # Errors
    /// [`WindowError`].
    fn take_over(&self, card: CardId, addr: VirtAddr, bytes: u64) -> Result<(), WindowError> {
        let _ = (addr, bytes);
        Err(WindowError::NoWindow { card, why: NO_WINDOW })
    }

    /// The memories that a card has for its own window, with what is free.
    ///
    /// # Errors
    /// [`WindowError`].
    fn own_memories(&self, card: CardId) -> Result<Vec<OwnMemory>, WindowError> {
        Err(WindowError::NoWindow { card, why: NO_WINDOW })
    }

    /// Whether kernels run in the program: what they make of its own memory can be returned as it is.
    fn is_in_program(&self) -> bool {
        true
    }

    /// Maps memory of a card's own in the program, at its address, until it is freed; for an access of that kind.
    ///
    /// # Errors
    /// [`WindowError`]; [`WindowError::ReadOnly`] where it may not be written, and should be.
    fn show(
        &self,
        card: CardId,
        addr: VirtAddr,
        bytes: u64,
        access: Access,
    ) -> Result<(), WindowError> {
        let _ = (addr, bytes, access);
        Err(WindowError::NoWindow { card, why: NO_WINDOW })
    }

    /// Copies memory of a card's own.
    ///
    /// # Errors
    /// [`WindowError`].
    fn copy_out(&self, card: CardId, addr: VirtAddr, out: &mut [u8]) -> Result<(), WindowError> {
        let _ = (addr, out);
        Err(WindowError::NoWindow { card, why: NO_WINDOW })
    }

    /// Writes memory of a card's own, whatever kernels may do with it. Nobody reads or writes it meanwhile.
    ///
    /// # Errors
    /// [`WindowError`].
    fn copy_in(&self, card: CardId, addr: VirtAddr, from: &[u8]) -> Result<(), WindowError> {
        let _ = (addr, from);
        Err(WindowError::NoWindow { card, why: NO_WINDOW })
    }

    /// Who wants to know what kernels access.
    fn recorder(&self) -> Option<Arc<dyn Recorder>> {
        None
    }

    /// A processing element is about to sleep until `ready` holds. Gives `true` when it does; one
    /// that gives `false` has done nothing, and the caller sleeps by itself.
    fn wait_instead(&self, card: &SoftCard, ready: &mut dyn FnMut() -> bool) -> bool {
        let _ = (card, ready);
        false
    }
}
