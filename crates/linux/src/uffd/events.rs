//! Reading page faults, without allocating.

use core::mem::size_of;

use farside_types::{Access, VirtAddr};
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
    /// (poll the descriptor to wait) and never allocates. Only page faults are reported: this
    /// module never enables the events for fork, mremap, madvise and munmap, with which the
    /// runtime's own calls would wait for its own reader.
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
    fn other_events_are_no_faults() {
        let unmap = Message { event: abi::event::UNMAP, ..message(0) };
        assert_eq!(Fault::from_message(&unmap, true), None);
    }
}
