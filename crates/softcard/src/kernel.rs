//! What a kernel sees: memory through the card's MMU.
//!
//! Two ways lead to memory. [`KernelContext::with`] takes whole ranges at once and gives slices at
//! streaming speed: translate once per run of pages, then work on the slice. Single words go
//! through [`KernelContext::load`] and its like: the way to follow pointers. Many words, wherever they are,
//! go in runs: [`KernelContext::gather`] and its like.
//!
//! A kernel reaches what its launch was given and nothing else; every other address ends the job.

mod columns;
mod own;
mod runs;

pub(crate) use columns::Rows;
pub use columns::{ColumnBuilder, ColumnParts, MadeColumn, TextBuilder};
pub(crate) use own::{AT_ONCE, GrowableParts};
pub use own::{CardBuffer, Growable, Made};

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use bytemuck::Pod;
use farside_card::{AcquireError, Grant, Need, Outcome, RaiseError, Raised};
use farside_types::{Access, CardId, PAGE_SIZE, PageNo, PageRange, PeId, VirtAddr};

use crate::card::{Embedder, SoftCard};
use crate::error::KernelError;
use crate::hot::Hot;
use crate::job::{Granted, Job, Lent, QuickGrant, Use};
use crate::record::{Recorder, Running, Taken};
use crate::span::{AtomicSpan, Ptr, Word};
use crate::view::{Request, Runs};
use farside_linux::lock::lock;

/// The processing element that a kernel runs on.
#[derive(Debug)]
pub struct KernelContext {
    card: Arc<SoftCard>,
    embedder: Arc<dyn Embedder>,
    job: Arc<Job>,
    pe: PeId,
    /// The grant that served the last word: the first to be tried for the next.
    last_grant: Granted,
    /// The same, for words.
    quick: QuickGrant,
    /// What it has allocated itself and not freed.
    own: Vec<Granted>,
    /// The way to words without the card's lock, once there was a word.
    hot: Option<Hot>,
    /// Is told what the kernel accesses.
    recorder: Option<Arc<dyn Recorder>>,
}

impl KernelContext {
    pub(crate) fn new(
        card: Arc<SoftCard>,
        embedder: Arc<dyn Embedder>,
        job: Arc<Job>,
        pe: PeId,
    ) -> Self {
        let recorder = embedder.recorder();
        let (last_grant, quick) = (Granted::nothing(), QuickGrant::NOTHING);
        KernelContext {
            card,
            embedder,
            job,
            pe,
            last_grant,
            quick,
            own: Vec::new(),
            hot: None,
            recorder,
        }
    }

    fn running(&self) -> Running {
        Running { job: self.job.id, card: self.job.card, pe: self.pe }
    }

    /// Tells the recorder that the kernel begins.
    pub(crate) fn record_begin(&self) {
        if let Some(recorder) = &self.recorder {
            recorder.begin(self.running());
        }
    }

    /// Tells the recorder that the kernel has ended.
    pub(crate) fn record_end(&self) {
        if let Some(recorder) = &self.recorder {
            recorder.end(self.running());
        }
    }

    /// Tells the recorder of ranges that the kernel takes.
    #[inline]
    fn record(&self, taken: impl Iterator<Item = Taken>) {
        if let Some(recorder) = &self.recorder {
            recorder.take(self.running(), &taken.collect::<Vec<_>>());
        }
    }

    /// The card it runs on.
    pub fn card(&self) -> CardId {
        self.job.card
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.job.name
    }

    /// What a kernel that is known by its name returns to whoever called it.
    pub(crate) fn set_value(&self, value: u64) {
        self.job.set_value(value);
    }

    /// Ends the kernel here if the program has cancelled it or its time is up. A kernel that
    /// computes for long without touching memory calls it now and then.
    ///
    /// # Errors
    /// [`KernelError::Cancelled`], [`KernelError::TimedOut`].
    pub fn checkpoint(&self) -> Result<(), KernelError> {
        self.job.stopped().map_or(Ok(()), Err)
    }

    /// An error that ends the kernel with a message of its own.
    pub fn fail(&self, message: impl Into<String>) -> KernelError {
        KernelError::Failed { kernel: self.job.name.clone(), message: message.into() }
    }

