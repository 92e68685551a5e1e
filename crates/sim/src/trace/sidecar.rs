//! The JSON description beside a trace, and where the allocations' pages are counted.

use farside_types::{MAX_CARDS, PAGE_SHIFT, PAGE_SIZE, PageRange, VirtAddr};
use serde::Deserialize;

use crate::TraceError;

/// Most pages of a trace: 16 GiB.
const PAGES_MAX: u64 = 1 << 22;

/// An allocation of the traced program.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Allocation {
    /// Where the traced program had it.
    #[serde(rename = "VAddr")]
    pub address: u64,
    /// Its size in bytes.
    #[serde(rename = "Size")]
    pub bytes: u64,
}

impl Allocation {
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
    /// Accesses per GPU; its length is the number of GPUs.
    pub(super) per_gpu: Vec<u64>,
    pub(super) records: Option<u64>,
}

impl Sidecar {
    pub(super) fn parse(text: &str) -> Result<Sidecar, TraceError> {
        let sidecar: Sidecar = serde_json::from_str(text)?;
        if sidecar.page_size != PAGE_SIZE as u64 {
            return Err(TraceError::PageSize { bytes: sidecar.page_size });
        }
        let gpus = sidecar.per_gpu.len();
        if gpus == 0 || gpus > MAX_CARDS {
            let why = "per_gpu must list 1 to 16 GPUs";
            return Err(TraceError::Sidecar(serde::de::Error::custom(why)));
        }
        Ok(sidecar)
    }
}

/// Allocations one after the other, each on pages of its own, as a program would get them.
pub(super) fn place(sizes: &[u64]) -> Result<Vec<Allocation>, TraceError> {
    let mut address = PAGE_SIZE as u64;
    let mut placed = Vec::with_capacity(sizes.len());
    for (index, &bytes) in sizes.iter().enumerate() {
        let allocation = Allocation { address, bytes };
        if bytes == 0 || allocation.pages() > PAGES_MAX {
            let why = "must have 1 byte to 16 GiB";
            return Err(TraceError::Allocation { index, why });
        }
        address += allocation.pages() << PAGE_SHIFT;
        placed.push(allocation);
    }
    Ok(placed)
}

/// Where a byte address lies: pages counted over the allocations, in the order they were made.
#[derive(Debug)]
pub(super) struct Layout {
    /// The page ranges by ascending start, each with the number of its first page.
    spans: Vec<(PageRange, u64)>,
    pages: u64,
}

impl Layout {
    pub(super) fn new(allocations: &[Allocation]) -> Result<Layout, TraceError> {
        let mut spans = Vec::with_capacity(allocations.len());
        let mut pages = 0;
        for (index, allocation) in allocations.iter().enumerate() {
            let Some(range) = allocation.range() else {
                let why = "is empty or ends beyond the address space";
                return Err(TraceError::Allocation { index, why });
            };
            spans.push((range, pages));
            pages = range.count.saturating_add(pages);
            if pages > PAGES_MAX {
                let why = "makes the trace larger than 16 GiB, the most that is supported";
                return Err(TraceError::Allocation { index, why });
            }
        }
        spans.sort_unstable_by_key(|(range, _)| range.start);
        if let Some(pair) = spans.windows(2).find(|pair| pair[0].0.overlaps(pair[1].0)) {
            let first = pair[1].0;
            let index = allocations.iter().position(|a| a.range() == Some(first)).unwrap_or(0);
            return Err(TraceError::Allocation { index, why: "shares a page with another one" });
        }
        Ok(Layout { spans, pages })
    }

    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    /// The page that holds `address`, if an allocation does.
    pub(super) fn page_of(&self, address: u64) -> Option<u32> {
        let page = VirtAddr(address).page();
        let after = self.spans.partition_point(|(range, _)| range.start <= page);
        let (range, first) = self.spans[..after].last()?;
        range.contains(page).then(|| (first + page.0 - range.start.0) as u32)
    }
}
