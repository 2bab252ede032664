//! What uvmd does about a process, as text.

use api::{
    GpuId,
    rule::{EffectivePolicy, PlanState, Restriction},
};
use model::ProbeFigures;

use crate::{terminal::Style, text};

/// `No advice at GPU-9a317702: the application advises the driver itself.`
fn restriction(Restriction { gpu_uuid, scope, label, reason }: &Restriction) -> String {
    let what = if label.is_empty() { scope } else { label };
    let short = |uuid: &String| GpuId { uuid: Some(uuid.clone()), ..GpuId::default() }.short();
    let at = gpu_uuid.as_ref().map(|uuid| format!(" at {}", short(uuid))).unwrap_or_default();
    text::printable(&format!("{what}{at}: {reason}.")).into_owned()
}

/// What probes of its launches have found, if there are any.
fn probes(plan: &PlanState) -> Option<String> {
    let ProbeFigures { launches, probed, named_bytes, touched_bytes, .. } = plan.probes?;
    let [named, touched] = [named_bytes, touched_bytes].map(text::bytes);
    Some(format!(
        "Probes: {} of {} launches, which access at most {touched} of the {named} that they name.",
        text::count(probed),
        text::count(launches)
    ))
}

/// Plan of its iterations, or the state on the way to one, whose reason is a restriction.
fn planned(PlanState { state, description, .. }: &PlanState) -> String {
    format!("Plan: {}.", text::printable(if description.is_empty() { state } else { description }))
}

/// What uvmd does about a process, and what prevents it from more, one line each.
pub(crate) fn lines(effective: &EffectivePolicy) -> Vec<(Style, String)> {
    let EffectivePolicy { mode, active, restrictions, plan, .. } = effective;
    let no_action = match mode.as_str() {
        "observe" => Some("No action: mode observe."),
        "shadow" => Some("No action: mode shadow; decisions are only reported (uvmctl decisions)."),
        _ if !active => Some("No action: acting is switched off (uvmctl policy show)."),
        _ => None,
    };
    let mut lines: Vec<_> = no_action.map(|text| (Style::Warning, text.to_owned())).into_iter().collect();
    lines.extend(
        plan.iter().flat_map(|plan| [Some(planned(plan)), probes(plan)]).flatten().map(|line| (Style::Plain, line)),
    );
    lines.extend(restrictions.iter().map(|each| (Style::Warning, restriction(each))));
    lines
}
