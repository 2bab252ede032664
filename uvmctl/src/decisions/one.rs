//! One decision as text.

use api::decision::{CallResult, Decision, Done, Measured, PlanDescription};

use super::style;
use crate::{
    output::{
        Screen,
        table::{Column, Concession, Table},
    },
    terminal::Style,
    text,
};

/// Reductions of the table of windows on a narrow terminal.
const CONCESSIONS: [Concession; 3] =
    [Concession::Drop("OTHERS'"), Concession::Drop("OWN LINK"), Concession::Drop("SECONDS")];

pub(crate) fn render(decision: &Decision, Screen { width, colour }: Screen) -> String {
    let printed = |text: &str| text::printable(text).into_owned();
    let Decision { id, pid, name, policy, override_id, reason, stage, stage_reason, created_at, updated_at, .. } =
        decision;
    let override_id = override_id.as_deref().map_or_else(|| "the configuration's default".to_owned(), printed);
    let verdict = decision.verdict_label.as_deref().map_or("none".into(), text::printable);
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
        ("Verdict", verdict.into_owned()),
        ("Memory", format!("{}{}", text::bytes(decision.bytes), ranges(decision))),
        (
            "Expected",
            format!(
                "{} of link bytes saved, {} of faults",
                bounds(&decision.expected.link_bytes_saved),
                bounds(&decision.expected.faults_saved)
            ),
        ),
        ("Effect", format!("{}{}", printed(&decision.effect), pace(decision.pace))),
    ];
    let by = actuator(decision.actuator.as_deref());
    match &decision.plan_description {
        None => lines.push(("Done", format!("{}{by}", done(&decision.done)))),
        Some(PlanDescription { plan, trial, moves }) => lines.extend([
            ("Plan", printed(plan)),
            ("Trial", printed(trial)),
            ("Done", format!("{}{by}", printed(moves))),
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

/// Basis of the effect: the same work, with the change of speed.
fn pace(pace: Option<f64>) -> String {
    let Some(pace) = pace else { return String::new() };
    let percent = (pace - 1.0) * 100.0;
    let speed = if percent.abs() < 0.5 { "unchanged".to_owned() } else { format!("{percent:+.0} %") };
    format!(" for the same work; speed {speed}")
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
    use api::decision::PlanEvidence;

    use super::*;
    use crate::terminal::Colour;

    #[test]
    fn speed_is_a_change_in_percent() {
        let paces = [Some(1.0), Some(1.004), Some(1.25), Some(0.9), None].map(pace);
        assert_eq!(paces[0], " for the same work; speed unchanged");
        assert_eq!(paces[1], paces[0]);
        assert_eq!(paces[2], " for the same work; speed +25 %");
        assert_eq!(paces[3], " for the same work; speed -10 %");
        assert_eq!(paces[4], "");
    }

    #[test]
    fn plan_is_shown_in_the_words_of_uvmd_and_without_rates_that_nobody_measured() {
        let plan = Some(PlanEvidence { planner: "foresight".to_owned(), ..PlanEvidence::default() });
        let [words, trial, moves] = ["a plan", "a trial", "399 moves"].map(str::to_owned);
        let plan_description = Some(PlanDescription { plan: words, trial, moves });
        let decision = Decision { actuator: Some("helper".to_owned()), plan, plan_description, ..Decision::default() };
        let shown = |decision| render(&decision, Screen { width: None, colour: Colour::OFF });
        let text = shown(decision);
        let expected = "\nPlan     a plan\nTrial    a trial\nDone     399 moves; by helper\n";
        assert!(text.ends_with(expected), "{text}");
    }
}
