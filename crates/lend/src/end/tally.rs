//! What the ends of a lease count: in memory that their daemons have too, so that it is known also of a process
//! that stands still, or was killed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use farside_fabric::{Refusal as WindowRefusal, Refusals};
use farside_link::endpoint::Counters as LinkCounters;
use farside_linux::lock::lock;
use farside_linux::mapping::{MemoryError, memory_file};
use farside_linux::shared::SharedMemory;
use farside_live::far::{FarEndReport, Refusal as CardRefusal};
use farside_types::PAGE_SIZE;

const WHAT: &str = "farside-tally";

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// Programs that were let in.
    Programs,
    /// Connections of theirs.
    Connections,
    /// Of them, those by which a program went on whose connection had broken.
    Resumed,
    /// Bytes of data that the borrower has sent: of registers, memory and ring entries.
    BytesIn,
    /// Bytes of data that it was sent.
    BytesOut,
    /// Bytes of the card's memory that came from other lenders' ends.
    FromPeers,
    /// Bytes of it that those have read.
    ToPeers,
    /// Something was refused.
    Refused(Refused),
}

/// What was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A connection that did not show that it is the borrower's.
    Stranger,
    /// A program, where there are as many as the card has functions.
    Program,
    /// A frame that breaks the protocol of the link.
    Frame,
    /// A frame that has no place at this end.
    Misplaced,
    /// A command for a card that makes no sense, or names what is not the card's.
    Command,
    /// Bytes outside the card's memory.
    Memory,
    /// What was posted and this end, or the device itself, refused.
    Device,
    /// What the borrower's end refused of the device: at the lender's.
    Borrower,
    /// An access to memory of the borrower: the device's, at the lender's end; the lender's, at the borrower's.
    Dma(WindowRefusal),
}

impl Refused {
    /// Each, with its name for people and programs.
    pub(crate) const ALL: [(Refused, &'static str); 13] = [
        (Refused::Stranger, "stranger"),
        (Refused::Program, "program"),
        (Refused::Frame, "frame"),
        (Refused::Misplaced, "misplaced"),
        (Refused::Command, "command"),
        (Refused::Memory, "memory"),
        (Refused::Device, "device"),
        (Refused::Borrower, "borrower"),
        (Refused::Dma(WindowRefusal::Closed), "dma-closed"),
        (Refused::Dma(WindowRefusal::Epoch), "dma-epoch"),
        (Refused::Dma(WindowRefusal::Outside), "dma-outside"),
        (Refused::Dma(WindowRefusal::BeyondEnd), "dma-beyond-end"),
        (Refused::Dma(WindowRefusal::Rights), "dma-rights"),
    ];

    fn index(self) -> usize {
        match self {
            Refused::Stranger => 0,
            Refused::Program => 1,
            Refused::Frame => 2,
            Refused::Misplaced => 3,
            Refused::Command => 4,
            Refused::Memory => 5,
            Refused::Device => 6,
            Refused::Borrower => 7,
            Refused::Dma(why) => 8 + why as usize,
        }
    }

    /// What ended a program's link to a card.
    pub(super) fn of_card(why: CardRefusal) -> Refused {
        match why {
            CardRefusal::Memory | CardRefusal::Beyond => Refused::Memory,
            _ => Refused::Command,
        }
    }
}

/// Counts that are no refusals.
const PLAIN: usize = 7;
const COUNTS: usize = PLAIN + Refused::ALL.len();

impl Count {
    fn index(self) -> usize {
        match self {
            Count::Programs => 0,
            Count::Connections => 1,
            Count::Resumed => 2,
            Count::BytesIn => 3,
            Count::BytesOut => 4,
            Count::FromPeers => 5,
            Count::ToPeers => 6,
            Count::Refused(what) => PLAIN + what.index(),
        }
    }
}

/// How much of each there was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted([u64; COUNTS]);

impl Counted {
    pub(crate) fn of(&self, count: Count) -> u64 {
        self.0[count.index()]
    }

    pub(crate) fn with(mut self, count: Count, much: u64) -> Counted {
        self.0[count.index()] = much;
        self
    }

    /// What a link has counted, and the windows beside it.
    pub(super) fn of_link(link: &LinkCounters, windows: &Refusals) -> Counted {
        let counted = Counted::default()
            .with(Count::Connections, link.connections)
            .with(Count::Resumed, link.connections.saturating_sub(1))
            .with(Count::BytesIn, link.received_bytes)
            .with(Count::BytesOut, link.sent_bytes)
            .with(Count::Refused(Refused::Frame), link.violations);
        let with = |all: Counted, (why, count)| all.with(Count::Refused(Refused::Dma(why)), count);
        windows.by_reason().fold(counted, with)
    }

    /// What the end beside a card has reported of a link.
    pub(super) fn of_card(report: &FarEndReport) -> Counted {
        Counted::default()
            .with(Count::Connections, report.connections)
            .with(Count::Resumed, report.connections.saturating_sub(1))
            .with(Count::BytesIn, report.bytes_received)
            .with(Count::BytesOut, report.bytes_sent)
            .with(Count::FromPeers, report.bytes_from_peers)
            .with(Count::ToPeers, report.bytes_to_peers)
            .with(Count::Refused(Refused::Frame), report.violations)
            .with(Count::Refused(Refused::Device), report.refused_by_card)
    }

    /// Each kind of refusal that there was, by its name.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let each = Refused::ALL.iter().map(|&(what, name)| (name, self.of(Count::Refused(what))));
        each.filter(|&(_, count)| count > 0)
    }

