//! An iteration on a machine: kernels one after the other, each touching its tensors, and what that costs.

mod actions;

use planner::{Act, Action, Schedule};
use thiserror::Error;
use trace::{Access, Iteration, KernelId, Table, TensorId};

use crate::{
    address::Addresses,
    engine::{Engine, Move, NoVictim, Traffic},
    event::{Event, Observer},
    outcome::Outcome,
    setup::{Freed, LEAST_GPU_BYTES, Setup},
    units::{BLOCK_BYTES, GRANULE_BYTES, Granules},
    walk::{Operand, Stuck, Walk},
};

/// Why an iteration does not run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum RunError {
    #[error("{gpu_bytes} bytes of GPU memory are too few: it takes {LEAST_GPU_BYTES} at least")]
    TooLittleMemory { gpu_bytes: u64 },
    #[error("an iteration has to run once at least")]
    NoIterations,
    #[error("kernel {kernel} reads tensor {tensor}, whose contents were dropped")]
    ContentsDropped { kernel: KernelId, tensor: TensorId },
    #[error("kernel {kernel} reads tensor {tensor}, part of which is nowhere")]
    ContentsLost { kernel: KernelId, tensor: TensorId },
    #[error(
        "before kernel {kernel} the memory of tensor {dead} is not to be handed on to tensor {born}: it has not just died, or is smaller, or that one is there"
    )]
    HandedOn { kernel: KernelId, dead: TensorId, born: TensorId },
}

/// The iteration with memory without end: what nothing can beat.
#[must_use]
pub fn ideal(iteration: &Iteration) -> Outcome {
    let ideal_s = seconds(iteration.duration_ns());
    let peak_bytes = iteration.peak().bytes.next_multiple_of(BLOCK_BYTES);
    Outcome { time_s: ideal_s, ideal_s, share_of_ideal: 1.0, peak_bytes, ..Outcome::default() }
}

/// The iteration on managed memory that nobody manages but the driver.
///
/// # Errors
/// If the set-up cannot run it.
pub fn driver(iteration: &Iteration, setup: &Setup<'_>) -> Result<Outcome, RunError> {
    planned(iteration, setup, &Schedule::default())
}

/// The iteration on managed memory with a schedule. What that has not brought in time comes by faults.
///
/// # Errors
/// If the set-up cannot run it, or the schedule drops what is still read.
pub fn planned(iteration: &Iteration, setup: &Setup<'_>, schedule: &Schedule) -> Result<Outcome, RunError> {
    observed(iteration, setup, schedule, &mut |_| {})
}

/// The same, watched.
///
/// # Errors
/// The same.
pub fn observed<'a>(
    iteration: &'a Iteration,
    setup: &'a Setup<'a>,
    schedule: &'a Schedule,
    observer: &'a mut Observer<'a>,
) -> Result<Outcome, RunError> {
    Run::new(iteration, setup, schedule, observer)?.all()
}

struct Run<'a> {
    iteration: &'a Iteration,
    setup: &'a Setup<'a>,
    schedule: &'a Schedule,
    engine: Engine<'a>,
    addresses: Addresses,
    tensors: Table<TensorId, State>,
    now_ns: u64,
}

/// A tensor in a run.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Its addresses, if it has any now.
    memory: Option<Granules>,
    /// It was written, and not dropped since.
    has_contents: bool,
}

impl<'a> Run<'a> {
    fn new(
        iteration: &'a Iteration,
        setup: &'a Setup<'a>,
        schedule: &'a Schedule,
        observer: &'a mut Observer<'a>,
    ) -> Result<Self, RunError> {
        if setup.gpu_bytes < LEAST_GPU_BYTES {
            return Err(RunError::TooLittleMemory { gpu_bytes: setup.gpu_bytes });
        }
        let frames = setup.gpu_bytes / BLOCK_BYTES;
        let tensors = Table::of(State::default(), iteration.tensors().len());
        let engine = Engine::new(setup.machine, frames, setup.host_bytes, observer);
        Ok(Self { iteration, setup, schedule, engine, addresses: Addresses::new(), tensors, now_ns: 0 })
    }

    fn all(mut self) -> Result<Outcome, RunError> {
        for (id, _) in self.iteration.tensors().iter().filter(|(_, tensor)| tensor.persistent) {
            self.place(id);
            self.write_by_cpu(id, None);
        }
        let mut outcome = Err(RunError::NoIterations);
        for _ in 0..self.setup.iterations {
            outcome = Ok(self.once()?);
        }
        outcome
    }

    fn once(&mut self) -> Result<Outcome, RunError> {
        let (began_ns, before) = (self.now_ns, self.engine.traffic);
        self.engine.tell(Event::Began { at_ns: began_ns });
        self.engine.peak_blocks = self.engine.memory.resident_blocks();
        let mut before_this = None;
        for kernel in self.iteration.kernels().ids() {
            self.boundary(before_this, kernel)?;
            self.kernel(kernel)?;
            before_this = Some(kernel);
        }
        self.boundary(before_this, self.iteration.end())?;
        Ok(self.outcome(self.now_ns - began_ns, before))
    }

