//! A client, both ends, a link and a device, all engines in one thread.

mod rig;
mod witness;

use farside_fabric::Refusal;
use farside_link::{Frame, Tag};
use farside_vfio_user::device::{irq, region};
use farside_vfio_user::{DmaUnmap, Errno, IrqAction};

use super::mutation::{Unchecked, take_away};
use rig::{Answer, BUS, DMA_ADDRESS, DMA_READ, DMA_WRITE, PAGE, RAISE, Rig, Seen, VALUE};

#[test]
fn registers_are_read_and_written_through_both_ends() {
    let mut rig = Rig::new();
    rig.write(region::BAR0, VALUE, 0x1234_5678);
    assert_eq!(rig.read(region::BAR0, VALUE), Ok(0x1234_5678));
    rig.write(region::CONFIG, 4, 7);
    assert_eq!(rig.read(region::CONFIG, 4), Ok(7));
    let beyond = rig.ask(|client| client.region_read(rig::access(region::BAR0, 1 << 20, 4)));
    assert_eq!(beyond, Answer::Failed(Errno::INVAL));
    assert_eq!(rig.device.writes, [(region::BAR0, VALUE, 0x1234_5678), (region::CONFIG, 4, 7)]);
}

#[test]
fn no_region_is_offered_to_be_mapped() {
    let mut rig = Rig::new();
    assert!(rig.device_info().regions[region::BAR2 as usize].mapping.is_some(), "the device would");
    for index in 0..region::COUNT {
        let answer = rig.ask(|client| client.region_info(index, 4096));
        assert!(matches!(answer, Answer::Region { mappable: false, .. }), "{answer:?}");
    }
}

#[test]
fn a_register_is_written_once_over_connections_that_break() {
    let mut rig = Rig::new();
    for value in 0..40 {
        rig.start_write(region::BAR0, VALUE, value);
        // Now and then what was on its way is lost, on one way or on both.
        rig.steps(1 + value as usize % 4);
        rig.reconnect();
    }
    rig.settle();
    let values: Vec<u32> = rig.device.writes.iter().map(|write| write.2).collect();
    assert_eq!(values, (0..40).collect::<Vec<_>>());
}

#[test]
fn dma_goes_to_the_clients_memory_and_an_interrupt_behind_it() {
    let mut rig = Rig::new();
    rig.map(BUS, true, true);
    assert_eq!(rig.listen(), Answer::Done);
    rig.write(region::BAR0, DMA_ADDRESS, BUS as u32);
    rig.write(region::BAR0, DMA_WRITE, 3);
    rig.write(region::BAR0, RAISE, 0);
    rig.settle();
    assert_eq!(rig.memory(0, 4), [3; 4]);
    assert_eq!(rig.local_log(), [Seen::Write(PAGE as usize), Seen::Raise(0)]);
    rig.memory_write(8, &[9; 8]);
    rig.write(region::BAR0, DMA_ADDRESS, BUS as u32 + 8);
    rig.write(region::BAR0, DMA_READ, 8);
    rig.settle();
    assert_eq!(rig.device.dma, [Ok(vec![]), Ok(vec![9; 8])]);
}

#[test]
fn what_a_device_must_not_reach_is_refused_at_the_lender() {
    let mut rig = Rig::new();
    rig.map(BUS, true, false);
    rig.deceive_the_device();
    for (address, reason) in
        [(BUS - 4096, Refusal::Outside), (BUS + 1, Refusal::BeyondEnd), (BUS, Refusal::Rights)]
    {
        rig.write(region::BAR0, DMA_ADDRESS, address as u32);
        rig.write(region::BAR0, DMA_WRITE, 5);
        rig.settle();
        assert_eq!(rig.device.dma.pop(), Some(Err(Errno::FAULT)), "{address:#x}");
        assert_eq!(rig.lender.refusals().of(reason), 1);
    }
    assert_eq!(rig.borrower.refusals().total(), 0, "nothing of it was sent");
    assert_eq!(rig.memory(0, PAGE as usize), vec![0; PAGE as usize]);
}

/// Negative control: without the lender's check it goes over the link, and the borrower's is the one
/// that refuses it.
#[test]
fn control_a_lender_that_does_not_look_is_stopped_by_the_borrower() {
    take_away(Unchecked::AtLender);
    let mut rig = Rig::new();
    rig.map(BUS, true, false);
    rig.deceive_the_device();
    rig.write(region::BAR0, DMA_ADDRESS, BUS as u32);
    rig.write(region::BAR0, DMA_WRITE, 5);
    rig.settle();
    assert_eq!(rig.device.dma, [Ok(vec![])], "the device was not stopped");
    assert_eq!(rig.borrower.refusals().of(Refusal::Rights), 1);
    assert_eq!(rig.lender.counters().refused_there, 1, "and its end hears of it");
    assert_eq!(rig.memory(0, PAGE as usize), vec![0; PAGE as usize]);
}

/// A lender's end that says what it likes.
fn a_lie() -> Rig {
    let mut rig = Rig::new();
    rig.map(BUS, true, false);
    let frame = Frame::DmaWrite { address: BUS, data: vec![6; 16] };
    rig.ends[1].send(Tag::NONE, frame).unwrap();
    rig.settle();
    rig
}

