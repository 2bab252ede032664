//! One decision as text.

use model::{
    LaunchLead,
    api::decision::{ArmFigures, CallResult, Decision, Done, Measured, PlanCounters, PlanEvidence},
    policy::Promise,
};

use super::style;
use crate::{
    output::{
        Screen,
        table::{Column, Concession, Table},
    },
    terminal::Style,
    text, words,
};

/// Reductions of the table of windows on a narrow terminal.
const CONCESSIONS: [Concession; 3] =
    [Concession::Drop("OTHERS'"), Concession::Drop("OWN LINK"), Concession::Drop("SECONDS")];

pub(crate) fn render(decision: &Decision, Screen { width, colour }: Screen) -> String {
    let printed = |text: &str| text::printable(text).into_owned();
    let Decision {
        id,
        pid,
        name,
        policy,
        override_id,
        verdict,
        reason,
        stage,
        stage_reason,
        created_at,
        updated_at,
        ..
    } = decision;
    let override_id = override_id.as_deref().map_or_else(|| "the configuration's default".to_owned(), printed);
    let verdict = verdict.as_deref().map_or_else(|| "none".to_owned(), |kind| words::kind(kind).into_owned());
    let stage_reason = stage_reason.as_deref().map(|reason| format!(": {}", printed(reason))).unwrap_or_default();
    let advice = decision.advice.join(", ");
    let mut lines = vec![
        (
            "Decision",
            format!("{id}: {} for {pid} {} on {}", printed(policy), printed(name), printed(&decision.gpu_uuid)),
        ),
        ("Reason", printed(reason)),
        ("Stage", colour.paint(style(stage), &format!("{}{stage_reason}", printed(stage)))),
        ("Created", format!("{}; {} since {}", printed(created_at), printed(stage), printed(updated_at))),
        ("Override", override_id),
        ("Verdict", verdict),
        ("Memory", format!("{}{}", text::bytes(decision.bytes), ranges(decision))),
        (
            "Expected",
            format!(
                "{} of link bytes saved, {} of faults",
                bounds(&decision.expected.link_bytes_saved),
                bounds(&decision.expected.faults_saved)
            ),
        ),
        ("Effect", format!("{}{}", words::effect(decision), pace(decision.pace))),
    ];
    let by = actuator(decision.actuator.as_deref());
    match &decision.plan {
        None => lines.push(("Done", format!("{}{by}", done(&decision.done)))),
        Some(plan) => lines.extend([
            ("Plan", planned(plan)),
            ("Trial", trial(plan)),
            ("Done", format!("{}{by}", moved(&plan.counters))),
        ]),
    }
    if !advice.is_empty() {
        lines.push(("Advice", printed(&advice)));
    }
    if let Some(CallResult { result, detail }) = &decision.last_error {
        let detail = detail.as_deref().map(|detail| format!(": {}", printed(detail))).unwrap_or_default();
        lines.push(("Error", colour.paint(Style::Warning, &format!("{}{detail}", printed(result)))));
    }
    let line =
        |(title, text): (&str, String)| format!("{} {text}", colour.paint(Style::Heading, &format!("{title:<8}")));
    let lines: Vec<String> = lines.into_iter().map(line).collect();
    // A plan is measured by iterations, and by few counts.
    let windows = decision.plan.is_none().then(|| windows(decision).fit(width, &CONCESSIONS).render(colour));
    format!("{}\n{}", lines.join("\n"), windows.map(|windows| format!("\n{windows}")).unwrap_or_default())
}

fn ranges(decision: &Decision) -> String {
    match &decision.ranges {
        None => ", where requires read permission".to_owned(),
        Some(ranges) => {
            let ranges: Vec<String> =
                ranges.iter().map(|range| format!("{:#x} to {:#x}", range.begin, range.end)).collect();
            format!(": {}", ranges.join(", "))
        }
    }
}

/// Basis of the effect: the same work, with the change of pace.
fn pace(pace: Option<f64>) -> String {
    pace.map(|pace| format!(" for the same work; {pace:.2} times as much a second as before")).unwrap_or_default()
}

