//! The space: shared memory, cards, and what the program may ask of them.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use farside_live::{CardPlace, GivenBack, LiveError, Machine, OwnPart, Runtime, RuntimeConfig};
use farside_softcard::{
    AllocOptions, CardBuffer, Kernels, KernelsError, Made, MemoryKind, OwnMemory, OwnMemoryId,
    Recorder, WindowMemory, WindowPlan, Word,
};
use farside_svm::{
    Advice, Config, Located, Moved, Outcome, PlacementScheme, Request, Why, placement,
};
use farside_types::{Access, CardId, MemoryId, PAGE_SIZE, PageRange, Rights, StreamId, VirtAddr};

use crate::cards::cards_of_environment;
use crate::events::{self, Events};
use crate::for_each::ForEach;
use crate::launch::{Launch, Scope, Stream};
use crate::moving::MoveLaunch;
use crate::recording::{self, Finish, Recording};
use crate::{Buffer, Error, Report};

/// One virtual address space over host memory and cards. Clones are the same space.
#[derive(Clone, Debug)]
pub struct Space {
    machine: Arc<Machine>,
    kernels: Arc<Kernels>,
    large_pages: bool,
    /// Behind the machine: it is dropped when no kernel runs any more.
    recording: Option<Arc<Finish>>,
    /// Likewise.
    #[cfg_attr(not(feature = "events"), expect(dead_code, reason = "there is none"))]
    events: Option<Arc<Events>>,
}

/// How a space is opened. The defaults: 2 cards in the program, 64 MiB of memory and one processing
/// element each, the placement scheme [`placement::DEFAULT`].
#[derive(Debug)]
pub struct SpaceBuilder {
    cards: usize,
    places: Option<Vec<CardPlace>>,
    card_memory: u64,
    card_window: Vec<(MemoryKind, u64)>,
    table_pages: Option<u32>,
    pes: u16,
    arena: u64,
    placement: Result<Box<dyn PlacementScheme>, Error>,
    peer: bool,
    warm: bool,
    large_pages: bool,
    core_dumps: bool,
    grace: Duration,
    tune: fn(&mut Config),
    probe: Option<farside_live::Probe>,
    kernels: Result<Kernels, KernelsError>,
    record: Option<PathBuf>,
    events: Option<PathBuf>,
    asks_environment: bool,
}

impl Default for SpaceBuilder {
    fn default() -> SpaceBuilder {
        SpaceBuilder {
            cards: 2,
            places: None,
            card_memory: 64 << 20,
            card_window: Vec::new(),
            table_pages: None,
            pes: 1,
            arena: farside_live::arena::DEFAULT_ARENA_BYTES,
            placement: placement::by_name(placement::DEFAULT).map_err(Error::from),
            peer: true,
            warm: false,
            large_pages: false,
            core_dumps: false,
            grace: Duration::from_millis(200),
            tune: |_| {},
            probe: None,
            kernels: Ok(Kernels::builtin()),
            record: None,
            events: None,
            asks_environment: true,
        }
    }
}

impl SpaceBuilder {
    /// Number of cards in the program: 1 to 16.
    #[must_use]
    pub fn cards(mut self, cards: usize) -> Self {
        self.cards = cards;
        self
    }

    /// Where each card is, if they are not all in the program: processes that `farside card serve`
    /// serves, or devices. The environment variable [`crate::CARDS_VARIABLE`] has the last word, so
    /// that a program need not be changed.
    #[must_use]
    pub fn cards_at(mut self, places: impl IntoIterator<Item = CardPlace>) -> Self {
        self.places = Some(places.into_iter().collect());
        self
    }

    /// Bytes of memory on each card; a multiple of a page.
    #[must_use]
    pub fn card_memory(mut self, bytes: u64) -> Self {
        self.card_memory = bytes;
        self
    }

    /// Bytes of each card in the program for its own memory, beside [`SpaceBuilder::card_memory`]; cards that are served
    /// have what they are served with (`farside card serve --window`). It is a multiple of a page, at most 4 TiB.
    /// Kernels and the program allocate in it ([`Space::alloc_on`], `KernelContext::alloc`, [`crate::Growable`]); what is there
    /// stays there. None unless it is said.
    #[must_use]
    pub fn card_window(mut self, bytes: u64) -> Self {
        self.card_window = if bytes > 0 { vec![(MemoryKind::Plain, bytes)] } else { Vec::new() };
        self
    }

