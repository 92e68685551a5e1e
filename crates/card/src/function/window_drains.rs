//! Pages of the window that are taken from the card's own MMU, and who waits for the accesses that still have them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use farside_types::{Asid, CommandId, PageRange};

use super::WindowWait;
use crate::{Card, Drained};

/// Marks the drains of the window: commands of drivers never have this bit.
const OF_WINDOW: u64 = 1 << 63;

/// Drains under way, and those that have ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Drains {
    next: u64,
    open: BTreeMap<CommandId, WindowWait>,
    done: VecDeque<WindowWait>,
}

impl Drains {
    /// Takes pages away in these address spaces; `true`: nobody has them any more.
    pub(super) fn begin(
        &mut self,
        card: &mut Card,
        asids: &BTreeSet<Asid>,
        pages: PageRange,
        wait: WindowWait,
    ) -> bool {
        let mut is_done = true;
        for &asid in asids {
            let command = CommandId(OF_WINDOW | self.next);
            self.next += 1;
            if card.unmap(command, asid, std::iter::once(pages)) != Drained::Now {
                self.open.insert(command, wait);
                is_done = false;
            }
        }
        is_done
    }

    /// A drain has ended: whether it was the last that somebody waits for. `None`: it is not the window's.
    pub(super) fn ended(&mut self, command: CommandId) -> Option<bool> {
        if command.0 & OF_WINDOW == 0 {
            return None;
        }
        let wait = self.open.remove(&command);
        let Some(wait) = wait else { return Some(false) };
        let is_last = !self.open.values().any(|&other| other == wait);
        if is_last {
            self.done.push_back(wait);
        }
        Some(is_last)
    }

    /// One for which nobody has pages any more.
    pub(super) fn take_done(&mut self) -> Option<WindowWait> {
        self.done.pop_front()
    }
}
