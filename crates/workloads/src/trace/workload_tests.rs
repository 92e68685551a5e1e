//! What wavefronts a recording becomes.

use super::tests::{TestRecord, marker, read, read_cycles, record};
use super::*;
use crate::{Cursor, Instruction, Lines, Workload};

/// A record of an instruction.
fn at(sequence: u32, address: u64, flags: u8) -> TestRecord {
    let mut raw = record(address, 0, 0, flags);
    raw[8..12].copy_from_slice(&sequence.to_le_bytes());
    raw
}

/// Everything that a wavefront does: a letter an instruction, with its lines.
fn run(trace: &Trace, group: u32, wave: u16) -> String {
    let (mut at, mut lines) = (Cursor { group, wave, ..Cursor::default() }, Lines::new());
    let mut all = Vec::new();
    loop {
        let letter = match trace.next(&mut at, &mut lines) {
            Instruction::Load => 'L',
            Instruction::Store => 'S',
            Instruction::LoadScalar => 'A',
            Instruction::Wait => 'w',
            Instruction::Barrier => 'b',
            Instruction::End => return all.join(" "),
            other => panic!("{other:?} is not recorded"),
        };
        let numbers: Vec<_> = lines.iter().map(|line| line.0.to_string()).collect();
        all.push(format!("{letter}{}", numbers.join(",")));
    }
}

#[test]
fn records_of_a_sequence_number_are_an_instruction() {
    let trace = read(&[at(1, 8192, 0), at(1, 8256, 0), at(2, 8192, 0), at(2, 12288, 0)]).unwrap();
    assert_eq!(run(&trace, 0, 0), "L0,1 L0,64");
    // A line twice, another kind, more lanes than there are: another instruction.
    let trace = read(&[at(1, 8192, 0), at(1, 8192, 0), at(1, 8192, 2)]).unwrap();
    assert_eq!(run(&trace, 0, 0), "L0 L0 A0");
    let many: Vec<_> = (0..65).map(|line| at(1, 8192 + 64 * line, 1)).collect();
    let stores = run(&read(&many).unwrap(), 0, 0);
    assert!(stores.ends_with(",63 S64"), "{stores}");
}

#[test]
fn a_wavefront_waits_for_arguments_before_stores_and_after_four_loads() {
    let load = |sequence| at(sequence, 8192, 0);
    let trace = read(&[at(1, 4096, 2), at(2, 4096, 2), load(3), at(4, 8192, 1), load(5)]).unwrap();
    assert_eq!(run(&trace, 0, 0), "A32768 A32768 w L0 w S0 L0");
    let trace = read(&[load(1), load(2), load(3), load(4), load(5)]).unwrap();
    assert_eq!(run(&trace, 0, 0), "L0 L0 L0 L0 w L0");
}

#[test]
fn in_a_cycle_level_recording_time_tells_who_waited() {
    let load = |cycle| at(cycle, 8192, 0);
    let trace = read_cycles(&[load(10), load(109), load(110), load(111), load(300)]).unwrap();
    assert_eq!(run(&trace, 0, 0), "L0 L0 w L0 L0 w L0");
}

#[test]
fn markers_name_work_groups_and_wavefronts() {
    let load = |line: u64, gpu, cu| record(8192 + 64 * line, gpu, cu, 0);
    let trace = read(&[
        marker(0, 3, 7, 1),
        load(0, 0, 3),
        marker(0, 3, 7, 0),
        load(1, 0, 3),
        marker(0, 3, 5, 0),
        load(2, 0, 3),
        // The first wavefront of work-group 7 goes on.
        marker(0, 3, 7, 0),
        load(3, 0, 3),
        marker(1, 0, 6, 0),
        load(4, 1, 0),
    ])
    .unwrap();
    let launch = trace.launch(0);
    assert_eq!((Workload::launches(&trace), launch.groups, launch.waves), (1, 3, 2));
    // The first of each compute unit, then the second.
    let places = [(0, 3), (1, 0), (0, 3)];
    for (group, (gpu, unit)) in (0..).zip(places) {
        assert_eq!(trace.place(0, group), Some(Place { gpu, unit }));
    }
    let waves = |group| [run(&trace, group, 0), run(&trace, group, 1)];
    assert_eq!(waves(0), ["L1 b L3", "L0"]);
    assert_eq!(waves(1), ["L4", ""]);
    assert_eq!(waves(2), ["L2", ""]);
}

#[test]
fn every_recorded_access_is_in_some_wavefront() {
    for name in Trace::BUNDLED {
        let trace = Trace::bundled(name).unwrap();
        let mut found = 0;
        for launch in 0..Workload::launches(&trace) {
            for group in 0..trace.launch(launch).groups {
                let mut at = Cursor { launch, group, ..Cursor::default() };
                let mut lines = Lines::new();
                while trace.next(&mut at, &mut lines) != Instruction::End {
                    found += lines.len() as u64;
                }
            }
        }
        assert_eq!(found, trace.accesses(), "{name}");
    }
}
