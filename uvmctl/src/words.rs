//! Verdicts and owners in words that fit a table.

use std::{
    borrow::Cow,
    time::{Duration, SystemTime},
};

use model::api::{GpuDetail, Gpus, Owner, Process, Verdict, Verdicts, VictimOf};
use model::{
    Share,
    api::{
        DecisionSummary,
        decision::{Decision, Expected},
    },
};
use unicode_width::UnicodeWidthStr;

use crate::{card, text};

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

/// What a decision brought, or was to bring: `link -55 %`, `faults -80 %`; with bounds where that is not known yet.
pub(crate) fn effect(decision: &Decision) -> String {
    changed(decision.link_bytes_saved, decision.faults_saved, &decision.expected)
}

fn changed(link_saved: Option<f64>, faults_saved: Option<f64>, expected: &Expected) -> String {
    match (link_saved, faults_saved) {
        (Some(saved), _) => format!("link {}", change(saved)),
        (None, Some(saved)) => format!("faults {}", change(saved)),
        (None, None) => {
            let Share { at_least, at_most } = expected.link_bytes_saved;
            format!("link {} to {} expected", change(at_least), change(at_most))
        }
    }
}

fn change(saved: f64) -> String {
    // Nothing is no less than nothing.
    format!("{:+.0} %", -saved * 100.0 + 0.0)
}

/// What is done about a process, or would be: `acting: cycle, link -55 %`.
pub(crate) fn deed(decision: &DecisionSummary) -> String {
    let DecisionSummary { policy, stage, expected, link_bytes_saved, faults_saved, .. } = decision;
    let (how, effect) = (how(stage), changed(*link_bytes_saved, *faults_saved, expected));
    format!("{how}: {}, {effect}", text::printable(policy))
}

/// The same for where there is less and less room: `cycle: link -55 %`, `cycle -55 %`; `trying cycle` where it is not known yet.
fn deed_shorter(decision: &DecisionSummary) -> Vec<String> {
    let DecisionSummary { policy, stage, link_bytes_saved, faults_saved, .. } = decision;
    let policy = text::printable(policy);
    let known = link_bytes_saved.map(|saved| ("link", saved)).or(faults_saved.map(|saved| ("faults", saved)));
    match (known, stage.as_str()) {
        (Some((what, saved)), "confirmed") => {
            vec![format!("{policy}: {what} {}", change(saved)), format!("{policy} {}", change(saved))]
        }
        _ => vec![format!("{} {policy}", how(stage))],
    }
}

fn how(stage: &str) -> &'static str {
    match stage {
        "shadow" => "would act",
        "trial" => "trying",
        _ => "acting",
    }
}

/// The other process for whose sake a process suffers, if it is not for its own: what would fit alone is evicted only because of others. Where that
/// is not known, at least half of what it lost in the window of its verdict must have been for the other's sake. Without a verdict, anything.
/// The page has the same rule: `evictorOf` in web/page/words.js.
pub(crate) fn evictor<'a>(
    process: &'a Process,
    verdict: Option<&Verdict>,
    gpu: Option<&GpuDetail>,
) -> Option<&'a VictimOf> {
    let evictor = process.victim_of.as_ref()?;
    let suffers = |Verdict { inputs, window_seconds, .. }: &Verdict| {
        card::fits_alone(process, gpu)
            .unwrap_or_else(|| evictor.bytes_per_second as f64 * window_seconds * 2.0 >= inputs.evicted_bytes as f64)
    };
    verdict.is_none_or(suffers).then_some(evictor)
}

/// What is wrong with a process, or who makes it suffer, and since when; `None` if nothing and nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// `capacity thrash`, `victim of 41207`
    pub(crate) what: String,
    /// The same for where there is less and less room.
    shorter: Vec<String>,
    /// `00:04:12`
    pub(crate) age: Option<String>,
}

impl Trouble {
    /// By the verdicts in force, the room there is, and the daemon's clock.
    pub(crate) fn of(process: &Process, verdicts: &Verdicts, gpus: &Gpus) -> Option<Self> {
        // Where something is done about it, whether that helps is what matters.
        if let Some(decision) = process.decisions.iter().find(|decision| decision.stage != "shadow") {
            return Some(Self { what: deed(decision), shorter: deed_shorter(decision), age: None });
        }
        let age = process.verdicts.first().and_then(|verdict| age(&verdict.started_at, &verdicts.time)).map(clock);
        let is_its = |verdict: &&Verdict| (verdict.pid, verdict.start_ticks) == (process.pid, process.start_ticks);
        let verdict = verdicts.active.iter().find(is_its);
        let gpu = card::with_uuid(gpus, verdict.and_then(|verdict| verdict.gpu_uuid.as_deref()));
        let what = match (process.verdicts.first(), evictor(process, verdict, gpu)) {
            // Only what is evicted can be evicted by others.
            (Some(worst), Some(evictor)) if worst.kind == "capacity_thrash" => format!("victim of {}", evictor.pid),
            (Some(worst), _) => kind(&worst.kind).into_owned(),
            (None, Some(evictor)) => format!("victim of {}", evictor.pid),
            (None, None) => return None,
        };
        Some(Self { what, shorter: Vec::new(), age })
    }

