//! A card with tables beside a map of what it should know of its pages, driven by any bytes.
//!
//! Shared by the tests and by the fuzz target of `crates/card/fuzz`, which asks for the feature `fuzzing`;
//! nothing else is built with it. Pages are used in every way there is: by TLBs, by groups, by faults that
//! are answered, and by words that take no lock and remember where tables are. What the tables say is read
//! once more by `words`, as the specification has it and not as the card does it.

#[cfg(test)]
pub(super) mod tests;
pub(super) mod words;

use std::collections::BTreeMap;
use std::sync::Arc;

use farside_types::{
    Access, Asid, CardId, CommandId, FrameNo, JobId, MemoryId, PageNo, PageRange, PeId, Rights,
};

use super::arena::{Found, slot_index};
use super::{PageBits, Tables, Walk};
use crate::{Card, Drained, Geometry, Location, MappedRun, Need, Outcome, Raised, WordUser};

/// Address spaces.
const ASIDS: u16 = 3;
/// More table pages than everything takes that an input can map.
const AMPLE: u32 = 128;
/// Who accesses pages one by one and in groups.
const PE: PeId = PeId(0);
/// Who faults.
const FAULTING: PeId = PeId(1);
const JOB: JobId = JobId(1);

/// Does what the bytes say with a card. Gives how many accesses went through.
///
/// # Panics
/// If a rule of the tables is broken.
pub fn tables(input: &[u8]) -> usize {
    run(input, |_| {}).unwrap_or_else(|broken| panic!("{broken}"))
}

/// [`tables`] with a card that `prepare` was done to.
pub(crate) fn run(input: &[u8], prepare: impl FnOnce(&mut Card)) -> Result<usize, String> {
    let mut input = Input { rest: input, asid: Asid(0), page: 0 };
    let table_pages = [AMPLE, AMPLE, 1, 2, 3, 5, 8, 0][usize::from(input.byte() % 8)];
    let mut twin = Twin::new(table_pages, prepare);
    for asid in (0..ASIDS).map(Asid) {
        for (page, count) in [(0, 48), (490, 50)] {
            let location = Location::new(twin.card.memory(), FrameNo(page as u32));
            let run = MappedRun::new(PageNo(page), count, location);
            twin.map(asid, run, Rights::ReadWrite, false)?;
        }
    }
    let mut steps = 0;
    while !input.rest.is_empty() {
        twin.step(&mut input)?;
        steps += 1;
        if steps % 16 == 0 {
            twin.look()?;
        }
    }
    twin.end()?;
    Ok(twin.went_through)
}

/// What an input has left; zeros when it is used up.
struct Input<'a> {
    rest: &'a [u8],
    /// What it has named last: every other time it is that again.
    asid: Asid,
    page: u64,
}

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        first
    }

    fn asid(&mut self) -> Asid {
        let byte = self.byte();
        if byte < 128 {
            self.asid = Asid(u16::from(byte) % ASIDS);
        }
        self.asid
    }

    /// The last one or the one behind it, one of the first, near the border of two tables, or high up.
    fn page(&mut self) -> u64 {
        let (choice, byte) = (self.byte(), u64::from(self.byte()));
        self.page = match choice {
            0..=119 => self.page,
            120..=129 => self.page + 1,
            130..=169 => byte % 40,
            170..=209 => 500 + byte % 30,
            210..=229 => byte * 7,
            230..=245 => (1 << 30) + 500 + byte % 30,
            246..=255 => (1 << 44) + byte % 4,
        };
        self.page
    }

    fn pages(&mut self) -> (u64, u64) {
        let (page, choice) = (self.page(), self.byte());
        match choice {
            0..=189 => (page, u64::from(choice) % 20 + 1),
            190..=204 => (page, 64),
            205..=234 => (page / 512 * 512, 512),
            235..=249 => (page / 512 * 512, 1024),
            250..=255 => (page, 600),
        }
    }

    fn rights(&mut self) -> Rights {
        if self.byte() % 3 == 0 { Rights::Read } else { Rights::ReadWrite }
    }

    fn access(&mut self) -> Access {
        if self.byte() % 2 == 0 { Access::Read } else { Access::Write }
    }

    /// Often the same for a page, and often aligned as the pages are. Where something is `lacking` it may be
    /// where entries have no number for.
    fn location(&mut self, page: u64, own: MemoryId, lacking: bool) -> Location {
        let choice = self.byte();
        let memory = match choice % 16 {
            15 if lacking => CardId(1).memory(),
            3 | 7 | 11 | 15 => MemoryId::HOST,
            _ => own,
        };
        let shift = [0, 0, 2048, 1][usize::from(choice / 16) % 4];
        Location::new(memory, FrameNo((page % 4096) as u32 + shift))
    }
}

