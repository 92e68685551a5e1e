//! Launching kernels: blocking, or with a handle inside a scope.

use std::future::Future;
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use farside_live::{LiveError, Parallel, Predecessor};
use farside_softcard::kernels::KernelFunction;
use farside_softcard::{Granted, KernelArgs, KernelContext, KernelError};
use farside_types::{CardId, Span, StreamId, VirtAddr};

use crate::{Args, CallArgs, Error, Precedes, Space};

/// Launches of one stream run in the order in which they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(pub(crate) StreamId);

impl Stream {
    /// Its number, for bindings of other languages.
    pub fn number(self) -> u32 {
        self.0.0
    }

    /// The stream of a number that [`Stream::number`] gave.
    pub fn of_number(number: u32) -> Stream {
        Stream(StreamId(number))
    }
}

/// A kernel that is about to be launched.
#[derive(Debug)]
#[must_use = "nothing runs before `run` or `launch`"]
pub struct Launch<'a> {
    pub(crate) space: &'a Space,
    pub(crate) name: Arc<str>,
    card: CardId,
    stream: Option<Stream>,
    limit: Option<Duration>,
    pub(crate) after: Vec<Predecessor>,
}

/// A job, and where its kernel leaves its value.
pub(crate) type Started<T> = (Arc<farside_softcard::Job>, Arc<Mutex<Option<T>>>);

/// A kernel that was launched with a scope. It can be waited for, looked at, and awaited as a future. Dropped, it
/// goes on, and the scope waits for it.
#[derive(Debug)]
pub struct Job<'scope, T> {
    pub(crate) job: Arc<farside_softcard::Job>,
    space: Space,
    value: Arc<Mutex<Option<T>>>,
    scope: PhantomData<&'scope ()>,
}

/// Where kernels that borrow buffers are launched: see [`Space::scope`].
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    space: &'env Space,
    jobs: Mutex<Vec<Kept>>,
    /// Invariant in both, as `std::thread::Scope` is. Were it not so in `'scope`, a scope would pass for
    /// a shorter one, and what is lent would be free again before its kernel has ended.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// What a scope waits for.
#[derive(Debug)]
pub(crate) enum Kept {
    Job(Arc<farside_softcard::Job>),
    Pieces(Arc<Parallel>),
}

impl Kept {
    /// Whether it has ended by `deadline`. Lets go of what its kernel captured, here.
    fn has_ended(&self, deadline: Option<Instant>) -> bool {
        match self {
            Kept::Job(job) => job.wait(deadline).is_some(),
            Kept::Pieces(pieces) => pieces.wait(deadline).is_some(),
        }
    }
}

impl From<Arc<Parallel>> for Kept {
    fn from(pieces: Arc<Parallel>) -> Kept {
        Kept::Pieces(pieces)
    }
}

/// A launch inside a scope.
#[derive(Debug)]
#[must_use = "nothing runs before `launch`"]
pub struct ScopedLaunch<'scope, 'env: 'scope> {
    scope: &'scope Scope<'scope, 'env>,
    launch: Launch<'env>,
}

impl<'a> Launch<'a> {
    pub(crate) fn new(space: &'a Space, name: &str) -> Launch<'a> {
        Launch {
            space,
            name: name.into(),
            card: CardId(0),
            stream: None,
            limit: None,
            after: Vec::new(),
        }
    }

    /// Where it runs; card 0 unless said otherwise.
    pub fn on(mut self, card: CardId) -> Self {
        self.card = card;
        self
    }

    /// In the order of which stream. Without one it waits for no other launch.
    pub fn stream(mut self, stream: Stream) -> Self {
        self.stream = Some(stream);
        self
    }

    /// How long it may take, waiting included.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Does not start before `other` has ended, on whatever card that runs; see [`Precedes`]. Several are all
    /// waited for. What comes behind it in its stream waits as well.
    pub fn after(mut self, other: &impl Precedes) -> Self {
        self.after.push(other.predecessor());
        self
    }

    /// Runs the kernel and waits for its end.
    ///
    /// # Errors
    /// [`Error::Kernel`] if it fails, [`LiveError::NotShared`] if it is lent memory from elsewhere.
    pub fn run<A: Args, T: Send + 'static>(
        self,
        args: A,
        kernel: impl FnOnce(&mut KernelContext, A::Spans) -> Result<T, KernelError> + Send + 'static,
    ) -> Result<T, Error> {
        let (job, value) = self.start(args, kernel)?;
        finish(&job, &value, None).unwrap_or_else(|| unreachable!("no deadline"))
    }

