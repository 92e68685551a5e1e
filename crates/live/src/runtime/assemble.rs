//! Putting a runtime together: memories, cards near and far, and a driver that knows what each can.

use std::sync::Arc;
use std::time::Duration;

use farside_card::Geometry;
use farside_card::interface::register::CAP_TABLES;
use farside_svm::{Capabilities, Config};
use farside_types::{CardId, FrameNo, MemoryId, MemorySet, PAGE_SIZE};

use super::{Port, RuntimeConfig};
use crate::arena::Arena;
use crate::error::LiveError;
use crate::memories::{Frames, Memories};
use crate::ring_card::{
    BusMap, CardPlace, CardSizes, Identity, RingCard, Sizes, Transport, connect,
};
use crate::window::{CardWindow, FarWindow};
use farside_linux::card_memory::CardMemory;
use farside_linux::lock::lock;
use farside_softcard::{SoftCard, window_frames};

/// How long a card that is being started may take to be there.
const PATIENCE: Duration = Duration::from_secs(2);

/// Processing elements of a card in the program that can take the place of one whose kernel hangs.
const SPARE_PES: u16 = 8;

/// Copies of at least this many pages are the card's page DMA's, smaller ones the host's own: below
/// it the way to the card and back costs more than the bytes (docs/performance.md).
const DMA_FROM_PAGES: u32 = 64;

/// What a runtime is put together from.
pub(super) struct Parts {
    pub(super) driver: Config,
    pub(super) memories: Memories,
    pub(super) ports: Vec<Port>,
    pub(super) windows: Vec<CardWindow>,
    pub(super) far_windows: Vec<FarWindow>,
}

/// Pages of one migration chain where cards copy by themselves.
const FAR_CHAIN_PAGES: u32 = 1024;

/// A card that was found.
struct Found {
    frames: u32,
    far: Option<(Arc<dyn Transport>, Identity)>,
}

impl Found {
    /// Whether neither side reaches the other's memory but by messages.
    fn is_by_messages(&self) -> bool {
        self.far.as_ref().is_some_and(|(transport, _)| transport.is_by_messages())
    }

    /// Whether it tells which of its pages were used and written. Where a link is between, nothing is written to this side
    /// for a question only.
    fn tells(&self, in_program: Geometry) -> bool {
        match &self.far {
            None => in_program.table_pages > 0,
            Some((_, identity)) => {
                identity.capabilities & CAP_TABLES != 0 && !self.is_behind_link()
            }
        }
    }

    /// Whether pages are moved beside its rings, by a link.
    fn is_behind_link(&self) -> bool {
        self.far.as_ref().is_some_and(|(transport, _)| transport.mover().is_some())
    }
}

pub(super) fn assemble(config: &RuntimeConfig) -> Result<Parts, LiveError> {
    let arena = Arena::new(config.arena_bytes)?;
    if config.cards.iter().any(|place| matches!(place, CardPlace::Vfio(_))) {
        arena.keep_frames();
    }
    let found = find_cards(config)?;
    let frames: Vec<u32> = found.iter().map(|card| card.frames).collect();
    let mut driver = Config::embedded(arena.pages(), frames);
    driver.capabilities.host_read_only = arena.support().host_read_only;
    set_capabilities(&mut driver.capabilities, &found, config.peer);
    let numbered = (0u8..).map(CardId).zip(&found);
    let telling = numbered.filter(|(_, card)| card.tells(config.geometry));
    driver.capabilities.tells = telling.map(|(id, _)| id.memory()).collect();
    if found.iter().any(|card| card.far.is_some()) {
        // The card copies one piece while the host takes the next out of its mappings.
        driver.limits.chain_pages = FAR_CHAIN_PAGES;
    }
    (config.tune)(&mut driver);
    let bounces = &driver.capabilities;
    let bounces = (0..bounces.bounce_slots)
        .map(|_| CardMemory::new(bounces.bounce_pages))
        .collect::<Result<Vec<_>, _>>()?;
    let numbers = (0u8..).map(CardId);
    let own = window_frames(&config.window);
    let cards = numbers.zip(&found).map(|(id, card)| memory_of(id, card, own));
    let cards = cards.collect::<Result<Vec<_>, _>>()?;
    for memory in cards.iter().filter_map(Frames::mapped).filter(|_| config.warm) {
        memory.warm(FrameNo(0), memory.frames())?;
    }
    if config.core_dumps {
        arena.dump()?;
        cards.iter().filter_map(Frames::mapped).try_for_each(CardMemory::dump)?;
    }
    let memories = Memories::new(arena, cards, bounces);
    let map = match found.iter().any(|card| card.far.is_some()) {
        true => Some(Arc::new(bus_map(&memories, found.len())?)),
        false => None,
    };
    let mut ports = Vec::new();
    let mut windows = Vec::new();
    let mut far_windows = Vec::new();
    for (number, (card, place)) in found.into_iter().zip(&config.cards).enumerate() {
        let id = CardId(number as u8);
        ports.push(match card.far {
            None => {
                let pes = config.pes.saturating_add(SPARE_PES);
                let frames = with_own(id, card.frames, own)?;
                let soft = SoftCard::new(id, frames, pes, config.geometry)?;
                if !config.window.is_empty() {
                    windows.push(CardWindow::new(id, card.frames, &config.window)?);
                }
                lock(&soft.model).reach_memories();
                Port::InProgram(Arc::new(soft))
            }
            Some((transport, identity)) => {
                let map = map.as_ref().expect("there is one if a card is elsewhere");
                let sizes = identity.window.filter(|_| !transport.is_by_messages());
                let window = sizes.map(|sizes| FarWindow::new(id, sizes)).transpose()?;
                let base = window.as_ref().map(FarWindow::base);
                far_windows.extend(window);
                let sizes = CardSizes { frames: identity.frames, window: sizes.zip(base) };
                let ring = RingCard::new(id, place.clone(), Arc::clone(map), sizes);
                ring.take_up(&memories, transport, identity)?;
                Port::Ring(Arc::new(ring))
            }
        });
    }
    Ok(Parts { driver, memories, ports, windows, far_windows })
}

