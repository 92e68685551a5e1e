//! Adopted memory and cards in other processes: whole pages go there, by the program's own processors.

use std::time::Duration;

use farside::{AdoptError, Error, LiveError, Read, Space, Write};
use harness::live::mapped::Mapped;
use harness::live::served::{TempDir, config, place, place_by_messages, serve, test_kernels};
use harness::live::within;

const LIMIT: Duration = Duration::from_secs(30);
/// Words of a page.
const PAGE: usize = 512;

#[test]
fn whole_pages_go_to_cards_elsewhere_and_come_back() {
    within(LIMIT, "far", || {
        let folder = TempDir::new();
        let servers: Vec<_> = (0..2).map(|card| serve(config(&folder, card))).collect();
        let space = Space::builder()
            .cards_at(servers.iter().map(place))
            .address_space(64 << 20)
            .kernels(test_kernels())
            .build()
            .unwrap();
        let memory = Mapped::new(300, 4096);
        // SAFETY: nobody else has the words.
        let mut data = space.adopt(unsafe { memory.words() }, "mine").unwrap();
        data.fill(1);
        // Beside memory of the arena, in the same launch.
        let mut other = space.alloc::<u64>(300 * PAGE).unwrap();
        for round in 2..6 {
            for card in space.cards() {
                space
                    .kernel("farside.copy")
                    .on(card)
                    .call((Read(&data), Write(&mut other)))
                    .unwrap();
                assert!(other.iter().all(|&word| word + 1 == round), "round {round}");
            }
            let card = space.card(round as usize % 2).unwrap();
            assert_eq!(
                space.kernel("farside.increment").on(card).call(Write(&mut data)).unwrap(),
                300 * PAGE as u64
            );
            assert!(data.iter().all(|&word| word == round), "round {round}");
            space.migrate(&data, space.card(0).unwrap()).unwrap();
            space.check().unwrap();
        }
        let words = data.release().unwrap();
        assert!(words.iter().all(|&word| word == 5));
        let mut unaligned = vec![0u64; 3 * PAGE];
        let refused = space.adopt(&mut unaligned[1..], "edges").unwrap_err();
        let named = matches!(refused, Error::Live(LiveError::Adopt(AdoptError::Unaligned { .. })));
        assert!(named, "{refused}");
    });
}

#[test]
fn a_card_that_shares_no_memory_gets_none_and_is_named() {
    within(LIMIT, "by messages", || {
        let folder = TempDir::new();
        let server = serve(config(&folder, 0));
        let space = Space::builder()
            .cards_at([place_by_messages(&server)])
            .address_space(64 << 20)
            .build()
            .unwrap();
        let memory = Mapped::new(3, 4096);
        // SAFETY: nobody else has the words.
        let refused = space.adopt(unsafe { memory.words() }, "mine").unwrap_err();
        assert!(refused.to_string().contains("card 0, which shares no memory"), "{refused}");
    });
}
