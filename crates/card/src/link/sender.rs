//! The sending end: pages out in frames, again what the receiver misses, until it says all is there.

use std::collections::VecDeque;

use super::page_list::PageList;
use super::{
    AnnounceError, FrameBuffer, LinkConfigError, LinkError, Outgoing, PageRun, PagesRead,
    SendFailure, SenderCounters, blank, put,
};
use crate::interface::{
    LINK_HEADER_BYTES, LINK_PAYLOAD_BYTES, LINK_RANGES_MAX, LinkAddress, LinkHeader, LinkKind,
    LinkVerdict,
};

const PAGE_BYTES: u32 = 4096;

/// The sizes of a sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SenderConfig {
    /// The function that sends.
    pub address: LinkAddress,
    /// Bytes of payload of a frame: a power of two, 64 to 4096.
    pub payload_bytes: u32,
    /// Rounds of one transfer, the first included: 1 to 255.
    pub rounds_max: u8,
    /// Transfers that may be open at once.
    pub transfers_max: u32,
    /// Pages of one transfer, 1 to 65536.
    pub pages_max: u32,
}

impl SenderConfig {
    /// Four frames to a page, eight rounds, 64 transfers of 4096 pages.
    pub const fn new(address: LinkAddress) -> SenderConfig {
        SenderConfig {
            address,
            payload_bytes: LINK_PAYLOAD_BYTES as u32,
            rounds_max: 8,
            transfers_max: 64,
            pages_max: 4096,
        }
    }

    fn validate(&self) -> Result<(), LinkConfigError> {
        if !self.payload_bytes.is_power_of_two() || !(64..=4096).contains(&self.payload_bytes) {
            return Err(LinkConfigError::Payload(self.payload_bytes));
        }
        for (field, value, most) in [
            ("rounds_max", u32::from(self.rounds_max), 255),
            ("transfers_max", self.transfers_max, 1 << 16),
            ("pages_max", self.pages_max, 1 << 16),
        ] {
            if !(1..=most).contains(&value) {
                return Err(LinkConfigError::OutOfBounds { field, value, least: 1, most });
            }
        }
        Ok(())
    }
}

/// A send is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendEnded {
    /// Where it went.
    pub to: LinkAddress,
    /// Which.
    pub transfer: u32,
    /// Pages that the receiver is known to have.
    pub pages: u32,
    /// Whether every page is there.
    pub result: Result<(), SendFailure>,
}

/// What a transfer does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Sends frames.
    Sending,
    /// Asks for a report.
    Asking,
    /// Waits for a report.
    Waiting,
}

/// One open transfer.
#[derive(Clone, Debug)]
struct Sending {
    to: LinkAddress,
    transfer: u32,
    pages: PageList,
    /// Ranges of pages that this round sends, first and count.
    ranges: Vec<(u32, u32)>,
    /// The range under way, the page in it, and the offset in the page.
    range: usize,
    page: u32,
    offset: u32,
    round: u8,
    sequence: u32,
    pages_there: u32,
    phase: Phase,
}

/// A destination that asked for a pause.
#[derive(Clone, Copy, Debug)]
struct Paused {
    to: LinkAddress,
    quanta: u32,
}

/// The sending end of one function.
#[derive(Clone, Debug)]
pub struct Sender {
    config: SenderConfig,
    open: Vec<Sending>,
    turn: usize,
    paused: Vec<Paused>,
    stops: VecDeque<(LinkAddress, u32)>,
    ended: VecDeque<SendEnded>,
    counters: SenderCounters,
}

impl Sender {
    /// Nothing to send.
    ///
    /// # Errors
    /// [`LinkConfigError`].
    pub fn new(config: SenderConfig) -> Result<Sender, LinkConfigError> {
        config.validate()?;
        Ok(Sender {
            config,
            open: Vec::new(),
            turn: 0,
            paused: Vec::new(),
            stops: VecDeque::new(),
            ended: VecDeque::new(),
            counters: SenderCounters::default(),
        })
    }

    /// Begins to send pages. They must not change until the transfer has ended.
    ///
    /// Ends that were not polled ([`Sender::poll_ended`]) count as open, so that they are bounded.
    ///
    /// # Errors
    /// [`AnnounceError`].
    pub fn send(
        &mut self,
        to: LinkAddress,
        transfer: u32,
        pages: &[PageRun],
    ) -> Result<(), AnnounceError> {
        if self.position(to, transfer).is_some() {
            return Err(AnnounceError::InUse { transfer, peer: to });
        }
        let most = self.config.transfers_max;
        if self.open.len() + self.ended.len() >= most as usize {
            return Err(AnnounceError::TooMany { most });
        }
        let pages = PageList::new(pages, self.config.pages_max)?;
        let ranges = vec![(0, pages.pages())];
        self.open.push(Sending {
            to,
            transfer,
            pages,
            ranges,
            range: 0,
            page: 0,
            offset: 0,
            round: 0,
            sequence: 0,
            pages_there: 0,
            phase: Phase::Sending,
        });
        Ok(())
    }

