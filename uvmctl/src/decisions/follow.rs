//! What happens, line by line, for as long as somebody reads.

use std::{
    io::{self, BufRead, Read, Write},
    thread,
    time::Duration,
};

use anyhow::bail;
use model::api::decision::{Event, Outcome};

use crate::{
    client::{Client, Error},
    terminal::{Colour, Style},
    text, words,
};

/// Before the daemon is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// No line of uvmd's is longer.
const LINE_BYTES_MAX: usize = 16 << 20;
/// Names of uvmd's events are shorter.
const ID_BYTES_MAX: usize = 256;

/// What of the events is shown, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// Those about this process, and those about none.
    pub(crate) pid: Option<u32>,
    pub(crate) json: bool,
    pub(crate) colour: Colour,
}

/// Until it is interrupted. A stream that ends is asked for again, from where it ended.
pub(super) fn run(client: &Client, pid: Option<u32>, json: bool) -> anyhow::Result<()> {
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
        let shown = Shown { pid, json, colour: Colour::detect() };
        show(stream, shown, &mut last, &mut io::stdout().lock())?;
        // So that a daemon that ends every stream at once is not asked without end.
        last.get_or_insert_default();
        thread::sleep(PAUSE);
    }
}

/// Shows the events of a stream until it ends; `last` is the name of the last that was read.
pub(crate) fn show(
    mut stream: impl BufRead,
    Shown { pid, json, colour }: Shown,
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
        if pid.is_some_and(|pid| event.pid.is_some_and(|of| of != pid)) {
            continue;
        }
        if json {
            writeln!(out, "{}", text::printable_json(data.trim_start()))?;
        } else {
            writeln!(out, "{}", said(&event, colour))?;
        }
        out.flush()?;
    }
}

/// Whether it may be sent back, in a header.
fn is_id(id: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

fn said(event: &Event, colour: Colour) -> String {
    let at = event.time.split_once('T').and_then(|(_, of_day)| of_day.get(..12)).unwrap_or(&event.time);
    let pid = event.pid.map(|pid| format!(" {pid}")).unwrap_or_default();
    let name = event.decision_id.map(|id| format!(" decision {id}:")).unwrap_or_default();
    let (style, what) = match event.r#type.as_str() {
        "policy_switched" => {
            let switched = event.switched.clone().unwrap_or_default();
            (
                Style::Warning,
                format!("acting is switched {} by {}", if switched.active { "on" } else { "off" }, switched.actor),
            )
        }
        "events_dropped" => (Style::Warning, format!("{} events were missed", event.dropped.unwrap_or_default())),
        "decision_applied" => (Style::Faded, event.outcome.as_ref().map(calls).unwrap_or_default()),
        kind => match (&event.decision, &event.verdict) {
            (Some(decision), _) => {
                let why = decision.stage_reason.as_deref().unwrap_or(&decision.reason);
                let effect =
                    decision.after.as_ref().map(|_| format!(" ({})", words::effect(decision))).unwrap_or_default();
                let said = format!("{} {}{effect}: {why}", decision.policy, decision.stage);
                (super::style(&decision.stage), said)
            }
            (None, Some(verdict)) => {
                let goes_on = if verdict.ended_at.is_some() { "is over" } else { "began" };
                (Style::Plain, format!("{} {goes_on}", words::kind(&verdict.kind)))
            }
            (None, None) => (Style::Plain, kind.replace('_', " ")),
        },
    };
    let what = text::printable(&what).into_owned();
    format!("{}{pid}{name} {}", text::printable(at), colour.paint(style, &what))
}

/// `renew done x12, migrate_to_gpu host_memory x1`
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
    let undoing = if outcome.is_rollback { "put back: " } else { "" };
    format!("{undoing}{}", kinds.join(", "))
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, repeat};

    use super::*;

    fn shown(stream: impl BufRead) -> (anyhow::Result<()>, Option<String>, String) {
        let (mut last, mut out) = (None, Vec::new());
        let result = show(stream, Shown { pid: None, json: false, colour: Colour::OFF }, &mut last, &mut out);
        (result, last, String::from_utf8(out).unwrap())
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