    /// Works on ranges that are all resident together, from here to the end of `body`.
    ///
    /// All or nothing: either every page of the request is there with the rights asked for, or the
    /// kernel waits without holding any. `body` cannot ask for more (so no two kernels wait for
    /// each other) and should end soon: whoever wants one of these pages waits for it. At most
    /// the driver's limit of pages.
    ///
    /// # Errors
    /// [`KernelError`] if a range was not given to the launch, ranges that are written overlap, or
    /// memory cannot be had.
    pub fn with<R: Request, T>(
        &mut self,
        request: R,
        body: impl FnOnce(R::Views<'_>) -> T,
    ) -> Result<T, KernelError> {
        let wants = request.wants();
        let wants = wants.as_ref();
        // What has no bytes is nobody's, wherever it is said to be.
        for want in wants.iter().filter(|want| want.bytes > 0) {
            self.allowed(want.start, want.bytes, Use::Slice(want.access))?;
        }
        if let Some(want) = crate::view::overlap(wants) {
            let why = format!(
                "a range that is written, at {}, overlaps another of the same `with`",
                VirtAddr(want.start)
            );
            return Err(KernelError::BadRequest { kernel: self.job.name.clone(), why });
        }
        let needs: Vec<(PageRange, Access)> = wants
            .iter()
            .filter_map(|want| {
                let range = PageRange::covering(VirtAddr(want.start), want.bytes).ok()?;
                Some((range, want.access))
            })
            .collect();
        if needs.is_empty() {
            return Ok(body(request.views(&mut Runs::empty())));
        }
        self.record(wants.iter().map(|want| (VirtAddr(want.start), want.bytes, want.access)));
        let grant = self.acquire(&needs)?;
        let held = Held { context: self, grant: &grant };
        let mut runs = Runs::new(held.context.embedder.as_ref(), &grant);
        let value = body(request.views(&mut runs));
        drop(held);
        Ok(value)
    }

    /// Reads a word.
    ///
    /// # Errors
    /// As [`KernelContext::with`].
    #[inline(always)]
    pub fn load<T: Pod>(&mut self, at: Ptr<T>) -> Result<T, KernelError> {
        self.access(at.addr(), size_of::<T>(), Use::Value(Access::Read), |byte, word| {
            // SAFETY: `access` gives the first of `size_of::<T>()` bytes within one page that
            // stay this job's until it returns; `T` takes any bytes. They are whole words of
            // `word` bytes if others change them meanwhile.
            unsafe { read_value(byte.cast::<T>(), word) }
        })
    }

    /// Writes a word.
    ///
    /// # Errors
    /// As [`KernelContext::with`].
    #[inline(always)]
    pub fn store<T: Pod>(&mut self, at: Ptr<T>, value: T) -> Result<(), KernelError> {
        self.access(at.addr(), size_of::<T>(), Use::Value(Access::Write), |byte, word| {
            // SAFETY: as in `load`, with the right to write.
            unsafe { write_value(byte.cast::<T>(), value, word) }
        })
    }

    /// Adds to a word, atomically for all agents, and gives what it was.
    ///
    /// # Errors
    /// As [`KernelContext::with`].
    #[inline(always)]
    pub fn fetch_add<W: Word>(
        &mut self,
        span: AtomicSpan<W>,
        index: usize,
        value: W::Value,
    ) -> Result<W::Value, KernelError> {
        self.word_at(span, index, |word| word.fetch_add(value))
    }

    /// Replaces a word if it has the expected value. As Rust's: `Ok` with the value that it had, which
    /// is the expected one, or `Err` with the value that it has.
    ///
    /// # Errors
    /// As [`KernelContext::with`].
    #[inline(always)]
    pub fn compare_exchange<W: Word>(
        &mut self,
        span: AtomicSpan<W>,
        index: usize,
        expected: W::Value,
        value: W::Value,
    ) -> Result<Result<W::Value, W::Value>, KernelError> {
        self.word_at(span, index, |word| word.compare_exchange(expected, value))
    }

    /// Works on one word of shared memory by any of its atomic operations. The page is held as by
    /// [`KernelContext::with`], so `body` should end soon.
    ///
    /// # Errors
    /// As [`KernelContext::with`].
    pub fn atomic<W: Word, T>(
        &mut self,
        span: AtomicSpan<W>,
        index: usize,
        body: impl FnOnce(&W) -> T,
    ) -> Result<T, KernelError> {
        let addr = self.word_addr(span, index)?;
        let at = VirtAddr(addr);
        self.allowed(addr, size_of::<W>() as u64, Use::Atomic)?;
        self.record(std::iter::once((at, size_of::<W>() as u64, Access::Write)));
        // `body` is the program's: it may fault on shared memory itself, or never end, so it does
        // not run under the card's lock, on which the whole machine would then wait.
        let grant = self.acquire(&[(PageRange::page(at.page()), Access::Write)])?;
        let held = Held { context: self, grant: &grant };
        let base = held.context.embedder.pointer(grant.runs[0].location, 1);
        // SAFETY: the word lies within the page (spans are aligned), which is in flight until
        // `held` is dropped; all who touch it do so atomically, because it was lent as atomics.
        let value = body(unsafe { byte_at(base, at.page_offset()).cast::<W>().as_ref() });
        drop(held);
        Ok(value)
    }

    #[inline(always)]
    fn word_addr<W: Word>(&self, span: AtomicSpan<W>, index: usize) -> Result<u64, KernelError> {
        span.addr(index).ok_or_else(|| self.behind_the_end(index, span.len()))
    }

    #[cold]
    fn behind_the_end(&self, index: usize, words: usize) -> KernelError {
        let why = format!("index {index} is behind the end of {words} words");
        KernelError::BadRequest { kernel: self.job.name.clone(), why }
    }

    /// Works on a word while nobody can take its page away: `body` is short and calls nothing of the
    /// program.
    #[inline(always)]
    fn word_at<W: Word, T>(
        &mut self,
        span: AtomicSpan<W>,
        index: usize,
        body: impl FnOnce(&W) -> T,
    ) -> Result<T, KernelError> {
        let addr = self.word_addr(span, index)?;
        self.access(addr, size_of::<W>(), Use::Atomic, |byte, _| {
            // SAFETY: as in `store`; the word is aligned because its span is, and all who touch
            // it do so atomically, because it was lent as a slice of atomics.
            body(unsafe { byte.cast::<W>().as_ref() })
        })
    }

    /// Finds the byte at `addr` and works on it while nobody can take its page away.
    #[inline(always)]
    fn access<T>(
        &mut self,
        addr: u64,
        bytes: usize,
        use_: Use,
        body: impl FnOnce(NonNull<u8>, u8) -> T,
    ) -> Result<T, KernelError> {
        if let Some(hot) = &mut self.hot {
            let is_word = matches!(bytes, 1 | 2 | 4 | 8);
            if is_word && self.quick.allows(addr, bytes.trailing_zeros(), use_) {
                if let Some(found) = hot.find(addr, use_.access()) {
                    return Ok(body(found.byte, bytes as u8));
                }
            }
        }
        self.access_slowly(addr, bytes, use_, body)
    }

    /// [`KernelContext::access`] where something is not as it was for the word before.
    #[inline(never)]
    fn access_slowly<T>(
        &mut self,
        addr: u64,
        bytes: usize,
        use_: Use,
        body: impl FnOnce(NonNull<u8>, u8) -> T,
    ) -> Result<T, KernelError> {
        let word = self.allowed(addr, bytes as u64, use_)?;
        let (at, access) = (VirtAddr(addr), use_.access());
        if !is_within_page(addr, bytes) {
            return Err(self.straddles(at));
        }
        self.record(std::iter::once((at, bytes as u64, access)));
        // What is recorded is told word by word.
        if self.hot.is_none() && self.recorder.is_none() {
            self.hot = Hot::new(&self.card, self.embedder.as_ref(), &self.job);
        }
        if let Some(hot) = &mut self.hot {
            if let Some(found) = hot.walk(self.embedder.as_ref(), &self.job, addr, access) {
                return Ok(body(found.byte, word));
            }
        }
        self.access_locked(at, access, |byte| body(byte, word))
    }

    /// Works on a byte under the card's lock, after a fault if need be.
    fn access_locked<T>(
        &mut self,
        at: VirtAddr,
        access: Access,
        body: impl FnOnce(NonNull<u8>) -> T,
    ) -> Result<T, KernelError> {
        {
            let mut model = lock(&self.card.model);
            if let Some(stop) = self.job.stopped() {
                return Err(stop);
            }
            if let Some(location) = model.access(self.pe, self.job.asid, at.page(), access) {
                let base = self.embedder.pointer(location, 1);
                // The card's lock keeps every invalidation out until the word is done.
                // SAFETY: the access lies within the page.
                let value = body(unsafe { byte_at(base, at.page_offset()) });
                if location.memory != model.memory() {
                    let uncounted = self.hot.as_mut().map_or(0, Hot::count_remote);
                    model.count_remote(self.job.asid, at.page(), uncounted);
                }
                let noticed = model.has_notices();
                drop(model);
                if noticed {
                    self.embedder.raised(&self.card);
                }
                return Ok(value);
            }
        }
        let grant = self.fault(Need::Page(at.page(), access))?;
        let held = Held { context: self, grant: &grant };
        let base = held.context.embedder.pointer(grant.runs[0].location, 1);
        // SAFETY: the access lies within the page, which is in flight until `held` is dropped.
        let value = body(unsafe { byte_at(base, at.page_offset()) });
        drop(held);
        Ok(value)
    }

    #[cold]
    fn straddles(&self, at: VirtAddr) -> KernelError {
        let why = format!("the word at {at} crosses a page; align it to its size");
        KernelError::BadRequest { kernel: self.job.name.clone(), why }
    }

    /// Whether the launch was given these bytes for that. Gives the size of the words in which others
    /// change them meanwhile; 0 if nobody does.
    #[inline]
    fn allowed(&mut self, addr: u64, bytes: u64, use_: Use) -> Result<u8, KernelError> {
        match self.last_grant.allows(addr, bytes, use_) {
            Some(word) => Ok(word),
            None => self.find_grant(addr, bytes, use_),
        }
    }

    #[cold]
    fn find_grant(&mut self, addr: u64, bytes: u64, use_: Use) -> Result<u8, KernelError> {
        let mut covers = None;
        for grant in self.job.grants.iter().chain(&self.own) {
            if let Some(word) = grant.allows(addr, bytes, use_) {
                self.last_grant = *grant;
                self.quick = QuickGrant::new(grant);
                return Ok(word);
            }
            if grant.covers(addr, bytes) {
                covers = Some(*grant);
            }
        }
        Err(match covers.map(|grant| grant.lent()) {
            Some(Lent::Shared { word }) => self.shared(VirtAddr(addr), bytes, word, use_),
            Some(Lent::Read) if use_ == Use::Atomic => {
                let why = format!("the memory at {} was lent to be read only", VirtAddr(addr));
                KernelError::BadRequest { kernel: self.job.name.clone(), why }
            }
            _ => self.wild(VirtAddr(addr), use_.access()),
        })
    }

    fn shared(&self, at: VirtAddr, bytes: u64, word: u8, use_: Use) -> KernelError {
        let wanted = match use_ {
            Use::Slice(_) => "a slice of it, which others would change".to_owned(),
            Use::Value(_) => format!("a value of {bytes} bytes, which is not made of whole words"),
            Use::Atomic => format!("a word of {bytes} bytes"),
        };
        let why = format!(
            "the memory at {at} was lent as shared words of {word} bytes, and it wants {wanted}; \
             load, store and change its words by themselves"
        );
        KernelError::BadRequest { kernel: self.job.name.clone(), why }
    }

    #[cold]
    fn wild(&self, addr: VirtAddr, access: Access) -> KernelError {
        let hint = self.embedder.hint(addr);
        KernelError::WildAddress { kernel: self.job.name.clone(), addr, access, hint }
    }

    /// Takes all of `needs`, at once if they are there, by a fault otherwise.
    fn acquire(&mut self, needs: &[(PageRange, Access)]) -> Result<Grant, KernelError> {
        let mut model = lock(&self.card.model);
        if let Some(stop) = self.job.stopped() {
            return Err(stop);
        }
        match model.acquire(self.pe, self.job.asid, needs) {
            Ok(grant) => Ok(grant),
            Err(AcquireError::NotResident) => {
                drop(model);
                self.fault(Need::Group(needs.into()))
            }
            Err(error) => Err(self.refused(&error)),
        }
    }

    /// Raises a fault and waits for its answer; as often as something is taken away in between.
    #[cold]
    fn fault(&mut self, need: Need) -> Result<Grant, KernelError> {
        loop {
            if self.raise(&need)? {
                self.embedder.raised(&self.card);
            }
            match self.card.await_answer(self.embedder.as_ref(), self.pe) {
                Outcome::Granted(grant) => return Ok(grant),
                Outcome::Retry => {}
                Outcome::Aborted => {
                    let kernel = self.job.name.clone();
                    return Err(self.job.stopped().unwrap_or(KernelError::Cancelled { kernel }));
                }
                Outcome::Cancelled(reason) => {
                    let (kernel, card) = (self.job.name.clone(), self.job.card);
                    let page = need.first_page().unwrap_or(PageNo(0));
                    return Err(KernelError::Fault { kernel, card, page, reason });
                }
            }
        }
    }

    /// Enters a fault. While the card's queue is full it waits (back-pressure): the answers to the
    /// others, whom their own threads serve, make room. Says whether it is a new one, of which somebody
    /// has to be told.
    fn raise(&self, need: &Need) -> Result<bool, KernelError> {
        let card = &self.card;
        card.space_in_queue.wait_for(|| {
            let mut model = lock(&card.model);
            if let Some(stop) = self.job.stopped() {
                return Some(Err(stop));
            }
            match model.raise(self.pe, self.job.id, self.job.asid, need.clone()) {
                Ok(Raised::Full) => None,
                Ok(Raised::Queued(_)) => Some(Ok(true)),
                Ok(Raised::Joined(_)) => Some(Ok(false)),
                Err(error) => Some(Err(self.refused_fault(&error))),
            }
        })
    }

    fn refused(&self, error: &AcquireError) -> KernelError {
        KernelError::BadRequest { kernel: self.job.name.clone(), why: error.to_string() }
    }

    fn refused_fault(&self, error: &RaiseError) -> KernelError {
        KernelError::BadRequest { kernel: self.job.name.clone(), why: error.to_string() }
    }
}

/// Memory in flight: given back when dropped, also by a panic of the kernel.
struct Held<'a> {
    context: &'a KernelContext,
    grant: &'a Grant,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let KernelContext { card, embedder, .. } = self.context;
        let drained = lock(&card.model).end(self.grant.access);
        if !drained.is_empty() {
            embedder.drained(card, &drained);
        }
    }
}

