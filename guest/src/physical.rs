//! Memory whose physical address is known: where there is no IOMMU, a device uses those.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use farside_types::{BLOCK_SIZE, PAGE_SIZE};
use rustix::mm::MapFlags;

use crate::Failure;
use crate::memory::Mapping;

const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";
const PRESENT: u64 = 1 << 63;
/// The bits of a pagemap entry that hold the frame number.
const FRAME: u64 = (1 << 55) - 1;

/// One huge page: 2 MiB that follow one another in physical memory and that the kernel never moves.
pub(crate) fn huge_page() -> Result<(Mapping, u64), Failure> {
    // The kernel may have some already; it gives what it has.
    fs::write(Path::new(HUGE_PAGES), "2").map_err(|error| format!("{HUGE_PAGES}: {error}"))?;
    let memory = Mapping::anonymous(BLOCK_SIZE, MapFlags::HUGETLB)?;
    // Written once, so that the page is there whatever the kernel thinks of zeros.
    memory.write(0, 0u64);
    let physical = physical_address(memory.base().as_ptr() as u64)?;
    if physical % BLOCK_SIZE as u64 != 0 {
        return Err(format!("the huge page is at {physical:#x}, not aligned").into());
    }
    Ok((memory, physical))
}

fn physical_address(address: u64) -> Result<u64, Failure> {
    let file = File::open("/proc/self/pagemap")?;
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, address / PAGE_SIZE as u64 * 8)?;
    let entry = u64::from_le_bytes(bytes);
    if entry & PRESENT == 0 || entry & FRAME == 0 {
        return Err("/proc/self/pagemap does not say where the page is; root is needed".into());
    }
    Ok((entry & FRAME) * PAGE_SIZE as u64)
}
