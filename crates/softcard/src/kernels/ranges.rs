//! `farside_for_each`: ranges in lock step, as contiguous pieces.

use std::ffi::c_void;

use farside_card::interface::{ArgKind, KernelArg};
use farside_types::PAGE_SIZE;

use super::{KernelArgs, pieces};
use crate::error::KernelError;
use crate::kernel::KernelContext;
use crate::span::{ReadSpan, WriteSpan};
use crate::view::{RangeRequest, ReadView, Request, Runs, Want, WriteView};

/// Ranges of one call.
const RANGES_MAX: u32 = 8;

const READ: u32 = 1;
const WRITE: u32 = 2;

/// `farside_range`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct CRange {
    address: u64,
    bytes: u64,
    element: u32,
    access: u32,
}

/// Ranges that were checked: as many elements each.
#[derive(Debug)]
pub(super) struct Ranges {
    ranges: Vec<CRange>,
    elements: usize,
}

/// What is asked of one `with`.
struct Piece(Vec<PieceRange>);

enum PieceRange {
    Read(ReadSpan<u8>),
    Write(WriteSpan<u8>),
}

enum PieceView<'a> {
    Read(ReadView<'a, u8>),
    Write(WriteView<'a, u8>),
}

impl CRange {
    fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes)
    }

    /// What is wrong with it, if something is.
    fn fault(&self) -> Option<&'static str> {
        let element = u64::from(self.element);
        if !self.element.is_power_of_two() || self.element as usize > PAGE_SIZE {
            Some("its elements have a size that is not 1, 2, 4 and so on to 4096")
        } else if self.address % element != 0 {
            Some("its address is not a multiple of its elements' size")
        } else if self.bytes % element != 0 {
            Some("its length is not a multiple of its elements' size")
        } else if self.address.checked_add(self.bytes).is_none() {
            Some("it goes beyond the last address")
        } else if self.access != READ && self.access != WRITE {
            Some("its access is neither FARSIDE_READ nor FARSIDE_WRITE")
        } else {
            None
        }
    }

    fn elements(&self) -> u64 {
        self.bytes / u64::from(self.element)
    }

    /// Its elements from `first` on.
    fn part(&self, first: usize, count: usize) -> PieceRange {
        let element = self.element as usize;
        let (start, bytes) = (self.address + (first * element) as u64, count * element);
        match self.access {
            READ => PieceRange::Read(ReadSpan::raw(start, bytes)),
            _ => PieceRange::Write(WriteSpan::raw(start, bytes)),
        }
    }

    /// Whether it has bytes that were lent as shared words: nobody makes slices of them.
    fn is_shared(&self, args: &KernelArgs) -> bool {
        args.records()
            .iter()
            .filter(|arg| arg.kind == ArgKind::Shared)
            .any(|arg| self.address < arg.word.saturating_add(arg.bytes) && arg.word < self.end())
    }
}

impl Ranges {
    /// The ranges that a kernel passed.
    ///
    /// # Safety
    /// `ranges` is null or points to `count` ranges.
    pub(super) unsafe fn of(
        args: &KernelArgs,
        ranges: *const CRange,
        count: u32,
    ) -> Result<Ranges, KernelError> {
        if ranges.is_null() || count == 0 || count > RANGES_MAX {
            let why = format!("farside_for_each takes 1 to {RANGES_MAX} ranges, not {count}");
            let null = if ranges.is_null() { " at NULL" } else { "" };
            return Err(args.bad(why + null));
        }
        // SAFETY: passed on to the caller.
        let ranges = unsafe { std::slice::from_raw_parts(ranges, count as usize) }.to_vec();
        Ranges::check(args, ranges)
    }

    /// All memory that was lent, argument by argument.
    pub(super) fn lent(args: &KernelArgs) -> Result<Ranges, KernelError> {
        let of = |arg: &KernelArg| {
            let access = match arg.kind {
                ArgKind::Value => return None,
                ArgKind::Write => WRITE,
                // Shared words are refused below.
                ArgKind::Read | ArgKind::Shared => READ,
            };
            Some(CRange { address: arg.word, bytes: arg.bytes, element: arg.element, access })
        };
        let ranges: Vec<CRange> = args.records().iter().filter_map(of).collect();
        if ranges.is_empty() || ranges.len() > RANGES_MAX as usize {
            let lent = ranges.len();
            let why = format!("it takes 1 to {RANGES_MAX} ranges of memory and was lent {lent}");
            return Err(args.bad(why));
        }
        Ranges::check(args, ranges)
    }

