//! The checks of a quiet point: driver, tables and memories must agree page by page.

use farside_svm::{Driver, PageState, PageView};
use farside_types::{AgentId, MemoryId, PageNo, PageRange, Rights};

use crate::cpu::Thread;
use crate::machine::Machine;
use crate::memory::{GARBAGE, Translation};
use crate::reference::WORDS;
use crate::violation::{Violation, ensure};

/// Checks everything. Both driver and machine must have nothing under way.
pub(crate) fn check_quiet(driver: &Driver, machine: &mut Machine) -> Result<(), Violation> {
    driver.check().map_err(|text| Violation(format!("the driver's own check: {text}")))?;
    let views: Vec<PageView> = machine.pages.pages().map(|page| driver.page(page)).collect();
    for (page, view) in machine.pages.pages().zip(&views) {
        check_state(machine, page, view)?;
        check_mappings(machine, page, view)?;
        // What was to be freed may be gone.
        let half_freed = machine.facts.get(page).is_some_and(|facts| facts.half_freed);
        if view.owner.is_some() && !half_freed {
            check_bytes(machine, page, view)?;
        }
        check_pin(machine, page, view)?;
    }
    check_frames(machine, &views)?;
    check_residency(driver, machine, &views)?;
    poison_free_frames(machine, &views);
    Ok(())
}

/// Nobody waits: no fault without its answer, no thread asleep, no request open.
pub(crate) fn check_nothing_waits(machine: &Machine) -> Result<(), Violation> {
    let unanswered = machine.faults.values().find(|fault| !fault.answered && fault.delivered);
    if let Some(fault) = unanswered {
        return Err(Violation(format!(
            "the driver is quiet, but {} ({:?}) was never answered",
            fault.id, fault.need
        )));
    }
    for thread in &machine.cpu.threads {
        ensure!(
            !matches!(thread, Thread::Blocked(..)),
            "the driver is quiet, but a thread waits for ever: {thread:?}"
        );
    }
    let open = machine.requests.iter().next();
    ensure!(open.is_none(), "the driver is quiet, but a request was never answered: {open:?}");
    Ok(())
}

fn check_state(machine: &Machine, page: PageNo, view: &PageView) -> Result<(), Violation> {
    let facts = machine.facts.get(page).expect("pages of the arena have facts");
    // A card that has to be reset may still write the host's frame.
    let held = machine
        .cards
        .iter()
        .any(|card| card.deaf || (card.doubtful && view.mappers.contains(card.id.agent())));
    if facts.half_freed || (facts.freed && held && view.state == PageState::Tombstone) {
        ensure!(view.state != PageState::Unallocated, "{page} was not freed, and is unallocated");
        return Ok(());
    }
    ensure!(
        facts.live != (view.state == PageState::Unallocated),
        "{page} is {:?}, but allocated: {}",
        view.state,
        facts.live
    );
    let copies = view.copies;
    let host = copies.contains(MemoryId::HOST);
    let (fits, wanted) = match view.state {
        PageState::Unallocated | PageState::Fresh | PageState::Lost => {
            (copies.is_empty() && view.owner.is_none(), "no copy")
        }
        PageState::Host => (copies.len() == 1 && host, "one copy, at the host"),
        PageState::Card => (copies.len() == 1 && !host, "one copy, on a card"),
        PageState::Replicated => (copies.len() >= 2, "two or more copies"),
        PageState::Moving | PageState::Tombstone => (false, "something else, at a quiet point"),
    };
    ensure!(fits, "{page} is {:?}, which takes {wanted}: {view:?}", view.state);
    ensure!(
        view.owner.is_none_or(|owner| copies.contains(owner)),
        "{page}: the owner has no copy: {view:?}"
    );
    ensure!(
        view.writers.minus(view.mappers).is_empty(),
        "{page}: who may write must have it mapped: {view:?}"
    );
    ensure!(
        copies.len() <= 1 || view.writers.is_empty(),
        "{page} has several copies and somebody may write: {view:?}"
    );
    ensure!(
        view.state != PageState::Lost || facts.lost,
        "{page} is lost, but was on no card that went away"
    );
    let clean = machine.reference.page(page) == &[0; WORDS];
    ensure!(view.state != PageState::Fresh || clean, "{page} is fresh, but it was written");
    Ok(())
}

/// What the machine's tables hold must be what the directory says.
fn check_mappings(machine: &Machine, page: PageNo, view: &PageView) -> Result<(), Violation> {
    for agent in (0..machine.memories.len()).map(|i| AgentId(i as u8)) {
        let Some(entry) = machine.translation(agent, page) else { continue };
        ensure!(
            view.mappers.contains(agent),
            "{agent} has {page} mapped, but the directory does not know: {view:?}"
        );
        ensure!(
            entry.rights == Rights::Read || view.writers.contains(agent),
            "{agent} may write {page}, but the directory does not know: {view:?}"
        );
        check_place(machine, page, view, agent, &entry)?;
    }
    Ok(())
}