    fn position(&self, to: LinkAddress, transfer: u32) -> Option<usize> {
        self.open.iter().position(|open| open.to == to && open.transfer == transfer)
    }

    /// The next frame to be carried, transfers in turn. `None`: nothing to do until a frame comes,
    /// a pause is over, or [`Sender::nudge`].
    pub fn poll_frame(
        &mut self,
        source: &mut impl PagesRead,
        frame: &mut FrameBuffer,
    ) -> Option<Outgoing> {
        loop {
            if let Some((to, transfer)) = self.stops.pop_front() {
                let header = blank(LinkKind::Stop, self.config.address, to);
                return Some(put(LinkHeader { transfer, ..header }, frame));
            }
            let index = self.next_turn()?;
            if self.open[index].phase == Phase::Asking {
                return Some(self.question(index, frame));
            }
            if let Some(outgoing) = self.data(index, source, frame) {
                return Some(outgoing);
            }
        }
    }

    /// A transfer that has something to send and may.
    fn next_turn(&mut self) -> Option<usize> {
        let count = self.open.len();
        let ready = |index: &usize| match self.open[*index].phase {
            Phase::Sending => self.pause_of(self.open[*index].to) == 0,
            Phase::Asking => true,
            Phase::Waiting => false,
        };
        let found = (0..count).map(|offset| (self.turn + offset) % count).find(ready)?;
        self.turn = found + 1;
        Some(found)
    }

    fn question(&mut self, index: usize, frame: &mut FrameBuffer) -> Outgoing {
        self.counters.questions += 1;
        let open = &mut self.open[index];
        open.phase = Phase::Waiting;
        let header = LinkHeader {
            round: open.round,
            transfer: open.transfer,
            sequence: open.sequence,
            pages: open.pages.pages(),
            ..blank(LinkKind::Question, self.config.address, open.to)
        };
        put(header, frame)
    }

    /// The next frame of data; `None` if its page could not be read, which ends the transfer.
    fn data(
        &mut self,
        index: usize,
        source: &mut impl PagesRead,
        frame: &mut FrameBuffer,
    ) -> Option<Outgoing> {
        let length = self.config.payload_bytes;
        let open = &self.open[index];
        let page = open.page;
        let payload = &mut frame[LINK_HEADER_BYTES..LINK_HEADER_BYTES + length as usize];
        let place = open.pages.place(page);
        if place.and_then(|place| source.read(place, open.offset, payload).ok()).is_none() {
            self.end(index, Err(SendFailure::SourceFailed { page }));
            return None;
        }
        let open = &mut self.open[index];
        let header = LinkHeader {
            round: open.round,
            transfer: open.transfer,
            length: length as u16,
            argument: open.offset as u16,
            page,
            sequence: open.sequence,
            pages: open.pages.pages(),
            last: open.advance(length),
            ..blank(LinkKind::Data, self.config.address, open.to)
        };
        self.counters.data_frames += 1;
        Some(put(header, frame))
    }

    /// Takes a frame of the receiver in.
    ///
    /// # Errors
    /// [`LinkError`], counted; the frame did nothing.
    pub fn handle_frame(&mut self, frame: &[u8]) -> Result<(), LinkError> {
        let (header, payload) = LinkHeader::from_frame(frame).inspect_err(|_| {
            self.counters.damaged += 1;
        })?;
        let result = match header.kind {
            _ if header.to != self.config.address => {
                Err(LinkError::NotHere { to: header.to, own: self.config.address })
            }
            LinkKind::Pause => {
                self.pause(header.from, header.argument);
                Ok(())
            }
            LinkKind::Report => self.report(&header, payload),
            other => Err(LinkError::WrongEnd(other)),
        };
        if result.is_err() {
            self.counters.foreign += 1;
        }
        result
    }

    fn pause(&mut self, from: LinkAddress, quanta: u16) {
        self.paused.retain(|paused| paused.to != from);
        if quanta > 0 && self.open.iter().any(|open| open.to == from) {
            self.counters.pauses += 1;
            self.paused.push(Paused { to: from, quanta: quanta.into() });
        }
    }

    fn report(&mut self, header: &LinkHeader, payload: &[u8]) -> Result<(), LinkError> {
        let bad = LinkError::BadReport { transfer: header.transfer };
        let Some(index) = self.position(header.from, header.transfer) else {
            self.counters.reports_late += 1;
            return Ok(());
        };
        let open = &mut self.open[index];
        let pages = open.pages.pages();
        if header.pages != pages || header.page > pages {
            return Err(bad);
        }
        match LinkVerdict::from_code(header.argument).ok_or(bad)? {
            LinkVerdict::Done if header.page == pages => {
                open.pages_there = pages;
                self.end(index, Ok(()));
            }
            LinkVerdict::Done => return Err(bad),
            LinkVerdict::Refused => {
                open.pages_there = header.page;
                self.end(index, Err(SendFailure::Refused));
            }
            LinkVerdict::Missing if header.round != open.round || open.phase == Phase::Sending => {
                self.counters.reports_late += 1;
            }
            LinkVerdict::Missing => {
                let ranges = ranges_of(payload, pages).ok_or(bad)?;
                open.pages_there = header.page;
                self.again(index, ranges);
            }
        }
        Ok(())
    }