/// Reads a word: aligned words of 1, 2, 4 or 8 bytes in one piece, so that a racing writer never
/// tears them.
///
/// # Safety
/// `at` points to `size_of::<T>()` readable bytes within one page.
#[inline(always)]
unsafe fn read_word<T: Pod>(at: NonNull<T>) -> T {
    let mut value = T::zeroed();
    let out = bytemuck::bytes_of_mut(&mut value);
    let aligned = at.as_ptr() as usize % size_of::<T>().max(1) == 0;
    // SAFETY: each arm reads exactly `size_of::<T>()` bytes, aligned for its atomic.
    unsafe {
        match (size_of::<T>(), aligned) {
            (1, _) => out[0] = at.cast::<AtomicU8>().as_ref().load(Ordering::Acquire),
            (2, true) => {
                let word = at.cast::<AtomicU16>().as_ref().load(Ordering::Acquire);
                out.copy_from_slice(&word.to_ne_bytes());
            }
            (4, true) => {
                let word = at.cast::<AtomicU32>().as_ref().load(Ordering::Acquire);
                out.copy_from_slice(&word.to_ne_bytes());
            }
            (8, true) => {
                let word = at.cast::<AtomicU64>().as_ref().load(Ordering::Acquire);
                out.copy_from_slice(&word.to_ne_bytes());
            }
            _ => at.as_ptr().cast::<u8>().copy_to_nonoverlapping(out.as_mut_ptr(), out.len()),
        }
    }
    value
}

