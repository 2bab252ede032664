//! Table of processes.

use ratatui_core::{
    style::Style,
    text::{Line, Span},
};

use crate::{
    look::Look,
    top::{
        columns::{self, Figures, Row},
        state::State,
    },
};

/// Summary of the table with every setting in effect.
pub(crate) fn summary(state: &State, look: Look) -> Line<'static> {
    let settings = &state.settings;
    let shown = state.rows().len();
    let running = state.samples.rows.iter().filter(|row| row.process.state != "exited").count();
    let ended = state.samples.rows.len() - running;
    let counting = state.samples.status.state == "counting";
    let mut parts = vec![match (running, settings.filter.is_empty()) {
        (0, true) if counting => "no process uses managed memory".to_owned(),
        (0, true) => "nothing is counted yet".to_owned(),
        (_, true) => format!("{running} running"),
        (_, false) => format!("{shown} of {} match", if settings.ended { running + ended } else { running }),
    }];
    if ended > 0 {
        parts.push(format!("{ended} ended{}", if settings.ended { "" } else { " (hidden)" }));
    }
    let seconds = format!("{} s", settings.interval.as_secs_f64());
    parts.push(match settings.figures {
        Figures::Rates => format!("rates, every {seconds}"),
        Figures::Totals => format!("sums, every {seconds}"),
    });
    parts.push(format!(
        "by {}{}",
        settings.sort.title(settings.figures),
        if settings.inverted { ", inverted" } else { "" }
    ));
    let mut spans = vec![Span::raw(parts.join("; "))];
    if !settings.filter.is_empty() {
        spans.push(Span::raw("; only "));
        spans.push(Span::styled(format!("\"{}\"", look.text(&settings.filter)), look.strong()));
    }
    if state.paused {
        spans.push(Span::raw("  "));
        spans.push(Span::styled("PAUSED", look.alarm()));
    }
    Line::from(spans)
}

pub(crate) fn heading(state: &State, look: Look, width: usize) -> Line<'static> {
    let settings = &state.settings;
    let cells = columns::fitting(width).into_iter().flat_map(|(column, width)| {
        let style = if *column == *settings.sort { look.sorted() } else { Look::HEADING };
        let title = column.heading(width, settings.figures, look);
        [Span::styled(" ", Look::HEADING), Span::styled(title, style)]
    });
    Line::from(cells.collect::<Vec<_>>())
}

/// Row of a process, marked `>` if selected and `x` if ended: bold and grey only repeat the marks.
pub(crate) fn row(state: &State, row: &Row, look: Look, width: usize) -> Line<'static> {
    let ended = row.process.state == "exited";
    let (mark, style) = match (state.is_selected(row), ended) {
        (true, _) => (">", Look::SELECTED),
        (false, true) => ("x", Look::FADED),
        (false, false) if row.headline.is_some() => (" ", look.warning()),
        (false, false) => (" ", Style::new()),
    };
    let cells: Vec<_> = (columns::fitting(width).into_iter())
        .map(|(column, width)| column.cell(row, width, state.settings.figures, look))
        .collect();
    Line::styled(format!("{mark}{}", cells.join(" ")), style)
}
