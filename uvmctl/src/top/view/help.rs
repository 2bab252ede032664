//! Help page: keys and columns.

use ratatui_core::text::{Line, Span};

use crate::{
    look::Look,
    top::columns::{COLUMNS, Figures},
};

const KEYS: [(&str, &str); 18] = [
    ("Up Down j k, PgUp PgDn", "select a process; the selection stays with it"),
    ("Home End", "select the first, the last"),
    ("Enter F5", "its details: verdict, ranges, busiest blocks"),
    ("e F2", "its explanation and remedies (uvmctl explain)"),
    ("v", "victims and evictors (uvmctl evictions)"),
    ("Esc", "close the details; select nothing"),
    ("F6 > <", "sort by the next, the previous column"),
    ("I", "invert the order"),
    ("F3 /", "search: by name, user, pid, cgroup"),
    ("n", "next match"),
    ("F4 \\", "filter: show matching processes alone"),
    ("t", "sums since uvmd counts, or rates"),
    ("x", "exited processes too (marked x), or not"),
    ("p", "pause"),
    ("+ -", "longer, shorter interval"),
    ("Ctrl-L", "redraw"),
    ("Ctrl-Z", "suspend"),
    ("q F10 Ctrl-C", "quit"),
];
const KEY_WIDTH: usize = 24;
const COLUMN_WIDTH: usize = 10;

pub(crate) fn lines(look: Look) -> Vec<Line<'static>> {
    let keys = KEYS.iter().map(|(keys, what)| {
        Line::from(vec![Span::styled(format!(" {keys:<KEY_WIDTH$}"), look.strong()), Span::raw(*what)])
    });
    let columns = COLUMNS.iter().map(|column| {
        let title = column.title(Figures::Totals);
        Line::from(vec![Span::styled(format!(" {title:<COLUMN_WIDTH$}"), look.strong()), Span::raw(column.meaning)])
    });
    let title = |text: &'static str| Line::styled(text, Look::HEADING);
    let columns_title = title("Columns (a narrow terminal has fewer); counters as rates (/s) or sums");
    [title("Keys")].into_iter().chain(keys).chain([columns_title]).chain(columns).collect()
}
