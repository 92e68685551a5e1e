//! A library's scheme as the driver knows schemes.

use core::ffi::c_void;
use core::fmt;
use std::ptr::null_mut;

use farside_svm::PlacementScheme;
use farside_svm::placement::{
    Action, Costs, CounterView, Decision, FaultView, PageMode, Proposal, Sample, SchemeState,
};
use farside_types::{PageNo, PageRange, Reason, Span, Time};

use crate::abi::{CDecision, CFault, CMove, CNotice, CSample, CScheme, NOWHERE};
use crate::answer;
use crate::notes::Notes;
use crate::saved::{self, Saved};
use crate::watch::{Call, Complaints, Watch};
use crate::{LibraryError, PluginError};

/// Most answers to one notice, and moves of one sample.
const DECISIONS_MAX: usize = 512;
const MOVES_MAX: usize = 4096;
/// The shortest time between samples.
const SAMPLE_LEAST_NS: u64 = 1_000;

/// What `create` gave, and the table whose functions it belongs to.
pub(crate) struct State {
    table: &'static CScheme,
    /// Null if there is no `create`.
    at: *mut c_void,
}

impl State {
    pub(crate) fn new(table: &'static CScheme, at: *mut c_void) -> State {
        State { table, at }
    }
}

// SAFETY: the header says that a scheme's functions are called one at a time, by whichever thread.
unsafe impl Send for State {}

/// A scheme of a library.
pub struct LibraryScheme {
    state: State,
    name: &'static str,
    notes: Notes,
    sample_every: Option<Span>,
    watch: Watch,
    answers: Vec<CDecision>,
    moves: Vec<CMove>,
    samples: Vec<CSample>,
}

impl LibraryScheme {
    pub(crate) fn new(
        state: State,
        name: &'static str,
        path: &str,
        watch: Watch,
    ) -> Result<LibraryScheme, PluginError> {
        let notes = Notes::new(state.table.notes != 0);
        let answers = Vec::with_capacity(DECISIONS_MAX);
        let (moves, samples) = (Vec::new(), Vec::new());
        // From here on its state is destroyed, whatever is wrong.
        let mut scheme = LibraryScheme {
            state,
            name,
            notes,
            sample_every: None,
            watch,
            answers,
            moves,
            samples,
        };
        let every = scheme.table().sample_every_ns.map(|every| {
            // SAFETY: the state is of this table.
            scheme.watch.marks().during(Call::SampleEvery, || unsafe { every(scheme.state.at) })
        });
        if let Some(short) = every.filter(|every| *every < SAMPLE_LEAST_NS) {
            let what =
                format!("sample_every_ns gives {short}, at least {SAMPLE_LEAST_NS} are needed");
            return Err(PluginError::Library {
                path: path.to_owned(),
                why: LibraryError::Table { what },
            });
        }
        scheme.sample_every = every.map(Span::from_nanos);
        Ok(scheme)
    }

    /// Answers that made no sense; they can be asked for when the scheme is gone.
    pub fn complaints(&self) -> Complaints {
        self.watch.complaints()
    }

    fn table(&self) -> &'static CScheme {
        self.state.table
    }

    fn range(&mut self, call: Call, function: Option<crate::abi::OnRange>, pages: PageRange) {
        if let Some(function) = function {
            self.watch.marks().enter(call);
            // SAFETY: the state is of this table.
            unsafe { function(self.state.at, pages.start.0, pages.count) };
            self.watch.marks().leave();
        }
    }

    /// Room for this many answers, each as it comes filled in.
    fn clear(&mut self, room: usize) {
        self.answers.clear();
        self.answers.resize(room, CDecision::BY_COUNTER);
    }
}

impl fmt::Debug for LibraryScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LibraryScheme").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for LibraryScheme {
    fn drop(&mut self) {
        if let (Some(destroy), false) = (self.table().destroy, self.state.at.is_null()) {
            self.watch.marks().enter(Call::Destroy);
            // SAFETY: the state is of this table and is not used any more.
            unsafe { destroy(self.state.at) };
            self.watch.marks().leave();
        }
    }
}