/// What is known of a page that was mapped.
#[derive(Clone, Copy, Debug)]
struct Known {
    location: Location,
    rights: Rights,
    written: bool,
    used: bool,
    /// Somebody asked for it together with others, and did not get all.
    wanted: bool,
}

/// The card, and what should be known.
struct Twin {
    card: Card,
    pages: BTreeMap<(Asid, u64), Known>,
    /// Whoever makes words without the card's lock, if there are tables.
    hot: Option<(Arc<Tables>, WordUser)>,
    /// Where it remembers that the words of 512 pages are.
    remembers: BTreeMap<(Asid, u64), Found>,
    is_ample: bool,
    commands: u64,
    went_through: usize,
}

macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(format!($($text)*));
        }
    };
}
use ensure;

impl Twin {
    fn new(table_pages: u32, prepare: impl FnOnce(&mut Card)) -> Twin {
        let geometry = Geometry {
            pes: 2,
            l1_entries: 2,
            l2_entries: 4,
            l2_ways: 4,
            flexible_entries: 1,
            table_pages,
            ..Geometry::default()
        };
        let mut card = Card::new(CardId(0), 1 << 16, geometry).expect("the sizes make a card");
        prepare(&mut card);
        card.launch(FAULTING, JOB).expect("nobody runs");
        let hot = card.share_tables().map(|(tables, words)| (tables, words.user()));
        Twin {
            card,
            pages: BTreeMap::new(),
            hot,
            remembers: BTreeMap::new(),
            is_ample: table_pages == AMPLE,
            commands: 0,
            went_through: 0,
        }
    }

    fn step(&mut self, input: &mut Input<'_>) -> Result<(), String> {
        let (choice, asid) = (input.byte() % 20, input.asid());
        match choice {
            0..=3 => {
                let (page, count) = input.pages();
                let (rights, written) = (input.rights(), input.byte() % 4 == 0);
                let location = input.location(page, self.card.memory(), !self.is_ample);
                self.map(
                    asid,
                    MappedRun::new(PageNo(page), count as u32, location),
                    rights,
                    written,
                )
            }
            4 | 5 => {
                let (page, count) = input.pages();
                self.unmap(asid, PageRange::new(PageNo(page), count))
            }
            6 => {
                let (page, count) = input.pages();
                self.protect(asid, PageRange::new(PageNo(page), count))
            }
            7 => {
                let (page, count) = input.pages();
                // A TLB that knows the page has to look at its entry again.
                self.access(asid, page, Access::Read)?;
                self.accessed(asid, PageRange::new(PageNo(page), count))?;
                self.access(asid, page, Access::Read)
            }
            8..=11 => {
                let (page, access) = (input.page(), input.access());
                self.access(asid, page, access)
            }
            12..=15 => {
                let (page, access) = (input.page(), input.access());
                let found = self.word(asid, page, access);
                let has_tables = self.hot.is_some();
                if has_tables { self.used("a word", asid, page, access, found) } else { Ok(()) }
            }
            16 | 17 => {
                let ((page, count), access) = (input.pages(), input.access());
                self.group(asid, PageRange::new(PageNo(page), count), access)
            }
            18 => {
                let (page, access, rights) = (input.page(), input.access(), input.rights());
                let location = input.location(page, self.card.memory(), !self.is_ample);
                let taken_back = input.byte() % 4 == 0;
                let run = MappedRun::new(PageNo(page), 1, location);
                self.fault(asid, run, access, rights, taken_back)
            }
            _ if input.byte() % 8 == 0 => {
                self.reset();
                Ok(())
            }
            _ => {
                let drained = self.card.unmap_all(CommandId(0), asid);
                self.pages.retain(|&(of, _), _| of != asid);
                ensure!(drained == Drained::Now, "nothing is in flight");
                Ok(())
            }
        }
    }

