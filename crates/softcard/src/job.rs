//! A job: one launched kernel, from its launch to its result.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use farside_card::interface::KernelArg;
use farside_types::Time;
use farside_types::{Access, Asid, CardId, JobId, PeId};

use crate::card::{Embedder, SoftCard};
use crate::error::KernelError;
use crate::kernel::KernelContext;
use crate::kernels::KernelArgs;
use farside_linux::ending::Ending;
use farside_linux::lock::lock;
use farside_linux::signals::BlockedSignals;

/// What a kernel runs: takes its context, says how it ended.
pub type KernelBody = Box<dyn FnOnce(&mut KernelContext) -> Result<(), KernelError> + Send>;

/// How a launch was lent memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lent {
    /// To be read: nobody writes it meanwhile.
    Read,
    /// To be read and written: nobody else touches it meanwhile.
    Write,
    /// Words that all touch at the same time, by atomic operations of this many bytes.
    Shared {
        /// Bytes of a word.
        word: u8,
    },
}

/// What a kernel does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Makes a slice of it.
    Slice(Access),
    /// Loads or stores a value.
    Value(Access),
    /// An atomic operation on a word.
    Atomic,
}

impl Use {
    /// Its number among the uses of words.
    #[inline(always)]
    fn index(self) -> usize {
        match self {
            Use::Slice(access) | Use::Value(access) => usize::from(access.is_write()),
            Use::Atomic => 2,
        }
    }

    /// Whether it writes.
    #[inline(always)]
    pub(crate) fn access(self) -> Access {
        match self {
            Use::Slice(access) | Use::Value(access) => access,
            Use::Atomic => Access::Write,
        }
    }
}

/// Bytes that a job may touch, and how they were lent to it. What a kernel may make of memory follows
/// from this alone, whatever addresses and types it comes by: a slice only of what was lent as a
/// slice, and of shared words nothing but whole words, atomically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    start: u64,
    end: u64,
    lent: Lent,
    /// Bits that addresses and lengths of shared words have not: a word's size less 1. All bits, where
    /// there is no such word.
    not_in_words: u64,
}

impl Granted {
    /// `bytes` bytes from `start` on.
    ///
    /// # Safety
    /// From the launch of the job that gets this until it has ended, or was given up and its pages
    /// were taken out of use, nobody but the job touches these bytes otherwise than `lent` says.
    pub unsafe fn new(start: u64, bytes: u64, lent: Lent) -> Granted {
        let not_in_words = match lent {
            Lent::Read | Lent::Write => 0,
            Lent::Shared { word: word @ (1 | 2 | 4 | 8) } if start % u64::from(word) == 0 => {
                u64::from(word) - 1
            }
            Lent::Shared { .. } => u64::MAX,
        };
        Granted { start, end: start.saturating_add(bytes), lent, not_in_words }
    }

    /// The first byte.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// How they were lent.
    pub(crate) fn lent(&self) -> Lent {
        self.lent
    }

    /// Whether the job may write them.
    pub fn may_be_written(&self) -> bool {
        self.lent != Lent::Read
    }

    /// How many bytes.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Whether the two cannot both be true: one of them is written by its job alone, or they are
    /// lent in different ways, and they have bytes in common.
    pub fn contradicts(&self, other: &Granted) -> bool {
        let meet = self.start < other.end && other.start < self.end;
        meet && (self.lent != other.lent || self.lent == Lent::Write)
    }

    /// No bytes.
    pub(crate) const fn nothing() -> Granted {
        Granted { start: 0, end: 0, lent: Lent::Read, not_in_words: 0 }
    }

    /// Whether it has all of these bytes.
    #[inline]
    pub(crate) fn covers(&self, addr: u64, bytes: u64) -> bool {
        let (at, all) = (addr.wrapping_sub(self.start), self.end - self.start);
        at <= all && bytes <= all - at
    }

    /// Whether it has these bytes, and they may be used so. Gives the size of the words in which others change
    /// them meanwhile; 0 if nobody does.
    #[inline]
    pub(crate) fn allows(&self, addr: u64, bytes: u64, use_: Use) -> Option<u8> {
        if !self.covers(addr, bytes) {
            return None;
        }
        match (self.lent, use_) {
            (Lent::Read, Use::Slice(access) | Use::Value(access)) if !access.is_write() => Some(0),
            (Lent::Write, _) => Some(0),
            (Lent::Shared { word }, Use::Value(_)) => {
                ((addr | bytes) & self.not_in_words == 0).then_some(word)
            }
            (Lent::Shared { word }, Use::Atomic) => {
                (bytes == u64::from(word) && addr & self.not_in_words == 0).then_some(word)
            }
            _ => None,
        }
    }
}

