//! One kernel over a range of indices, on several cards at once.

use std::future::Future;
use std::marker::PhantomData;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use farside_live::{
    CardShare, LiveError, MakePiece, Parallel, ParallelLaunch, PieceError, PieceWork,
};
use farside_softcard::{KernelArgs, KernelContext, KernelError};
use farside_types::{CardId, PAGE_SIZE};

use crate::launch::{Launch, Scope};
use crate::pieces::{Part, Uneven};
use crate::{Error, PieceArgs, Precedes, Space};

/// Pieces for each processing element, where nobody says how large one is.
const PIECES_OF_ELEMENT: u64 = 16;

/// A kernel that is about to be launched over a range of indices: see [`Space::for_each`].
#[derive(Debug)]
#[must_use = "nothing runs before `run`, `call` or `launch`"]
pub struct ForEach<'a> {
    space: &'a Space,
    launch: Launch<'a>,
    indices: Range<u64>,
    cards: Option<Vec<CardId>>,
    grain: Option<u64>,
}

/// A parallel launch inside a scope.
#[derive(Debug)]
#[must_use = "nothing runs before `launch`"]
pub struct ScopedForEach<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    each: ForEach<'env>,
}

/// The pieces of a parallel launch. They can be waited for, looked at, and awaited as a future. Dropped, they go
/// on, and the scope waits for them.
#[derive(Debug)]
pub struct Pieces<'scope> {
    pub(crate) parallel: Arc<Parallel>,
    space: Space,
    value: Arc<AtomicU64>,
    scope: PhantomData<&'scope ()>,
}

/// What became of a parallel launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// What the kernels of the pieces returned, added up (wrapping), if they have names. For closures 0.
    pub value: u64,
    /// What each card did, in the order in which the cards were named.
    pub cards: Vec<CardShare>,
}

/// How far a parallel launch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Pieces that have ended well.
    pub done: u64,
    /// All pieces.
    pub pieces: u64,
}

/// A parallel launch, and where its kernels leave their values.
type Started = (Arc<Parallel>, Arc<AtomicU64>);

impl<'a> ForEach<'a> {
    pub(crate) fn new(space: &'a Space, name: &str, indices: Range<u64>) -> ForEach<'a> {
        let launch = Launch::new(space, name);
        // A range that ends before it begins has no index, as in a loop.
        let indices = indices.start..indices.end.max(indices.start);
        ForEach { space, launch, indices, cards: None, grain: None }
    }

    /// On which cards; all of the space unless said otherwise. Each begins with a run of the indices, as long as it
    /// has processing elements.
    pub fn on(mut self, cards: impl IntoIterator<Item = CardId>) -> Self {
        let mut named = Vec::new();
        for card in cards {
            if !named.contains(&card) {
                named.push(card);
            }
        }
        self.cards = Some(named);
        self
    }

    /// Indices of a piece, at least 1. Unless said otherwise there are 16 pieces for each processing element, of whole
    /// pages where they are larger.
    pub fn grain(mut self, indices: u64) -> Self {
        self.grain = Some(indices);
        self
    }

    /// Starts no piece before `other` has ended; see [`Precedes`]. Several are all waited for.
    pub fn after(mut self, other: &impl Precedes) -> Self {
        self.launch = self.launch.after(other);
        self
    }

    /// How long all of it may take, waiting included.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.launch = self.launch.time_limit(limit);
        self
    }

    /// Runs `kernel` over all indices, a piece at a time on each processing element, and waits for the end.
    ///
    /// # Errors
    /// [`Error::Piece`] for the first piece that failed; after it no other is begun. [`Error::Uneven`],
    /// [`Error::Setting`] and [`LiveError::NotShared`] before any runs.
    pub fn run<A: PieceArgs>(
        self,
        args: A,
        kernel: impl Fn(&mut KernelContext, Range<u64>, A::Spans) -> Result<(), KernelError>
        + Send
        + Sync
        + 'static,
    ) -> Result<Shares, Error> {
        let started = self.start(&args, kernel)?;
        finish(&started, None).unwrap_or_else(|| unreachable!("no deadline"))
    }

