//! Placement: what is done about a page that an agent wants and does not have.
//!
//! A scheme sees a fault, a counter notice, a hint or a tick, and answers with a decision and its
//! reason. It never sees frames, commands or time-outs: the planner turns decisions into chains.
//! Hints of the program and the answer to thrashing come before the scheme.

use core::fmt;

use farside_types::{
    Access, AgentId, AgentSet, CardId, MemoryId, MemorySet, PageNo, PageRange, Reason, Span, Time,
};
use serde::{Deserialize, Serialize};

use crate::{Advice, Evidence, ObjectId};

mod access_counter;
mod duplication;
mod farside;
mod first_touch;
#[cfg(test)]
pub(crate) mod fixture;
mod grit;
mod names;
mod on_touch;
mod parameters;
mod state;

pub use access_counter::AccessCounter;
pub use duplication::Duplication;
pub use farside::{Farside, FarsideConfig};
pub use first_touch::FirstTouch;
pub use grit::{Grit, GritConfig, cache_bits, table_entry_bits};
pub use names::{
    DEFAULT, NAMES, NamedScheme, ONLY_SIMULATED, SCHEMES, SchemeError, SchemeInfo, all, by_name,
    find,
};
pub use on_touch::OnTouch;
pub use parameters::{Parameter, ParameterKind, Parameters};
pub use state::SchemeState;

/// What to do so that an agent can reach a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    /// Move the page to the agent's memory; everybody else loses the mapping.
    Migrate,
    /// Read: put a clean copy into the agent's memory, the others keep theirs. Write: collapse,
    /// the agent's copy becomes the only one.
    Duplicate,
    /// Leave the page where it is and map it over the bus. Where the agent cannot map that memory
    /// the page is migrated instead.
    MapRemote,
    /// Move the page to the host's memory, if it is not there, and map it there over the bus: where agents
    /// meet that do not reach each other's memory. Where the agent cannot map the host's memory the page is
    /// migrated instead.
    MapOnHost,
    /// Write, where the host owns the page and this other card has a copy: the card keeps it, all other copies go, and the
    /// agent maps it there over the bus; nothing is copied. Else, and where the agent cannot map that card's memory, the
    /// page is migrated.
    MapAt(CardId),
}

/// How far a decision reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The page alone.
    Page,
    /// The 64 KiB group of the page, inside its allocation.
    Group,
    /// These pages, inside the allocation.
    Range(PageRange),
    /// The whole allocation.
    Object,
}

/// A decision, how far it reaches, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What to do.
    pub action: Action,
    /// For which pages.
    pub scope: Scope,
    /// Why: goes into the history of the pages.
    pub reason: Reason,
    /// Beyond the page itself, also pages that cards with a running kernel have mapped and would
    /// lose, or lose the right to write. Otherwise these stay as they are.
    pub firm: bool,
    /// Where pages may be lent ([`FaultView::may_lend`]): one that is wanted for reading comes with the right to
    /// write as well, so that its first write costs no fault, and the card is asked in the end whether it wrote. Of
    /// one that is written, the others of the scope get that right which the card has beside the host.
    pub lends: bool,
}

impl Decision {
    /// `action` for the page alone.
    pub const fn page(action: Action, reason: Reason) -> Decision {
        Decision { action, scope: Scope::Page, reason, firm: false, lends: false }
    }

    /// The same for `scope`.
    #[must_use]
    pub const fn over(self, scope: Scope) -> Decision {
        Decision { scope, ..self }
    }
}

/// What things cost on this machine, now.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Costs {
    /// To bring a page as one of those that come with it, from the decision until it can be used: what is under way
    /// goes before.
    pub bring: Span,
    /// To bring a page, or several, by a migration of their own.
    pub migration: Span,
    /// An access of a card to a line of another memory.
    pub far: Span,
    /// Accesses that a card which runs has under way at once, at least: what one holds up is so much less than what one
    /// does that stops the card. 0 is as 1.
    pub at_once: u32,
    /// By how much those who wait are later, all together, if a page more comes along with another: its turn, for each
    /// fault that was open when a chain last answered some.
    pub delay: Span,
    /// What a page that comes along saves if it is used: a migration while no other is under way, and the fault's service,
    /// which is not measured. Zero where
    /// the driver brings neighbours by itself, so that there is no fault to save, or where nobody knows.
    pub saves: Span,
}

/// A page at the moment an agent asks for it.
#[derive(Clone, Copy, Debug)]
pub struct FaultView {
    /// Now.
    pub now: Time,
    /// The page.
    pub page: PageNo,
    /// The allocation it belongs to.
    pub object: ObjectId,
    /// The pages of that allocation.
    pub object_pages: PageRange,
    /// Who asks.
    pub agent: AgentId,
    /// For what.
    pub access: Access,
    /// Where the page is; `None` if it was never written.
    pub owner: Option<MemoryId>,
    /// Memories with a valid copy.
    pub copies: MemorySet,
    /// Agents that have it mapped.
    pub mappers: AgentSet,
    /// Frames that are free in the agent's memory; `u32::MAX` for the host.
    pub room: u32,
    /// The agent has it mapped, with too few rights (a page protection fault).
    pub protection: bool,
    /// Who asks can have it on loan: it is a card that tells which pages it wrote, only the host has another copy,
    /// and no other card maps it. Of a page on loan there is no other copy that counts: it is lost with the card.
    pub may_lend: bool,
    /// The scheme was asked about this very fault before: it had to wait, for room or for a second
    /// try, and the page may be elsewhere now. Schemes that count faults count it once.
    pub again: bool,
    /// What things cost; none: nobody knows.
    pub costs: Option<Costs>,
}

