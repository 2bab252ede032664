//! Accesses of a kernel to its tensors: to all in parallel, each from its first byte to its last at
//! an even pace.
//!
//! Threads that access absent memory wait for it. The others continue, and new ones begin, until
//! all threads that fit the GPU wait. So a kernel whose data are mostly resident hardly waits, and
//! one whose data are all absent stops at once.

use std::collections::BTreeSet;

use trace::TensorId;

use crate::{
    engine::{Engine, NoVictim},
    units::{GRANULE_BYTES, GRANULES_PER_BLOCK, Granules, Mask, PAGE_BYTES, mask_bytes},
};

/// Progress of a complete kernel.
const FULL_PROGRESS: u64 = 1 << 32;
const PER_BLOCK: u64 = GRANULES_PER_BLOCK as u64;

/// Tensor as an operand of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    pub(crate) tensor: TensorId,
    pub(crate) range: Granules,
    pub(crate) reads: bool,
}

impl Operand {
    /// Progress at which a granule is accessed.
    fn progress_at(&self, granule: u64) -> u64 {
        let part = u128::from(granule - self.range.first) * u128::from(FULL_PROGRESS) / u128::from(self.range.count());
        u64::try_from(part).unwrap_or(FULL_PROGRESS)
    }

    /// First granule that is accessed at this progress or later.
    fn granule_at(&self, progress: u64) -> u64 {
        let count = (u128::from(progress) * u128::from(self.range.count())).div_ceil(u128::from(FULL_PROGRESS));
        self.range.first + u64::try_from(count).unwrap_or(u64::MAX).min(self.range.count())
    }
}

/// Reason why a kernel cannot proceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// The kernel reads a tensor with a granule in no memory.
    Lost(TensorId),
    /// No block can be evicted.
    NoVictim(NoVictim),
}

impl From<NoVictim> for Stuck {
    fn from(none: NoVictim) -> Self {
        Self::NoVictim(none)
    }
}

/// Access to a granule that is not on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Miss {
    progress: u64,
    operand: usize,
    granule: u64,
}

/// Running kernel.
pub(crate) struct Walk {
    operands: Vec<Pass>,
    /// Progress up to which granules were accessed, or are waited for.
    passed: u64,
    duration_ns: u64,
    /// Part of the duration that the kernel has run.
    done_ns: u64,
    waiting: BTreeSet<Miss>,
    batch_granules: usize,
}

/// Progress of a kernel in a tensor.
struct Pass {
    operand: Operand,
    /// Granule up to which none is absent, from `passed` on.
    resident_end: u64,
    /// Granules that threads wait for, and the number at which all threads wait.
    waiting: u64,
    limit: u64,
}

impl Walk {
    pub(crate) fn new(operands: &[Operand], duration_ns: u64, window_bytes: u64, batch_entries: u32) -> Self {
        let largest = operands.iter().map(|operand| operand.range.count()).max().unwrap_or(1).max(1);
        let operands = operands.iter().map(|&operand| {
            let share =
                u128::from(window_bytes / GRANULE_BYTES) * u128::from(operand.range.count()) / u128::from(largest);
            let limit = u64::try_from(share).unwrap_or(u64::MAX).max(1);
            Pass { operand, resident_end: operand.range.first, waiting: 0, limit }
        });
        // Every page of a granule faults.
        let batch_granules = u64::from(batch_entries) * PAGE_BYTES / GRANULE_BYTES;
        Self {
            operands: operands.collect(),
            passed: 0,
            duration_ns,
            done_ns: 0,
            waiting: BTreeSet::new(),
            batch_granules: usize::try_from(batch_granules).unwrap_or(usize::MAX),
        }
    }

    /// Runs the kernel; when it ends.
    pub(crate) fn run(mut self, engine: &mut Engine<'_>, start_ns: u64) -> Result<u64, Stuck> {
        let mut now_ns = start_ns;
        engine.departed.clear();
        loop {
            let Some(first) = self.waiting.first().copied() else {
                // Proceeds to the next miss, or until a block leaves the GPU, which may cause an
                // earlier one.
                let miss = self.next_miss(engine);
                let target_ns = miss.map_or(self.duration_ns, |miss| self.pace_ns(miss.progress)).max(self.done_ns);
                let due_ns = now_ns + (target_ns - self.done_ns);
                engine.run_until_departure(due_ns)?;
                self.done_ns = target_ns - (due_ns - engine.clock_ns());
                now_ns = engine.clock_ns();
                let arrived = now_ns == due_ns && engine.departed.is_empty();
                self.recheck_departed(engine);
                match miss {
                    _ if !arrived => self.pass(self.done_ns),
                    Some(miss) => self.wait_for(engine, miss)?,
                    None => return Ok(now_ns),
                }
                continue;
            };
            let block = first.granule / PER_BLOCK;
            let wait_start_ns = now_ns;
            if engine.in_transit(block) {
                engine.await_block(block)?;
                now_ns = now_ns.max(engine.clock_ns());
                self.recheck_departed(engine);
                self.wake(engine, block);
                self.advance(engine, now_ns - wait_start_ns)?;
            } else {
                // Until the driver fetches the batch, threads continue, and more of them fault.
                let fetched_ns = now_ns + engine.batch_ns();
                self.advance(engine, fetched_ns - now_ns)?;
                engine.run_until(fetched_ns)?;
                self.recheck_departed(engine);
                let batch = self.batch(engine);
                // Every page of a granule faults.
                engine.traffic.faults += batch.iter().map(|(_, mask)| mask_bytes(*mask) / PAGE_BYTES).sum::<u64>();
                now_ns = if batch.is_empty() { fetched_ns } else { engine.service(fetched_ns, &batch)? };
                engine.run_until(now_ns)?;
                self.recheck_departed(engine);
                for (block, _) in batch {
                    self.wake(engine, block);
                }
                self.advance(engine, now_ns - fetched_ns)?;
            }
        }
    }

