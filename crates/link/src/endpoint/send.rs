//! What leaves: a queue in the order in which it was taken, kept until the other end has it.
//!
//! A frame is taken only if there is credit for it, so nothing in the queue ever waits for credit, and
//! the order of the queue is the order of arrival. Bulk is taken only while little of it is ahead, so
//! whatever is taken later does not wait long.

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::control::{Amount, Amounts, Control};
use crate::error::Violation;
use crate::frame::{Class, FIELD_BYTES_MAX, Frame, SMALL_BYTES_MAX, Tag};
use crate::mutation::{Mutation, on};
use crate::wire::{HEADER_BYTES, Header};

/// Frames of one class that are kept until the other end has them, and bytes of data in them.
pub(super) const KEPT_MAX: Amount = Amount { frames: 8192, bytes: 16 << 20 };

/// Room for bulk that is kept to be used again: as many pieces as may usually be on their way.
const SPARE_MAX: usize = 64;

/// Pieces that leave with one call of the system.
const SLICES: usize = 16;

/// A frame's header and fields.
const HEAD_BYTES: usize = HEADER_BYTES + FIELD_BYTES_MAX;

/// A frame that the other end may not have yet.
struct Kept {
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    data: Vec<u8>,
    class: Class,
}

impl Kept {
    fn new(frame: Frame<Vec<u8>>, tag: Tag, sequence: u64) -> Kept {
        let (kind, class) = (frame.kind().number(), frame.class());
        let mut fields = Vec::with_capacity(FIELD_BYTES_MAX);
        frame.put_fields(&mut fields);
        let (_, data) = frame.split();
        let length = (fields.len() + data.len()) as u32;
        let header = Header { kind, length, sequence, acknowledged: 0, tag: tag.0 };
        let head_bytes = HEADER_BYTES + fields.len();
        let mut head = [0; HEAD_BYTES];
        head[..HEADER_BYTES].copy_from_slice(&header.encode());
        head[HEADER_BYTES..head_bytes].copy_from_slice(&fields);
        Kept { head, head_bytes, data, class }
    }

    fn acknowledge(&mut self, expected: u64) {
        let at = Header::ACKNOWLEDGED_AT;
        self.head[at..at + 8].copy_from_slice(&expected.to_le_bytes());
    }

    /// What is left of it from a byte on.
    fn from(&self, offset: usize) -> [&[u8]; 2] {
        let head = &self.head[..self.head_bytes];
        if offset < head.len() {
            [&head[offset..], &self.data]
        } else {
            [&[], &self.data[offset - head.len()..]]
        }
    }

    fn bytes(&self) -> usize {
        self.head_bytes + self.data.len()
    }

    fn bulk(&self) -> usize {
        if self.data.len() > SMALL_BYTES_MAX { self.data.len() } else { 0 }
    }
}

/// What is to be written to the connection now, in this order. May be empty.
#[derive(Debug)]
pub struct Transmit<'a> {
    slices: [IoSlice<'a>; SLICES],
    used: usize,
}

impl<'a> Transmit<'a> {
    fn push(&mut self, bytes: &'a [u8]) {
        if !bytes.is_empty() {
            self.slices[self.used] = IoSlice::new(bytes);
            self.used += 1;
        }
    }

    /// Head and data of a frame, or what is left of them, if both fit.
    fn push_both(&mut self, parts: [&'a [u8]; 2]) -> bool {
        let fits = self.used + 2 <= SLICES;
        if fits {
            parts.into_iter().for_each(|part| self.push(part));
        }
        fits
    }

    /// The pieces, none of them empty.
    #[must_use]
    pub fn slices(&self) -> &[IoSlice<'a>] {
        &self.slices[..self.used]
    }

    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }
}

/// Why a frame was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The other end has no room for another frame of this class, or has not said yet that it has.
    Credit,
    /// Enough bulk is ahead.
    Ahead,
    /// The other end has not said for long that it has what was sent.
    Unacknowledged,
}

