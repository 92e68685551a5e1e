//! Advice, promised mappings and protection.

use std::collections::VecDeque;

use farside_types::{AgentId, AgentSet, PageNo, PageRange, RequestId, Rights};

use crate::Driver;
use crate::api::command::{RingOp, Run};
use crate::api::event::Advice;
use crate::api::reply::RequestError;
use crate::api::requests::RequestKind;
use crate::mutation::Mutation;
use crate::tables::page::{PageEntry, PageState, flag};
use crate::tables::space::Hint;

impl Driver {
    pub(crate) fn advise(
        &mut self,
        id: RequestId,
        range: PageRange,
        advice: Advice,
    ) -> Result<(), RequestError> {
        self.check_range(range)?;
        match advice {
            Advice::ReadMostly(on) => {
                self.table.update(range, |entry| entry.set(flag::READ_MOSTLY, on));
            }
            Advice::Preferred(memory) => {
                if let Some(memory) = memory.filter(|&memory| !self.is_usable(memory)) {
                    return Err(RequestError::NoSuchMemory { memory });
                }
                self.hint(range, |hint| hint.preferred = memory);
            }
            Advice::AccessedBy(agent, on) => {
                if !self.is_usable(agent.home()) {
                    return Err(RequestError::NoSuchMemory { memory: agent.home() });
                }
                self.hint(range, |hint| {
                    let set = hint.accessed_by;
                    hint.accessed_by = if on { set.with(agent) } else { set.without(agent) };
                });
                if on {
                    self.promise_mappings(range);
                }
            }
            Advice::WholeBlocks(on) => {
                self.space.move_in_blocks(range, on);
                if on {
                    // Large pages have frames from the beginning, which a trim gives back.
                    self.table.update(range, |entry| entry.set(flag::HOST_BACKED, true));
                }
            }
        }
        self.placement.on_hint(range, advice);
        self.reply_done(id, 0);
        Ok(())
    }

    /// Changes the advice of every allocation in `range`.
    fn hint(&mut self, range: PageRange, change: impl Fn(&mut Hint)) {
        let mut page = range.start;
        while page < range.end() {
            let Some(object) = self.space.holding_mut(page) else {
                break;
            };
            let part = object.range.intersection(range);
            let known = object.hint(page).filter(|hint| hint.range.covers(part)).copied();
            let none = Hint { range: part, preferred: None, accessed_by: AgentSet::EMPTY };
            let mut hint = Hint { range: part, ..known.unwrap_or(none) };
            change(&mut hint);
            object.hints.retain(|old| !part.covers(old.range));
            object.hints.push(hint);
            page = object.range.end();
        }
        self.table.update(range, |entry| entry.set(flag::HINTED, true));
    }

    /// Maps settled pages for those that were promised a mapping and can have one. Only cards: the
    /// CPU maps its own memory by its faults.
    pub(crate) fn promise_mappings(&mut self, range: PageRange) {
        for page in self.table.touched(range).into_iter().flat_map(PageRange::pages) {
            let entry = *self.table.get(page);
            let settled = matches!(entry.state, PageState::Host | PageState::Card);
            let hint = self.space.holding(page).and_then(|object| object.hint(page)).copied();
            let Some(hint) = hint.filter(|_| settled) else {
                continue;
            };
            for agent in hint.accessed_by.minus(entry.directory.mappers()).iter() {
                self.promise_mapping(page, &entry, agent);
            }
        }
    }

    fn promise_mapping(&mut self, page: PageNo, entry: &PageEntry, agent: AgentId) {
        let Some(card) = agent.card() else { return };
        let memory = entry.owner();
        if self.is_dead(agent.home()) || !self.reaches_page(entry, agent, memory) {
            return;
        }
        let read_only = entry.has(flag::READ_ONLY);
        let rights = if read_only { Rights::Read } else { Rights::ReadWrite };
        let frame = self.frame_at(page, entry, memory);
        // Its owner's bits do not tell what others write.
        let lent = entry.directory.is_lent() && self.mutated.on(Mutation::IgnoreRemoteWriters);
        let entry = self.table.get_mut(page);
        entry.directory.map(agent, rights);
        entry.directory.set_lent(lent);
        let runs = [Run { page, count: 1, src: frame, dst: frame }].as_slice().into();
        let op = RingOp::Map { runs, memory, rights };
        self.issue_detached(card, op);
    }

    pub(crate) fn protect(
        &mut self,
        id: RequestId,
        range: PageRange,
        rights: Rights,
    ) -> Result<(), RequestError> {
        self.check_range(range)?;
        let on = rights == Rights::Read;
        self.table.update(range, |entry| entry.set(flag::READ_ONLY, on));
        if on {
            self.open(id, RequestKind::Protect, range, VecDeque::from([range]));
        } else {
            self.reply_done(id, 0);
        }
        Ok(())
    }
}
