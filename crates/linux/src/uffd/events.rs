//! Reading page faults, without allocating.

use core::mem::size_of;

use farside_types::{Access, PageNo, PageRange, VirtAddr};
use rustix::io::Errno;

use super::abi::{self, Message, pagefault_flag};
use super::{UffdError, Userfaultfd};

/// Messages fetched by one read(2). Lives on the stack of the reader: 1 KiB.
const BATCH: usize = 32;

/// Why an access stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum FaultKind {
    /// The page is neither mapped nor in the file.
    Missing,
    /// The page is in the file but not mapped.
    Minor,
    /// The page is mapped, but not for writing.
    WriteProtect,
}

/// Something that the kernel tells of watched memory. Whoever has done it (but for a fault) goes on as soon as
/// it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happened {
    /// A thread waits for a page.
    Fault(Fault),
    /// Pages are about to be emptied (`MADV_DONTNEED`, `MADV_FREE`), or are.
    Removed(PageRange),
    /// Pages are not mapped any more.
    Unmapped(PageRange),
    /// Pages are somewhere else now (`mremap`).
    Moved {
        /// Where they were.
        from: PageRange,
        /// Where they are.
        to: PageNo,
    },
}

impl Happened {
    fn from_message(message: &Message, thread_id: bool) -> Option<Happened> {
        // The other forms of the union: from, to, length; or start, end.
        let (first, second) = (message.flags, message.address);
        let third = u64::from(message.ptid) | u64::from(message.reserved4) << 32;
        let range = |start: u64, bytes: u64| PageRange::covering(VirtAddr(start), bytes).ok();
        match message.event {
            abi::event::REMOVE => range(first, second.saturating_sub(first)).map(Happened::Removed),
            abi::event::UNMAP => range(first, second.saturating_sub(first)).map(Happened::Unmapped),
            abi::event::REMAP => {
                let from = range(first, third)?;
                Some(Happened::Moved { from, to: VirtAddr(second).page() })
            }
            _ => Fault::from_message(message, thread_id).map(Happened::Fault),
        }
    }
}

/// One access that waits for its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The byte it touches; the first of its page on kernels without EXACT_ADDRESS (5.18).
    pub addr: VirtAddr,
    /// Load or store.
    pub access: Access,
    /// Why it stopped.
    pub kind: FaultKind,
    /// The thread's id, if THREAD_ID is enabled.
    pub thread: Option<u32>,
}

impl Fault {
    /// A placeholder to fill arrays with.
    pub const EMPTY: Fault =
        Fault { addr: VirtAddr(0), access: Access::Read, kind: FaultKind::Missing, thread: None };

    fn from_message(message: &Message, thread_id: bool) -> Option<Fault> {
        if message.event != abi::event::PAGEFAULT {
            return None;
        }
        let flag = |bit| message.flags & bit != 0;
        Some(Fault {
            addr: VirtAddr(message.address),
            access: if flag(pagefault_flag::WRITE) { Access::Write } else { Access::Read },
            kind: if flag(pagefault_flag::WP) {
                FaultKind::WriteProtect
            } else if flag(pagefault_flag::MINOR) {
                FaultKind::Minor
            } else {
                FaultKind::Missing
            },
            thread: thread_id.then_some(message.ptid),
        })
    }
}

impl Userfaultfd {
    /// Takes up to `out.len()` waiting faults from the kernel; 0 if there are none. Never blocks
    /// (poll the descriptor to wait) and never allocates. Only page faults are reported: for a descriptor
    /// without the events for mremap, madvise and munmap, with which the runtime's own calls would wait for its
    /// own reader.
    ///
    /// # Errors
    /// [`UffdError::Read`].
    pub fn read_events(&self, out: &mut [Fault]) -> Result<usize, UffdError> {
        let thread_id = self.enabled.contains(abi::feature::THREAD_ID);
        let mut messages = [Message::default(); BATCH];
        let mut count = 0;
        while count < out.len() {
            let wanted = (out.len() - count).min(BATCH);
            let got = self.read_messages(&mut messages[..wanted])?;
            for fault in messages[..got].iter().filter_map(|m| Fault::from_message(m, thread_id)) {
                out[count] = fault;
                count += 1;
            }
            if got < wanted {
                break;
            }
        }
        Ok(count)
    }

