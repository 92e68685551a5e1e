//! Pages on loan: a card that reads a page of the host's first, and is believed to write it, gets the right
//! to write at once, and the host's frame is kept, in nobody's map, as the page's shadow. A page that the card has
//! for reading already, beside the host, is lent in its place when a neighbour is written.
//!
//! ```text
//!            a read, and the scheme lends              its card lets go
//!   host ------------------------------> on loan ---------------------------> told: clean -> mapped again, no copy
//!            CPU stopped, bytes copied,     |                                       written -> copied home
//!            card may write                 +-- anything else happens ---> as any page of that card: written
//! ```
//!
//! While it is on loan, the card has the only copy that counts: whether the shadow is as good only the
//! dirty bit in the card's tables says, and that is final when the card has let go and drained. So the bits
//! come with the unmap ([`crate::Event::Told`]), and
//!
//! - a chain uses them only if it waits for that unmap: a card that runs. An idle card takes it posted; what
//!   it tells then comes too late for the copy, and is learnt from;
//! - what is not told was written. So was what somebody else could write, over the bus: that sets no bit in
//!   the owner's table, so a page that gets a second mapper is on loan no more;
//! - a loan ends with the translation that it was made with. A page that is mapped anew has clean bits
//!   and may be written long ago: whoever stops the card, or rolls back, ends it. Only a chain that leaves the
//!   page and its translation as they are leaves the loan;
//! - if the card is lost, so is the page, as any page that it could write.
//!
//! The directory marks a page on loan (`is_lent`). While a chain holds a page that it reclaims, the mark says what the
//! card has told: that it is clean.

use farside_types::{AgentId, AgentSet, CommandId, MemoryId, MemorySet, PageNo, PageRange};

use crate::Driver;
use crate::api::command::{Run, Runs};
use crate::migration::chain::{Part, Role, Stage, push_run};
use crate::migration::chains::ChainId;
use crate::migration::transition::{End, Fill, Transition};
use crate::mutation::Mutation;
use crate::tables::page::{PageEntry, flag};

/// What the program has said of a page comes first, and what is only read needs no right to write.
const NEVER: u16 = flag::PINNED
    | flag::THRASH_PINNED
    | flag::HINTED
    | flag::READ_MOSTLY
    | flag::READ_ONLY
    | flag::COMMON
    | flag::HOST_UNSAFE;

impl Driver {
    /// Whether a page can be lent to `agent`: only the host has it, or this card has a copy beside it, no other
    /// card maps it, the card tells what it has written, and a job that runs there may write it. What the jobs of a
    /// card only read stays the host's as well, whatever was written there before: it is not lost with the card.
    pub(crate) fn may_lend(&self, page: PageNo, entry: &PageEntry, agent: AgentId) -> bool {
        let (copies, home) = (entry.directory.copies(), agent.home());
        let here = copies.contains(home);
        let cards = entry.directory.mappers().without(AgentId::CPU);
        let others = if here { cards.without(agent) } else { cards };
        let Some(card) = agent.card() else { return false };
        let writes =
            self.launches.may_write(card, page) || self.mutated.on(Mutation::LendToReaders);
        self.config.capabilities.tells.contains(home)
            && copies.without(home) == MemorySet::only(MemoryId::HOST)
            && others.is_empty()
            && !entry.has(NEVER)
            && writes
    }

    /// Whether a transition brings a page home that is on loan, so that its card's bits say whether it has
    /// to be copied.
    pub(crate) fn reclaims(&self, transition: &Transition, entry: &PageEntry) -> bool {
        let owner = AgentSet::only(entry.owner().agent());
        let mappers = entry.directory.mappers();
        let alone = mappers == owner || self.mutated.on(Mutation::IgnoreRemoteWriters);
        entry.directory.is_lent()
            && alone
            && transition.fill == Fill::Copy
            && transition.at.is_host()
            && owner.minus(transition.stop).is_empty()
    }

    /// Whether pages that are on loan stay so: their card keeps its translation, nobody else gets one, and
    /// the host keeps its frame.
    pub(crate) fn keeps_loans(&self, transition: &Transition) -> bool {
        let remote = transition.maps_remotely() && !self.mutated.on(Mutation::IgnoreRemoteWriters);
        let kept = match transition.end {
            End::Settle => true,
            End::ReleaseHost => self.mutated.on(Mutation::LoanOutlivesTrim),
            End::Free => false,
        };
        let same = transition.before == transition.after
            && transition.stop.is_empty()
            && transition.demote.is_empty();
        let careless = self.mutated.on(Mutation::LoanOutlivesUnmap)
            && !transition.after.contains(MemoryId::HOST);
        kept && !remote && (careless || (same && !transition.fills()))
    }

