//! Memory that the program had before: adopted, used by cards, given back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use farside::{
    AdoptError, Error, KernelContext, KernelError, LiveError, MemoryId, PageState, Read, ReadView,
    RequestError, Shared, Space, Write, WriteSpan, WriteView, placement,
};
use harness::live::{seconds, within};

const LIMIT: Duration = Duration::from_secs(60);
/// Words of a page.
const PAGE: usize = 512;

fn space(cards: usize) -> Space {
    Space::builder().cards(cards).card_memory(8 << 20).address_space(64 << 20).build().unwrap()
}

fn add_one(k: &mut KernelContext, data: WriteSpan<u64>) -> Result<(), KernelError> {
    k.with(data, |mut data: WriteView<u64>| data.iter_mut().for_each(|word| *word += 1))
}

/// Words that begin at a page.
struct Aligned {
    start: *mut u64,
    words: usize,
}

impl Aligned {
    fn new(pages: usize) -> Aligned {
        let words = pages * PAGE;
        let layout = std::alloc::Layout::from_size_align(words * 8, 4096).unwrap();
        // SAFETY: the size is not zero.
        Aligned { start: unsafe { std::alloc::alloc_zeroed(layout) }.cast(), words }
    }

    fn words(&mut self) -> &mut [u64] {
        // SAFETY: allocated for so many words, zeros or written since.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.words) }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        let layout = std::alloc::Layout::from_size_align(self.words * 8, 4096).unwrap();
        // SAFETY: allocated with the same.
        unsafe { std::alloc::dealloc(self.start.cast(), layout) };
    }
}

#[test]
fn pages_go_to_cards_and_come_back_under_every_scheme() {
    within(LIMIT, "schemes", || {
        for name in placement::NAMES {
            let space = Space::builder()
                .cards(3)
                .card_memory(4 << 20)
                .address_space(16 << 20)
                .placement(name)
                .build()
                .unwrap();
            let mut memory = Aligned::new(40);
            for (i, word) in memory.words().iter_mut().enumerate() {
                *word = i as u64;
            }
            let mut data = space.adopt(memory.words(), "mine").unwrap();
            for round in 0..3 {
                for card in space.cards() {
                    space.kernel("add").on(card).run(Write(&mut data), add_one).unwrap();
                }
                let more = (round + 1) * 3;
                for (i, word) in data.iter().enumerate() {
                    assert_eq!(*word, i as u64 + more, "{name}, word {i}");
                }
                space.check().unwrap();
            }
            assert!(space.report().stats.moves.values().sum::<u64>() > 0, "{name}");
            drop(data);
            assert!(memory.words().iter().zip(9..).all(|(word, i)| *word == i), "{name}");
        }
    });
}

#[test]
fn all_of_it_goes_to_a_card_and_home_when_it_is_told_to() {
    within(LIMIT, "migrate", || {
        let space = space(2);
        let (a, b) = (space.card(0).unwrap(), space.card(1).unwrap());
        let mut memory = Aligned::new(600);
        memory.words().iter_mut().zip(0..).for_each(|(word, i)| *word = i);
        let mut data = space.adopt(memory.words(), "mine").unwrap();
        assert_eq!(space.migrate(&data, a).unwrap(), 600);
        let parts = space.locate(&data).unwrap();
        assert_eq!((parts.len(), parts[0].state), (1, PageState::Card));
        assert_eq!(space.migrate(&data, b).unwrap(), 600);
        data[PAGE * 599] += 1;
        assert_eq!(space.migrate(&data, MemoryId::HOST).unwrap(), 599);
        space.check().unwrap();
        let words = data.release().unwrap();
        assert!(words.iter().zip(0..).all(|(&w, i)| w == i + u64::from(i == PAGE as u64 * 599)));
    });
}

#[test]
fn readers_have_copies_and_the_host_reads_its_own() {
    within(LIMIT, "readers", || {
        let space = Space::builder()
            .cards(2)
            .card_memory(4 << 20)
            .address_space(16 << 20)
            .placement("duplication")
            .build()
            .unwrap();
        let mut memory = Aligned::new(8);
        memory.words().fill(7);
        let mut data = space.adopt(memory.words(), "mine").unwrap();
        for card in space.cards() {
            let sum = space.kernel("farside.sum").on(card).call(Read(&data)).unwrap();
            assert_eq!(sum, 7 * 8 * PAGE as u64);
        }
        assert_eq!(data.iter().sum::<u64>(), 7 * 8 * PAGE as u64);
        let parts = space.locate(&data).unwrap();
        assert!(parts.iter().all(|part| part.state == PageState::Replicated), "{parts:?}");
        space.check().unwrap();
        // A write takes the copies away.
        data[3] = 8;
        let sum = space.kernel("farside.sum").on(space.card(1).unwrap()).call(Read(&data)).unwrap();
        assert_eq!(sum, 7 * 8 * PAGE as u64 + 1);
        space.check().unwrap();
    });
}

