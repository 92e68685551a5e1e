//! Page DMA as the function takes it: lists, failures half way, and how many go at once.

mod rig;

use farside_card::interface::{DmaAddr, Extent, ExtentArg, ExtentList, Operation, Status};
use farside_card::{Action, TransferFailed};
use farside_types::{Asid, CommandId};
use proptest::prelude::*;
use rig::{Rig, moved};

const NO_ASID: Asid = Asid(0);

/// A list of extents in the driver's memory.
fn listed(rig: &mut Rig, extents: &[Extent]) -> ExtentArg {
    let bytes: Vec<u8> =
        extents.iter().flat_map(|e| e.to_words()).flat_map(u64::to_le_bytes).collect();
    rig.bus.put(rig.free, &bytes);
    ExtentArg::List(ExtentList { address: rig.free, count: extents.len() as u32 })
}

/// The source and the destination of every page, in order.
fn page_by_page(extents: &[Extent]) -> Vec<(DmaAddr, DmaAddr)> {
    let nth = |at: DmaAddr, i: u32| match at {
        DmaAddr::Own(frame) => DmaAddr::Own(frame + i),
        DmaAddr::Bus(page) => DmaAddr::Bus(page + i),
    };
    let pages = |e: &Extent| (0..e.count).map(|i| (nth(e.src, i), nth(e.dst, i))).collect();
    extents.iter().flat_map(|extent| -> Vec<_> { pages(extent) }).collect()
}

/// Gives one copy to the embedder.
fn begun(rig: &mut Rig) -> (CommandId, Vec<Extent>) {
    rig.doorbell();
    match rig.actions().pop() {
        Some(Action::Copy { id, extents }) => (id, extents),
        other => panic!("a copy begins: {other:?}"),
    }
}

proptest! {
    #[test]
    fn invariant_8_lists_however_cut_name_the_same_pages_in_the_same_order(
        cuts in prop::collection::vec(1..6u32, 1..12),
    ) {
        let mut rig = Rig::new();
        let bus_page = (rig.free >> 12) as u32;
        let mut done = 0;
        let extents: Vec<Extent> = cuts.iter().map(|&count| {
            let first = done;
            done += count;
            Extent {
                page: 0,
                count,
                src: DmaAddr::Bus(bus_page),
                dst: DmaAddr::Own(first),
            }
        }).collect();
        let list = listed(&mut rig, &extents);
        rig.submit(NO_ASID, Operation::Copy(list));
        let (id, asked) = begun(&mut rig);
        prop_assert_eq!(page_by_page(&asked), page_by_page(&extents));
        rig.function.copied(&mut rig.card, &mut rig.bus, id, Ok(()));
        let completion = rig.completions()[0];
        prop_assert_eq!((completion.status, completion.pages), (Status::Ok, u64::from(done)));
    }
}

#[test]
fn invariant_28_a_copy_that_fails_at_page_k_is_reported_once_with_k_and_a_retry_works() {
    const PAGES: u32 = 5;
    let mut rig = Rig::new();
    let from = DmaAddr::Bus((rig.free >> 12) as u32);
    let copy = Operation::Copy(moved(PAGES, from, DmaAddr::Own(3)));
    let mut moved_in_all = 0;
    for k in 0..PAGES {
        let tag = rig.submit(NO_ASID, copy.clone());
        let (id, _) = begun(&mut rig);
        let failed = Err(TransferFailed { pages_done: k });
        rig.function.copied(&mut rig.card, &mut rig.bus, id, failed);
        rig.function.copied(&mut rig.card, &mut rig.bus, id, Ok(()));
        let completions = rig.completions();
        let [completion] = &completions[..] else { panic!("one answer: {completions:?}") };
        let told = (completion.tag, completion.status, completion.pages);
        assert_eq!(told, (tag, Status::CopyFailed, k.into()));
        moved_in_all += u64::from(k);
        assert_eq!(rig.counter("dma_pages"), moved_in_all);
    }
    let tag = rig.submit(NO_ASID, copy.clone());
    let (id, _) = begun(&mut rig);
    rig.function.copied(&mut rig.card, &mut rig.bus, id, Ok(()));
    let completion = rig.completions()[0];
    let told = (completion.tag, completion.status, completion.pages);
    assert_eq!(told, (tag, Status::Ok, PAGES.into()));
}

#[test]
fn copies_in_both_directions_and_fills_share_the_places_and_the_rest_waits_in_order() {
    let mut rig = Rig::new();
    let most = rig.card.geometry().dma_commands_max;
    let bus = DmaAddr::Bus((rig.free >> 12) as u32);
    let own = DmaAddr::Own(0);
    let mut begun = Vec::new();
    for i in 0..most + 2 {
        let (src, dst) = if i % 2 == 0 { (bus, own) } else { (own, bus) };
        rig.submit(NO_ASID, Operation::Copy(moved(1, src, dst)));
        rig.doorbell();
        begun.extend(rig.actions().into_iter().map(|action| match action {
            Action::Copy { id, .. } => id,
            other => panic!("a copy begins: {other:?}"),
        }));
    }
    assert_eq!(begun.len(), most as usize, "no more than that go at once, whatever the direction");
    rig.function.copied(&mut rig.card, &mut rig.bus, begun[1], Ok(()));
    let next: Vec<Action> = rig.actions();
    assert!(matches!(next[..], [Action::Copy { .. }]), "the next begins: {next:?}");
}
