//! Coverage of GPU faults by the memory that launches name.

use plans::{FaultCounts, Follower, Refusal, Settings, State, methods};

use super::{
    generated::{address, layers, run},
    replay::UNIT,
};

const BLOCKS: usize = 24;

/// State after a training of 24 blocks on a GPU of 17. Faults are delivered five times per
/// iteration: cumulative counts, by the number of calls so far.
fn state(faults: impl Fn(u64) -> Option<FaultCounts>) -> State {
    let settings = Settings { user: 0, gpu: [1; 16], gpu_bytes: 17 * UNIT, has_fault_counts: true, probes: None };
    let mut follower = Follower::new(settings, vec![methods::by_name("foresight").unwrap()]);
    for (number, call) in (1..).zip(run(BLOCKS, &layers(8)).calls) {
        if number % 5 == 0 {
            follower.add_fault_counts(faults(number));
        }
        follower.add(call);
    }
    follower.state().clone()
}

fn percent(state: &State) -> Option<u64> {
    let State::Planned(planned) = state else { panic!("{state:?}") };
    planned.coverage_percent()
}

/// Counts of `calls` faults on each block.
fn on(blocks: std::ops::Range<usize>, calls: u64) -> FaultCounts {
    blocks.map(|block| (address(block), calls)).collect()
}

#[test]
fn faults_on_memory_that_launches_name_are_covered() {
    assert_eq!(percent(&state(|calls| Some(on(0..BLOCKS, calls)))), Some(100));
}

#[test]
fn faults_on_more_than_a_tenth_of_other_memory_refuse_the_plan() {
    assert_eq!(percent(&state(|calls| Some(on(0..BLOCKS + 2, calls)))), Some(92));
    let refused = state(|calls| Some(on(0..2 * BLOCKS, calls)));
    assert_eq!(refused, State::Refused(Refusal::CoverageTooLow { percent: 50 }));
}

#[test]
fn faults_before_iterations_are_known_do_not_count() {
    // Memory that is initialised, and not used later.
    let prepared = |calls: u64| on(BLOCKS..3 * BLOCKS, calls.min(BLOCKS as u64 + 30));
    let faults = |calls| Some(prepared(calls).into_iter().chain(on(0..BLOCKS, calls)).collect());
    assert_eq!(percent(&state(faults)), Some(100));
}

#[test]
fn plan_waits_for_fault_counts_unless_faults_are_not_counted() {
    assert_eq!(percent(&state(|_| None)), None);
    let settings = Settings { user: 0, gpu: [1; 16], gpu_bytes: 17 * UNIT, has_fault_counts: true, probes: None };
    let mut follower = Follower::new(settings, vec![methods::by_name("foresight").unwrap()]);
    for call in run(BLOCKS, &layers(8)).calls {
        assert_eq!(follower.add(call), None);
    }
    assert_eq!(follower.state(), &State::Watching);
}

#[test]
fn plan_of_iterations_without_any_fault_has_no_coverage() {
    assert_eq!(percent(&state(|_| Some(on(0..BLOCKS, 7)))), None);
}
