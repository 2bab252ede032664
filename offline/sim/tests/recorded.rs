//! Recorded programs with their addresses, beside what the real driver did in the lab.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test panics on unexpected values")]

use std::path::Path;

use sim::{Machine, Outcome, Setup, driver, planned};
use trace::{
    Detector, OpStream, RecordedIteration,
    detect::{Settings, State},
};
use trace_sources::import::{self, Trace};

const MIB: u64 = 1 << 20;
/// Largest error of link bytes.
const LIMIT: f64 = 0.05;

/// Program, MiB of the GPU, and bytes that its link carried in both directions: the mean of
/// iterations with the driver alone. docs/measurements/simulator-vs-lab.md has the command.
const MEASURED: [(&str, u64, u64); 8] = [
    ("deep-addresses", 32, 84_303_872),
    ("deep-8-addresses", 26, 141_268_519),
    ("deep-8-addresses", 34, 119_272_789),
    ("deep-8-addresses", 44, 109_486_080),
    ("transformer-2-addresses", 28, 134_260_053),
    ("transformer-2-addresses", 36, 113_930_695),
    ("alexnet-8-addresses", 26, 141_669_927),
    ("alexnet-8-addresses", 34, 119_856_522),
];

fn stream(name: &str) -> OpStream {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace-sources/tests/samples/runs");
    match import::load(&folder.join(format!("{name}.json.gz"))).unwrap() {
        Trace::Ops(stream) => stream,
        other => panic!("{other:?}"),
    }
}

/// Last iteration that the detector has locked.
fn iteration(stream: &OpStream) -> RecordedIteration {
    let states = Detector::new(Settings::of_recorded(stream)).observe(stream);
    let locked = states.iter().rev().find(|(_, state)| matches!(state, State::Locked(_)));
    let window = locked.and_then(|(_, state)| state.lock()?.iteration_window()).unwrap();
    RecordedIteration::of(stream, window).unwrap().unwrap()
}

fn on(recorded: &RecordedIteration, gpu_bytes: u64) -> Outcome {
    let machine = Machine::named("h100").unwrap();
    let setup = Setup { gpu_bytes, ..Setup::new(&machine) }.after(&recorded.before);
    driver(&recorded.iteration, &setup).unwrap()
}

#[test]
fn link_bytes_are_those_of_the_real_driver() {
    for (name, gpu_mib, measured_bytes) in MEASURED {
        let outcome = on(&iteration(&stream(name)), gpu_mib * MIB);
        let error = (outcome.bytes_htod + outcome.bytes_dtoh) as f64 / measured_bytes as f64 - 1.0;
        assert!(error.abs() <= LIMIT, "{name} on {gpu_mib} MiB: {error:+.3}");
    }
}

#[test]
fn schedules_run_at_recorded_addresses() {
    let machine = Machine::named("h100").unwrap();
    for name in ["deep-8-addresses", "transformer-2-addresses"] {
        let recorded = iteration(&stream(name));
        let setup = Setup { gpu_bytes: 36 * MIB, ..Setup::new(&machine) }.after(&recorded.before);
        for planner in setup.planners() {
            let Ok(schedule) = planner.plan(&recorded.iteration, &setup.for_planners()) else { continue };
            let outcome = planned(&recorded.iteration, &setup, &schedule);
            assert!(outcome.is_ok_and(|outcome| outcome.peak_bytes <= 36 * MIB), "{name}: {}", planner.name());
        }
    }
}

#[test]
fn memory_that_fits_is_not_moved() {
    for name in ["deep-addresses", "transformer-2-addresses", "alexnet-8-addresses"] {
        let outcome = on(&iteration(&stream(name)), 256 * MIB);
        assert_eq!((outcome.bytes_htod, outcome.bytes_dtoh, outcome.faults), (0, 0, 0), "{name}");
    }
}
