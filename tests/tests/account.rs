//! The account of time: each step is booked as what it is. A step is made to last, and must then be found
//! where it belongs; how long the others took nobody says.

use std::time::Duration;

use farside::{Space, TimeSpent};
use farside_svm::{Command, HostOp, RingOp, Step};
use farside_types::Span;
use harness::live::within;

const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// Moves pages to a card, with a pause before each command that a probe picks.
fn move_to_a_card(probe: farside_live::Probe) -> TimeSpent {
    let builder = Space::builder().cards(1).card_memory(1 << 20).address_space(32 << 20);
    let space = builder.probe(probe).build().unwrap();
    let mut data = space.alloc::<u64>(16 * 512).unwrap();
    data.fill(1);
    space.migrate(&data, space.card(0).unwrap()).unwrap();
    let times = space.report().times;
    assert_eq!(data.iter().sum::<u64>(), 16 * 512);
    times
}

fn pause_where(is_it: bool) {
    if is_it {
        std::thread::sleep(PAUSE);
    }
}

const LEAST: Span = Span::from_millis(20);

#[test]
fn commands_to_cards_are_no_other_step() {
    within(LIMIT, "commands", || {
        let times = move_to_a_card(|command| {
            pause_where(matches!(command, Command::Ring(_, Step { op: RingOp::Map { .. }, .. })));
        });
        assert!(times.command >= LEAST, "{times:?}");
        assert!(times.plan > Span::ZERO, "{times:?}");
    });
}

#[test]
fn setup_and_copies_are_booked_as_these() {
    within(LIMIT, "steps", || {
        let times = move_to_a_card(|command| {
            pause_where(matches!(command, Command::Host(Step { op: HostOp::Unmap { .. }, .. })));
        });
        assert!(times.setup >= LEAST, "{times:?}");
        let times = move_to_a_card(|command| pause_where(matches!(command, Command::Transfer(..))));
        assert!(times.copy >= LEAST, "{times:?}");
    });
}
