//! Kinds of verdicts by the programs' behaviour, and complete lives of programs.

use model::VerdictKind::{self, CapacityThrash, DriverThrottling, FirstTouchStorm, PingPong, Streaming};

use crate::support::*;

#[test]
fn each_load_has_its_verdict() {
    let cases: [(&str, Load, Option<VerdictKind>); 10] = [
        ("fetches what it lost", thrashes(), Some(CapacityThrash)),
        ("uses more than there is room for, once", streams(), Some(Streaming)),
        ("shares memory between CPU and GPU", returns(1000), Some(PingPong)),
        ("is throttled by the driver", throttled(), Some(DriverThrottling)),
        ("touches new memory", touches_first(), Some(FirstTouchStorm)),
        ("fetches what the CPU wrote, and it fits", starts(), None),
        ("does next to nothing", trickles(), None),
        ("does nothing", idles(), None),
        (
            "fetches what it lost to others, where there is room again",
            Load { evicted_bytes: 0, induced_eviction_bytes: 0, bytes_dtoh: 0, ..thrashes() },
            None,
        ),
        ("prefetches new memory", Load { fault_entries: 8, ..touches_first() }, None),
    ];
    for (what, load, expected) in cases {
        let mut history = History::new();
        history.run(&load, 20_000, 1000);
        assert_eq!(history.active(), expected, "a process that {what}");
        assert!(history.changes.len() <= 1, "a process that {what}: {:?}", history.changes);
    }
}