    /// The same as several memories, which allocations choose from ([`AllocOptions::in_memory`]): of each its kind and its
    /// bytes. There are at most 15, with 4 TiB in all; their numbers count from 0.
    ///
    /// ```
    /// # use farside::{Backing, MemoryKind, Space};
    /// # fn main() -> Result<(), farside::Error> {
    /// let memories = [(MemoryKind::Ddr, 64 << 20), (MemoryKind::Hbm, 16 << 20)];
    /// let space = Space::builder().cards(1).card_window_memories(memories).build()?;
    /// let card = space.card(0)?;
    /// let hbm = space.own_memory(card, "hbm")?;
    /// let values = space.alloc_on::<u64>(card, 1 << 20, Backing::Eager.in_memory(hbm))?;
    /// let free: Vec<u64> = space.own_memories(card)?.iter().map(|memory| memory.bytes_free).collect();
    /// assert_eq!(free, [64 << 20, 8 << 20]);
    /// # drop(values);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn card_window_memories(
        mut self,
        memories: impl IntoIterator<Item = (MemoryKind, u64)>,
    ) -> Self {
        self.card_window = memories.into_iter().collect();
        self
    }

    /// Pages of each card in the program for its translation tables, beside its memory; 0: cards without
    /// tables, which know what their TLBs hold. As many as their memory needs, unless set. Pages that find
    /// no room in the tables are served by faults: slower, and otherwise the same.
    #[must_use]
    pub fn card_table_pages(mut self, pages: u32) -> Self {
        self.table_pages = Some(pages);
        self
    }

    /// Processing elements of each card: kernels that run at the same time.
    #[must_use]
    pub fn processing_elements(mut self, pes: u16) -> Self {
        self.pes = pes;
        self
    }

    /// Bytes of address space; a multiple of 2 MiB. Only what is used takes memory.
    #[must_use]
    pub fn address_space(mut self, bytes: u64) -> Self {
        self.arena = bytes;
        self
    }

    /// The placement scheme by name: see [`placement::NAMES`]. Those that need a simulated machine
    /// are refused when the space is built.
    #[must_use]
    pub fn placement(mut self, name: &str) -> Self {
        self.placement = placement::by_name(name).map_err(Error::from);
        self
    }

    /// A placement scheme from a shared library, written to `include/farside-scheme.h`, with its parameters:
    /// `./libmine.so:after=2`. What is wrong with it is an error of [`SpaceBuilder::build`]. An answer of it that makes no
    /// sense is named once on standard error and stands for the default: the page moves to who asked. A call
    /// that does not return is named, and the process ends ([`crate::SCHEME_LIMIT_VARIABLE`]).
    ///
    /// # Safety
    /// The library's code runs in this process: it keeps the rules of the header.
    #[must_use]
    pub unsafe fn placement_library(mut self, text: &str) -> Self {
        // SAFETY: passed on to the caller.
        let scheme = unsafe { farside_plugin::load(text, farside_plugin::Told::Everybody) };
        self.placement = scheme.map(|scheme| Box::new(scheme) as _).map_err(Error::from);
        self
    }

    /// [`SpaceBuilder::placement_library`] for a text that names a library (`PATH.so`, `PATH.so:after=2`), else
    /// [`SpaceBuilder::placement`].
    ///
    /// # Safety
    /// As [`SpaceBuilder::placement_library`].
    #[must_use]
    pub unsafe fn placement_or_library(self, text: &str) -> Self {
        match farside_plugin::split(text) {
            // SAFETY: passed on to the caller.
            Some(_) => unsafe { self.placement_library(text) },
            None => self.placement(text),
        }
    }

    /// A placement scheme of your own.
    #[must_use]
    pub fn placement_scheme(mut self, scheme: Box<dyn PlacementScheme>) -> Self {
        self.placement = Ok(scheme);
        self
    }

    /// Whether cards reach each other's memory (the default). Without it pages go from card to
    /// card through a bounce buffer on the host.
    #[must_use]
    pub fn peer_to_peer(mut self, on: bool) -> Self {
        self.peer = on;
        self
    }

    /// Touch all card memory at the start, so that first use costs nothing later: for measuring.
    #[must_use]
    pub fn warm(mut self, on: bool) -> Self {
        self.warm = on;
        self
    }

    /// Have every allocation of 2 MiB and more in large pages, as [`Space::alloc_large`] has. Off by
    /// default.
    #[must_use]
    pub fn large_pages(mut self, on: bool) -> Self {
        self.large_pages = on;
        self
    }

    /// Have a core dump of the program hold shared memory: the pages that are on the host, and all
    /// of every card's memory that the program reaches. Off by default: a dump then holds none of
    /// it, however large the address space is.
    #[must_use]
    pub fn core_dumps(mut self, on: bool) -> Self {
        self.core_dumps = on;
        self
    }

    /// How long a kernel that was told to stop may go on before it counts as hung.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Changes the driver's configuration: limits, prefetch, thrash handling.
    #[must_use]
    pub fn tune(mut self, tune: fn(&mut Config)) -> Self {
        self.tune = tune;
        self
    }

    /// Calls `probe` with every step of a migration before it is carried out: for tests.
    #[cfg(feature = "harness")]
    #[must_use]
    pub fn probe(mut self, probe: farside_live::Probe) -> Self {
        self.probe = Some(probe);
        self
    }

    /// The kernels that can be called by name (see [`crate::Launch::call`]), instead of the
    /// built-in ones alone: `Kernels::builtin().with("my.kernel", kernel)?`.
    #[must_use]
    pub fn kernels(mut self, kernels: Kernels) -> Self {
        self.kernels = Ok(kernels);
        self
    }

    /// Adds the kernels of a shared library, written to `include/farside-kernel.h`. What is wrong
    /// with it is an error of [`SpaceBuilder::build`].
    ///
    /// # Safety
    /// As [`Kernels::load_library`]: the library's code runs in this process.
    #[must_use]
    pub unsafe fn kernel_library(mut self, path: impl AsRef<Path>) -> Self {
        // SAFETY: passed on to the caller.
        self.kernels = self.kernels.and_then(|kernels| unsafe { kernels.load_library(path) });
        self
    }

    /// Neither an event log nor a recording, whatever the environment asks for ([`crate::EVENTS_VARIABLE`],
    /// [`crate::RECORD_VARIABLE`]): for a space that only looks at its cards, before the one that works.
    #[must_use]
    pub fn without_logs(mut self) -> Self {
        (self.record, self.events, self.asks_environment) = (None, None, false);
        self
    }

    /// Records what kernels on cards in the program access, into a Parquet file that
    /// `farside replay` and `farside sim` read (docs/workloads.md). The environment variable
    /// [`crate::RECORD_VARIABLE`] does so for a program that does not ask for it.
    #[cfg(feature = "record")]
    #[must_use]
    pub fn record(mut self, path: impl Into<PathBuf>) -> Self {
        self.record = Some(path.into());
        self
    }

    /// Writes all that happens to memory as an event log: faults, moves, invalidations, allocations, kernels and hints,
    /// in a Parquet file that `farside report` makes a page of (docs/report.md). What the log has no room for, because its
    /// disk is slow or full, is left out and counted; the program never waits for it. The environment variable
    /// [`crate::EVENTS_VARIABLE`] does so for a program that does not ask for it.
    #[cfg(feature = "events")]
    #[must_use]
    pub fn events(mut self, path: impl Into<PathBuf>) -> Self {
        self.events = Some(path.into());
        self
    }

    /// Opens the space.
    ///
    /// # Errors
    /// [`Error`] names the setting that cannot work, or what the machine lacks.
    pub fn build(self) -> Result<Space, Error> {
        crate::warn_of_unknown_variables();
        let setting = |what, value: String, why| Err(Error::Setting { what, value, why });
        let places = cards_of_environment()?.or(self.places);
        let count = places.as_ref().map_or(self.cards, Vec::len);
        if count == 0 || count > farside_types::MAX_CARDS {
            return setting("cards", count.to_string(), "a space has 1 to 16 cards");
        }
        if self.pes == 0 || self.pes > 1024 {
            let why = "a card has 1 to 1024 processing elements";
            return setting("processing elements", self.pes.to_string(), why);
        }
        let frames = self.card_memory / PAGE_SIZE as u64;
        let whole = self.card_memory % PAGE_SIZE as u64 == 0;
        let Some(frames) = u32::try_from(frames).ok().filter(|&n| whole && n > 0) else {
            let why = "it is a multiple of 4096 bytes, at least one page, at most 8 TiB";
            return setting("card memory", self.card_memory.to_string(), why);
        };
        let window = self.card_window.iter();
        let window = window.map(|&(kind, bytes)| WindowMemory::of_bytes(kind, bytes));
        let window = window.collect::<Result<Vec<_>, _>>()?;
        if !window.is_empty() {
            WindowPlan::new(&window)?;
        }
        let scheme = self.placement?;
        let kernels = Arc::new(self.kernels?);
        let asks = self.asks_environment;
        let of_environment = |ask: fn() -> Option<PathBuf>| asks.then(ask).flatten();
        let recording = match self.record.or_else(|| of_environment(recording::of_environment)) {
            Some(path) => Some(Arc::new(Recording::new(path, count)?)),
            None => None,
        };
        let cards = places.unwrap_or_else(|| vec![CardPlace::InProgram { frames }; self.cards]);
        let events = match self.events.or_else(|| of_environment(events::of_environment)) {
            Some(path) => Some(Arc::new(Events::new(path, scheme.name(), &memories(&cards))?)),
            None => None,
        };
        let mut geometry = farside_live::Geometry::software();
        geometry.table_pages = self.table_pages.unwrap_or(geometry.table_pages);
        let config = RuntimeConfig {
            arena_bytes: self.arena,
            cards,
            pes: self.pes,
            geometry,
            placement: scheme,
            window,
            tune: self.tune,
            peer: self.peer,
            grace: self.grace,
            warm: self.warm,
            core_dumps: self.core_dumps,
            recorder: recording.clone().map(|recording| recording as Arc<dyn Recorder>),
            journal: events.as_deref().map(Events::journal),
        };
        let runtime = Runtime::new(config, self.probe)?;
        let machine = Arc::new(Machine::start(runtime, self.pes)?);
        machine.runtime().look_up(&kernels.names().collect::<Vec<_>>());
        let recording = recording.map(|recording| Arc::new(Finish(recording)));
        Ok(Space { machine, kernels, large_pages: self.large_pages, recording, events })
    }
}

