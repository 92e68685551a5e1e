//! A run that is stopped anywhere, saved, and restored ends as one that was never stopped, to the
//! byte; and bytes that are no state of this run are refused with what is wrong.

use std::sync::Arc;

use farside_sim::observe::{Observation, Observer, Sample};
use farside_sim::observers::{PageHistory, Pages, Perfetto, Shared, Units, Window};
use farside_sim::{EngineMode, Outcome, SimError, Simulation, Spec, StateError, Stop};
use farside_svm::placement::by_name;
use farside_types::{Span, Time};
use farside_workloads::Trace;
use farside_workloads::Workload;
use proptest::prelude::*;

fn excerpt(name: &str) -> Arc<dyn Workload> {
    Arc::new(Trace::bundled(name).unwrap())
}

/// A machine that is too small for its program, so that pages are evicted all the time.
fn spec(mode: EngineMode) -> Spec {
    let mut spec = Spec::default();
    spec.gpu.capacity_percent = Some(10);
    spec.counter.threshold = 16;
    spec.engine.mode = mode;
    spec
}

fn run(simulation: Simulation) -> Outcome {
    simulation.run(|_| ()).unwrap()
}

/// Stops after every `every` accesses, and goes on in a restored simulation each time.
fn run_in_pieces(
    mut simulation: Simulation,
    program: &Arc<dyn Workload>,
    every: u64,
) -> (Outcome, u32) {
    let mut stops = 0;
    loop {
        let next = Stop::Accesses(simulation.progress().accesses + every);
        if simulation.run_until(next, |_| ()).unwrap() {
            return (run(simulation), stops);
        }
        stops += 1;
        let bytes = simulation.save().unwrap();
        simulation = Simulation::restore(&bytes, program).unwrap();
    }
}

fn goes_on_identically(name: &str, mode: EngineMode, schemes: &[&str], every: u64) {
    let (program, spec) = (excerpt(name), spec(mode));
    let mut evictions = 0;
    for scheme in schemes {
        let simulation = || Simulation::new(&spec, &program, scheme).unwrap();
        let whole = run(simulation());
        evictions += whole.driver.evictions;
        let (pieces, stops) = run_in_pieces(simulation(), &program, every);
        assert!(stops >= 10, "{stops} stops");
        assert_eq!(whole.to_json(), pieces.to_json(), "{name} under {scheme}");
    }
    assert!(evictions > 100, "{evictions} evictions");
}

const SCHEMES: [&str; 6] =
    ["on-touch", "first-touch", "access-counter", "duplication", "grit:threshold=2", "farside"];
const SIMULATED: [&str; 4] = ["griffin", "gps", "ideal", "grit+acud+prefetch+trans-fw"];

/// Migrations that wait for each other, and GPUs that stand still meanwhile.
#[test]
fn one_migration_at_a_time_goes_on_identically() {
    let program = excerpt("st");
    let mut spec = Spec::preset("grit-paper").unwrap();
    spec.counter.threshold = 16;
    for scheme in SCHEMES {
        let simulation = || Simulation::new(&spec, &program, scheme).unwrap();
        let (pieces, stops) = run_in_pieces(simulation(), &program, 2_003);
        assert!(stops >= 10, "{stops} stops");
        assert_eq!(run(simulation()).to_json(), pieces.to_json(), "{scheme}");
    }
}

#[test]
fn a_matrix_multiplication_goes_on_identically() {
    goes_on_identically("mm", EngineMode::Reservation, &SCHEMES, 2_003);
}

#[test]
fn a_stencil_goes_on_identically() {
    goes_on_identically("st", EngineMode::Reservation, &SCHEMES, 2_003);
}

#[test]
fn simulated_schemes_go_on_identically() {
    goes_on_identically("mm", EngineMode::Reservation, &SIMULATED, 2_999);
}

#[test]
fn lines_under_way_go_on_identically() {
    goes_on_identically("mm", EngineMode::Events, &["on-touch", "grit", "gps"], 2_999);
}

