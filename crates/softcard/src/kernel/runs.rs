//! Runs of words: many words for one mark, so that what a mark costs is shared and the processor waits
//! for several of them at the same time.
//!
//! Whoever takes a page away waits for marks. So between a mark and its end a run only looks up
//! entries and accesses words, [`BATCH`] of each at most; addresses and operands are copied to the
//! kernel's stack before it, and results from there behind it, because the slices that they are in may
//! lie in shared memory themselves, and then wait for the very page that is being taken away.

use std::ptr::NonNull;

use bytemuck::{Pod, Zeroable};
use farside_types::Access;

use super::{KernelContext, read_value, write_value};
use crate::error::KernelError;
use crate::hot::BATCH;
use crate::job::Use;
use crate::span::{AtomicSpan, Ptr, Word};

/// What is done with each word of a run.
#[derive(Clone, Copy)]
struct Each {
    /// For people.
    name: &'static str,
    /// Size of a word.
    bytes: usize,
    use_: Use,
}

impl Each {
    /// Whether it may be a word of the hot path.
    fn is_word(self) -> bool {
        matches!(self.bytes, 1 | 2 | 4 | 8)
    }
}

/// How far some words of a run have come: so many are done, and why no more.
type Done = (usize, Result<(), KernelError>);

impl KernelContext {
    /// Reads the words at `at` into `into`, in this order: as [`KernelContext::load`] for each, and several
    /// times as fast where they are far apart.
    ///
    /// # Errors
    /// [`KernelError::BadRequest`] if the slices have different lengths; nothing is read then. Otherwise
    /// as for [`KernelContext::load`] of the first word that cannot be read: those before it were, and
    /// the rest of `into` is as it was.
    pub fn gather<T: Pod>(&mut self, at: &[Ptr<T>], into: &mut [T]) -> Result<(), KernelError> {
        self.check_lengths("gather", at.len(), into.len())?;
        self.gather_by(at.len(), |index| at[index].addr(), |index, value| into[index] = value)
    }

    /// [`KernelContext::gather`] of `count` words: from where `at` says, to where `give` puts them.
    pub(crate) fn gather_by<T: Pod>(
        &mut self,
        count: usize,
        at: impl Fn(usize) -> u64,
        give: impl FnMut(usize, T),
    ) -> Result<(), KernelError> {
        let use_ = Use::Value(Access::Read);
        let each = Each { name: "gather", bytes: size_of::<T>(), use_ };
        let load = |byte: NonNull<u8>, word, ()| {
            // SAFETY: as in `KernelContext::load`.
            unsafe { read_value(byte.cast::<T>(), word) }
        };
        self.run(each, count, |_, index| Ok((at(index), ())), load, give)
    }

    /// Writes `from` to the words at `at`, in this order: as [`KernelContext::store`] for each. A word that is
    /// named twice has the later value.
    ///
    /// # Errors
    /// [`KernelError::BadRequest`] if the slices have different lengths; nothing is written then.
    /// Otherwise as for [`KernelContext::store`] of the first word that cannot be written: those before
    /// it were, and no other.
    pub fn scatter<T: Pod>(&mut self, at: &[Ptr<T>], from: &[T]) -> Result<(), KernelError> {
        self.check_lengths("scatter", at.len(), from.len())?;
        self.scatter_by(at.len(), |index| (at[index].addr(), from[index]))
    }

    /// [`KernelContext::scatter`] of `count` words: `take` gives where each is, and its value.
    pub(crate) fn scatter_by<T: Pod>(
        &mut self,
        count: usize,
        take: impl Fn(usize) -> (u64, T),
    ) -> Result<(), KernelError> {
        let use_ = Use::Value(Access::Write);
        let each = Each { name: "scatter", bytes: size_of::<T>(), use_ };
        let store = |byte: NonNull<u8>, word, value| {
            // SAFETY: as in `KernelContext::store`.
            unsafe { write_value(byte.cast::<T>(), value, word) }
        };
        self.run(each, count, |_, index| Ok(take(index)), store, |_, ()| {})
    }

