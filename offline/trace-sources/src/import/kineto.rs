//! Traces of PyTorch's profiler (Kineto), JSON. The importer reads:
//!
//! * `[memory]` events of a GPU: allocations of PyTorch's own allocator
//! * kernels, copies and fills of that GPU, joined with the runtime calls that launched them. The
//!   time of a launch is the return of its call.
//!
//! These traces do not record the blocks that a launch uses, so launches have no arguments. Times
//! are in microseconds, large ones as floating point, to a quarter of a microsecond. Unusable
//! events are counted in [`Omitted`].

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
use trace::ops::{Block, Launch, OpStream, Recorder, Signature};

/// Key of memory from before the trace, which has no address. No allocator returns it.
const PREALLOCATED_KEY: u64 = u64::MAX;

/// Profiled run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Launches and allocations of one GPU.
    pub stream: OpStream,
    /// Index of the GPU.
    pub device: u32,
    /// Numbers of unusable events.
    pub omitted: Omitted,
}

/// Numbers of unusable events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Omitted {
    /// Memory events and work of other GPUs.
    pub other_devices: u64,
    /// Memory events of the CPU.
    pub cpu_memory: u64,
    /// Kernels, copies and fills whose launch is not in the trace.
    pub not_launched: u64,
    /// Allocations at an address that is already allocated. The lost free is recorded at the same
    /// time.
    pub lost_frees: u64,
    /// Frees of an address that is not allocated, as its allocation was lost.
    pub lost_mallocs: u64,
}

/// Reads a trace of the given GPU, or else of the GPU with the most events.
///
/// # Errors
/// If the file cannot be read or is invalid: with the line; or if `device` is `None` and no GPU has
/// events.
pub fn load(path: &Path, device: Option<u32>) -> Result<Run, ImportError> {
    parse(path, text::open(path)?, device)
}

/// Reads a trace from text; `path` is for messages.
///
/// # Errors
/// If the text is invalid: with the line; or if `device` is `None` and no GPU has events.
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
    // Of equals, the first.
    events_of.into_iter().rev().max_by_key(|&(_, events)| events).map(|(device, _)| device)
}

/// Operation of the stream, before sorting by time.
enum Step {
    Memory { address: u64, bytes: i64, total_bytes: Option<u64> },
    Launch(Launch),
}

fn record(events: Vec<Event>, device: u32) -> Result<Run, trace::ops::Invalid> {
    let mut omitted = Omitted::default();
    let return_times = return_times(&events);
    let mut recorder = Recorder::default();
    let mut steps = Vec::new();
    for Event { time_ns, duration_ns, kind } in events {
        match kind {
            Kind::Memory { device: None, .. } => omitted.cpu_memory += 1,
            Kind::Memory { device: Some(other), .. } | Kind::Work { device: other, .. } if other != device => {
                omitted.other_devices += 1;
            }
            Kind::Memory { address, bytes, total_bytes, .. } => {
                steps.push((time_ns, Step::Memory { address, bytes, total_bytes }));
            }
            Kind::Work { correlation, stream, name, grid, block, .. } => {
                let Some(&return_ns) = correlation.and_then(|correlation| return_times.get(&correlation)) else {
                    omitted.not_launched += 1;
                    continue;
                };
                let signature = recorder.signature(Signature { name, grid, block });
                let (start_ns, duration_ns) = (Some(time_ns), Some(duration_ns));
                let launch = Launch { signature, stream, start_ns, duration_ns, arguments: Vec::new() };
                steps.push((return_ns, Step::Launch(launch)));
            }
            Kind::Call { .. } => {}
        }
    }
    // A stable sort, so that events of one microsecond stay in the order of the profiler.
    steps.sort_by_key(|&(time_ns, _)| time_ns);
    record_preallocated(&mut recorder, &steps)?;
    for (time_ns, step) in steps {
        match step {
            Step::Launch(launch) => recorder.launch(time_ns, launch).map(drop)?,
            Step::Memory { address, bytes, .. } => {
                let block = Block { bytes: bytes.unsigned_abs(), address: Some(address) };
                match (bytes < 0, recorder.block(address).is_ok()) {
                    (true, true) => recorder.free(time_ns, address).map(drop)?,
                    (true, false) => omitted.lost_mallocs += 1,
                    (false, false) => recorder.malloc(time_ns, address, block).map(drop)?,
                    (false, true) => {
                        omitted.lost_frees += 1;
                        recorder.free(time_ns, address)?;
                        recorder.malloc(time_ns, address, block)?;
                    }
                }
            }
        }
    }
    Ok(Run { stream: recorder.finish(), device, omitted })
}

/// Records memory from before the trace: each block that is freed but not allocated, and, if the
/// trace records the total of allocated bytes, the rest as one block.
fn record_preallocated(recorder: &mut Recorder, steps: &[(u64, Step)]) -> Result<(), trace::ops::Invalid> {
    let mut seen = HashSet::new();
    let mut recorded_bytes: u64 = 0;
    let mut initial_bytes = None;
    for (_, step) in steps {
        let &Step::Memory { address, bytes, total_bytes } = step else { continue };
        let first = seen.insert(address);
        if initial_bytes.is_none() {
            initial_bytes = total_bytes.map(|total| total.saturating_add_signed(bytes.saturating_neg()));
        }
        if bytes < 0 && first {
            let block = Block { bytes: bytes.unsigned_abs(), address: Some(address) };
            recorded_bytes = recorded_bytes.saturating_add(block.bytes);
            recorder.preallocated(address, block)?;
        }
    }
    match initial_bytes.unwrap_or(0).saturating_sub(recorded_bytes) {
        0 => Ok(()),
        bytes => recorder.preallocated(PREALLOCATED_KEY, Block { bytes, address: None }).map(drop),
    }
}

/// Return time of each call to the runtime, by correlation id.
fn return_times(events: &[Event]) -> HashMap<u64, u64> {
    let calls = events.iter().filter_map(|event| match event.kind {
        Kind::Call { correlation } => Some((correlation, event.time_ns.saturating_add(event.duration_ns))),
        Kind::Memory { .. } | Kind::Work { .. } => None,
    });
    calls.collect()
}
