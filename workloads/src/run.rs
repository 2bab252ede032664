//! Execution of a workload's phases, and verification of the contents of memory.

use std::time::{Duration, Instant};

use crate::{
    PAGE_WORDS, WORD_BYTES,
    contents::Contents,
    order::{Order, Shuffle},
    phase::{
        Advice, Phase,
        Processor::{self, Cpu, Gpu},
    },
    report::PhaseReport,
    residency::Residency,
};

/// Managed memory, and a GPU that works on it.
pub trait Machine {
    /// Error of a call.
    type Error: std::error::Error + 'static;

    /// Number of words of memory.
    fn words(&self) -> u64;
    /// Reads a word on the CPU.
    fn cpu_read(&self, at: u64) -> u64;
    /// Writes a word on the CPU.
    fn cpu_write(&mut self, at: u64, value: u64);
    /// Writes the pattern of a seed into every word. Like all GPU work, it returns at completion,
    /// with the time taken.
    ///
    /// # Errors
    /// If a call of the driver fails, here and below.
    fn gpu_write(&mut self, seed: u64) -> Result<Duration, Self::Error>;
    /// Adds one to the first word of every page.
    ///
    /// # Errors
    /// As above.
    fn gpu_increment(&mut self) -> Result<Duration, Self::Error>;
    /// Weighted sum of every `stride`-th word.
    ///
    /// # Errors
    /// As above.
    fn gpu_weigh(&mut self, stride: u64) -> Result<(u64, Duration), Self::Error>;
    /// Weighted sum of the first word of every page, in shuffled order.
    ///
    /// # Errors
    /// As above.
    fn gpu_weigh_shuffled(&mut self, shuffle: Shuffle) -> Result<(u64, Duration), Self::Error>;
    /// Prefetches all memory.
    ///
    /// # Errors
    /// As above.
    fn prefetch(&mut self, to: Processor) -> Result<Duration, Self::Error>;
    /// Gives advice for all memory.
    ///
    /// # Errors
    /// As above.
    fn advise(&mut self, advice: Advice) -> Result<(), Self::Error>;
}

/// Error that ended a run early.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E: std::error::Error + 'static> {
    /// The CPU read a wrong word.
    #[error("{phase}: word {word} is {found:#x} and must be {expected:#x}: the data is wrong")]
    WrongWord {
        /// Phase.
        phase: String,
        /// Index of the word.
        word: u64,
        /// Value read.
        found: u64,
        /// Expected value.
        expected: u64,
    },
    /// The weighted sum of the GPU's reads is wrong.
    #[error("{phase}: the GPU's weighed sum is {found:#x} and must be {expected:#x}: the data is wrong")]
    WrongSum {
        /// Phase.
        phase: String,
        /// Sum read.
        found: u64,
        /// Expected sum.
        expected: u64,
    },
    /// The size cannot be shuffled.
    #[error("{pages} pages cannot be shuffled: the size must be a power of two")]
    NoShuffle {
        /// Number of pages.
        pages: u64,
    },
    /// A call failed.
    #[error("{phase}: {source}")]
    Machine {
        /// Phase.
        phase: String,
        /// Error of the driver.
        source: E,
    },
}

/// Workload in execution.
pub struct Run<M> {
    machine: M,
    seed: u64,
    contents: Contents,
    residency: Residency,
}

impl<M: Machine> Run<M> {
    /// Run on untouched memory.
    pub fn new(machine: M, seed: u64) -> Self {
        let residency = Residency::untouched(machine.words() * WORD_BYTES);
        Self { machine, seed, contents: Contents::untouched(), residency }
    }

    /// Executes a phase, and verifies it.
    ///
    /// # Errors
    /// If data is wrong, or a call fails.
    pub fn phase(&mut self, phase: Phase) -> Result<PhaseReport, RunError<M::Error>> {
        let words = self.machine.words();
        let elapsed = self.execute(phase, words)?;
        let (read, written) = phase.words(words);
        let pages_touched = match phase {
            Phase::Prefetch(_) | Phase::Advise(_) => 0,
            Phase::GpuRead(order) => (words / PAGE_WORDS).min(order.count(words)),
            _ => words / PAGE_WORDS,
        };
        Ok(PhaseReport {
            phase: phase.to_string(),
            toucher: phase.toucher(),
            read_bytes: read * WORD_BYTES,
            written_bytes: written * WORD_BYTES,
            pages_touched,
            elapsed_ms: elapsed.as_secs_f64() * 1e3,
            predicted: self.residency.apply(phase),
        })
    }

    fn execute(&mut self, phase: Phase, words: u64) -> Result<Duration, RunError<M::Error>> {
        let failed = |source| RunError::Machine { phase: phase.to_string(), source };
        let machine = &mut self.machine;
        let start = Instant::now();
        match phase {
            Phase::Write(processor) => {
                // Every write has a new pattern, so that remains of an earlier one are detected.
                self.seed = self.seed.wrapping_add(1);
                self.contents = Contents::written(self.seed);
                if processor == Gpu {
                    return machine.gpu_write(self.seed).map_err(failed);
                }
                for at in 0..words {
                    machine.cpu_write(at, self.contents.word(at));
                }
            }
            Phase::Increment(processor) => {
                self.contents = self.contents.incremented();
                if processor == Gpu {
                    return machine.gpu_increment().map_err(failed);
                }
                for page in 0..words / PAGE_WORDS {
                    let at = page * PAGE_WORDS;
                    machine.cpu_write(at, machine.cpu_read(at).wrapping_add(1));
                }
            }
            Phase::CpuRead => {
                for word in 0..words {
                    let (found, expected) = (machine.cpu_read(word), self.contents.word(word));
                    if found != expected {
                        return Err(RunError::WrongWord { phase: phase.to_string(), word, found, expected });
                    }
                }
            }
            Phase::GpuRead(order) => {
                let (found, elapsed) = match order {
                    Order::Sequential | Order::Strided => machine.gpu_weigh(order.stride_words()).map_err(failed)?,
                    Order::Random => {
                        let pages = words / PAGE_WORDS;
                        let shuffle = Shuffle::new(pages, self.seed).ok_or(RunError::NoShuffle { pages })?;
                        machine.gpu_weigh_shuffled(shuffle).map_err(failed)?
                    }
                };
                let expected = self.contents.weighed(words, order.stride_words());
                if found != expected {
                    return Err(RunError::WrongSum { phase: phase.to_string(), found, expected });
                }
                return Ok(elapsed);
            }
            Phase::Prefetch(to @ (Cpu | Gpu)) => return machine.prefetch(to).map_err(failed),
            Phase::Advise(advice) => machine.advise(advice).map_err(failed)?,
        }
        Ok(start.elapsed())
    }
}

#[cfg(test)]
mod tests;
