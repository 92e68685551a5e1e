//! One connection to a card, from its reset to its end: identity, rings, and what is under way.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_card::interface::{MemoryKind, RING_COUNT, RingKind, VERSION, pci, register};
use farside_types::{CardId, CommandId, Epoch, IndexMap, JobId, PAGE_SIZE};

use super::bus_map::BusMap;
use super::control::{Block, Control, Sizes};
use super::submit::{Backlog, Waiting};
use super::transport::{
    DmaPiece, Transport, TransportError, read_u32, read_u64, write_u32, write_u64,
};
use crate::error::LiveError;
use crate::runtime::{UNDER_WAY, for_commands};
use crate::window::WindowSizes;
use farside_softcard::serve::FRAMES_WITH_WINDOW_MAX;
use farside_softcard::{Job, WindowMemory, window_frames};

/// What a card says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Frames of the function's memory.
    pub frames: u32,
    /// Processing elements.
    pub pes: u32,
    /// The life of the function.
    pub generation: u64,
    /// Pages of one DMA command.
    pub dma_pages: u32,
    /// Capability bits.
    pub capabilities: u64,
    /// Its own window, if it has one that this side can use.
    pub(crate) window: Option<WindowSizes>,
}

impl Identity {
    /// Frames of all its memory that BAR2 shows, the window's included.
    pub fn all_frames(&self) -> u32 {
        self.window.map_or(self.frames, |window| window.first.saturating_add(window.frames()))
    }
}

/// A command of the driver that has parts under way.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) epoch: Epoch,
    pub(super) parts_left: u32,
    /// Pages of the whole command.
    pub(super) pages: u64,
    pub(super) pages_done: u64,
    pub(super) failed: bool,
    /// Its completion raises no interrupt.
    pub(super) quiet: bool,
}

/// What a tag stands for.
#[derive(Debug)]
pub(super) enum Pending {
    Command {
        id: CommandId,
        block: Option<Block>,
    },
    /// A part of a driver's command that tells of its pages, from page `first` on. Without a block the bits are
    /// in the completion.
    Telling {
        id: CommandId,
        block: Option<Block>,
        first: u64,
        pages: u64,
    },
    /// A move beside the rings: no completion is about it.
    Move {
        id: CommandId,
    },
    Kernel {
        name: Arc<str>,
        block: Block,
        jobs: Vec<Arc<Job>>,
    },
    Launch {
        job: Arc<Job>,
        block: Block,
    },
    Abort,
    /// A command of a window's.
    Own {
        id: CommandId,
    },
}

/// See the module. The runtime calls it under the driver's lock.
#[derive(Debug)]
pub(crate) struct Link {
    pub(super) card: CardId,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) control: Control,
    pub(super) map: Arc<BusMap>,
    pub(super) identity: Identity,
    /// Entries that were put into the command ring.
    pub(super) produced: u32,
    /// Entries that were taken out of the others.
    pub(super) consumed: [u32; RING_COUNT],
    /// The card waits for room in one of its rings, and there is some again.
    pub(super) room_made: bool,
    pub(super) next_tag: u64,
    /// Completions to come that raise no interrupt.
    pub(super) quiet_pending: u32,
    pub(super) pending: IndexMap<u64, Pending>,
    pub(super) commands: IndexMap<CommandId, InFlight>,
    pub(super) backlog: Backlog,
    /// Jobs whose turn has come and that wait for a block.
    pub(super) parked: VecDeque<Arc<Job>>,
    /// What jobs that were not sent yet are believed to make.
    pub(super) made: IndexMap<JobId, Vec<Range<u64>>>,
    /// Launches that are in the ring and not published, with what they are believed to make.
    pub(super) launched: Vec<(u64, Vec<Range<u64>>)>,
    /// Kernels that were looked up.
    pub(super) kernels: HashMap<Arc<str>, u32>,
    /// The card has written nonsense: it has to be reset.
    pub(super) broken: bool,
}

/// Frames of a card, at most. What a card claims costs tables in this program.
const FRAMES_MAX: u32 = FRAMES_WITH_WINDOW_MAX;

/// The minor version since which a window's memories have registers.
const MEMORIES_SINCE: u32 = 4;

/// Bytes of a card's window, at most: 4 TiB.
const WINDOW_BYTES_MAX: u64 = 1 << 42;

/// What may wait for a card or be under way there. A card that takes no commands, or completes none,
/// and goes on to fault would otherwise use up this program's memory.
pub(super) const OPEN_MAX: usize = 1 << 16;

/// How long a card may take to come to its known state.
const RESET_LIMIT: Duration = Duration::from_secs(5);

