//! What a driver is made with. Immutable afterwards.

use farside_types::{BLOCK_PAGES, MAX_CARDS, PageRange, Span};
use thiserror::Error;

use crate::Capabilities;
use crate::placement::Costs;

/// What a driver is made with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The pages that may be allocated. At most 2^32 pages; starts at a multiple of a block.
    pub arena: PageRange,
    /// Frames of each card.
    pub card_frames: Vec<u32>,
    /// What the machine can do.
    pub capabilities: Capabilities,
    /// Bounds on everything that could grow.
    pub limits: Limits,
    /// What happens when agents fight over a page.
    pub thrash: ThrashConfig,
    /// What is brought along with a fault.
    pub prefetch: PrefetchConfig,
    /// Which pages leave a full card.
    pub eviction: Eviction,
    /// Keep the host's frame as a clean copy when a card reads a page (it can then leave the card
    /// without a copy). The card gets a second, cheap fault on its first write.
    pub keep_clean_copies: bool,
    /// What the scheme is told of costs.
    pub costs: KnownCosts,
}

/// What the scheme is told of what things cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KnownCosts {
    /// Nothing: no one knows what an access to another memory takes.
    #[default]
    None,
    /// What an access of a card to another memory takes, and how many a card has under way at once
    /// ([`Costs::at_once`]); what it takes to bring a page is measured.
    Far(Span, u32),
    /// These, for machines without time.
    Fixed(Costs),
}

/// Which pages leave a full card first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Eviction {
    /// A hand that goes round: who was not mapped, or asked for its translation, since it last passed
    /// (second chance; Corbató 1968). A scan of more than fits takes everything with it.
    Clock,
    /// Who came last and was not used again, in shorter time than others: LIRS (Jiang and Zhang, SIGMETRICS
    /// 2002), by what cards tell of the use of their pages. Scans spare what fits.
    Lirs,
}

/// Bounds.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Faults served together (NVIDIA's driver: 256).
    pub fault_batch: usize,
    /// Pages of one grouped fault.
    pub group_pages: u64,
    /// Pages of one migration chain; a longer request is several chains.
    pub chain_pages: u32,
    /// Chains at a time. Beyond it faults and requests wait their turn.
    pub chains: usize,
    /// Open faults at a time. Beyond it a fault is cancelled.
    pub faults: usize,
    /// Open requests at a time. Beyond it a request fails at once.
    pub requests: usize,
    /// How often a fault whose copy fails is tried.
    pub attempts: u8,
    /// Pages evicted at once when a card is full, at most; an eighth of its memory if that is less.
    pub evict_pages: u32,
    /// How long an awaited drain may take.
    pub drain: Span,
    /// How long an awaited copy may take.
    pub copy: Span,
    /// Records of the whole space's history that are kept.
    pub history: usize,
}

/// What happens when agents fight over a page: throttle first, then pin (driver rule 10; defaults
/// after NVIDIA's driver).
#[derive(Clone, Copy, Debug)]
pub struct ThrashConfig {
    /// Two moves nearer to each other than this are part of a fight.
    pub window: Span,
    /// From this many moves in a row on the page rests where it is for `minimum_residency`.
    pub throttle_after: u8,
    /// How long it rests.
    pub minimum_residency: Span,
    /// From this many moves in a row on the page is pinned and mapped remotely, where the agents
    /// can. At most 15.
    pub pin_after: u8,
    /// How long such a pin lasts.
    pub pin_for: Span,
    /// Settle what running cards fight over by allocations: its pages are mapped where they are,
    /// however long each of them rested.
    pub contests: bool,
}

/// What is brought along with a fault.
#[derive(Clone, Copy, Debug)]
pub struct PrefetchConfig {
    /// Host faults bring the aligned window of this many pages (a power of two; 1: only the page), if the host
    /// has one of them, or one next to them, mapped: else only the page.
    pub host_fault_around: u32,
    /// A card's fault brings the largest subtree of its block that is to be more than this full,
    /// in percent (NVIDIA's driver: 51). 100 and above: only the faulted pages.
    pub density_percent: u8,
    /// Leaf of that tree in pages (NVIDIA's driver: 16, that is 64 KiB).
    pub density_leaf_pages: u32,
}