    fn map(
        &mut self,
        asid: Asid,
        run: MappedRun,
        rights: Rights,
        written: bool,
    ) -> Result<(), String> {
        let mapped = match written {
            true => self.card.map_written(asid, [run].into_iter(), rights),
            false => self.card.map(asid, [run].into_iter(), rights),
        };
        mapped.map_err(|error| error.to_string())?;
        for index in 0..run.count {
            let location = run.location.offset(index);
            let key = (asid, run.page.0 + u64::from(index));
            let same = self.pages.get(&key).filter(|known| known.location == location).copied();
            let known = Known {
                location,
                rights,
                written: written || same.is_some_and(|known| known.written),
                used: same.is_some_and(|known| known.used),
                wanted: same.is_some_and(|known| known.wanted),
            };
            self.pages.insert(key, known);
        }
        Ok(())
    }

    fn unmap(&mut self, asid: Asid, range: PageRange) -> Result<(), String> {
        let mut bits = PageBits::new(range.count, range.count);
        self.commands += 1;
        let id = CommandId(self.commands);
        let drained = self.card.unmap_telling(id, asid, std::iter::once(range), &mut bits);
        ensure!(drained == Drained::Now, "nothing is in flight");
        for (index, page) in range.pages().enumerate() {
            let known = self.pages.remove(&(asid, page.0));
            let told = bits.get(index as u64);
            let written = known.is_none_or(|known| known.written);
            ensure!(told || !written, "a write to {page} was hidden");
            let wanted = known.is_some_and(|known| known.wanted);
            let is_known = !self.is_ample || told == written || wanted;
            ensure!(is_known, "{page} counts as written, and was not");
        }
        Ok(())
    }

    fn protect(&mut self, asid: Asid, range: PageRange) -> Result<(), String> {
        let ranges = std::iter::once(range);
        let drained = self.card.protect(CommandId(0), asid, ranges, Rights::Read);
        ensure!(drained == Drained::Now, "nothing is in flight");
        for page in range.pages() {
            if let Some(known) = self.pages.get_mut(&(asid, page.0)) {
                known.rights = Rights::Read;
            }
        }
        Ok(())
    }

    fn accessed(&mut self, asid: Asid, range: PageRange) -> Result<(), String> {
        let mut bits = PageBits::new(range.count, range.count);
        self.card.take_accessed(asid, std::iter::once(range), &mut bits);
        for (index, page) in range.pages().enumerate() {
            let known = self.pages.get(&(asid, page.0));
            let used = known.is_none_or(|known| known.used);
            ensure!(bits.get(index as u64) || !used, "a use of {page} was hidden");
        }
        // A run of 512 has one bit, which is cleared for all of it.
        let block = |page: u64| page / 512;
        let blocks = block(range.start.0)..=block(range.end().0 - 1);
        for ((of, page), known) in &mut self.pages {
            known.used &= *of != asid || !blocks.contains(&block(*page));
        }
        Ok(())
    }

    /// A word by the TLBs, under the card's lock.
    fn access(&mut self, asid: Asid, page: u64, access: Access) -> Result<(), String> {
        let found = self.card.access(PE, asid, PageNo(page), access);
        self.used("an access", asid, page, access, found)
    }

    /// A page was used, or was not there.
    fn used(
        &mut self,
        what: &str,
        asid: Asid,
        page: u64,
        access: Access,
        found: Option<Location>,
    ) -> Result<(), String> {
        let known = self.pages.get_mut(&(asid, page));
        let allowed = known.as_ref().is_some_and(|known| known.rights.allows(access));
        let Some(found) = found else {
            ensure!(
                !allowed || !self.is_ample,
                "{what} to {page:#x} of {asid:?} faults for nothing"
            );
            return Ok(());
        };
        let Some(known) = known.filter(|_| allowed) else {
            return Err(format!("{what} to {page:#x} of {asid:?}: it was taken away: {found:?}"));
        };
        ensure!(found == known.location, "{what}: {page:#x} is at {known:?} and not at {found:?}");
        known.written |= access.is_write();
        known.used = true;
        self.went_through += 1;
        Ok(())
    }

