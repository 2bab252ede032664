//! The kinds of step: one file each says how it is written, what it does, and what random scenarios do with it.
//!
//! A new kind is a new file and a line in [`KINDS`].
//!
//! * [`access`]: reads, writes and atomics by a CPU or a GPU; [`verify`]
//! * [`repeat`], [`parallel`], [`sleep`], [`end`]: order and time
//! * [`prefetch`], [`advise`]: the application's own calls of the driver
//! * [`device`]: memory of a GPU that is not managed
//! * [`plan`]: what random ones are made of

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

/// One thing that a process does.
pub(crate) trait Step: fmt::Debug + Send + Sync {
    /// Do it.
    fn run(&self, on: &dyn Execution) -> anyhow::Result<Flow>;

    /// The memory it reads and writes, so that threads can be kept apart.
    fn uses(&self) -> Vec<Use> {
        Vec::new()
    }

    /// What it needs that the simulator does not have.
    fn not_simulated(&self) -> Option<&'static str> {
        None
    }

    /// Whether the process ends with it, so that nothing may follow.
    fn ends_process(&self) -> bool {
        false
    }
}

/// A process at work: everything that steps can do. The language knows no more of what executes it.
pub(crate) trait Execution {
    /// One pass over part of an allocation.
    fn access(&self, access: &access::Access) -> anyhow::Result<Flow>;
    /// Compare every byte of an allocation, by the CPU; says how many those are.
    fn verify(&self, allocation: usize) -> anyhow::Result<u64>;
    /// One of the application's own calls of the driver.
    fn call(&self, part: Part, call: Call) -> anyhow::Result<()>;
    /// Take memory of a GPU that is not managed.
    fn device_alloc(&self, name: &str, gpu: u32, bytes: u64) -> anyhow::Result<()>;
    /// Give it back.
    fn device_free(&self, name: &str) -> anyhow::Result<()>;
    /// Nothing for so long, or until it is stopped.
    fn sleep(&self, duration: Duration);
    /// The time by which steps last.
    fn now(&self) -> Instant;
    /// Whether no further step is to begin.
    fn is_stopped(&self) -> bool;
    /// Each list in a thread of its own; returns when all have ended.
    fn in_threads(&self, lists: &[Vec<Box<dyn Step>>]) -> anyhow::Result<Vec<Flow>>;
    /// End the process as kill -9 does.
    fn kill(&self) -> anyhow::Result<()>;
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It is done.
    Done,
    /// It ends the process.
    Exit { code: u8 },
    /// Cut short from outside.
    Stopped,
}

/// Memory that a step needs for itself, or can share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) part: Part,
    pub(crate) kind: access::Kind,
}

/// One kind of step.
struct Kind {
    /// The key that names it.
    key: &'static str,
    parse: Parse,
    /// How often random scenarios have it, beside the others.
    weight: u64,
    generate: Generate,
}

type Parse = fn(&mut Table<'_>, &Scope<'_>) -> Result<Box<dyn Step>, Fault>;
/// A random step of the kind, as it is written; none where there can be none.
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

/// Deeper nesting is a mistake.
const MAX_DEPTH: usize = 16;

/// A list of steps.
pub(crate) fn parse_list(tables: Vec<Table<'_>>, scope: &Scope<'_>) -> Result<Vec<Box<dyn Step>>, Fault> {
    let mut steps: Vec<Box<dyn Step>> = Vec::new();
    for (at, table) in tables.into_iter().enumerate() {
        let span = table.span();
        let number = format!("{}{}", scope.prefix, at + 1);
        let about = || format!("process {:?}, step {number}: ", scope.process);
        let step = if steps.last().is_some_and(|last| last.ends_process()) {
            Err("is never reached: the step before it ends the process".into())
        } else if scope.depth == MAX_DEPTH {
            Err(format!("is nested more than {MAX_DEPTH} deep").into())
        } else {
            parse(table, &scope.inside(&number))
        };
        steps.push(step.map_err(|fault| fault.within(&span, about))?);
    }
    Ok(steps)
}

/// One step: one key that names its kind, and the options that the kind takes.
fn parse(mut table: Table<'_>, inside: &Scope<'_>) -> Result<Box<dyn Step>, Fault> {
    let named: Vec<&Kind> = KINDS.iter().filter(|kind| table.has(kind.key)).collect();
    match named.as_slice() {
        [kind] => {
            let step = (kind.parse)(&mut table, inside)?;
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

/// The keys of all kinds.
#[cfg(test)]
pub(crate) fn keys() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.key)
}

/// So many random steps, as they are written.
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

/// Do a list of steps, up to one that does not let the next begin.
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
