//! The JSON description beside a trace, and where the allocations' lines are counted.

use std::collections::BTreeSet;

use farside_types::{
    BLOCK_PAGES, GROUP_PAGES, MAX_CARDS, PAGE_SHIFT, PAGE_SIZE, PageRange, VirtAddr,
};
use serde::Deserialize;

use super::PAGE_BYTES;
use crate::TraceError;
use crate::{Buffer, BufferKind, LINE_BYTES, Line, first_lines};

/// Most pages of a trace: 16 GiB.
const PAGES_MAX: u64 = 1 << 22;
/// Most blocks: every allocation begins at one of its own.
const BLOCKS_MAX: u64 = 1 << 15;
/// Lines of a page.
pub(super) const LINES_PER_PAGE: u64 = PAGE_SIZE as u64 / LINE_BYTES;

/// An allocation of the traced program.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Allocation {
    /// Where the traced program had it.
    #[serde(rename = "VAddr")]
    pub address: u64,
    /// Its size in bytes.
    #[serde(rename = "Size")]
    pub bytes: u64,
    /// The device that it was made for, from 1; the one behind the GPUs stands for all of them.
    #[serde(rename = "GPU", default)]
    device: usize,
    /// It was made for one GPU, as code, arguments and queue packets are, and stays there.
    #[serde(skip)]
    pub pinned: bool,
}

impl Allocation {
    /// `bytes` bytes at `address`, for all GPUs or `pinned` to one.
    pub(super) fn new(address: u64, bytes: u64, pinned: bool) -> Allocation {
        Allocation { address, bytes, device: 0, pinned }
    }

    /// Pages it touches; 0 if it is empty or wraps, which a trace never holds.
    pub fn pages(&self) -> u64 {
        self.range().map_or(0, |range| range.count)
    }

    fn range(&self) -> Option<PageRange> {
        PageRange::covering(VirtAddr(self.address), self.bytes).ok()
    }
}

/// What of the description is used. Counts of the recorder that are not are skipped.
#[derive(Debug, Deserialize)]
pub(super) struct Sidecar {
    #[serde(rename = "allocs")]
    pub(super) allocations: Vec<Allocation>,
    page_size: u64,
    /// Recorded cycle by cycle: sequence numbers are cycles.
    #[serde(default)]
    pub(super) timing: bool,
    /// Accesses per GPU; its length is the number of GPUs.
    pub(super) per_gpu: Vec<u64>,
    pub(super) records: Option<u64>,
}

impl Sidecar {
    pub(super) fn parse(text: &str) -> Result<Sidecar, TraceError> {
        let mut sidecar: Sidecar = serde_json::from_str(text)?;
        for allocation in &mut sidecar.allocations {
            allocation.pinned = (1..=sidecar.per_gpu.len()).contains(&allocation.device);
        }
        check_description(sidecar.page_size, sidecar.per_gpu.len() as u32)?;
        Ok(sidecar)
    }
}

/// What every description says.
pub(super) fn check_description(page_bytes: u64, gpus: u32) -> Result<(), TraceError> {
    if page_bytes != PAGE_BYTES {
        return Err(TraceError::PageSize { bytes: page_bytes });
    }
    if gpus == 0 || gpus as usize > MAX_CARDS {
        let why = "it must have (per_gpu must list) 1 to 16 GPUs";
        return Err(TraceError::Sidecar(serde::de::Error::custom(why)));
    }
    Ok(())
}

/// Allocations one after the other, each on pages of its own, as a program would get them.
pub(super) fn place(sizes: &[u64]) -> Result<Vec<Allocation>, TraceError> {
    let mut address = PAGE_SIZE as u64;
    let mut placed = Vec::with_capacity(sizes.len());
    for (index, &bytes) in sizes.iter().enumerate() {
        let allocation = Allocation::new(address, bytes, false);
        if bytes == 0 || allocation.pages() > PAGES_MAX {
            let why = "must have 1 byte to 16 GiB";
            return Err(TraceError::Allocation { index, why });
        }
        address += allocation.pages() << PAGE_SHIFT;
        placed.push(allocation);
    }
    Ok(placed)
}