fn bounds(model::Share { at_least, at_most }: &model::Share) -> String {
    format!("{} to {}", text::percent(*at_least), text::percent(*at_most))
}

fn done(done: &Done) -> String {
    let Done { calls, failed, to_gpu_bytes, to_host_bytes, touches, advised_bytes, longest_ns } = *done;
    format!(
        "{}, {} without success; {} to the GPU, {} to the host, {} advised, {}; the longest call took {}",
        text::counted(calls, "call"),
        text::count(failed),
        text::bytes(to_gpu_bytes),
        text::bytes(to_host_bytes),
        text::bytes(advised_bytes),
        text::counted(touches, "touched block"),
        text::nanoseconds(longest_ns)
    )
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
        text::printable(planner),
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

/// What came of the moves of a plan.
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

fn actuator(actuator: Option<&str>) -> String {
    actuator.map(|actuator| format!("; by {}", text::printable(actuator))).unwrap_or_default()
}

/// Rates of the windows before and after, side by side.
fn windows(Decision { before, after, .. }: &Decision) -> Table {
    let windows: Vec<(&str, &Measured)> =
        [("before", before)].into_iter().chain(after.as_ref().map(|after| ("after", after))).collect();
    let rate = |count: u64, window: &Measured, shown: fn(u64) -> String| {
        let rate = (window.window_seconds > 0.0).then(|| count as f64 / window.window_seconds);
        crate::rates::per_second(rate, shown)
    };
    let cells = |cell: &dyn Fn(&Measured) -> String| windows.iter().map(|(_, window)| cell(window)).collect::<Vec<_>>();
    let bytes = |of: fn(&Measured) -> u64| cells(&|window| rate(of(window), window, text::bytes)).into_iter();
    let link = |of: fn(&model::LinkBytes) -> u64| {
        let cell = |window: &Measured| {
            window.link_bytes.as_ref().map_or_else(|| "-".to_owned(), |link| rate(of(link), window, text::bytes))
        };
        cells(&cell).into_iter()
    };
    let columns = vec![
        Column::text("WINDOW", windows.iter().map(|(name, _)| (*name).to_owned())),
        Column::number("SECONDS", cells(&|window| format!("{:.1}", window.window_seconds)).into_iter()),
        Column::number("FAULTS/s", cells(&|window| rate(window.inputs.fault_entries, window, text::count)).into_iter()),
        Column::number("LINK H2D/s", link(|link| link.htod)),
        Column::number("LINK D2H/s", link(|link| link.dtoh)),
        Column::number("OWN LINK/s", bytes(|window| window.own_link_bytes)),
        Column::number("REFETCH/s", bytes(|window| window.inputs.refetched_bytes)),
        Column::number("EVICTED/s", bytes(|window| window.inputs.evicted_bytes)),
        Column::number("OTHERS'/s", bytes(|window| window.others_evicted_bytes)),
    ];
    let rows = windows.len();
    Table::new(columns, vec![Style::Plain; rows])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::Colour;

    #[test]
    fn plan_is_shown_by_its_iterations_and_without_rates_that_nobody_measured() {
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
        let decision = Decision { actuator: Some("helper".to_owned()), plan: Some(plan), ..Decision::default() };
        let text = render(&decision, Screen { width: None, colour: Colour::OFF });
        let expected = "\
Plan     foresight: 26 moves in an iteration of 55 launches, with up to 28.0 MiB of 30.0 MiB on the GPU; 52.0 MiB over the link, 64.0 MiB without it by the model of the driver; 98 % of the faulted blocks are named by launches; launches wait until moves are handed over to the driver
Trial    87.0 MiB, 870 faults, 42.0 s in each of 12 iterations without it; 49.0 MiB, 490 faults, 37.0 s in each of 12 iterations with it; p = 0.014 for fewer bytes
Done     399 moves, 117 late, 3 expired, 0 skipped; 442 MiB to the GPU, 356 MiB to the host; by helper
";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn plan_that_promises_fewer_faults_is_shown_by_its_faults() {
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