    /// Calls the kernel of that name (see [`Space::kernels`]) and waits for its value.
    ///
    /// ```
    /// # use farside::{Read, Space, Value, Write};
    /// # fn main() -> Result<(), farside::Error> {
    /// # let space = Space::builder().build()?;
    /// let (mut x, mut y) = (space.alloc::<f32>(5000)?, space.alloc::<f32>(5000)?);
    /// x.fill(1.5);
    /// y.fill(1.0);
    /// let card = space.card(0)?;
    /// let args = (Value(2.0f32), Read(&x), Write(&mut y));
    /// assert_eq!(space.kernel("farside.saxpy").on(card).call(args)?, 5000);
    /// assert_eq!(y[4999], 4.0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Kernels`] if there is no such kernel, [`Error::Kernel`] if it fails or takes other
    /// arguments, [`LiveError::NotShared`] if it is lent memory from elsewhere.
    pub fn call<A: CallArgs>(self, args: A) -> Result<u64, Error> {
        let (job, value) = self.start_call(&args)?;
        finish(&job, &value, None).unwrap_or_else(|| unreachable!("no deadline"))
    }

    /// Starts a kernel of the table; of the card's own, if the card is not in this program. What
    /// `args` borrow has to stay borrowed until it has ended.
    fn start_call<A: CallArgs>(self, args: &A) -> Result<Started<u64>, Error> {
        let mut records = Vec::new();
        args.encode(&mut records);
        // SAFETY: `CallArgs` is sealed: records come from slices that are borrowed as their kind
        // says, until the job has ended: `call` and the scope wait for that.
        let args = unsafe { KernelArgs::new(Arc::clone(&self.name), records) }?;
        self.start_args(args)
    }

    /// Starts the kernel of its name with arguments whose maker answers for what they lend.
    pub(crate) fn start_args(self, args: KernelArgs) -> Result<Started<u64>, Error> {
        if self.space.runtime().is_far(self.card) {
            return self.start_far(&args);
        }
        let kernel = self.space.kernels().find(&self.name)?.1.clone();
        self.start_job(args.grants(), move |context| kernel.run(context, &args))
    }

    /// Starts a function with such arguments.
    pub(crate) fn start_function(
        self,
        function: KernelFunction,
        args: KernelArgs,
    ) -> Result<Started<u64>, Error> {
        self.start_job(args.grants(), move |context| function(context, &args))
    }

    fn start_far(self, args: &KernelArgs) -> Result<Started<u64>, Error> {
        let runtime = self.space.runtime();
        self.check(&args.grants(), &[self.card])?;
        let value = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&value);
        let returned = Box::new(move |value| {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        });
        let job = runtime.call(self.card, args, self.limit(), returned);
        runtime.launch(Arc::clone(&job), self.stream_id(), &self.after)?;
        Ok((job, value))
    }

    pub(crate) fn limit(&self) -> Option<Span> {
        let nanos = |limit: Duration| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.limit.map(|limit| Span::from_nanos(nanos(limit)))
    }

    fn stream_id(&self) -> StreamId {
        let fresh = || StreamId(self.space.runtime().next_stream());
        self.stream.map_or_else(fresh, |stream| stream.0)
    }

    fn start<A: Args, T: Send + 'static>(
        self,
        args: A,
        kernel: impl FnOnce(&mut KernelContext, A::Spans) -> Result<T, KernelError> + Send + 'static,
    ) -> Result<Started<T>, Error> {
        let mut grants = Vec::new();
        args.grants(&mut grants);
        grants.retain(|grant| grant.bytes() > 0);
        let spans = args.spans();
        self.start_job(grants, move |context| kernel(context, spans))
    }

    fn start_job<T: Send + 'static>(
        self,
        grants: Vec<Granted>,
        kernel: impl FnOnce(&mut KernelContext) -> Result<T, KernelError> + Send + 'static,
    ) -> Result<Started<T>, Error> {
        let runtime = self.space.runtime();
        let card = self.space.card(self.card.0.into())?;
        self.check(&grants, &[card])?;
        let value = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&value);
        let body = Box::new(move |context: &mut KernelContext| {
            let result = kernel(context)?;
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            Ok(())
        });
        let (limit, stream) = (self.limit(), self.stream_id());
        let job = runtime.closure(card, self.name, grants, limit, body);
        runtime.launch(Arc::clone(&job), stream, &self.after)?;
        Ok((job, value))
    }

    /// Whether all that is lent is shared memory, or one that these cards reach, and no byte of it is lent in two ways. Rust sees to
    /// the second, unless the program has made its slices from raw pointers.
    pub(crate) fn check(&self, grants: &[Granted], cards: &[CardId]) -> Result<(), LiveError> {
        let runtime = self.space.runtime();
        let outside = |grant: &&Granted| !runtime.contains(VirtAddr(grant.start()), grant.bytes());
        if let Some(grant) = grants.iter().find(outside) {
            return Err(LiveError::NotShared { addr: VirtAddr(grant.start()) });
        }
        cards.iter().try_for_each(|&card| runtime.check_reach(card, grants))?;
        match contradiction(grants) {
            Some(addr) => Err(LiveError::LentTwice { kernel: Arc::clone(&self.name), addr }),
            None => Ok(()),
        }
    }
}

