//! The function through its registers and rings.

mod rig;

use farside_card::interface::{
    ExtentList, FaultArg, FaultHead, FaultRecord, FaultWants, Operation, Status, Whereabouts,
    register,
};
use farside_card::{Action, Answer, JobEnd, Need, Outcome, Raised};
use farside_types::{Access, FaultId, JobId, PageNo, PeId, Rights};
use rig::{ASID, Rig, moved, pages, pages_at};

const NO_LIST: ExtentList = ExtentList { address: 0, count: 0 };

fn launch(job: u64) -> Operation {
    Operation::Launch { job: JobId(job), kernel: 0, pe: None, args: NO_LIST, message: NO_LIST }
}

#[test]
fn a_kernel_faults_gets_its_page_and_ends() {
    let mut rig = Rig::new();
    let tag = rig.submit(ASID, launch(5));
    rig.doorbell();
    let [Action::Start { pe, job, asid, .. }] = rig.actions()[..] else {
        panic!("one job starts");
    };
    assert_eq!((pe, job, asid), (PeId(0), JobId(5), ASID));
    let need = Need::Page(PageNo(0x40), Access::Write);
    let Ok(Raised::Queued(id)) = rig.card.raise(pe, job, ASID, need) else {
        panic!("a fault");
    };
    rig.publish();
    let wants = FaultWants::Page(PageNo(0x40), Access::Write);
    let head = FaultHead { id, asid: ASID, pe, job, wants };
    assert_eq!(rig.faults(), [FaultRecord::Head(head)]);
    let to = pages_at(0x40, 1, Whereabouts::Own(9));
    assert_eq!(rig.ok(ASID, Operation::Map(to, Rights::ReadWrite)).pages, 1);
    assert_eq!(rig.ok(farside_types::Asid(0), Operation::Resume(FaultArg::One(id))).value, 1);
    let actions = rig.actions();
    let [Action::Answer(Answer { outcome: Outcome::Granted(grant), .. })] = &actions[..] else {
        panic!("the page is granted: {actions:?}");
    };
    assert_eq!(grant.runs[0].location.frame.0, 9);
    let unmap = rig.submit(ASID, Operation::Unmap(pages(0x40, 1)));
    rig.doorbell();
    assert!(rig.completions().is_empty(), "the page is held");
    let drained = rig.card.end(grant.access);
    rig.function.drained(&mut rig.card, &mut rig.bus, &drained);
    assert_eq!(rig.completions()[0].tag, unmap);
    let end = JobEnd::returned(42);
    rig.function.job_ended(&mut rig.card, &mut rig.bus, job, &end);
    let completion = rig.completions()[0];
    assert_eq!((completion.tag, completion.status, completion.value), (tag, Status::Ok, 42));
    assert!(rig.function.is_quiet(&rig.card));
}

#[test]
fn a_copy_is_given_to_the_embedder_and_completes_with_its_answer() {
    let mut rig = Rig::new();
    let bus_page = Whereabouts::Bus((rig.free >> 12) as u32);
    let none = farside_types::Asid(0);
    let tag = rig.submit(none, Operation::Copy(moved(3, bus_page, Whereabouts::Own(7))));
    rig.doorbell();
    let actions = rig.actions();
    let [Action::Copy { id, extents }] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(extents[0].count, 3);
    assert!(rig.completions().is_empty());
    rig.function.copied(&mut rig.card, &mut rig.bus, *id, Ok(()));
    let completion = rig.completions()[0];
    assert_eq!((completion.tag, completion.status, completion.pages), (tag, Status::Ok, 3));
    assert_eq!(rig.counter("dma_pages"), 3);
}

#[test]
fn foreign_frames_are_refused_and_counted() {
    let mut rig = Rig::new();
    let to = pages_at(0x40, 2, Whereabouts::Own(rig::FRAMES - 1));
    let completion = rig.run(ASID, Operation::Map(to, Rights::Read));
    assert_eq!(completion.status, Status::ForeignFrame);
    assert_eq!(completion.detail, rig::FRAMES.into());
    assert_eq!(rig.counter("foreign_frames_refused"), 1);
    assert_eq!(rig.read64(register::ERRORS), register::ERROR_FOREIGN_FRAME);
    assert_eq!(rig.read64(register::ERROR_DETAIL), completion.tag);
    assert_eq!(rig.card.stats().pages_mapped, 0, "nothing was done");
}

#[test]
fn a_stale_answer_is_well_and_counted() {
    let mut rig = Rig::new();
    let none = farside_types::Asid(0);
    assert_eq!(rig.ok(none, Operation::Resume(FaultArg::One(FaultId(99)))).value, 0);
    assert_eq!(rig.counter("stale_answers"), 1);
}
