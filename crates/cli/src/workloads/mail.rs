//! Mail between cards: what one card found for another, written by the one and read by the other.
//!
//! There are two sets of boxes. In each round one set is read while the other is written; then
//! they change places. Pages of a box thus go from the card that writes to the card that reads. How
//! much it has written a card leaves in counts, which stay on the host, who reads them between the
//! rounds.

use bytemuck::Pod;
use farside::{
    Advice, Buffer, Error, KernelArgs, KernelContext, KernelError, MemoryId, Read, ReadSpan, Space,
    Write, WriteSpan,
};
use farside_cli::graph::Graph;
use farside_softcard::kernels::ArgKind;

use super::segments::take;
use super::{Budget, Parts, Session};

/// Boxes from each card to each card, twice.
#[derive(Debug)]
pub(crate) struct Mail<T> {
    /// By round (even, odd), sender, receiver.
    boxes: [Vec<Vec<Buffer<T>>>; 2],
    /// Values that were written, by sender: one count per receiver.
    counts: Vec<Buffer<u64>>,
    /// Values in the boxes that are read next, by sender and receiver.
    filled: Vec<Vec<usize>>,
    round: usize,
}

/// The mail of one card in one round.
#[derive(Debug)]
pub(crate) struct Round<'a, T> {
    counts: &'a mut [u64],
    inbox: Vec<&'a [T]>,
    outbox: Vec<&'a mut [T]>,
}

/// What a kernel is called with: counts, inbox, outbox.
pub(crate) type Lent<'a, T> = (Write<'a, u64>, Vec<Read<'a, T>>, Vec<Write<'a, T>>);

impl<T: Pod> Mail<T> {
    /// What a search can write at most from each part to each part: every edge once.
    pub(crate) fn capacity(graph: &Graph, parts: &Parts) -> Vec<Vec<u64>> {
        let from_part = |sender| {
            let mut row = vec![0; parts.len()];
            let edges = |vertex: usize| graph.neighbours(vertex as u32);
            for &target in parts.rows(sender).flat_map(edges) {
                row[parts.owner(target)] += 1;
            }
            row
        };
        (0..parts.len()).map(from_part).collect()
    }

    /// Boxes with room for `capacity[sender][receiver]` values.
    ///
    /// # Errors
    /// As [`Space::alloc`].
    pub(crate) fn new(space: &Space, name: &str, capacity: &[Vec<u64>]) -> Result<Mail<T>, Error> {
        let make = |round: &str| {
            let row = |(sender, row): (usize, &Vec<u64>)| {
                let cell = |(receiver, &values): (usize, &u64)| {
                    let name = format!("{name}, card{sender} to card{receiver}, {round} rounds");
                    space.alloc_named(values.max(1) as usize, &name)
                };
                row.iter().enumerate().map(cell).collect::<Result<Vec<_>, Error>>()
            };
            capacity.iter().enumerate().map(row).collect::<Result<Vec<_>, Error>>()
        };
        let cards = capacity.len();
        let counts = |card| {
            let counts = space.alloc_named(cards, &format!("{name}, counts of card{card}"))?;
            // A few words for the host: the card writes them over the bus, and the page stays.
            space.advise(&counts, Advice::Preferred(Some(MemoryId::HOST)))?;
            Ok(counts)
        };
        Ok(Mail {
            boxes: [make("even")?, make("odd")?],
            counts: (0..cards).map(counts).collect::<Result<Vec<_>, Error>>()?,
            filled: vec![vec![0; cards]; cards],
            round: 0,
        })
    }

    /// Begins anew with one value for one card.
    pub(crate) fn begin(&mut self, card: usize, value: T) {
        self.filled.iter_mut().flatten().for_each(|count| *count = 0);
        self.boxes[self.round][card][card][0] = value;
        self.filled[card][card] = 1;
    }

    /// Whether nobody has mail.
    pub(crate) fn is_empty(&self) -> bool {
        self.filled.iter().flatten().all(|&count| count == 0)
    }