    /// The same for a descriptor with the events for mremap, madvise and munmap: one of them, or a fault;
    /// nothing if there is none.
    ///
    /// # Errors
    /// [`UffdError::Read`].
    pub fn read_event(&self) -> Result<Option<Happened>, UffdError> {
        let thread_id = self.enabled.contains(abi::feature::THREAD_ID);
        let mut message = [Message::default(); 1];
        loop {
            if self.read_messages(&mut message)? == 0 {
                return Ok(None);
            }
            let happened = Happened::from_message(&message[0], thread_id);
            if happened.is_some() {
                return Ok(happened);
            }
        }
    }

    fn read_messages(&self, messages: &mut [Message]) -> Result<usize, UffdError> {
        loop {
            match rustix::io::read(&self.fd, as_bytes(messages)) {
                Ok(bytes) => return Ok(bytes / size_of::<Message>()),
                Err(Errno::AGAIN) => return Ok(0),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(UffdError::Read { errno }),
            }
        }
    }
}

fn as_bytes(messages: &mut [Message]) -> &mut [u8] {
    let bytes = size_of_val(messages);
    // SAFETY: a `Message` is plain integers without padding (its size is asserted), so any bytes
    // make one; pointer and length are those of the slice, borrowed for as long.
    unsafe { core::slice::from_raw_parts_mut(messages.as_mut_ptr().cast(), bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(flags: u64) -> Message {
        Message {
            event: abi::event::PAGEFAULT,
            flags,
            address: 0x1234,
            ptid: 7,
            ..Message::default()
        }
    }

    #[test]
    fn flags_name_kind_and_access() {
        let decode = |flags| Fault::from_message(&message(flags), true).unwrap();
        assert_eq!(decode(0).kind, FaultKind::Missing);
        assert_eq!(decode(0).access, Access::Read);
        assert_eq!(decode(1).access, Access::Write);
        assert_eq!(decode(1 | 4).kind, FaultKind::Minor);
        assert_eq!(decode(1 | 2).kind, FaultKind::WriteProtect);
        assert_eq!(decode(0).thread, Some(7));
        assert_eq!(Fault::from_message(&message(0), false).unwrap().thread, None);
    }

    #[test]
    fn what_happens_to_watched_memory_has_its_pages() {
        let base = Message { flags: 0x5000, address: 0x8000, ..Message::default() };
        let told =
            |event, message: Message| Happened::from_message(&Message { event, ..message }, true);
        let pages = PageRange::new(PageNo(5), 3);
        assert_eq!(told(abi::event::REMOVE, base), Some(Happened::Removed(pages)));
        assert_eq!(told(abi::event::UNMAP, base), Some(Happened::Unmapped(pages)));
        let long = Message { ptid: 0x3000, reserved4: 1, ..base };
        let from = PageRange::new(PageNo(5), (1 << 20) + 3);
        let moved = Happened::Moved { from, to: PageNo(8) };
        assert_eq!(told(abi::event::REMAP, long), Some(moved));
        assert_eq!(told(abi::event::FORK, base), None);
        let fault = told(abi::event::PAGEFAULT, Message { flags: 1, ..base });
        assert!(matches!(fault, Some(Happened::Fault(Fault { access: Access::Write, .. }))));
    }

    #[test]
    fn other_events_are_no_faults() {
        let unmap = Message { event: abi::event::UNMAP, ..message(0) };
        assert_eq!(Fault::from_message(&unmap, true), None);
    }
}
