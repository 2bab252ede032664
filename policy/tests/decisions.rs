//! Decisions at the thresholds: values that just suffice, and that just do not.
#![cfg(test)]

use model::{
    VerdictKind::{self, CapacityThrash, DriverThrottling, FirstTouchStorm, PingPong, Streaming},
    verdict::Inputs,
};
use policy::decision::{ORDER, check_names, decide};

const MIB: u64 = 1 << 20;

/// 100 MiB arrive and evict 25 MiB. `refetched` MiB of them return after an eviction, and
/// `returned` MiB after a migration to the CPU.
fn under_pressure(refetched: u64, returned: u64) -> Inputs {
    Inputs {
        fault_entries: 1000,
        bytes_htod: 100 * MIB,
        fetched_bytes: 100 * MIB,
        bytes_dtoh: 50 * MIB,
        evicted_bytes: 25 * MIB,
        refetched_bytes: refetched * MIB,
        cpu_reclaimed_bytes: returned * MIB,
        bounces: 8,
        ..Inputs::default()
    }
}

fn kind(inputs: Inputs) -> Option<VerdictKind> {
    decide(&inputs, None).kind
}

#[test]
fn verdict_requires_a_quarter() {
    assert_eq!(kind(under_pressure(25, 0)), Some(CapacityThrash));
    assert_eq!(kind(under_pressure(24, 0)), Some(Streaming));
    assert_eq!(kind(Inputs { evicted_bytes: 24 * MIB, ..under_pressure(25, 0) }), None);
    assert_eq!(kind(under_pressure(0, 25)), Some(PingPong));
    assert_eq!(kind(under_pressure(0, 24)), Some(Streaming));
    assert_eq!(kind(Inputs { bounces: 7, ..under_pressure(0, 25) }), Some(Streaming));
    assert_eq!(kind(Inputs { bytes_dtoh: 49 * MIB, ..under_pressure(0, 25) }), Some(Streaming), "no readback");
}

#[test]
fn ping_pong_between_gpus_requires_bounces_and_a_quarter_taken_back() {
    let between = Inputs {
        bytes_htod: 60 * MIB,
        bytes_dtod: 40 * MIB,
        fetched_bytes: 100 * MIB,
        peer_reclaimed_bytes: 25 * MIB,
        peer_bounces: 8,
        ..Inputs::default()
    };
    assert_eq!(kind(between), Some(PingPong));
    assert_eq!(kind(Inputs { peer_bounces: 7, ..between }), None);
    assert_eq!(kind(Inputs { peer_reclaimed_bytes: 25 * MIB - 1, ..between }), None);
    assert_eq!(kind(Inputs { bounces: 100, ..between }), Some(PingPong), "CPUs bounce more, and reclaim nothing");
    // Copies to the host on the way from one GPU to another are no readback for a CPU.
    let staged = Inputs { bytes_dtoh: 100 * MIB, bytes_htod: 100 * MIB, bytes_dtod: 0, ..between };
    let names: Vec<_> = decide(&staged, None).checks.iter().map(|check| check.name).collect();
    assert_eq!(names, ["peer_bounces", "peer_reclaimed_ratio"]);
}

#[test]
fn neither_side_of_a_ping_pong_hides_the_other() {
    let counts = [(0, 0), (7, 60), (8, 0), (8, 24), (8, 25), (100, 5), (100, 40), (101, 5)];
    for (bounces, cpu_percent) in counts {
        for (peer_bounces, peer_percent) in counts {
            let inputs = Inputs {
                bytes_htod: 100 * MIB,
                bytes_dtoh: 100 * MIB,
                fetched_bytes: 100 * MIB,
                cpu_reclaimed_bytes: cpu_percent * MIB,
                bounces,
                peer_reclaimed_bytes: peer_percent * MIB,
                peer_bounces,
                ..Inputs::default()
            };
            let is_met = |bounces, percent| bounces >= 8 && percent >= 25;
            let (with_cpus, between_gpus) = (is_met(bounces, cpu_percent), is_met(peer_bounces, peer_percent));
            let decision = decide(&inputs, None);
            assert_eq!(decision.kind, (with_cpus || between_gpus).then_some(PingPong), "{inputs:?}");
            if with_cpus != between_gpus {
                assert_eq!(inputs.is_between_gpus(), between_gpus, "{inputs:?}");
            }
            if let Some(check) = decision.checks.first() {
                assert_eq!(check.name == "peer_bounces", inputs.is_between_gpus(), "{inputs:?}");
            }
        }
    }
}

#[test]
fn induced_evictions_count_like_evictions() {
    let of_others = Inputs { evicted_bytes: 0, induced_eviction_bytes: 25 * MIB, ..under_pressure(25, 0) };
    assert_eq!(kind(of_others), Some(CapacityThrash));
    assert_eq!(kind(Inputs { induced_eviction_bytes: 0, ..of_others }), None);
}

