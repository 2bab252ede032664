//! Pages in place of the table: the explanation of a process, and evictions.

use ratatui_core::{style::Style, text::Line};

use super::wrapped;

use crate::{
    evictions,
    explain::page::{Paragraph, paragraphs},
    look::Look,
    terminal,
    top::state::State,
};

pub(crate) fn explain(state: &State, look: Look, width: usize) -> Vec<Line<'static>> {
    let detailed = match (state.selected, state.detail()) {
        (None, _) => return vec![Line::raw("No process to explain")],
        (_, None) => return vec![Line::raw("Loading")],
        (_, Some(Err(error))) => {
            return vec![Line::raw(format!("No data: {}", look.text(&error.to_string())))];
        }
        (_, Some(Ok(detailed))) => detailed,
    };
    let evidence = state.samples.evidence(detailed);
    let remedy = "ask as root, as a member of the socket's group, or with a token (uvmctl --token-file)";
    let lines = |paragraph: Paragraph| {
        let style = style(paragraph.style, look);
        paragraph.lines(width).into_iter().map(move |line| Line::styled(look.text(&line), style)).collect::<Vec<_>>()
    };
    paragraphs(&evidence, Some(remedy)).into_iter().flat_map(lines).collect()
}

fn style(style: terminal::Style, look: Look) -> Style {
    match style {
        terminal::Style::Heading | terminal::Style::Good => look.strong(),
        terminal::Style::Warning | terminal::Style::Error => look.warning(),
        terminal::Style::Plain | terminal::Style::Faded => Style::new(),
    }
}

pub(crate) fn evictions(state: &State, look: Look, width: usize) -> Vec<Line<'static>> {
    let title = |text: String| Line::styled(format!("{text:<width$}"), Look::HEADING);
    let Some(flows) = &state.samples.flows else { return vec![Line::raw("Loading")] };
    if flows.is_empty() {
        let now = state.samples.evictions.clone().unwrap_or_default();
        let reason = evictions::empty_reason(&now, &state.samples.status.total);
        return wrapped(&look.text(&reason), width).into_iter().map(Line::raw).collect();
    }
    let plain = |line: String| Line::raw(look.text(&line));
    let gpus = &state.samples.status.gpus;
    let mut lines = vec![title("Victims (rows) by evictor (columns)".to_owned())];
    lines.extend(evictions::matrix(flows, width).into_iter().map(plain));
    lines.push(Line::default());
    lines.push(title("The same by GPU and cause".to_owned()));
    let table =
        evictions::table(flows, gpus).narrow().fit(Some(width), &evictions::CONCESSIONS).render(terminal::Colour::OFF);
    lines.extend(table.lines().map(|line| plain(line.to_owned())));
    lines.push(Line::default());
    lines.extend(wrapped(&format!("Note: {}", evictions::INFERRED), width).into_iter().map(Line::raw));
    lines
}