/// Reads a value that may be several words of `word` bytes, each of which others may change; `word` 0:
/// nobody does.
///
/// # Safety
/// As [`read_word`]; the value begins at a word, aligned, and has whole ones.
#[inline(always)]
unsafe fn read_value<T: Pod>(at: NonNull<T>, word: u8) -> T {
    if word == 0 || usize::from(word) == size_of::<T>() {
        // SAFETY: passed on to the caller.
        unsafe { read_word(at) }
    } else {
        // SAFETY: passed on to the caller.
        unsafe { read_words(at, word.into()) }
    }
}

/// [`read_value`] of several words.
///
/// # Safety
/// As [`read_value`].
#[cold]
unsafe fn read_words<T: Pod>(at: NonNull<T>, word: usize) -> T {
    let mut value = T::zeroed();
    for (index, part) in bytemuck::bytes_of_mut(&mut value).chunks_exact_mut(word).enumerate() {
        // SAFETY: the part lies within the value, aligned to its size.
        unsafe {
            let at = at.cast::<u8>().add(index * word);
            match word {
                1 => part.copy_from_slice(&[read_word::<u8>(at)]),
                2 => part.copy_from_slice(&read_word::<u16>(at.cast()).to_ne_bytes()),
                4 => part.copy_from_slice(&read_word::<u32>(at.cast()).to_ne_bytes()),
                _ => part.copy_from_slice(&read_word::<u64>(at.cast()).to_ne_bytes()),
            }
        }
    }
    value
}