impl PlacementScheme for LibraryScheme {
    fn name(&self) -> &'static str {
        self.name
    }

    fn grain(&self) -> u64 {
        self.table().grain.max(1)
    }

    fn on_fault(&mut self, fault: &FaultView) -> Decision {
        let (bring_ns, far_ns) = prices(fault.costs);
        let view = CFault {
            now_ns: nanos(fault.now),
            page: fault.page.0,
            object_first: fault.object_pages.start.0,
            object_pages: fault.object_pages.count,
            note: self.notes.word(fault.page),
            bring_ns,
            far_ns,
            agent: fault.agent.0.into(),
            owner: fault.owner.map_or(NOWHERE, |memory| memory.0.into()),
            copies: fault.copies.0,
            mappers: fault.mappers.0,
            room: fault.room,
            write: fault.access.is_write().into(),
            protection: fault.protection.into(),
            again: fault.again.into(),
            may_lend: fault.may_lend.into(),
        };
        let mut answer = CDecision::ON_DEMAND;
        let marks = self.watch.marks();
        marks.enter(Call::Fault);
        if let Some(on_fault) = self.table().on_fault {
            // SAFETY: the state is of this table; the records live until the call returns, and nobody else uses
            // the note meanwhile.
            unsafe { on_fault(self.state.at, &raw const view, &raw mut answer) };
        }
        marks.leave();
        let all = fault.object_pages;
        answer.checked(|pages| all.covers(pages).then_some(all)).unwrap_or_else(|wrong| {
            marks.complain(Call::Fault, fault.page.0, wrong);
            Decision::page(Action::Migrate, Reason::Demand)
        })
    }

    fn on_counter(&mut self, notice: &CounterView, decisions: &mut Vec<Decision>) {
        let Some(on_counter) = self.table().on_counter else { return };
        // A group of a machine's may reach beyond an allocation, where there is nothing to place.
        let Some(pages) = self.notes.part(notice.pages) else { return };
        let room = DECISIONS_MAX.min(pages.count as usize);
        self.clear(room);
        let notes = self.notes.words(pages).map(<[u64]>::as_mut_ptr);
        let (bring_ns, far_ns) = prices(notice.costs);
        let view = CNotice {
            now_ns: nanos(notice.now),
            first: pages.start.0,
            pages: pages.count,
            notes: notes.unwrap_or(null_mut()),
            bring_ns,
            far_ns,
            agent: notice.agent.0.into(),
            count: notice.count,
        };
        let marks = self.watch.marks();
        marks.enter(Call::Counter);
        let answers = self.answers.as_mut_ptr();
        // SAFETY: as for a fault; there is room for so many answers, all of them filled in.
        let count = unsafe { on_counter(self.state.at, &raw const view, answers, room as u32) };
        marks.leave();
        let page = pages.start.0;
        if count as usize > room {
            return marks.complain(Call::Counter, page, answer::Wrong::Count(count, room as u32));
        }
        for given in &self.answers[..count as usize] {
            match given.checked(|pages| self.notes.allocation(pages)) {
                Ok(decision) => decisions.push(decision),
                Err(wrong) => marks.complain(Call::Counter, page, wrong),
            }
        }
    }

    fn on_alloc(&mut self, pages: PageRange) {
        self.notes.add(pages);
        self.range(Call::Alloc, self.table().on_alloc, pages);
    }

    fn on_free(&mut self, pages: PageRange) {
        self.notes.remove(pages);
        self.range(Call::Free, self.table().on_free, pages);
    }

    fn on_written(&mut self, pages: PageRange, written: bool) {
        if let Some(on_written) = self.table().on_written {
            self.watch.marks().enter(Call::Written);
            // SAFETY: the state is of this table.
            unsafe { on_written(self.state.at, pages.start.0, pages.count, written.into()) };
            self.watch.marks().leave();
        }
    }

    fn mode(&self, page: PageNo) -> PageMode {
        let Some(mode) = self.table().mode else { return PageMode::OnTouch };
        let note = self.notes.look(page);
        let marks = self.watch.marks();
        marks.enter(Call::Mode);
        // SAFETY: the state is of this table; the note lives until the call returns.
        let mode = unsafe { mode(self.state.at, page.0, &raw const note) };
        marks.leave();
        answer::mode(mode).unwrap_or_else(|wrong| {
            marks.complain(Call::Mode, page.0, wrong);
            PageMode::OnTouch
        })
    }

    fn sample_every(&self) -> Option<Span> {
        self.sample_every
    }

    fn on_samples(&mut self, now: Time, samples: &[Sample]) -> Vec<Proposal> {
        let Some(on_samples) = self.table().on_samples else { return Vec::new() };
        let sample = |it: &Sample| CSample {
            page: it.page.0,
            agent: it.card.agent().0.into(),
            accesses: it.accesses,
        };
        self.samples.clear();
        self.samples.extend(samples.iter().map(sample));
        self.moves.clear();
        self.moves.resize(MOVES_MAX, CMove::default());
        let marks = self.watch.marks();
        marks.enter(Call::Samples);
        // SAFETY: the state is of this table; so many samples are there, and room for so many moves.
        let count = unsafe {
            on_samples(
                self.state.at,
                nanos(now),
                self.samples.as_ptr(),
                self.samples.len() as u64,
                self.moves.as_mut_ptr(),
                MOVES_MAX as u32,
            )
        };
        marks.leave();
        let page = samples.first().map_or(0, |sample| sample.page.0);
        if count as usize > MOVES_MAX {
            let wrong = answer::Wrong::Count(count, MOVES_MAX as u32);
            marks.complain(Call::Samples, page, wrong);
            return Vec::new();
        }
        let checked = |given: &CMove| {
            let proposal = given.checked(|pages| self.notes.allocation(pages));
            proposal.map_err(|wrong| marks.complain(Call::Samples, given.first, wrong)).ok()
        };
        self.moves[..count as usize].iter().filter_map(checked).collect()
    }

    fn save_state(&self) -> SchemeState {
        let own = match (self.table().save, self.state.at.is_null()) {
            (None, true) => Some(Vec::new()),
            (None, false) => None,
            (Some(save), _) => Some(self.watch.marks().during(Call::Save, || {
                // SAFETY: the state is of this table; there is room for no byte, and then for all.
                let count = unsafe { save(self.state.at, null_mut(), 0) };
                let mut bytes = vec![0; count as usize];
                // SAFETY: as above.
                let again = unsafe { save(self.state.at, bytes.as_mut_ptr(), count) };
                bytes.truncate(again as usize);
                bytes
            })),
        };
        SchemeState::from_bytes(self.name, saved::write(&self.notes, own.as_deref()))
    }

    fn restore_state(&mut self, state: SchemeState) -> Result<(), String> {
        let Saved { notes, own } =
            saved::read(state.bytes_of(self.name)?, self.table().notes != 0)?;
        let lacks =
            |what| format!("the placement scheme {} cannot be stored: it has no {what}", self.name);
        let own = own.ok_or_else(|| lacks("save"))?;
        match self.table().restore {
            None if self.state.at.is_null() => {}
            None => return Err(lacks("restore")),
            Some(restore) => {
                let done = self.watch.marks().during(Call::Restore, || {
                    // SAFETY: the state is of this table; so many bytes are there.
                    unsafe { restore(self.state.at, own.as_ptr(), own.len() as u64) }
                });
                if done != 0 {
                    return Err(format!(
                        "the placement scheme {} refuses its state: {done}",
                        self.name
                    ));
                }
            }
        }
        self.notes = notes;
        Ok(())
    }
}

