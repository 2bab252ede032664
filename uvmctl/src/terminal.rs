//! Properties of the terminal: size, colour, and notes on standard error.

use std::{
    env,
    io::{self, IsTerminal},
};

use crate::text;

/// Columns of the terminal; `None` without one.
pub(crate) fn width() -> Option<usize> {
    terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0.into())
}

/// Lines of the terminal; `None` without one.
pub(crate) fn height() -> Option<usize> {
    terminal_size::terminal_size_of(io::stdout()).map(|(_, height)| height.0.into())
}

/// Prints a note to standard error. The text may contain untrusted parts.
#[expect(clippy::print_stderr, reason = "standard error is where a command line speaks to people")]
pub(crate) fn note(text: &str) {
    eprintln!("uvmctl: {}", text::printable_lines(text));
}

/// Emphasis of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Heading,
    Faded,
    Good,
    Warning,
    Error,
}

impl Style {
    /// Start of an SGR sequence (ECMA-48).
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Heading => "\x1b[1m",
            Self::Faded => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Warning => "\x1b[33m",
            Self::Error => "\x1b[31m",
        }
    }
}

/// Whether styles are printed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Colour(bool);

impl Colour {
    pub(crate) const OFF: Self = Self(false);

    /// Enables styles on a terminal, unless `NO_COLOR` (no-color.org) is set or the terminal is
    /// dumb.
    pub(crate) fn detect() -> Self {
        let forbidden = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self(io::stdout().is_terminal() && !forbidden && !dumb)
    }

    pub(crate) fn paint(self, style: Style, text: &str) -> String {
        if self.0 && style != Style::Plain { format!("{}{text}\x1b[0m", style.code()) } else { text.to_owned() }
    }
}
