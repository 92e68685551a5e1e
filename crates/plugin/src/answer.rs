//! What a library answers, checked: a decision or a move that the driver can take, or what is wrong with it.

use core::fmt;

use farside_svm::placement::{Action, Decision, PageMode, Proposal, Scope};
use farside_types::{MAX_CARDS, MemoryId, PageNo, PageRange, Reason};

use crate::abi::{CDecision, CMove};

/// Flags of a decision: firm, and lends.
const FIRM: u32 = 1;
const LENDS: u32 = 2;

/// An answer that makes no sense. Small and without a text, because nobody may allocate where it
/// is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    Action(u32),
    Scope(u32),
    Reason(u32),
    Flags(u32),
    /// Pages that are in no allocation, or not all in one.
    Range(PageRange),
    /// More answers than there is room for.
    Count(u32, u32),
    Memory(u32),
    Mode(u32),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Wrong::Action(action) => write!(f, "action {action}, there are 0 to 3"),
            Wrong::Scope(scope) => write!(f, "scope {scope}, there are 0 to 3"),
            Wrong::Reason(reason) => write!(f, "reason {reason}, there are 0 to 4"),
            Wrong::Flags(flags) => write!(f, "flags {flags:#x}, there are 1 and 2"),
            Wrong::Range(range) => write!(
                f,
                "pages {:#x} to {:#x}, which are not pages of one allocation",
                range.start.0,
                range.start.0.saturating_add(range.count)
            ),
            Wrong::Count(count, most) => write!(f, "{count} answers, there is room for {most}"),
            Wrong::Memory(memory) => write!(f, "memory {memory}, there are 0 to {MAX_CARDS}"),
            Wrong::Mode(mode) => write!(f, "mode {mode}, there are 0 to 2"),
        }
    }
}

impl CDecision {
    /// Move the page alone, on demand: what stands there before a library is asked.
    pub(crate) const ON_DEMAND: CDecision =
        CDecision { action: 0, scope: 0, reason: 0, flags: 0, first: 0, pages: 0 };
    /// Move the group, by the counter.
    pub(crate) const BY_COUNTER: CDecision = CDecision { reason: 1, ..CDecision::ON_DEMAND };

    /// As the driver has it. `allocation` gives the allocation that all pages of a range are in.
    pub(crate) fn checked(
        &self,
        allocation: impl FnOnce(PageRange) -> Option<PageRange>,
    ) -> Result<Decision, Wrong> {
        let action = match self.action {
            0 => Action::Migrate,
            1 => Action::Duplicate,
            2 => Action::MapRemote,
            3 => Action::MapOnHost,
            other => return Err(Wrong::Action(other)),
        };
        let scope = match self.scope {
            0 => Scope::Page,
            1 => Scope::Group,
            2 => Scope::Range(range(self.first, self.pages, allocation)?),
            3 => Scope::Object,
            other => return Err(Wrong::Scope(other)),
        };
        if self.flags & !(FIRM | LENDS) != 0 {
            return Err(Wrong::Flags(self.flags));
        }
        let (firm, lends) = (self.flags & FIRM != 0, self.flags & LENDS != 0);
        Ok(Decision { action, scope, reason: reason(self.reason)?, firm, lends })
    }
}

impl CMove {
    /// As the driver has it.
    pub(crate) fn checked(
        &self,
        allocation: impl FnOnce(PageRange) -> Option<PageRange>,
    ) -> Result<Proposal, Wrong> {
        let pages = range(self.first, self.pages, allocation)?;
        if self.to as usize > MAX_CARDS {
            return Err(Wrong::Memory(self.to));
        }
        let to = MemoryId(self.to as u8);
        Ok(Proposal { pages, to, reason: reason(self.reason)? })
    }
}

pub(crate) fn mode(mode: u32) -> Result<PageMode, Wrong> {
    match mode {
        0 => Ok(PageMode::OnTouch),
        1 => Ok(PageMode::AccessCounter),
        2 => Ok(PageMode::Duplication),
        other => Err(Wrong::Mode(other)),
    }
}

fn reason(reason: u32) -> Result<Reason, Wrong> {
    match reason {
        0 => Ok(Reason::Demand),
        1 => Ok(Reason::Counter),
        2 => Ok(Reason::Collapse),
        3 => Ok(Reason::Prefetch),
        4 => Ok(Reason::Thrash),
        other => Err(Wrong::Reason(other)),
    }
}

fn range(
    first: u64,
    count: u64,
    allocation: impl FnOnce(PageRange) -> Option<PageRange>,
) -> Result<PageRange, Wrong> {
    let pages = PageRange { start: PageNo(first), count };
    let sound = count > 0 && first.checked_add(count).is_some();
    if sound && allocation(pages).is_some() { Ok(pages) } else { Err(Wrong::Range(pages)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOCATION: PageRange = PageRange { start: PageNo(100), count: 50 };

    fn checked(decision: CDecision) -> Result<Decision, Wrong> {
        decision.checked(|pages| ALLOCATION.covers(pages).then_some(ALLOCATION))
    }

    #[test]
    fn an_answer_that_makes_sense_is_as_it_was_given() {
        let page = Decision::page(Action::Migrate, Reason::Demand);
        assert_eq!(checked(CDecision::ON_DEMAND), Ok(page));
        assert_eq!(checked(CDecision::BY_COUNTER).unwrap().reason, Reason::Counter);
        let given = CDecision { action: 2, scope: 2, reason: 4, flags: 3, first: 110, pages: 40 };
        let scope = Scope::Range(PageRange::new(PageNo(110), 40));
        let (action, reason) = (Action::MapRemote, Reason::Thrash);
        assert_eq!(checked(given), Ok(Decision { action, scope, reason, firm: true, lends: true }));
    }

    #[test]
    fn an_answer_that_makes_no_sense_says_what_is_wrong() {
        let sound = CDecision { scope: 2, first: 100, pages: 1, ..CDecision::ON_DEMAND };
        for (decision, named) in [
            (CDecision { action: 4, ..sound }, "action 4"),
            (CDecision { scope: 9, ..sound }, "scope 9"),
            (CDecision { reason: 5, ..sound }, "reason 5"),
            (CDecision { flags: 4, ..sound }, "flags 0x4"),
            (CDecision { pages: 0, ..sound }, "one allocation"),
            (CDecision { pages: 51, ..sound }, "one allocation"),
            (CDecision { pages: u64::MAX, ..sound }, "one allocation"),
            (CDecision { first: 99, ..sound }, "one allocation"),
        ] {
            let wrong = checked(decision).unwrap_err().to_string();
            assert!(wrong.contains(named), "{wrong}");
        }
        let to = |to| CMove { first: 100, pages: 1, to, reason: 1 }.checked(|_| Some(ALLOCATION));
        assert_eq!(to(16).unwrap().to, MemoryId(16));
        assert_eq!(to(17).unwrap_err(), Wrong::Memory(17));
    }
}
