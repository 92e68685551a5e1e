//! Jobs: launches, their queue, their end.

use farside_types::{JobId, PeId, Rights};

use super::client::{Client, NO_ASID, NO_LIST, ensure, kernel, same, words_at};
use super::{Outcome, Target};
use farside_card::interface::{
    ArgKind, DmaAddr, ExtentList, FaultArg, Operation, Status, register,
};

pub(super) fn kernels_are_found_by_name(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    let kernels = client.read32(register::KERNELS);
    let nop = kernel!(client, "farside.nop");
    ensure!(nop < kernels, "kernel {nop} of {kernels}");
    same("the same kernel again", client.kernel("farside.nop")?, Some(nop))?;
    for other in ["farside.no", "farside.nopx", "Farside.nop"] {
        same(other, client.kernel(other)?, None)?;
    }
    client.finish()
}

pub(super) fn a_kernel_runs_and_gives_its_value(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    let (nop, sum) = (kernel!(client, "farside.nop"), kernel!(client, "farside.sum"));
    let (started, done) = (client.counter("jobs_started"), client.counter("jobs_done"));
    let tag = client.launch(NO_ASID, 1, nop, &[])?;
    same("the value of farside.nop", client.wait_ok(tag)?.value, 0)?;
    client.mark_frame(3, 0);
    client.map(NO_ASID, 0x30, 1, DmaAddr::Own(3), Rights::Read)?;
    let tag = client.launch(NO_ASID, 2, sum, &[words_at(ArgKind::Read, 0x30, 512)])?;
    let value = client.serve(tag, |_| DmaAddr::Own(3))?.value;
    same("a sum", value, (0..512).sum())?;
    same("jobs_started", client.counter("jobs_started"), started + 2)?;
    same("jobs_done", client.counter("jobs_done"), done + 2)?;
    same("what pe 0 does", client.pe_status(0)?, (0, 0))?;
    client.finish()
}

pub(super) fn a_message_says_what_went_wrong(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    let increment = kernel!(client, "farside.increment");
    let buffer = client.target.allocate(256);
    // It wants an argument; as little room as the text does not fit in is filled, no more.
    for (job, room) in [(1, 200), (2, 9)] {
        client.target.write(buffer, &[0xee; 256]);
        let operation = Operation::Launch {
            job: JobId(job),
            kernel: increment,
            pe: None,
            args: NO_LIST,
            message: ExtentList { address: buffer, count: room },
        };
        let done = client.expect(NO_ASID, operation, Status::BadRequest)?;
        let bytes = done.message_bytes;
        ensure!(0 < bytes && bytes <= room, "a message of {bytes} bytes in room for {room}");
        let mut text = [0; 256];
        client.target.read(buffer, &mut text);
        let (message, behind) = text.split_at(bytes as usize);
        ensure!(std::str::from_utf8(message).is_ok(), "the message {message:x?} is no text");
        ensure!(behind.iter().all(|&byte| byte == 0xee), "more was written than the message");
    }
    client.finish()
}

