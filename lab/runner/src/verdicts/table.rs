//! Table of the outcomes for readers: a line each, the confusion matrix, and the verdict on all.

use std::fmt::{self, Write as _};

use super::{
    Report,
    label::Kind,
    outcome::{Delay, Outcome},
};
use crate::scenario::size::human;

/// Mark of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Right,
    /// Near a limit, so neither right nor wrong.
    Near,
    Wrong,
    /// Wrong, but the windows could not be judged.
    Unjudged,
}

impl Mark {
    fn of(outcome: &Outcome) -> Self {
        match (outcome.is_near, outcome.is_right()) {
            (_, true) => Self::Right,
            (true, false) => Self::Near,
            (false, false) if outcome.is_unjudged() => Self::Unjudged,
            (false, false) => Self::Wrong,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Right => "ok",
            Self::Near => "near",
            Self::Wrong => "WRONG",
            Self::Unjudged => "unjudged",
        }
    }
}

/// Line of an outcome in 80 columns, or a few more if the outcome is wrong.
pub(crate) fn line(outcome: &Outcome) -> String {
    let Outcome { variant, process, label, is_near, verdict, facts, wrong, unjudged, .. } = outcome;
    let name = format!("{variant} {process}");
    let near = if *is_near { "~" } else { " " };
    let mark = Mark::of(outcome);
    let unjudged = unjudged.iter().filter(|_| mark != Mark::Right);
    let mark = mark.name();
    let mut line = format!("{name:<31} {label:>17}{near} {verdict:>17} {:>9} {mark}", human(facts.arrived_bytes()));
    for wrong in wrong.iter().chain(unjudged) {
        // Writing to a string does not fail.
        let _ = write!(line, "\n    {wrong}");
    }
    line
}

impl Report {
    /// Whether all variants ran, and only outcomes near a limit or with windows that could not be judged
    /// are wrong.
    pub(crate) fn is_right(&self) -> bool {
        !self.outcomes.is_empty()
            && self.failures.is_empty()
            && self.outcomes.iter().all(|outcome| Mark::of(outcome) != Mark::Wrong)
    }

    fn count(&self, mark: Mark) -> usize {
        self.outcomes.iter().filter(|outcome| Mark::of(outcome) == mark).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<31} {:>17}  {:>17} {:>9}", "variant and process", "label", "verdict", "arrived")?;
        for outcome in &self.outcomes {
            writeln!(f, "{}", line(outcome))?;
        }
        writeln!(f, "\nconfusion matrix: labels down, verdicts across; those near a limit in brackets")?;
        write!(f, "{:<18}", "")?;
        for kind in Kind::ALL {
            write!(f, "{:>11}", short(kind))?;
        }
        writeln!(f)?;
        for label in Kind::ALL {
            write!(f, "{label:<18}")?;
            for verdict in Kind::ALL {
                let outcomes =
                    || self.outcomes.iter().filter(|outcome| outcome.label == label && outcome.verdict == verdict);
                let clear = outcomes().filter(|outcome| !outcome.is_near).count();
                let near = outcomes().filter(|outcome| outcome.is_near).count();
                let cell = match (clear, near) {
                    (0, 0) => ".".to_owned(),
                    (clear, 0) => clear.to_string(),
                    (clear, near) => format!("{clear} ({near})"),
                };
                write!(f, "{cell:>11}")?;
            }
            writeln!(f)?;
        }
        let delays = |name: &str, of: fn(&Outcome) -> &Vec<Delay>| {
            let mut all: Vec<Delay> = self.outcomes.iter().flat_map(of).copied().collect();
            all.sort_by(|one, other| one.windows.total_cmp(&other.windows));
            let shown = |Delay { seconds, windows }: &Delay| format!("{windows:.1} windows ({seconds:.1} s)");
            let (median, most) = (shown(all.get(all.len() / 2)?), shown(all.last()?));
            Some(format!("{name}: median {median}, at most {most}, of {}", all.len()))
        };
        let start = delays("start reported after", |outcome| &outcome.start_delays);
        let end = delays("end reported after", |outcome| &outcome.end_delays);
        writeln!(f)?;
        start.into_iter().chain(end).try_for_each(|line| writeln!(f, "{line}"))?;
        for failure in &self.failures {
            writeln!(f, "FAILED: {failure}")?;
        }
        let [right, near, wrong, unjudged] =
            [Mark::Right, Mark::Near, Mark::Wrong, Mark::Unjudged].map(|mark| self.count(mark));
        let unjudged = unjudged + self.failures.len();
        let verdict = if self.is_right() { "PASS" } else { "FAIL" };
        writeln!(f, "{verdict}: {right} right, {near} near a limit, {wrong} wrong, {unjudged} not judged")
    }
}

