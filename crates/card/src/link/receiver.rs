//! The receiving end: takes bytes of announced transfers to their places, and nothing else.

use std::collections::VecDeque;

use super::arrived::{Arrived, Order, Presence, piece};
use super::page_list::PageList;
use super::{
    AnnounceError, FrameBuffer, LinkConfigError, LinkError, Outgoing, PageRun, ReceiveFailure,
    ReceiverCounters, blank, put,
};
use crate::interface::{
    DmaAddr, LINK_HEADER_BYTES, LINK_RANGES_MAX, LinkAddress, LinkHeader, LinkKind, LinkVerdict,
};

/// Frames of a paused sender after which it is asked to pause once more.
const PAUSE_AGAIN_FRAMES: u32 = 16;

/// The sizes of a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiverConfig {
    /// The function that receives.
    pub address: LinkAddress,
    /// Transfers that may be open at once, and how many ended ones are remembered.
    pub transfers_max: u32,
    /// Pages of one transfer, 1 to 65536.
    pub pages_max: u32,
    /// Bytes delivered and not stored yet above which the sender is paused.
    pub buffer_bytes_high: u32,
    /// Bytes below which it may go on.
    pub buffer_bytes_low: u32,
    /// Bytes beyond which frames are dropped.
    pub buffer_bytes_max: u32,
    /// Quanta of 512 bit times for which it is paused.
    pub pause_quanta: u16,
}

impl ReceiverConfig {
    /// 64 transfers of 4096 pages; 1 MiB of buffer, paused from half of it on.
    pub const fn new(address: LinkAddress) -> ReceiverConfig {
        ReceiverConfig {
            address,
            transfers_max: 64,
            pages_max: 4096,
            buffer_bytes_high: 1 << 19,
            buffer_bytes_low: 1 << 18,
            buffer_bytes_max: 1 << 20,
            pause_quanta: u16::MAX,
        }
    }

    fn validate(&self) -> Result<(), LinkConfigError> {
        for (field, value, most) in [
            ("transfers_max", self.transfers_max, 1 << 16),
            ("pages_max", self.pages_max, 1 << 16),
            ("pause_quanta", u32::from(self.pause_quanta), u32::from(u16::MAX)),
        ] {
            if !(1..=most).contains(&value) {
                return Err(LinkConfigError::OutOfBounds { field, value, least: 1, most });
            }
        }
        let (low, high) = (self.buffer_bytes_low, self.buffer_bytes_high);
        let room = self.buffer_bytes_max;
        if low > high || high > room || room < 4096 {
            return Err(LinkConfigError::Marks { low, high, room });
        }
        Ok(())
    }
}

/// Bytes that belong to a page. Store them, then call [`Receiver::stored`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivered<'f> {
    /// Who sent them.
    pub from: LinkAddress,
    /// Of which transfer they are.
    pub transfer: u32,
    /// The page they go to.
    pub page: DmaAddr,
    /// Offset in that page.
    pub offset: u32,
    /// The bytes. They come once.
    pub bytes: &'f [u8],
}

/// What a frame was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received<'f> {
    /// New bytes.
    Bytes(Delivered<'f>),
    /// Bytes that are here already because their page was sent again, or of a transfer that has
    /// ended.
    Ignored,
    /// A question; a report will go out.
    Question,
    /// The sender has ended the transfer.
    Stopped,
}

/// A receive is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiveEnded {
    /// Who sent.
    pub from: LinkAddress,
    /// Which.
    pub transfer: u32,
    /// Pages that are whole.
    pub pages: u32,
    /// Whether these are all, and stored.
    pub result: Result<(), ReceiveFailure>,
}

/// An announced transfer.
#[derive(Clone, Debug)]
struct Announced {
    from: LinkAddress,
    transfer: u32,
    pages: PageList,
    arrived: Arrived,
    /// Bytes delivered and not stored yet.
    buffered: u32,
    /// The round whose report is due.
    report: Option<u8>,
}

