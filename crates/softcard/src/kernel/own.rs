//! Memory that a kernel allocates itself, on its card.
//!
//! What it has not finished when it ends, is freed.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use farside_card::interface::AllocRequest;
use farside_card::window::AllocError;
use farside_types::{Access, CancelReason, CardId, PAGE_SIZE, Rights, VirtAddr};

use super::KernelContext;
use crate::card::Embedder;
use crate::error::KernelError;
use crate::job::{Granted, Lent, QuickGrant};
use crate::own_memory::{AllocOptions, OwnMemory, OwnMemoryId};
use crate::span::{ReadSpan, WriteSpan};
use crate::view::WriteView;
use crate::window::WindowError;

/// Bytes that a growing vector reserves first.
const FIRST_BYTES: u64 = 64 << 10;
/// Bytes that are held at once while values are added, at most.
pub(crate) const AT_ONCE: usize = 256 << 10;

/// A vector in the card's own memory that grows while a kernel adds to it, whose final size nobody has to know. It
/// reserves addresses, twice as many each time, and memory only for what is written; when it moves, no value does.
///
/// It is its kernel's until [`Growable::finish`].
#[derive(Debug)]
pub struct Growable<T> {
    /// 0: nothing is reserved.
    addr: u64,
    reserved: u64,
    len: usize,
    /// Bytes that are held at once while values are added.
    at_once: usize,
    options: AllocOptions,
    of: PhantomData<fn() -> T>,
}

/// What a [`Growable`] is made of, whatever its values are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrowableParts {
    pub(crate) addr: u64,
    /// Bytes.
    pub(crate) reserved: u64,
    /// Values.
    pub(crate) len: usize,
    /// Bytes.
    pub(crate) at_once: usize,
    pub(crate) options: AllocOptions,
}

/// Values in a card's own memory: what a kernel has made as a [`Growable`] and returned, or the program has asked
/// for. Freed when dropped.
///
/// Its pages stay on that card. The program sees them, at the same address, from [`CardBuffer::host`] on, and
/// lends them to kernels on any card that reaches that card's memory.
#[derive(Debug)]
pub struct CardBuffer<T> {
    card: CardId,
    embedder: Arc<dyn Embedder>,
    /// 0: there are no values.
    addr: u64,
    len: usize,
    is_elsewhere: bool,
    /// What has to be there as long as the values.
    keeps: Option<Arc<dyn Any + Send + Sync>>,
    of: PhantomData<fn() -> T>,
}

/// Values in a card's own memory that a kernel known by its name has made and handed over ([`Growable::hand_over`]). It
/// goes to the program as a value or in memory that the kernel writes; `Space::take_over` makes a [`CardBuffer`] of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Made {
    /// The address of the first value; 0 if there is none.
    pub addr: u64,
    /// Number of values.
    pub len: u64,
}

impl<T> CardBuffer<T> {
    /// An allocation of `len` values.
    ///
    /// # Safety
    /// `addr` is an allocation of `card` with room for `len` values of a type that takes any bytes, which nobody
    /// else uses or frees; 0: there is none, and `len` is 0.
    pub unsafe fn new(
        card: CardId,
        embedder: Arc<dyn Embedder>,
        addr: u64,
        len: usize,
    ) -> CardBuffer<T> {
        let (is_elsewhere, keeps) = (false, None);
        CardBuffer { card, embedder, addr, len, is_elsewhere, keeps, of: PhantomData }
    }

    /// The same, and what has to be there as long as the values.
    #[must_use]
    pub fn keeping(mut self, what: Arc<dyn Any + Send + Sync>) -> CardBuffer<T> {
        self.keeps = Some(what);
        self
    }

    /// The same, in another process, which could change the values at any time: never the other way round, since what is
    /// safe to do depends on it.
    #[must_use]
    pub fn elsewhere(mut self) -> CardBuffer<T> {
        self.is_elsewhere = true;
        self
    }

    /// Whether its card is in another process, which could change the values at any time.
    pub fn is_elsewhere(&self) -> bool {
        self.is_elsewhere
    }

    /// Whose memory it is in.
    pub fn card(&self) -> CardId {
        self.card
    }

