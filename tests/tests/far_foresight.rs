//! What a program on a far card does not wait for: what its kernels are believed to need goes in front of a
//! launch, what they are believed to make comes with its completion, and their names are known.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farside::{Buffer, CardId, Kernels, MemoryId, Read, Shared, Space, Value, Write};
use farside_softcard::serve::CardConfig;
use harness::live::served::{FarHost, FarPair, TcpRelay, TempDir, builder_at, config, serve};
use harness::live::within;

const LIMIT: Duration = Duration::from_secs(120);
/// How long a machine may be too busy for what is in time else.
const BUSY: Duration = Duration::from_secs(30);
/// Words of a page.
const PAGE: usize = 512;

const FAR: CardId = CardId(0);
const NEAR: CardId = CardId(1);

/// Looks at costs until they are as they should be, in new spaces: a launch waits only so long for what is brought
/// in front of it, and on a machine that is busy that may be late.
fn soon<T: PartialEq + std::fmt::Debug>(wanted: &T, costs: impl Fn(&Space) -> T) {
    let end = Instant::now() + BUSY;
    let mut seen = Vec::new();
    while seen.len() < 5 || Instant::now() < end {
        let pair = FarPair::new();
        let space = pair.builder().build().unwrap();
        let costs = costs(&space);
        space.check().unwrap();
        if costs == *wanted {
            return;
        }
        seen.push(costs);
    }
    panic!("{seen:?}, never {wanted:?}");
}

