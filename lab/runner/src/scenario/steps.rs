//! Kinds of steps. Each module has the parser, the execution and the random generator of its kinds.
//!
//! A new kind is a new file and a line in [`KINDS`].
//!
//! * [`access`]: reads, writes and atomics by a CPU or a GPU; [`verify`]: check of an allocation
//! * [`repeat`], [`parallel`], [`sleep`], [`end`]: control flow and time
//! * [`prefetch`], [`advise`]: calls of the driver by the application
//! * [`device`]: unmanaged memory of a GPU
//! * [`plan`]: constraints of random steps

pub(crate) mod access;
mod advise;
mod device;
mod end;
mod parallel;
mod plan;
mod prefetch;
mod repeat;
mod sleep;
mod verify;

use std::{
    fmt,
    time::{Duration, Instant},
};

pub(crate) use plan::Plan;

use crate::{
    dice::Dice,
    scenario::{
        Call, Part, Scope,
        table::{Fault, Table},
    },
};

/// A step of a process.
pub(crate) trait Step: fmt::Debug + Send + Sync {
    /// Execute the step.
    fn run(&self, on: &dyn Execution) -> anyhow::Result<Flow>;

    /// Memory that the step accesses, by which conflicts between threads are found.
    fn uses(&self) -> Vec<Use> {
        Vec::new()
    }

    /// Feature of the step that the simulator does not model, if any.
    fn not_simulated(&self) -> Option<&'static str> {
        None
    }

    /// Whether the step ends the process, so that no step may follow.
    fn ends_process(&self) -> bool {
        false
    }
}

/// Operations of a running process that steps call. The language depends on no other part of its
/// executor.
pub(crate) trait Execution {
    /// Execute one pass over a part of an allocation.
    fn access(&self, access: &access::Access) -> anyhow::Result<Flow>;
    /// Compare every byte of an allocation on the CPU, and return the number of bytes.
    fn verify(&self, allocation: usize) -> anyhow::Result<u64>;
    /// Make a call of the driver.
    fn call(&self, part: Part, call: Call) -> anyhow::Result<()>;
    /// Allocate unmanaged memory of a GPU.
    fn device_alloc(&self, name: &str, gpu: u32, bytes: u64) -> anyhow::Result<()>;
    /// Free the unmanaged memory of this name.
    fn device_free(&self, name: &str) -> anyhow::Result<()>;
    /// Pause for this duration, or until the process is stopped.
    fn sleep(&self, duration: Duration);
    /// Current time of the clock that limits steps.
    fn now(&self) -> Instant;
    /// Whether the process was stopped, so that no further step begins.
    fn is_stopped(&self) -> bool;
    /// Execute each list in a separate thread, and return when all threads have ended.
    fn in_threads(&self, lists: &[Vec<Box<dyn Step>>]) -> anyhow::Result<Vec<Flow>>;
    /// End the process as kill -9 does.
    fn kill(&self) -> anyhow::Result<()>;
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Completed.
    Done,
    /// The process exits with this code.
    Exit { code: u8 },
    /// Interrupted from outside.
    Stopped,
}

/// Use of memory by a step: exclusive, or shared with uses of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) part: Part,
    pub(crate) kind: access::Kind,
}

/// A kind of step.
struct Kind {
    /// Key that selects the kind.
    key: &'static str,
    parse: Parse,
    /// Relative frequency in random scenarios.
    weight: u64,
    generate: Generate,
}

type Parse = fn(&mut Table<'_>, &Scope<'_>) -> Result<Box<dyn Step>, Fault>;
/// Generator of a random step, in TOML; `None` where the plan permits none.
type Generate = fn(&mut Dice, &Plan<'_>) -> Option<String>;

const KINDS: [Kind; 17] = [
    access::CPU_READ,
    access::CPU_WRITE,
    access::CPU_ATOMIC,
    access::GPU_READ,
    access::GPU_WRITE,
    access::GPU_ATOMIC,
    verify::VERIFY,
    prefetch::PREFETCH,
    advise::ADVISE,
    device::DEVICE_ALLOC,
    device::DEVICE_FREE,
    repeat::REPEAT,
    repeat::REPEAT_FOR,
    parallel::PARALLEL,
    sleep::SLEEP,
    end::EXIT,
    end::KILL,
];

/// Maximum nesting depth.
const MAX_DEPTH: usize = 16;

/// Parse a list of steps.
pub(crate) fn parse_list(tables: Vec<Table<'_>>, scope: &Scope<'_>) -> Result<Vec<Box<dyn Step>>, Fault> {
    let mut steps: Vec<Box<dyn Step>> = Vec::new();
    for (at, table) in tables.into_iter().enumerate() {
        let span = table.span();
        let number = format!("{}{}", scope.prefix, at + 1);
        let subject = || format!("process {:?}, step {number}: ", scope.process);
        let step = if steps.last().is_some_and(|last| last.ends_process()) {
            Err("is never reached: the step before it ends the process".into())
        } else if scope.depth == MAX_DEPTH {
            Err(format!("is nested more than {MAX_DEPTH} deep").into())
        } else {
            parse(table, &scope.nested(&number))
        };
        steps.push(step.map_err(|fault| fault.within(&span, subject))?);
    }
    Ok(steps)
}

/// Parse a step: one key that selects the kind, and the options of the kind.
fn parse(mut table: Table<'_>, nested: &Scope<'_>) -> Result<Box<dyn Step>, Fault> {
    let named: Vec<&Kind> = KINDS.iter().filter(|kind| table.has(kind.key)).collect();
    match named.as_slice() {
        [kind] => {
            let step = (kind.parse)(&mut table, nested)?;
            table.finish(kind.key)?;
            Ok(step)
        }
        [] => Err(format!("names no step: one of {} is needed", KINDS.map(|kind| kind.key).join(", ")).into()),
        several => {
            let keys: Vec<&str> = several.iter().map(|kind| kind.key).collect();
            Err(format!("names more than one step: {}", keys.join(" and ")).into())
        }
    }
}

/// Keys of all kinds.
#[cfg(test)]
pub(crate) fn keys() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.key)
}

/// Generate up to `count` random steps, in TOML; fewer where the plan permits none.
pub(crate) fn generate_list(dice: &mut Dice, plan: &Plan<'_>, count: u64) -> Vec<String> {
    let mut steps = Vec::new();
    for _ in 0..count {
        let mut at = dice.between(1, KINDS.iter().map(|kind| kind.weight).sum());
        let chosen = KINDS.iter().find(|kind| {
            at = at.saturating_sub(kind.weight);
            at == 0
        });
        steps.extend(chosen.and_then(|kind| (kind.generate)(dice, plan)));
    }
    steps
}

/// Execute a list of steps until one ends or interrupts the process, or the process is stopped.
pub(crate) fn run_list(steps: &[Box<dyn Step>], on: &dyn Execution) -> anyhow::Result<Flow> {
    for step in steps {
        let flow = step.run(on)?;
        if flow != Flow::Done {
            return Ok(flow);
        }
        if on.is_stopped() {
            return Ok(Flow::Stopped);
        }
    }
    Ok(Flow::Done)
}

fn uses_of(steps: &[Box<dyn Step>]) -> Vec<Use> {
    steps.iter().flat_map(|step| step.uses()).collect()
}