impl Config {
    /// A configuration with the defaults for cards in the program.
    pub fn embedded(arena: PageRange, card_frames: Vec<u32>) -> Config {
        Config {
            arena,
            capabilities: Capabilities::embedded(card_frames.len()),
            card_frames,
            limits: Limits::default(),
            thrash: ThrashConfig::default(),
            prefetch: PrefetchConfig::default(),
            eviction: Eviction::Lirs,
            keep_clean_copies: true,
            costs: KnownCosts::None,
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            fault_batch: 256,
            group_pages: 4 * BLOCK_PAGES,
            chain_pages: 16 * BLOCK_PAGES as u32,
            chains: 1 << 16,
            faults: 1 << 20,
            requests: 1 << 16,
            attempts: 3,
            evict_pages: BLOCK_PAGES as u32,
            drain: Span::from_millis(2_000),
            copy: Span::from_millis(10_000),
            history: 4096,
        }
    }
}

impl Default for ThrashConfig {
    fn default() -> ThrashConfig {
        ThrashConfig {
            window: Span::from_micros(500),
            throttle_after: 3,
            minimum_residency: Span::from_micros(100),
            pin_after: 10,
            pin_for: Span::from_millis(50),
            contests: true,
        }
    }
}

impl Default for PrefetchConfig {
    fn default() -> PrefetchConfig {
        PrefetchConfig { host_fault_around: 16, density_percent: 51, density_leaf_pages: 16 }
    }
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The arena is empty, too large or not aligned.
    #[error("the arena {arena} must have 1 to 2^32 pages and start at a multiple of 512 pages")]
    Arena {
        /// The arena given.
        arena: PageRange,
    },
    /// Too many cards.
    #[error("{cards} cards were given; a space has at most {max}", max = MAX_CARDS)]
    TooManyCards {
        /// Cards given.
        cards: usize,
    },
    /// A value that cannot work.
    #[error("{name} is {value}, which cannot work: {why}")]
    Value {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: u64,
        /// Why not.
        why: &'static str,
    },
}

impl Config {
    /// Names the first value that cannot work.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let arena = self.arena;
        let aligned = arena.start.0 % BLOCK_PAGES == 0;
        if !(1..=1 << 32).contains(&arena.count) || !aligned || arena.start.0 >= 1 << 51 {
            return Err(ConfigError::Arena { arena });
        }
        if self.card_frames.len() > MAX_CARDS {
            return Err(ConfigError::TooManyCards { cards: self.card_frames.len() });
        }
        let value = |name, value, why| Err(ConfigError::Value { name, value, why });
        let limits = &self.limits;
        if let Some(&frames) = self.card_frames.iter().find(|&&n| n == 0 || n >= 1 << 31) {
            return value("card_frames", frames.into(), "a card has 1 to 2^31 - 1 frames");
        }
        let around = self.prefetch.host_fault_around;
        if !around.is_power_of_two() || u64::from(around) > BLOCK_PAGES {
            return value("host_fault_around", around.into(), "it is a power of two up to 512");
        }
        let leaf = self.prefetch.density_leaf_pages;
        if !leaf.is_power_of_two() || u64::from(leaf) > BLOCK_PAGES {
            return value("density_leaf_pages", leaf.into(), "it is a power of two up to 512");
        }
        let window = self.capabilities.far_window_pages;
        if !window.is_power_of_two() || u64::from(window) > BLOCK_PAGES {
            return value("far_window_pages", window.into(), "it is a power of two up to 512");
        }
        if self.thrash.pin_after > 15 {
            let moves = self.thrash.pin_after.into();
            return value("pin_after", moves, "moves are counted up to 15");
        }
        let least_one = [
            ("fault_batch", limits.fault_batch as u64),
            ("group_pages", limits.group_pages),
            ("chain_pages", limits.chain_pages.into()),
            ("chains", limits.chains as u64),
            ("faults", limits.faults as u64),
            ("requests", limits.requests as u64),
            ("evict_pages", limits.evict_pages.into()),
            ("bounce_pages", self.capabilities.bounce_pages.into()),
            ("bounce_slots", self.capabilities.bounce_slots.into()),
        ];
        if let Some((name, zero)) = least_one.into_iter().find(|(_, n)| *n == 0) {
            return value(name, zero, "it is at least 1");
        }
        if limits.chains >= 1 << 24 {
            return value("chains", limits.chains as u64, "there are at most 2^24 - 1");
        }
        Ok(())
    }
}
