//! Claims of programs, with arbitrary numbers, as a program can record any.

use std::ops::Range;

use call_ring::{MemoryKind, call::Call};
use plans::{ClaimLimits, FaultCounts, Follower, Ranges, Refusal, Settings, State, methods};

use super::{
    Program,
    generated::{ITERATIONS, address, layers, run},
    replay::UNIT,
};

const GPU_UNITS: u64 = 17;

/// Follower after calls, with faults on the first blocks.
fn followed(calls: &[Call]) -> Follower {
    followed_within(&ClaimLimits::default(), calls)
}

/// Like [`followed`], with limits on claims.
fn followed_within(limits: &ClaimLimits, calls: &[Call]) -> Follower {
    let settings =
        Settings { user: 0, gpu: [1; 16], gpu_bytes: GPU_UNITS * UNIT, has_fault_counts: true, probes: None };
    let mut follower = Follower::new(settings, vec![methods::by_name("foresight").unwrap()]);
    follower.set_claim_limits(limits.clone());
    for (number, call) in (1..).zip(calls) {
        if number % 5 == 0 {
            follower.add_fault_counts(Some((0..4).map(|block| (address(block), number)).collect::<FaultCounts>()));
        }
        follower.add(call.clone());
    }
    follower
}

fn mapped(ranges: impl IntoIterator<Item = Range<u64>>) -> ClaimLimits {
    ClaimLimits { mapped: Some(ranges.into_iter().collect::<Ranges>()), ..ClaimLimits::default() }
}

fn block(block: usize) -> Range<u64> {
    address(block)..address(block) + UNIT
}

