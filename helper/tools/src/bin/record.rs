//! Runs a program with the helper, and writes its calls to `OUTPUT` as lines of JSON, and to
//! `OUTPUT.trace` as a trace: `record [--off | --act] HELPER OUTPUT PROGRAM [ARGUMENT...]`. With
//! `--off`, the helper passes calls through once its ring is found. With `--act`, it carries out
//! commands of other processes. The program's standard input is closed once its ring is found, so
//! that a program can wait for that before it exits. For tests.

#![expect(clippy::print_stderr, reason = "a program for the terminal")]

use std::{
    env,
    fs::File,
    io::{BufWriter, Write},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use call_ring::{
    Mode, Target,
    call::{Action, Call},
};
use helper_tools::{exit_code, prepare, recorded};
use recorder::{Ops, Process};
use serde_json::{Map, Value, json};
use sys::Roots;

/// Timeout for the program's first call.
const TIMEOUT: Duration = Duration::from_mins(1);

fn main() -> anyhow::Result<ExitCode> {
    if let Some(ended) = prepare() {
        return Ok(ended);
    }
    let mut arguments = env::args_os().skip(1).peekable();
    let mode = arguments.next_if(|argument| argument == "--off").map(|_| Mode::Off);
    let mode = mode.or_else(|| arguments.next_if(|argument| argument == "--act").map(|_| Mode::Act));
    let (Some(helper), Some(output), Some(program)) = (arguments.next(), arguments.next(), arguments.next()) else {
        bail!("usage: record [--off | --act] HELPER OUTPUT PROGRAM [ARGUMENT...]");
    };
    let mut trace_path = output.clone();
    trace_path.push(".trace");
    let mut output = BufWriter::new(File::create(output)?);
    let mut ops = Ops::default();
    let (input, hold) = std::io::pipe()?;
    let mut hold = Some(hold);
    let mut child =
        recorded(&helper, &program, arguments).stdin(input).spawn().context("the program does not start")?;
    let started = Instant::now();
    let mut process = None;
    let status = loop {
        // Exit status first: calls made before the exit are then available.
        let exited = child.try_wait()?;
        if process.is_none() && exited.is_none() {
            process = Process::find(&Roots::default(), child.id()).ok().flatten();
            if let (Some(process), Some(mode)) = (&process, mode) {
                process.set_mode(mode)?;
            }
        }
        if process.is_some() || started.elapsed() > TIMEOUT {
            hold = None;
        }
        if let Some(process) = &mut process {
            write(&mut output, &mut ops, process.poll()?)?;
        }
        if let Some(status) = exited {
            break status;
        }
        thread::sleep(Duration::from_millis(5));
    };
    drop(hold);
    let mut process = process.context("no ring was found")?;
    write(&mut output, &mut ops, process.finish()?)?;
    serde_json::to_writer(BufWriter::new(File::create(trace_path)?), &ops.finish())?;
    eprintln!("{:?}", process.losses());
    Ok(exit_code(status))
}

fn write(output: &mut impl Write, ops: &mut Ops, calls: Vec<Call>) -> anyhow::Result<()> {
    for call in calls {
        ops.add(&call)?;
        writeln!(output, "{}", line(&call))?;
    }
    Ok(())
}

fn target_fields(target: Target) -> Value {
    match target {
        Target::Stream(stream) => json!({ "target": "stream", "stream": stream }),
        Target::Captured(capture) => json!({ "target": "captured", "capture": capture }),
        Target::Graph { graph, node } => json!({ "target": "graph", "graph": graph, "node": node }),
        Target::Executable { executable, node } => {
            json!({ "target": "executable", "executable": executable, "node": node })
        }
    }
}

fn line(call: &Call) -> Value {
    let (op, target, fields) = match &call.action {
        Action::Malloc { stream, address, bytes, kind, .. } => (
            "malloc",
            None,
            json!({ "stream": stream, "address": address, "bytes": bytes, "kind": format!("{kind:?}").to_lowercase() }),
        ),
        Action::Free { stream, address } => ("free", None, json!({ "stream": stream, "address": address })),
        Action::NotFreed { address } => ("not_freed", None, json!({ "address": address })),
        Action::Function { function, name } => ("function", None, json!({ "function": function, "name": name })),
        Action::Launch { target, function, grid, block, shared_bytes, pointers } => (
            "launch",
            Some(*target),
            json!({
                "function": function, "grid": [grid.x, u32::from(grid.y), u32::from(grid.z)],
                "block": [block.x, u32::from(block.y), u32::from(block.z)], "shared": shared_bytes,
                "pointers": pointers.as_ref().map(|all| {
                    all.iter().map(|pointer| json!([pointer.offset_bytes, pointer.address])).collect::<Vec<_>>()
                }),
            }),
        ),
        Action::Copy { target, to, from, bytes, rows } => {
            ("memcpy", Some(*target), json!({ "to": to, "from": from, "bytes": bytes, "rows": rows }))
        }
        Action::Fill { target, address, bytes, rows } => {
            ("memset", Some(*target), json!({ "address": address, "bytes": bytes, "rows": rows }))
        }
        Action::Prefetch { stream, address, bytes, to, host_node: _ } => {
            ("prefetch", None, json!({ "stream": stream, "address": address, "bytes": bytes, "to": to }))
        }
        Action::Discard { stream, address, bytes } => {
            ("discard", None, json!({ "stream": stream, "address": address, "bytes": bytes }))
        }
        Action::Advise { address, bytes, advice, to, host_node: _ } => {
            ("advise", None, json!({ "address": address, "bytes": bytes, "advice": advice, "to": to }))
        }
        Action::Sync { kind, handle } => {
            ("sync", None, json!({ "what": format!("{kind:?}").to_lowercase(), "stream": handle }))
        }
        Action::GraphCaptured { capture, graph } => ("capture", None, json!({ "capture": capture, "graph": graph })),
        Action::GraphInstantiated { graph, executable } => {
            ("graph_instantiate", None, json!({ "graph": graph, "executable": executable }))
        }
        Action::GraphLaunch { stream, executable } => {
            ("graph_launch", None, json!({ "stream": stream, "executable": executable }))
        }
        Action::GraphCloned { graph, clone } => ("graph_clone", None, json!({ "graph": graph, "clone": clone })),
        Action::GraphDestroyed { graph } => ("graph_destroy", None, json!({ "graph": graph })),
        Action::ExecutableDestroyed { executable } => ("executable_destroy", None, json!({ "executable": executable })),
    };
    let mut line = Map::new();
    line.insert("seq".into(), call.stamp.sequence.into());
    line.insert("thread".into(), call.stamp.thread.into());
    line.insert("op".into(), op.into());
    line.insert("async".into(), call.is_asynchronous.into());
    for fields in [target.map(target_fields), Some(fields)].into_iter().flatten() {
        if let Value::Object(fields) = fields {
            line.extend(fields);
        }
    }
    line.into()
}
