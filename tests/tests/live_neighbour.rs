//! A kernel that holds pages for long costs nobody else his pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use farside::{Shared, Space};
use harness::live::within;

const PAGE: usize = 512;

#[test]
fn a_page_beside_one_that_a_kernel_holds_comes_at_once() {
    within(Duration::from_secs(30), "neighbour", || {
        let space = Space::builder().cards(1).address_space(16 << 20).build().unwrap();
        let words = space.alloc_atomic::<AtomicU64>(2 * PAGE, "neighbours").unwrap();
        space.migrate(&words, space.card(0).unwrap()).unwrap();
        // Longer than the window of thrashing, within which fault-around leaves pages alone.
        std::thread::sleep(Duration::from_millis(2));
        let (inside, free) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (flag, gate) = (Arc::clone(&inside), Arc::clone(&free));
        space.scope(|s| {
            s.kernel("holder")
                .launch(Shared(&words), move |k, words| {
                    k.atomic(words, 0, |_| {
                        flag.store(true, SeqCst);
                        while !gate.load(SeqCst) {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    })
                })
                .unwrap();
            while !inside.load(SeqCst) {
                std::thread::yield_now();
            }
            let started = Instant::now();
            // The second page: nobody holds it.
            words[PAGE].fetch_add(1, SeqCst);
            assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
            free.store(true, SeqCst);
        });
        assert_eq!(words[PAGE].load(SeqCst), 1);
    });
}