#[test]
fn what_a_lender_must_not_reach_is_refused_at_the_borrower() {
    let mut rig = a_lie();
    assert_eq!(rig.memory(0, 16), [0; 16]);
    assert_eq!(rig.borrower.refusals().of(Refusal::Rights), 1);
    assert_eq!(rig.borrower.counters().refused, 1);
    let beside = Frame::DmaWrite { address: BUS + PAGE, data: vec![6; 16] };
    rig.ends[1].send(Tag::NONE, beside).unwrap();
    let read = Frame::DmaRead { address: BUS + PAGE - 8, bytes: 16 };
    rig.ends[1].send(Tag(1 << 40), read).unwrap();
    rig.settle();
    assert_eq!(rig.borrower.refusals().of(Refusal::Outside), 1);
    assert_eq!(rig.borrower.refusals().of(Refusal::BeyondEnd), 1);
}

/// Negative control: without the borrower's check it lands.
#[test]
fn control_a_borrower_that_does_not_look_is_written_to() {
    take_away(Unchecked::AtBorrower);
    let rig = a_lie();
    assert_eq!(rig.memory(0, 16), [6; 16]);
}

#[test]
fn after_an_unmap_a_device_reaches_nothing_there() {
    let mut rig = Rig::new();
    rig.map(BUS, true, true);
    let unmap = DmaUnmap::Range { address: BUS, size: PAGE };
    assert_eq!(rig.ask(|client| client.dma_unmap(unmap)), Answer::Done);
    rig.write(region::BAR0, DMA_ADDRESS, BUS as u32);
    rig.write(region::BAR0, DMA_WRITE, 5);
    rig.settle();
    // The device's own engine knows it as well.
    assert_eq!(rig.device.dma, [Err(Errno::FAULT)]);
    assert_eq!(rig.memory(0, 16), [0; 16]);
    assert_eq!(rig.ask(|client| client.dma_unmap(DmaUnmap::All)), Answer::Done);
}

/// As QEMU does whenever a guest changes where its memory is.
#[test]
fn what_is_mapped_anew_before_its_unmap_was_answered_is_reached() {
    let mut rig = Rig::new();
    rig.map(BUS, true, true);
    for value in 1..4 {
        rig.start_unmap(BUS);
        rig.map(BUS, true, true);
        rig.write(region::BAR0, DMA_ADDRESS, BUS as u32);
        rig.write(region::BAR0, DMA_WRITE, value);
        rig.settle();
        assert_eq!(rig.memory(0, 16), [value as u8; 16]);
    }
    assert_eq!(rig.borrower.refusals().total() + rig.lender.refusals().total(), 0);
}

#[test]
fn a_map_that_the_device_refuses_is_told_and_closes_its_window() {
    let mut rig = Rig::of(|info| info.dma_needs_fd());
    rig.map(BUS, true, true);
    rig.settle();
    assert_eq!(rig.borrower.counters().refused_there, 1);
    assert_eq!(rig.lender.counters().refused, 1);
    rig.map(BUS + PAGE, true, true);
    assert_eq!(rig.lender.counters().refused, 2);
}

#[test]
fn when_the_lease_is_over_the_client_hears_it_and_nothing_is_reached() {
    let mut rig = Rig::new();
    rig.map(BUS, true, true);
    rig.ends[1].close(300);
    rig.settle();
    let read = rig.ask(|client| client.region_read(rig::access(region::BAR0, VALUE, 4)));
    assert_eq!(read, Answer::Failed(Errno::NODEV));
    rig.lender.end();
    rig.device_writes(BUS, 4);
    assert_eq!(rig.device.dma, [Err(Errno::FAULT)]);
    assert_eq!(rig.lender.refusals().of(Refusal::Closed), 1);
    assert_eq!(rig.memory(0, 16), [0; 16]);
}

#[test]
fn resets_masks_and_large_reads_reach_the_device() {
    let mut rig = Rig::new();
    assert_eq!(rig.ask(|client| client.reset()), Answer::Done);
    assert_eq!(rig.device.resets, 1);
    assert_eq!(rig.listen(), Answer::Done);
    for action in [IrqAction::Mask, IrqAction::Unmask] {
        assert_eq!(rig.ask(|client| client.irqs_now(irq::MSIX, 0, 1, action)), Answer::Done);
    }
    assert_eq!(rig.device.irqs, [IrqAction::Trigger, IrqAction::Mask, IrqAction::Unmask]);
    let read = Frame::MemoryRead { offset: 0, bytes: 200_000 };
    rig.ends[0].send(Tag(1 << 40), read).unwrap();
    rig.settle();
    assert_eq!(rig.ends[0].asked(), 0, "all four pieces have come");
}

#[test]
fn frames_without_a_place_are_refused_and_counted() {
    let mut rig = Rig::new();
    let fill = Frame::MemoryFill { offset: 0, bytes: 4096, value: 0 };
    rig.ends[0].send(Tag::NONE, fill).unwrap();
    rig.ends[1].send(Tag::NONE, Frame::Return).unwrap();
    rig.ends[1].send(Tag(1 << 40), Frame::Reset).unwrap();
    rig.settle();
    assert_eq!(rig.lender.counters().misplaced, 1);
    assert_eq!(rig.borrower.counters().misplaced, 2);
    assert_eq!(rig.ends[1].asked(), 0, "a request is answered in any case");
    assert!(!rig.lender.is_returned());
    rig.ends[0].send(Tag::NONE, Frame::Return).unwrap();
    rig.settle();
    assert!(rig.lender.is_returned());
}
