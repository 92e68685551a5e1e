//! Programs on cards that are not in the program: the same results by way of rings.

use std::time::Duration;

use farside::{Read, Space, Write};
use farside_tests::live::served::{TempDir, config, place, serve};
use farside_tests::live::within;

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn a_kernel_on_a_card_elsewhere_works_on_the_programs_memory() {
    within(LIMIT, "a kernel elsewhere", || {
        let folder = TempDir::new();
        let servers = [serve(config(&folder, 0)), serve(config(&folder, 1))];
        let space = Space::builder().cards_at(servers.iter().map(place)).build().unwrap();
        let mut data = space.alloc::<u64>(1 << 16).unwrap();
        data.fill(1);
        for card in space.cards() {
            let count = space.kernel("farside.increment").on(card).call(Write(&mut data)).unwrap();
            assert_eq!(count, 1 << 16);
        }
        assert!(data.iter().all(|&x| x == 3));
        let second = space.card(1).unwrap();
        let sum = space.kernel("farside.sum").on(second).call(Read(&data)).unwrap();
        assert_eq!(sum, 3 << 16);
    });
}