/// Jobs that a scope keeps at least before it looks which of them have ended.
const JOBS_KEPT: usize = 32;

/// Where memory begins that is lent in two ways that cannot both be true.
fn contradiction(grants: &[Granted]) -> Option<VirtAddr> {
    let mut sorted: Vec<&Granted> = grants.iter().collect();
    sorted.sort_by_key(|grant| grant.start());
    sorted.iter().enumerate().find_map(|(index, grant)| {
        let end = grant.start() + grant.bytes();
        let mut behind = sorted[index + 1..].iter().take_while(|other| other.start() < end);
        behind.find(|other| grant.contradicts(other)).map(|other| VirtAddr(other.start()))
    })
}

fn finish<T>(
    job: &farside_softcard::Job,
    value: &Mutex<Option<T>>,
    deadline: Option<Instant>,
) -> Option<Result<T, Error>> {
    let result = job.wait(deadline)?;
    Some(result.map_err(Error::from).map(|()| {
        let value = value.lock().unwrap_or_else(PoisonError::into_inner).take();
        value.expect("a kernel that ended well leaves its value, which is given once")
    }))
}

impl<T> Job<'_, T> {
    /// Waits for the end and gives what the kernel returned.
    ///
    /// # Errors
    /// [`Error::Kernel`] if it failed.
    pub fn wait(self) -> Result<T, Error> {
        self.space.runtime().check_process()?;
        finish(&self.job, &self.value, None).unwrap_or_else(|| unreachable!("no deadline"))
    }

    /// Waits for the end for a while; gives the job back if it still runs.
    ///
    /// # Errors
    /// The job itself, still running.
    pub fn wait_for(self, limit: Duration) -> Result<Result<T, Error>, Self> {
        // A limit beyond the clock is none.
        match finish(&self.job, &self.value, Instant::now().checked_add(limit)) {
            Some(result) => Ok(result),
            None => Err(self),
        }
    }

    /// Whether it has ended.
    pub fn is_done(&self) -> bool {
        self.job.wait(Some(Instant::now())).is_some()
    }

    /// Tells it to stop. It fails at its next access to memory or
    /// [`KernelContext::checkpoint`]; one that does neither is given up after a grace.
    pub fn cancel(&self) {
        self.space.runtime().cancel(&self.job);
    }
}

impl<T> Future for Job<'_, T> {
    type Output = Result<T, Error>;

    /// # Panics
    /// If it is asked again when it has given the value.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.space.await_end(self.job.end(), context) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => {
                finish(&self.job, &self.value, None).map_or(Poll::Pending, Poll::Ready)
            }
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

impl<T> Drop for Job<'_, T> {
    fn drop(&mut self) {
        self.job.end().forget();
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    pub(crate) fn enter<T>(
        space: &'env Space,
        body: impl for<'a> FnOnce(&'a Scope<'a, 'env>) -> T,
    ) -> T {
        let jobs = Mutex::new(Vec::new());
        let scope = Scope { space, jobs, scope: PhantomData, env: PhantomData };
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| body(&scope)));
        // What was lent is lent until the last kernel has ended, whatever the body did. In a child
        // made by fork none of them runs.
        let here = space.runtime().check_process().is_ok();
        let jobs = std::mem::take(&mut *scope.jobs.lock().unwrap_or_else(PoisonError::into_inner));
        for job in jobs.iter().filter(|_| here) {
            job.has_ended(None);
        }
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// A kernel to be launched here.
    pub fn kernel(&'scope self, name: &str) -> ScopedLaunch<'scope, 'env> {
        ScopedLaunch { scope: self, launch: Launch::new(self.space, name) }
    }

    /// Its space.
    pub fn space(&self) -> &'env Space {
        self.space
    }

    /// Takes a job in: the scope does not end before it.
    fn adopt<T>(&self, (job, value): Started<T>) -> Job<'scope, T> {
        self.keep(Kept::Job(Arc::clone(&job)));
        Job { job, space: self.space.clone(), value, scope: PhantomData }
    }

    /// Does not end before this.
    pub(crate) fn keep(&self, kept: Kept) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.len() == jobs.capacity() {
            // Those that have ended need no waiting for. `wait` lets go of what they captured, here.
            let now = Some(Instant::now());
            jobs.retain(|job| !job.has_ended(now));
            let room = jobs.len() + JOBS_KEPT;
            jobs.reserve(room);
        }
        jobs.push(kept);
    }
}

