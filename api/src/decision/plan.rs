//! Evidence of a plan in words.

use model::{LaunchLead, policy::Promise, text};

use super::{ArmFigures, PlanCounters, PlanDescription, PlanEvidence};

impl From<&PlanEvidence> for PlanDescription {
    fn from(plan: &PlanEvidence) -> Self {
        Self { plan: planned(plan), trial: trial(plan), moves: moved(&plan.counters) }
    }
}

fn planned(plan: &PlanEvidence) -> String {
    let PlanEvidence { planner, launches, planned_moves, .. } = plan;
    let promised = match plan.promise {
        Promise::LinkBytes => {
            let [planned, driver] = [plan.planned_bytes, plan.modelled_driver_bytes].map(text::bytes);
            format!("{planned} over the link, {driver} without it")
        }
        Promise::Faults => {
            let [planned, driver] = [plan.planned_faulted_blocks, plan.modelled_driver_faulted_blocks];
            format!("{} left to faults, {} without it", text::counted(planned, "block"), text::count(driver))
        }
    };
    let coverage = plan
        .coverage_ratio
        .map(|ratio| format!("; {} of the faulted blocks are named by launches", text::percent(ratio)));
    let depth = |LaunchLead { median_launches, most_launches, .. }: &LaunchLead| {
        let [median, most] = [*median_launches, *most_launches].map(text::count);
        format!(", queued {median} deep in the median and {most} at most")
    };
    let waits = if plan.launches_wait { "; launches wait until moves are handed over to the driver" } else { "" };
    let [peak, room] = [plan.planned_peak_bytes, plan.room_bytes].map(text::bytes);
    let lead = plan.lead.as_ref().filter(|_| plan.promise == Promise::Faults).map(depth).unwrap_or_default();
    format!(
        "{}: {} in an iteration of {} launches{lead}, with up to {peak} of {room} on the GPU; {promised} by the model of the driver{}{waits}",
        planner,
        text::counted(*planned_moves, "move"),
        text::count(*launches),
        coverage.unwrap_or_default()
    )
}

/// Medians of iterations without the plan and with it.
fn trial(plan: &PlanEvidence) -> String {
    let arm = |ArmFigures { iterations, link_bytes, faults, duration_ns }: &ArmFigures| {
        let figures = [
            link_bytes.map(text::bytes),
            faults.map(|faults| text::counted(faults, "fault")),
            duration_ns.map(text::nanoseconds),
        ];
        let figures: Option<Vec<String>> = figures.into_iter().collect();
        let figures = figures.map_or_else(|| "-".to_owned(), |figures| figures.join(", "));
        format!("{figures} in each of {}", text::counted(*iterations, "iteration"))
    };
    let promised = match plan.promise {
        Promise::LinkBytes => "bytes",
        Promise::Faults => "faults",
    };
    let p_value = plan.p_value.map(|p| format!("; p = {p:.3} for fewer {promised}")).unwrap_or_default();
    format!("{} without it; {} with it{p_value}", arm(&plan.without), arm(&plan.with))
}

/// Results of the moves of a plan.
fn moved(counters: &PlanCounters) -> String {
    let PlanCounters { iterations: _, moves, late, expired, skipped, to_gpu_bytes, to_host_bytes } = *counters;
    format!(
        "{}, {} late, {} expired, {} skipped; {} to the GPU, {} to the host",
        text::counted(moves, "move"),
        text::count(late),
        text::count(expired),
        text::count(skipped),
        text::bytes(to_gpu_bytes),
        text::bytes(to_host_bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_described_by_its_moves_and_its_trial() {
        let arm = |link_mib: u64, seconds: u64| ArmFigures {
            iterations: 12,
            link_bytes: Some(link_mib << 20),
            faults: Some(link_mib * 10),
            duration_ns: Some(seconds * 1_000_000_000),
        };
        let counters = PlanCounters {
            moves: 399,
            late: 117,
            expired: 3,
            to_gpu_bytes: 442 << 20,
            to_host_bytes: 356 << 20,
            ..PlanCounters::default()
        };
        let plan = PlanEvidence {
            planner: "foresight".to_owned(),
            promise: Promise::LinkBytes,
            launches: 55,
            coverage_ratio: Some(0.98),
            lead: LaunchLead::of(&(0..55).collect::<Vec<_>>()),
            planned_moves: 26,
            planned_bytes: 52 << 20,
            planned_peak_bytes: 28 << 20,
            room_bytes: 30 << 20,
            modelled_driver_bytes: 64 << 20,
            planned_faulted_blocks: 0,
            modelled_driver_faulted_blocks: 33,
            blocks: 8,
            without: arm(87, 42),
            with: arm(49, 37),
            p_value: Some(1.0 / 70.0),
            launches_wait: true,
            counters,
        };
        let PlanDescription { plan, trial, moves } = PlanDescription::from(&plan);
        let expected = [
            "foresight: 26 moves in an iteration of 55 launches, with up to 28.0 MiB of 30.0 MiB on the GPU; 52.0 MiB over the link, 64.0 MiB without it by the model of the driver; 98 % of the faulted blocks are named by launches; launches wait until moves are handed over to the driver",
            "87.0 MiB, 870 faults, 42.0 s in each of 12 iterations without it; 49.0 MiB, 490 faults, 37.0 s in each of 12 iterations with it; p = 0.014 for fewer bytes",
            "399 moves, 117 late, 3 expired, 0 skipped; 442 MiB to the GPU, 356 MiB to the host",
        ];
        assert_eq!([plan, trial, moves], expected);
    }

    #[test]
    fn a_plan_that_promises_fewer_faults_is_described_by_its_faults() {
        let plan = PlanEvidence {
            planner: "pump".to_owned(),
            promise: Promise::Faults,
            launches: 55,
            lead: LaunchLead::of(&(0..55).collect::<Vec<_>>()),
            planned_moves: 99,
            planned_bytes: 64 << 20,
            modelled_driver_bytes: 88 << 20,
            planned_faulted_blocks: 12,
            modelled_driver_faulted_blocks: 33,
            planned_peak_bytes: 29 << 20,
            room_bytes: 30 << 20,
            ..PlanEvidence::default()
        };
        let expected = "pump: 99 moves in an iteration of 55 launches, queued 27 deep in the median and 54 at most, with up to 29.0 MiB of 30.0 MiB on the GPU; 12 blocks left to faults, 33 without it by the model of the driver";
        assert_eq!(planned(&plan), expected);
    }
}