/// Bytes of each card's memory, of those in the program.
fn memories(cards: &[CardPlace]) -> Vec<Option<u64>> {
    let bytes = |place: &CardPlace| match place {
        CardPlace::InProgram { frames } => Some(u64::from(*frames) * PAGE_SIZE as u64),
        _ => None,
    };
    cards.iter().map(bytes).collect()
}

impl Space {
    /// How to open a space.
    pub fn builder() -> SpaceBuilder {
        SpaceBuilder::default()
    }

    pub(crate) fn runtime(&self) -> &Arc<Runtime> {
        self.machine.runtime()
    }

    /// The kernels that can be called by name.
    pub fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// The cards.
    pub fn cards(&self) -> impl ExactSizeIterator<Item = CardId> {
        (0..self.runtime().card_count()).map(|card| CardId(card as u8))
    }

    /// Card number `index`.
    ///
    /// # Errors
    /// [`LiveError::NoSuchCard`].
    pub fn card(&self, index: usize) -> Result<CardId, Error> {
        let cards = self.runtime().card_count();
        let card = CardId(u8::try_from(index).unwrap_or(u8::MAX));
        if index >= cards {
            return Err(LiveError::NoSuchCard { card, cards }.into());
        }
        Ok(card)
    }

    /// Bytes of memory of a card.
    ///
    /// # Errors
    /// [`LiveError::NoSuchCard`].
    pub fn card_memory(&self, card: CardId) -> Result<u64, Error> {
        let card = usize::from(self.card(card.0.into())?.0);
        let frames = self.runtime().inspect(|driver| driver.config().card_frames[card])?;
        Ok(u64::from(frames) * PAGE_SIZE as u64)
    }

