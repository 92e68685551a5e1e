//! The directory against the kernel's own page table: what the program has mapped is what the driver
//! says it has. For tests, at any time.

use std::fs::File;
use std::os::unix::fs::FileExt;

use farside_linux::lock::lock;
use farside_linux::signals::BlockedSignals;
use farside_svm::PageState;
use farside_types::{AgentId, PAGE_SHIFT, PageRange};

use super::Runtime;

/// Pages that are looked up at once.
const CHUNK: u64 = 512;
/// Bits of an entry of `/proc/self/pagemap`: the page is mapped, and is protected from writes.
const PRESENT: u64 = 1 << 63;
const PROTECTED: u64 = 1 << 57;

impl Runtime {
    /// Checks that the driver's tables agree with each other, and with what the kernel has mapped
    /// for the program's processors.
    ///
    /// # Errors
    /// The text names the page and what is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        self.check_process().map_err(|error| error.to_string())?;
        let _signals = BlockedSignals::block();
        // The host's commands that are out now are about pages that move, which are left out.
        let core = lock(&self.core);
        let driver = &core.driver.0;
        driver.check()?;
        let map = File::open("/proc/self/pagemap")
            .map_err(|error| format!("cannot look at this program's page table: {error}"))?;
        for object in driver.objects() {
            for part in driver.locate(object.range) {
                if matches!(part.state, PageState::Moving | PageState::Fresh) {
                    continue;
                }
                check_mapped(driver, &map, part.range)?;
            }
        }
        Ok(())
    }
}

/// Whether all that the kernel has mapped of a range is in the directory.
fn check_mapped(driver: &farside_svm::Driver, map: &File, range: PageRange) -> Result<(), String> {
    let mut left = range;
    while left.count > 0 {
        let chunk = PageRange::new(left.start, left.count.min(CHUNK));
        left = PageRange::new(chunk.end(), left.count - chunk.count);
        let mut bytes = [0; CHUNK as usize * 8];
        let bytes = &mut bytes[..chunk.count as usize * 8];
        let at = (chunk.start.addr().0 >> PAGE_SHIFT) * 8;
        map.read_exact_at(bytes, at)
            .map_err(|error| format!("cannot look {chunk} up in the page table: {error}"))?;
        for (page, entry) in chunk.pages().zip(bytes.chunks_exact(8)) {
            let entry = u64::from_ne_bytes(entry.try_into().expect("it has eight bytes"));
            let view = driver.page(page);
            if entry & PRESENT == 0 {
                continue;
            }
            if !view.mappers.contains(AgentId::CPU) {
                return Err(format!(
                    "{page} is mapped for the program, and the directory does not know: {view:?}"
                ));
            }
            if entry & PROTECTED == 0 && !view.writers.contains(AgentId::CPU) {
                return Err(format!(
                    "the program may write {page}, and the directory does not know: {view:?}"
                ));
            }
        }
    }
    Ok(())
}
