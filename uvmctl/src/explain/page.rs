//! Explanation as paragraphs, for the command line and for `uvmctl top`.

use super::{Evidence, advice, finding, healthy};
use crate::{ops, terminal::Style, text};

/// Text to be wrapped, with its style and indents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Paragraph {
    pub(crate) style: Style,
    /// Indents of the first line and of the others.
    pub(crate) indents: (usize, usize),
    pub(crate) text: String,
}

impl Paragraph {
    fn new(style: Style, indents: (usize, usize), text: impl Into<String>) -> Self {
        Self { style, indents, text: text.into() }
    }

    fn plain(text: impl Into<String>) -> Self {
        Self::new(Style::Plain, (2, 2), text)
    }

    fn title(text: &str) -> Self {
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
    if let Some(obstacle) = evidence.recording.as_ref().and_then(ops::obstacle) {
        page.push(Paragraph::new(Style::Warning, (0, 2), format!("Its calls are {obstacle}.")));
    }
    page.push(Paragraph::title(&format!("Evidence: uvmctl explain {} -o json", evidence.process.pid)));
    page
}

fn item(mark: &str, style: Style, text: impl Into<String>) -> Paragraph {
    Paragraph::new(style, (2, 3 + mark.len()), format!("{mark} {}", text.into()))
}

fn explained(evidence: &Evidence, verdict: &model::api::Verdict) -> Vec<Paragraph> {
    let case = evidence.case(verdict);
    let mut page = vec![Paragraph::new(Style::Warning, (0, 2), finding::headline(&case, &evidence.verdicts.time))];
    page.extend(finding::facts(&case).into_iter().map(Paragraph::plain));
    let ranges = finding::ranges(&case);
    if !ranges.is_empty() {
        page.push(Paragraph::plain("Ranges:"));
        // Aligned columns, wrapped only beyond the width.
        page.extend(ranges.into_iter().map(|line| Paragraph::new(Style::Plain, (2, 4), line)));
    }
    page.extend(finding::costs(&verdict.victims).map(Paragraph::plain));
    if !verdict.checks.is_empty() {
        page.push(Paragraph::title("Checks"));
        page.extend(verdict.checks.iter().map(|check| item("-", Style::Plain, finding::check(check))));
    }
    let advised = advice::on(&case);
    // The remedy without a change of the program is cheapest.
    let effective: Vec<_> = advice::policy::advice(&case).into_iter().chain(advised.effective).collect();
    if !effective.is_empty() {
        page.push(Paragraph::title("Remedies, cheapest first"));
    }
    for (number, advice::Advice { action, evidence, unless }) in (1..).zip(effective) {
        let mark = format!("{number}.");
        page.push(item(&mark, Style::Plain, action));
        let indents = (5, 5);
        page.push(Paragraph::new(Style::Faded, indents, format!("Because {evidence}.")));
        page.extend(unless.map(|unless| Paragraph::new(Style::Faded, indents, format!("Not if {unless}."))));
    }
    if !advised.ineffective.is_empty() {
        page.push(Paragraph::title("Ineffective"));
        page.extend(advised.ineffective.into_iter().map(|text| item("-", Style::Plain, text + ".")));
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
