//! One life of a function: a card's model, its front, its memory and its client's windows.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use farside_card::interface::register::counter;
use farside_card::interface::{AllocRequest, KernelArg, Status};
use farside_card::{Action, BusError, Card, Function, FunctionConfig, Location, TransferFailed};
use farside_types::{Asid, CardId, CommandId, FrameNo, JobId, PAGE_SIZE, PeId, VirtAddr};
use farside_vfio_user::unix::Interrupts;
use farside_vfio_user::{DmaMap, Errno};

use super::bus::ClientBus;
use super::channel::Report;
use super::copier::{Copier, Order};
use super::doorbell::Doorbell;
use super::job_end::job_end;
use super::own::Own;
use super::staging::{NotStaged, Staging, staged_max};
use super::windows::{BUS_BYTES, Windows};
use super::worker::SPARE_THREADS_MAX;
use super::{CardConfig, ServeError};
use crate::card::{Embedder, SoftCard};
use crate::error::KernelError;
use crate::job::{Job, Stop};
use crate::kernels::{KernelArgs, KernelId, Kernels};
use crate::own_memory::OwnMemory;
use crate::window::WindowError;
use farside_linux::card_memory::CardMemory;
use farside_linux::lock::lock;
use farside_linux::wait::{DEFAULT_SPIN, SpinPermit};

/// The number of a function's card in its own eyes: its frames are the only ones it knows.
pub(super) const OWN: CardId = CardId(0);

/// How often it is looked how much memory there is in the client's files, while something may make
/// more of it.
const QUOTA_PERIOD: Duration = Duration::from_millis(100);

/// Steps in which commands are taken before the function's thread looks whether its client is there.
const STEPS_MAX: u32 = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct LeasedFunction {
    weak: Weak<LeasedFunction>,
    front: Mutex<Function>,
    pub(super) card: Arc<SoftCard>,
    pub(super) memory: CardMemory,
    pub(super) windows: Windows,
    /// Of these, those that are reached by messages.
    pub(super) staging: Staging,
    pub(super) interrupts: Mutex<Interrupts>,
    doorbell: Doorbell,
    /// Wakes the function's own thread.
    wake: OwnedFd,
    copier: Copier,
    pub(super) own: Own,
    kernels: Arc<Kernels>,
    pes: u16,
    started: AtomicBool,
    grace: Duration,
    /// Jobs that were told to stop, and until when they have time for it.
    stopping: Mutex<Vec<(Instant, Arc<Job>)>>,
    jobs: Mutex<Vec<Arc<Job>>>,
    /// Jobs that were given up and still hold memory.
    holders: Mutex<Vec<Which>>,
    /// A reset waits for those.
    reset_waits: AtomicBool,
    /// The client is gone.
    ending: AtomicBool,
    /// Commands were left in their ring for the function's thread.
    has_more: AtomicBool,
    /// Most bytes of memory in the client's files.
    shared_max: u64,
    /// Something works that may make more of it, or did at the last look.
    works: AtomicBool,
    /// When that is looked at again. Only the function's thread looks.
    next_look: Mutex<Option<Instant>>,
    /// Why the lease has to end, if it has.
    over_quota: OnceLock<&'static str>,
}

