//! Negative controls: each mutation of the tables breaks one rule, and is caught here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use farside_types::{Asid, CardId, CommandId, FrameNo, PageNo, PageRange, Rights};

use super::TableWriter;
use super::fuzzing::{run, tests::rounds::Random};
use super::tests::{OWN, race_walks_and_unmaps};
use crate::mutation::CardMutation;
use crate::{Card, Geometry, Location, MappedRun};

/// Inputs that a mutation may survive.
const INPUTS: u64 = 200;
/// Races that it may survive.
const RACES: u32 = 50;

/// A card beside a map of its pages sees it.
fn by_comparison(mutation: CardMutation) -> bool {
    (0..INPUTS).any(|seed| {
        let input = Random::new(seed).bytes(1600);
        let broken = run(&input, |card| card.mutate(mutation)).err();
        if let Some(broken) = &broken {
            println!("{mutation:?} caught with input {seed}: {broken}");
        }
        broken.is_some()
    })
}

/// Walks beside a writer see it.
fn by_race(mutation: CardMutation) -> bool {
    (0..RACES).any(|_| {
        let mut writer = TableWriter::new(OWN, 4);
        writer.mutate(mutation);
        race_walks_and_unmaps(&mut writer).is_err()
    })
}

/// A word is under way when its page is taken away. Whether whoever takes it has waited for the word.
fn waits_for_words(prepare: impl FnOnce(&mut Card), take: fn(&mut Card)) -> bool {
    let geometry = Geometry { table_pages: 4, ..Geometry::default() };
    let mut card = Card::new(CardId(0), 16, geometry).unwrap();
    prepare(&mut card);
    let (_, words) = card.share_tables().expect("it has tables");
    let mut user = words.user();
    let run = MappedRun::new(PageNo(5), 1, Location::new(card.memory(), FrameNo(5)));
    card.map(Asid(0), [run].into_iter(), Rights::ReadWrite).unwrap();
    let word = user.begin();
    let taken = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let done = Arc::clone(&taken);
        scope.spawn(move || {
            take(&mut card);
            done.store(true, Ordering::Release);
        });
        // As long as the word is under way it cannot be done: a busy machine makes no difference.
        let end = Instant::now() + Duration::from_millis(100);
        while Instant::now() < end && !taken.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let waits = !taken.load(Ordering::Acquire);
        drop(word);
        waits
    })
}

fn page() -> impl Iterator<Item = PageRange> + Clone {
    std::iter::once(PageRange::page(PageNo(5)))
}

fn unmap(card: &mut Card) {
    let _ = card.unmap(CommandId(1), Asid(0), page());
}

fn protect(card: &mut Card) {
    let _ = card.protect(CommandId(1), Asid(0), page(), Rights::Read);
}

fn unmap_all(card: &mut Card) {
    let _ = card.unmap_all(CommandId(1), Asid(0));
}

fn map_elsewhere(card: &mut Card) {
    let run = MappedRun::new(PageNo(5), 1, Location::new(card.memory(), FrameNo(6)));
    card.map(Asid(0), [run].into_iter(), Rights::ReadWrite).unwrap();
}

#[test]
fn whoever_takes_a_page_away_waits_for_the_words_that_are_under_way() {
    for take in [unmap, protect, unmap_all, map_elsewhere] {
        assert!(waits_for_words(|_| {}, take));
    }
}

fn by_word(mutation: CardMutation, take: fn(&mut Card)) -> bool {
    // Given all the time that it may take, it does not wait.
    (0..100).any(|_| !waits_for_words(|card| card.mutate(mutation), take))
}

fn must_be_caught(mutation: CardMutation) {
    let caught = match mutation {
        CardMutation::UnmapLeavesWords => by_word(mutation, unmap),
        CardMutation::ProtectLeavesWords => by_word(mutation, protect),
        CardMutation::ChangeInTwoSteps | CardMutation::WalkSetsBitsBlindly => by_race(mutation),
        _ => by_comparison(mutation),
    };
    assert!(caught, "{mutation:?} was not caught");
}

macro_rules! mutations {
    ($($name:ident: $mutation:ident,)+) => {
        $(
            #[test]
            fn $name() {
                must_be_caught(CardMutation::$mutation);
            }
        )+

        #[test]
        fn every_mutation_has_a_test() {
            let tested = [$(CardMutation::$mutation),+];
            for mutation in CardMutation::ALL {
                assert!(tested.contains(&mutation), "{mutation:?} has no test in this file");
            }
        }
    };
}

mutations! {
    unmap_leaves_table: UnmapLeavesTable,
    unmap_leaves_tlbs: UnmapLeavesTlbs,
    unmap_leaves_words: UnmapLeavesWords,
    protect_leaves_table: ProtectLeavesTable,
    protect_leaves_tlbs: ProtectLeavesTlbs,
    protect_leaves_words: ProtectLeavesWords,
    reuse_tables_early: ReuseTablesEarly,
    change_in_two_steps: ChangeInTwoSteps,
    walk_sets_bits_blindly: WalkSetsBitsBlindly,
    walk_ignores_rights: WalkIgnoresRights,
    accessed_not_set: AccessedNotSet,
    dirty_not_set: DirtyNotSet,
    tlb_writes_unseen: TlbWritesUnseen,
    accessed_leaves_tlbs: AccessedLeavesTlbs,
    resume_sets_no_bits: ResumeSetsNoBits,
    map_forgets_bits: MapForgetsBits,
    run_hides_bits: RunHidesBits,
    split_forgets_frames: SplitForgetsFrames,
    part_of_run_keeps_size: PartOfRunKeepsSize,
    spaces_share_tables: SpacesShareTables,
    full_table_keeps_old: FullTableKeepsOld,
    trust_pages_without_room: TrustPagesWithoutRoom,
}
