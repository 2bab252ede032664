use super::*;
use crate::{scenario::size::MIB, verdicts::facts::Facts};

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Refetches of 4 MiB per second, after evictions.
const THRASH: Facts = Facts { refetched_bytes: 4 * MIB, evicted_bytes: 4 * MIB, ..FETCH };
const FETCH: Facts = Facts {
    fetched_bytes: 4 * MIB,
    populated_bytes: 0,
    evicted_bytes: 0,
    induced_eviction_bytes: 0,
    refetched_bytes: 0,
    cpu_reclaimed_bytes: 0,
    readback_bytes: 0,
    bounces: 0,
    gpu_faults: 10,
    cpu_faults: 0,
    throttles: 0,
};

fn episode(kind: Kind, since: u64, ended: Option<u64>, bytes: u64) -> Episode {
    Episode {
        kind,
        since: at(since),
        confirmed: at(since + 3),
        ended: ended.map(at),
        last_active_at: Some(at(ended.unwrap_or(since + 3) + 4)),
        window: Duration::from_secs(2),
        bytes,
    }
}

/// Outcome of a process with these phases, each with its length in seconds.
fn judged(phases: &[(Facts, u64)], episodes: &[Episode]) -> Outcome {
    let facts = phases.iter().flat_map(|(facts, seconds)| (0..*seconds).map(|_| *facts));
    let timeline = Timeline::by_seconds(7, facts.collect());
    let seconds: u64 = phases.iter().map(|(_, seconds)| seconds).sum();
    let fetched_bytes = phases.iter().map(|(facts, seconds)| facts.arrived_bytes() * seconds).sum();
    let uvmd = UvmdFacts { fetched_bytes, ..UvmdFacts::default() };
    let (variant, process, pid, gpu_bytes) = ("v", "p", 7, 32 * MIB);
    let (begin, end) = (at(0), at(seconds));
    judge(&Case { variant, process, pid, gpu_bytes, timeline: &timeline, begin, end, episodes, uvmd, unjudged: &[] })
}

#[test]
fn a_verdict_that_has_most_of_the_bytes_and_is_the_label_is_right() {
    let outcome = judged(&[(FETCH, 4), (THRASH, 40)], &[episode(Kind::CapacityThrash, 4, None, 160 * MIB)]);
    assert_eq!((outcome.label, outcome.verdict, outcome.is_near), (Kind::CapacityThrash, Kind::CapacityThrash, false));
    assert!(outcome.is_right(), "{outcome:?}");
    assert_eq!(outcome.start_delays.len(), 1);
}

#[test]
fn a_verdict_with_few_of_the_bytes_is_none() {
    let outcome = judged(&[(THRASH, 40)], &[episode(Kind::CapacityThrash, 30, None, 40 * MIB)]);
    assert_eq!((outcome.label, outcome.verdict), (Kind::CapacityThrash, Kind::None));
}

#[test]
fn a_kind_without_a_report_is_wrong_if_it_lasts() {
    let outcome = judged(&[(FETCH, 100), (THRASH, 12)], &[]);
    assert_eq!((outcome.label, outcome.verdict), (Kind::None, Kind::None));
    assert_eq!(outcome.wrong.len(), 1, "{outcome:?}");
    assert!(outcome.wrong[0].starts_with("capacity_thrash from ") && outcome.wrong[0].ends_with("never reported"));
    assert!(judged(&[(FETCH, 100), (THRASH, 5)], &[]).is_right(), "too short to be reported");
}

#[test]
fn a_report_without_evidence_is_wrong() {
    let outcome = judged(&[(FETCH, 40)], &[episode(Kind::PingPong, 10, Some(15), 20 * MIB)]);
    assert_eq!(outcome.wrong, ["ping_pong reported from 10.0 to 15.0 s, but the log shows none"]);
    let outcome = judged(
        &[(FETCH, 40), (THRASH, 12)],
        &[episode(Kind::CapacityThrash, 10, Some(15), 20 * MIB), episode(Kind::CapacityThrash, 40, None, 48 * MIB)],
    );
    assert_eq!(
        outcome.wrong,
        ["capacity_thrash reported from 10.0 to 15.0 s, but the log shows none"],
        "the second is right"
    );
}

#[test]
fn the_end_delay_is_known_if_the_process_continues() {
    let episodes = [episode(Kind::CapacityThrash, 0, Some(20), 80 * MIB)];
    assert_eq!(judged(&[(THRASH, 20), (FETCH, 20)], &episodes).end_delays.len(), 1);
    assert!(judged(&[(THRASH, 20)], &episodes).end_delays.is_empty());
}

#[test]
fn label_that_no_window_shows_is_not_judged_and_names_the_windows() {
    // All is fetched first, and a part of it evicted later: streaming as a whole.
    let lost = Facts { evicted_bytes: 2 * MIB, ..Facts { fetched_bytes: 0, gpu_faults: 0, ..FETCH } };
    let outcome = judged(&[(FETCH, 5), (lost, 4)], &[]);
    assert_eq!((outcome.label, outcome.verdict), (Kind::Streaming, Kind::None));
    assert!(outcome.is_unjudged(), "{outcome:?}");
    assert!(outcome.unjudged[0].starts_with("no window of the log shows streaming: none from 1.0 to "), "{outcome:?}");
    let streams = Facts { evicted_bytes: 4 * MIB, ..FETCH };
    assert!(!judged(&[(streams, 5)], &[]).is_unjudged(), "its windows show it");
    assert!(!judged(&[(FETCH, 9)], &[]).is_unjudged(), "without a label there is nothing to show");
}