/// Writes a value, as [`read_value`] reads it.
///
/// # Safety
/// As [`read_value`].
#[inline(always)]
unsafe fn write_value<T: Pod>(at: NonNull<T>, value: T, word: u8) {
    if word == 0 || usize::from(word) == size_of::<T>() {
        // SAFETY: passed on to the caller.
        unsafe { write_word(at, value) }
    } else {
        // SAFETY: passed on to the caller.
        unsafe { write_words(at, &value, word.into()) }
    }
}

/// [`write_value`] of several words.
///
/// # Safety
/// As [`read_value`].
#[cold]
unsafe fn write_words<T: Pod>(at: NonNull<T>, value: &T, word: usize) {
    for (index, part) in bytemuck::bytes_of(value).chunks_exact(word).enumerate() {
        // SAFETY: the part lies within the value, aligned to its size.
        unsafe {
            let at = at.cast::<u8>().add(index * word);
            match word {
                1 => write_word(at, part[0]),
                2 => write_word(at.cast(), bytemuck::pod_read_unaligned::<u16>(part)),
                4 => write_word(at.cast(), bytemuck::pod_read_unaligned::<u32>(part)),
                _ => write_word(at.cast(), bytemuck::pod_read_unaligned::<u64>(part)),
            }
        }
    }
}