    /// Calls the kernel of that name for all indices, as [`Launch::call`] does for one: the only way on cards that are not
    /// in this program.
    ///
    /// # Errors
    /// As [`ForEach::run`]; [`Error::Kernels`] if there is no such kernel.
    pub fn call<A: PieceArgs>(self, args: A) -> Result<Shares, Error> {
        let started = self.start_call(&args)?;
        finish(&started, None).unwrap_or_else(|| unreachable!("no deadline"))
    }

    fn start<A: PieceArgs>(
        self,
        args: &A,
        kernel: impl Fn(&mut KernelContext, Range<u64>, A::Spans) -> Result<(), KernelError>
        + Send
        + Sync
        + 'static,
    ) -> Result<Started, Error> {
        let cards = self.cards()?;
        if let Some(&card) = cards.iter().find(|&&card| self.space.runtime().is_far(card)) {
            let kernel = Arc::clone(&self.launch.name);
            return Err(LiveError::ClosureElsewhere { kernel, card }.into());
        }
        let lent = self.lend(args, &cards)?;
        let (kernel, spans) = (Arc::new(kernel), A::spans as SpansOf<A>);
        let make = move |indices: Range<u64>, _: bool| {
            let (args, kernel) = (lent.of(&indices)?, Arc::clone(&kernel));
            let grants = args.grants();
            let body = move |context: &mut KernelContext| {
                let spans = spans(&args, &mut 0)?;
                kernel(context, indices, spans)
            };
            Ok(PieceWork::Body(grants, Box::new(body)))
        };
        self.begin(cards, Arc::default(), Box::new(make))
    }

    fn start_call<A: PieceArgs>(self, args: &A) -> Result<Started, Error> {
        let cards = self.cards()?;
        let near = cards.iter().any(|&card| !self.space.runtime().is_far(card));
        let kernel = near.then(|| self.space.kernels().find(&self.launch.name)).transpose()?;
        let (kernel, lent) = (kernel.map(|(_, kernel)| kernel.clone()), self.lend(args, &cards)?);
        let sum: Arc<AtomicU64> = Arc::default();
        let value = Arc::clone(&sum);
        let make = move |indices: Range<u64>, is_far: bool| {
            let (args, value) = (lent.of(&indices)?, Arc::clone(&value));
            let grants = args.grants();
            let add = move |of_piece| {
                value.fetch_add(of_piece, Ordering::Relaxed);
            };
            match &kernel {
                Some(kernel) if !is_far => {
                    let kernel = kernel.clone();
                    let body = move |k: &mut KernelContext| kernel.run(k, &args).map(add);
                    Ok(PieceWork::Body(grants, Box::new(body)))
                }
                _ => Ok(PieceWork::Call(args, Box::new(add))),
            }
        };
        self.begin(cards, sum, Box::new(make))
    }

    fn begin(
        self,
        cards: Vec<CardId>,
        value: Arc<AtomicU64>,
        make: MakePiece,
    ) -> Result<Started, Error> {
        let (runtime, grain) = (self.space.runtime(), self.grain_for(&cards)?);
        let (name, limit) = (Arc::clone(&self.launch.name), self.launch.limit());
        let launch = ParallelLaunch { name, indices: self.indices, grain, cards, limit, make };
        Ok((runtime.launch_parallel(launch, &self.launch.after)?, value))
    }

    fn cards(&self) -> Result<Vec<CardId>, Error> {
        let cards = self.cards.clone().unwrap_or_else(|| self.space.cards().collect());
        if cards.is_empty() {
            let why = "name at least one card";
            return Err(Error::Setting {
                what: "the cards of a parallel launch",
                value: "none".into(),
                why,
            });
        }
        cards.iter().try_for_each(|card| self.space.card(card.0.into()).map(drop))?;
        Ok(cards)
    }

    fn grain_for(&self, cards: &[CardId]) -> Result<u64, Error> {
        match self.grain {
            Some(0) => {
                let why = "a piece has at least one index";
                Err(Error::Setting {
                    what: "the grain of a parallel launch",
                    value: "0".into(),
                    why,
                })
            }
            Some(grain) => Ok(grain),
            None => {
                let runtime = self.space.runtime();
                let elements: u64 =
                    cards.iter().map(|&card| u64::from(runtime.elements(card))).sum();
                Ok(default_grain(self.indices.end - self.indices.start, elements))
            }
        }
    }