/// Faults of the far card's kernels, and pages that it was given, while something is done.
fn faults_and_pages(space: &Space, act: impl FnOnce()) -> (u64, u64) {
    let look = || {
        let stats = space.report().stats;
        let into = stats.moves.iter().filter(|((_, to), _)| *to == FAR.memory());
        (stats.card_faults, into.map(|(_, pages)| *pages).sum::<u64>())
    };
    let before = look();
    act();
    let after = look();
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn what_a_kernel_needed_before_is_brought_in_front_of_its_next_launch() {
    within(LIMIT, "foresight", || {
        soon(&[(0, 300); 3], |space| {
            // Buffers in turns, as programs pass them.
            let mut buffers = [0, 1].map(|_| space.alloc::<u64>(300 * PAGE).unwrap());
            let mut round = |at: usize| {
                buffers[at].fill(at as u64);
                let cost = faults_and_pages(space, || increment(space, &mut buffers[at]));
                assert!(buffers[at].iter().all(|&word| word == at as u64 + 1));
                cost
            };
            let (faults, pages) = round(0);
            assert!(faults > 0 && pages >= 300, "{faults} faults, {pages} pages");
            [1, 0, 1].map(&mut round)
        });
        // The control: a card of this machine faults on what it has not.
        let pair = FarPair::new();
        let space = pair.builder().build().unwrap();
        let mut other = space.alloc::<u64>(20 * PAGE).unwrap();
        for _ in 0..3 {
            other.fill(1);
            let mut near = || space.kernel("farside.increment").on(NEAR).call(Write(&mut other));
            assert!(faults_and_pages(&space, || near().map(drop).unwrap()).0 > 0);
        }
    });
}

#[test]
fn what_a_kernel_does_not_need_is_brought_a_few_times_and_no_more() {
    within(LIMIT, "wrong foresight", || {
        let pair = FarPair::new();
        let space = pair.builder().build().unwrap();
        let mut data = space.alloc::<u64>(4 * PAGE).unwrap();
        let mut brought = Vec::new();
        for value in 0..16 {
            data.fill(value);
            let (_, pages) = faults_and_pages(&space, || {
                // It looks at none of its arguments.
                space.kernel("test.fail").on(FAR).call(Write(&mut data)).unwrap_err();
            });
            brought.push(pages);
        }
        assert_eq!(brought[0], 4, "it may need what is its own");
        // Where pages go to and fro they are left where they are for a while.
        assert!(brought.iter().sum::<u64>() <= 8 * 4, "{brought:?}");
        assert_eq!(brought[12..], [0; 4], "{brought:?}");
    });
}

#[test]
fn what_is_small_is_there_before_a_kernel_asks_for_it_also_what_was_never_passed_before() {
    within(LIMIT, "small arguments", || {
        soon(&[(0, 20), (0, 40)], |space| {
            let mut small = space.alloc::<u64>(40 * PAGE).unwrap();
            let costs = [20, 40].map(|pages| {
                small.fill(3);
                faults_and_pages(space, || increment(space, &mut small[..pages * PAGE]))
            });
            assert!(small.iter().all(|&word| word == 4));
            costs
        });
        // The control: what is large is not believed to be needed.
        let pair = FarPair::new();
        let space = pair.builder().build().unwrap();
        let mut large = space.alloc::<u64>(100 * PAGE).unwrap();
        large.fill(3);
        assert!(faults_and_pages(&space, || increment(&space, &mut large)).0 > 0);
    });
}

#[test]
fn what_is_only_read_is_copied_and_others_keep_it() {
    within(LIMIT, "copies for readers", || {
        let wanted = [(0, 20), (0, 0), (0, 0), (0, 0), (0, 0)];
        soon(&wanted, |space| {
            let mut data = space.alloc::<u64>(20 * PAGE).unwrap();
            data.fill(3);
            let sum = |card| {
                let mut sum = 0;
                let cost = faults_and_pages(space, || {
                    sum = space.kernel("farside.sum").on(card).call(Read(&data)).unwrap();
                });
                assert_eq!(sum, 3 * 20 * PAGE as u64);
                cost
            };
            assert!(sum(NEAR).0 > 0, "it has nothing yet");
            let costs = [FAR, NEAR, FAR, NEAR, FAR].map(sum);
            // Whoever writes has the only copy.
            data[0] = 4;
            let sum = space.kernel("farside.sum").on(FAR).call(Read(&data)).unwrap();
            assert_eq!(sum, 60 * PAGE as u64 + 1);
            costs
        });
    });
}

/// How long each of these kernels takes that were never launched, the shortest of them.
fn first_launches(space: &Space, kernels: [&str; 3]) -> Duration {
    let launch = |name: &str| {
        let begun = Instant::now();
        space.kernel(name).on(FAR).call(()).unwrap();
        begun.elapsed()
    };
    kernels.map(launch).into_iter().min().expect("there are some")
}

#[test]
fn kernels_are_looked_up_before_they_are_launched() {
    within(LIMIT, "look-up", || {
        let names = ["test.first", "test.second", "test.third"];
        let table = || {
            let add = |table: Kernels, name| table.with(name, |_, _| Ok(0)).expect("a new name");
            names.into_iter().fold(Kernels::builtin(), add)
        };
        let folder = TempDir::new();
        let card = serve(CardConfig { kernels: Arc::new(table()), ..config(&folder, 0) });
        let host = FarHost::start(folder.join("host"), &card.config().folder);
        let delay = Duration::from_millis(100);
        let relay = TcpRelay::start_slow(host.folder(), delay);
        let builder = || builder_at([relay.place_by_link()]);
        let space = builder().kernels(table()).build().unwrap();
        std::thread::sleep(2 * delay);
        // There and back, and no more.
        let found = first_launches(&space, names);
        assert!(found < 4 * delay, "{found:?}");
        drop(space);
        // The control: a program that does not know of them has them looked up by their first launches.
        let space = builder().build().unwrap();
        let asked = first_launches(&space, names);
        assert!(asked >= 4 * delay, "{asked:?}");
    });
}

/// Round trips that are waited for while something is done.
fn trips(space: &Space, act: impl FnOnce()) -> u64 {
    let before = space.report().stats.awaited_trips;
    act();
    space.report().stats.awaited_trips - before
}

fn increment(space: &Space, data: &mut [u64]) {
    space.kernel("farside.increment").on(FAR).call(Write(data)).unwrap();
}

/// A buffer that the far card's kernel is known to write and the host to read.
fn known(space: &Space) -> Buffer<u64> {
    let mut data = space.alloc::<u64>(20 * PAGE).unwrap();
    for round in 1..=4 {
        std::thread::sleep(Duration::from_millis(5));
        increment(space, &mut data);
        assert!(data.iter().all(|&word| word == round));
    }
    data
}

#[test]
fn what_a_kernel_has_made_comes_with_its_completion() {
    within(LIMIT, "hindsight", || {
        // In between what was seen at first is looked at again, and is believed for longer from then on.
        let wanted = [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        soon(&wanted, |space| {
            let mut data = known(space);
            let mut round = 4;
            wanted.map(|_| {
                round += 1;
                // Pages that move to and fro faster are taken for a fight, and rest.
                std::thread::sleep(Duration::from_millis(5));
                trips(space, || {
                    increment(space, &mut data);
                    assert!(data.iter().all(|&word| word == round));
                })
            })
        });
        // The control: what nobody has read before is asked for.
        let pair = FarPair::new();
        let space = pair.builder().build().unwrap();
        let mut other = space.alloc::<u64>(100 * PAGE).unwrap();
        let fill = (Write(&mut other), Value(9u64));
        space.kernel("farside.fill").on(FAR).call(fill).unwrap();
        assert!(trips(&space, || assert!(other.iter().all(|&word| word == 9))) > 0);
    });
}

#[test]
fn what_came_with_a_completion_is_nothing_once_another_kernel_has_written() {
    within(LIMIT, "two launches", || {
        let pair = FarPair::new();
        let space = pair.builder().build().unwrap();
        let mut data = known(&space);
        let mut count = 4;
        for round in 0..40 {
            let launches = 1 + round % 3;
            for _ in 0..launches {
                increment(&space, &mut data);
            }
            count += launches;
            assert!(data.iter().all(|&word| word == count), "round {round}");
        }
        space.check().unwrap();
    });
}

#[test]
fn what_came_with_a_completion_is_nothing_once_something_else_is_put_there() {
    within(LIMIT, "other pages", || {
        let pair = FarPair::new();
        let space = pair.builder().build().unwrap();
        let mut data = known(&space);
        let mut other = space.alloc::<u64>(20 * PAGE).unwrap();
        for round in 5..=30 {
            increment(&space, &mut data);
            assert!(data.iter().all(|&word| word == round));
            // Without a launch: its frames are those that have just become free.
            other.fill(1000 + round);
            space.migrate(&other, FAR).unwrap();
            space.migrate(&other, MemoryId::HOST).unwrap();
            assert!(other.iter().all(|&word| word == 1000 + round), "round {round}");
        }
        space.check().unwrap();
    });
}

/// The one that ends first has touched a page that the other has not come to yet.
#[test]
fn what_came_with_a_completion_is_nothing_while_another_kernel_runs() {
    within(LIMIT, "kernels at the same time", || {
        let pair = FarPair::new();
        let space = pair.builder().build().unwrap();
        let words = space.alloc_atomic::<AtomicU64>(64 * PAGE, "words").unwrap();
        let last = 63 * PAGE;
        for round in 1..=60u64 {
            space
                .scope(|scope| {
                    let on_far = || scope.kernel("farside.increment").on(FAR);
                    let long = on_far().launch_call(Shared(&words[..]))?;
                    let short = on_far().launch_call(Shared(&words[last..]))?;
                    short.wait()?;
                    long.wait()
                })
                .unwrap();
            for (at, word) in words.iter().enumerate() {
                let wanted = if at < last { round } else { 2 * round };
                assert_eq!(word.load(Ordering::Relaxed), wanted, "round {round}, word {at}");
            }
        }
        space.check().unwrap();
    });
}
