//! BFS with the graph that the published benchmark makes (`bfs-chain`): where the next work-group goes to whoever has room,
//! as GRIT's section III-B has it, the pages of levels are what section III says of BFS: shared, by few accesses, and read.

use std::sync::Arc;

use farside_sim::{Outcome, Simulation, Spec, scheme};
use farside_workloads::{Workload, catalog};

/// Twice as many work-groups as four small GPUs hold at once.
const BYTES: u64 = 2 << 20;
const UNITS: (&str, &str) = ("gpu.compute_units", "16");
/// Pages of levels, which are half of the data.
const LEVELS: u64 = BYTES / 2 / 4096;

fn run(scheme: &str, dispatch: &str) -> Outcome {
    let spec = Spec::preset("grit-paper").unwrap();
    let spec = spec.with_overrides(&[("gpu.dispatch", dispatch), UNITS]).unwrap();
    let (placement, machine) = scheme::resolve(scheme, &spec).unwrap();
    let workload: Arc<dyn Workload> = catalog::by_name("bfs-chain", Some(BYTES)).unwrap();
    let run = Simulation::with_placement(&machine, &workload, placement, true).unwrap();
    run.run(|_| ()).unwrap()
}

#[test]
fn where_groups_go_to_whoever_has_room_its_pages_are_shared_and_copies_are_best() {
    let [on_touch, counter, copies] =
        ["on-touch", "access-counter", "duplication"].map(|scheme| run(scheme, "fill"));
    assert!(on_touch.total.faults > 2 * LEVELS, "{} faults", on_touch.total.faults);
    let best = counter.time.min(on_touch.time);
    assert!(copies.time < best, "{:?}, and not {best:?}", copies.time);
}

#[test]
fn with_fixed_parts_of_each_launch_nothing_of_it_is_shared() {
    for dispatch in ["partition", "chunks"] {
        let outcome = run("on-touch", dispatch);
        let faults = outcome.total.faults;
        assert!((LEVELS..LEVELS + 8).contains(&faults), "{dispatch}: {faults} faults");
    }
}