/// Allocations around the pages that a program touches, where nothing else is known of what it
/// allocated: pages with gaps of up to 64 KiB between them are taken for one.
///
/// # Errors
/// [`TraceError::Scattered`]: they lie in more blocks than a trace may have.
pub(super) fn around(pages: &BTreeSet<u64>) -> Result<Vec<Allocation>, TraceError> {
    let mut allocations: Vec<Allocation> = Vec::new();
    for &page in pages {
        let address = page << PAGE_SHIFT;
        match allocations.last_mut() {
            Some(last) if page <= ((last.address + last.bytes) >> PAGE_SHIFT) + GROUP_PAGES => {
                last.bytes = address + PAGE_SIZE as u64 - last.address;
            }
            _ => allocations.push(Allocation::new(address, PAGE_SIZE as u64, false)),
        }
    }
    let blocks = allocations.iter().map(|it| it.pages().div_ceil(BLOCK_PAGES)).sum::<u64>();
    if blocks > BLOCKS_MAX {
        return Err(TraceError::Scattered { pieces: allocations.len() });
    }
    Ok(allocations)
}

/// Refuses more pages than a trace may have.
pub(super) fn check_pages(pages: u64) -> Result<(), TraceError> {
    if pages > PAGES_MAX {
        return Err(TraceError::TooLarge);
    }
    Ok(())
}

/// Where a byte address lies in the workload's memory.
#[derive(Debug)]
pub(super) struct Layout {
    /// By ascending start.
    spans: Vec<Span>,
    /// The first line of each allocation, in the order they were made.
    firsts: Vec<Line>,
    /// The span that had the last address.
    recent: usize,
}

/// The pages of an allocation, as bytes: start, length, and the line at the start.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    bytes: u64,
    line: u32,
    index: usize,
}

impl Layout {
    pub(super) fn new(allocations: &[Allocation]) -> Result<Layout, TraceError> {
        check_sizes(allocations)?;
        let firsts = first_lines(&buffers(allocations));
        let mut spans: Vec<Span> = Vec::with_capacity(allocations.len());
        for (index, (allocation, first)) in allocations.iter().zip(&firsts).enumerate() {
            let start = allocation.address & !(PAGE_SIZE as u64 - 1);
            let bytes = allocation.pages() << PAGE_SHIFT;
            spans.push(Span { start, bytes, line: first.0, index });
        }
        spans.sort_unstable_by_key(|span| span.start);
        let shared = |pair: &&[Span]| pair[1].start - pair[0].start < pair[0].bytes;
        match spans.windows(2).find(shared) {
            Some(pair) => {
                let (index, why) = (pair[1].index, "shares a page with another one");
                Err(TraceError::Allocation { index, why })
            }
            None => Ok(Layout { spans, firsts, recent: 0 }),
        }
    }

    /// The line that holds `address`, if an allocation does.
    #[inline]
    pub(super) fn line_of(&mut self, address: u64) -> Option<u32> {
        if let Some(line) = self.spans.get(self.recent)?.line_of(address) {
            return Some(line);
        }
        let after = self.spans.partition_point(|span| span.start <= address);
        let line = self.spans[..after].last()?.line_of(address)?;
        self.recent = after - 1;
        Some(line)
    }

    /// The first line of a page that is counted over the allocations in order.
    pub(super) fn line_of_page(&self, allocations: &[Allocation], page: u32) -> Option<u32> {
        let mut left = u64::from(page);
        for (allocation, first) in allocations.iter().zip(&self.firsts) {
            if left < allocation.pages() {
                return Some(first.0 + (left * LINES_PER_PAGE) as u32);
            }
            left -= allocation.pages();
        }
        None
    }
}

impl Span {
    #[inline]
    fn line_of(&self, address: u64) -> Option<u32> {
        let offset = address.wrapping_sub(self.start);
        (offset < self.bytes).then(|| self.line + (offset / LINE_BYTES) as u32)
    }
}

/// Buffers that hold the allocations' pages.
pub(super) fn buffers(allocations: &[Allocation]) -> Vec<Buffer> {
    let buffer = |allocation: &Allocation| {
        let offset = allocation.address % PAGE_SIZE as u64;
        let name = format!("{:#x}", allocation.address);
        let kind = if allocation.pinned { BufferKind::Launch } else { BufferKind::Data };
        Buffer { name, bytes: offset + allocation.bytes, kind }
    };
    allocations.iter().map(buffer).collect()
}

fn check_sizes(allocations: &[Allocation]) -> Result<(), TraceError> {
    let (mut pages, mut blocks) = (0_u64, 0);
    for (index, allocation) in allocations.iter().enumerate() {
        let Some(range) = allocation.range() else {
            let why = "is empty or ends beyond the address space";
            return Err(TraceError::Allocation { index, why });
        };
        pages = pages.saturating_add(range.count);
        blocks += range.count.div_ceil(BLOCK_PAGES);
        if pages > PAGES_MAX || blocks > BLOCKS_MAX {
            let why = "makes the trace larger than 16 GiB, the most that is supported";
            return Err(TraceError::Allocation { index, why });
        }
    }
    Ok(())
}
