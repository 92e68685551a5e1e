//! How much of the machine a lease may have.

use std::io;
use std::time::Duration;

use farside_types::PAGE_SIZE;
use farside_vfio_user::Limits;
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::serve::CardConfig;

/// Descriptors that a worker may have open: its own, those of a message, and the client's files.
const DESCRIPTORS: u64 = 512;

/// Windows that a client may share at a time: each takes up to two of the 65,530 mappings that Linux
/// allows a process, and an emulated IOMMU shares memory page by page.
pub(in crate::serve) const WINDOWS_MAX: u32 = 16_384;

/// Threads that take the place of those whose kernels hang. Who needs more has its lease ended.
pub(crate) const SPARE_THREADS_MAX: usize = 64;

/// Address space of a thread: its stack, its guard and what the allocator keeps for it.
const THREAD_BYTES: u64 = 3 << 20;

/// Threads of a worker beside its processing elements and spares: the first, and the copier.
const OTHER_THREADS: u64 = 2;

/// What a table page takes of the worker's memory, with what is kept beside it.
const TABLE_PAGE_BYTES: u64 = PAGE_SIZE as u64 + 128;

/// What one lease may have, beside the memory of its function, which is its frames and its tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseLimits {
    /// Bytes of memory of the worker's own: what the server and its kernels allocate.
    pub own_bytes: u64,
    /// Bytes that there may be in the files that a client shares. What the card writes where there
    /// was nothing is memory that the server is charged for; past this the lease ends. As much as
    /// the machine has, unless set.
    pub shared_bytes: u64,
    /// Processor time in all, if that is limited; past this the lease ends.
    pub processor_time: Option<Duration>,
}

impl Default for LeaseLimits {
    fn default() -> LeaseLimits {
        let info = rustix::system::sysinfo();
        let machine = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
        LeaseLimits { own_bytes: 256 << 20, shared_bytes: machine, processor_time: None }
    }
}

/// The engine's own limits: what a client can make it hold.
pub(super) fn of_engine() -> Limits {
    Limits { max_dma_maps: WINDOWS_MAX, ..Limits::default() }
}

/// Where memory runs out, a worker is ended before anything else is.
pub(super) fn prefer_to_kill() {
    // Where the system has no such file it decides by itself.
    let _ = std::fs::write("/proc/self/oom_score_adj", "800");
}

/// Sets the limits of this process.
pub(super) fn set(config: &CardConfig) -> io::Result<()> {
    let limits = &config.limits;
    let threads = u64::from(config.pes) + SPARE_THREADS_MAX as u64 + OTHER_THREADS;
    // What the process has from its parent is shared with it until it is written.
    let inherited = data_bytes()?;
    let tables = u64::from(config.geometry.table_pages_for(config.all_frames())) * TABLE_PAGE_BYTES;
    let own = super::super::own::table_bytes(config);
    let bytes = inherited + limits.own_bytes + tables + own + threads * THREAD_BYTES;
    limit(Resource::Data, bytes)?;
    limit(Resource::Nofile, DESCRIPTORS)?;
    // A core would hold the client's memory, and all of the bus's address space.
    limit(Resource::Core, 0)?;
    if let Some(time) = limits.processor_time {
        limit(Resource::Cpu, time.as_secs().max(1))?;
    }
    Ok(())
}

fn limit(resource: Resource, value: u64) -> io::Result<()> {
    let now = rustix::process::getrlimit(resource);
    let value = now.maximum.map_or(value, |most| most.min(value));
    Ok(setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })?)
}

/// Bytes of private memory that this process may write.
fn data_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split_whitespace().nth(5).and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| io::Error::other("/proc/self/statm makes no sense"))?;
    Ok(pages * PAGE_SIZE as u64)
}
