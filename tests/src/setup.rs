//! What a world is made with: a configuration, a scheme, knobs and a seed.

use farside_svm::placement::{self, Costs, ParameterKind, SchemeInfo};
use farside_svm::{Capabilities, Config, Eviction, KnownCosts, Mutation};
use farside_types::{BLOCK_PAGES, CardId, PageNo, PageRange, Span};

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
    /// The placement scheme, by name, with parameters if it has any.
    pub scheme: String,
    /// How often, in permille, a page is lent that a card reads and may have on loan, whatever the scheme says.
    pub lends: u32,
    /// Jobs of the random program change most of what they read.
    pub updates: bool,
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
    /// Pages of its own, behind the arena, that the program has adopted now and then.
    pub adoptable: u64,
}

impl Setup {
    /// Seeds in a row that meet every placement scheme with every way to reach a card.
    pub const ROUND: u64 = 3 * placement::NAMES.len() as u64;

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
            scheme: "on-touch".to_owned(),
            lends: 0,
            updates: false,
            hostility: Hostility::none(),
            mutation: None,
            behind_rings: Vec::new(),
            ring_mutation: None,
            streams: 4,
            adoptable: 0,
        }
    }

    /// The same with page DMA instead of a CPU that reaches everything.
    pub fn with_dma(card_frames: &[u32], peer: bool) -> Setup {
        let mut setup = Setup::plain(card_frames);
        setup.config.capabilities = Capabilities::with_dma(card_frames.len(), peer);
        setup.config.capabilities.bounce_pages = 8;
        setup
    }

    /// A world drawn by the seed. [`Setup::ROUND`] seeds in a row meet every scheme with every way to
    /// reach a card: from the CPU, by page DMA with peers, by page DMA through bounce buffers. In half of
    /// the latter the last of several cards shares no memory at all, and in half of those it is behind a
    /// link, as is the one before it of three or more, with a direct link between the two. Now and then a scheme has other
    /// parameters than its defaults.
    pub fn random(seed: u64, hostility: Hostility) -> Setup {
        let mut rng = Prng::new(seed.wrapping_mul(0x1234_5677));
        let frames: Vec<u32> = (0..rng.between(1, 4)).map(|_| rng.between(8, 48) as u32).collect();
        let schemes = placement::NAMES.len() as u64;
        let mut setup = match seed / schemes % 3 {
            0 => Setup::plain(&frames),
            1 => Setup::with_dma(&frames, true),
            _ => Setup::with_dma(&frames, false),
        };
        if let (2, 1, last @ 1..) = (seed / schemes % 3, seed / (3 * schemes) % 2, frames.len() - 1)
        {
            let (table, last) = (&mut setup.config.capabilities, CardId(last as u8));
            match seed / (6 * schemes) % 2 {
                0 => table.seclude(last),
                _ => {
                    table.put_behind_link(last);
                    // As small as these worlds are.
                    table.far_window_pages = 1 << (seed % 5);
                    if last.0 > 1 {
                        // The other is of another lender, and has a direct link to this one.
                        let other = CardId(last.0 - 1);
                        table.put_behind_link(other);
                        table.set_link(other, last, true);
                        table.set_link(last, other, seed % 2 == 0);
                    }
                }
            }
        }
        setup.seed = seed;
        setup.hostility = hostility;
        setup.scheme = draw_scheme(seed, placement::NAMES[(seed % schemes) as usize]);
        setup.config.keep_clean_copies = rng.chance(500);
        setup.config.capabilities.host_read_only = rng.chance(600);
        draw_limits(&mut rng, &mut setup.config);
        // By numbers of its own, so that worlds of old seeds are what they were but for this.
        setup.lends = draw_eviction(&mut Prng::new(!seed), &mut setup.config);
        setup.config.thrash.contests = seed / (12 * schemes) % 2 == 0;
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

    /// The same world where every card tells what it wrote, most of what may be lent is, and much of that is
    /// written.
    #[must_use]
    pub fn lending(mut self) -> Setup {
        let cards = (0..self.config.card_frames.len() as u8).map(|card| CardId(card).memory());
        self.config.capabilities.tells = cards.collect();
        self.lends = 800;
        self.updates = true;
        self
    }

    /// The same world under Farside's scheme with a driver that knows what an access to another memory takes: so little
    /// that pages stay where they are, or so much that they come, by the seed. Only the scheme brings neighbours.
    #[must_use]
    pub fn knowing_costs(mut self) -> Setup {
        self.scheme = "farside".to_owned();
        self.config.costs =
            KnownCosts::Far(Span::from_nanos(1 << (self.seed % 24)), 1 << (self.seed % 9));
        let prefetch = &mut self.config.prefetch;
        (prefetch.density_percent, prefetch.host_fault_around) = (100, 1);
        self
    }

    /// The same world under Farside's scheme, where a page is cheaper to bring than to reach over to for each of its lines.
    #[must_use]
    pub fn cheap_to_bring(mut self) -> Setup {
        self.scheme = "farside".to_owned();
        let (bring, far) = (Span::from_micros(4), Span::from_micros(1));
        let costs = Costs { bring, migration: bring, far, ..Costs::default() };
        self.config.costs = KnownCosts::Fixed(costs);
        self
    }

    /// The same world under Farside's scheme, where what cards read is copied to all of them at once, and copies fail more
    /// often if they do at all.
    #[must_use]
    pub fn reading_at_once(self) -> Setup {
        let mut setup = self.cheap_to_bring();
        setup.hostility.copy_failure *= 5;
        setup
    }

    /// The same world with a program that has memory of its own adopted and gives it back. The cards are in the program: the
    /// bus of those behind rings has no window to it.
    #[must_use]
    pub fn adopting(mut self) -> Setup {
        assert!(self.behind_rings.is_empty(), "cards behind rings do not reach it");
        self.adoptable = BLOCK_PAGES;
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
            "seed {} scheme {} costs {:?} adoptable {} lends {} tells {:?} frames {:?} keep_clean_copies {} host_read_only {} cpu reaches {:?} \
             dma {:?} limits {:?} {:?} {:?} rings {:?} mutation {:?} {:?} {:?}",
            self.seed,
            self.scheme,
            self.config.costs,
            self.adoptable,
            self.lends,
            table.tells,
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

/// The scheme, in half of the worlds with one or two parameters of those that it has.
fn draw_scheme(seed: u64, name: &str) -> String {
    // A stream of its own: what else the seed draws does not depend on the parameters there are.
    let mut rng = Prng::new(seed.wrapping_mul(0x7654_3211));
    let mut parameters = scheme(name).parameters;
    let count = if rng.chance(500) { rng.between(1, 2) } else { 0 };
    let mut drawn = Vec::new();
    while (drawn.len() as u64) < count && !parameters.is_empty() {
        let parameter = parameters.swap_remove(rng.below(parameters.len() as u64) as usize);
        drawn.push(format!("{}={}", parameter.key, draw_value(&mut rng, &parameter.kind)));
    }
    if drawn.is_empty() { name.to_owned() } else { format!("{name}:{}", drawn.join(",")) }
}

/// What is known of a scheme by this name.
fn scheme(name: &str) -> SchemeInfo {
    let known = placement::all().into_iter().find(|scheme| scheme.name == name);
    known.expect("the scheme has a known name")
}

/// The other way of a switch; a number of any order of magnitude.
fn draw_value(rng: &mut Prng, kind: &ParameterKind) -> String {
    match kind {
        ParameterKind::Switch { default: true, .. } => "off".to_owned(),
        ParameterKind::Switch { .. } => "on".to_owned(),
        ParameterKind::Number { within, .. } => {
            let (least, most) = (u64::from(*within.start()), u64::from(*within.end()));
            let magnitude = 1 << rng.between(0, u64::from(most.ilog2()));
            rng.between(least, (2 * magnitude).clamp(least, most)).to_string()
        }
        other => panic!("a kind of parameter that is drawn nowhere: {other:?}"),
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

/// Who leaves, which cards tell what is used and written, and how often pages are lent.
fn draw_eviction(rng: &mut Prng, config: &mut Config) -> u32 {
    config.eviction = if rng.chance(700) { Eviction::Lirs } else { Eviction::Clock };
    let cards = (0..config.card_frames.len() as u8).map(|card| CardId(card).memory());
    config.capabilities.tells = cards.filter(|_| rng.chance(500)).collect();
    if rng.chance(500) { 0 } else { rng.between(100, 1000) as u32 }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use farside_types::MemoryId;

    use super::*;

    #[test]
    fn every_parameter_of_every_scheme_is_drawn_and_so_are_the_defaults() {
        let seeds = 0..20 * Setup::ROUND;
        let worlds: Vec<Setup> = seeds.map(|s| Setup::random(s, Hostility::none())).collect();
        for name in placement::NAMES {
            assert!(worlds.iter().any(|setup| setup.scheme == name), "{name}");
            for parameter in scheme(name).parameters {
                let given = format!("{}=", parameter.key);
                let drawn = |setup: &&Setup| setup.scheme.starts_with(name);
                let mut of_scheme = worlds.iter().filter(drawn);
                assert!(of_scheme.any(|setup| setup.scheme.contains(&given)), "{name}: {given}");
            }
        }
        for setup in worlds {
            assert!(placement::by_name(&setup.scheme).is_ok(), "{}", setup.scheme);
        }
    }

    #[test]
    fn equal_seeds_draw_equal_worlds() {
        let draw = |seed| Setup::random(seed, Hostility::reordering()).describe();
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }

    #[test]
    fn every_scheme_is_drawn_with_every_way_to_reach_a_card() {
        let seeds = 24..24 + Setup::ROUND;
        let worlds: Vec<Setup> = seeds.map(|s| Setup::random(s, Hostility::none())).collect();
        let mut met = BTreeSet::new();
        for setup in &worlds {
            let name = setup.scheme.split(':').next().unwrap_or_default();
            let table = &setup.config.capabilities;
            met.insert((name, format!("{:?} {:?}", table.cpu_reaches, table.dma_reaches[0])));
        }
        for name in placement::NAMES {
            assert_eq!(met.iter().filter(|(scheme, _)| *scheme == name).count(), 3, "{met:?}");
        }
        assert!(worlds.iter().any(|setup| setup.config.card_frames.len() == 4));
        let shares_nothing = |setup: &Setup| {
            let cards = setup.config.card_frames.len();
            !setup.config.capabilities.can_map(CardId(cards as u8 - 1).agent(), MemoryId::HOST)
        };
        let more = (0..4 * Setup::ROUND).map(|seed| Setup::random(seed, Hostility::none()));
        assert!(more.filter(shares_nothing).count() > 4);
    }
}