    /// What the pieces are lent.
    fn lend<A: PieceArgs>(&self, args: &A, cards: &[CardId]) -> Result<Lent, Error> {
        let (kernel, indices) = (Arc::clone(&self.launch.name), self.indices.clone());
        let mut parts = Vec::new();
        if !indices.is_empty() {
            let count = indices.end - indices.start;
            args.parts(count, &mut parts).map_err(|Uneven { values }| Error::Uneven {
                kernel: Arc::clone(&kernel),
                values,
                indices: count,
            })?;
        }
        let lent = Lent { kernel, first: indices.start, parts };
        self.launch.check(&lent.of(&indices)?.grants(), cards)?;
        Ok(lent)
    }
}

/// Gives what the kernel of a piece gets.
type SpansOf<A> = fn(&KernelArgs, &mut usize) -> Result<<A as PieceArgs>::Spans, KernelError>;

/// What a parallel launch lends to its pieces.
#[derive(Debug)]
struct Lent {
    kernel: Arc<str>,
    /// The first index of all.
    first: u64,
    parts: Vec<Part>,
}

impl Lent {
    /// The arguments of a piece.
    fn of(&self, indices: &Range<u64>) -> Result<KernelArgs, KernelError> {
        let records = self.parts.iter().map(|part| part.of(indices, self.first)).collect();
        // SAFETY: `PieceArgs` is sealed: records come from slices that are borrowed as their kind says until all
        // pieces have ended, for which `run`, `call` and the scope wait. Of what is written a piece gets the
        // part of its indices only, and no two pieces have an index in common.
        unsafe { KernelArgs::new(Arc::clone(&self.kernel), records) }
    }
}

/// A sixteenth of what an element does, in whole pages whatever its values are, where it is more than that.
fn default_grain(indices: u64, elements: u64) -> u64 {
    let grain = indices.div_ceil(elements.max(1) * PIECES_OF_ELEMENT).max(1);
    let page = PAGE_SIZE as u64;
    if grain > page { grain.checked_next_multiple_of(page).unwrap_or(grain) } else { grain }
}

fn finish(
    (parallel, value): &(Arc<Parallel>, Arc<AtomicU64>),
    deadline: Option<Instant>,
) -> Option<Result<Shares, Error>> {
    let result = parallel.wait(deadline)?;
    Some(
        result
            .map_err(Error::from)
            .map(|()| Shares { value: value.load(Ordering::Relaxed), cards: parallel.shares() }),
    )
}

impl From<PieceError> for Error {
    fn from(PieceError { card, indices, error }: PieceError) -> Error {
        match error {
            // These are about all of it.
            KernelError::NotRun { .. } | KernelError::Cancelled { .. } => error.into(),
            error => Error::Piece { card, indices, error },
        }
    }
}

impl Pieces<'_> {
    /// Waits for the end of all of them.
    ///
    /// # Errors
    /// As [`ForEach::run`]; [`Error::Kernel`] if they were cancelled, or came after something that failed.
    pub fn wait(self) -> Result<Shares, Error> {
        self.space.runtime().check_process()?;
        self.ended(None).unwrap_or_else(|| unreachable!("no deadline"))
    }

    /// Waits for the end for a while; gives the pieces back if they still run.
    ///
    /// # Errors
    /// The pieces themselves, still running.
    pub fn wait_for(self, limit: Duration) -> Result<Result<Shares, Error>, Self> {
        // A limit beyond the clock is none.
        match self.ended(Instant::now().checked_add(limit)) {
            Some(result) => Ok(result),
            None => Err(self),
        }
    }

    fn ended(&self, deadline: Option<Instant>) -> Option<Result<Shares, Error>> {
        finish(&(Arc::clone(&self.parallel), Arc::clone(&self.value)), deadline)
    }

    /// Whether all have ended.
    pub fn is_done(&self) -> bool {
        self.parallel.end().has_come()
    }

    /// How far they are.
    pub fn progress(&self) -> Progress {
        let (done, pieces) = self.parallel.progress();
        Progress { done, pieces }
    }

    /// What each card has done so far.
    pub fn shares(&self) -> Vec<CardShare> {
        self.parallel.shares()
    }

    /// Begins no more of them, and tells those that run to stop, as [`Job::cancel`](crate::Job::cancel) does.
    pub fn cancel(&self) {
        self.space.runtime().cancel_parallel(&self.parallel);
    }
}

