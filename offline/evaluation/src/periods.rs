//! Each state of the detector on a recorded run. An iteration of a program that reads its loss ends
//! with a sync.

use std::path::Path;

use trace::{Detector, OpKind, detect::Settings, ops::SyncKind};
use trace_sources::import::{self, Trace};

use crate::Result;

pub(crate) fn print(path: &Path) -> Result {
    let Trace::Ops(stream) = import::load(path)? else { return Err("the trace is not of a run".into()) };
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
