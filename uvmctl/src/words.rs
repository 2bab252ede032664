//! Labels of verdicts, decisions and owners for tables.

use std::time::{Duration, SystemTime};

use api::{DecisionSummary, Diagnosis, Owner, Process};
use model::owner::label_or_user;
use unicode_width::UnicodeWidthStr;

use crate::text;

/// Shorter labels for narrower columns: `cycle: link -55 %`, `cycle -55 %`; `trying: cycle` before
/// the effect is measured.
fn short_decision_labels(decision: &DecisionSummary) -> Vec<String> {
    let DecisionSummary { policy, stage, action, effect, link_bytes_saved, faults_saved, .. } = decision;
    let is_measured = link_bytes_saved.or(*faults_saved).is_some();
    match effect.split_once(' ') {
        Some((_, change)) if is_measured && stage == "confirmed" => {
            [format!("{policy}: {effect}"), format!("{policy} {change}")]
                .map(|label| text::printable(&label).into_owned())
                .into()
        }
        _ => vec![text::printable(action).into_owned()],
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
        let Diagnosis { kind, label, decision, verdict, .. } = process.diagnosis.as_ref()?;
        let (shorter, since) = match (kind.as_str(), decision) {
            ("decision", Some(decision)) => (short_decision_labels(decision), None),
            ("victim" | "verdict", _) => (Vec::new(), verdict.as_ref().map(|verdict| &verdict.started_at)),
            _ => return None,
        };
        let text = text::printable(label).into_owned();
        let age = since.and_then(|since| age(since, now)).map(clock);
        Some(Self { text, shorter, age })
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
    let label = owner_of(&process.owner).unwrap_or_default();
    text::printable(&label_or_user(&label, process.user.as_deref(), process.uid)).into_owned()
}

/// Owner other than a user, in uvmd's words.
pub(crate) fn owner_of(Owner { id, label, .. }: &Owner) -> Option<String> {
    (!id.is_empty()).then(|| text::printable(label).into_owned())
}

/// `user alice`, or `user 1000` of one without a name.
pub(crate) fn user_label(user: Option<&str>, uid: u32) -> String {
    text::printable(&label_or_user("", user, uid)).into_owned()
}

/// Name of a process's user, or the uid of one without a name.
pub(crate) fn user(process: &Process) -> String {
    process.user.as_deref().map_or_else(|| process.uid.to_string(), |user| text::printable(user).into_owned())
}

#[cfg(test)]
mod tests {
    use api::VerdictSummary;

    use super::*;

    const SINCE: &str = "2026-11-21T14:00:00Z";
    const NOW: &str = "2026-11-21T14:04:12.7Z";

    fn verdict(kind: &str, label: &str) -> Diagnosis {
        let (kind, label, started_at) = (kind.to_owned(), label.to_owned(), SINCE.to_owned());
        let verdict = VerdictSummary { kind, label: label.clone(), started_at, ..VerdictSummary::default() };
        Diagnosis { kind: "verdict".to_owned(), label, verdict: Some(verdict), ..Diagnosis::default() }
    }

    fn decision(stage: &str, label: &str, effect: &str, link_bytes_saved: Option<f64>) -> Diagnosis {
        let decision = DecisionSummary {
            policy: "ping-pong".to_owned(),
            stage: stage.to_owned(),
            action: label.split(", ").next().unwrap_or_default().to_owned(),
            label: label.to_owned(),
            effect: effect.to_owned(),
            link_bytes_saved,
            ..DecisionSummary::default()
        };
        let (kind, label) = ("decision".to_owned(), label.to_owned());
        Diagnosis { kind, label, decision: Some(decision), ..Diagnosis::default() }
    }

    fn shown(diagnosis: Diagnosis, now: &str, width: usize) -> Option<String> {
        let process = Process { diagnosis: Some(diagnosis), ..Process::default() };
        Headline::of(&process, now).map(|headline| headline.within(width))
    }

    #[test]
    fn a_narrow_column_shows_the_policy_and_its_effect() {
        // `uvmctl ps`, and `uvmctl top` at 90 and at 80 columns.
        let in_widths = |diagnosis: Diagnosis| [40, 26, 17].map(|width| shown(diagnosis.clone(), NOW, width).unwrap());
        assert_eq!(
            in_widths(decision("confirmed", "acting: ping-pong, link -99 %", "link -99 %", Some(0.99))),
            ["acting: ping-pong, link -99 %", "ping-pong: link -99 %", "ping-pong -99 %"]
        );
        let expected = "link -50 % to -65 % expected";
        assert_eq!(
            in_widths(decision("trial", &format!("trying: ping-pong, {expected}"), expected, None)),
            ["trying: ping-pong"; 3]
        );
    }

    #[test]
    fn a_verdict_and_a_victim_are_shown_with_their_age() {
        let victim = |verdict| {
            let (kind, label) = ("victim".to_owned(), "victim of 41207".to_owned());
            Diagnosis { kind, label, verdict, ..Diagnosis::default() }
        };
        let thrash = verdict("capacity_thrash", "capacity thrash");
        assert_eq!(shown(thrash.clone(), NOW, 80).unwrap(), "capacity thrash 00:04:12");
        assert_eq!(shown(victim(thrash.verdict), NOW, 80).unwrap(), "victim of 41207 00:04:12");
        assert_eq!(shown(victim(None), NOW, 80).unwrap(), "victim of 41207");
    }

    #[test]
    fn no_diagnosis_and_one_of_an_unknown_kind_show_nothing() {
        assert_eq!(Headline::of(&Process::default(), NOW), None);
        assert_eq!(
            shown(Diagnosis { kind: "prophecy".to_owned(), ..verdict("streaming", "streaming") }, NOW, 80),
            None
        );
    }

    #[test]
    fn an_age_needs_room() {
        let narrow = |width| shown(verdict("capacity_thrash", "capacity thrash"), NOW, width).unwrap();
        assert_eq!([24, 23].map(narrow), ["capacity thrash 00:04:12", "capacity thrash"]);
    }

    #[test]
    fn words_of_uvmd_are_escaped() {
        let label = "warp \u{1b}";
        assert_eq!(shown(verdict("streaming", label), "", 80).unwrap(), r"warp \u{1b}");
        assert_eq!(shown(decision("confirmed", label, label, Some(0.5)), NOW, 80).unwrap(), r"warp \u{1b}");
        let owner = Owner { id: "4711".to_owned(), label: label.to_owned(), ..Owner::default() };
        assert_eq!(owner_of(&owner).unwrap(), r"warp \u{1b}");
    }

    #[test]
    fn a_verdict_without_a_valid_time_has_no_age() {
        assert_eq!(shown(verdict("streaming", "streaming"), "yesterday", 80).unwrap(), "streaming");
        // The daemon's clock was set back.
        assert_eq!(shown(verdict("streaming", "streaming"), "2026-11-21T13:00:00Z", 80).unwrap(), "streaming");
    }

    #[test]
    fn ages_have_hours_minutes_and_seconds() {
        assert_eq!(clock(Duration::from_secs(252)), "00:04:12");
        assert_eq!(clock(Duration::from_secs(100 * 3600 + 61)), "100:01:01");
    }

    #[test]
    fn a_process_without_an_owner_is_of_its_user() {
        let of = |label: &str, id: &str| {
            let owner = Owner { label: label.to_owned(), id: id.to_owned(), ..Owner::default() };
            super::owner(&Process { owner, user: Some("alice".to_owned()), ..Process::default() })
        };
        assert_eq!(of("pod 3f2a9c1e", "3f2a9c1e-1111-2222-3333-444444444444"), "pod 3f2a9c1e");
        assert_eq!(of("", ""), "user alice");
    }
}