impl Future for Pieces<'_> {
    type Output = Result<Shares, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.space.await_end(self.parallel.end(), context) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => self.ended(None).map_or(Poll::Pending, Poll::Ready),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

impl Drop for Pieces<'_> {
    fn drop(&mut self) {
        self.parallel.end().forget();
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// A kernel to be launched here over a range of indices: see [`Space::for_each`].
    ///
    /// ```
    /// # use farside::{ReadView, Space, Split, Write, WriteView};
    /// # fn main() -> Result<(), farside::Error> {
    /// # let space = Space::builder().build()?;
    /// let mut squares = space.alloc::<u64>(100_000)?;
    /// space.scope(|s| {
    ///     let pieces = s.for_each("squares", 0..100_000).grain(4096).launch(
    ///         Write(&mut squares),
    ///         |k, indices, squares| {
    ///             k.with(squares, |mut squares: WriteView<u64>| {
    ///                 squares.iter_mut().zip(indices).for_each(|(square, i)| *square = i * i);
    ///             })
    ///         },
    ///     )?;
    ///     println!("{} of {} pieces", pieces.progress().done, pieces.progress().pieces);
    ///     pieces.wait()
    /// })?;
    /// assert_eq!(squares[99_999], 99_999 * 99_999);
    /// # Ok(())
    /// # }
    /// ```
    pub fn for_each(&'scope self, name: &str, indices: Range<u64>) -> ScopedForEach<'scope, 'env> {
        ScopedForEach { scope: self, each: ForEach::new(self.space(), name, indices) }
    }

    fn adopt_pieces(&self, (parallel, value): Started) -> Pieces<'scope> {
        self.keep(Arc::clone(&parallel).into());
        Pieces { parallel, value, space: self.space().clone(), scope: PhantomData }
    }
}

impl<'scope, 'env> ScopedForEach<'scope, 'env> {
    /// See [`ForEach::on`].
    pub fn on(mut self, cards: impl IntoIterator<Item = CardId>) -> Self {
        self.each = self.each.on(cards);
        self
    }

    /// See [`ForEach::grain`].
    pub fn grain(mut self, indices: u64) -> Self {
        self.each = self.each.grain(indices);
        self
    }

    /// See [`ForEach::after`].
    pub fn after(mut self, other: &impl Precedes) -> Self {
        self.each = self.each.after(other);
        self
    }

    /// See [`ForEach::time_limit`].
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.each = self.each.time_limit(limit);
        self
    }

    /// Launches it without waiting; what it is lent is lent until the scope ends.
    ///
    /// # Errors
    /// As [`ForEach::run`], as far as it is known before a piece runs.
    pub fn launch<A: PieceArgs + 'scope>(
        self,
        args: A,
        kernel: impl Fn(&mut KernelContext, Range<u64>, A::Spans) -> Result<(), KernelError>
        + Send
        + Sync
        + 'static,
    ) -> Result<Pieces<'scope>, Error> {
        let scope = self.scope;
        Ok(scope.adopt_pieces(self.each.start(&args, kernel)?))
    }

    /// Calls a kernel by its name, as [`ForEach::call`], without waiting for it.
    ///
    /// # Errors
    /// As [`ForEach::call`], as far as it is known before a piece runs.
    pub fn launch_call<A: PieceArgs + 'scope>(self, args: A) -> Result<Pieces<'scope>, Error> {
        let scope = self.scope;
        Ok(scope.adopt_pieces(self.each.start_call(&args)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_grain_is_a_sixteenth_of_an_elements_part_in_whole_pages_if_large() {
        assert_eq!(default_grain(0, 4), 1);
        assert_eq!(default_grain(10, 4), 1);
        assert_eq!(default_grain(6400, 4), 100);
        assert_eq!(default_grain(1 << 20, 2), 1 << 15);
        assert_eq!(default_grain(1_000_000, 2), 32_768);
        assert!(default_grain(u64::MAX, 1) >= u64::MAX / 16);
    }
}
