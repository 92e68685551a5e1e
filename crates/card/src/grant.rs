//! Memory that a processing element holds: translated, and in flight until it is ended.

use farside_types::{Access, List, PageNo, PageRange, PeId};

use crate::{AccessId, Location, MappedRun};

/// Memory held by a processing element. The access is in flight, so that drains wait for it, until
/// [`crate::Card::end`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Names the access in flight.
    pub access: AccessId,
    /// Who holds it.
    pub pe: PeId,
    /// Where the pages are: range by range in the order of the need, each range as few runs as its
    /// frames allow. Runs of different ranges are not merged.
    pub runs: List<MappedRun>,
}

/// Translates every page of `needs`, or nothing. `find` gives the location of a page with the
/// rights for an access, and for how many pages (at most the count it is given) it goes on.
pub(crate) fn translate(
    needs: impl Iterator<Item = (PageRange, Access)>,
    mut find: impl FnMut(PageNo, Access, u64) -> Option<(Location, u32)>,
) -> Option<List<MappedRun>> {
    let mut runs: List<MappedRun> = List::new();
    for (range, access) in needs {
        let first = runs.len();
        let mut done = 0;
        while done < range.count {
            let page = range.start.offset(done);
            let (location, count) = find(page, access, range.count - done)?;
            let run = MappedRun::new(page, count, location);
            done += u64::from(count);
            let joined = runs[first..].last().and_then(|last| last.joined(&run));
            match (joined, runs.last_mut()) {
                (Some(joined), Some(last)) => *last = joined,
                _ => runs.push(run),
            }
        }
    }
    Some(runs)
}
