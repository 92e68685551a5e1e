//! The kernel's userfaultfd interface: structures, request numbers, feature and flag bits.
//!
//! Owns the numbers, nothing else; [`super::Userfaultfd`] gives them meaning. Written out here
//! because the headers of common distributions lack what newer kernels have (MOVE, POISON).
//! Source: `include/uapi/linux/userfaultfd.h` of Linux 6.8.

use core::mem::size_of;

/// `UFFD_API`: the version of the interface.
pub const UFFD_API: u64 = 0xAA;
/// `UFFD_USER_MODE_ONLY`: open flag; only accesses in user mode are reported.
pub const USER_MODE_ONLY: u32 = 1;

/// Bits of [`Api::features`].
pub mod feature {
    /// Write-protect faults (5.7).
    pub const PAGEFAULT_FLAG_WP: u64 = 1 << 0;
    /// Events for fork; needs CAP_SYS_PTRACE (4.11).
    pub const EVENT_FORK: u64 = 1 << 1;
    /// Events for mremap (4.11).
    pub const EVENT_REMAP: u64 = 1 << 2;
    /// Events for MADV_DONTNEED and MADV_REMOVE (4.11).
    pub const EVENT_REMOVE: u64 = 1 << 3;
    /// Missing faults on hugetlb memory (4.11).
    pub const MISSING_HUGETLBFS: u64 = 1 << 4;
    /// Missing faults on shared memory (4.11).
    pub const MISSING_SHMEM: u64 = 1 << 5;
    /// Events for munmap (4.11).
    pub const EVENT_UNMAP: u64 = 1 << 6;
    /// SIGBUS in the faulting thread instead of an event (4.14).
    pub const SIGBUS: u64 = 1 << 7;
    /// The faulting thread's id in the event (4.14).
    pub const THREAD_ID: u64 = 1 << 8;
    /// Minor faults on hugetlb memory (5.13).
    pub const MINOR_HUGETLBFS: u64 = 1 << 9;
    /// Minor faults on shared memory (5.14).
    pub const MINOR_SHMEM: u64 = 1 << 10;
    /// The exact byte address in the event (5.18).
    pub const EXACT_ADDRESS: u64 = 1 << 11;
    /// Write-protect faults on hugetlb and shared memory (5.19).
    pub const WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
    /// Write protection of entries that are not populated (6.4).
    pub const WP_UNPOPULATED: u64 = 1 << 13;
    /// `UFFDIO_POISON` (6.6).
    pub const POISON: u64 = 1 << 14;
    /// Write protection without events, for tracking (6.7).
    pub const WP_ASYNC: u64 = 1 << 15;
    /// `UFFDIO_MOVE` (6.8).
    pub const MOVE: u64 = 1 << 16;
}

/// Bits of [`Register::mode`].
pub mod register_mode {
    /// Report accesses to pages that exist nowhere.
    pub const MISSING: u64 = 1 << 0;
    /// Report writes to write-protected pages.
    pub const WP: u64 = 1 << 1;
    /// Report accesses to pages that are in the file but not mapped.
    pub const MINOR: u64 = 1 << 2;
}

/// Request numbers, as they appear in the bit mask [`Register::ioctls`] as well.
pub mod nr {
    /// `_UFFDIO_REGISTER`.
    pub const REGISTER: u32 = 0x00;
    /// `_UFFDIO_UNREGISTER`.
    pub const UNREGISTER: u32 = 0x01;
    /// `_UFFDIO_WAKE`.
    pub const WAKE: u32 = 0x02;
    /// `_UFFDIO_COPY`.
    pub const COPY: u32 = 0x03;
    /// `_UFFDIO_ZEROPAGE`.
    pub const ZEROPAGE: u32 = 0x04;
    /// `_UFFDIO_MOVE`.
    pub const MOVE: u32 = 0x05;
    /// `_UFFDIO_WRITEPROTECT`.
    pub const WRITEPROTECT: u32 = 0x06;
    /// `_UFFDIO_CONTINUE`.
    pub const CONTINUE: u32 = 0x07;
    /// `_UFFDIO_POISON`.
    pub const POISON: u32 = 0x08;
    /// `_UFFDIO_API`.
    pub const API: u32 = 0x3F;
}