fn check_place(
    machine: &Machine,
    page: PageNo,
    view: &PageView,
    agent: AgentId,
    entry: &Translation,
) -> Result<(), Violation> {
    ensure!(
        view.copies.contains(entry.memory) && !machine.is_dangling(entry),
        "{agent} has {page} mapped at {}, where no valid copy is: {view:?}",
        entry.memory
    );
    ensure!(
        view.owner != Some(entry.memory) || view.frame == entry.frame,
        "{agent} has {page} mapped at {:?} of {}: {view:?}",
        entry.frame,
        entry.memory
    );
    Ok(())
}

/// Every copy that the driver calls valid holds the page's bytes.
fn check_bytes(machine: &Machine, page: PageNo, view: &PageView) -> Result<(), Violation> {
    let wanted = machine.reference.page(page);
    for memory in view.copies.iter() {
        let frames = machine.memory(memory).frames.iter().enumerate();
        let holds = |index: usize| match (memory.is_host(), view.owner == Some(memory)) {
            (true, _) => index as u64 == page.0 - machine.arena.start.0,
            (false, true) => index == view.frame.0 as usize,
            (false, false) => true,
        };
        let good = frames
            .filter(|(index, frame)| frame.page == Some(page) && holds(*index))
            .any(|(_, frame)| &frame.content == wanted);
        ensure!(good, "{page}: the copy at {memory} is not {wanted:x?}: {view:?}");
    }
    Ok(())
}

/// A pinned page that no agent from elsewhere asked for is where it was pinned.
fn check_pin(machine: &Machine, page: PageNo, view: &PageView) -> Result<(), Violation> {
    let facts = machine.facts.get(page).expect("pages of the arena have facts");
    let Some(&at) = facts.pins.first().filter(|_| facts.live) else { return Ok(()) };
    ensure!(
        facts.pin_disturbed || facts.lost || facts.failed || view.copies.contains(at),
        "{page} is pinned at {at}, nobody else asked for it, and it is not there: {view:?}"
    );
    ensure!(
        view.pinned || facts.lost || facts.pins.is_empty(),
        "{page} is pinned, but the driver forgot it: {view:?}"
    );
    Ok(())
}

/// No frame belongs to two pages.
fn check_frames(machine: &Machine, views: &[PageView]) -> Result<(), Violation> {
    let mut owned = std::collections::BTreeMap::new();
    for (page, view) in machine.pages.pages().zip(views) {
        let Some(owner) = view.owner else { continue };
        if let Some(other) = owned.insert((owner, view.frame), page) {
            return Err(Violation(format!(
                "{:?} of {owner} belongs to {other} and to {page}",
                view.frame
            )));
        }
    }
    for memory in (1..machine.memories.len()).map(|i| MemoryId(i as u8)) {
        let used = views.iter().filter(|view| view.copies.contains(memory)).count();
        let frames = machine.memory(memory).frames.len();
        ensure!(used <= frames, "{memory} has {frames} frames and holds {used} pages");
    }
    Ok(())
}

/// The residency map says what the page table says (driver rule 3).
fn check_residency(
    driver: &Driver,
    machine: &Machine,
    views: &[PageView],
) -> Result<(), Violation> {
    let adopted = machine.allocations.iter().copied().filter(|range| !machine.arena.covers(*range));
    for range in adopted.chain([machine.arena]) {
        check_residency_of(driver, machine, views, range)?;
    }
    Ok(())
}

fn check_residency_of(
    driver: &Driver,
    machine: &Machine,
    views: &[PageView],
    range: PageRange,
) -> Result<(), Violation> {
    let mut next = range.start;
    for part in driver.locate(range) {
        ensure!(
            part.range.start == next && part.range.count > 0,
            "the residency map has a gap or an overlap at {next}: {part:?}"
        );
        next = part.range.end();
        let first = (part.range.start.0 - machine.arena.start.0) as usize;
        let views = views.get(first..first + part.range.count as usize).unwrap_or_default();
        for (page, view) in part.range.pages().zip(views) {
            ensure!(
                (part.state, part.owner, part.copies) == (view.state, view.owner, view.copies),
                "the residency map says {part:?}, but {page} is {view:?}"
            );
        }
    }
    ensure!(next == range.end(), "the residency map ends at {next}, before {range} does");
    Ok(())
}

/// Overwrites every frame that holds no valid copy, so that a later use of it shows.
fn poison_free_frames(machine: &mut Machine, views: &[PageView]) {
    let arena: PageRange = machine.arena;
    for index in 1..machine.memories.len() {
        let memory = MemoryId(index as u8);
        for (number, frame) in machine.memories[index].frames.iter_mut().enumerate() {
            let valid = frame.page.is_some_and(|page| {
                let view = &views[(page.0 - arena.start.0) as usize];
                let here = view.owner != Some(memory) || view.frame.0 as usize == number;
                view.copies.contains(memory) && here
            });
            if !valid {
                frame.page = None;
                frame.content = [GARBAGE; WORDS];
            }
        }
    }
}
