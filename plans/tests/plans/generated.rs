//! Generated runs: blocks of one unit, which launches use at random.

use std::collections::BTreeSet;

use call_ring::{
    MemoryKind,
    call::{Action, Call},
};
use plans::{Bytes, Change, Follower, Refusal, Settings, State, methods};
use proptest::prelude::*;

use super::{
    Program,
    replay::{UNIT, peaks, replay, uses},
};

const BASE: u64 = 1 << 40;
pub(crate) const ITERATIONS: usize = 12;
const PLANNERS: [&str; 4] = ["foresight", "autoswap", "appobmem", "g10"];

pub(crate) fn address(block: usize) -> u64 {
    BASE + block as u64 * 2 * UNIT
}

/// Adds an iteration that uses these blocks launch by launch, and ends with a sync.
pub(crate) fn iterate(program: &mut Program, launches: &[Vec<usize>]) {
    for (function, blocks) in (1..).zip(launches) {
        program.launch(function, &blocks.iter().map(|block| address(*block)).collect::<Vec<_>>());
    }
    program.sync();
}

pub(crate) fn run(blocks: usize, launches: &[Vec<usize>]) -> Program {
    run_of(&vec![UNIT; blocks], launches)
}

/// Run with blocks of these sizes.
fn run_of(sizes: &[u64], launches: &[Vec<usize>]) -> Program {
    let mut program = Program::default();
    sizes.iter().enumerate().for_each(|(block, bytes)| program.malloc(address(block), *bytes));
    (0..ITERATIONS).for_each(|_| iterate(&mut program, launches));
    program
}

fn follower(planner: &str, units: u64) -> Follower {
    let settings = Settings { user: 0, gpu: [1; 16], gpu_bytes: units * UNIT, has_fault_counts: false, probes: None };
    Follower::new(settings, vec![methods::by_name(planner).unwrap()])
}

pub(crate) fn followed(planner: &str, units: u64, calls: &[Call]) -> (Follower, Vec<Change>) {
    let mut follower = follower(planner, units);
    let changes = calls.iter().filter_map(|call| follower.add(call.clone())).collect();
    (follower, changes)
}

/// Forward pass, backward pass, and update of each layer, with 3 blocks per layer.
pub(crate) fn layers(count: usize) -> Vec<Vec<usize>> {
    let forth = (0..count).map(|layer| vec![3 * layer]);
    let back = (0..count).rev().map(|layer| vec![3 * layer, 3 * layer + 1]);
    let update = (0..count).map(|layer| vec![3 * layer, 3 * layer + 1, 3 * layer + 2]);
    forth.chain(back).chain(update).collect()
}

#[test]
fn plan_of_a_training_copies_less_than_the_driver() {
    for planner in ["foresight", "autoswap", "appobmem"] {
        let program = run(24, &layers(8));
        let (follower, changes) = followed(planner, 17, &program.calls);
        let planned = follower.planned().unwrap_or_else(|| panic!("{planner}: {:?}", follower.state()));
        assert_eq!(changes, [Change::Planned], "{planner}");
        assert!(planned.traffic.bytes.total() < planned.traffic_without_plan.bytes.total(), "{planner}: {planned:?}");
        assert_eq!(planned.tokens.len(), 24);
    }
}

#[test]
fn drift_drops_the_plan_and_a_new_one_is_computed() {
    let mut program = run(24, &layers(8));
    let (mut follower, _) = followed("foresight", 17, &program.calls);
    let before = follower.planned().unwrap().clone();
    let known = program.calls.len();
    program.launch(99, &[address(5)]);
    assert_eq!(follower.add(program.calls[known].clone()), Some(Change::Drifted));
    assert_eq!(follower.state(), &State::Watching);
    let known = program.calls.len();
    (0..ITERATIONS).for_each(|_| iterate(&mut program, &layers(8)));
    let changes: Vec<Change> = program.calls[known..].iter().filter_map(|call| follower.add(call.clone())).collect();
    assert_eq!(changes.last(), Some(&Change::Planned));
    let after = follower.planned().unwrap();
    assert_eq!((&after.moves, &after.tokens), (&before.moves, &before.tokens));
    assert_eq!((after.first_launch - before.first_launch) % 24, 1);
}

