//! Text that DynamoRIO's drmemtrace writes: `drrun -t drmemtrace -tool view -indir …` (`-simulator_type view` before
//! version 10).
//!
//! ```text
//! Output format:
//! <--record#-> <--instr#->: <---tid---> <record details>
//! ------------------------------------------------------------
//!            1           0:     3264725 <marker: version 6>
//!           10           1:     3264725 ifetch       3 byte(s) @ 0x00007f6fdd3ec2b0 48 89 e7    mov %rsp, %rdi
//!           15           5:     3264725 write        8 byte(s) @ 0x00007ffc2ae4a3b8 by PC 0x00007f6fdd3ec2b3
//! ```
//!
//! Written after `clients/drcachesim/tools/view.cpp` of DynamoRIO and the page "Trace Format" of its documentation
//! (<https://dynamorio.org/sec_drcachesim_format.html>). What the traced program itself prints comes before the head
//! and is left out. Data is taken, code and prefetches are not. A thread is a compute unit.

use std::path::PathBuf;

use super::lines::Lines;
use super::{Format, Take, Threads, Touch};
use crate::TraceError;
use crate::trace::store::Kind;

/// What is at the beginning of a line of the head.
const TITLE: &str = "Output format:";
const COLUMNS: &str = "<--record#";
const RESULTS: &str = "View tool results:";
/// What is said of an access between its size and its address.
const BYTES_AT: [&str; 2] = ["byte(s)", "@"];

#[derive(Debug)]
pub(super) struct View {
    path: PathBuf,
    spread: u8,
}

/// Whether a file begins so, or with what the program printed.
pub(super) fn is_it(head: &[u8]) -> bool {
    let has = |text: &str| head.windows(text.len()).any(|window| window == text.as_bytes());
    has(TITLE) || has(COLUMNS)
}

impl View {
    pub(super) fn new(path: PathBuf, spread: u8) -> View {
        View { path, spread }
    }
}

impl Format for View {
    fn each(&self, take: Take<'_>) -> Result<u64, TraceError> {
        let (mut lines, mut threads) = (Lines::open(&self.path)?, Threads::default());
        let (mut begun, mut ended, mut sequence) = (false, false, 0_u32);
        while lines.go_on()? {
            let text = lines.text()?;
            begun |= text.starts_with(COLUMNS);
            ended |= text.starts_with(RESULTS);
            let ruler = text.starts_with("-----");
            if !begun || ended || ruler || text.is_empty() || text.starts_with(COLUMNS) {
                continue;
            }
            let data = parse(text).map_err(|why| lines.wrong(why))?;
            let Some(Data { thread, kind, size, address }) = data else { continue };
            let place = threads.place(thread, self.spread);
            let place = place.ok_or_else(|| {
                lines.wrong("more than 64 threads for each GPU; spread them over more (--spread)")
            })?;
            let touch = Touch { launch: 0, place, wave: None, sequence, kind, address, size };
            if let Some(why) = touch.wrong() {
                return Err(lines.wrong(why));
            }
            take(&touch)?;
            sequence = sequence.wrapping_add(1);
        }
        if !ended {
            return Err(lines.ends("\"View tool results:\" does not follow; it is cut off"));
        }
        Ok(0)
    }
}

struct Data<'a> {
    thread: &'a str,
    kind: Kind,
    size: u64,
    address: u64,
}

/// One record; `None` if it is no access to data.
fn parse(line: &str) -> Result<Option<Data<'_>>, &'static str> {
    const EXPECTED: &str =
        "it is no \"RECORD INSTRUCTION: THREAD …\" as DynamoRIO's view tool writes";
    let mut words = line.split_ascii_whitespace();
    let mut next = || words.next().ok_or(EXPECTED);
    next()?.parse::<u64>().map_err(|_| EXPECTED)?;
    next()?.strip_suffix(':').ok_or(EXPECTED)?.parse::<u64>().map_err(|_| EXPECTED)?;
    let thread = next()?;
    let kind = match next()? {
        "read" => Kind::Load,
        "write" => Kind::Store,
        // Markers, code, prefetches, and bytes of code that did not fit.
        _ => return Ok(None),
    };
    const ACCESS: &str = "it is no \"read\" or \"write SIZE byte(s) @ 0xADDRESS by PC 0x…\"";
    let mut next = || words.next().ok_or(ACCESS);
    let size = next()?.parse().map_err(|_| ACCESS)?;
    if [next()?, next()?] != BYTES_AT {
        return Err(ACCESS);
    }
    let address = next()?.strip_prefix("0x").ok_or(ACCESS)?;
    let address = u64::from_str_radix(address, 16).map_err(|_| ACCESS)?;
    Ok(Some(Data { thread, kind, size, address }))
}

#[cfg(test)]
mod tests {
    use super::super::{test_accesses, test_open};

    /// Made after the description, not by the tool: UNVERIFIED.
    const TEXT: &str = "Adios world!
Output format:
<--record#-> <--instr#->: <---tid---> <record details>
------------------------------------------------------------
           1           0:     3264725 <marker: version 6>
           2           1:     3264725 ifetch       3 byte(s) @ 0x00007f6fdd3ec2b0 48 89 e7             mov    %rsp, %rdi
           3           1:     3264725 write        8 byte(s) @ 0x0000000000010038 by PC 0x00007f6fdd3ec2b3
           4           1:     3264726 read        16 byte(s) @ 0x0000000000010078 by PC 0x00007f6fdd3ec2b3
           5           1:     3264726 pref-r       1 byte(s) @ 0x0000000000099999 by PC 0x00007f6fdd3ec2b3
           6           1:     3264726 <thread 3264726 exited>
View tool results:
              1 : total instructions
";

    #[test]
    fn data_is_taken_and_threads_are_compute_units() {
        let trace = test_open("view", TEXT, 1).unwrap();
        assert_eq!((trace.accesses(), trace.allocations().len()), (3, 1));
        let mut found = test_accesses(&trace, 1);
        found.sort_unstable();
        assert_eq!(found, [(0, 0, 0, true), (0, 1, 1, false), (0, 1, 2, false)]);
        let spread = test_open("view-spread", TEXT, 2).unwrap();
        let gpus: Vec<u8> = test_accesses(&spread, 2).iter().map(|access| access.0).collect();
        assert_eq!((spread.gpus(), gpus.iter().filter(|&&gpu| gpu == 1).count()), (2, 2));
    }

    #[test]
    fn damage_is_named_by_its_line() {
        for (from, to, line) in [
            ("3264725 write ", "3264725 write x", 7),
            ("@ 0x0000000000010038", "@ 10038", 7),
            ("16 byte(s)", "16 byte", 8),
            ("           4           1:", "           4           1", 8),
            (" 0x0000000000010078", " 0xffffffffffffffff", 8),
            ("View tool results:\n              1 : total instructions\n", "", 10),
        ] {
            let text = TEXT.replacen(from, to, 1);
            assert_ne!(text, TEXT);
            let error = test_open("view-damaged", text, 1).unwrap_err().to_string();
            assert!(error.contains(&format!("line {line}:")), "{from}: {error}");
        }
    }

    #[test]
    fn no_text_that_was_cut_is_taken_for_a_whole_one() {
        let end = TEXT.find("View tool").unwrap();
        for end in (TEXT.find("<--record").unwrap() + 12)..end {
            assert!(test_open("view-cut", &TEXT[..end], 1).is_err(), "{end}");
        }
    }
}
