//! `uvmctl events`: the stream of events, one line each, until interrupted.

use std::{
    io::{self, BufRead, Read, Write},
    thread,
    time::Duration,
};

use anyhow::bail;
use api::decision::{Call, Event, Outcome};
use clap::Args;

use crate::{
    client::{Client, Error},
    completion, decisions,
    output::{self, Format, UsageError, end_on_signals, yaml},
    resource,
    terminal::{Colour, Style},
    text,
};

/// Delay before the stream is requested again.
const PAUSE: Duration = Duration::from_secs(1);

/// Maximum length of a line; uvmd's are shorter.
const LINE_BYTES_MAX: usize = 16 << 20;
/// Maximum length of an event id; uvmd's are shorter.
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

    /// Also show calls that only touch memory, which can be frequent
    #[arg(long, short)]
    verbose: bool,
}

/// Selection of events, and their form.
#[derive(Clone, Debug)]
pub(crate) struct Printer {
    pub(crate) options: Options,
    pub(crate) format: Format,
    pub(crate) colour: Colour,
}

/// Prints events until interrupted. A stream that ends is resumed after its last event.
pub(crate) fn run(client: &Client, options: Options, output: &output::Options) -> anyhow::Result<()> {
    let format = output.once()?;
    if format == Format::Name {
        return Err(UsageError::new("--output name does not apply: events have no names").into());
    }
    end_on_signals()?;
    let printer = Printer { options, format, colour: Colour::detect() };
    let mut last = None;
    loop {
        let stream = match client.stream("/api/v1/events", last.as_deref()) {
            Ok(stream) => stream,
            // The daemon may be restarting: after a first event, wait for it.
            Err(Error::Unreachable { .. }) if last.is_some() => {
                thread::sleep(PAUSE);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        show(stream, &printer, &mut last, &mut io::stdout().lock())?;
        // An empty id marks that a stream was read: from now on an unreachable daemon is awaited.
        // The pause limits requests to a daemon that ends every stream at once.
        last.get_or_insert_default();
        thread::sleep(PAUSE);
    }
}

/// Prints the events of a stream until it ends; `last` is the id of the last event.
pub(crate) fn show(
    mut stream: impl BufRead,
    printer: &Printer,
    last: &mut Option<String>,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        match stream.by_ref().take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line) {
            Ok(1..) => {}
            // End of the stream, perhaps within a line.
            Ok(0) | Err(_) => return Ok(()),
        }
        if line.len() > LINE_BYTES_MAX {
            bail!("an event is longer than {}: the server is not uvmd", text::bytes(LINE_BYTES_MAX as u64));
        }
        let Ok(line) = str::from_utf8(&line) else { return Ok(()) };
        let line = line.trim_end_matches(['\n', '\r']);
        if let Some(id) = line.strip_prefix("id:").map(str::trim).filter(|id| is_id(id)) {
            *last = Some(id.to_owned());
        }
        let Some(data) = line.strip_prefix("data:") else { continue };
        let event: Event = serde_json::from_str(data)?;
        if !printer.options.selects(&event) {
            continue;
        }
        match printer.format {
            Format::Json => writeln!(out, "{}", text::printable_json(data.trim_start()))?,
            Format::Yaml => write!(out, "---\n{}", yaml(data)?)?,
            format => writeln!(out, "{}", line_of(&event, format == Format::Wide, printer.colour))?,
        }
        out.flush()?;
    }
}