    /// Shared memory for `len` values, zero.
    ///
    /// # Errors
    /// [`Error::Live`] if the address space is full or `len` is 0.
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<Buffer<T>, Error> {
        self.alloc_named(len, "")
    }

    /// Like [`Space::alloc`], with a name for reports and error messages.
    ///
    /// # Errors
    /// As [`Space::alloc`].
    pub fn alloc_named<T: Pod>(&self, len: usize, name: &str) -> Result<Buffer<T>, Error> {
        let start = self.reserve::<T>(len, name)?;
        // SAFETY: just allocated for `len` values; `T` takes any bytes.
        Ok(unsafe { Buffer::over(self.clone(), start, len) })
    }

    /// Like [`Space::alloc_named`], in large pages: the allocation moves in blocks of 2 MiB, so that a fault
    /// brings 512 pages at once, and the host keeps a block in one piece of its memory, which it takes from the
    /// program and gives back by a few calls. For data that is used in large parts; where single words
    /// of it are used, each brings 2 MiB.
    ///
    /// All of its memory is taken at once. It needs no setting of the system and no memory set aside, as
    /// hugetlb does, but Linux 6.1. Blocks for which there is no large page, and what is less than a
    /// block at the end, have pages of 4 KiB: a warning is logged, and [`Report::large_pages`] counts
    /// them. A space can have allocations of both kinds.
    ///
    /// # Errors
    /// As [`Space::alloc`]; [`LiveError::Arena`] where the kernel takes no more mappings of the process
    /// (`vm.max_map_count`).
    pub fn alloc_large<T: Pod>(&self, len: usize, name: &str) -> Result<Buffer<T>, Error> {
        let start = self.reserve_in::<T>(len, name, true)?;
        // SAFETY: just allocated for `len` values; `T` takes any bytes.
        Ok(unsafe { Buffer::over(self.clone(), start, len) })
    }

    /// Memory of a card's own for `len` values, zero: its pages stay on that card (see [`SpaceBuilder::card_window`]). How is a
    /// [`Backing`](crate::Backing) or [`AllocOptions`]: which of the card's own memories, and whether kernels may write it.
    ///
    /// ```
    /// # use farside::{Backing, Space, Write};
    /// # fn main() -> Result<(), farside::Error> {
    /// let space = Space::builder().cards(1).card_window(16 << 20).build()?;
    /// let card = space.card(0)?;
    /// let mut values = space.alloc_on::<u32>(card, 1000, Backing::Lazy)?;
    /// space.kernel("count").on(card).run(Write(values.host_mut()?), |kernel, values| {
    ///     kernel.with(values, |mut values| (0..).zip(values.iter_mut()).for_each(|(n, value)| *value = n))
    /// })?;
    /// assert_eq!(values.host()?[999], 999);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Window`] says what the card lacks; [`LiveError::NoSuchCard`].
    pub fn alloc_on<T: Pod>(
        &self,
        card: CardId,
        len: usize,
        options: impl Into<AllocOptions>,
    ) -> Result<CardBuffer<T>, Error> {
        let card = self.card(card.0.into())?;
        let buffer = CardBuffer::alloc(card, self.runtime().embedder()?, len, options)?;
        Ok(self.keep_open_for(buffer))
    }