impl LeasedFunction {
    /// A fresh function with zeroed memory.
    pub(super) fn new(
        config: &CardConfig,
        function: u32,
        generation: u64,
        memory: CardMemory,
        wake: OwnedFd,
        interrupts: Interrupts,
    ) -> Result<Arc<LeasedFunction>, ServeError> {
        let names: Vec<String> = config.kernels.names().map(str::to_owned).collect();
        let own = Own::new(config);
        let front = own.give_window(Function::new(FunctionConfig {
            card: config.card,
            function,
            generation,
            asids: config.asids,
            jobs_max: config.jobs_max,
            kernels: names.into(),
            capabilities: farside_card::interface::register::CAP_DMA_BUS_TO_BUS,
        }));
        let card = SoftCard::new(OWN, config.all_frames(), config.pes, config.geometry)?;
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let doorbell = Doorbell::new(rustix::event::eventfd(0, flags)?)?;
        let windows = Windows::new()?;
        Ok(Arc::new_cyclic(|weak| LeasedFunction {
            weak: weak.clone(),
            front: Mutex::new(front),
            card: Arc::new(card),
            memory,
            windows,
            staging: Staging::new(staged_max(config.limits.own_bytes)),
            interrupts: Mutex::new(interrupts),
            doorbell,
            wake,
            copier: Copier::new(weak.clone()),
            own,
            kernels: Arc::clone(&config.kernels),
            pes: config.pes,
            started: AtomicBool::new(false),
            grace: config.grace,
            stopping: Mutex::default(),
            jobs: Mutex::default(),
            holders: Mutex::default(),
            reset_waits: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            has_more: AtomicBool::new(false),
            shared_max: config.limits.shared_bytes,
            works: AtomicBool::new(false),
            next_look: Mutex::new(None),
            over_quota: OnceLock::new(),
        }))
    }

