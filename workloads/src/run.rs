//! Carries the phases of a workload out, and verifies what memory holds.

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

/// Managed memory and a GPU that works on it.
pub trait Machine {
    /// What can go wrong.
    type Error: std::error::Error + 'static;

    /// Words of memory.
    fn words(&self) -> u64;
    /// Read a word on the CPU.
    fn cpu_read(&self, at: u64) -> u64;
    /// Write a word on the CPU.
    fn cpu_write(&mut self, at: u64, value: u64);
    /// Write the pattern of a seed into every word. Returns, as all of the GPU's work, when it is done, with the time it took.
    ///
    /// # Errors
    /// When a call of the driver fails, here and below.
    fn gpu_write(&mut self, seed: u64) -> Result<Duration, Self::Error>;
    /// Add one to the first word of every page.
    ///
    /// # Errors
    /// As above.
    fn gpu_increment(&mut self) -> Result<Duration, Self::Error>;
    /// The weighed sum of every `stride`-th word.
    ///
    /// # Errors
    /// As above.
    fn gpu_weigh(&mut self, stride: u64) -> Result<(u64, Duration), Self::Error>;
    /// The weighed sum of the first word of every page, in a shuffled order.
    ///
    /// # Errors
    /// As above.
    fn gpu_weigh_shuffled(&mut self, shuffle: Shuffle) -> Result<(u64, Duration), Self::Error>;
    /// Prefetch all of it.
    ///
    /// # Errors
    /// As above.
    fn prefetch(&mut self, to: Processor) -> Result<Duration, Self::Error>;
    /// Advise on all of it.
    ///
    /// # Errors
    /// As above.
    fn advise(&mut self, advice: Advice) -> Result<(), Self::Error>;
}

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E: std::error::Error + 'static> {
    /// The CPU found a wrong word.
    #[error("{phase}: word {word} is {found:#x} and must be {expected:#x}: the data is wrong")]
    WrongWord {
        /// While doing that.
        phase: String,
        /// Which.
        word: u64,
        /// What it is.
        found: u64,
        /// What it must be.
        expected: u64,
    },
    /// The GPU read something else than was written.
    #[error("{phase}: the GPU's weighed sum is {found:#x} and must be {expected:#x}: the data is wrong")]
    WrongSum {
        /// While doing that.
        phase: String,
        /// What it is.
        found: u64,
        /// What it must be.
        expected: u64,
    },
    /// The size cannot be shuffled.
    #[error("{pages} pages cannot be shuffled: the size must be a power of two")]
    NotShuffled {
        /// How many there are.
        pages: u64,
    },
    /// A call failed.
    #[error("{phase}: {source}")]
    Machine {
        /// While doing that.
        phase: String,
        /// The driver's answer.
        source: E,
    },
}

/// A workload at work.
pub struct Run<M> {
    machine: M,
    seed: u64,
    contents: Contents,
    residency: Residency,
}

impl<M: Machine> Run<M> {
    /// On memory nobody touched.
    pub fn new(machine: M, seed: u64) -> Self {
        let residency = Residency::untouched(machine.words() * WORD_BYTES);
        Self { machine, seed, contents: Contents::untouched(), residency }
    }

    /// Do a phase, and verify it.
    ///
    /// # Errors
    /// When the data is wrong, or a call fails.
    pub fn phase(&mut self, phase: Phase) -> Result<PhaseReport, RunError<M::Error>> {
        let words = self.machine.words();
        let elapsed = self.carry_out(phase, words)?;
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
            predicted: self.residency.after(phase),
        })
    }

    fn carry_out(&mut self, phase: Phase, words: u64) -> Result<Duration, RunError<M::Error>> {
        let failed = |source| RunError::Machine { phase: phase.to_string(), source };
        let machine = &mut self.machine;
        let begun = Instant::now();
        match phase {
            Phase::Write(processor) => {
                // Every pattern is another, so that what an earlier one left does not pass for the new one.
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
                        let shuffle = Shuffle::new(pages, self.seed).ok_or(RunError::NotShuffled { pages })?;
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
        Ok(begun.elapsed())
    }
}

#[cfg(test)]
mod tests;