pub(super) fn jobs_wait_in_order_for_a_processing_element(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    let (spin, nop) = (kernel!(client, "farside.spin"), kernel!(client, "farside.nop"));
    let pes = u64::from(client.read32(register::PES)).min(64);
    let jobs = u64::from(client.read32(register::JOBS));
    if client.read32(register::PES) > 64 || jobs > 4096 {
        return Ok(super::Verdict::NotRun("more processing elements or jobs than tried".into()));
    }
    let mut spins = Vec::new();
    for job in 0..pes {
        spins.push(client.launch(NO_ASID, job, spin, &[])?);
    }
    let placed = |pe| Operation::Launch {
        job: JobId(0xbad),
        kernel: nop,
        pe: Some(PeId(pe)),
        args: NO_LIST,
        message: NO_LIST,
    };
    client.expect(NO_ASID, placed(0), Status::NoPe)?;
    let mut waiting = Vec::new();
    for job in pes..pes + jobs {
        waiting.push(client.launch(NO_ASID, job, nop, &[])?);
    }
    let tag = client.launch(NO_ASID, 0xbad, nop, &[])?;
    same("one job too many", client.wait_for(tag)?.status, Status::Busy)?;
    if jobs > 0 {
        let twice = client.launch(NO_ASID, pes, nop, &[])?;
        let done = client.wait_for(twice)?;
        same("a job's number twice", (done.status, done.detail), (Status::BadOperand, 2))?;
        client.expect_errors(register::ERROR_COMMAND)?;
    }
    client.settle()?;
    for &tag in spins.iter().chain(&waiting) {
        ensure!(!client.has_completed(tag)?, "a job ended too early");
    }
    same("pe 0", client.pe_status(0)?, (1, 0))?;
    client.ok(NO_ASID, Operation::Abort(JobId(0)))?;
    for &tag in &waiting {
        client.wait_ok(tag)?;
    }
    for pair in waiting.windows(2) {
        let order = client.position(pair[0]) < client.position(pair[1]);
        ensure!(order, "jobs that waited for one processing element ended out of order");
    }
    client.expect(NO_ASID, placed(0), Status::Ok)?;
    for job in 1..pes {
        client.ok(NO_ASID, Operation::Abort(JobId(job)))?;
    }
    for tag in spins {
        same("an aborted job", client.wait_for(tag)?.status, Status::Aborted)?;
    }
    client.finish()
}

pub(super) fn jobs_are_aborted_running_or_waiting(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    let spin = kernel!(client, "farside.spin");
    let pes = u64::from(client.read32(register::PES));
    let started = client.counter("jobs_started");
    let mut tags = Vec::new();
    let waits = u64::from(client.read32(register::JOBS) > 0);
    for job in 0..pes + waits {
        tags.push((job, client.launch(NO_ASID, job, spin, &[])?));
    }
    // The one that waits first: it must never start.
    for &(job, launch) in tags.iter().rev() {
        let abort = client.submit(NO_ASID, Operation::Abort(JobId(job)))?;
        client.wait_ok(abort)?;
        same("an aborted job", client.wait_for(launch)?.status, Status::Aborted)?;
        let order = client.position(launch) < client.position(abort);
        ensure!(order, "an abort completed before its job's launch");
        client.expect(NO_ASID, Operation::Abort(JobId(job)), Status::NoSuchJob)?;
    }
    same("jobs_started", client.counter("jobs_started"), started + pes)?;
    client.finish()
}

pub(super) fn a_barrier_waits_for_a_job(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    let spin = kernel!(client, "farside.spin");
    let launch = client.launch(NO_ASID, 1, spin, &[])?;
    let barrier = client.submit(NO_ASID, Operation::Barrier)?;
    let behind = client.submit(NO_ASID, Operation::Nop)?;
    client.wait_ok(behind)?;
    client.settle()?;
    ensure!(!client.has_completed(barrier)?, "a barrier completed before a job in front of it");
    let abort = client.submit(NO_ASID, Operation::Abort(JobId(1)))?;
    client.wait_ok(barrier)?;
    ensure!(client.position(launch) < client.position(barrier), "the barrier came first");
    client.wait_ok(abort)?;
    client.finish()
}

pub(super) fn a_job_in_a_fault_is_aborted(target: &mut dyn Target) -> Outcome {
    let mut client = Client::open(target)?;
    let touch = kernel!(client, "farside.touch");
    let launch = client.launch(NO_ASID, 1, touch, &[words_at(ArgKind::Write, 0x70, 512)])?;
    let fault = client.wait_fault()?;
    same("pe of the fault", client.pe_status(fault.head.pe.0)?, (2, 1))?;
    client.ok(NO_ASID, Operation::Abort(JobId(1)))?;
    same("an aborted job", client.wait_for(launch)?.status, Status::Aborted)?;
    let stale = client.counter("stale_answers");
    client.ok(NO_ASID, Operation::Resume(FaultArg::One(fault.id())))?;
    same("stale_answers", client.counter("stale_answers"), stale + 1)?;
    client.finish()
}
