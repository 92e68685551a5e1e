//! The model of the window and its VHDL in lockstep: the same requests, invalidations and words of the
//! tables go into both, and every read and every answer is compared.
//!
//! `scripts/rtl/test.sh` makes the netlists that this loads, and runs it: it is ignored otherwise.
//! `FARSIDE_RTL_CYCLES` says how many cycles each netlist runs.

mod rig_rtl;

use std::path::PathBuf;

use farside_card::window::WindowGeometry;
use rig_rtl::{Counts, Lockstep, Shape};

/// Sizes of each netlist, as `scripts/rtl/netlists.sh` makes them.
fn shapes() -> Vec<Shape> {
    let geometry =
        |page, levels: &[u32], physical| WindowGeometry::new(page, levels, physical).unwrap();
    vec![
        Shape {
            name: "default",
            geometry: geometry(12, &[13, 13], 40),
            address_bits: 64,
            root_bits: 13,
            tag_bits: 8,
            requests: 33,
        },
        Shape {
            name: "small",
            geometry: geometry(12, &[2, 3], 20),
            address_bits: 32,
            root_bits: 2,
            tag_bits: 3,
            requests: 4,
        },
        Shape {
            name: "one",
            geometry: geometry(18, &[3, 4], 36),
            address_bits: 48,
            root_bits: 3,
            tag_bits: 1,
            requests: 2,
        },
    ]
}

#[test]
#[ignore = "scripts/rtl/test.sh makes the netlists for it"]
fn model_and_vhdl_answer_the_same() {
    let folder =
        PathBuf::from(std::env::var_os("FARSIDE_RTL_NETLISTS").expect("the netlists' folder"));
    let cycles: u64 =
        std::env::var("FARSIDE_RTL_CYCLES").map_or(100_000, |text| text.parse().expect("a number"));
    for shape in shapes() {
        for seed in 0..4 {
            let mut lockstep = Lockstep::new(&folder, &shape, seed);
            lockstep.run(cycles / 4);
            let counts = lockstep.finish();
            println!("{} seed {seed}: {counts:?}", shape.name);
            let Counts { answers, faults, drains, .. } = counts;
            assert!(
                answers > cycles / 2000 && faults > answers / 100 && drains > cycles / 4000,
                "{counts:?}"
            );
        }
    }
}
