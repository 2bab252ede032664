//! Calls of a process to the CUDA driver: `uvmctl ops`.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use api::{Op, OpAction, OpTarget, Ops, QuotaHolder};
use clap::Args;
use trace::OpStream;

use crate::{
    client::Client,
    completion,
    output::{
        Page, Screen, View,
        cell::Cell,
        table::{Column, Concession, Table},
    },
    report, resource, source,
    terminal::{self, Style},
    text,
};

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Process
    #[arg(value_parser = resource::process, add = completion::processes())]
    pid: u32,

    /// Start time of the process in clock ticks since boot [default: the running process, else the
    /// last one]
    #[arg(long, value_name = "TICKS")]
    start_ticks: Option<u64>,

    /// Maximum number of calls, the last ones [default: 100, and all for a trace]
    #[arg(long, short = 'n', value_name = "COUNT")]
    last: Option<u32>,

    /// Write the calls as a trace for uvmctl sim and plan to this file
    #[arg(long, value_name = "PATH")]
    pub(crate) trace: Option<PathBuf>,
}

const CONCESSIONS: [Concession; 2] = [Concession::Drop("TID"), Concession::Shorten("CALL", 24)];

impl Options {
    fn path(&self, below: &str) -> String {
        let Self { pid, start_ticks, last, .. } = self;
        let start_ticks = start_ticks.map(|ticks| format!("start_ticks={ticks}"));
        let last = last.map(|last| format!("last={last}"));
        let query: Vec<String> = start_ticks.into_iter().chain(last).collect();
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        format!("/api/v1/processes/{pid}/{below}{query}")
    }
}

/// Writes the calls as a trace.
pub(crate) fn write(client: &Client, options: &Options, path: &Path) -> anyhow::Result<()> {
    // Validated: a file that is written can be read.
    let trace = client.get::<OpStream>(&options.path("ops/trace"))?;
    report::replace(path, |file| writeln!(file, "{}", trace.json))?;
    terminal::note(&source::period(&trace.body));
    Ok(())
}

/// The last calls of one process.
pub(crate) struct List(pub(crate) Options);

impl View for List {
    fn page(&mut self, client: &Client, _: Screen) -> anyhow::Result<Page> {
        let ops = client.get::<Ops>(&self.0.path("ops"))?.body;
        let heading = heading(&ops);
        if ops.ops.is_empty() {
            return Ok(Page::nothing(heading));
        }
        Ok(Page::list(table(&ops.ops), &CONCESSIONS).with_note(Some(heading)))
    }

    fn json(&mut self, client: &Client, out: &mut dyn Write) -> anyhow::Result<()> {
        client.pass_on_one::<Ops>(&self.0.path("ops"), out)
    }

    fn columns(&self) -> Vec<String> {
        table(&[]).column_names()
    }

    fn has_names(&self) -> bool {
        false
    }
}

/// Reason why no further calls are recorded; `None` if they are, or if the process has exited.
pub(crate) fn obstacle(ops: &Ops) -> Option<String> {
    match (ops.state.as_str(), &ops.unreadable_reason, &ops.quota_holder) {
        ("quota_reached", _, Some(QuotaHolder { uid, recordings, max_recordings })) => {
            Some(format!("not recorded: user {uid} has {recordings} of {max_recordings} recordings"))
        }
        ("throttled", ..) => Some("not recorded for now: the reader time of its user is used up".to_owned()),
        ("unreadable", Some(reason), _) => Some(format!("not recorded any more: {}", text::printable(reason))),
        _ => None,
    }
}

/// State of the recording, and what it lacks.
fn heading(ops: &Ops) -> String {
    let state = obstacle(ops).unwrap_or_else(|| text::printable(&ops.state).replace('_', " "));
    if ops.quota_holder.is_some() {
        return state;
    }
    let calls = format!("{}, the last {} retained", text::counted(ops.calls, "call"), text::count(ops.calls_retained));
    let losses = [
        ("dropped", ops.calls_dropped),
        ("late", ops.calls_late),
        ("not recorded", ops.calls_unrecorded),
        ("of an unknown kind", ops.records_unknown),
        ("invalid", ops.records_invalid),
    ];
    let losses = losses.into_iter().filter(|(_, count)| *count > 0);
    let losses = losses.map(|(what, count)| format!("{} {what}", text::count(count)));
    let incomplete = ops.is_incomplete.then(|| "too many blocks, functions or graphs for a whole trace".to_owned());
    let all: Vec<String> = [calls].into_iter().chain(losses).chain(incomplete).collect();
    format!("{state}: {}", all.join("; "))
}