/// A grant laid out for the check that every word makes: two comparisons for each aligned word of 1, 2, 4
/// or 8 bytes. What it does not allow may be allowed all the same; [`Granted::allows`] says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuickGrant {
    start: u64,
    /// From the first byte to the last one at which 8 bytes begin.
    span: u64,
    /// By what is done and by log2 of the size: bits that an address must not have.
    refused: [[u64; 4]; 3],
}

impl QuickGrant {
    /// One that allows nothing: its one address has every bit that is refused.
    pub(crate) const NOTHING: QuickGrant =
        QuickGrant { start: u64::MAX, span: 0, refused: [[u64::MAX; 4]; 3] };

    pub(crate) fn new(grant: &Granted) -> QuickGrant {
        // Address 0 has no bit that could be refused. No memory is there, but a client may say so.
        let span = grant.bytes().checked_sub(8).filter(|_| grant.start > 0);
        let Some(span) = span else {
            return QuickGrant::NOTHING;
        };
        let mut quick = QuickGrant { start: grant.start, span, ..QuickGrant::NOTHING };
        for use_ in [Use::Value(Access::Read), Use::Value(Access::Write), Use::Atomic] {
            for size in 0..4 {
                let bytes = 1 << size;
                // The first address from the start on where an aligned word begins.
                let at = grant.start.next_multiple_of(bytes);
                let word = grant.allows(at, bytes, use_);
                if word.is_some_and(|word| word == 0 || u64::from(word) == bytes) {
                    quick.refused[use_.index()][size] = bytes - 1;
                }
            }
        }
        quick
    }

    /// Whether a word of 2^`size` bytes, aligned, may be used so.
    #[inline(always)]
    pub(crate) fn allows(&self, addr: u64, size: u32, use_: Use) -> bool {
        addr.wrapping_sub(self.start) <= self.span
            && addr & self.refused[use_.index()][size as usize] == 0
    }
}

/// Why a job has to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stop {
    /// The program no longer wants it.
    Cancelled = 1,
    /// Its time is up.
    TimedOut = 2,
    /// It did not stop when it was told to.
    Hung = 3,
    /// Its card is gone.
    CardGone = 4,
}

/// Nobody has told it to stop.
const WANTED: u8 = 0;

/// What becomes of the value of a kernel that ran elsewhere.
pub type Returned = Box<dyn FnOnce(u64) + Send>;

/// What is to be done for a job.
enum Work {
    /// Run this, here.
    Body(KernelBody),
    /// Have the card run the kernel of the job's name, and hand its value over.
    Call(Returned),
}

/// One launched kernel.
pub struct Job {
    /// Its number, unique among the jobs of its driver.
    pub id: JobId,
    /// Where it runs.
    pub card: CardId,
    /// The address space of its accesses.
    pub asid: Asid,
    /// The kernel.
    pub name: Arc<str>,
    /// What it may touch.
    pub grants: Box<[Granted]>,
    /// When it is given up, on the clock of its driver.
    pub deadline: Option<Time>,
    work: Mutex<Option<Work>>,
    /// Arguments, if the kernel is known by its name.
    args: Box<[KernelArg]>,
    /// What the kernel of a served job returned.
    value: AtomicU64,
    stop: AtomicU8,
    /// Why its card is gone, where that is known.
    why_gone: OnceLock<String>,
    /// The state has a result.
    end: Ending,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pe: Option<PeId>,
    thread: Option<std::thread::ThreadId>,
    result: Option<Result<(), KernelError>>,
    /// It has run to its end, also where it was given up before.
    has_run: bool,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} `{}` on {}", self.id, self.name, self.card)
    }
}

impl Job {
    /// A job that has not been launched: a closure, in the address space `asid` of a card in this
    /// program. It is given up at `deadline`.
    pub fn new(
        id: JobId,
        (card, asid): (CardId, Asid),
        name: Arc<str>,
        grants: Vec<Granted>,
        deadline: Option<Time>,
        body: KernelBody,
    ) -> Arc<Job> {
        let work = Work::Body(body);
        Arc::new(Job::with_work(id, (card, asid), name, grants, deadline, Box::default(), work))
    }

    /// A job for a card that is not in this program: the kernel of that name, with these
    /// arguments. `returned` gets what it returns, if it ends well.
    pub fn call(
        id: JobId,
        (card, asid): (CardId, Asid),
        args: &KernelArgs,
        deadline: Option<Time>,
        returned: Returned,
    ) -> Arc<Job> {
        let (name, records) = (Arc::clone(args.kernel()), args.records().into());
        let work = Work::Call(returned);
        Arc::new(Job::with_work(id, (card, asid), name, args.grants(), deadline, records, work))
    }

