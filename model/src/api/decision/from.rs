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

/// Calls that are told as one.
struct Row<'a> {
    first: &'a crate::Call,
    /// `None` if they are not about memory beside each other.
    end: Option<u64>,
    count: u64,
    bytes: u64,
    took_ns: u64,
}

impl<'a> Row<'a> {
    fn new(call: &'a crate::Call) -> Self {
        Self { first: call, end: Some(call.step.end), count: 1, bytes: call.step.bytes(), took_ns: call.took_ns }
    }

    /// Whether it was one of these. A renewal moves nothing: of which block it was matters little.
    fn take(&mut self, call: &crate::Call) -> bool {
        let is_next = self.end == Some(call.step.begin);
        let is_renewal = matches!(call.step.action, crate::Action::Renew(_));
        let is_same = self.first.step.action == call.step.action && self.first.answer == call.answer;
        if !is_same || !(is_next || is_renewal) {
            return false;
        }
        self.end = is_next.then_some(call.step.end);
        self.count = self.count.saturating_add(1);
        self.bytes = self.bytes.saturating_add(call.step.bytes());
        self.took_ns = self.took_ns.saturating_add(call.took_ns);
        true
    }
}

impl From<Row<'_>> for Call {
    fn from(Row { first, end, count, bytes, took_ns }: Row<'_>) -> Self {
        Self {
            action: first.step.action.name().to_owned(),
            count,
            bytes,
            range: end.map(|end| (first.step.begin, end).into()),
            answer: (&first.answer).into(),
            took_ns,
        }
    }
}

impl From<&crate::Outcome> for Outcome {
    fn from(outcome: &crate::Outcome) -> Self {
        let mut rows: Vec<Row<'_>> = Vec::new();
        for call in &outcome.calls {
            if !rows.last_mut().is_some_and(|last| last.take(call)) {
                rows.push(Row::new(call));
            }
        }
        Self {
            gpu_uuid: outcome.gpu.to_string(),
            is_undoing: outcome.is_undoing,
            calls: rows.into_iter().map(Call::from).collect(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, DecisionId, GpuUuid, Place, Step, block::BLOCK_BYTES};

    const GPU: GpuUuid = GpuUuid([1; 16]);

    fn told(calls: &[(u64, Action, crate::Answer)]) -> Vec<(String, u64, u64, Option<MemoryRange>)> {
        let call = |(block, action, answer): &(u64, Action, crate::Answer)| crate::Call {
            step: Step { begin: block * BLOCK_BYTES, end: (block + 1) * BLOCK_BYTES, action: *action },
            answer: answer.clone(),
            took_ns: 7,
        };
        let outcome = crate::Outcome {
            decision: DecisionId(1),
            process: ProcessId { pid: 1, start_ticks: 1 },
            gpu: GPU,
            is_undoing: false,
            calls: calls.iter().map(call).collect(),
            ready_ns: 0,
        };
        let calls = Outcome::from(&outcome).calls.into_iter();
        calls.map(|call| (call.answer.answer, call.count, call.took_ns, call.range)).collect()
    }

    #[test]
    fn calls_for_memory_beside_each_other_are_told_as_one_as_long_as_they_come_to_the_same() {
        let (to, done) = (Action::Migrate(Place::Gpu(GPU)), crate::Answer::Done);
        let calls = [(0, to, done.clone()), (1, to, done.clone()), (2, to, crate::Answer::NotMapped), (9, to, done)];
        let range = |begin: u64, end: u64| Some((begin * BLOCK_BYTES, end * BLOCK_BYTES).into());
        let expected = [
            ("done".to_owned(), 2, 14, range(0, 2)),
            ("not_mapped".to_owned(), 1, 7, range(2, 3)),
            ("done".to_owned(), 1, 7, range(9, 10)),
        ];
        assert_eq!(told(&calls), expected);
    }

    #[test]
    fn renewals_are_told_as_one_wherever_they_are() {
        let renewed = |block| (block, Action::Renew(GPU), crate::Answer::Done);
        assert_eq!(told(&[renewed(0), renewed(5), renewed(6)]), [("done".to_owned(), 3, 21, None)]);
    }
}
