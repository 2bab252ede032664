//! Verdicts and owners in words that fit a table.

use std::{
    borrow::Cow,
    time::{Duration, SystemTime},
};

use model::api::{Owner, Process, VerdictSummary};

use crate::text;

/// The name of a kind of verdict, as people say it.
pub(crate) fn kind(kind: &str) -> Cow<'_, str> {
    match kind {
        "capacity_thrash" => "capacity thrash".into(),
        "ping_pong" => "ping-pong".into(),
        "driver_throttling" => "throttled".into(),
        "streaming" => "streaming".into(),
        "first_touch_storm" => "first touches".into(),
        other => text::printable(&other.replace('_', " ")).into_owned().into(),
    }
}

/// What is wrong with a process, or who makes it suffer; `None` if nothing and nobody.
pub(crate) fn verdict(process: &Process) -> Option<String> {
    match (process.verdicts.as_slice(), &process.victim_of) {
        ([worst, ..], _) => Some(kind(&worst.kind).into_owned()),
        ([], Some(evictor)) => Some(format!("victim of {}", evictor.pid)),
        ([], None) => None,
    }
}

/// The same, and for how long, by the daemon's clock.
pub(crate) fn verdict_with_age(process: &Process, now: &str) -> Option<String> {
    let verdict = verdict(process)?;
    let age = process.verdicts.first().and_then(|VerdictSummary { since, .. }| age(since, now));
    Some(match age {
        Some(age) => format!("{verdict} {}", clock(age)),
        None => verdict,
    })
}

/// From one RFC 3339 time to another.
pub(crate) fn age(since: &str, now: &str) -> Option<Duration> {
    let time = |text: &str| humantime::parse_rfc3339(text).ok();
    let (since, now): (SystemTime, SystemTime) = (time(since)?, time(now)?);
    now.duration_since(since).ok()
}

/// `00:04:12`; a column of them can be compared at a glance.
pub(crate) fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Whom a process works for, as short as it can be found again by: `pod 3f2a9c1e`, `job 4711`, `user alice`.
pub(crate) fn owner(process: &Process) -> String {
    let Owner { kind, id, .. } = &process.owner;
    let shortened = match kind.as_str() {
        // The first part of a UUID.
        "pod" => id.split('-').next().unwrap_or_default(),
        // As container runtimes list them.
        "container" => id.get(..12).unwrap_or(id),
        _ => id.as_str(),
    };
    if shortened.is_empty() {
        return format!("user {}", user(process));
    }
    text::printable(&format!("{kind} {shortened}")).into_owned()
}

/// The name of a process's user, or the id of one without a name.
pub(crate) fn user(process: &Process) -> String {
    process.user.as_deref().map_or_else(|| process.uid.to_string(), |user| text::printable(user).into_owned())
}

#[cfg(test)]
mod tests {
    use model::api::VictimOf;

    use super::*;

    fn process(kinds: &[&str], evictor: Option<u32>) -> Process {
        let since = "2026-11-21T14:00:00Z";
        let summary =
            |kind: &&str| VerdictSummary { kind: (*kind).to_owned(), since: since.to_owned(), gpu_uuid: None };
        Process {
            verdicts: kinds.iter().map(summary).collect(),
            victim_of: evictor.map(|pid| VictimOf { pid, ..VictimOf::default() }),
            ..Process::default()
        }
    }

    #[test]
    fn what_is_wrong_with_a_process_goes_before_who_makes_it_suffer() {
        let said = |process: &Process| verdict_with_age(process, "2026-11-21T14:04:12.7Z");
        assert_eq!(said(&process(&["capacity_thrash", "ping_pong"], None)).unwrap(), "capacity thrash 00:04:12");
        assert_eq!(said(&process(&["ping_pong"], Some(7))).unwrap(), "ping-pong 00:04:12");
        assert_eq!(said(&process(&[], Some(41_207))).unwrap(), "victim of 41207");
        assert_eq!(said(&process(&[], None)), None);
    }

    #[test]
    fn a_kind_that_is_not_known_yet_is_said_as_the_daemon_says_it() {
        assert_eq!(kind("warp_\u{1b}drive"), r"warp \u{1b}drive");
    }

    #[test]
    fn a_verdict_without_a_time_that_can_be_read_has_no_age() {
        assert_eq!(verdict_with_age(&process(&["streaming"], None), "yesterday").unwrap(), "streaming");
        // The daemon's clock was set back.
        assert_eq!(verdict_with_age(&process(&["streaming"], None), "2026-11-21T13:00:00Z").unwrap(), "streaming");
    }

    #[test]
    fn ages_have_hours_minutes_and_seconds() {
        assert_eq!(clock(Duration::from_secs(252)), "00:04:12");
        assert_eq!(clock(Duration::from_secs(100 * 3600 + 61)), "100:01:01");
    }

    #[test]
    fn an_owner_is_as_short_as_it_can_be_found_by() {
        let of = |kind: &str, id: &str| {
            let owner = Owner { kind: kind.to_owned(), id: id.to_owned(), ..Owner::default() };
            super::owner(&Process { owner, user: Some("alice".to_owned()), ..Process::default() })
        };
        assert_eq!(of("pod", "3f2a9c1e-1111-2222-3333-444444444444"), "pod 3f2a9c1e");
        assert_eq!(of("container", &"c0ffee".repeat(10)), "container c0ffeec0ffee");
        assert_eq!(of("job", "4711"), "job 4711");
        assert_eq!(of("unit", "train.service"), "unit train.service");
        assert_eq!(of("other", ""), "user alice");
    }
}
