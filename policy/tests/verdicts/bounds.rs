//! Start and end of verdicts, for snapshots at any pace, without flapping.

use model::VerdictKind;
use policy::{
    Change,
    decision::{ORDER, decide},
};

use crate::support::*;

/// Milliseconds between snapshots: constant, or pseudo-random.
const PACES: [u64; 5] = [100, 700, 1000, 2000, 5000];

/// A window may be longer by one snapshot.
fn window(pace_ms: u64) -> u64 {
    WINDOW_MS + pace_ms
}

#[test]
fn verdict_begins_within_two_windows_of_its_onset_and_ends_within_three_of_its_end() {
    let mut dice = Dice(1);
    for pace in PACES {
        for kind in ORDER {
            for before in [idles(), starts(), trickles()] {
                let mut history = History::new();
                let onset = 10_000 + dice.roll(3000);
                history.run(&before, onset, pace).run(&load_of(kind), 60_000, pace);
                let end = history.now_ms;
                history.run(&before, 60_000, pace);
                let case = format!("{kind:?} in {before:?} every {pace} ms: {:?}", history.changes);
                let [(reported, Change::Began(began)), (gone, Change::Ended(ended))] = &history.changes[..] else {
                    panic!("{case}")
                };
                assert_eq!((began.kind, ended.kind), (kind, kind));
                assert!(*reported <= onset + 2 * window(pace), "reported at {reported}, onset {onset}: {case}");
                assert!(*gone <= end + 3 * window(pace), "gone at {gone}, end {end}: {case}");
                // No earlier than the window of the onset, which little traffic keeps open for
                // twice as long.
                let since = ms(ended.started_at);
                let earliest = onset - WINDOW_MS - window(pace);
                assert!(since >= u128::from(earliest) && since <= u128::from(onset + window(pace)), "{case}");
                let until = ms(ended.ended_at.unwrap());
                assert!(until >= u128::from(end - window(pace)) && until <= u128::from(end + window(pace)), "{case}");
            }
        }
    }
}

#[test]
fn worse_verdict_replaces_another_within_two_windows_and_a_milder_one_within_three() {
    for pace in PACES {
        for (rank, first) in ORDER.into_iter().enumerate() {
            for (other_rank, then) in ORDER.into_iter().enumerate().filter(|(other, _)| *other != rank) {
                let mut history = History::new();
                history.run(&load_of(first), 31_000, pace);
                let onset = history.now_ms;
                history.run(&load_of(then), 60_000, pace);
                let windows = if other_rank < rank { 2 } else { 3 };
                let (reported, _) = history
                    .changes
                    .iter()
                    .find(|(_, change)| matches!(change, Change::Began(verdict) if verdict.kind == then))
                    .unwrap_or_else(|| panic!("{first:?}, then {then:?} every {pace} ms: {:?}", history.reported()));
                assert!(
                    *reported <= onset + windows * window(pace),
                    "{first:?}, then {then:?} every {pace} ms: {reported}"
                );
                assert_eq!(history.active(), Some(then));
            }
        }
    }
}

#[test]
fn snapshot_intervals_may_vary() {
    let mut dice = Dice(2);
    for _ in 0..200 {
        let mut history = History::new();
        for (load, ms) in [(idles(), 5000), (thrashes(), 30_000), (idles(), 30_000)] {
            let end = history.now_ms + ms;
            while history.now_ms < end {
                // Two readings at the same time add no evidence.
                history.run(&load, dice.roll(3000).min(end - history.now_ms), u64::MAX);
                history.take_snapshot();
            }
        }
        let [(kind, reported, Some(gone))] = history.reported()[..] else { panic!("{:?}", history.changes) };
        assert_eq!(kind, VerdictKind::CapacityThrash);
        assert!((5..=15).contains(&reported) && (35..=50).contains(&gone), "{:?}", history.reported());
    }
}

#[test]
fn value_fluctuating_around_a_limit_makes_no_verdict_flap() {
    let mut dice = Dice(3);
    // By a tenth either way, and by two tenths; the threshold is a quarter.
    for swing in [25, 50] {
        for make in [refetches, returns] {
            let mut history = History::new();
            for _ in 0..500 {
                history.run(&make(250 - swing + dice.roll(2 * swing + 1)), WINDOW_MS, 1000);
            }
            assert!(history.reported().len() <= 2, "{:?}", history.reported());
        }
    }
}

#[test]
fn verdict_ends_only_by_two_contrary_windows_or_a_worse_verdict() {
    let mut dice = Dice(4);
    for _ in 0..100 {
        let mut history = History::new();
        let mut active = None;
        let mut against = 0;
        for _ in 0..200 {
            let load = match usize::try_from(dice.roll(8)).unwrap() {
                0 => starts(),
                1 => refetches(dice.roll(1000)),
                2 => returns(dice.roll(1000)),
                kind => load_of(ORDER[kind % ORDER.len()]),
            };
            let before = history.changes.len();
            history.run(&load, WINDOW_MS, 1000);
            let shown = decide(&scaled(&load), active).kind;
            against = if active.is_none() || shown == active { 0 } else { against + 1 };
            let rank = |kind| ORDER.iter().position(|other| Some(*other) == kind).unwrap_or(usize::MAX);
            let is_worse = rank(shown) < rank(active);
            let may_change = active.is_none() || against >= 2 || is_worse;
            let changes = &history.changes[before..];
            assert_eq!(!changes.is_empty(), may_change && shown != active, "{active:?} {shown:?} {changes:?}");
            if !changes.is_empty() {
                active = shown;
                against = 0;
            }
            assert_eq!(history.active(), active);
        }
        for verdict in ended(&history) {
            assert!(verdict.started_at < verdict.confirmed_at && verdict.confirmed_at <= verdict.ended_at.unwrap());
        }
    }
}

/// Contents of a window with this load.
fn scaled(load: &Load) -> Load {
    let mut history = History::new();
    history.count(load, WINDOW_MS);
    history.counted()
}
