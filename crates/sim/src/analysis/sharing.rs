//! Pages by who shares and who writes them, and what share of the accesses goes to them.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::choose::{typical_shared, typical_written};
use super::over_time::{Attributes, OverTime, PageOverTime};
use farside_workloads::order::{Access, shared_accesses};
use farside_workloads::{BufferKind, LINE_BYTES, Workload, first_lines};

/// Lines of a page of 4 KiB.
const PAGE_LINES: u32 = 4096 / LINE_BYTES as u32;

/// An access, as far as sharing is about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The GPU, from 0, less than 16.
    pub gpu: u8,
    /// The page: pages are numbered through the buffers that GPUs share, without the gaps between
    /// them.
    pub page: u32,
    /// Whether it is written.
    pub write: bool,
}

/// How much is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharingOptions {
    /// Intervals of equal numbers of accesses. The paper's figures have 50.
    pub intervals: u32,
    /// Pages whose attributes over time are wanted; `None`: the first 4000, as many as in the
    /// paper's Figures 6 to 8.
    pub pages: Option<Range<u32>>,
}

impl Default for SharingOptions {
    fn default() -> SharingOptions {
        SharingOptions { intervals: 50, pages: None }
    }
}

/// The pages of a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// What the buffer holds.
    pub name: String,
    /// Its first page.
    pub first: u32,
    /// How many it has.
    pub pages: u32,
}

/// Pages of one kind, and the accesses to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Pages.
    pub pages: u64,
    /// Accesses to them during the whole execution.
    pub accesses: u64,
}

/// Kinds of pages, by the whole execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Accessed by one GPU (GRIT, section IV-A).
    Private,
    /// Accessed by more than one GPU.
    Shared,
    /// Only read (GRIT, section IV-B).
    Read,
    /// Written at least once.
    ReadWrite,
}

/// Who shares and who writes the pages of a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharing {
    /// The workload.
    pub workload: String,
    /// GPUs that it runs on.
    pub gpus: u32,
    /// Accesses of lines.
    pub accesses: u64,
    /// Of these, writes.
    pub writes: u64,
    /// The buffers that GPUs share, in the order of allocation.
    pub buffers: Vec<Extent>,
    /// Pages by number of sharers: those of one GPU first.
    pub by_sharers: Vec<Share>,
    /// The same, of pages that are only read.
    pub read_by_sharers: Vec<Share>,
    /// The attributes of consecutive pages over time (Figures 6 to 8).
    pub attributes: Attributes,
    /// A typical shared page over time (Figure 5): see [`PageOverTime::rule`].
    pub shared_page: Option<PageOverTime>,
    /// A typical page that is read and written (Figure 10).
    pub read_write_page: Option<PageOverTime>,
}

/// What is known of a page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) gpus: u16,
    pub(super) reads: u32,
    pub(super) writes: u32,
}

impl Seen {
    pub(super) fn accesses(&self) -> u64 {
        u64::from(self.reads) + u64::from(self.writes)
    }

    pub(super) fn sharers(&self) -> u32 {
        self.gpus.count_ones()
    }
}

impl Sharing {
    /// Looks at a workload on so many GPUs of so many compute units, in the order of a functional
    /// replay. It is gone through twice; nothing is stored per access. Buffers of which every GPU
    /// has its own copy are left out.
    #[must_use]
    pub fn of(workload: &dyn Workload, gpus: u32, units: u32, options: &SharingOptions) -> Sharing {
        let mut buffers: Vec<Extent> = Vec::new();
        let mut firsts = Vec::new();
        for (buffer, line) in workload.buffers().iter().zip(first_lines(workload.buffers())) {
            if buffer.kind == BufferKind::Launch {
                continue;
            }
            let first = buffers.last().map_or(0, |last| last.first + last.pages);
            let pages = buffer.bytes.div_ceil(4096) as u32;
            buffers.push(Extent { name: buffer.name.clone(), first, pages });
            firsts.push(line);
        }
        // A line between two buffers, which no correct workload accesses, has no page.
        let touch = |access: Access| {
            let buffer = firsts.partition_point(|first| *first <= access.line).checked_sub(1)?;
            let page = (access.line.0 - firsts[buffer].0) / PAGE_LINES;
            let page = (page < buffers[buffer].pages).then_some(buffers[buffer].first + page)?;
            Some(Touch { gpu: access.place.gpu, page, write: access.write })
        };
        let touches = || shared_accesses(workload, gpus, units).filter_map(touch);
        Sharing::from_touches(workload.name(), gpus, buffers.clone(), touches, options)
    }

