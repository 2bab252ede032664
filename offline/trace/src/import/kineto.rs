//! Traces of PyTorch's profiler (Kineto), JSON. What is taken:
//!
//! * `[memory]` events of a GPU: allocations of PyTorch's own allocator
//! * kernels, copies and fills of that GPU, joined with the runtime calls that launched them: a launch's time is when its call returned
//!
//! What each launch used is not in these traces, so launches have no arguments. A trace tells times in microseconds; large ones as floating point,
//! to a quarter of a microsecond. Events that cannot be used are counted, not passed over in silence.

mod event;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io::BufRead,
    path::Path,
};

use event::{Event, Kind};

use super::{
    error::{ImportError, Reason},
    own::json,
    text,
};
use crate::ops::{Block, Launch, OpStream, Recorder, Signature};

/// A block from before the trace has no address; its key is one that no allocator gives.
const REST_KEY: u64 = u64::MAX;

/// A profiled run.
#[derive(Clone, Debug)]
pub struct Run {
    /// What one GPU did and held.
    pub stream: OpStream,
    /// Which GPU.
    pub device: u32,
    /// What could not be used.
    pub left_out: LeftOut,
}

/// How many events could not be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Memory events and work of other GPUs.
    pub other_devices: u64,
    /// Memory events of the CPU.
    pub cpu_memory: u64,
    /// Kernels, copies and fills whose launch is not in the trace.
    pub not_launched: u64,
    /// Allocations where something is allocated already: its free was lost, and is taken to be here.
    pub lost_frees: u64,
    /// Frees of what was freed already: its allocation was lost.
    pub lost_mallocs: u64,
}

/// Reads a trace: of the GPU that is asked for, or of that with the most work.
///
/// # Errors
/// If the file cannot be read or is wrong: with the line; if the GPU did nothing.
pub fn load(path: &Path, device: Option<u32>) -> Result<Run, ImportError> {
    parse(path, text::open(path)?, device)
}

/// Reads a trace from text; `path` is for messages.
///
/// # Errors
/// If the text is wrong: with the line; if the GPU did nothing.
pub fn parse(path: &Path, text: impl BufRead, device: Option<u32>) -> Result<Run, ImportError> {
    let events = event::read(text).map_err(|error| json(path, &error))?;
    let device = device.or_else(|| busiest(&events));
    let device = device.ok_or_else(|| ImportError::new(path, None, Reason::NoDevice))?;
    record(events, device).map_err(|invalid| ImportError::new(path, None, invalid))
}

fn busiest(events: &[Event]) -> Option<u32> {
    let mut events_of: BTreeMap<u32, u64> = BTreeMap::new();
    for event in events {
        if let Kind::Work { device, .. } | Kind::Memory { device: Some(device), .. } = event.kind {
            *events_of.entry(device).or_default() += 1;
        }
    }
    // Of those with equally many, the first.
    events_of.into_iter().rev().max_by_key(|&(_, events)| events).map(|(device, _)| device)
}

/// A step of the run to come.
enum Step {
    Memory { address: u64, bytes: i64, total_bytes: Option<u64> },
    Launch(Launch),
}

fn record(events: Vec<Event>, device: u32) -> Result<Run, crate::ops::Invalid> {
    let mut left_out = LeftOut::default();
    let returned = returns(&events);
    let mut recorder = Recorder::default();
    let mut steps = Vec::new();
    for Event { time_ns, duration_ns, kind } in events {
        match kind {
            Kind::Memory { device: None, .. } => left_out.cpu_memory += 1,
            Kind::Memory { device: Some(other), .. } | Kind::Work { device: other, .. } if other != device => {
                left_out.other_devices += 1;
            }
            Kind::Memory { address, bytes, total_bytes, .. } => {
                steps.push((time_ns, Step::Memory { address, bytes, total_bytes }));
            }
            Kind::Work { correlation, stream, name, grid, block, .. } => {
                let Some(&returned_ns) = correlation.and_then(|correlation| returned.get(&correlation)) else {
                    left_out.not_launched += 1;
                    continue;
                };
                let signature = recorder.signature(Signature { name, grid, block });
                let (start_ns, duration_ns) = (Some(time_ns), Some(duration_ns));
                let launch = Launch { signature, stream, start_ns, duration_ns, arguments: Vec::new() };
                steps.push((returned_ns, Step::Launch(launch)));
            }
            Kind::Call { .. } => {}
        }
    }
    // Stable: what happened in the same microsecond stays as the profiler wrote it.
    steps.sort_by_key(|&(time_ns, _)| time_ns);
    hold_rest(&mut recorder, &steps)?;
    for (time_ns, step) in steps {
        match step {
            Step::Launch(launch) => recorder.launch(time_ns, launch).map(drop)?,
            Step::Memory { address, bytes, .. } => {
                let block = Block { bytes: bytes.unsigned_abs(), address: Some(address) };
                match (bytes < 0, recorder.block(address).is_ok()) {
                    (true, true) => recorder.free(time_ns, address).map(drop)?,
                    (true, false) => left_out.lost_mallocs += 1,
                    (false, false) => recorder.malloc(time_ns, address, block).map(drop)?,
                    (false, true) => {
                        left_out.lost_frees += 1;
                        recorder.free(time_ns, address)?;
                        recorder.malloc(time_ns, address, block)?;
                    }
                }
            }
        }
    }
    Ok(Run { stream: recorder.finish(), device, left_out })
}

/// What was allocated before the trace: each block that is freed without having been allocated, and, where the trace tells what was allocated in all,
/// the rest as one block.
fn hold_rest(recorder: &mut Recorder, steps: &[(u64, Step)]) -> Result<(), crate::ops::Invalid> {
    let mut seen = HashSet::new();
    let mut held: u64 = 0;
    let mut before = None;
    for (_, step) in steps {
        let &Step::Memory { address, bytes, total_bytes } = step else { continue };
        let first = seen.insert(address);
        if before.is_none() {
            before = total_bytes.map(|total| total.saturating_add_signed(bytes.saturating_neg()));
        }
        if bytes < 0 && first {
            let block = Block { bytes: bytes.unsigned_abs(), address: Some(address) };
            held = held.saturating_add(block.bytes);
            recorder.held_before(address, block)?;
        }
    }
    match before.unwrap_or(0).saturating_sub(held) {
        0 => Ok(()),
        bytes => recorder.held_before(REST_KEY, Block { bytes, address: None }).map(drop),
    }
}

/// When each call to the runtime returned, by its correlation id.
fn returns(events: &[Event]) -> HashMap<u64, u64> {
    let calls = events.iter().filter_map(|event| match event.kind {
        Kind::Call { correlation } => Some((correlation, event.time_ns.saturating_add(event.duration_ns))),
        Kind::Memory { .. } | Kind::Work { .. } => None,
    });
    calls.collect()
}
