//! What a command shows, before it has a form.

use std::io::Write;

use super::table::{Concession, Table};
use crate::{
    client::Client,
    terminal::{self, Colour},
};

/// Something that a command shows.
pub(crate) trait View {
    /// Asks uvmd, and makes a page of the response. While it is watched, again and again.
    fn look(&mut self, client: &Client, screen: Screen) -> anyhow::Result<Page>;

    /// Passes on uvmd's own JSON.
    fn json(&mut self, client: &Client, out: &mut dyn Write) -> anyhow::Result<()>;

    /// Names of the columns that it can be sorted by; none where it is no list.
    fn columns(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether what it shows has names.
    fn has_names(&self) -> bool {
        true
    }
}

/// What is there to draw on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    /// `None` where nobody looks at columns.
    pub(crate) width: Option<usize>,
    pub(crate) colour: Colour,
}

impl Screen {
    pub(super) fn detect() -> Self {
        Self { width: terminal::width(), colour: Colour::detect() }
    }
}

/// A response to be read.
#[derive(Default)]
pub(crate) struct Page {
    pub(super) body: Body,
    /// Of a text; a table has its own.
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
        /// Above the table.
        heading: String,
        table: Table,
        concessions: &'static [Concession],
    },
}

impl Page {
    /// Nothing but remarks.
    pub(crate) fn nothing(note: impl Into<String>) -> Self {
        Self::default().with_note(Some(note))
    }

    /// Text, each line with its end.
    pub(crate) fn text(text: String) -> Self {
        Self { body: Body::Text(text), ..Self::default() }
    }

    /// A table, which gives up these columns where the terminal is narrow.
    pub(crate) fn list(table: Table, concessions: &'static [Concession]) -> Self {
        Self { body: Body::List { heading: String::new(), table, concessions }, ..Self::default() }
    }

    /// Puts text above the table.
    pub(crate) fn under(mut self, text: String) -> Self {
        if let Body::List { heading, .. } = &mut self.body {
            *heading = text;
        }
        self
    }

    /// Names what a text is about.
    pub(crate) fn named(mut self, name: String) -> Self {
        self.names.push(name);
        self
    }

    /// The page as a table or text, without its remarks.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn drawn(self, screen: Screen) -> String {
        super::Options::default().drawn(self, None, screen).text
    }

    /// Adds a remark, beside the output.
    pub(crate) fn with_note(mut self, note: Option<impl Into<String>>) -> Self {
        self.notes.extend(note.map(Into::into));
        self
    }
}
