//! `uvmctl events`: the stream of events, line by line, for as long as somebody reads.

use std::{
    io::{self, BufRead, Read, Write},
    thread,
    time::Duration,
};

use anyhow::bail;
use clap::Args;
use model::api::decision::{Event, Outcome};

use crate::{
    client::{Client, Error},
    completion, decisions,
    output::{self, Format, UsageError, end_on_signals, yaml},
    resource,
    terminal::{Colour, Style},
    text, words,
};

/// Time before the stream is requested again.
const PAUSE: Duration = Duration::from_secs(1);

/// No line of uvmd's is longer.
const LINE_BYTES_MAX: usize = 16 << 20;
/// Ids of uvmd's events are shorter.
const ID_BYTES_MAX: usize = 256;

/// Types of events that can be selected. `events_dropped` is always shown.
const TYPES: [&str; 6] =
    ["decision_applied", "decision_created", "decision_updated", "policy_switched", "verdict_ended", "verdict_started"];

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Options {
    /// Process; events about no process are shown as well
    #[arg(long, value_parser = resource::process, add = completion::processes())]
    pid: Option<u32>,

    /// Type of the events; several by commas, or by repeating this
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = TYPES)]
    types: Vec<String>,
}

/// Selection of events, and their form.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) options: Options,
    pub(crate) format: Format,
    pub(crate) colour: Colour,
}

/// Until it is interrupted. A stream that ends is requested again, from where it ended.
pub(crate) fn run(client: &Client, options: Options, output: &output::Options) -> anyhow::Result<()> {
    let format = output.once()?;
    if format == Format::Name {
        return Err(UsageError::new("--output name does not apply: events have no names").into());
    }
    end_on_signals()?;
    let shown = Shown { options, format, colour: Colour::detect() };
    let mut last = None;
    loop {
        let stream = match client.stream("/api/v1/events", last.as_deref()) {
            Ok(stream) => stream,
            // It restarts, or is about to: who has read once waits for it.
            Err(Error::Unreachable { .. }) if last.is_some() => {
                thread::sleep(PAUSE);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        show(stream, &shown, &mut last, &mut io::stdout().lock())?;
        // So that a daemon that ends every stream at once is not asked without end.
        last.get_or_insert_default();
        thread::sleep(PAUSE);
    }
}

/// Shows the events of a stream until it ends; `last` is the id of the last that was read.
pub(crate) fn show(
    mut stream: impl BufRead,
    shown: &Shown,
    last: &mut Option<String>,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        match stream.by_ref().take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line) {
            Ok(1..) => {}
            // It ended, perhaps in the middle of a line.
            Ok(0) | Err(_) => return Ok(()),
        }
        if line.len() > LINE_BYTES_MAX {
            bail!("an event is longer than {}: that is not uvmd", text::bytes(LINE_BYTES_MAX as u64));
        }
        let Ok(line) = str::from_utf8(&line) else { return Ok(()) };
        let line = line.trim_end_matches(['\n', '\r']);
        if let Some(id) = line.strip_prefix("id:").map(str::trim).filter(|id| is_id(id)) {
            *last = Some(id.to_owned());
        }
        let Some(data) = line.strip_prefix("data:") else { continue };
        let event: Event = serde_json::from_str(data)?;
        if !shown.options.select(&event) {
            continue;
        }
        match shown.format {
            Format::Json => writeln!(out, "{}", text::printable_json(data.trim_start()))?,
            Format::Yaml => write!(out, "---\n{}", yaml(data)?)?,
            format => writeln!(out, "{}", line_of(&event, format == Format::Wide, shown.colour))?,
        }
        out.flush()?;
    }
}

