//! From what the loop decides with.

use std::time::SystemTime;

use model::{ProcessId, decision, text::time};

use super::{Call, CallResult, Decision, Event, EventType, Measured, MemoryRange, Outcome, PlanDescription, Switched};
use crate::Verdict;

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

impl From<&model::CallResult> for CallResult {
    fn from(result: &model::CallResult) -> Self {
        let detail = match result {
            model::CallResult::Failed(detail) | model::CallResult::Denied(detail) => Some(detail.clone()),
            _ => None,
        };
        Self { result: result.name().to_owned(), detail }
    }
}

/// Rows of adjacent calls. Events are retained, so that further calls share a row for each action and result.
const ROWS_MAX: usize = 64;

/// Calls that are reported as one.
struct Row<'a> {
    first: &'a model::Call,
    /// `None` if they are not about memory beside each other.
    end: Option<u64>,
    count: u64,
    bytes: u64,
    duration_ns: u64,
}

impl<'a> Row<'a> {
    fn new(call: &'a model::Call) -> Self {
        Self {
            first: call,
            end: Some(call.step.end),
            count: 1,
            bytes: call.step.bytes(),
            duration_ns: call.duration_ns,
        }
    }

    /// Whether it was one of these. A touch copies nothing: its block matters little.
    fn take(&mut self, call: &model::Call) -> bool {
        let is_touch = matches!(call.step.action, model::Action::Touch(_));
        let is_same = self.first.step.action == call.step.action && self.first.result == call.result;
        let takes = is_same && (is_touch || self.end == Some(call.step.begin));
        if takes {
            self.add(call);
        }
        takes
    }

    /// Whether it has the action and the kind of result of these, wherever its memory is. The detail of the result
    /// may differ.
    fn is_alike(&self, call: &model::Call) -> bool {
        self.first.step.action == call.step.action && self.first.result.name() == call.result.name()
    }

    fn add(&mut self, call: &model::Call) {
        self.end = self.end.filter(|end| *end == call.step.begin).map(|_| call.step.end);
        self.count = self.count.saturating_add(1);
        self.bytes = self.bytes.saturating_add(call.step.bytes());
        self.duration_ns = self.duration_ns.saturating_add(call.duration_ns);
    }
}

impl From<Row<'_>> for Call {
    fn from(Row { first, end, count, bytes, duration_ns }: Row<'_>) -> Self {
        Self {
            action: first.step.action.name().to_owned(),
            count,
            bytes,
            range: end.map(|end| (first.step.begin, end).into()),
            result: (&first.result).into(),
            duration_ns,
        }
    }
}

impl From<&model::Outcome> for Outcome {
    fn from(outcome: &model::Outcome) -> Self {
        let mut rows: Vec<Row<'_>> = Vec::new();
        for call in &outcome.calls {
            if rows.last_mut().is_some_and(|last| last.take(call)) {
                continue;
            }
            let rest = rows.get_mut(ROWS_MAX..).unwrap_or_default();
            match rest.iter_mut().find(|row| row.is_alike(call)) {
                Some(row) => row.add(call),
                None => rows.push(Row::new(call)),
            }
        }
        Self {
            gpu_uuid: outcome.gpu.to_string(),
            is_rollback: outcome.is_rollback,
            actuator: outcome.actuator.map(|kind| kind.name().to_owned()),
            calls: rows.into_iter().map(Call::from).collect(),
        }
    }
}

impl From<&decision::Decision> for Decision {
    fn from(decision: &decision::Decision) -> Self {
        Self {
            id: decision.id.0,
            pid: decision.process.pid,
            start_ticks: decision.process.start_ticks,
            name: decision.process_name.clone(),
            gpu_uuid: decision.gpu.to_string(),
            policy: decision.policy.to_owned(),
            override_id: decision.override_id.clone(),
            verdict: decision.verdict.map(|kind| kind.name().to_owned()),
            verdict_label: decision.verdict.map(|kind| kind.label().to_owned()),
            reason: decision.reason.clone(),
            expected: decision.expected,
            stage: decision.stage.name().to_owned(),
            stage_reason: decision.stage.reason().map(str::to_owned),
            created_at: time(decision.created_at),
            updated_at: time(decision.updated_at),
            bytes: decision.bytes,
            ranges: Some(decision.ranges.iter().copied().map(MemoryRange::from).collect()),
            advice: decision.advice.iter().map(|advice| model::Action::Advise(*advice).name().to_owned()).collect(),
            done: decision.done,
            actuator: decision.actuator.map(|kind| kind.name().to_owned()),
            before: (&decision.before).into(),
            after: decision.after.as_ref().map(Measured::from),
            pace: decision.pace,
            link_bytes_saved: decision.link_bytes_saved(),
            faults_saved: decision.faults_saved(),
            effect: decision.effect(),
            last_error: decision.last_error.as_ref().map(CallResult::from),
            plan: decision.plan.clone(),
            plan_description: decision.plan.as_ref().map(PlanDescription::from),
        }
    }
}

