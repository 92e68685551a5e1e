//! Text that valgrind writes with `--tool=lackey --trace-mem=yes`: every memory access of a
//! program, one a line.
//!
//! ```text
//! I  04016ff4,2        an instruction is fetched: left out, code is not placed
//!  L 1ffefff938,8      a load: hexadecimal address, size in bytes
//!  S 1ffefff930,8      a store
//!  M 0421c7cc,4        a load and then a store
//! ==1234== ...         what valgrind says: left out
//! ```
//!
//! The text does not say what was allocated. Pages that are touched are put together into
//! allocations, with gaps of up to 64 KiB between them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::path::{Path, PathBuf};

use farside_types::{PAGE_SHIFT, PAGE_SIZE};

use super::Allocation;
use super::sidecar::{Layout, around};
use super::sink::{Recorded, Sink};
use super::store::Kind;
use crate::TraceError;
use crate::{LINE_BYTES, Place};

/// Largest access in bytes: more than any instruction has.
const SIZE_MAX: u64 = 1 << 16;
/// Longest line of the text.
const TEXT_MAX: u64 = 4096;
/// Accesses that one GPU has before the next one, if they are spread over several.
const STRETCH: u64 = 1 << 14;

/// A text that was read once, to see what it touches.
pub(super) struct Lackey {
    path: PathBuf,
    file: File,
    spread: u8,
    pages: BTreeSet<u64>,
}

/// What a line of the text says.
struct Touch {
    address: u64,
    size: u64,
    kinds: &'static [Kind],
}

impl Lackey {
    pub(super) fn open(path: &Path, file: File, spread: u8) -> Result<Lackey, TraceError> {
        let mut lackey = Lackey { path: path.to_owned(), file, spread, pages: BTreeSet::new() };
        let mut pages = BTreeSet::new();
        lackey.each(|_, touch| {
            let last = (touch.address + touch.size - 1) >> PAGE_SHIFT;
            pages.extend(touch.address >> PAGE_SHIFT..=last);
            Ok(())
        })?;
        if pages.is_empty() {
            return Err(TraceError::NoAccesses { path: path.to_owned() });
        }
        lackey.pages = pages;
        Ok(lackey)
    }

    /// What the program must have allocated.
    pub(super) fn allocations(&self) -> Vec<Allocation> {
        around(&self.pages)
    }

    /// Hands every access to `sink`. Spread over several GPUs, each stretch of accesses is a
    /// work-group, and GPU after GPU takes one.
    pub(super) fn read(
        &mut self,
        layout: &mut Layout,
        sink: &mut impl Sink,
    ) -> Result<(), TraceError> {
        let spread = u64::from(self.spread);
        let path = self.path.clone();
        let (mut record, mut instruction) = (0, 0_u64);
        self.each(|text_line, touch| {
            for &kind in touch.kinds {
                let stretch = instruction / STRETCH;
                let place = Place { gpu: (stretch % spread) as u8, unit: 0 };
                if spread > 1 && instruction % STRETCH == 0 {
                    sink.marker(0, place, stretch as u32, 0);
                }
                let last = (touch.address + touch.size - 1) / LINE_BYTES;
                for line in touch.address / LINE_BYTES..=last {
                    let address = line * LINE_BYTES;
                    let Some(line) = layout.line_of(address) else {
                        let why = "the text has changed while it was read";
                        return Err(TraceError::Text { path: path.clone(), line: text_line, why });
                    };
                    let (launch, sequence) = (0, instruction as u32);
                    let access = Recorded { record, launch, place, sequence, kind, address, line };
                    sink.access(&access)?;
                    record += 1;
                }
                instruction += 1;
            }
            Ok(())
        })
    }

    /// Calls `take` with the number, from 1, and the content of each line that is an access.
    fn each(
        &mut self,
        mut take: impl FnMut(u64, &Touch) -> Result<(), TraceError>,
    ) -> Result<(), TraceError> {
        let path = &self.path;
        let unreadable = |source| TraceError::Read { path: path.clone(), source };
        self.file.rewind().map_err(unreadable)?;
        let mut text = BufReader::with_capacity(1 << 16, &self.file);
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let mut limited = std::io::Read::take(&mut text, TEXT_MAX);
            if limited.read_until(b'\n', &mut line).map_err(unreadable)? == 0 {
                break;
            }
            let touch = parse(line.trim_ascii_end());
            let touch =
                touch.map_err(|why| TraceError::Text { path: path.clone(), line: number, why })?;
            if let Some(touch) = touch {
                take(number, &touch)?;
            }
        }
        Ok(())
    }
}