#[test]
fn larger_of_refetched_and_cpu_reclaimed_bytes_decides() {
    assert_eq!(kind(under_pressure(40, 40)), Some(CapacityThrash));
    assert_eq!(kind(under_pressure(30, 40)), Some(PingPong));
}

#[test]
fn first_touch_storm_requires_faults_and_no_evictions() {
    let storm = Inputs {
        fault_entries: 25,
        bytes_htod: 50 * MIB,
        fetched_bytes: 50 * MIB,
        populated_bytes: 50 * MIB,
        ..Inputs::default()
    };
    assert_eq!(kind(storm), Some(FirstTouchStorm));
    assert_eq!(kind(Inputs { populated_bytes: 49 * MIB, ..storm }), None);
    assert_eq!(kind(Inputs { fault_entries: 24, ..storm }), None);
    assert_eq!(kind(Inputs { induced_eviction_bytes: 25 * MIB, ..storm }), Some(Streaming));
}

#[test]
fn driver_throttling_requires_one_throttle_per_nine_bounces() {
    let held = Inputs { throttles: 10, bounces: 90, ..under_pressure(0, 60) };
    assert_eq!(kind(held), Some(DriverThrottling));
    assert_eq!(kind(Inputs { throttles: 9, bounces: 8, ..held }), Some(PingPong), "too few");
    assert_eq!(kind(Inputs { bounces: 91, ..held }), Some(PingPong));
    assert_eq!(
        kind(Inputs { refetched_bytes: 60 * MIB, ..held }),
        Some(CapacityThrash),
        "a few pages are not the matter"
    );
    let nothing_moves = Inputs { throttles: 10, fault_entries: 5000, ..Inputs::default() };
    assert_eq!(kind(nothing_moves), Some(DriverThrottling));
}

#[test]
fn populated_bytes_count_as_arrived_but_not_as_refetched() {
    let mixed = Inputs { populated_bytes: 100 * MIB, evicted_bytes: 50 * MIB, ..under_pressure(50, 0) };
    assert_eq!(kind(mixed), Some(CapacityThrash));
    assert_eq!(kind(Inputs { refetched_bytes: 49 * MIB, ..mixed }), Some(Streaming));
}

/// Records of a block that is repeatedly evicted and fetched, `per_mille` thousandths of which are
/// written.
fn recorded(per_mille: u64) -> Inputs {
    // splitmix64: the same in every run.
    let mut spread = (1_u64..).map(|at| {
        let mut z = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % 1000 < per_mille
    });
    let mut is_recorded = || spread.next() == Some(true);
    let (mut is_away, mut fetches, mut found) = (false, 0, 0);
    for _ in 0..100_000 {
        is_away |= is_recorded();
        if is_recorded() {
            fetches += 1;
            found += u64::from(std::mem::take(&mut is_away));
        }
    }
    let moved = 100_000 * MIB;
    Inputs {
        fault_entries: 100_000,
        bytes_htod: moved,
        bytes_dtoh: moved,
        evicted_bytes: moved,
        fetched_bytes: fetches * MIB,
        refetched_bytes: found * MIB,
        missing_records: 200_000 - fetches,
        ..Inputs::default()
    }
}

#[test]
fn sampled_out_records_do_not_hide_thrashing() {
    for per_mille in [1000, 900, 500, 200, 50] {
        let decision = decide(&recorded(per_mille), None);
        assert_eq!(decision.kind, Some(CapacityThrash));
        let ratio = decision.checks.iter().find(|check| check.name == "refetch_ratio").unwrap().value;
        assert!((0.9..=1.0).contains(&ratio), "{ratio} with {per_mille} of 1000 records");
    }
}

#[test]
fn missing_block_records_leave_fetched_bytes_without_a_verdict() {
    let unknown = Inputs { fetched_bytes: 0, bounces: 0, ..under_pressure(0, 0) };
    assert_eq!(kind(unknown), None);
    // Memory that was never fetched needs no record.
    let written = Inputs { bytes_htod: 0, populated_bytes: 100 * MIB, ..unknown };
    assert_eq!(kind(written), Some(Streaming));
}

#[test]
fn missing_block_records_leave_only_the_verdicts_that_do_not_need_them() {
    let mut kinds = Vec::new();
    for inputs in [
        under_pressure(100, 0),
        under_pressure(0, 100),
        under_pressure(0, 0),
        Inputs { throttles: 100, ..under_pressure(0, 0) },
        Inputs { fault_entries: 1000, bytes_htod: MIB, populated_bytes: 100 * MIB, ..Inputs::default() },
    ] {
        let unrecorded = Inputs { fetched_bytes: 0, refetched_bytes: 0, cpu_reclaimed_bytes: 0, bounces: 0, ..inputs };
        kinds.extend(kind(unrecorded));
        let needs_records = kind(inputs).unwrap().needs_records_for().is_some();
        assert_eq!(kind(unrecorded), kind(inputs).filter(|_| !needs_records));
    }
    assert_eq!(kinds, [DriverThrottling, FirstTouchStorm]);
}