/// A transfer that has ended, so that late questions get an answer and its number is not reused
/// while frames of it may still come.
#[derive(Clone, Copy, Debug)]
struct Ended {
    from: LinkAddress,
    transfer: u32,
    pages: u32,
    whole: u32,
    verdict: LinkVerdict,
    report: Option<u8>,
    /// Sequence number that is next.
    next: u32,
}

/// A sender that was asked to pause.
#[derive(Clone, Copy, Debug)]
struct Paused {
    from: LinkAddress,
    /// Frames of data since it was asked.
    frames: u32,
    /// What to tell it.
    due: Option<u16>,
}

/// Which checks are made. A test turns one off to see that it is noticed.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Checks {
    pub(super) crc: bool,
    pub(super) source: bool,
    pub(super) index: bool,
    pub(super) presence: bool,
}

#[cfg(test)]
impl Checks {
    pub(super) const ALL: Checks = Checks { crc: true, source: true, index: true, presence: true };
}

/// The receiving end of one function.
#[derive(Clone, Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    open: Vec<Announced>,
    ended: VecDeque<Ended>,
    news: VecDeque<ReceiveEnded>,
    buffered: u32,
    paused: Vec<Paused>,
    counters: ReceiverCounters,
    #[cfg(test)]
    pub(super) checks: Checks,
}

impl Receiver {
    /// Nothing announced.
    ///
    /// # Errors
    /// [`LinkConfigError`].
    pub fn new(config: ReceiverConfig) -> Result<Receiver, LinkConfigError> {
        config.validate()?;
        Ok(Receiver {
            config,
            open: Vec::new(),
            ended: VecDeque::new(),
            news: VecDeque::new(),
            buffered: 0,
            paused: Vec::new(),
            counters: ReceiverCounters::default(),
            #[cfg(test)]
            checks: Checks::ALL,
        })
    }

    /// A transfer from `from` will come, and its pages go there. Nobody else may use them until it
    /// has ended.
    ///
    /// Ends that were not polled ([`Receiver::poll_ended`]) count as open, so that they are bounded.
    ///
    /// # Errors
    /// [`AnnounceError`].
    pub fn announce(
        &mut self,
        from: LinkAddress,
        transfer: u32,
        pages: &[PageRun],
    ) -> Result<(), AnnounceError> {
        if self.lately(from, transfer) || self.position(from, transfer).is_some() {
            return Err(AnnounceError::InUse { transfer, peer: from });
        }
        let most = self.config.transfers_max;
        if self.open.len() + self.news.len() >= most as usize {
            return Err(AnnounceError::TooMany { most });
        }
        let pages = PageList::new(pages, self.config.pages_max)?;
        pages.check_distinct()?;
        let arrived = Arrived::new(pages.pages());
        self.open.push(Announced { from, transfer, pages, arrived, buffered: 0, report: None });
        Ok(())
    }

    fn lately(&self, from: LinkAddress, transfer: u32) -> bool {
        self.ended.iter().any(|old| old.from == from && old.transfer == transfer)
    }

    fn position(&self, from: LinkAddress, transfer: u32) -> Option<usize> {
        self.open.iter().position(|open| open.from == from && open.transfer == transfer)
    }

