//! A space as another language holds it.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farside_softcard::kernels::{KernelArg, KernelFunction};
use farside_types::{AgentId, CardId, MemoryId};

use super::file::FileBytes;
use super::job::ForeignJob;
use super::lending::{Kept, LaunchId, Lend, Lendings, Wanted, lent};
use super::memory::{AdoptedBytes, Allocation, Memories};
use crate::{AllocOptions, Error, LiveError, OwnMemory, Space, Stream};

/// A space whose memory is known by its addresses. Where kernels are launched, all memory that they are lent is looked
/// up, is kept until they have ended, and is held by no other kernel in a way that contradicts: two may hold the
/// same bytes if both only read them, if both use them as shared words, or if one comes after the other.
///
/// Dropped, it stops the kernels that run and waits for them: their memory lives until they have ended.
///
/// In a child made by `fork` every call is refused before it takes a lock, which the parent may have held.
#[derive(Debug)]
pub struct ForeignSpace {
    /// None once it is closed.
    space: Mutex<Option<Space>>,
    /// The process that opened it.
    process: u32,
    memories: Mutex<Memories>,
    lendings: Mutex<Lendings>,
}

/// A launch that is asked for. It holds what comes before it by number, and by job.
pub struct ForeignLaunch<'a> {
    /// The kernel's name; with a function, what it is called in errors.
    pub kernel: &'a str,
    /// A function that is in no table, for cards in the program.
    pub function: Option<KernelFunction>,
    /// Its arguments.
    pub records: Vec<KernelArg>,
    /// The card, by its number.
    pub card: usize,
    /// The stream.
    pub stream: Option<Stream>,
    /// How long it may take, waiting included.
    pub limit: Option<Duration>,
    /// What must have ended before it begins.
    pub after: &'a [(LaunchId, Arc<ForeignJob>)],
    /// What lives until it has ended, such as the function's code.
    pub kept: Kept,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ForeignSpace {
    /// Of a space that was opened in this process.
    pub fn new(space: Space) -> ForeignSpace {
        ForeignSpace {
            space: Mutex::new(Some(space)),
            process: std::process::id(),
            memories: Mutex::default(),
            lendings: Mutex::default(),
        }
    }

    /// The space.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`LiveError::WrongProcess`] in a child made by fork.
    pub fn open(&self) -> Result<Space, Error> {
        self.check_process()?;
        lock(&self.space).clone().ok_or(Error::Closed)
    }

    /// A child made by fork is told so before any lock: one may have been held when it was made.
    fn check_process(&self) -> Result<(), Error> {
        if std::process::id() == self.process {
            return Ok(());
        }
        Err(LiveError::WrongProcess { owner: self.process as i32 }.into())
    }

    /// Shared memory, zero. It may be up to three bytes longer.
    ///
    /// # Errors
    /// As [`Space::alloc`]; [`ForeignSpace::open`].
    pub fn alloc(&self, bytes: u64, name: &str) -> Result<Arc<Allocation>, Error> {
        let space = self.open()?;
        self.forget_ended();
        let words = bytes.div_ceil(size_of::<AtomicU32>() as u64);
        // More than there are addresses for: the driver says how many there are.
        let words = usize::try_from(words).unwrap_or(usize::MAX);
        Ok(self.keep(Allocation::Shared(space.alloc_atomic(words, name)?)))
    }

    /// Memory that the program has: shared until it is given back, or nothing holds it. `kept` keeps it.
    ///
    /// # Errors
    /// As [`Space::adopt`]; [`ForeignSpace::open`].
    ///
    /// # Safety
    /// The memory is not freed before that, and not while it cannot be given back.
    pub unsafe fn adopt(
        &self,
        start: u64,
        bytes: u64,
        name: &str,
        kept: Kept,
    ) -> Result<Arc<Allocation>, Error> {
        let space = self.open()?;
        self.forget_ended();
        let bytes = start..start.saturating_add(bytes);
        // SAFETY: the caller's.
        let adopted = unsafe { AdoptedBytes::new(space, bytes, name, kept) }?;
        Ok(self.keep(Allocation::Adopted(adopted)))
    }

    /// A file, shared until it is closed or nothing holds it, with so much of the host's memory at a time.
    ///
    /// # Errors
    /// As [`Space::map_file`]; [`ForeignSpace::open`].
    pub fn map_file(&self, path: &Path, memory: u64) -> Result<Arc<Allocation>, Error> {
        let space = self.open()?;
        self.forget_ended();
        Ok(self.keep(Allocation::File(FileBytes::new(&space, path, memory)?)))
    }

    /// A card's own memory, zero.
    ///
    /// # Errors
    /// As [`Space::alloc_on`]; [`ForeignSpace::open`].
    pub fn alloc_on(
        &self,
        card: usize,
        bytes: u64,
        options: impl Into<AllocOptions>,
    ) -> Result<Arc<Allocation>, Error> {
        let space = self.open()?;
        let card = space.card(card)?;
        self.forget_ended();
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        let own = space.alloc_on::<u8>(card, len, options)?;
        own.host()?;
        Ok(self.keep(Allocation::Own(own)))
    }

    /// The same with these bytes, which no kernel writes.
    ///
    /// # Errors
    /// As [`ForeignSpace::alloc_on`].
    pub fn copy_on(
        &self,
        card: usize,
        values: &[u8],
        options: impl Into<AllocOptions>,
    ) -> Result<Arc<Allocation>, Error> {
        let space = self.open()?;
        let card = space.card(card)?;
        self.forget_ended();
        let mut own = space.alloc_on::<u8>(card, values.len(), options.into().read_only())?;
        own.fill_from(values)?;
        own.host()?;
        Ok(self.keep(Allocation::Own(own)))
    }

    /// Notes an allocation of this space, which kernels may be lent from now on.
    pub fn keep(&self, allocation: Allocation) -> Arc<Allocation> {
        let allocation = Arc::new(allocation);
        lock(&self.memories).add(&allocation);
        allocation
    }

    /// A card's own memories.
    ///
    /// # Errors
    /// As [`Space::own_memories`]; [`ForeignSpace::open`].
    pub fn own_memories(&self, card: usize) -> Result<Vec<OwnMemory>, Error> {
        let space = self.open()?;
        let card = space.card(card)?;
        self.forget_ended();
        space.own_memories(card)
    }

    /// Launches a kernel and does not wait for it.
    ///
    /// # Errors
    /// As [`Launch::call`](crate::Launch::call) as far as it is known before the kernel runs; [`Error::NoMemory`] for memory
    /// that is not of this space, [`Error::Lent`] for what another kernel holds.
    ///
    /// # Safety
    /// As long as the kernel runs, the program itself uses what it is lent as
    /// [`Launch::launch_records`](crate::Launch::launch_records) says. That no other kernel does not is seen to here, and
    /// that the memory lives on.
    pub unsafe fn launch(
        &self,
        launch: ForeignLaunch<'_>,
    ) -> Result<(LaunchId, Arc<ForeignJob>), Error> {
        let space = self.open()?;
        self.forget_ended();
        let ForeignLaunch { kernel, function, records, card, stream, limit, after, kept } = launch;
        let memory: Result<Vec<_>, _> =
            lent(&records).map(|(bytes, _)| self.memory_at(&bytes)).collect();
        let memory = memory?;
        let mut call = space.kernel(kernel).on(space.card(card)?);
        if let Some(stream) = stream {
            call = call.stream(stream);
        }
        if let Some(limit) = limit {
            call = call.time_limit(limit);
        }
        for (_, job) in after {
            call = call.after(&**job);
        }
        let after: Vec<_> = after.iter().map(|&(id, _)| id).collect();
        let stream = stream.map(Stream::number);
        let wanted = Wanted { kernel, records: &records, after: &after, stream };
        // Held until the launch is noted: no other is let in between.
        let mut lendings = lock(&self.lendings);
        let before = lendings.before(&wanted);
        lendings.check(&wanted, &before)?;
        let passed = records.clone();
        // SAFETY: all memory of the records is in `memory`, which `lendings` keeps until the job has ended, and no other
        // kernel holds it in a way that contradicts; the rest is the caller's.
        let job = unsafe {
            match function {
                Some(function) => call.launch_function(function, passed),
                None => call.launch_records(passed),
            }
        }?;
        let job = Arc::new(job);
        let id = lendings.add(&wanted, before, Arc::clone(&job), memory, kept);
        Ok((id, job))
    }

    /// The kernels that have not ended.
    ///
    /// # Errors
    /// [`LiveError::WrongProcess`]
    pub fn jobs(&self) -> Result<Vec<Arc<ForeignJob>>, Error> {
        self.check_process()?;
        Ok(lock(&self.lendings).jobs())
    }

    /// Whether a kernel that has not ended holds some of an allocation.
    ///
    /// # Errors
    /// [`Error::Lent`] names it.
    pub fn check_unused(&self, allocation: &Allocation, for_what: &str) -> Result<(), Error> {
        self.check_process()?;
        self.forget_ended();
        let bytes = allocation.start()..allocation.end();
        match lock(&self.lendings).holder(&bytes) {
            None => Ok(()),
            Some(holder) => {
                Err(Error::Lent { kernel: for_what.to_owned(), bytes, holder: holder.to_owned() })
            }
        }
    }

    /// Closes it; memory that the program still holds lives on, and kernels that run go on.
    ///
    /// # Errors
    /// [`LiveError::WrongProcess`]
    pub fn close(&self) -> Result<(), Error> {
        self.check_process()?;
        let space = lock(&self.space).take();
        self.forget_ended();
        drop(space);
        Ok(())
    }

    /// Does something with the words that have these bytes.
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::StaysOnCard`], and those of what is done.
    pub fn with<T>(
        &self,
        bytes: Range<u64>,
        act: impl FnOnce(&Space, &[AtomicU32]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let space = self.open()?;
        let allocation = self.memory_at(&bytes)?;
        act(&space, allocation.words(&bytes)?)
    }

    /// The memory of a number: a card's, or the host's for `None`.
    ///
    /// # Errors
    /// [`LiveError::NoSuchCard`]; [`ForeignSpace::open`].
    pub fn memory_of(&self, card: Option<usize>) -> Result<MemoryId, Error> {
        Ok(self.card_of(card)?.map_or(MemoryId::HOST, MemoryId::from))
    }

    /// The agent of a number: a card, or the host's for `None`.
    ///
    /// # Errors
    /// [`LiveError::NoSuchCard`]; [`ForeignSpace::open`].
    pub fn agent_of(&self, card: Option<usize>) -> Result<AgentId, Error> {
        Ok(self.card_of(card)?.map_or(AgentId::CPU, AgentId::from))
    }

    fn card_of(&self, card: Option<usize>) -> Result<Option<CardId>, Error> {
        let space = self.open()?;
        card.map(|index| space.card(index)).transpose()
    }

    /// The allocation that has all of these bytes.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; [`LiveError::WrongProcess`].
    pub fn memory_at(&self, bytes: &Range<u64>) -> Result<Arc<Allocation>, Error> {
        self.check_process()?;
        let owner = lock(&self.memories).of(bytes);
        owner.ok_or_else(|| Error::NoMemory { bytes: bytes.clone() })
    }

    /// Lets go of what kernels that have ended were lent: outside of the lock, because memory may be freed by it.
    fn forget_ended(&self) {
        let ended: Vec<Lend> = lock(&self.lendings).ended();
        drop(ended);
    }
}

impl Drop for ForeignSpace {
    /// Stops the kernels that still run: they have memory that nothing else may hold any more.
    fn drop(&mut self) {
        let Ok(jobs) = self.jobs() else { return };
        jobs.iter().for_each(|job| job.cancel());
        for job in jobs {
            let _ = job.wait(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use farside_softcard::kernels::ArgKind;

    use super::*;
    use crate::{Backing, KernelContext, KernelError, Kernels};

    /// Goes on until it is told to stop.
    fn spin(kernel: &mut KernelContext, _: &crate::KernelArgs) -> Result<u64, KernelError> {
        loop {
            kernel.checkpoint()?;
            std::thread::yield_now();
        }
    }

    fn space() -> ForeignSpace {
        let kernels = Kernels::builtin().with("spin", spin).unwrap();
        let builder = Space::builder().cards(2).processing_elements(2).address_space(16 << 20);
        let builder = builder.card_window(1 << 20);
        ForeignSpace::new(builder.kernels(kernels).build().unwrap())
    }

    fn memory(kind: ArgKind, start: u64, bytes: u64) -> KernelArg {
        KernelArg { kind, element: 8, word: start, bytes }
    }

    type Launched = Result<(LaunchId, Arc<ForeignJob>), Error>;

    /// Launches a kernel on card 1 with that memory, after those jobs.
    fn launch(
        space: &ForeignSpace,
        kernel: &str,
        memory: KernelArg,
        after: &[(LaunchId, Arc<ForeignJob>)],
    ) -> Launched {
        let launch = ForeignLaunch {
            kernel,
            function: None,
            records: vec![memory],
            card: 1,
            stream: None,
            // Against a test that fails while a kernel spins.
            limit: Some(Duration::from_secs(20)),
            after,
            kept: None,
        };
        // SAFETY: the tests leave alone what is lent.
        unsafe { space.launch(launch) }
    }

    fn stop(job: &ForeignJob) {
        job.cancel();
        assert!(job.wait(None).unwrap().is_err());
    }

    #[test]
    fn memory_that_is_not_of_the_space_is_lent_to_nobody() {
        let (space, other) = (space(), space());
        let (here, there) = (space.alloc(100, "here").unwrap(), other.alloc(100, "").unwrap());
        let freed = space.alloc(100, "freed").unwrap();
        let (start, after) = (freed.start(), here.start() + 104);
        drop(freed);
        let own = [0u64; 4];
        let mine = own.as_ptr() as u64;
        for (start, bytes) in
            [(there.start(), 8), (start, 8), (after, 8), (after - 8, 16), (0, 8), (mine, 8)]
        {
            let refused = launch(&space, "farside.sum", memory(ArgKind::Read, start, bytes), &[]);
            assert!(matches!(refused, Err(Error::NoMemory { .. })), "{start:#x}: {refused:?}");
        }
        let end = memory(ArgKind::Read, u64::MAX - 7, u64::MAX);
        assert!(matches!(launch(&space, "farside.sum", end, &[]), Err(Error::NoMemory { .. })));
        launch(&space, "farside.sum", memory(ArgKind::Read, here.start(), 96), &[]).unwrap();
    }

    #[test]
    fn what_a_kernel_holds_is_lent_to_no_other_and_not_freed() {
        let space = space();
        let shared = space.alloc(8192, "").unwrap();
        let held = memory(ArgKind::Write, shared.start() + 4096, 8);
        let (id, job) = launch(&space, "spin", held, &[]).unwrap();
        let beside = memory(ArgKind::Read, shared.start(), 8);
        let over = memory(ArgKind::Read, shared.start(), 8192);
        launch(&space, "farside.sum", beside, &[]).unwrap().1.wait(None).unwrap().unwrap();
        let refused = launch(&space, "farside.sum", over, &[]).unwrap_err().to_string();
        assert!(refused.contains("lent to kernel `spin`"), "{refused}");
        let refused = space.check_unused(&shared, "it was not freed").unwrap_err().to_string();
        assert!(refused.starts_with("it was not freed") && refused.contains("spin"), "{refused}");
        // What comes after it is let in, and does not run when it fails.
        let later = launch(&space, "farside.sum", over, &[(id, Arc::clone(&job))]).unwrap().1;
        stop(&job);
        assert!(later.wait(None).unwrap().is_err());
        launch(&space, "farside.sum", over, &[]).unwrap().1.wait(None).unwrap().unwrap();
        space.check_unused(&shared, "").unwrap();
    }

    #[test]
    fn memory_of_the_program_is_lent_until_it_is_given_back() {
        let space = space();
        let mut own = vec![1u64; 3000];
        let start = own.as_mut_ptr() as u64 + 8;
        // SAFETY: it is given back before it is freed.
        let adopted = unsafe { space.adopt(start, 2998 * 8, "mine", None) }.unwrap();
        let wanted = memory(ArgKind::Write, start, 2998 * 8);
        launch(&space, "farside.increment", wanted, &[]).unwrap().1.wait(None).unwrap().unwrap();
        let moved =
            space.with(start..start + 20_000, |space, words| space.migrate(words, space.card(0)?));
        assert!(moved.unwrap() > 0);
        let beyond = memory(ArgKind::Write, start, 2999 * 8);
        assert!(matches!(launch(&space, "farside.sum", beyond, &[]), Err(Error::NoMemory { .. })));
        space.check_unused(&adopted, "").unwrap();
        adopted.adopted().unwrap().give_back().unwrap();
        adopted.adopted().unwrap().give_back().unwrap();
        assert!(own[1..2999].iter().all(|&word| word == 2) && own[0] == 1 && own[2999] == 1);
        let refused = launch(&space, "farside.sum", memory(ArgKind::Read, start, 8), &[]);
        drop(adopted);
        assert!(refused.is_err() || refused.unwrap().1.wait(None).unwrap().is_err());
    }

    #[test]
    fn a_job_of_another_space_is_none_of_this_one() {
        let (space, other) = (space(), space());
        let (here, there) = (space.alloc(8, "").unwrap(), other.alloc(8, "").unwrap());
        let held = launch(&space, "spin", memory(ArgKind::Write, here.start(), 8), &[]).unwrap();
        let foreign =
            launch(&other, "spin", memory(ArgKind::Write, there.start(), 8), &[]).unwrap();
        let wanted = memory(ArgKind::Read, here.start(), 8);
        let refused = launch(&space, "farside.sum", wanted, std::slice::from_ref(&foreign));
        assert!(matches!(refused, Err(Error::Lent { .. })), "{refused:?}");
        stop(&held.1);
        stop(&foreign.1);
    }

    #[test]
    fn a_closed_space_does_nothing_more_and_its_memory_lives_on() {
        let space = space();
        let (shared, own) =
            (space.alloc(8, "").unwrap(), space.alloc_on(0, 4096, Backing::Eager).unwrap());
        let bytes = own.start()..own.start() + 8;
        let moved = space.with(bytes, |space, words| space.trim().map(|()| words.len()));
        assert!(matches!(moved, Err(Error::StaysOnCard { .. })), "{moved:?}");
        space.close().unwrap();
        space.close().unwrap();
        assert!(matches!(space.alloc(8, ""), Err(Error::Closed)));
        let wanted = memory(ArgKind::Read, shared.start(), 8);
        assert!(matches!(launch(&space, "farside.sum", wanted, &[]), Err(Error::Closed)));
        assert!(own.own().unwrap().host().unwrap().iter().all(|&byte| byte == 0));
    }
}