#[test]
fn a_vector_of_any_size_at_any_place_is_shared_to_its_last_byte_and_no_further() {
    within(LIMIT, "unaligned", || {
        let space = space(2);
        let mut seed = 1u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        for round in 0..60 {
            let mut all = vec![0xA5u8; 1 + next(40_000) as usize];
            let start = next(all.len() as u64) as usize;
            let len = 1 + next((all.len() - start) as u64) as usize;
            let before = all.clone();
            let card = space.card(round % 2).unwrap();
            let mut data = space.adopt(&mut all[start..start + len], "part").unwrap();
            let done = space.kernel("bytes").on(card).run(Write(&mut data), |k, mut bytes| {
                let half = bytes.len() / 2;
                k.with(bytes.slice(0..half), |mut view: WriteView<u8>| {
                    view.iter_mut().for_each(|byte| *byte ^= 0xFF);
                })?;
                for at in half..bytes.len() {
                    let byte = k.load(bytes.ptr(at))?;
                    k.store(bytes.ptr(at), byte ^ 0xFF)?;
                }
                Ok(())
            });
            done.unwrap();
            assert!(data.iter().all(|&byte| byte == 0x5A), "round {round}");
            space.check().unwrap();
            drop(data);
            for (at, (now, was)) in all.iter().zip(&before).enumerate() {
                let inside = (start..start + len).contains(&at);
                assert_eq!(
                    *now,
                    if inside { was ^ 0xFF } else { *was },
                    "round {round}, byte {at}"
                );
            }
        }
    });
}

#[test]
fn an_array_on_the_stack_can_be_shared() {
    within(LIMIT, "stack", || {
        let space = space(1);
        let mut words = [1u64; 5000];
        let mut data = space.adopt(&mut words, "stack").unwrap();
        for _ in 0..10 {
            space.kernel("add").run(Write(&mut data), add_one).unwrap();
        }
        drop(data);
        assert!(words.iter().all(|&word| word == 11));
    });
}

#[test]
fn what_cannot_be_adopted_is_refused_and_named_by_its_address() {
    within(LIMIT, "refused", || {
        let space = space(1);
        let mut buffer = space.alloc::<u64>(PAGE).unwrap();
        let refused = space.adopt(&mut buffer, "").unwrap_err();
        assert!(
            matches!(refused, Error::Live(LiveError::Adopt(AdoptError::NotPrivate { .. }))),
            "{refused}"
        );
        let refused = space.adopt::<u64>(&mut [], "").unwrap_err();
        assert!(
            matches!(refused, Error::Live(LiveError::Adopt(AdoptError::Empty { .. }))),
            "{refused}"
        );
        let mut memory = Aligned::new(4);
        let start = memory.start as usize;
        let shared = space.adopt(memory.words(), "").unwrap();
        // SAFETY: the same words; nobody touches them here.
        let same = unsafe { std::slice::from_raw_parts_mut(start as *mut u64, PAGE) };
        let again = space.adopt(same, "").unwrap_err();
        assert!(
            matches!(again, Error::Live(LiveError::Request(RequestError::InTheSpace { .. }))),
            "{again}"
        );
        let other = self::space(1);
        let again = other.adopt(same, "").unwrap_err();
        assert!(matches!(again, Error::Live(LiveError::Adopt(AdoptError::Uffd { .. }))), "{again}");
        assert!(again.to_string().contains(&format!("{start:#x}")), "{again}");
        drop(shared);
        drop(other.adopt(same, "").unwrap());
    });
}