const fn short(kind: Kind) -> &'static str {
    match kind {
        Kind::DriverThrottling => "throttling",
        Kind::CapacityThrash => "thrash",
        Kind::PingPong => "ping_pong",
        Kind::Streaming => "streaming",
        Kind::FirstTouchStorm => "touch",
        Kind::None => "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdicts::{facts::Facts, outcome::UvmdFacts};

    fn outcome(label: Kind, verdict: Kind, is_near: bool) -> Outcome {
        Outcome {
            variant: "ping_pong_random_32m_12".to_owned(),
            process: "one".to_owned(),
            label,
            is_near,
            verdict,
            facts: Facts { fetched_bytes: 96 << 20, ..Facts::default() },
            uvmd: UvmdFacts::default(),
            episodes: Vec::new(),
            wrong: Vec::new(),
            unjudged: Vec::new(),
            start_delays: vec![Delay { seconds: 2.0, windows: 1.0 }, Delay { seconds: 4.5, windows: 2.0 }],
            end_delays: Vec::new(),
        }
    }

    fn report(outcomes: Vec<Outcome>) -> Report {
        Report { outcomes, failures: Vec::new() }
    }

    #[test]
    fn labels_are_rows_and_verdicts_columns() {
        let text = report(vec![
            outcome(Kind::CapacityThrash, Kind::CapacityThrash, false),
            outcome(Kind::CapacityThrash, Kind::Streaming, true),
            outcome(Kind::None, Kind::None, false),
        ])
        .to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 84), "{text}");
        let row = text.lines().find(|line| line.starts_with("capacity_thrash")).unwrap();
        assert_eq!(
            row.split_whitespace().collect::<Vec<_>>(),
            ["capacity_thrash", ".", "1", ".", "0", "(1)", ".", "."]
        );
        assert!(
            text.contains("start reported after: median 2.0 windows (4.5 s), at most 2.0 windows (4.5 s), of 6"),
            "{text}"
        );
        assert!(text.ends_with("PASS: 2 right, 1 near a limit, 0 wrong, 0 not judged\n"), "{text}");
    }

    #[test]
    fn a_wrong_verdict_that_is_not_near_fails_and_so_does_a_variant_without_judgement() {
        let right = || outcome(Kind::PingPong, Kind::PingPong, false);
        assert!(report(vec![right()]).is_right());
        assert!(!report(vec![right(), outcome(Kind::None, Kind::PingPong, false)]).is_right());
        let late = Outcome { unjudged: vec!["3 windows".to_owned()], ..outcome(Kind::Streaming, Kind::None, false) };
        assert!(report(vec![right(), late.clone()]).is_right());
        let text = report(vec![late]).to_string();
        assert!(text.contains("unjudged\n    3 windows\n") && text.contains("0 wrong, 1 not judged"), "{text}");
        let extra = Outcome { wrong: vec!["streaming reported".to_owned()], ..right() };
        assert!(!report(vec![extra.clone()]).is_right());
        assert!(report(vec![Outcome { is_near: true, ..extra }]).is_right());
        assert!(!Report { failures: vec!["x".to_owned()], ..report(vec![right()]) }.is_right());
        assert!(!report(Vec::new()).is_right());
    }
}