/// Looks whether a function is a card that this version can drive, and what it has.
///
/// # Errors
/// [`TransportError`].
pub(crate) fn identify(bus: &dyn Transport) -> Result<Identity, TransportError> {
    let unfit = |what| Err(TransportError::Unfit { what });
    let magic = read_u32(bus, register::MAGIC)?;
    if magic != register::MAGIC_VALUE {
        return unfit(format!("this is no Farside card: its first register is {magic:#010x}"));
    }
    let version = read_u32(bus, register::VERSION)?;
    if version >> 16 != VERSION >> 16 {
        return unfit(format!(
            "the card speaks version {}.{} of the card interface, this program {}.{}; \
             use versions that go together",
            version >> 16,
            version & 0xffff,
            VERSION >> 16,
            VERSION & 0xffff
        ));
    }
    let identity = Identity {
        frames: read_u32(bus, register::FRAMES)?,
        pes: read_u32(bus, register::PES)?,
        generation: read_u64(bus, register::GENERATION)?,
        dma_pages: read_u32(bus, register::DMA_PAGES)?,
        capabilities: read_u64(bus, register::CAPABILITIES)?,
        window: None,
    };
    let needed = register::CAP_GROUPS;
    if identity.capabilities & needed != needed {
        return unfit("the card has no grouped faults, which kernels need for `with`".to_owned());
    }
    if identity.frames == 0 || identity.dma_pages == 0 {
        return unfit(format!("the card has no memory or no page DMA: {identity:?}"));
    }
    if identity.frames > FRAMES_MAX {
        let frames = identity.frames;
        return unfit(format!(
            "the card says that it has {frames} frames of memory; cards of up to half a TiB \
             ({FRAMES_MAX} frames) can be driven"
        ));
    }
    Ok(Identity { window: window_of(bus, &identity)?, ..identity })
}

/// The window of a card, if it shows its pages in BAR2, and they are of 4 KiB.
fn window_of(
    bus: &dyn Transport,
    identity: &Identity,
) -> Result<Option<WindowSizes>, TransportError> {
    let has_one = identity.capabilities & register::CAP_ALLOC != 0 && !bus.is_by_messages();
    if !has_one || read_u32(bus, register::WINDOW_PAGE)? != PAGE_SIZE.trailing_zeros() {
        return Ok(None);
    }
    let first = read_u32(bus, register::WINDOW_FIRST)?;
    if first == 0 || first == u32::MAX {
        // A card of before has no such register.
        return Ok(None);
    }
    let (bytes, frames) =
        (read_u64(bus, register::WINDOW_BYTES)?, read_u64(bus, register::WINDOW_FRAMES)?);
    let memories = memories_of(bus)?;
    let told = window_frames(&memories);
    let is_apart = first >= identity.frames;
    let fits = bytes.is_power_of_two() && (PAGE_SIZE as u64..=WINDOW_BYTES_MAX).contains(&bytes);
    let end = u64::from(first).checked_add(frames).filter(|&end| end <= FRAMES_MAX.into());
    if !is_apart || !fits || end.is_none() || frames == 0 || told != frames {
        let what = format!(
            "the card says that its own window has {bytes} bytes of addresses, and {frames} frames from {first:#x} on \
             behind {:#x} others, and {told} in its {} memories; that cannot be",
            identity.frames,
            memories.len()
        );
        return Err(TransportError::Unfit { what });
    }
    let cannot_be = |why| TransportError::Unfit { what: format!("the card says that {why}") };
    WindowSizes::new(bytes, first, &memories).map(Some).map_err(cannot_be)
}

/// The memories of a card's window.
fn memories_of(bus: &dyn Transport) -> Result<Vec<WindowMemory>, TransportError> {
    let count = read_u32(bus, register::WINDOW_MEMORIES)?;
    let unfit = |what| Err(TransportError::Unfit { what });
    if !(1..=register::MEMORIES_MAX).contains(&count) {
        return unfit(format!(
            "the card says that its own window has {count} memories; there can be 1 to {}",
            register::MEMORIES_MAX
        ));
    }
    if (read_u32(bus, register::VERSION)? & 0xffff) < MEMORIES_SINCE {
        // It tells only how much it is in all.
        let frames = u32::try_from(read_u64(bus, register::WINDOW_FRAMES)?);
        return match (count, frames) {
            (1, Ok(frames)) => Ok(vec![WindowMemory::plain(frames)]),
            _ => unfit(format!(
                "the card has {count} memories in its own window and does not tell how large each is; use a card of \
                 version 1.{MEMORIES_SINCE} of the card interface, or one without a window"
            )),
        };
    }
    let one = |number| {
        let at = register::memory(number);
        let kind = MemoryKind::from_code(read_u32(bus, at + register::MEMORY_KIND)?);
        Ok(WindowMemory { kind, frames: read_u32(bus, at + register::MEMORY_FRAMES)? })
    };
    (0..count as u8).map(one).collect()
}

