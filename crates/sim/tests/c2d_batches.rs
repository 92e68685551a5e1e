//! C2D of several batches (`c2d-batches`): in the same buffers a batch writes what the one before has read, so that pages
//! lose their copies and are copied again, as GRIT's section IV-A says of C2D. Of one batch none is.

use std::sync::Arc;

use farside_sim::{Outcome, Simulation, Spec, scheme};
use farside_workloads::{Workload, catalog};

const BYTES: u64 = 8 << 20;

fn duplication(workload: &str) -> Outcome {
    let spec = Spec::preset("grit-table-1").unwrap();
    // What is evicted is gone before it is written again.
    let spec = spec.with_overrides(&[("gpu.capacity_percent", "400")]).unwrap();
    let (placement, machine) = scheme::resolve("duplication", &spec).unwrap();
    let workload: Arc<dyn Workload> = catalog::by_name(workload, Some(BYTES)).unwrap();
    let run = Simulation::with_placement(&machine, &workload, placement, true).unwrap();
    run.run(|_| ()).unwrap()
}

#[test]
fn a_third_of_the_pages_of_two_batches_collapse_and_are_copied_again_and_none_of_one() {
    let [one, two] = ["c2d", "c2d-batches"].map(duplication);
    assert_eq!(one.copied_again, 0);
    assert_eq!(one.pages.abs_diff(two.pages), 0, "in the same buffers");
    assert!(3 * two.copied_again > two.pages, "{} of {}", two.copied_again, two.pages);
}
