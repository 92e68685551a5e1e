//! Memory that a device reads and writes as well: mapped, never referred to.

use std::fs::OpenOptions;
use std::path::Path;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags};

use crate::Failure;

/// A mapping of this process. Accesses are volatile; there are no references into it.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

impl Mapping {
    /// Memory of this process, all of it present and zero.
    pub(crate) fn anonymous(bytes: usize, flags: MapFlags) -> Result<Mapping, Failure> {
        let flags = flags | MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address that the kernel chooses touches nothing.
        let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, READ_WRITE, flags) }
            .map_err(|errno| format!("mmap of {bytes} bytes: {errno}"))?;
        Mapping::of(base, bytes)
    }

    /// A whole file, which is a region of a device.
    pub(crate) fn file(path: &Path) -> Result<Mapping, Failure> {
        let name = path.display();
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(|error| format!("{name}: {error}"))?;
        let bytes = file.metadata()?.len() as usize;
        // SAFETY: as above.
        let base = unsafe {
            rustix::mm::mmap(ptr::null_mut(), bytes, READ_WRITE, MapFlags::SHARED, &file, 0)
        };
        Mapping::of(base.map_err(|errno| format!("mmap of {name}: {errno}"))?, bytes)
    }

    fn of(base: *mut core::ffi::c_void, bytes: usize) -> Result<Mapping, Failure> {
        let base = NonNull::new(base.cast()).ok_or("mmap gave address 0")?;
        Ok(Mapping { base, bytes })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reads one value at an aligned offset.
    pub(crate) fn read<T: Plain>(&self, offset: usize) -> T {
        // SAFETY: `at` has checked bounds and alignment, and any bits make a Plain.
        unsafe { self.at::<T>(offset).read_volatile() }
    }

    /// Writes one value at an aligned offset.
    pub(crate) fn write<T: Plain>(&self, offset: usize, value: T) {
        // SAFETY: `at` has checked bounds and alignment.
        unsafe { self.at::<T>(offset).write_volatile(value) }
    }

    fn at<T>(&self, offset: usize) -> *mut T {
        let size = size_of::<T>();
        let inside = offset.checked_add(size).is_some_and(|end| end <= self.bytes);
        assert!(inside && offset % size == 0, "{size} bytes at {offset:#x} of {:#x}", self.bytes);
        self.base.as_ptr().wrapping_add(offset).cast()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping, and nobody has a reference into it. If it fails, the
        // memory stays until the program ends, soon.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Types of which any bits are a value.
pub(crate) trait Plain: Copy {}
impl Plain for u32 {}
impl Plain for u64 {}
