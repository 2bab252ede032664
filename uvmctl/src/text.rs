//! Formats of text and numbers for terminals.

use std::borrow::Cow;

use api::GpuId;
pub(crate) use model::text::{bytes, count, counted, duration, nanoseconds, percent, share};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Formats a value; a dash if unknown.
pub(crate) fn known(value: Option<u64>, format: fn(u64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), format)
}

/// Formats bytes; a dash if unknown.
pub(crate) fn known_bytes(value: Option<u64>) -> String {
    known(value, bytes)
}

/// `0`, `GPU-6f0e1c2d`, or a dash: see [`GpuId::short`].
pub(crate) fn gpu(id: &GpuId) -> String {
    printable(&id.short()).into_owned()
}

/// `GPU0`, `GPU-6f0e1c2d`, or `GPU?`.
pub(crate) fn gpu_label(id: &GpuId) -> String {
    printable(&id.label()).into_owned()
}

/// Escapes control characters, and invisible ones and those that change the direction of text.
/// Process names are untrusted: printed raw, they could send control sequences to the terminal.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let escape =
        |character: char| if is_unsafe(character) { character.escape_default().to_string() } else { character.into() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// Escapes text of several lines like [`printable`].
pub(crate) fn printable_lines(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(printable).collect();
    lines.join("\n")
}

/// Escapes JSON like [`printable`], to equivalent JSON. White space between strings remains, except
/// that a carriage return becomes a blank, as the text after it would overwrite the line.
pub(crate) fn printable_json(json: &str) -> Cow<'_, str> {
    let is_unsafe = |character: char| is_unsafe(character) && !matches!(character, '\n' | '\t');
    if !json.contains(is_unsafe) {
        return Cow::Borrowed(json);
    }
    // All unsafe characters are in the Basic Multilingual Plane: four digits suffice.
    let escape = |character: char| match character {
        '\r' => ' '.into(),
        character if is_unsafe(character) => format!("\\u{:04x}", u32::from(character)),
        character => character.into(),
    };
    Cow::Owned(json.chars().map(escape).collect())
}

fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Truncates text to `width` columns, with an ellipsis.
pub(crate) fn shortened(text: &str, width: usize, ellipsis: char) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let mut used = 0;
    let fits = |character: &char| {
        used += character.width().unwrap_or(0);
        used <= room
    };
    text.chars().take_while(fits).chain([ellipsis]).collect()
}

/// Truncates the start of a text, such as a path, to `width` columns, with an ellipsis.
pub(crate) fn shortened_at_the_start(text: &str, width: usize, ellipsis: char) -> String {
    let backwards = |text: &str| text.chars().rev().collect::<String>();
    backwards(&shortened(&backwards(text), width, ellipsis))
}

/// Pads text on the right to `width` columns. Unlike `{:<}`, it counts columns, not characters:
/// some take two columns, and some none.
pub(crate) fn left(text: &str, width: usize) -> String {
    text.to_owned() + &padding(text, width)
}

/// Pads text on the left to `width` columns.
pub(crate) fn right(text: &str, width: usize) -> String {
    padding(text, width) + text
}

fn padding(text: &str, width: usize) -> String {
    " ".repeat(width.saturating_sub(text.width()))
}

/// Wraps text between words at `width` columns, with an indent for the first line and one for the
/// others. Multiple spaces remain in the first line, so that columns stay aligned.
pub(crate) fn wrapped(text: &str, width: usize, first: &str, others: &str) -> Vec<String> {
    let mut lines = vec![first.to_owned()];
    let mut bare = true;
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        let gap = usize::from(!bare);
        if bare || line.width() + gap + word.width() <= width {
            line.push_str(if bare { "" } else { " " });
            line.push_str(word);
        } else {
            lines.push(format!("{others}{word}"));
        }
        bare = false;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_only_there() {
        assert_eq!(wrapped("one two  three", 20, "- ", "  "), ["- one two  three"]);
        assert_eq!(wrapped("one two three", 9, "- ", "  "), ["- one two", "  three"]);
        assert_eq!(wrapped("unbreakable", 3, "", ""), ["unbreakable"]);
    }

    #[test]
    fn names_cannot_command_the_terminal() {
        assert_eq!(printable("python train.py"), "python train.py");
        assert_eq!(printable("\u{1b}[31mred\r\n\t\u{7}"), r"\u{1b}[31mred\r\n\t\u{7}");
        assert_eq!(printable("\u{9b}2J\u{202e}txt\u{200b}"), r"\u{9b}2J\u{202e}txt\u{200b}");
        assert_eq!(printable("名前 naïve 🦀"), "名前 naïve 🦀");
        assert_eq!(printable_lines("one\ntwo\u{1b}[2J\n"), "one\ntwo\\u{1b}[2J\n");
    }

    #[test]
    fn shortening_never_splits_a_wide_character() {
        assert_eq!(shortened("名前名前", 4, '…'), "名…");
        assert_eq!(shortened("abcd", 3, '~'), "ab~");
        assert_eq!(shortened("abc", 0, '…'), "…");
        assert_eq!(shortened_at_the_start("/a/bc", 3, '~'), "~bc");
    }

    #[test]
    fn escaped_json_is_equivalent() {
        let json = "{\n  \"name\": \"a\u{9b}2J\u{202e}\u{7f}\"\n}";
        let escaped = printable_json(json);
        assert_eq!(escaped, "{\n  \"name\": \"a\\u009b2J\\u202e\\u007f\"\n}");
        assert_eq!(printable_json("{\r\n\t\"a\": 1,\r\"a\": 2}"), "{ \n\t\"a\": 1, \"a\": 2}");
        let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(parse(&escaped), parse(json));
    }
}