    /// Both, if there is room for both; else as much as there is room for.
    pub(crate) fn within(&self, width: usize) -> String {
        let Self { what, shorter, age } = self;
        let both = age.iter().map(|age| format!("{what} {age}"));
        let mut all = both.chain([what.clone()]).chain(shorter.iter().cloned());
        let fits = |text: &String| text.width() <= width;
        all.find(fits).unwrap_or_else(|| shorter.last().unwrap_or(what).clone())
    }
}

/// `1.6x`
pub(crate) fn ratio(ratio: f64) -> String {
    format!("{ratio:.1}x")
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

/// Owner of a process, as short as it can be found again by: `pod 3f2a9c1e`, `job 4711`, `user alice`.
pub(crate) fn owner(process: &Process) -> String {
    owner_of(&process.owner).unwrap_or_else(|| format!("user {}", user(process)))
}

/// The same of an owner that is more than a user.
pub(crate) fn owner_of(Owner { kind, id, .. }: &Owner) -> Option<String> {
    let shortened = match kind.as_str() {
        // The first part of a UUID.
        "pod" => id.split('-').next().unwrap_or_default(),
        // As container runtimes list them.
        "container" => id.get(..12).unwrap_or(id),
        // Without the manager of a user's.
        "unit" => id.rsplit('/').next().unwrap_or_default(),
        _ => id.as_str(),
    };
    (!shortened.is_empty()).then(|| text::printable(&format!("{kind} {shortened}")).into_owned())
}

/// The name of a process's user, or the id of one without a name.
pub(crate) fn user(process: &Process) -> String {
    process.user.as_deref().map_or_else(|| process.uid.to_string(), |user| text::printable(user).into_owned())
}

#[cfg(test)]
mod tests {
    use model::api::{Gpu, VerdictInputs, VerdictSummary};

    use super::*;

    fn process(kinds: &[&str], evictor: Option<u32>) -> Process {
        let since = "2026-11-21T14:00:00Z";
        let summary =
            |kind: &&str| VerdictSummary { kind: (*kind).to_owned(), started_at: since.to_owned(), gpu_uuid: None };
        Process {
            verdicts: kinds.iter().map(summary).collect(),
            victim_of: evictor.map(|pid| VictimOf { pid, bytes_per_second: 100, ..VictimOf::default() }),
            ..Process::default()
        }
    }

    fn said(process: &Process, verdicts: Vec<Verdict>, now: &str) -> Option<String> {
        let verdicts = Verdicts { time: now.to_owned(), active: verdicts, ..Verdicts::default() };
        Trouble::of(process, &verdicts, &Gpus::default()).map(|trouble| trouble.within(80))
    }

    const NOW: &str = "2026-11-21T14:04:12.7Z";

    #[test]
    fn what_is_done_goes_before_what_was_wrong_and_what_would_be_done_does_not() {
        let decision = |stage: &str, link_bytes_saved, faults_saved| DecisionSummary {
            policy: "cycle".to_owned(),
            stage: stage.to_owned(),
            expected: Expected { link_bytes_saved: Share { at_least: 0.5, at_most: 0.65 }, ..Expected::default() },
            link_bytes_saved,
            faults_saved,
            ..DecisionSummary::default()
        };
        let said = |decision: DecisionSummary| {
            said(&Process { decisions: vec![decision], ..process(&["capacity_thrash"], None) }, Vec::new(), NOW)
                .unwrap()
        };
        assert_eq!(said(decision("confirmed", Some(0.55), Some(0.9))), "acting: cycle, link -55 %");
        assert_eq!(said(decision("confirmed", None, Some(0.9))), "acting: cycle, faults -90 %");
        assert_eq!(said(decision("confirmed", Some(-0.1), None)), "acting: cycle, link +10 %");
        assert_eq!(said(decision("trial", None, None)), "trying: cycle, link -50 % to -65 % expected");
        assert_eq!(said(decision("shadow", None, None)), "capacity thrash 00:04:12");
    }

    #[test]
    fn where_there_is_little_room_the_policy_and_what_it_brings_are_left() {
        let process = |stage: &str, link_bytes_saved, faults_saved| Process {
            decisions: vec![DecisionSummary {
                policy: "ping-pong".to_owned(),
                stage: stage.to_owned(),
                link_bytes_saved,
                faults_saved,
                ..DecisionSummary::default()
            }],
            ..Process::default()
        };
        let said = |process: &Process, width| {
            Trouble::of(process, &Verdicts::default(), &Gpus::default()).unwrap().within(width)
        };
        let kept = process("confirmed", Some(0.99), None);
        // In `uvmctl ps`, and in `uvmctl top` of 90 and of 80 columns.
        let in_widths = |process: &Process| [40, 26, 17].map(|width| said(process, width));
        assert_eq!(in_widths(&kept), ["acting: ping-pong, link -99 %", "ping-pong: link -99 %", "ping-pong -99 %"]);
        let by_faults = process("confirmed", None, Some(0.8));
        assert_eq!(
            in_widths(&by_faults),
            ["acting: ping-pong, faults -80 %", "ping-pong: faults -80 %", "ping-pong -80 %"]
        );
        let tried = process("trial", None, None);
        assert_eq!(in_widths(&tried), ["trying ping-pong"; 3], "what is expected needs more room");
    }

    #[test]
    fn what_is_wrong_and_who_makes_suffer_is_said_with_its_age() {
        let said = |process: &Process| said(process, Vec::new(), NOW);
        assert_eq!(said(&process(&["capacity_thrash", "ping_pong"], None)).unwrap(), "capacity thrash 00:04:12");
        assert_eq!(said(&process(&["ping_pong"], Some(7))).unwrap(), "ping-pong 00:04:12");
        assert_eq!(said(&process(&[], Some(41_207))).unwrap(), "victim of 41207");
        assert_eq!(said(&process(&[], None)), None);
    }

    #[test]
    fn where_the_room_is_not_known_the_victim_is_who_loses_most_to_the_other() {
        let lost = |evicted_bytes| {
            let inputs = VerdictInputs { evicted_bytes, ..VerdictInputs::default() };
            vec![Verdict { inputs, window_seconds: 2.0, ..Verdict::default() }]
        };
        // 100 bytes a second are evicted for the other.
        let process = process(&["capacity_thrash"], Some(7));
        assert_eq!(said(&process, lost(400), NOW).unwrap(), "victim of 7 00:04:12");
        assert_eq!(said(&process, lost(402), NOW).unwrap(), "capacity thrash 00:04:12");
    }

    #[test]
    fn who_would_fit_alone_is_a_victim_and_who_would_not_is_none() {
        let uuid = || Some("GPU-1".to_owned());
        let gpu = Gpu { uuid: uuid(), ..Gpu::default() };
        let gpus =
            Gpus { gpus: vec![GpuDetail { gpu, memory_bytes: Some(64), ..GpuDetail::default() }], ..Gpus::default() };
        let active = vec![Verdict { gpu_uuid: uuid(), window_seconds: 1.0, ..Verdict::default() }];
        let verdicts = Verdicts { active, ..Verdicts::default() };
        let said = |managed_bytes| {
            let process = Process { managed_bytes: Some(managed_bytes), ..process(&["capacity_thrash"], Some(7)) };
            Trouble::of(&process, &verdicts, &gpus).unwrap().what
        };
        assert_eq!([64, 65].map(said), ["victim of 7", "capacity thrash"]);
    }

    #[test]
    fn an_age_needs_room() {
        let trouble =
            Trouble { what: "capacity thrash".to_owned(), age: Some("00:04:12".to_owned()), ..Trouble::default() };
        assert_eq!(
            (trouble.within(24).as_str(), trouble.within(23).as_str()),
            ("capacity thrash 00:04:12", "capacity thrash")
        );
    }

    #[test]
    fn a_kind_that_is_not_known_yet_is_said_as_the_daemon_says_it() {
        assert_eq!(kind("warp_\u{1b}drive"), r"warp \u{1b}drive");
    }

    #[test]
    fn a_verdict_without_a_time_that_can_be_read_has_no_age() {
        assert_eq!(said(&process(&["streaming"], None), Vec::new(), "yesterday").unwrap(), "streaming");
        // The daemon's clock was set back.
        assert_eq!(said(&process(&["streaming"], None), Vec::new(), "2026-11-21T13:00:00Z").unwrap(), "streaming");
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
        assert_eq!(of("unit", "user@1000.service/train.service"), "unit train.service");
        assert_eq!(of("other", ""), "user alice");
    }
}
