//! Plans of prefetches alone.

use std::collections::BTreeSet;

use call_ring::plan::{Destination, MOVES_MAX, Move};
use plans::{Planned, Refusal, State};
use proptest::prelude::*;

use super::{
    Program,
    generated::{ITERATIONS, address, followed, layers, run},
    replay::{UNIT, replay, units, uses},
};

/// Iterations in which the program waits for the GPU after the launches in `syncs`. Without any,
/// the detector needs many more iterations.
fn run_with_syncs(blocks: usize, launches: &[Vec<usize>], syncs: &BTreeSet<usize>) -> Program {
    let mut program = Program::default();
    (0..blocks).for_each(|block| program.malloc(address(block), UNIT));
    for _ in 0..if syncs.is_empty() { 50 * ITERATIONS } else { ITERATIONS } {
        for (op, blocks) in launches.iter().enumerate() {
            program.launch(op as u64 + 1, &blocks.iter().map(|block| address(*block)).collect::<Vec<_>>());
            if syncs.contains(&op) {
                program.sync();
            }
        }
    }
    program
}

fn refusal(gpu_units: u64, program: &Program) -> Refusal {
    match followed("pump", gpu_units, &program.calls).0.state().clone() {
        State::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

/// Launches from the one after which a move begins up to, but without, the one that waits for it.
fn launches_in_flight(one: &Move, period: usize) -> impl Iterator<Item = usize> + use<> {
    let (begin, wait) = (one.begin_op as usize, one.wait_op.unwrap() as usize);
    let end = if wait > begin { wait } else { wait + period };
    (begin..end).map(move |index| index % period)
}

/// Index in the program's iteration at which the plan's iteration begins.
fn first_index(planned: &Planned) -> usize {
    usize::try_from(planned.first_launch - 1).unwrap() % planned.tokens.len()
}

/// Whether the program waits for the GPU between the start of a move and the launch that waits for
/// it.
fn spans_sync(one: &Move, planned: &Planned, syncs: &BTreeSet<usize>) -> bool {
    let (first, period) = (first_index(planned), planned.tokens.len());
    launches_in_flight(one, period).any(|index| syncs.contains(&((index + first) % period)))
}

/// Maximum number of units in flight: requested, with the waiting launch not ended yet.
fn units_in_flight_max(planned: &Planned) -> u64 {
    let period = planned.tokens.len();
    let ahead = |op: usize| {
        let moves =
            planned.moves.iter().filter(|one| launches_in_flight(one, period).any(|index| (index + 1) % period == op));
        moves.flat_map(units).collect::<BTreeSet<u64>>().len() as u64
    };
    (0..period).map(ahead).max().unwrap_or(0)
}

#[test]
fn launches_wait_for_prefetches_and_rarely_fault() {
    let program = run(24, &layers(8));
    let (follower, _) = followed("pump", 17, &program.calls);
    let planned = follower.planned().unwrap_or_else(|| panic!("{:?}", follower.state()));
    assert_eq!(planned.planner, "pump");
    assert!(planned.moves.iter().all(|one| one.destination == Destination::Gpu));
    assert!(planned.moves.iter().all(|one| one.wait_op.is_some_and(|wait| wait > one.begin_op)));
    // No memory is prefetched for the first launch, as it follows a sync.
    assert_eq!((planned.traffic.faulted_pieces, planned.traffic_without_plan.faulted_pieces), (1, 24));
    assert_eq!(planned.traffic.bytes.to_host, 0, "the driver evicts");
    assert!(planned.traffic.bytes.evicted > 0);
    assert_eq!((units_in_flight_max(planned), planned.peak_bytes), (6, 6 * UNIT));
}

#[test]
fn no_prefetch_begins_before_the_last_sync() {
    let syncs = BTreeSet::from([3, 9, 10, 23]);
    let program = run_with_syncs(24, &layers(8), &syncs);
    let (follower, _) = followed("pump", 17, &program.calls);
    let planned = follower.planned().unwrap_or_else(|| panic!("{:?}", follower.state()));
    assert!(planned.moves.iter().all(|one| !spans_sync(one, planned, &syncs)), "{:?}", planned.moves);
    let waited = planned.moves.iter().filter_map(|one| one.wait_op);
    let waited: BTreeSet<usize> = waited.map(|op| (op as usize + first_index(planned)) % 24).collect();
    // Nothing is prefetched for the first launch after a sync.
    let others: BTreeSet<usize> = (0..24).filter(|index| ![0, 4, 10, 11].contains(index)).collect();
    assert_eq!(waited, others);
}

#[test]
fn prefetches_begin_in_the_previous_iteration_without_syncs() {
    let program = run_with_syncs(24, &layers(8), &BTreeSet::new());
    let (follower, _) = followed("pump", 17, &program.calls);
    let planned = follower.planned().unwrap_or_else(|| panic!("{:?}", follower.state()));
    assert!(planned.moves.iter().any(|one| one.wait_op.is_some_and(|wait| wait <= one.begin_op)), "{planned:?}");
}

#[test]
fn program_that_waits_for_the_gpu_before_each_launch_has_no_plan() {
    let program = run_with_syncs(24, &layers(8), &(0..24).collect());
    assert_eq!(refusal(17, &program), Refusal::NoLead);
}

#[test]
fn program_that_fits_has_no_plan() {
    assert!(matches!(refusal(27, &run(24, &layers(8))), Refusal::Fits { .. }));
}

#[test]
fn moves_that_copy_nothing_are_dropped_from_a_full_plan() {
    // Twelve blocks stay resident; every 16th launch also names one of 12 others.
    let launch = |at: usize| {
        let other = at.is_multiple_of(16).then_some(12 + at / 16 % 12);
        [Some(at % 12), Some((at + 5) % 12), other].into_iter().flatten().collect()
    };
    let launches: Vec<Vec<usize>> = (0..3000).map(launch).collect();
    let program = run(24, &launches);
    let (follower, _) = followed("pump", 17, &program.calls);
    let planned = follower.planned().unwrap_or_else(|| panic!("{:?}", follower.state()));
    assert!((3000 / 16..MOVES_MAX / 2).contains(&planned.moves.len()), "{}", planned.moves.len());
    let replayed = replay(planned, &uses(&program.calls, 3000), 17);
    assert_eq!(replayed.idle, 0);
}

#[test]
fn iteration_with_too_many_copies_has_no_plan() {
    let launches: Vec<Vec<usize>> = (0..3000).map(|at| vec![2 * at % 40, (2 * at + 21) % 40]).collect();
    assert!(matches!(refusal(20, &run(40, &launches)), Refusal::TooManyMoves { moves } if moves > MOVES_MAX));
}

#[test]
fn schedule_with_too_many_prefetches_has_no_plan() {
    // Each launch names a block of 24 units, and one of 40 blocks of a unit.
    let mut program = Program::default();
    let large = address(100);
    (0..40).for_each(|block| program.malloc(address(block), UNIT));
    program.malloc(large, 24 * UNIT);
    for _ in 0..ITERATIONS {
        (0..3000).for_each(|at| program.launch(at as u64 + 1, &[large, address(at % 40)]));
        program.sync();
    }
    assert_eq!(refusal(55, &program), Refusal::TooManyMoves { moves: 16 * MOVES_MAX + 1 });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn prefetches_stay_within_window_and_syncs_and_copy_as_modelled(
        launches in prop::collection::vec(prop::collection::btree_set(0_usize..20, 1..4), 10..40),
        mut syncs in prop::collection::btree_set(0_usize..40, 0..8),
        gpu_units in 8_u64..20,
    ) {
        let launches: Vec<Vec<usize>> = launches.into_iter().map(|blocks| blocks.into_iter().collect()).collect();
        syncs.insert(launches.len() - 1);
        let program = run_with_syncs(20, &launches, &syncs);
        let (follower, _) = followed("pump", gpu_units, &program.calls);
        let State::Planned(planned) = follower.state() else {
            let is_refused = matches!(follower.state(), State::Refused(_));
            prop_assert!(is_refused, "{:?}", follower.state());
            return Ok(());
        };
        let period = launches.len();
        for one in &planned.moves {
            prop_assert!(one.destination == Destination::Gpu && !spans_sync(one, planned, &syncs), "{:?}", one);
        }
        let most = units_in_flight_max(planned);
        prop_assert_eq!(most * UNIT, planned.peak_bytes);
        prop_assert!(most * 5 <= (gpu_units - 3) * 4, "{}", most);
        let mut uses = uses(&program.calls, period);
        uses.rotate_left(first_index(planned));
        let replayed = replay(planned, &uses, gpu_units);
        let bytes = planned.traffic.bytes;
        prop_assert_eq!((replayed.to_gpu, replayed.faulted, replayed.evicted), (bytes.to_gpu, bytes.faulted, bytes.evicted));
        prop_assert_eq!(replayed.faults, planned.traffic.faulted_pieces);
        prop_assert!(replayed.faults < planned.traffic_without_plan.faulted_pieces);
        prop_assert!(bytes.total() * 100 <= planned.traffic_without_plan.bytes.total() * 105, "{:?}", planned);
    }
}
