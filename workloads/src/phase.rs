//! Phases of a workload, each on all of its memory.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{PAGE_WORDS, order::Order};

/// Processor that accesses memory, or destination of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Processor {
    /// CPU and host memory.
    Cpu,
    /// GPU and its memory.
    Gpu,
}

/// Advice to the driver on the whole allocation (`cuMemAdvise`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Pages are mostly read, so readers get copies.
    ReadMostly,
    /// Pages prefer this location; other processors map them if they can.
    PreferredLocation(Processor),
    /// The GPU maps the pages at any location, and so accesses them without faults.
    AccessedByGpu,
}

/// Phase of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Writes every word.
    Write(Processor),
    /// Reads every word on the CPU, and verifies it.
    CpuRead,
    /// Reads on the GPU, and verifies the weighted sum.
    GpuRead(Order),
    /// Adds one to the first word of every page.
    Increment(Processor),
    /// Prefetches by the program itself (`cuMemPrefetchAsync`).
    Prefetch(Processor),
    /// Gives advice.
    Advise(Advice),
}

impl Phase {
    /// Numbers of words read and written, of `words`.
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

    /// Processor that accesses memory; none for a prefetch or advice.
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
