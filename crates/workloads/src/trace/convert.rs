//! From any format into the compact one, without holding the trace in memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use super::columns::{TraceRow, TraceWriter};
use super::sink::{Recorded, Sink};
use super::source::Source;
use super::store::Kind;
use crate::Place;
use crate::TraceError;

/// What was converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Converted {
    /// Accesses that were written.
    pub accesses: u64,
    /// Records of the tool's that are accesses of a kind that is not known, and were left out.
    pub left_out: u64,
}

/// Reads the recording `from` and writes it as `to`, in the compact format. `gpus`: see [`super::Trace::open_spread`].
///
/// # Errors
/// [`TraceError`]: what cannot be read, or written. There is no `to` then.
pub fn convert(from: &Path, to: &Path, gpus: u8) -> Result<Converted, TraceError> {
    let mut source = Source::open(from, gpus).map_err(|error| error.of(from))?;
    let unwritable = |source| TraceError::Write(parquet::errors::ParquetError::from(source).into());
    let file = File::create(to).map_err(unwritable)?;
    let converted = write(&mut source, file).map_err(|error| error.of(from));
    if converted.is_err() {
        // What went wrong is worth more than that this may not work either.
        let _ = std::fs::remove_file(to);
    }
    converted
}

fn write(source: &mut Source, out: File) -> Result<Converted, TraceError> {
    let cycles = source.description.cycles;
    let writer = TraceWriter::new(out)?;
    let mut writing = Writing { writer, running: BTreeMap::new(), cycles, accesses: 0 };
    source.read(&mut writing)?;
    writing.writer.finish(&source.description)?;
    Ok(Converted { accesses: writing.accesses, left_out: source.left_out() })
}

/// Makes rows of accesses.
struct Writing<W: Write + Send> {
    writer: TraceWriter<W>,
    /// What the compute units run, by launch, GPU and number.
    running: BTreeMap<(usize, u8, u8), (u32, u16)>,
    cycles: bool,
    accesses: u64,
}

impl<W: Write + Send> Sink for Writing<W> {
    fn marker(&mut self, launch: usize, place: Place, group: u32, wave: u16) {
        self.running.insert((launch, place.gpu, place.unit), (group, wave));
    }

    fn access(&mut self, access: &Recorded) -> Result<(), TraceError> {
        let &Recorded { launch, place, sequence, kind, address, .. } = access;
        self.accesses += 1;
        self.writer.push(TraceRow {
            launch: launch as u32,
            place,
            wave: self.running.get(&(launch, place.gpu, place.unit)).copied(),
            sequence,
            address,
            count: 1,
            write: kind == Kind::Store,
            scalar: kind == Kind::LoadScalar,
            time: self.cycles.then_some(sequence.into()),
        })?;
        Ok(())
    }
}
