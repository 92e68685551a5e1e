//! Reset.

use farside_types::Rights;

use super::client::{
    Client, NO_ASID, PAGE, ensure, kernel, pages, pages_at, reset, same, words_at,
};
use super::{Outcome, Target};
use farside_card::interface::{ArgKind, DmaAddr, Operation, RingHeader, RingKind, register};

pub(super) fn a_reset_in_the_middle_of_everything_leaves_a_new_function(
    target: &mut dyn Target,
) -> Outcome {
    let mut client = Client::open(target)?;
    let (spin, touch) = (kernel!(client, "farside.spin"), kernel!(client, "farside.touch"));
    let hold = kernel!(client, "farside.hold");
    let frames = client.frames();
    client.mark_frame(frames - 1, 0x99);
    // A page that is held and a drain that waits for it, a job that stands in a fault, one that
    // runs, some that wait, fills, a barrier, and commands that were not looked at yet.
    client.target.write_frames(5 * PAGE, &[0; 8]);
    client.map(NO_ASID, 5, 1, DmaAddr::Own(5), Rights::ReadWrite)?;
    client.launch(NO_ASID, 1, hold, &[words_at(ArgKind::Write, 5, 1)])?;
    client.until("the kernel to hold its page", |client| Ok(client.frame_words(5)[0] == 1))?;
    client.submit(NO_ASID, Operation::Unmap(pages(5, 1)))?;
    if client.read32(register::PES) > 1 {
        client.launch(NO_ASID, 2, touch, &[words_at(ArgKind::Write, 0x50, 512)])?;
        client.wait_fault()?;
    }
    for job in 3..8 {
        client.launch(NO_ASID, job, spin, &[])?;
    }
    if client.can(register::CAP_DMA) {
        for frame in 8..24 {
            let page = pages_at(0, 1, DmaAddr::Own(frame));
            client.submit(NO_ASID, Operation::Fill(page, 7))?;
        }
    }
    client.submit(NO_ASID, Operation::Barrier)?;
    let counted = client.counter("commands");
    client.target.write32(register::CONTROL, register::CONTROL_RESET);
    client.target.write32(register::CONTROL, register::CONTROL_RESET);
    let written = RingKind::ALL.map(|kind| client.index_of(kind, RingHeader::PRODUCER));
    // The kernel that holds its page may be told to let go: it need not look at its job's end.
    client.target.write_frames(5 * PAGE, &2u64.to_le_bytes());
    client.until("the end of the reset", |client| {
        Ok(client.read32(register::STATUS) & register::STATUS_RESETTING == 0)
    })?;
    same("STATUS after a reset", client.read32(register::STATUS), register::STATUS_QUIET)?;
    same("ERRORS after a reset", client.errors(), 0)?;
    for _ in 0..20 {
        client.target.pause();
    }
    let after = RingKind::ALL.map(|kind| client.index_of(kind, RingHeader::PRODUCER));
    same("what was written to rings during and after a reset", after, written)?;
    ensure!(client.counter("commands") >= counted, "a reset took counters back");
    let kept = client.frame_words(frames - 1)[7];
    same("memory after a reset", kept, 0x99 << 32 | 7)?;
    drop(client);

    let mut client = Client::open(target)?;
    same("pe 0 after a reset", client.pe_status(0)?, (0, 0))?;
    // Nothing is mapped any more.
    let launch = client.launch(NO_ASID, 1, touch, &[words_at(ArgKind::Write, 5, 512)])?;
    let fault = client.wait_fault()?;
    client.map(NO_ASID, 5, 1, DmaAddr::Own(5), Rights::ReadWrite)?;
    client.resume(fault.id())?;
    client.wait_ok(launch)?;
    client.finish()
}

pub(super) fn a_reset_ends_a_failure(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    let address = client.header(RingKind::Command, RingHeader::PRODUCER);
    client.target.store(address, 1000);
    client.doorbell();
    client.until("the function to fail", |client| {
        Ok(client.read32(register::STATUS) & register::STATUS_FAILED != 0)
    })?;
    reset(client.target)?;
    same("STATUS after a reset", target.read32(register::STATUS), register::STATUS_QUIET)?;
    same("ERRORS after a reset", target.read64(register::ERRORS), 0)?;
    let mut client = Client::open(target)?;
    client.ok(NO_ASID, Operation::Nop)?;
    client.finish()
}