#[test]
fn a_stop_in_time_goes_on_identically() {
    let (program, spec) = (excerpt("st"), spec(EngineMode::Events));
    let whole = run(Simulation::new(&spec, &program, "duplication").unwrap());
    let mut simulation = Simulation::new(&spec, &program, "duplication").unwrap();
    let mut stops = 0;
    while !simulation.run_until(Stop::Time(Span(whole.time.0 * stops / 16)), |_| ()).unwrap() {
        let bytes = simulation.save().unwrap();
        let restored = Simulation::restore(&bytes, &program).unwrap();
        assert_eq!(restored.progress(), simulation.progress());
        assert!(restored.progress().time.0 >= whole.time.0 * stops / 16);
        assert_eq!(run(restored).to_json(), whole.to_json(), "from {stops}/16");
        stops += 1;
    }
    assert_eq!(run(simulation), whole);
    assert!(stops >= 15);
}

#[test]
fn a_state_before_the_first_launch_and_one_at_the_end_go_on() {
    let (program, spec) = (excerpt("mm"), spec(EngineMode::Reservation));
    let mut simulation = Simulation::new(&spec, &program, "grit").unwrap();
    let fresh = Simulation::restore(&simulation.save().unwrap(), &program).unwrap();
    assert!(simulation.run_until(Stop::End, |_| ()).unwrap());
    let ended = Simulation::restore(&simulation.save().unwrap(), &program).unwrap();
    let whole = run(simulation);
    assert_eq!(run(fresh), whole);
    assert_eq!(run(ended), whole);
}

#[test]
fn a_scheme_of_ones_own_is_restored_by_giving_it() {
    let (program, spec) = (excerpt("mm"), spec(EngineMode::Reservation));
    let scheme = || by_name("grit:threshold=2").unwrap();
    let new = || Simulation::with_placement(&spec, &program, scheme(), true).unwrap();
    let mut simulation = new();
    simulation.run_until(Stop::Accesses(9_000), |_| ()).unwrap();
    let bytes = simulation.save().unwrap();
    let refused = Simulation::restore(&bytes, &program).err().unwrap();
    assert!(matches!(refused, SimError::State(StateError::OwnScheme { .. })), "{refused}");
    let other = farside_sim::scheme::by_name("griffin-dpc").unwrap();
    let refused = Simulation::restore_with_placement(&bytes, &program, other).err().unwrap();
    assert!(refused.to_string().contains("grit"), "{refused}");
    let restored = Simulation::restore_with_placement(&bytes, &program, scheme()).unwrap();
    assert_eq!(run(restored), run(new()));
}

/// Samples with their times.
struct Samples(Vec<(Time, u64)>);

impl Observer for Samples {
    fn observe(&mut self, _: Time, _: &Observation) {}

    fn sample_every(&self) -> Option<Span> {
        Some(Span::from_micros(100))
    }

    fn sample(&mut self, now: Time, counted: &Sample<'_>) {
        let accesses = counted.gpus.iter().map(farside_sim::GpuCounts::accesses).sum();
        self.0.push((now, accesses));
    }
}

#[test]
fn who_watches_a_restored_run_sees_the_rest_of_it() {
    let (program, spec) = (excerpt("mm"), spec(EngineMode::Reservation));
    let watched = |simulation: Simulation| {
        let samples = Shared::new(Samples(Vec::new()));
        let outcome = run(simulation.observe(Box::new(samples.clone())));
        (outcome, samples.with(|samples| samples.0.clone()))
    };
    let mut simulation = Simulation::new(&spec, &program, "grit").unwrap();
    simulation.run_until(Stop::Accesses(9_000), |_| ()).unwrap();
    let stopped = Time(simulation.progress().time.0);
    let bytes = simulation.save().unwrap();
    let (whole, all) = watched(Simulation::new(&spec, &program, "grit").unwrap());
    let (rest, seen) = watched(Simulation::restore(&bytes, &program).unwrap());
    assert_eq!(whole, rest);
    let after: Vec<_> = all.into_iter().filter(|(at, _)| *at > stopped).collect();
    assert!(after.len() > 3);
    assert_eq!(seen, after);
}

