//! Explanation as paragraphs, for the command line and for `uvmctl top`.

use api::{Remedies, Remedy, Verdict};

use super::{Evidence, finding, healthy};
use crate::{action, ops, terminal::Style, text};

/// Text to be wrapped, with its style and indents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Paragraph {
    pub(crate) style: Style,
    /// Indents of the first line and of the others.
    pub(crate) indents: (usize, usize),
    pub(crate) text: String,
}

impl Paragraph {
    pub(crate) fn new(style: Style, indents: (usize, usize), text: impl Into<String>) -> Self {
        Self { style, indents, text: text.into() }
    }

    fn plain(text: impl Into<String>) -> Self {
        Self::new(Style::Plain, (2, 2), text)
    }

    pub(crate) fn title(text: &str) -> Self {
        Self::new(Style::Heading, (0, 0), text)
    }

    /// Lines of at most `width` columns.
    pub(crate) fn lines(&self, width: usize) -> Vec<String> {
        let (first, others) = self.indents;
        text::wrapped(&self.text, width, &" ".repeat(first), &" ".repeat(others))
    }
}

pub(crate) fn paragraphs(evidence: &Evidence, remedy: Option<&str>) -> Vec<Paragraph> {
    let verdicts = &evidence.verdicts;
    let mut page = Vec::new();
    for verdict in &verdicts.active {
        page.extend(explained(evidence, verdict));
    }
    if verdicts.active.is_empty() {
        let style = if verdicts.unavailable.is_empty() { Style::Good } else { Style::Plain };
        page.push(Paragraph::new(style, (0, 2), healthy::headline(evidence)));
        page.extend(healthy::facts(evidence).into_iter().map(Paragraph::plain));
    } else {
        page.push(Paragraph::title("Limitations"));
        page.extend(
            limits(evidence)
                .into_iter()
                .chain(finding::unavailable(verdicts))
                .map(|limit| item("-", Style::Plain, limit)),
        );
        if let Some(remedy) = remedy.filter(|_| evidence.ranges.is_none()) {
            page.push(item("-", Style::Warning, format!("The ranges of its memory require read permission: {remedy}")));
        }
    }
    page.extend(verdicts.remarks.iter().map(|remark| Paragraph::new(Style::Warning, (0, 2), text::printable(remark))));
    let actions = actions(evidence);
    if !actions.is_empty() {
        page.push(Paragraph::title("Actions of uvmd"));
        page.extend(actions);
    }
    page.push(Paragraph::title(&format!("Evidence: uvmctl explain {} -o json", evidence.process.pid)));
    page
}

/// What uvmd does about the process already, and why it does not do more. Nothing for a process that no
/// override concerns.
fn actions(Evidence { process, effective, recording, .. }: &Evidence) -> Vec<Paragraph> {
    let mut lines: Vec<_> = process
        .decisions
        .iter()
        .map(|decision| {
            let label = text::printable(&decision.label);
            item("-", Style::Good, format!("{label} (uvmctl decisions {})", decision.id))
        })
        .collect();
    let concerned =
        effective.as_ref().filter(|effective| effective.override_id.is_some() || effective.mode != "observe");
    lines.extend(
        concerned.iter().flat_map(|effective| action::lines(effective)).map(|(style, line)| item("-", style, line)),
    );
    lines.extend(recording.as_ref().and_then(|ops| match ops::obstacle(ops) {
        Some(obstacle) => Some(item("-", Style::Warning, format!("Its calls are {obstacle}."))),
        None if ops.state == "recording" => {
            Some(item("-", Style::Plain, format!("Its calls are recorded: uvmctl ops {}.", process.pid)))
        }
        None => None,
    }));
    if concerned.is_some() {
        let command = format!("Overrides and reasons: uvmctl policy explain {}.", process.pid);
        lines.push(item("-", Style::Faded, command));
    }
    lines
}

fn item(mark: &str, style: Style, text: impl Into<String>) -> Paragraph {
    Paragraph::new(style, (2, 3 + mark.len()), format!("{mark} {}", text.into()))
}

fn explained(evidence: &Evidence, verdict: &Verdict) -> Vec<Paragraph> {
    let Evidence { process, verdicts, .. } = evidence;
    let mut page = vec![Paragraph::new(Style::Warning, (0, 2), finding::headline(verdict, &verdicts.time))];
    page.extend(finding::facts(verdict, process, evidence.gpu(verdict)).into_iter().map(Paragraph::plain));
    let ranges = finding::ranges(verdict);
    if !ranges.is_empty() {
        page.push(Paragraph::plain("Ranges:"));
        // Aligned columns, wrapped only beyond the width.
        page.extend(ranges.into_iter().map(|line| Paragraph::new(Style::Plain, (2, 4), line)));
    }
    if let Some(sites) = evidence.sites.as_ref().filter(|_| finding::involves_cpus(verdict)) {
        let lines = finding::sites(sites);
        if let Some(reason) = sites.unavailable.as_deref() {
            let reason = text::printable(reason);
            page.push(Paragraph::plain(format!("CPU code that faults on its managed memory: {reason}.")));
        } else if !lines.is_empty() {
            page.push(Paragraph::plain("CPU code that faults on its managed memory, since uvmd counts:"));
            page.extend(lines.into_iter().map(|line| Paragraph::new(Style::Plain, (2, 4), line)));
        }
    }
    page.extend(finding::costs(&verdict.victims).map(Paragraph::plain));
    if !verdict.checks.is_empty() {
        page.push(Paragraph::title("Checks"));
        page.extend(verdict.checks.iter().map(|check| item("-", Style::Plain, finding::check(check))));
    }
    page.extend(verdict.remedies.iter().flat_map(remedies));
    page
}

/// Remedies in uvmd's words.
pub(crate) fn remedies(Remedies { effective, ineffective }: &Remedies) -> Vec<Paragraph> {
    let mut page = Vec::new();
    if !effective.is_empty() {
        page.push(Paragraph::title("Remedies, cheapest first"));
    }
    for (number, Remedy { action, evidence, unless }) in (1..).zip(effective) {
        page.push(item(&format!("{number}."), Style::Plain, text::printable(action)));
        let because = [format!("Because {evidence}.")].into_iter();
        let lines = because.chain(unless.iter().map(|unless| format!("Not if {unless}.")));
        page.extend(lines.map(|line| Paragraph::new(Style::Faded, (5, 5), text::printable(&line))));
    }
    if !ineffective.is_empty() {
        page.push(Paragraph::title("Ineffective"));
        page.extend(ineffective.iter().map(|each| item("-", Style::Plain, format!("{}.", text::printable(each)))));
    }
    page
}

/// Limitations in the daemon's words, if it reports any.
fn limits(evidence: &Evidence) -> Vec<String> {
    let caveats = evidence.ranges.as_ref().map(|ranges| ranges.caveats.as_slice()).unwrap_or_default();
    if caveats.is_empty() {
        return vec!["Accesses to resident memory are not counted: they raise no fault.".to_owned()];
    }
    caveats.iter().map(|limit| text::printable(limit).into_owned()).collect()
}
