//! Decisions about processes, and their outcomes.

mod effect;

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::{
    ActuatorKind, Advice, CallResult, DecisionId, Expected, GpuUuid, LinkBytes, PlanEvidence, ProcessId, VerdictKind,
    verdict::Inputs,
};

/// Mode of acting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Observes only.
    #[default]
    Observe,
    /// Reports what `Act` would do.
    Shadow,
    /// Acts.
    Act,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Observe, Self::Shadow, Self::Act];

    /// The name in JSON and TOML.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Shadow => "shadow",
            Self::Act => "act",
        }
    }
}

/// Where a decision stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Denied by the guard: the reason.
    Denied(String),
    /// Known, and not executed, for this reason.
    Shadow(String),
    /// In effect on trial: its benefit is not known yet.
    Trial,
    /// Confirmed by its benefit, and in effect.
    Confirmed,
    /// Rolled back: the reason.
    RolledBack(String),
    /// Ended, because what justified it is over: the reason.
    Ended(String),
}

impl Stage {
    /// The names of all of them.
    pub const NAMES: [&'static str; 6] = ["denied", "shadow", "trial", "confirmed", "rolled_back", "ended"];

    /// The name in JSON.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Denied(_) => "denied",
            Self::Shadow(_) => "shadow",
            Self::Trial => "trial",
            Self::Confirmed => "confirmed",
            Self::RolledBack(_) => "rolled_back",
            Self::Ended(_) => "ended",
        }
    }

    /// Its reason; `None` for those that need none.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Denied(reason) | Self::Shadow(reason) | Self::RolledBack(reason) | Self::Ended(reason) => {
                Some(reason)
            }
            Self::Trial | Self::Confirmed => None,
        }
    }

    /// What uvmd does in it: `acting`.
    const fn verb(&self) -> &'static str {
        match self {
            Self::Denied(_) => "denied",
            Self::Shadow(_) => "would act",
            Self::Trial => "trying",
            Self::Confirmed => "acting",
            Self::RolledBack(_) => "rolled back",
            Self::Ended(_) => "ended",
        }
    }

    /// Whether anything may be in force because of it.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Shadow(_) | Self::Trial | Self::Confirmed)
    }
}

/// Counts of a window, of the process and of others beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Length.
    pub window: Duration,
    /// Counts of the process at the GPU.
    pub inputs: Inputs,
    /// Replays of fault batches that held its faults.
    pub replays: u64,
    /// Over the GPU's link, all programs together; `None` where that cannot be told.
    pub link: Option<LinkBytes>,
    /// Of that, what a plan is judged by: copied for the process, both ways, and accessed across the link by anybody, as nobody can tell by whom.
    pub own_link_bytes: u64,
    /// Bytes evicted of other processes at the GPU because this one needed the memory.
    pub others_evicted_bytes: u64,
}

/// Sums over the calls that were made for a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Done {
    /// Calls of the driver that did what they should.
    pub calls: u64,
    /// Calls that were not made or were refused.
    pub failed: u64,
    /// Bytes that it was asked to move to the GPU.
    pub to_gpu_bytes: u64,
    /// Bytes that it was asked to move to the host.
    pub to_host_bytes: u64,
    /// Blocks touched.
    pub touches: u64,
    /// Bytes on which advice is in force.
    pub advised_bytes: u64,
    /// The longest call, in nanoseconds.
    pub longest_ns: u64,
}

