//! What a card that shares no memory with this program asks for by messages, and what it tells.
//!
//! The other end may be anybody. It reaches what was mapped for it, each access within one piece, and
//! nothing beside it; nothing at all once it was given up.

use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex};

use farside_card::interface::by_messages::{INTERRUPT, interrupt_from_bytes};
use farside_fabric::{Access, InsertError, Rights, Windows};
use farside_vfio_user::Errno;
use farside_vfio_user::device::irq;
use farside_vfio_user::unix::DmaMemory;
use farside_vfio_user::wire::Command;

use farside_linux::lock::lock;
use farside_linux::shared::SharedMemory;

/// See the module. Shared by the transport and whoever reads its stream.
#[derive(Debug, Default)]
pub(super) struct Reach(Mutex<Reached>);

#[derive(Debug)]
struct Reached {
    /// Memory, each piece a window.
    pieces: Windows<SharedMemory>,
    /// What each interrupt vector signals.
    events: Vec<OwnedFd>,
}

/// A connection is used for one lease alone.
const EPOCH: u64 = 0;

impl Default for Reached {
    fn default() -> Reached {
        Reached { pieces: Windows::new(EPOCH), events: Vec::new() }
    }
}

impl Reach {
    /// The card reaches a piece.
    ///
    /// # Errors
    /// It was given up, or reaches something there already.
    pub(super) fn insert(&self, bus: u64, memory: SharedMemory) -> Result<(), InsertError> {
        lock(&self.0).pieces.insert(bus, memory.bytes(), Rights::BOTH, memory)
    }

    /// The card does not reach the pieces in a range any more.
    pub(super) fn remove(&self, bus: u64, bytes: u64) {
        lock(&self.0).pieces.remove(bus, bytes);
    }

    /// Has the vectors, from the first on, signal these event descriptors, which do not block.
    pub(super) fn signal_by(&self, events: Vec<OwnedFd>) {
        lock(&self.0).events = events;
    }

    /// Signals what the first vector does.
    pub(super) fn signal(&self) {
        if let Some(event) = lock(&self.0).events.first() {
            // Full means that it has been signalled often enough.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
    }

    /// Reads the pieces at a bus address, within one of them; `None` if that is none, or the card was
    /// given up.
    pub(super) fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        self.with(Access::Read, address, into.len(), |memory, offset| memory.read(offset, into))
            .ok()
    }

    /// Writes them.
    pub(super) fn write(&self, address: u64, from: &[u8]) -> Option<()> {
        self.with(Access::Write, address, from.len(), |memory, offset| memory.write(offset, from))
            .ok()
    }

    /// The card reaches nothing any more: when this returns, no write of it is under way either.
    pub(super) fn end(&self) {
        let mut reached = lock(&self.0);
        let refused = reached.pieces.refusals().total();
        if refused > 0 && !reached.pieces.is_closed() {
            tracing::warn!(refused, "a card wanted to reach memory that it was not given");
        }
        reached.pieces.close();
        reached.events.clear();
    }

    fn with<T>(
        &self,
        access: Access,
        address: u64,
        bytes: usize,
        body: impl FnOnce(&SharedMemory, u64) -> Option<T>,
    ) -> Result<T, Errno> {
        let mut reached = lock(&self.0);
        let found = reached.pieces.look_up(EPOCH, access, address, bytes as u64);
        let found = found.map_err(|_| Errno::FAULT)?;
        body(found.place, found.offset).ok_or(Errno::FAULT)
    }

    fn interrupt(&self, index: u32, vector: u32) -> Result<(), Errno> {
        let reached = lock(&self.0);
        let event = reached.events.get(vector as usize).filter(|_| index == irq::MSIX);
        // Full means that it has been signalled often enough.
        let _ = rustix::io::write(event.ok_or(Errno::INVAL)?, &1u64.to_ne_bytes());
        Ok(())
    }
}

/// Answers for a [`Reach`]. The memory may change at the same time, so it is touched by atomics only,
/// words of 32 bits whole. An access is done before the next begins, as on a bus that the card waits
/// for; the fences make it so for whoever looks at the rings on this side.
pub(super) struct Answers(pub(super) Arc<Reach>);

impl DmaMemory for Answers {
    fn read(&mut self, address: u64, data: &mut [u8]) -> Result<(), Errno> {
        fence(Ordering::SeqCst);
        self.0.with(Access::Read, address, data.len(), |memory, offset| {
            if data.len() == 4 && offset % 4 == 0 {
                data.copy_from_slice(&memory.load(offset)?.to_le_bytes());
                return Some(());
            }
            memory.read(offset, data)
        })
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), Errno> {
        let bytes = data.len();
        let written =
            self.0.with(Access::Write, address, bytes, |memory, offset| match data.try_into() {
                Ok(word) if offset % 4 == 0 => memory.store(offset, u32::from_le_bytes(word)),
                _ => memory.write(offset, data),
            });
        fence(Ordering::SeqCst);
        written
    }

    fn other(&mut self, command: Command, data: &[u8], _reply: &mut Vec<u8>) -> Result<(), Errno> {
        if command != Command(INTERRUPT) {
            return Err(Errno::NOTSUP);
        }
        let (index, vector) = interrupt_from_bytes(data).ok_or(Errno::INVAL)?;
        self.0.interrupt(index, vector)
    }
}

#[cfg(test)]
mod tests {
    use farside_card::interface::by_messages::interrupt_to_bytes;
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    const BUS: u64 = 1 << 32;
    const PIECE: u64 = 2 * 4096;

