//! Iterations on a machine: kernels one after the other, their accesses to tensors, and the cost.

mod actions;

use planner::{Act, Action, Schedule};
use thiserror::Error;
use trace::{Access, Iteration, KernelId, Table, TensorId};

use crate::{
    address::{Addresses, Recorded},
    engine::{Engine, Move, NoVictim, Traffic},
    event::{Event, Observer},
    outcome::Outcome,
    setup::{Freed, MIN_GPU_BYTES, Setup},
    units::{BLOCK_BYTES, GRANULE_BYTES, Granules},
    walk::{Operand, Stuck, Walk},
};

/// Frames of the driver's page tables, which the model counts beside recorded tensors.
const TABLE_FRAMES: u64 = 1;

/// Error in running an iteration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages document the variants")]
pub enum RunError {
    #[error("{gpu_bytes} bytes of GPU memory are too few; the minimum is {MIN_GPU_BYTES}")]
    TooLittleMemory { gpu_bytes: u64 },
    #[error("an iteration has to run at least once")]
    NoIterations,
    #[error("kernel {kernel} reads tensor {tensor}, whose contents were dropped")]
    ContentsDropped { kernel: KernelId, tensor: TensorId },
    #[error("kernel {kernel} reads tensor {tensor}, part of which is in no memory")]
    ContentsLost { kernel: KernelId, tensor: TensorId },
    #[error(
        "before kernel {kernel}, the memory of tensor {dead} cannot be handed on to tensor {born}: {dead} has not just died or is smaller, or {born} has memory already"
    )]
    HandedOn { kernel: KernelId, dead: TensorId, born: TensorId },
}

/// Runs the iteration with unlimited memory: a lower bound.
#[must_use]
pub fn ideal(iteration: &Iteration) -> Outcome {
    let ideal_s = seconds(iteration.duration_ns());
    let peak_bytes = iteration.peak().bytes.next_multiple_of(BLOCK_BYTES);
    Outcome { time_s: ideal_s, ideal_s, share_of_ideal: 1.0, peak_bytes, ..Outcome::default() }
}

/// Runs the iteration on managed memory with the driver alone.
///
/// # Errors
/// If the set-up cannot run it.
pub fn driver(iteration: &Iteration, setup: &Setup<'_>) -> Result<Outcome, RunError> {
    planned(iteration, setup, &Schedule::default())
}

/// Runs the iteration on managed memory with a schedule. Memory that the schedule did not migrate
/// in time is migrated by faults.
///
/// # Errors
/// If the set-up cannot run it, or the schedule drops data that is read later.
pub fn planned(iteration: &Iteration, setup: &Setup<'_>, schedule: &Schedule) -> Result<Outcome, RunError> {
    observed(iteration, setup, schedule, &mut |_| {})
}

/// As [`planned`], with an observer of events.
///
/// # Errors
/// As [`planned`].
pub fn observed<'a>(
    iteration: &'a Iteration,
    setup: &'a Setup<'a>,
    schedule: &'a Schedule,
    observer: &'a mut Observer<'a>,
) -> Result<Outcome, RunError> {
    Run::new(iteration, setup, schedule, observer)?.run_all()
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

/// State of a tensor in a run.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Allocated addresses, if any.
    memory: Option<Granules>,
    /// Whether it was written, and not dropped since.
    has_contents: bool,
}

impl<'a> Run<'a> {
    fn new(
        iteration: &'a Iteration,
        setup: &'a Setup<'a>,
        schedule: &'a Schedule,
        observer: &'a mut Observer<'a>,
    ) -> Result<Self, RunError> {
        if setup.gpu_bytes < MIN_GPU_BYTES {
            return Err(RunError::TooLittleMemory { gpu_bytes: setup.gpu_bytes });
        }
        let addresses = Addresses::of(iteration, setup.before);
        let tables = if addresses.recorded().is_some() { TABLE_FRAMES } else { 0 };
        let frames = setup.gpu_bytes / BLOCK_BYTES - tables;
        let tensors = Table::of(State::default(), iteration.tensors().len());
        let mut engine = Engine::new(setup.machine, frames, setup.host_bytes, observer);
        if let Some(recorded) = addresses.recorded() {
            engine.partial.extend(recorded.partial());
            recorded.parts().for_each(|(block, parts)| engine.memory.share_frames(block, parts));
        }
        Ok(Self { iteration, setup, schedule, engine, addresses, tensors, now_ns: 0 })
    }

    fn run_all(mut self) -> Result<Outcome, RunError> {
        self.run_before()?;
        for (id, _) in self.iteration.tensors().iter().filter(|(_, tensor)| tensor.persistent) {
            self.place(id);
            // What the program has not used before is on the host.
            for range in self.engine.memory.unpopulated(self.contents(id)) {
                self.engine.write_by_cpu(range, None);
            }
            self.tensors[id].has_contents = true;
        }
        let outcomes = (0..self.setup.iterations).map(|_| self.run_iteration()).collect::<Result<Vec<_>, _>>()?;
        let measured = outcomes.len().saturating_sub((self.setup.measured as usize).max(1));
        Outcome::mean(outcomes.get(measured..).unwrap_or_default()).ok_or(RunError::NoIterations)
    }

