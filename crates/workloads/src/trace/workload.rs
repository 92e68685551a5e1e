//! A trace as a workload: its wavefronts, with a wait where they probably waited.
//!
//! The recorder ran a wavefront to its next barrier or end before another one of the work-group: a
//! wavefront that goes on after another one stood at a barrier in between.
//!
//! Work-groups run on the compute unit that they were recorded on, those of one compute unit in
//! recorded order. What names no work-group, as cycle-level recordings, is one work-group of one
//! wavefront per compute unit and launch, so that its order is kept.

use super::Trace;
use super::store::{Kind, Piece, Stream};
use crate::{Buffer, Cursor, Instruction, Launch, Line, Lines, Place, Workload};

impl Workload for Trace {
    fn name(&self) -> &str {
        &self.name
    }

    fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    fn launches(&self) -> u32 {
        self.launches.len() as u32
    }

    fn launch(&self, launch: u32) -> Launch {
        let recorded = &self.launches[launch as usize];
        Launch {
            groups: recorded.groups.len() as u32,
            waves: recorded.waves.max(1),
            // Recordings do not say what a work-group needs: the wavefront slots decide.
            groups_per_unit: u16::MAX,
            code: None,
        }
    }

    fn next(&self, at: &mut Cursor, lines: &mut Lines) -> Instruction {
        lines.clear();
        let launch = &self.launches[at.launch as usize];
        let (stream, first) = launch.groups[at.group as usize];
        let stream = &launch.streams[stream as usize];
        if at.step == 0 && !begin(stream, first as usize, at) {
            return Instruction::End;
        }
        at.step += 1;
        advance(stream, at, lines)
    }

    fn place(&self, launch: u32, group: u32) -> Option<Place> {
        let launch = &self.launches[launch as usize];
        let (stream, _) = launch.groups[group as usize];
        Some(launch.streams[stream as usize].place)
    }

    fn gpus(&self) -> u32 {
        self.gpus as u32
    }
}

/// Finds the first piece of a wavefront; `false` if it has none. The notes are then the number of
/// the piece, the next instruction and its first line.
fn begin(stream: &Stream, first: usize, at: &mut Cursor) -> bool {
    let group = stream.pieces[first].group;
    let pieces = stream.pieces[first..].iter().take_while(|piece| piece.group == group);
    let mut pieces = pieces.zip(first..);
    match pieces.find(|(piece, _)| piece.wave == at.wave) {
        Some((piece, number)) => {
            at.notes = [number as u32, piece.head, piece.line, 0];
            true
        }
        None => false,
    }
}

fn advance(stream: &Stream, at: &mut Cursor, lines: &mut Lines) -> Instruction {
    let [number, head, line, _] = &mut at.notes;
    if *head == stream.pieces[*number as usize].end {
        return match next_piece(stream, *number) {
            Some(piece) => {
                *number += 1;
                (*head, *line) = (piece.head, piece.line);
                Instruction::Barrier
            }
            None => Instruction::End,
        };
    }
    let what = stream.heads[*head as usize];
    let end = *line as usize + what.lines();
    for &number in &stream.lines[*line as usize..end] {
        lines.push(Line(number));
    }
    *head += 1;
    *line = end as u32;
    match what.kind() {
        Kind::Load => Instruction::Load,
        Kind::Store => Instruction::Store,
        Kind::LoadScalar => Instruction::LoadScalar,
        Kind::Wait => Instruction::Wait,
    }
}

/// The piece after this one, if it is of the same wavefront.
fn next_piece(stream: &Stream, number: u32) -> Option<&Piece> {
    let this = &stream.pieces[number as usize];
    let next = stream.pieces.get(number as usize + 1)?;
    (next.group == this.group && next.wave == this.wave).then_some(next)
}