    /// Elements of each range.
    pub(super) fn elements(&self) -> u64 {
        self.elements as u64
    }

    fn check(args: &KernelArgs, ranges: Vec<CRange>) -> Result<Ranges, KernelError> {
        let elements =
            ranges.first().map_or(0, |range| range.bytes / u64::from(range.element.max(1)));
        for (index, range) in ranges.iter().enumerate() {
            let bad = |why: &str| {
                let CRange { address, bytes, element, .. } = range;
                args.bad(format!(
                    "range {index} (from 0 on) of farside_for_each, {bytes} bytes at {address:#x} \
                     in elements of {element}: {why}"
                ))
            };
            if let Some(why) = range.fault() {
                return Err(bad(why));
            }
            if range.elements() != elements {
                return Err(bad(&format!("range 0 has {elements} elements, and it has not")));
            }
            if range.is_shared(args) {
                return Err(bad("it was lent as shared words; use farside_load, farside_store, \
                     farside_fetch_add and farside_compare_exchange"));
            }
        }
        let elements = usize::try_from(elements)
            .map_err(|_| args.bad("a range has more elements than there are addresses"))?;
        Ok(Ranges { ranges, elements })
    }

    /// Calls `body` with pointers to contiguous pieces, the first element's number and how many
    /// there are, until it gives something other than 0 or all is done.
    pub(super) fn for_each(
        &self,
        k: &mut KernelContext,
        mut body: impl FnMut(&[*mut c_void], u64, u64) -> i32,
    ) -> Result<i32, KernelError> {
        let bytes = self.ranges.iter().map(|range| range.element as usize).sum();
        for piece in pieces(self.elements, bytes) {
            let part = |range: &CRange| range.part(piece.start, piece.len());
            let request = Piece(self.ranges.iter().map(part).collect());
            let code = k.with(request, |views| self.walk(views, piece.start, &mut body))?;
            if code != 0 {
                return Ok(code);
            }
        }
        Ok(0)
    }

    /// Goes over the contiguous pieces of views in lock step.
    fn walk(
        &self,
        views: Vec<PieceView<'_>>,
        mut first: usize,
        body: &mut impl FnMut(&[*mut c_void], u64, u64) -> i32,
    ) -> i32 {
        let mut walks: Vec<Walk> = views.into_iter().map(Walk::new).collect();
        let mut pointers = vec![std::ptr::null_mut(); walks.len()];
        loop {
            let left = walks.iter().zip(&self.ranges);
            let count = left.map(|(walk, range)| walk.bytes() / range.element as usize).min();
            let count = match count {
                None | Some(0) => return 0,
                Some(count) => count,
            };
            for ((walk, range), pointer) in walks.iter_mut().zip(&self.ranges).zip(&mut pointers) {
                *pointer = walk.take(count * range.element as usize);
            }
            let code = body(&pointers, first as u64, count as u64);
            if code != 0 {
                return code;
            }
            first += count;
        }
    }
}

/// The runs of a view that have not been gone over yet, the next one last.
struct Walk<'a> {
    runs: Vec<(*mut u8, usize)>,
    /// What the pointers point to is held by it.
    _view: PieceView<'a>,
}

impl<'a> Walk<'a> {
    fn new(mut view: PieceView<'a>) -> Walk<'a> {
        let mut runs: Vec<(*mut u8, usize)> = match &mut view {
            PieceView::Read(view) => {
                view.pieces().map(|run| (run.as_ptr().cast_mut(), run.len())).collect()
            }
            PieceView::Write(view) => {
                view.pieces().map(|run| (run.as_mut_ptr(), run.len())).collect()
            }
        };
        runs.reverse();
        Walk { runs, _view: view }
    }

    /// Bytes that follow one another from here on.
    fn bytes(&self) -> usize {
        self.runs.last().map_or(0, |(_, bytes)| *bytes)
    }

    /// The pointer to the next `bytes` bytes, of which there are so many.
    fn take(&mut self, bytes: usize) -> *mut c_void {
        let Some((start, left)) = self.runs.last_mut() else {
            return std::ptr::null_mut();
        };
        let here = *start;
        *start = here.wrapping_add(bytes);
        *left -= bytes;
        if *left == 0 {
            self.runs.pop();
        }
        here.cast()
    }
}

impl Request for Piece {
    type Views<'a> = Vec<PieceView<'a>>;
    type Wants = Vec<Want>;

