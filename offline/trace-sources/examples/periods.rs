//! Prints each state of the detector on a recorded run: `periods TRACE`. An iteration of a program
//! that reads its loss ends with a sync.

#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::path::Path;

use anyhow::{Context, bail};
use trace::{Detector, OpKind, detect::Settings, ops::SyncKind};
use trace_sources::import::{self, Trace};

fn main() -> anyhow::Result<()> {
    let path = std::env::args_os().nth(1).context("usage: periods TRACE")?;
    let Trace::Ops(stream) = import::load(Path::new(&path))? else { bail!("the trace is not of a run") };
    let ops = stream.ops().values();
    println!("{} ops", ops.len());
    for (at, state) in Detector::new(Settings::of_recorded(&stream)).observe(&stream) {
        let until = ops.get(..usize::try_from(at)?).unwrap_or_default();
        let syncs = |kind| until.iter().filter(|op| op.kind == OpKind::Sync(kind)).count();
        let [copies, events] = [SyncKind::Copy, SyncKind::Event].map(syncs);
        println!("op {at}, copies to the host {copies}, events {events}: {state:?}");
    }
    Ok(())
}
