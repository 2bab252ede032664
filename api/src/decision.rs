//! Decisions and their outcomes, in the one form of the API, the audit log and the event stream.

mod from;
mod plan;

use serde::{Deserialize, Serialize};

use super::{Verdict, VerdictInputs};
pub use model::{
    ArmFigures, LinkBytes, MemoryRange, PlanCounters, PlanEvidence, Share, decision::Done, order::Expected,
};

/// Body of `GET /api/v1/decisions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Decisions {
    /// Time of the snapshot.
    pub time: String,
    /// The newest first.
    pub decisions: Vec<Decision>,
    /// Cursor of the next page, for the parameter `continue`. Null on the last page.
    pub r#continue: Option<String>,
    /// Decisions that follow this page.
    pub remaining: u64,
}

/// One decision, from its creation to now. Body of `GET /api/v1/decisions/{id}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Decision {
    /// Number of the decision.
    pub id: u64,
    /// Process id of the target.
    pub pid: u32,
    /// Start time in clock ticks since boot; `pid` and this identify the process.
    pub start_ticks: u64,
    /// The process's short name.
    pub name: String,
    /// UUID of the GPU.
    pub gpu_uuid: String,
    /// Name of the policy.
    pub policy: String,
    /// Override that selected the policy; null for the configuration's default.
    pub override_id: Option<String>,
    /// Kind of the verdict behind it; null for a policy that needs none.
    pub verdict: Option<String>,
    /// Name of that kind for people; null without one.
    #[serde(default)]
    pub verdict_label: Option<String>,
    /// Reason, as a sentence.
    pub reason: String,
    /// Expected savings, as shares of the counts in `before`.
    pub expected: Expected,
    /// Stage: `denied`, `shadow`, `trial`, `confirmed`, `rolled_back` or `ended`.
    pub stage: String,
    /// Reason of the stage; null for `trial` and `confirmed`.
    pub stage_reason: Option<String>,
    /// Time of creation.
    pub created_at: String,
    /// Time of the last change of stage.
    pub updated_at: String,
    /// Size of its memory.
    pub bytes: u64,
    /// Address ranges of that memory: at most 1,024, the largest. Requires read permission; null without.
    pub ranges: Option<Vec<MemoryRange>>,
    /// Kinds of advice that it gave.
    pub advice: Vec<String>,
    /// Sums over its calls.
    pub done: Done,
    /// Actuator of its last calls: `ioctl` (the driver's ioctls, from outside of the process) or `helper` (the helper in the process). Null before any call.
    pub actuator: Option<String>,
    /// Last window before it.
    pub before: Measured,
    /// Window that verified it; null until there is one.
    pub after: Option<Measured>,
    /// Pace of the program in `after` as a multiple of that in `before`, by its own work; 1 where only time is known. Null until measured.
    pub pace: Option<f64>,
    /// Saved share of the process's bytes over the GPU's link for the same work; negative if there are more. Null until measured.
    pub link_bytes_saved: Option<f64>,
    /// Saved share of its GPU faults, likewise.
    pub faults_saved: Option<f64>,
    /// Measured effect in a few words, such as `link -55 %`; the expected one until measured, such as `link -50 % to -65 % expected`.
    #[serde(default)]
    pub effect: String,
    /// Last result that was no success; null if there was none.
    pub last_error: Option<CallResult>,
    /// Evidence of a plan that the helper follows; null for other policies.
    #[serde(default)]
    pub plan: Option<PlanEvidence>,
    /// The same in words; null for other policies.
    #[serde(default)]
    pub plan_description: Option<PlanDescription>,
}

/// Evidence of a plan in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanDescription {
    /// The plan: moves, memory, and what it promises.
    pub plan: String,
    /// Measurements without the plan and with it.
    pub trial: String,
    /// Moves that were made.
    pub moves: String,
}

/// Counts of one window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Measured {
    /// Length, in seconds.
    pub window_seconds: f64,
    /// Counts of the process at the GPU.
    pub inputs: VerdictInputs,
    /// Replays of fault batches that held its faults.
    pub replays: u64,
    /// Over the GPU's link, all programs together, accesses to memory elsewhere included; null where that cannot be told.
    pub link_bytes: Option<LinkBytes>,
    /// Part that a plan is judged by: copied for the process in both directions, and accessed remotely by any process.
    pub own_link_bytes: u64,
    /// Bytes evicted of other processes at the GPU because this one needed the memory.
    pub others_evicted_bytes: u64,
}

