//! Three ways to manage a card's memory under allocation traces: a heap, segments of extents, and pages. The thesis
//! estimates them in its Table 3.1; here they run. Pages are the allocator's model itself.
//!
//! `scripts/rtl/report.sh` runs the long form, which writes the table of `docs/reproduction.md`.

mod heap;
mod holes;
mod paged;
#[path = "../random/mod.rs"]
mod random;
mod replay;
mod segments;
mod trace;

use heap::Heap;
use paged::Paged;
use replay::{Replayed, replay};
use segments::Segments;
use trace::Trace;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// A bank of the card's memory in the thesis.
const MEMORY: u64 = 16 * GIB;

/// A buffer of a trace.
type Buffer = u32;

/// Why a buffer does not get its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Refused;

/// A way to manage a memory.
trait Technique {
    /// Memory for so many bytes of a buffer, all told; a new buffer begins with it. The bytes that were copied for it.
    fn grow(&mut self, buffer: Buffer, bytes: u64) -> Result<u64, Refused>;
    /// The buffer is used no more.
    fn free(&mut self, buffer: Buffer);
    /// Bytes of the memory that are not free.
    fn taken(&self) -> u64;
    /// What a random access to the buffer looks up: steps of a search, or words of a table.
    fn steps(&self, buffer: Buffer) -> u64;
}

/// All ways, each with its name.
fn techniques(memory: u64) -> Vec<(&'static str, Box<dyn Technique>)> {
    vec![
        ("heap (d = 2)", Box::new(Heap::new(memory, false))),
        ("heap (d = 2), grown in place where it can be", Box::new(Heap::new(memory, true))),
        ("segments with extents", Box::new(Segments::new(memory))),
        ("pages of 4 MiB", Box::new(Paged::new(memory))),
    ]
}

#[test]
fn each_way_keeps_what_the_thesis_says_of_it() {
    let trace = Trace::growing(MEMORY, 300, 1);
    let of = |name: &str| -> Replayed {
        let (_, mut technique) =
            techniques(MEMORY).into_iter().find(|(found, _)| *found == name).expect("a technique");
        replay(&trace, technique.as_mut())
    };
    let heap = of("heap (d = 2)");
    // Equation 3.2; the smallest buffers begin with an eighth of themselves, which is not copied.
    let amplification = heap.amplification();
    assert!((1.875..3.0).contains(&amplification), "{heap:?}");
    let in_place = of("heap (d = 2), grown in place where it can be");
    assert!(in_place.amplification() < amplification, "{in_place:?}");
    for name in ["segments with extents", "pages of 4 MiB"] {
        let moved = of(name);
        assert_eq!((moved.copied, moved.refused_for_shape), (0, 0), "{name}: {moved:?}");
        assert!(moved.overhead() < 0.07, "{name}: {moved:?}");
    }
}

#[test]
fn a_heap_refuses_what_would_fit_in_pieces_and_pages_do_not() {
    let trace = Trace::known(MEMORY, 2000, 1);
    for (name, mut technique) in techniques(MEMORY) {
        let replayed = replay(&trace, technique.as_mut());
        let is_heap = name.starts_with("heap");
        assert_eq!(replayed.refused_for_shape > 0, is_heap, "{name}: {replayed:?}");
    }
}

#[test]
#[ignore = "scripts/rtl/report.sh runs it, for docs/reproduction.md"]
fn table_3_1_again() {
    println!(
        "| trace | technique | write throughput | memory beyond what is used | refused though there is room | steps of a look-up |"
    );
    println!("|---|---|---|---|---|---|");
    let traces = [
        ("growing", Trace::growing(MEMORY, 3000, 42)),
        ("size known", Trace::known(MEMORY, 20_000, 42)),
    ];
    for (kind, trace) in &traces {
        for (name, mut technique) in techniques(MEMORY) {
            let replayed = replay(trace, technique.as_mut());
            println!(
                "| {kind} | {name} | {:.0} % | {:.1} % | {:.1} % | {:.1} |",
                100.0 / replayed.amplification(),
                100.0 * replayed.overhead(),
                100.0 * replayed.refused_for_shape as f64 / replayed.requests as f64,
                replayed.steps()
            );
        }
    }
}
