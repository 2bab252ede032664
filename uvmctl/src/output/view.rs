//! Views of commands, independent of the output's form.

use std::io::Write;

use super::table::{Concession, Table};
use crate::{
    client::Client,
    terminal::{self, Colour},
};

/// View of a command.
pub(crate) trait View {
    /// Queries uvmd and returns a page. Called repeatedly with `--watch`.
    fn page(&mut self, client: &Client, screen: Screen) -> anyhow::Result<Page>;

    /// Writes uvmd's JSON unchanged.
    fn json(&mut self, client: &Client, out: &mut dyn Write) -> anyhow::Result<()>;

    /// Names of the columns to sort by; none for a view that is not a list.
    fn columns(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether the items have names.
    fn has_names(&self) -> bool {
        true
    }
}

/// Output terminal, or its absence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    /// Columns; `None` without a terminal.
    pub(crate) width: Option<usize>,
    pub(crate) colour: Colour,
}

impl Screen {
    pub(super) fn detect() -> Self {
        Self { width: terminal::width(), colour: Colour::detect() }
    }
}

/// Readable form of a response.
#[derive(Default)]
pub(crate) struct Page {
    pub(super) body: Body,
    /// Names of a text's subjects; a table has names of rows.
    pub(super) names: Vec<String>,
    pub(super) notes: Vec<String>,
}

/// Text or table of a page.
#[derive(Default)]
pub(super) enum Body {
    #[default]
    Nothing,
    Text(String),
    List {
        /// Text above the table.
        heading: String,
        table: Table,
        concessions: &'static [Concession],
    },
}

impl Page {
    /// Page with a note only.
    pub(crate) fn nothing(note: impl Into<String>) -> Self {
        Self::default().with_note(Some(note))
    }

    /// Page of text, each line with a line end.
    pub(crate) fn text(text: String) -> Self {
        Self { body: Body::Text(text), ..Self::default() }
    }

    /// Page with a table and its reductions for narrow terminals.
    pub(crate) fn list(table: Table, concessions: &'static [Concession]) -> Self {
        Self { body: Body::List { heading: String::new(), table, concessions }, ..Self::default() }
    }

    /// Sets the text above the table.
    pub(crate) fn under(mut self, text: String) -> Self {
        if let Body::List { heading, .. } = &mut self.body {
            *heading = text;
        }
        self
    }

    /// Adds a name of the text's subject.
    pub(crate) fn named(mut self, name: String) -> Self {
        self.names.push(name);
        self
    }

    /// Renders the page without its notes.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn drawn(self, screen: Screen) -> String {
        super::Options::default().drawn(self, None, screen).text
    }

    /// Adds a note for standard error.
    pub(crate) fn with_note(mut self, note: Option<impl Into<String>>) -> Self {
        self.notes.extend(note.map(Into::into));
        self
    }
}
