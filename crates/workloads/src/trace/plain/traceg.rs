//! Accel-Sim's traces of GPU kernels, as its NVBit tracer writes them after post-processing: `kernel-N.traceg`, and
//! `kernelslist.g`, which lists those of a program in order.
//!
//! ```text
//! -kernel name = vecadd
//! -grid dim = (2,1,1)
//! -accelsim tracer version = 3
//! #traces format = PC mask dest_num [reg_dests] opcode src_num [reg_srcs] mem_width [adrrescompress?] [mem_addresses]
//! #BEGIN_TB
//! thread block = 0,0,0
//! warp = 0
//! insts = 2
//! 0000 ffffffff 1 R1 IMAD.MOV.U32 2 R255 R255 0
//! 0090 ffffffff 1 R4 LDG.E.SYS 1 R4 4 1 0x7f0000000000 4
//! #END_TB
//! ```
//!
//! Written after `gpu-simulator/trace-parser/trace_parser.cc` and `util/tracer_nvbit/README.md` of Accel-Sim
//! (Khairy et al., ISCA 2020), for the tracer's versions up to 5. A kernel is a launch, a thread block a work-group, a
//! warp a wavefront. Blocks are placed as MGPUSim's are: each GPU has a share of the grid, its compute units take turns.
//! Global and generic loads, stores and atomics are taken (an atomic is a load and a store); shared, constant and local
//! memory is each block's or thread's own. A generic load or store is of shared or local memory if its first address
//! is in the 16 MiB from `-shmem base_addr` or `-local mem base_addr`, where the head says these.

use std::path::{Path, PathBuf};

use super::lines::Lines;
use super::{Format, Take, Touch};
use crate::trace::builder::UNITS_MAX;
use crate::trace::store::Kind;
use crate::{Place, TraceError};

/// Launches of a trace.
const KERNELS_MAX: usize = 1 << 16;
/// Lanes of a warp.
const LANES: u32 = 32;
/// Registers that an instruction may name.
const REGISTERS_MAX: u32 = 16;
/// Blocks of a grid.
const BLOCKS_MAX: u64 = u32::MAX as u64 - 1;
/// Bytes of the windows through which generic addresses reach shared and local memory.
const WINDOW_BYTES: u64 = 1 << 24;

#[derive(Debug)]
pub(super) struct Kernels {
    files: Vec<PathBuf>,
    spread: u8,
}

/// Whether a file begins as a list of kernels.
pub(in crate::trace) fn is_list(head: &[u8]) -> bool {
    head.starts_with(b"Memcpy") || head.starts_with(b"kernel-")
}

/// Whether it begins as a kernel.
pub(super) fn is_kernel(head: &[u8]) -> bool {
    head.trim_ascii_start().starts_with(b"-kernel name")
}

impl Kernels {
    pub(super) fn open(path: &Path, list: bool, spread: u8) -> Result<Kernels, TraceError> {
        let files = if list { listed(path)? } else { vec![path.to_owned()] };
        Ok(Kernels { files, spread })
    }
}

impl Format for Kernels {
    fn each(&self, take: Take<'_>) -> Result<u64, TraceError> {
        for (launch, path) in self.files.iter().enumerate() {
            let lines = Lines::open(path)?;
            Kernel { lines, launch, spread: self.spread.into(), head: Head::default() }
                .read(take)?;
        }
        Ok(0)
    }
}

/// The files of a list, which lie beside it.
pub(in crate::trace) fn listed(path: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let (mut lines, mut files) = (Lines::open(path)?.by_people(), Vec::new());
    while lines.go_on()? {
        let name = lines.text()?;
        if name.is_empty() || name.starts_with("Memcpy") {
            continue;
        }
        let ends = name.ends_with(".traceg") || name.ends_with(".traceg.gz");
        if name.ends_with(".traceg.xz") {
            return Err(lines.wrong(
                "kernels that are compressed with xz are not read: decompress them (xz -dk) and strike \".xz\" in the list",
            ));
        }
        if !name.starts_with("kernel-") || !ends || name.contains('/') {
            return Err(lines.wrong(
                "it is neither \"Memcpy…\" nor \"kernel-N.traceg\", a file beside the list",
            ));
        }
        if files.len() == KERNELS_MAX {
            return Err(lines.wrong("more than 65536 kernels"));
        }
        files.push(path.with_file_name(name));
    }
    Ok(files)
}

