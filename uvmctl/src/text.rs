//! Formats of text and numbers for terminals.

use std::{borrow::Cow, time::Duration};

use model::api::{Gpu, GpuId};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Formats bytes in powers of 1024: `12.3 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
}

/// Formats a count in powers of 1000: `18.4k`.
pub(crate) fn count(count: u64) -> String {
    scaled(count as f64, 1000.0, &["", "k", "M", "G", "T", "P", "E"])
}

/// Formats a count with its noun: `1 piece`, `18.4k pieces`.
pub(crate) fn counted(count: u64, thing: &str) -> String {
    format!("{} {thing}{}", self::count(count), if count == 1 { "" } else { "s" })
}

/// Parses an address of the API: hexadecimal with `0x`.
pub(crate) fn address(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// Formats nanoseconds in powers of 1000: `1.2 ms`.
pub(crate) fn nanoseconds(nanoseconds: u64) -> String {
    scaled(nanoseconds as f64, 1000.0, &[" ns", " us", " ms", " s", " ks", " Ms", " Gs"])
}

/// Formats a share as `92 %`. Only 0 is shown as `0 %`, and only 1 as `100 %`.
pub(crate) fn percent(share: f64) -> String {
    match share {
        share if share > 0.0 && share < 0.005 => "<1 %".to_owned(),
        share if (0.995..1.0).contains(&share) => ">99 %".to_owned(),
        share => format!("{:.0} %", share * 100.0),
    }
}

/// Formats a value; a dash if unknown.
pub(crate) fn known(value: Option<u64>, format: fn(u64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), format)
}

/// Formats bytes; a dash if unknown.
pub(crate) fn known_bytes(value: Option<u64>) -> String {
    known(value, bytes)
}

/// Formats a share of a total as `92 %`; a dash if the total is 0.
pub(crate) fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { percent(part as f64 / whole as f64) }
}

fn scaled(mut value: f64, base: f64, units: &[&str]) -> String {
    let (mut unit, mut larger) = match units {
        [first, larger @ ..] => (*first, larger),
        [] => ("", units),
    };
    // 999.5 would be rounded to 1000, so the next unit begins there.
    while let [next, rest @ ..] = larger
        && value >= base - 0.5
    {
        value /= base;
        (unit, larger) = (next, rest);
    }
    let digits = usize::from(larger.len() + 1 < units.len() && value < 99.95);
    format!("{value:.digits$}{unit}")
}

/// NVML's index of a GPU; without NVML the first digits of its UUID, which nvidia-smi accepts as
/// well.
pub(crate) fn gpu(id: &GpuId) -> String {
    const DIGITS: usize = 8;
    let digits = |uuid: &str| uuid.trim_start_matches("GPU-").chars().take(DIGITS).collect::<String>();
    match (id.gpu, id.uuid.as_deref()) {
        (Some(index), _) => index.to_string(),
        (None, Some(uuid)) => printable(&digits(uuid)).into_owned(),
        (None, None) => "-".to_owned(),
    }
}

/// `GPU0 (NVIDIA H200)`
pub(crate) fn named_gpu(gpu: &Gpu) -> String {
    let name = gpu.name.as_deref().map(|name| format!(" ({})", printable(name))).unwrap_or_default();
    format!("{}{name}", gpu_label(&gpu.id))
}

/// `GPU0`, `GPU-6f0e1c2d`, or `GPU?`.
pub(crate) fn gpu_label(id: &GpuId) -> String {
    match (id.gpu, &id.uuid) {
        (Some(index), _) => format!("GPU{index}"),
        (None, Some(_)) => format!("GPU-{}", gpu(id)),
        (None, None) => "GPU?".to_owned(),
    }
}

/// Formats a duration in its two largest units: `4 min 12 s`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = [(seconds / 86_400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "min"), (seconds % 60, "s")];
    let largest = units.iter().position(|(value, _)| *value > 0).unwrap_or(units.len() - 1);
    let shown: Vec<_> = units.iter().skip(largest).take(2).map(|(value, unit)| format!("{value} {unit}")).collect();
    shown.join(" ")
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
    fn numbers_have_at_most_four_characters_and_a_unit() {
        let counts = [(0, "0"), (999, "999"), (1000, "1.0k"), (18_432, "18.4k"), (99_949, "99.9k"), (99_950, "100k")];
        for (value, text) in counts {
            assert_eq!(count(value), text);
        }
        assert_eq!((count(999_600).as_str(), count(u64::MAX).as_str()), ("1.0M", "18.4E"));
        assert_eq!((counted(1, "piece").as_str(), counted(18_400, "piece").as_str()), ("1 piece", "18.4k pieces"));
        assert_eq!((nanoseconds(999).as_str(), nanoseconds(1_240_000).as_str()), ("999 ns", "1.2 ms"));
        let sizes = [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (12_897_485, "12.3 MiB"), (1 << 40, "1.0 TiB")];
        for (value, text) in sizes {
            assert_eq!(bytes(value), text);
        }
        assert_eq!((bytes((1 << 20) - 1).as_str(), bytes(u64::MAX).as_str()), ("1.0 MiB", "16.0 EiB"));
    }

    #[test]
    fn only_0_is_shown_as_0_percent_and_only_1_as_100_percent() {
        let shown = [0.0, 0.001, 0.5, 0.994, 0.999, 1.0].map(percent);
        assert_eq!(shown, ["0 %", "<1 %", "50 %", "99 %", ">99 %", "100 %"]);
        assert_eq!((share(1, 4).as_str(), share(1, 0).as_str()), ("25 %", "-"));
    }

    #[test]
    fn lines_break_between_words_and_only_there() {
        assert_eq!(wrapped("one two  three", 20, "- ", "  "), ["- one two  three"]);
        assert_eq!(wrapped("one two three", 9, "- ", "  "), ["- one two", "  three"]);
        assert_eq!(wrapped("unbreakable", 3, "", ""), ["unbreakable"]);
    }

    #[test]
    fn durations_have_two_units() {
        for (seconds, text) in
            [(0, "0 s"), (59, "59 s"), (252, "4 min 12 s"), (7200, "2 h 0 min"), (200_000, "2 d 7 h")]
        {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
        }
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
