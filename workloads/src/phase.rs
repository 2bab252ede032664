//! What a workload does in one step, on the whole of its memory.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{PAGE_WORDS, order::Order};

/// Who touches the memory, or where it shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Processor {
    /// The host's processors and memory.
    Cpu,
    /// The GPU and its memory.
    Gpu,
}

/// Advice to the driver on the whole allocation (`cuMemAdvise`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Pages are read far more often than written: readers get copies.
    ReadMostly,
    /// Pages belong there; others map them if they can.
    PreferredLocation(Processor),
    /// The GPU maps the pages wherever they are, and so needs no fault.
    AccessedByGpu,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Write every word.
    Write(Processor),
    /// Read every word on the CPU, and verify it.
    CpuRead,
    /// Read on the GPU, and verify the weighed sum.
    GpuRead(Order),
    /// Add one to the first word of every page.
    Increment(Processor),
    /// The program's own prefetch (`cuMemPrefetchAsync`).
    Prefetch(Processor),
    /// Advice.
    Advise(Advice),
}

impl Phase {
    /// How many of `words` it reads, and how many it writes.
    pub(crate) fn words(self, words: u64) -> (u64, u64) {
        let pages = words / PAGE_WORDS;
        match self {
            Self::Write(_) => (0, words),
            Self::CpuRead => (words, 0),
            Self::GpuRead(order) => (order.count(words), 0),
            Self::Increment(_) => (pages, pages),
            Self::Prefetch(_) | Self::Advise(_) => (0, 0),
        }
    }

    /// Who touches memory; nobody in a prefetch or an advice.
    #[must_use]
    pub fn toucher(self) -> Option<Processor> {
        match self {
            Self::Write(processor) | Self::Increment(processor) => Some(processor),
            Self::CpuRead => Some(Processor::Cpu),
            Self::GpuRead(_) => Some(Processor::Gpu),
            Self::Prefetch(_) | Self::Advise(_) => None,
        }
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
        })
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(processor) => write!(f, "{processor}-write"),
            Self::CpuRead => f.write_str("cpu-read"),
            Self::GpuRead(Order::Sequential) => f.write_str("gpu-read"),
            Self::GpuRead(Order::Strided) => f.write_str("gpu-read-strided"),
            Self::GpuRead(Order::Random) => f.write_str("gpu-read-random"),
            Self::Increment(processor) => write!(f, "{processor}-increment"),
            Self::Prefetch(processor) => write!(f, "prefetch-to-{processor}"),
            Self::Advise(Advice::ReadMostly) => f.write_str("advise-read-mostly"),
            Self::Advise(Advice::PreferredLocation(processor)) => write!(f, "advise-preferred-{processor}"),
            Self::Advise(Advice::AccessedByGpu) => f.write_str("advise-accessed-by-gpu"),
        }
    }
}
