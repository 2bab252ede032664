//! From what the loop decides with.

use std::time::SystemTime;

use super::{Answer, Call, Decision, Event, Measured, MemoryRange, Outcome, Switched};
use crate::{
    ProcessId,
    api::{
        Verdict,
        text::{address, time},
    },
    decision,
};

impl From<(u64, u64)> for MemoryRange {
    fn from((begin, end): (u64, u64)) -> Self {
        Self { begin: address(begin), end: address(end) }
    }
}

impl From<&decision::Measured> for Measured {
    fn from(measured: &decision::Measured) -> Self {
        let decision::Measured { window, inputs, replays, link, own_link_bytes, others_evicted_bytes } = *measured;
        Self {
            window_seconds: window.as_secs_f64(),
            inputs,
            replays,
            link_bytes: link,
            own_link_bytes,
            others_evicted_bytes,
        }
    }
}

impl From<&crate::Answer> for Answer {
    fn from(answer: &crate::Answer) -> Self {
        let detail = match answer {
            crate::Answer::Refused(detail) | crate::Answer::HeldBack(detail) => Some(detail.clone()),
            _ => None,
        };
        Self { answer: answer.name().to_owned(), detail }
    }
}

impl From<&crate::Call> for Call {
    fn from(crate::Call { step, answer, took_ns }: &crate::Call) -> Self {
        Self {
            action: step.action.name().to_owned(),
            bytes: step.bytes(),
            range: Some((step.begin, step.end).into()),
            answer: answer.into(),
            took_ns: *took_ns,
        }
    }
}

impl From<&crate::Outcome> for Outcome {
    fn from(outcome: &crate::Outcome) -> Self {
        Self {
            gpu_uuid: outcome.gpu.to_string(),
            is_undoing: outcome.is_undoing,
            calls: outcome.calls.iter().map(Call::from).collect(),
        }
    }
}

impl From<&decision::Decision> for Decision {
    fn from(decision: &decision::Decision) -> Self {
        let length = |(begin, end): &(u64, u64)| end.saturating_sub(*begin);
        Self {
            id: decision.id.0,
            pid: decision.process.pid,
            start_ticks: decision.process.start_ticks,
            name: decision.process_name.clone(),
            gpu_uuid: decision.gpu.to_string(),
            policy: decision.policy.to_owned(),
            asked_by: decision.asked_by.clone(),
            verdict: decision.verdict.map(|kind| kind.name().to_owned()),
            reason: decision.reason.clone(),
            expected: decision.expected,
            stage: decision.stage.name().to_owned(),
            stage_reason: decision.stage.why().map(str::to_owned),
            made: time(decision.made),
            changed: time(decision.changed),
            bytes: decision.ranges.iter().map(length).fold(0, u64::saturating_add),
            ranges: Some(decision.ranges.iter().copied().map(MemoryRange::from).collect()),
            advice: decision.advice.iter().map(|advice| crate::Action::Advise(*advice).name().to_owned()).collect(),
            done: decision.done,
            before: (&decision.before).into(),
            after: decision.after.as_ref().map(Measured::from),
            pace: decision.pace,
            link_bytes_saved: decision.link_bytes_saved(),
            faults_saved: decision.faults_saved(),
            trouble: decision.trouble.as_ref().map(Answer::from),
        }
    }
}

impl Event {
    /// Of what the loop did at a time.
    #[must_use]
    pub fn new(event: &decision::Event, at: SystemTime) -> Self {
        let of = |r#type: &str, process: ProcessId, decision: crate::DecisionId| Self {
            decision_id: Some(decision.0),
            ..Self::about(r#type, at, Some(process))
        };
        match event {
            decision::Event::Made(decision) => {
                Self { decision: Some(decision.into()), ..of("decision_made", decision.process, decision.id) }
            }
            decision::Event::Changed(decision) => {
                Self { decision: Some(decision.into()), ..of("decision_changed", decision.process, decision.id) }
            }
            decision::Event::Acted(outcome) => {
                Self { outcome: Some(outcome.into()), ..of("decision_acted", outcome.process, outcome.decision) }
            }
            decision::Event::Switched { on, by } => {
                let switched = Switched { on: *on, by: by.clone() };
                Self { switched: Some(switched), ..Self::about("switched", at, None) }
            }
        }
    }

    /// Of a verdict that begins or has ended.
    #[must_use]
    pub fn of_verdict(verdict: Verdict, at: SystemTime) -> Self {
        let r#type = if verdict.ended.is_some() { "verdict_ended" } else { "verdict_began" };
        let process = ProcessId { pid: verdict.pid, start_ticks: verdict.start_ticks };
        Self { verdict: Some(verdict), ..Self::about(r#type, at, Some(process)) }
    }

    /// That a reader was too slow for so many.
    #[must_use]
    pub fn lost(count: u64, at: SystemTime) -> Self {
        Self { lost: Some(count), ..Self::about("events_lost", at, None) }
    }

    fn about(r#type: &str, at: SystemTime, process: Option<ProcessId>) -> Self {
        Self {
            r#type: r#type.to_owned(),
            time: time(at),
            pid: process.map(|process| process.pid),
            start_ticks: process.map(|process| process.start_ticks),
            ..Self::default()
        }
    }
}