    fn with_work(
        id: JobId,
        (card, asid): (CardId, Asid),
        name: Arc<str>,
        grants: Vec<Granted>,
        deadline: Option<Time>,
        args: Box<[KernelArg]>,
        work: Work,
    ) -> Job {
        Job {
            id,
            card,
            asid,
            name,
            grants: grants.into(),
            deadline,
            work: Mutex::new(Some(work)),
            args,
            value: AtomicU64::new(0),
            stop: AtomicU8::new(WANTED),
            why_gone: OnceLock::new(),
            end: Ending::default(),
            state: Mutex::new(State::default()),
        }
    }

    /// Waits for the end, until `deadline` at most (`None`: for ever). `None`: it still runs.
    pub fn wait(&self, deadline: Option<Instant>) -> Option<Result<(), KernelError>> {
        if !self.end.wait(deadline) {
            return None;
        }
        let result = {
            // The runtime takes this lock as well: no handler of the program may run under it.
            let _signals = BlockedSignals::block();
            lock(&self.state).result.clone()?
        };
        // A kernel that never ran may have captured a space or a buffer. They go here, in a thread
        // of the program, and never in one of the runtime's, which would wait for itself.
        let body = {
            let _signals = BlockedSignals::block();
            lock(&self.work).take()
        };
        drop(body);
        Some(result)
    }

    /// Its end.
    pub fn end(&self) -> &Ending {
        &self.end
    }

    /// What the kernel of a served job returned.
    pub fn value(&self) -> u64 {
        self.value.load(Ordering::SeqCst)
    }

    /// Enters what the kernel of a served job returned.
    pub fn set_value(&self, value: u64) {
        self.value.store(value, Ordering::SeqCst);
    }

    /// The arguments of a kernel that is known by its name.
    pub fn args(&self) -> &[KernelArg] {
        &self.args
    }

    /// Whether it is a closure, which can run in this program only.
    pub fn is_closure(&self) -> bool {
        matches!(&*lock(&self.work), Some(Work::Body(_)))
    }

    /// The card has run its kernel to a good end.
    pub fn returned(&self, value: u64) {
        let work = lock(&self.work).take();
        if let Some(Work::Call(returned)) = work {
            returned(value);
        }
    }