/// See the module.
pub(super) struct Sender {
    kept: VecDeque<Kept>,
    /// Sequence number of the first that is kept.
    first: u64,
    /// Which of them is next, and how much of it has left.
    next: usize,
    offset: usize,
    /// The first that no connection has been given: what one before it has come to, only the other end
    /// knows.
    never_sent: u64,
    kept_amounts: Amounts,
    used: Amounts,
    granted: Amounts,
    /// Bytes of bulk that wait, and how many may.
    bulk_ahead: usize,
    bulk_ahead_max: usize,
    /// Room for data that was sent: it is written over, not made anew.
    spare: Vec<Vec<u8>>,
    control: Vec<u8>,
    /// What of it has left, and how much of it `transmit` has offered.
    control_sent: usize,
    control_offered: usize,
}

/// Where the credit of a class is counted.
pub(super) fn account(class: Class) -> usize {
    if on(Mutation::SharedCredits) { Class::Posted.index() } else { class.index() }
}

impl Sender {
    pub(super) fn new(bulk_ahead_max: usize) -> Sender {
        Sender {
            kept: VecDeque::new(),
            first: 0,
            next: 0,
            offset: 0,
            never_sent: 0,
            kept_amounts: Amounts::default(),
            used: Amounts::default(),
            granted: Amounts::default(),
            bulk_ahead: 0,
            bulk_ahead_max,
            spare: Vec::new(),
            control: Vec::new(),
            control_sent: 0,
            control_offered: 0,
        }
    }

    /// Whether a frame of this class with so much data would be taken now.
    pub(super) fn may(&self, class: Class, bytes: usize) -> Result<(), Why> {
        let at = account(class);
        if !self.used[at].has_room(bytes as u64, self.granted[at]) {
            return Err(Why::Credit);
        }
        if !self.kept_amounts[class.index()].has_room(bytes as u64, KEPT_MAX) {
            return Err(Why::Unacknowledged);
        }
        let is_bulk = bytes > SMALL_BYTES_MAX && !on(Mutation::UnboundedBulk);
        if is_bulk && self.bulk_ahead + bytes > self.bulk_ahead_max {
            return Err(Why::Ahead);
        }
        Ok(())
    }

    /// Takes a frame that [`may`](Self::may) be.
    pub(super) fn take(&mut self, tag: Tag, frame: Frame<Vec<u8>>) {
        let first = matches!(frame, Frame::Interrupt { .. }) && on(Mutation::InterruptFirst);
        let kept = Kept::new(frame, tag, self.first + self.kept.len() as u64);
        self.used[account(kept.class)].add(kept.data.len() as u64);
        self.kept_amounts[kept.class.index()].add(kept.data.len() as u64);
        self.bulk_ahead += kept.bulk();
        self.kept.push_back(kept);
        if first {
            self.bring_forward();
        }
    }

    /// Puts the last frame before all that has not begun to leave.
    fn bring_forward(&mut self) {
        let to = self.next + usize::from(self.offset > 0);
        if let Some(last) = self.kept.pop_back() {
            self.kept.insert(to.min(self.kept.len()), last);
        }
        for (at, kept) in self.kept.iter_mut().enumerate().skip(to) {
            kept.head[8..16].copy_from_slice(&(self.first + at as u64).to_le_bytes());
        }
    }

    /// Says something beside the queue.
    pub(super) fn say(&mut self, control: &Control<'_>, expected: u64) {
        control.put(expected, &mut self.control);
    }

    /// What of the control frames has not left yet.
    pub(super) fn has_control(&self) -> bool {
        self.control_sent < self.control.len()
    }

    /// Whether a frame has left in part.
    pub(super) fn is_amid(&self) -> bool {
        self.offset > 0
    }

