//! What the frame store says to a run of requests, for the bench of the one in VHDL
//! (`rtl/test/tb_frame_store.vhd`), which has to say the same.

use std::fmt::Write;
use std::path::Path;

use super::seeds::inputs;
use crate::window::alloc::frames::FrameStore;

const FRAMES: u32 = 100;
/// Those that are always in use.
const FIXED: u64 = 10;
const STEPS: usize = 3000;

/// A line for each request: 1 for one that gives back, the size, the hint or what is given back (-1: no
/// hint), frames that are promised; then whether there was such a run, and its first frame.
fn trace() -> String {
    let mut store = FrameStore::new(&[FRAMES]);
    store.take_fixed(0, FIXED);
    let mut text = String::new();
    let mut fills = true;
    for [kind, size, first, promise] in inputs(1, STEPS) {
        // Through full and empty.
        fills = store.available(0) != 0 && (fills || store.available(0) > 70 || kind == 0);
        let size = u32::from(if size < 128 { 0 } else { size % 9 });
        let first = u32::from(first) % 128;
        let aligned = first - first % (1 << size.min(7));
        let gives = (kind % 4 == 0) == fills;
        if gives {
            let good = store.give_back(0, aligned, size);
            writeln!(text, "1 {size} {aligned} 0 {} {aligned}", u8::from(good)).unwrap();
            continue;
        }
        let hint = (kind % 3 == 0).then_some(aligned);
        let promised = u64::from(if promise < 16 { promise } else { 0 }).min(store.available(0));
        store.reserve(0, promised);
        let taken = store.take(0, size, hint);
        store.unreserve(0, promised);
        let hint = hint.map_or(-1, i64::from);
        let (ok, frame) = (u8::from(taken.is_some()), taken.unwrap_or(0));
        writeln!(text, "0 {size} {hint} {promised} {ok} {frame}").unwrap();
    }
    text
}

/// `FARSIDE_WRITE_TRACE=1` writes the file anew.
#[test]
fn the_bench_has_what_the_model_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rtl/test/frame_store.trace");
    let trace = trace();
    if std::env::var_os("FARSIDE_WRITE_TRACE").is_some() {
        std::fs::write(&path, &trace).unwrap();
    }
    let given = trace.lines().filter(|line| line.starts_with("0") && line.contains(" 1 "));
    assert!(given.count() > STEPS / 10, "runs are given");
    assert!(std::fs::read_to_string(path).unwrap() == trace, "it is of another model");
}
