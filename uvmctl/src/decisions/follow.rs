//! What happens, line by line, for as long as somebody reads.

use std::{
    io::{self, BufRead, Write},
    thread,
    time::Duration,
};

use model::api::decision::{Event, Outcome};

use crate::{
    client::{Client, Error},
    terminal::{Colour, Style},
    text, words,
};

/// Before the daemon is asked again.
const PAUSE: Duration = Duration::from_secs(1);

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
        for line in stream.lines() {
            // It ended in the middle of a line.
            let Ok(line) = line else { break };
            if let Some(id) = line.strip_prefix("id:") {
                last = Some(id.trim().to_owned());
            }
            let Some(data) = line.strip_prefix("data:") else { continue };
            let event: Event = serde_json::from_str(data)?;
            if pid.is_some_and(|pid| event.pid.is_some_and(|of| of != pid)) {
                continue;
            }
            let mut out = io::stdout().lock();
            if json {
                writeln!(out, "{}", text::printable_json(data.trim_start()))?;
            } else {
                writeln!(out, "{}", said(&event, Colour::detect()))?;
            }
            out.flush()?;
        }
        // So that a daemon that ends every stream at once is not asked without end.
        last.get_or_insert_default();
        thread::sleep(PAUSE);
    }
}

fn said(event: &Event, colour: Colour) -> String {
    let at = event.time.split_once('T').and_then(|(_, of_day)| of_day.get(..12)).unwrap_or(&event.time);
    let pid = event.pid.map(|pid| format!(" {pid}")).unwrap_or_default();
    let name = event.decision_id.map(|id| format!(" decision {id}:")).unwrap_or_default();
    let (style, what) = match event.r#type.as_str() {
        "switched" => {
            let switched = event.switched.clone().unwrap_or_default();
            (
                Style::Warning,
                format!("acting is switched {} by {}", if switched.on { "on" } else { "off" }, switched.by),
            )
        }
        "events_lost" => (Style::Warning, format!("{} events were missed", event.lost.unwrap_or_default())),
        "decision_acted" => (Style::Faded, event.outcome.as_ref().map(calls).unwrap_or_default()),
        kind => match (&event.decision, &event.verdict) {
            (Some(decision), _) => {
                let why = decision.stage_reason.as_deref().unwrap_or(&decision.reason);
                let effect =
                    decision.after.as_ref().map(|_| format!(" ({})", words::effect(decision))).unwrap_or_default();
                let said = format!("{} {}{effect}: {why}", decision.policy, decision.stage);
                (super::style(&decision.stage), said)
            }
            (None, Some(verdict)) => {
                let goes_on = if verdict.ended.is_some() { "is over" } else { "began" };
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
        let kind = format!("{} {}", call.action, call.answer.answer).replace('_', " ");
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count = count.saturating_add(call.count),
            None => kinds.push((kind, call.count)),
        }
    }
    let kinds: Vec<String> = kinds.into_iter().map(|(kind, count)| format!("{kind} x{count}")).collect();
    let undoing = if outcome.is_undoing { "put back: " } else { "" };
    format!("{undoing}{}", kinds.join(", "))
}