#[test]
fn memory_that_is_not_managed_is_the_reason_for_the_refusal() {
    // Blocks of the device, of which each launch names one; and managed ones that none names.
    let refusal = |managed: usize, graphs: bool| {
        let mut program = Program::default();
        (0..24).for_each(|block| program.malloc_of(MemoryKind::Device, address(block), UNIT));
        (24..24 + managed).for_each(|block| program.malloc(address(block), UNIT));
        (0..ITERATIONS).for_each(|_| iterate(&mut program, &layers(8)));
        for call in &mut program.calls {
            if graphs && matches!(call.action, Action::Launch { function: 3, .. }) {
                call.action = Action::GraphLaunch { stream: 1, executable: 7 };
            }
        }
        match followed("foresight", 64, &program.calls).0.state().clone() {
            State::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refusal(0, false), Refusal::NoManagedMemory);
    assert_eq!(refusal(0, true), Refusal::NoManagedMemory);
    assert_eq!(refusal(1, false), Refusal::NoMovableMemory);
    assert_eq!(refusal(1, true), Refusal::Graphs);
}

#[test]
fn iterations_without_a_plan_are_refused_with_the_reason() {
    let refusal = |units, launches: &[Vec<usize>], change: fn(&mut Call)| {
        let mut program = run(24, launches);
        program.calls.iter_mut().for_each(change);
        match followed("foresight", units, &program.calls).0.state().clone() {
            State::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(refusal(27, &layers(8), |_| {}), Refusal::Fits { .. }));
    assert!(matches!(refusal(5, &layers(8), |_| {}), Refusal::OpTooLarge { .. }));
    let unknown = |call: &mut Call| {
        if let Action::Launch { function: 3, pointers, .. } = &mut call.action {
            *pointers = None;
        }
    };
    assert_eq!(refusal(17, &layers(8), unknown), Refusal::CoverageUnknown { launches: 1 });
    let cut = |call: &mut Call| call.is_cut = matches!(call.action, Action::Launch { function: 3 | 4, .. });
    assert_eq!(refusal(17, &layers(8), cut), Refusal::CoverageUnknown { launches: 2 });
    let graph = |call: &mut Call| {
        if matches!(call.action, Action::Launch { function: 3, .. }) {
            call.action = Action::GraphLaunch { stream: 1, executable: 7 };
        }
    };
    assert_eq!(refusal(17, &layers(8), graph), Refusal::Graphs);
    let all = |call: &mut Call| {
        if matches!(call.action, Action::Launch { .. }) {
            call.action = Action::GraphLaunch { stream: 1, executable: 7 };
        }
    };
    assert_eq!(refusal(17, &[vec![0], vec![1]], all), Refusal::Graphs);
    // Nearly two passes over nine blocks: the driver may use three more frames than a plan.
    let twice: Vec<Vec<usize>> = (0..16).map(|at| vec![at % 9]).collect();
    assert!(matches!(refusal(7, &twice, |_| {}), Refusal::NoGain { .. }));
}

#[test]
fn huge_claims_take_no_time_and_no_memory() {
    let mut program = Program::default();
    // Huge allocations, one of them at the end of the address space.
    program.malloc(BASE, 1 << 60);
    program.malloc(u64::MAX - 100, 100);
    let launches: Vec<Vec<usize>> = (0..24).map(|block| vec![block]).collect();
    for _ in 0..ITERATIONS {
        program.launch(99, &[u64::MAX - 50]);
        iterate(&mut program, &launches);
    }
    let (follower, _) = followed("foresight", 17, &program.calls);
    assert!(matches!(follower.state(), State::Refused(Refusal::OpTooLarge { .. })), "{:?}", follower.state());
}

#[test]
fn program_with_more_blocks_than_are_retained_has_no_plan() {
    let mut program = run(24, &layers(8));
    let mut calls = Program::default();
    (0..160_000_u64).for_each(|block| calls.malloc((1 << 50) + block * 4096, 4096));
    calls.calls.append(&mut program.calls);
    let (follower, _) = followed("foresight", 17, &calls.calls);
    assert_eq!(*follower.state(), State::Refused(Refusal::Incomplete));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_stay_within_the_memory_and_copy_as_modelled(
        launches in prop::collection::vec(prop::collection::btree_set(0_usize..20, 1..4), 10..40),
        units in 8_u64..20,
        planner in prop::sample::select(PLANNERS.to_vec()),
    ) {
        let launches: Vec<Vec<usize>> = launches.into_iter().map(|blocks| blocks.into_iter().collect()).collect();
        let program = run(20, &launches);
        let (follower, _) = followed(planner, units, &program.calls);
        if let Some(planned) = follower.planned() {
            let replayed = replay(planned, &uses(&program.calls, launches.len()), units);
            let bytes = planned.traffic.bytes;
            prop_assert!(replayed.peak <= (units - 3) * UNIT, "{replayed:?}");
            prop_assert_eq!(replayed.idle, 0, "no move finds its units resident");
            prop_assert_eq!(bytes, Bytes { to_gpu: replayed.to_gpu, to_host: replayed.to_host, faulted: replayed.faulted, evicted: 0 });
            prop_assert_eq!(replayed.evicted, 0, "the driver finds room");
            prop_assert!(bytes.total() < planned.traffic_without_plan.bytes.total());
            prop_assert_eq!(bytes.to_gpu + bytes.faulted, bytes.to_host);
        } else {
            prop_assert!(matches!(follower.state(), State::Refused(_)), "{:?}", follower.state());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn partial_blocks_share_frames_that_whole_blocks_do_not_use(
        launches in prop::collection::vec(prop::collection::btree_set(0_usize..24, 1..4), 10..40),
        sizes in prop::collection::vec(prop::sample::select(vec![UNIT, UNIT / 2, 192 << 10, 100 << 10, 16]), 24),
        frames in 4_u64..9,
        planner in prop::sample::select(PLANNERS.to_vec()),
    ) {
        let launches: Vec<Vec<usize>> = launches.into_iter().map(|blocks| blocks.into_iter().collect()).collect();
        let program = run_of(&sizes, &launches);
        let mut follower = follower(planner, 64);
        follower.set_capacity(Some(frames * UNIT));
        for call in &program.calls {
            follower.add(call.clone());
        }
        if let Some(planned) = follower.planned() {
            let used: BTreeSet<usize> = launches.iter().flatten().copied().collect();
            let all: Vec<(u64, u64)> = used.into_iter().map(|block| (address(block), sizes[block])).collect();
            let (of_units, of_parts) = peaks(planned, &all);
            prop_assert!(of_units / UNIT + of_parts.div_ceil(UNIT) <= frames, "{of_units} {of_parts} {planned:?}");
            let bytes = planned.traffic.bytes;
            prop_assert_eq!((bytes.evicted, bytes.to_gpu + bytes.faulted), (0, bytes.to_host));
            prop_assert!(bytes.total() < planned.traffic_without_plan.bytes.total());
        } else {
            prop_assert!(matches!(follower.state(), State::Refused(_)), "{:?}", follower.state());
        }
    }
}

#[test]
fn large_allocations_move_except_for_partial_blocks() {
    // 24 allocations of 200 MiB and a page: more blocks than a plan has pieces.
    const BYTES: u64 = 100 * UNIT + 4096;
    let address = |block: usize| BASE + block as u64 * 200 * UNIT;
    let mut program = Program::default();
    (0..24).for_each(|block| program.malloc(address(block), BYTES));
    for _ in 0..ITERATIONS {
        for (function, blocks) in (1..).zip(layers(8)) {
            program.launch(function, &blocks.into_iter().map(address).collect::<Vec<_>>());
        }
        program.sync();
    }
    let (follower, _) = followed("foresight", 1700, &program.calls);
    let planned = follower.planned().unwrap_or_else(|| panic!("{:?}", follower.state()));
    assert!(planned.moves.iter().all(|one| one.begin.is_multiple_of(UNIT) && one.bytes.is_multiple_of(UNIT)));
    // The 24 partial blocks, a page each, stay; of 700 blocks without room, nearly all leave.
    assert!(planned.traffic.bytes.to_host > 600 * UNIT, "{:?}", planned.traffic);
    assert!(planned.traffic.bytes.total() < planned.traffic_without_plan.bytes.total());
}

#[test]
fn device_memory_of_an_iteration_does_not_reduce_the_measured_capacity() {
    let mut program = Program::default();
    (0..24).for_each(|block| program.malloc(address(block), UNIT));
    let temporary = BASE << 1;
    let kind = MemoryKind::Device;
    for _ in 0..ITERATIONS {
        for (function, blocks) in (1..).zip(layers(8)) {
            program.call(Action::Malloc { stream: 0, address: temporary, bytes: 4 * UNIT, kind, device: 0 });
            let mut named: Vec<u64> = blocks.into_iter().map(address).collect();
            named.push(temporary);
            program.launch(function, &named);
            program.call(Action::Free { stream: 0, address: temporary });
        }
        program.sync();
    }
    let room_bytes = |capacity_bytes| {
        let mut follower = follower("foresight", 24);
        follower.set_capacity(Some(capacity_bytes));
        for call in &program.calls {
            follower.add(call.clone());
        }
        follower.planned().unwrap_or_else(|| panic!("{:?}", follower.state())).room_bytes
    };
    assert_eq!(room_bytes(16 * UNIT), 16 * UNIT);
    // Frames that partial blocks do not fill.
    assert_eq!(room_bytes(16 * UNIT - 4096), 16 * UNIT);
}