impl Options {
    fn selects(&self, event: &Event) -> bool {
        let is_of_process = self.pid.is_none_or(|pid| event.pid.is_none_or(|of| of == pid));
        let is_of_type = self.types.is_empty() || self.types.contains(&event.r#type);
        let is_hidden = !self.verbose && self.types.is_empty() && event.outcome.as_ref().is_some_and(only_touches);
        event.dropped.is_some() || is_of_process && is_of_type && !is_hidden
    }
}

/// Whether all calls of an order are touches that succeeded.
fn only_touches(outcome: &Outcome) -> bool {
    let is_touch = |call: &Call| call.action == "touch" && call.result.result == "done";
    !outcome.calls.is_empty() && outcome.calls.iter().all(is_touch)
}

/// Whether an id can be sent in a header.
fn is_id(id: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

fn line_of(event: &Event, is_wide: bool, colour: Colour) -> String {
    let of_day = event.time.split_once('T').and_then(|(_, of_day)| of_day.get(..12)).filter(|_| !is_wide);
    let time = of_day.unwrap_or(&event.time);
    let pid = event.pid.map(|pid| format!(" {pid}")).unwrap_or_default();
    let name = event.decision_id.map(|id| format!(" decision {id}:")).unwrap_or_default();
    let (style, message) = match event.r#type.as_str() {
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
                let reason = decision.stage_reason.as_deref().unwrap_or(&decision.reason);
                let effect = decision.after.as_ref().map(|_| format!(" ({})", decision.effect)).unwrap_or_default();
                (decisions::style(&decision.stage), format!("{} {}{effect}: {reason}", decision.policy, decision.stage))
            }
            (None, Some(verdict)) => {
                let change = if verdict.ended_at.is_some() { "ended" } else { "started" };
                (Style::Plain, format!("{} {change}", verdict.label))
            }
            (None, None) => (Style::Plain, kind.replace('_', " ")),
        },
    };
    let message = text::printable(&message).into_owned();
    format!("{}{pid}{name} {}", text::printable(time), colour.paint(style, &message))
}

/// `touch done x12, migrate_to_gpu host_memory x1, by helper`
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
    let actuator = outcome.actuator.as_ref().map(|actuator| format!(", by {actuator}")).unwrap_or_default();
    format!("{rollback}{}{actuator}", kinds.join(", "))
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, repeat};

    use super::*;

    fn printed(stream: impl BufRead) -> (anyhow::Result<()>, Option<String>, String) {
        let (mut last, mut out) = (None, Vec::new());
        let printer = Printer { options: Options::default(), format: Format::Table, colour: Colour::OFF };
        let result = show(stream, &printer, &mut last, &mut out);
        (result, last, String::from_utf8(out).unwrap())
    }

    #[test]
    fn events_are_selected_by_process_and_type_and_dropped_events_are_always_shown() {
        let event = |kind: &str, pid| Event { r#type: kind.to_owned(), pid, ..Event::default() };
        let dropped = Event { dropped: Some(5), ..event("events_dropped", None) };
        let of_process = Options { pid: Some(7), ..Options::default() };
        let of_type = Options { types: vec!["verdict_started".to_owned()], ..Options::default() };
        for (options, kind, pid, is_selected) in [
            (&of_process, "verdict_started", Some(7), true),
            (&of_process, "verdict_started", Some(8), false),
            (&of_process, "policy_switched", None, true),
            (&of_type, "verdict_started", Some(8), true),
            (&of_type, "policy_switched", None, false),
        ] {
            assert_eq!(options.selects(&event(kind, pid)), is_selected, "{options:?} {kind} {pid:?}");
        }
        assert!(of_type.selects(&dropped));
        assert!(line_of(&dropped, false, Colour::OFF).ends_with("5 events dropped before this: read too slowly"));
    }

    #[test]
    fn an_endless_line_is_rejected() {
        let (result, ..) = printed(BufReader::new(repeat(b'x')));
        assert_eq!(result.unwrap_err().to_string(), "an event is longer than 16.0 MiB: the server is not uvmd");
    }

    #[test]
    fn ids_that_cannot_be_sent_in_a_header_are_ignored() {
        let long = format!("id: {}\n", "7".repeat(ID_BYTES_MAX + 1));
        for line in ["id:\n", "id: a b\n", "id: a\u{7f}\n", "id: é\n", &long] {
            let (result, last, _) = printed(format!("id: 1-7\r\n{line}").as_bytes());
            assert_eq!((result.is_ok(), last.as_deref()), (true, Some("1-7")), "{line}");
        }
    }
}