/// Map without waking the threads that wait. Same bit for COPY, ZEROPAGE, CONTINUE, POISON, MOVE.
pub const MODE_DONTWAKE: u64 = 1 << 0;
/// Map write-protected. Same bit for COPY and CONTINUE (the latter since 6.4).
pub const MODE_WP: u64 = 1 << 1;
/// MOVE: holes in the source are no error.
pub const MOVE_MODE_ALLOW_SRC_HOLES: u64 = 1 << 1;
/// WRITEPROTECT: protect; without it, lift the protection.
pub const WRITEPROTECT_MODE_WP: u64 = 1 << 0;
/// WRITEPROTECT: lift the protection without waking.
pub const WRITEPROTECT_MODE_DONTWAKE: u64 = 1 << 1;

/// Values of [`Message::event`].
pub mod event {
    /// A page fault.
    pub const PAGEFAULT: u8 = 0x12;
    /// A fork.
    pub const FORK: u8 = 0x13;
    /// An mremap.
    pub const REMAP: u8 = 0x14;
    /// MADV_DONTNEED or MADV_REMOVE.
    pub const REMOVE: u8 = 0x15;
    /// A munmap.
    pub const UNMAP: u8 = 0x16;
}

/// Bits of [`Message::flags`] of a page fault.
pub mod pagefault_flag {
    /// The access was a write.
    pub const WRITE: u64 = 1 << 0;
    /// The page is write-protected.
    pub const WP: u64 = 1 << 1;
    /// The page is in the file but not mapped.
    pub const MINOR: u64 = 1 << 2;
}

/// `struct uffdio_api`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Api {
    /// In and out: [`UFFD_API`].
    pub api: u64,
    /// In: features to enable. Out: features the kernel has.
    pub features: u64,
    /// Out: bit mask of [`nr`] the descriptor takes.
    pub ioctls: u64,
}

/// `struct uffdio_range`, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Range {
    /// First byte.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Register {
    /// Which bytes.
    pub range: Range,
    /// Bits of [`register_mode`].
    pub mode: u64,
    /// Out: bit mask of [`nr`] the range takes.
    pub ioctls: u64,
}

/// `struct uffdio_copy`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Copy {
    /// Destination address.
    pub dst: u64,
    /// Source address.
    pub src: u64,
    /// Length in bytes.
    pub len: u64,
    /// [`MODE_DONTWAKE`], [`MODE_WP`].
    pub mode: u64,
    /// Out: bytes copied, or a negated error number.
    pub copied: i64,
}

/// `struct uffdio_zeropage`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Zeropage {
    /// Which bytes.
    pub range: Range,
    /// [`MODE_DONTWAKE`].
    pub mode: u64,
    /// Out: bytes filled, or a negated error number.
    pub filled: i64,
}

/// `struct uffdio_move`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Move {
    /// Destination address.
    pub dst: u64,
    /// Source address.
    pub src: u64,
    /// Length in bytes.
    pub len: u64,
    /// [`MODE_DONTWAKE`], [`MOVE_MODE_ALLOW_SRC_HOLES`].
    pub mode: u64,
    /// Out: bytes moved, or a negated error number.
    pub moved: i64,
}

/// `struct uffdio_writeprotect`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteProtect {
    /// Which bytes.
    pub range: Range,
    /// [`WRITEPROTECT_MODE_WP`], [`WRITEPROTECT_MODE_DONTWAKE`].
    pub mode: u64,
}

/// `struct uffdio_continue`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Continue {
    /// Which bytes.
    pub range: Range,
    /// [`MODE_DONTWAKE`], [`MODE_WP`].
    pub mode: u64,
    /// Out: bytes mapped, or a negated error number.
    pub mapped: i64,
}

/// `struct uffdio_poison`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Poison {
    /// Which bytes.
    pub range: Range,
    /// [`MODE_DONTWAKE`].
    pub mode: u64,
    /// Out: bytes poisoned, or a negated error number.
    pub updated: i64,
}