    fn wants(&self) -> Vec<Want> {
        let want = |range: &PieceRange| match range {
            PieceRange::Read(span) => span.want(),
            PieceRange::Write(span) => span.want(),
        };
        self.0.iter().map(want).collect()
    }

    fn views<'a>(self, runs: &mut Runs<'a>) -> Vec<PieceView<'a>> {
        let view = |range| match range {
            PieceRange::Read(span) => PieceView::Read(span.view(runs)),
            PieceRange::Write(span) => PieceView::Write(span.view(runs)),
        };
        self.0.into_iter().map(view).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn args() -> KernelArgs {
        let shared = KernelArg { kind: ArgKind::Shared, element: 8, word: 0x8000, bytes: 0x100 };
        // SAFETY: no job is granted what it names.
        unsafe { KernelArgs::new("k".into(), vec![shared]) }.expect("the record is sound")
    }

    fn range(address: u64, bytes: u64, element: u32, access: u32) -> CRange {
        CRange { address, bytes, element, access }
    }

    #[test]
    fn ranges_that_cannot_be_are_refused_by_number() {
        let good = range(0x1000, 64, 8, READ);
        for (bad, why) in [
            (range(0x1000, 24, 3, READ), "1, 2, 4"),
            (range(0x1000, 0, 0, READ), "1, 2, 4"),
            (range(0x2000, 8192 * 8, 8192, READ), "1, 2, 4"),
            (range(0x1004, 64, 8, READ), "address is not a multiple"),
            (range(0x1000, 63, 8, READ), "length is not a multiple"),
            (range(u64::MAX - 7, 64, 8, READ), "beyond the last address"),
            (range(0x1000, 64, 8, 0), "neither"),
            (range(0x1000, 64, 8, 3), "neither"),
            (range(0x1000, 72, 8, READ), "range 0 has 8 elements"),
            (range(0x80f8, 64, 8, READ), "shared words"),
            (range(0x7fc8, 64, 8, WRITE), "shared words"),
        ] {
            let told = Ranges::check(&args(), vec![good, bad]).unwrap_err().to_string();
            assert!(told.contains("range 1") && told.contains(why), "{bad:?}: {told}");
        }
        for good in [range(0x8100, 64, 8, WRITE), range(0x7fc0, 64, 8, READ)] {
            assert_eq!(Ranges::check(&args(), vec![good]).unwrap().elements, 8, "{good:?}");
        }
    }

    #[test]
    fn a_kernel_passes_one_to_eight_ranges() {
        let ranges = [range(0x1000, 64, 8, READ); 9];
        let of = |count| {
            // SAFETY: there are as many.
            unsafe { Ranges::of(&args(), ranges.as_ptr(), count) }.map(|ranges| ranges.ranges.len())
        };
        assert_eq!((of(1), of(8)), (Ok(1), Ok(8)));
        assert!(of(0).is_err() && of(9).is_err());
        // SAFETY: null is looked for before anything is read.
        let null = unsafe { Ranges::of(&args(), std::ptr::null(), 1) };
        assert!(null.unwrap_err().to_string().contains("NULL"));
    }

    proptest! {
        #[test]
        fn hostile_ranges_are_refused_or_are_whole(
            address in any::<u64>(),
            bytes in prop_oneof![0u64..10_000, any::<u64>()],
            element in prop_oneof![0u32..=8, any::<u32>()],
            access in 0u32..4,
        ) {
            let given = range(address, bytes, element, access);
            if let Ok(ranges) = Ranges::check(&args(), vec![given]) {
                prop_assert_eq!(ranges.elements as u64 * u64::from(element), bytes);
                prop_assert!(address.checked_add(bytes).is_some());
                prop_assert!(given.end() <= 0x8000 || address >= 0x8100);
                prop_assert_eq!(address % u64::from(element), 0);
            }
        }
    }
}