/// To bring a page, and to reach over to a line, in ns; zero is what nobody knows.
fn prices(costs: Option<Costs>) -> (u64, u64) {
    costs.map_or((0, 0), |costs| (costs.bring.0.div_ceil(1_000), costs.far.0.div_ceil(1_000)))
}

fn nanos(time: Time) -> u64 {
    time.since(Time::ZERO).as_nanos()
}

#[cfg(test)]
mod tests {
    use core::mem::zeroed;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::Told;
    use crate::abi::ABI_VERSION;

    extern "C" fn on_fault(_: *mut c_void, _: *const CFault, answer: *mut CDecision) {
        // SAFETY: it is the caller's record.
        unsafe { (*answer).action = 1 };
    }

    /// Answers with the notice's own pages, and counts in their words.
    extern "C" fn on_counter(
        _: *mut c_void,
        notice: *const CNotice,
        answers: *mut CDecision,
        room: u32,
    ) -> u32 {
        // SAFETY: they are the caller's records, with so many words and so much room.
        unsafe {
            let CNotice { first, pages, notes, .. } = *notice;
            assert!(u64::from(room) <= pages);
            (0..pages as usize).for_each(|page| *notes.add(page) += 1);
            *answers = CDecision { scope: 2, first, pages, ..CDecision::BY_COUNTER };
        }
        1
    }