    /// The address of the first value, the same everywhere; 0 if there is none.
    pub fn addr(&self) -> VirtAddr {
        VirtAddr(self.addr)
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T: Pod> CardBuffer<T> {
    /// Memory of a card's own for `len` values, zero.
    ///
    /// # Errors
    /// [`WindowError`] says what the card lacks.
    pub fn alloc(
        card: CardId,
        embedder: Arc<dyn Embedder>,
        len: usize,
        options: impl Into<AllocOptions>,
    ) -> Result<CardBuffer<T>, WindowError> {
        check_alignment::<T>(card)?;
        let addr = match bytes_of::<T>(len) {
            0 => 0,
            bytes => embedder.allocate(card, options.into().malloc(bytes))?,
        };
        // SAFETY: just allocated with room for the values, which take any bytes.
        Ok(unsafe { CardBuffer::new(card, embedder, addr, len) })
    }

    /// The bytes of the values.
    pub fn into_bytes(mut self) -> CardBuffer<u8> {
        // What has no address frees nothing.
        let addr = std::mem::take(&mut self.addr);
        let (embedder, keeps) = (Arc::clone(&self.embedder), self.keeps.take());
        let (card, len, is_elsewhere) = (self.card, self.len * size_of::<T>(), self.is_elsewhere);
        CardBuffer { card, embedder, addr, len, is_elsewhere, keeps, of: PhantomData }
    }

    /// The values, as the program sees them.
    ///
    /// # Errors
    /// [`WindowError::NotShown`] if they cannot be mapped; [`CardBuffer::to_vec`] copies them. [`WindowError::Gone`].
    pub fn host(&self) -> Result<&[T], WindowError> {
        self.show(Access::Read)?;
        // SAFETY: the values are mapped until the allocation is freed, which `self` does when it is dropped; kernels
        // that write to them have an exclusive borrow, and any bytes are values.
        Ok(unsafe { std::slice::from_raw_parts(self.start(), self.len) })
    }

    /// The values, to be changed, or lent to a kernel that does.
    ///
    /// # Errors
    /// As [`CardBuffer::host`]; [`WindowError::ReadOnly`] if it was allocated to be read only.
    pub fn host_mut(&mut self) -> Result<&mut [T], WindowError> {
        self.show(Access::Write)?;
        // SAFETY: as in `host`, and `self` is borrowed exclusively.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.start().cast_mut(), self.len) })
    }

    /// A copy of the values, however scattered their frames are.
    ///
    /// # Errors
    /// [`WindowError::Gone`].
    pub fn to_vec(&self) -> Result<Vec<T>, WindowError> {
        let mut values = vec![T::zeroed(); self.len];
        self.copy_to(&mut values)?;
        Ok(values)
    }

    /// The same into zeros, of the first values if there are more than room.
    ///
    /// # Errors
    /// [`WindowError::Gone`].
    pub fn copy_to(&self, zeros: &mut [T]) -> Result<(), WindowError> {
        let count = zeros.len().min(self.len);
        if size_of::<T>() > 0 && count > 0 {
            let out = bytemuck::cast_slice_mut(&mut zeros[..count]);
            self.embedder.copy_out(self.card, self.addr(), out)?;
        }
        Ok(())
    }

    /// Writes the first values, also where kernels may only read them. Pages that had no memory get some.
    ///
    /// # Errors
    /// [`WindowError::NoRoom`] if there are more values than room, and nothing is written then; as [`CardBuffer::host`].
    pub fn fill_from(&mut self, values: &[T]) -> Result<(), WindowError> {
        let (count, room) = (values.len(), self.len);
        if count > room {
            return Err(WindowError::NoRoom { card: self.card, addr: self.addr(), count, room });
        }
        if size_of::<T>() > 0 && count > 0 {
            self.embedder.copy_in(self.card, self.addr(), bytemuck::cast_slice(values))?;
        }
        Ok(())
    }

    /// What a kernel has handed over ([`Growable::hand_over`]), as the program's.
    ///
    /// # Errors
    /// [`WindowError::NotMade`] if it has not, or the values are more.
    pub fn take_over(
        card: CardId,
        embedder: Arc<dyn Embedder>,
        made: Made,
    ) -> Result<CardBuffer<T>, WindowError> {
        check_alignment::<T>(card)?;
        let len = usize::try_from(made.len).unwrap_or(usize::MAX);
        let bytes = bytes_of::<T>(len);
        if bytes > 0 || made.addr != 0 {
            embedder.take_over(card, VirtAddr(made.addr), bytes)?;
        }
        // SAFETY: the allocation is the caller's alone from now on, has that many bytes, and its values take any.
        Ok(unsafe { CardBuffer::new(card, embedder, made.addr, len) })
    }

    fn show(&self, access: Access) -> Result<(), WindowError> {
        match bytes_of::<T>(self.len) {
            0 => Ok(()),
            bytes => self.embedder.show(self.card, self.addr(), bytes, access),
        }
    }

    fn start(&self) -> *const T {
        match self.addr {
            0 => std::ptr::dangling(),
            addr => addr as *const T,
        }
    }
}

fn bytes_of<T>(len: usize) -> u64 {
    // More than there are addresses: let the allocator say so.
    (len as u64).saturating_mul(size_of::<T>() as u64)
}

/// Writes values to where there is room for as many.
fn copy<T: Pod>(mut values: &[T], mut room: WriteView<'_, T>) {
    for piece in room.pieces() {
        let (part, behind) = values.split_at(piece.len());
        piece.copy_from_slice(part);
        values = behind;
    }
}

fn check_alignment<T>(card: CardId) -> Result<(), WindowError> {
    let align = align_of::<T>();
    if align > PAGE_SIZE { Err(WindowError::Alignment { card, align }) } else { Ok(()) }
}

impl<T> Drop for CardBuffer<T> {
    fn drop(&mut self) {
        if self.addr != 0 {
            let request = AllocRequest::Free { address: self.addr };
            if let Err(error) = self.embedder.allocate(self.card, request) {
                tracing::warn!(%error, "a card's own memory is not given back");
            }
        }
    }
}

impl<T: Pod> Growable<T> {
    /// One without values, for which nothing is reserved yet.
    pub const fn new() -> Growable<T> {
        Growable::in_memory(OwnMemoryId(0))
    }

    /// The same in one of the card's own memories, in which it stays however it grows.
    pub const fn in_memory(memory: OwnMemoryId) -> Growable<T> {
        Growable::of_options(AllocOptions::LAZY.in_memory(memory))
    }

    /// The same as [`AllocOptions`] say. [`Backing::Eager`](crate::Backing::Eager): what is reserved has memory at once,
    /// twice as much as there are values at the worst until it is finished; where there is too little, values are
    /// refused before any of them is written.
    ///
    /// What may only be read, its kernel could not fill: adding values to such a one is an error.
    pub fn with_options(options: impl Into<AllocOptions>) -> Growable<T> {
        Growable::of_options(options.into())
    }

    pub(crate) const fn of_options(options: AllocOptions) -> Growable<T> {
        Growable { addr: 0, reserved: 0, len: 0, at_once: AT_ONCE, options, of: PhantomData }
    }

    /// One that was taken apart by [`Growable::parts`]; whatever they are, nothing but its kernel's own memory is written.
    pub(crate) fn of_parts(parts: GrowableParts) -> Growable<T> {
        let GrowableParts { addr, reserved, len, at_once, options } = parts;
        Growable { addr, reserved, len, at_once, options, of: PhantomData }
    }

    pub(crate) fn parts(&self) -> GrowableParts {
        let Growable { addr, reserved, len, at_once, options, .. } = *self;
        GrowableParts { addr, reserved, len, at_once, options }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The values so far, to be read by [`KernelContext::with`] until others are added.
    pub fn values(&self) -> ReadSpan<T> {
        ReadSpan::raw(self.addr, self.len)
    }

    /// Adds values.
    ///
    /// # Errors
    /// [`KernelError::Window`] if there is no room for them, or this is another kernel's.
    pub fn extend(&mut self, kernel: &mut KernelContext, values: &[T]) -> Result<(), KernelError> {
        self.reserve(kernel, bytes_of::<T>(self.len.saturating_add(values.len())))?;
        let mut rest = values;
        while !rest.is_empty() {
            let count = (self.at_once / size_of::<T>().max(1)).clamp(1, rest.len());
            let (part, behind) = rest.split_at(count);
            let at = self.addr + (self.len * size_of::<T>()) as u64;
            let added = kernel.with(WriteSpan::raw(at, count), |room| copy(part, room));
            match added {
                // Fewer pages can be had at once: as many as there are.
                Err(KernelError::Fault { reason: CancelReason::GroupTooLarge, .. })
                    if count > 1 =>
                {
                    self.at_once = self.at_once.min(count * size_of::<T>()) / 2;
                }
                added => {
                    added?;
                    self.len += count;
                    rest = behind;
                }
            }
        }
        Ok(())
    }

    /// Forgets all but the first `len` values.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Where the last value is.
    pub(crate) fn last_addr(&self) -> Option<u64> {
        let before = self.len.checked_sub(1)?;
        Some(self.addr + bytes_of::<T>(before))
    }

    /// Adds a value.
    ///
    /// # Errors
    /// As [`Growable::extend`].
    pub fn push(&mut self, kernel: &mut KernelContext, value: T) -> Result<(), KernelError> {
        self.extend(kernel, &[value])
    }

    fn reserve(&mut self, kernel: &mut KernelContext, bytes: u64) -> Result<(), KernelError> {
        if bytes <= self.reserved {
            return Ok(());
        }
        check_alignment::<T>(kernel.job.card).map_err(|error| kernel.window_error(error))?;
        if self.options.rights == Rights::Read {
            let why = "what may only be read cannot grow: its kernel could not write it; leave read_only() out";
            return Err(kernel.fail(why));
        }
        let ample = bytes.max(self.reserved.saturating_mul(2)).max(FIRST_BYTES);
        let (addr, reserved) = match kernel.resize(self.addr, self.options, ample) {
            // There are fewer addresses than that in one piece, or pages for what has them at once.
            Err(KernelError::Window {
                error:
                    WindowError::Refused {
                        error: AllocError::NoSpace | AllocError::TooLarge | AllocError::NoFrames,
                        ..
                    },
                ..
            }) => (kernel.resize(self.addr, self.options, bytes)?, bytes),
            addr => (addr?, ample),
        };
        (self.addr, self.reserved) = (addr, reserved);
        Ok(())
    }

    /// What was added, to be returned by the kernel. Addresses that were reserved and not used are free again.
    ///
    /// # Errors
    /// As [`Growable::extend`]; [`WindowError::Elsewhere`] where the kernel does not run in the program.
    pub fn finish(self, kernel: &mut KernelContext) -> Result<CardBuffer<T>, KernelError> {
        if !kernel.embedder.is_in_program() {
            return Err(kernel.window_error(WindowError::Elsewhere));
        }
        let addr = self.cut(kernel)?;
        kernel.disown(addr);
        let (card, embedder) = (kernel.job.card, Arc::clone(&kernel.embedder));
        // SAFETY: the allocation was this kernel's own, and is nobody's now; its values take any bytes.
        Ok(unsafe { CardBuffer::new(card, embedder, addr, self.len) })
    }
}

impl<T: Pod> Growable<T> {
    /// What was added, for the program, which has to be told of it: `Space::take_over`. For kernels that are known by their
    /// names, wherever their card is. What nobody takes over is the program's until its space is closed.
    ///
    /// # Errors
    /// As [`Growable::extend`].
    pub fn hand_over(self, kernel: &mut KernelContext) -> Result<Made, KernelError> {
        let len = self.len as u64;
        let addr = self.cut(kernel)?;
        if addr != 0 {
            let (job, bytes) = (&kernel.job, bytes_of::<T>(self.len));
            let handed_over = kernel.embedder.hand_over(job.card, job, VirtAddr(addr), bytes);
            handed_over.map_err(|error| kernel.window_error(error))?;
            kernel.disown(addr);
        }
        Ok(Made { addr, len })
    }

    /// Gives back what was reserved beyond the values, which stay this kernel's; more can be added afterwards.
    pub(crate) fn settle(&mut self, kernel: &mut KernelContext) -> Result<(), KernelError> {
        self.addr = self.cut(kernel)?;
        self.reserved = bytes_of::<T>(self.len);
        Ok(())
    }

    /// Where the values are, without what was reserved beyond them; 0: there are none.
    fn cut(&self, kernel: &mut KernelContext) -> Result<u64, KernelError> {
        match bytes_of::<T>(self.len) {
            0 if self.addr == 0 => Ok(0),
            0 => kernel.free_at(self.addr).map(|()| 0),
            bytes => kernel.resize(self.addr, self.options, bytes),
        }
    }
}

impl<T: Pod> Default for Growable<T> {
    fn default() -> Growable<T> {
        Growable::new()
    }
}

impl KernelContext {
    /// Memory of the card's own for `len` values, zero. Freed when the kernel ends, if it was not before.
    ///
    /// # Errors
    /// [`KernelError::Window`] says what the card lacks; as [`KernelContext::checkpoint`].
    pub fn alloc<T: Pod>(
        &mut self,
        len: usize,
        options: impl Into<AllocOptions>,
    ) -> Result<WriteSpan<T>, KernelError> {
        check_alignment::<T>(self.job.card).map_err(|error| self.window_error(error))?;
        let bytes = bytes_of::<T>(len);
        let addr = self.allocate(options.into().malloc(bytes))?;
        self.own(addr, bytes);
        Ok(WriteSpan::raw(addr, len))
    }

    /// The card's own memories, and what is free in them.
    ///
    /// # Errors
    /// [`KernelError::Window`] if it has none.
    pub fn own_memories(&self) -> Result<Vec<OwnMemory>, KernelError> {
        let all = self.embedder.own_memories(self.job.card);
        all.map_err(|error| self.window_error(error))
    }

    /// One of the card's own memories by its name, as `hbm0`, or by its kind if it is the only one.
    ///
    /// # Errors
    /// [`KernelError::Window`] names those that there are.
    pub fn own_memory(&self, name: &str) -> Result<OwnMemoryId, KernelError> {
        let found = OwnMemory::by_name(&self.own_memories()?, self.job.card, name);
        found.map_err(|error| self.window_error(error))
    }

    /// Gives memory that [`KernelContext::alloc`] has given another length. It may move, and stays in its memory of the
    /// card's; its values do not change, and new ones are zero.
    ///
    /// # Errors
    /// [`KernelError::Window`]; the memory is then as it was. As [`KernelContext::checkpoint`].
    pub fn realloc<T: Pod>(
        &mut self,
        span: &mut WriteSpan<T>,
        len: usize,
    ) -> Result<(), KernelError> {
        if span.start() == 0 {
            return Err(self.window_error(WindowError::NotOwn { addr: VirtAddr(0) }));
        }
        // It has its memory and its rights already.
        let addr = self.resize(span.start(), AllocOptions::LAZY, bytes_of::<T>(len))?;
        *span = WriteSpan::raw(addr, len);
        Ok(())
    }

    /// Frees memory that [`KernelContext::alloc`] has given.
    ///
    /// # Errors
    /// [`KernelError::Window`] if it is not this kernel's own, or was freed before.
    pub fn free<T>(&mut self, span: WriteSpan<T>) -> Result<(), KernelError> {
        self.free_at(span.start())
    }

    /// Memory that is given back is so whether or not the kernel has to stop.
    fn allocate(&self, request: AllocRequest) -> Result<u64, KernelError> {
        if !matches!(request, AllocRequest::Free { .. }) {
            self.checkpoint()?;
        }
        let result = self.embedder.allocate_for(self.job.card, &self.job, request);
        result.map_err(|error| {
            // It has waited until it had to stop.
            let is_stopped =
                matches!(error, WindowError::Refused { error: AllocError::Stopped, .. });
            let stop = self.job.stopped().filter(|_| is_stopped);
            stop.unwrap_or_else(|| self.window_error(error))
        })
    }

    #[cold]
    fn window_error(&self, error: WindowError) -> KernelError {
        KernelError::Window { kernel: self.job.name.clone(), error }
    }

    /// Another size for an allocation of its own, or the first, where `addr` is 0.
    fn resize(&mut self, addr: u64, options: AllocOptions, bytes: u64) -> Result<u64, KernelError> {
        let request = match addr {
            0 => options.malloc(bytes),
            _ => {
                self.check_own(addr)?;
                options.realloc(addr, bytes)
            }
        };
        let moved = self.allocate(request)?;
        self.disown(addr);
        self.own(moved, bytes);
        Ok(moved)
    }

    fn free_at(&mut self, addr: u64) -> Result<(), KernelError> {
        self.check_own(addr)?;
        // Whatever comes of it, it is used no more.
        self.disown(addr);
        self.allocate(AllocRequest::Free { address: addr }).map(drop)
    }

    fn check_own(&self, addr: u64) -> Result<(), KernelError> {
        if self.own.iter().any(|own| own.start() == addr) {
            return Ok(());
        }
        Err(self.window_error(WindowError::NotOwn { addr: VirtAddr(addr) }))
    }

    fn own(&mut self, addr: u64, bytes: u64) {
        // SAFETY: the card has given these bytes to this kernel, and to nobody else before they are freed. What
        // is finished is taken out before others learn of it.
        self.own.push(unsafe { Granted::new(addr, bytes, Lent::Write) });
    }

    fn disown(&mut self, addr: u64) {
        self.own.retain(|own| own.start() != addr);
        self.last_grant = Granted::nothing();
        self.quick = QuickGrant::NOTHING;
    }

    /// Frees what the kernel has not.
    pub(crate) fn free_own(&mut self) {
        for own in std::mem::take(&mut self.own) {
            let request = AllocRequest::Free { address: own.start() };
            if let Err(error) = self.embedder.allocate_for(self.job.card, &self.job, request) {
                tracing::debug!(%error, kernel = %self.job.name, "memory of a kernel's own is not given back");
            }
        }
    }
}