/// One line; `None` if it is no access to data.
fn parse(line: &[u8]) -> Result<Option<Touch>, &'static str> {
    const EXPECTED: &str =
        "it is none of \"I  ADDRESS,SIZE\", \" L ADDRESS,SIZE\", \" S …\", \" M …\" and \"==…\"";
    let (kinds, rest): (&[Kind], _) = match line {
        [] => return Ok(None),
        [b'=', b'=', ..] | [b'-', b'-', ..] | [b'*', b'*', ..] => return Ok(None),
        [b'I', b' ', b' ', rest @ ..] => (&[], rest),
        [b' ', b'L', b' ', rest @ ..] => (&[Kind::Load], rest),
        [b' ', b'S', b' ', rest @ ..] => (&[Kind::Store], rest),
        [b' ', b'M', b' ', rest @ ..] => (&[Kind::Load, Kind::Store], rest),
        _ => return Err(EXPECTED),
    };
    let rest = std::str::from_utf8(rest).map_err(|_| EXPECTED)?;
    let (address, size) = rest.split_once(',').ok_or(EXPECTED)?;
    let address = u64::from_str_radix(address, 16).map_err(|_| EXPECTED)?;
    let size: u64 = size.parse().map_err(|_| EXPECTED)?;
    if size == 0 || size > SIZE_MAX {
        return Err("its size is not 1 to 65536 bytes");
    }
    if address.checked_add(size + PAGE_SIZE as u64).is_none() {
        return Err("it ends beyond the address space");
    }
    Ok((!kinds.is_empty()).then_some(Touch { address, size, kinds }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Trace;
    use crate::order::accesses;

    fn file(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("farside-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    fn open(name: &str, text: &str, spread: u8) -> Result<Trace, TraceError> {
        let path = file(name, text);
        let trace = Trace::open_spread(&path, spread);
        std::fs::remove_file(path).unwrap();
        trace
    }

    #[test]
    fn loads_stores_and_modifications_are_accesses() {
        let text = "==7== Lackey, an example Valgrind tool\nI  04016ff4,2\n L 1ffefff93c,8\n \
                    S 1000,4\n M 00001040,1\n==7==\n";
        let trace = open("lackey-kinds", text, 1).unwrap();
        // Two allocations, far apart; the load straddles two lines.
        assert_eq!((trace.gpus(), trace.allocations().len(), trace.accesses()), (1, 2, 5));
        let found: Vec<_> = accesses(&trace, 1, 1).map(|a| (a.line.0, a.write)).collect();
        let block = crate::BLOCK_LINES;
        let far = block + (0x93c / 64);
        assert_eq!(found, [(far, false), (far + 1, false), (0, true), (1, false), (1, true)]);
    }

    #[test]
    fn a_text_without_accesses_is_an_error() {
        for nothing in ["", "==7== Lackey\n", "I  04016ff4,2\n"] {
            let error = open("lackey-nothing", nothing, 1).unwrap_err();
            assert!(matches!(error, TraceError::NoAccesses { .. }), "{error}");
        }
    }

    #[test]
    fn stretches_are_spread_over_gpus() {
        let text = " L 1000,4\n".repeat(3 * STRETCH as usize);
        let trace = open("lackey-spread", &text, 2).unwrap();
        let mut gpus = [0; 2];
        accesses(&trace, 2, 1).for_each(|a| gpus[usize::from(a.place.gpu)] += 1);
        assert_eq!(gpus, [2 * STRETCH, STRETCH]);
    }

    #[test]
    fn lines_that_cannot_be_are_named() {
        for wrong in [
            " X 10,4",
            " L zz,4",
            " L 10",
            " L 10,0",
            " L 10,99999",
            " L ffffffffffffffff,4",
            "L 1,2",
        ] {
            let error = open("lackey-wrong", &format!("==1==\n L 10,4\n{wrong}\n"), 1);
            let error = error.unwrap_err().to_string();
            assert!(error.contains("line 3"), "{wrong}: {error}");
        }
    }
}
