//! The machine by hand: what must show when a command, a driver or a frame is not as it should be.

use farside_svm::placement::by_name;
use farside_svm::{Header, Phase, RingOp, Run, Step as Ordered, Wait};
use farside_types::{PAGE_SIZE, Reason, Rights};

use super::*;
use crate::Constants;
use crate::gpu::Mapping;
use farside_workloads::{Group, Place, Script, Step};

/// Two GPUs and two launches, in which a compute unit of each writes the same page.
fn machine() -> Machine {
    let mut spec = Spec::default();
    spec.gpu.count = 2;
    let group = |gpu, unit| Group {
        place: Some(Place { gpu, unit }),
        waves: vec![vec![Step::Store(vec![Line(64)])]],
    };
    let groups = vec![group(0, 5), group(1, 6)];
    let script = Script::new("hand-made", &[3 * PAGE_SIZE as u64]);
    let script = script.with_launch(groups.clone()).with_launch(groups);
    let scheme = by_name("on-touch").unwrap();
    Machine::new(spec, Arc::new(script), scheme, true).unwrap()
}

fn card_command(op: RingOp) -> Ordered<RingOp> {
    let header = Header {
        id: CommandId(u64::MAX),
        epoch: Epoch(0),
        wait: Wait::Awaited,
        phase: Phase::Setup,
        reason: Reason::User,
    };
    Ordered { header, op }
}

/// A command about the first page of the arena.
fn unmap_first(machine: &Machine) -> Ordered<RingOp> {
    let run = Run { page: machine.arena, count: 1, src: FrameNo(0), dst: FrameNo(0) };
    card_command(RingOp::Unmap { runs: [run].into(), tells: false })
}

/// Lets time pass until the ring of GPU 0 has ended a command; when that was.
fn ring_end(machine: &mut Machine) -> Span {
    while machine.rings[0].is_busy() {
        machine.step().unwrap();
    }
    machine.elapsed()
}

#[test]
fn an_unmap_of_a_quiet_page_takes_its_own_time() {
    let mut machine = machine();
    let command = unmap_first(&machine);
    machine.submit(CardId(0), command).unwrap();
    let spec = &machine.spec.command;
    let own = spec.submit_ns + spec.base_ns + spec.invalidate_ns + spec.page_ns;
    assert_eq!(ring_end(&mut machine), Span::from_nanos(own));
}

#[test]
fn an_unmap_ends_only_when_accesses_in_flight_are_over() {
    let mut machine = machine();
    let over = Span::from_micros(77);
    let mapping = Mapping { memory: MemoryId(1), rights: Rights::ReadWrite };
    machine.gpus[0].table.map(0, mapping, FrameNo(0));
    let start = machine.start;
    machine.gpus[0].use_until(0, start + over);
    let command = unmap_first(&machine);
    machine.submit(CardId(0), command).unwrap();
    assert_eq!(ring_end(&mut machine), over);
    assert_eq!(machine.gpus[0].table.get(0), None);
}

#[test]
fn a_run_with_nothing_left_to_happen_says_who_waits_for_what() {
    let mut machine = machine();
    machine.begin_launch(0).unwrap();
    while machine.faults.len() < 2 {
        machine.step().unwrap();
    }
    machine.queue = Queue::new(machine.queue.now());
    let error = machine.step().unwrap_err().to_string();
    let page = machine.arena.offset(1);
    assert!(error.contains("nothing is left to happen"), "{error}");
    assert!(error.contains("GPU 0 CU [5]") && error.contains("GPU 1 CU [6]"), "{error}");
    assert!(error.contains("fault 0 for writing") && error.contains(&page.to_string()), "{error}");
    assert!(
        error.contains("GPU 1: 1 busy CUs, 1 work-groups of launch 0, 1 wavefronts"),
        "{error}"
    );
}

#[test]
fn a_run_that_only_turns_over_is_given_up() {
    let mut machine = machine();
    machine.begin_launch(0).unwrap();
    machine.idle_events = watchdog::IDLE_EVENTS_MAX;
    assert!(matches!(machine.step(), Err(SimError::Stuck { .. })));
}