fn find_cards(config: &RuntimeConfig) -> Result<Vec<Found>, LiveError> {
    let find = |(place, number): (&CardPlace, u8)| match place {
        CardPlace::InProgram { frames } => Ok(Found { frames: *frames, far: None }),
        place => {
            let (transport, identity) = connect(CardId(number), place, PATIENCE)?;
            Ok(Found { frames: identity.frames, far: Some((transport, identity)) })
        }
    };
    config.cards.iter().zip(0u8..).map(find).collect()
}

/// The memory of a card; of one in the program with `own` frames behind those that the driver places.
fn memory_of(id: CardId, card: &Found, own: u64) -> Result<Frames, LiveError> {
    Ok(match &card.far {
        None => Frames::Mapped(CardMemory::new(with_own(id, card.frames, own)?)?),
        Some(_) if card.is_by_messages() => Frames::Beyond(card.frames),
        Some((transport, identity)) => {
            let frames = identity.all_frames();
            let bytes = u64::from(frames) * PAGE_SIZE as u64;
            let (file, offset) =
                transport.memory(bytes).map_err(|error| LiveError::Card { card: id, error })?;
            Frames::Mapped(CardMemory::over(file, offset, frames)?)
        }
    })
}

fn with_own(card: CardId, frames: u32, own: u64) -> Result<u32, LiveError> {
    let why = || "a card has at most 16 TiB of memory, its own included".to_owned();
    let all = u32::try_from(u64::from(frames) + own);
    all.map_err(|_| LiveError::Window { card, why: why() })
}

fn bus_map(memories: &Memories, cards: usize) -> Result<BusMap, LiveError> {
    let bytes = |frames: u32| u64::from(frames) * PAGE_SIZE as u64;
    let bounces: Vec<u64> = memories.bounces().iter().map(|slot| bytes(slot.frames())).collect();
    let of_card = |card: usize| bytes(memories.card(CardId(card as u8)).count());
    let cards: Vec<u64> = (0..cards).map(of_card).collect();
    let (arena, rings) = (memories.arena.pages().bytes(), Sizes::default().bytes());
    let all = || arena + bounces.iter().chain(&cards).sum::<u64>();
    BusMap::new(rings, arena, &bounces, &cards).ok_or_else(|| LiveError::TooLarge { bytes: all() })
}

/// Cards in other processes copy large pieces by themselves.
fn set_capabilities(table: &mut Capabilities, found: &[Found], peer: bool) {
    for (card, _) in found.iter().enumerate().filter(|(_, card)| card.far.is_some()) {
        table.dma_reaches[card] = table.maps[card + 1];
        table.dma_from_pages = DMA_FROM_PAGES;
    }
    if !peer {
        without_peers(table, found.len());
    }
    for (id, card) in (0u8..).map(CardId).zip(found).filter(|(_, card)| card.is_by_messages()) {
        if card.is_behind_link() {
            table.put_behind_link(id);
        } else {
            table.seclude(id);
        }
    }
}

/// Cards reach the host and themselves only.
fn without_peers(table: &mut Capabilities, cards: usize) {
    for card in 0..cards {
        let own = CardId(card as u8).memory();
        table.maps[card + 1] = MemorySet::only(MemoryId::HOST).with(own);
        table.dma_reaches[card] = table.dma_reaches[card].and(table.maps[card + 1]);
    }
    table.bounce_between_cards = true;
}