    /// Runs what a recorded program does before the iteration, with the driver alone. What it reads
    /// before it writes it is new memory. Observers see the memory that this leaves on the GPU.
    fn run_before(&mut self) -> Result<(), RunError> {
        if self.addresses.recorded().is_none() {
            return Ok(());
        }
        self.engine.is_muted = true;
        for iteration in self.setup.before {
            let Some(recorded) = Recorded::of(iteration, &[]) else { continue };
            for (kernel, of) in iteration.kernels().iter() {
                let operands = iteration.operands(kernel).iter().map(|&trace::Operand { tensor, .. }| Operand {
                    tensor,
                    range: recorded.range(tensor),
                    reads: false,
                });
                let operands: Vec<_> = operands.collect();
                self.walk(&operands, of.duration_ns).map_err(|_| self.out_of_memory(NoVictim))?;
            }
        }
        self.engine.is_muted = false;
        for (block, mask) in self.engine.memory.on_gpu().collect::<Vec<_>>() {
            self.engine.emit(Event::Arrived { block, mask, with_contents: false, at_ns: self.now_ns });
        }
        Ok(())
    }

    fn run_iteration(&mut self) -> Result<Outcome, RunError> {
        let (start_ns, before) = (self.now_ns, self.engine.traffic);
        self.engine.emit(Event::Began { at_ns: start_ns });
        self.engine.peak_blocks = self.engine.memory.resident_blocks();
        let mut last = None;
        for kernel in self.iteration.kernels().ids() {
            self.boundary(last, kernel)?;
            self.kernel(kernel)?;
            last = Some(kernel);
        }
        self.boundary(last, self.iteration.end())?;
        Ok(self.outcome(self.now_ns - start_ns, before))
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

    /// Runs the actions between two kernels.
    fn boundary(&mut self, last: Option<KernelId>, next: KernelId) -> Result<(), RunError> {
        let actions = self.schedule.at(next);
        // Drops and hand-overs go first, while dead tensors still have their addresses.
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
            self.issue(*action);
        }
        self.protect_operands(next);
        self.engine.run_until(self.now_ns).map_err(|none| self.out_of_memory(none))?;
        if next < self.iteration.end() { self.wait(next) } else { Ok(()) }
    }

    /// Waits for moves of the kernel's tensors, and for moves that are due before it. Parts of its
    /// tensors that have not begun to leave stay.
    fn wait(&mut self, kernel: KernelId) -> Result<(), RunError> {
        let operands = self.iteration.operands(kernel);
        let uses = |request: &Move| operands.iter().any(|operand| operand.tensor == request.tensor);
        self.engine.cancel(|request| request.is_outbound() && uses(request));
        let unfinished =
            |engine: &Engine<'_>| engine.pending(|request| uses(request) || request.done_before == Some(kernel));
        self.engine.run_while(unfinished).map_err(|none| self.out_of_memory(none))?;
        self.now_ns = self.now_ns.max(self.engine.clock_ns());
        Ok(())
    }

    fn out_of_memory(&self, NoVictim: NoVictim) -> RunError {
        RunError::TooLittleMemory { gpu_bytes: self.setup.gpu_bytes }
    }

    fn births(&mut self, kernel: KernelId) {
        for tensor in self.iteration.births(kernel) {
            self.place(tensor);
            // A tensor that a kernel reads first was written by the CPU.
            if self.iteration.uses(tensor).first().is_some_and(|first| first.access.reads()) {
                self.write_by_cpu(tensor, Some(self.now_ns));
            }
        }
    }

    fn deaths(&mut self, kernel: KernelId) {
        for tensor in self.iteration.deaths(kernel) {
            let Some(memory) = self.tensors[tensor].memory.take() else { continue };
            self.tensors[tensor].has_contents = false;
            self.engine.cancel(|request| request.tensor == tensor);
            // What a recorded program frees is not in a cache.
            if let Some(recorded) = self.addresses.recorded() {
                self.engine.discard(tensor, recorded.own(tensor));
            } else if self.setup.freed == Freed::Released {
                self.engine.discard(tensor, memory);
            }
            self.addresses.free(memory);
        }
    }

    fn place(&mut self, tensor: TensorId) {
        if self.tensors[tensor].memory.is_none() {
            self.tensors[tensor].memory = Some(self.addresses.allocate(tensor, self.iteration.tensors()[tensor].bytes));
            let range = self.contents(tensor);
            self.engine.emit(Event::Placed { tensor, range });
        }
    }

    /// Writes contents from outside the GPU.
    fn write_by_cpu(&mut self, tensor: TensorId, from_ns: Option<u64>) {
        self.engine.write_by_cpu(self.contents(tensor), from_ns);
        self.tensors[tensor].has_contents = true;
    }

    /// Granules of a tensor's bytes.
    fn contents(&self, tensor: TensorId) -> Granules {
        if let Some(recorded) = self.addresses.recorded() {
            return recorded.range(tensor);
        }
        let first = self.tensors[tensor].memory.map_or(0, |memory| memory.first);
        Granules { first, end: first + self.iteration.tensors()[tensor].bytes.div_ceil(GRANULE_BYTES) }
    }

    fn kernel(&mut self, kernel: KernelId) -> Result<(), RunError> {
        let operands = self.operands(kernel)?;
        let start_ns = self.now_ns;
        let duration_ns = self.iteration.kernels()[kernel].duration_ns;
        self.walk(&operands, duration_ns).map_err(|stuck| match stuck {
            Stuck::Lost(tensor) => RunError::ContentsLost { kernel, tensor },
            Stuck::NoVictim(none) => self.out_of_memory(none),
        })?;
        for operand in self.iteration.operands(kernel) {
            self.tensors[operand.tensor].has_contents |= operand.access.writes();
        }
        self.engine.emit(Event::Ran { kernel, start_ns, end_ns: self.now_ns });
        Ok(())
    }

    fn walk(&mut self, operands: &[Operand], duration_ns: u64) -> Result<(), Stuck> {
        let setup = self.setup;
        let window_bytes = setup.machine.resident_threads.value.saturating_mul(setup.bytes_per_thread);
        let walk = Walk::new(operands, duration_ns, window_bytes, setup.machine.faults.batch_entries.value);
        self.now_ns = walk.run(&mut self.engine, self.now_ns)?;
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