fn refusal(follower: &Follower) -> &Refusal {
    match follower.state() {
        State::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

/// Iterations of 24 launches, each of which names all claims.
fn claims_of(claims: &[(u64, u64)]) -> Program {
    let mut program = Program::default();
    for (address, bytes) in claims {
        program.malloc(*address, *bytes);
    }
    for _ in 0..ITERATIONS {
        for launch in 0..24 {
            let named: Vec<u64> = claims.iter().map(|(address, _)| *address).collect();
            program.launch(launch + 1, &named);
        }
        program.sync();
    }
    program
}

#[test]
fn blocks_of_claimed_memory_are_counted_without_being_listed() {
    for bits in [48, 60, 63] {
        let follower = followed(&claims_of(&[(1 << 40, 1 << bits)]).calls);
        assert!(matches!(refusal(&follower), Refusal::OpTooLarge { .. }), "2^{bits}: {:?}", follower.state());
    }
}

#[test]
fn iteration_of_75_000_different_extents_is_refused_for_what_it_uses() {
    const BLOCKS: usize = 500;
    let mut program = Program::default();
    (0..BLOCKS).for_each(|block| program.malloc(address(block), UNIT));
    for _ in 0..ITERATIONS {
        for launch in 0..150 {
            // No two launches name the same address.
            let named: Vec<u64> = (0..BLOCKS).map(|block| address(block) + launch * 256).collect();
            program.launch(launch + 1, &named);
        }
        program.sync();
    }
    let refused = Refusal::OpTooLarge { needed_bytes: BLOCKS as u64 * UNIT, limit_bytes: GPU_UNITS * UNIT / 2 };
    assert_eq!(*refusal(&followed(&program.calls)), refused);
}

#[test]
fn allocation_that_is_larger_than_the_node_and_its_gpus_is_refused() {
    let limits = ClaimLimits { allocation_bytes_max: 64 * UNIT, mapped: None };
    let mut program = run(24, &layers(8));
    assert!(followed_within(&limits, &program.calls).planned().is_some());
    for kind in [MemoryKind::Managed, MemoryKind::Device] {
        let mut claims = Program::default();
        claims.malloc_of(kind, 1 << 50, 65 * UNIT);
        claims.malloc(address(24), UNIT);
        for _ in 0..ITERATIONS {
            (1..=12).for_each(|function| claims.launch(function, &[1 << 50]));
            claims.sync();
        }
        let refused = Refusal::ClaimTooLarge { claimed_bytes: 65 * UNIT, limit_bytes: 64 * UNIT };
        assert_eq!(*refusal(&followed_within(&limits, &claims.calls)), refused);
    }
    // A pool that no launch names may reserve more than the node has.
    let mut claims = Program::default();
    claims.malloc_of(MemoryKind::Managed, 1 << 50, 65 * UNIT);
    claims.calls.append(&mut program.calls.clone());
    assert!(followed_within(&limits, &claims.calls).planned().is_some());
    // A program may register more host memory than the node has.
    let mut claims = Program::default();
    claims.malloc_of(MemoryKind::Registered, 1 << 50, 65 * UNIT);
    claims.calls.append(&mut program.calls);
    assert!(followed_within(&limits, &claims.calls).planned().is_some());
}

#[test]
fn plan_is_unchanged_if_all_claims_are_mapped() {
    let program = run(24, &layers(8));
    let unknown = followed(&program.calls);
    let known = followed_within(&mapped((0..24).map(block)), &program.calls);
    assert!(unknown.planned().is_some());
    assert_eq!(known.planned(), unknown.planned());
    // Mappings of other memory, or larger mappings, have no effect.
    let larger = followed_within(&mapped(std::iter::once(0..1 << 50)), &program.calls);
    assert_eq!(larger.planned(), unknown.planned());
}

#[test]
fn unmapped_claims_are_ignored() {
    // The last three blocks of 24 are not mapped.
    let limits = mapped((0..21).map(block));
    let follower = followed_within(&limits, &run(24, &layers(8)).calls);
    let planned = follower.planned().unwrap_or_else(|| panic!("{:?}", follower.state()));
    let moved: Ranges = planned.moves.iter().map(|step| step.begin..step.begin + step.bytes).collect();
    assert!(moved.iter().all(|range| range.end <= address(21)), "{moved:x?}");
}

#[test]
fn claim_is_cut_to_its_mapped_part() {
    // One allocation of 2^46 bytes, of which 24 blocks are mapped in two places.
    let claim = address(0)..address(0) + (1 << 46);
    let ranges =
        [0..8, 100..116].map(|units: Range<u64>| claim.start + units.start * UNIT..claim.start + units.end * UNIT);
    let mut program = Program::default();
    program.malloc(claim.start, claim.end - claim.start);
    for _ in 0..ITERATIONS {
        for (function, range) in (1..).zip(ranges.iter().cycle().take(12)) {
            program.launch(function, &[claim.start, range.start]);
        }
        program.sync();
    }
    let follower = followed_within(&mapped(ranges), &program.calls);
    let unmapped_bytes = (1 << 46) - 24 * UNIT;
    let needed = Refusal::OpTooLarge { needed_bytes: 24 * UNIT, limit_bytes: GPU_UNITS * UNIT / 2 };
    assert_eq!(*refusal(&follower), Refusal::Unmapped { unmapped_bytes, reason: Box::new(needed) });
}

#[test]
fn program_without_mappings_has_no_plan() {
    let follower = followed_within(&mapped([]), &claims_of(&[(1 << 40, 1 << 46)]).calls);
    let refusal = refusal(&follower);
    assert!(matches!(refusal, Refusal::Unmapped { unmapped_bytes, .. } if *unmapped_bytes == 1 << 46), "{refusal:?}");
    assert!(refusal.to_string().contains("70368744177664 bytes that the program claims are not mapped"), "{refusal}");
}

#[test]
fn device_memory_is_not_compared_with_managed_mappings() {
    let mut program = Program::default();
    (0..24).for_each(|block| program.malloc(address(block), UNIT));
    program.malloc_of(MemoryKind::Device, 1 << 50, UNIT);
    for _ in 0..ITERATIONS {
        for (function, blocks) in (1..).zip(layers(8)) {
            let mut named: Vec<u64> = blocks.into_iter().map(address).collect();
            named.push(1 << 50);
            program.launch(function, &named);
        }
        program.sync();
    }
    let follower = followed_within(&mapped((0..4).map(block)), &program.calls);
    let fits = Refusal::Fits { used_bytes: 5 * UNIT, room_bytes: (GPU_UNITS - 3) * UNIT };
    let refused = Refusal::Unmapped { unmapped_bytes: 20 * UNIT, reason: Box::new(fits) };
    assert_eq!(*refusal(&follower), refused);
}