/// Behaviour of a program, as loads with their seconds, and the verdicts about it.
type Life = (&'static str, Vec<(Load, u64)>, Vec<Reported>);

#[test]
fn phases_of_programs_have_successive_verdicts() {
    let cases: [Life; 6] = [
        (
            "walks in circles over more than there is room for",
            vec![(starts(), 4), (streams(), 6), (thrashes(), 10), (idles(), 10)],
            vec![(Streaming, 6, Some(12)), (CapacityThrash, 12, Some(24))],
        ),
        (
            "writes new memory, then works where all fits",
            vec![(touches_first(), 6), (idles(), 20)],
            vec![(FirstTouchStorm, 2, Some(10))],
        ),
        (
            "streams after it thrashed: reported once the worse verdict has ended",
            vec![(thrashes(), 10), (streams(), 10)],
            vec![(CapacityThrash, 2, Some(14)), (Streaming, 14, None)],
        ),
        (
            "pauses for a window",
            vec![(thrashes(), 10), (idles(), 2), (thrashes(), 10)],
            vec![(CapacityThrash, 2, None)],
        ),
        (
            "does something else for a window",
            vec![(thrashes(), 10), (starts(), 2), (thrashes(), 10)],
            vec![(CapacityThrash, 2, None)],
        ),
        (
            "shares pages until the driver steps in",
            vec![(returns(1000), 10), (throttled(), 10), (idles(), 10)],
            vec![(PingPong, 2, Some(12)), (DriverThrottling, 12, Some(24))],
        ),
    ];
    for (what, phases, expected) in cases {
        let mut history = History::new();
        for (load, seconds) in phases {
            history.run(&load, seconds * 1000, 1000);
        }
        assert_eq!(history.reported(), expected, "a process that {what}");
    }
}

#[test]
fn verdict_spans_its_first_to_its_last_supporting_window() {
    let mut history = History::new();
    history.run(&idles(), 33_000, 1000).run(&thrashes(), 10_000, 1000).run(&idles(), 10_000, 1000);
    let [verdict] = &ended(&history)[..] else { panic!("{:?}", history.reported()) };
    assert_eq!(ms(verdict.started_at), 33_000);
    assert_eq!(ms(verdict.confirmed_at), 35_000);
    assert_eq!(ms(verdict.ended_at.unwrap()), 43_000);
}

#[test]
fn verdict_reports_its_last_window_and_its_total() {
    let mut history = History::new();
    history.run(&thrashes(), 4000, 1000).run(&refetches(500), 2000, 1000);
    let verdicts = history.judge.verdicts();
    let [verdict] = &verdicts.active[..] else { panic!("{verdicts:?}") };
    assert_eq!(verdict.window.as_secs(), 2);
    assert_eq!(verdict.inputs.refetched_bytes, 64 * MIB);
    assert_eq!(verdict.total.refetched_bytes, (256 + 64) * MIB);
    assert_eq!(verdict.total.fetched_bytes, 384 * MIB);
    let ratio = verdict.checks.iter().find(|check| check.name == "refetch_ratio").unwrap();
    assert_eq!((ratio.value.to_string().as_str(), ratio.met), ("0.5", true));
}

#[test]
fn contrary_window_counts_towards_the_total_once_the_verdict_continues() {
    let mut history = History::new();
    history.run(&thrashes(), 4000, 1000).run(&starts(), 2000, 1000);
    let total = |history: &History| history.judge.verdicts().active[0].total.bytes_htod;
    assert_eq!(total(&history), 256 * MIB);
    history.run(&thrashes(), 2000, 1000);
    assert_eq!(total(&history), 512 * MIB);
}

#[test]
fn verdicts_are_ordered_by_traffic() {
    let mut history = History::new();
    for second in 1..=4 {
        let times = |load: &Load, factor: u64| {
            let mut sum = History::new();
            sum.count(load, second * 1000 * factor);
            sum.process()
        };
        let one = model::Process { id: id(2), ..times(&thrashes(), 1) };
        let other = model::Process { id: id(3), ..times(&thrashes(), 3) };
        history.observe(&snapshot(second * 1000, vec![one, other]));
    }
    let pids: Vec<u32> = history.judge.verdicts().active.iter().map(|verdict| verdict.process.pid).collect();
    assert_eq!(pids, [3, 2]);
}

#[test]
fn slow_machine_collects_equal_evidence_in_longer_windows() {
    let mut history = History::new();
    // 4 MiB need three seconds.
    let moved = MIB * 3 / 2;
    let slow =
        Load { fault_entries: 12, bytes_htod: moved, bytes_dtoh: moved, evicted_bytes: moved, ..Load::default() };
    history.run(&Load { fetched_bytes: moved, refetched_bytes: moved, ..slow }, 30_000, 1000);
    assert_eq!(history.active(), Some(CapacityThrash));
    assert_eq!(history.judge.verdicts().active[0].window.as_secs(), 3);
}

#[test]
fn memory_that_two_gpus_take_from_each_other_is_a_ping_pong_between_them() {
    let staged = returns_from_peer(1000);
    let direct = Load { bytes_htod: 0, bytes_dtoh: 0, bytes_dtod: staged.bytes_htod, ..staged };
    for load in [staged, direct] {
        let mut history = History::new();
        history.run(&load, 20_000, 1000);
        let verdicts = history.judge.verdicts();
        let [verdict] = &verdicts.active[..] else { panic!("{verdicts:?}") };
        assert_eq!((verdict.kind, verdict.peer), (PingPong, Some(PEER)));
        let checks: Vec<_> = verdict.checks.iter().map(|check| check.name).collect();
        assert_eq!(checks, ["peer_bounces", "peer_reclaimed_ratio"]);
        // The other side may be a CPU later.
        history.run(&returns(1000), 4000, 1000);
        let verdicts = history.judge.verdicts();
        assert_eq!((verdicts.active[0].kind, verdicts.active[0].peer), (PingPong, None));
        assert_eq!(history.changes.len(), 1);
    }
}

#[test]
fn handover_from_one_gpu_to_another_is_no_ping_pong() {
    let mut history = History::new();
    history.run(&returns_from_peer(0), 20_000, 1000);
    assert_eq!(history.active(), None);
}

#[test]
fn throttled_gpus_are_named() {
    let mut history = History::new();
    let load = Load { bounces: 0, cpu_reclaimed_bytes: 0, peer_bounces: 16, peer_reclaimed_bytes: MIB, ..throttled() };
    history.run(&load, 20_000, 1000);
    let verdicts = history.judge.verdicts();
    assert_eq!((verdicts.active[0].kind, verdicts.active[0].peer), (DriverThrottling, Some(PEER)));
}