fn table(ops: &[Op]) -> Table {
    const NS_PER_MS: f64 = 1e6;
    let first = ops.first().map_or(0, |op| op.time_ns);
    let since = |op: &Op| format!("{:.3}", op.time_ns.saturating_sub(first) as f64 / NS_PER_MS);
    let cells = |cell: &dyn Fn(&Op) -> Cell| ops.iter().map(cell).collect::<Vec<_>>().into_iter();
    let columns = vec![
        Column::number("NUMBER", cells(&|op| Cell::amount(op.sequence, |number| number.to_string()))),
        Column::number("MS", cells(&|op| since(op).into())),
        Column::number("TID", cells(&|op| Cell::ordinal(op.tid))),
        Column::text("CALL", cells(&|op| text::printable(&call(op)).into_owned().into())),
    ];
    Table::new(columns, vec![Style::Plain; ops.len()])
}

fn size([x, y, z]: [u32; 3]) -> String {
    format!("{x}x{y}x{z}")
}

fn to(target: &OpTarget) -> String {
    match target {
        OpTarget::Stream(_) => String::new(),
        OpTarget::Capture(capture) => format!(", captured {capture}"),
        OpTarget::GraphNode(node) => format!(", node {node} of a graph"),
        OpTarget::ExecutableNode(node) => format!(", node {node} of an instantiated graph"),
    }
}

fn place(device: i32, host_node: Option<u32>) -> String {
    match (device, host_node) {
        (0.., _) => format!("device {device}"),
        (-1, Some(node)) => format!("host node {node}"),
        (-1, None) => "host".to_owned(),
        _ => "another location".to_owned(),
    }
}

/// Advice as in `CUmem_advise`.
fn advice(advice: u32) -> String {
    let name = match advice {
        1 => "set read mostly",
        2 => "unset read mostly",
        3 => "set preferred location",
        4 => "unset preferred location",
        5 => "set accessed by",
        6 => "unset accessed by",
        other => return format!("advice {other}"),
    };
    name.to_owned()
}

/// Call in one line.
fn call(op: &Op) -> String {
    let cut = if op.is_cut { ", cut" } else { "" };
    let text = match &op.action {
        OpAction::Malloc { address, bytes, kind, device } => {
            format!("malloc {address} {} {kind} of device {device}", text::bytes(*bytes))
        }
        OpAction::Free { address } => format!("free {address}"),
        OpAction::NotFreed { address } => format!("not freed {address}"),
        OpAction::Function { function, name } => format!("function {function} {name}"),
        OpAction::Launch { target, function, grid, block, shared_bytes: _, pointers } => {
            let pointers = match pointers {
                None => "(unknown)".to_owned(),
                Some(pointers) => {
                    let addresses: Vec<&str> = pointers.iter().map(|pointer| pointer.address.as_str()).collect();
                    format!("({})", addresses.join(", "))
                }
            };
            format!("launch {function}{pointers} {} of {}{}", size(*grid), size(*block), to(target))
        }
        OpAction::Copy { target, destination, source, bytes, rows: _ } => {
            format!("copy {} to {destination} from {source}{}", text::bytes(*bytes), to(target))
        }
        OpAction::Fill { target, address, bytes, rows: _ } => {
            format!("fill {} at {address}{}", text::bytes(*bytes), to(target))
        }
        OpAction::Prefetch { stream: _, address, bytes, device, host_node } => {
            format!("prefetch {} at {address} to {}", text::bytes(*bytes), place(*device, *host_node))
        }
        OpAction::Discard { stream: _, address, bytes } => format!("discard {} at {address}", text::bytes(*bytes)),
        OpAction::Advise { address, bytes, advice: kind, device, host_node } => {
            format!("{} for {} at {address}: {}", advice(*kind), text::bytes(*bytes), place(*device, *host_node))
        }
        OpAction::Sync { kind, handle: _ } => format!("wait for {kind}"),
        OpAction::GraphCapture { capture, graph } => format!("graph {graph} of capture {capture}"),
        OpAction::GraphInstantiate { graph, executable } => format!("instantiate graph {graph} as {executable}"),
        OpAction::GraphLaunch { stream: _, executable } => format!("launch graph {executable}"),
        OpAction::GraphClone { graph, clone } => format!("clone graph {graph} as {clone}"),
        OpAction::GraphDestroy { graph } => format!("destroy graph {graph}"),
        OpAction::ExecutableDestroy { executable } => format!("destroy instantiated graph {executable}"),
    };
    text + cut
}