/// What the head of a kernel says.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    grid: Option<[u64; 3]>,
    version: u32,
    /// Instructions have the number of a source line before them.
    source_lines: bool,
    /// Where the windows of shared and of local memory begin; 0: not said.
    windows: [u64; 2],
}

/// A kernel that is being read.
struct Kernel {
    lines: Lines,
    launch: usize,
    spread: u64,
    head: Head,
}

/// Where in a block the reader is.
#[derive(Clone, Copy, Debug)]
struct Block {
    number: Option<u64>,
    warp: Option<u16>,
    /// Instructions of the warp that are still to come.
    left: u64,
}

impl Kernel {
    fn read(&mut self, take: Take<'_>) -> Result<(), TraceError> {
        let (mut block, mut sequence): (Option<Block>, u32) = (None, 0);
        while self.lines.go_on()? {
            let line = self.lines.text()?.trim();
            if let Some(setting) = line.strip_prefix('-') {
                if block.is_some() {
                    return Err(self.lines.wrong("a setting is within a thread block"));
                }
                self.head.set(setting).map_err(|why| self.lines.wrong(why))?;
            } else if line == "#BEGIN_TB" {
                if block.is_some() {
                    return Err(self.lines.wrong("a thread block begins within another one"));
                }
                block = Some(Block { number: None, warp: None, left: 0 });
            } else if line == "#END_TB" {
                self.end(block.take())?;
            } else if !line.is_empty() && !line.starts_with('#') {
                let Some(block) = &mut block else {
                    return Err(self.lines.wrong("it is in no thread block (#BEGIN_TB)"));
                };
                let before = block.left;
                let instruction = self.line(line, block)?;
                if let Some(instruction) = instruction {
                    self.hand_out(&instruction, block, sequence, take)?;
                }
                if block.left < before {
                    sequence = sequence.wrapping_add(1);
                }
            }
        }
        match block {
            Some(_) => Err(self.lines.ends("#END_TB does not follow; it is cut off")),
            None => Ok(()),
        }
    }

    fn end(&self, block: Option<Block>) -> Result<(), TraceError> {
        match block {
            None => Err(self.lines.wrong("it ends no thread block")),
            Some(Block { left: 0, .. }) => Ok(()),
            Some(Block { left, .. }) => Err(self
                .lines
                .wrong(format!("the warp before it lacks {left} of its instructions"))),
        }
    }

    /// A line of a block: where it is in the block, or an instruction, of which it gives those that access memory.
    fn line(&self, line: &str, block: &mut Block) -> Result<Option<Instruction>, TraceError> {
        let wrong = |why: &'static str| self.lines.wrong(why);
        if line.starts_with("cluster ") {
            // Blocks of a cluster run at one time; where they run, their numbers say.
            return Ok(None);
        }
        let after = |name: &str| {
            line.strip_prefix(name).and_then(|rest| rest.trim_start().strip_prefix('='))
        };
        if let Some(text) = after("thread block") {
            let number = self.head.block(text.trim());
            block.number =
                Some(number.ok_or_else(|| wrong("it is no \"thread block = X,Y,Z\" of the grid"))?);
        } else if let Some(text) = after("warp") {
            self.end(Some(*block))?;
            let warp = text.trim().parse().ok().filter(|warp| *warp < u16::MAX);
            block.warp = Some(warp.ok_or_else(|| wrong("it is no \"warp = NUMBER\" below 65535"))?);
        } else if let Some(text) = after("insts") {
            block.left = text.trim().parse().map_err(|_| wrong("it is no \"insts = NUMBER\""))?;
        } else {
            if block.left == 0 {
                return Err(wrong("its warp has more instructions than \"insts\" says"));
            }
            block.left -= 1;
            return instruction(line, self.head).map_err(wrong);
        }
        Ok(None)
    }

    fn hand_out(
        &self,
        instruction: &Instruction,
        block: &Block,
        sequence: u32,
        take: Take<'_>,
    ) -> Result<(), TraceError> {
        let (Some(number), Some(warp)) = (block.number, block.warp) else {
            return Err(self.lines.wrong("its thread block and warp are not said"));
        };
        let blocks = self.head.blocks();
        let share = blocks.div_ceil(self.spread).max(1);
        let place =
            Place { gpu: (number / share) as u8, unit: (number % share % UNITS_MAX as u64) as u8 };
        for &kind in instruction.kinds {
            for &address in &instruction.addresses {
                let touch = Touch {
                    launch: self.launch,
                    place,
                    wave: Some((number as u32, warp)),
                    sequence,
                    kind,
                    address,
                    size: instruction.width,
                };
                if let Some(why) = touch.wrong() {
                    return Err(self.lines.wrong(why));
                }
                take(&touch)?;
            }
        }
        Ok(())
    }
}