    fn table() -> CScheme {
        // SAFETY: null pointers and absent functions are what zero bytes are.
        let mut table: CScheme = unsafe { zeroed() };
        table.abi_version = ABI_VERSION;
        table.notes = 1;
        table.on_fault = Some(on_fault);
        table.on_counter = Some(on_counter);
        table
    }

    fn made(table: CScheme, at: *mut c_void) -> Result<LibraryScheme, PluginError> {
        let state = State::new(Box::leak(Box::new(table)), at);
        let watch = Watch::start("test".to_owned(), Told::Caller).unwrap();
        LibraryScheme::new(state, "test", "libtest.so", watch)
    }

    fn scheme() -> LibraryScheme {
        made(table(), null_mut()).unwrap()
    }

    #[test]
    fn a_notice_has_the_pages_that_are_in_an_allocation() {
        let mut scheme = scheme();
        let pages = |start, count| PageRange::new(PageNo(start), count);
        scheme.on_alloc(pages(0, 20));
        let agent = farside_types::AgentId(1);
        let mut notice =
            CounterView { now: Time::ZERO, pages: pages(16, 16), agent, count: 9, costs: None };
        let mut decisions = Vec::new();
        scheme.on_counter(&notice, &mut decisions);
        assert_eq!(decisions.len(), 1);
        assert_eq!(decisions[0].scope, farside_svm::placement::Scope::Range(pages(16, 4)));
        assert_eq!([15, 16, 19].map(|page| scheme.notes.look(PageNo(page))), [0, 1, 1]);
        assert_eq!(scheme.complaints().count(), 0);
        notice.pages = pages(32, 16);
        scheme.on_counter(&notice, &mut decisions);
        assert_eq!(decisions.len(), 1, "there is nothing to place");
    }

    #[test]
    fn a_state_whose_scheme_cannot_be_is_destroyed() {
        extern "C" fn too_often(_: *mut c_void) -> u64 {
            1
        }
        extern "C" fn destroy(at: *mut c_void) {
            // SAFETY: it is the number below.
            unsafe { *at.cast::<u32>() += 1 };
        }
        let mut destroyed = 0_u32;
        let often = CScheme { sample_every_ns: Some(too_often), destroy: Some(destroy), ..table() };
        let error = made(often, (&raw mut destroyed).cast()).unwrap_err().to_string();
        assert!(error.contains("sample_every_ns gives 1"), "{error}");
        assert_eq!(destroyed, 1);
    }

    #[test]
    fn what_was_noted_of_pages_is_stored_and_restored() {
        let (mut scheme, mut other) = (scheme(), scheme());
        let pages = PageRange::new(PageNo(100), 8);
        scheme.on_alloc(pages);
        scheme.notes.words(pages).unwrap()[3] = 7;
        other.restore_state(scheme.save_state()).unwrap();
        assert_eq!(other.notes.look(PageNo(103)), 7);
        assert!(other.restore_state(SchemeState::nothing()).unwrap_err().contains("test"));
    }

    /// The thread that watches is not in a child made by fork: to wait for it there is for ever, more often than not.
    #[test]
    fn a_child_made_by_fork_drops_it_without_waiting() {
        let scheme = scheme();
        // SAFETY: the child drops the scheme, which takes no lock that another thread may have, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(scheme);
            // SAFETY: it ends the child.
            unsafe { libc::_exit(0) };
        }
        let limit = Instant::now() + Duration::from_secs(20);
        let mut status = 1;
        // SAFETY: it is our child, and the status ours to write.
        while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
            if Instant::now() > limit {
                // SAFETY: it is our child.
                unsafe { libc::kill(child, libc::SIGKILL) };
                panic!("the child hangs");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(status, 0);
    }
}