impl Options {
    fn select(&self, event: &Event) -> bool {
        let is_of_process = self.pid.is_none_or(|pid| event.pid.is_none_or(|of| of == pid));
        let is_of_type = self.types.is_empty() || self.types.contains(&event.r#type);
        event.dropped.is_some() || is_of_process && is_of_type
    }
}

/// Whether it may be sent back, in a header.
fn is_id(id: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

fn line_of(event: &Event, is_wide: bool, colour: Colour) -> String {
    let of_day = event.time.split_once('T').and_then(|(_, of_day)| of_day.get(..12)).filter(|_| !is_wide);
    let at = of_day.unwrap_or(&event.time);
    let pid = event.pid.map(|pid| format!(" {pid}")).unwrap_or_default();
    let name = event.decision_id.map(|id| format!(" decision {id}:")).unwrap_or_default();
    let (style, what) = match event.r#type.as_str() {
        "policy_switched" => {
            let switched = event.switched.clone().unwrap_or_default();
            let to = if switched.active { "on" } else { "off" };
            (Style::Warning, format!("acting is switched {to} by {}", switched.actor))
        }
        "events_dropped" => {
            let dropped = event.dropped.unwrap_or_default();
            (Style::Warning, format!("{} dropped before this: read too slowly", text::counted(dropped, "event")))
        }
        "decision_applied" => (Style::Faded, event.outcome.as_ref().map(calls).unwrap_or_default()),
        kind => match (&event.decision, &event.verdict) {
            (Some(decision), _) => {
                let why = decision.stage_reason.as_deref().unwrap_or(&decision.reason);
                let effect =
                    decision.after.as_ref().map(|_| format!(" ({})", words::effect(decision))).unwrap_or_default();
                (decisions::style(&decision.stage), format!("{} {}{effect}: {why}", decision.policy, decision.stage))
            }
            (None, Some(verdict)) => {
                let change = if verdict.ended_at.is_some() { "ended" } else { "started" };
                (Style::Plain, format!("{} {change}", words::kind(&verdict.kind)))
            }
            (None, None) => (Style::Plain, kind.replace('_', " ")),
        },
    };
    let what = text::printable(&what).into_owned();
    format!("{}{pid}{name} {}", text::printable(at), colour.paint(style, &what))
}

/// `touch done x12, migrate_to_gpu host_memory x1`
fn calls(outcome: &Outcome) -> String {
    let mut kinds: Vec<(String, u64)> = Vec::new();
    for call in &outcome.calls {
        let kind = format!("{} {}", call.action, call.result.result).replace('_', " ");
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count = count.saturating_add(call.count),
            None => kinds.push((kind, call.count)),
        }
    }
    let kinds: Vec<String> = kinds.into_iter().map(|(kind, count)| format!("{kind} x{count}")).collect();
    let rollback = if outcome.is_rollback { "rollback: " } else { "" };
    format!("{rollback}{}", kinds.join(", "))
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, repeat};

    use super::*;

    fn shown(stream: impl BufRead) -> (anyhow::Result<()>, Option<String>, String) {
        let (mut last, mut out) = (None, Vec::new());
        let shown = Shown { options: Options::default(), format: Format::Table, colour: Colour::OFF };
        let result = show(stream, &shown, &mut last, &mut out);
        (result, last, String::from_utf8(out).unwrap())
    }

    #[test]
    fn events_are_selected_by_process_and_type_and_dropped_ones_are_always_told() {
        let event = |kind: &str, pid| Event { r#type: kind.to_owned(), pid, ..Event::default() };
        let dropped = Event { dropped: Some(5), ..event("events_dropped", None) };
        let of_process = Options { pid: Some(7), ..Options::default() };
        let of_type = Options { types: vec!["verdict_started".to_owned()], ..Options::default() };
        for (options, event, is_selected) in [
            (&of_process, event("verdict_started", Some(7)), true),
            (&of_process, event("verdict_started", Some(8)), false),
            (&of_process, event("policy_switched", None), true),
            (&of_type, event("verdict_started", Some(8)), true),
            (&of_type, event("policy_switched", None), false),
            (&of_type, dropped.clone(), true),
        ] {
            assert_eq!(options.select(&event), is_selected, "{options:?} {event:?}");
        }
        assert!(line_of(&dropped, false, Colour::OFF).ends_with("5 events dropped before this: read too slowly"));
    }

    #[test]
    fn a_line_without_end_is_not_held() {
        let (result, ..) = shown(BufReader::new(repeat(b'x')));
        assert_eq!(result.unwrap_err().to_string(), "an event is longer than 16.0 MiB: that is not uvmd");
    }

    #[test]
    fn what_cannot_be_sent_back_names_no_event() {
        let long = format!("id: {}\n", "7".repeat(ID_BYTES_MAX + 1));
        for line in ["id:\n", "id: a b\n", "id: a\u{7f}\n", "id: é\n", &long] {
            let (result, last, _) = shown(format!("id: 1-7\r\n{line}").as_bytes());
            assert_eq!((result.is_ok(), last.as_deref()), (true, Some("1-7")), "{line}");
        }
    }
}