#[cfg(test)]
mod tests {
    use api::OpPointer;

    use super::*;
    use crate::terminal::Colour;

    fn op(sequence: u64, action: OpAction) -> Op {
        Op { sequence, time_ns: 1_000_000 * sequence, tid: 182, is_asynchronous: true, is_cut: false, action }
    }

    fn prefetch(address: &str, device: i32, host_node: Option<u32>) -> OpAction {
        OpAction::Prefetch { stream: "0x1".to_owned(), address: address.to_owned(), bytes: 4096, device, host_node }
    }

    #[test]
    fn a_line_has_the_call_with_its_memory() {
        let address = "0x7f2a40000000".to_owned();
        let ops = [
            op(7, OpAction::Malloc { address: address.clone(), bytes: 4 << 20, kind: "managed".to_owned(), device: 0 }),
            op(
                9,
                OpAction::Launch {
                    target: OpTarget::Stream("0x1".to_owned()),
                    function: "add".to_owned(),
                    grid: [16, 1, 1],
                    block: [256, 1, 1],
                    shared_bytes: 0,
                    pointers: Some(vec![OpPointer { offset_bytes: 0, address: address.clone() }]),
                },
            ),
            op(10, OpAction::Advise { address: address.clone(), bytes: 4096, advice: 3, device: -1, host_node: None }),
            op(11, prefetch(&address, -1, Some(1))),
            op(12, prefetch(&address, -2, None)),
            op(13, OpAction::Discard { stream: "0x1".to_owned(), address, bytes: 4096 }),
        ];
        assert_eq!(
            table(&ops).render(Colour::OFF),
            "\
NUMBER     MS  TID  CALL
     7  0.000  182  malloc 0x7f2a40000000 4.0 MiB managed of device 0
     9  2.000  182  launch add(0x7f2a40000000) 16x1x1 of 256x1x1
    10  3.000  182  set preferred location for 4.0 KiB at 0x7f2a40000000: host
    11  4.000  182  prefetch 4.0 KiB at 0x7f2a40000000 to host node 1
    12  5.000  182  prefetch 4.0 KiB at 0x7f2a40000000 to another location
    13  6.000  182  discard 4.0 KiB at 0x7f2a40000000
"
        );
    }

    #[test]
    fn heading_has_the_state_and_all_losses() {
        let ops = Ops { state: "recording".to_owned(), calls: 1200, calls_retained: 40, ..Ops::default() };
        assert_eq!(heading(&ops), "recording: 1.2k calls, the last 40 retained");
        let lossy = Ops { calls_dropped: 3, calls_late: 1, is_incomplete: true, ..ops };
        assert_eq!(
            heading(&lossy),
            "recording: 1.2k calls, the last 40 retained; 3 dropped; 1 late; too many blocks, functions or graphs for a whole trace"
        );
        let holder = Some(QuotaHolder { uid: 1001, recordings: 8, max_recordings: 16 });
        let waiting = Ops { state: "quota_reached".to_owned(), quota_holder: holder, ..Ops::default() };
        assert_eq!(heading(&waiting), "not recorded: user 1001 has 8 of 16 recordings");
        let throttled = heading(&Ops { state: "throttled".to_owned(), ..lossy.clone() });
        let expected = "not recorded for now: the reader time of its user is used up: 1.2k calls, the last 40 retained";
        assert!(throttled.starts_with(&format!("{expected}; 3 dropped; ")), "{throttled}");
        let unreadable = Ops { state: "unreadable".to_owned(), unreadable_reason: Some("x".to_owned()), ..lossy };
        assert!(heading(&unreadable).starts_with("not recorded any more: x: 1.2k calls"));
    }
}