    /// Whether the mark stays on a page that a chain takes: of one that it reclaims nobody has told anything.
    pub(crate) fn stays_marked(&self, transition: &Transition) -> bool {
        let careless = transition.reclaims && self.mutated.on(Mutation::UntoldIsClean);
        self.keeps_loans(transition) || careless
    }

    /// A card has told which of `pages` pages of an unmap, from page `first` on, it has written.
    pub(crate) fn written_told(
        &mut self,
        command: CommandId,
        first: u64,
        pages: u64,
        bits: &[u64],
    ) {
        let id = ChainId::of(command);
        let Some(chain) = self.chains.get(id) else { return };
        let pending = chain.pending.iter().find(|pending| pending.command == command);
        let Some(pending) = pending.filter(|pending| matches!(pending.role, Role::Stop(_))) else {
            return;
        };
        let part = &chain.parts[usize::from(pending.part)];
        if !part.transition.reclaims {
            return;
        }
        // Otherwise the copy is under way, or done.
        let in_time = pending.awaited && chain.stage == Stage::Setup;
        let runs = part.runs.clone();
        let mut left = (first, pages);
        let mut at = 0;
        for run in runs.iter() {
            let (skipped, taken) = overlap(run, &mut left);
            let told = PageRange::new(run.page.offset(skipped), taken);
            self.run_told(told, &mut at, bits, in_time);
        }
    }

    /// A card has told of these pages, whose first bit is number `at`.
    fn run_told(&mut self, told: PageRange, at: &mut u64, bits: &[u64], in_time: bool) {
        let mut done = 0;
        while done < told.count {
            let written = is_set(bits, *at);
            let alike = (done..told.count).take_while(|i| is_set(bits, *at + i - done) == written);
            let range = PageRange::new(told.start.offset(done), alike.count() as u64);
            (done, *at) = (done + range.count, *at + range.count);
            self.stats.lent_written += if written { range.count } else { 0 };
            self.placement.on_written(range, written);
            if in_time {
                let clean = !written || self.mutated.on(Mutation::WrittenIsClean);
                self.table.for_each_mut(range, |_, entry| entry.directory.set_lent(clean));
            }
        }
    }

    /// Those of a part's pages that are copied: all that are not known to be clean.
    pub(crate) fn copied(&self, part: &Part) -> Runs {
        if part.transition.reclaims { self.written(&part.runs) } else { part.runs.clone() }
    }

    /// Those pages of runs, which a chain reclaims, of which nobody has told that they are clean.
    pub(crate) fn written(&self, runs: &Runs) -> Runs {
        let is_clean = |page| self.table.get(page).directory.is_lent();
        // The common cases cost no list: nothing is clean, or everything is.
        let clean = pages_of(runs).filter(|&run| is_clean(run.page)).count() as u64;
        if clean == 0 {
            return runs.clone();
        }
        let mut written = Runs::default();
        for page in pages_of(runs).filter(|run| !is_clean(run.page)) {
            push_run(&mut written, page);
        }
        written
    }
}

/// The pages of runs, each as a run of its own.
fn pages_of(runs: &Runs) -> impl Iterator<Item = Run> + '_ {
    runs.iter().flat_map(|run| {
        (0..run.count).map(move |i| Run {
            page: run.page.offset(u64::from(i)),
            count: 1,
            src: run.src.offset(i),
            dst: run.dst.offset(i),
        })
    })
}

/// The part of a run that is among the `left.1` pages behind the first `left.0`: how many of its pages come
/// before it, and how many are in it. Both are taken off `left`.
fn overlap(run: &Run, left: &mut (u64, u64)) -> (u64, u64) {
    let count = u64::from(run.count);
    let skipped = left.0.min(count);
    let taken = left.1.min(count - skipped);
    *left = (left.0 - skipped, left.1 - taken);
    (skipped, taken)
}

/// Bit number `at`; what is missing is set.
fn is_set(bits: &[u64], at: u64) -> bool {
    bits.get((at / 64) as usize).is_none_or(|word| word >> (at % 64) & 1 == 1)
}
