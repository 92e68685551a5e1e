//! Where memory of a card's own is, for people and programs that ask.

use std::fmt::{self, Display, Formatter};

use farside_softcard::OwnMemory;
use farside_types::{CardId, PageNo, PageRange};

/// Pages of an allocation in a card's own memory that are in the same one of its memories. They stay there: nobody moves them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnPart {
    /// Whose they are.
    pub card: CardId,
    /// Which.
    pub range: PageRange,
    /// Where they are; `None`: they were never touched, and get memory when they are.
    pub memory: Option<OwnMemory>,
}

impl Display for OwnPart {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let OwnPart { card, range, memory } = self;
        let (start, bytes) = (range.start.addr(), range.bytes());
        write!(f, "{bytes} bytes at {start} are {card}'s own memory")?;
        match memory {
            Some(memory) => write!(f, ", in {}: they stay there", memory.name),
            None => f.write_str(", and get some when they are touched: then they stay there"),
        }
    }
}

/// The parts of a range of a card's own, of which these runs have memory, in order: their pages, and in which memory.
pub(crate) fn parts(
    card: CardId,
    range: PageRange,
    memories: &[OwnMemory],
    runs: impl IntoIterator<Item = (PageRange, u8)>,
) -> Vec<OwnPart> {
    let mut parts: Vec<OwnPart> = Vec::new();
    let mut add = |pages: PageRange, memory: Option<u8>| {
        let memory = memory.and_then(|memory| memories.get(usize::from(memory))).cloned();
        match parts.last_mut().filter(|last| last.memory == memory) {
            Some(last) => last.range.count += pages.count,
            None if pages.count > 0 => parts.push(OwnPart { card, range: pages, memory }),
            None => {}
        }
    };
    let between = |from: PageNo, to: PageNo| PageRange::new(from, to.0 - from.0);
    let mut at = range.start;
    for (pages, memory) in runs {
        add(between(at, pages.start), None);
        add(pages, Some(memory));
        at = pages.end();
    }
    add(between(at, range.end()), None);
    parts
}

#[cfg(test)]
mod tests {
    use farside_card::MemorySizes;
    use farside_softcard::MemoryKind;

    use super::*;

    #[test]
    fn what_lies_between_runs_has_no_memory_and_neighbours_in_one_are_one_part() {
        let sizes = MemorySizes { frames: 9, frames_free: 1, kind: MemoryKind::Hbm };
        let memories = OwnMemory::all([sizes, sizes]);
        let pages = |first, count| PageRange::new(PageNo(first), count);
        let runs = [(pages(12, 2), 0), (pages(14, 1), 0), (pages(15, 1), 1), (pages(18, 2), 1)];
        let found = parts(CardId(1), pages(10, 10), &memories, runs);
        let told: Vec<_> = found
            .iter()
            .map(|part| {
                (part.range.start.0, part.range.count, part.memory.as_ref().map(|it| it.id.0))
            })
            .collect();
        let wanted =
            [(10, 2, None), (12, 3, Some(0)), (15, 1, Some(1)), (16, 2, None), (18, 2, Some(1))];
        assert_eq!(told, wanted);
        assert!(
            found[1].to_string().ends_with("are card 1's own memory, in hbm0: they stay there")
        );
        assert!(parts(CardId(1), pages(10, 0), &memories, []).is_empty());
        assert_eq!(parts(CardId(1), pages(10, 3), &memories, []).len(), 1);
    }
}