/// Writes a word, as [`read_word`] reads it.
///
/// # Safety
/// `at` points to `size_of::<T>()` writable bytes within one page.
#[inline(always)]
unsafe fn write_word<T: Pod>(at: NonNull<T>, value: T) {
    let bytes = bytemuck::bytes_of(&value);
    let aligned = at.as_ptr() as usize % size_of::<T>().max(1) == 0;
    // SAFETY: each arm writes exactly `size_of::<T>()` bytes, aligned for its atomic.
    unsafe {
        match (bytes, aligned) {
            (&[byte], _) => at.cast::<AtomicU8>().as_ref().store(byte, Ordering::Release),
            (&[a, b], true) => {
                let word = u16::from_ne_bytes([a, b]);
                at.cast::<AtomicU16>().as_ref().store(word, Ordering::Release);
            }
            (&[a, b, c, d], true) => {
                let word = u32::from_ne_bytes([a, b, c, d]);
                at.cast::<AtomicU32>().as_ref().store(word, Ordering::Release);
            }
            (&[a, b, c, d, e, f, g, h], true) => {
                let word = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
                at.cast::<AtomicU64>().as_ref().store(word, Ordering::Release);
            }
            _ => bytes.as_ptr().copy_to_nonoverlapping(at.as_ptr().cast(), bytes.len()),
        }
    }
}

/// Whether all of these bytes are in one page.
#[inline]
fn is_within_page(addr: u64, bytes: usize) -> bool {
    VirtAddr(addr).page_offset() + bytes <= PAGE_SIZE
}

/// The byte at `offset` of a page that starts at `base`.
///
/// # Safety
/// `offset` is less than a page, and `base` points to a whole page.
unsafe fn byte_at(base: NonNull<u8>, offset: usize) -> NonNull<u8> {
    debug_assert!(offset < PAGE_SIZE);
    // SAFETY: within the page, says the caller.
    unsafe { base.add(offset) }
}