/// The negative control of the checker: bytes that went astray stop the run.
#[test]
fn a_frame_that_lost_its_bytes_stops_the_run() {
    let mut machine = machine();
    let page = FrameNo(machine.blocks[0].start + 1);
    machine.coherence.as_mut().unwrap().release(MemoryId::HOST, page).unwrap();
    let error = machine.run(&mut |_| ()).unwrap_err();
    assert!(matches!(error, SimError::Broken { .. }), "{error}");
    assert!(error.to_string().contains("instead of version 1"), "{error}");
}

/// The negative control of the drain: the source of a copy is written while it is read.
#[test]
fn a_write_under_a_copy_stops_the_run() {
    let mut machine = machine();
    machine.begin_launch(0).unwrap();
    while machine.transfers.is_empty() {
        machine.step().unwrap();
    }
    let page = machine.blocks[0].start + 1;
    let checker = machine.coherence.as_mut().unwrap();
    checker.write(page, MemoryId::HOST, FrameNo(page)).unwrap();
    let error = machine.run(&mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("under a copy"), "{error}");
}

#[test]
fn commands_that_no_machine_can_do_are_refused() {
    let mut machine = machine();
    let outside = PageNo(machine.arena.0 + machine.arena_pages);
    let run = Run { page: outside, count: 1, src: FrameNo(0), dst: FrameNo(0) };
    let command = card_command(RingOp::Unmap { runs: [run].into(), tells: false });
    machine.submit(CardId(0), command).unwrap();
    let error = machine.step().unwrap_err().to_string();
    assert!(error.contains("outside of the arena"), "{error}");
    let resume = card_command(RingOp::Resume { faults: [FaultId(99)].into() });
    assert!(machine.submit(CardId(9), resume.clone()).is_err());
    let mut machine = self::machine();
    machine.submit(CardId(0), resume).unwrap();
    machine.step().unwrap();
    let error = machine.step().unwrap_err().to_string();
    assert!(error.contains("fault 99 is resumed and is not open"), "{error}");
}

/// Small buffers lie side by side in the arena, and the last line is the largest there can be.
#[test]
fn a_line_in_no_buffer_is_an_error_that_names_workload_line_and_wavefront() {
    const BLOCK: u32 = farside_workloads::BLOCK_LINES;
    for line in [64, BLOCK - 1, BLOCK + 128, 2 * BLOCK, u32::MAX] {
        for kind in [Step::Load, Step::Store, Step::LoadScalar] {
            let idle = Group { place: None, waves: vec![vec![]] };
            let wild =
                vec![Step::Load(vec![Line(63)]), Step::Wait, kind(vec![Line(0), Line(line)])];
            let waves = vec![vec![Step::Load(vec![Line(BLOCK + 127)])], wild];
            let script = Script::new("wild", &[4096, 8192]).with_launch(vec![idle.clone()]);
            let script = script.with_launch(vec![idle, Group { place: None, waves }]);
            let scheme = by_name("on-touch").unwrap();
            let machine = Machine::new(Spec::default(), Arc::new(script), scheme, true);
            let error = machine.unwrap().run(&mut |_| ()).unwrap_err().to_string();
            let expected =
                format!("launch 1, work-group 1, wavefront 1 of wild accesses line {line} ");
            assert!(error.contains(&expected), "{error}");
        }
    }
}

#[test]
fn code_in_no_buffer_is_an_error_too() {
    let group = Group { place: None, waves: vec![vec![Step::Compute(1)]] };
    let script = Script::new("code", &[4096]).with_launch(vec![group]).code(Line(900), 2);
    let scheme = by_name("on-touch").unwrap();
    let machine = Machine::new(Spec::default(), Arc::new(script), scheme, true);
    let error = machine.unwrap().run(&mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("of code accesses line 900 "), "{error}");
}

#[test]
fn a_constant_that_every_gpu_has_is_not_fought_over() {
    let run = |constants| {
        let mut spec = Spec::default();
        spec.gpu.constants = constants;
        let fir = farside_workloads::catalog::by_name("fir", Some(1 << 20)).unwrap();
        let scheme = by_name("on-touch").unwrap();
        Machine::new(spec, fir, scheme, true).unwrap().run(&mut |_| ()).unwrap()
    };
    let (shared, own) = (run(Constants::Shared), run(Constants::Each));
    assert_eq!(own.total.accesses(), own.total.local, "nothing is far");
    assert!(own.total.faults < shared.total.faults, "the filter's page is among those that move");
    assert!(own.time < shared.time);
}
