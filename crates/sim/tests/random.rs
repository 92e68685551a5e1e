//! Machines and traces drawn at random: whatever the values are, every access is carried out, sees
//! the newest version of its page (the coherence checker is on), and the driver's tables are right
//! in the end. `PROPTEST_CASES=20000` runs more of them.

use std::sync::Arc;

use farside_sim::{Access, SCHEMES, Simulation, Spec, Trace};
use farside_svm::placement::by_name;
use proptest::prelude::*;

const PAGES: u32 = 96;

/// Per launch, who accesses what.
type Launches = Vec<Vec<(u8, u8, Access)>>;

/// Up to three launches on `gpus` GPUs of eight compute units.
fn traces(gpus: u8) -> impl Strategy<Value = Launches> {
    let access = (0..gpus, 0u8..8, 0..PAGES, prop::bool::weighted(0.3));
    let access = access.prop_map(|(gpu, unit, page, write)| {
        // Half of all accesses go to a few pages, so that there is something to fight over.
        let page = if page % 2 == 0 { page % 8 } else { page };
        (gpu, unit, Access { page, bytes: 64, write })
    });
    prop::collection::vec(prop::collection::vec(access, 0..400), 1..4)
}

fn specs(gpus: u8) -> impl Strategy<Value = Spec> {
    let gpu = (prop::sample::select(vec![1u32, 2, 5, 20, 70, 300]), 1u32..48);
    let counter = (1u32..64, 0u32..6);
    let driver = (
        prop::sample::select(vec![1u32, 3, 256]),
        prop::sample::select(vec![0u64, 50_000, 2_000_000]),
        prop::sample::select(vec![20u8, 50, 100]),
        any::<bool>(),
    );
    (gpu, counter, driver).prop_map(move |(gpu, counter, driver)| {
        let mut spec = Spec::default();
        spec.gpu.count = u32::from(gpus);
        spec.gpu.compute_units = 8;
        (spec.gpu.capacity_percent, spec.gpu.outstanding) = (Some(gpu.0), gpu.1);
        (spec.counter.threshold, spec.counter.group_pages) = (counter.0, 1 << counter.1);
        spec.driver.fault_batch = driver.0;
        spec.driver.thrash_window_ns = driver.1;
        spec.driver.density_percent = driver.2;
        spec.driver.keep_clean_copies = driver.3;
        spec
    })
}

fn machines() -> impl Strategy<Value = (Spec, Launches)> {
    (1u8..=4).prop_flat_map(|gpus| (specs(gpus), traces(gpus)))
}

proptest! {
    #[test]
    fn every_access_is_carried_out_and_sees_the_newest_version((spec, launches) in machines()) {
        // Two allocations: moves never cross from one into the other.
        let halves = [u64::from(PAGES / 3) * 4096, u64::from(PAGES - PAGES / 3) * 4096];
        let trace = Arc::new(Trace::from_accesses("random", &halves, &launches).unwrap());
        for name in SCHEMES {
            let scheme = by_name(name).unwrap();
            let simulation = Simulation::with_placement(&spec, &trace, scheme, true).unwrap();
            match simulation.run(|_| ()) {
                Ok(outcome) => prop_assert_eq!(outcome.total.accesses(), trace.accesses()),
                Err(error) => prop_assert!(false, "{}: {}", name, error),
            }
        }
    }
}