impl<'scope, 'env> ScopedLaunch<'scope, 'env> {
    /// See [`Launch::on`].
    pub fn on(mut self, card: CardId) -> Self {
        self.launch = self.launch.on(card);
        self
    }

    /// See [`Launch::stream`].
    pub fn stream(mut self, stream: Stream) -> Self {
        self.launch = self.launch.stream(stream);
        self
    }

    /// See [`Launch::time_limit`].
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.launch = self.launch.time_limit(limit);
        self
    }

    /// Does not start before `other` has ended, on whatever card that runs; see [`Precedes`].
    ///
    /// ```
    /// # use std::sync::atomic::AtomicU64;
    /// # use farside::{Shared, Space};
    /// # fn main() -> Result<(), farside::Error> {
    /// # let space = Space::builder().build()?;
    /// # let (a, b) = (space.card(0)?, space.card(1)?);
    /// let word = space.alloc_atomic::<AtomicU64>(1, "word")?;
    /// let value = space.scope(|s| {
    ///     let to_card = s.space().migrate_async(&word, a).start()?;
    ///     let first = s.kernel("first").on(a).after(&to_card);
    ///     let first = first.launch(Shared(&word), |k, word| k.store(word.ptr(0), 20))?;
    ///     let second = s.kernel("second").on(b).after(&first);
    ///     let second = second.launch(Shared(&word), |k, word| Ok(2 * k.load(word.ptr(0))? + 2))?;
    ///     second.wait()
    /// })?;
    /// assert_eq!(value, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn after(mut self, other: &impl Precedes) -> Self {
        self.launch = self.launch.after(other);
        self
    }

    /// Launches the kernel; what it is lent is lent until the scope ends.
    ///
    /// # Errors
    /// [`LiveError::NotShared`] if it is lent memory from elsewhere.
    pub fn launch<A: Args + 'scope, T: Send + 'static>(
        self,
        args: A,
        kernel: impl FnOnce(&mut KernelContext, A::Spans) -> Result<T, KernelError> + Send + 'static,
    ) -> Result<Job<'scope, T>, Error> {
        let scope = self.scope;
        Ok(scope.adopt(self.launch.start(args, kernel)?))
    }

    /// Calls a kernel by its name, as [`Launch::call`], without waiting for it.
    ///
    /// # Errors
    /// As [`Launch::call`], as far as it is known before the kernel runs.
    pub fn launch_call<A: CallArgs + 'scope>(self, args: A) -> Result<Job<'scope, u64>, Error> {
        let scope = self.scope;
        Ok(scope.adopt(self.launch.start_call(&args)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_have_ended_do_not_stay_in_their_scope() {
        let space = Space::builder().cards(1).address_space(4 << 20).build().unwrap();
        space.scope(|s| {
            for _ in 0..1000 {
                let job = s.kernel("nothing").launch((), |_, ()| Ok(())).unwrap();
                job.wait().unwrap();
            }
            let kept = s.jobs.lock().unwrap().len();
            assert!(kept <= 2 * JOBS_KEPT, "{kept} jobs are kept");
        });
    }

    #[test]
    fn a_scope_still_waits_for_jobs_of_which_nobody_waits() {
        let space = Space::builder().cards(1).address_space(4 << 20).build().unwrap();
        let ended = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        space.scope(|s| {
            for _ in 0..200 {
                let ended = Arc::clone(&ended);
                let count = move |_: &mut KernelContext, ()| {
                    ended.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    Ok(())
                };
                drop(s.kernel("count").launch((), count).unwrap());
            }
        });
        assert_eq!(ended.load(std::sync::atomic::Ordering::SeqCst), 200);
    }
}
