//! Capabilities of a terminal. No information depends on colour, and every symbol has an ASCII
//! form.

use std::env;

use ratatui_core::style::{Color, Modifier, Style};
use unicode_width::UnicodeWidthChar;

use crate::text;

/// Support for colours and for Unicode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    colour: bool,
    unicode: bool,
}

/// Levels from zero to the maximum; the first means unknown.
const UNICODE_LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII_LEVELS: [char; 9] = [' ', '_', '.', ':', '-', '=', '+', '*', '#'];

impl Look {
    /// ASCII without colour, for every terminal and script.
    pub(crate) const PLAIN: Self = Self { colour: false, unicode: false };

    pub(crate) const FADED: Style = Style::new().add_modifier(Modifier::DIM);
    pub(crate) const HEADING: Style = Style::new().add_modifier(Modifier::REVERSED);
    pub(crate) const SELECTED: Style = Style::new().add_modifier(Modifier::BOLD.union(Modifier::REVERSED));

    #[cfg(test)]
    pub(crate) const UNICODE: Self = Self { colour: false, unicode: true };

    pub(crate) fn detect() -> Self {
        Self::of(|name| env::var(name).ok())
    }

    /// Detects the capabilities from the environment, the only source: `NO_COLOR` (no-color.org),
    /// `TERM`, and the locale's character set.
    fn of(environment: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| environment(name).filter(|value| !value.is_empty());
        let term = set("TERM").unwrap_or_default();
        // DEC terminals without colour.
        let monochrome = term == "dumb" || term.starts_with("vt1") || term.starts_with("vt2");
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let utf8 = locale.to_ascii_lowercase().replace('-', "").contains("utf8");
        // The Linux console's font has few of the block characters.
        Self { colour: !monochrome && set("NO_COLOR").is_none(), unicode: utf8 && !monochrome && term != "linux" }
    }

    /// Escapes untrusted text: no control sequences, and no characters that the terminal lacks.
    pub(crate) fn text(self, name: &str) -> String {
        let name = text::printable(name);
        if self.unicode {
            return name.into_owned();
        }
        let replace = |character: char| match character.width() {
            _ if character.is_ascii() => character.to_string(),
            width => "?".repeat(width.unwrap_or(0)),
        };
        name.chars().map(replace).collect()
    }

    /// A bar of `width` characters, filled to `share` of them. A nonzero share fills at least one.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the width")]
    pub(crate) fn bar(share: f64, width: usize) -> String {
        let filled = (share.clamp(0.0, 1.0) * width as f64).ceil() as usize;
        format!("{:<width$}", "|".repeat(filled.min(width)))
    }

    /// A one-line chart with one character per value; unknown values are blank. A nonzero value
    /// differs from zero.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the levels")]
    pub(crate) fn sparkline(self, values: impl IntoIterator<Item = Option<f64>>, most: f64) -> String {
        let levels = if self.unicode { UNICODE_LEVELS } else { ASCII_LEVELS };
        let level = |value: Option<f64>| match value {
            None => 0,
            Some(value) if value <= 0.0 || most <= 0.0 => 1,
            Some(value) => 1 + (value / most * 7.0).ceil().clamp(1.0, 7.0) as usize,
        };
        values.into_iter().filter_map(|value| levels.get(level(value))).collect()
    }

    /// Characters of [`Self::sparkline`] for zero, the lowest level and the highest.
    pub(crate) const fn levels_shown(self) -> [char; 3] {
        let [_, nothing, little, .., most] = if self.unicode { UNICODE_LEVELS } else { ASCII_LEVELS };
        [nothing, little, most]
    }

    /// Mark of truncated text.
    pub(crate) const fn ellipsis(self) -> char {
        if self.unicode { '…' } else { '~' }
    }

    const fn coloured(self, style: Style, colour: Color) -> Style {
        if self.colour { style.fg(colour) } else { style }
    }

    pub(crate) const fn strong(self) -> Style {
        self.coloured(Style::new().add_modifier(Modifier::BOLD), Color::Cyan)
    }

    /// Style of the sort column's heading.
    pub(crate) const fn sorted(self) -> Style {
        self.strong()
    }

    /// Style of alarms.
    pub(crate) const fn alarm(self) -> Style {
        self.coloured(Style::new().add_modifier(Modifier::BOLD.union(Modifier::REVERSED)), Color::Red)
    }

    /// Style of warnings.
    pub(crate) const fn warning(self) -> Style {
        self.coloured(Style::new().add_modifier(Modifier::BOLD), Color::Yellow)
    }

    pub(crate) const fn htod(self) -> Style {
        self.coloured(Style::new(), Color::Green)
    }

    pub(crate) const fn dtoh(self) -> Style {
        self.coloured(Style::new(), Color::Magenta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(variables: &[(&str, &str)]) -> Look {
        let value = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Look::of(value)
    }

    #[test]
    fn colour_requires_a_capable_terminal_and_no_no_color() {
        let utf8 = ("LANG", "C.UTF-8");
        assert_eq!(on(&[utf8, ("TERM", "xterm-256color")]), Look { colour: true, unicode: true });
        assert_eq!(on(&[utf8, ("TERM", "xterm"), ("NO_COLOR", "1")]), Look { colour: false, unicode: true });
        assert_eq!(on(&[utf8, ("TERM", "xterm"), ("NO_COLOR", "")]), Look { colour: true, unicode: true });
        assert_eq!(on(&[utf8, ("TERM", "linux")]), Look { colour: true, unicode: false });
        assert_eq!(on(&[utf8, ("TERM", "vt100")]), Look::PLAIN);
    }

    #[test]
    fn the_strongest_locale_variable_decides_on_unicode() {
        assert_eq!(on(&[("LANG", "en_US.utf8"), ("LC_ALL", "C")]), Look { colour: true, unicode: false });
        assert_eq!(on(&[("LANG", "C"), ("LC_CTYPE", "de_DE.UTF-8")]), Look { colour: true, unicode: true });
        assert_eq!(on(&[]), Look { colour: true, unicode: false });
    }

    #[test]
    fn nonzero_values_differ_from_zero() {
        assert_eq!(Look::bar(0.0, 4), "    ");
        assert_eq!(Look::bar(0.001, 4), "|   ");
        assert_eq!(Look::bar(2.0, 4), "||||");
        let values = [None, Some(0.0), Some(0.1), Some(50.0), Some(100.0)];
        assert_eq!(Look::PLAIN.sparkline(values, 100.0), " _.=#");
        assert_eq!(Look::UNICODE.sparkline(values, 100.0), " ▁▂▅█");
        assert_eq!(Look::PLAIN.sparkline(values, 0.0), " ____");
    }

    #[test]
    fn in_ascii_replacements_preserve_width() {
        assert_eq!(Look::PLAIN.text("a名b\u{1b}é"), r"a??b\u{1b}?");
        assert_eq!(Look::UNICODE.text("a名b\u{202e}"), r"a名b\u{202e}");
    }
}
