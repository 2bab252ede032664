//! Tables of aligned columns that fit the terminal.

use unicode_width::UnicodeWidthStr;

use super::cell::Cell;
use crate::{
    terminal::{Colour, Style},
    text,
};

const GAP: &str = "  ";

/// One column.
pub(crate) struct Column {
    title: &'static str,
    right: bool,
    is_wide: bool,
    cells: Vec<Cell>,
    width: usize,
}

/// Reduction of a table's width on a narrow terminal. Reductions apply in order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Concession {
    /// Drop this column. A rate is named by its counter, without "/s".
    Drop(&'static str),
    /// Drop this column if it is unknown in all rows.
    DropUnknown(&'static str),
    /// Shorten this column, down to this number of characters.
    Shorten(&'static str, usize),
}

/// Table of columns, each with one cell per row.
pub(crate) struct Table {
    columns: Vec<Column>,
    styles: Vec<Style>,
    names: Vec<String>,
    has_headings: bool,
}

impl Column {
    /// Text column, aligned left. Its text must be escaped already.
    pub(crate) fn text<C: Into<Cell>>(title: &'static str, cells: impl Iterator<Item = C>) -> Self {
        Self::new(title, false, cells)
    }

    /// Number column, aligned right.
    pub(crate) fn number<C: Into<Cell>>(title: &'static str, cells: impl Iterator<Item = C>) -> Self {
        Self::new(title, true, cells)
    }

    /// Shown with `--output wide` alone.
    pub(crate) fn wide(mut self) -> Self {
        self.is_wide = true;
        self
    }

    fn new<C: Into<Cell>>(title: &'static str, right: bool, cells: impl Iterator<Item = C>) -> Self {
        let cells: Vec<Cell> = cells.map(Into::into).collect();
        let width = cells.iter().map(|cell| cell.text.width()).max().unwrap_or(0).max(title.width());
        Self { title, right, is_wide: false, cells, width }
    }

    fn is_unknown(&self) -> bool {
        self.cells.iter().all(Cell::is_unknown)
    }

    fn counter(&self) -> &str {
        self.title.strip_suffix("/s").unwrap_or(self.title)
    }

    /// Name for `--sort-by`.
    fn name(&self) -> String {
        self.title.to_lowercase().replace(' ', "-")
    }

    fn aligned(&self, text: &str) -> String {
        let text = text::shortened(text, self.width, '…');
        if self.right { text::right(&text, self.width) } else { text::left(&text, self.width) }
    }
}

impl Table {
    /// Creates a table; `styles` has one element per row.
    pub(crate) fn new(columns: Vec<Column>, styles: Vec<Style>) -> Self {
        Self { columns, styles, names: Vec::new(), has_headings: true }
    }

    /// Sets the names of the rows, such as `process/1234`.
    pub(crate) fn named(mut self, names: impl Iterator<Item = String>) -> Self {
        self.names = names.collect();
        self
    }

    /// Names of the columns, for `--sort-by`.
    pub(crate) fn column_names(&self) -> Vec<String> {
        self.columns.iter().map(Column::name).collect()
    }

    /// Names of the rows.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Sorts the rows by this column. The sort is stable.
    pub(crate) fn sort(&mut self, column: &str, is_reversed: bool) {
        let Some(by) = self.columns.iter().find(|known| known.name() == column) else { return };
        let mut order: Vec<usize> = (0..self.styles.len()).collect();
        order.sort_by(|&one, &other| match (by.cells.get(one), by.cells.get(other)) {
            (Some(one), Some(other)) => one.compare(other, is_reversed),
            _ => one.cmp(&other),
        });
        for column in &mut self.columns {
            column.cells = in_order(&column.cells, &order);
        }
        self.styles = in_order(&self.styles, &order);
        self.names = in_order(&self.names, &order);
    }

    /// Drops the columns of `--output wide`.
    pub(crate) fn narrow(mut self) -> Self {
        self.columns.retain(|column| !column.is_wide);
        self
    }

    /// Drops the columns that are unknown in all rows.
    pub(crate) fn known(mut self) -> Self {
        self.columns.retain(|column| !column.is_unknown());
        self
    }

    /// Drops the line of headings.
    pub(crate) fn without_headings(mut self) -> Self {
        self.has_headings = false;
        self
    }

    /// Reduces the table to `width`, as far as the concessions allow.
    pub(crate) fn fit(mut self, width: Option<usize>, concessions: &[Concession]) -> Self {
        let Some(limit) = width else { return self };
        for concession in concessions {
            let excess = self.width().saturating_sub(limit);
            match concession {
                _ if excess == 0 => break,
                Concession::Drop(title) => self.columns.retain(|column| column.counter() != *title),
                Concession::DropUnknown(title) => {
                    self.columns.retain(|column| column.counter() != *title || !column.is_unknown());
                }
                Concession::Shorten(title, least) => {
                    for column in self.columns.iter_mut().filter(|column| column.title == *title) {
                        column.width = column.width.min(column.width.saturating_sub(excess).max(*least));
                    }
                }
            }
        }
        self
    }

    fn width(&self) -> usize {
        self.columns.iter().map(|column| column.width).sum::<usize>() + GAP.len() * self.columns.len().saturating_sub(1)
    }

    /// Renders the table as lines, each with a line end.
    pub(crate) fn render(&self, colour: Colour) -> String {
        let line = |style: Style, cell: &dyn Fn(&Column) -> String| {
            let cells: Vec<_> = self.columns.iter().map(cell).collect();
            colour.paint(style, cells.join(GAP).trim_end()) + "\n"
        };
        let headings = self.has_headings.then(|| line(Style::Heading, &|column| column.aligned(column.title)));
        let rows = self.styles.iter().enumerate().map(|(row, style)| {
            line(*style, &|column| column.aligned(column.cells.get(row).map_or("", |cell| cell.text.as_str())))
        });
        headings.into_iter().chain(rows).collect()
    }
}

fn in_order<T: Clone>(items: &[T], order: &[usize]) -> Vec<T> {
    order.iter().filter_map(|&at| items.get(at).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: &[&str]) -> Table {
        let numbers = (0..names.len()).map(|row| format!("{}", 9 * row.pow(4)));
        let columns = vec![
            Column::text("NAME", names.iter().map(|name| (*name).to_owned())),
            Column::text("NOTE", names.iter().map(|_| "x".to_owned())),
            Column::number("N", numbers),
        ];
        Table::new(columns, vec![Style::Plain; names.len()])
    }

    #[test]
    fn rows_are_put_in_order_with_their_names_and_equal_rows_stay() {
        let columns = vec![
            Column::text("NAME", ["b", "a", "c"].into_iter().map(str::to_owned)),
            Column::number("H2D/s", [2, 9, 9].into_iter().map(|value| Cell::amount(value, text::count))).wide(),
        ];
        let mut table = Table::new(columns, vec![Style::Plain; 3]).named((1..=3).map(|pid| format!("process/{pid}")));
        assert_eq!(table.column_names(), ["name", "h2d/s"]);
        table.sort("h2d/s", false);
        assert_eq!(table.names(), ["process/2", "process/3", "process/1"]);
        assert_eq!(table.without_headings().narrow().render(Colour::OFF), "a\nc\nb\n");
    }

    #[test]
    fn text_is_aligned_left_and_numbers_right() {
        let text = table(&["a", "long name", "c", "d"]).render(Colour::OFF);
        assert_eq!(
            text,
            "NAME       NOTE    N\na          x       0\nlong name  x       9\nc          x     144\nd          x     729\n"
        );
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(table(&["名前", "abcd"]).render(Colour::OFF), "NAME  NOTE  N\n名前  x     0\nabcd  x     9\n");
    }

    #[test]
    fn columns_that_are_unknown_in_all_rows_are_dropped_where_wanted() {
        const CONCESSIONS: [Concession; 2] = [Concession::DropUnknown("EVICTED"), Concession::DropUnknown("RESIDENT")];
        let table = || {
            let columns = vec![
                Column::text("NAME", ["a", "b"].map(str::to_owned).into_iter()),
                Column::number("RESIDENT", [None, None].map(|value| Cell::known(value, text::bytes)).into_iter()),
                Column::number("EVICTED", [None, Some(0)].map(|value| Cell::known(value, text::bytes)).into_iter()),
            ];
            Table::new(columns, vec![Style::Plain; 2])
        };
        let known = "NAME  EVICTED\na           -\nb         0 B\n";
        assert_eq!(table().known().render(Colour::OFF), known);
        assert_eq!(table().fit(Some(20), &CONCESSIONS).render(Colour::OFF), known);
        assert!(table().fit(Some(80), &CONCESSIONS).render(Colour::OFF).contains("RESIDENT"));
    }

    #[test]
    fn concessions_apply_in_order() {
        const CONCESSIONS: [Concession; 2] = [Concession::Drop("NOTE"), Concession::Shorten("NAME", 4)];
        let at = |width| table(&["abcdefgh"]).fit(width, &CONCESSIONS).render(Colour::OFF);
        assert_eq!(at(None), "NAME      NOTE  N\nabcdefgh  x     0\n");
        assert_eq!(at(Some(17)), at(None));
        assert_eq!(at(Some(16)), "NAME      N\nabcdefgh  0\n");
        assert_eq!(at(Some(9)), "NAME    N\nabcde…  0\n");
        assert_eq!(at(Some(1)), "NAME  N\nabc…  0\n");
    }
}
