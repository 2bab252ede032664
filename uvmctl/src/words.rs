//! Verdicts and owners in words that fit a table.

use std::{
    borrow::Cow,
    time::{Duration, SystemTime},
};

use model::api::{Diagnosis, Owner, Process};
use model::{
    Share,
    api::{
        DecisionSummary,
        decision::{Decision, Expected},
    },
};
use unicode_width::UnicodeWidthStr;

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

/// Diagnosis of a process as text, with its age.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Headline {
    /// `capacity thrash`, `victim of 41207`
    pub(crate) text: String,
    /// Shorter forms for narrow columns, longest first.
    shorter: Vec<String>,
    /// `00:04:12`
    pub(crate) age: Option<String>,
}

impl Headline {
    /// At this time of the daemon's clock; `None` for a process without a diagnosis, or with one of a kind that is not known here.
    pub(crate) fn of(process: &Process, now: &str) -> Option<Self> {
        let Diagnosis { kind, decision, evictor, verdict } = process.diagnosis.as_ref()?;
        let age = verdict.as_ref().and_then(|verdict| age(&verdict.started_at, now)).map(clock);
        match (kind.as_str(), decision, evictor, verdict) {
            ("decision", Some(decision), ..) => {
                Some(Self { text: deed(decision), shorter: deed_shorter(decision), age: None })
            }
            ("victim", _, Some(evictor), _) => {
                Some(Self { text: format!("victim of {}", evictor.pid), shorter: Vec::new(), age })
            }
            ("verdict", _, _, Some(verdict)) => {
                Some(Self { text: self::kind(&verdict.kind).into_owned(), shorter: Vec::new(), age })
            }
            _ => None,
        }
    }

    /// The longest form that fits into so many columns.
    pub(crate) fn within(&self, width: usize) -> String {
        let Self { text, shorter, age } = self;
        let both = age.iter().map(|age| format!("{text} {age}"));
        let mut all = both.chain([text.clone()]).chain(shorter.iter().cloned());
        let fits = |text: &String| text.width() <= width;
        all.find(fits).unwrap_or_else(|| shorter.last().unwrap_or(text).clone())
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
    use model::api::{Evictor, VerdictSummary};

    use super::*;

    const SINCE: &str = "2026-11-21T14:00:00Z";
    const NOW: &str = "2026-11-21T14:04:12.7Z";

    fn verdict(kind: &str) -> Diagnosis {
        let verdict =
            VerdictSummary { kind: kind.to_owned(), started_at: SINCE.to_owned(), ..VerdictSummary::default() };
        Diagnosis { kind: "verdict".to_owned(), verdict: Some(verdict), ..Diagnosis::default() }
    }

    fn decision(stage: &str, policy: &str, link_bytes_saved: Option<f64>, faults_saved: Option<f64>) -> Diagnosis {
        let decision = DecisionSummary {
            policy: policy.to_owned(),
            stage: stage.to_owned(),
            expected: Expected { link_bytes_saved: Share { at_least: 0.5, at_most: 0.65 }, ..Expected::default() },
            link_bytes_saved,
            faults_saved,
            ..DecisionSummary::default()
        };
        Diagnosis { kind: "decision".to_owned(), decision: Some(decision), ..Diagnosis::default() }
    }

    fn shown(diagnosis: Diagnosis, now: &str, width: usize) -> Option<String> {
        let process = Process { diagnosis: Some(diagnosis), ..Process::default() };
        Headline::of(&process, now).map(|headline| headline.within(width))
    }

    #[test]
    fn a_decision_is_shown_with_its_effect() {
        let shown = |decision| shown(decision, NOW, 80).unwrap();
        assert_eq!(shown(decision("confirmed", "cycle", Some(0.55), Some(0.9))), "acting: cycle, link -55 %");
        assert_eq!(shown(decision("confirmed", "cycle", None, Some(0.9))), "acting: cycle, faults -90 %");
        assert_eq!(shown(decision("confirmed", "cycle", Some(-0.1), None)), "acting: cycle, link +10 %");
        assert_eq!(shown(decision("trial", "cycle", None, None)), "trying: cycle, link -50 % to -65 % expected");
    }

    #[test]
    fn a_narrow_column_shows_the_policy_and_its_effect() {
        // `uvmctl ps`, and `uvmctl top` at 90 and at 80 columns.
        let in_widths = |diagnosis: Diagnosis| [40, 26, 17].map(|width| shown(diagnosis.clone(), NOW, width).unwrap());
        assert_eq!(
            in_widths(decision("confirmed", "ping-pong", Some(0.99), None)),
            ["acting: ping-pong, link -99 %", "ping-pong: link -99 %", "ping-pong -99 %"]
        );
        assert_eq!(
            in_widths(decision("confirmed", "ping-pong", None, Some(0.8))),
            ["acting: ping-pong, faults -80 %", "ping-pong: faults -80 %", "ping-pong -80 %"]
        );
        assert_eq!(in_widths(decision("trial", "ping-pong", None, None)), ["trying ping-pong"; 3]);
    }

    #[test]
    fn a_verdict_and_a_victim_are_shown_with_their_age() {
        let evictor = Some(Evictor { pid: 41_207, ..Evictor::default() });
        let victim =
            |verdict| Diagnosis { kind: "victim".to_owned(), evictor: evictor.clone(), verdict, decision: None };
        assert_eq!(shown(verdict("capacity_thrash"), NOW, 80).unwrap(), "capacity thrash 00:04:12");
        assert_eq!(shown(victim(verdict("capacity_thrash").verdict), NOW, 80).unwrap(), "victim of 41207 00:04:12");
        assert_eq!(shown(victim(None), NOW, 80).unwrap(), "victim of 41207");
    }

    #[test]
    fn no_diagnosis_and_one_of_an_unknown_kind_show_nothing() {
        assert_eq!(Headline::of(&Process::default(), NOW), None);
        assert_eq!(shown(Diagnosis { kind: "prophecy".to_owned(), ..verdict("streaming") }, NOW, 80), None);
    }

    #[test]
    fn an_age_needs_room() {
        let narrow = |width| shown(verdict("capacity_thrash"), NOW, width).unwrap();
        assert_eq!([24, 23].map(narrow), ["capacity thrash 00:04:12", "capacity thrash"]);
    }

    #[test]
    fn a_kind_that_is_not_known_yet_is_said_as_the_daemon_says_it() {
        assert_eq!(kind("warp_\u{1b}drive"), r"warp \u{1b}drive");
    }

    #[test]
    fn a_verdict_without_a_time_that_can_be_read_has_no_age() {
        assert_eq!(shown(verdict("streaming"), "yesterday", 80).unwrap(), "streaming");
        // The daemon's clock was set back.
        assert_eq!(shown(verdict("streaming"), "2026-11-21T13:00:00Z", 80).unwrap(), "streaming");
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
