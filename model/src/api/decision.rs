//! What was decided, and how it went: the API's answers, the lines of the audit log and the events of the stream, in one form.

mod from;

use serde::{Deserialize, Serialize};

use super::{Verdict, VerdictInputs};
pub use crate::{LinkBytes, Share, decision::Done, plan::Expected};

/// Body of `GET /api/v1/decisions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Decisions {
    /// When this was taken.
    pub time: String,
    /// The newest first.
    pub decisions: Vec<Decision>,
    /// Where the next page begins: asks for it as `continue`. Null on the last one.
    #[serde(default)]
    pub r#continue: Option<String>,
    /// How many decisions follow this page.
    #[serde(default)]
    pub remaining: u64,
}

/// One decision, from its beginning to now. Body of `GET /api/v1/decisions/{id}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Decision {
    /// Its name.
    pub id: u64,
    /// The process it is about.
    pub pid: u32,
    /// With `pid` it names the process.
    pub start_ticks: u64,
    /// The process's short name.
    pub name: String,
    /// UUID of the GPU.
    pub gpu_uuid: String,
    /// By which policy.
    pub policy: String,
    /// By which override; null where the configuration's default asked.
    pub asked_by: Option<String>,
    /// The kind of verdict that it rests on; null where it needs none.
    pub verdict: Option<String>,
    /// Why, as a sentence.
    pub reason: String,
    /// What it was to bring, as shares of what was counted before.
    pub expected: Expected,
    /// `refused`, `shadow`, `trial`, `kept`, `undone` or `over`.
    pub stage: String,
    /// Why it stands there; null for `trial` and `kept`.
    pub stage_reason: Option<String>,
    /// When it was made.
    pub made: String,
    /// When it came to where it stands.
    pub changed: String,
    /// Bytes of the ranges it is about.
    pub bytes: u64,
    /// The ranges it is about. Needs read authority; null without.
    pub ranges: Option<Vec<MemoryRange>>,
    /// The kinds of advice it has given.
    pub advice: Vec<String>,
    /// What was done.
    pub done: Done,
    /// The last window before it.
    pub before: Measured,
    /// The window it was judged by; null until there is one.
    pub after: Option<Measured>,
    /// How many times as fast as in `before` the program went in `after`, by its own work; 1 where only time could tell. Null until there is one.
    #[serde(default)]
    pub pace: Option<f64>,
    /// What part of the process's bytes over the GPU's link it saves for the same work; negative if there are more. Null until that is known.
    #[serde(default)]
    pub link_bytes_saved: Option<f64>,
    /// What part of its GPU faults it saves, likewise.
    #[serde(default)]
    pub faults_saved: Option<f64>,
    /// The last answer that was no success; null if there was none.
    pub trouble: Option<Answer>,
}

/// A part of a process's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MemoryRange {
    /// First address, in hexadecimal, with `0x`.
    pub begin: String,
    /// The address behind the last, likewise.
    pub end: String,
}

/// What a window counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Measured {
    /// How long it was.
    pub window_seconds: f64,
    /// Of the process at the GPU.
    pub inputs: VerdictInputs,
    /// Replays of fault batches that held its faults.
    pub replays: u64,
    /// Over the GPU's link, all programs together, accesses to memory elsewhere included; null where that cannot be told.
    pub link_bytes: Option<LinkBytes>,
    /// Of that, what a plan is judged by: copied for the process, both ways, and accessed across the link by anybody.
    #[serde(default)]
    pub own_link_bytes: u64,
    /// Bytes evicted of other processes at the GPU because this one needed the memory.
    pub others_evicted_bytes: u64,
}

/// What came of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Answer {
    /// `done`, `not_mapped`, `ended`, `host_memory`, `called_off`, `shadow`, `refused` or `held_back`.
    pub answer: String,
    /// What the driver or the kernel said, for `refused`, or why it was not asked, for `held_back`; else null.
    pub detail: Option<String>,
}

/// Calls of the driver that ask for the same, one after the other, or what stood in their place. The driver is asked for a block at a time: of a plan on
/// tens of gigabytes that is thousands of calls at each look.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Call {
    /// What was asked, such as `migrate_to_gpu`.
    pub action: String,
    /// How many calls.
    #[serde(default = "one")]
    pub count: u64,
    /// Of how much memory, all together.
    pub bytes: u64,
    /// Of which. Needs read authority; null without, and for renewals of blocks that are not beside each other.
    pub range: Option<MemoryRange>,
    /// What came of it.
    #[serde(flatten)]
    pub answer: Answer,
    /// How long they took together, in nanoseconds.
    pub took_ns: u64,
}

const fn one() -> u64 {
    1
}

/// What came of steps that were carried out, or tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Outcome {
    /// UUID of the GPU.
    pub gpu_uuid: String,
    /// Whether they put something back.
    pub is_undoing: bool,
    /// In the order that they were made.
    pub calls: Vec<Call>,
}

/// Everything was switched off, or on again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Switched {
    /// Whether uvmd may act now.
    pub on: bool,
    /// Who did it.
    pub by: String,
}

/// Something that happened: a line of the audit log, and an event of `GET /api/v1/events`. What does not belong to its type is null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// `decision_made`, `decision_acted`, `decision_changed`, `switched`, `verdict_began`, `verdict_ended`, and in the stream alone `events_lost`.
    pub r#type: String,
    /// When.
    pub time: String,
    /// The decision it belongs to.
    pub decision_id: Option<u64>,
    /// The process it is about.
    pub pid: Option<u32>,
    /// With `pid` it names the process.
    pub start_ticks: Option<u64>,
    /// The decision as it is now, for `decision_made` and `decision_changed`.
    pub decision: Option<Decision>,
    /// For `decision_acted`.
    pub outcome: Option<Outcome>,
    /// For `switched`.
    pub switched: Option<Switched>,
    /// For `verdict_began` and `verdict_ended`.
    pub verdict: Option<Verdict>,
    /// For `events_lost`: how many events a reader was too slow for.
    pub lost: Option<u64>,
}

impl Decision {
    /// Without what not everybody may read.
    #[must_use]
    pub fn redacted(self) -> Self {
        Self { ranges: None, ..self }
    }
}

impl Event {
    /// Without what not everybody may read.
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