    /// Adds to words, each given by its index and what to add, in this order: as [`KernelContext::fetch_add`]
    /// for each, so a word that is named twice is added to twice. What they were goes to `was`, if
    /// that is wanted.
    ///
    /// # Errors
    /// [`KernelError::BadRequest`] if `was` has another length than `adds`; nothing is added then.
    /// Otherwise as for [`KernelContext::fetch_add`] of the first word that cannot be had: those before
    /// it were added to, and no other.
    pub fn fetch_add_all<W: Word>(
        &mut self,
        span: AtomicSpan<W>,
        adds: &[(usize, W::Value)],
        was: Option<&mut [W::Value]>,
    ) -> Result<(), KernelError> {
        if let Some(was) = &was {
            self.check_lengths("fetch_add_all", adds.len(), was.len())?;
        }
        // No room for them says as much as no wish.
        let was = was.unwrap_or_default();
        self.fetch_add_by::<W>(
            adds.len(),
            |k, index| Ok((k.word_addr(span, adds[index].0)?, adds[index].1)),
            |index, before| {
                if let Some(was) = was.get_mut(index) {
                    *was = before;
                }
            },
        )
    }

    /// [`KernelContext::fetch_add_all`] of `count` words: `take` gives the address of each, aligned, and
    /// what to add; `give` gets what it was.
    pub(crate) fn fetch_add_by<W: Word>(
        &mut self,
        count: usize,
        take: impl Fn(&KernelContext, usize) -> Result<(u64, W::Value), KernelError>,
        give: impl FnMut(usize, W::Value),
    ) -> Result<(), KernelError> {
        let each = Each { name: "fetch_add_all", bytes: size_of::<W>(), use_: Use::Atomic };
        let add = |byte: NonNull<u8>, _, value| {
            // SAFETY: as in `KernelContext::fetch_add`.
            unsafe { byte.cast::<W>().as_ref() }.fetch_add(value)
        };
        self.run(each, count, take, add, give)
    }

    /// Replaces words that have the expected values, each given by its index, the expected and the new
    /// value, in this order: as [`KernelContext::compare_exchange`] for each. `outcomes` gets what that
    /// gives: `Ok` with the value that was replaced, or `Err` with the one that stays.
    ///
    /// # Errors
    /// [`KernelError::BadRequest`] if the slices have different lengths; nothing is replaced then.
    /// Otherwise as for [`KernelContext::compare_exchange`] of the first word that cannot be had: those
    /// before it have their outcomes, and no other was touched.
    pub fn compare_exchange_all<W: Word>(
        &mut self,
        span: AtomicSpan<W>,
        exchanges: &[(usize, W::Value, W::Value)],
        outcomes: &mut [Result<W::Value, W::Value>],
    ) -> Result<(), KernelError> {
        self.check_lengths("compare_exchange_all", exchanges.len(), outcomes.len())?;
        self.compare_exchange_by::<W>(
            exchanges.len(),
            |k, index| {
                let (word, expected, value) = exchanges[index];
                Ok((k.word_addr(span, word)?, (expected, value)))
            },
            |index, outcome| outcomes[index] = outcome,
        )
    }

    /// [`KernelContext::compare_exchange_all`] of `count` words: `take` gives the address of each, aligned,
    /// with the expected and the new value; `give` gets the outcome.
    pub(crate) fn compare_exchange_by<W: Word>(
        &mut self,
        count: usize,
        take: impl Fn(&KernelContext, usize) -> Result<(u64, (W::Value, W::Value)), KernelError>,
        mut give: impl FnMut(usize, Result<W::Value, W::Value>),
    ) -> Result<(), KernelError> {
        let each = Each { name: "compare_exchange_all", bytes: size_of::<W>(), use_: Use::Atomic };
        let exchange = |byte: NonNull<u8>, _, (expected, value)| {
            // SAFETY: as in `KernelContext::compare_exchange`.
            match unsafe { byte.cast::<W>().as_ref() }.compare_exchange(expected, value) {
                Ok(was) => (true, was),
                Err(is) => (false, is),
            }
        };
        self.run(each, count, take, exchange, |index, (replaced, value)| {
            give(index, if replaced { Ok(value) } else { Err(value) });
        })
    }

    /// Does `work` with `count` words, in order. `take` gives the address and the operand of each, `give`
    /// gets what came of it: these two may touch memory of the program's.
    #[inline(always)]
    fn run<I: Copy + Zeroable, O: Copy + Zeroable>(
        &mut self,
        each: Each,
        count: usize,
        take: impl Fn(&KernelContext, usize) -> Result<(u64, I), KernelError>,
        work: impl Fn(NonNull<u8>, u8, I) -> O,
        give: impl FnMut(usize, O),
    ) -> Result<(), KernelError> {
        if each.is_word() {
            self.run_staged::<BATCH, I, O>(each, count, take, work, give)
        } else {
            self.run_staged::<1, I, O>(each, count, take, work, give)
        }
    }