    fn outcome(&self, time_ns: u64, before: Traffic) -> Outcome {
        let (ideal_ns, after) = (self.iteration.duration_ns(), self.engine.traffic);
        Outcome {
            time_s: seconds(time_ns),
            ideal_s: seconds(ideal_ns),
            share_of_ideal: if time_ns == 0 { 1.0 } else { ideal_ns as f64 / time_ns as f64 },
            stall_s: seconds(time_ns - ideal_ns),
            bytes_htod: after.bytes_htod - before.bytes_htod,
            bytes_dtoh: after.bytes_dtoh - before.bytes_dtoh,
            bytes_ssd_read: after.bytes_ssd_read - before.bytes_ssd_read,
            bytes_ssd_written: after.bytes_ssd_written - before.bytes_ssd_written,
            faults: after.faults - before.faults,
            fault_batches: after.fault_batches - before.fault_batches,
            peak_bytes: self.engine.peak_blocks * BLOCK_BYTES,
        }
    }

    /// Between a kernel and the next.
    fn boundary(&mut self, last: Option<KernelId>, next: KernelId) -> Result<(), RunError> {
        let actions = self.schedule.at(next);
        // First, while what is dropped or handed on with its last use still has its addresses.
        for &Action { tensor, act, part, .. } in actions {
            match act {
                Act::Drop => self.drop_contents(tensor, part),
                Act::HandOn(born) => self.hand_on(next, tensor, born)?,
                Act::Move(_) | Act::Allocate => {}
            }
        }
        if let Some(last) = last {
            self.deaths(last);
        }
        if next < self.iteration.end() {
            self.births(next);
        }
        for action in actions {
            self.begin(*action);
        }
        self.keep(next);
        self.engine.run_until(self.now_ns).map_err(|none| self.too_little(none))?;
        if next < self.iteration.end() { self.wait(next) } else { Ok(()) }
    }

    /// A kernel waits for the moves of its tensors, and for those that are to be done before it. What of its tensors has not begun to leave stays.
    fn wait(&mut self, kernel: KernelId) -> Result<(), RunError> {
        let operands = self.iteration.operands(kernel);
        let uses = |of: &Move| operands.iter().any(|operand| operand.tensor == of.tensor);
        self.engine.cancel(|of| of.leaves() && uses(of));
        let unfinished = |engine: &Engine<'_>| engine.pending(|of| uses(of) || of.done_before == Some(kernel));
        self.engine.run_while(unfinished).map_err(|none| self.too_little(none))?;
        self.now_ns = self.now_ns.max(self.engine.clock_ns());
        Ok(())
    }

    fn too_little(&self, NoVictim: NoVictim) -> RunError {
        RunError::TooLittleMemory { gpu_bytes: self.setup.gpu_bytes }
    }

    fn births(&mut self, kernel: KernelId) {
        for tensor in self.iteration.births(kernel) {
            self.place(tensor);
            // Nobody but the CPU can have made what a kernel reads first.
            if self.iteration.uses(tensor).first().is_some_and(|first| first.access.reads()) {
                self.write_by_cpu(tensor, Some(self.now_ns));
            }
        }
    }

    fn deaths(&mut self, kernel: KernelId) {
        for tensor in self.iteration.deaths(kernel) {
            let Some(memory) = self.tensors[tensor].memory.take() else { continue };
            self.tensors[tensor].has_contents = false;
            self.engine.cancel(|of| of.tensor == tensor);
            if self.setup.freed == Freed::Released {
                self.engine.discard(tensor, memory);
            }
            self.addresses.give_back(memory);
        }
    }

    fn place(&mut self, tensor: TensorId) {
        if self.tensors[tensor].memory.is_none() {
            self.tensors[tensor].memory = Some(self.addresses.take(self.iteration.tensors()[tensor].bytes));
            let range = self.contents(tensor);
            self.engine.tell(Event::Placed { tensor, range });
        }
    }

    /// Contents that come from outside.
    fn write_by_cpu(&mut self, tensor: TensorId, from_ns: Option<u64>) {
        self.engine.write_by_cpu(self.contents(tensor), from_ns);
        self.tensors[tensor].has_contents = true;
    }

    /// The granules that a tensor's bytes are in.
    fn contents(&self, tensor: TensorId) -> Granules {
        let first = self.tensors[tensor].memory.map_or(0, |memory| memory.first);
        Granules { first, end: first + self.iteration.tensors()[tensor].bytes.div_ceil(GRANULE_BYTES) }
    }

    fn kernel(&mut self, kernel: KernelId) -> Result<(), RunError> {
        let operands = self.operands(kernel)?;
        let start_ns = self.now_ns;
        let setup = self.setup;
        let window_bytes = setup.machine.resident_threads.value.saturating_mul(setup.bytes_per_thread);
        let duration_ns = self.iteration.kernels()[kernel].duration_ns;
        let walk = Walk::new(&operands, duration_ns, window_bytes, setup.machine.faults.batch_entries.value);
        self.now_ns = walk.run(&mut self.engine, start_ns).map_err(|stuck| match stuck {
            Stuck::Lost(tensor) => RunError::ContentsLost { kernel, tensor },
            Stuck::NoVictim(none) => self.too_little(none),
        })?;
        for operand in self.iteration.operands(kernel) {
            self.tensors[operand.tensor].has_contents |= operand.access.writes();
        }
        self.engine.tell(Event::Ran { kernel, start_ns, end_ns: self.now_ns });
        Ok(())
    }

    fn operands(&self, kernel: KernelId) -> Result<Vec<Operand>, RunError> {
        let operands = self.iteration.operands(kernel).iter().map(|&trace::Operand { tensor, access }| {
            if access != Access::Write && !self.tensors[tensor].has_contents {
                return Err(RunError::ContentsDropped { kernel, tensor });
            }
            Ok(Operand { tensor, range: self.contents(tensor), reads: access.reads() })
        });
        operands.collect()
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
