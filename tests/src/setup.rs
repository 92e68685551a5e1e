//! What a world is made with: a configuration, a scheme, knobs and a seed.

use farside_svm::{Capabilities, Config, Mutation, placement};
use farside_types::{PageNo, PageRange, Span};

use crate::hostility::Hostility;
use crate::port::RingMutation;
use crate::prng::Prng;

/// First page of every arena: an address that is a multiple of a block and not 0.
pub const ARENA_START: PageNo = PageNo(512 * 64);

/// Pages of every arena.
pub const ARENA_PAGES: u64 = 1024;

/// Everything that makes a run what it is.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Seed of all chances.
    pub seed: u64,
    /// The driver's configuration.
    pub config: Config,
    /// The placement scheme, by name.
    pub scheme: &'static str,
    /// The knobs of the machine.
    pub hostility: Hostility,
    /// The rule that the driver breaks, if any.
    pub mutation: Option<Mutation>,
    /// Which cards are behind registers and rings, by number; the others are in the program.
    pub behind_rings: Vec<bool>,
    /// The rule of the ring protocol that is broken, if any.
    pub ring_mutation: Option<RingMutation>,
    /// Streams of the random program.
    pub streams: u64,
}

impl Setup {
    /// A friendly world of these cards, in the program, with on-touch placement and without
    /// prefetch: for scenarios.
    pub fn plain(card_frames: &[u32]) -> Setup {
        let arena = PageRange::new(ARENA_START, ARENA_PAGES);
        let mut config = Config::embedded(arena, card_frames.to_vec());
        config.prefetch.host_fault_around = 1;
        config.prefetch.density_percent = 100;
        config.limits.drain = Span::from_millis(2);
        config.limits.copy = Span::from_millis(5);
        config.capabilities.bounce_pages = 8;
        Setup {
            seed: 1,
            config,
            scheme: "on-touch",
            hostility: Hostility::none(),
            mutation: None,
            behind_rings: Vec::new(),
            ring_mutation: None,
            streams: 4,
        }
    }

    /// The same with page DMA instead of a CPU that reaches everything.
    pub fn with_dma(card_frames: &[u32], peer: bool) -> Setup {
        let mut setup = Setup::plain(card_frames);
        setup.config.capabilities = Capabilities::with_dma(card_frames.len(), peer);
        setup.config.capabilities.bounce_pages = 8;
        setup
    }

    /// A world drawn by the seed. Three times as many seeds in a row as there are schemes meet every
    /// scheme with every way to reach a card: from the CPU, by page DMA with peers, by page DMA through bounce buffers.
    pub fn random(seed: u64, hostility: Hostility) -> Setup {
        let mut rng = Prng::new(seed.wrapping_mul(0x1234_5677));
        let frames: Vec<u32> = (0..rng.between(1, 4)).map(|_| rng.between(8, 48) as u32).collect();
        let schemes = placement::NAMES.len() as u64;
        let mut setup = match seed / schemes % 3 {
            0 => Setup::plain(&frames),
            1 => Setup::with_dma(&frames, true),
            _ => Setup::with_dma(&frames, false),
        };
        setup.seed = seed;
        setup.hostility = hostility;
        setup.scheme = placement::NAMES[(seed % schemes) as usize];
        setup.config.keep_clean_copies = rng.chance(500);
        setup.config.capabilities.host_read_only = rng.chance(600);
        draw_limits(&mut rng, &mut setup.config);
        setup
    }

    /// [`Setup::random`], with cards behind registers and rings: all of them, or all but the first.
    pub fn random_rings(seed: u64, hostility: Hostility) -> Setup {
        let mut setup = Setup::random(seed, hostility);
        let cards = setup.config.card_frames.len();
        setup.behind_rings =
            (0..cards).map(|card| card > 0 || seed % 3 > 0 || cards == 1).collect();
        // Each way to a card and back takes some steps, and waits for its turn in small rings.
        setup.config.limits.drain = Span::from_millis(6);
        setup.config.limits.copy = Span::from_millis(12);
        setup.streams = 12;
        setup
    }

    /// The same world with jobs enough to fill a ring with faults, which is rare otherwise.
    #[must_use]
    pub fn crowded(mut self) -> Setup {
        self.streams = 40;
        self
    }

    /// The same world with a broken rule of the ring protocol.
    #[must_use]
    pub fn ring_mutated(mut self, mutation: RingMutation) -> Setup {
        self.ring_mutation = Some(mutation);
        self
    }

    /// The same world with a broken rule.
    #[must_use]
    pub fn mutated(mut self, mutation: Mutation) -> Setup {
        self.mutation = Some(mutation);
        self
    }

    /// In one line, for the log.
    pub(crate) fn describe(&self) -> String {
        let table = &self.config.capabilities;
        format!(
            "seed {} scheme {} frames {:?} keep_clean_copies {} host_read_only {} cpu reaches {:?} \
             dma {:?} limits {:?} {:?} {:?} rings {:?} mutation {:?} {:?} {:?}",
            self.seed,
            self.scheme,
            self.config.card_frames,
            self.config.keep_clean_copies,
            table.host_read_only,
            table.cpu_reaches,
            &table.dma_reaches[..self.config.card_frames.len()],
            self.config.limits,
            self.config.prefetch,
            self.config.thrash,
            self.behind_rings,
            self.mutation,
            self.ring_mutation,
            self.hostility
        )
    }
}

/// Small limits, so that each is met now and then.
fn draw_limits(rng: &mut Prng, config: &mut Config) {
    let limits = &mut config.limits;
    limits.fault_batch = rng.between(1, 16) as usize;
    limits.group_pages = 6;
    limits.chain_pages = 1 << rng.between(0, 5);
    limits.chains = rng.between(2, 32) as usize;
    limits.faults = 64;
    limits.requests = 24;
    limits.evict_pages = rng.between(1, 8) as u32;
    limits.history = 64;
    config.prefetch.host_fault_around = 1 << rng.between(0, 4);
    config.prefetch.density_percent = if rng.chance(500) { 51 } else { 100 };
    config.prefetch.density_leaf_pages = 1 << rng.between(0, 4);
    config.thrash.pin_for = Span::from_micros(2_000);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_draw_equal_worlds() {
        let draw = |seed| Setup::random(seed, Hostility::rude()).describe();
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }

    #[test]
    fn every_scheme_is_drawn_with_every_way_to_reach_a_card() {
        let seeds = 24..24 + 3 * placement::NAMES.len() as u64;
        let worlds: Vec<Setup> = seeds.map(|s| Setup::random(s, Hostility::none())).collect();
        for name in placement::NAMES {
            assert!(worlds.iter().any(|setup| setup.scheme == name), "{name}");
        }
        assert!(worlds.iter().any(|setup| setup.config.capabilities.cpu_reaches.len() == 1));
        assert!(worlds.iter().any(|setup| setup.config.card_frames.len() == 4));
    }
}
