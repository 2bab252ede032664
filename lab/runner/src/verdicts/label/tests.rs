use super::*;

const M: u64 = MIB;

/// Stretch with 100 MiB arrived, all fetched.
fn fetching() -> Facts {
    Facts { fetched_bytes: 100 * M, gpu_faults: 1000, ..Facts::default() }
}

#[test]
fn each_kind_follows_the_table() {
    let thrash = Facts { evicted_bytes: 25 * M, refetched_bytes: 25 * M, ..fetching() };
    assert_eq!(Kind::of(&thrash), Kind::CapacityThrash);
    assert_eq!(Kind::of(&Facts { refetched_bytes: 25 * M - 1, ..thrash }), Kind::Streaming);
    assert_eq!(Kind::of(&Facts { evicted_bytes: 25 * M - 1, ..thrash }), Kind::None);
    assert_eq!(Kind::of(&Facts { evicted_bytes: 0, induced_eviction_bytes: 25 * M, ..thrash }), Kind::CapacityThrash);
    assert_eq!(Kind::of(&Facts { cpu_reclaimed_bytes: 26 * M, ..thrash }), Kind::None);
    let pingpong = Facts { bounces: 8, cpu_reclaimed_bytes: 25 * M, readback_bytes: 25 * M, ..fetching() };
    assert_eq!(Kind::of(&pingpong), Kind::PingPong);
    assert_eq!(Kind::of(&Facts { bounces: 7, ..pingpong }), Kind::None);
    assert_eq!(Kind::of(&Facts { readback_bytes: 24 * M, ..pingpong }), Kind::None);
    let throttled = Facts { throttles: 10, bounces: 90, ..pingpong };
    assert_eq!(Kind::of(&throttled), Kind::DriverThrottling);
    assert_eq!(Kind::of(&Facts { throttles: 9, bounces: 8, ..throttled }), Kind::PingPong);
    assert_eq!(Kind::of(&Facts { bounces: 91, ..throttled }), Kind::PingPong);
    let touched = Facts { populated_bytes: 100 * M, gpu_faults: 50, ..Facts::default() };
    assert_eq!(Kind::of(&touched), Kind::FirstTouchStorm);
    assert_eq!(Kind::of(&Facts { gpu_faults: 49, ..touched }), Kind::None);
    assert_eq!(Kind::of(&Facts { induced_eviction_bytes: 25 * M, ..touched }), Kind::Streaming);
    assert_eq!(Kind::of(&Facts::default()), Kind::None);
    assert_eq!(Kind::of(&fetching()), Kind::None, "a normal start");
}

#[test]
fn less_than_a_mebibyte_is_no_evidence_for_a_share() {
    let all = |bytes| Facts { fetched_bytes: bytes, refetched_bytes: bytes, evicted_bytes: bytes, ..Facts::default() };
    assert_eq!([all(M), all(M - 1)].map(|facts| Kind::of(&facts)), [Kind::CapacityThrash, Kind::None]);
}

#[test]
fn a_value_close_to_its_limit_leaves_both_sides_possible() {
    let thrash = Facts { evicted_bytes: 100 * M, refetched_bytes: 26 * M, ..fetching() };
    let possible = |facts: &Facts| Kind::possible(facts).into_iter().collect::<Vec<_>>();
    let both = [Kind::CapacityThrash, Kind::Streaming];
    assert_eq!(possible(&thrash), both);
    assert_eq!(possible(&Facts { refetched_bytes: 24 * M, ..thrash }), both);
    assert_eq!(possible(&Facts { refetched_bytes: 28 * M, ..thrash }), [Kind::CapacityThrash]);
    assert_eq!(possible(&Facts { refetched_bytes: 22 * M, ..thrash }), [Kind::Streaming]);
    assert_eq!(possible(&fetching()), [Kind::None]);
    let pingpong = Facts { bounces: 8, cpu_reclaimed_bytes: 90 * M, readback_bytes: 90 * M, ..fetching() };
    assert_eq!(possible(&pingpong), [Kind::PingPong, Kind::None], "one bounce less");
    let throttled = Facts { throttles: 1000, bounces: 100, ..pingpong };
    assert_eq!(possible(&throttled), [Kind::DriverThrottling]);
    let both = [Kind::DriverThrottling, Kind::PingPong];
    assert_eq!(possible(&Facts { throttles: 105, bounces: 950, ..throttled }), both, "one throttle for nine");
    assert_eq!(possible(&Facts { throttles: 130, bounces: 950, ..throttled }), [Kind::DriverThrottling]);
    assert_eq!(possible(&Facts { throttles: 90, bounces: 950, ..throttled }), [Kind::PingPong]);
}