    /// Looks at accesses, which must come out the same each time `touches` is called. Those of
    /// pages beyond the buffers do not count.
    #[must_use]
    pub fn from_touches<I: Iterator<Item = Touch>>(
        workload: &str,
        gpus: u32,
        buffers: Vec<Extent>,
        touches: impl Fn() -> I,
        options: &SharingOptions,
    ) -> Sharing {
        let pages = buffers.last().map_or(0, |last| last.first + last.pages);
        let seen = look(pages, touches());
        let total = seen.iter().map(Seen::accesses).sum();
        let shared = typical_shared(&seen, gpus);
        let written = typical_written(&seen);
        let range = options.pages.clone().unwrap_or(0..4_000);
        let range = range.start.min(pages)..range.end.min(pages);
        let mut over_time = OverTime::new(options.intervals.max(1), total, range, gpus);
        let followed: Vec<u32> =
            [&shared, &written].into_iter().flatten().map(|c| c.page).collect();
        over_time.follow(&followed);
        let counted = touches().filter(|touch| touch.page < pages);
        counted.for_each(|touch| over_time.add(touch));
        Sharing {
            workload: workload.to_owned(),
            gpus,
            accesses: total,
            writes: seen.iter().map(|page| u64::from(page.writes)).sum(),
            buffers,
            by_sharers: by_sharers(gpus, seen.iter()),
            read_by_sharers: by_sharers(gpus, seen.iter().filter(|page| page.writes == 0)),
            shared_page: shared.map(|choice| over_time.page(choice)),
            read_write_page: written.map(|choice| over_time.page(choice)),
            attributes: over_time.attributes(),
        }
    }

    /// The pages of a kind, and the accesses to them.
    #[must_use]
    pub fn share(&self, kind: Kind) -> Share {
        let sum = |shares: &[Share]| {
            shares.iter().fold(Share::default(), |sum, share| Share {
                pages: sum.pages + share.pages,
                accesses: sum.accesses + share.accesses,
            })
        };
        match kind {
            Kind::Private => sum(&self.by_sharers[..self.by_sharers.len().min(1)]),
            Kind::Shared => sum(self.by_sharers.get(1..).unwrap_or_default()),
            Kind::Read => sum(&self.read_by_sharers),
            Kind::ReadWrite => {
                let (all, read) = (self.all(), sum(&self.read_by_sharers));
                Share { pages: all.pages - read.pages, accesses: all.accesses - read.accesses }
            }
        }
    }

    /// The pages that are accessed at all, and the accesses to them.
    #[must_use]
    pub fn all(&self) -> Share {
        let (private, shared) = (self.share(Kind::Private), self.share(Kind::Shared));
        Share { pages: private.pages + shared.pages, accesses: private.accesses + shared.accesses }
    }