    /// What may leave now; frames only when both ends know one another.
    pub(super) fn transmit(&mut self, expected: u64, is_up: bool) -> Transmit<'_> {
        let ahead = self.next + usize::from(self.offset > 0);
        for kept in self.kept.iter_mut().skip(ahead).take(SLICES) {
            kept.acknowledge(expected);
        }
        self.control_offered = self.control.len();
        let mut out = Transmit { slices: [IoSlice::new(&[]); SLICES], used: 0 };
        let mut rest = self.kept.iter().skip(self.next);
        if self.offset > 0 {
            if let Some(begun) = rest.next() {
                out.push_both(begun.from(self.offset));
            }
        }
        out.push(&self.control[self.control_sent..]);
        let mut given = self.first + ahead as u64;
        for kept in rest.take_while(|_| is_up) {
            if !out.push_both(kept.from(0)) {
                break;
            }
            given += 1;
        }
        self.never_sent = self.never_sent.max(given);
        out
    }

    /// So many of the bytes that [`transmit`](Self::transmit) gave have left.
    pub(super) fn transmitted(&mut self, mut bytes: usize) {
        if self.offset > 0 {
            bytes = self.advance(bytes);
        }
        let control = bytes.min(self.control_offered - self.control_sent);
        self.control_sent += control;
        bytes -= control;
        if self.control_sent == self.control.len() {
            self.control.clear();
            self.control_sent = 0;
        }
        self.control_offered = self.control_sent;
        while bytes > 0 && self.next < self.kept.len() {
            bytes = self.advance(bytes);
        }
    }

    /// Counts bytes of the frame that is next, and gives what is beyond it.
    fn advance(&mut self, bytes: usize) -> usize {
        let Some(kept) = self.kept.get(self.next) else { return 0 };
        let left = kept.bytes() - self.offset;
        if bytes < left {
            self.offset += bytes;
            return 0;
        }
        self.bulk_ahead -= kept.bulk();
        self.offset = 0;
        self.next += 1;
        bytes - left
    }

    /// The other end has all frames before this one.
    pub(super) fn acknowledged(&mut self, before: u64) -> Result<(), Violation> {
        if before > self.never_sent {
            return Err(Violation::Acknowledged);
        }
        // What is on its way again is kept until it has left again.
        let count = before.saturating_sub(self.first).min(self.next as u64);
        (0..count).for_each(|_| self.forget());
        self.next -= count as usize;
        Ok(())
    }

    fn forget(&mut self) {
        let Some(kept) = self.kept.pop_front() else { return };
        let amount = &mut self.kept_amounts[kept.class.index()];
        amount.frames -= 1;
        amount.bytes -= kept.data.len() as u64;
        self.first += 1;
        if kept.data.len() > SMALL_BYTES_MAX && self.spare.len() < SPARE_MAX {
            self.spare.push(kept.data);
        }
    }

    /// Room for so many bytes of data, with whatever in it.
    pub(super) fn room(&mut self, bytes: usize) -> Vec<u8> {
        let is_bulk = bytes > SMALL_BYTES_MAX;
        let mut room = is_bulk.then(|| self.spare.pop()).flatten().unwrap_or_default();
        room.resize(bytes, 0);
        room
    }

    /// What the other end grants: more than before, or as much.
    pub(super) fn granted(&mut self, amounts: Amounts) -> Result<(), Violation> {
        for (old, new) in self.granted.iter_mut().zip(amounts) {
            if new.frames < old.frames || new.bytes < old.bytes {
                return Err(Violation::CreditBack);
            }
            *old = new;
        }
        Ok(())
    }

    /// A new connection: what was said beside the queue is void, and a frame that had begun begins
    /// again.
    pub(super) fn begin(&mut self) {
        self.control.clear();
        (self.control_sent, self.control_offered, self.offset) = (0, 0, 0);
    }

    /// The other end expects this frame next: all from there on leave again.
    pub(super) fn resume(&mut self, wanted: u64) -> Result<(), Violation> {
        let (first, end) = (self.first, self.never_sent);
        if wanted < first || wanted > end {
            return Err(Violation::Resume { wanted, first, end });
        }
        if !on(Mutation::ResendAll) {
            (first..wanted).for_each(|_| self.forget());
        }
        (self.next, self.offset) = (0, 0);
        self.bulk_ahead = self.kept.iter().map(Kept::bulk).sum();
        Ok(())
    }

    /// Nothing is sent any more.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
        (self.next, self.offset, self.bulk_ahead) = (0, 0, 0);
        self.kept_amounts = Amounts::default();
    }

    /// Bytes of bulk that wait.
    pub(super) fn bulk_ahead(&self) -> usize {
        self.bulk_ahead
    }

    /// Bytes of data that are kept.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.kept_amounts.iter().map(|amount| amount.bytes).sum()
    }
}