impl Event {
    /// Of what the loop did at a time.
    #[must_use]
    pub fn new(event: &decision::Event, at: SystemTime) -> Self {
        let of = |r#type: EventType, process: ProcessId, decision: model::DecisionId| Self {
            decision_id: Some(decision.0),
            ..Self::about(r#type, at, Some(process))
        };
        match event {
            decision::Event::Created(decision) => Self {
                decision: Some(decision.into()),
                ..of(EventType::DecisionCreated, decision.process, decision.id)
            },
            decision::Event::Updated(decision) => Self {
                decision: Some(decision.into()),
                ..of(EventType::DecisionUpdated, decision.process, decision.id)
            },
            decision::Event::Applied(outcome) | decision::Event::Withheld(outcome) => Self {
                outcome: Some(outcome.into()),
                ..of(EventType::DecisionApplied, outcome.process, outcome.decision)
            },
            decision::Event::Switched { active, actor } => {
                let switched = Switched { active: *active, actor: actor.clone() };
                Self { switched: Some(switched), ..Self::about(EventType::PolicySwitched, at, None) }
            }
        }
    }

    /// Of a verdict that begins or has ended.
    #[must_use]
    pub fn of_verdict(verdict: Verdict, at: SystemTime) -> Self {
        let r#type = if verdict.ended_at.is_some() { EventType::VerdictEnded } else { EventType::VerdictStarted };
        let process = ProcessId { pid: verdict.pid, start_ticks: verdict.start_ticks };
        Self { verdict: Some(verdict), ..Self::about(r#type, at, Some(process)) }
    }

    /// Notice to a client that so many events were dropped.
    #[must_use]
    pub fn dropped(count: u64, at: SystemTime) -> Self {
        Self { dropped: Some(count), ..Self::about(EventType::EventsDropped, at, None) }
    }

    fn about(r#type: EventType, at: SystemTime, process: Option<ProcessId>) -> Self {
        Self {
            r#type: r#type.name().to_owned(),
            time: time(at),
            pid: process.map(|process| process.pid),
            start_ticks: process.map(|process| process.start_ticks),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{Action, DecisionId, GpuUuid, Place, Step, block::BLOCK_BYTES};

    use super::*;

    const GPU: GpuUuid = GpuUuid([1; 16]);

    fn rows(calls: &[(u64, Action, model::CallResult)]) -> Vec<(String, u64, u64, Option<MemoryRange>)> {
        let call = |(block, action, result): &(u64, Action, model::CallResult)| model::Call {
            step: Step { begin: block * BLOCK_BYTES, end: (block + 1) * BLOCK_BYTES, action: *action },
            result: result.clone(),
            duration_ns: 7,
        };
        let outcome = model::Outcome {
            decision: DecisionId(1),
            process: ProcessId { pid: 1, start_ticks: 1 },
            gpu: GPU,
            is_rollback: false,
            actuator: None,
            calls: calls.iter().map(call).collect(),
            advice_calls: model::AdviceCalls::default(),
            ready_ns: 0,
        };
        let calls = Outcome::from(&outcome).calls.into_iter();
        calls.map(|call| (call.result.result, call.count, call.duration_ns, call.range)).collect()
    }

    #[test]
    fn calls_beyond_the_rows_share_one_for_each_action_and_result() {
        let migrate = Action::Migrate(Place::Host);
        let calls: Vec<_> = (0..10_000)
            .map(|at| match at % 4 {
                0 => (2 * at, migrate, model::CallResult::Denied(at.to_string())),
                1 => (2 * at, Action::Touch(GPU), model::CallResult::Done),
                _ => (2 * at, migrate, model::CallResult::Done),
            })
            .collect();
        let rows = rows(&calls);
        assert_eq!(rows.len(), ROWS_MAX + 3);
        assert_eq!(rows.iter().map(|(_, count, ..)| count).sum::<u64>(), 10_000);
        assert!(rows[ROWS_MAX..].iter().all(|(.., range)| range.is_none()));
    }

    #[test]
    fn adjacent_calls_with_the_same_result_are_one_row() {
        let (to, done) = (Action::Migrate(Place::Gpu(GPU)), model::CallResult::Done);
        let calls =
            [(0, to, done.clone()), (1, to, done.clone()), (2, to, model::CallResult::NotMapped), (9, to, done)];
        let range = |begin: u64, end: u64| Some((begin * BLOCK_BYTES, end * BLOCK_BYTES).into());
        let expected = [
            ("done".to_owned(), 2, 14, range(0, 2)),
            ("not_mapped".to_owned(), 1, 7, range(2, 3)),
            ("done".to_owned(), 1, 7, range(9, 10)),
        ];
        assert_eq!(rows(&calls), expected);
    }

    #[test]
    fn touches_are_one_row_wherever_they_are() {
        let touched = |block| (block, Action::Touch(GPU), model::CallResult::Done);
        assert_eq!(rows(&[touched(0), touched(5), touched(6)]), [("done".to_owned(), 3, 21, None)]);
    }
}
