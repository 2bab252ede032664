//! Tables of aligned columns that fit the terminal.

use unicode_width::UnicodeWidthStr;

use crate::{
    terminal::{Colour, Style},
    text,
};

const GAP: &str = "  ";

/// One column.
pub(crate) struct Column {
    title: &'static str,
    right: bool,
    cells: Vec<String>,
    width: usize,
}

/// What a table gives up, in this order, where the terminal is too narrow for all of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Concession {
    /// Leave this column out. A rate goes by the name of its counter, without "/s".
    Drop(&'static str),
    /// Shorten this column to no less than so many characters.
    Shorten(&'static str, usize),
}

/// Columns of as many cells as there are rows.
pub(crate) struct Table {
    columns: Vec<Column>,
    styles: Vec<Style>,
}

impl Column {
    /// Text, aligned left. Only text that is safe to print may be in it.
    pub(crate) fn text(title: &'static str, cells: impl Iterator<Item = String>) -> Self {
        Self::new(title, false, cells)
    }

    /// A number, aligned right.
    pub(crate) fn number(title: &'static str, cells: impl Iterator<Item = String>) -> Self {
        Self::new(title, true, cells)
    }

    fn new(title: &'static str, right: bool, cells: impl Iterator<Item = String>) -> Self {
        let cells: Vec<_> = cells.collect();
        let width = cells.iter().map(|cell| cell.width()).max().unwrap_or(0).max(title.width());
        Self { title, right, cells, width }
    }

    fn counter(&self) -> &str {
        self.title.strip_suffix("/s").unwrap_or(self.title)
    }

    fn aligned(&self, text: &str) -> String {
        let text = text::shortened(text, self.width, '…');
        if self.right { text::right(&text, self.width) } else { text::left(&text, self.width) }
    }
}

impl Table {
    /// `styles` has one element a row.
    pub(crate) fn new(columns: Vec<Column>, styles: Vec<Style>) -> Self {
        Self { columns, styles }
    }

    /// Makes it fit `width`, as far as the concessions go.
    pub(crate) fn fit(mut self, width: Option<usize>, concessions: &[Concession]) -> Self {
        let Some(limit) = width else { return self };
        for concession in concessions {
            let excess = self.width().saturating_sub(limit);
            match concession {
                _ if excess == 0 => break,
                Concession::Drop(title) => self.columns.retain(|column| column.counter() != *title),
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

    /// Lines, each with its end.
    pub(crate) fn render(&self, colour: Colour) -> String {
        let line = |style: Style, cell: &dyn Fn(&Column) -> String| {
            let cells: Vec<_> = self.columns.iter().map(cell).collect();
            colour.paint(style, cells.join(GAP).trim_end()) + "\n"
        };
        let heading = line(Style::Heading, &|column| column.aligned(column.title));
        let rows = self.styles.iter().enumerate().map(|(row, style)| {
            line(*style, &|column| column.aligned(column.cells.get(row).map_or("", String::as_str)))
        });
        [heading].into_iter().chain(rows).collect()
    }
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
    fn a_narrow_terminal_gets_less_in_the_order_asked_for() {
        const CONCESSIONS: [Concession; 2] = [Concession::Drop("NOTE"), Concession::Shorten("NAME", 4)];
        let at = |width| table(&["abcdefgh"]).fit(width, &CONCESSIONS).render(Colour::OFF);
        assert_eq!(at(None), "NAME      NOTE  N\nabcdefgh  x     0\n");
        assert_eq!(at(Some(17)), at(None));
        assert_eq!(at(Some(16)), "NAME      N\nabcdefgh  0\n");
        assert_eq!(at(Some(9)), "NAME    N\nabcde…  0\n");
        assert_eq!(at(Some(1)), "NAME  N\nabc…  0\n");
    }
}
