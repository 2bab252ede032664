//! Checks as text and as JSON.

use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use super::{Check, Verdict};
use crate::{
    terminal::{Colour, Style},
    text,
};

/// Widths of the columns for verdict and name, with their separators.
const VERDICT_WIDTH: usize = 9;
const NAME_WIDTH: usize = 15;
/// Minimum width of wrapped text.
const TEXT_WIDTH_MIN: usize = 20;

pub(super) fn json(node: &str, checks: &[Check]) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Report<'a> {
        node: &'a str,
        ok: bool,
        checks: &'a [Check],
    }
    serde_json::to_string_pretty(&Report { node, ok: count(checks, Verdict::Missing) == 0, checks })
}

/// Checks under the name of the node that they are about.
pub(super) fn text(node: &str, checks: &[Check], width: Option<usize>, colour: Colour) -> String {
    let text_width = width.map(|width| width.saturating_sub(VERDICT_WIDTH + NAME_WIDTH).max(TEXT_WIDTH_MIN));
    let mut out = colour.paint(Style::Heading, &format!("Node {}", text::printable(node))) + "\n\n";
    for Check { name, verdict, finding, advice } in checks {
        let word = verdict.word();
        let padding = " ".repeat(VERDICT_WIDTH - word.len());
        let mut start = format!("{}{padding}{name:<NAME_WIDTH$}", colour.paint(verdict.style(), word));
        let advice = advice.iter().flat_map(|advice| wrapped(advice, text_width, "-> ", "   "));
        for line in wrapped(finding, text_width, "", "").into_iter().chain(advice) {
            out.extend([start.as_str(), &line, "\n"]);
            start = " ".repeat(VERDICT_WIDTH + NAME_WIDTH);
        }
    }
    out + "\n" + &summary(checks, colour) + "\n"
}

fn summary(checks: &[Check], colour: Colour) -> String {
    let parts = [
        (count(checks, Verdict::Warning), Verdict::Warning, ["warning", "warnings"]),
        (count(checks, Verdict::Unknown), Verdict::Unknown, ["not checked", "not checked"]),
    ];
    let parts = parts.into_iter().filter(|(count, ..)| *count > 0).map(|(count, verdict, [one, more])| {
        colour.paint(verdict.style(), &format!("{count} {}", if count == 1 { one } else { more }))
    });
    let missing = match count(checks, Verdict::Missing) {
        0 => colour.paint(Verdict::Ok.style(), "nothing that uvmd needs is missing"),
        1 => colour.paint(Verdict::Missing.style(), "1 thing that uvmd needs is missing"),
        more => colour.paint(Verdict::Missing.style(), &format!("{more} things that uvmd needs are missing")),
    };
    [missing].into_iter().chain(parts).collect::<Vec<_>>().join(", ")
}

fn count(checks: &[Check], verdict: Verdict) -> usize {
    checks.iter().filter(|check| check.verdict == verdict).count()
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Missing => "missing",
            Self::Unknown => "unknown",
        }
    }

    const fn style(self) -> Style {
        match self {
            Self::Ok => Style::Good,
            Self::Warning => Style::Warning,
            Self::Missing => Style::Error,
            Self::Unknown => Style::Faded,
        }
    }
}

/// Wraps text between words at `width` columns; the first line begins with `first`, the others with
/// `rest`.
fn wrapped(text: &str, width: Option<usize>, first: &str, rest: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = first.to_owned();
    let mut is_begun = false;
    for word in text.split(' ') {
        let gap = usize::from(is_begun);
        if is_begun && width.is_some_and(|width| line.width() + gap + word.width() > width) {
            lines.push(std::mem::replace(&mut line, rest.to_owned()));
        } else if is_begun {
            line.push(' ');
        }
        line.push_str(word);
        is_begun = true;
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks() -> Vec<Check> {
        vec![
            Check::ok("kernel", "Linux 6.12"),
            Check::missing(
                "driver",
                "the driver nvidia-uvm is not loaded",
                "run `modprobe nvidia-uvm`, or start a CUDA program",
            ),
            Check::unknown("rights", "not readable", "run this as root"),
        ]
    }

    #[test]
    fn lines_fit_the_terminal_and_align_with_their_check() {
        let text = text("gpu-17", &checks(), Some(60), Colour::OFF);
        assert_eq!(
            text,
            "\
Node gpu-17

ok       kernel         Linux 6.12
missing  driver         the driver nvidia-uvm is not loaded
                        -> run `modprobe nvidia-uvm`, or
                           start a CUDA program
unknown  rights         not readable
                        -> run this as root

1 thing that uvmd needs is missing, 1 not checked
"
        );
    }

    #[test]
    fn names_and_verdicts_fit_their_columns() {
        for name in ["configuration", "locked memory"] {
            assert!(name.len() + 2 <= NAME_WIDTH);
        }
        for verdict in [Verdict::Ok, Verdict::Warning, Verdict::Missing, Verdict::Unknown] {
            assert!(verdict.word().len() + 2 <= VERDICT_WIDTH);
        }
    }

    #[test]
    fn text_is_not_wrapped_without_a_terminal_and_long_words_are_preserved() {
        assert_eq!(wrapped("a b c", None, "-> ", "   "), ["-> a b c"]);
        assert_eq!(wrapped("abcdef g", Some(3), "", "  "), ["abcdef", "  g"]);
        assert_eq!(wrapped("", Some(3), "", ""), [""]);
    }

    #[test]
    fn the_report_is_ok_only_if_nothing_is_missing() {
        let all: serde_json::Value = serde_json::from_str(&json("gpu-17", &checks()).unwrap()).unwrap();
        assert_eq!((&all["node"], &all["ok"]), (&"gpu-17".into(), &false.into()));
        assert_eq!(all["checks"][1]["verdict"], "missing");
        assert_eq!(all["checks"][0]["advice"], serde_json::Value::Null);
        let healthy: serde_json::Value = serde_json::from_str(&json("gpu-17", &checks()[..1]).unwrap()).unwrap();
        assert_eq!(healthy["ok"], true);
    }
}