    /// A word without the card's lock: by what is remembered, or by a walk.
    fn word(&mut self, asid: Asid, page: u64, access: Access) -> Option<Location> {
        let (tables, user) = self.hot.as_mut()?;
        let mut word = user.begin();
        if !word.is_undisturbed() {
            word.take_disturbance();
            self.remembers.clear();
        }
        let at = (asid, page / 512);
        let place = match self.remembers.get(&at) {
            Some(&Found::Leaf(table)) => {
                tables.load(table, slot_index(page, 0)).place_for(access, 0)
            }
            Some(&Found::Run { table, index }) => {
                tables.load(table, index).place_for(access, (page % 512) as u32)
            }
            _ => None,
        };
        if let Some(place) = place {
            return Some(tables.location(place));
        }
        self.remembers.insert(at, tables.find(asid, page));
        match tables.walk(asid, PageNo(page), access) {
            Walk::Found(walked) => Some(walked.location),
            _ => None,
        }
    }

    fn group(&mut self, asid: Asid, range: PageRange, access: Access) -> Result<(), String> {
        let Ok(grant) = self.card.acquire(PE, asid, &[(range, access)]) else {
            for page in range.pages() {
                if let Some(known) = self.pages.get_mut(&(asid, page.0)) {
                    known.wanted |= access.is_write();
                }
            }
            return Ok(());
        };
        let _ = self.card.end(grant.access);
        let runs = grant.runs.iter();
        let found = runs.flat_map(|run| (0..run.count).map(|index| run.location.offset(index)));
        let found: Vec<Location> = found.collect();
        ensure!(found.len() as u64 == range.count, "{} of {} pages", found.len(), range.count);
        let mut found = range.pages().zip(found);
        found.try_for_each(|(page, found)| self.used("a group", asid, page.0, access, Some(found)))
    }

    /// A fault that is answered with a page, which may be taken back before its access is resumed.
    fn fault(
        &mut self,
        asid: Asid,
        run: MappedRun,
        access: Access,
        rights: Rights,
        taken_back: bool,
    ) -> Result<(), String> {
        let page = run.page.0;
        let raised = self.card.raise(FAULTING, JOB, asid, Need::Page(run.page, access));
        let Ok(Raised::Queued(fault)) = raised else { return Err(format!("{raised:?}")) };
        ensure!(self.card.take_faults(1).len() == 1, "the fault is not told");
        self.map(asid, run, rights, false)?;
        if taken_back {
            self.unmap(asid, run.pages())?;
        }
        let answer = self.card.resume(fault).pop().ok_or("a fault is not answered")?;
        match answer.outcome {
            Outcome::Granted(grant) => {
                let _ = self.card.end(grant.access);
                self.used("a fault", asid, page, access, Some(grant.runs[0].location))
            }
            outcome => {
                let granted = !taken_back && rights.allows(access);
                ensure!(!granted, "a fault on {page:#x} got its page: {outcome:?}");
                Ok(())
            }
        }
    }

    fn reset(&mut self) {
        let _ = self.card.reset();
        self.pages.clear();
        self.card.launch(FAULTING, JOB).expect("nobody runs after a reset");
    }

    /// Reads every word of the tables: they say what is known, and nothing else.
    fn look(&self) -> Result<(), String> {
        let Some(writer) = self.card.tables() else { return Ok(()) };
        let mut found = 0;
        for asid in (0..ASIDS).map(Asid) {
            for entry in words::entries(writer.tables(), asid)? {
                for index in 0..entry.pages {
                    let page = entry.page + index;
                    let known = self.pages.get(&(asid, page));
                    let known =
                        known.ok_or_else(|| format!("{page:#x} is not mapped: {entry:?}"))?;
                    entry.must_say(index, known, self.card.memory(), self.is_ample)?;
                    found += 1;
                }
            }
        }
        let all = self.pages.len();
        ensure!(!self.is_ample || found == all, "{found} of {all} pages are in the tables");
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        self.look()?;
        for asid in (0..ASIDS).map(Asid) {
            let _ = self.card.unmap_all(CommandId(0), asid);
        }
        if let Some(writer) = self.card.tables_mut() {
            writer.reclaim();
            ensure!(writer.used() == 0, "{} table pages were lost", writer.used());
        }
        Ok(())
    }
}