/// One decision, from its creation to now.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Its name.
    pub id: DecisionId,
    /// About whom.
    pub process: ProcessId,
    /// Its short name (comm), for those who read this later.
    pub process_name: String,
    /// Where.
    pub gpu: GpuUuid,
    /// By which policy.
    pub policy: &'static str,
    /// By which override, if by one.
    pub override_id: Option<String>,
    /// On what verdict it rests.
    pub verdict: Option<VerdictKind>,
    /// Reason, as a sentence without addresses, since everybody may read it.
    pub reason: String,
    /// Size of the memory that it is about, in bytes.
    pub bytes: u64,
    /// Ranges of that memory: at most 1,024, the largest.
    pub ranges: Vec<(u64, u64)>,
    /// The kinds of advice it has given.
    pub advice: Vec<Advice>,
    /// Expected benefit.
    pub expected: Expected,
    /// Time of its creation.
    pub created_at: SystemTime,
    /// Time of its last change of stage.
    pub updated_at: SystemTime,
    /// Where it stands.
    pub stage: Stage,
    /// The last window before it.
    pub before: Measured,
    /// The window it was judged by, once there is one.
    pub after: Option<Measured>,
    /// Pace of the program in `after` as a multiple of that in `before`, by its own work; 1 where only time is known.
    pub pace: Option<f64>,
    /// Executed calls.
    pub done: Done,
    /// Actuator of the last calls; `None` before any.
    pub actuator: Option<ActuatorKind>,
    /// The last result that was no success, if there was one.
    pub last_error: Option<CallResult>,
    /// Evidence of a plan that the helper follows; `None` for other policies.
    pub plan: Option<PlanEvidence>,
}

impl Decision {
    /// Saved share of its bytes over the GPU's link for the same work; negative if there were more. `None` if unknown.
    #[must_use]
    pub fn link_bytes_saved(&self) -> Option<f64> {
        let bytes = |of: &Measured| (of.own_link_bytes, of.window);
        saved(bytes(&self.before), bytes(self.after.as_ref()?), self.pace?)
    }

    /// Saved share of its GPU faults, likewise.
    #[must_use]
    pub fn faults_saved(&self) -> Option<f64> {
        let faults = |of: &Measured| (of.inputs.fault_entries, of.window);
        saved(faults(&self.before), faults(self.after.as_ref()?), self.pace?)
    }

    /// Measured effect in a few words, or the expected one: `link -55 %`.
    #[must_use]
    pub fn effect(&self) -> String {
        effect::effect(self.link_bytes_saved(), self.faults_saved(), &self.expected)
    }

    /// Stage and policy in words: `acting: cycle`.
    #[must_use]
    pub fn action(&self) -> String {
        format!("{}: {}", self.stage.verb(), self.policy)
    }

    /// Action with its effect: `acting: cycle, link -55 %`.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}, {}", self.action(), self.effect())
    }
}

/// From one rate to another of a program that goes so many times as fast, as a part of the first; `None` where there was nothing to save.
fn saved((before, window_before): (u64, Duration), (after, window_after): (u64, Duration), pace: f64) -> Option<f64> {
    let rate = |count: u64, window: Duration| count as f64 / window.as_secs_f64();
    let (before, after) = (rate(before, window_before), rate(after, window_after) / pace);
    (before > 0.0 && before.is_finite() && after.is_finite()).then(|| 1.0 - after / before)
}

/// Event of a decision: a line of the audit log, and an event of the stream, but for withheld steps.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Creation.
    Created(Decision),
    /// Steps of it were carried out, or tried.
    Applied(crate::Outcome),
    /// Steps that were denied or, in shadow, not called: counted in metrics alone, as they may be as many
    /// as a policy proposes.
    Withheld(crate::Outcome),
    /// Change of stage.
    Updated(Decision),
    /// Acting was switched off or on for all processes.
    Switched {
        /// Whether uvmd may act now.
        active: bool,
        /// Who switched it, in words.
        actor: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_a_part_of_what_the_same_work_took() {
        let second = Duration::from_secs(1);
        assert_eq!(saved((100, second), (25, second), 1.0), Some(0.75));
        assert_eq!(saved((100, second), (50, 2 * second), 1.0), Some(0.75));
        assert_eq!(saved((100, second), (150, second), 1.0), Some(-0.5));
        assert_eq!(saved((100, second), (150, second), 3.0), Some(0.5), "it does three times as much");
        assert_eq!(saved((0, second), (1, second), 1.0), None);
        assert_eq!(saved((1, Duration::ZERO), (1, second), 1.0), None);
        assert_eq!(saved((1, second), (1, Duration::ZERO), 1.0), None);
        assert_eq!(saved((1, second), (1, second), 0.0), None);
    }
}