    /// [`KernelContext::run`], with `N` words on the kernel's stack at a time.
    #[inline(always)]
    fn run_staged<const N: usize, I: Copy + Zeroable, O: Copy + Zeroable>(
        &mut self,
        each: Each,
        count: usize,
        take: impl Fn(&KernelContext, usize) -> Result<(u64, I), KernelError>,
        work: impl Fn(NonNull<u8>, u8, I) -> O,
        mut give: impl FnMut(usize, O),
    ) -> Result<(), KernelError> {
        let (mut addrs, mut operands) = ([0; N], [I::zeroed(); N]);
        let mut outcomes = [O::zeroed(); N];
        let mut done = 0;
        while done < count {
            let wanted = N.min(count - done);
            let (staged, taken) =
                stage(wanted, &mut addrs, &mut operands, |at| take(self, done + at));
            let words = (&addrs[..staged], &operands[..staged]);
            let (did, ended) = self.do_words(each, words, &mut outcomes, &work);
            for (at, &outcome) in outcomes[..did].iter().enumerate() {
                give(done + at, outcome);
            }
            done += did;
            ended.and(taken).map_err(|error| error.in_run(each.name, done, count))?;
        }
        Ok(())
    }

    /// Does the words that were staged: those that need nothing but their entries in batches, the others
    /// one by one.
    #[inline(always)]
    fn do_words<I: Copy, O>(
        &mut self,
        each: Each,
        (addrs, operands): (&[u64], &[I]),
        outcomes: &mut [O],
        work: &impl Fn(NonNull<u8>, u8, I) -> O,
    ) -> Done {
        let mut done = 0;
        loop {
            let rest = (&addrs[done..], &operands[done..]);
            done += self.do_batch(each, rest, &mut outcomes[done..], work);
            let (Some(&addr), Some(&operand)) = (addrs.get(done), operands.get(done)) else {
                return (done, Ok(()));
            };
            let one = |byte, word| work(byte, word, operand);
            match self.access_slowly(addr, each.bytes, each.use_, one) {
                Ok(outcome) => outcomes[done] = outcome,
                Err(error) => return (done, Err(error)),
            }
            done += 1;
        }
    }

    /// Does the first of these words that are where they are remembered, under one mark. Gives how many.
    #[inline(always)]
    fn do_batch<I: Copy, O>(
        &mut self,
        each: Each,
        (addrs, operands): (&[u64], &[I]),
        outcomes: &mut [O],
        work: &impl Fn(NonNull<u8>, u8, I) -> O,
    ) -> usize {
        let Some(hot) = self.hot.as_mut().filter(|_| each.is_word()) else { return 0 };
        let (size, use_) = (each.bytes.trailing_zeros(), each.use_);
        let may = |addr: &&u64| self.quick.allows(**addr, size, use_);
        let allowed = addrs.iter().take_while(may).count();
        if allowed == 0 {
            return 0;
        }
        let mut bytes = [NonNull::dangling(); BATCH];
        let found = hot.find_run(&addrs[..allowed], use_.access(), &mut bytes);
        for ((&byte, &operand), outcome) in found.bytes.iter().zip(operands).zip(outcomes) {
            *outcome = work(byte, each.bytes as u8, operand);
        }
        found.bytes.len()
    }

    fn check_lengths(&self, run: &str, words: usize, values: usize) -> Result<(), KernelError> {
        if words == values {
            return Ok(());
        }
        let why =
            format!("{run} of {words} words has room for {values} values; both must be as many");
        Err(KernelError::BadRequest { kernel: self.job.name.clone(), why })
    }
}

/// Copies the addresses and operands of `wanted` words to the kernel's stack, as far as there are
/// some.
#[inline(always)]
fn stage<I>(
    wanted: usize,
    addrs: &mut [u64],
    operands: &mut [I],
    take: impl Fn(usize) -> Result<(u64, I), KernelError>,
) -> Done {
    for at in 0..wanted {
        match take(at) {
            Ok((addr, operand)) => (addrs[at], operands[at]) = (addr, operand),
            Err(error) => return (at, Err(error)),
        }
    }
    (wanted, Ok(()))
}