    fn pace_ns(&self, progress: u64) -> u64 {
        let pace = u128::from(progress) * u128::from(self.duration_ns) / u128::from(FULL_PROGRESS);
        u64::try_from(pace).unwrap_or(self.duration_ns)
    }

    /// Marks all granules before this time of the kernel as accessed.
    fn pass(&mut self, done_ns: u64) {
        let progress = u128::from(done_ns) * u128::from(FULL_PROGRESS) / u128::from(self.duration_ns.max(1));
        self.passed = self.passed.max(u64::try_from(progress).unwrap_or(FULL_PROGRESS));
    }

    /// Continues the threads that do not wait, for a time.
    fn advance(&mut self, engine: &Engine<'_>, for_ns: u64) -> Result<(), Stuck> {
        let until_ns = (self.done_ns + for_ns).min(self.duration_ns);
        while self.operands.iter().all(|pass| pass.waiting < pass.limit) {
            match self.next_miss(engine) {
                Some(miss) if self.pace_ns(miss.progress) <= until_ns => {
                    self.done_ns = self.done_ns.max(self.pace_ns(miss.progress));
                    self.wait_for(engine, miss)?;
                }
                _ => {
                    self.done_ns = until_ns;
                    self.pass(until_ns);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Next access that misses, beyond `passed`.
    fn next_miss(&mut self, engine: &Engine<'_>) -> Option<Miss> {
        let passed = self.passed;
        let mut next = None;
        for (index, Pass { operand, resident_end, .. }) in self.operands.iter_mut().enumerate() {
            let first = (*resident_end).max(operand.granule_at(passed));
            let missing = engine.memory.first_missing(Granules { first, end: operand.range.end });
            *resident_end = missing.unwrap_or(operand.range.end);
            let miss = missing.map(|granule| Miss { progress: operand.progress_at(granule), operand: index, granule });
            next = next.into_iter().chain(miss).min();
        }
        next
    }

    /// Adds a miss for which threads wait.
    fn wait_for(&mut self, engine: &Engine<'_>, miss: Miss) -> Result<(), Stuck> {
        self.passed = self.passed.max(miss.progress);
        let Some(pass) = self.operands.get_mut(miss.operand) else { return Ok(()) };
        pass.resident_end = miss.granule + 1;
        let (block, bit) = (miss.granule / PER_BLOCK, 1 << (miss.granule % PER_BLOCK));
        if pass.operand.reads && engine.memory.place(block).populated() & bit == 0 {
            return Err(Stuck::Lost(pass.operand.tensor));
        }
        if self.waiting.insert(miss) {
            pass.waiting += 1;
        }
        Ok(())
    }

    /// Checks again for absent granules in blocks that left the GPU, ahead of the kernel.
    fn recheck_departed(&mut self, engine: &mut Engine<'_>) {
        for block in engine.departed.drain(..) {
            let first = block * PER_BLOCK;
            for Pass { operand, resident_end, .. } in &mut self.operands {
                if first < operand.range.end && operand.range.first < first + PER_BLOCK {
                    *resident_end = (*resident_end).min(first.max(operand.range.first));
                }
            }
        }
    }

    /// Ends the waiting for granules of a block that are on the GPU.
    fn wake(&mut self, engine: &Engine<'_>, block: u64) {
        let on_gpu = engine.memory.place(block).gpu;
        for (index, Pass { operand, waiting, .. }) in self.operands.iter_mut().enumerate() {
            let mut arrived = operand.range.within(block) & on_gpu;
            while arrived != 0 {
                let granule = block * PER_BLOCK + u64::from(arrived.trailing_zeros());
                let miss = Miss { progress: operand.progress_at(granule), operand: index, granule };
                *waiting -= u64::from(self.waiting.remove(&miss));
                arrived &= arrived - 1;
            }
        }
    }

    /// Faults that the driver fetches at once, by block, in order of arrival.
    fn batch(&mut self, engine: &Engine<'_>) -> Vec<(u64, Mask)> {
        let mut batch: Vec<(u64, Mask)> = Vec::new();
        let mut arrived = Vec::new();
        let mut fetched = 0;
        for miss in &self.waiting {
            let (block, bit) = (miss.granule / PER_BLOCK, 1 << (miss.granule % PER_BLOCK));
            if engine.memory.place(block).gpu & bit != 0 {
                arrived.push(block);
            } else if !engine.in_transit(block) {
                match batch.iter_mut().find(|(other, _)| *other == block) {
                    Some((_, mask)) => *mask |= bit,
                    None => batch.push((block, bit)),
                }
                fetched += 1;
            }
            if fetched == self.batch_granules {
                break;
            }
        }
        for block in arrived {
            self.wake(engine, block);
        }
        batch.sort_unstable();
        batch
    }
}
