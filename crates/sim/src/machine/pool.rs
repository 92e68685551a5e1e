//! Lists of accesses that wait for the same thing, in blocks of one piece of memory.

use farside_types::Time;
use serde::{Deserialize, Serialize};

use super::access::Access;
use crate::state::state;

/// No place of the pool.
const NONE: u32 = u32::MAX;

/// Accesses of one block. Many wait for one page of a regular program, 64 to 255 in bitonic sort, where one place after
/// another was a miss of the processor's cache for each, a fifth of the time; a list of one takes a block as well.
const BLOCK: usize = 15;

/// The blocks of all lists.
#[derive(Debug)]
pub(super) struct Pool {
    blocks: Vec<Block>,
    free: u32,
}

state!(Pool {
    values: blocks, free;
});

/// A part of a list, in order, or of what is free.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Block {
    waiting: [(Access, Time); BLOCK],
    next: u32,
}

/// A list, first come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct List {
    first: u32,
    last: u32,
    /// How many of its first block have been taken out.
    taken: u8,
    /// How many its last block has had.
    filled: u8,
}

impl List {
    /// Without accesses.
    pub(super) const EMPTY: List = List { first: NONE, last: NONE, taken: 0, filled: 0 };
}

impl Pool {
    pub(super) fn new() -> Pool {
        Pool { blocks: Vec::new(), free: NONE }
    }

    /// Adds an access that waits since `since`.
    pub(super) fn append(&mut self, list: &mut List, access: Access, since: Time) {
        if list.last == NONE || usize::from(list.filled) == BLOCK {
            self.extend(list);
        }
        let block = &mut self.blocks[list.last as usize];
        block.waiting[usize::from(list.filled)] = (access, since);
        list.filled += 1;
    }

    /// Gives a list another block.
    fn extend(&mut self, list: &mut List) {
        let index = match self.free {
            NONE => {
                self.blocks.push(Block { waiting: Default::default(), next: NONE });
                self.blocks.len() as u32 - 1
            }
            index => {
                let block = &mut self.blocks[index as usize];
                self.free = std::mem::replace(&mut block.next, NONE);
                index
            }
        };
        match list.last {
            NONE => list.first = index,
            last => self.blocks[last as usize].next = index,
        }
        (list.last, list.filled) = (index, 0);
    }

    /// Takes the first access out, with the time since which it waits.
    pub(super) fn take(&mut self, list: &mut List) -> Option<(Access, Time)> {
        if list.first == NONE {
            return None;
        }
        let index = list.first;
        let block = &mut self.blocks[index as usize];
        let first = block.waiting[usize::from(list.taken)];
        list.taken += 1;
        let end = if index == list.last { usize::from(list.filled) } else { BLOCK };
        if usize::from(list.taken) == end {
            let next = std::mem::replace(&mut block.next, self.free);
            self.free = index;
            *list =
                if next == NONE { List::EMPTY } else { List { first: next, taken: 0, ..*list } };
        }
        Some(first)
    }

    /// The accesses of a list.
    pub(super) fn iter(&self, list: List) -> impl Iterator<Item = Access> + '_ {
        let mut rest = list;
        std::iter::from_fn(move || {
            let block = self.blocks.get(rest.first as usize)?;
            let (access, _) = block.waiting[usize::from(rest.taken)];
            rest.taken += 1;
            let last = rest.first == rest.last;
            if last && rest.taken == rest.filled {
                rest.first = NONE;
            } else if usize::from(rest.taken) == BLOCK {
                (rest.first, rest.taken) = (block.next, 0);
            }
            Some(access)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use farside_workloads::Line;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_share_the_places_and_keep_their_order() {
        let access = |line| Access { line: Line(line), ..Access::default() };
        let (mut pool, mut a, mut b) = (Pool::new(), List::EMPTY, List::EMPTY);
        for line in 0..6 {
            let list = if line % 2 == 0 { &mut a } else { &mut b };
            pool.append(list, access(line), Time(u64::from(line)));
        }
        assert_eq!(pool.take(&mut a), Some((access(0), Time(0))));
        pool.append(&mut b, access(7), Time(7));
        let lines = |pool: &Pool, list| pool.iter(list).map(|a| a.line.0).collect::<Vec<_>>();
        assert_eq!((lines(&pool, a), lines(&pool, b)), (vec![2, 4], vec![1, 3, 5, 7]));
        assert_eq!(pool.blocks.len(), 2);
        while pool.take(&mut a).is_some() {}
        assert_eq!(a, List::EMPTY);
        assert_eq!(pool.take(&mut b), Some((access(1), Time(1))));
    }

    proptest! {
        /// Lists in one pool are queues, each by itself, and what they need no more others get.
        #[test]
        fn lists_are_queues(steps in vec((0..3_usize, 0..5_u8), 0..600)) {
            let (mut pool, mut lists) = (Pool::new(), [List::EMPTY; 3]);
            let mut queues: [VecDeque<(Access, Time)>; 3] = Default::default();
            let mut most = 0;
            for (step, (which, what)) in steps.into_iter().enumerate() {
                let (list, queue) = (&mut lists[which], &mut queues[which]);
                if what < 3 {
                    let new = (Access { line: Line(step as u32), ..Access::default() }, Time(step as u64 + 1));
                    pool.append(list, new.0, new.1);
                    queue.push_back(new);
                } else {
                    prop_assert_eq!(pool.take(list), queue.pop_front());
                }
                let told: Vec<Access> = pool.iter(*list).collect();
                prop_assert_eq!(told, queue.iter().map(|(access, _)| *access).collect::<Vec<_>>());
                // Of a list's first and last block a part may be unused.
                most = most.max(queues.iter().map(|queue| queue.len().div_ceil(BLOCK) + 1).sum());
            }
            prop_assert!(pool.blocks.len() <= most);
        }
    }
}