/// Result of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CallResult {
    /// `done`, `not_mapped`, `replaced` (advice, by the program's own), `exited`, `host_memory`, `cancelled`, `shadow`, `failed` or `denied`.
    pub result: String,
    /// Error of the driver or the kernel, for `failed`; uvmd's reason, for `denied`; else null.
    pub detail: Option<String>,
}

/// Calls of the driver that ask for the same, one after the other, or what stood in their place. The driver is asked for a block at a time: of a plan on
/// tens of gigabytes that is thousands of calls at each look. Calls beyond 64 rows are in one row for each kind and result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Call {
    /// Kind of call, such as `migrate_to_gpu`.
    pub action: String,
    /// Number of calls.
    #[serde(default = "one")]
    pub count: u64,
    /// Bytes, all together.
    pub bytes: u64,
    /// Address range. Requires read permission; null without, and for calls on memory that is not adjacent.
    pub range: Option<MemoryRange>,
    /// Result of the calls.
    #[serde(flatten)]
    pub result: CallResult,
    /// Duration of all of them, in nanoseconds.
    pub duration_ns: u64,
}

const fn one() -> u64 {
    1
}

/// Results of the steps of one order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Outcome {
    /// UUID of the GPU.
    pub gpu_uuid: String,
    /// Whether the order rolls something back.
    pub is_rollback: bool,
    /// Actuator of the calls: `ioctl` or `helper`. Null if none was made.
    pub actuator: Option<String>,
    /// Calls, in the order of time.
    pub calls: Vec<Call>,
}

/// A switch of acting, for all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Switched {
    /// Whether uvmd may act now.
    pub active: bool,
    /// Who switched it, in words.
    pub actor: String,
}

/// Type of an [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// A decision was made.
    DecisionCreated,
    /// Calls of a decision were carried out.
    DecisionApplied,
    /// A decision changed its stage, or its effect was measured.
    DecisionUpdated,
    /// Acting was switched on or off for all processes.
    PolicySwitched,
    /// A verdict was confirmed.
    VerdictStarted,
    /// A verdict ended.
    VerdictEnded,
    /// Events were dropped, as the client read too slowly. In the stream alone.
    EventsDropped,
}

impl EventType {
    /// Every type.
    pub const ALL: [Self; 7] = [
        Self::DecisionCreated,
        Self::DecisionApplied,
        Self::DecisionUpdated,
        Self::PolicySwitched,
        Self::VerdictStarted,
        Self::VerdictEnded,
        Self::EventsDropped,
    ];

    /// Name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DecisionCreated => "decision_created",
            Self::DecisionApplied => "decision_applied",
            Self::DecisionUpdated => "decision_updated",
            Self::PolicySwitched => "policy_switched",
            Self::VerdictStarted => "verdict_started",
            Self::VerdictEnded => "verdict_ended",
            Self::EventsDropped => "events_dropped",
        }
    }
}

/// A line of the audit log and an event of `GET /api/v1/events`. Fields of other types are null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// `decision_created`, `decision_applied`, `decision_updated`, `policy_switched`, `verdict_started`, `verdict_ended`, and in the stream alone `events_dropped`.
    pub r#type: String,
    /// Time of the event.
    pub time: String,
    /// Number of the decision.
    pub decision_id: Option<u64>,
    /// Process id of the target.
    pub pid: Option<u32>,
    /// Start time in clock ticks since boot; `pid` and this identify the process.
    pub start_ticks: Option<u64>,
    /// Decision after the event, for `decision_created` and `decision_updated`.
    pub decision: Option<Decision>,
    /// Outcome, in `decision_applied`.
    pub outcome: Option<Outcome>,
    /// Switch, in `policy_switched`.
    pub switched: Option<Switched>,
    /// Verdict, in `verdict_started` and `verdict_ended`.
    pub verdict: Option<Verdict>,
    /// Number of events that the client read too slowly, in `events_dropped`.
    pub dropped: Option<u64>,
}

impl Decision {
    /// Copy without the fields that require read permission.
    #[must_use]
    pub fn redacted(self) -> Self {
        Self { ranges: None, ..self }
    }
}

impl Event {
    /// Copy without the fields that require read permission.
    #[must_use]
    pub fn redacted(self) -> Self {
        let call = |call: Call| Call { range: None, ..call };
        let outcome = |outcome: Outcome| Outcome { calls: outcome.calls.into_iter().map(call).collect(), ..outcome };
        Self {
            decision: self.decision.map(Decision::redacted),
            outcome: self.outcome.map(outcome),
            verdict: self.verdict.map(|verdict| Verdict { ranges: None, ..verdict }),
            ..self
        }
    }
}
