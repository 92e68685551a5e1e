//! A space is closed while a kernel hangs that has own memory of a card in the program. One test: it counts what the
//! process has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{Backing, Error, KernelError, Space, Write, WriteSpan};
use farside_types::Span;

const WORDS: usize = 512;
const LIMIT: Duration = Duration::from_secs(20);

/// Descriptors and mappings of memory files that this process has.
fn kept() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
    (files, maps.lines().filter(|line| line.contains("memfd")).count())
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What a hung kernel has, of its own and lent, is its own until it ends, also when program and space have left both: it
/// writes there and finds what it has written. When it ends, all of it is given back.
#[test]
fn what_a_hung_kernel_has_outlives_its_space_and_goes_when_it_ends() {
    let before = kept();
    let grace = Duration::from_millis(10);
    let builder = Space::builder().cards(2).card_window(1 << 20).address_space(4 << 20);
    let tuned = builder.grace(grace).tune(|config| config.limits.drain = Span::from_millis(100));
    let space = tuned.build().unwrap();
    let card = space.card(0).unwrap();
    let mut lent = space.alloc_on::<u64>(card, WORDS, Backing::Eager).unwrap();
    let (stop, is_wrong) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let turns = Arc::new(AtomicU64::new(0));
    let kernel = {
        let (stop, is_wrong, turns) = (stop.clone(), is_wrong.clone(), turns.clone());
        move |kernel: &mut farside::KernelContext, lent: WriteSpan<u64>| {
            let own = kernel.alloc::<u64>(WORDS, Backing::Eager)?;
            kernel.with((lent, own), |(mut lent, mut own)| {
                for turn in 1u64.. {
                    if stop.load(SeqCst) {
                        return;
                    }
                    lent.iter_mut().chain(own.iter_mut()).for_each(|word| *word = turn);
                    std::thread::yield_now();
                    let is_right = lent.iter_mut().chain(own.iter_mut()).all(|word| *word == turn);
                    is_wrong.fetch_or(!is_right, SeqCst);
                    turns.store(turn, SeqCst);
                }
            })
        }
    };
    let launch = space.kernel("hang").on(card).time_limit(grace);
    let hung = launch.run(Write(lent.host_mut().unwrap()), kernel);
    assert!(matches!(hung, Err(Error::Kernel(KernelError::Hung { .. }))), "{hung:?}");

    // The memory of the card is never given to anybody else, and nobody waits for it for ever.
    drop(lent);
    assert!(space.alloc_on::<u64>(card, 1, Backing::Eager).is_err());
    let other = space.alloc_on::<u64>(space.card(1).unwrap(), 1, Backing::Eager);
    drop(other.expect("the other card gives memory"));
    drop(space);
    let at_closing = turns.load(SeqCst);
    wait_for("the kernel goes on", || turns.load(SeqCst) > at_closing + 100);
    assert!(!is_wrong.load(SeqCst), "its memory is another's");
    assert!(kept() > before, "it is still there");
    stop.store(true, SeqCst);
    wait_for("what the kernel had is given back", || kept() == before);
}
