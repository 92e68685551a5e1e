//! Comma-separated accesses, from whatever tool: a head that names the columns, and a row each access.
//!
//! ```text
//! time,agent,address,size,write
//! 0,0,0x7f0000001000,8,0
//! 12,1,139637976731648,64,1
//! ```
//!
//! `address` (decimal, or hexadecimal after `0x`) and `write` (0 or 1, `true`, `false`, `r`, `w`) must be there; `agent`
//! is a GPU, 0 without it; `size` is in bytes, 1 without it; `time` must not go back for an agent, and has the order of
//! the file. Other columns are left alone. Names are in capitals or not.

use std::path::{Path, PathBuf};

use farside_types::MAX_CARDS;

use super::lines::Lines;
use super::{Format, Take, Touch};
use crate::trace::store::Kind;
use crate::{Place, TraceError};

/// The columns that are known.
const COLUMNS: [&str; 5] = ["time", "agent", "address", "size", "write"];
const TIME: usize = 0;
const AGENT: usize = 1;
const ADDRESS: usize = 2;
const SIZE: usize = 3;
const WRITE: usize = 4;

#[derive(Debug)]
pub(super) struct Rows {
    path: PathBuf,
    /// Where each of [`COLUMNS`] is.
    columns: [Option<usize>; COLUMNS.len()],
    /// How many cells the head has.
    width: usize,
}

/// Whether a file begins with a head that has an address in it.
pub(super) fn is_it(head: &[u8]) -> bool {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    std::str::from_utf8(line)
        .is_ok_and(|line| cells(line).any(|cell| cell.eq_ignore_ascii_case(COLUMNS[ADDRESS])))
}

/// The cells of a line, without quotes: numbers need none.
fn cells(line: &str) -> impl Iterator<Item = &str> {
    line.trim_start_matches('\u{feff}').split(',').map(|cell| cell.trim().trim_matches('"'))
}

impl Rows {
    pub(super) fn open(path: &Path) -> Result<Rows, TraceError> {
        let mut lines = Lines::open(path)?.by_people();
        lines.go_on()?;
        let head = lines.text()?;
        let width = cells(head).count();
        let named = |name| move |&(_, cell): &(usize, &str)| cell.eq_ignore_ascii_case(name);
        let places = |name| cells(head).enumerate().filter(named(name)).map(|(at, _)| at);
        if let Some(name) = COLUMNS.into_iter().find(|name| places(name).count() > 1) {
            return Err(lines.wrong(format!("it names the column {name} more than once")));
        }
        let columns = COLUMNS.map(|name| places(name).next());
        if let Some(missing) = [ADDRESS, WRITE].into_iter().find(|&which| columns[which].is_none())
        {
            let name = COLUMNS[missing];
            return Err(lines.wrong(format!(
                "there is no column {name}; the head names {}",
                COLUMNS.join(",")
            )));
        }
        Ok(Rows { path: path.to_owned(), columns, width })
    }

    /// The known cells of a row.
    fn cells<'a>(&self, row: &'a str) -> [Option<&'a str>; COLUMNS.len()] {
        let mut found = [None; COLUMNS.len()];
        for (at, cell) in cells(row).enumerate() {
            for (found, column) in found.iter_mut().zip(self.columns) {
                if column == Some(at) {
                    *found = Some(cell);
                }
            }
        }
        found
    }
}

impl Format for Rows {
    fn each(&self, take: Take<'_>) -> Result<u64, TraceError> {
        let mut lines = Lines::open(&self.path)?.by_people();
        lines.go_on()?;
        let (mut sequence, mut times) = (0_u32, [0; MAX_CARDS]);
        while lines.go_on()? {
            let row = lines.text()?;
            if row.is_empty() {
                continue;
            }
            let touch = self.touch(row, sequence, &mut times).map_err(|why| lines.wrong(why))?;
            take(&touch)?;
            sequence = sequence.wrapping_add(1);
        }
        Ok(0)
    }
}

