//! Rendering of the state: header, table, details of one process, and a line of keys.

use std::time::Instant;

use ratatui_core::{
    layout::Rect,
    terminal::Frame,
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr;

use super::{
    keys::{Focus, Page, Purpose},
    state::State,
};
use crate::{look::Look, text};

mod detail;
mod evidence;
mod header;
mod help;
mod pages;
mod table;

pub(crate) use header::header;
pub(crate) use table::{heading, row, summary};

/// Lines around the rows of the table: summary, heading, and keys.
const FRAME_LINES: usize = 3;
/// Minimum number of rows of the table.
const ROWS_MIN: usize = 3;

/// Draws the frame, and sets the number of visible rows in the state.
pub(crate) fn draw(frame: &mut Frame<'_>, state: &mut State, look: Look, now: Instant) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let mut lines: Vec<_> = if let Focus::Page(page) = state.focus {
        let lines = match page {
            Page::Help => help::lines(look),
            Page::Explain => pages::explain(state, look, width),
            Page::Evictions => pages::evictions(state, look, width),
        };
        state.fit_page(lines.len(), height.saturating_sub(1));
        lines.into_iter().skip(state.page_top).collect()
    } else {
        let mut lines = header(state, look, width, height / 2, now);
        let left = height.saturating_sub(lines.len() + FRAME_LINES);
        // With details, the table has a third of the space, or less if it is short, and any space
        // that the details do not use.
        let rows = state.rows().len().min(left / 3).max(ROWS_MIN.min(left));
        let details =
            state.detailed().map(|row| detail::lines(state, row, look, width, left - rows)).unwrap_or_default();
        let room = left - details.len();
        state.fit(width, room);
        lines.push(summary(state, look));
        lines.push(heading(state, look, width));
        let page = state.page();
        let blank = room - page.len().min(room);
        lines.extend(page.into_iter().map(|of| row(state, of, look, width)));
        lines.extend(std::iter::repeat_n(Line::default(), blank));
        lines.extend(details);
        lines
    };
    lines.truncate(height.saturating_sub(1));
    for (line, y) in lines.iter().zip(area.y..) {
        frame.render_widget(line, Rect { y, height: 1, ..area });
    }
    let last = area.bottom().saturating_sub(1);
    frame.render_widget(keys(state, look), Rect { y: last, height: area.height.min(1), ..area });
}

/// Line of keys, or the prompt.
fn keys(state: &State, look: Look) -> Line<'static> {
    let prompt = |what: &str, text: &str, then: &str| {
        let typed = Span::styled(format!("{what}: {}_", look.text(text)), look.strong());
        Line::from(vec![typed, Span::raw(format!("   {then}"))])
    };
    match state.focus {
        Focus::Prompt(Purpose::Search) => prompt("Search", &state.search, "Enter done  F3 next"),
        Focus::Prompt(Purpose::Filter) => prompt("Filter", &state.settings.filter, "Enter apply  Esc clear"),
        Focus::Page(_) => Line::styled("Up Down PgUp PgDn scroll, any other key closes", look.strong()),
        Focus::Table => {
            const KEYS: [(&str, &str); 8] = [
                ("F1", "help"),
                ("F3", "search"),
                ("F5", "detail"),
                ("F6", "sort"),
                ("e", "explain"),
                ("v", "evictions"),
                ("t", "sums"),
                ("q", "quit"),
            ];
            let keys = KEYS
                .iter()
                .flat_map(|(key, what)| [Span::styled(*key, look.strong()), Span::raw(format!(" {what}  "))]);
            Line::from(keys.collect::<Vec<_>>())
        }
    }
}

/// Wraps text between words at `width` characters; lines after the first are indented.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    text::wrapped(text, width, "", "  ")
}

/// Joins parts by two spaces, up to the first that does not fit into `width`.
fn parts_that_fit(parts: impl IntoIterator<Item = String>, width: usize) -> String {
    let mut line = String::new();
    for part in parts {
        let gap = if line.is_empty() { "" } else { "  " };
        if line.width() + gap.len() + part.width() > width {
            break;
        }
        line.push_str(gap);
        line.push_str(&part);
    }
    line
}

#[cfg(test)]
mod tests;