/// Observers may come in when wavefronts are under way.
#[test]
fn every_observer_can_join_in_the_middle() {
    let (program, spec) = (excerpt("st"), spec(EngineMode::Reservation));
    let mut simulation = Simulation::new(&spec, &program, "duplication").unwrap();
    simulation.run_until(Stop::Accesses(9_000), |_| ()).unwrap();
    let restored = Simulation::restore(&simulation.save().unwrap(), &program).unwrap();
    let history = Shared::new(PageHistory::new(Pages::MostMoved(8)));
    let whole = Window { from: Time::ZERO, until: Time(u64::MAX) };
    let trace = Perfetto::new(Vec::new(), whole, Units::First(64));
    let watched = restored.observe(Box::new(history.clone())).observe(Box::new(trace));
    assert_eq!(run(watched), run(simulation));
    assert!(history.with(|history| history.stories().len()) > 0);
}

fn saved(accesses: u64) -> (Arc<dyn Workload>, Vec<u8>) {
    let program = excerpt("mm");
    let mut small = spec(EngineMode::Reservation);
    (small.cache.l2_bytes, small.gpu.wavefronts) = (65_536, 4);
    let mut simulation = Simulation::new(&small, &program, "grit").unwrap();
    simulation.run_until(Stop::Accesses(accesses), |_| ()).unwrap();
    (program, simulation.save().unwrap())
}

fn refusal(bytes: &[u8], program: &Arc<dyn Workload>) -> String {
    match Simulation::restore(bytes, program) {
        Ok(_) => panic!("must be refused"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_state_of_another_program_is_refused_with_the_difference() {
    let (_, bytes) = saved(5_000);
    let error = refusal(&bytes, &excerpt("st"));
    assert!(error.contains("another program") && error.contains("\"st\""), "{error}");
}

#[test]
fn what_is_no_state_is_told_from_a_damaged_one() {
    let (program, bytes) = saved(5_000);
    for foreign in [b"".as_slice(), b"farsid", b"{\"version\": 1}", &bytes[1..]] {
        assert!(refusal(foreign, &program).contains("not a state"));
    }
    let mut newer = bytes.clone();
    newer[8] += 1;
    assert!(refusal(&newer, &program).contains("has format"));
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(refusal(&longer, &program).contains("damaged"));
    assert!(Simulation::restore(&bytes, &program).is_ok(), "the control");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No bit of a file can change and no byte of its end can be missing without being noticed.
    #[test]
    fn damaged_bytes_are_refused(at in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<bool>()) {
        thread_local!(static SAVED: (Arc<dyn Workload>, Vec<u8>) = saved(5_000));
        SAVED.with(|(program, bytes)| {
            let mut bytes = bytes.clone();
            let at = at.index(bytes.len());
            if cut {
                bytes.truncate(at);
            } else {
                bytes[at] ^= 1 << bit;
            }
            let error = refusal(&bytes, program);
            prop_assert!(error.contains("state"), "{}", error);
            Ok(())
        })?;
    }

    /// The first bytes of what is compressed say how it is, and whether there is a checksum.
    #[test]
    fn damaged_first_bytes_are_refused(at in 0usize..40, bit in 0u8..8) {
        thread_local!(static SAVED: (Arc<dyn Workload>, Vec<u8>) = saved(5_000));
        SAVED.with(|(program, bytes)| {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << bit;
            let error = refusal(&bytes, program);
            prop_assert!(error.contains("state"), "{}", error);
            Ok(())
        })?;
    }

    #[test]
    fn foreign_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let program = excerpt("mm");
        refusal(&bytes, &program);
    }
}
