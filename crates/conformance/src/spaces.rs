//! Address spaces.

use farside_types::{Asid, PageNo, Rights};

use super::client::{Client, ensure, kernel, pages, same, words_at};
use super::{Outcome, Target, Verdict};
use farside_card::interface::{ArgKind, DmaAddr, Operation, register};

pub(super) fn two_address_spaces_know_nothing_of_each_other(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    let (touch, sum) = (kernel!(client, "farside.touch"), kernel!(client, "farside.sum"));
    if client.read32(register::ASIDS) < 2 {
        return Ok(Verdict::NotRun("the function has one address space".into()));
    }
    let spaces = [(Asid(0), 4), (Asid(1), 5)];
    for (asid, frame) in spaces {
        client.mark_frame(frame, u64::from(frame));
        client.map(asid, 0x77, 1, DmaAddr::Own(frame), Rights::ReadWrite)?;
    }
    for (asid, frame) in spaces {
        let args = [words_at(ArgKind::Write, 0x77, 512)];
        let launch = client.launch(asid, 1, touch, &args)?;
        client.serve(launch, |_| DmaAddr::Own(frame))?;
        let word = client.frame_words(frame)[0];
        same("the word that a kernel touched", word, (u64::from(frame) << 32) + 1)?;
    }
    // What is taken from one is still there in the other.
    for take in [Operation::UnmapAll, Operation::Unmap(pages(0, 0x1000))] {
        client.map(Asid(1), 0x77, 1, DmaAddr::Own(5), Rights::ReadWrite)?;
        client.ok(Asid(0), take)?;
        let args = [words_at(ArgKind::Read, 0x77, 512)];
        let faults = client.counter("faults_raised");
        let launch = client.launch(Asid(1), 1, sum, &args)?;
        client.wait_ok(launch)?;
        same("faults in the other space", client.counter("faults_raised"), faults)?;
        let launch = client.launch(Asid(0), 1, sum, &args)?;
        let fault = client.wait_fault()?;
        same("asid", fault.head.asid, Asid(0))?;
        ensure!(fault.pages().any(|page| page == PageNo(0x77)), "{fault:?}");
        client.map(Asid(0), 0x77, 1, DmaAddr::Own(4), Rights::Read)?;
        client.resume(fault.id())?;
        client.serve(launch, |_| DmaAddr::Own(4))?;
    }
    client.finish()
}