    /// Whether it has to stop.
    #[inline]
    pub(crate) fn has_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != WANTED
    }

    /// Why it has to stop, if it has to.
    #[inline]
    pub fn stopped(&self) -> Option<KernelError> {
        match self.stop.load(Ordering::Relaxed) {
            WANTED => None,
            reason => Some(self.stop_error(reason)),
        }
    }

    fn stop_error(&self, reason: u8) -> KernelError {
        let (kernel, card) = (self.name.clone(), self.card);
        match reason {
            reason if reason == Stop::TimedOut as u8 => KernelError::TimedOut { kernel },
            reason if reason == Stop::Hung as u8 => KernelError::Hung { kernel, card },
            reason if reason == Stop::CardGone as u8 => self.dropped_error(),
            _ => KernelError::Cancelled { kernel },
        }
    }

    /// The error of a job that never ran.
    pub fn dropped_error(&self) -> KernelError {
        let why = self.why_gone.get().map_or_else(String::new, |why| format!(": {why}"));
        KernelError::Dropped { kernel: self.name.clone(), card: self.card, why }
    }

    /// Notes why its card is gone, for what is said of its end.
    pub fn note_why_gone(&self, why: &str) {
        if !why.is_empty() {
            // The first reason is the right one.
            let _ = self.why_gone.set(why.to_owned());
        }
    }

    /// Notes that it has to stop, unless that has been noted before.
    pub fn mark(&self, reason: Stop) -> bool {
        let reason = reason as u8;
        self.stop.compare_exchange(WANTED, reason, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whether it has a result.
    pub fn is_done(&self) -> bool {
        self.end.has_come()
    }

    /// Enters the reason why it was stopped as its result.
    pub fn finish_stopped(&self) {
        self.finish(Err(self.stop_error(self.stop.load(Ordering::SeqCst))));
    }

    /// It does not stop. Its result is an error, another thread takes the place of its processing
    /// element, and what it holds is never given to anybody else. Says whether it holds memory;
    /// `None` if it has ended or never begun.
    pub fn give_up(&self, embedder: &Arc<dyn Embedder>, card: &Arc<SoftCard>) -> Option<bool> {
        let model = lock(&card.model);
        let mut state = lock(&self.state);
        let pe = state.pe.filter(|_| state.result.is_none())?;
        // Set under the card's lock: from here on the kernel gets no memory any more.
        self.stop.store(Stop::Hung as u8, Ordering::SeqCst);
        model.disturb_words();
        model.drain_words();
        let holds = model.in_flight().holds(pe);
        drop(model);
        state.result = Some(Err(self.stop_error(Stop::Hung as u8)));
        let thread = state.thread;
        drop(state);
        tracing::error!(job = ?self, holds, "a kernel hangs; its processing element is given up");
        card.replace(embedder, thread);
        embedder.job_given_up(card, self, holds);
        self.end.come();
        Some(holds)
    }

    /// Takes the kernel out to run it on `pe`.
    pub fn begin(&self, pe: PeId) -> Option<KernelBody> {
        let mut state = lock(&self.state);
        state.pe = Some(pe);
        state.thread = Some(std::thread::current().id());
        drop(state);
        match lock(&self.work).take() {
            Some(Work::Body(body)) => Some(body),
            Some(Work::Call(_)) | None => None,
        }
    }

    /// Whether its processing element was given up.
    pub fn was_given_up(&self) -> bool {
        self.stop.load(Ordering::SeqCst) == Stop::Hung as u8
    }

    /// It has run to its end: enters the result, tells the card's surroundings, and wakes those
    /// who wait.
    pub fn end_with(
        &self,
        embedder: &dyn Embedder,
        card: &SoftCard,
        result: Result<(), KernelError>,
    ) {
        let mut state = lock(&self.state);
        state.result.get_or_insert(result);
        state.has_run = true;
        drop(state);
        embedder.job_over(card, self);
        self.end.come();
    }

    /// Whether it has run to its end and holds nothing, also where it was given up before.
    pub fn has_run(&self) -> bool {
        lock(&self.state).has_run
    }

    /// How it ended, if it has.
    pub fn result(&self) -> Option<Result<(), KernelError>> {
        lock(&self.state).result.clone()
    }

    /// Enters the result and wakes those who wait.
    pub fn finish(&self, result: Result<(), KernelError>) {
        lock(&self.state).result.get_or_insert(result);
        self.end.come();
    }

    /// The driver has dropped it: it never starts, or its card is gone. Gives whether it has ended.
    pub fn dropped(&self) -> bool {
        self.mark(Stop::CardGone);
        let started = lock(&self.state).pe.is_some();
        if !started {
            self.finish_stopped();
        }
        !started
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lent() -> impl Strategy<Value = Lent> {
        let sizes = prop::sample::select(vec![0u8, 1, 2, 3, 4, 8, 16]);
        let shared = sizes.prop_map(|word| Lent::Shared { word });
        prop_oneof![Just(Lent::Read), Just(Lent::Write), shared]
    }

    proptest! {
        /// What the quick check lets through the full one lets through too, in words of that size.
        #[test]
        fn a_quick_grant_allows_nothing_that_the_grant_does_not(
            start in 0u64..40,
            bytes in 0u64..40,
            lent in lent(),
            addr in 0u64..100,
            size in 0u32..4,
        ) {
            // SAFETY: nobody accesses anything by it.
            let grant = unsafe { Granted::new(start, bytes, lent) };
            let quick = QuickGrant::new(&grant);
            let uses = [Use::Value(Access::Read), Use::Value(Access::Write), Use::Atomic];
            for use_ in uses {
                if quick.allows(addr, size, use_) {
                    let word = grant.allows(addr, 1 << size, use_);
                    prop_assert!(word.is_some_and(|word| word == 0 || word == 1 << size), "{use_:?}");
                    prop_assert_eq!(addr % (1 << size), 0);
                }
            }
        }
    }

    #[test]
    fn no_quick_grant_allows_address_0_to_whom_the_grant_does_not() {
        let uses = [Use::Value(Access::Read), Use::Value(Access::Write), Use::Atomic];
        // SAFETY: nobody accesses anything by them.
        let grants = unsafe {
            [Granted::new(0, 0, Lent::Read), Granted::new(0, 64, Lent::Read), Granted::nothing()]
        };
        for (grant, use_) in grants.iter().flat_map(|grant| uses.map(|use_| (grant, use_))) {
            let may = grant.allows(0, 1, use_).is_some();
            assert!(may || !QuickGrant::new(grant).allows(0, 0, use_), "{grant:?} {use_:?}");
            assert!(!QuickGrant::NOTHING.allows(0, 0, use_), "{use_:?}");
        }
    }

    #[test]
    fn a_quick_grant_allows_aligned_words_but_for_the_last_few_bytes() {
        let word = Lent::Shared { word: 8 };
        // SAFETY: nobody accesses anything by it.
        let quick = QuickGrant::new(&unsafe { Granted::new(64, 64, word) });
        assert!(quick.allows(64, 3, Use::Atomic) && quick.allows(120, 3, Use::Value(Access::Read)));
        assert!(!quick.allows(128, 3, Use::Atomic) && !quick.allows(56, 3, Use::Atomic));
        assert!(!quick.allows(64, 2, Use::Atomic), "words are 8 bytes");
    }
}
