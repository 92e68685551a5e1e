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

use std::path::PathBuf;

use super::lines::Lines;
use super::{Format, Take, Touch};
use crate::trace::store::Kind;
use crate::{Place, TraceError};

/// What valgrind says at the beginning, and in the end.
const BANNER: &[u8] = b"Lackey, an example Valgrind tool";
const TRAILER: &[u8] = b"Exit code:";

/// Accesses that one GPU has before the next one, if they are spread over several.
const STRETCH: u64 = 1 << 14;

/// A text. Spread over several GPUs, each stretch of accesses is a work-group, and GPU after GPU takes one.
#[derive(Debug)]
pub(super) struct Lackey {
    path: PathBuf,
    spread: u8,
}

/// What a line of the text says.
struct Line {
    address: u64,
    size: u64,
    kinds: &'static [Kind],
}

/// Whether a file begins as such a text; what has no line may be one without accesses.
pub(super) fn is_it(head: &[u8]) -> bool {
    let lines = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end);
    lines.into_iter().find(|line| !line.is_empty()).is_none_or(|line| parse(line).is_ok())
}

impl Lackey {
    pub(super) fn new(path: PathBuf, spread: u8) -> Lackey {
        Lackey { path, spread }
    }
}

impl Format for Lackey {
    fn each(&self, take: Take<'_>) -> Result<u64, TraceError> {
        let mut lines = Lines::open(&self.path)?;
        let spread = u64::from(self.spread);
        let (mut instruction, mut ended) = (0_u64, true);
        while lines.go_on()? {
            if lines.bytes().starts_with(b"==") {
                let says = |text: &[u8]| lines.bytes().windows(text.len()).any(|part| part == text);
                ended = says(TRAILER) || ended && !says(BANNER);
            }
            let line = parse(lines.bytes()).map_err(|why| lines.wrong(why))?;
            let Some(Line { address, size, kinds }) = line else { continue };
            for &kind in kinds {
                let stretch = instruction / STRETCH;
                let place = Place { gpu: (stretch % spread) as u8, unit: 0 };
                let wave = (spread > 1).then_some((stretch as u32, 0));
                let sequence = instruction as u32;
                let touch = Touch { launch: 0, place, wave, sequence, kind, address, size };
                if let Some(why) = touch.wrong() {
                    return Err(lines.wrong(why));
                }
                take(&touch)?;
                instruction += 1;
            }
        }
        match ended {
            true => Ok(0),
            false => Err(lines.ends(
                "valgrind's last words (\"Exit code\") do not follow; it is cut off; \
                     if it was recorded with --basic-counts=no, record it without",
            )),
        }
    }
}

/// One line; `None` if it is no access to data.
fn parse(line: &[u8]) -> Result<Option<Line>, &'static str> {
    const EXPECTED: &str = "it is none of \"I  ADDRESS,SIZE\", \" L ADDRESS,SIZE\", \" S …\", \" M …\" and \
         \"==…\", which `valgrind --tool=lackey --trace-mem=yes` writes";
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
    Ok(Some(Line { address, size, kinds }))
}

#[cfg(test)]
mod tests {
    use super::super::test_open as open;
    use super::*;
    use crate::order::accesses;

    #[test]
    fn loads_stores_and_modifications_are_accesses() {
        let text = "==7== Lackey, an example Valgrind tool\nI  04016ff4,2\n L 1ffefff93c,8\n \
                    S 1000,4\n M 00001040,1\n==7== Exit code:       0\n";
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
    fn a_file_that_begins_as_no_trace_is_told_what_is_read_or_what_to_do_with_it() {
        let utf16: Vec<u8> =
            "\u{feff}time,address,write\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let of: [(&[u8], &str); 8] = [
            (b"hello\n", "kernelslist.g"),
            (b"\n\n{\"a\": 1}\n", "Parquet"),
            (b"addr,rw\n1,r\n", "CSV whose first line names address and write"),
            (b"\x7fELF\x02\x01\0\0", "--tool=lackey"),
            (b"PK\x03\x04 and so on", "-tool view"),
            (&utf16, "iconv"),
            (b"\xfd7zXZ\0", "xz -dk"),
            (b"\x28\xb5\x2f\xfd and so on", "zstd -d"),
        ];
        for (content, what) in of {
            let error = open("lackey-none", content, 1).unwrap_err().to_string();
            assert!(error.contains(what), "{what}: {error}");
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
            let error = open("lackey-wrong", format!("==1==\n L 10,4\n{wrong}\n"), 1);
            let error = error.unwrap_err().to_string();
            assert!(error.contains("line 3"), "{wrong}: {error}");
        }
    }

    /// What valgrind 3.19 wrote of a program that sums eight numbers: `valgrind --tool=lackey --trace-mem=yes
    /// --log-file=sum.lackey.txt ./sum`.
    const SUM: &str = include_str!("../../../fixtures/sum.lackey.txt");

    #[test]
    fn what_valgrind_wrote_is_what_the_program_does() {
        let trace = open("lackey-sum", SUM, 1).unwrap();
        // It writes eight numbers and adds each of them to the sum, which is in the line before them.
        let found: Vec<_> = accesses(&trace, 1, 1).map(|a| (a.line.0, a.write)).collect();
        let (writes, adds) = found.split_at(8);
        assert_eq!(writes, [0, 0, 0, 0, 1, 1, 1, 1].map(|line| (line, true)));
        let add = |line| [(line, false), (0, false), (0, true)];
        assert_eq!(adds, [0, 0, 0, 0, 1, 1, 1, 1].map(add).as_flattened());
    }

    #[test]
    fn what_valgrind_wrote_is_an_error_wherever_it_is_cut() {
        let end = SUM.find("Exit code").unwrap();
        for cut in (SUM.find("==12345== Command").unwrap()..end).step_by(3) {
            let error = open("lackey-sum-cut", &SUM[..cut], 1).map(drop);
            assert!(error.is_err(), "{cut}");
        }
    }

    #[test]
    fn a_text_that_was_cut_is_an_error_and_so_is_one_of_something_else() {
        let whole = " L 1000,4\n S 1004,8\n";
        assert!(open("lackey-whole", whole, 1).is_ok());
        for end in 11..whole.len() {
            let error = open("lackey-cut", &whole[..end], 1).unwrap_err().to_string();
            assert!(error.contains("line 2") && error.contains("cut off"), "{error}");
        }
        let long = format!(" L 1000,4\n L {}\n", "1".repeat(1 << 16));
        assert!(open("lackey-long", long, 1).unwrap_err().to_string().contains("line 2"));
        let other = open("lackey-other", b"\x7fELF\x02\x01\0\0", 1).unwrap_err().to_string();
        assert!(other.contains("line 1"), "{other}");
    }

    /// What memory a file of any length can take is what 16 GiB of pages take.
    #[test]
    fn a_text_that_touches_more_than_a_trace_may_have_is_refused() {
        let mut text = String::new();
        for page in 0..=(1_u64 << 22) / 16 {
            text += &format!(" L {:x},{}\n", page << 16, 1 << 16);
        }
        let error = open("lackey-huge", &text, 1).map(drop).unwrap_err().to_string();
        assert!(error.contains("more than 16 GiB") && !error.contains("Parquet"), "{error}");
    }
}