    /// Another round, with these pages.
    fn again(&mut self, index: usize, ranges: Vec<(u32, u32)>) {
        let Some(&(page, _)) = ranges.first() else {
            // Everything has come and is being stored: `Done` will follow.
            return;
        };
        let rounds = self.open[index].round + 1;
        if rounds >= self.config.rounds_max {
            self.end(index, Err(SendFailure::TooManyRounds { rounds }));
            return;
        }
        self.counters.pages_again += ranges.iter().map(|&(_, count)| u64::from(count)).sum::<u64>();
        let open = &mut self.open[index];
        open.round = rounds;
        (open.ranges, open.range, open.page, open.offset) = (ranges, 0, page, 0);
        open.phase = Phase::Sending;
    }

    fn end(&mut self, index: usize, result: Result<(), SendFailure>) {
        let open = self.open.remove(index);
        if self.turn > index {
            self.turn -= 1;
        }
        if !matches!(result, Ok(()) | Err(SendFailure::Refused)) {
            if self.stops.len() >= self.config.transfers_max as usize {
                self.stops.pop_front();
            }
            self.stops.push_back((open.to, open.transfer));
        }
        if !self.open.iter().any(|other| other.to == open.to) {
            self.paused.retain(|paused| paused.to != open.to);
        }
        let (to, transfer, pages) = (open.to, open.transfer, open.pages_there);
        self.ended.push_back(SendEnded { to, transfer, pages, result });
    }

    /// Sends a question if the transfer waits for a report: call it when nothing was heard for
    /// long. Returns whether a question will go out.
    pub fn nudge(&mut self, to: LinkAddress, transfer: u32) -> bool {
        let Some(index) = self.position(to, transfer) else {
            return false;
        };
        let open = &mut self.open[index];
        if open.phase == Phase::Waiting {
            open.phase = Phase::Asking;
        }
        open.phase == Phase::Asking
    }

    /// Gives a transfer up: its end comes out of [`Sender::poll_ended`], and the receiver is told.
    /// Returns whether it was open.
    pub fn give_up(&mut self, to: LinkAddress, transfer: u32) -> bool {
        match self.position(to, transfer) {
            Some(index) => {
                self.end(index, Err(SendFailure::GivenUp));
                true
            }
            None => false,
        }
    }

    /// This many quanta (512 bit times of the link) have passed.
    pub fn elapsed(&mut self, quanta: u32) {
        for paused in &mut self.paused {
            paused.quanta = paused.quanta.saturating_sub(quanta);
        }
        self.paused.retain(|paused| paused.quanta > 0);
    }

    /// Quanta for which no data goes to a function; 0: it is not paused.
    pub fn pause_of(&self, to: LinkAddress) -> u32 {
        self.paused.iter().find(|paused| paused.to == to).map_or(0, |paused| paused.quanta)
    }

    /// The next transfer that has ended.
    pub fn poll_ended(&mut self) -> Option<SendEnded> {
        self.ended.pop_front()
    }

    /// Transfers that are open.
    pub fn open(&self) -> impl Iterator<Item = (LinkAddress, u32)> {
        self.open.iter().map(|open| (open.to, open.transfer))
    }

    /// What was counted.
    pub fn counters(&self) -> SenderCounters {
        self.counters
    }
}

impl Sending {
    /// Moves on behind a frame of `length` bytes. Returns whether it is the last of the round.
    fn advance(&mut self, length: u32) -> bool {
        self.sequence = self.sequence.saturating_add(1);
        self.offset += length;
        if self.offset < PAGE_BYTES {
            return false;
        }
        self.offset = 0;
        self.page += 1;
        let (first, count) = self.ranges[self.range];
        if self.page < first + count {
            return false;
        }
        self.range += 1;
        match self.ranges.get(self.range) {
            Some(&(first, _)) => self.page = first,
            None => self.phase = Phase::Waiting,
        }
        self.phase == Phase::Waiting
    }
}

/// The ranges of a report: ascending, not empty, inside the transfer.
fn ranges_of(payload: &[u8], pages: u32) -> Option<Vec<(u32, u32)>> {
    if payload.len() % 8 != 0 || payload.len() / 8 > LINK_RANGES_MAX {
        return None;
    }
    let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let mut end = 0;
    let mut ranges = Vec::with_capacity(payload.len() / 8);
    for record in payload.chunks_exact(8) {
        let (first, count) = (word(&record[..4]), word(&record[4..]));
        let next = first.checked_add(count)?;
        if count == 0 || first < end || next > pages {
            return None;
        }
        end = next;
        ranges.push((first, count));
    }
    Some(ranges)
}