/// Brings a function to its known state.
///
/// # Errors
/// [`TransportError::TimedOut`] if it does not come there.
pub(crate) fn reset(bus: &dyn Transport) -> Result<(), TransportError> {
    write_u32(bus, register::CONTROL, register::CONTROL_RESET)?;
    let end = Instant::now() + RESET_LIMIT;
    while read_u32(bus, register::STATUS)? & register::STATUS_RESETTING != 0 {
        if Instant::now() > end {
            return Err(TransportError::TimedOut { what: "resetting the card" });
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

impl Link {
    /// Resets a function and sets its rings up. `event` gets its interrupts; its window begins at `window_base`, if it is used.
    ///
    /// # Errors
    /// [`LiveError::Card`], [`LiveError::Memory`].
    pub(crate) fn open(
        card: CardId,
        transport: Arc<dyn Transport>,
        identity: Identity,
        map: Arc<BusMap>,
        sizes: Sizes,
        event: BorrowedFd<'_>,
        window_base: Option<u64>,
    ) -> Result<Link, LiveError> {
        let control = Control::new(map.control(), sizes)?;
        let bus = transport.as_ref();
        let fail = |error| LiveError::Card { card, error };
        reset(bus).map_err(fail)?;
        bus.map_rings(&DmaPiece {
            bus: map.control(),
            bytes: control.bytes(),
            address: control.base(),
            file: control.file(),
            offset: 0,
        })
        .map_err(fail)?;
        bus.interrupt_by(&[event; pci::VECTORS as usize]).map_err(fail)?;
        if let Some(base) = window_base {
            write_u64(bus, register::WINDOW_BASE, base).map_err(fail)?;
        }
        set_up_rings(bus, &control).map_err(fail)?;
        Ok(Link {
            card,
            transport,
            control,
            map,
            identity,
            produced: 0,
            consumed: [0; RING_COUNT],
            room_made: false,
            next_tag: 1,
            quiet_pending: 0,
            pending: for_commands(),
            commands: for_commands(),
            backlog: Backlog::with_capacity(UNDER_WAY),
            parked: VecDeque::new(),
            made: IndexMap::default(),
            launched: Vec::new(),
            kernels: HashMap::new(),
            broken: false,
        })
    }

    /// Notes that the card has written nonsense.
    pub(crate) fn set_broken(&mut self) {
        self.broken = true;
    }

    /// Whether the card has written nonsense.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// The driver's commands that are not answered.
    pub(crate) fn open_commands(&self) -> impl Iterator<Item = CommandId> {
        self.commands.keys().copied()
    }

    /// Processing elements of the card.
    pub(crate) fn elements(&self) -> u32 {
        self.identity.pes
    }

    /// Whether a job is with the card, or on its way there.
    pub(crate) fn knows(&self, job: JobId) -> bool {
        let is_it = |other: &Arc<Job>| other.id == job;
        let sent = self.pending.values().any(|pending| match pending {
            Pending::Launch { job: launched, .. } => is_it(launched),
            Pending::Kernel { jobs, .. } => jobs.iter().any(is_it),
            Pending::Command { .. }
            | Pending::Telling { .. }
            | Pending::Move { .. }
            | Pending::Abort
            | Pending::Own { .. } => false,
        });
        let waits = self.backlog.iter().any(|waiting| match waiting {
            Waiting::Launch(launched) => is_it(launched),
            Waiting::Kernel(_, jobs) => jobs.iter().any(is_it),
            Waiting::Pages(..)
            | Waiting::Telling(..)
            | Waiting::Faults(..)
            | Waiting::Abort(_)
            | Waiting::Own(..) => false,
        });
        sent || waits || self.parked.iter().any(is_it)
    }
}

fn set_up_rings(bus: &dyn Transport, control: &Control) -> Result<(), TransportError> {
    for kind in RingKind::ALL {
        let first = register::ring(kind);
        write_u64(bus, first + register::RING_BASE, control.ring_bus(kind))?;
        write_u32(bus, first + register::RING_ENTRIES, control.entries(kind))?;
        write_u32(bus, first + register::RING_VECTOR, kind.index() as u32)?;
    }
    write_u32(bus, register::CONTROL, register::CONTROL_ENABLE)?;
    let (status, errors) = (read_u32(bus, register::STATUS)?, read_u64(bus, register::ERRORS)?);
    if status & register::STATUS_ENABLED == 0 || errors != 0 {
        let what = format!("the card does not start: status {status:#x}, errors {errors:#x}");
        return Err(TransportError::Unfit { what });
    }
    Ok(())
}
