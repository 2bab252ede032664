//! Carries out a process's steps: one function a kind of step. Knows nothing of the driver, so that it is tested without one.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use crate::{
    check::{Checked, Mismatch, Shadow, value},
    scenario::{Access, Kind, Process, Processor, Step, WORD_BYTES},
    sys::swgpu::{GpuAccess, MAX_ACCESSES},
};

/// Memory, and the two processors that access it.
pub(crate) trait Machine {
    /// The address of an allocation's first byte, for all processors.
    fn address(&self, allocation: usize) -> u64;
    /// Read a word by the CPU.
    fn cpu_read(&self, allocation: usize, word: usize) -> u64;
    /// Write a word by the CPU.
    fn cpu_write(&mut self, allocation: usize, word: usize, value: u64);
    /// Let the GPU do these accesses; returns when they are done.
    fn gpu_run(&mut self, kind: Kind, window: u32, accesses: &mut [GpuAccess]) -> anyhow::Result<()>;
}

/// How steps ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// All are done.
    Done,
    /// A step ends the process.
    Exit { code: u8 },
    /// Cut short from outside.
    Stopped,
}

/// A process: its memory, what that must hold, and what was found.
pub(crate) struct Executor<'a, M> {
    machine: M,
    process: &'a Process,
    /// Counts the scenario's processes from 1.
    number: u64,
    shadows: Vec<Shadow>,
    writes: u64,
    checked: Checked,
    stop: &'a AtomicBool,
}

/// CPU accesses between two looks at whether to stop.
const CPU_ACCESSES_AT_ONCE: u64 = 1 << 14;

impl<'a, M: Machine> Executor<'a, M> {
    pub(crate) fn new(machine: M, process: &'a Process, number: u64, stop: &'a AtomicBool) -> anyhow::Result<Self> {
        let words = |bytes: u64| usize::try_from(bytes / WORD_BYTES);
        let shadows: Result<_, _> =
            process.allocations.iter().map(|allocation| words(allocation.bytes).map(Shadow::new)).collect();
        Ok(Self { machine, process, number, shadows: shadows?, writes: 0, checked: Checked::default(), stop })
    }

    pub(crate) fn machine(&self) -> &M {
        &self.machine
    }

    pub(crate) fn checked(&self) -> &Checked {
        &self.checked
    }

    pub(crate) fn run(&mut self, steps: &[Step]) -> anyhow::Result<Flow> {
        for step in steps {
            let flow = match step {
                Step::Access(access) => self.access(access)?,
                Step::Verify { allocation } => {
                    self.verify(*allocation);
                    Flow::Done
                }
                Step::Repeat { times, steps } => self.repeat(*times, steps)?,
                Step::Sleep { milliseconds } => self.sleep(Duration::from_millis(*milliseconds)),
                Step::Exit { code } => Flow::Exit { code: *code },
            };
            if flow != Flow::Done {
                return Ok(flow);
            }
            if self.stopped() {
                return Ok(Flow::Stopped);
            }
        }
        Ok(Flow::Done)
    }

    /// Compare every byte of every allocation, by the CPU.
    pub(crate) fn verify_everything(&mut self) {
        self.checked.verified_bytes = (0..self.shadows.len()).map(|allocation| self.verify(allocation)).sum();
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn repeat(&mut self, times: u32, steps: &[Step]) -> anyhow::Result<Flow> {
        for _ in 0..times {
            let flow = self.run(steps)?;
            if flow != Flow::Done {
                return Ok(flow);
            }
        }
        Ok(Flow::Done)
    }

    fn sleep(&self, duration: Duration) -> Flow {
        let end = Instant::now() + duration;
        while !self.stopped() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Flow::Done;
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
        Flow::Stopped
    }

    fn access(&mut self, access: &Access) -> anyhow::Result<Flow> {
        if access.kind == Kind::Write {
            self.writes += 1;
        }
        match access.by {
            Processor::Cpu => self.cpu_access(access),
            Processor::Gpu { window } => self.gpu_access(access, window),
        }
    }

    fn cpu_access(&mut self, access: &Access) -> anyhow::Result<Flow> {
        for (at, word) in (1_u64..).zip(access.words()) {
            let word = usize::try_from(word)?;
            match access.kind {
                Kind::Read => {
                    let found = self.machine.cpu_read(access.allocation, word);
                    self.checked.words_read += 1;
                    self.compare(access.allocation, word, found, "cpu");
                }
                Kind::Write => {
                    let value = self.fresh(access.allocation, word);
                    self.machine.cpu_write(access.allocation, word, value);
                    self.written(access.allocation, word, value);
                }
            }
            if at % CPU_ACCESSES_AT_ONCE == 0 && self.stopped() {
                return Ok(Flow::Stopped);
            }
        }
        Ok(Flow::Done)
    }

    fn gpu_access(&mut self, access: &Access, window: u32) -> anyhow::Result<Flow> {
        let base = self.machine.address(access.allocation);
        let mut words = access.words();
        let mut part = Vec::with_capacity(MAX_ACCESSES.min(usize::try_from(access.count())?));
        loop {
            part.clear();
            for word in words.by_ref().take(MAX_ACCESSES) {
                let value = match access.kind {
                    Kind::Read => 0,
                    Kind::Write => self.fresh(access.allocation, usize::try_from(word)?),
                };
                part.push(GpuAccess { va: base + word * WORD_BYTES, value });
            }
            if part.is_empty() {
                return Ok(Flow::Done);
            }
            self.machine.gpu_run(access.kind, window, &mut part)?;
            for GpuAccess { va, value } in &part {
                let word = usize::try_from((va - base) / WORD_BYTES)?;
                match access.kind {
                    Kind::Read => self.compare(access.allocation, word, *value, "gpu"),
                    Kind::Write => self.written(access.allocation, word, *value),
                }
            }
            if access.kind == Kind::Read {
                self.checked.words_read += part.len() as u64;
            }
            if self.stopped() {
                return Ok(Flow::Stopped);
            }
        }
    }

    /// Compare every byte of an allocation, by the CPU; says how many those are.
    fn verify(&mut self, allocation: usize) -> u64 {
        let words = self.shadows.get(allocation).map_or(0, Shadow::words);
        for word in 0..words {
            let found = self.machine.cpu_read(allocation, word);
            self.compare(allocation, word, found, "cpu");
        }
        words as u64 * WORD_BYTES
    }

    fn fresh(&self, allocation: usize, word: usize) -> u64 {
        value(self.number, self.machine.address(allocation) + word as u64 * WORD_BYTES, self.writes)
    }

    fn written(&mut self, allocation: usize, word: usize, value: u64) {
        if let Some(shadow) = self.shadows.get_mut(allocation) {
            shadow.written(word, value);
        }
    }

    fn compare(&mut self, allocation: usize, word: usize, found: u64, reader: &str) {
        let expected = self.shadows.get(allocation).map_or(0, |shadow| shadow.expected(word));
        let (process, machine) = (self.process, &self.machine);
        self.checked.compare(expected, found, || {
            let offset_bytes = word as u64 * WORD_BYTES;
            Mismatch {
                allocation: process.allocations.get(allocation).map(|found| found.name.clone()).unwrap_or_default(),
                offset_bytes,
                address: format!("{:#x}", machine.address(allocation) + offset_bytes),
                reader: reader.to_owned(),
                expected: format!("{expected:#x}"),
                found: format!("{found:#x}"),
            }
        });
    }
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;