impl Head {
    fn set(&mut self, setting: &str) -> Result<(), &'static str> {
        let (name, value) = setting.split_once('=').ok_or("it is no \"-NAME = VALUE\"")?;
        let value = value.trim();
        match name.trim() {
            "grid dim" => {
                let grid = three(value.trim_matches(['(', ')'])).ok_or("it is no \"(X,Y,Z)\"")?;
                let blocks =
                    grid[0].checked_mul(grid[1]).and_then(|some| some.checked_mul(grid[2]));
                if !blocks.is_some_and(|blocks| (1..=BLOCKS_MAX).contains(&blocks)) {
                    return Err("a grid has 1 to 2^32 - 2 thread blocks");
                }
                self.grid = Some(grid);
            }
            "accelsim tracer version" => {
                self.version = value.parse().map_err(|_| "it is no version")?;
                if self.version > 5 {
                    return Err("versions up to 5 are known");
                }
            }
            "shmem base_addr" => self.windows[0] = hexadecimal(value).ok_or("it is no address")?,
            "local mem base_addr" => {
                self.windows[1] = hexadecimal(value).ok_or("it is no address")?;
            }
            "enable lineinfo" => self.source_lines = value == "1",
            _ => {}
        }
        Ok(())
    }

    /// Whether a generic address is of shared or of local memory.
    fn is_own(&self, address: u64) -> bool {
        let within = |&base: &u64| base != 0 && address.wrapping_sub(base) < WINDOW_BYTES;
        self.windows.iter().any(within)
    }

    fn blocks(&self) -> u64 {
        self.grid.map_or(0, |[x, y, z]| x * y * z)
    }

    /// The number of a block in the grid, if it is in it.
    fn block(&self, text: &str) -> Option<u64> {
        let ([x, y, z], grid) = (three(text)?, self.grid?);
        let inside = x < grid[0] && y < grid[1] && z < grid[2];
        inside.then(|| x + grid[0] * (y + grid[1] * z))
    }
}

fn three(text: &str) -> Option<[u64; 3]> {
    let mut numbers = text.split(',').map(|number| number.trim().parse().ok());
    let three = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(three)
}

/// An instruction that accesses global memory.
#[derive(Debug, PartialEq, Eq)]
struct Instruction {
    kinds: &'static [Kind],
    /// Bytes of each lane.
    width: u64,
    /// Of the lanes that are active.
    addresses: Vec<u64>,
}

/// What an opcode does to memory that threads share; nothing of others.
fn kinds(opcode: &str) -> Option<&'static [Kind]> {
    match opcode.split('.').next()? {
        "LD" | "LDG" | "LDGSTS" => Some(&[Kind::Load]),
        "ST" | "STG" => Some(&[Kind::Store]),
        "ATOM" | "ATOMG" | "RED" => Some(&[Kind::Load, Kind::Store]),
        _ => None,
    }
}

/// Bytes of a lane: the opcode says them in bits, else they are four. The tracer's own number may be wrong.
fn width(opcode: &str) -> u64 {
    let bits = opcode.split('.').find_map(|part| part.trim_start_matches('U').parse::<u64>().ok());
    bits.map_or(4, |bits| bits / 8)
}