    /// The same in words, if there was any.
    pub(crate) fn refused_words(&self) -> Option<String> {
        let words: Vec<String> =
            self.refused().map(|(kind, count)| format!("{kind} {count}")).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// All together.
    pub(crate) fn plus(self, other: Counted) -> Counted {
        Counted(std::array::from_fn(|index| self.0[index].saturating_add(other.0[index])))
    }

    /// What came since.
    pub(crate) fn since(self, before: Counted) -> Counted {
        Counted(std::array::from_fn(|index| self.0[index].saturating_sub(before.0[index])))
    }

    /// The greater of each.
    pub(crate) fn latest(self, other: Counted) -> Counted {
        Counted(std::array::from_fn(|index| self.0[index].max(other.0[index])))
    }
}

/// Where an end counts.
#[derive(Debug)]
pub(crate) struct Tally(SharedMemory);

impl Tally {
    /// In a file of [`TallyReader::new`].
    ///
    /// # Errors
    /// It is no such file.
    pub(crate) fn of(file: OwnedFd) -> Result<Tally, MemoryError> {
        Ok(Tally(SharedMemory::of_file(file, 0, PAGE_SIZE as u64)?))
    }

    /// One that no daemon reads.
    #[cfg(test)]
    pub(super) fn unseen() -> Tally {
        Tally(SharedMemory::new(PAGE_SIZE as u64).expect("a page"))
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.0.file()
    }

    pub(super) fn add(&self, count: Count, more: u64) {
        // It is within the page.
        let _ = self.0.add(8 * count.index() as u64, more);
    }
}

/// What is counted of one link, whose own counts begin at nothing.
pub(super) struct OfLink {
    tally: Arc<Tally>,
    told: Counted,
}

impl OfLink {
    pub(super) fn new(tally: Arc<Tally>) -> OfLink {
        OfLink { tally, told: Counted::default() }
    }

    /// It has come to this by now.
    pub(super) fn is_at(&mut self, now: Counted) {
        if now == self.told {
            return;
        }
        let more = now.since(self.told).0;
        for (index, &more) in more.iter().enumerate().filter(|&(_, &more)| more > 0) {
            let _ = self.tally.0.add(8 * index as u64, more);
        }
        self.told = now;
    }
}

/// What a daemon knows of what an end counts. It is not mapped: whatever the end does to the file, or gives
/// instead, costs the daemon nothing but right numbers.
#[derive(Debug)]
pub(crate) struct TallyReader {
    file: OwnedFd,
    /// An end that is attacked may not take back what it has counted.
    last: Mutex<Counted>,
}

impl TallyReader {
    /// A new one, whose file goes to an end.
    ///
    /// # Errors
    /// There is no memory.
    pub(super) fn new() -> Result<TallyReader, MemoryError> {
        Ok(TallyReader::of(memory_file(WHAT, PAGE_SIZE as u64)?))
    }

    /// That of an end which runs.
    pub(super) fn of(file: OwnedFd) -> TallyReader {
        TallyReader { file, last: Mutex::default() }
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn read(&self) -> Counted {
        let mut bytes = [0; 8 * COUNTS];
        let mut last = lock(&self.last);
        if let Ok(count) = rustix::io::pread(&self.file, &mut bytes, 0) {
            let mut now = Counted::default();
            let words = bytes[..count].chunks_exact(8);
            for (counted, word) in now.0.iter_mut().zip(words) {
                *counted = u64::from_ne_bytes(word.try_into().unwrap_or_default());
            }
            *last = last.latest(now);
        }
        *last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (TallyReader, Arc<Tally>) {
        let reader = TallyReader::new().unwrap();
        let tally = Tally::of(reader.file().try_clone_to_owned().unwrap()).unwrap();
        (reader, Arc::new(tally))
    }

    #[test]
    fn each_count_has_a_place_of_its_own() {
        let plain = [
            Count::Programs,
            Count::Connections,
            Count::Resumed,
            Count::BytesIn,
            Count::BytesOut,
            Count::FromPeers,
            Count::ToPeers,
        ];
        let all = plain.into_iter().chain(Refused::ALL.map(|(what, _)| Count::Refused(what)));
        let places: Vec<usize> = all.map(Count::index).collect();
        assert_eq!(places, (0..COUNTS).collect::<Vec<_>>());
    }

    #[test]
    fn what_several_links_count_is_read_together_and_outlives_the_end() {
        let (reader, tally) = pair();
        let mut links = [OfLink::new(Arc::clone(&tally)), OfLink::new(Arc::clone(&tally))];
        let at = |bytes| Counted::default().with(Count::BytesIn, bytes);
        for (link, bytes) in [(0, 5), (1, 10), (0, 7), (0, 7)] {
            links[link].is_at(at(bytes));
        }
        tally.add(Count::Refused(Refused::Stranger), 3);
        drop((links, tally));
        let counted = reader.read();
        assert_eq!(counted.of(Count::BytesIn), 17);
        assert_eq!(counted.refused().collect::<Vec<_>>(), [("stranger", 3)]);
    }

    #[test]
    fn an_end_takes_nothing_back_and_may_give_what_is_no_tally() {
        let (reader, tally) = pair();
        tally.add(Count::Programs, 9);
        assert_eq!(reader.read().of(Count::Programs), 9);
        tally.add(Count::Programs, u64::MAX - 3);
        assert_eq!(reader.read().of(Count::Programs), 9);
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(TallyReader::of(pipe).read(), Counted::default());
    }
}