#[test]
fn active_verdict_has_looser_limits() {
    for (inputs, active) in [
        (under_pressure(20, 0), CapacityThrash),
        (Inputs { bytes_dtoh: 45 * MIB, bounces: 7, ..under_pressure(0, 20) }, PingPong),
        (Inputs { evicted_bytes: 20 * MIB, ..under_pressure(0, 0) }, Streaming),
        (Inputs { throttles: 8, bounces: 90, ..under_pressure(0, 0) }, DriverThrottling),
    ] {
        assert_ne!(kind(inputs), Some(active));
        assert_eq!(decide(&inputs, Some(active)).kind, Some(active));
    }
    assert_eq!(decide(&under_pressure(19, 0), Some(CapacityThrash)).kind, Some(Streaming));
    assert_eq!(
        decide(&under_pressure(25, 0), Some(Streaming)).kind,
        Some(CapacityThrash),
        "a worse one needs no more than ever"
    );
}

#[test]
fn a_check_is_a_sentence_with_value_and_limit() {
    let sentence = |inputs, current, name| {
        let checks = decide(&inputs, current).checks;
        checks.into_iter().find(|check| check.name == name).unwrap().description
    };
    let refetched = under_pressure(100, 0);
    assert_eq!(sentence(refetched, None, "refetch_ratio"), "100 % of arriving bytes were refetched (limit 25 %)");
    assert_eq!(
        sentence(refetched, Some(CapacityThrash), "refetch_ratio"),
        "100 % of arriving bytes were refetched (limit 20 %)"
    );
    assert_eq!(
        sentence(under_pressure(0, 0), None, "refetch_ratio"),
        "0 % of arriving bytes were refetched (upper limit 25 %)"
    );
    let throttled = Inputs { throttles: 1500, ..under_pressure(0, 0) };
    assert_eq!(sentence(throttled, None, "throttles"), "the driver throttled processors 1.5k times (limit 10)");
}

#[test]
fn every_verdict_is_reproducible_from_its_checks() {
    let mut seen = Vec::new();
    for inputs in [
        under_pressure(100, 0),
        under_pressure(0, 100),
        under_pressure(0, 0),
        Inputs { throttles: 100, ..under_pressure(0, 0) },
        Inputs { fault_entries: 1000, populated_bytes: 100 * MIB, ..Inputs::default() },
    ] {
        let decision = decide(&inputs, None);
        seen.extend(decision.kind);
        assert!(decision.checks.len() >= 3);
        for check in &decision.checks {
            let at_least = check.description.contains("(limit ");
            assert!(at_least || check.description.contains("(upper limit "), "{}", check.description);
            assert!(!check.description.contains(['{', '}']), "{}", check.description);
            assert_eq!(
                if at_least { check.value >= check.threshold } else { check.value < check.threshold },
                check.met
            );
        }
    }
    seen.sort_unstable();
    let mut all = ORDER.to_vec();
    all.sort_unstable();
    assert_eq!(seen, all);
}

#[test]
fn zero_and_maximum_inputs_yield_finite_values() {
    assert_eq!(kind(Inputs::default()), None);
    let all = Inputs {
        fault_entries: u64::MAX,
        cpu_faults: u64::MAX,
        bytes_htod: u64::MAX,
        bytes_dtoh: u64::MAX,
        bytes_dtod: u64::MAX,
        evicted_bytes: u64::MAX,
        induced_eviction_bytes: u64::MAX,
        populated_bytes: u64::MAX,
        fetched_bytes: u64::MAX,
        refetched_bytes: u64::MAX,
        cpu_reclaimed_bytes: u64::MAX,
        bounces: u64::MAX,
        peer_reclaimed_bytes: u64::MAX,
        peer_bounces: u64::MAX,
        throttles: u64::MAX,
        throttled_ns: u64::MAX,
        thrashing_pages: u64::MAX,
        pinned_bytes: u64::MAX,
        missing_records: u64::MAX,
    };
    assert!(decide(&all, None).checks.iter().all(|check| check.value.is_finite()));
    // More returns than arrivals are reported, which is ignored.
    let decision = decide(&Inputs { refetched_bytes: 900 * MIB, ..under_pressure(0, 0) }, None);
    assert!(decision.checks.iter().all(|check| check.name != "refetch_ratio" || check.value <= 1.0));
}

#[test]
fn check_names_match_the_golden_file() {
    let lines = VerdictKind::ALL.map(|kind| format!("{}: {}\n", kind.name(), check_names(kind).join(" ")));
    surface::hold("checks.txt", &lines.concat());
}
