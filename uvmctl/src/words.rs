//! Labels of verdicts, decisions and owners for tables.

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

/// Label of a kind of verdict.
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

/// Measured effect of a decision, or the expected one: `link -55 %`, `faults -80 %` where no fewer link
/// bytes are expected; with bounds while it is not measured yet.
pub(crate) fn effect(decision: &Decision) -> String {
    effect_label(decision.link_bytes_saved, decision.faults_saved, &decision.expected)
}

fn effect_label(link_saved: Option<f64>, faults_saved: Option<f64>, expected: &Expected) -> String {
    if let Some((figure, saved)) = known_effect(link_saved, faults_saved, expected) {
        return format!("{figure} {}", percent_change(saved));
    }
    let [(figure, _, share), _] = effects(link_saved, faults_saved, expected);
    format!("{figure} {} expected", expected_change(share))
}

/// Measured effect: the figure, and the share of it that is saved.
fn known_effect(
    link_saved: Option<f64>,
    faults_saved: Option<f64>,
    expected: &Expected,
) -> Option<(&'static str, f64)> {
    effects(link_saved, faults_saved, expected).into_iter().find_map(|(figure, saved, _)| Some((figure, saved?)))
}

/// Figures with what is saved of them and what is expected, the one first that a decision is for.
fn effects(
    link_saved: Option<f64>,
    faults_saved: Option<f64>,
    expected: &Expected,
) -> [(&'static str, Option<f64>, Share); 2] {
    let link = ("link", link_saved, expected.link_bytes_saved);
    let faults = ("faults", faults_saved, expected.faults_saved);
    let is_for_faults = expected.link_bytes_saved.at_most <= 0.0 && expected.faults_saved.at_most > 0.0;
    if is_for_faults { [faults, link] } else { [link, faults] }
}

/// Bounds of an expected change; no lower one that says nothing.
fn expected_change(Share { at_least, at_most }: Share) -> String {
    if at_least == 0.0 {
        format!("up to {}", percent_change(at_most))
    } else {
        format!("{} to {}", percent_change(at_least), percent_change(at_most))
    }
}

fn percent_change(saved: f64) -> String {
    // Avoids a negative zero.
    format!("{:+.0} %", -saved * 100.0 + 0.0)
}

/// Label of a decision: `acting: cycle, link -55 %`.
pub(crate) fn decision_label(decision: &DecisionSummary) -> String {
    let DecisionSummary { policy, stage, expected, link_bytes_saved, faults_saved, .. } = decision;
    let (verb, effect) = (stage_verb(stage), effect_label(*link_bytes_saved, *faults_saved, expected));
    format!("{verb}: {}, {effect}", text::printable(policy))
}

/// Shorter labels for narrower columns: `cycle: link -55 %`, `cycle -55 %`; `trying cycle` before
/// the effect is measured.
fn short_decision_labels(decision: &DecisionSummary) -> Vec<String> {
    let DecisionSummary { policy, stage, expected, link_bytes_saved, faults_saved, .. } = decision;
    let policy = text::printable(policy);
    let known = known_effect(*link_bytes_saved, *faults_saved, expected);
    match (known, stage.as_str()) {
        (Some((what, saved)), "confirmed") => {
            vec![format!("{policy}: {what} {}", percent_change(saved)), format!("{policy} {}", percent_change(saved))]
        }
        _ => vec![format!("{} {policy}", stage_verb(stage))],
    }
}

fn stage_verb(stage: &str) -> &'static str {
    match stage {
        "shadow" => "would act",
        "trial" => "trying",
        _ => "acting",
    }
}

/// Diagnosis of a process as text with its age.
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
    /// Creates the headline at this time of the daemon's clock; `None` without a diagnosis, or for
    /// an unknown kind.
    pub(crate) fn of(process: &Process, now: &str) -> Option<Self> {
        let Diagnosis { kind, decision, evictor, verdict } = process.diagnosis.as_ref()?;
        let age = verdict.as_ref().and_then(|verdict| age(&verdict.started_at, now)).map(clock);
        match (kind.as_str(), decision, evictor, verdict) {
            ("decision", Some(decision), ..) => {
                Some(Self { text: decision_label(decision), shorter: short_decision_labels(decision), age: None })
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

    /// Longest form that fits into `width` columns.
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

/// Duration between two RFC 3339 times.
pub(crate) fn age(since: &str, now: &str) -> Option<Duration> {
    let time = |text: &str| humantime::parse_rfc3339(text).ok();
    let (since, now): (SystemTime, SystemTime) = (time(since)?, time(now)?);
    now.duration_since(since).ok()
}

/// Formats a duration as `00:04:12`, so that a column of durations is easy to compare.
pub(crate) fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Owner of a process in a short form that still identifies it: `pod 3f2a9c1e`, `job 4711`, `user
/// alice`.
pub(crate) fn owner(process: &Process) -> String {
    owner_of(&process.owner).unwrap_or_else(|| format!("user {}", user(process)))
}

/// Owner other than a user, in a short form.
pub(crate) fn owner_of(Owner { kind, id, .. }: &Owner) -> Option<String> {
    let shortened = match kind.as_str() {
        // The first part of a UUID.
        "pod" => id.split('-').next().unwrap_or_default(),
        // Length of ids in the listings of container runtimes.
        "container" => id.get(..12).unwrap_or(id),
        // Without the user's service manager in front.
        "unit" => id.rsplit('/').next().unwrap_or_default(),
        _ => id.as_str(),
    };
    (!shortened.is_empty()).then(|| text::printable(&format!("{kind} {shortened}")).into_owned())
}

/// Name of a process's user, or the uid of one without a name.
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
    fn a_decision_for_fewer_faults_is_shown_with_these() {
        let shown = |stage, link, faults| {
            let expected = Expected {
                link_bytes_saved: Share { at_least: -0.1, at_most: 0.0 },
                faults_saved: Share { at_least: 0.0, at_most: 0.9 },
            };
            let mut diagnosis = decision(stage, "pump", link, faults);
            diagnosis.decision.as_mut().unwrap().expected = expected;
            shown(diagnosis, NOW, 80).unwrap()
        };
        assert_eq!(shown("confirmed", Some(0.01), Some(0.75)), "acting: pump, faults -75 %");
        assert_eq!(shown("trial", None, None), "trying: pump, faults up to -90 % expected");
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
    fn an_unknown_kind_is_shown_as_reported() {
        assert_eq!(kind("warp_\u{1b}drive"), r"warp \u{1b}drive");
    }

    #[test]
    fn a_verdict_without_a_valid_time_has_no_age() {
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
    fn owners_have_short_forms() {
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
