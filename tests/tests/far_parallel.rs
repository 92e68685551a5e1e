//! Launches over ranges of indices, order between launches and moves that nobody waits for, on cards that other
//! processes serve, beside cards in the program, and when such a process is killed.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{
    CardId, CardPlace, Error, KernelError, LiveError, Shared, Space, SpaceBuilder, Split, Value,
    Write,
};
use harness::live::served::{CardProcess, TempDir, config, serve_if_asked, test_kernels};
use harness::live::within;

const LIMIT: Duration = Duration::from_secs(120);
/// Words of a page.
const PAGE: usize = 512;

/// A card in a process of its own, and one in the program.
fn mixed(process: &CardProcess) -> SpaceBuilder {
    Space::builder()
        .cards_at([process.place(), CardPlace::InProgram { frames: 1024 }])
        .address_space(16 << 20)
        .grace(Duration::from_millis(50))
        .kernels(test_kernels())
}

#[track_caller]
fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn pieces_run_once_on_cards_of_different_kinds() {
    const NAME: &str = "pieces_run_once_on_cards_of_different_kinds";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let process = CardProcess::start(NAME, &config(&folder, 0));
        let space = mixed(&process).build().unwrap();
        let n = 40 * PAGE;
        let counts = space.alloc_atomic::<AtomicU64>(n, "counts").unwrap();
        let mut own = space.alloc::<u64>(n).unwrap();
        for grain in [PAGE as u64, 100, 5000] {
            let shares = space.for_each("farside.increment", 0..n as u64).grain(grain);
            let shares = shares.call(Write(&mut own)).unwrap();
            let pieces: u64 = shares.cards.iter().map(|share| share.pieces).sum();
            assert_eq!((shares.value, pieces), (n as u64, (n as u64).div_ceil(grain)));
        }
        assert!(own.iter().all(|&word| word == 3));
        // Everybody adds to the same words.
        let each = space.for_each("farside.increment", 0..20).grain(1);
        each.call(Shared(&counts[..8])).unwrap();
        assert!(counts[..8].iter().all(|count| count.load(SeqCst) == 20));

        let closure = space.for_each("closure", 0..8).run((), |_, _, ()| Ok(())).unwrap_err();
        assert!(matches!(closure, Error::Live(LiveError::ClosureElsewhere { .. })), "{closure}");
        let outcome = space.for_each("test.fail", 5..9).on([CardId(0)]).grain(1).call(());
        let Err(Error::Piece { card, error, .. }) = outcome else { panic!("{outcome:?}") };
        assert!(card == CardId(0) && error.to_string().contains("it was asked to"), "{error}");
        space.check().unwrap();
    });
}

#[test]
fn launches_and_moves_come_after_one_another_across_processes() {
    const NAME: &str = "launches_and_moves_come_after_one_another_across_processes";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let process = CardProcess::start(NAME, &config(&folder, 0));
        let space = mixed(&process).build().unwrap();
        let words = space.alloc_atomic::<AtomicU64>(4 * PAGE, "words").unwrap();
        let mut wanted = 0u64;
        space.scope(|s| {
            let mut last: Option<farside::Job<'_, u64>> = None;
            for turn in 0..200u64 {
                // w = (turn + 1) w + turn, which is another result in any other order.
                let kernel = s.kernel("test.affine").on(CardId((turn % 2) as u8));
                let kernel = last.iter().fold(kernel, |kernel, last| kernel.after(last));
                let job =
                    kernel.launch_call((Shared(&words), Value(turn + 1), Value(turn))).unwrap();
                if turn % 20 == 0 {
                    let to = CardId((turn / 20 % 2) as u8);
                    let moving = space.migrate_async(&words, to).after(&job).start().unwrap();
                    let next = s.kernel("farside.nop").on(CardId(0)).after(&job).after(&moving);
                    last = Some(next.launch_call(()).unwrap());
                } else {
                    last = Some(job);
                }
                wanted = wanted.wrapping_mul(turn + 1).wrapping_add(turn);
            }
            last.unwrap().wait().unwrap();
            let fails = s.kernel("test.fail").on(CardId(0)).launch_call(()).unwrap();
            let not_run =
                s.kernel("farside.nop").on(CardId(1)).after(&fails).launch_call(()).unwrap();
            let error = not_run.wait().unwrap_err().to_string();
            assert!(
                error.contains("`test.fail` on card 0") && error.contains("it was asked to"),
                "{error}"
            );
        });
        assert!((0..4).all(|page| words[page * PAGE].load(SeqCst) == wanted));
        space.check().unwrap();
    });
}

#[test]
fn a_card_process_that_is_killed_fails_the_launch_and_what_comes_after_it() {
    const NAME: &str = "a_card_process_that_is_killed_fails_the_launch_and_what_comes_after_it";
    serve_if_asked(|config| config);
    within(LIMIT, NAME, || {
        let folder = TempDir::new();
        let mut process = CardProcess::start(NAME, &config(&folder, 0));
        let space = mixed(&process).build().unwrap();
        let done = space.alloc_atomic::<AtomicU32>(1, "none").unwrap();
        let mut data = space.alloc::<u64>(64 * PAGE).unwrap();
        for _ in 0..3 {
            space.scope(|s| {
                // The card's elements are taken for good, so its pieces are launched and do not start.
                let elements = u64::from(config(&folder, 0).pes);
                let take = |_| s.kernel("farside.wait").on(CardId(0)).launch_call(()).unwrap();
                let taken: Vec<_> = (0..elements).map(take).collect();
                let each = s.for_each("farside.increment", 0..64 * PAGE as u64).grain(PAGE as u64);
                let pieces = each.launch_call(Write(&mut data)).unwrap();
                let after =
                    s.kernel("farside.nop").on(CardId(1)).after(&pieces).launch_call(()).unwrap();
                let moved = space.migrate_async(&done, CardId(1)).after(&after).start().unwrap();
                until("the other card does not do the rest", || {
                    let shares = pieces.shares();
                    shares[0].pieces == 0 && shares[1].pieces == 64 - 2 * elements
                });
                process.crash();
                let outcome = pieces.wait();
                let Err(Error::Piece { card, indices, error }) = outcome else {
                    panic!("{outcome:?}")
                };
                assert!(matches!(error, KernelError::Dropped { .. }), "{error}");
                assert!(card == CardId(0) && indices.end - indices.start == PAGE as u64);
                assert!(taken.into_iter().all(|job| job.wait().is_err()));
                assert!(matches!(after.wait(), Err(Error::Kernel(KernelError::NotRun { .. }))));
                assert!(matches!(moved.wait(), Err(Error::Move(_))));
            });
            process.restart();
            until("the card does not come back", || {
                space.kernel("farside.nop").on(CardId(0)).call(()).is_ok()
            });
            let text = space.alloc::<u64>(1000).unwrap();
            let sum = space.for_each("farside.sum", 0..1000).grain(10).call(Split(&text)).unwrap();
            assert_eq!((sum.value, sum.cards.len()), (0, 2));
        }
        space.check().unwrap();
    });
}
