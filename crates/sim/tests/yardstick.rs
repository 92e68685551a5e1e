//! The rule of twelve lines (`copy-move-map`) by hand: read, copy; write, move; after one foreign write, map for good.

use farside_sim::functional::{Counts, Options, replay};
use farside_sim::scheme::by_name;
use farside_workloads::{Group, Line, Place, Script, Step};

/// GPUs that access the first line of a page, one after the other, each for writing or not.
fn counts(accesses: &[(u8, bool)]) -> Counts {
    let launch = |script: Script, &(gpu, write): &(u8, bool)| {
        let lines = vec![Line(0)];
        let step = if write { Step::Store(lines) } else { Step::Load(lines) };
        let place = Some(Place { gpu, unit: 0 });
        script.with_launch(vec![Group { place, waves: vec![vec![step]] }])
    };
    let script = accesses.iter().fold(Script::new("by-hand", &[4096]), launch);
    replay(&script, "copy-move-map", &Options::default()).unwrap().total
}

const READ: bool = false;
const WRITE: bool = true;

#[test]
fn what_is_read_is_copied_and_what_is_written_moves() {
    let read = counts(&[(0, READ), (1, READ), (2, READ), (0, READ)]);
    assert_eq!((read.duplications, read.migrations, read.remote), (3, 0, 0));
    assert_eq!(read.faults(), 3);
    let own = counts(&[(0, WRITE), (0, READ), (0, WRITE)]);
    assert_eq!((own.migrations, own.faults(), own.remote), (1, 1, 0));
}

#[test]
fn after_one_foreign_write_a_page_is_mapped_for_good() {
    let turns = [(0, WRITE), (1, WRITE), (0, READ), (2, WRITE), (0, WRITE), (1, WRITE)];
    let counted = counts(&turns);
    // From the host to GPU 0, from there to GPU 1; then GPU 0 and GPU 2 map it.
    assert_eq!((counted.migrations, counted.remote_maps, counted.remote), (2, 2, 3));
    assert_eq!(counted.faults(), 4);
    // A copy that is written takes the others away, and is such a write.
    let copied = counts(&[(0, READ), (1, READ), (0, WRITE), (1, READ), (1, WRITE)]);
    assert_eq!((copied.remote_maps, copied.remote), (1, 2));
}

#[test]
fn its_memory_is_stored_and_that_of_another_refused() {
    let scheme = by_name("copy-move-map").unwrap();
    let mut other = by_name("copy-move-map").unwrap();
    other.restore_state(scheme.save_state()).unwrap();
    let foreign = by_name("griffin-dpc").unwrap().save_state();
    assert!(other.restore_state(foreign).unwrap_err().contains("copy-move-map"));
}