/// A page of which somebody asks how it is placed.
#[derive(Clone, Copy, Debug)]
pub struct PlacedView {
    /// The page.
    pub page: PageNo,
    /// The allocation it belongs to.
    pub object: ObjectId,
    /// Where it is; `None` if it was never written.
    pub owner: Option<MemoryId>,
    /// Memories with a valid copy.
    pub copies: MemorySet,
}

impl PlacedView {
    /// Whether some card has a copy.
    pub fn is_on_card(&self) -> bool {
        !self.copies.without(MemoryId::HOST).is_empty()
    }
}

/// A group of pages whose remote accesses reached the threshold.
#[derive(Clone, Copy, Debug)]
pub struct CounterView {
    /// Now.
    pub now: Time,
    /// The group.
    pub pages: PageRange,
    /// Who accesses it.
    pub agent: AgentId,
    /// Accesses counted.
    pub count: u32,
    /// What things cost; none: nobody knows.
    pub costs: Option<Costs>,
}

/// A move that a scheme wants by itself.
#[derive(Clone, Copy, Debug)]
pub struct Proposal {
    /// The pages.
    pub pages: PageRange,
    /// Where to.
    pub to: MemoryId,
    /// Why.
    pub reason: Reason,
}

/// How often a card accessed a page since the last samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The page.
    pub page: PageNo,
    /// The card that accessed it.
    pub card: CardId,
    /// Its accesses, wherever the page is.
    pub accesses: u32,
}

/// One of the three ways in which a page can be placed (GRIT, section II-B): what a scheme that
/// chooses among them has chosen for a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageMode {
    /// It moves to whoever touches it.
    #[default]
    OnTouch,
    /// It is mapped over the bus, and moves when it is used enough.
    AccessCounter,
    /// Readers get copies.
    Duplication,
}

/// A placement scheme.
pub trait PlacementScheme: fmt::Debug + Send {
    /// Its name, as the command line spells it.
    fn name(&self) -> &'static str;

    /// Pages of an aligned run in which an answer of [`PlacementScheme::on_fault`] depends on nothing but who
    /// asks, for what, and where the page is and is mapped: one answer then holds for those of a grouped fault
    /// that are alike. A scheme that looks at each page keeps the default; one that looks at none gives
    /// `u64::MAX`. A power of two, or that.
    fn grain(&self) -> u64 {
        1
    }

    /// An agent faulted.
    fn on_fault(&mut self, fault: &FaultView) -> Decision;

    /// Whether a card that asks for a page while another one is getting a copy of it gets its own at the same time,
    /// instead of when that has arrived. In the schemes of papers pages move one by one: they keep the default.
    fn copies_together(&self) -> bool {
        false
    }

    /// An access counter reached its threshold. Adds what is to be done to `decisions`, for ranges that do
    /// not overlap; [`Scope::Page`] and [`Scope::Group`] are the group of the notice.
    fn on_counter(&mut self, notice: &CounterView, decisions: &mut Vec<Decision>) {
        let _ = (notice, decisions);
    }

    /// Pages were allocated: what is learnt of them later needs room, and whoever faults on them must not
    /// wait for an allocator.
    fn on_alloc(&mut self, pages: PageRange) {
        let _ = pages;
    }

    /// A card that had these pages on loan has told that it wrote all of them, or none.
    fn on_written(&mut self, pages: PageRange, written: bool) {
        let _ = (pages, written);
    }

    /// Pages of `card` have gone from it, for want of room.
    fn on_evicted(&mut self, card: CardId, pages: PageRange) {
        let _ = (card, pages);
    }

    /// Pages were freed: what is known of them no longer holds.
    fn on_free(&mut self, pages: PageRange) {
        let _ = pages;
    }

    /// How `page` is placed now.
    fn mode(&self, page: PageNo) -> PageMode {
        let _ = page;
        PageMode::OnTouch
    }

    /// How a page is placed now, and what that was learnt from; a scheme that places every page alike and
    /// learns nothing keeps the default.
    fn explain(&self, page: &PlacedView) -> (PageMode, Vec<Evidence>) {
        (self.mode(page.page), Vec::new())
    }

    /// Accesses to tables of its own in memory since this was last asked: the machine charges
    /// their time.
    fn table_accesses(&mut self) -> u32 {
        0
    }

    /// How often [`PlacementScheme::on_samples`] wants to be told who accesses what; `None` for a scheme
    /// that does not look. Only a simulated machine can tell.
    fn sample_every(&self) -> Option<Span> {
        None
    }

    /// The accesses since the last samples, ascending by page and card, those that are zero left
    /// out.
    fn on_samples(&mut self, now: Time, samples: &[Sample]) -> Vec<Proposal> {
        let _ = (now, samples);
        Vec::new()
    }

    /// What the scheme has learnt, to be stored; a scheme without a memory keeps the default.
    fn save_state(&self) -> SchemeState {
        SchemeState::nothing()
    }

    /// Goes on from what [`PlacementScheme::save_state`] gave.
    ///
    /// # Errors
    /// The state is of another scheme.
    fn restore_state(&mut self, state: SchemeState) -> Result<(), String> {
        state.is_nothing().then_some(()).ok_or_else(|| state.is_not_of(self.name()))
    }

    /// The program gave advice; the driver itself already follows it.
    fn on_hint(&mut self, pages: PageRange, advice: Advice) {
        let _ = (pages, advice);
    }

    /// Time passed; called at [`PlacementScheme::next_tick`].
    fn on_tick(&mut self, now: Time) -> Vec<Proposal> {
        let _ = now;
        Vec::new()
    }

    /// When [`PlacementScheme::on_tick`] wants to be called.
    fn next_tick(&self) -> Option<Time> {
        None
    }
}
