//! Mail between cards: what one card found for another, written by the one and read by the other.
//!
//! There are two sets of boxes. In each round one set is read while the other is written; then
//! they change places. Pages of a box thus go from the card that writes to the card that reads.

use bytemuck::Pod;
use farside::graph::Graph;
use farside::{Buffer, Error, KernelContext, KernelError, Read, ReadSpan, Space, Write, WriteSpan};

use super::segments::contiguous;
use super::{Budget, Parts, Session};

/// Boxes from each card to each card, twice.
#[derive(Debug)]
pub(crate) struct Mail<T> {
    /// By round (even, odd), sender, receiver.
    boxes: [Vec<Vec<Buffer<T>>>; 2],
    /// Values in the boxes that are read next, by sender and receiver.
    filled: Vec<Vec<usize>>,
    round: usize,
}

/// The boxes of one round, by card: what it reads and what it writes.
pub(crate) type Round<'a, T> = (Vec<Vec<&'a [T]>>, Vec<Vec<&'a mut [T]>>);

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
        Ok(Mail {
            boxes: [make("even")?, make("odd")?],
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
    pub(crate) fn round(&mut self) -> Round<'_, T> {
        let [even, odd] = &mut self.boxes;
        let (read, write) = if self.round == 0 { (even, odd) } else { (odd, even) };
        let (read, filled) = (&*read, &self.filled);
        let inbox = |card: usize| {
            let letters = |sender: usize| &read[sender][card][..filled[sender][card]];
            (0..read.len()).map(letters).filter(|letters| !letters.is_empty()).collect()
        };
        let inboxes = (0..read.len()).map(inbox).collect();
        let outboxes =
            write.iter_mut().map(|row| row.iter_mut().map(|letters| &mut **letters).collect());
        (inboxes, outboxes.collect())
    }

    /// The round is over: `written[sender][receiver]` values were written.
    pub(crate) fn deliver(&mut self, written: Vec<Vec<usize>>) {
        self.filled = written;
        self.round = 1 - self.round;
    }
}

/// User managed: moves each card's mail to it before it is read. How much a card will write nobody
/// knows before: the boxes it writes to come on demand.
pub(crate) fn bring<T>(session: &Session<'_>, inboxes: &[Vec<&[T]>]) -> Result<(), Error> {
    for (card, inbox) in inboxes.iter().enumerate() {
        inbox.iter().try_for_each(|letters| session.bring(letters, card))?;
    }
    Ok(())
}

/// Lends a card its mail.
pub(crate) fn lend<'a, T>(
    inbox: Vec<&'a [T]>,
    outbox: Vec<&'a mut [T]>,
) -> (Vec<Read<'a, T>>, Vec<Write<'a, T>>) {
    (inbox.into_iter().map(Read).collect(), outbox.into_iter().map(Write).collect())
}

/// In a kernel: all values of the inbox.
pub(crate) fn receive<T: Pod>(
    k: &mut KernelContext,
    inbox: &[ReadSpan<T>],
    budget: Budget,
) -> Result<Vec<T>, KernelError> {
    let mut values = Vec::with_capacity(inbox.iter().map(ReadSpan::len).sum());
    for letters in inbox {
        for piece in budget.pieces::<T>(letters.len(), 1) {
            k.with(letters.slice(piece), |view| values.extend_from_slice(&contiguous(&view)))?;
        }
    }
    Ok(values)
}

/// In a kernel: writes to each receiver's box and says how many values went into each.
pub(crate) fn send<T: Pod>(
    k: &mut KernelContext,
    outbox: &mut [WriteSpan<T>],
    letters: &[Vec<T>],
    budget: Budget,
) -> Result<Vec<usize>, KernelError> {
    for (span, values) in outbox.iter_mut().zip(letters) {
        for piece in budget.pieces::<T>(values.len(), 1) {
            let source = &values[piece.clone()];
            k.with(span.slice(piece), |mut view| {
                view.iter_mut().zip(source).for_each(|(to, from)| *to = *from);
            })?;
        }
    }
    Ok(letters.iter().map(Vec::len).collect())
}
