//! Cards at the other end of a link: their rings are shadowed beside them, their pages travel in front of
//! the commands that use them.

use std::time::Duration;

use farside::{CardId, CardPlace, MemoryId, Read, Space, SpaceBuilder, Write};
use farside_softcard::serve::{CardConfig, CardServer};
use harness::live::served::{Exercise, FarHost, TempDir, config, place, serve, test_kernels};
use harness::live::within;

const LIMIT: Duration = Duration::from_secs(120);
/// Words of a page.
const PAGE: usize = 512;

fn builder(places: impl IntoIterator<Item = CardPlace>) -> SpaceBuilder {
    Space::builder()
        .cards_at(places)
        .address_space(64 << 20)
        .grace(Duration::from_millis(50))
        .kernels(test_kernels())
}

/// A card at the other end of a link, and one of this machine.
struct Pair {
    folder: TempDir,
    far: CardServer,
    near: CardServer,
    host: FarHost,
}

impl Pair {
    fn start() -> Pair {
        Pair::with(|config| config)
    }

    fn with(change: impl Fn(CardConfig) -> CardConfig) -> Pair {
        let folder = TempDir::new();
        let [far, near] = [0, 1].map(|card| serve(change(config(&folder, card))));
        let host = FarHost::start(folder.join("host"), &far.config().folder);
        Pair { folder, far, near, host }
    }

    fn builder(&self) -> SpaceBuilder {
        builder([self.host.place(), place(&self.near)])
    }
}

const FAR: CardId = CardId(0);
const NEAR: CardId = CardId(1);

#[test]
fn a_kernel_on_a_card_at_the_other_end_of_a_link_works_on_the_programs_memory() {
    within(LIMIT, "one kernel", || {
        let pair = Pair::start();
        let space = pair.builder().build().unwrap();
        let mut data = space.alloc::<u64>(100 * PAGE).unwrap();
        for (word, value) in data.iter_mut().zip(0..) {
            *word = value;
        }
        space.kernel("farside.increment").on(FAR).call(Write(&mut data)).unwrap();
        assert!(data.iter().zip(1..).all(|(&word, value)| word == value));
        space.migrate(&data, FAR).unwrap();
        let sum = space.kernel("farside.sum").on(FAR).call(Read(&data)).unwrap();
        assert_eq!(sum, data.iter().sum::<u64>());
        space.check().unwrap();
    });
}

#[test]
fn every_kind_of_step_goes_right_over_a_link() {
    within(LIMIT, "every kind of step", || {
        let pair = Pair::start();
        let space = pair.builder().build().unwrap();
        for (a, b) in [(FAR, NEAR), (NEAR, FAR)] {
            let mut exercise = Exercise::new(&space, 80);
            exercise.run(a, b).unwrap_or_else(|error| panic!("{a}, {b}: {error}"));
            assert_eq!(exercise.check(), 0, "{a}, {b}");
        }
        space.check().unwrap();
    });
}
