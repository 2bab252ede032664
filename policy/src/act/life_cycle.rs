//! Life cycle of a decision about a live policy's proposal, or about a plan.
//!
//! proposal -> denied \
//! proposal -> shadow -> ended \
//! proposal -> trial -> confirmed -> ended, or rolled back; a trial may end or be rolled back, too
//!
//! A decision in shadow ends when acting is permitted, and the next decision starts with a trial.
//! `live` and `plans` decide when a stage ends, by different measurements.

use std::time::SystemTime;

use model::{
    Decision, DecisionId, Expected, Stage,
    decision::{Done, Measured},
};

use super::{intervals::Intervals, limits::DECISION_RANGES_MAX, scene::Target};

/// Decision at its first stage, without measurements and calls.
pub(crate) fn new_decision(
    id: DecisionId,
    policy: &'static str,
    reason: String,
    ranges: &Intervals,
    expected: Expected,
    stage: Stage,
    target: &Target<'_>,
) -> Decision {
    let taken = target.scene.snapshot.taken;
    Decision {
        id,
        process: target.process.id,
        process_name: target.process.name.clone(),
        gpu: target.gpu,
        policy,
        override_id: target.directive.override_id.clone(),
        verdict: target.verdicts.first().map(|verdict| verdict.kind),
        reason,
        bytes: ranges.bytes(),
        ranges: ranges.largest(DECISION_RANGES_MAX).iter().collect(),
        advice: Vec::new(),
        expected,
        created_at: taken,
        updated_at: taken,
        stage,
        before: Measured::default(),
        after: None,
        pace: None,
        done: Done::default(),
        actuator: None,
        last_error: None,
        plan: None,
    }
}

/// Changes the stage of a decision. `taken`: calendar time of the snapshot.
pub(crate) fn set_stage(decision: &mut Decision, stage: Stage, taken: SystemTime) {
    decision.stage = stage;
    decision.updated_at = taken;
}