fn instruction(line: &str, head: Head) -> Result<Option<Instruction>, &'static str> {
    const EXPECTED: &str = "it is no instruction in the tracer's format: PC mask dest_num [reg_dests] opcode \
                            src_num [reg_srcs] mem_width …";
    let mut words = line.split_ascii_whitespace();
    let mut next = || words.next().ok_or(EXPECTED);
    // Older versions have the block and the warp here.
    let before = if head.version < 3 { 4 } else { 0 } + usize::from(head.source_lines);
    for _ in 0..before {
        next()?;
    }
    hexadecimal(next()?).ok_or(EXPECTED)?;
    let mask = hexadecimal(next()?).and_then(|mask| u32::try_from(mask).ok()).ok_or(EXPECTED)?;
    let registers = |count: &str| {
        count.parse().ok().filter(|count: &u32| *count <= REGISTERS_MAX).ok_or(EXPECTED)
    };
    for _ in 0..registers(next()?)? {
        next()?;
    }
    let opcode = next()?;
    for _ in 0..registers(next()?)? {
        next()?;
    }
    let bytes: u64 = next()?.parse().map_err(|_| EXPECTED)?;
    let Some(kinds) = kinds(opcode).filter(|_| bytes > 0) else { return Ok(None) };
    let mode = next()?;
    let rest: Vec<&str> = words.collect();
    let addresses = addresses(mode, &rest, mask)?;
    let generic = matches!(opcode.split('.').next(), Some("LD" | "ST"));
    if generic && addresses.first().is_some_and(|&first| head.is_own(first)) {
        return Ok(None);
    }
    Ok((mask != 0).then_some(Instruction { kinds, width: width(opcode), addresses }))
}

/// The addresses of the active lanes: each, or one and a stride, or one and the differences.
fn addresses(mode: &str, words: &[&str], mask: u32) -> Result<Vec<u64>, &'static str> {
    const MISSING: &str = "it lacks addresses of its active lanes";
    let lanes = mask.count_ones() as usize;
    if lanes == 0 {
        return Ok(Vec::new());
    }
    let first = words.first().and_then(|word| hexadecimal(word)).ok_or(MISSING)?;
    let number = |word: &&str| word.parse::<i64>().map_err(|_| "an address there is no number");
    match mode {
        "0" => {
            let all = words.get(..lanes).ok_or(MISSING)?;
            let all: Option<Vec<u64>> = all.iter().map(|word| hexadecimal(word)).collect();
            all.ok_or("an address there is no number")
        }
        "1" => {
            let stride = number(words.get(1).ok_or(MISSING)?)?;
            // A stride is of neighbours: it ends with the first lane that is not active.
            let run = (mask >> mask.trailing_zeros()).trailing_ones().min(LANES);
            Ok((0..i64::from(run))
                .map(|lane| first.wrapping_add_signed(stride.wrapping_mul(lane)))
                .collect())
        }
        "2" => {
            let differences = words.get(1..lanes).ok_or(MISSING)?;
            let mut all = vec![first];
            for word in differences {
                let last = all[all.len() - 1];
                all.push(last.wrapping_add_signed(number(word)?));
            }
            Ok(all)
        }
        _ => Err("its addresses are compressed in a way that is not known (0, 1, 2)"),
    }
}