    /// Answers for the first `bytes` bytes of memory that goes on behind them, and that memory.
    fn answers(bytes: u64) -> (Answers, SharedMemory) {
        let whole = SharedMemory::new(2 * PIECE).unwrap();
        let file = || whole.file().try_clone_to_owned().unwrap();
        let reach = Arc::new(Reach::default());
        assert_eq!(reach.insert(BUS, SharedMemory::of_file(file(), 0, bytes).unwrap()), Ok(()));
        (Answers(reach), whole)
    }

    /// What the memory behind the piece holds.
    fn behind(whole: &SharedMemory) -> Vec<u8> {
        let mut bytes = vec![0; PIECE as usize];
        whole.read(PIECE, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_card_reaches_its_piece_and_not_a_byte_beside_it() {
        let (mut answers, whole) = answers(PIECE);
        assert_eq!(answers.write(BUS + PIECE - 8, &[7; 8]), Ok(()));
        let mut read = [0; 8];
        assert_eq!(answers.read(BUS + PIECE - 8, &mut read), Ok(()));
        assert_eq!(read, [7; 8]);
        let end = BUS + PIECE;
        let outside = [
            (end - 7, 8),
            (end - 3, 4),
            (end, 1),
            (end - 1, 2),
            (BUS - 1, 1),
            (BUS - 4, 8),
            (0, 4),
            (u64::MAX, 1),
            (u64::MAX - 3, 4),
            (BUS, PIECE as usize + 1),
            (end, 4096),
        ];
        for (address, bytes) in outside {
            let (mut read, write) = (vec![0x55; bytes], vec![9; bytes]);
            assert_eq!(answers.read(address, &mut read), Err(Errno::FAULT), "{address:#x}");
            assert!(read.iter().all(|&byte| byte == 0x55), "{address:#x}: something was read");
            assert_eq!(answers.write(address, &write), Err(Errno::FAULT), "{address:#x}");
        }
        assert!(behind(&whole).iter().all(|&byte| byte == 0));
        let mut first = [0; 8];
        whole.read(0, &mut first).unwrap();
        assert_eq!(first, [0; 8], "a refused write is done in part");
    }

    /// Negative control: with a piece that is longer than what was meant, the bytes behind it change.
    #[test]
    fn control_a_piece_that_is_too_long_lets_the_card_write_behind_it() {
        let (mut answers, whole) = answers(2 * PIECE);
        assert_eq!(answers.write(BUS + PIECE - 3, &[9; 4]), Ok(()));
        assert!(behind(&whole).contains(&9));
    }

    #[test]
    fn pieces_side_by_side_are_not_one() {
        let (mut answers, _whole) = answers(PIECE);
        let next = SharedMemory::new(4096).unwrap();
        assert_eq!(answers.0.insert(BUS + PIECE, next), Ok(()));
        assert_eq!(answers.write(BUS + PIECE, &[1; 8]), Ok(()));
        assert_eq!(answers.write(BUS + PIECE - 4, &[1; 8]), Err(Errno::FAULT));
    }

    #[test]
    fn nothing_is_reached_after_it_was_taken_away_or_the_card_given_up() {
        let (mut answers, whole) = answers(PIECE);
        answers.0.remove(BUS, PIECE);
        assert_eq!(answers.write(BUS, &[1; 8]), Err(Errno::FAULT));
        let again = SharedMemory::of_file(whole.file().try_clone_to_owned().unwrap(), 0, PIECE);
        assert_eq!(answers.0.insert(BUS, again.unwrap()), Ok(()));
        assert_eq!(answers.write(BUS, &[1; 8]), Ok(()));
        answers.0.end();
        assert_eq!(answers.write(BUS, &[2; 8]), Err(Errno::FAULT));
        assert_eq!(answers.read(BUS, &mut [0; 8]), Err(Errno::FAULT));
        let late = answers.0.insert(BUS, SharedMemory::new(4096).unwrap());
        assert_eq!(late, Err(InsertError::Closed));
        assert_eq!(answers.write(BUS, &[2; 8]), Err(Errno::FAULT));
        let mut first = [0; 8];
        whole.read(0, &mut first).unwrap();
        assert_eq!(first, [1; 8]);
    }

    #[test]
    fn an_interrupt_signals_the_event_of_its_vector_and_nonsense_none() {
        let (mut answers, _whole) = answers(PIECE);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let events: Vec<OwnedFd> = (0..2).map(|_| eventfd(0, flags).unwrap()).collect();
        let own = |event: &OwnedFd| event.try_clone().unwrap();
        answers.0.signal_by(events.iter().map(own).collect());
        let mut tell = |bytes: &[u8]| answers.other(Command(INTERRUPT), bytes, &mut Vec::new());
        assert_eq!(tell(&interrupt_to_bytes(irq::MSIX, 1)), Ok(()));
        for (index, vector) in [(irq::MSIX, 2), (irq::MSIX, u32::MAX), (irq::MSIX + 1, 0)] {
            assert_eq!(tell(&interrupt_to_bytes(index, vector)), Err(Errno::INVAL));
        }
        assert_eq!(tell(&[0; 7]), Err(Errno::INVAL));
        let unknown = Command(INTERRUPT + 1);
        assert_eq!(answers.other(unknown, &[], &mut Vec::new()), Err(Errno::NOTSUP));
        let count = |event: &OwnedFd| rustix::io::read(event, &mut [0; 8]).is_ok();
        assert_eq!([count(&events[0]), count(&events[1])], [false, true]);
    }
}
