//! Evidence of a plan in its decision.

use std::time::Duration;

use model::{
    ArmFigures, Decision, DecisionId, Expected, PlanEvidence, PlannedIteration, Share, Stage,
    decision::Measured,
    policy::{PlanPolicy, Promise},
    verdict::Inputs,
};

use super::trial::mib;
use crate::act::{intervals::Intervals, life_cycle::new_decision, scene::Target};

/// Decision about a plan, before any measurement.
pub(super) fn decision(
    id: DecisionId,
    PlanPolicy { name: policy, promise }: PlanPolicy,
    planned: &PlannedIteration,
    target: &Target<'_>,
    stage: Stage,
) -> Decision {
    let PlannedIteration { planner, launches, moves, ranges, .. } = planned;
    let probes = planned.probes.map(|probes| {
        let [named, touched] = [probes.named_bytes, probes.touched_bytes].map(|bytes| mib(bytes as f64));
        format!("; by probes, {} launches access at most {touched} of the {named} that they name", probes.probed)
    });
    let reason = format!(
        "iterations of {launches} launches repeat: a plan of {planner} has {moves} moves in each, and {} by the model of the driver{}",
        outlook(promise, planned),
        probes.unwrap_or_default(),
    );
    Decision {
        plan: Some(PlanEvidence {
            planner: (*planner).to_owned(),
            promise,
            launches: *launches,
            lead: planned.lead.clone(),
            planned_moves: *moves,
            coverage_ratio: planned.coverage_percent.map(|percent| percent as f64 / 100.0),
            planned_bytes: planned.link_bytes(),
            planned_peak_bytes: planned.peak_bytes,
            room_bytes: planned.room_bytes,
            modelled_driver_bytes: planned.driver_bytes,
            planned_faulted_blocks: planned.faulted_blocks,
            modelled_driver_faulted_blocks: planned.driver_faulted_blocks,
            ..PlanEvidence::default()
        }),
        ..new_decision(
            id,
            policy,
            reason,
            &Intervals::of(ranges.iter().copied()),
            expected(promise, planned),
            stage,
            target,
        )
    }
}

/// Median iteration of an arm; `None` before its first sample.
pub(super) fn measured(arm: &ArmFigures) -> Option<Measured> {
    let ArmFigures { iterations: _, link_bytes, faults, duration_ns } = *arm;
    let inputs = Inputs { fault_entries: faults?, ..Inputs::default() };
    let window = Duration::from_nanos(duration_ns?);
    Some(Measured { window, inputs, own_link_bytes: link_bytes?, ..Measured::default() })
}

/// Lower bound of the saved share if the driver alone has a count of 0, where a ratio is undefined.
const SAVED_OF_NOTHING: f64 = -1.0;

/// Expected savings of a plan by the model of the driver: upper bounds. Bytes over the link count
/// as saved only if the plan promises them.
fn expected(promise: Promise, planned: &PlannedIteration) -> Expected {
    let saved = |planned: u64, driver: u64| match (planned, driver) {
        (0, 0) => 0.0,
        (_, 0) => SAVED_OF_NOTHING,
        _ => 1.0 - planned as f64 / driver as f64,
    };
    let share = |saved: f64, most: f64| Share { at_least: saved.min(0.0), at_most: saved.clamp(0.0, most) };
    let most = match promise {
        Promise::LinkBytes => 1.0,
        Promise::Faults => 0.0,
    };
    Expected {
        link_bytes_saved: share(saved(planned.link_bytes(), planned.driver_bytes), most),
        faults_saved: share(saved(planned.faulted_blocks, planned.driver_faulted_blocks), 1.0),
    }
}

/// Description of a plan's expected effect.
fn outlook(promise: Promise, planned: &PlannedIteration) -> String {
    match promise {
        Promise::LinkBytes => {
            let [planned, driver] = [planned.link_bytes(), planned.driver_bytes].map(|bytes| mib(bytes as f64));
            format!("copies {planned} instead of {driver}")
        }
        Promise::Faults => {
            let PlannedIteration { faulted_blocks, driver_faulted_blocks, .. } = planned;
            format!("leaves {faulted_blocks} instead of {driver_faulted_blocks} blocks to faults")
        }
    }
}