fn hexadecimal(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::{test_accesses, test_file, test_open};
    use super::*;

    /// Made after the description, not by the tool: UNVERIFIED.
    const KERNEL: &str = "-kernel name = vecadd
-kernel id = 1
-grid dim = (2,1,1)
-block dim = (32,1,1)
-accelsim tracer version = 3

#traces format = PC mask dest_num [reg_dests] opcode src_num [reg_srcs] mem_width [adrrescompress?] [mem_addresses]

#BEGIN_TB

thread block = 0,0,0

warp = 0
insts = 4
0000 ffffffff 1 R1 IMAD.MOV.U32 2 R255 R255 0
0010 ffffffff 1 R4 LDG.E.SYS 1 R4 4 1 0x10000 4
0020 0000000f 1 R4 LDS 1 R4 4 0 0x1 0x2 0x3 0x4
0030 00000003 0 STG.E.64.SYS 2 R4 R5 8 0 0x200000 0x200040

#END_TB

#BEGIN_TB
thread block = 1,0,0
warp = 1
insts = 2
0010 0000000f 1 R4 RED.E.ADD 1 R4 4 2 0x10000 64 -64 4096
0020 00000000 0 LDG.E 1 R4 4 1 0x0 0

#END_TB
";

    #[test]
    fn warps_are_wavefronts_and_lanes_of_a_line_one_access() {
        let trace = test_open("kernel.traceg", KERNEL, 2).unwrap();
        let mut found = test_accesses(&trace, 2);
        found.sort_unstable();
        let block = crate::BLOCK_LINES;
        // Two lines of a load, two of a store; an atomic of lines 0, 1, 0 again and a page further.
        let first =
            [(0, 0, 0, false), (0, 0, 1, false), (0, 0, block, true), (0, 0, block + 1, true)];
        let second = [0, 1, 0, 64].map(|line| (1, 0, line, false));
        let third = second.map(|(gpu, unit, line, _)| (gpu, unit, line, true));
        let mut expected = [&first[..], &second, &third].concat();
        expected.sort_unstable();
        assert_eq!(dedup(found), dedup(expected));
        assert_eq!((trace.gpus(), trace.launches(), trace.allocations().len()), (2, 1, 2));
    }

    fn dedup<T: PartialEq>(mut list: Vec<T>) -> Vec<T> {
        list.dedup();
        list
    }

    #[test]
    fn the_kernels_of_a_list_are_launches() {
        let one = test_file("kernel-1.traceg", KERNEL);
        let name = one.file_name().unwrap().to_string_lossy().into_owned();
        // Its name has a prefix here that the tracer's have not.
        let folder = std::env::temp_dir().join(format!("farside-traceg-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::rename(&one, folder.join("kernel-1.traceg")).unwrap();
        let list = folder.join("kernelslist.g");
        std::fs::write(&list, "MemcpyHtoD,0x10000,4096\nkernel-1.traceg\nkernel-1.traceg\n")
            .unwrap();
        assert_eq!(crate::Trace::open(&list).unwrap().launches(), 2, "{name}");
        for (text, named) in [
            ("kernel-1.traceg\nkernel-2.traceg\n", "kernel-2.traceg"),
            ("kernel-1.traceg\nkernel-../../etc/x.traceg\n", "line 2"),
            ("kernel-1.traceg\nsomething\n", "line 2"),
        ] {
            std::fs::write(&list, text).unwrap();
            let error = crate::Trace::open(&list).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    fn packed(text: &str) -> Vec<u8> {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all(text.as_bytes()).unwrap();
        packed.finish().unwrap()
    }

    #[test]
    fn kernels_compressed_with_gzip_are_read_and_others_are_named() {
        let found = test_open("kernel.traceg.gz", packed(KERNEL), 2).unwrap();
        let plain = test_open("kernel.traceg", KERNEL, 2).unwrap();
        assert_eq!(test_accesses(&found, 2), test_accesses(&plain, 2));
        let folder = std::env::temp_dir().join(format!("farside-packed-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("kernel-1.traceg.gz"), packed(KERNEL)).unwrap();
        let list = folder.join("kernelslist.g");
        std::fs::write(&list, "kernel-1.traceg.gz\n").unwrap();
        assert_eq!(crate::Trace::open(&list).unwrap().accesses(), plain.accesses());
        std::fs::write(&list, "kernel-1.traceg.xz\n").unwrap();
        let error = crate::Trace::open(&list).unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("xz -dk"), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
        let xz = [b"\xfd7zXZ\0", &[0; 40][..]].concat();
        let error = test_open("kernel.traceg.xz", xz, 1).unwrap_err().to_string();
        assert!(error.contains("byte 0: ") && error.contains("xz -dk"), "{error}");
        // Each cut of what is compressed is an error that says so.
        let whole = packed(&KERNEL.repeat(50));
        for end in [20, whole.len() / 2, whole.len() - 9, whole.len() - 1] {
            let error = test_open("cut.traceg.gz", &whole[..end], 1).unwrap_err().to_string();
            assert!(error.contains("cannot be decompressed"), "{end}: {error}");
        }
    }

    #[test]
    fn a_line_without_end_takes_no_memory() {
        let endless = KERNEL.replacen("warp = 0", &"v".repeat(1 << 22), 1);
        for text in [endless.clone().into_bytes(), packed(&endless)] {
            let error = test_open("endless.traceg", text, 1).unwrap_err().to_string();
            assert!(error.contains("line 13: it has more than 65536 bytes"), "{error}");
        }
    }

    #[test]
    fn damage_is_named_by_its_line() {
        for (from, to, line) in [
            ("(2,1,1)", "(2,1)", 3),
            ("(2,1,1)", "(4294967295,4294967295,4294967295)", 3),
            ("version = 3", "version = 6", 5),
            ("thread block = 0,0,0", "thread block = 2,0,0", 11),
            ("insts = 4", "insts = 5", 20),
            ("insts = 4", "insts = 3", 18),
            ("LDG.E.SYS 1 R4 4 1 0x10000 4", "LDG.E.SYS 1 R4 4 7 0x10000 4", 16),
            ("LDG.E.SYS 1 R4 4 1 0x10000 4", "LDG.E.SYS 99 R4", 16),
            ("0x200000 0x200040", "0x200000", 18),
            ("64 -64 4096", "64 -64", 26),
            ("#END_TB\n\n#BEGIN_TB", "\n\n#BEGIN_TB", 22),
            ("warp = 0\n", "-grid dim = (2,1,1)\nwarp = 0\n", 13),
            ("-kernel id = 1", "-shmem base_addr = here", 2),
            ("0x10000 4\n", "0xffffffffffffffff 4\n", 16),
        ] {
            let text = KERNEL.replacen(from, to, 1);
            assert_ne!(text, KERNEL, "{from}");
            let error = test_open("traceg-damaged", text, 1).unwrap_err().to_string();
            assert!(error.contains(&format!("line {line}:")), "{from}: {error}");
        }
    }

    #[test]
    fn generic_accesses_to_shared_and_local_memory_are_left_out() {
        let windows = "-shmem base_addr = 0x7f0002000000\n-local mem base_addr = 0x7f0000000000\n";
        let accesses = |head: &str, line: &str| {
            let text = KERNEL.replacen("-kernel id = 1\n", head, 1).replacen(
                "0010 ffffffff 1 R4 LDG.E.SYS 1 R4 4 1 0x10000 4",
                line,
                1,
            );
            test_open("traceg-generic", text, 1).unwrap().accesses()
        };
        let of = |opcode: &str, address: &str| format!("0010 1 1 R4 {opcode} 1 R4 4 1 {address} 4");
        let none = accesses(windows, "0010 0 1 R4 LD.E 1 R4 4 1 0x0 0");
        for (opcode, address, taken) in [
            ("LD.E", "0x7f0002000000", 0),
            ("ST.E", "0x7f0002ffffff", 0),
            ("LD.E", "0x7f0000000010", 0),
            ("LD.E", "0x7f0001000000", 1),
            ("LDG.E", "0x7f0002000000", 1),
        ] {
            let found = accesses(windows, &of(opcode, address));
            assert_eq!(found - none, taken, "{opcode} {address}");
        }
        let unsaid = "-shmem base_addr = 0x0\n-local mem base_addr = 0x0\n";
        assert_eq!(accesses(unsaid, &of("LD.E", "0x1000")) - none, 1);
    }

    #[test]
    fn clusters_and_long_names_are_read_and_no_gpu_is_one() {
        let name = format!("-kernel name = {}", "v".repeat(20_000));
        let text = KERNEL.replace("warp = 0\n", "cluster = 0,0,0\nwarp = 0\n");
        let text = text.replace("-kernel name = vecadd", &name);
        let found =
            |text: &str, gpus| test_accesses(&test_open("traceg-long", text, gpus).unwrap(), 1);
        assert_eq!(found(&text, 0), found(KERNEL, 1));
    }

    #[test]
    fn no_kernel_that_was_cut_is_taken_for_a_whole_one() {
        let end = KERNEL.rfind("#END_TB").unwrap();
        let between = KERNEL.find("#END_TB").unwrap() + "#END_TB\n".len();
        for cut in 30..end {
            // Between two blocks nothing tells.
            let told = (between..between + 2).contains(&cut);
            assert_eq!(test_open("traceg-cut", &KERNEL[..cut], 1).is_ok(), told, "{cut}");
        }
    }

    #[test]
    fn lanes_that_are_not_active_access_nothing() {
        let of =
            |mode, words: &str, mask| addresses(mode, &words.split(' ').collect::<Vec<_>>(), mask);
        assert_eq!(of("1", "0x100 8", 0b1110), Ok(vec![0x100, 0x108, 0x110]));
        assert_eq!(of("1", "0x100 -8", 0b0011), Ok(vec![0x100, 0xf8]));
        assert_eq!(of("1", "0x100 8", 0b1011), Ok(vec![0x100, 0x108]));
        assert_eq!(of("2", "0x100 1 2", 0b10101), Ok(vec![0x100, 0x101, 0x103]));
        assert_eq!(of("0", "0x1 0x2", 0b1001), Ok(vec![1, 2]));
        assert_eq!((width("LDG.E.128.SYS"), width("LDG.E.U16"), width("LD")), (16, 2, 4));
    }
}