    /// Takes a frame of a sender in.
    ///
    /// # Errors
    /// [`LinkError`], counted; the frame did nothing.
    pub fn handle_frame<'f>(&mut self, frame: &'f [u8]) -> Result<Received<'f>, LinkError> {
        let (header, payload) = self.decode(frame).inspect_err(|_| self.counters.damaged += 1)?;
        if header.to != self.config.address {
            self.counters.foreign += 1;
            return Err(LinkError::NotHere { to: header.to, own: self.config.address });
        }
        let result = match header.kind {
            LinkKind::Data => self.data(&header, payload),
            LinkKind::Question => self.question(&header),
            LinkKind::Stop => self.stop(&header),
            other => Err(LinkError::WrongEnd(other)),
        };
        match result {
            Err(LinkError::Duplicate { .. }) => self.counters.duplicated += 1,
            Err(LinkError::Overrun { .. }) => self.counters.overrun += 1,
            Err(_) => self.counters.foreign += 1,
            Ok(_) => {}
        }
        result
    }

    fn decode<'f>(&self, frame: &'f [u8]) -> Result<(LinkHeader, &'f [u8]), LinkError> {
        #[cfg(test)]
        if !self.checks.crc {
            return Ok(LinkHeader::parse(frame)?);
        }
        Ok(LinkHeader::from_frame(frame)?)
    }

    /// The announced transfer that a frame belongs to.
    fn announced(&self, header: &LinkHeader) -> Result<usize, LinkError> {
        let (from, transfer) = (header.from, header.transfer);
        #[cfg(test)]
        if !self.checks.source {
            let unknown = LinkError::UnknownTransfer { transfer, from };
            return self.open.iter().position(|open| open.transfer == transfer).ok_or(unknown);
        }
        let index = self.position(from, transfer);
        let index = index.ok_or(LinkError::UnknownTransfer { transfer, from })?;
        let announced = self.open[index].pages.pages();
        if header.pages != announced {
            return Err(LinkError::PagesDiffer { transfer, announced, said: header.pages });
        }
        Ok(index)
    }

    fn data<'f>(
        &mut self,
        header: &LinkHeader,
        payload: &'f [u8],
    ) -> Result<Received<'f>, LinkError> {
        let Ok(index) = self.announced(header) else {
            return self.data_of_none(header);
        };
        let &LinkHeader { transfer, page, argument: offset, length, .. } = header;
        let piece = piece(offset, length);
        let piece = piece.ok_or(LinkError::BadPiece { transfer, page, offset, length })?;
        let place = self.place(index, page)?;
        let presence = self.presence(index, page, piece);
        if header.last {
            self.open[index].report = Some(header.round);
        }
        if presence == Presence::Absent && self.room() < u32::from(length) {
            self.ask_for_pause(header.from);
            return Err(LinkError::Overrun { bytes: length });
        }
        match (presence, self.order(index, presence, header.sequence)) {
            (Presence::Some, _) => Err(LinkError::Overlap { transfer, page }),
            (Presence::All, Order::Late) => Err(LinkError::Duplicate { transfer, page }),
            (Presence::All, Order::After(_)) => {
                self.counters.repeated += 1;
                Ok(Received::Ignored)
            }
            (Presence::Absent, _) => {
                self.take(index, page, piece, length);
                let (from, offset) = (self.open[index].from, u32::from(offset));
                let page = place;
                Ok(Received::Bytes(Delivered { from, transfer, page, offset, bytes: payload }))
            }
        }
    }

    /// Counts what a frame's sequence number tells of the frames before it.
    fn order(&mut self, index: usize, presence: Presence, sequence: u32) -> Order {
        let order = self.open[index].arrived.order(sequence);
        match order {
            Order::After(gap) => {
                self.counters.lost = self.counters.lost.saturating_add(gap.into());
            }
            Order::Late if presence == Presence::Absent => {
                // It was taken for lost when a later one came.
                self.counters.lost = self.counters.lost.saturating_sub(1);
                self.counters.reordered += 1;
            }
            Order::Late => {}
        }
        order
    }

    /// A piece is here, and is to be stored.
    fn take(&mut self, index: usize, page: u32, piece: u64, length: u16) {
        let open = &mut self.open[index];
        open.arrived.insert(page, piece);
        open.buffered += u32::from(length);
        let from = open.from;
        self.buffered += u32::from(length);
        self.counters.delivered += 1;
        if self.buffered > self.config.buffer_bytes_high {
            self.ask_for_pause(from);
        }
    }

    /// Data of a transfer that is not open: of one that ended lately it is late, else foreign.
    fn data_of_none<'f>(&mut self, header: &LinkHeader) -> Result<Received<'f>, LinkError> {
        let Some(ended) = self.ended_lately(header) else {
            return self.announced(header).map(|_| Received::Ignored);
        };
        if header.last {
            ended.report = Some(header.round);
        }
        if header.sequence < ended.next {
            let (transfer, page) = (header.transfer, header.page);
            return Err(LinkError::Duplicate { transfer, page });
        }
        ended.next = header.sequence.saturating_add(1);
        self.counters.repeated += 1;
        Ok(Received::Ignored)
    }

    fn ended_lately(&mut self, header: &LinkHeader) -> Option<&mut Ended> {
        self.ended.iter_mut().find(|old| {
            old.from == header.from && old.transfer == header.transfer && old.pages == header.pages
        })
    }

    fn place(&self, index: usize, page: u32) -> Result<DmaAddr, LinkError> {
        let open = &self.open[index];
        let (transfer, pages) = (open.transfer, open.pages.pages());
        let beyond = LinkError::BeyondList { transfer, page, pages };
        #[cfg(test)]
        if !self.checks.index {
            return open.pages.place_unchecked(page).ok_or(beyond);
        }
        open.pages.place(page).ok_or(beyond)
    }

    fn presence(&self, index: usize, page: u32, piece: u64) -> Presence {
        #[cfg(test)]
        if !self.checks.presence {
            return Presence::Absent;
        }
        self.open[index].arrived.presence(page, piece)
    }

    fn room(&self) -> u32 {
        self.config.buffer_bytes_max.saturating_sub(self.buffered)
    }

    fn question<'f>(&mut self, header: &LinkHeader) -> Result<Received<'f>, LinkError> {
        match self.announced(header) {
            Ok(index) => self.open[index].report = Some(header.round),
            Err(error) => self.ended_lately(header).ok_or(error)?.report = Some(header.round),
        }
        Ok(Received::Question)
    }

    fn stop<'f>(&mut self, header: &LinkHeader) -> Result<Received<'f>, LinkError> {
        let (from, transfer) = (header.from, header.transfer);
        let unknown = LinkError::UnknownTransfer { transfer, from };
        match self.position(from, transfer) {
            Some(index) => self.end(index, Err(ReceiveFailure::Stopped)),
            None if self.lately(from, transfer) => {}
            None => return Err(unknown),
        }
        Ok(Received::Stopped)
    }

    /// Bytes that were delivered are in their page now. When all are, the transfer has ended and
    /// the sender is told.
    pub fn stored(&mut self, from: LinkAddress, transfer: u32, bytes: u32) {
        let Some(index) = self.position(from, transfer) else {
            return;
        };
        let open = &mut self.open[index];
        let bytes = bytes.min(open.buffered);
        open.buffered -= bytes;
        self.buffered -= bytes;
        if open.buffered == 0 && open.arrived.complete() {
            self.end(index, Ok(()));
        }
        self.release_paused();
    }

    /// Gives a transfer up: nothing of it may be stored any more, delivered bytes included. The
    /// sender is told when it asks or sends. Returns whether it was open.
    pub fn give_up(&mut self, from: LinkAddress, transfer: u32) -> bool {
        match self.position(from, transfer) {
            Some(index) => {
                self.end(index, Err(ReceiveFailure::GivenUp));
                true
            }
            None => false,
        }
    }

    fn end(&mut self, index: usize, result: Result<(), ReceiveFailure>) {
        let open = self.open.remove(index);
        self.buffered -= open.buffered;
        let (verdict, report) = match result {
            Ok(()) => (LinkVerdict::Done, Some(open.report.unwrap_or(0))),
            Err(ReceiveFailure::GivenUp) => (LinkVerdict::Refused, Some(open.report.unwrap_or(0))),
            Err(ReceiveFailure::Stopped) => (LinkVerdict::Refused, None),
        };
        let (from, transfer) = (open.from, open.transfer);
        let (pages, whole) = (open.pages.pages(), open.arrived.whole());
        let next = open.arrived.next_sequence();
        if self.ended.len() >= self.config.transfers_max as usize {
            self.ended.pop_front();
        }
        self.ended.push_back(Ended { from, transfer, pages, whole, verdict, report, next });
        self.news.push_back(ReceiveEnded { from, transfer, pages: whole, result });
        self.release_paused();
    }

    fn ask_for_pause(&mut self, from: LinkAddress) {
        let due = Some(self.config.pause_quanta);
        if let Some(paused) = self.paused.iter_mut().find(|paused| paused.from == from) {
            paused.frames += 1;
            if paused.frames >= PAUSE_AGAIN_FRAMES || paused.due == Some(0) {
                (paused.frames, paused.due) = (0, due);
            }
        } else if self.paused.len() < self.config.transfers_max as usize {
            self.paused.push(Paused { from, frames: 0, due });
        }
    }

    fn release_paused(&mut self) {
        if self.buffered <= self.config.buffer_bytes_low {
            for paused in &mut self.paused {
                paused.due = Some(0);
            }
        }
    }

    /// The next frame to be carried: pauses, then reports.
    pub fn poll_frame(&mut self, frame: &mut FrameBuffer) -> Option<Outgoing> {
        self.poll_pause(frame).or_else(|| self.poll_report(frame))
    }

    fn poll_pause(&mut self, frame: &mut FrameBuffer) -> Option<Outgoing> {
        let index = self.paused.iter().position(|paused| paused.due.is_some())?;
        let Paused { from, due, .. } = self.paused[index];
        let quanta = due.unwrap_or(0);
        match quanta {
            0 => {
                self.paused.remove(index);
            }
            _ => {
                self.paused[index].due = None;
                self.counters.pauses += 1;
            }
        }
        let header = blank(LinkKind::Pause, self.config.address, from);
        Some(put(LinkHeader { argument: quanta, ..header }, frame))
    }

    fn poll_report(&mut self, frame: &mut FrameBuffer) -> Option<Outgoing> {
        let header = match self.open.iter().position(|open| open.report.is_some()) {
            Some(index) => self.report_missing(index, frame),
            None => self.report_ended()?,
        };
        self.counters.reports += 1;
        Some(put(header, frame))
    }

    fn report_missing(&mut self, index: usize, frame: &mut FrameBuffer) -> LinkHeader {
        let open = &mut self.open[index];
        let round = open.report.take().unwrap_or(0);
        let mut ranges = [(0, 0); LINK_RANGES_MAX];
        let used = open.arrived.missing(&mut ranges);
        let records = frame[LINK_HEADER_BYTES..].chunks_exact_mut(8);
        for (record, (first, count)) in records.zip(&ranges[..used]) {
            record[..4].copy_from_slice(&first.to_le_bytes());
            record[4..].copy_from_slice(&count.to_le_bytes());
        }
        let open = &self.open[index];
        LinkHeader {
            round,
            transfer: open.transfer,
            length: (used * 8) as u16,
            argument: LinkVerdict::Missing as u16,
            page: open.arrived.whole(),
            pages: open.pages.pages(),
            ..blank(LinkKind::Report, self.config.address, open.from)
        }
    }

    fn report_ended(&mut self) -> Option<LinkHeader> {
        let ended = self.ended.iter_mut().find(|ended| ended.report.is_some())?;
        let round = ended.report.take()?;
        let Ended { from, transfer, pages, whole, verdict, .. } = *ended;
        Some(LinkHeader {
            round,
            transfer,
            argument: verdict as u16,
            page: whole,
            pages,
            ..blank(LinkKind::Report, self.config.address, from)
        })
    }

    /// The next transfer that has ended.
    pub fn poll_ended(&mut self) -> Option<ReceiveEnded> {
        self.news.pop_front()
    }

    /// Transfers that are open, and how many of their pages are whole.
    pub fn open(&self) -> impl Iterator<Item = (LinkAddress, u32, u32)> {
        self.open.iter().map(|open| (open.from, open.transfer, open.arrived.whole()))
    }

    /// What was counted.
    pub fn counters(&self) -> ReceiverCounters {
        self.counters
    }
}
