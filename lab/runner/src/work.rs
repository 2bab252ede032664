//! Machine of the steps: a process's memory, the processors that access it, and its expected
//! contents. Independent of the driver, so that steps are tested without one. All threads of a
//! process share it.

mod access;

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use gpu::swgpu::{GpuAccess, Kernel};

use crate::{
    check::{Mismatch, Shadow, value},
    scenario::{
        Call, Part, Process, WORD_BYTES,
        steps::{
            Execution, Flow, Step,
            access::{Access, Kind},
            run_list,
        },
    },
    sys::{access_log::CpuMark, tally::Tally},
};

/// Memory, its processors, and the driver's calls about it.
pub(crate) trait Machine: Sync {
    /// Address of an allocation's first byte, the same for all processors.
    fn address(&self, allocation: usize) -> u64;
    /// Reads a word by the CPU.
    fn cpu_read(&self, allocation: usize, word: usize) -> u64;
    /// Writes a word by the CPU.
    fn cpu_write(&self, allocation: usize, word: usize, value: u64);
    /// Adds to a word by the CPU, atomically for all processors; returns its value before.
    fn cpu_add(&self, allocation: usize, word: usize, addend: u64) -> u64;
    /// Marks begin or end of accesses by the CPU in the GPUs' logs.
    fn cpu_mark(&self, mark: &CpuMark) -> anyhow::Result<()>;
    /// Runs a kernel of accesses on a GPU; returns when they are done.
    fn gpu_run(&self, kernel: &Kernel, accesses: &mut [GpuAccess]) -> anyhow::Result<()>;
    /// Makes one of the application's calls of the driver.
    fn call(&self, call: Call, address: u64, bytes: u64) -> anyhow::Result<()>;
    /// Allocates memory of a GPU that is not managed.
    fn device_alloc(&self, name: &str, gpu: u32, bytes: u64) -> anyhow::Result<()>;
    /// Frees such memory.
    fn device_free(&self, name: &str) -> anyhow::Result<()>;
    /// Kills the process, as kill -9 does.
    fn kill(&self) -> anyhow::Result<()>;

    /// Time by the clock of the steps.
    fn now(&self) -> Instant {
        Instant::now()
    }
    /// Lets this much time pass.
    fn pass(&self, time: Duration) {
        thread::sleep(time);
    }

    /// Sleeps for a duration, or until it is stopped.
    fn sleep(&self, duration: Duration, is_stopped: &dyn Fn() -> bool) {
        let end = self.now() + duration;
        while !is_stopped() {
            let left = end.saturating_duration_since(self.now());
            if left.is_zero() {
                return;
            }
            self.pass(left.min(SLEEP_SLICE));
        }
    }
}

/// Interval in which a sleeping step checks whether it is stopped.
const SLEEP_SLICE: Duration = Duration::from_millis(50);

/// Processor that read a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    Cpu,
    Gpu,
}

/// Process at work.
pub(crate) struct Work<'a> {
    pub(crate) machine: &'a dyn Machine,
    memory: &'a Memory<'a>,
    /// Whether other threads may add to the same words concurrently.
    is_shared: bool,
}

/// Expected memory of a process.
pub(crate) struct Memory<'a> {
    process: &'a Process,
    /// Number of the process in the scenario, from 1.
    number: u64,
    shadows: Vec<Shadow>,
    writes: AtomicU64,
    tally: &'a Tally,
    first_mismatch: Mutex<Option<Mismatch>>,
    stop: &'a AtomicBool,
}

// === impl Memory ===

impl<'a> Memory<'a> {
    pub(crate) fn new(
        process: &'a Process,
        number: u64,
        tally: &'a Tally,
        stop: &'a AtomicBool,
    ) -> anyhow::Result<Self> {
        let words = |bytes: u64| usize::try_from(bytes / WORD_BYTES);
        let shadows: Result<_, _> =
            process.allocations.iter().map(|allocation| words(allocation.bytes).map(Shadow::new)).collect();
        let (writes, first_mismatch) = (AtomicU64::new(0), Mutex::new(None));
        Ok(Self { process, number, shadows: shadows?, writes, tally, first_mismatch, stop })
    }