    /// Values that a kernel known by its name has made in its card's own memory and handed over
    /// ([`crate::Growable::hand_over`]), wherever that card is.
    ///
    /// # Errors
    /// [`Error::Window`] if no kernel of that card has, it was taken over before, or there are fewer values, or,
    /// which only a card in the program says, more bytes; [`LiveError::NoSuchCard`].
    pub fn take_over<T: Pod>(&self, card: CardId, made: Made) -> Result<CardBuffer<T>, Error> {
        let card = self.card(card.0.into())?;
        let buffer = CardBuffer::take_over(card, self.runtime().embedder()?, made)?;
        Ok(self.keep_open_for(buffer))
    }

    /// The space is open as long as the buffer is there: a card in another process makes the memory of a program zero that
    /// leaves it. Which the buffer is told, too.
    fn keep_open_for<T>(&self, buffer: CardBuffer<T>) -> CardBuffer<T> {
        let is_in_program = self.runtime().is_in_program(buffer.card());
        let buffer = buffer.keeping(Arc::new(self.clone()));
        if is_in_program { buffer } else { buffer.elsewhere() }
    }

    /// Bytes of a card's own memory that nobody has, of all its memories together.
    ///
    /// # Errors
    /// [`Error::Window`] if it has none.
    pub fn own_memory_free(&self, card: CardId) -> Result<u64, Error> {
        Ok(self.own_memories(card)?.iter().map(|memory| memory.bytes_free).sum())
    }

    /// A card's own memories in the order of their numbers, with what is free in them.
    ///
    /// # Errors
    /// [`Error::Window`] if it has none; [`LiveError::NoSuchCard`].
    pub fn own_memories(&self, card: CardId) -> Result<Vec<OwnMemory>, Error> {
        let card = self.card(card.0.into())?;
        Ok(self.runtime().own_memories(card)?)
    }

    /// One of a card's own memories by its name, as `hbm0`, or by its kind if the card has one of it alone.
    ///
    /// # Errors
    /// [`WindowError::NoSuchMemory`](crate::WindowError::NoSuchMemory) names those that there are; as
    /// [`Space::own_memories`].
    pub fn own_memory(&self, card: CardId, name: &str) -> Result<OwnMemoryId, Error> {
        Ok(OwnMemory::by_name(&self.own_memories(card)?, card, name)?)
    }

