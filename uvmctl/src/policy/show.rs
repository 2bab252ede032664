//! Overrides, and the policy in effect for a process, as text.

use api::rule::{EffectivePolicy, Override, OverrideStatus, Overrides, PolicyState};
use model::{Budget, Criterion, MemoryRange, Selector};

use crate::{
    action,
    output::{
        Page,
        cell::Cell,
        table::{Column, Concession, Table},
    },
    resource::Kind,
    terminal::{Colour, Style},
    text, words,
};

const CONCESSIONS: [Concession; 4] = [
    Concession::Drop("SOURCE"),
    Concession::Shorten("MATCH", 20),
    Concession::Shorten("ID", 12),
    Concession::Drop("BUDGET"),
];

/// Page with the state of acting and the table of overrides.
pub(crate) fn page(known: &Overrides, state: &PolicyState, now: &str, colour: Colour) -> Page {
    let acts = match inactive_reason(state) {
        Some(reason) => colour.paint(Style::Warning, &reason),
        None => colour.paint(Style::Good, "uvmd may act"),
    };
    let (mode, policy) = (text::printable(&state.default_mode), text::printable(&state.default_policy));
    let mut lines = vec![format!("{acts}; default without an override: {mode} ({policy})")];
    lines.extend(persist_pending(state).map(|warning| colour.paint(Style::Warning, &warning)));
    lines.extend(known.file_error.iter().map(|error| colour.paint(Style::Warning, &text::printable(error))));
    if known.overrides.is_empty() {
        lines.push("There are no overrides".to_owned());
        return Page::text(lines.join("\n") + "\n");
    }
    Page::list(table(&known.overrides, now), &CONCESSIONS).under(lines.join("\n") + "\n\n")
}

