//! Threads of the program and a kernel on every card write to the same pages while these move about.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{Advice, AgentId, Buffer, CardId, MemoryId, Shared, Space, SpaceBuilder, Value};

use super::served::test_kernels;
use crate::Prng;

/// Words of a page.
const PAGE: usize = 512;
/// Threads of the program that write.
const THREADS: usize = 2;
/// Increments of one kernel.
const TURNS: u64 = 200;

fn below(rng: &mut Prng, end: usize) -> usize {
    rng.below(end as u64) as usize
}

/// The pages, who moves them, and when to stop.
#[derive(Debug)]
pub struct Race {
    space: Space,
    words: Buffer<AtomicU64>,
    pages: usize,
    /// What runs on the cards.
    kernel: &'static str,
    stop: AtomicBool,
}

impl Race {
    /// `pages` pages under a placement scheme. They are to have twice the room of a card, so that
    /// evictions happen all the time.
    pub fn new(builder: SpaceBuilder, scheme: &str, pages: usize) -> Race {
        let builder = builder.address_space(16 << 20).placement(scheme).kernels(test_kernels());
        let space = builder.build().expect("a space of these cards");
        let words = space.alloc_atomic(pages * PAGE, "fought over").expect("room for the pages");
        Race { space, words, pages, kernel: "test.race", stop: AtomicBool::new(false) }
    }

    /// The same where kernels use nothing but runs of words.
    #[must_use]
    pub fn by_runs(self) -> Race {
        Race { kernel: "test.race_runs", ..self }
    }

    /// The space, to be looked at or broken.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// A thread of the program: increments the first word of a page, which all share, and its own
    /// word beside it, until told to stop. Gives how often.
    fn thread(&self, agent: usize) -> u64 {
        let mut rng = Prng::new(agent as u64 + 77);
        let mut count = 0;
        while !self.stop.load(SeqCst) {
            let page = below(&mut rng, self.pages) * PAGE;
            self.words[page].fetch_add(1, SeqCst);
            // Load and store: no other agent touches this word, only its page.
            let own = &self.words[page + agent];
            own.store(own.load(SeqCst) + 1, SeqCst);
            count += 1;
        }
        count
    }

    /// The same, by a kernel that runs on any card.
    fn kernel(&self, card: CardId, agent: usize) -> u64 {
        let (mut count, mut seed) = (0, agent as u64);
        while !self.stop.load(SeqCst) {
            seed += 1;
            let args = (Shared(&self.words[..]), Value(agent as u64), Value(TURNS), Value(seed));
            let done = self.space.kernel(self.kernel).on(card).call(args);
            count += done.expect("a kernel of the race ends well");
        }
        count
    }

    /// Moves pages about at random until told to stop.
    fn shake(&self, seed: u64) {
        let mut rng = Prng::new(seed);
        let cards = self.space.cards().len();
        while !self.stop.load(SeqCst) {
            let from = below(&mut rng, self.pages);
            let to = from + 1 + below(&mut rng, (self.pages - from).min(12));
            let part = &self.words[from * PAGE..to * PAGE];
            let memory = MemoryId(below(&mut rng, cards + 1) as u8);
            // A full card refuses: that is fine, as long as it says so.
            let _ = match below(&mut rng, 9) {
                0..=3 => self.space.migrate(part, memory).map(drop),
                4 => self.space.prefetch(part, memory).map(drop),
                5 => self.space.advise(part, Advice::ReadMostly(below(&mut rng, 2) == 0)),
                6 => {
                    let agent = AgentId(below(&mut rng, cards + 1) as u8);
                    self.space.advise(part, Advice::AccessedBy(agent, below(&mut rng, 2) == 0))
                }
                7 => {
                    self.forget_mappings(part);
                    Ok(())
                }
                _ => self.space.trim(),
            };
        }
    }

    /// What a program may do by itself: MADV_DONTNEED drops the mappings of shared memory; the
    /// bytes stay (invariant 20).
    fn forget_mappings(&self, part: &[AtomicU64]) {
        let start = part.as_ptr().cast_mut().cast();
        // SAFETY: the range is part of a live allocation, which begins and ends with pages; on a
        // shared file mapping the call changes no byte.
        let outcome = unsafe { libc::madvise(start, size_of_val(part), libc::MADV_DONTNEED) };
        assert_eq!(outcome, 0);
    }

    /// Runs the threads, a kernel on every card and the shaker for a while; says what is missing
    /// afterwards, or how often each agent incremented.
    ///
    /// # Errors
    /// What was lost.
    pub fn run(&self, time: Duration) -> Result<Vec<u64>, String> {
        self.run_until(time, || true)
    }

    /// The same for at least that while, and until `is_enough`, for a minute more at most.
    ///
    /// # Errors
    /// What was lost.
    pub fn run_until(
        &self,
        time: Duration,
        is_enough: impl Fn() -> bool,
    ) -> Result<Vec<u64>, String> {
        let cards = self.space.cards().len();
        let counts: Vec<u64> = std::thread::scope(|s| {
            let mut agents = Vec::new();
            for agent in 1..=THREADS {
                agents.push(s.spawn(move || self.thread(agent)));
            }
            for card in 0..cards {
                let agent = 1 + THREADS + card;
                agents.push(s.spawn(move || self.kernel(CardId(card as u8), agent)));
            }
            let shaker = s.spawn(|| self.shake(5));
            std::thread::sleep(time);
            let end = Instant::now() + Duration::from_secs(60);
            while !is_enough() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(20));
            }
            self.stop.store(true, SeqCst);
            shaker.join().expect("the shaker goes on to the end");
            agents.into_iter().map(|agent| agent.join().expect("an agent goes on")).collect()
        });
        let sum = |slot: usize| -> u64 {
            (0..self.pages).map(|page| self.words[page * PAGE + slot].load(SeqCst)).sum()
        };
        for (agent, &count) in counts.iter().enumerate() {
            let found = sum(agent + 1);
            if found != count {
                return Err(format!("agent {agent} counted {count}, its words say {found}"));
            }
        }
        let (all, found) = (counts.iter().sum::<u64>(), sum(0));
        if found != all {
            return Err(format!("all agents together counted {all}, the words say {found}"));
        }
        Ok(counts)
    }
}