    /// As JSON, indented.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Numbers, strings and lists: writing them has no way to fail.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

fn look(pages: u32, touches: impl Iterator<Item = Touch>) -> Vec<Seen> {
    let mut seen = vec![Seen::default(); pages as usize];
    for touch in touches {
        if let Some(page) = seen.get_mut(touch.page as usize) {
            page.gpus |= 1 << (touch.gpu & 15);
            let count = if touch.write { &mut page.writes } else { &mut page.reads };
            *count = count.saturating_add(1);
        }
    }
    seen
}

fn by_sharers<'a>(gpus: u32, pages: impl Iterator<Item = &'a Seen>) -> Vec<Share> {
    let mut shares = vec![Share::default(); gpus as usize];
    for page in pages {
        let share = page.sharers().checked_sub(1).and_then(|n| shares.get_mut(n as usize));
        if let Some(share) = share {
            share.pages += 1;
            share.accesses += page.accesses();
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_workloads::{BLOCK_LINES, Group, Line, Place, Script, Step};

    fn touch(gpu: u8, page: u32, write: bool) -> Touch {
        Touch { gpu, page, write }
    }

    /// Two buffers of 3 and 5 pages on 4 GPUs.
    pub(in super::super) fn looked_at(touches: &[Touch], intervals: u32) -> Sharing {
        let extent = |name: &str, first, pages| Extent { name: name.to_owned(), first, pages };
        let buffers = vec![extent("a", 0, 3), extent("b", 3, 5)];
        let options = SharingOptions { intervals, pages: None };
        Sharing::from_touches("test", 4, buffers, || touches.iter().copied(), &options)
    }

    #[test]
    fn pages_are_private_or_shared_read_or_written_by_the_whole_execution() {
        let sharing = looked_at(
            &[
                touch(0, 0, false),
                touch(0, 0, false),
                touch(1, 3, false),
                touch(2, 3, false),
                touch(3, 3, false),
                touch(1, 7, true),
                touch(0, 7, false),
                touch(2, 5, true),
                touch(0, 99, true),
            ],
            2,
        );
        let share = |pages, accesses| Share { pages, accesses };
        assert_eq!((sharing.accesses, sharing.writes), (8, 2));
        assert_eq!(sharing.by_sharers, [share(2, 3), share(1, 2), share(1, 3), share(0, 0)]);
        assert_eq!(sharing.share(Kind::Private), share(2, 3));
        assert_eq!(sharing.share(Kind::Shared), share(2, 5));
        assert_eq!(sharing.share(Kind::Read), share(2, 5));
        assert_eq!(sharing.share(Kind::ReadWrite), share(2, 3));
        assert_eq!(sharing.all(), share(4, 8));
    }

    #[test]
    fn attributes_are_those_of_the_interval() {
        let sharing = looked_at(
            &[
                touch(0, 0, false),
                touch(1, 0, false),
                touch(2, 1, true),
                touch(1, 0, false),
                touch(1, 7, true),
                touch(0, 7, false),
            ],
            2,
        );
        assert_eq!(sharing.attributes.rows, ["sP......", "p......S"]);
        assert_eq!(sharing.attributes.first, 0);
    }

    #[test]
    fn nothing_at_all_has_no_typical_page() {
        let sharing = looked_at(&[], 50);
        assert_eq!(sharing.all(), Share::default());
        assert_eq!((sharing.shared_page, sharing.read_write_page), (None, None));
        assert_eq!(sharing.attributes.rows, vec!["........"; 50]);
    }

    /// The output of a filter is divided among the GPUs, its few taps are read by all.
    #[test]
    fn a_filter_has_private_pages_for_its_data_and_shared_ones_for_its_taps() {
        let fir = farside_workloads::catalog::by_name("fir", Some(4 << 20)).unwrap();
        let sharing = Sharing::of(&*fir, 4, 4, &SharingOptions::default());
        let counted = shared_accesses(&*fir, 4, 4);
        assert_eq!(sharing.all().accesses, counted.count() as u64);
        let (private, shared) = (sharing.share(Kind::Private), sharing.share(Kind::Shared));
        assert!(private.pages > 100 * shared.pages, "{sharing}");
        assert!(sharing.by_sharers[3].pages > 0, "{sharing}");
        let pages: u32 = sharing.buffers.iter().map(|buffer| buffer.pages).sum();
        assert!(sharing.all().pages <= u64::from(pages), "{sharing}");
        let width = sharing.attributes.rows[0].len();
        assert_eq!((sharing.attributes.rows.len(), width), (50, pages.min(4_000) as usize));
    }

    /// A buffer that all share behind one of which each GPU has its own copy.
    #[test]
    fn buffers_of_each_gpu_are_left_out() {
        let group = |gpu, line| Group {
            place: Some(Place { gpu, unit: 0 }),
            waves: vec![vec![Step::LoadScalar(vec![Line(0)]), Step::Store(vec![Line(line)])]],
        };
        let data = BLOCK_LINES;
        let groups = (0..4).map(|gpu| group(gpu, data + 64 * (u32::from(gpu) / 2))).collect();
        let script = Script::new("script", &[4096, 4 * 4096]).with_launch(groups);
        let of = |script: &Script| Sharing::of(script, 4, 1, &SharingOptions::default());
        let (with, without) = (of(&script), of(&script.clone().per_gpu(0)));
        assert_eq!((with.accesses, with.writes, with.buffers.len()), (8, 4, 2));
        assert_eq!((without.accesses, without.writes), (4, 4));
        assert_eq!(without.buffers, [Extent { name: "script-1".to_owned(), first: 0, pages: 4 }]);
        let share = |pages, accesses| Share { pages, accesses };
        assert_eq!(without.by_sharers, [share(0, 0), share(2, 4), share(0, 0), share(0, 0)]);
        assert_eq!(with.by_sharers[3], share(1, 4), "the arguments, as data that all read");
    }

    #[test]
    fn json_reads_back_as_the_same() {
        let sharing = looked_at(&[touch(0, 0, true), touch(1, 0, false)], 3);
        assert_eq!(serde_json::from_str::<Sharing>(&sharing.to_json()).unwrap(), sharing);
        assert!(sharing.shared_page.is_some() && sharing.read_write_page.is_some());
    }
}