/// Threads of the program add to words of their own while cards move the pages and add to theirs.
fn race(space: &Space, words: &[AtomicU64], seconds: Duration) -> (u64, u64) {
    let stop = AtomicBool::new(false);
    let (mut on_host, mut on_cards) = (0, 0);
    std::thread::scope(|threads| {
        let hosts: Vec<_> = (0..2)
            .map(|thread| {
                let stop = &stop;
                threads.spawn(move || {
                    let mut added = 0;
                    while !stop.load(Relaxed) {
                        for page in words.chunks(PAGE) {
                            page[thread].fetch_add(1, Relaxed);
                            added += 1;
                        }
                    }
                    added
                })
            })
            .collect();
        let end = std::time::Instant::now() + seconds;
        while std::time::Instant::now() < end {
            for card in space.cards() {
                on_cards += space
                    .kernel("add")
                    .on(card)
                    .run(Shared(words), |k, words| {
                        let mut added = 0u64;
                        for at in (7..words.len()).step_by(PAGE) {
                            k.fetch_add(words, at, 1)?;
                            added += 1;
                        }
                        Ok(added)
                    })
                    .unwrap();
            }
        }
        stop.store(true, SeqCst);
        on_host = hosts.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>();
    });
    (on_host, on_cards)
}

fn sums(words: &[AtomicU64]) -> (u64, u64) {
    let of = |at: usize| words.chunks(PAGE).map(|page| page[at].load(SeqCst)).sum::<u64>();
    (of(0) + of(1), of(7))
}

#[test]
fn no_write_is_lost_while_pages_move() {
    within(LIMIT, "race", || {
        for scheme in ["on-touch", "farside", "duplication"] {
            let space = Space::builder()
                .cards(2)
                .card_memory(1 << 20)
                .address_space(16 << 20)
                .placement(scheme)
                .build()
                .unwrap();
            let mut memory = Aligned::new(24);
            let data = space.adopt(memory.words(), "race").unwrap();
            // SAFETY: the words are shared as atomic ones from here on; the guard outlives them.
            let words = unsafe {
                std::slice::from_raw_parts(data.as_ptr().cast::<AtomicU64>(), data.len())
            };
            let added = race(&space, words, seconds());
            assert!(added.0 > 100 && added.1 > 100, "{scheme}: {added:?}");
            assert!(space.report().stats.moves.values().sum::<u64>() > 20, "{scheme}");
            assert_eq!(sums(words), added, "{scheme}");
            space.check().unwrap();
            drop(data);
            let words = memory.words();
            let of = |at: usize| words.chunks(PAGE).map(|page| page[at]).sum::<u64>();
            assert_eq!((of(0) + of(1), of(7)), added, "{scheme}, at home");
        }
    });
}

#[test]
fn views_of_readers_and_writers_agree_with_plain_memory() {
    within(LIMIT, "views", || {
        let space = space(2);
        let mut input = vec![3u32; 300_001];
        let mut output = vec![0u32; 300_001];
        let input = space.adopt(&mut input, "in").unwrap();
        let mut output = space.adopt(&mut output, "out").unwrap();
        let card = space.card(1).unwrap();
        space
            .kernel("triple")
            .on(card)
            .run((Read(&input), Write(&mut output)), |k, (from, mut to)| {
                for first in (0..from.len()).step_by(50_000) {
                    let range = first..from.len().min(first + 50_000);
                    k.with(
                        (from.slice(range.clone()), to.slice(range)),
                        |(from, mut to): (ReadView<u32>, WriteView<u32>)| {
                            to.iter_mut().zip(from.iter()).for_each(|(to, from)| *to = 3 * from);
                        },
                    )?;
                }
                Ok(())
            })
            .unwrap();
        assert!(output.iter().all(|&value| value == 9));
    });
}

#[test]
fn ranges_beside_each_other_have_nothing_to_do_with_each_other() {
    within(LIMIT, "beside", || {
        let space = Space::builder()
            .cards(1)
            .card_memory(4 << 20)
            .address_space(16 << 20)
            .placement("duplication")
            .build()
            .unwrap();
        let mut memory = Aligned::new(12);
        memory.words().fill(1);
        let (first, rest) = memory.words().split_at_mut(4 * PAGE);
        let (middle, last) = rest.split_at_mut(4 * PAGE);
        let first = space.adopt(first, "first").unwrap();
        let mut middle = space.adopt(middle, "middle").unwrap();
        let last = space.adopt(last, "last").unwrap();
        let sum = |words: &[u64]| space.kernel("farside.sum").call(Read(words)).unwrap();
        assert_eq!(sum(&middle), 4 * PAGE as u64);
        assert_eq!(middle.iter().sum::<u64>(), 4 * PAGE as u64, "the host has a copy");
        first.release().unwrap();
        last.release().unwrap();
        space.check().unwrap();
        // The card's copy goes with the host's write.
        middle[0] = 3;
        middle[4 * PAGE - 1] = 4;
        assert_eq!(sum(&middle), 4 * PAGE as u64 + 5);
        space.check().unwrap();
    });
}