    /// What the client rings.
    pub(super) fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }

    /// Gives front and card to `body`, then does what the front wants done. Locks: the front, then
    /// the card's model. What is to be done is done under the front's lock, so that a stop never
    /// overtakes the start of its job.
    pub(super) fn with<T>(
        &self,
        body: impl FnOnce(&mut Function, &mut Card, &mut ClientBus<'_>) -> T,
    ) -> T {
        let (value, answered) = self.with_front(body);
        if answered {
            self.doorbell.nudge();
        }
        value
    }

    /// As [`LeasedFunction::with`]; also gives whether a processing element was answered. One that listens
    /// to the doorbell has to be told.
    fn with_front<T>(
        &self,
        body: impl FnOnce(&mut Function, &mut Card, &mut ClientBus<'_>) -> T,
    ) -> (T, bool) {
        let mut front = lock(&self.front);
        let mut bus = ClientBus { leased: self };
        let value = {
            let mut card = lock(&self.card.model);
            // No access begins or ends under this lock: those that have ended are given back before
            // anything is told of them.
            self.settle();
            body(&mut front, &mut card, &mut bus)
        };
        let mut answered = false;
        while let Some(action) = front.poll_action() {
            answered |= matches!(action, Action::Answer(_));
            self.act(&mut front, action);
        }
        while let Some(action) = front.poll_window_action() {
            self.own.act(action);
        }
        (value, answered)
    }

    /// Whether messages to the client are needed: for its memory, or to tell it of interrupts.
    pub(super) fn needs_messages(&self) -> bool {
        self.windows.has_by_messages() || self.staging.tells_interrupts()
    }

    /// Adds a window of the client's. When this returns no word goes by a pointer to memory that is
    /// reached by messages.
    pub(super) fn map(&self, map: DmaMap) -> Result<(), Errno> {
        self.windows.map(map)?;
        if self.windows.has_by_messages() {
            // Those that are under way may have asked for a stretch before; the others ask again.
            let model = lock(&self.card.model);
            model.disturb_words();
            model.drain_words();
        }
        Ok(())
    }

    /// Gives back what kernels have changed in memory that is reached by messages.
    fn settle(&self) {
        if self.staging.settle(&self.windows).is_err() {
            self.end_lease(NotStaged::Unreached.why());
        }
    }

    /// Reads the client's memory, by its windows or by messages.
    pub(super) fn read_bus(&self, address: u64, into: &mut [u8]) -> Result<(), BusError> {
        if self.windows.is_by_messages(address, into.len() as u64) {
            return self.staging.read(address, into);
        }
        self.windows.read_bytes(address, into)
    }

    /// Writes the client's memory, by its windows or by messages.
    pub(super) fn write_bus(&self, address: u64, from: &[u8]) -> Result<(), BusError> {
        if self.windows.is_by_messages(address, from.len() as u64) {
            return self.staging.write(address, from);
        }
        self.windows.write_bytes(address, from)
    }

    fn act(&self, front: &mut Function, action: Action) {
        match action {
            Action::Start { pe, job, asid, kernel, args } => {
                self.start(pe, job, asid, kernel, args)
            }
            Action::Stop { job } => self.stop(job),
            Action::Answer(answer) => self.card.answer(vec![answer]),
            Action::Copy { id, extents } => self.copier.order(Order::Copy { id, extents }),
            Action::Fill { id, extents, pattern } => {
                self.copier.order(Order::Fill { id, extents, pattern });
            }
            Action::StopCopies => self.copier.stop(),
            Action::Reset => self.reset(front),
            // The function announces no link, and refuses its commands before this.
            Action::LinkReceive { id, .. }
            | Action::LinkSend { id, .. }
            | Action::LinkCancel { id, .. } => self.refuse_link(front, id),
            Action::StopLinks => {}
        }
    }

    /// This card has no link.
    fn refuse_link(&self, front: &mut Function, id: CommandId) {
        let mut bus = ClientBus { leased: self };
        front.linked(&mut lock(&self.card.model), &mut bus, id, Status::Unsupported, 0);
    }

    /// The function is in its known state as soon as nothing touches memory any more. While a kernel
    /// hangs with memory in its hands, it is not: the driver sees that the reset does not end, and
    /// begins another life.
    fn reset(&self, front: &mut Function) {
        if lock(&self.holders).is_empty() {
            self.own.scrub_all(&self.memory);
            front.reset_done(&mut lock(&self.card.model));
        } else {
            self.reset_waits.store(true, Ordering::SeqCst);
        }
    }

    fn start(&self, pe: PeId, id: JobId, asid: Asid, kernel: u32, args: Vec<KernelArg>) {
        if !self.started.swap(true, Ordering::SeqCst) {
            let embedder: Arc<dyn Embedder> = self.shared();
            if let Err(error) = self.card.start(&embedder, self.pes) {
                tracing::error!(%error, "a card has too few processing elements");
            }
        }
        let found = self.kernels.get(KernelId(kernel)).cloned();
        let name = found.as_ref().map_or_else(
            || Arc::from(format!("kernel number {kernel}")),
            |kernel| Arc::clone(kernel.name()),
        );
        // The function knows as many names as there are kernels, and has checked the number.
        let kernel = found.ok_or_else(|| KernelError::BadRequest {
            kernel: Arc::clone(&name),
            why: "the card has no such kernel".to_owned(),
        });
        // SAFETY: the client owns the memory and has lent it to this launch as the records say; one
        // that breaks its word harms what its own kernels see, and nobody else's.
        let args = unsafe { KernelArgs::new(Arc::clone(&name), args) };
        let grants = args.as_ref().map(KernelArgs::grants).unwrap_or_default();
        let job = Job::new(
            id,
            (OWN, asid),
            name,
            grants,
            None,
            Box::new(move |context| {
                let value = kernel?.run(context, &args?)?;
                context.set_value(value);
                Ok(())
            }),
        );
        if self.ending.load(Ordering::SeqCst) {
            // It waited behind one that has been stopped.
            job.mark(Stop::Cancelled);
        }
        lock(&self.jobs).push(Arc::clone(&job));
        self.card.enqueue_on(job, pe);
        self.works();
    }

    /// Something begins that may make memory: the function's thread looks at it from now on.
    fn works(&self) {
        if !self.works.swap(true, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Whether there is more memory in the client's files than there may be.
    pub(super) fn is_over_shared(&self) -> bool {
        self.windows.shared_bytes() > self.shared_max
    }

    /// Looks whether kernels have made too much memory. Gives when it wants to be called again.
    pub(super) fn look_at_quota(&self) -> Option<Instant> {
        if !self.works.load(Ordering::SeqCst) {
            return None;
        }
        let now = Instant::now();
        let mut next = lock(&self.next_look);
        if let Some(at) = next.filter(|&at| at > now) {
            // A system call for each file: the thread is woken far more often than that is worth.
            return Some(at);
        }
        // Before the look: what begins behind it calls again.
        self.works.store(false, Ordering::SeqCst);
        if self.is_over_shared() {
            self.end_lease("its card has made more memory in its files than it may");
        }
        *next = Some(now + QUOTA_PERIOD);
        if lock(&self.jobs).is_empty() {
            return None;
        }
        self.works.store(true, Ordering::SeqCst);
        *next
    }

    pub(super) fn end_lease(&self, why: &'static str) {
        let _ = self.over_quota.set(why);
        self.wake();
    }

    /// Why the lease has to end, if it has.
    pub(super) fn over_quota(&self) -> Option<&'static str> {
        self.over_quota.get().copied()
    }

    fn stop(&self, id: JobId) {
        let Some(job) = lock(&self.jobs).iter().find(|job| job.id == id).cloned() else {
            return;
        };
        job.mark(Stop::Cancelled);
        self.own.wake(id);
        self.card.interrupt(id);
        self.doorbell.nudge();
        lock(&self.stopping).push((Instant::now() + self.grace, job));
        // The function's thread minds the time.
        self.wake();
    }

    /// Gives up jobs whose time to stop is over. Gives when it wants to be called again.
    pub(super) fn give_up_late_jobs(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut stopping = lock(&self.stopping);
        stopping.retain(|(_, job)| !job.is_done());
        let (late, rest): (Vec<_>, Vec<_>) = stopping.drain(..).partition(|(at, _)| *at <= now);
        *stopping = rest;
        let next = stopping.iter().map(|(at, _)| *at).min();
        drop(stopping);
        let embedder: Arc<dyn Embedder> = self.shared();
        for (_, job) in late {
            job.give_up(&embedder, &self.card);
        }
        next
    }

    /// The doorbell was rung, or may have been.
    pub(super) fn serve_doorbell(&self) {
        // What has to be done is done between the steps, outside the card's lock.
        for _ in 0..STEPS_MAX {
            self.with(|front, card, bus| front.process(card, bus));
            if self.with(|front, card, bus| front.prepare_to_sleep(card, bus)) {
                return;
            }
        }
        // There is no end to it: the function's thread goes on, and looks after its client in between.
        self.has_more.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Whether commands were left, of which no doorbell will tell.
    pub(super) fn take_more(&self) -> bool {
        self.has_more.swap(false, Ordering::SeqCst)
    }

    /// Listens to the doorbell until `ready`: the processing element whose fault is being served
    /// carries the commands out itself that serve it, so nobody has to wake it.
    fn listen(&self, ready: &mut dyn FnMut() -> bool) {
        while !ready() {
            self.spin_for_commands(ready);
            let asleep = self.with_front(|front, card, bus| front.prepare_to_sleep(card, bus)).0;
            if asleep && !ready() {
                self.doorbell.wait();
            }
            self.with_front(|front, card, bus| front.process(card, bus));
        }
        // What came until now is served here; whatever comes later rings for the function's thread.
        if !self.with(|front, card, bus| front.prepare_to_sleep(card, bus)) {
            self.serve_doorbell();
        }
    }

    /// Looks for commands for about as long as a wake-up takes, if a processor is free for that. The
    /// client need not ring meanwhile.
    fn spin_for_commands(&self, ready: &mut dyn FnMut() -> bool) {
        let Some(_permit) = SpinPermit::take() else { return };
        self.with_front(|front, card, bus| front.process(card, bus));
        let end = Instant::now() + DEFAULT_SPIN;
        while !ready() && Instant::now() < end {
            if self.with_front(|front, _, bus| front.has_commands(bus)).0 {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Wakes the function's own thread.
    pub(super) fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// The function's own thread has seen that it was woken.
    pub(super) fn was_woken(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }

    /// What goes on here, in numbers.
    pub(super) fn report(&self) -> Report {
        let hung = self.card.hung_threads() as u64;
        let mut report = Report { jobs: lock(&self.jobs).len() as u64, hung, ..Report::default() };
        self.with(|function, card, _| {
            for (index, value) in report.counters.iter_mut().enumerate() {
                let mut bytes = [0; 8];
                function.read_register(card, counter(index), &mut bytes);
                *value = u64::from_le_bytes(bytes);
            }
            for (free, memory) in report.frames_free.iter_mut().zip(function.window_memories()) {
                *free = memory.frames_free.into();
            }
        });
        report
    }

    /// The memories that its window has.
    fn memories(&self) -> Vec<OwnMemory> {
        self.with(|front, _, _| OwnMemory::all(front.window_memories()))
    }

    /// Nothing reaches the client's memory any more, whatever is at work.
    pub(super) fn fence(&self) {
        self.windows.fence();
        lock(&self.interrupts).clear();
    }

    /// The client is gone, and its memory fenced. Ends what can be ended, and gives how many kernels
    /// hang; their threads keep what they hold of this life, which nobody else has.
    pub(super) fn end(&self) -> usize {
        let jobs = || lock(&self.jobs).clone();
        {
            // Jobs are started under this lock: those that follow see that they are not wanted.
            let _order = lock(&self.front);
            self.ending.store(true, Ordering::SeqCst);
        }
        for job in jobs() {
            job.mark(Stop::Cancelled);
            self.own.wake(job.id);
            self.card.interrupt(job.id);
            self.doorbell.nudge();
        }
        self.copier.close();
        self.card.close();
        let end = Instant::now() + self.grace;
        while !jobs().is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(200));
        }
        let embedder: Arc<dyn Embedder> = self.shared();
        for job in jobs() {
            job.give_up(&embedder, &self.card);
        }
        self.card.hung_threads()
    }

    fn shared(&self) -> Arc<LeasedFunction> {
        self.weak.upgrade().expect("whoever calls holds the function")
    }

    /// Whether a kernel was not given up: otherwise another may have its number and its processing element.
    fn runs(&self, job: &Job) -> bool {
        lock(&self.jobs).iter().any(|known| std::ptr::eq(&**known, job))
    }

    /// A copy or fill is over.
    pub(super) fn copied(&self, id: CommandId, result: Result<(), TransferFailed>) {
        self.happened(|front, card, bus| front.copied(card, bus, id, result));
    }

    /// Tells the front of something that no doorbell announced. The function's thread may sleep: where
    /// something waited for room in a ring, or does now, its bells are set here once more.
    fn happened(&self, body: impl FnOnce(&mut Function, &mut Card, &mut ClientBus<'_>)) {
        let held_up = self.with(|front, card, bus| {
            let before = front.is_held_up(card);
            body(front, card, bus);
            before || front.is_held_up(card)
        });
        if held_up {
            self.serve_doorbell();
        }
    }
}

impl Embedder for LeasedFunction {
    fn raised(&self, _card: &SoftCard) {
        self.happened(|front, card, bus| front.publish(card, bus));
    }

    fn drained(&self, _card: &SoftCard, commands: &[CommandId]) {
        self.happened(|front, card, bus| front.drained(card, bus, commands));
    }

    fn job_over(&self, _card: &SoftCard, job: &Job) {
        lock(&self.jobs).retain(|other| !std::ptr::eq(&**other, job));
        let end = job_end(job);
        self.happened(|front, card, bus| {
            let others = lock(&self.holders).iter().any(|&holder| holder != which(job));
            if !others && lock(&self.jobs).is_empty() {
                // Jobs begin under the front's lock: none is at work, and all was given back.
                self.staging.clear(&self.windows);
            }
            // One that was given up has ended by that. What it allocated and held is free now; if another has its number,
            // with what that one has.
            let held = lock(&self.holders).contains(&which(job));
            let is_free = held && !lock(&self.jobs).iter().any(|other| other.id == job.id);
            if !job.was_given_up() || is_free {
                front.job_ended(card, bus, job.id, &end);
            }
            let mut holders = lock(&self.holders);
            holders.retain(|&other| other != which(job));
            if holders.is_empty() && self.reset_waits.swap(false, Ordering::SeqCst) {
                self.own.scrub_all(&self.memory);
                front.reset_done(card);
            }
        });
    }

    fn job_given_up(&self, _card: &SoftCard, job: &Job, holds: bool) {
        lock(&self.jobs).retain(|other| !std::ptr::eq(&**other, job));
        let end = job_end(job);
        self.happened(|front, card, bus| {
            // It may have come to its end since it was seen to hold memory.
            if holds && !job.has_run() {
                lock(&self.holders).push(which(job));
            }
            front.job_ended(card, bus, job.id, &end);
        });
        if self.card.hung_threads() > SPARE_THREADS_MAX {
            self.end_lease("too many of its kernels hang");
        }
    }

    fn pointer(&self, location: Location, count: u32) -> NonNull<u8> {
        if location.memory == OWN.memory() {
            // The function has checked the frames of all that is mapped.
            return self.memory.run_ptr(location.frame, count).unwrap_or_else(|error| {
                tracing::error!(%error, "a card maps frames that it does not have");
                self.end_lease("its card maps frames that it does not have");
                self.windows.pointer(BUS_BYTES - u64::from(count) * PAGE_SIZE as u64)
            });
        }
        let page = u64::from(location.frame.0);
        let address = page * PAGE_SIZE as u64;
        if self.windows.is_by_messages(address, u64::from(count) * PAGE_SIZE as u64) {
            if let Err(why) = self.staging.bring(&self.windows, page, count) {
                self.end_lease(why.why());
            }
        }
        self.windows.pointer(address)
    }

    fn bus_stretch(&self, number: u8) -> Option<NonNull<u8>> {
        self.windows.stretch(number)
    }

    fn wait_instead(&self, _card: &SoftCard, ready: &mut dyn FnMut() -> bool) -> bool {
        let Some(_listening) = self.doorbell.listen() else {
            return false;
        };
        self.listen(ready);
        true
    }

    fn allocate_for(
        &self,
        _card: CardId,
        job: &Job,
        request: AllocRequest,
    ) -> Result<u64, WindowError> {
        let outcome = self.own.allocate(job, request, |slot| {
            self.with(|front, card, bus| {
                let is_asked = self.runs(job) && front.allocate(card, bus, job.id, request);
                if is_asked {
                    self.own.expect(job.id, slot);
                }
                is_asked
            })
        });
        outcome.map_err(|error| match error {
            WindowError::Refused { card, request, error, .. } => {
                WindowError::Refused { card, request, error, memories: self.memories() }
            }
            error => error,
        })
    }

    fn own_memories(&self, _card: CardId) -> Result<Vec<OwnMemory>, WindowError> {
        let memories = self.memories();
        if memories.is_empty() { Err(self.own.without()) } else { Ok(memories) }
    }

    fn hand_over(
        &self,
        _card: CardId,
        job: &Job,
        addr: VirtAddr,
        _bytes: u64,
    ) -> Result<(), WindowError> {
        let hand_over =
            |front: &mut Function| self.runs(job) && front.hand_over_allocation(job.id, addr.0);
        if self.with(|front, _, _| hand_over(front)) {
            return Ok(());
        }
        Err(WindowError::NotOwn { addr })
    }

    fn is_in_program(&self) -> bool {
        false
    }

    fn hint(&self, _addr: VirtAddr) -> String {
        // The card knows no allocations; the driver adds what it knows.
        String::new()
    }
}

/// A job, by where it is: its number may be another's when it has ended.
type Which = usize;

fn which(job: &Job) -> Which {
    std::ptr::from_ref(job).addr()
}

/// Where whole pages are, for the copier.
pub(super) fn frames(leased: &LeasedFunction, first: u32, count: u32) -> Option<NonNull<u8>> {
    leased.memory.run_ptr(FrameNo(first), count).ok()
}