#[test]
fn a_run_has_the_label_of_most_of_its_bytes() {
    let thrash = Facts { evicted_bytes: 100 * M, refetched_bytes: 100 * M, ..fetching() };
    let streaming = Facts { refetched_bytes: 0, ..thrash };
    let clear = |kind| Label { kind, is_near: false };
    assert_eq!(label(&[streaming, thrash, thrash]), clear(Kind::CapacityThrash));
    assert_eq!(label(&[streaming, streaming, thrash]), clear(Kind::Streaming));
    assert_eq!(label(&[]), clear(Kind::None));
    let throttled = Facts { throttles: 50, ..Facts::default() };
    assert_eq!(label(&[throttled]).kind, Kind::DriverThrottling, "if nothing arrives");
}

#[test]
fn a_run_is_near_if_a_stretch_could_change_it_or_the_second_kind_is_close() {
    let thrash = Facts { evicted_bytes: 100 * M, refetched_bytes: 100 * M, ..fetching() };
    let streaming = Facts { refetched_bytes: 0, ..thrash };
    let between = Facts { refetched_bytes: 26 * M, ..thrash };
    assert_eq!(label(&[thrash, thrash, thrash, between]), Label { kind: Kind::CapacityThrash, is_near: false });
    assert_eq!(label(&[thrash, between, streaming]), Label { kind: Kind::CapacityThrash, is_near: true });
    assert_eq!(label(&[between]), Label { kind: Kind::CapacityThrash, is_near: true });
    let four_to_five = [[thrash; 5].as_slice(), &[streaming; 4]].concat();
    assert_eq!(label(&four_to_five), Label { kind: Kind::CapacityThrash, is_near: true });
    let three_to_five = [[thrash; 5].as_slice(), &[streaming; 3]].concat();
    assert_eq!(label(&three_to_five), Label { kind: Kind::CapacityThrash, is_near: false });
}

#[test]
fn a_run_is_near_if_its_sum_is_of_its_kind_and_near() {
    let thrash = Facts { evicted_bytes: 100 * M, refetched_bytes: 100 * M, ..fetching() };
    let pingpong = Facts { bounces: 80, cpu_reclaimed_bytes: 100 * M, readback_bytes: 100 * M, ..fetching() };
    let with = |thrashing: usize, ping_ponging: usize| {
        let stretches = [vec![thrash; thrashing], vec![pingpong; ping_ponging]].concat();
        let sum = Facts { evicted_bytes: 44 * M, refetched_bytes: 44 * M, cpu_reclaimed_bytes: 56 * M, ..pingpong };
        label(&[stretches, vec![sum; 10]].concat())
    };
    assert_eq!(with(0, 0), Label { kind: Kind::PingPong, is_near: false }, "44 and 56 are no tie");
    assert_eq!(with(0, 5), Label { kind: Kind::PingPong, is_near: false });
    assert_eq!(with(1, 0), Label { kind: Kind::PingPong, is_near: true }, "540 and 560 are");
}

#[test]
fn the_table_is_that_of_the_documentation() {
    let document = include_str!("../../../../../docs/verdicts.md");
    for (kind, words) in [
        (
            Kind::DriverThrottling,
            ["at least 10 throttles", "a tenth of throttles + bounces", "refetched is less than 25 % of arrived"]
                .as_slice(),
        ),
        (
            Kind::CapacityThrash,
            &["arrived at least 1 MiB", "eviction volume at least 25 %", "at least as much as reclaimed"],
        ),
        (Kind::PingPong, &["at least 8 bounces", "reclaimed at least 25 %", "readback at least 25 %"]),
        (Kind::Streaming, &["arrived at least 1 MiB", "eviction volume at least 25 %", "refetched less than 25 %"]),
        (Kind::FirstTouchStorm, &["populated at least 50 %", "eviction volume less than 25 %", "each 2 MiB populated"]),
    ] {
        let row = document.lines().find(|line| line.starts_with(&format!("| `{kind}` |"))).unwrap();
        assert!(words.iter().all(|words| row.contains(words)), "{row}");
    }
}
