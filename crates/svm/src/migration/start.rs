//! The migrator takes a plan: it finds frames, cuts the plan into chains and starts them. What finds no
//! frames waits for them.

use farside_types::{MemoryId, Time};

use crate::Driver;
use crate::api::capability::Transport;
use crate::api::command::Run;
use crate::faults::host::HostFault;
use crate::faults::open::FaultKey;
use crate::migration::chain::{Part, Purpose};
use crate::migration::chains::ChainId;
use crate::migration::plan::{OpenPart, Plan, cut_part};
use crate::migration::transition::{Fill, Transition};
use crate::mutation::Mutation;
use crate::tables::page::{PageState, flag};
use crate::waiting::{Until, Work};

impl Driver {
    /// Splits a plan into chains and starts them; what finds no frames waits for them.
    pub(crate) fn start_plan(&mut self, now: Time, mut plan: Plan, host: Option<HostFault>) {
        self.start_followers(now, &mut plan);
        let mut late = self.scratch.plans.take();
        for part in plan.parts.drain(..) {
            late.parts.extend(self.start_part(now, part, host));
        }
        self.scratch.plans.keep(plan);
        // Only now: what was taken no longer counts as free, its chains count as under way, and no
        // page of this plan is kept from eviction because its part has yet to begin.
        for mut part in late.parts.drain(..) {
            let Some(card) = part.transition.needs_frames() else { continue };
            // By page they would each look for their place among all that wait.
            let serial = |key: &FaultKey| self.faults.get(*key).map(|fault| fault.serial);
            part.faults.sort_unstable_by_key(serial);
            let waiting = part.faults.iter().copied().map(Work::Fault);
            self.wait_for_frames(now, card, part.pages, waiting);
        }
        self.scratch.plans.keep(late);
    }

    /// Starts what there is room for and gives the rest, for which its card has none.
    fn start_part(
        &mut self,
        now: Time,
        mut part: OpenPart,
        host: Option<HostFault>,
    ) -> Option<OpenPart> {
        for run in &part.runs {
            self.table.for_each_mut(run.pages(), |_, entry| entry.set(flag::PLANNED, false));
        }
        let mut late = None;
        if let Some(card) = part.transition.needs_frames() {
            let room = self.room(card);
            if part.pages > room {
                late = Some(cut_part(&mut part, room, &self.faults));
            }
            self.take_frames(card, part.pages, &mut part.runs);
        }
        while part.pages > 0 {
            let most = self.chain_limit(&part.transition, part.pages);
            let rest = (part.pages > most).then(|| cut_part(&mut part, most, &self.faults));
            let OpenPart { transition, runs, faults, prefetched, .. } = part;
            let sealed = Part { prefetched, ..Part::new(transition, runs) };
            let of_part =
                |fault: &HostFault| sealed.runs.iter().any(|run| run.pages().contains(fault.page));
            let host = host.filter(of_part);
            self.start_chain(now, [sealed], Purpose { faults, host, request: None });
            let Some(rest) = rest else { break };
            part = rest;
        }
        late
    }

    /// Most pages of a chain with this transition.
    pub(crate) fn chain_limit(&self, transition: &Transition, pages: u32) -> u32 {
        let most = self.config.limits.chain_pages;
        let bounced = transition.fill == Fill::Copy
            && matches!(
                self.config.capabilities.transport(transition.from, transition.at, pages),
                Transport::Bounce(..)
            );
        if bounced { most.min(self.config.capabilities.bounce_pages) } else { most }
    }