/// `struct uffd_msg`, with the fields of its page-fault form.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Message {
    /// One of [`event`].
    pub event: u8,
    /// Zero.
    pub reserved1: u8,
    /// Zero.
    pub reserved2: u16,
    /// Zero.
    pub reserved3: u32,
    /// Bits of [`pagefault_flag`].
    pub flags: u64,
    /// The address of the access.
    pub address: u64,
    /// The faulting thread, with [`feature::THREAD_ID`].
    pub ptid: u32,
    /// The rest of the union.
    pub reserved4: u32,
}

const _: () = {
    assert!(size_of::<Api>() == 24);
    assert!(size_of::<Range>() == 16);
    assert!(size_of::<Register>() == 32);
    assert!(size_of::<Copy>() == 40);
    assert!(size_of::<Zeropage>() == 32);
    assert!(size_of::<Move>() == 40);
    assert!(size_of::<WriteProtect>() == 24);
    assert!(size_of::<Continue>() == 32);
    assert!(size_of::<Poison>() == 32);
    assert!(size_of::<Message>() == 32);
};

/// Full request numbers for `ioctl`.
pub mod request {
    use super::{UFFD_API, nr};

    const TYPE: u32 = UFFD_API as u32;

    /// `UFFDIO_API`.
    pub const API: libc::Ioctl = libc::_IOWR::<super::Api>(TYPE, nr::API);
    /// `UFFDIO_REGISTER`.
    pub const REGISTER: libc::Ioctl = libc::_IOWR::<super::Register>(TYPE, nr::REGISTER);
    /// `UFFDIO_UNREGISTER`.
    pub const UNREGISTER: libc::Ioctl = libc::_IOR::<super::Range>(TYPE, nr::UNREGISTER);
    /// `UFFDIO_WAKE`.
    pub const WAKE: libc::Ioctl = libc::_IOR::<super::Range>(TYPE, nr::WAKE);
    /// `UFFDIO_COPY`.
    pub const COPY: libc::Ioctl = libc::_IOWR::<super::Copy>(TYPE, nr::COPY);
    /// `UFFDIO_ZEROPAGE`.
    pub const ZEROPAGE: libc::Ioctl = libc::_IOWR::<super::Zeropage>(TYPE, nr::ZEROPAGE);
    /// `UFFDIO_MOVE`.
    pub const MOVE: libc::Ioctl = libc::_IOWR::<super::Move>(TYPE, nr::MOVE);
    /// `UFFDIO_WRITEPROTECT`.
    pub const WRITEPROTECT: libc::Ioctl =
        libc::_IOWR::<super::WriteProtect>(TYPE, nr::WRITEPROTECT);
    /// `UFFDIO_CONTINUE`.
    pub const CONTINUE: libc::Ioctl = libc::_IOWR::<super::Continue>(TYPE, nr::CONTINUE);
    /// `UFFDIO_POISON`.
    pub const POISON: libc::Ioctl = libc::_IOWR::<super::Poison>(TYPE, nr::POISON);
    /// `USERFAULTFD_IOC_NEW`, on `/dev/userfaultfd` (6.1).
    pub const NEW: libc::Ioctl = libc::_IO(TYPE, 0x00);
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::request;

    #[test]
    fn request_numbers_are_those_of_the_kernel_header() {
        assert_eq!(request::API, 0xc018_aa3f);
        assert_eq!(request::REGISTER, 0xc020_aa00);
        assert_eq!(request::UNREGISTER, 0x8010_aa01);
        assert_eq!(request::WAKE, 0x8010_aa02);
        assert_eq!(request::COPY, 0xc028_aa03);
        assert_eq!(request::ZEROPAGE, 0xc020_aa04);
        assert_eq!(request::MOVE, 0xc028_aa05);
        assert_eq!(request::WRITEPROTECT, 0xc018_aa06);
        assert_eq!(request::CONTINUE, 0xc020_aa07);
        assert_eq!(request::POISON, 0xc020_aa08);
        assert_eq!(request::NEW, 0xaa00);
    }
}