impl Rows {
    fn touch(
        &self,
        row: &str,
        sequence: u32,
        times: &mut [u64; MAX_CARDS],
    ) -> Result<Touch, String> {
        let (width, head) = (cells(row).count(), self.width);
        if width != head {
            return Err(format!(
                "it has {width} cells, the head {head}; cells with a comma in quotes are not read"
            ));
        }
        let cells = self.cells(row);
        let number = |which: usize, missing: u64| match (self.columns[which], cells[which]) {
            (None, _) => Ok(missing),
            (Some(_), Some(cell)) => integer(cell)
                .ok_or_else(|| format!("its {} is {cell:?}, no whole number", COLUMNS[which])),
            (Some(_), None) => Err(format!("it has no {}", COLUMNS[which])),
        };
        let (agent, time) = (number(AGENT, 0)?, number(TIME, 0)?);
        let place = agent_place(agent)?;
        let last = &mut times[usize::from(place.gpu)];
        if time < *last {
            return Err(format!(
                "its time {time} is before {last}, the last of agent {agent}; sort by time"
            ));
        }
        *last = time;
        let kind = match cells[WRITE].map(str::to_ascii_lowercase).as_deref() {
            Some("0" | "false" | "r" | "read") => Kind::Load,
            Some("1" | "true" | "w" | "write") => Kind::Store,
            other => {
                return Err(format!("its write is {:?}; it is 0 or 1", other.unwrap_or_default()));
            }
        };
        let (address, size) = (number(ADDRESS, 0)?, number(SIZE, 1)?);
        let touch = Touch { launch: 0, place, wave: None, sequence, kind, address, size };
        touch.wrong().map_or(Ok(touch), |why| Err(why.to_owned()))
    }
}

/// Where an agent is.
pub(in crate::trace) fn agent_place(agent: u64) -> Result<Place, String> {
    let gpu = u8::try_from(agent).ok().filter(|&gpu| usize::from(gpu) < MAX_CARDS);
    let gpu =
        gpu.ok_or_else(|| format!("its agent is {agent}; agents are 0 to {}", MAX_CARDS - 1))?;
    Ok(Place { gpu, unit: 0 })
}

fn integer(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{test_accesses, test_open};

    #[test]
    fn rows_are_accesses_whatever_the_order_of_the_columns() {
        let expected = [(0, 0, 0, false), (1, 0, 1, true)];
        for text in [
            "time,agent,address,size,write\n0,0,0x10000,8,0\n5,1,65600,4,1\n",
            "Time,Agent,ADDRESS,Size,Write\n0,0,65536,8,0\n5,1,65600,4,1\n",
            "write,address,size,agent,other\nr,0x10000,8,0,x\nW,0x10040,4,1,y",
            "\"address\",\"write\",\"agent\"\r\n65536,false,0\r\n\r\n\"65600\",true,1\r\n",
        ] {
            let trace = test_open("plain.csv", text, 1).unwrap();
            assert_eq!((test_accesses(&trace, 2), trace.gpus()), (expected.to_vec(), 2), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_by_its_line() {
        for (row, why) in [
            ("0,0,0x10000,8", "it has 4 cells, the head 5"),
            ("\"0,0\",0,0x10000,8,0", "it has 6 cells, the head 5"),
            ("0,0,0x10000,8,2", "0 or 1"),
            ("0,16,0x10000,8,0", "agents are 0 to 15"),
            ("0,0,-1,8,0", "no whole number"),
            ("0,0,,8,0", "no whole number"),
            ("0,0,0x10000,0,0", "1 to 65536"),
            ("0,0,0xffffffffffffffff,1,0", "address space"),
            ("-3,0,0x10000,8,0", "no whole number"),
            ("3,0,0x10000,8,0\n2,0,0x10000,8,0", "sort by time"),
        ] {
            let text = format!("time,agent,address,size,write\n0,0,0x10000,8,0\n{row}\n");
            let error = test_open("wrong.csv", text, 1).unwrap_err().to_string();
            let line = 3 + row.matches('\n').count();
            assert!(
                error.contains(&format!("line {line}:")) && error.contains(why),
                "{row}: {error}"
            );
        }
        let error = test_open("cut.csv", "address,write\n1,0\n12", 1).unwrap_err().to_string();
        assert!(error.contains("line 3: ") && error.contains("cut off"), "{error}");
        let error = test_open("head.csv", "time,address\n", 1).unwrap_err().to_string();
        assert!(error.contains("line 1:") && error.contains("no column write"), "{error}");
        let scattered = (0..=1_u64 << 15).map(|at| format!("{:#x},0\n", (at + 1) << 20));
        let scattered = format!("address,write\n{}", scattered.collect::<String>());
        let error = test_open("scattered.csv", scattered, 1).unwrap_err().to_string();
        assert!(error.contains("scattered.csv: ") && error.contains("32769 pieces"), "{error}");
        let twice = "address,write,Address\n1,0,2\n";
        let error = test_open("twice.csv", twice, 1).unwrap_err().to_string();
        assert!(error.contains("line 1:") && error.contains("address more than once"), "{error}");
    }
}