    /// In which of a card's own memories the pages of these bytes are; nothing for memory that is no card's own, which
    /// [`Space::locate`] and [`Space::why`] know.
    ///
    /// ```
    /// # use farside::{Backing, MemoryKind, OwnMemoryId, Space};
    /// # fn main() -> Result<(), farside::Error> {
    /// let memories = [(MemoryKind::Ddr, 1 << 20), (MemoryKind::Hbm, 1 << 20)];
    /// let space = Space::builder().cards(1).card_window_memories(memories).build()?;
    /// let options = Backing::Lazy.in_memory(OwnMemoryId(1));
    /// let mut values = space.alloc_on::<u8>(space.card(0)?, 8192, options)?;
    /// values.fill_from(&[1; 4096])?;
    /// let parts = space.own_parts(values.addr(), 8192)?;
    /// assert_eq!(parts[0].memory.as_ref().unwrap().name, "hbm0");
    /// assert_eq!(parts[1].memory, None); // nobody has touched it
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Window`] if they are a card's own, and not all of them allocated for the program.
    pub fn own_parts(&self, address: VirtAddr, bytes: u64) -> Result<Vec<OwnPart>, Error> {
        Ok(self.runtime().own_parts(address, bytes)?)
    }

    /// Shared memory for `len` atomic words, zero.
    ///
    /// # Errors
    /// As [`Space::alloc`].
    pub fn alloc_atomic<W: Word>(&self, len: usize, name: &str) -> Result<Buffer<W>, Error> {
        let start = self.reserve::<W>(len, name)?;
        // SAFETY: just allocated for `len` words; zero is a valid atomic integer.
        Ok(unsafe { Buffer::over(self.clone(), start, len) })
    }

    fn reserve<T>(&self, len: usize, name: &str) -> Result<VirtAddr, Error> {
        self.reserve_in::<T>(len, name, self.large_pages)
    }

    fn reserve_in<T>(&self, len: usize, name: &str, large: bool) -> Result<VirtAddr, Error> {
        if align_of::<T>() > PAGE_SIZE {
            let value = format!("{} bytes", align_of::<T>());
            let why = "memory is given in pages of 4096 bytes, and aligned to them only";
            return Err(Error::Setting { what: "the alignment of a value", value, why });
        }
        let bytes = (len as u64).checked_mul(size_of::<T>() as u64);
        // More than the address space holds: let the driver say how much there is.
        let bytes = bytes.unwrap_or(u64::MAX - PAGE_SIZE as u64);
        let request = Request::Alloc { bytes, name: name.into() };
        match self.runtime().request(request)? {
            Outcome::Allocated(range) => {
                if large {
                    // Not freed where this fails: nobody may have addresses that are not watched.
                    self.runtime().make_large(range)?;
                }
                if let Some(Finish(recording)) = self.recording.as_deref() {
                    recording.allocated(range);
                }
                Ok(range.start.addr())
            }
            Outcome::Done { .. } => unreachable!("an allocation is answered with its range"),
        }
    }

    /// Ends the recording that [`SpaceBuilder::record`] began and completes its file; later
    /// accesses are not in it. Without this call the last handle of the space does so, and can only
    /// log what goes wrong.
    ///
    /// # Errors
    /// [`Error::Recording`] says what was wrong with the file.
    #[cfg(feature = "record")]
    pub fn end_recording(&self) -> Result<(), Error> {
        self.recording.as_deref().map_or(Ok(()), |Finish(recording)| recording.finish())
    }

    /// Completes the event log and says what is in it ([`SpaceBuilder::events`]): later events are not. Without this
    /// call the last handle of the space does so, and can only log what goes wrong. Nothing, where no log is written.
    ///
    /// # Errors
    /// [`Error::Events`] says what was wrong with the file, and how many events are missing.
    #[cfg(feature = "events")]
    pub fn end_events(&self) -> Result<crate::Written, Error> {
        self.events.as_deref().map_or(Ok(crate::Written::default()), Events::finish)
    }

    /// Has what happened so far in the event log, and says where that is: a reader finds it there, while the log goes on.
    /// `None`, where no log is written, or it has ended.
    ///
    /// # Errors
    /// [`Error::Events`] if the file takes no more.
    #[cfg(feature = "events")]
    pub fn events_so_far(&self) -> Result<Option<PathBuf>, Error> {
        self.events.as_deref().map_or(Ok(None), Events::write_so_far)
    }

    /// Where the event log is. `None`, where no log is written, or it has ended.
    #[cfg(feature = "events")]
    pub fn event_log(&self) -> Option<PathBuf> {
        self.events.as_deref().and_then(Events::path)
    }

    /// A kernel to be launched.
    pub fn kernel(&self, name: &str) -> Launch<'_> {
        Launch::new(self, name)
    }

    /// A kernel to be launched over a range of indices, cut into pieces that run on all processing elements of several
    /// cards. Each card begins with a run of its own, so that pages stay where they are used; one that has nothing
    /// left takes from the far end of who has most left, so that a slow card holds nobody up. Every index is run
    /// exactly once, or the launch fails.
    ///
    /// ```
    /// # use std::sync::atomic::AtomicU64;
    /// # use farside::{Read, Shared, Space, Split, Value, Write};
    /// # fn main() -> Result<(), farside::Error> {
    /// # let space = Space::builder().cards(2).build()?;
    /// let (mut x, mut y) = (space.alloc::<f32>(1 << 20)?, space.alloc::<f32>(1 << 20)?);
    /// x.fill(1.5);
    /// let saxpy = space.for_each("farside.saxpy", 0..1 << 20);
    /// let shares = saxpy.call((Value(2.0f32), Split(&x), Write(&mut y)))?;
    /// assert_eq!((y[0], y[(1 << 20) - 1]), (3.0, 3.0));
    /// for share in &shares.cards {
    ///     println!("{}: {} pieces, {} of them stolen", share.card, share.pieces, share.stolen);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn for_each(&self, name: &str, indices: Range<u64>) -> ForEach<'_> {
        ForEach::new(self, name, indices)
    }

    /// Launches kernels that borrow buffers: all of them have ended when this returns.
    ///
    /// ```
    /// # use farside::{Space, Write};
    /// # fn main() -> Result<(), farside::Error> {
    /// # let space = Space::builder().build()?;
    /// let mut data = space.alloc::<u32>(4096)?;
    /// let (low, high) = data.split_at_mut(2048);
    /// let (a, b) = (space.card(0)?, space.card(1)?);
    /// space.scope(|s| {
    ///     let fill = |value| move |k: &mut farside::KernelContext, part| {
    ///         k.with(part, |mut part: farside::WriteView<u32>| {
    ///             part.iter_mut().for_each(|x| *x = value)
    ///         })
    ///     };
    ///     s.kernel("ones").on(a).launch(Write(low), fill(1))?;
    ///     s.kernel("twos").on(b).launch(Write(high), fill(2))?;
    ///     Ok::<_, farside::Error>(())
    /// })?;
    /// assert_eq!((data[0], data[4095]), (1, 2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn scope<'env, T>(
        &'env self,
        body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
    ) -> T {
        Scope::enter(self, body)
    }

    /// A stream: its launches run in the order in which they were made.
    pub fn stream(&self) -> Stream {
        let id = self.runtime().next_stream();
        Stream(StreamId(id))
    }

    /// The pages of a slice of shared memory.
    ///
    /// # Errors
    /// [`LiveError::NotShared`]; [`Error::StaysOnCard`] of a card's own memory.
    pub fn pages<T>(&self, slice: &[T]) -> Result<PageRange, Error> {
        let addr = VirtAddr(slice.as_ptr() as u64);
        let bytes = size_of_val(slice) as u64;
        if let Some(card) = self.runtime().owner_of(addr).filter(|_| bytes > 0) {
            return Err(Error::StaysOnCard { bytes: addr.0..addr.0.saturating_add(bytes), card });
        }
        if bytes > 0 && !self.runtime().contains(addr, bytes) {
            return Err(LiveError::NotShared { addr }.into());
        }
        Ok(PageRange::covering(addr, bytes).unwrap_or_default())
    }

    /// The pages of a slice that can move.
    fn movable<T>(&self, slice: &[T]) -> Result<PageRange, Error> {
        self.pages(slice).map(|range| self.runtime().movable(range))
    }

    fn request_for<T>(
        &self,
        slice: &[T],
        request: impl FnOnce(PageRange) -> Request,
    ) -> Result<u64, Error> {
        let range = self.movable(slice)?;
        if range.is_empty() && !slice.is_empty() {
            // Adopted memory that is all edges stays where it is.
            return Ok(0);
        }
        match self.runtime().request(request(range))? {
            Outcome::Done { pages_moved } => Ok(pages_moved),
            Outcome::Allocated(_) => Ok(0),
        }
    }

    /// Moves the pages of `slice` to a memory, now (user managed). Gives the pages moved.
    ///
    /// # Errors
    /// [`Error::Live`] with the driver's reason: for example that the range is larger than the card.
    pub fn migrate<T>(&self, slice: &[T], to: impl Into<MemoryId>) -> Result<u64, Error> {
        let to = to.into();
        self.request_for(slice, |range| Request::Migrate { range, to })
    }

    /// Brings the pages of `slice` to a memory as far as there is room. Gives the pages moved.
    ///
    /// # Errors
    /// As [`Space::migrate`].
    pub fn prefetch<T>(&self, slice: &[T], to: impl Into<MemoryId>) -> Result<u64, Error> {
        let to = to.into();
        self.request_for(slice, |range| Request::Prefetch { range, to, access: Access::Write })
    }

    /// Moves the pages of `slice` as [`Space::migrate`] does, without waiting: nothing moves before
    /// [`MoveLaunch::start`], which gives a handle.
    ///
    /// ```
    /// # use farside::Space;
    /// # fn main() -> Result<(), farside::Error> {
    /// # let space = Space::builder().build()?;
    /// # let card = space.card(0)?;
    /// let data = space.alloc::<u64>(1 << 16)?;
    /// let moving = space.migrate_async(&data, card).start()?;
    /// // Something else, meanwhile.
    /// assert_eq!(moving.wait()?, 128);
    /// # Ok(())
    /// # }
    /// ```
    pub fn migrate_async<T>(&self, slice: &[T], to: impl Into<MemoryId>) -> MoveLaunch<'_> {
        self.move_async(slice, to.into(), |range, to| Request::Migrate { range, to })
    }

    /// Brings the pages of `slice` to a memory as [`Space::prefetch`] does, without waiting.
    pub fn prefetch_async<T>(&self, slice: &[T], to: impl Into<MemoryId>) -> MoveLaunch<'_> {
        let request = |range, to| Request::Prefetch { range, to, access: Access::Write };
        self.move_async(slice, to.into(), request)
    }

    fn move_async<T>(
        &self,
        slice: &[T],
        to: MemoryId,
        request: fn(PageRange, MemoryId) -> Request,
    ) -> MoveLaunch<'_> {
        MoveLaunch { space: self, range: self.movable(slice), request, to, after: Vec::new() }
    }

    /// Tells how `slice` will be used.
    ///
    /// # Errors
    /// As [`Space::migrate`].
    pub fn advise<T>(&self, slice: &[T], advice: Advice) -> Result<(), Error> {
        self.request_for(slice, |range| Request::Advise { range, advice }).map(drop)
    }

    /// Moves `slice` to a memory and keeps it there until [`Space::unpin`] of the same slice.
    /// Memory that a device reads or writes by itself (`O_DIRECT`, io_uring) must be pinned on the
    /// host meanwhile.
    ///
    /// # Errors
    /// As [`Space::migrate`].
    pub fn pin<T>(&self, slice: &[T], at: impl Into<MemoryId>) -> Result<(), Error> {
        let at = at.into();
        self.request_for(slice, |range| Request::Pin { range, at }).map(drop)
    }

    /// Undoes one [`Space::pin`].
    ///
    /// # Errors
    /// As [`Space::migrate`].
    pub fn unpin<T>(&self, slice: &[T]) -> Result<(), Error> {
        self.request_for(slice, |range| Request::Unpin { range }).map(drop)
    }

    /// Whether kernels may write `slice`; those that try nevertheless fail.
    ///
    /// # Errors
    /// As [`Space::migrate`].
    pub fn set_read_only<T>(&self, slice: &[T], on: bool) -> Result<(), Error> {
        let rights = if on { Rights::Read } else { Rights::ReadWrite };
        self.request_for(slice, |range| Request::Protect { range, rights }).map(drop)
    }

    /// Gives the host frames of pages that live on cards only back to the kernel.
    ///
    /// # Errors
    /// [`Error::Live`].
    pub fn trim(&self) -> Result<(), Error> {
        self.runtime().request(Request::Trim)?;
        Ok(())
    }

    /// Where the parts of `slice` are, and why they came there.
    ///
    /// # Errors
    /// [`LiveError::NotShared`].
    pub fn locate<T>(&self, slice: &[T]) -> Result<Vec<Located>, Error> {
        let range = self.pages(slice)?;
        Ok(self.runtime().inspect(|driver| driver.locate(range))?)
    }

    /// The moves of `slice`'s pages, oldest first, as far back as the history reaches.
    ///
    /// # Errors
    /// [`LiveError::NotShared`].
    pub fn history<T>(&self, slice: &[T]) -> Result<Vec<Moved>, Error> {
        let range = self.pages(slice)?;
        Ok(self.runtime().inspect(|driver| driver.history(range))?)
    }

    /// Why the page at `address` is placed as it is: where it is, what is done about who asks for it next, who
    /// decides that and what it was learnt from.
    ///
    /// ```
    /// # use farside::{Read, Space, Verdict};
    /// # fn main() -> Result<(), farside::Error> {
    /// # let space = Space::builder().cards(2).build()?;
    /// let mut input = space.alloc_named::<u64>(4096, "input")?;
    /// input.fill(7);
    /// for card in space.cards() {
    ///     space.kernel("sum").on(card).run(Read(&input), |k, input| {
    ///         k.with(input, |input| input.iter().sum::<u64>())
    ///     })?;
    /// }
    /// let why = space.why(input.addr())?;
    /// assert_eq!(why.verdict, Verdict::Copies); // nobody takes it from anybody
    /// println!("{why}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotAllocated`] for an address that is in no allocation, with the nearest one; [`Error::StaysOnCard`] of a card's
    /// own memory, of which [`Space::own_parts`] says where it is.
    pub fn why(&self, address: VirtAddr) -> Result<Why, Error> {
        if let Some(card) = self.runtime().owner_of(address) {
            let bytes = address.0..address.0.saturating_add(1);
            return Err(Error::StaysOnCard { bytes, card });
        }
        self.runtime().inspect(|driver| match driver.why(address) {
            Some(why) => Ok(why),
            None => Err(Error::not_allocated(address, driver.nearest(address))),
        })?
    }

    /// What happened so far: counters, times, fights, the busiest allocations. In a child made by
    /// fork, which has no access to the space, nothing.
    pub fn report(&self) -> Report {
        Report::of(self)
    }

    /// Gives a card of another process back within a time, for good: it gets no more kernels, those that
    /// run have half of the time to end, and what is only there is moved to the host first.
    ///
    /// # Errors
    /// [`LiveError::NoSuchCard`], [`LiveError::Card`] for a card in the program.
    pub fn give_back(&self, card: CardId, within: Duration) -> Result<GivenBack, Error> {
        Ok(self.runtime().give_back(card, Instant::now() + within)?)
    }

    /// Fails a card as if it had been pulled out: its kernels fail, pages that were only there
    /// raise SIGBUS when they are touched, everything else goes on. For tests.
    ///
    /// # Errors
    /// [`LiveError::NoSuchCard`].
    #[cfg(feature = "harness")]
    pub fn fail_card(&self, card: CardId) -> Result<(), Error> {
        Ok(self.runtime().fail_card(card)?)
    }

    /// Lets commands fail from now on, or no more: for tests that must see what becomes of it.
    #[cfg(feature = "mutations")]
    pub fn strike(&self, strike: Option<farside_live::Strike>) {
        self.runtime().strike(strike);
    }

    /// Takes pages of adopted memory from the program by a copy, while it writes them: for tests that must
    /// notice.
    #[cfg(feature = "mutations")]
    pub fn copy_adopted_first(&self) {
        self.runtime().copy_adopted_first();
    }

    /// Breaks one rule of the driver on purpose: for tests that must notice.
    ///
    /// # Errors
    /// [`LiveError::WrongProcess`].
    #[cfg(feature = "mutations")]
    pub fn mutate(&self, mutation: farside_svm::Mutation) -> Result<(), Error> {
        Ok(self.runtime().mutate(mutation)?)
    }

    /// Checks the driver's tables: for tests.
    ///
    /// # Errors
    /// What does not agree.
    pub fn check(&self) -> Result<(), String> {
        self.runtime().check()
    }
}