    pub(crate) fn first_mismatch(&self) -> Option<Mismatch> {
        self.first_mismatch.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

// === impl Work ===

impl<'a> Work<'a> {
    pub(crate) fn new(machine: &'a dyn Machine, memory: &'a Memory<'a>) -> Self {
        Self { machine, memory, is_shared: false }
    }

    /// Work for each of several threads.
    fn shared(&self) -> Self {
        Self { is_shared: true, ..*self }
    }

    /// Number of a pass that writes; each has a different one.
    pub(crate) fn next_write(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Read => 0,
            Kind::Write | Kind::Atomic => self.memory.writes.fetch_add(1, Ordering::Relaxed) + 1,
        }
    }

    /// Value that pass number `write` writes to a word.
    pub(crate) fn new_value(&self, allocation: usize, word: usize, write: u64) -> u64 {
        value(self.memory.number, self.machine.address(allocation) + word as u64 * WORD_BYTES, write)
    }

    /// Counts the begin of a kernel.
    pub(crate) fn count_kernel(&self) {
        self.memory.tally.kernels.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a write of a word.
    pub(crate) fn record_write(&self, allocation: usize, word: usize, value: u64) {
        if let Some(shadow) = self.memory.shadows.get(allocation) {
            shadow.record_write(word, value);
        }
    }

    /// Records an addition to a word, which held `before` until then. With concurrent additions of
    /// other threads only the sum is known.
    pub(crate) fn record_add(&self, allocation: usize, word: usize, addend: u64, before: u64, reader: Reader) {
        if !self.is_shared {
            self.compare(allocation, word, before, reader);
        }
        if let Some(shadow) = self.memory.shadows.get(allocation) {
            shadow.record_add(word, addend);
        }
    }

    /// Compares a word that a step read.
    pub(crate) fn compare(&self, allocation: usize, word: usize, found: u64, reader: Reader) {
        self.memory.tally.words_read.fetch_add(1, Ordering::Relaxed);
        self.check_word(allocation, word, found, reader);
    }

    /// Lets the CPU access a part of an allocation, between marks in the log.
    pub(crate) fn by_cpu<T>(
        &self,
        part: Part,
        kind: Kind,
        accesses: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let Part { allocation, offset_bytes, length_bytes: bytes } = part;
        let mark = CpuMark { begins: true, kind, address: self.machine.address(allocation) + offset_bytes, bytes };
        self.machine.cpu_mark(&mark)?;
        let done = accesses()?;
        self.machine.cpu_mark(&CpuMark { begins: false, ..mark })?;
        Ok(done)
    }

    /// Compares every byte of every allocation.
    pub(crate) fn verify_everything(&self) -> anyhow::Result<()> {
        let all = 0..self.memory.shadows.len();
        let bytes = all.map(|allocation| self.verify(allocation)).sum::<anyhow::Result<u64>>()?;
        self.memory.tally.verified_bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn check_word(&self, allocation: usize, word: usize, found: u64, reader: Reader) {
        let Memory { process, shadows, tally, first_mismatch, .. } = self.memory;
        let expected = shadows.get(allocation).map_or(0, |shadow| shadow.expected(word));
        if expected == found {
            return;
        }
        tally.mismatches.fetch_add(1, Ordering::Relaxed);
        let offset_bytes = word as u64 * WORD_BYTES;
        first_mismatch.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| Mismatch {
            allocation: process.allocations.get(allocation).map(|found| found.name.clone()).unwrap_or_default(),
            offset_bytes,
            address: format!("{:#x}", self.machine.address(allocation) + offset_bytes),
            reader: match reader {
                Reader::Cpu => "cpu".to_owned(),
                Reader::Gpu => "gpu".to_owned(),
            },
            expected: format!("{expected:#x}"),
            found: format!("{found:#x}"),
        });
    }
}

impl Execution for Work<'_> {
    fn access(&self, access: &Access) -> anyhow::Result<Flow> {
        access::run(access, self)
    }

    fn verify(&self, allocation: usize) -> anyhow::Result<u64> {
        let words = self.memory.shadows.get(allocation).map_or(0, Shadow::words);
        let part = Part { allocation, offset_bytes: 0, length_bytes: words as u64 * WORD_BYTES };
        self.by_cpu(part, Kind::Read, || {
            for word in 0..words {
                self.check_word(allocation, word, self.machine.cpu_read(allocation, word), Reader::Cpu);
            }
            Ok(part.length_bytes)
        })
    }

    fn call(&self, part: Part, call: Call) -> anyhow::Result<()> {
        let Part { allocation, offset_bytes, length_bytes } = part;
        // Counted before the call, so that a process killed in the call has counted it.
        self.memory.tally.count_call(call, length_bytes);
        self.machine.call(call, self.machine.address(allocation) + offset_bytes, length_bytes)
    }

    fn device_alloc(&self, name: &str, gpu: u32, bytes: u64) -> anyhow::Result<()> {
        self.machine.device_alloc(name, gpu, bytes)
    }

    fn device_free(&self, name: &str) -> anyhow::Result<()> {
        self.machine.device_free(name)
    }

    fn sleep(&self, duration: Duration) {
        self.machine.sleep(duration, &|| self.is_stopped());
    }

    fn now(&self) -> Instant {
        self.machine.now()
    }

    fn is_stopped(&self) -> bool {
        self.memory.stop.load(Ordering::Relaxed)
    }

    fn in_threads(&self, lists: &[Vec<Box<dyn Step>>]) -> anyhow::Result<Vec<Flow>> {
        let work = &self.shared();
        thread::scope(|scope| {
            let threads: Vec<_> = lists.iter().map(|steps| scope.spawn(move || run_list(steps, work))).collect();
            // All threads are joined, even after one failed.
            let results: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
            results.into_iter().map(|result| result.map_err(|_| anyhow!("a thread panicked"))?).collect()
        })
    }

    fn kill(&self) -> anyhow::Result<()> {
        self.machine.kill()
    }
}

#[cfg(test)]
mod tests;
