//! The probe points of the runtime: whoever subscribes is told of faults, commands and migrations.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use farside::{CardId, Space};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Counts events by target.
#[derive(Clone, Default)]
struct Counts(Arc<Mutex<BTreeMap<&'static str, u32>>>);

impl Subscriber for Counts {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("farside::") && *metadata.level() == Level::TRACE
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        *self.0.lock().unwrap().entry(event.metadata().target()).or_default() += 1;
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn faults_commands_and_migrations_are_told() {
    let counts = Counts::default();
    tracing::subscriber::set_global_default(counts.clone()).unwrap();
    let space = Space::builder().cards(1).card_memory(1 << 20).build().unwrap();
    let mut data = space.alloc::<u64>(1024).unwrap();
    data[0] = 7;
    space.migrate(&data, CardId(0)).unwrap();
    assert_eq!(data[0], 7);
    let counted = counts.0.lock().unwrap().clone();
    let of = |target: &str| counted.get(target).copied().unwrap_or(0);
    assert!(of("farside::fault") >= 2, "the first touch, and the one behind the move: {counted:?}");
    assert!(of("farside::migration") >= 3, "asked for, out and back: {counted:?}");
    assert!(of("farside::command") > of("farside::migration"), "paging too: {counted:?}");
    assert_eq!(of("farside::doorbell"), 0, "the card is in this program: {counted:?}");
}