/// Table of overrides in order of precedence.
pub(crate) fn table(all: &[OverrideStatus], now: &str) -> Table {
    let cells = |cell: fn(&Override) -> Cell| all.iter().map(move |each| cell(&each.r#override));
    let text = |text: Option<&str>| text::printable(text.unwrap_or_default()).into_owned();
    let texts = |of: fn(&Override) -> Option<&str>| all.iter().map(move |each| text(of(&each.r#override)));
    let expires = |each: &OverrideStatus| match (&each.r#override.expires_at, each.expired) {
        (None, _) => Cell::shown_as("never".to_owned(), None),
        (Some(_), true) => Cell::shown_as("expired".to_owned(), Some(0.0)),
        (Some(end), false) => words::age(now, end).map_or_else(
            || text(Some(end)).into(),
            |left| Cell::shown_as(format!("in {}", text::duration(left)), Some(left.as_secs_f64())),
        ),
    };
    let parameters = |rule: &Override| {
        let parameters: Vec<_> = rule.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Cell::optional((!parameters.is_empty()).then(|| text::printable(&parameters.join(",")).into_owned()))
    };
    let columns = vec![
        Column::text("ID", texts(|rule| rule.id.as_deref())),
        Column::text("MATCH", cells(|rule| selector_text(&rule.selector).into())),
        Column::text("MODE", texts(|rule| Some(&rule.mode))),
        Column::text("POLICY", texts(|rule| rule.policy.as_deref())),
        Column::text("PARAMETERS", cells(parameters)).wide(),
        Column::number("PRIORITY", cells(|rule| Cell::shown_as(rule.priority.to_string(), Some(rule.priority.into())))),
        Column::text("BUDGET", cells(|rule| Cell::optional(limits(&rule.budget)))),
        Column::text("EXPIRES", all.iter().map(expires)),
        Column::text("SOURCE", all.iter().map(|each| text(Some(&each.source)))),
    ];
    let styles = all.iter().map(|each| if each.expired { Style::Faded } else { Style::Plain }).collect();
    Table::new(columns, styles).named(texts(|rule| rule.id.as_deref()).map(|id| Kind::Override.named(id)))
}

/// Reason why uvmd does not act, in its words; `None` if it does.
pub(super) fn inactive_reason(state: &PolicyState) -> Option<String> {
    state.inactive_reason.as_deref().map(|reason| text::printable(reason).into_owned())
}

/// Warning about an unsaved switch, in uvmd's words; `None` if it is saved.
pub(super) fn persist_pending(state: &PolicyState) -> Option<String> {
    state.persist_warning.as_deref().map(|warning| text::printable(warning).into_owned())
}

/// Description of an override in one line.
pub(super) fn description(rule: &Override) -> String {
    let policy = text::printable(rule.policy.as_deref().unwrap_or_default());
    let mode = text::printable(&rule.mode);
    let limits = limits(&rule.budget).map(|limits| format!(", at most {limits}")).unwrap_or_default();
    let ends = rule.expires_at.as_deref().map(|end| format!(", until {}", text::printable(end))).unwrap_or_default();
    format!("{mode} by {policy} for {}{limits}{ends}", selector_text(&rule.selector))
}

/// `matches 2 processes now`, where uvmd has counted them.
pub(super) fn matches(status: &OverrideStatus) -> Option<String> {
    let matching = match status.matching_processes? {
        0 => "no process with managed memory".to_owned(),
        1 => "1 process".to_owned(),
        many => format!("{many} processes"),
    };
    Some(format!("matches {matching} now"))
}

fn limits(Budget { bytes_per_second, bytes }: &Budget) -> Option<String> {
    let rate = bytes_per_second.map(|bytes| format!("{}/s", text::bytes(bytes)));
    let all = bytes.map(|bytes| format!("{} in total", text::bytes(bytes)));
    let parts: Vec<String> = rate.into_iter().chain(all).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// `pod 7c1f*, allocations larger than 64.0 MiB`
fn selector_text(selector: &Selector) -> String {
    let phrase = |criterion: Criterion<'_>| match criterion {
        Criterion::Pid(pid) => format!("pid {pid}"),
        Criterion::StartTicks(ticks) => format!("started at tick {ticks}"),
        Criterion::Container(id) => format!("container {id}"),
        Criterion::Pod(uid) => format!("pod {uid}"),
        Criterion::Job(id) => format!("job {id}"),
        Criterion::Cgroup(path) => format!("cgroup {path}"),
        Criterion::Executable(name) => format!("executable {name}"),
        Criterion::Uid(uid) => format!("uid {uid}"),
        Criterion::Range(MemoryRange { begin, end }) => format!("{begin:#x} to {end:#x}"),
        Criterion::AllocationLargerThanBytes(bytes) => format!("allocations larger than {}", text::bytes(bytes)),
    };
    let phrases: Vec<String> = selector.criteria().map(phrase).collect();
    if phrases.is_empty() { "all processes".to_owned() } else { text::printable(&phrases.join(", ")).into_owned() }
}

/// Policy in effect for a process, and its reasons.
pub(crate) fn effective(effective: &EffectivePolicy, colour: Colour) -> String {
    let EffectivePolicy { pid, name, mode, policy, reason, candidates, budget, .. } = effective;
    let printed = |text: &str| text::printable(text).into_owned();
    let headline = format!("{pid} {}: {} by {}", printed(name), printed(mode), printed(policy));
    let mut lines = vec![colour.paint(Style::Heading, &headline), format!("  Reason: {}.", printed(reason))];
    lines.extend(limits(budget).map(|limits| format!("  At most {limits}.")));
    lines.extend(action::lines(effective).into_iter().map(|(style, line)| colour.paint(style, &format!("  {line}"))));
    let mark = |selected: bool, matches: bool| {
        if selected {
            "*"
        } else if matches {
            "+"
        } else {
            "-"
        }
    };
    lines.extend(candidates.iter().map(|each| {
        let style = if each.selected { Style::Good } else { Style::Faded };
        colour.paint(
            style,
            &format!("  {} {}: {}", mark(each.selected, each.matches), printed(&each.id), printed(&each.reason)),
        )
    }));
    lines.join("\n") + "\n"
}