    /// Starts a group's chain; `false` if it has to wait for frames.
    pub(crate) fn start_group(&mut self, now: Time, key: FaultKey, plan: &mut Plan) -> bool {
        let needed: u32 = plan
            .parts
            .iter()
            .filter(|part| part.transition.needs_frames().is_some())
            .map(|part| part.pages)
            .sum();
        let Some(card) = self.faults.get(key).map(|fault| fault.card) else {
            return true;
        };
        if needed > self.room(card) {
            self.wait_for_frames(now, card, needed, std::iter::once(Work::Fault(key)));
            return false;
        }
        for OpenPart { transition, runs, pages, .. } in &mut plan.parts {
            if transition.needs_frames().is_some() {
                self.take_frames(card, *pages, runs);
            }
        }
        let parts = plan.parts.drain(..).map(|part| Part::new(part.transition, part.runs));
        let mut purpose = Purpose::of_faults([key].into());
        if self.mutated.on(Mutation::ResumeGroupEarly) {
            for part in parts {
                self.start_chain(now, [part], std::mem::take(&mut purpose));
            }
            return true;
        }
        self.start_chain(now, parts, purpose);
        true
    }

    /// Whether a chain can be started.
    pub(crate) fn has_idle_chain(&self) -> bool {
        self.chains.has_idle(self.config.limits.chains)
    }

    /// Takes the pages of `parts`, which no chain holds, and begins to move them.
    pub(crate) fn start_chain(
        &mut self,
        now: Time,
        parts: impl IntoIterator<Item = Part>,
        purpose: Purpose,
    ) {
        if !self.has_idle_chain() {
            return self.wait_for_chain(parts, purpose);
        }
        let id = self.chains.take();
        for part in parts {
            self.hold_pages(id, &part);
            if part.transition.makes_room {
                for card in part.transition.dropped().iter().filter_map(MemoryId::card) {
                    self.cards[card.0 as usize].evicting += part.pages;
                }
            }
            self.chains[id].parts.push(part);
        }
        self.begin_chain(now, id, purpose);
    }

    /// A chain begins that has its parts.
    pub(crate) fn begin_chain(&mut self, now: Time, id: ChainId, purpose: Purpose) {
        debug_assert!(self.chains[id].is_idle(), "{id} begins in a slot that is in use");
        debug_assert!(self.waiting.is_empty(Until::PagesFree(id)), "{id} begins awaited");
        self.stats.chains += 1;
        self.chains[id].begin(purpose);
        let brings = |part: &&Part| part.transition.fills() && !part.transition.makes_room;
        let brings = self.chains[id].parts.iter().filter(brings);
        let brings = brings.map(|part| u64::from(part.pages)).sum();
        if brings > 0 {
            self.chains[id].brings = Some(self.prices.begin(now, brings));
        }
        self.setup(now, id);
        self.advance(now, id);
    }

    fn hold_pages(&mut self, id: ChainId, part: &Part) {
        let stays_marked = self.stays_marked(&part.transition);
        for run in part.runs.iter() {
            self.table.for_each_mut(run.pages(), |page, entry| {
                entry.directory.set_lent(stays_marked && entry.directory.is_lent());
                debug_assert!(
                    entry.state != PageState::Moving && entry.chain == ChainId::NONE,
                    "{id} takes {page}, which {} holds",
                    entry.chain
                );
                entry.state = PageState::Moving;
                entry.chain = id;
            });
        }
    }

    /// No chain is free: whoever wanted one is planned again when one is. Moves of the driver's own
    /// are dropped; what made them comes again.
    fn wait_for_chain(&mut self, parts: impl IntoIterator<Item = Part>, purpose: Purpose) {
        debug_assert!(
            purpose.request.is_none(),
            "a request looks for a chain before it starts one"
        );
        for part in parts {
            self.give_frames_back(&part.transition, &part.runs);
        }
        if let Some(host) = purpose.host {
            self.park(Work::HostFault(host), Until::IdleChain);
        }
        for &key in &purpose.faults {
            self.park(Work::Fault(key), Until::IdleChain);
        }
    }

    /// Frees frames that were taken for runs and are not used after all.
    pub(crate) fn give_frames_back(&mut self, transition: &Transition, runs: &[Run]) {
        let Some(card) = transition.needs_frames() else { return };
        for run in runs {
            self.cards[card.0 as usize].frames.release(run.dst, run.count);
        }
    }
}