    /// What each card reads and writes in this round.
    pub(crate) fn round(&mut self) -> Vec<Round<'_, T>> {
        let [even, odd] = &mut self.boxes;
        let (read, write) = if self.round == 0 { (even, odd) } else { (odd, even) };
        let (read, filled) = (&*read, &self.filled);
        let cards = write.iter_mut().zip(&mut self.counts).enumerate();
        cards
            .map(|(card, (outbox, counts))| {
                let letters = |sender: usize| &read[sender][card][..filled[sender][card]];
                let inbox = (0..read.len()).map(letters);
                Round {
                    counts,
                    inbox: inbox.filter(|letters| !letters.is_empty()).collect(),
                    outbox: outbox.iter_mut().map(|letters| &mut **letters).collect(),
                }
            })
            .collect()
    }

    /// The round is over: what was written will be read in the next.
    pub(crate) fn deliver(&mut self) {
        let counts = |counts: &Buffer<u64>| counts.iter().map(|&count| count as usize).collect();
        self.filled = self.counts.iter().map(counts).collect();
        self.round = 1 - self.round;
    }
}

impl<'a, T: Pod> Round<'a, T> {
    /// User managed: moves the mail to its card before it is read. How much the card will write
    /// nobody knows before: the boxes it writes to come on demand.
    pub(crate) fn bring(&self, session: &Session<'_>, card: usize) -> Result<(), Error> {
        self.inbox.iter().try_for_each(|letters| session.bring(letters, card))
    }

    /// Lends the card its mail.
    pub(crate) fn lend(self) -> Lent<'a, T> {
        let inbox = self.inbox.into_iter().map(Read).collect();
        (Write(self.counts), inbox, self.outbox.into_iter().map(Write).collect())
    }
}

/// In a kernel: its mail.
#[derive(Debug)]
pub(crate) struct Boxes<T> {
    counts: WriteSpan<u64>,
    inbox: Vec<ReadSpan<T>>,
    outbox: Vec<WriteSpan<T>>,
}

/// In a kernel: what it will send, by receiver; not more than there is room for.
#[derive(Debug)]
pub(crate) struct Letters<T> {
    values: Vec<Vec<T>>,
    room: Vec<usize>,
    too_many: bool,
}

impl<T: Pod> Boxes<T> {
    /// The arguments of a kernel from `first` on, as [`Lent`] puts them there.
    pub(crate) fn of(args: &KernelArgs, first: usize) -> Result<Boxes<T>, KernelError> {
        let boxes = first + 1..args.len();
        let of_kind = |wanted: ArgKind| {
            boxes.clone().filter(move |&index| args.kind(index).is_ok_and(|kind| kind == wanted))
        };
        Ok(Boxes {
            counts: args.write(first)?,
            inbox: of_kind(ArgKind::Read).map(|i| args.read(i)).collect::<Result<_, _>>()?,
            outbox: of_kind(ArgKind::Write).map(|i| args.write(i)).collect::<Result<_, _>>()?,
        })
    }

    /// All values of the inbox.
    pub(crate) fn receive(
        &self,
        k: &mut KernelContext,
        budget: Budget,
    ) -> Result<Vec<T>, KernelError> {
        let mut values = Vec::new();
        for letters in &self.inbox {
            values.append(&mut take(k, letters, budget)?);
        }
        Ok(values)
    }

    /// An empty letter to each receiver.
    pub(crate) fn letters(&self) -> Letters<T> {
        let room: Vec<usize> = self.outbox.iter().map(WriteSpan::len).collect();
        Letters { values: vec![Vec::new(); room.len()], room, too_many: false }
    }

    /// Writes to each receiver's box, and how many values went into each.
    pub(crate) fn send(
        &mut self,
        k: &mut KernelContext,
        letters: &Letters<T>,
        budget: Budget,
    ) -> Result<(), KernelError> {
        if letters.too_many {
            return Err(k.fail("it found more than its boxes hold"));
        }
        for (span, values) in self.outbox.iter_mut().zip(&letters.values) {
            for piece in budget.pieces::<T>(values.len(), 1) {
                let source = &values[piece.clone()];
                k.with(span.slice(piece), |mut view| {
                    view.iter_mut().zip(source).for_each(|(to, from)| *to = *from);
                })?;
            }
        }
        k.with(self.counts.slice(..), |mut counts| {
            let written = letters.values.iter().map(|values| values.len() as u64);
            counts.iter_mut().zip(written).for_each(|(count, values)| *count = values);
        })
    }
}

impl<T> Letters<T> {
    /// Adds a value for a receiver.
    pub(crate) fn push(&mut self, receiver: usize, value: T) {
        match self.values.get_mut(receiver) {
            Some(values) if values.len() < self.room[receiver] => values.push(value),
            _ => self.too_many = true,
        }
    }

    /// Whether a value did not fit: there is no use in going on.
    pub(crate) fn is_too_many(&self) -> bool {
        self.too_many
    }
}
